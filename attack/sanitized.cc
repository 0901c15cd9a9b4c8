// SPDX-License-Identifier: Apache-2.0
//
// A program that a sanitizer has changed: allocates, writes, packs and reads beside threads of its
// own. (Its kernels would run in the sanitizer's device process: there are none.)
#include <atomic>
#include <cstdio>
#include <cstring>
#include <latch>
#include <thread>
#include <vector>

#include "gmac/api/adsm.h"

int main() {
  constexpr std::size_t kBytes = std::size_t{4} << 20;
  constexpr int kThreads = 4;
  // The runtime starts when all of them are there.
  std::latch there{kThreads};
  std::vector<std::thread> threads;
  std::atomic<int> wrong{0};
  for (int i = 0; i < kThreads; ++i) {
    threads.emplace_back([&wrong, &there, i] {
      there.arrive_and_wait();
      for (int round = 0; round < 5; ++round) {
        auto* const object = static_cast<unsigned char*>(adsmAlloc(kBytes));
        if (object == nullptr) {
          std::fprintf(stderr, "adsmAlloc: %s\n", adsmLastErrorString());
          ++wrong;
          return;
        }
        std::memset(object, i + 1, kBytes);
        for (std::size_t at = 0; at < kBytes; at += 4099) wrong += object[at] != i + 1 ? 1 : 0;
        if (adsmFree(object) != adsmSuccess) ++wrong;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  return wrong == 0 ? 0 : 1;
}
