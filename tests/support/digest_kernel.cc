// SPDX-License-Identifier: Apache-2.0
#include "tests/support/digest_kernel.h"

#include <array>

#include "gmac/accel/digest/digest.h"
#include "tests/support/fake_accelerator.h"

namespace gmac::testing {

void runDigestKernel(const adsmDim_t& grid, void** args,
                     const std::function<void*(void*)>& follow) {
  const adsmKernelDesc_t& kernel = accel::digest::kernel();
  // Pointers: the object, and where the digests go.
  void* object = follow(*static_cast<void**>(args[0]));
  void* sums = follow(*static_cast<void**>(args[6]));
  std::array<void*, 8> followed{&object, args[1], args[2], args[3],
                                args[4], args[5], &sums,   args[7]};
  for (unsigned x = 0; x < grid.x; ++x) {
    const adsmThreadBlock_t block{grid, {1, 1, 1}, {x, 0, 0}, nullptr, 0};
    kernel.host(&block, followed.data());
  }
}

void giveDigestKernel(FakeAccelerator& fake) {
  fake.kernel(kDigestKernel, 0, [&fake](const accel::LaunchShape& shape, void** args) {
    runDigestKernel(shape.grid, args,
                    [&fake](void* device) { return fake.at(static_cast<std::byte*>(device)); });
  });
}

}  // namespace gmac::testing
