// SPDX-License-Identifier: Apache-2.0
//
// Arguments that no correct program gives, thousands of them: the call is refused with a text, or
// works; nothing else changes.
#include <unistd.h>

#include <climits>
#include <cstdint>
#include <cstring>
#include <random>

#include "attack/subject.h"
#include "gmac/api/adsm_datatype.h"

namespace attack {
namespace {

void requireTold(adsmError_t error, const char* what) {
  require(error == adsmSuccess || *adsmLastErrorString() != '\0', "{} failed without a text", what);
}

const std::size_t kSizes[] = {0,
                              1,
                              7,
                              8,
                              32768,
                              32769,
                              INT_MAX,
                              UINT_MAX,
                              1UL << 46,
                              SIZE_MAX / 2,
                              SIZE_MAX - 15,
                              SIZE_MAX - 7,
                              SIZE_MAX};
const std::int64_t kCounts[] = {0, 1, 2, -1, INT_MIN, INT_MAX, INT64_MIN, INT64_MAX};

void nothing(const adsmThreadBlock_t*, void**) {}

// Every field of a description with every size, and calls of those that are taken.
void descriptions() {
  static char argument[32768];
  for (const std::size_t first : kSizes) {
    for (const std::size_t second : kSizes) {
      const std::size_t sizes[] = {first, second};
      adsmKernelDesc_t desc = {};
      desc.name = "any";
      desc.paramCount = 2;
      desc.paramSizes = sizes;
      desc.host = &nothing;
      adsmKernel_t kernel = nullptr;
      const adsmError_t error = adsmKernelCreate(&desc, &kernel);
      requireTold(error, "adsmKernelCreate");
      if (error != adsmSuccess) continue;
      void* args[] = {argument, argument};
      requireTold(adsmCall(kernel, {1, 1, 1}, {1, 1, 1}, 0, args), "adsmCall");
      check(adsmKernelDestroy(kernel), "adsmKernelDestroy");
      require(adsmKernelDestroy(kernel) != adsmSuccess, "a second destruction");
      require(adsmCall(kernel, {1, 1, 1}, {1, 1, 1}, 0, args) != adsmSuccess, "a destroyed kernel");
    }
  }
  for (const std::size_t count : {std::size_t{32769}, SIZE_MAX}) {
    adsmKernelDesc_t desc = {};
    desc.name = "any";
    desc.paramCount = count;
    desc.paramSizes = kSizes;
    adsmKernel_t kernel = nullptr;
    require(adsmKernelCreate(&desc, &kernel) == adsmErrorInvalidValue, "paramCount {}", count);
    desc.paramCount = 0;
    desc.constantCount = count;
    const adsmConstant_t constant = {"c", 4, nullptr, nullptr};
    desc.constants = &constant;
    require(count < 65537 || adsmKernelCreate(&desc, &kernel) == adsmErrorInvalidValue,
            "constantCount {}", count);
  }
  work();
}

void shapes() {
  adsmKernelDesc_t desc = {};
  desc.name = "any";
  desc.host = &nothing;
  adsmKernel_t kernel = nullptr;
  check(adsmKernelCreate(&desc, &kernel), "adsmKernelCreate");
  const unsigned extents[] = {0, 1, 1024, 65536, 0x80000000U, UINT_MAX};
  for (const unsigned x : extents) {
    for (const unsigned y : extents) {
      // Grids that are taken run; the largest of those would take minutes.
      if (static_cast<std::uint64_t>(x) * y > (1U << 20) &&
          static_cast<std::uint64_t>(x) * y <= (1ULL << 31))
        continue;
      requireTold(adsmCall(kernel, {x, y, 1}, {1, 1, 1}, 0, nullptr), "adsmCall");
      requireTold(adsmCall(kernel, {1, 1, 1}, {x, y, 1}, 0, nullptr), "adsmCall");
      requireTold(adsmCall(kernel, {1, x, y}, {x, 1, y}, 0, nullptr), "adsmCall");
    }
  }
  for (const std::size_t bytes : kSizes) {
    requireTold(adsmCall(kernel, {1, 1, 1}, {1, 1, 1}, bytes, nullptr), "adsmCall");
  }
  (void)adsmSync();
  work();
}

void pointers() {
  int here = 0;
  std::uint32_t* const object = allocate(1 << 18);
  auto* const small = reinterpret_cast<char*>(allocate(25));
  const void* const addresses[] = {nullptr,
                                   reinterpret_cast<void*>(8),
                                   &here,
                                   reinterpret_cast<char*>(object) + 1,
                                   object + (1 << 18),
                                   small + 1,
                                   small + 100,
                                   reinterpret_cast<void*>(UINTPTR_MAX)};
  for (const void* address : addresses) {
    void* const given = const_cast<void*>(address);
    require(given == nullptr || adsmFree(given) != adsmSuccess, "adsmFree({})", given);
    (void)adsmSafe(given);
    for (const int access : {-1, 0, 1, 2, 3, 4, INT_MAX}) {
      adsmKernelDesc_t desc = {};
      desc.name = "any";
      desc.host = &nothing;
      adsmKernel_t kernel = nullptr;
      check(adsmKernelCreate(&desc, &kernel), "adsmKernelCreate");
      const adsmUse_t use = {given, static_cast<adsmAccess_t>(access)};
      requireTold(adsmCallUsing(kernel, {1, 1, 1}, {1, 1, 1}, 0, nullptr, &use, 1),
                  "adsmCallUsing");
      requireTold(adsmCallUsing(kernel, {1, 1, 1}, {1, 1, 1}, 0, nullptr, &use, SIZE_MAX),
                  "adsmCallUsing");
      requireTold(adsmBind(given, kernel, static_cast<adsmAccess_t>(access)), "adsmBind");
      check(adsmKernelDestroy(kernel), "adsmKernelDestroy");
    }
  }
  // An object that fits into the CPU's memory may be given: others spill for it.
  const std::size_t memory = static_cast<std::size_t>(::sysconf(_SC_PHYS_PAGES)) *
                             static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));
  for (const std::size_t size : kSizes) {
    if (size > 0 && size < 1 << 20) continue;
    for (const auto allocate : {&adsmAlloc, &adsmSafeAlloc}) {
      void* const given = allocate(size);
      require(given == nullptr || (size > 0 && size <= memory), "{} bytes", size);
      if (given != nullptr) check(adsmFree(given), "adsmFree");
    }
  }
  check(adsmFree(object), "adsmFree");
  require(adsmFree(object) != adsmSuccess, "a second adsmFree");
  work();
}

void types() {
  const std::int64_t few[] = {1, 2};
  const adsmType_t olds[] = {nullptr, ADSM_TYPE_1, ADSM_TYPE_16, reinterpret_cast<adsmType_t>(77)};
  std::int64_t number = 0;
  for (const adsmType_t old : olds) {
    for (const std::int64_t a : kCounts) {
      for (const std::int64_t b : kCounts) {
        adsmType_t type = nullptr;
        const auto done = [&](adsmError_t error, const char* what) {
          requireTold(error, what);
          if (error != adsmSuccess) return;
          (void)adsmTypeSize(type, &number);
          check(adsmTypeFree(type), "adsmTypeFree");
          require(adsmTypeFree(type) != adsmSuccess, "a second adsmTypeFree");
        };
        done(adsmTypeContiguous(a, old, &type), "adsmTypeContiguous");
        done(adsmTypeVector(a, b, a, old, &type), "adsmTypeVector");
        done(adsmTypeHvector(a, b, b, old, &type), "adsmTypeHvector");
        done(adsmTypeResized(old, a, b, &type), "adsmTypeResized");
        if (a <= 2 || a == INT64_MAX) {
          done(adsmTypeIndexed(a, few, few, old, &type), "adsmTypeIndexed");
          done(adsmTypeHindexed(a, few, few, old, &type), "adsmTypeHindexed");
          done(adsmTypeIndexedBlock(a, b, few, old, &type), "adsmTypeIndexedBlock");
          done(adsmTypeStruct(a, few, few, olds, &type), "adsmTypeStruct");
        }
      }
    }
  }
  adsmType_t type = nullptr;
  for (const int dimensions : {-1, 0, INT_MIN, INT_MAX}) {
    require(
        adsmTypeSubarray(dimensions, few, few, few, adsmOrderC, ADSM_TYPE_1, &type) != adsmSuccess,
        "{} dimensions", dimensions);
  }
}

void events() {
  std::uint32_t* const source = allocate(1 << 18);
  std::uint32_t* const target = allocate(1 << 18);
  std::memset(source, 1, 1 << 20);
  adsmType_t type = nullptr;
  check(adsmTypeVector(1000, 1, 2, ADSM_TYPE_8, &type), "adsmTypeVector");
  check(adsmTypeCommit(type), "adsmTypeCommit");
  adsmPackOptions_t options = {};
  options.size = sizeof options;
  for (int method = adsmMethodAny; method <= adsmMethodCpu; ++method) {
    adsmPackEvent_t event = nullptr;
    options.event = &event;
    options.method = static_cast<adsmMethod_t>(method);
    const adsmError_t error = adsmPackWith(target, source, 1, type, &options);
    requireTold(error, "adsmPackWith");
    if (error != adsmSuccess) continue;
    check(adsmPackWait(event), "adsmPackWait");
    require(adsmPackWait(event) != adsmSuccess, "a second adsmPackWait");
    require(adsmPackDone(event) == 1, "adsmPackDone of what was given back");
  }
  require(adsmPackWait(reinterpret_cast<adsmPackEvent_t>(0x1234)) != adsmSuccess, "no event");
  options = {};
  options.size = sizeof options;
  options.stream = reinterpret_cast<void*>(0x1234);
  require(adsmPackWith(target, source, 1, type, &options) != adsmSuccess, "no stream");
  work();
}

const Registration kArguments({
    {"arguments/descriptions", &descriptions, 60},
    {"arguments/shapes", &shapes, 60},
    {"arguments/pointers", &pointers, 60},
    {"arguments/types", &types, 60},
    {"arguments/events", &events},
});

}  // namespace
}  // namespace attack
