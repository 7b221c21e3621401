# Options that every target of the project is built with, and one function for
# a library: explicit sources, one include root (the repository).
add_library(sluice_options INTERFACE)
target_include_directories(sluice_options INTERFACE ${CMAKE_SOURCE_DIR})
target_compile_options(sluice_options INTERFACE -Wall -Wextra -Werror -Wnon-virtual-dtor -Wno-missing-field-initializers)
# g++ 12 reports false positives of these two through inlined std::string and std::vector code.
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
  target_compile_options(sluice_options INTERFACE -Wshadow=local -Wno-restrict -Wno-stringop-overflow -Wno-maybe-uninitialized)
else()
  target_compile_options(sluice_options INTERFACE -Wshadow)
endif()
if(SLUICE_SANITIZE)
  target_compile_options(sluice_options INTERFACE -fsanitize=${SLUICE_SANITIZE} -fno-sanitize-recover=all -fno-omit-frame-pointer)
  target_link_options(sluice_options INTERFACE -fsanitize=${SLUICE_SANITIZE})
endif()

# sluice_library(NAME SOURCES a.cpp … DEPENDS lib …)
function(sluice_library name)
  cmake_parse_arguments(arg "" "" "SOURCES;DEPENDS" ${ARGN})
  add_library(${name} STATIC ${arg_SOURCES})
  target_link_libraries(${name} PUBLIC sluice_options ${arg_DEPENDS})
endfunction()
