// SPDX-License-Identifier: Apache-2.0
//
// Memory that is exported by one process and read in place by others: memory files, and a device of
// the test's own whose memory is a file for each allocation.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sched.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <chrono>
#include <cstdint>
#include <cstring>
#include <fstream>
#include <memory>
#include <random>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "exchange/exchange.h"
#include "gmac/base/status.h"
#include "tests/exchange/open_descriptors.h"
#include "tests/exchange/team.h"
#include "tests/support/seed.h"

namespace gmac::testing {
namespace {

using exchange::DeviceFunctions;
using exchange::Exchange;
using exchange::ExportId;
using exchange::ExportKind;
using exchange::Imported;
using exchange::Job;
using exchange::Options;
using std::chrono::milliseconds;

constexpr std::size_t kBytes = std::size_t{64} << 10;

// A byte that another process may be writing; what is read later is read after it.
long acquired(const std::byte& byte) {
  return __atomic_load_n(reinterpret_cast<const unsigned char*>(&byte), __ATOMIC_ACQUIRE);
}

// ---- A device. Its memory is a file; the handle says where it is found.

bool refusesImports = false;
int openImports = 0;

struct Handle {
  std::size_t bytes;
  int process;
  int file;
};

Handle made(std::size_t bytes, void** address) {
  const Handle handle{bytes, ::getpid(), ::memfd_create("device", MFD_CLOEXEC)};
  CHECK_THAT(::ftruncate(handle.file, static_cast<off_t>(bytes)) == 0);
  *address = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, handle.file, 0);
  CHECK_THAT(*address != MAP_FAILED);
  return handle;
}

std::vector<std::pair<void*, Handle>> allocations;

void* allocate(std::size_t bytes) {
  void* address = nullptr;
  const Handle handle = made(bytes, &address);
  allocations.emplace_back(address, handle);
  return address;
}

adsmError_t exportMemory(std::size_t bytes, void** address, unsigned char* handle) {
  const Handle exported = made(bytes, address);
  std::memcpy(handle, &exported, sizeof exported);
  return adsmSuccess;
}

adsmError_t importMemory(const unsigned char* handle, void** address) {
  Handle given;
  std::memcpy(&given, handle, sizeof given);
  if (refusesImports) {
    return fail(adsmErrorNotSupported, "the device is out of reach").code();
  }
  const std::string path =
      "/proc/" + std::to_string(given.process) + "/fd/" + std::to_string(given.file);
  const int file = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  *address = ::mmap(nullptr, given.bytes, PROT_READ, MAP_SHARED, file, 0);
  ::close(file);
  CHECK_THAT(*address != MAP_FAILED);
  ++openImports;
  return adsmSuccess;
}

adsmError_t copy(void* to, const void* from, std::size_t bytes) {
  std::memcpy(to, from, bytes);
  return adsmSuccess;
}

adsmError_t handleOf(void* address, unsigned char* handle) {
  for (const auto& [start, of] : allocations) {
    if (start == address) {
      std::memcpy(handle, &of, sizeof of);
      return adsmSuccess;
    }
  }
  return fail(adsmErrorInvalidValue, "no allocation starts there").code();
}

adsmError_t releaseImport(void* address) {
  --openImports;
  return ::munmap(address, kBytes) == 0 ? adsmSuccess : adsmErrorSystem;
}

// One after the other.
adsmError_t importFiles(const exchange::DeviceFile* files, int count, void** address) {
  if (refusesImports) {
    return fail(adsmErrorNotSupported, "the device is out of reach").code();
  }
  std::uint64_t bytes = 0;
  for (int i = 0; i < count; ++i) bytes += files[i].bytes;
  auto* const all = static_cast<std::byte*>(
      ::mmap(nullptr, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
  std::byte* at = all;
  for (int i = 0; i < count; at += files[i++].bytes) {
    CHECK_THAT(::mmap(at, files[i].bytes, PROT_READ, MAP_SHARED | MAP_FIXED, files[i].file,
                      files[i].offset) == at);
  }
  *address = all;
  ++openImports;
  return adsmSuccess;
}

// Which device a process uses, and the imports that it has been told to be that one's memory.
std::uint64_t deviceNumber = 0;
std::vector<void*> localImports;
std::uint64_t identity() { return deviceNumber; }
void importIsLocal(void* address) { localImports.push_back(address); }

constexpr DeviceFunctions kDevice{.exportMemory = &exportMemory,
                                  .importMemory = &importMemory,
                                  .copyTo = &copy,
                                  .copyFrom = &copy,
                                  .handleOf = &handleOf,
                                  .releaseImport = &releaseImport,
                                  .importFiles = &importFiles,
                                  .identity = &identity,
                                  .importIsLocal = &importIsLocal};
constexpr std::size_t kPiece = std::size_t{1} << 16;
constexpr Options kOptions{.hostBytes = 1 << 20, .device = &kDevice, .devicePieceBytes = kPiece};

// ---- A memory file and its mapping.

class File {
 public:
  explicit File(unsigned flags = MFD_ALLOW_SEALING)
      : file_(::memfd_create("exported", MFD_CLOEXEC | flags)) {
    CHECK_THAT(::ftruncate(file_, kBytes) == 0);
    data_ = static_cast<unsigned char*>(
        ::mmap(nullptr, kBytes, PROT_READ | PROT_WRITE, MAP_SHARED, file_, 0));
    CHECK_THAT(data_ != MAP_FAILED);
  }
  File(File&& other) noexcept
      : file_(std::exchange(other.file_, -1)), data_(std::exchange(other.data_, nullptr)) {}
  ~File() {
    if (file_ >= 0) {
      ::munmap(data_, kBytes);
      ::close(file_);
    }
  }
  int get() const { return file_; }
  unsigned char* data() const { return data_; }
  void fill(int value) const { std::memset(data_, value, kBytes); }

 private:
  int file_;
  unsigned char* data_;
};

std::unique_ptr<Exchange> met(Board& board, const Job& job) { return met(board, job, kOptions); }

// ---- Ids and steps that processes tell each other, on the board.

void tell(Board& board, int sender, int receiver, ExportId id, long value = 0) {
  std::array<std::byte, exchange::kDescriptionBytes> text{};
  std::memcpy(text.data(), &id, sizeof id);
  std::memcpy(text.data() + sizeof id, &value, sizeof value);
  post(board, sender, receiver, text);
}

std::pair<ExportId, long> hear(Board& board, int sender, int receiver) {
  const auto text = fetch(board, sender, receiver);
  std::pair<ExportId, long> said;
  std::memcpy(&said.first, text.data(), sizeof said.first);
  std::memcpy(&said.second, text.data() + sizeof said.first, sizeof said.second);
  return said;
}

bool holds(const Imported& imported, int value) {
  for (std::size_t at = 0; at < imported.bytes(); ++at) {
    if (imported.data()[at] != static_cast<std::byte>(value)) {
      return false;
    }
  }
  return true;
}

ExportId exported(Exchange& exchange, const File& file, int rank) {
  const Result<ExportId> id = exchange.exportFile(file.get(), 0, kBytes);
  CHECK_THAT(id.ok() && exchange.offer(*id, rank).ok());
  return *id;
}

ExportId exportedDevice(Exchange& exchange, void* memory, int rank) {
  const Result<ExportId> id = exchange.exportDevice(memory, kBytes);
  CHECK_THAT(id.ok() && exchange.offer(*id, rank).ok());
  return *id;
}

TEST(Imports, AMemoryFileIsReadInPlace) {
  runTeam(3, [&](Board& board, const Job& job) {
    const std::set<int> before = openDescriptors();
    {
      const auto exchange = met(board, job);
      if (job.rank == 0) {
        const File file;
        file.fill(1);
        const ExportId id = exported(*exchange, file, 1);
        CHECK_THAT(exchange->offer(id, 2).ok() && exchange->offer(id, 2).ok());
        tell(board, 0, 1, id);
        tell(board, 0, 2, id);
        await(board, 1, 2);
        file.fill(2);
        arrive(board, 2);
        await(board, 1, 4);
        CHECK_THAT(exchange->statistics().exports == 1);
        CHECK_THAT(*exchange->revoke(id));
        CHECK_THAT(exchange->statistics().exports == 0);
        CHECK_THAT(!exchange->revoke(id).ok());
      } else {
        const ExportId id = hear(board, 0, job.rank).first;
        {
          const Result<Imported> imported = exchange->import(0, id);
          CHECK_THAT(imported.ok() && imported->bytes() == kBytes);
          CHECK_THAT(imported->kind() == ExportKind::kFile && !imported->revoked());
          CHECK_THAT(holds(*imported, 1));
          arrive(board, 1);
          await(board, 2, 1);
          CHECK_THAT(holds(*imported, 2));
          const Result<Imported> again = exchange->import(0, id);
          CHECK_THAT(again.ok() && again->data() == imported->data());
        }
        CHECK_THAT(exchange->statistics().imports == 1);
        CHECK_THAT(exchange->statistics().imported == 1);
        exchange->close();
        arrive(board, 1);
      }
    }
    CHECK_THAT(openDescriptors() == before);
  });
}

TEST(Imports, DeviceMemoryIsReadInPlaceOnceTheDeviceIsProved) {
  for (const bool refused : {false, true}) {
    runTeam(2, [&](Board& board, const Job& job) {
      refusesImports = refused && job.rank == 1;
      const auto exchange = met(board, job);
      if (job.rank == 0) {
        void* const memory = allocate(kBytes);
        std::memset(memory, 7, kBytes);
        const ExportId id = exportedDevice(*exchange, memory, 1);
        tell(board, 0, 1, id);
        await(board, 1, 1);
        CHECK_THAT(*exchange->revoke(id, milliseconds(refused ? 0 : 5000)));
        CHECK_THAT(!exchange->exportDevice(static_cast<char*>(memory) + 1, 1).ok());
        CHECK_THAT(saysLast("no allocation starts there") || saysLast("not exported"));
      } else {
        const Result<Imported> imported = exchange->import(0, hear(board, 0, 1).first);
        if (refused) {
          CHECK_THAT(imported.status().code() == adsmErrorNotSupported);
          CHECK_THAT(saysLast("not proved that it reaches the device"));
          CHECK_THAT(exchange->statistics().imports == 0);
        } else {
          CHECK_THAT(imported.ok() && imported->kind() == ExportKind::kDevice);
          CHECK_THAT(holds(*imported, 7));
        }
        arrive(board, 1);
      }
    });
  }
}

// Without a piece of the device that its reach is proved by: the descriptors prove it.
TEST(Imports, DeviceMemoryOfFilesIsHandedOver) {
  runTeam(2, [&](Board& board, const Job& job) {
    const std::set<int> before = openDescriptors();
    {
      const auto exchange = met(board, job);
      if (job.rank == 0) {
        // Its halves are the second half of one file and the first of another.
        constexpr std::uint64_t kHalf = kBytes / 2;
        Result<ExportId> id = Status(adsmErrorInvalidValue);
        {
          const File first;
          const File second;
          first.fill(1);
          std::memset(first.data() + kHalf, 7, kHalf);
          second.fill(7);
          const exchange::DeviceFile files[] = {{first.get(), kHalf, kHalf},
                                                {second.get(), 0, kHalf}};
          id = exchange->exportDeviceFiles(files);
          CHECK_THAT(!exchange->exportDeviceFiles({}).ok());
          const std::vector<exchange::DeviceFile> tooMany(exchange::kMaxDeviceFiles + 1, files[0]);
          CHECK_THAT(!exchange->exportDeviceFiles(tooMany).ok());
        }
        CHECK_THAT(id.ok() && exchange->offer(*id, 1).ok() && exchange->offer(*id, 1).ok());
        CHECK_THAT(!exchange->isImportedBy(*id, 1));
        tell(board, 0, 1, *id);
        await(board, 1, 1);
        CHECK_THAT(exchange->isImportedBy(*id, 1));
        CHECK_THAT(!*exchange->revoke(*id));
        arrive(board, 2);
        await(board, 1, 2);
        CHECK_THAT(*exchange->revoke(*id));
        CHECK_THAT(exchange->statistics().exports == 0);
      } else {
        const ExportId id = hear(board, 0, 1).first;
        Result<Imported> imported = exchange->import(0, id);
        CHECK_THAT(imported.ok() && imported->kind() == ExportKind::kDeviceFiles);
        CHECK_THAT(imported->bytes() == kBytes && holds(*imported, 7));
        arrive(board, 1);
        await(board, 2, 1);
        CHECK_THAT(imported->revoked() && openImports == 1);
        *imported = Imported();
        exchange->sweep();
        CHECK_THAT(openImports == 0 && !exchange->import(0, id).ok());
        arrive(board, 1);
      }
    }
    CHECK_THAT(openDescriptors() == before);
  });
}

TEST(Imports, OfTheDeviceThatBothUseHaveNoLink) {
  const struct {
    std::uint64_t owner;
    std::uint64_t importer;
    bool local;
  } cases[] = {{7, 7, true}, {7, 8, false}, {0, 7, false}, {7, 0, false}, {0, 0, false}};
  for (const auto& one : cases) {
    Team team(2);
    team.start([&](const Job& job) {
      Board& board = team.board();
      deviceNumber = job.rank == 0 ? one.owner : one.importer;
      const auto exchange = met(board, job);
      exchange->tellDevice();
      if (job.rank == 0) {
        void* const memory = allocate(kBytes);
        tell(board, 0, 1, exportedDevice(*exchange, memory, 1));
        const File file;
        const exchange::DeviceFile part = {file.get(), 0, kBytes};
        const Result<ExportId> files = exchange->exportDeviceFiles(std::span(&part, 1));
        CHECK_THAT(files.ok() && exchange->offer(*files, 1).ok());
        tell(board, 0, 1, *files);
        await(board, 1, 1);
      } else {
        for (std::size_t i = 1; i <= 2; ++i) {
          const Result<Imported> imported = exchange->import(0, hear(board, 0, 1).first);
          CHECK_THAT(imported.ok() && localImports.size() == (one.local ? i : 0));
          CHECK_THAT(!one.local || localImports.back() == imported->data());
        }
        arrive(board, 1);
      }
    });
    EXPECT_EQ(team.end(), "") << one.owner << ", " << one.importer;
  }
}

// No importer holds what is freed.
TEST(Imports, RevocationWaitsForThoseWhoHaveTheMemory) {
  runTeam(2, [&](Board& board, const Job& job) {
    const auto exchange = met(board, job);
    if (job.rank == 0) {
      void* const memory = allocate(kBytes);
      for (int round = 0; round < 2; ++round) {
        const ExportId id = exportedDevice(*exchange, memory, 1);
        tell(board, 0, 1, id);
        await(board, 1, 1 + 3 * round);
        CHECK_THAT(!*exchange->revoke(id, milliseconds(20)));
        arrive(board, 2);
        await(board, 1, 2 + 3 * round);
        CHECK_THAT(*exchange->revoke(id, milliseconds(5000)));
        // (Its piece stays.)
        CHECK_THAT(board.numbers[0] == 1);
        arrive(board, 3);
        await(board, 1, 3 + 3 * round);
      }
    } else {
      for (int round = 0; round < 2; ++round) {
        const ExportId id = hear(board, 0, 1).first;
        Result<Imported> imported = exchange->import(0, id);
        CHECK_THAT(imported.ok());
        if (round == 0) {
          arrive(board, 1);
          await(board, 2, 1);
          CHECK_THAT(imported->revoked());
          CHECK_THAT(!exchange->import(0, id).ok() && saysLast("is revoked"));
          exchange->sweep();
          CHECK_THAT(openImports == 2);  // in use still
          *imported = Imported();
        } else {
          *imported = Imported();
          CHECK_THAT(openImports == 2);  // idle
          arrive(board, 1);
          await(board, 2, 2);
          exchange->sweep();
        }
        CHECK_THAT(exchange->statistics().imports == 0);
        board.numbers[0] = openImports;
        arrive(board, 1);
        await(board, 3, round + 1);
        arrive(board, 1);
      }
    }
  });
}

TEST(Imports, AProcessThatHasEndedHoldsNothingAndAStoppedOneDoes) {
  for (const bool kill : {true, false}) {
    Team team(2);
    team.start([&](const Job& job) {
      Board& board = team.board();
      const auto exchange = met(board, job);
      if (job.rank == 0) {
        const ExportId id = exportedDevice(*exchange, allocate(kBytes), 1);
        tell(board, 0, 1, id);
        await(board, 2, 1);  // it is killed, or stopped
        CHECK_THAT(*exchange->revoke(id, milliseconds(20)) == kill);
        arrive(board, 3);
        CHECK_THAT(kill || *exchange->revoke(id, milliseconds(5000)));
      } else {
        Result<Imported> imported = exchange->import(0, hear(board, 0, 1).first);
        CHECK_THAT(imported.ok());
        arrive(board, 1);
        await(board, 3, 1);
        *imported = Imported();
      }
    });
    Board& board = team.board();
    await(board, 1, 1);
    ::kill(team.process(1), kill ? SIGKILL : SIGSTOP);
    siginfo_t info{};
    ::waitid(P_PID, static_cast<id_t>(team.process(1)), &info, WEXITED | WSTOPPED | WNOWAIT);
    if (kill) {
      EXPECT_EQ(team.endOf(1), -SIGKILL);
    }
    arrive(board, 2);
    await(board, 3, 1);
    if (!kill) {
      ::kill(team.process(1), SIGCONT);
    }
    EXPECT_EQ(team.end(), "");
  }
}

TEST(Imports, OnlyUnusedOnesMakeRoomOldestFirst) {
  runTeam(2, [&](Board& board, const Job& job) {
    Options options = kOptions;
    options.maxImports = 3;
    const auto exchange = met(board, job, options);
    if (job.rank == 0) {
      const std::vector<File> files(4);
      for (int i = 0; i < 4; ++i) {
        files[static_cast<std::size_t>(i)].fill(i);
        tell(board, 0, 1, exported(*exchange, files[static_cast<std::size_t>(i)], 1));
      }
      await(board, 1, 1);
    } else {
      std::array<ExportId, 4> ids;
      std::array<Imported, 4> imported;
      for (auto& id : ids) {
        id = hear(board, 0, 1).first;
      }
      const auto get = [&](std::size_t i) {
        Result<Imported> got = exchange->import(0, ids[i]);
        CHECK_THAT(got.ok() && holds(*got, static_cast<int>(i)));
        imported[i] = std::move(*got);
      };
      for (const std::size_t i : {0, 1, 2}) {
        get(i);
      }
      CHECK_THAT(exchange->import(0, ids[3]).status().code() == adsmErrorHostMemory);
      CHECK_THAT(saysLast("3 imports are in use"));
      imported[1] = Imported();
      imported[0] = Imported();
      get(3);  // in the place of 1, which is unused for longer
      CHECK_THAT(exchange->statistics().evicted == 1);
      CHECK_THAT(holds(imported[2], 2));
      get(0);
      CHECK_THAT(exchange->statistics().imported == 4);
      imported[3] = Imported();
      get(1);
      CHECK_THAT(exchange->statistics().imported == 5 && exchange->statistics().evicted == 2);
      CHECK_THAT(exchange->statistics().imports == 3);
      arrive(board, 1);
    }
  });
}

TEST(Imports, WhatCannotBeExportedOrImportedIsRefused) {
  runTeam(2, [&](Board& board, const Job& job) {
    const auto exchange = met(board, job);
    const File file;
    const File unsealed(0);
    const auto code = [&](int fd, std::int64_t offset, std::size_t bytes) {
      return exchange->exportFile(fd, offset, bytes).status().code();
    };
    CHECK_THAT(code(file.get(), 1, 1) == adsmErrorInvalidValue);
    CHECK_THAT(code(file.get(), 0, kBytes + 1) == adsmErrorInvalidValue);
    CHECK_THAT(code(file.get(), 4096, kBytes) == adsmErrorInvalidValue);
    CHECK_THAT(code(file.get(), 0, 0) == adsmErrorInvalidValue);
    CHECK_THAT(code(-1, 0, 1) == adsmErrorInvalidValue);
    CHECK_THAT(code(unsealed.get(), 0, kBytes) == adsmErrorNotSupported);
    CHECK_THAT(saysLast("may shorten"));
    CHECK_THAT(exchange->statistics().exports == 0);
    const Result<ExportId> id = exchange->exportFile(file.get(), 4096, kBytes - 4096);
    CHECK_THAT(id.ok());
    CHECK_THAT(::ftruncate(file.get(), 0) != 0);
    CHECK_THAT(!exchange->offer(*id, job.rank).ok());
    CHECK_THAT(!exchange->offer(*id, 2).ok());
    CHECK_THAT(!exchange->offer(exchange::kNoExport, 1 - job.rank).ok());
    tell(board, job.rank, 1 - job.rank, *id);
    const ExportId other = hear(board, 1 - job.rank, job.rank).first;
    CHECK_THAT(!exchange->import(1 - job.rank, other).ok());
    CHECK_THAT(saysLast("has not come"));
    CHECK_THAT(!exchange->import(job.rank, other).ok());
    CHECK_THAT(!exchange->import(1 - job.rank, exchange::kNoExport).ok());
    CHECK_THAT(
        !exchange->import(1 - job.rank, ExportId{static_cast<std::uint64_t>(other) + 1}).ok());
    CHECK_THAT(saysLast("never was"));
    // As many as there can be, and one more.
    std::vector<ExportId> all;
    for (Result<ExportId> more = exchange->exportFile(file.get(), 0, 1); more.ok();
         more = exchange->exportFile(file.get(), 0, 1)) {
      all.push_back(*more);
    }
    CHECK_THAT(all.size() == 1023 && saysLast("as many as there can be"));
    CHECK_THAT(*exchange->revoke(all[500]));
    CHECK_THAT(exchange->exportFile(file.get(), 0, 1).ok());
  });
}

TEST(Imports, AChildOfForkHasNone) {
  runTeam(2, [&](Board& board, const Job& job) {
    const auto exchange = met(board, job);
    const File file;
    const ExportId own = exported(*exchange, file, 1 - job.rank);
    tell(board, job.rank, 1 - job.rank, own);
    const ExportId other = hear(board, 1 - job.rank, job.rank).first;
    Result<Imported> imported = exchange->import(1 - job.rank, other);
    CHECK_THAT(imported.ok());
    const pid_t child = ::fork();
    if (child == 0) {
      *imported = Imported();
      exchange->sweep();
      CHECK_THAT(exchange->import(1 - job.rank, other).status().code() == adsmErrorForked);
      CHECK_THAT(exchange->exportFile(file.get(), 0, 1).status().code() == adsmErrorForked);
      CHECK_THAT(exchange->revoke(own).status().code() == adsmErrorForked);
      CHECK_THAT(exchange->offer(own, 1 - job.rank).code() == adsmErrorForked);
      ::_exit(0);
    }
    int status = 1;
    ::waitpid(child, &status, 0);
    CHECK_THAT(status == 0 && holds(*imported, 0));
    meetAt(board, 1, 2);
  });
}

// Of this process, in bytes.
std::size_t residentBytes() {
  std::ifstream file("/proc/self/statm");
  std::size_t all = 0;
  std::size_t resident = 0;
  file >> all >> resident;
  return resident * static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));
}

// Memory goes from export to export; what is read is that of the id, or known to be revoked. And
// neither process grows. (GMAC_TEST_STEPS=1000000, by hand, takes a minute.)
TEST(Imports, ChurnNeverShowsWrongBytes) {
  constexpr std::size_t kGrowth = std::size_t{4} << 20;
  const auto seed = static_cast<unsigned>(seedOr(1));
  const long steps = stepsOr(20000);
  Team team(2);
  team.start([&](const Job& job) {
    Board& board = team.board();
    std::mt19937 random(seed + static_cast<unsigned>(job.rank));
    Options options = kOptions;
    options.maxImports = 6;
    const auto exchange = met(board, job, options);
    if (job.rank == 0) {
      struct Place {
        unsigned char* data;
        const File* file;  // NULL: of the device
        ExportId id;
      };
      const std::vector<File> files(8);
      std::vector<Place> places;
      for (const File& file : files) {
        places.push_back({file.data(), &file, exchange::kNoExport});
        places.push_back(
            {static_cast<unsigned char*>(allocate(kBytes)), nullptr, exchange::kNoExport});
      }
      std::uint64_t last = 0;
      std::size_t before = 0;
      for (long step = 0; step < steps; ++step) {
        if (step == steps / 4) before = residentBytes();
        Place& place = places[random() % places.size()];
        if (place.id != exchange::kNoExport && random() % 3 == 0) {
          while (!*exchange->revoke(place.id, milliseconds(1))) {
          }
          place.data[0] = place.data[kBytes - 1] = 255;  // it is freed
          place.id = exchange::kNoExport;
        }
        if (place.id == exchange::kNoExport) {
          const auto value = static_cast<unsigned char>(step % 251);
          place.data[0] = place.data[kBytes - 1] = value;
          place.id = place.file != nullptr ? exported(*exchange, *place.file, 1)
                                           : exportedDevice(*exchange, place.data, 1);
          CHECK_THAT(static_cast<std::uint64_t>(place.id) / 1024 > last / 1024);
          last = static_cast<std::uint64_t>(place.id);
        }
        tell(board, 0, 1, place.id, place.data[0]);
      }
      CHECK_THAT(residentBytes() < before + kGrowth && openDescriptors().size() < 60);
      tell(board, 0, 1, exchange::kNoExport);
      await(board, 1, 1);  // its files are found only as long as it lives
    } else {
      std::vector<std::pair<Imported, long>> kept;
      long read = 0;
      long revoked = 0;
      long heard = 0;
      std::size_t before = 0;
      // The owner may be waiting for what is kept here.
      const auto next = [&] {
        while (!posted(board, 0, 1)) {
          if (!kept.empty() && random() % 64 == 0) {
            kept.pop_back();
          }
          exchange->sweep();
          ::sched_yield();
        }
        return hear(board, 0, 1);
      };
      for (auto said = next(); said.first != exchange::kNoExport; said = next()) {
        if (++heard == steps / 4) before = residentBytes();
        Result<Imported> imported = exchange->import(0, said.first);
        if (imported.ok()) {
          kept.emplace_back(std::move(*imported), said.second);
        } else {
          CHECK_THAT(imported.status().code() == adsmErrorInvalidValue && saysLast("revoked"));
          ++revoked;
        }
        for (const auto& [memory, value] : kept) {
          // Whether the memory was revoked is read after its bytes.
          const long first = acquired(memory.data()[0]);
          const long end = acquired(memory.data()[kBytes - 1]);
          if (!memory.revoked()) {
            CHECK_THAT(first == value && end == value);
            ++read;
          }
        }
        while (!kept.empty() && (kept.size() > 4 || random() % 3 == 0)) {
          kept.erase(kept.begin() + static_cast<long>(random() % kept.size()));
        }
      }
      kept.clear();
      const exchange::Statistics statistics = exchange->statistics();
      CHECK_THAT(read > steps / 4 && residentBytes() < before + kGrowth);
      CHECK_THAT(statistics.imports <= 6 && statistics.evicted > 0 && statistics.imported > 10);
      CHECK_THAT(openDescriptors().size() < 40);
      arrive(board, 1);
    }
  });
  EXPECT_EQ(team.end(), "") << "GMAC_TEST_SEED=" << seed << " GMAC_TEST_STEPS=" << steps;
}

}  // namespace
}  // namespace gmac::testing
