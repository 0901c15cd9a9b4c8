// SPDX-License-Identifier: Apache-2.0
//
// Whether launches list the objects that their kernels may use.
//
// A launch of the program's own may use every object, unless the code of its kernel says less
// (device_code/). To find that out, and to note it launch by launch, takes longer than a launch
// that lists nothing and finds everything closed. So launches list nothing at first.
//
//  - While they do not, the time that accesses of the CPU take is counted, of objects that work of
//    the device may have used since they were made. When it reaches `worth`, launches begin to
//    list. That is `leastWorth` at first, and doubles whenever lists have gained nothing. In the
//    first kSettling rounds other policies learn how to do without most accesses: until then those
//    count in full that found kernels running, which nothing else saves, and others one in kLater.
//  - While they do, it is decided at the end of each interval whether that goes on. An access that
//    finds kernels running which do not use its object does not wait for them: that is worth the
//    time from one launch to the next, once for each launch. Where this alone comes to what lists
//    cost (kCost each), they go on. Else the time for a launch, with all that the program does
//    between, is compared with that of launches that do not list: of those before the first
//    interval, and later of a trial of an eighth as many. The first half of a trial does not count:
//    other policies learn anew then. Where lists gain less than a thirty-second, launches cease to
//    list.
//  - An interval has kLeastInterval launches at first, and twice as many whenever lists have gained
//    something, up to kMostInterval. What is measured has kLeastRounds rounds of the program (from
//    one wait to the next), or kMostLonger times as many launches.
//
// The bound: lists that gain nothing from the start slow down one interval, after accesses have
// taken `worth`; each time in vain that has to be twice as much. Lists that cease to gain slow down
// at most twice as many launches as have gained from them before. Trials lose an eighth of what
// lists gain.
#ifndef GMAC_COHERENCE_LISTING_POLICY_H_
#define GMAC_COHERENCE_LISTING_POLICY_H_

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <utility>

namespace gmac {

// Of all objects; guarded by their lock, but for waited(). Constant time, allocates nothing.
class ListingPolicy {
 public:
  using Nanoseconds = std::uint64_t;
  // A time, and how many launches there were until then.
  struct Moment {
    Nanoseconds now = 0;
    std::uint64_t launches = 0;
  };

  static constexpr Nanoseconds kCost = 4'000;  // of one list
  static constexpr unsigned kMostDoublings = 10;
  static constexpr std::uint64_t kSettling = 256;  // rounds
  static constexpr Nanoseconds kLater = 4;
  static constexpr std::uint64_t kLeastInterval = 256;
  static constexpr std::uint64_t kMostInterval = 16'384;
  static constexpr std::uint64_t kLeastTrial = 64;
  static constexpr std::uint64_t kLeastRounds = 2;
  static constexpr std::uint64_t kMostLonger = 8;
  // What an access that has not waited is worth.
  static constexpr Nanoseconds kMostGain = 10'000'000;

  // `allowed`: else launches never list. `leastWorth`: CoherenceOptions::listingWorth.
  ListingPolicy(bool allowed, Nanoseconds leastWorth)
      : allowed_(allowed), leastWorth_(leastWorth) {}

  // Whether launches list; and whether it is open that they do, so that tick() is due at launches
  // and accesses.
  bool on() const { return phase_ == Phase::kListing; }
  bool watches() const { return phase_ != Phase::kOff; }

  // Whether accesses count that find no kernels running.
  bool settled() const { return settled_; }
  // An access has taken so long, to an object that the device may have used; `beside`: and has
  // found kernels running.
  void accessed(Nanoseconds took, bool beside, const Moment& moment) {
    if (watches() || !allowed_) {
      return;
    }
    if (!settled_ && rounds_.load(std::memory_order_relaxed) >= kSettling) {
      settled_ = true;
      lost_ = 0;
      early_ = late_ = moment;
    }
    lost_ += beside || settled_ ? took : took / kLater;
    if (lost_ >= leastWorth_ << doublings_ && (beside || settled_)) {
      unlisted_ = perLaunch(early_, moment);
      lost_ = 0;
      begin(Phase::kListing, moment);
    } else if (moment.launches - late_.launches >= kLeastInterval) {
      early_ = late_;
      late_ = moment;
    }
  }
  // An access has not waited for kernels that were running; `work`: the newest work of the device.
  void passed(std::uint64_t work) {
    passed_ += on() && work != passedWork_ ? 1 : 0;
    passedWork_ = work;
  }
  // The program has waited for device work: a round ends. Without the lock.
  void waited() { rounds_.fetch_add(1, std::memory_order_relaxed); }
  // May change on() and watches().
  void tick(const Moment& moment) {
    if (on()) {
      if (isOver(interval_, moment)) {
        intervalEnds(moment);
      }
    } else if (watches()) {
      const std::uint64_t half = std::max(kLeastTrial, interval_ / 8) / 2;
      if (!isOver(half, moment)) {
        return;
      }
      if (std::exchange(secondHalf_, true)) {
        unlisted_ = perLaunch(begun_, moment);
        judge(moment);
      } else {
        begin(Phase::kTrial, moment);
      }
    }
  }

 private:
  enum class Phase : std::uint8_t { kOff, kListing, kTrial };

  // 0: not known.
  static Nanoseconds perLaunch(const Moment& since, const Moment& moment) {
    const std::uint64_t launches = moment.launches - since.launches;
    return launches >= kLeastTrial / 2 && since.now != 0 ? (moment.now - since.now) / launches : 0;
  }
  void begin(Phase phase, const Moment& moment) {
    phase_ = phase;
    begun_ = moment;
    passed_ = 0;
    rounds_.store(0, std::memory_order_relaxed);
  }
  bool isOver(std::uint64_t launches, const Moment& moment) const {
    const std::uint64_t so = moment.launches - begun_.launches;
    return so >= launches && (rounds_.load(std::memory_order_relaxed) >= kLeastRounds ||
                              so >= kMostLonger * launches);
  }
  void intervalEnds(const Moment& moment) {
    const std::uint64_t launches = moment.launches - begun_.launches;
    listed_ = (moment.now - begun_.now) / launches;
    if (passed_ * std::min(listed_, kMostGain) >= launches * kCost) {
      gained(moment);
    } else if (unlisted_ != 0) {
      judge(moment);
    } else {
      secondHalf_ = false;
      begin(Phase::kTrial, moment);
    }
  }
  void judge(const Moment& moment) {
    const bool gains = listed_ < unlisted_ - unlisted_ / 32;
    unlisted_ = 0;
    if (gains) {
      gained(moment);
      return;
    }
    doublings_ = std::min(doublings_ + 1, kMostDoublings);
    interval_ = kLeastInterval;
    early_ = late_ = moment;
    begin(Phase::kOff, moment);
    settled_ = false;
  }
  void gained(const Moment& moment) {
    unlisted_ = 0;
    doublings_ = 0;
    interval_ = std::min(2 * interval_, kMostInterval);
    begin(Phase::kListing, moment);
  }

  const bool allowed_;
  const Nanoseconds leastWorth_;
  Phase phase_ = Phase::kOff;
  unsigned doublings_ = 0;
  // While launches do not list: what accesses took, and two moments that are an interval apart.
  Nanoseconds lost_ = 0;
  bool settled_ = false;
  Moment early_;
  Moment late_;
  std::uint64_t interval_ = kLeastInterval;
  // Of the interval, or of half a trial.
  Moment begun_;
  bool secondHalf_ = false;  // of a trial
  std::uint64_t passed_ = 0;
  std::uint64_t passedWork_ = 0;
  std::atomic<std::uint64_t> rounds_{0};
  // The time for a launch that lists, in the newest interval; and for one that does not: 0 if that
  // is to be measured.
  Nanoseconds listed_ = 0;
  Nanoseconds unlisted_ = 0;
};

}  // namespace gmac

#endif  // GMAC_COHERENCE_LISTING_POLICY_H_
