// SPDX-License-Identifier: Apache-2.0
#include "tests/preloaded_io/functions.h"

#include <cstdio>

#include "tests/preloaded_io/program.h"

namespace gmac::testing {
namespace {

void changeNothing(const adsmThreadBlock_t*, void**) {}

}  // namespace

void closeAllBlocks() {
  static const adsmKernel_t kernel = [] {
    adsmKernelDesc_t description = {};
    description.name = "changeNothing";
    description.host = changeNothing;
    adsmKernel_t made = nullptr;
    if (api().kernelCreate(&description, &made) != adsmSuccess) std::abort();
    return made;
  }();
  const adsmDim_t one = {1, 1, 1};
  if (api().call(kernel, one, one, 0, nullptr) != adsmSuccess || api().sync() != adsmSuccess) {
    std::fprintf(stderr, "no kernel call: %s\n", api().lastErrorString());
    std::abort();
  }
}

void makeFile(const char* name) {
  std::FILE* const file = std::fopen(name, "w");
  if (file == nullptr || std::fputs("contents", file) < 0 || std::fclose(file) != 0) std::abort();
}

pid_t childThatExits(int status) {
  const pid_t child = ::fork();
  if (child == 0) ::_exit(status);
  return child;
}

}  // namespace gmac::testing
