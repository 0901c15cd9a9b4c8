// SPDX-License-Identifier: Apache-2.0
//
// A pool of managed memory for each GPU, as array libraries keep one: freed memory is used again on
// the pool's stream without a wait, large pieces are split, neighbours are merged, and now and then
// all that is free goes back to CUDA. Arrays of all pools meet in kernels, ordered by events, and
// the CPU edits some in between. Result: some words of every array that was freed, in order, and
// all arrays of the end.
#include <algorithm>
#include <iterator>
#include <map>
#include <utility>

#include "managed/devices.h"

namespace {

using namespace managed;
using Word = std::uint32_t;

constexpr unsigned kThreads = 256;
constexpr unsigned kOwners = 8;  // the same for any number of devices
constexpr std::size_t kMostArrays = 24;

__host__ __device__ Word mixed(Word word, Word other) {
  word = (word ^ other) * 2246822519U + 7;
  return word ^ (word >> 15);
}

__global__ void fill(Word* data, std::size_t count, Word seed) {
  const std::size_t i = std::size_t{blockIdx.x} * kThreads + threadIdx.x;
  if (i < count) data[i] = mixed(static_cast<Word>(i), seed);
}

__global__ void combine(Word* to, std::size_t count, const Word* from, std::size_t fromCount) {
  const std::size_t i = std::size_t{blockIdx.x} * kThreads + threadIdx.x;
  if (i < count) to[i] = mixed(to[i], from[i % fromCount]);
}

class Pool {
 public:
  explicit Pool(int device) : lane_(device) {}
  ~Pool() {
    for (const auto& [data, piece] : pieces_) {
      if (piece.startsAllocation) (void)cudaFree(data);
    }
  }
  Pool(Pool&&) = default;
  Pool& operator=(Pool&&) = delete;

  const Lane& lane() const { return lane_; }

  // What was freed before may still be in use by earlier work of the lane.
  Word* allocate(std::size_t count) {
    const std::size_t words = (count + kUnit - 1) / kUnit * kUnit;
    auto best = pieces_.end();
    for (auto one = pieces_.begin(); one != pieces_.end(); ++one) {
      if (one->second.free && one->second.words >= words &&
          (best == pieces_.end() || one->second.words < best->second.words)) {
        best = one;
      }
    }
    if (best == pieces_.end()) {
      use(lane_.device());
      Word* data = nullptr;
      check(cudaMallocManaged(reinterpret_cast<void**>(&data), words * sizeof(Word)),
            "cudaMallocManaged");
      pieces_[data] = {words, false, true};
      return data;
    }
    Word* const data = best->first;
    if (best->second.words > words) {
      pieces_[data + words] = {best->second.words - words, true, false};
    }
    best->second = {words, false, best->second.startsAllocation};
    return data;
  }

  // The work that used it has been recorded by `last`.
  void free(Word* data, const Lane& last) {
    lane_.follow(last);
    auto piece = pieces_.find(data);
    piece->second.free = true;
    const auto next = std::next(piece);
    if (next != pieces_.end() && joins(next)) {
      piece->second.words += next->second.words;
      pieces_.erase(next);
    }
    if (piece != pieces_.begin() && joins(piece) && std::prev(piece)->second.free) {
      std::prev(piece)->second.words += piece->second.words;
      pieces_.erase(piece);
    }
  }

  // Gives allocations back of which all is free.
  void trim() {
    lane_.wait();
    for (auto one = pieces_.begin(); one != pieces_.end();) {
      const auto next = std::next(one);
      const bool whole =
          one->second.startsAllocation && (next == pieces_.end() || next->second.startsAllocation);
      if (one->second.free && whole) {
        check(cudaFree(one->first), "cudaFree");
        pieces_.erase(one);
      }
      one = next;
    }
  }

 private:
  static constexpr std::size_t kUnit = 512 / sizeof(Word);
  struct Piece {
    std::size_t words = 0;
    bool free = false;
    bool startsAllocation = false;
  };
  using Pieces = std::map<Word*, Piece>;
  // Whether a free piece belongs to the one before it.
  static bool joins(Pieces::iterator piece) {
    return piece->second.free && !piece->second.startsAllocation;
  }

  Lane lane_;
  Pieces pieces_;
};

// An array of one of the pools, and the lane of its newest work.
struct Pooled {
  Pool* pool;
  Word* data;
  std::size_t count;
  const Lane* last;
};

// The steps' effect on arrays in the pools.
class OnDevices {
 public:
  OnDevices() {
    for (int device = 0; device < deviceCount(); ++device) {
      pools_.emplace_back(device);
      int concurrent = 0;
      check(cudaDeviceGetAttribute(&concurrent, cudaDevAttrConcurrentManagedAccess, device),
            "cudaDeviceGetAttribute");
      concurrent_ = concurrent_ && concurrent != 0;
    }
  }
  ~OnDevices() {
    for (const Pool& pool : pools_) (void)cudaStreamSynchronize(pool.lane().stream());
  }

  void make(std::size_t count, unsigned owner, Word seed) {
    Pool& pool = pools_[owner % pools_.size()];
    arrays_.push_back({&pool, pool.allocate(count), count, &pool.lane()});
    use(pool.lane().device());
    fill<<<blocksFor(count, kThreads), kThreads, 0, pool.lane().stream()>>>(arrays_.back().data,
                                                                            count, seed);
    finish(arrays_.back(), pool.lane());
  }
  void mix(std::size_t to, std::size_t from, unsigned owner) {
    const Lane& lane = pools_[owner % pools_.size()].lane();
    use(lane.device());
    lane.follow(*arrays_[to].last);
    lane.follow(*arrays_[from].last);
    combine<<<blocksFor(arrays_[to].count, kThreads), kThreads, 0, lane.stream()>>>(
        arrays_[to].data, arrays_[to].count, arrays_[from].data, arrays_[from].count);
    finish(arrays_[to], lane);
    arrays_[from].last = &lane;
  }
  void edit(std::size_t which, std::size_t at, Word value) {
    await(arrays_[which]);
    arrays_[which].data[at % arrays_[which].count] ^= value;
  }
  Word read(std::size_t which, std::size_t at) {
    await(arrays_[which]);
    return arrays_[which].data[at % arrays_[which].count];
  }
  void end(std::size_t which) {
    const Pooled ended = arrays_[which];
    arrays_.erase(arrays_.begin() + static_cast<std::ptrdiff_t>(which));
    ended.pool->free(ended.data, *ended.last);
  }
  void trim(unsigned owner) { pools_[owner % pools_.size()].trim(); }
  std::size_t living() const { return arrays_.size(); }
  void appendTo(std::vector<unsigned char>& result) {
    for (const Pooled& one : arrays_) {
      await(one);
      append(result, one.data, one.count * sizeof(Word));
    }
  }

 private:
  static void finish(Pooled& array, const Lane& lane) {
    check(cudaGetLastError(), "launch");
    lane.record();
    array.last = &lane;
  }

  // So that the CPU may use it.
  void await(const Pooled& array) const {
    if (concurrent_) {
      array.last->wait();
      return;
    }
    for (const Pool& pool : pools_) pool.lane().wait();
  }

  bool concurrent_ = true;  // the CPU may use memory while kernels use other memory
  std::vector<Pool> pools_;
  std::vector<Pooled> arrays_;
};

// The same on the CPU.
class OnCpu {
 public:
  void make(std::size_t count, unsigned, Word seed) {
    arrays_.emplace_back(count);
    for (std::size_t i = 0; i < count; ++i) arrays_.back()[i] = mixed(static_cast<Word>(i), seed);
  }
  void mix(std::size_t to, std::size_t from, unsigned) {
    const std::vector<Word> other = arrays_[from];
    for (std::size_t i = 0; i < arrays_[to].size(); ++i) {
      arrays_[to][i] = mixed(arrays_[to][i], other[i % other.size()]);
    }
  }
  void edit(std::size_t which, std::size_t at, Word value) {
    arrays_[which][at % arrays_[which].size()] ^= value;
  }
  Word read(std::size_t which, std::size_t at) {
    return arrays_[which][at % arrays_[which].size()];
  }
  void end(std::size_t which) {
    arrays_.erase(arrays_.begin() + static_cast<std::ptrdiff_t>(which));
  }
  void trim(unsigned) {}
  std::size_t living() const { return arrays_.size(); }
  void appendTo(std::vector<unsigned char>& result) {
    for (const auto& one : arrays_) append(result, one.data(), one.size() * sizeof(Word));
  }

 private:
  std::vector<std::vector<Word>> arrays_;
};

// Random steps, the same for both.
template <typename Machine>
std::vector<unsigned char> step(Machine& machine, unsigned steps, std::size_t most) {
  std::vector<unsigned char> result;
  std::uint64_t number = 0;
  const auto random = [&](std::size_t below) { return randomWord(++number) % below; };
  for (unsigned i = 0; i < steps; ++i) {
    const std::size_t kind = random(16);
    const auto owner = static_cast<unsigned>(random(kOwners));
    const std::size_t living = machine.living();
    if (living < 2 || (kind < 4 && living < kMostArrays)) {
      machine.make(1 + random(random(4) == 0 ? most : most / 50), owner, static_cast<Word>(i));
    } else if (kind < 10) {
      const std::size_t to = random(living);
      machine.mix(to, (to + 1 + random(living - 1)) % living, owner);
    } else if (kind < 12) {
      const std::size_t which = random(living);
      machine.edit(which, random(most), static_cast<Word>(i));
    } else if (kind < 15) {
      const std::size_t which = random(living);
      // Some are freed while kernels use them.
      if (kind < 14) {
        const Word word = machine.read(which, random(most));
        append(result, &word, sizeof word);
      }
      machine.end(which);
    } else {
      machine.trim(owner);
    }
  }
  machine.appendTo(result);
  return result;
}

Outcome run(const Request& request) {
  const unsigned steps = bySize(request.size, 400U, 4000U, 20'000U);
  const std::size_t most = bySize<std::size_t>(request.size, 20'000, 400'000, 2'000'000);
  Outcome outcome;
  const Clock clock;
  {
    OnDevices machine;
    outcome.result = step(machine, steps, most);
  }
  outcome.seconds = clock.seconds();
  outcome.note = std::to_string(deviceCount()) + " devices";

  if (request.check) {
    OnCpu machine;
    const std::vector<unsigned char> wanted = step(machine, steps, most);
    outcome.wrong =
        wanted.size() != outcome.result.size()
            ? "the result has another length"
            : firstDifference("byte", outcome.result.data(), wanted.data(), wanted.size());
  }
  return outcome;
}

}  // namespace

int main(int argc, char** argv) { return runProgram(argc, argv, "devices_pool", run); }
