//===- runtime/mpi/Plugin.cpp - What the program loads -------------------===//
#include "runtime/mpi/MpiPeers.h"
#include "runtime/mpi/MpiWorld.h"

using namespace sluice::runtime;

extern "C" {
extern __attribute__((visibility("default")))
const BackendPlugin sluice_backend;
const BackendPlugin sluice_backend = {
    kBackendVersion, {mpi::MpiWorld::make, mpi::MpiPeers::connect}};
}
