// SPDX-License-Identifier: Apache-2.0
#include "gmac/accel/cuda/other_devices.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "gmac/base/log.h"

namespace gmac::accel::cuda {
namespace {

// Of those that share memory with it, or of the others.
std::vector<int> visible(const DeviceCalls& home, bool sharing) {
  std::vector<int> devices;
  for (int device = 0; device < home.visibleDevices(); ++device) {
    if (device != home.deviceNumber() && home.reachedFrom(device) == sharing)
      devices.push_back(device);
  }
  return devices;
}

}  // namespace

bool OtherDevices::any(const DeviceCalls& home) {
  return home.another() != nullptr && home.visibleDevices() > 1;
}

OtherDevices::OtherDevices(DeviceCalls& home) : home_(home) {
  for (const bool sharing : {true, false}) {
    for (const int device : visible(home, sharing)) {
      std::unique_ptr<DeviceCalls> calls = home.another();
      if (calls == nullptr || devices_.size() == kMostOtherDevices) break;
      devices_.push_back(std::make_unique<OtherDevice>(std::move(calls), device,
                                                       QueueId(kOwnQueues + devices_.size())));
      sharing_ += sharing ? 1 : 0;
    }
  }
}

std::size_t OtherDevices::find(int device) const noexcept {
  for (std::size_t number = 1; number <= all(); ++number) {
    if (this->device(number).number.load() == device) return number;
  }
  return 0;
}

void OtherDevices::homeMoved() {
  const std::lock_guard lock(mutex_);
  if (devices_.empty()) return;
  // Devices that are left over have no number any more, and open() refuses them.
  std::vector<int> numbers = visible(home_, true);
  numbers.resize(sharing_, -1);
  const std::vector<int> apart = visible(home_, false);
  numbers.insert(numbers.end(), apart.begin(), apart.end());
  numbers.resize(devices_.size(), -1);
  for (std::size_t i = 0; i < devices_.size(); ++i) {
    if (std::exchange(numbers[i], devices_[i]->number.exchange(numbers[i])) != numbers[i])
      devices_[i]->name.clear();
  }
}

Status OtherDevices::open(std::size_t number, const std::function<Status(int device)>& admit) {
  OtherDevice& one = device(number);
  if (one.open.load(std::memory_order_acquire)) [[likely]]
    return Status();
  const std::lock_guard lock(mutex_);
  if (one.open.load()) return Status();
  if (one.number.load() < 0) {
    return gmac::fail(adsmErrorNotSupported, "device {} does not reach the memory of {}", number,
                      home_.deviceName());
  }
  GMAC_TRY(admit(one.number.load()));
  GMAC_TRY(one.calls->openPrimary(one.number.load()));
  const Status opened = make(one);
  if (!opened.ok()) {
    const std::string text = lastErrorText();
    close(one);
    recordError(opened.code(), text);
    return opened;
  }
  ++open_;
  one.open.store(true, std::memory_order_release);
  return Status();
}

Status OtherDevices::make(OtherDevice& device) {
  const DeviceScope scope(*device.calls);
  GMAC_TRY(device.queue.open());
  const std::lock_guard lock(device.moving);
  const Result<Event> event = device.calls->createEvent();
  if (!event.ok()) return event.status();
  device.moveEvent = *event;
  const Result<Stream> stream = device.calls->createStream();
  if (!stream.ok()) return stream.status();
  device.moveStream = *stream;
  return Status();
}

void OtherDevices::openIfActive(std::size_t number,
                                const std::function<Status(int device)>& admit) {
  const int device = this->device(number).number.load();
  if (device < 0 || !home_.primaryIsActive(device)) return;
  if (const Status opened = open(number, admit); !opened.ok()) {
    log(LogLevel::kInfo, "device {} copies none of its pages itself: {}", number, lastErrorText());
  }
}

void OtherDevices::close(OtherDevice& device) noexcept {
  {
    const DeviceScope scope(*device.calls);
    const std::lock_guard lock(device.moving);
    const bool lost = device.calls->health().lost();
    Stream const stream = std::exchange(device.moveStream, nullptr);
    if (stream != nullptr && !lost) static_cast<void>(device.calls->destroyStream(stream));
    Event const event = std::exchange(device.moveEvent, nullptr);
    if (event != nullptr && !lost) static_cast<void>(device.calls->destroyEvent(event));
    device.lanes.close();
    device.queue.close();
  }
  device.calls->close();
  device.calls->health().recover();
  ++device.contexts;
}

void OtherDevices::contextEnds(std::uintptr_t context) noexcept {
  const std::lock_guard lock(mutex_);
  for (const auto& one : devices_) {
    if (one->open.load() && one->calls->nativeContext() == context) {
      one->open.store(false);
      --open_;
      close(*one);
    }
  }
}

void OtherDevices::closeAll() noexcept {
  const std::lock_guard lock(mutex_);
  for (const auto& one : devices_) {
    if (one->open.exchange(false)) close(*one);
  }
  open_ = 0;
}

Result<DeviceDescription> OtherDevices::describe(std::size_t number) {
  const std::lock_guard lock(mutex_);
  OtherDevice& one = device(number);
  const int device = one.number.load();
  if (device < 0) {
    return gmac::fail(adsmErrorNotSupported, "device {} does not reach the memory of {}", number,
                      home_.deviceName());
  }
  Result<MemoryRoom> room = home_.roomOf(device);
  if (!room.ok()) return room.status();
  if (one.name.empty()) {
    Result<std::string> name = home_.nameOf(device);
    if (!name.ok()) return name.status();
    one.name = std::move(*name);
  }
  return DeviceDescription{home_.name(), one.name, *room, home_.busAddressOf(device)};
}

void SetConstants::note(const void* image, const char* name, const void* data, std::size_t bytes) {
  const std::lock_guard lock(mutex_);
  std::vector<std::byte>& value = values_[image][name];
  value.resize(std::max(value.size(), bytes));
  std::memcpy(value.data(), data, bytes);
}

SetConstants::Values SetConstants::of(const void* image) const {
  const std::lock_guard lock(mutex_);
  const auto found = values_.find(image);
  return found == values_.end() ? Values() : found->second;
}

}  // namespace gmac::accel::cuda
