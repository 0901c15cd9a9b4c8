// SPDX-License-Identifier: Apache-2.0
#include <atomic>
#include <cstdint>
#include <unordered_map>
#include <unordered_set>
#include <utility>

#include "mpi/abi/handle.h"
#include "mpi/abi/one_sided.h"

namespace gmac::mpi::GMAC_MPI_ABI {

Ready OriginBuffer::prepare(Form form, const void* buffer, MPI_Count count, MPI_Datatype type) {
  form_ = form;
  buffer_ = const_cast<void*>(buffer);
  type_ = type;
  if (!needsStaging(buffer, count, type)) {
    return Ready::kYes;
  }
  const Ready ready = form == Form::kPacked ? staged_.prepare(buffer_, count, type)
                                            : operand_.prepare(buffer_, count, type);
  inUse_ = ready == Ready::kYes;
  failed_ = ready == Ready::kFailed;
  return ready;
}

Ready OriginBuffer::prepareIn(SeparateWindowPtr window, void* buffer, MPI_Count count,
                              MPI_Datatype type) {
  window_ = std::move(window);
  buffer_ = buffer;
  type_ = type;
  span_ = spanOf(count, type);
  failed_ = !window_->publish(buffer, span_, &windowReason_);
  return failed_ ? Ready::kFailed : Ready::kYes;
}

bool OriginBuffer::pack() {
  return !inUse_ || (form_ == Form::kPacked ? staged_.repack() : operand_.pack());
}

bool OriginBuffer::unpack() {
  if (window_ != nullptr) {
    return window_->collect(buffer_, span_, &windowReason_);
  }
  if (!inUse_) {
    return true;
  }
  if (form_ == Form::kElements) {
    return operand_.unpack();
  }
  return filled_.has_value() ? staged_.unpack(*filled_) : staged_.unpackAll();
}

void* OriginBuffer::address() const {
  if (window_ != nullptr) {
    return window_->publicAddress(buffer_);
  }
  if (!inUse_) {
    return buffer_;
  }
  return form_ == Form::kPacked ? staged_.address() : operand_.address();
}

MPI_Datatype OriginBuffer::datatype() const {
  return inUse_ && form_ == Form::kPacked ? staged_.datatype() : type_;
}

const std::string& OriginBuffer::reason() const {
  if (window_ != nullptr) {
    return windowReason_;
  }
  return form_ == Form::kPacked ? staged_.reason() : operand_.reason();
}

bool Operation::begin(bool keeps) {
  for (OriginBuffer* const buffer : {&origin, &compared, keeps ? &result : nullptr}) {
    if (buffer != nullptr && !buffer->pack()) {
      reason_ = buffer->reason();
      return false;
    }
  }
  return true;
}

bool Operation::finish() {
  std::call_once(finished_, [this] {
    right_ = result.unpack();
    if (!right_) {
      reason_ = result.reason();
    }
    origin = {};
    compared = {};
    result = {};
  });
  return right_;
}

bool Operation::deliver(const MPI_Status&) { return finish(); }

namespace operations {
namespace {

std::atomic<std::size_t> underWay{0};

struct Table {
  std::mutex lock;
  std::unordered_map<std::uint64_t, std::unordered_set<OperationPtr>> windows;
};
Table& table() {
  static auto* const table = new Table;  // also for exit handlers
  return *table;
}

}  // namespace

bool any() { return underWay.load(std::memory_order_acquire) != 0; }

void add(const OperationPtr& operation) {
  Table& all = table();
  const std::lock_guard guard(all.lock);
  if (all.windows[keyOf(operation->window)].insert(operation).second) {
    underWay.fetch_add(1, std::memory_order_release);
  }
}

void remove(const OperationPtr& operation) {
  Table& all = table();
  const std::lock_guard guard(all.lock);
  const auto found = all.windows.find(keyOf(operation->window));
  if (found == all.windows.end() || found->second.erase(operation) == 0) {
    return;
  }
  underWay.fetch_sub(1, std::memory_order_release);
  if (found->second.empty()) {
    all.windows.erase(found);
  }
}

std::vector<OperationPtr> of(MPI_Win window, std::optional<int> target) {
  Table& all = table();
  const std::lock_guard guard(all.lock);
  std::vector<OperationPtr> operations;
  const auto found = all.windows.find(keyOf(window));
  if (found != all.windows.end()) {
    for (const OperationPtr& operation : found->second) {
      if (!target.has_value() || operation->target == *target) {
        operations.push_back(operation);
      }
    }
  }
  return operations;
}

}  // namespace operations
}  // namespace gmac::mpi::GMAC_MPI_ABI
