// SPDX-License-Identifier: Apache-2.0
//
// Partitioned messages: the payload is in private memory from MPI_Psend_init or MPI_Precv_init to
// MPI_Request_free. A partition is packed when it is marked ready, and unpacked when MPI says that
// it has arrived, or the message is complete.
//
// Threads may mark different partitions, and ask for them, while another one completes the request.
// As a completing call takes it out of the table of requests meanwhile, they find it in one of its
// own.
#include <atomic>
#include <climits>
#include <cstdint>
#include <memory>
#include <mutex>
#include <shared_mutex>
#include <string>
#include <unordered_map>
#include <utility>

#include "mpi/abi/errors.h"
#include "mpi/abi/handle.h"
#include "mpi/abi/hooks.h"
#include "mpi/abi/memory.h"
#include "mpi/abi/messages.h"

namespace gmac::mpi::GMAC_MPI_ABI {
namespace {

// Thread-safe, but for prepare() and what completes the request.
class Partitioned : public Pending {
 public:
  explicit Partitioned(bool isSent) : isSent_(isSent) {}
  ~Partitioned() override;

  // Of `partitions` times `count` elements (1 or more).
  Ready prepare(void* buffer, int partitions, MPI_Count count, MPI_Datatype datatype) {
    Ready ready = whole_.prepare(buffer, partitions * count, datatype);
    MPI_Count lowerBound = 0;
    MPI_Count extent = 0;
    if (ready == Ready::kYes &&
        real().Type_get_extent_x(datatype, &lowerBound, &extent) != MPI_SUCCESS) {
      return Ready::kLetMpiRefuse;
    }
    parts_ = std::make_unique<Part[]>(static_cast<std::size_t>(partitions));
    count_ = partitions;
    for (int i = 0; i < partitions && ready == Ready::kYes; ++i) {
      ready = parts_[i].elements.prepare(buffer, count, datatype, i * count * extent);
      reason_ = parts_[i].elements.reason();
    }
    return ready;
  }
  void* address() const { return whole_.address(); }
  MPI_Datatype datatype() const { return whole_.datatype(); }

  // Every partition begins again.
  bool pack() override {
    for (int i = 0; i < count_; ++i) {
      const std::lock_guard guard(parts_[i].lock);
      parts_[i].arrived = false;
    }
    return true;
  }
  // Before MPI is told that a partition is ready. Why it is not; empty: it is.
  std::string makeReady(int partition) {
    if (!isSent_ || partition < 0 || partition >= count_) return "";  // MPI says so
    Part& part = parts_[partition];
    const std::lock_guard guard(part.lock);
    return part.elements.pack(payloadOf(partition)) ? "" : part.elements.reason();
  }
  // MPI says that it has arrived. Whoever is told so by another thread finds it in the buffer.
  std::string receive(int partition) {
    if (isSent_ || partition < 0 || partition >= count_) return "";
    Part& part = parts_[partition];
    const std::lock_guard guard(part.lock);
    if (std::exchange(part.arrived, true)) return "";
    return part.elements.unpack(payloadOf(partition), part.elements.bytes())
               ? ""
               : part.elements.reason();
  }
  bool deliver(const MPI_Status&) override {
    reason_.clear();
    for (int i = 0; i < count_; ++i) {
      std::string failure = receive(i);
      if (!failure.empty()) reason_ = std::move(failure);
    }
    return reason_.empty();
  }
  const std::string& reason() const override { return reason_.empty() ? whole_.reason() : reason_; }

  std::uint64_t key = 0;  // in the table below; 0: not there

 private:
  struct Part {
    std::mutex lock;  // guards what follows
    Elements elements;
    bool arrived = false;  // and is unpacked
  };
  std::byte* payloadOf(int partition) {
    return static_cast<std::byte*>(whole_.address()) +
           partition * parts_[partition].elements.bytes();
  }

  const bool isSent_;
  Staged whole_;
  std::unique_ptr<Part[]> parts_;
  int count_ = 0;
  std::string reason_;
};

struct Entry {
  const Partitioned* of;
  std::weak_ptr<Partitioned> message;
};
struct Table {
  std::shared_mutex lock;
  std::unordered_map<std::uint64_t, Entry> entries;
  std::atomic<std::size_t> count{0};
};
Table& table() {
  static auto* const table = new Table;  // also for exit handlers
  return *table;
}

void add(MPI_Request request, const std::shared_ptr<Partitioned>& message) {
  message->key = keyOf(request);
  Table& all = table();
  const std::lock_guard guard(all.lock);
  all.entries[message->key] = {message.get(), message};
  all.count.store(all.entries.size(), std::memory_order_release);
}

// NULL: it is MPI's alone.
std::shared_ptr<Partitioned> find(MPI_Request request) {
  Table& all = table();
  if (all.count.load(std::memory_order_acquire) == 0) return nullptr;
  const std::shared_lock guard(all.lock);
  const auto found = all.entries.find(keyOf(request));
  return found != all.entries.end() ? found->second.message.lock() : nullptr;
}

Partitioned::~Partitioned() {
  Table& all = table();
  const std::lock_guard guard(all.lock);
  const auto found = all.entries.find(key);
  // (MPI may have given the handle to another one.)
  if (found != all.entries.end() && found->second.of == this) {
    all.entries.erase(found);
    all.count.store(all.entries.size(), std::memory_order_release);
  }
}

// Psend_init, Precv_init.
template <Layer layer, auto call, bool sends, typename Buffer>
int make(Buffer* buffer, int partitions, MPI_Count count, MPI_Datatype datatype, int peer, int tag,
         MPI_Comm communicator, MPI_Info info, MPI_Request* request) {
  const auto function = next<layer>().*call;
  const auto forward = [&] {
    return function(buffer, partitions, count, datatype, peer, tag, communicator, info, request);
  };
  if (partitions <= 0 || count <= 0 || count > PTRDIFF_MAX / partitions || peer == MPI_PROC_NULL ||
      !needsStaging(buffer, partitions * count, datatype)) {
    return forward();
  }
  const auto message = std::make_shared<Partitioned>(sends);
  const Ready ready = message->prepare(const_cast<void*>(static_cast<const void*>(buffer)),
                                       partitions, count, datatype);
  if (ready != Ready::kYes) {
    return ready == Ready::kLetMpiRefuse ? forward()
                                         : refuse(communicator, kName<call>, message->reason());
  }
  requests::keepOrphans(false);
  const int code = function(message->address(), partitions, count, message->datatype(), peer, tag,
                            communicator, info, request);
  if (code == MPI_SUCCESS) {
    add(*request, message);
    enter(Begins::kByStart, message, *request);
  }
  return code;
}

// Packs the partitions that `partitionAt(0)` to (count - 1) name, then tells MPI. Of none, when one
// fails.
template <auto call, typename PartitionAt, typename Tell>
int makeReady(MPI_Request request, int count, const PartitionAt& partitionAt, const Tell& tell) {
  if (const auto message = find(request)) {
    for (int i = 0; i < count; ++i) {
      const std::string failure = message->makeReady(partitionAt(i));
      if (!failure.empty()) return refuse(MPI_COMM_WORLD, kName<call>, failure);
    }
  }
  return tell();
}

template <Layer layer>
int ready(int partition, MPI_Request request) {
  return makeReady<&Calls::Pready>(
      request, 1, [&](int) { return partition; },
      [&] { return next<layer>().Pready(partition, request); });
}

template <Layer layer>
int readyRange(int low, int high, MPI_Request request) {
  return makeReady<&Calls::Pready_range>(
      request, 0 <= low && low <= high && high < INT_MAX ? high - low + 1 : 0,
      [&](int i) { return low + i; },
      [&] { return next<layer>().Pready_range(low, high, request); });
}

// (MPICH 4.0 leaves out a const.)
template <Layer layer, typename Partition>
int readyList(int length, Partition* partitions, MPI_Request request) {
  return makeReady<&Calls::Pready_list>(
      request, partitions != nullptr ? length : 0, [&](int i) { return partitions[i]; },
      [&] { return next<layer>().Pready_list(length, partitions, request); });
}

template <Layer layer>
int arrived(MPI_Request request, int partition, int* flag) {
  const int code = next<layer>().Parrived(request, partition, flag);
  if (code != MPI_SUCCESS || *flag == 0) return code;
  const auto message = find(request);
  // (All partitions of an inactive request have arrived.)
  const std::string failure =
      message != nullptr && message->active ? message->receive(partition) : "";
  return failure.empty() ? code : refuse(MPI_COMM_WORLD, kName<&Calls::Parrived>, failure);
}

}  // namespace

std::span<const Hook> partitionedHooks() {
  static const Hook hooks[] = {
      GMAC_MPI_HOOK(Psend_init, make, &Calls::Psend_init, true),
      GMAC_MPI_HOOK(Precv_init, make, &Calls::Precv_init, false),
      GMAC_MPI_HOOK(Pready, ready),
      GMAC_MPI_HOOK(Pready_range, readyRange),
      GMAC_MPI_HOOK(Pready_list, readyList),
      GMAC_MPI_HOOK(Parrived, arrived),
  };
  // An MPI of version 3 need not have them.
  return real().Psend_init != nullptr ? std::span<const Hook>(hooks) : std::span<const Hook>();
}

}  // namespace gmac::mpi::GMAC_MPI_ABI
