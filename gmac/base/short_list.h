// SPDX-License-Identifier: Apache-2.0
//
// A list on the stack: what it has room for is neither cleared nor copied, so that a long one costs
// nothing where it stays short. (Boost's static_vector is no range that std::span takes, up
// to 1.74.)
#ifndef GMAC_BASE_SHORT_LIST_H_
#define GMAC_BASE_SHORT_LIST_H_

#include <algorithm>
#include <array>
#include <cstddef>
#include <memory>
#include <type_traits>

namespace gmac {

// Up to kMost values. A contiguous range. Async-signal-safe; not thread-safe.
template <typename Value, std::size_t kMost>
class ShortList {
  static_assert(std::is_trivially_copyable_v<Value> && std::is_trivially_destructible_v<Value>);

 public:
  ShortList() {}  // NOLINT(modernize-use-equals-default): a union that holds nothing yet
  ShortList(const ShortList& other) : count_(other.count_) {
    std::uninitialized_copy_n(other.data(), count_, values_.data());
  }
  ShortList& operator=(const ShortList& other) {
    count_ = other.count_;
    std::uninitialized_copy_n(other.data(), count_, values_.data());
    return *this;
  }

  bool empty() const { return count_ == 0; }
  bool full() const { return count_ == kMost; }
  std::size_t size() const { return count_; }
  const Value* data() const { return values_.data(); }
  const Value* begin() const { return data(); }
  const Value* end() const { return data() + count_; }
  const Value& back() const { return values_[count_ - 1]; }
  Value& operator[](std::size_t place) { return values_[place]; }
  const Value& operator[](std::size_t place) const { return values_[place]; }

  // Not to a full list.
  void add(const Value& value) { std::construct_at(&values_[count_++], value); }
  // Before the value at a place.
  void insert(std::size_t place, const Value& value) {
    add(value);
    std::rotate(values_.data() + place, values_.data() + count_ - 1, values_.data() + count_);
  }
  void dropLast() { --count_; }
  // Those for which the predicate holds.
  template <typename Predicate>
  ShortList where(Predicate predicate) const {
    ShortList some;
    std::for_each(begin(), end(),
                  [&](const Value& value) { predicate(value) ? some.add(value) : void(); });
    return some;
  }

 private:
  union {
    std::array<Value, kMost> values_;
  };
  std::size_t count_ = 0;
};

}  // namespace gmac

#endif  // GMAC_BASE_SHORT_LIST_H_
