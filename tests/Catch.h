//===- tests/Catch.h - Catch2, whichever major version is installed -------===//
#ifndef SLUICE_TESTS_CATCH_H
#define SLUICE_TESTS_CATCH_H

#if __has_include(<catch2/catch_all.hpp>)
#include <catch2/catch_all.hpp>
#else
#include <catch2/catch.hpp>
#endif

#endif // SLUICE_TESTS_CATCH_H
