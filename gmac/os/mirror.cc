// SPDX-License-Identifier: Apache-2.0
#include "gmac/os/mirror.h"

#include <algorithm>
#include <utility>

namespace gmac::os {

// Pages of another mirror. Owned by its object; see mirror.h for threads.
class MirrorPart final : public Mirror {
 public:
  MirrorPart(Mirror& whole, std::size_t begin, std::size_t bytes)
      : Mirror(whole.address() + begin, bytes, bytes), whole_(whole), begin_(begin) {
    const auto after = std::find_if(whole.parts_.begin(), whole.parts_.end(),
                                    [&](const Part& part) { return part.begin > begin; });
    whole.parts_.insert(after, {begin, begin + bytes});
  }
  ~MirrorPart() override {
    std::erase_if(whole_.parts_, [&](const Part& part) { return part.begin == begin_; });
  }

  const char* kind() const noexcept override { return whole_.kind(); }
  void* copyAddress(std::size_t offset) const noexcept override {
    return whole_.copyAddress(begin_ + offset);
  }
  std::byte* runtimeView(std::size_t offset) const noexcept override {
    std::byte* const view = whole_.runtimeView(0);
    return view == nullptr ? nullptr : view + begin_ + offset;
  }
  std::optional<FilePlace> place(std::size_t offset) const override {
    return whole_.place(begin_ + offset);
  }
  bool readableBeforeInstall() const noexcept override { return whole_.readableBeforeInstall(); }
  Status prepare(std::size_t) override { return {}; }
  Status install(std::size_t, const AccessMap&) override { return {}; }
  void withdraw() noexcept override {}

 private:
  Status protectPages(std::size_t offset, std::size_t length, Access access) override {
    return whole_.protectPages(begin_ + offset, length, access);
  }

  Mirror& whole_;
  const std::size_t begin_;
};

std::unique_ptr<Mirror> Mirror::part(std::size_t offset, std::size_t bytes) {
  return std::make_unique<MirrorPart>(*this, offset, bytes);
}

Status Mirror::protect(std::size_t offset, std::size_t length, Access access) {
  const std::size_t end = offset + length;
  for (const Part& part : parts_) {
    if (part.begin >= end) {
      break;
    }
    if (offset < part.begin) {
      GMAC_TRY(protectPages(offset, part.begin - offset, access));
    }
    offset = std::max(offset, part.end);
  }
  return offset < end ? protectPages(offset, end - offset, access) : Status();
}

Status Mirror::addMargin(std::size_t bytes) {
  GMAC_TRY(mapAnonymous(address_ + bytes_, bytes));
  marginBytes_ = bytes;
  const Status kept = keepFromChildren(address_ + bytes_, bytes);
  if (!kept.ok()) {
    removeMargin();
  }
  return kept;
}

void Mirror::removeMargin() noexcept {
  if (const std::size_t bytes = std::exchange(marginBytes_, 0); bytes != 0) {
    (void)close(address_ + bytes_, bytes);
  }
}

}  // namespace gmac::os
