// SPDX-License-Identifier: Apache-2.0
//
// The conformance suite on a real GPU: through the Driver API (`cuda`) and through this program's
// CUDA runtime (`cudart`); and with device processes beside it.
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdint>
#include <cstdlib>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "tests/accel/conformance.h"

#if GMAC_HAVE_CUDA

#include "gmac/accel/cuda/cuda_accelerator.h"
#include "gmac/accel/cuda/cudart_accelerator.h"
#include "gmac/accel/group/group.h"
#include "gmac/accel/host/host_accelerator.h"
#include "tests/accel/conformance_kernels_fatbin.h"

extern "C" {
const void* conformanceIncrement();
const void* conformanceSumList();
const void* conformanceReverseBlocks();
const void* conformanceAddConstant();
const void* conformanceStoreWide();
const void* conformancePoke();
const void* conformanceAddend();
}

namespace gmac::accel::conformance {
namespace {

const std::size_t kPointer = sizeof(void*);
const std::size_t kIncrementSizes[] = {kPointer, sizeof(std::uint64_t), sizeof(std::uint32_t)};
const std::size_t kTwoWords[] = {kPointer, sizeof(std::uint64_t)};
const std::size_t kWideSizes[] = {sizeof(Wide), kPointer};
const adsmConstant_t kAddend[] = {{"addend", sizeof(std::uint32_t), nullptr, conformanceAddend()}};

adsmKernelDesc_t describe(const char* name, const void* symbol, const std::size_t* sizes,
                          std::size_t count) {
  adsmKernelDesc_t desc{};
  desc.name = name;
  desc.cudaImage = tests_accel_conformance_kernels_fatbin;
  desc.cudaName = name;
  desc.cudartSymbol = symbol;
  desc.paramSizes = sizes;
  desc.paramCount = count;
  desc.constantCount = 1;
  desc.constants = kAddend;
  return desc;
}

const adsmKernelDesc_t kIncrement =
    describe("increment", conformanceIncrement(), kIncrementSizes, 3);
const adsmKernelDesc_t kSumList = describe("sumList", conformanceSumList(), kTwoWords, 2);
const adsmKernelDesc_t kReverseBlocks =
    describe("reverseBlocks", conformanceReverseBlocks(), &kPointer, 1);
const adsmKernelDesc_t kAddConstant =
    describe("addConstant", conformanceAddConstant(), kTwoWords, 2);
const adsmKernelDesc_t kStoreWide = describe("storeWide", conformanceStoreWide(), kWideSizes, 2);
const adsmKernelDesc_t kPoke = describe("poke", conformancePoke(), &kPointer, 1);
const adsmKernelDesc_t kMissing = [] {
  adsmKernelDesc_t desc{};
  desc.name = "onlyForOthers";
  return desc;
}();

using Make = Result<std::unique_ptr<Accelerator>> (*)();

// Only a missing GPU excuses; any other failure is the suite's to report.
template <Make make>
std::string whyNot() {
  static const std::string reason = [] {
    const auto made = make();
    return made.ok() || made.status().code() != adsmErrorNoAccelerator
               ? std::string()
               : "needs an NVIDIA GPU: " + std::string(lastErrorText());
  }();
  return reason;
}

template <Make make>
Kit kitOf(const char* name) {
  return {name,      whyNot<make>,    make,          std::size_t{1} << 30, &kIncrement,
          &kSumList, &kReverseBlocks, &kAddConstant, &kStoreWide,          &kPoke,
          &kMissing};
}

// A GPU with two devices without one beside it.
Result<std::unique_ptr<Accelerator>> makeMixed() {
  constexpr std::size_t kOthersBytes = std::size_t{512} << 20;
  auto gpu = makeSharingCudaAccelerator(kOthersBytes);
  if (!gpu.ok()) {
    return gpu.status();
  }
  HostOptions options;
  options.memoryBytes = kOthersBytes;
  options.threads = 2;
  options.windows = gpu->windows;
  auto others = makeHostAccelerators(options, 2);
  if (!others.ok()) {
    return others.status();
  }
  std::vector<std::unique_ptr<Accelerator>> members;
  members.push_back(std::move(gpu->accelerator));
  for (auto& other : *others) {
    members.push_back(std::move(other));
  }
  return makeGroup(std::move(members));
}

const Kit kCuda = kitOf<makeCudaAccelerator>("Cuda");
const Kit kCudart = kitOf<makeCudartAccelerator>("Cudart");
const Kit kMixed = kitOf<makeMixed>("Mixed");

INSTANTIATE_TEST_SUITE_P(Gpu, Conformance, testing::Values(&kCuda, &kCudart, &kMixed), kitName);

}  // namespace
}  // namespace gmac::accel::conformance

#else

GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(Conformance);

TEST(CudaConformance, NeedsTheCudaToolkit) { GTEST_SKIP() << "built without the CUDA toolkit"; }

#endif

namespace {

// Runs this program once more with a filter; its exit status. Only one run may write the report
// that the build collects.
int runFiltered(char** argv, const std::string& filter, bool report) {
  const pid_t child = fork();
  if (child == 0) {
    if (!report) unsetenv("XML_OUTPUT_FILE");
    setenv("GTEST_FILTER", filter.c_str(), 1);
    setenv("GMAC_TEST_CRASHES_APART", "1", 1);
    execv("/proc/self/exe", argv);
    _exit(127);
  }
  int status = 0;
  waitpid(child, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128;
}

}  // namespace

// A kernel that crashes takes CUDA in its process with it, so each of these tests gets a process of
// its own.
int main(int argc, char** argv) {
  const bool apart = std::getenv("GMAC_TEST_CRASHES_APART") != nullptr;
  bool chosen = std::getenv("GTEST_FILTER") != nullptr;
  for (int i = 1; i < argc; ++i) {
    const std::string argument = argv[i];
    chosen = chosen || argument.starts_with("--gtest_filter") ||
             argument.starts_with("--gtest_list_tests");
  }
  if (!apart && !chosen) {
    int status = runFiltered(argv, "-*ACrashedKernel*", true);
    for (const char* crash :
         {"*ACrashedKernel*/Cuda", "*ACrashedKernel*/Cudart", "*ACrashedKernel*/Mixed"}) {
      const int one = runFiltered(argv, crash, false);
      status = status != 0 ? status : one;
    }
    return status;
  }
  testing::InitGoogleTest(&argc, argv);
  return RUN_ALL_TESTS();
}
