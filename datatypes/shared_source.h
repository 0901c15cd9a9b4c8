// SPDX-License-Identifier: Apache-2.0
#ifndef GMAC_DATATYPES_SHARED_SOURCE_H_
#define GMAC_DATATYPES_SHARED_SOURCE_H_

#include <cstddef>
#include <cstdint>

#include "gmac/api/adsm.h"

namespace datatypes {

// A shared object that a kernel fills with the pattern, on any accelerator. Not thread-safe;
// owner of object and kernel. Throws Failure.
class SharedSource {
 public:
  explicit SharedSource(std::int64_t bytes);
  ~SharedSource();
  SharedSource(const SharedSource&) = delete;
  SharedSource& operator=(const SharedSource&) = delete;

  // Runs the kernel over the whole object: only the accelerator has its bytes then.
  void write();
  std::byte* get() const { return object_; }
  std::int64_t bytes() const { return bytes_; }

 private:
  const std::int64_t bytes_;  // a multiple of 8
  std::byte* object_ = nullptr;
  adsmKernel_t kernel_ = nullptr;
};

}  // namespace datatypes

#endif  // GMAC_DATATYPES_SHARED_SOURCE_H_
