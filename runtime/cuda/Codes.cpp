//===- runtime/cuda/Codes.cpp ---------------------------------------------===//
#include "runtime/cuda/Codes.h"

namespace sluice::runtime::cuda {

Answer answerOf(cudaError_t code, const char *call) {
  if (code == cudaSuccess)
    return {};
  (void)cudaGetLastError(); // it would be told again by the next launch
  return {std::string(call) + ": " + cudaGetErrorString(code)};
}

Answer answerOf(ncclResult_t code, const char *call) {
  if (code == ncclSuccess || code == ncclInProgress)
    return {};
  std::string fault = std::string(call) + ": " + ncclGetErrorString(code);
  const char *detail = ncclGetLastError(nullptr);
  if (detail && *detail)
    fault += std::string(" (") + detail + ")";
  return {fault};
}

Answer answerOf(cublasStatus_t code, const char *call) {
  if (code == CUBLAS_STATUS_SUCCESS)
    return {};
  return {std::string(call) + ": " + cublasLtGetStatusString(code)};
}

Status statusOf(const Answer &answer, const std::string &who) {
  if (answer.ok())
    return {};
  return Status::environment(who + ": " + answer.fault);
}

} // namespace sluice::runtime::cuda
