//===- runtime/cuda/Plugin.cpp - The entry of libsluice_cuda.so -----------===//
#include "runtime/CudaPlugin.h"

extern "C" const sluice::runtime::CudaPlugin *sluice_cuda_plugin() {
  static constexpr sluice::runtime::CudaPlugin kPlugin = {
      sluice::runtime::kCudaPluginVersion, sluice::runtime::makeCudaWorld};
  return &kPlugin;
}
