// SPDX-License-Identifier: Apache-2.0
#include <array>
#include <cstring>
#include <memory>

#include "tests/mpi/random_run.h"

namespace gmac::testing {
namespace {

// MPICH 4.0 returns from MPI_Win_flush_local before all that is fetched is there.
// Open MPI 4.1 crashes in MPI_Compare_and_swap with memory that the processes do not share; and
// what MPI_Get_accumulate fetches from the application's memory is not that, or comes too late.
#ifdef MPICH
constexpr bool kFlushesLocally = false;
constexpr bool kCompares = true;
#else
constexpr bool kFlushesLocally = true;
constexpr bool kCompares = false;
#endif

enum class Place { kProcessesShare, kMpis, kApplications };
enum class Epoch { kFence, kStart, kLock, kLockAll };
enum class Kind { kPut, kGet, kAccumulate, kGetAccumulate, kFetchAndOp, kCompareAndSwap };

// One operation on a part of the target's window that no other one uses.
struct OneSided {
  Kind kind = Kind::kPut;
  MPI_Datatype type = MPI_BYTE;  // of the elements here; in the window they are dense
  int count = 1;
  int elements = 1;  // of the base type
  MPI_Op op = MPI_SUM;
  bool partial = false;  // a MPI_Get that fills its buffer in part
  bool asks = false;     // makes a request, where there are any
  MPI_Aint place = 0;
  std::unique_ptr<Buffer> origin;
  std::unique_ptr<Buffer> compared;
  std::unique_ptr<Buffer> result;

  int begin(MPI_Datatype base, int target, MPI_Win window, MPI_Request* request) const {
    const void* const from = origin->address();
    void* const to = result->address();
    const int fetched = partial ? elements / 2 : elements;
    switch (kind) {
      case Kind::kPut:
        return request != nullptr
                   ? MPI_Rput(from, count, type, target, place, elements, base, window, request)
                   : MPI_Put(from, count, type, target, place, elements, base, window);
      case Kind::kGet:
        return request != nullptr
                   ? MPI_Rget(to, count, type, target, place, fetched, base, window, request)
                   : MPI_Get(to, count, type, target, place, fetched, base, window);
      case Kind::kAccumulate:
        return request != nullptr
                   ? MPI_Raccumulate(from, count, type, target, place, elements, base, op, window,
                                     request)
                   : MPI_Accumulate(from, count, type, target, place, elements, base, op, window);
      case Kind::kGetAccumulate:
        return request != nullptr ? MPI_Rget_accumulate(from, count, type, to, count, type, target,
                                                        place, elements, base, op, window, request)
                                  : MPI_Get_accumulate(from, count, type, to, count, type, target,
                                                       place, elements, base, op, window);
      case Kind::kFetchAndOp:
        return MPI_Fetch_and_op(from, to, base, target, place, op, window);
      case Kind::kCompareAndSwap:
        return MPI_Compare_and_swap(from, compared->address(), to, base, target, place, window);
    }
    return MPI_ERR_OTHER;
  }
};

// One over memory of the program's kind, or of MPI's.
class Window {
 public:
  Window(Run& run, Place place, int bytes) {
    if (place == Place::kApplications) {
      own_ = std::make_unique<Memory>(run.kind, static_cast<std::size_t>(bytes));
      memory_ = own_->data();
      code_ = MPI_Win_create(own_->address(), bytes, 1, MPI_INFO_NULL, run.comm, &window_);
    } else {
      code_ = (place == Place::kMpis ? MPI_Win_allocate : MPI_Win_allocate_shared)(
          bytes, 1, MPI_INFO_NULL, run.comm, static_cast<void*>(&memory_), &window_);
    }
    if (code_ == MPI_SUCCESS) MPI_Win_set_errhandler(window_, MPI_ERRORS_RETURN);
  }
  ~Window() {
    if (code_ == MPI_SUCCESS) MPI_Win_free(&window_);
  }
  Window(const Window&) = delete;
  Window& operator=(const Window&) = delete;

  // MPI's answer; without success there is no window, on any rank.
  int code() const { return code_; }
  MPI_Win get() const { return window_; }
  unsigned char* memory() const { return memory_; }
  // A kernel flips all bytes, where they are not MPI's.
  void flip() const {
    if (own_ != nullptr) own_->flip();
  }

 private:
  std::unique_ptr<Memory> own_;
  unsigned char* memory_ = nullptr;
  MPI_Win window_ = MPI_WIN_NULL;
  int code_ = MPI_SUCCESS;
};

void fillWindow(Run& run, const Window& window, int bytes, bool flips) {
  Rng values(static_cast<std::uint64_t>(run.rank) * 77 + run.steps.size());
  MPI_Win_lock(MPI_LOCK_EXCLUSIVE, run.rank, 0, window.get());
  for (int i = 0; i < bytes; ++i) window.memory()[i] = static_cast<unsigned char>(values());
  if (flips) window.flip();
  MPI_Win_unlock(run.rank, window.get());
  MPI_Barrier(run.comm);
}

}  // namespace

void oneSided(Run& run) {
  Types types;
  const std::array<MPI_Datatype, 3> bases = {MPI_INT, MPI_LONG, MPI_UNSIGNED_CHAR};
  const auto epoch = static_cast<Epoch>(draw(run.rng, 0, 3));
  const bool passive = epoch == Epoch::kLock || epoch == Epoch::kLockAll;
  const int flush = passive ? draw(run.rng, 0, 4) : 0;
  const MPI_Datatype base = bases[static_cast<std::size_t>(draw(run.rng, 0, 2))];
  const auto place = static_cast<Place>(draw(run.rng, 0, 2));
  const bool flips = draw(run.rng, 0, 1) == 0;
  // Bytes are neither fetched one at a time nor compared.
  const int mostKind = sizeOf(base) == 1 ? 3 : place == Place::kProcessesShare || kCompares ? 5 : 4;
  int bytes = 0;
  std::vector<OneSided> operations;
  for (int i = draw(run.rng, 1, 4); i > 0; --i) {
    OneSided one;
    one.kind = static_cast<Kind>(draw(run.rng, 0, mostKind));
    if (!kCompares && place == Place::kApplications && one.kind == Kind::kGetAccumulate) {
      one.kind = Kind::kGet;
    }
    one.type = base;
    if (one.kind < Kind::kFetchAndOp) {
      one.partial = one.kind == Kind::kGet && draw(run.rng, 0, 3) == 0;
      // (MPICH 4.0 fills the rest of a buffer without gaps.)
      one.type =
          one.partial ? types.spread(draw(run.rng, 2, 50), base) : types.derived(run.rng, base, 2);
      one.count = drawCount(run.rng, one.type);
      one.elements = one.count * sizeOf(one.type) / sizeOf(base);
      one.asks = passive && draw(run.rng, 0, 1) == 0;
    }
    const bool fetches = one.kind == Kind::kGetAccumulate || one.kind == Kind::kFetchAndOp;
    constexpr int kOps = 4;
    const std::array<MPI_Op, kOps> ops = {MPI_SUM, MPI_BXOR, MPI_REPLACE, MPI_NO_OP};
    one.op = ops[static_cast<std::size_t>(draw(run.rng, 0, fetches ? kOps - 1 : kOps - 2))];
    one.place = bytes;
    bytes += (one.elements * sizeOf(base) + 15) / 16 * 16;
    for (std::unique_ptr<Buffer>* const buffer : {&one.origin, &one.compared, &one.result}) {
      *buffer = std::make_unique<Buffer>(run, one.type, one.count, Buffer::drawPast(run.rng));
    }
    operations.push_back(std::move(one));
  }
  // The last bytes are its owner's.
  constexpr int kOwned = 16;
  bytes += kOwned;
  const Window windowed(run, place, bytes);
  run.noteResult("window", windowed.code());
  run.judge(windowed.code(), true);
  if (windowed.code() != MPI_SUCCESS) return;
  const MPI_Win window = windowed.get();
  unsigned char* const memory = windowed.memory();
  fillWindow(run, windowed, bytes, flips);
  const int target = (run.rank + 1) % run.size;
  const int origin = (run.rank + run.size - 1) % run.size;
  MPI_Group all;
  MPI_Group to;
  MPI_Group from;
  MPI_Comm_group(run.comm, &all);
  MPI_Group_incl(all, 1, &target, &to);
  MPI_Group_incl(all, 1, &origin, &from);
  if (epoch == Epoch::kFence) MPI_Win_fence(0, window);
  if (epoch == Epoch::kStart) {
    MPI_Win_post(from, 0, window);
    MPI_Win_start(to, 0, window);
  }
  if (epoch == Epoch::kLock) MPI_Win_lock(MPI_LOCK_SHARED, target, 0, window);
  if (epoch == Epoch::kLockAll) MPI_Win_lock_all(0, window);

  run.note("epoch " + std::to_string(static_cast<int>(epoch)) + " flush " + std::to_string(flush) +
           " element " + std::to_string(sizeOf(base)));
  for (int i = bytes - kOwned; i < bytes; ++i) memory[i] ^= 3;
  std::vector<MPI_Request> requests;
  for (const OneSided& one : operations) {
    MPI_Request request = MPI_REQUEST_NULL;
    const int code = one.begin(base, target, window, one.asks ? &request : nullptr);
    run.noteResult(("operation " + std::to_string(static_cast<int>(one.kind)) + " of " +
                    std::to_string(one.elements))
                       .c_str(),
                   code);
    run.judge(code, true);
    if (one.asks) requests.push_back(request);
  }
  if (draw(run.rng, 0, 1) == 0) {
    MPI_Waitall(static_cast<int>(requests.size()), requests.data(), MPI_STATUSES_IGNORE);
    requests.clear();
  }
  if (flush == 1) MPI_Win_flush(target, window);
  if (flush == 2) MPI_Win_flush_all(window);
  if (flush == 3) MPI_Win_flush_local(target, window);
  if (flush == 4) MPI_Win_flush_local_all(window);
  if (flush == 1 || flush == 2 || (flush != 0 && kFlushesLocally)) {
    // The fetched bytes are there, and nothing undoes the CPU's writes from now on.
    for (const OneSided& one : operations) {
      if (one.asks && !requests.empty()) continue;
      one.result->noteBytes(run, "flushed");
      one.result->undergo(2);
    }
  }
  MPI_Waitall(static_cast<int>(requests.size()), requests.data(), MPI_STATUSES_IGNORE);
  if (epoch == Epoch::kFence) MPI_Win_fence(0, window);
  if (epoch == Epoch::kStart) {
    MPI_Win_complete(window);
    MPI_Win_wait(window);
  }
  if (epoch == Epoch::kLock) MPI_Win_unlock(target, window);
  if (epoch == Epoch::kLockAll) MPI_Win_unlock_all(window);

  for (const OneSided& one : operations) {
    one.origin->noteBytes(run, "origin");
    one.result->noteBytes(run, "result");
  }
  MPI_Barrier(run.comm);
  MPI_Win_lock(MPI_LOCK_EXCLUSIVE, run.rank, 0, window);
  run.note("window: " +
           std::string(reinterpret_cast<char*>(memory), static_cast<std::size_t>(bytes)));
  MPI_Win_unlock(run.rank, window);
  for (MPI_Group* const group : {&all, &to, &from}) MPI_Group_free(group);
}

}  // namespace gmac::testing
