// SPDX-License-Identifier: Apache-2.0
#include "gmac/accel/cuda/other_contexts.h"

#include <string>

namespace gmac::accel::cuda {

std::size_t OtherContexts::find(std::uintptr_t context) const noexcept {
  for (std::size_t i = 0; any() && i < kMost; ++i) {
    const Context* const one = contexts_[i].load(std::memory_order_acquire);
    if (one == nullptr) break;
    if (one->context.load(std::memory_order_acquire) == context) return i + 1;
  }
  return 0;
}

Result<std::size_t> OtherContexts::add(std::uintptr_t context,
                                       const std::function<Status(int device)>& admit) {
  const std::lock_guard lock(mutex_);
  if (const std::size_t number = find(context); number != 0) return number;
  std::size_t free = 0;
  while (free < kMost && owned_[free] != nullptr && owned_[free]->context.load() != 0) ++free;
  if (free == kMost) return std::size_t{0};
  if (owned_[free] == nullptr) {
    std::unique_ptr<DeviceCalls> calls = home_.another();
    if (calls == nullptr) return std::size_t{0};
    owned_[free] = std::make_unique<Context>(std::move(calls), QueueId(kFirstQueue + free));
    contexts_[free].store(owned_[free].get(), std::memory_order_release);
  }
  Context& one = *owned_[free];
  GMAC_TRY(one.calls->bind(context));
  const Status opened = [&]() -> Status {
    GMAC_TRY(admit(one.calls->deviceNumber()));
    const DeviceScope scope(*one.calls);
    return one.ring->open();
  }();
  if (!opened.ok()) {
    const std::string text = lastErrorText();
    close(one);
    recordError(opened.code(), text);
    return opened;
  }
  one.context.store(context, std::memory_order_release);
  known_.fetch_add(1);
  return free + 1;
}

void OtherContexts::close(Context& context) noexcept {
  {
    const DeviceScope scope(*context.calls);
    context.ring->close();
  }
  context.calls->close();
  context.calls->health().recover();
}

void OtherContexts::remove(std::uintptr_t context) noexcept {
  const std::lock_guard lock(mutex_);
  const std::size_t number = find(context);
  if (number == 0) return;
  Context& one = at(number);
  one.context.store(0);
  known_.fetch_sub(1);
  close(one);
}

void OtherContexts::removeAll() noexcept {
  for (const auto& one : owned_) {
    if (one != nullptr && one->context.load() != 0) remove(one->context.load());
  }
}

}  // namespace gmac::accel::cuda
