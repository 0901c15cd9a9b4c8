// SPDX-License-Identifier: Apache-2.0
//
// Payloads in device memory, over devices of the test's own, whose memory is a file each.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <array>
#include <cstdio>
#include <cstring>
#include <iterator>
#include <memory>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "exchange/exchange.h"
#include "gmac/base/status.h"
#include "tests/exchange/team.h"

namespace gmac::testing {
namespace {

using exchange::Delivery;
using exchange::DeviceFunctions;
using exchange::Exchange;
using exchange::Job;
using exchange::Memory;
using exchange::Options;
using exchange::Parcel;
using Bytes = std::array<std::byte, exchange::kDescriptionBytes>;

constexpr std::size_t kPiece = std::size_t{1} << 20;

// The behaviour of this process's device, and the calls that it had.
enum class Import { kWorks, kFails, kGivesOther };
Import imports = Import::kWorks;
std::size_t exportsLeft = 100;
int exportsAsked = 0;
int exported = 0;
bool marks = true;  // whether the CPU's bytes get there
int imported = 0;
int openImports = 0;

struct Handle {
  std::size_t bytes;
  int process;
  int file;
};
static_assert(sizeof(Handle) <= exchange::kHandleBytes);

adsmError_t exportMemory(std::size_t bytes, void** address, unsigned char* handle) {
  ++exportsAsked;
  if (exportsLeft == 0) {
    return adsmErrorAcceleratorMemory;
  }
  --exportsLeft;
  ++exported;
  const Handle made{bytes, ::getpid(), ::memfd_create("device", 0)};
  CHECK_THAT(::ftruncate(made.file, static_cast<off_t>(bytes)) == 0);
  *address = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, made.file, 0);
  CHECK_THAT(*address != MAP_FAILED);
  std::memcpy(handle, &made, sizeof made);
  return adsmSuccess;
}

adsmError_t importMemory(const unsigned char* handle, void** address) {
  ++imported;
  Handle made;
  std::memcpy(&made, handle, sizeof made);
  if (imports == Import::kFails) {
    return adsmErrorNotSupported;
  }
  const std::string path =
      "/proc/" + std::to_string(made.process) + "/fd/" + std::to_string(made.file);
  const int file = imports == Import::kGivesOther ? -1 : ::open(path.c_str(), O_RDONLY);
  *address =
      ::mmap(nullptr, made.bytes, PROT_READ, MAP_SHARED | (file < 0 ? MAP_ANONYMOUS : 0), file, 0);
  CHECK_THAT(*address != MAP_FAILED);
  ++openImports;
  return adsmSuccess;
}

adsmError_t releaseImport(void* address) {
  --openImports;
  return ::munmap(address, kPiece) == 0 ? adsmSuccess : adsmErrorSystem;
}

adsmError_t copyTo(void* device, const void* from, std::size_t bytes) {
  if (!marks) {
    return adsmErrorSystem;
  }
  std::memcpy(device, from, bytes);
  return adsmSuccess;
}

adsmError_t copyFrom(void* to, const void* device, std::size_t bytes) {
  std::memcpy(to, device, bytes);
  return adsmSuccess;
}

constexpr DeviceFunctions kDevice{&exportMemory, &importMemory, &copyTo,
                                  &copyFrom,     nullptr,       &releaseImport};
constexpr Options kOptions{.hostBytes = 4 << 20, .device = &kDevice, .devicePieceBytes = kPiece};

std::unique_ptr<Exchange> met(Board& board, const Job& job) { return met(board, job, kOptions); }

Bytes lay(Parcel& parcel, int value) {
  std::memset(parcel.data(), value, parcel.bytes());
  Bytes description;
  parcel.describe(description);
  return description;
}

// Sends in device memory where that can be, else in the CPU's. Which.
Memory sendEither(Exchange& exchange, Board& board, int receiver, std::size_t bytes, int value,
                  bool patient = false) {
  const int sender = exchange.job().rank;
  Result<Parcel> parcel = exchange.reserve(receiver, bytes, Memory::kDevice);
  if (!parcel.ok()) {
    parcel = exchange.reserve(receiver, bytes, Memory::kHost);
  }
  while (patient && !parcel.ok()) {
    ::usleep(100);
    parcel = exchange.reserve(receiver, bytes, Memory::kHost);
  }
  CHECK_THAT(parcel.ok() && parcel->bytes() == bytes);
  post(board, sender, receiver, lay(*parcel, value));
  return parcel->memory();
}

Delivery collected(Exchange& exchange, Board& board, int sender, int value) {
  Result<Delivery> delivery = exchange.collect(sender, fetch(board, sender, exchange.job().rank));
  CHECK_THAT(delivery.ok());
  for (std::size_t at = 0; at < delivery->bytes(); ++at) {
    CHECK_THAT(delivery->data()[at] == static_cast<std::byte>(value));
  }
  return std::move(*delivery);
}

TEST(ExchangeDevice, PayloadsLieThereOnceTheReceiverHasProvedThatItReachesThem) {
  runTeam(2, [&](Board& board, const Job& job) {
    const auto exchange = met(board, job);
    CHECK_THAT(exported == 0 && imported == 0);  // nothing is taken at the start
    if (job.rank == 0) {
      Result<Parcel> early = exchange->reserve(1, 5000, Memory::kDevice);
      CHECK_THAT(early.status().code() == adsmErrorAcceleratorMemory);
      CHECK_THAT(saysLast("that rank 1 has proved to reach") && exported == 1);
      CHECK_THAT(sendEither(*exchange, board, 1, 5000, 1) == Memory::kHost);
      await(board, 1, 1);
      CHECK_THAT(sendEither(*exchange, board, 1, 5000, 2) == Memory::kDevice);
      await(board, 1, 2);
      // All of a piece but its first page, which tells it from others.
      CHECK_THAT(sendEither(*exchange, board, 1, kPiece - 4096, 3) == Memory::kDevice);
      CHECK_THAT(!exchange->reserve(1, kPiece - 4095, Memory::kDevice).ok());
      CHECK_THAT(saysLast("more than the 1044480 that there are"));
      CHECK_THAT(exported == 1);
      const exchange::Statistics statistics = exchange->statistics();
      CHECK_THAT(statistics.sent[0].parcels == 1 && statistics.sent[0].bytes == 5000);
      CHECK_THAT(statistics.sent[1].parcels == 2 &&
                 statistics.sent[1].bytes == 5000 + kPiece - 4096);
      await(board, 1, 3);
    } else {
      CHECK_THAT(collected(*exchange, board, 0, 1).memory() == Memory::kHost && imported == 1);
      arrive(board, 1);
      CHECK_THAT(collected(*exchange, board, 0, 2).memory() == Memory::kDevice);
      arrive(board, 1);
      CHECK_THAT(collected(*exchange, board, 0, 3).memory() == Memory::kDevice && imported == 1);
      CHECK_THAT(exchange->statistics().collected[1].parcels == 2);
      arrive(board, 1);
    }
  });
}

TEST(ExchangeDevice, MorePiecesComeAsTheyAreNeededAndNoMoreThanFour) {
  runTeam(2, [&](Board& board, const Job& job) {
    const auto exchange = met(board, job);
    constexpr int kRounds = 12;
    if (job.rank == 0) {
      int inDevice = 0;
      for (int round = 0; round < kRounds; ++round) {
        // Nobody frees anything.
        inDevice +=
            sendEither(*exchange, board, 1, kPiece - 4096, round) == Memory::kDevice ? 1 : 0;
        await(board, 1, round + 1);
        if (round > 8) {
          break;
        }
        // So that there is room for what is not in device memory.
        arrive(board, 2);
      }
      CHECK_THAT(exported == 4 && inDevice == 4);
      arrive(board, 3);
    } else {
      std::vector<Delivery> kept;
      for (int round = 0; round < 10; ++round) {
        Delivery delivery = collected(*exchange, board, 0, round);
        if (delivery.memory() == Memory::kDevice) {
          kept.push_back(std::move(delivery));
        }
        delivery = Delivery();
        arrive(board, 1);
      }
      await(board, 3, 1);
      CHECK_THAT(kept.size() == 4 && imported == 4);
    }
  });
}

// A receiver whose import fails, or leads elsewhere, gets all its payloads in the CPU's memory.
// It tries again, less and less often.
TEST(ExchangeDevice, AReceiverThatDoesNotReachADeviceGetsPayloadsInCpuMemory) {
  for (const Import how : {Import::kFails, Import::kGivesOther}) {
    runTeam(3, [&](Board& board, const Job& job) {
      if (job.rank == 1) {
        imports = how;
      }
      const auto exchange = met(board, job);
      constexpr int kAttempts[] = {1, 1, 2, 2, 2, 3, 3, 3, 3, 3, 4, 4};
      constexpr int kRounds = std::size(kAttempts);
      for (int round = 0; round < kRounds; ++round) {
        if (job.rank == 0) {
          for (const int receiver : {1, 2}) {
            CHECK_THAT(sendEither(*exchange, board, receiver, 9999, round) ==
                       (receiver == 2 && round > 0 ? Memory::kDevice : Memory::kHost));
          }
          await(board, 1, 2 * (round + 1));
        } else {
          (void)collected(*exchange, board, 0, round);
          CHECK_THAT(imported == (job.rank == 1 ? kAttempts[round] : 1));
          // Imported memory that is not the wanted one is given up again.
          CHECK_THAT(openImports == (job.rank == 1 ? 0 : 1));
          arrive(board, 1);
        }
      }
      if (job.rank == 0) {
        CHECK_THAT(exchange->reserve(1, 1, Memory::kDevice).status().code() ==
                   adsmErrorNotSupported);
        CHECK_THAT(saysLast("rank 1 does not reach this process's device"));
      }
    });
  }
}

TEST(ExchangeDevice, AReceiverThatReachesADeviceLaterGetsPayloadsThereFromThenOn) {
  for (const Import how : {Import::kFails, Import::kGivesOther}) {
    runTeam(2, [&](Board& board, const Job& job) {
      const auto exchange = met(board, job);
      for (int round = 0; round < 5; ++round) {
        if (job.rank == 0) {
          CHECK_THAT(sendEither(*exchange, board, 1, 9999, round) ==
                     (round < 3 ? Memory::kHost : Memory::kDevice));
          await(board, 1, round + 1);
        } else {
          imports = round == 0 ? how : Import::kWorks;
          (void)collected(*exchange, board, 0, round);
          CHECK_THAT(imported == (round < 2 ? 1 : 2));
          arrive(board, 1);
        }
      }
    });
  }
}

TEST(ExchangeDevice, ADeviceThatExportsNothingIsAskedLessAndLessOften) {
  runTeam(2, [&](Board& board, const Job& job) {
    exportsLeft = 0;
    const auto exchange = met(board, job, job.rank == 0 ? kOptions : Options());
    constexpr int kAsked[] = {1, 1, 2, 2, 2, 3, 3, 3, 3, 3, 4, 4};
    for (const int asked : kAsked) {
      CHECK_THAT(exchange->reserve(1 - job.rank, 1, Memory::kDevice).status().code() ==
                 adsmErrorNotSupported);
      CHECK_THAT(exportsAsked == (job.rank == 0 ? asked : 0));
    }
    CHECK_THAT(saysLast(job.rank == 0 ? "exports no memory: adsmErrorAcceleratorMemory"
                                      : "shares no device memory"));
    CHECK_THAT(exchange->statistics().refused == std::size(kAsked));
  });
}

// For want of memory, perhaps. What was exported and not marked is marked then, and not taken
// again.
TEST(ExchangeDevice, ADeviceThatExportsLaterHasPayloadsFromThenOn) {
  for (const bool unmarked : {false, true}) {
    runTeam(2, [&](Board& board, const Job& job) {
      const auto exchange = met(board, job);
      for (int round = 0; round < 5; ++round) {
        exportsLeft = round == 0 && !unmarked ? 0 : 100;
        marks = round > 0 || !unmarked;
        if (job.rank == 0) {
          CHECK_THAT(sendEither(*exchange, board, 1, 9999, round) ==
                     (round < 3 ? Memory::kHost : Memory::kDevice));
          CHECK_THAT(exported == (round < 2 && !unmarked ? 0 : 1));
          await(board, 1, round + 1);
        } else {
          (void)collected(*exchange, board, 0, round);
          arrive(board, 1);
        }
      }
    });
  }
}

TEST(ExchangeDevice, ADescriptionOfDeviceMemoryIsChecked) {
  runTeam(2, [&](Board& board, const Job& job) {
    const auto exchange = met(board, job);
    for (int round = 0; round < 2; ++round) {
      if (job.rank == 0) {
        const Memory memory = sendEither(*exchange, board, 1, 100, round);
        CHECK_THAT((memory == Memory::kDevice) == (round == 1));
        await(board, 1, round + 1);
      } else if (round == 0) {
        (void)collected(*exchange, board, 0, 0);
        arrive(board, 1);
      } else {
        const Bytes good = fetch(board, 0, 1);
        for (std::size_t at = 0; at < good.size(); ++at) {
          for (unsigned bit = 0; bit < 8; ++bit) {
            Bytes forged = good;
            forged[at] ^= static_cast<std::byte>(1U << bit);
            CHECK_THAT(!exchange->collect(0, forged).ok());
          }
        }
        CHECK_THAT(exchange->collect(0, good).ok());
        arrive(board, 1);
      }
    }
  });
}

TEST(ExchangeDevice, RandomPayloadsOfBothKindsArrive) {
  const unsigned seed = static_cast<unsigned>(::getpid());
  Team team(2);
  team.start([&](const Job& job) {
    Board& board = team.board();
    const auto exchange = met(board, job);
    std::mt19937 random(seed);
    std::vector<Delivery> kept;
    for (int round = 0; round < 3000; ++round) {
      const std::size_t bytes = random() % 300000;
      const bool keep = random() % 3 == 0;
      const bool drop = random() % 5 == 0;
      if (job.rank == 0) {
        (void)sendEither(*exchange, board, 1, bytes, round, true);
      } else {
        Delivery delivery = collected(*exchange, board, 0, round);
        if (keep) {
          kept.push_back(std::move(delivery));
        }
        if (drop || kept.size() > 5) {
          kept.clear();
        }
      }
    }
    if (job.rank == 1) {
      const exchange::Statistics statistics = exchange->statistics();
      CHECK_THAT(statistics.collected[0].parcels + statistics.collected[1].parcels == 3000);
      CHECK_THAT(statistics.collected[1].parcels > 100);
    }
  });
  EXPECT_EQ(team.end(), "") << "seed " << seed;
}

}  // namespace
}  // namespace gmac::testing
