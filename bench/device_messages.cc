// SPDX-License-Identifier: Apache-2.0
//
// One message from the device memory of a process to that of another, without MPI: by way of memory
// that the sender has exported for payloads (a pack and an unpack), in one pass from where it lies,
// and through a ring in the CPU's memory. In turns; prints GB/s of payload, from the sender's first
// step to the receiver's word that all is there. Exits with 1 when a byte is wrong, and with 2
// where the device exports no memory.
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "bench/interleaved.h"
#include "exchange/exchange.h"
#include "gmac/api/adsm_datatype.h"
#include "gmac/datatype/layout/layout.h"
#include "gmac/session/device_memory.h"
#include "mpi/device_copies.h"

namespace gmac::bench {
namespace {

using datatype::Layout;
using exchange::Exchange;
using std::int64_t;

constexpr std::chrono::minutes kPatience{2};

[[noreturn]] void give(int status, const std::string& why) {
  std::fprintf(stderr, "device_messages: %s\n", why.c_str());
  std::exit(status);
}
void check(adsmError_t error, const char* what) {
  if (error != adsmSuccess) give(1, std::string(what) + ": " + adsmLastErrorString());
}
void check(bool good, const char* what) {
  if (!good) give(1, std::string(what) + ": " + lastErrorText());
}

double now() {
  timespec time{};
  ::clock_gettime(CLOCK_MONOTONIC, &time);
  return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_nsec) * 1e-9;
}

// ---- The device, whose memory's handle is known as it was allocated to be exported.

std::map<void*, exchange::DeviceHandle>& handles() {
  static std::map<void*, exchange::DeviceHandle> all;
  return all;
}

adsmError_t handleOf(void* address, unsigned char* handle) {
  const auto found = handles().find(address);
  if (found == handles().end()) {
    return adsmErrorInvalidValue;
  }
  std::memcpy(handle, found->second.data(), found->second.size());
  return adsmSuccess;
}
// (The runtime keeps its imports until the process ends.)
adsmError_t releaseImport(void*) { return adsmSuccess; }

constexpr exchange::DeviceFunctions kDevice{&gmacExportDeviceMemory,
                                            &gmacImportDeviceMemory,
                                            &gmacCopyToDevice,
                                            &gmacCopyFromDevice,
                                            &handleOf,
                                            &releaseImport,
                                            &mpi::copyByDevice};

std::byte* allocate(std::size_t bytes) {
  void* address = nullptr;
  exchange::DeviceHandle handle{};
  if (gmacExportDeviceMemory(bytes, &address, handle.data()) != adsmSuccess) {
    give(2, std::string("the device exports no memory: ") + adsmLastErrorString());
  }
  handles()[address] = handle;
  return static_cast<std::byte*>(address);
}

// ---- Rows of one length, on either side.

struct Rows {
  int64_t count;
  int64_t length;
  int64_t fromStride;
  int64_t toStride;
  std::string name() const {
    return count == 1 ? "contiguous" : "rows of " + std::to_string(length) + " B";
  }
  Layout from() const { return layout(fromStride); }
  Layout to() const { return layout(toStride); }
  Layout layout(int64_t stride) const {
    Result<Layout> made = Layout::make({{count, stride}}, {{0, length}});
    check(made.ok(), "Layout::make");
    return std::move(*made);
  }
  adsmType_t type(int64_t stride) const {
    adsmType_t made = nullptr;
    check(adsmTypeVector(count, length, stride, ADSM_TYPE_1, &made), "adsmTypeVector");
    check(adsmTypeCommit(made), "adsmTypeCommit");
    return made;
  }
};

std::byte byteAt(int64_t at) { return static_cast<std::byte>(at * 7 + at / 251); }

enum class Way { kOutbox, kOnePass, kRing };
constexpr std::size_t kWays = 3;

// One of the two processes.
class End {
 public:
  End(int rank, int other, const std::string& key, int64_t bytes)
      : rank_(rank), other_(other), bytes_(bytes) {
    exchange::Options options;
    options.device = &kDevice;
    options.devicePieceBytes = static_cast<std::size_t>(bytes) + (std::size_t{2} << 20);
    auto made = Exchange::open({key, rank, 2}, options);
    check(made.ok(), "Exchange::open");
    exchange_ = std::move(*made);
    memory_ = allocate(static_cast<std::size_t>(3 * bytes));
    if (rank == 0) {
      std::vector<std::byte> all(static_cast<std::size_t>(3 * bytes));
      for (int64_t at = 0; at < 3 * bytes; ++at) all[static_cast<std::size_t>(at)] = byteAt(at);
      check(gmacCopyToDevice(memory_, all.data(), all.size()), "gmacCopyToDevice");
    }
    say();
    hear();
    exchange_->meet(rank, 2);
    check(exchange_->reaches(1 - rank), "the two processes do not reach each other");
    if (rank == 0) {
      const auto id = exchange_->exportDevice(memory_, static_cast<std::size_t>(3 * bytes));
      check(id.ok() && exchange_->offer(*id, 1).ok(), "exportDevice");
      exported_ = *id;
    }
  }

  // Seconds of a message; at the receiver of no meaning.
  double message(const Rows& rows, Way way) {
    const double begin = now();
    if (rank_ == 0) {
      way == Way::kOutbox ? sendPacked(rows) : send(rows, way);
      hear();
    } else {
      way == Way::kOutbox ? receivePacked(rows) : receive(rows, way);
      say();
    }
    return now() - begin;
  }

  // Whether the receiver has what the sender's memory holds; without what lies between.
  bool right(const Rows& rows) {
    std::vector<std::byte> there(static_cast<std::size_t>(3 * bytes_));
    check(gmacCopyFromDevice(there.data(), memory_, there.size()), "gmacCopyFromDevice");
    for (int64_t row = 0; row < rows.count; ++row) {
      for (int64_t i = 0; i < rows.length; ++i) {
        if (there[static_cast<std::size_t>(row * rows.toStride + i)] !=
            byteAt(row * rows.fromStride + i)) {
          return false;
        }
      }
    }
    return true;
  }
  void clear() {
    const std::vector<std::byte> zeros(static_cast<std::size_t>(3 * bytes_));
    check(gmacCopyToDevice(memory_, zeros.data(), zeros.size()), "gmacCopyToDevice");
  }

  void say() {
    const char word = 1;
    check(::write(other_, &word, 1) == 1, "write");
  }
  void hear() {
    char word = 0;
    if (::read(other_, &word, 1) != 1) give(1, "the other process has ended");
  }

 private:
  using Description = std::array<std::byte, exchange::kDescriptionBytes>;

  void tell(const Description& description) {
    check(::write(other_, description.data(), description.size()) ==
              static_cast<ssize_t>(description.size()),
          "write");
  }
  Description told() {
    Description description;
    if (::recv(other_, description.data(), description.size(), MSG_WAITALL) !=
        static_cast<ssize_t>(description.size())) {
      give(1, "the other process has ended");
    }
    return description;
  }

  void send(const Rows& rows, Way way) {
    exchange::SendOptions options;
    options.onDevice = true;
    if (way == Way::kOnePass) options.device = exported_;
    options.fragmentBytes = std::size_t{1} << 20;
    auto sending = exchange_->send(1, memory_, exchange::shareLayout(rows.from()), options);
    check(sending.ok(), "send");
    Description description;
    sending->describe(description);
    tell(description);
    const auto done = sending->wait(kPatience);
    check(done.ok() && *done, "the sender's wait");
  }
  void receive(const Rows& rows, Way way) {
    auto receiving = exchange_->receive(0, told(), memory_, rows.to(), exchange::Memory::kDevice);
    check(receiving.ok(), "receive");
    const auto done = receiving->wait(kPatience);
    check(done.ok() && *done, "the receiver's wait");
    const auto wanted = way == Way::kOnePass ? exchange::Path::kDevice : exchange::Path::kRing;
    if (receiving->path() != wanted) {
      give(1, std::string("the message went by ") + exchange::pathName(receiving->path()));
    }
  }

  void sendPacked(const Rows& rows) {
    auto parcel = exchange_->reserve(1, static_cast<std::size_t>(rows.count * rows.length),
                                     exchange::Memory::kDevice);
    check(parcel.ok(), "reserve");
    const adsmType_t type = typeOf(rows, rows.fromStride);
    adsmPackEvent_t event = nullptr;
    adsmPackOptions_t options = {};
    options.size = sizeof options;
    options.event = &event;
    check(adsmPackWith(parcel->data(), memory_, 1, type, &options), "adsmPackWith");
    check(adsmPackWait(event), "adsmPackWait");
    Description description;
    parcel->describe(description);
    tell(description);
  }
  void receivePacked(const Rows& rows) {
    const auto delivery = exchange_->collect(0, told());
    check(delivery.ok(), "collect");
    const adsmType_t type = typeOf(rows, rows.toStride);
    adsmPackEvent_t event = nullptr;
    adsmPackOptions_t options = {};
    options.size = sizeof options;
    options.event = &event;
    check(adsmUnpackWith(memory_, delivery->data(), 1, type, &options), "adsmUnpackWith");
    check(adsmPackWait(event), "adsmPackWait");
  }
  adsmType_t typeOf(const Rows& rows, int64_t stride) {
    adsmType_t& type = types_[{rows.length, stride}];
    if (type == nullptr) type = rows.type(stride);
    return type;
  }

  const int rank_;
  const int other_;
  const int64_t bytes_;
  std::unique_ptr<Exchange> exchange_;
  std::byte* memory_ = nullptr;
  exchange::ExportId exported_{0};
  std::map<std::pair<int64_t, int64_t>, adsmType_t> types_;
};

void run(int rank, int other, const std::string& key, int64_t bytes, std::size_t rounds) {
  End end(rank, other, key, bytes);
  std::vector<Rows> all = {{1, bytes, bytes, bytes}};
  for (const int64_t length : {8, 16, 32, 64, 128, 256, 512, 1024}) {
    all.push_back({bytes / length, length, 2 * length, length + 16});
  }
  if (rank == 0) {
    std::printf("%-20s %10s %10s %10s %16s\n", "GB/s of payload", "outbox", "one pass", "ring",
                "outbox/one pass");
  }
  for (const Rows& rows : all) {
    for (const Way way : {Way::kOnePass, Way::kOutbox, Way::kRing}) {
      if (rank == 1) end.clear();
      (void)end.message(rows, way);
      if (rank == 1 && !end.right(rows)) give(1, rows.name() + ": wrong bytes");
    }
    const Interleaved turns(
        kWays, rounds, [&](std::size_t way) { return end.message(rows, static_cast<Way>(way)); });
    if (rank == 0) {
      const auto rate = [&](Way way) {
        return static_cast<double>(rows.count * rows.length) /
               turns.seconds(static_cast<std::size_t>(way)) / 1e9;
      };
      std::printf("%-20s %10.2f %10.2f %10.2f %16.2f\n", rows.name().c_str(), rate(Way::kOutbox),
                  rate(Way::kOnePass), rate(Way::kRing), turns.ratio(0, 1));
      std::fflush(stdout);
    }
  }
  // Nobody's memory goes while the other uses it.
  end.say();
  end.hear();
}

int start(int argc, char** argv) {
  CLI::App app("messages from device memory to device memory between two processes");
  int64_t kibibytes = 65536;
  std::size_t rounds = 11;
  app.add_option("--kib", kibibytes, "payload, KiB")->check(CLI::Range(1, 1 << 20));
  app.add_option("--rounds", rounds, "rounds, of which the median counts")
      ->check(CLI::Range(1, 999));
  CLI11_PARSE(app, argc, argv);
  std::array<int, 2> sockets{};
  check(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, sockets.data()) == 0, "socketpair");
  const std::string key = "device_messages." + std::to_string(::getpid());
  // Before either has a runtime: each makes its own.
  const pid_t child = ::fork();
  check(child >= 0, "fork");
  const int rank = child == 0 ? 1 : 0;
  ::close(sockets[static_cast<std::size_t>(1 - rank)]);
  run(rank, sockets[static_cast<std::size_t>(rank)], key, kibibytes << 10, rounds);
  if (rank == 1) {
    return 0;
  }
  int status = 0;
  check(::waitpid(child, &status, 0) == child, "waitpid");
  return WIFEXITED(status) ? WEXITSTATUS(status) : 1;
}

}  // namespace
}  // namespace gmac::bench

int main(int argc, char** argv) { return gmac::bench::start(argc, argv); }
