// SPDX-License-Identifier: Apache-2.0
#include "exchange/bench/pair.h"

#include <fmt/core.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <deque>
#include <stdexcept>
#include <utility>

#include "bench/median.h"
#include "exchange/bench/exchange_calls.h"
#include "exchange/bench/mpi_layouts.h"
#include "exchange/bench/mpi_types.h"
#include "gmac/datatype/cpu/cpu_engine.h"
#include "gmac/datatype/cpu/transfer.h"

namespace gmac::exchange::bench {
namespace {

using Clock = std::chrono::steady_clock;
using Description = std::array<std::byte, kDescriptionBytes>;

constexpr std::int64_t kBytesOfATurn = std::int64_t{8} << 20;

double secondsSince(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

// To its end.
template <typename Message>
void finish(Message& message, const char* what) {
  Spin spin;
  while (!valueOf(message.advance(), what)) {
    spin.idled();
  }
}

std::byte valueAt(std::int64_t packed, int sender) {
  return static_cast<std::byte>(packed * 7 + packed / 251 + sender * 101 + 1);
}

}  // namespace

const char* wayName(Way way) {
  switch (way) {
    case Way::kContiguous:
      return "in one";
    case Way::kMpi:
      return "MPI";
    case Way::kByHand:
      return "by hand";
    case Way::kChosen:
      return "chosen";
    case Way::kPlain:
      return "plain";
    case Way::kMapped:
      return "mapped";
    case Way::kRead:
      return "read";
    case Way::kRing:
      return "ring";
    case Way::kNaive:
      return "naive";
    case Way::kPipelined:
      return "pipelined";
  }
  return "";
}

Pair::Pair() {
  int size = 0;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank_);
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  if (size != 2) {
    throw std::runtime_error(fmt::format("{} processes; there have to be 2: mpirun -n 2", size));
  }
  exchange_ = openExchange();
}

Pair::~Pair() {
  if (from_ != MPI_DATATYPE_NULL) MPI_Type_free(&from_);
  if (to_ != MPI_DATATYPE_NULL) MPI_Type_free(&to_);
}

std::byte* Pair::packed(std::size_t i) {
  return packed_.data() + i * static_cast<std::size_t>(workload_->from.bytes());
}

void Pair::use(const Workload& workload) {
  if (file_ != kNoExport) {
    (void)valueOf(exchange_->revoke(file_), "the memory file is not revoked");
  }
  if (from_ != MPI_DATATYPE_NULL) MPI_Type_free(&from_);
  if (to_ != MPI_DATATYPE_NULL) MPI_Type_free(&to_);
  workload_ = &workload;
  paths_ = {};
  from_ = typeOf(workload.from);
  to_ = typeOf(workload.to);
  shared_ = shareLayout(workload.from);
  source_ = std::make_unique<MemoryFile>(workload.from.bounds().last);
  target_ = std::make_unique<MemoryFile>(workload.to.bounds().last);
  packed_ = std::vector<std::byte>(static_cast<std::size_t>(workload.from.bytes()));
  workload.from.forEach(0, workload.from.bytes(),
                        [&](std::int64_t offset, std::int64_t packed, std::int64_t bytes) {
                          for (std::int64_t i = 0; i < bytes; ++i) {
                            source_->data()[offset + i] = valueAt(packed + i, rank_);
                          }
                        });
  file_ = valueOf(exchange_->exportFile(source_->file(), 0, source_->bytes()),
                  "the memory file is not exported");
  check(exchange_->offer(file_, 1 - rank_), "the memory file is not offered");
  MPI_Barrier(MPI_COMM_WORLD);
}

Sending Pair::begin(Way way) {
  SendOptions options;
  const bool mapped = way == Way::kMapped || way == Way::kNaive || way == Way::kPipelined;
  if (way == Way::kChosen || mapped) options.file = file_;
  if (mapped) options.path = Path::kMapped;
  if (way == Way::kRead) options.path = Path::kRead;
  if (way == Way::kRing) options.path = Path::kRing;
  if (way == Way::kNaive) options.layouts = LayoutExchange::kNaive;
  if (way == Way::kPipelined) options.layouts = LayoutExchange::kPipelined;
  return valueOf(exchange_->send(1 - rank_, source_->data(), shared_, options), "send");
}

void Pair::send(Way way) {
  const int to = 1 - rank_;
  const auto bytes = static_cast<int>(workload_->from.bytes());
  if (way == Way::kMpi) {
    MPI_Send(source_->data(), 1, from_, to, 0, MPI_COMM_WORLD);
  } else if (way == Way::kByHand || way == Way::kContiguous) {
    if (way == Way::kByHand) {
      datatype::pack(workload_->from, packed(0), source_->data(), 0, bytes);
    }
    MPI_Send(packed(0), bytes, MPI_BYTE, to, 0, MPI_COMM_WORLD);
  } else {
    Sending message = begin(way);
    Description description;
    message.describe(description);
    MPI_Send(description.data(), static_cast<int>(description.size()), MPI_BYTE, to, 0,
             MPI_COMM_WORLD);
    finish(message, "sending");
  }
}

void Pair::receive(Way way) {
  const int from = 1 - rank_;
  const auto bytes = static_cast<int>(workload_->to.bytes());
  if (way == Way::kMpi) {
    MPI_Recv(target_->data(), 1, to_, from, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
  } else if (way == Way::kByHand || way == Way::kContiguous) {
    MPI_Recv(packed(0), bytes, MPI_BYTE, from, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    if (way == Way::kByHand) {
      datatype::unpack(workload_->to, target_->data(), packed(0), 0, bytes);
    }
  } else {
    Description description;
    MPI_Recv(description.data(), static_cast<int>(description.size()), MPI_BYTE, from, 0,
             MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    Receiving message =
        valueOf(exchange_->receive(from, description, target_->data(), workload_->to), "receive");
    finish(message, "receiving");
    paths_[static_cast<std::size_t>(way)] = message.path();
  }
}

// Whether the target has what the other process has sent, and nothing else.
bool Pair::holds() const {
  bool right = true;
  std::int64_t touched = 0;
  workload_->to.forEach(0, workload_->to.bytes(),
                        [&](std::int64_t offset, std::int64_t packed, std::int64_t bytes) {
                          for (std::int64_t i = 0; i < bytes; ++i) {
                            const std::byte value = target_->data()[offset + i];
                            right = right && value == valueAt(packed + i, 1 - rank_);
                            touched += value != MemoryFile::kUntouched ? 1 : 0;
                          }
                        });
  const std::int64_t changed =
      static_cast<std::int64_t>(target_->bytes()) -
      std::count(target_->data(), target_->data() + target_->bytes(), MemoryFile::kUntouched);
  return right && changed == touched;
}

bool Pair::arrives(Way way) {
  // (Bytes in one piece are those that are packed.)
  const Way sent = way == Way::kContiguous ? Way::kByHand : way;
  std::fill(target_->data(), target_->data() + target_->bytes(), MemoryFile::kUntouched);
  MPI_Barrier(MPI_COMM_WORLD);
  if (rank_ == 0) send(sent);
  receive(sent);
  if (rank_ == 1) send(sent);
  return holds();
}

double Pair::seconds(Way way) {
  // The kernel takes long for small pieces.
  const std::int64_t slow = way == Way::kRead ? 4 : 1;
  const auto times = std::clamp<std::int64_t>(
      kBytesOfATurn / slow / std::max<std::int64_t>(workload_->from.bytes(), 1), 2, 100);
  MPI_Barrier(MPI_COMM_WORLD);
  const auto start = Clock::now();
  for (std::int64_t i = 0; i < times; ++i) {
    if (rank_ == 0) send(way);
    receive(way);
    if (rank_ == 1) send(way);
  }
  return secondsSince(start) / static_cast<double>(times) / 2;
}

// ---- Many messages at once.

// One window of the exchange's messages: sent in order, and received in that order.
class Pair::Window {
 public:
  Window(Pair& pair, Way way) : pair_(pair), way_(way) {}

  void run(bool sends, bool receives) {
    std::array<Description, kWindow> told;
    std::array<MPI_Request, 2 * kWindow> requests;
    requests.fill(MPI_REQUEST_NULL);
    const int other = 1 - pair_.rank_;
    const auto bytes = static_cast<int>(kDescriptionBytes);
    for (std::size_t i = 0; receives && i < kWindow; ++i) {
      MPI_Irecv(told[i].data(), bytes, MPI_BYTE, other, 1, MPI_COMM_WORLD, &requests[i]);
    }
    std::array<Description, kWindow> said;
    std::deque<Sending> sent;
    for (std::size_t i = 0; sends && i < kWindow; ++i) {
      sent.push_back(pair_.begin(way_));
      sent.back().describe(said[i]);
      MPI_Isend(said[i].data(), bytes, MPI_BYTE, other, 1, MPI_COMM_WORLD, &requests[kWindow + i]);
    }
    Spin spin;
    std::size_t received = receives ? 0 : kWindow;
    std::optional<Receiving> now;
    while (received < kWindow || !sent.empty()) {
      bool moved = false;
      if (!sent.empty() && valueOf(sent.front().advance(), "sending")) {
        sent.pop_front();
        moved = true;
      }
      if (received < kWindow && !now.has_value()) {
        int there = 0;
        MPI_Test(&requests[received], &there, MPI_STATUS_IGNORE);
        if (there != 0) {
          now = valueOf(pair_.exchange_->receive(other, told[received], pair_.target_->data(),
                                                 pair_.workload_->to),
                        "receive");
          moved = true;
        }
      }
      if (now.has_value() && valueOf(now->advance(), "receiving")) {
        now.reset();
        ++received;
        moved = true;
      }
      moved ? spin.progressed() : spin.idled();
    }
    MPI_Waitall(static_cast<int>(requests.size()), requests.data(), MPI_STATUSES_IGNORE);
  }

 private:
  Pair& pair_;
  const Way way_;
};

void Pair::stream(Way way, bool sends, bool receives) {
  const int other = 1 - rank_;
  const auto bytes = static_cast<int>(workload_->from.bytes());
  if (way != Way::kMpi && way != Way::kByHand && way != Way::kContiguous) {
    Window(*this, way).run(sends, receives);
  } else {
    const bool typed = way == Way::kMpi;
    std::array<MPI_Request, kWindow> in;
    std::array<MPI_Request, kWindow> out;
    in.fill(MPI_REQUEST_NULL);
    out.fill(MPI_REQUEST_NULL);
    for (std::size_t i = 0; receives && i < kWindow; ++i) {
      // (To one place, as OSU's tests do.)
      typed ? MPI_Irecv(target_->data(), 1, to_, other, 1, MPI_COMM_WORLD, &in[i])
            : MPI_Irecv(packed(kWindow + i), bytes, MPI_BYTE, other, 1, MPI_COMM_WORLD, &in[i]);
    }
    for (std::size_t i = 0; sends && i < kWindow; ++i) {
      if (way == Way::kByHand) {
        datatype::pack(workload_->from, packed(i), source_->data(), 0, bytes);
      }
      typed ? MPI_Isend(source_->data(), 1, from_, other, 1, MPI_COMM_WORLD, &out[i])
            : MPI_Isend(packed(i), bytes, MPI_BYTE, other, 1, MPI_COMM_WORLD, &out[i]);
    }
    for (std::size_t i = 0; receives && i < kWindow; ++i) {
      int which = 0;
      MPI_Waitany(kWindow, in.data(), &which, MPI_STATUS_IGNORE);
      if (way == Way::kByHand) {
        datatype::unpack(workload_->to, target_->data(),
                         packed(kWindow + static_cast<std::size_t>(which)), 0, bytes);
      }
    }
    MPI_Waitall(kWindow, out.data(), MPI_STATUSES_IGNORE);
  }
  // The receiver has all.
  char all = 1;
  char got = 0;
  MPI_Sendrecv(&all, 1, MPI_CHAR, other, 2, &got, 1, MPI_CHAR, other, 2, MPI_COMM_WORLD,
               MPI_STATUS_IGNORE);
}

bool Pair::streamArrives(Way way, bool bothWays) {
  packed_.resize(2 * kWindow * static_cast<std::size_t>(workload_->from.bytes()));
  std::fill(target_->data(), target_->data() + target_->bytes(), MemoryFile::kUntouched);
  MPI_Barrier(MPI_COMM_WORLD);
  const bool receives = bothWays || rank_ == 1;
  stream(way == Way::kContiguous ? Way::kByHand : way, bothWays || rank_ == 0, receives);
  return !receives || holds();
}

double Pair::streamSeconds(Way way, bool bothWays) {
  const auto windows =
      std::clamp<std::int64_t>(2 * kBytesOfATurn / static_cast<std::int64_t>(kWindow) /
                                   std::max<std::int64_t>(workload_->from.bytes(), 1),
                               1, 20);
  MPI_Barrier(MPI_COMM_WORLD);
  const auto start = Clock::now();
  for (std::int64_t i = 0; i < windows; ++i) {
    stream(way, bothWays || rank_ == 0, bothWays || rank_ == 1);
  }
  return secondsSince(start) / static_cast<double>(windows) / static_cast<double>(kWindow);
}

// ---- The steps of one.

Steps Pair::steps(std::size_t rounds) {
  constexpr std::size_t kSteps = 4;
  std::array<std::vector<double>, kSteps> seconds;
  std::vector<std::byte> laid(shared_->bytes.size());
  const auto timed = [](const auto& call) {
    const auto start = Clock::now();
    call();
    return secondsSince(start);
  };
  const auto copyFrom = [&](const std::byte* from) {
    datatype::transfer(workload_->to, target_->data(), workload_->from, from, 0,
                       workload_->from.bytes());
  };
  std::uint64_t theirs = static_cast<std::uint64_t>(file_);
  MPI_Bcast(&theirs, 1, MPI_UINT64_T, 0, MPI_COMM_WORLD);
  for (std::size_t round = 0; round < rounds; ++round) {
    ExportId fresh = kNoExport;
    if (rank_ == 0) {
      fresh = valueOf(exchange_->exportFile(source_->file(), 0, source_->bytes()), "exportFile");
      check(exchange_->offer(fresh, 1), "offer");
    }
    auto id = static_cast<std::uint64_t>(fresh);
    MPI_Bcast(&id, 1, MPI_UINT64_T, 0, MPI_COMM_WORLD);
    if (rank_ == 1) {
      // The same pages, which are then in the caches, by addresses that are known.
      const Imported known = valueOf(exchange_->import(0, ExportId{theirs}), "import");
      copyFrom(known.data());
      seconds[0].push_back(timed([&] { (void)layoutOf(from_); }));
      seconds[1].push_back(timed([&] {
        const std::vector<std::byte> bytes = encode(workload_->from);
        const LayoutHash hash = hashOf(bytes);
        std::memcpy(laid.data(), bytes.data(), bytes.size());
        if (hash != shared_->hash) throw std::runtime_error("a layout has two hashes");
        (void)valueOf(decode(laid), "a layout is not read");
      }));
      Imported imported;
      const double importing =
          timed([&] { imported = valueOf(exchange_->import(0, ExportId{id}), "import"); });
      const double first = timed([&] { copyFrom(imported.data()); });
      const double later = timed([&] { copyFrom(imported.data()); });
      seconds[2].push_back(importing + std::max(0.0, first - later));
      seconds[3].push_back(later);
    }
    MPI_Barrier(MPI_COMM_WORLD);
    if (rank_ == 0) (void)valueOf(exchange_->revoke(fresh), "revoke");
    exchange_->sweep();
    MPI_Barrier(MPI_COMM_WORLD);
  }
  std::array<double, kSteps> medians{};
  for (std::size_t i = 0; rank_ == 1 && i < kSteps; ++i) {
    medians[i] = gmac::bench::median(seconds[i]);
  }
  MPI_Bcast(medians.data(), static_cast<int>(kSteps), MPI_DOUBLE, 1, MPI_COMM_WORLD);
  return {medians[0], medians[1], medians[2], medians[3]};
}

}  // namespace gmac::exchange::bench
