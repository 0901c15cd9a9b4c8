// SPDX-License-Identifier: Apache-2.0
#include "datatypes/shared_source.h"

#include <fmt/core.h>

#include <algorithm>
#include <iterator>

#include "datatypes/failure.h"
#include "datatypes/fill_fatbin.h"
#include "datatypes/pattern.h"
#include "datatypes/type.h"

namespace datatypes {
namespace {

constexpr unsigned kThreads = 256;
constexpr std::uint64_t kWordsInBlock = std::uint64_t{1} << 16;

void fillOnHost(const adsmThreadBlock_t* block, void** args) {
  auto* const words = *static_cast<std::uint64_t**>(args[0]);
  const std::uint64_t count = *static_cast<std::uint64_t*>(args[1]);
  const std::uint64_t inBlock = *static_cast<std::uint64_t*>(args[2]);
  const std::uint64_t first = block->blockIdx.x * inBlock;
  for (std::uint64_t i = first; i < std::min(count, first + inBlock); ++i) {
    words[i] = patternWord(i);
  }
}

}  // namespace

SharedSource::SharedSource(std::int64_t bytes) : bytes_((bytes + 7) / 8 * 8) {
  const std::size_t sizes[] = {sizeof(void*), sizeof(std::uint64_t), sizeof(std::uint64_t)};
  adsmKernelDesc_t desc{};
  desc.name = "fillWithPattern";
  desc.paramCount = std::size(sizes);
  desc.paramSizes = sizes;
  desc.host = &fillOnHost;
  desc.cudaImage = datatypes_fill_fatbin;
  desc.cudaName = desc.cudaImage != nullptr ? "fillWithPattern" : nullptr;
  require(adsmKernelCreate(&desc, &kernel_), "adsmKernelCreate");
  object_ = static_cast<std::byte*>(adsmAlloc(static_cast<std::size_t>(bytes_)));
  if (object_ == nullptr) {
    (void)adsmKernelDestroy(kernel_);
    throw Failure(fmt::format("adsmAlloc: {}", adsmLastErrorString()));
  }
}

SharedSource::~SharedSource() {
  (void)adsmFree(object_);
  (void)adsmKernelDestroy(kernel_);
}

void SharedSource::write() {
  std::uint64_t count = static_cast<std::uint64_t>(bytes_) / sizeof(std::uint64_t);
  std::uint64_t inBlock = kWordsInBlock;
  void* args[] = {&object_, &count, &inBlock};
  const auto blocks = static_cast<unsigned>((count + kWordsInBlock - 1) / kWordsInBlock);
  require(adsmCall(kernel_, {blocks, 1, 1}, {kThreads, 1, 1}, 0, args), "adsmCall");
  require(adsmSync(), "adsmSync");
}

}  // namespace datatypes
