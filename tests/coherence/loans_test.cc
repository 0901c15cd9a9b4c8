// SPDX-License-Identifier: Apache-2.0
//
// Bytes that other processes read where they lie: which are lent, and who gets them back when.
#include <gtest/gtest.h>
#include <sys/mman.h>

#include <atomic>
#include <cstddef>
#include <cstring>
#include <functional>
#include <string>
#include <thread>

#include "gmac/coherence/memory_port.h"
#include "tests/support/machine_fixture.h"

namespace gmac::testing {
namespace {

using coherence::Loan;

// No region of small objects.
constexpr std::size_t kObject = kMiB;

// The borrower's answer when it is asked; one at a time.
class Borrower {
 public:
  explicit Borrower(std::function<void()> giveBack) {
    asked = 0;
    answer = std::move(giveBack);
    coherence::onReclaim([](coherence::Lent) {
      ++asked;
      answer();
    });
  }
  ~Borrower() { coherence::onReclaim(nullptr); }
  Borrower(const Borrower&) = delete;
  Borrower& operator=(const Borrower&) = delete;
  static inline std::atomic<int> asked{0};

 private:
  static inline std::function<void()> answer;
};

adsmKernel_t nothing(Machine& machine) {
  return machine.fake().kernel("nothing", 1, [](const accel::LaunchShape&, void**) {});
}

// As another process sees it.
class Mapped {
 public:
  Mapped(const Loan& loan, std::size_t bytes) : shift_(loan.offset % kPage), all_(bytes + shift_) {
    data_ = static_cast<std::byte*>(::mmap(nullptr, all_, PROT_READ, MAP_SHARED, loan.file,
                                           loan.offset - static_cast<std::int64_t>(shift_)));
    EXPECT_NE(data_, MAP_FAILED);
  }
  ~Mapped() { ::munmap(data_, all_); }
  Mapped(const Mapped&) = delete;
  Mapped& operator=(const Mapped&) = delete;
  const std::byte* data() const { return data_ + shift_; }

 private:
  std::size_t shift_;
  std::size_t all_;
  std::byte* data_;
};

class Loans : public ::testing::TestWithParam<std::string> {
 protected:
  static MachineSetup setup() {
    MachineSetup setup;
    setup.protocol = GetParam();
    setup.blockBytes = kPage;
    return setup;
  }
  CoherentMemory& objects() { return machine_.objects(); }
  coherence::MemoryPort& memory() { return machine_.memory(); }
  std::byte* written(std::size_t bytes) {
    std::byte* const object = machine_.allocate(bytes);
    for (std::size_t i = 0; i < bytes; ++i) object[i] = static_cast<std::byte>(i * 31 + (i >> 9));
    return object;
  }

  Machine machine_{setup()};
  Loan loan_{};
};

INSTANTIATE_TEST_SUITE_P(, Loans, ::testing::Values("batch", "lazy", "rolling"),
                         [](const auto& info) { return info.param; });

TEST_P(Loans, AreTheBytesOfTheFile) {
  constexpr std::size_t kBytes = 5 * kPage;
  (void)written(kObject);
  std::byte* const object = written(kObject);
  ASSERT_TRUE(memory().lend(object + 100, kBytes, &loan_));
  const Mapped mapped(loan_, kBytes);
  EXPECT_EQ(std::memcmp(mapped.data(), object + 100, kBytes), 0);
  EXPECT_EQ(std::memcmp(loan_.view, object + 100, kBytes), 0);
  EXPECT_GE(loan_.fileBytes, loan_.offset + static_cast<std::int64_t>(kBytes));
  machine_.verify();
  // The application may write what it likes.
  object[200] = std::byte{77};
  EXPECT_EQ(mapped.data()[100], std::byte{77});
  memory().giveBack(object + 100, kBytes);
  machine_.verify();
}

TEST_P(Loans, AreOfOneObjectThatIsCurrentOnTheCpuAlone) {
  std::byte* const object = written(kObject);
  const int plain = 0;
  EXPECT_FALSE(memory().lend(&plain, sizeof plain, &loan_));
  EXPECT_FALSE(memory().lend(object, 0, &loan_));
  EXPECT_FALSE(memory().lend(object + kPage, kObject, &loan_));
  machine_.callUsing(nothing(machine_), {object}, {{object, adsmReadWrite}});
  EXPECT_FALSE(memory().lend(object, kPage, &loan_));
  ASSERT_TRUE(objects().sync().ok());
  // (The other protocols fetch all of it at once.)
  const volatile std::byte* const reads = object;
  for (std::size_t page = 0; page < kObject / kPage - 1; ++page) (void)reads[page * kPage];
  if (GetParam() == "rolling") {
    EXPECT_FALSE(memory().lend(object, kObject, &loan_));
    machine_.verify();
  }
  (void)reads[kObject - kPage];
  ASSERT_TRUE(memory().lend(object, kObject, &loan_));
  memory().giveBack(object, kObject);
}

TEST_P(Loans, AreGivenBackToCallsThatUseTheObject) {
  std::byte* const object = written(kObject);
  std::byte* const other = written(kObject);
  const Borrower borrower([&] { memory().giveBack(object, 4 * kPage); });
  ASSERT_TRUE(memory().lend(object, 4 * kPage, &loan_));
  machine_.callUsing(nothing(machine_), {other}, {{other, adsmReadWrite}});
  EXPECT_EQ(Borrower::asked, 0);
  machine_.callUsing(nothing(machine_), {object}, {{object, adsmReadWrite}});
  EXPECT_EQ(Borrower::asked, 1);
  ASSERT_TRUE(objects().sync().ok());
  machine_.verify();
}

TEST_P(Loans, AreGivenBackToWhoFreesTheObject) {
  std::byte* const object = written(kObject);
  const Borrower borrower([&] { memory().giveBack(object, kObject); });
  ASSERT_TRUE(memory().lend(object, kObject, &loan_));
  ASSERT_TRUE(objects().free(object).ok());
  EXPECT_EQ(Borrower::asked, 1);
}

// The owner waits for loans that the borrower cannot give back now, and does not ask again and
// again.
TEST_P(Loans, AreWaitedForWhereTheyCannotBeGivenBack) {
  std::byte* const object = written(kObject);
  const Borrower borrower([] {});
  ASSERT_TRUE(memory().lend(object, kObject, &loan_));
  std::atomic<bool> called{false};
  std::thread caller([&] {
    machine_.callUsing(nothing(machine_), {object}, {{object, adsmReadWrite}});
    called = true;
  });
  while (Borrower::asked == 0) std::this_thread::yield();
  for (int i = 0; i < 1000; ++i) std::this_thread::yield();
  EXPECT_FALSE(called);
  EXPECT_LE(Borrower::asked, 3);
  memory().giveBack(object, kObject);
  caller.join();
  ASSERT_TRUE(objects().sync().ok());
  machine_.verify();
}

TEST(LoansOfMovedPages, ThereAreNone) {
  MachineSetup setup;
  setup.blockBytes = 2 * kMiB;
  setup.fake.movedPages = true;
  Machine machine(setup);
  std::byte* const object = machine.allocate(4 * kMiB);
  object[0] = std::byte{1};
  Loan loan{};
  EXPECT_FALSE(machine.memory().lend(object, 100, &loan));
}

// Of a block that is open in part, the window is lent.
TEST(LoansOfWindows, AreOfTheWindowAlone) {
  MachineSetup setup;
  setup.blockBytes = kMiB;
  setup.windowBytes = 64 * kKiB;
  Machine machine(setup);
  std::byte* const object = machine.allocate(4 * kMiB);
  object[0] = std::byte{1};
  machine.callUsing(nothing(machine), {object}, {{object, adsmReadWrite}});
  ASSERT_TRUE(machine.objects().sync().ok());
  const volatile std::byte* const reads = object;
  (void)reads[2 * kMiB + 300 * kKiB];
  Loan loan{};
  const bool window = machine.memory().lend(object + 2 * kMiB + 300 * kKiB, 100, &loan);
  ASSERT_TRUE(window);
  machine.memory().giveBack(object + 2 * kMiB + 300 * kKiB, 100);
  EXPECT_FALSE(machine.memory().lend(object + 2 * kMiB, 2 * kMiB, &loan));
}

}  // namespace
}  // namespace gmac::testing
