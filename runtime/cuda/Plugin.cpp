//===- runtime/cuda/Plugin.cpp - What the program loads ------------------===//
#include "runtime/Backend.h"
#include "runtime/cuda/Communicators.h"
#include "runtime/cuda/gpt/Module.h"

#include <string_view>

using namespace sluice::runtime;

static const sluice_module *moduleOnDevice(const char *name) {
  return name == std::string_view("gpt") ? cuda::gptOnDevice() : nullptr;
}

extern "C" {
extern __attribute__((visibility("default")))
const BackendPlugin sluice_backend;
const BackendPlugin sluice_backend = {
    kBackendVersion,
    {makeCudaWorld, nullptr, moduleOnDevice, cuda::Communicators::makeToken}};
}
