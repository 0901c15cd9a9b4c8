// SPDX-License-Identifier: Apache-2.0
//
// The few places of an object for which the CPU comes again and again (read_back_policy.h).
//
// A program may look at the first and the last row of an array after each wait, or at one word for
// each of a few kernels. So up to kMost blocks have a policy each. The CPU has to come for them
// within kLately fetches of the object: its place starts anew after more, and a block that is not
// known gets the place of one that has not been come for as long. So a few places stay known beside
// accesses all over the object. What the earlier guesses of a place were worth stays with it, so
// that the bound of one policy holds for each place.
//
// What the CPU comes for first in a round is known by itself: it tells whether the object should
// have one copy (zero_copy_policy.h), which gains little where the CPU comes now here, now there.
#ifndef GMAC_COHERENCE_READ_BACK_PLACES_H_
#define GMAC_COHERENCE_READ_BACK_PLACES_H_

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

#include "gmac/coherence/block_index.h"
#include "gmac/coherence/read_back_policy.h"

namespace gmac {

// Of one object; guarded like that. Constant time, allocates nothing.
class ReadBackPlaces {
 public:
  static constexpr std::size_t kMost = 8;
  static constexpr std::uint64_t kLately = 16;

  ReadBackPlaces() = default;
  // Where bytes have one copy, all that the CPU comes for is open soon (concurrent_use.h): one
  // place tells of the object's rounds.
  static ReadBackPlaces ofOneCopy() {
    ReadBackPlaces places;
    places.places_[0].policy = ReadBackPolicy::ofOneCopy();
    places.oneCopy_ = true;
    places.count_ = 1;
    return places;
  }
  void forget() { *this = oneCopy_ ? ofOneCopy() : ReadBackPlaces(); }
  // The next object in the memory begins where this one has ended; `open`: with what was open.
  ReadBackPlaces forNext(bool open) const {
    ReadBackPlaces next = *this;
    for (Place& place : next.used()) {
      place.policy = place.policy.forNext(open);
    }
    next.first_ = first_.forNext(open);
    return next;
  }

  // The CPU has fetched bytes of a block that was Invalid; has written a block. `good`: a copy that
  // was made ahead was still good.
  void fetched(BlockIndex block, ByteRange bytes, bool good = true) {
    ++fetches_;
    first_.fetched(block, bytes);
    if (Place* const place = placeFor(block)) {
      if (!lately(*place)) {
        place->policy.restart();
      }
      place->policy.fetched(block, bytes, good);
      place->newest = fetches_;
    }
  }
  void wrote(BlockIndex block) {
    first_.wrote(block);
    for (Place& place : used()) {
      place.policy.wrote(block);
    }
  }
  // A place's bytes were opened ahead, as its guess said.
  void opened(std::size_t place) {
    places_[place].policy.opened();
    places_[place].newest = fetches_;
    if (first_.isFor(places_[place].policy.block())) {
      first_.opened();
    }
  }
  // A call has taken the block.
  void closed(BlockIndex block) {
    first_.closed(block);
    for (Place& place : used()) {
      place.policy.closed(block);
    }
  }

  std::size_t size() const { return count_; }
  ReadBackPolicy& operator[](std::size_t place) { return places_[place].policy; }
  const ReadBackPolicy& operator[](std::size_t place) const { return places_[place].policy; }
  // What the CPU comes for first in a round; where bytes have one copy, that is the one place.
  const ReadBackPolicy& first() const { return oneCopy_ ? places_[0].policy : first_; }
  // Whether the CPU comes for the same bytes again and again: first, or at some place.
  bool repeats() const {
    return first().repeats() || std::any_of(used().begin(), used().end(), [](const Place& place) {
             return place.policy.repeats();
           });
  }
  bool overlaps(ByteRange bytes) const {
    return std::any_of(used().begin(), used().end(), [bytes](const Place& place) {
      return place.policy.bytes().overlaps(bytes);
    });
  }

 private:
  struct Place {
    ReadBackPolicy policy;
    std::uint64_t newest = 0;  // fetches_ when the CPU came for it, or it was opened
  };

  std::span<Place> used() { return {places_.data(), count_}; }
  std::span<const Place> used() const { return {places_.data(), count_}; }
  // NULL: the block gets none.
  Place* placeFor(BlockIndex block) {
    const std::span<Place> places = used();
    const auto known = std::find_if(places.begin(), places.end(), [block](const Place& place) {
      return place.policy.isFor(block);
    });
    if (known != places.end()) {
      return &*known;
    }
    if (oneCopy_) {
      return places_.data();
    }
    if (count_ < kMost) {
      places_[count_].newest = fetches_;
      return &places_[count_++];
    }
    Place* const oldest =
        &*std::min_element(places.begin(), places.end(),
                           [](const Place& a, const Place& b) { return a.newest < b.newest; });
    return lately(*oldest) ? nullptr : oldest;
  }
  bool lately(const Place& place) const { return oneCopy_ || fetches_ - place.newest <= kLately; }

  ReadBackPolicy first_;  // makes no guesses
  std::array<Place, kMost> places_{};
  std::size_t count_ = 0;  // places in use
  bool oneCopy_ = false;
  std::uint64_t fetches_ = 0;  // of all blocks
};

}  // namespace gmac

#endif  // GMAC_COHERENCE_READ_BACK_PLACES_H_
