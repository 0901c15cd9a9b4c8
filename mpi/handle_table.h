// SPDX-License-Identifier: Apache-2.0
#ifndef GMAC_MPI_HANDLE_TABLE_H_
#define GMAC_MPI_HANDLE_TABLE_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <new>
#include <utility>

namespace gmac::mpi {

// The head of each entry of such a table.
template <typename Entry>
struct HandleNode {
  std::uint64_t key = 0;
  std::uint64_t number = 0;  // the table's: how many were inserted up to this one
  Entry* nextInBucket = nullptr;
};

// Finds entries by an MPI's handle. The entries are their owners', derive from HandleNode<Entry>,
// and are linked, so that inserting and removing need no memory and cannot fail: without memory for
// more buckets the table becomes slower. Handles are used again, so of entries with one key the
// newest is found, or the newest up to a number. Not thread-safe.
template <typename Entry>
class HandleTable {
 public:
  void insert(Entry& entry) noexcept {
    if (++count_ > buckets_) grow();
    Entry*& bucket = *bucketOf(entry.key);
    entry.number = ++inserted_;
    entry.nextInBucket = std::exchange(bucket, &entry);
  }
  // The number of the last that was inserted.
  std::uint64_t last() const { return inserted_; }
  // NULL: there is none.
  Entry* find(std::uint64_t key) const { return *link(key, UINT64_MAX); }
  Entry* remove(std::uint64_t key, std::uint64_t last = UINT64_MAX) {
    Entry** const place = link(key, last);
    Entry* const entry = *place;
    if (entry != nullptr) {
      *place = entry->nextInBucket;
      --count_;
    }
    return entry;
  }
  // `entry`, which is in the table, makes room for another one of the same key. O(bucket).
  void replace(Entry& entry, Entry& with) {
    Entry** place = bucketOf(entry.key);
    while (*place != &entry) place = &(*place)->nextInBucket;
    with.number = entry.number;
    with.nextInBucket = entry.nextInBucket;
    *place = &with;
  }
  std::size_t size() const { return count_; }

 private:
  Entry** bucketOf(std::uint64_t key) const {
    // (Knuth, The Art of Computer Programming, 6.4: multiplicative hashing. Handles are addresses
    // of aligned objects, or small numbers.)
    constexpr std::uint64_t kGolden = 0x9e3779b97f4a7c15;
    return &list_[(key * kGolden) >> shift_];
  }
  Entry** link(std::uint64_t key, std::uint64_t last) const {
    Entry** place = bucketOf(key);
    while (*place != nullptr && ((*place)->key != key || (*place)->number > last)) {
      place = &(*place)->nextInBucket;
    }
    return place;
  }
  void grow() noexcept {
    std::unique_ptr<Entry*[]> larger(new (std::nothrow) Entry*[2 * buckets_]());
    if (larger == nullptr) {
      return;
    }
    Entry** const before = std::exchange(list_, larger.get());
    --shift_;
    for (std::size_t i = 0; i < buckets_; ++i) {
      // From the end of the bucket, so that the newest of a key comes first again.
      Entry* turned = nullptr;
      for (Entry* entry = before[i]; entry != nullptr;) {
        Entry* const next = std::exchange(entry->nextInBucket, turned);
        turned = std::exchange(entry, next);
      }
      while (turned != nullptr) {
        Entry* const next = turned->nextInBucket;
        Entry*& bucket = *bucketOf(turned->key);
        turned->nextInBucket = std::exchange(bucket, turned);
        turned = next;
      }
    }
    buckets_ *= 2;
    more_ = std::move(larger);
  }

  static constexpr std::size_t kFirstBuckets = 256;
  static constexpr int kFirstShift = 64 - 8;
  std::array<Entry*, kFirstBuckets> first_{};
  std::unique_ptr<Entry*[]> more_;
  Entry** list_ = first_.data();
  std::size_t buckets_ = kFirstBuckets;
  int shift_ = kFirstShift;
  std::size_t count_ = 0;
  std::uint64_t inserted_ = 0;
};

}  // namespace gmac::mpi

#endif  // GMAC_MPI_HANDLE_TABLE_H_
