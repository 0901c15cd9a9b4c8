// SPDX-License-Identifier: Apache-2.0
#include "gmac/coherence/ledger.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <vector>

#include "gmac/accel/devices.h"
#include "gmac/coherence/lock.h"
#include "gmac/coherence/waits.h"
#include "tests/support/fake_accelerator.h"

namespace gmac {
namespace {

using accel::NativeStream;
using accel::Ticket;
using testing::FakeAccelerator;

constexpr NativeStream kOne{1};
constexpr NativeStream kOther{2};

class LedgerTest : public ::testing::Test {
 protected:
  // Work on a stream, noted as launches note it; it has not run.
  Ticket submit(NativeStream stream, bool reads = false, bool names = false) {
    ledger_.submitting();
    accelerator_.submit(stream, [] {});
    auto ticket = ledger_.submitted(stream, reads, names);
    EXPECT_TRUE(ticket.ok()) << lastErrorText();
    return *ticket;
  }
  // A call, likewise.
  Ticket call(adsmKernel_t kernel = nullptr) {
    auto ticket = accelerator_.fill(memory(), std::byte{1}, 4096);
    EXPECT_TRUE(ticket.ok()) << lastErrorText();
    ledger_.called(*ticket, kernel);
    return *ticket;
  }
  std::vector<std::uint64_t> writers(const DeviceUses& object) const {
    std::vector<std::uint64_t> values;
    for (const Ticket ticket : ledger_.writersOf(object)) {
      values.push_back(ticket.value);
    }
    EXPECT_EQ(values.empty(), ledger_.writersDone(object));
    return values;
  }
  accel::DeviceAddress memory() {
    if (memory_ == accel::DeviceAddress{}) {
      memory_ = *accelerator_.allocate(4096, 4096, accel::Placement::kAnywhere);
    }
    return memory_;
  }
  void TearDown() override {
    accelerator_.runAll();
    EXPECT_THAT(accelerator_.complaints(), ::testing::IsEmpty());
  }

  FakeAccelerator accelerator_;
  Ledger ledger_{accelerator_};
  DeviceUses object_;
  accel::DeviceAddress memory_{};
};

TEST_F(LedgerTest, AStreamIsFencedAnewWhereItIsAnotherOne) {
  const auto fences = [&](NativeStream stream) {
    const std::uint64_t before = accelerator_.newestOn(stream);
    EXPECT_TRUE(ledger_.fence(stream).ok()) << lastErrorText();
    const bool fenced = accelerator_.newestOn(stream) != before;
    submit(stream);
    return fenced;
  };
  alignas(4096) static std::byte bytes[4096];
  const accel::HostMemory memory{.address = bytes, .bytes = sizeof bytes, .fd = -1, .offset = 0};
  ASSERT_TRUE(accelerator_.pin(memory).ok()) << lastErrorText();
  const auto copyIn = [&] {
    ASSERT_TRUE(accelerator_.copyIn(this->memory(), bytes, 1, {}).ok()) << lastErrorText();
  };
  copyIn();
  EXPECT_TRUE(fences(kOne));
  EXPECT_FALSE(fences(kOne));
  EXPECT_TRUE(fences(kOther));
  ledger_.streamDestroyed(kOne);
  EXPECT_TRUE(fences(kOne));
  EXPECT_FALSE(fences(kOther));
  copyIn();
  EXPECT_TRUE(fences(kOther));
  call();
  EXPECT_TRUE(fences(kOne));
  accelerator_.runAll();
  ASSERT_TRUE(accelerator_.unpin(memory).ok()) << lastErrorText();
}

TEST_F(LedgerTest, WorkMayWriteTheObjectsThatWereThereBefore) {
  ledger_.allocated(object_);
  const Ticket work = submit(kOne);
  EXPECT_THAT(writers(object_), ::testing::ElementsAre(work.value));
  DeviceUses younger;
  ledger_.allocated(younger);
  EXPECT_THAT(writers(younger), ::testing::IsEmpty());
  accelerator_.runAll();
  EXPECT_THAT(writers(object_), ::testing::IsEmpty());
}

TEST_F(LedgerTest, IsSettledUntilMoreWorkIsNoted) {
  EXPECT_FALSE(ledger_.settled());
  call();
  submit(kOne);
  EXPECT_FALSE(ledger_.allSucceeded());
  accelerator_.runAll();
  EXPECT_TRUE(ledger_.allSucceeded());
  ledger_.settle();
  EXPECT_TRUE(ledger_.settled());
  call();
  EXPECT_FALSE(ledger_.settled());
  ledger_.settle();
  ledger_.submitting();
  EXPECT_FALSE(ledger_.settled());
  ledger_.hostFunctionQueued();
  accelerator_.runAll();
  EXPECT_FALSE(ledger_.allSucceeded());
  ledger_.hostFunctionEnded();
  EXPECT_TRUE(ledger_.allSucceeded());
}

TEST_F(LedgerTest, ACallThatListsNothingMayWriteWhatIsNotBound) {
  ledger_.allocated(object_);
  DeviceUses bound;
  ledger_.allocated(bound);
  bound.bindings.push_back({nullptr, adsmWrite});
  const Ticket launched = call();
  ledger_.calledUnlisted(launched);
  EXPECT_THAT(writers(object_), ::testing::ElementsAre(launched.value));
  EXPECT_THAT(writers(bound), ::testing::IsEmpty());
  bound.lastWrite[0] = launched.value;
  EXPECT_THAT(writers(bound), ::testing::ElementsAre(launched.value));
}

TEST_F(LedgerTest, ABindingForgetsNoUnlistedCallThatRuns) {
  ledger_.allocated(object_);
  const Ticket launched = call();
  ledger_.calledUnlisted(launched);
  ledger_.bind(object_, nullptr, adsmWrite);
  EXPECT_THAT(writers(object_), ::testing::ElementsAre(launched.value));
  EXPECT_GT(ledger_.newestWorkWith(object_), object_.born);
  ledger_.forget(object_);
}

TEST_F(LedgerTest, CallsOnPartsMayWriteThoseAlone) {
  ledger_.allocated(object_);
  Ledger::expectParts(object_);
  const auto writersIn = [&](std::size_t begin, std::size_t end) {
    std::vector<std::uint64_t> values;
    for (const Ticket ticket : ledger_.writersOf(object_, {begin, end})) {
      values.push_back(ticket.value);
    }
    EXPECT_EQ(values.empty(), ledger_.writersDone(object_, {begin, end}));
    return values;
  };
  const auto readersIn = [&](std::size_t begin, std::size_t end) {
    return ledger_.readersOf(object_, {begin, end})[0].value;
  };
  const Ticket first = call();
  ledger_.used(object_, {0, 100}, first, true);
  const Ticket second = call();
  ledger_.used(object_, {200, 300}, second, true);
  ledger_.used(object_, {100, 200}, second, false);
  EXPECT_THAT(writersIn(0, 100), ::testing::ElementsAre(first.value));
  EXPECT_THAT(writersIn(99, 200), ::testing::ElementsAre(first.value));
  EXPECT_THAT(writersIn(100, 200), ::testing::IsEmpty());
  EXPECT_THAT(writersIn(0, 201), ::testing::ElementsAre(second.value)) << "the queue's order";
  EXPECT_EQ(readersIn(0, 100), 0U);
  EXPECT_EQ(readersIn(0, 101), second.value);
  EXPECT_THAT(writers(object_), ::testing::ElementsAre(second.value)) << "of the whole";
  // One on more bytes takes the place of those before it on its queue.
  const Ticket third = call();
  ledger_.used(object_, {0, 400}, third, true);
  EXPECT_EQ(object_.parts.size(), 2U) << "it and the reader";
  EXPECT_THAT(writersIn(0, 1), ::testing::ElementsAre(third.value));
  // A call on all of it counts everywhere.
  const Ticket whole = call();
  ledger_.used(object_, whole, true);
  EXPECT_THAT(writersIn(1000, 1001), ::testing::ElementsAre(whole.value));
  accelerator_.runAll();
  EXPECT_THAT(writers(object_), ::testing::IsEmpty());
}

TEST_F(LedgerTest, AnAttachedObjectIsWrittenByItsStreamAndByWorkThatNamesIt) {
  ledger_.allocated(object_);
  object_.users = DeviceUses::Users::kOneStream;
  object_.userStream = kOne;
  (void)submit(kOther);
  EXPECT_THAT(writers(object_), ::testing::IsEmpty());
  const Ticket own = submit(kOne);
  EXPECT_THAT(writers(object_), ::testing::ElementsAre(own.value));
  const Ticket naming = submit(kOther, false, true);
  EXPECT_THAT(writers(object_), ::testing::UnorderedElementsAre(own.value, naming.value));
}

TEST_F(LedgerTest, AReaderStaysOneWhileItsStreamGoesOnWithOtherWork) {
  EXPECT_EQ(ledger_.runningReader(object_).value, 0U);
  (void)submit(kOne, true);
  const Ticket later = submit(kOne, false);
  EXPECT_EQ(ledger_.runningReader(object_).value, later.value) << "the first may still be reading";
  accelerator_.runAll();
  EXPECT_EQ(ledger_.runningReader(object_).value, 0U);
  (void)submit(kOne, false);
  EXPECT_EQ(ledger_.runningReader(object_).value, 0U) << "the reader has finished";
}

TEST_F(LedgerTest, ADestroyedStreamsNumberIsAnotherStream) {
  (void)submit(kOne, true);
  ledger_.streamDestroyed(kOne);
  (void)submit(kOne, false);
  std::size_t tickets = 0;
  for ([[maybe_unused]] const Ticket ticket : ledger_.streamWork()) {
    ++tickets;
  }
  EXPECT_EQ(tickets, 2U) << "the old stream's work is still known";
  EXPECT_NE(ledger_.runningReader(object_).value, 0U);
}

TEST_F(LedgerTest, EverythingIsTheCallsAndTheStreams) {
  const Ticket launched = call();
  const Ticket work = submit(kOne);
  std::vector<std::uint64_t> values;
  for (const Ticket ticket : ledger_.everything()) {
    values.push_back(ticket.value);
  }
  EXPECT_THAT(values, ::testing::UnorderedElementsAre(launched.value, work.value));
  EXPECT_EQ(ledger_.runningStreamWork().value, work.value);
  ledger_.contextEnded();
  EXPECT_EQ(ledger_.runningStreamWork().value, 0U);
}

TEST_F(LedgerTest, NewWorkChangesTheNewestWriters) {
  ledger_.allocated(object_);
  const Writers before = ledger_.newestWriters(object_);
  EXPECT_EQ(ledger_.newestWriters(object_), before);
  (void)submit(kOne);
  const Writers after = ledger_.newestWriters(object_);
  EXPECT_NE(after, before);
  accelerator_.runAll();
  EXPECT_EQ(ledger_.newestWriters(object_), after) << "finishing is nothing new";
}

TEST_F(LedgerTest, HostFunctionsAreCounted) {
  EXPECT_TRUE(ledger_.hostFunctionsRun());
  ledger_.hostFunctionQueued();
  ledger_.hostFunctionQueued();
  ledger_.hostFunctionEnded();
  EXPECT_FALSE(ledger_.hostFunctionsRun());
  ledger_.hostFunctionsDropped();
  EXPECT_TRUE(ledger_.hostFunctionsRun());
}

// Three devices that only have tickets, of one queue.
class ThreeDevices final : public accel::Devices {
 public:
  std::map<std::uint64_t, std::size_t> byTicket;

  std::size_t count() const noexcept override { return 3; }
  std::size_t deviceOf(Ticket ticket) const noexcept override {
    const auto found = byTicket.find(ticket.value);
    return found != byTicket.end() ? found->second : 0;
  }
  std::size_t homeOf(accel::DeviceAddress) noexcept override { return 0; }
  Result<accel::DeviceDescription> describe(std::size_t) override { return none(); }
  Status usable(std::size_t) override { return {}; }
  Status move(accel::DeviceAddress, std::size_t, std::size_t,
              std::span<const accel::Part>) override {
    return none();
  }
  Status place(accel::DeviceAddress, std::size_t, std::size_t) override { return none(); }
  Result<std::unique_ptr<accel::LoadedKernel>> load(std::size_t, const adsmKernelDesc_t&) override {
    return none();
  }
  Result<Ticket> launch(std::size_t, accel::LoadedKernel&, const accel::LaunchShape&, void**,
                        std::span<const Ticket>) override {
    return none();
  }
  Status setConstant(std::size_t, accel::LoadedKernel&, const adsmConstant_t&, const void*,
                     std::size_t) override {
    return none();
  }

 private:
  static Status none() { return fail(adsmErrorNotSupported, "tickets alone"); }
};

class SeveralDevices : public ::testing::Test {
 protected:
  void SetUp() override {
    memory_ = *accelerator_.allocate(4096, 4096, accel::Placement::kAnywhere);
    ledger_.allocated(object_);
    Ledger::expectParts(object_);
  }
  void TearDown() override { accelerator_.runAll(); }

  Ticket call(std::size_t device) {
    const Ticket ticket = *accelerator_.fill(memory_, std::byte{1}, 4096);
    devices_.byTicket[ticket.value] = device;
    ledger_.called(ticket);
    return ticket;
  }
  std::vector<std::uint64_t> conflictsOn(std::size_t device, bool writes) const {
    NewestCalls before;
    ledger_.addConflicts(object_, {0, 100}, device, writes, before);
    std::vector<std::uint64_t> values;
    for (std::size_t other = 0; other < 3; ++other) values.push_back(before[other].value);
    return values;
  }

  ThreeDevices devices_;
  FakeAccelerator accelerator_{{.peerBytes = {}, .devices = &devices_}};
  Ledger ledger_{accelerator_};
  DeviceUses object_;
  accel::DeviceAddress memory_{};
};

TEST_F(SeveralDevices, EachOnesWritersCount) {
  std::vector<Ticket> tickets;
  for (const std::size_t device : {0, 1, 2}) {
    tickets.push_back(call(device));
    ledger_.used(object_, tickets.back(), true);
  }
  for (const Ticket ticket : tickets) {
    EXPECT_FALSE(ledger_.writersDone(object_)) << "before " << ticket.value;
    EXPECT_TRUE(accelerator_.wait(ticket).ok());
  }
  EXPECT_TRUE(ledger_.writersDone(object_));
}

TEST_F(SeveralDevices, OnlyTheFirstOnesQueueIsTheKernelQueue) {
  using Kind = WriterQueue::Kind;
  EXPECT_EQ(ledger_.writerQueue(object_).kind, Kind::kAny);
  ledger_.used(object_, call(0), true);
  EXPECT_EQ(ledger_.writerQueue(object_).kind, Kind::kKernelQueue);
  EXPECT_FALSE(ledger_.callsElsewhere(0));
  EXPECT_TRUE(ledger_.callsElsewhere(1));
  ledger_.used(object_, call(1), true);
  EXPECT_EQ(ledger_.writerQueue(object_).kind, Kind::kNone);
  EXPECT_TRUE(ledger_.callsElsewhere(0));
  accelerator_.runAll();
  EXPECT_EQ(ledger_.writerQueue(object_).kind, Kind::kAny);
  EXPECT_FALSE(ledger_.callsElsewhere(0));
}

// A call that writes follows readers elsewhere, too.
TEST_F(SeveralDevices, WritesMustNotOvertakeReads) {
  const Ticket reader = call(1);
  ledger_.used(object_, {0, 50}, reader, false);
  const Ticket writer = call(2);
  ledger_.used(object_, {50, 60}, writer, true);
  const Ticket beside = call(0);
  ledger_.used(object_, {100, 200}, beside, true);
  using ::testing::ElementsAre;
  EXPECT_THAT(conflictsOn(0, true), ElementsAre(0, reader.value, writer.value));
  EXPECT_THAT(conflictsOn(0, false), ElementsAre(0, 0, writer.value));
  EXPECT_THAT(conflictsOn(2, true), ElementsAre(0, reader.value, 0)) << "its own queue's order";
  std::vector<std::uint64_t> users;
  for (const Ticket ticket : ledger_.callsWith(object_, {0, 100})) users.push_back(ticket.value);
  EXPECT_THAT(users, ::testing::UnorderedElementsAre(reader.value, writer.value));
}

// Whatever waits for a call sees when it ends; a wait for one that has ended says nothing.
TEST_F(LedgerTest, WaitsTellTheTimesOfCalls) {
  ledger_.times().start(1);
  ObjectMutex mutex;
  Waits waits(accelerator_, ledger_, 0);
  Lock lock(mutex);
  const auto kernel = [](std::uintptr_t number) { return reinterpret_cast<adsmKernel_t>(number); };
  const auto known = [&](std::uintptr_t number) {
    return ledger_.times().of(kernel(number), 0).has_value();
  };
  bool waited = false;
  EXPECT_TRUE(waits.forWork(lock, call(kernel(1)), &waited).ok());
  EXPECT_TRUE(known(1));
  ledger_.allocated(object_);
  ledger_.used(object_, call(kernel(2)), true);
  EXPECT_TRUE(waits.forWriters(lock, object_, &waited).ok());
  EXPECT_TRUE(known(2));
  (void)call(kernel(3));
  EXPECT_TRUE(waits.forEverything(lock).ok());
  EXPECT_TRUE(known(3));
  ledger_.used(object_, call(kernel(4)), false);
  waits.forCalls(lock, ledger_.callsWith(object_));
  EXPECT_TRUE(known(4));
  (void)call(kernel(5));
  accelerator_.runAll();
  EXPECT_TRUE(waits.forEverything(lock).ok());
  EXPECT_FALSE(known(5));
  (void)call(kernel(6));
  EXPECT_TRUE(known(5));
  ledger_.unbind(kernel(5));
  EXPECT_FALSE(known(5));
}

// One wait is several where the times of calls are of interest: one for each, and then the one
// asked for, which is over.
TEST_F(LedgerTest, WaitsSeeEachCallEnd) {
  using Kind = testing::Op::Kind;
  ObjectMutex mutex;
  Waits waits(accelerator_, ledger_, 0);
  Lock lock(mutex);
  for (const std::size_t expected : {1, 4}) {
    for (int i = 0; i < 3; ++i) (void)call();
    accelerator_.clearLog();
    EXPECT_TRUE(waits.forEverything(lock).ok());
    EXPECT_EQ(accelerator_.log({Kind::kWait}).size(), expected);
    if (!ledger_.times().on()) {
      ledger_.times().start(1);
    }
  }
  for (int i = 0; i < 2; ++i) (void)call();
  ledger_.allocated(object_);
  ledger_.used(object_, call(), true);
  accelerator_.clearLog();
  bool waited = false;
  EXPECT_TRUE(waits.forWriters(lock, object_, &waited).ok());
  EXPECT_EQ(accelerator_.log({Kind::kWait}).size(), 4u);
}

}  // namespace
}  // namespace gmac
