// SPDX-License-Identifier: Apache-2.0
//
// Touches shared memory on small stacks in every way that faults.
//
//   faulting own          says how much of the stack each fault takes
//   faulting alternate    the same, with a handler on an alternate stack: of both
//   faulting dies BYTES   an access that cannot be answered, on a stack of BYTES
#include <unistd.h>

#include <csignal>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string_view>
#include <thread>

#include "gmac/api/adsm.h"
#include "tests/support/painted_stack.h"
#if GMAC_HAVE_CUDA
#include "tests/cuda/fake_library.h"
#endif

namespace {

using gmac::testing::PaintedStack;

constexpr std::size_t kObjectBytes = std::size_t{4} << 20;
constexpr std::size_t kPage = 4096;

[[noreturn]] void fail(const char* what) {
  std::fprintf(stderr, "%s: %s\n", what, adsmLastErrorString());
  _exit(1);
}

volatile unsigned char* object = nullptr;

void touchNothing() {}
void read() { (void)object[5]; }
void write() { object[5] = 1; }
void writeAll() {
  for (std::size_t i = 0; i < kObjectBytes; i += kPage) object[i] = 1;
}

// In an order that shows dense use before all blocks are open.
void readEverywhere() {
  constexpr std::size_t kBlock = std::size_t{64} << 10;
  constexpr std::size_t kBlocks = kObjectBytes / kBlock;
  for (std::size_t i = 0; i < kBlocks; ++i) (void)object[i * 5 % kBlocks * kBlock];
}

// ---- The kernel: (pointer, milliseconds) waits, and adds one; it crashes with NULL.

void addOne(unsigned char* at, unsigned milliseconds) {
  usleep(milliseconds * 1000);
  *const_cast<volatile unsigned char*>(at) = static_cast<unsigned char>(*at + 1);
}
void hostKernel(const adsmThreadBlock_t*, void** args) {
  addOne(*static_cast<unsigned char**>(args[0]), *static_cast<unsigned*>(args[1]));
}
const std::size_t kSizes[] = {sizeof(void*), sizeof(unsigned)};

#if GMAC_HAVE_CUDA
CUresult cudaKernel(const unsigned*, const unsigned*, unsigned, void** args) {
  static auto* const backing =
      reinterpret_cast<gmac::fake_cuda::Backing*>(dlsym(RTLD_DEFAULT, "fakeCudaBacking"));
  auto* const at = static_cast<unsigned char*>(backing(*static_cast<CUdeviceptr*>(args[0])));
  if (at == nullptr) return CUDA_ERROR_ILLEGAL_ADDRESS;
  addOne(at, *static_cast<unsigned*>(args[1]));
  return CUDA_SUCCESS;
}
const gmac::fake_cuda::Kernel kCudaKernel = {"addOne", cudaKernel, 2, kSizes};
const gmac::fake_cuda::Image kCudaImage = {"fakecud", &kCudaKernel, 1, nullptr, 0};
#endif

void call(volatile unsigned char* at, unsigned milliseconds) {
  static adsmKernel_t kernel = nullptr;
  if (kernel == nullptr) {
    adsmKernelDesc_t description = {};
    description.name = "addOne";
    description.paramCount = 2;
    description.paramSizes = kSizes;
    description.host = &hostKernel;
#if GMAC_HAVE_CUDA
    description.cudaImage = &kCudaImage;
    description.cudaName = "addOne";
#endif
    if (adsmKernelCreate(&description, &kernel) != adsmSuccess) fail("adsmKernelCreate");
  }
  void* args[] = {&at, &milliseconds};
  if (adsmCall(kernel, {1, 1, 1}, {1, 1, 1}, 0, args) != adsmSuccess) fail("adsmCall");
}

void close() {
  call(object, 0);
  if (adsmSync() != adsmSuccess) fail("adsmSync");
}

void allocate() {
  object = static_cast<volatile unsigned char*>(adsmAlloc(kObjectBytes));
  if (object == nullptr) fail("adsmAlloc");
}

// ---- What is measured

// Where the system puts signals' frames besides: nowhere, or here.
PaintedStack* alternate = nullptr;

void measure(const char* name, void (*prepare)(), void (*access)()) {
  static PaintedStack stack(std::size_t{64} << 10);
  prepare();
  stack.paint();
  if (alternate != nullptr) alternate->paint();
  stack.run(access);
  std::printf("%s: %zu %zu\n", name, stack.used(), alternate != nullptr ? alternate->used() : 0);
}

void measureAll() {
  measure("nothing", touchNothing, touchNothing);
  measure("first read", allocate, read);
  measure("first write", allocate, write);
  measure("evictions", allocate, writeAll);
  measure("read after a call", close, read);
  measure("write after a read", touchNothing, write);
  measure("write after a call", close, write);
  measure("writes after a call", close, writeAll);
  measure("reads that open their neighbours", close, readEverywhere);
  measure(
      "read while a kernel runs", [] { call(object, 20); }, read);
  measure(
      "write while a kernel runs", [] { call(object, 20); }, write);
}

void handler(int) { _exit(3); }

void useAlternateStack() {
  alternate = new PaintedStack(std::size_t{32} << 10);
  const stack_t whole = alternate->whole();
  struct sigaction action = {};
  action.sa_handler = &handler;
  action.sa_flags = SA_ONSTACK;
  if (sigaltstack(&whole, nullptr) != 0 || sigaction(SIGSEGV, &action, nullptr) != 0) {
    fail("an alternate stack");
  }
}

}  // namespace

int main(int argc, char** argv) {
  const std::string_view what = argc > 1 ? argv[1] : "";
  if (what == "dies" && argc == 3) {
    allocate();
    close();
    call(nullptr, 0);
    PaintedStack(std::strtoul(argv[2], nullptr, 10)).run(read);
    return 4;  // it was answered
  }
  if (what == "alternate")
    useAlternateStack();
  else if (what != "own")
    return 2;
  measureAll();
  // A thread's first faults; it has no alternate stack.
  if (what == "own") std::thread(measureAll).join();
  return 0;
}
