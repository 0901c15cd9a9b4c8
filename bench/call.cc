// SPDX-License-Identifier: Apache-2.0
//
// The cost of a call beyond the accelerator's own launch.
#include <cstdint>

#include "bench/interleaved.h"
#include "bench/measure.h"
#include "gmac/os/handlers.h"
#include "gmac/session/runtime.h"

namespace gmac::bench {
namespace {

void nothing(const adsmThreadBlock_t*, void**) {}

void check(Status status, const char* what) { bench::check(status.code(), what); }

// {objects, objectBytes, rounds}: adsmCall against the accelerator's launch of the same kernel;
// microseconds. After the first call nothing is dirty and the CPU touches nothing: `call`. With one
// block read between calls: `callAfterRead`.
//
// Launches and calls alternate with nothing in between, over objects whose pages are all there: a
// first touch makes the runtime prepare the pages of what comes next, and pinning those keeps the
// driver busy for hundreds of microseconds, which whatever was launched meanwhile would wait for.
json nothingDirty(const json& parameters) {
  // As in programs, which load libgmac.so: it stands in for sigaction(). Nothing here sets a
  // handler.
  os::actionsAreSeen();
  const std::size_t objectBytes = parameters["objectBytes"];
  std::vector<std::byte*> objects(parameters["objects"].get<std::size_t>());
  for (std::byte*& object : objects) {
    object = static_cast<std::byte*>(checkedAlloc(objectBytes));
  }
  const adsmKernelDesc_t desc = describeKernel("nothing", {}, &nothing);
  adsmKernel_t kernel = nullptr;
  bench::check(adsmKernelCreate(&desc, &kernel), "adsmKernelCreate");

  auto runtime = Runtime::get();
  check(runtime.status(), "start");
  accel::Accelerator& accelerator = (*runtime)->memory().accelerator();
  auto loaded = accelerator.load(desc);
  check(loaded.status(), "load");

  constexpr std::size_t kPageBytes = 4096;
  constexpr adsmDim_t kOne{1, 1, 1};
  const auto call = [&] {
    const Stopwatch watch;
    bench::check(adsmCall(kernel, kOne, kOne, 0, nullptr), "adsmCall");
    const double seconds = watch.seconds();
    bench::check(adsmSync(), "adsmSync");
    return seconds * 1e6;
  };
  const auto launch = [&] {
    const Stopwatch watch;
    auto ticket = accelerator.launch(**loaded, {kOne, kOne, 0}, nullptr);
    const double seconds = watch.seconds();
    check(ticket.status(), "launch");
    check(accelerator.wait(*ticket), "wait");
    return seconds * 1e6;
  };
  for (std::byte* object : objects) {
    for (std::size_t at = 0; at < objectBytes; at += kPageBytes) {
      object[at] = std::byte{1};
    }
  }
  const double firstCall = call();  // every object is open until then
  const std::size_t rounds = parameters["rounds"];
  const Interleaved turns(2, rounds, [&](std::size_t i) { return i == 0 ? launch() : call(); });
  std::vector<double> callsAfterRead;
  for (std::size_t round = 0; round < rounds; ++round) {
    (void)*static_cast<volatile std::byte*>(objects[round % objects.size()]);
    callsAfterRead.push_back(call());
  }
  bench::check(adsmKernelDestroy(kernel), "adsmKernelDestroy");
  for (std::byte* object : objects) {
    bench::check(adsmFree(object), "adsmFree");
  }
  return {{"launch", turns.seconds(0)},
          {"call", turns.seconds(1)},
          {"over", turns.over(1, 0)},
          {"callAfterRead", median(callsAfterRead)},
          {"firstCall", firstCall},
          {"accelerator", accelerator.name()},
          {"device", accelerator.deviceName()}};
}
const Registration kNothingDirty("call", &nothingDirty);

}  // namespace
}  // namespace gmac::bench
