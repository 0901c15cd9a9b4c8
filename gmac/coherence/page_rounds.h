// SPDX-License-Identifier: Apache-2.0
//
// Which pages of a large object the CPU and kernels use in turn (policies/hot_pages.h).
//
// A program may keep all its small arrays in one allocation and come for several of them in a
// round, and each of its threads may come for its own. So the rounds of each page are counted by
// themselves, as those of a small object are (zero_copy_policy.h): the CPU fetches bytes of the
// page, a launch takes them, and the program waits. Where the CPU is given much of the object in
// the time that a page takes for a round, rounds of pages that it is given most of do not count: it
// may use all of a large object, and kernels would read all of that over the bus.
//
// kMost pages are known at once. Another page gets the place of one that has been passed over
// kPatience times since the CPU came for it, so that a few hot pages stay known beside accesses all
// over the object.
#ifndef GMAC_COHERENCE_PAGE_ROUNDS_H_
#define GMAC_COHERENCE_PAGE_ROUNDS_H_

#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "gmac/coherence/comers.h"
#include "gmac/coherence/zero_copy_policy.h"

namespace gmac {

// Of one object; guarded like that. Constant time, allocates nothing once it is made.
class PageRounds {
 public:
  static constexpr std::size_t kMost = 64;
  static constexpr std::uint8_t kPatience = 8;
  static constexpr std::size_t kMostDense = 5;  // pages' bytes, with those that are read ahead

  struct Page {
    std::size_t number = SIZE_MAX;  // its offset in pages; SIZE_MAX: none
    Comers comers;
    std::size_t given = 0;   // bytes to the CPU, which launches have taken since it came
    std::size_t before = 0;  // of the object, by the end of the page's newest round
    std::uint8_t patience = 0;
    ZeroCopyPolicy policy;
  };

  // Throws std::bad_alloc.
  PageRounds(std::size_t objectBytes, std::size_t pageBytes)
      : pageBytes_(pageBytes), returns_((objectBytes + pageBytes - 1) / pageBytes) {}

  std::size_t pageBytes() const { return pageBytes_; }

  // The CPU, by a thread, comes for the byte at an offset.
  void comes(std::size_t offset, std::uint64_t thread) {
    if (Page* const page = pageFor(offset, thread)) {
      page->policy.fetched();
    }
  }
  // It stores to the byte, which it has.
  void stores(std::size_t offset, std::uint64_t thread) {
    if (Page* const page = pageFor(offset, thread)) {
      page->policy.stored();
    }
  }
  // To open the byte at an offset for the CPU took so long (ZeroCopyPolicy::costs).
  void costs(std::size_t offset, ZeroCopyPolicy::Nanoseconds took) {
    const std::size_t number = offset / pageBytes_;
    if (known(number) != nullptr) {
      pages_[slotOf(number)].policy.costs(took);
    }
  }
  // A launch takes so many bytes at an offset, which the CPU was given. Whether a round of their
  // page begins.
  bool taken(std::size_t offset, std::size_t bytes, ZeroCopyPolicy::Nanoseconds now) {
    return taken(offset, bytes, [now](ZeroCopyPolicy& policy) { return policy.takes(now); });
  }
  // The same of few bytes that it has, and has stored to.
  bool takenStored(std::size_t offset, ZeroCopyPolicy::Nanoseconds now) {
    return taken(offset, 0, [now](ZeroCopyPolicy& policy) { return policy.takesStored(now); });
  }
  // The program waits. Whether the round of a page counts.
  bool counts(const Page& page) const {
    return page.given <= pageBytes_ / 2 || given_ - page.before <= kMostDense * pageBytes_;
  }
  // Whether a round of some page has begun, and has not ended.
  bool anyTaken() const { return taken_ != 0; }
  // Calls `function(page)` for each such page.
  template <typename Function>
  void forEachTaken(Function function) {
    for (std::uint64_t left = taken_; left != 0; left &= left - 1) {
      function(pages_[static_cast<std::size_t>(std::countr_zero(left))]);
    }
  }
  // The round of a page has ended.
  void ended(Page& page) {
    taken_ &= ~(std::uint64_t{1} << slotOf(page.number));
    page.before = given_;
  }
  // What is known of a page; NULL: nothing, as others have come between or no page is known.
  const Page* known(std::size_t number) const {
    const Page& page = pages_[slotOf(number)];
    return page.number == number ? &page : nullptr;
  }
  // The same of one that has become an object of its own, or that has not got away.
  ZeroCopyPolicy release(std::size_t number) {
    if (known(number) == nullptr) {
      return {};
    }
    Page& page = pages_[slotOf(number)];
    ended(page);
    return std::exchange(page, {}).policy;
  }
  // From here on no page is known.
  void stop() {
    none_ = true;
    taken_ = 0;
    pages_.fill({});
  }

  // A page has come back, or has not got away: it needs more evidence the next time. What has
  // happened to many others counts as well: twice as many make one more, so that a program that
  // goes from page to page pays for ever fewer moves.
  void comesBack(std::size_t number) {
    returns_[number] = static_cast<std::uint8_t>(std::min(returns_[number] + 1, 255));
    ++allReturns_;
  }
  // It came back in vain, which counts for nothing.
  void cameBackInVain(std::size_t number) {
    if (returns_[number] > 0) {
      --returns_[number];
      --allReturns_;
    }
  }
  // How often the page itself has come back; and with what others count.
  std::uint32_t ownReturnsOf(std::size_t number) const { return returns_[number]; }
  std::uint32_t returnsOf(std::size_t number) const {
    const std::uint32_t own = ownReturnsOf(number);
    return own +
           static_cast<std::uint32_t>(std::bit_width(allReturns_ - std::min(own, allReturns_)));
  }

 private:
  // NULL: others keep the place.
  Page* pageFor(std::size_t offset, std::uint64_t thread) {
    const std::size_t number = offset / pageBytes_;
    Page& page = pages_[slotOf(number)];
    if (page.number != number) {
      if (page.patience > 0 || none_) {
        page.patience -= page.patience > 0 ? 1 : 0;
        return nullptr;
      }
      taken_ &= ~(std::uint64_t{1} << slotOf(number));
      page = {};
      page.number = number;
      page.before = given_;
    }
    page.patience = kPatience;
    page.comers.comes(thread);
    return &page;
  }
  template <typename Takes>
  bool taken(std::size_t offset, std::size_t bytes, Takes takes) {
    const std::size_t slot = slotOf(offset / pageBytes_);
    Page& page = pages_[slot];
    given_ += bytes;
    if (page.number != offset / pageBytes_) {
      return false;
    }
    const bool begins = takes(page.policy);
    page.given = begins ? bytes : page.given + bytes;
    taken_ |= begins ? std::uint64_t{1} << slot : 0;
    return begins;
  }
  // (Arrays that lie a power of two apart have places of their own.)
  static std::size_t slotOf(std::size_t number) { return (number + number / kMost) % kMost; }

  const std::size_t pageBytes_;
  std::array<Page, kMost> pages_{};
  std::size_t given_ = 0;    // bytes to the CPU, which launches have taken
  std::uint64_t taken_ = 0;  // bit i: a round of pages_[i] is under way
  bool none_ = false;
  std::vector<std::uint8_t> returns_;  // of each page
  std::uint32_t allReturns_ = 0;
};

}  // namespace gmac

#endif  // GMAC_COHERENCE_PAGE_ROUNDS_H_
