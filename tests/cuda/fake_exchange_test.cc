// SPDX-License-Identifier: Apache-2.0
//
// Device memory that one process exports and another imports: each has a runtime of its own over
// the fake driver, whose exported memory is a file. Needs no GPU.
#include <gtest/gtest.h>
#include <unistd.h>

#include <array>
#include <chrono>
#include <cstddef>
#include <cstring>
#include <filesystem>
#include <memory>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

#include "exchange/exchange.h"
#include "gmac/api/adsm.h"
#include "gmac/datatype/layout/layout.h"
#include "gmac/session/device_memory.h"
#include "mpi/device_copies.h"
#include "mpi/device_exports.h"
#include "tests/cuda/fake_pack_kernels.h"
#include "tests/cuda/fake_program.h"
#include "tests/exchange/team.h"

namespace gmac {
namespace {

using exchange::Exchange;
using exchange::Job;
using exchange::Memory;
using testing::Board;
using testing::Team;

static_assert(exchange::kHandleBytes == GMAC_MEMORY_HANDLE_BYTES);

constexpr exchange::DeviceFunctions kDevice{&gmacExportDeviceMemory, &gmacImportDeviceMemory,
                                            &gmacCopyToDevice, &gmacCopyFromDevice};
constexpr std::size_t kPiece = std::size_t{1} << 20;
constexpr std::size_t kBytes = 300'000;

// Before any process has a runtime: each makes its own.
const bool kPrepared = fake_cuda::prepare();

std::unique_ptr<Exchange> met(Board& board, const Job& job) {
  std::unique_ptr<Exchange> made =
      testing::met(board, job, {.device = &kDevice, .devicePieceBytes = kPiece});
  CHECK_THAT(made->reaches(1 - job.rank));
  return made;
}

std::vector<unsigned char> pattern(int seed) {
  std::vector<unsigned char> bytes(kBytes);
  for (std::size_t at = 0; at < kBytes; ++at) {
    bytes[at] = static_cast<unsigned char>(at * 13 + at / 256 + static_cast<std::size_t>(seed));
  }
  return bytes;
}

Memory send(Exchange& exchange, Board& board, int seed) {
  const std::vector<unsigned char> bytes = pattern(seed);
  Result<exchange::Parcel> parcel = exchange.reserve(1, kBytes, Memory::kDevice);
  if (parcel.ok()) {
    CHECK_THAT(gmacIsDeviceMemory(parcel->data()) == 1);
    int packs = 0;
    CHECK_THAT(gmacOpenDeviceMemory(parcel->data(), &packs) == adsmSuccess && packs == 1);
    CHECK_THAT(gmacCopyToDevice(parcel->data(), bytes.data(), kBytes) == adsmSuccess);
  } else {
    parcel = exchange.reserve(1, kBytes, Memory::kHost);
    CHECK_THAT(parcel.ok());
    std::memcpy(parcel->data(), bytes.data(), kBytes);
  }
  std::array<std::byte, exchange::kDescriptionBytes> description;
  parcel->describe(description);
  testing::post(board, 0, 1, description);
  return parcel->memory();
}

Memory receive(Exchange& exchange, Board& board, int seed) {
  Result<exchange::Delivery> delivery = exchange.collect(0, testing::fetch(board, 0, 1));
  CHECK_THAT(delivery.ok() && delivery->bytes() == kBytes);
  std::vector<unsigned char> bytes(kBytes);
  if (delivery->memory() == Memory::kDevice) {
    CHECK_THAT(gmacIsDeviceMemory(delivery->data()) == 1);
    CHECK_THAT(gmacCopyFromDevice(bytes.data(), delivery->data(), kBytes) == adsmSuccess);
  } else {
    std::memcpy(bytes.data(), delivery->data(), kBytes);
  }
  CHECK_THAT(bytes == pattern(seed));
  testing::arrive(board, 1);
  return delivery->memory();
}

TEST(ExchangeOverTheDriver, PayloadsGoThroughImportedMemory) {
  Team team(2);
  team.start([&](const Job& job) {
    Board& board = team.board();
    const auto exchange = met(board, job);
    for (int round = 0; round < 5; ++round) {
      const Memory expected = round == 0 ? Memory::kHost : Memory::kDevice;
      if (job.rank == 0) {
        CHECK_THAT(send(*exchange, board, round) == expected);
        testing::await(board, 1, round + 1);
      } else {
        CHECK_THAT(receive(*exchange, board, round) == expected);
      }
    }
  });
  EXPECT_EQ(team.end(), "");
}

// ---- Messages between device memories.

constexpr exchange::DeviceFunctions kCopying{&gmacExportDeviceMemory,
                                             &gmacImportDeviceMemory,
                                             &gmacCopyToDevice,
                                             &gmacCopyFromDevice,
                                             &gmacHandleOfDeviceMemory,
                                             &gmacReleaseDeviceImport,
                                             &mpi::copyByDevice,
                                             nullptr,
                                             nullptr,
                                             &mpi::beginCopy,
                                             &mpi::copyIsOver,
                                             &mpi::endCopy};

// The application's own.
std::byte* allocate(std::size_t bytes) {
  void* const object = adsmAlloc(4096);  // starts the runtime, whose context it is
  CHECK_THAT(object != nullptr && adsmFree(object) == adsmSuccess);
  CUcontext context = nullptr;
  CUdeviceptr address = 0;
  CHECK_THAT(DRIVER(cuDevicePrimaryCtxRetain)(&context, 0) == CUDA_SUCCESS);
  CHECK_THAT(DRIVER(cuCtxPushCurrent)(context) == CUDA_SUCCESS);
  CHECK_THAT(DRIVER(cuMemAlloc)(&address, bytes) == CUDA_SUCCESS);
  return reinterpret_cast<std::byte*>(address);
}

std::size_t freeMemory() {
  std::size_t bytes = 0;
  std::size_t all = 0;
  CHECK_THAT(DRIVER(cuMemGetInfo)(&bytes, &all) == CUDA_SUCCESS);
  return bytes;
}

// From rows to rows of other lengths, by one kernel of the receiver's, where its driver imports the
// memory; else both pack and unpack.
TEST(ExchangeOverTheDriver, RowsGoFromDeviceMemoryToDeviceMemory) {
  using datatype::Layout;
  constexpr std::size_t kMemory = std::size_t{2} << 20;  // what the driver gives at least
  for (const bool refused : {false, true}) {
    Team team(2);
    team.start([&](const Job& job) {
      fake_cuda::standIn(&fake_cuda::packImage());
      Board& board = team.board();
      const auto exchange =
          testing::met(board, job, {.device = &kCopying, .devicePieceBytes = kPiece});
      std::byte* const memory = allocate(kMemory);
      if (refused && job.rank == 1) {
        fake_cuda::failAlways("cuIpcOpenMemHandle_v2", CUDA_ERROR_INVALID_CONTEXT);
      }
      const Layout from = *Layout::make({{2000, 256}}, {{0, 64}});
      const Layout to = *Layout::make({{8100, 48}}, {{0, 16}});
      std::vector<unsigned char> bytes(kMemory);
      for (int round = 0; round < 3; ++round) {
        const std::size_t launches = fake_cuda::calls("cuLaunchKernel");
        if (job.rank == 0) {
          for (std::size_t at = 0; at < kMemory; ++at) {
            bytes[at] =
                static_cast<unsigned char>(at * 13 + at / 256 + static_cast<std::size_t>(round));
          }
          CHECK_THAT(gmacCopyToDevice(memory, bytes.data(), kMemory) == adsmSuccess);
          const Result<exchange::ExportId> id = exchange->exportDevice(memory, kMemory);
          CHECK_THAT(id.ok() && exchange->offer(*id, 1).ok());
          Result<exchange::Sending> sending =
              exchange->send(1, memory + 512, exchange::shareLayout(from),
                             {.onDevice = true, .device = *id, .deviceOffset = 512});
          CHECK_THAT(sending.ok());
          std::array<std::byte, exchange::kDescriptionBytes> description;
          sending->describe(description);
          testing::post(board, 0, 1, description);
          CHECK_THAT(*sending->wait(std::chrono::seconds(60)));
          CHECK_THAT((fake_cuda::calls("cuLaunchKernel") == launches) == !refused);
          CHECK_THAT(!exchange->exportDevice(memory + 256, 256).ok());
          CHECK_THAT(testing::saysLast("not exported") || testing::saysLast("not the start of"));
          // The receiver gives its import back when it is revoked.
          CHECK_THAT(*exchange->revoke(*id, std::chrono::seconds(refused ? 0 : 60)));
          testing::arrive(board, 1);
        } else {
          std::memset(bytes.data(), 0xa5, kMemory);
          CHECK_THAT(gmacCopyToDevice(memory, bytes.data(), kMemory) == adsmSuccess);
          Result<exchange::Receiving> receiving =
              exchange->receive(0, testing::fetch(board, 0, 1), memory, to, Memory::kDevice);
          CHECK_THAT(receiving.ok() && *receiving->wait(std::chrono::seconds(60)));
          CHECK_THAT(receiving->path() ==
                     (refused ? exchange::Path::kRing : exchange::Path::kDevice));
          CHECK_THAT(refused || fake_cuda::calls("cuLaunchKernel") == launches + 1);
          std::vector<unsigned char> expected = bytes;
          for (std::size_t i = 0; i < 2000 * 64; ++i) {
            const std::size_t at = 512 + i / 64 * 256 + i % 64;
            expected[i / 16 * 48 + i % 16] =
                static_cast<unsigned char>(at * 13 + at / 256 + static_cast<std::size_t>(round));
          }
          CHECK_THAT(gmacCopyFromDevice(bytes.data(), memory, kMemory) == adsmSuccess);
          CHECK_THAT(bytes == expected);
          const std::size_t before = freeMemory();
          receiving = exchange::Receiving();
          for (int wait = 0; wait < 60000 && exchange->statistics().imports > 0; ++wait) {
            exchange->sweep();
            ::usleep(1000);
          }
          testing::await(board, 1, round + 1);
          CHECK_THAT(freeMemory() == before + (refused ? 0 : kMemory));
        }
      }
    });
    EXPECT_EQ(team.end(), "") << refused;
  }
}

// The fake driver runs a kernel when it is asked about it, so that the rest of the message does not
// arrive meanwhile: the kernel unpacks what is there, ends by itself, and the rest goes as without
// it.
TEST(ExchangeOverTheDriver, AKernelThatHearsNoMoreOfAMessageEndsByItself) {
  using datatype::Layout;
  static constexpr exchange::ArrivalFunctions kArrivals{&mpi::beginArrival, &mpi::tellArrived,
                                                        &mpi::tellNoMoreArrives,
                                                        &mpi::arrivalIsOver, &mpi::endArrival};
  static constexpr exchange::DeviceFunctions kArriving = [] {
    exchange::DeviceFunctions functions = kCopying;
    functions.beginPack = &mpi::beginPack;
    functions.arrivals = &kArrivals;
    return functions;
  }();
  constexpr std::size_t kMemory = std::size_t{2} << 20;
  constexpr std::int64_t kRows = 20000;
  Team team(2);
  team.start([&](const Job& job) {
    fake_cuda::standIn(&fake_cuda::packImage());
    Board& board = team.board();
    exchange::Options options{.device = &kArriving, .devicePieceBytes = kPiece};
    options.aheadLeast = options.arrivalLeast = 8 * kRows;
    options.aheadFragment = 8192;
    const auto exchange = testing::met(board, job, options);
    std::byte* const memory = allocate(kMemory);
    const Layout from = *Layout::make({{kRows, 32}}, {{0, 8}});
    const Layout to = *Layout::make({{kRows, 24}}, {{0, 8}});
    std::vector<unsigned char> bytes(kMemory);
    const auto byteAt = [](std::size_t at) {
      return static_cast<unsigned char>(at * 13 + at / 256);
    };
    exchange::ExportId id = exchange::kNoExport;
    if (job.rank == 0) {
      for (std::size_t at = 0; at < kMemory; ++at) bytes[at] = byteAt(at);
      CHECK_THAT(gmacCopyToDevice(memory, bytes.data(), kMemory) == adsmSuccess);
      const Result<exchange::ExportId> made = exchange->exportDevice(memory, kMemory);
      CHECK_THAT(made.ok() && exchange->offer(*made, 1).ok());
      id = *made;
    }
    for (int round = 0; round < 4; ++round) {
      if (job.rank == 0) {
        Result<exchange::Sending> sending = exchange->send(1, memory, exchange::shareLayout(from),
                                                           {.onDevice = true, .device = id});
        CHECK_THAT(sending.ok());
        std::array<std::byte, exchange::kDescriptionBytes> description;
        sending->describe(description);
        testing::post(board, 0, 1, description);
        CHECK_THAT(*sending->wait(std::chrono::seconds(60)));
        continue;
      }
      std::vector<unsigned char> expected(kMemory, 0xa5);
      CHECK_THAT(gmacCopyToDevice(memory, expected.data(), kMemory) == adsmSuccess);
      Result<exchange::Receiving> receiving =
          exchange->receive(0, testing::fetch(board, 0, 1), memory, to, Memory::kDevice);
      CHECK_THAT(receiving.ok());
      for (bool done = false; !done;) {
        const Result<bool> now = receiving->advance();
        CHECK_THAT(now.ok());
        done = *now;
        ::usleep(50);  // the sender packs meanwhile
      }
      for (std::size_t at = 0; at < 8 * kRows; ++at) {
        expected[at / 8 * 24 + at % 8] = byteAt(at / 8 * 32 + at % 8);
      }
      CHECK_THAT(gmacCopyFromDevice(bytes.data(), memory, kMemory) == adsmSuccess);
      CHECK_THAT(bytes == expected);
    }
    // (The first message brings the ring to the receiver.)
    CHECK_THAT(job.rank == 0 || fake_cuda::arrivalKernels > 0);
  });
  EXPECT_EQ(team.end(), "");
}

// A message that the receiver's copy engine takes from the sender's memory: no kernel of either.
// With `refused`, the engine does not take it, and a kernel does.
void takesByEngine(const datatype::Layout& to, const datatype::Layout& from, const char* call,
                   bool refused = false) {
  constexpr std::size_t kMemory = std::size_t{2} << 20;
  Team team(2);
  team.start([&](const Job& job) {
    fake_cuda::standIn(&fake_cuda::packImage());
    Board& board = team.board();
    const auto exchange =
        testing::met(board, job, {.device = &kCopying, .devicePieceBytes = kPiece});
    std::byte* const memory = allocate(kMemory);
    std::vector<unsigned char> bytes(kMemory);
    for (std::size_t at = 0; at < kMemory; ++at) {
      bytes[at] = static_cast<unsigned char>(at * 13 + at / 256);
    }
    const std::size_t launches = fake_cuda::calls("cuLaunchKernel");
    if (job.rank == 0) {
      CHECK_THAT(gmacCopyToDevice(memory, bytes.data(), kMemory) == adsmSuccess);
      const Result<exchange::ExportId> id = exchange->exportDevice(memory, kMemory);
      CHECK_THAT(id.ok() && exchange->offer(*id, 1).ok());
      Result<exchange::Sending> sending =
          exchange->send(1, memory, exchange::shareLayout(from), {.onDevice = true, .device = *id});
      CHECK_THAT(sending.ok());
      std::array<std::byte, exchange::kDescriptionBytes> description;
      sending->describe(description);
      testing::post(board, 0, 1, description);
      CHECK_THAT(*sending->wait(std::chrono::seconds(60)));
    } else {
      std::vector<unsigned char> expected(kMemory, 0xa5);
      CHECK_THAT(gmacCopyToDevice(memory, expected.data(), kMemory) == adsmSuccess);
      const std::size_t copies = fake_cuda::calls(call);
      if (refused) fake_cuda::failNext(call, CUDA_ERROR_INVALID_VALUE);
      Result<exchange::Receiving> receiving =
          exchange->receive(0, testing::fetch(board, 0, 1), memory, to, Memory::kDevice);
      CHECK_THAT(receiving.ok() && *receiving->wait(std::chrono::seconds(60)));
      CHECK_THAT(receiving->path() == exchange::Path::kDevice);
      CHECK_THAT(fake_cuda::calls(call) == copies + 1);
      std::vector<std::int64_t> there;
      from.forEach(0, from.bytes(), [&](std::int64_t at, std::int64_t, std::int64_t length) {
        for (std::int64_t i = 0; i < length; ++i) there.push_back(at + i);
      });
      auto next = there.begin();
      to.forEach(0, from.bytes(), [&](std::int64_t at, std::int64_t, std::int64_t length) {
        for (std::int64_t i = 0; i < length; ++i) {
          expected[static_cast<std::size_t>(at + i)] = bytes[static_cast<std::size_t>(*next++)];
        }
      });
      CHECK_THAT(gmacCopyFromDevice(bytes.data(), memory, kMemory) == adsmSuccess);
      CHECK_THAT(bytes == expected);
    }
    CHECK_THAT(fake_cuda::calls("cuLaunchKernel") == launches + (refused && job.rank == 1 ? 1 : 0));
  });
  EXPECT_EQ(team.end(), "") << call;
}

TEST(ExchangeOverTheDriver, CopyEnginesTakeOnePieceAndFewRows) {
  using datatype::Layout;
  const Layout piece = *Layout::make({}, {{256, 1 << 20}});
  const Layout elsewhere = *Layout::make({}, {{0, 1 << 20}});
  takesByEngine(elsewhere, piece, "cuMemcpyDtoDAsync_v2");
  const Layout rows = *Layout::make({{1000, 1024}}, {{64, 64}});
  const Layout dense = *Layout::make({{1000, 96}}, {{0, 64}});
  takesByEngine(dense, rows, "cuMemcpy3DAsync_v2");
  const Layout line = *Layout::make({}, {{0, 64000}});
  takesByEngine(line, rows, "cuMemcpy3DAsync_v2");
  takesByEngine(rows, line, "cuMemcpy3DAsync_v2");
  takesByEngine(dense, rows, "cuMemcpy3DAsync_v2", /*refused=*/true);
  takesByEngine(rows, line, "cuMemcpy3DAsync_v2", /*refused=*/true);
}

// Descriptors of device memory that this process has open.
std::size_t deviceFiles() {
  std::size_t count = 0;
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) {
    std::error_code gone;
    const std::string file = std::filesystem::read_symlink(entry.path(), gone).string();
    count += file.find("gmac fake device") != std::string::npos ? 1 : 0;
  }
  return count;
}

// Each object has two files, as its memory may lie on two devices.
TEST(ExchangeOverTheDriver, ObjectsWithManyFilesAreExportedAFewAtATime) {
  constexpr std::size_t kObject = std::size_t{129} << 20;
  Team team(1);
  team.start([&](const Job& job) {
    fake_cuda::setDevices(2);
    gmacShareDeviceMemory();
    const auto exchange = testing::met(team.board(), job, {.device = &kCopying});
    mpi::DeviceExports exports(*exchange, /*most=*/256, /*mostFiles=*/4);
    std::vector<void*> objects;
    const std::size_t before = deviceFiles();
    const auto exported = [&](void* object) {
      gmacDeviceLoan loan{};
      int lent = 0;
      CHECK_THAT(gmacLendOnDevice(object, kObject, &loan, &lent) == adsmSuccess && lent == 1);
      mpi::DeviceExports::MemoryPtr memory = exports.find(loan);
      gmacGiveBackOnDevice(object, kObject, &loan);
      CHECK_THAT(memory != nullptr && memory->files == 2);
      return memory;
    };
    for (int i = 0; i < 3; ++i) {
      objects.push_back(adsmAlloc(kObject));
      CHECK_THAT(objects.back() != nullptr);
      (void)exported(objects.back());
    }
    // (The driver has those of the memory itself.)
    CHECK_THAT(exports.count() == 2 && deviceFiles() == before + 3 * 2 + 4);
    // Memory that a message keeps stays, although it was not asked for for longest.
    const auto kept = exported(objects[1]);
    (void)exported(objects[2]);
    (void)exported(objects[0]);
    CHECK_THAT(exports.count() == 2 && exported(objects[1]) == kept);
    for (void* const object : objects) CHECK_THAT(adsmFree(object) == adsmSuccess);
  });
  EXPECT_EQ(team.end(), "");
}

// Memory that the driver refuses once may be had a moment later: the application's, and an
// object's.
TEST(ExchangeOverTheDriver, WhatIsNotExportedIsTriedAgainLessAndLessOften) {
  constexpr std::size_t kMemory = std::size_t{2} << 20;
  Team team(1);
  team.start([&](const Job& job) {
    gmacShareDeviceMemory();
    const auto exchange =
        testing::met(team.board(), job, {.device = &kCopying, .devicePieceBytes = kPiece});
    mpi::DeviceExports exports(*exchange);
    std::byte* const memory = allocate(kMemory);
    // (By which others prove that they reach it.)
    CHECK_THAT(exports.find(allocate(kMemory), kMemory) != nullptr);
    fake_cuda::failAlways("cuIpcGetMemHandle", CUDA_ERROR_NOT_SUPPORTED);
    std::size_t before = fake_cuda::calls("cuIpcGetMemHandle");
    constexpr std::size_t kAsked[] = {1, 1, 2, 2, 2, 3, 3, 3, 3, 3, 4};
    for (const std::size_t asked : kAsked) {
      CHECK_THAT(exports.find(memory, kMemory) == nullptr);
      CHECK_THAT(fake_cuda::calls("cuIpcGetMemHandle") == before + asked);
    }
    // (None fails from now on.)
    fake_cuda::failNth("cuIpcGetMemHandle", 0, CUDA_SUCCESS);
    std::size_t refused = 0;
    while (exports.find(memory, kMemory) == nullptr) CHECK_THAT(++refused <= 8);
    CHECK_THAT(refused == 8 && exports.count() == 2);
    // It stays exported.
    before = fake_cuda::calls("cuIpcGetMemHandle");
    CHECK_THAT(exports.find(memory, kMemory) != nullptr);
    CHECK_THAT(fake_cuda::calls("cuIpcGetMemHandle") == before);

    void* const object = adsmAlloc(kMemory);
    CHECK_THAT(object != nullptr);
    const auto isExported = [&] {
      gmacDeviceLoan loan{};
      int lent = 0;
      CHECK_THAT(gmacLendOnDevice(object, kMemory, &loan, &lent) == adsmSuccess && lent == 1);
      const bool found = exports.find(loan) != nullptr;
      gmacGiveBackOnDevice(object, kMemory, &loan);
      return found;
    };
    fake_cuda::failNext("cuMemExportToShareableHandle", CUDA_ERROR_NOT_SUPPORTED);
    CHECK_THAT(!isExported() && !isExported() && isExported() && isExported());
    CHECK_THAT(adsmFree(object) == adsmSuccess);
  });
  EXPECT_EQ(team.end(), "");
}

// As in a container, or where the GPUs do not reach each other.
TEST(ExchangeOverTheDriver, ADriverThatRefusesLeavesPayloadsInCpuMemory) {
  for (const int refusing : {0, 1}) {
    Team team(2);
    team.start([&](const Job& job) {
      Board& board = team.board();
      const auto exchange = met(board, job);
      if (job.rank == refusing) {
        fake_cuda::failAlways(
            refusing == 0 ? "cuIpcGetMemHandle" : "cuIpcOpenMemHandle_v2",
            refusing == 0 ? CUDA_ERROR_NOT_SUPPORTED : CUDA_ERROR_INVALID_CONTEXT);
      }
      for (int round = 0; round < 3; ++round) {
        if (job.rank == 0) {
          CHECK_THAT(send(*exchange, board, round) == Memory::kHost);
          testing::await(board, 1, round + 1);
        } else {
          CHECK_THAT(receive(*exchange, board, round) == Memory::kHost);
        }
      }
      if (job.rank == 0) {
        CHECK_THAT(exchange->reserve(1, 1, Memory::kDevice).status().code() ==
                   adsmErrorNotSupported);
      }
    });
    EXPECT_EQ(team.end(), "");
  }
}

// The refused export has given its memory back, and the driver's words are told.
TEST(ExchangeOverTheDriver, AnExportThatFailsTakesNothing) {
  Team team(1);
  team.start([&](const Job&) {
    void* const object = adsmAlloc(4096);  // starts the runtime
    CHECK_THAT(object != nullptr);
    std::size_t before = 0;
    std::size_t after = 0;
    std::size_t all = 0;
    CHECK_THAT(DRIVER(cuMemGetInfo)(&before, &all) == CUDA_SUCCESS);
    fake_cuda::failNext("cuIpcGetMemHandle", CUDA_ERROR_NOT_SUPPORTED);
    void* address = nullptr;
    std::array<unsigned char, GMAC_MEMORY_HANDLE_BYTES> handle;
    CHECK_THAT(gmacExportDeviceMemory(kPiece, &address, handle.data()) == adsmErrorNotSupported);
    CHECK_THAT(std::strstr(adsmLastErrorString(), "cuIpcGetMemHandle") != nullptr);
    CHECK_THAT(DRIVER(cuMemGetInfo)(&after, &all) == CUDA_SUCCESS && after == before);
    CHECK_THAT(gmacExportDeviceMemory(kPiece, &address, handle.data()) == adsmSuccess);
    // A process does not import its own.
    CHECK_THAT(gmacImportDeviceMemory(handle.data(), &address) == adsmErrorNotSupported);
    CHECK_THAT(adsmFree(object) == adsmSuccess);
  });
  EXPECT_EQ(team.end(), "");
}

// Its memory is a file, which is handed over otherwise.
TEST(ExchangeOverTheDriver, TheHostAcceleratorExportsNoHandles) {
  Team team(1);
  team.start([&](const Job&) {
    ::setenv("GMAC_ACCEL", "host", 1);
    void* address = nullptr;
    std::array<unsigned char, GMAC_MEMORY_HANDLE_BYTES> handle{};
    CHECK_THAT(gmacExportDeviceMemory(kPiece, &address, handle.data()) == adsmErrorNotSupported);
    CHECK_THAT(std::strstr(adsmLastErrorString(), "memory has no handles") != nullptr);
    CHECK_THAT(gmacImportDeviceMemory(handle.data(), &address) == adsmErrorNotSupported);
  });
  EXPECT_EQ(team.end(), "");
}

}  // namespace
}  // namespace gmac
