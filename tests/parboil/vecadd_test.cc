// SPDX-License-Identifier: Apache-2.0
#include "parboil/vecadd/vecadd.h"

#include <gtest/gtest.h>

#include "tests/parboil/host_executor.h"
#include "tests/support/temporary_folder.h"

namespace parboil::vecadd {
namespace {

class Vecadd : public gmac::testing::FolderTest {
 protected:
  Context context() const { return {Size::kSmall, folder_}; }

  // The output of runGmac(), from host kernels on plain memory.
  void writeOutput(double sumError, float sampleError) const {
    const std::size_t count = elements(Size::kSmall);
    Seeds seeds;
    InputFile input(dataPath(context(), "vecadd", "in"), kInput, Size::kSmall);
    input.read(&seeds, sizeof seeds);
    std::vector<float> a(count);
    std::vector<float> b(count);
    std::vector<float> c(count);
    fill(a.data(), count, seeds.a);
    fill(b.data(), count, seeds.b);
    runOnHost(&addBlock, {blocksFor(count, kThreads), 1, 1}, {kThreads, 1, 1}, 0,
              static_cast<const float*>(a.data()), static_cast<const float*>(b.data()), c.data(),
              std::uint64_t{count});
    const double total = sum(c.data(), count) + sumError;
    OutputFile output(dataPath(context(), "vecadd", "out"), kOutput, Size::kSmall);
    output.write(&total, sizeof total);
    c[(kSamples - 1) * (count / kSamples)] += sampleError;
    for (std::size_t k = 0; k < kSamples; ++k)
      output.write(&c[k * (count / kSamples)], sizeof(float));
    output.commit();
  }
};

TEST_F(Vecadd, HostKernelAgreesWithTheReference) {
  generate(context());
  writeOutput(0, 0);
  const Check result = check(context());
  EXPECT_TRUE(result.ok) << result.detail;
}

TEST_F(Vecadd, CheckFindsASumThatLacksHalfAnElementInAMillion) {
  generate(context());
  writeOutput(-2, 0);
  EXPECT_FALSE(check(context()).ok);
}

TEST_F(Vecadd, CheckFindsOneWrongSample) {
  generate(context());
  writeOutput(0, 1e-6f);
  EXPECT_FALSE(check(context()).ok);
}

TEST_F(Vecadd, CheckWithoutAnOutputFileSaysWhichOne) {
  generate(context());
  try {
    static_cast<void>(check(context()));
    FAIL() << "no output, and no complaint";
  } catch (const Failure& failure) {
    EXPECT_NE(std::string(failure.what()).find("vecadd-small.out"), std::string::npos)
        << failure.what();
  }
}

TEST_F(Vecadd, ElementsLieBetweenZeroAndOneAndDependOnTheSeed) {
  bool differ = false;
  for (std::uint32_t i = 0; i < 100000; ++i) {
    ASSERT_GE(element(1, i), 0.0f);
    ASSERT_LT(element(1, i), 1.0f);
    differ = differ || element(1, i) != element(2, i);
  }
  EXPECT_TRUE(differ);
}

}  // namespace
}  // namespace parboil::vecadd
