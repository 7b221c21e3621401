//===- runtime/cuda/Codes.h - What libraries answer, as sentences -----===//
//
// The one place where status codes become messages: the call that failed and
// what its library says of it.
//
//===----------------------------------------------------------------------===//
#ifndef SLUICE_RUNTIME_CUDA_CODES_H
#define SLUICE_RUNTIME_CUDA_CODES_H

#include "ir/Status.h"

#include <string>

#include <cublasLt.h>
#include <cuda_runtime_api.h>
#include <nccl.h>

namespace sluice::runtime::cuda {

/// How a call ended: empty where it succeeded.
struct [[nodiscard]] Answer {
  std::string fault; ///< "cudaMalloc: out of memory"
  bool ok() const { return fault.empty(); }
};

/// `call` is the function that returned the code. A memory that is short and
/// anything else are the machine's fault alike. ncclInProgress is no fault.
Answer answerOf(cudaError_t code, const char *call);
Answer answerOf(ncclResult_t code, const char *call);
Answer answerOf(cublasStatus_t code, const char *call);

/// The same as a status, with who called: "rank 3".
Status statusOf(const Answer &answer, const std::string &who);

} // namespace sluice::runtime::cuda

#endif // SLUICE_RUNTIME_CUDA_CODES_H
