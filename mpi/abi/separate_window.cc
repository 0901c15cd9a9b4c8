// SPDX-License-Identifier: Apache-2.0
#include "mpi/abi/separate_window.h"

#include <algorithm>
#include <cstdint>
#include <unordered_map>
#include <utility>
#include <vector>

#include "gmac/api/adsm_datatype.h"
#include "mpi/abi/handle.h"
#include "mpi/staging_memory.h"

namespace gmac::mpi::GMAC_MPI_ABI {
namespace {

// So few runs are unpacked one by one; of more, a type is made.
constexpr std::size_t kFewRuns = 16;

bool failed(adsmError_t error, std::string* reason) {
  if (error != adsmSuccess) {
    *reason = adsmLastErrorString();
  }
  return error != adsmSuccess;
}

adsmPackOptions_t noOptions() {
  adsmPackOptions_t options = {};
  options.size = sizeof options;
  return options;
}

// The runs as one type, which reaches them all at once.
bool unpackRuns(std::byte* base, std::span<const ByteRun> runs, const std::byte* values,
                std::string* reason) {
  std::vector<std::int64_t> lengths;
  std::vector<std::int64_t> places;
  for (const ByteRun& run : runs) {
    lengths.push_back(static_cast<std::int64_t>(run.bytes));
    places.push_back(static_cast<std::int64_t>(run.first));
  }
  adsmType_t type = nullptr;
  if (failed(adsmTypeHindexed(static_cast<std::int64_t>(runs.size()), lengths.data(), places.data(),
                              ADSM_TYPE_1, &type),
             reason)) {
    return false;
  }
  const adsmPackOptions_t options = noOptions();
  const bool unpacked = !failed(adsmTypeCommit(type), reason) &&
                        !failed(adsmUnpackWith(base, values, 1, type, &options), reason);
  (void)adsmTypeFree(type);
  return unpacked;
}

}  // namespace

SeparateWindow::SeparateWindow(void* base, std::size_t bytes, MPI_Aint unit, int rank,
                               bool onDevice)
    : base_(static_cast<std::byte*>(base)),
      unit_(unit),
      rank_(rank),
      onDevice_(onDevice),
      public_(base, bytes) {}

std::shared_ptr<SeparateWindow> SeparateWindow::make(void* base, std::size_t bytes, MPI_Aint unit,
                                                     int rank, std::string* reason) {
  const OnDevice place = onDevice(base, {0, static_cast<MPI_Count>(bytes)});
  const auto* const last = static_cast<const std::byte*>(base) + (bytes - 1);
  if (place != OnDevice::kYes &&
      (gmacTouchesShared(base, 1) == 0 || gmacTouchesShared(last, 1) == 0)) {
    *reason =
        "the window would be partly over a shared object or memory of a device, and partly "
        "over other memory";
    return nullptr;
  }
  std::shared_ptr<SeparateWindow> window(
      new SeparateWindow(base, bytes, unit, rank, place == OnDevice::kYes));
  PublicCopy& copy = window->public_;
  if (!copy.made()) {
    *reason = "no memory for a window of " + std::to_string(bytes) +
              " bytes, which takes twice "
              "that beside the object";
    return nullptr;
  }
  const auto begin = [&](std::size_t first, std::span<const std::byte> values) {
    copy.begin(first, values);
  };
  return window->readAll({0, bytes}, begin, reason) ? window : nullptr;
}

SeparateWindow::Part SeparateWindow::partOf(const void* buffer, const Span& span) const {
  const auto first = reinterpret_cast<std::uintptr_t>(shifted(buffer, span.first)) -
                     reinterpret_cast<std::uintptr_t>(base_);
  return {first, span.bytes()};
}

bool SeparateWindow::contains(const void* buffer, const Span& span) const {
  if (span.empty()) {
    return false;
  }
  const Part part = partOf(buffer, span);
  return part.first < public_.bytes() && part.bytes <= public_.bytes() - part.first;
}

void* SeparateWindow::publicAddress(const void* address) const {
  // The address itself may lie outside: the elements need not begin there.
  return reinterpret_cast<void*>(reinterpret_cast<std::uintptr_t>(address) +
                                 (reinterpret_cast<std::uintptr_t>(public_.memory()) -
                                  reinterpret_cast<std::uintptr_t>(base_)));
}

bool SeparateWindow::lives() const {
  const std::byte* const last = base_ + (public_.bytes() - 1);
  return onDevice_ ? gmacIsDeviceMemory(base_) != 0 && gmacIsDeviceMemory(last) != 0
                   : gmacTouchesShared(base_, 1) != 0 && gmacTouchesShared(last, 1) != 0;
}

bool SeparateWindow::publish(std::string* reason) {
  return publishPart({0, public_.bytes()}, reason);
}
bool SeparateWindow::publish(const void* buffer, const Span& span, std::string* reason) {
  return publishPart(partOf(buffer, span), reason);
}
bool SeparateWindow::collect(std::string* reason) {
  return collectPart({0, public_.bytes()}, reason);
}
bool SeparateWindow::collect(const void* buffer, const Span& span, std::string* reason) {
  return collectPart(partOf(buffer, span), reason);
}

bool SeparateWindow::publishPart(Part part, std::string* reason) {
  const std::lock_guard guard(lock_);
  return !lives() || readAll(
                         part,
                         [&](std::size_t first, std::span<const std::byte> values) {
                           public_.publish(first, values);
                         },
                         reason);
}

bool SeparateWindow::collectPart(Part part, std::string* reason) {
  std::string failure = "no memory for what other processes have written to the window";
  const std::lock_guard guard(lock_);
  const bool lost = !lives();
  bool anyLost = false;
  const bool collected = public_.collect(
      part.first, part.bytes, [&](std::span<const ByteRun> runs, const std::byte* values) {
        anyLost = anyLost || lost;
        return lost || write(runs, values, &failure);
      });
  if (anyLost) {
    failure =
        "the window's memory was freed, and what other processes have written there since "
        "is lost: free the window first";
  }
  if (!collected || anyLost) {
    *reason = std::move(failure);
  }
  return collected && !anyLost;
}

template <typename Use>
bool SeparateWindow::readAll(Part part, const Use& use, std::string* reason) {
  const std::size_t end = part.first + part.bytes;
  StagingMemory values(std::min(part.bytes, PublicCopy::kPieceBytes));
  if (values.data() == nullptr) {
    *reason = "no memory to read the window's";
    return false;
  }
  values.pin(kPinning);
  for (std::size_t first = part.first; first < end; first += PublicCopy::kPieceBytes) {
    const std::span piece(values.data(), std::min(PublicCopy::kPieceBytes, end - first));
    if (!read(first, piece, reason)) {
      return false;
    }
    use(first, std::span<const std::byte>(piece));
  }
  return true;
}

bool SeparateWindow::open(bool* reached, std::string* reason) const {
  int packs = 1;
  if (onDevice_ && failed(gmacOpenDeviceMemory(base_, &packs), reason)) {
    return false;
  }
  *reached = packs != 0;
  return true;
}

bool SeparateWindow::read(std::size_t first, std::span<std::byte> to, std::string* reason) const {
  bool reached = false;
  if (!open(&reached, reason)) {
    return false;
  }
  if (!reached) {
    return !failed(gmacCopyFromDevice(to.data(), base_ + first, to.size()), reason);
  }
  const adsmPackOptions_t options = noOptions();
  return !failed(adsmPackWith(to.data(), base_ + first, static_cast<std::int64_t>(to.size()),
                              ADSM_TYPE_1, &options),
                 reason);
}

bool SeparateWindow::write(std::span<const ByteRun> runs, const std::byte* values,
                           std::string* reason) const {
  bool reached = false;
  if (!open(&reached, reason)) {
    return false;
  }
  if (reached && runs.size() > kFewRuns) {
    return unpackRuns(base_, runs, values, reason);
  }
  const adsmPackOptions_t options = noOptions();
  for (const ByteRun& run : runs) {
    std::byte* const to = base_ + run.first;
    const adsmError_t error = reached
                                  ? adsmUnpackWith(to, values, static_cast<std::int64_t>(run.bytes),
                                                   ADSM_TYPE_1, &options)
                                  : gmacCopyToDevice(to, values, run.bytes);
    if (failed(error, reason)) {
      return false;
    }
    values += run.bytes;
  }
  return true;
}

namespace separate_windows {

constinit std::atomic<std::size_t> internal::count{0};

namespace {

struct Table {
  std::mutex lock;
  std::unordered_map<std::uint64_t, SeparateWindowPtr> windows;
};
Table& table() {
  static auto* const table = new Table;  // also for exit handlers
  return *table;
}

}  // namespace

SeparateWindowPtr internal::findSlow(MPI_Win window) {
  Table& all = table();
  const std::lock_guard guard(all.lock);
  const auto found = all.windows.find(keyOf(window));
  return found != all.windows.end() ? found->second : nullptr;
}

void add(MPI_Win window, SeparateWindowPtr separate) {
  Table& all = table();
  const std::lock_guard guard(all.lock);
  all.windows[keyOf(window)] = std::move(separate);
  internal::count.store(all.windows.size(), std::memory_order_release);
}

std::vector<SeparateWindowPtr> all() {
  std::vector<SeparateWindowPtr> windows;
  if (internal::count.load(std::memory_order_acquire) != 0) {
    Table& all = table();
    const std::lock_guard guard(all.lock);
    for (const auto& [key, window] : all.windows) {
      windows.push_back(window);
    }
  }
  return windows;
}

SeparateWindowPtr take(MPI_Win window) {
  Table& all = table();
  const std::lock_guard guard(all.lock);
  const auto node = all.windows.extract(keyOf(window));
  internal::count.store(all.windows.size(), std::memory_order_release);
  return !node.empty() ? node.mapped() : nullptr;
}

}  // namespace separate_windows
}  // namespace gmac::mpi::GMAC_MPI_ABI
