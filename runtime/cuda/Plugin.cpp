//===- runtime/cuda/Plugin.cpp - What the program loads ------------------===//
#include "runtime/Backend.h"

using namespace sluice::runtime;

extern "C" {
extern __attribute__((visibility("default")))
const BackendPlugin sluice_backend;
const BackendPlugin sluice_backend = {kBackendVersion,
                                      {makeCudaWorld, nullptr}};
}
