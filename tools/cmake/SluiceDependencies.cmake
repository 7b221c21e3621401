# Third-party libraries, each found once. What is optional says so and what
# its absence switches off.
find_package(LLVM 19.1 REQUIRED CONFIG)
add_library(sluice_llvm INTERFACE)
separate_arguments(llvm_definitions NATIVE_COMMAND "${LLVM_DEFINITIONS}")
target_compile_definitions(sluice_llvm INTERFACE ${llvm_definitions})
target_include_directories(sluice_llvm SYSTEM INTERFACE ${LLVM_INCLUDE_DIRS})
target_link_libraries(sluice_llvm INTERFACE LLVMSupport) # the static part, never "LLVM"
target_link_options(sluice_llvm INTERFACE LINKER:--gc-sections,--as-needed)

find_package(yaml-cpp REQUIRED)
find_library(yaml_cpp_static libyaml-cpp.a)
add_library(sluice_yaml INTERFACE)
target_include_directories(sluice_yaml SYSTEM INTERFACE ${YAML_CPP_INCLUDE_DIR})
target_link_libraries(sluice_yaml INTERFACE $<IF:$<BOOL:${yaml_cpp_static}>,${yaml_cpp_static},yaml-cpp>)

find_package(Threads REQUIRED)

find_program(SLUICE_FLATC flatc REQUIRED)
find_path(flatbuffers_include flatbuffers/flatbuffers.h REQUIRED)
add_library(sluice_flatbuffers INTERFACE)
target_include_directories(sluice_flatbuffers SYSTEM INTERFACE ${flatbuffers_include})

find_path(xxhash_include xxhash.h REQUIRED)
find_library(xxhash_library xxhash REQUIRED)
add_library(sluice_xxhash INTERFACE)
target_include_directories(sluice_xxhash SYSTEM INTERFACE ${xxhash_include})
target_link_libraries(sluice_xxhash INTERFACE ${xxhash_library})

find_path(cblas_include cblas.h REQUIRED PATH_SUFFIXES openblas)
find_library(openblas_library openblas REQUIRED)
add_library(sluice_openblas INTERFACE)
target_include_directories(sluice_openblas SYSTEM INTERFACE ${cblas_include})
# Loaded when it is needed (runtime/modules/gpt/MatrixProduct.cpp), by the name
# of the library's interface.
execute_process(COMMAND ${CMAKE_OBJDUMP} -p ${openblas_library} OUTPUT_VARIABLE openblas_headers)
string(REGEX MATCH "SONAME +([^\n ]+)" openblas_soname "${openblas_headers}")
if(NOT openblas_soname)
  message(FATAL_ERROR "${openblas_library} is not a shared library")
endif()
target_compile_definitions(sluice_openblas INTERFACE SLUICE_OPENBLAS="${CMAKE_MATCH_1}")
target_link_libraries(sluice_openblas INTERFACE ${CMAKE_DL_LIBS})

# Catch2 3 ships targets; Catch2 2 is one header. tests/Catch.h covers both.
find_package(Catch2 REQUIRED)
include(Catch)

find_package(benchmark QUIET)
if(NOT benchmark_FOUND)
  message(STATUS "Google Benchmark not found: the benchmarks under tools/bench are not built")
endif()

# Backends that are plug-ins: not built where their library is not found.
if(NOT SLUICE_MPI STREQUAL "OFF")
  if(SLUICE_MPI STREQUAL "REQUIRED")
    set(mpi_required REQUIRED)
  endif()
  find_package(MPI ${mpi_required} COMPONENTS C)
  unset(mpi_required)
endif()
if(NOT MPI_C_FOUND)
  message(STATUS "MPI: not found or switched off, the backend mpi is not built")
endif()

# The backend `cuda` is a plug-in (runtime/cuda): the headers are needed to build
# and test it, the compiler and the libraries for the plug-in itself.
set(SLUICE_HAS_CUDA FALSE)
if(NOT SLUICE_CUDA STREQUAL "OFF")
  find_program(SLUICE_NVCC nvcc HINTS ENV CUDACXX /usr/local/cuda/bin)
  if(SLUICE_NVCC)
    get_filename_component(cuda_bin ${SLUICE_NVCC} DIRECTORY)
    get_filename_component(cuda_root ${cuda_bin} DIRECTORY)
    find_path(cuda_include cuda_runtime_api.h HINTS ${cuda_root}/include)
    find_path(nccl_include nccl.h HINTS ${cuda_root}/include)
    find_library(cudart_library cudart HINTS ${cuda_root}/lib64 ${cuda_root}/lib)
    find_library(nccl_library nccl HINTS ${cuda_root}/lib64 ${cuda_root}/lib)
    if(cuda_include AND nccl_include AND cudart_library AND nccl_library)
      set(SLUICE_HAS_CUDA TRUE)
    endif()
  endif()
endif()
if(SLUICE_HAS_CUDA)
  set(CMAKE_CUDA_COMPILER ${SLUICE_NVCC})
  set(CMAKE_CUDA_ARCHITECTURES 80-real 90-real 100-real 100-virtual)
  enable_language(CUDA)
  add_library(sluice_cuda_headers INTERFACE)
  target_include_directories(sluice_cuda_headers SYSTEM INTERFACE ${cuda_include} ${nccl_include})
  add_library(sluice_cuda_libraries INTERFACE)
  target_link_libraries(sluice_cuda_libraries INTERFACE ${cudart_library} ${nccl_library})
elseif(SLUICE_CUDA STREQUAL "REQUIRED")
  message(FATAL_ERROR "SLUICE_CUDA=REQUIRED, but nvcc, the CUDA runtime or NCCL was not found")
else()
  message(STATUS "CUDA and NCCL: not found or switched off, the backend cuda is not built")
endif()
