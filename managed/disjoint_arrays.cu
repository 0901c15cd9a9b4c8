// SPDX-License-Identifier: Apache-2.0
//
// Arrays of all sizes, kernels of several streams, and the CPU, at random: each array is used by
// one of them at a time, or read by several, and different ones are used at once. The program waits
// for a stream before it touches what that stream's kernels use, and for nothing else. Kernels get
// their arrays as arguments, in structures, by a choice, or out of a table in managed memory.
// Everything that the CPU reads is compared with plain memory that has gone through the same.
// Result: the arrays that are left.
#include <algorithm>
#include <array>
#include <memory>
#include <optional>

#include "managed/program.h"

namespace {

using namespace managed;
using Word = std::uint32_t;

constexpr int kStreams = 5;  // the last is the default stream
constexpr std::size_t kMostArrays = 12;
constexpr unsigned kThreads = 128;

// Lets a kernel last.
__device__ void waste(unsigned turns) {
  for (unsigned turn = 0; turn < turns; ++turn) __nanosleep(1000);
}
__device__ std::size_t first() { return std::size_t{blockIdx.x} * blockDim.x + threadIdx.x; }
__device__ std::size_t step() { return std::size_t{gridDim.x} * blockDim.x; }

__global__ void scale(Word* data, std::size_t count, Word key, unsigned turns) {
  waste(turns);
  for (std::size_t i = first(); i < count; i += step()) data[i] = data[i] * 3 + key;
}
__global__ void gather(Word* data, const Word* from, std::size_t count, std::size_t size, Word key,
                       unsigned turns) {
  waste(turns);
  for (std::size_t i = first(); i < count; i += step()) data[i] += from[i * key % size];
}
struct Pair {
  Word* data;
  std::size_t count;
  const Word* from;
  std::size_t size;
};
__global__ void blend(Pair pair, Word key) {
  for (std::size_t i = first(); i < pair.count; i += step()) {
    pair.data[i] ^= pair.from[i % pair.size] + key;
  }
}
__global__ void addToOne(Word* one, Word* other, bool which, std::size_t count, Word key) {
  Word* const data = which ? one : other;
  for (std::size_t i = first(); i < count; i += step()) data[i] += key;
}
__global__ void addByTable(Word* const* table, std::size_t count, Word key) {
  Word* const data = table[0];
  for (std::size_t i = first(); i < count; i += step()) data[i] += key;
}

struct Shared {
  explicit Shared(std::size_t count) : array(count), plain(count) {}
  Array<Word> array;
  std::vector<Word> plain;
  int writer = -1;       // the stream whose kernels may write it; -1: none
  unsigned readers = 0;  // a bit for each stream
};

class Program {
 public:
  explicit Program(std::uint64_t steps) : steps_(steps), table_(1) {
    for (int i = 0; i + 1 < kStreams; ++i) {
      check(cudaStreamCreateWithFlags(&streams_[i], cudaStreamNonBlocking), "cudaStreamCreate");
    }
  }
  std::string run(Outcome& outcome) {
    for (std::uint64_t step = 0; step < steps_ && wrong_.empty(); ++step) one();
    for (int stream = 0; stream < kStreams; ++stream) wait(stream);
    for (const auto& shared : arrays_) {
      compare(*shared, 0, shared->plain.size());
      append(outcome.result, shared->array.data(), shared->array.bytes());
      shared->array.free();
    }
    for (int i = 0; i + 1 < kStreams; ++i) {
      check(cudaStreamDestroy(streams_[i]), "cudaStreamDestroy");
    }
    table_.free();
    return wrong_;
  }

 private:
  std::size_t upTo(std::size_t most) { return randomWord(++numbers_) % (most + 1); }
  void wait(int stream) {
    check(cudaStreamSynchronize(streams_[stream]), "cudaStreamSynchronize");
    for (const auto& shared : arrays_) {
      shared->writer = shared->writer == stream ? -1 : shared->writer;
      shared->readers &= ~(1U << stream);
    }
  }
  void waitForWriter(const Shared& shared, int but = -1) {
    if (shared.writer >= 0 && shared.writer != but) wait(shared.writer);
  }
  void waitForReaders(const Shared& shared, int but = -1) {
    for (int stream = 0; stream < kStreams; ++stream) {
      if (stream != but && (shared.readers >> stream & 1) != 0) wait(stream);
    }
  }
  Word* written(Shared& shared, int stream) {
    waitForWriter(shared, stream);
    waitForReaders(shared, stream);
    shared.writer = stream;
    return shared.array.data();
  }
  const Word* read(Shared& shared, int stream) {
    waitForWriter(shared, stream);
    shared.readers |= 1U << stream;
    return shared.array.data();
  }
  void compare(const Shared& shared, std::size_t at, std::size_t count) {
    if (wrong_.empty()) {
      wrong_ = firstDifference("word", shared.array.data() + at, shared.plain.data() + at, count);
    }
  }

  void one() {
    const std::size_t kind = upTo(99);
    if (arrays_.size() < 3 || (kind < 3 && arrays_.size() < kMostArrays)) return allocate();
    Shared& shared = *arrays_[upTo(arrays_.size() - 1)];
    Shared& other = *arrays_[upTo(arrays_.size() - 1)];
    std::vector<Word>& plain = shared.plain;
    const std::size_t count = plain.size();
    const int stream = static_cast<int>(upTo(kStreams - 1));
    const auto key = static_cast<Word>(upTo(1000));
    const auto turns = static_cast<unsigned>(upTo(9) == 0 ? upTo(200) : 0);
    const dim3 blocks(static_cast<unsigned>(1 + upTo(30)));
    if (kind < 5) {
      free(shared);
    } else if (kind < 25) {
      Word* const data = written(shared, stream);
      scale<<<blocks, kThreads, 0, streams_[stream]>>>(data, count, key, turns);
      for (Word& word : plain) word = word * 3 + key;
    } else if (kind < 50) {
      if (&shared == &other) return;
      const Word* const from = read(other, stream);
      Word* const data = written(shared, stream);
      const std::size_t size = other.plain.size();
      if (kind < 38) {
        gather<<<blocks, kThreads, 0, streams_[stream]>>>(data, from, count, size, key, turns);
        for (std::size_t i = 0; i < count; ++i) plain[i] += other.plain[i * key % size];
      } else {
        blend<<<blocks, kThreads, 0, streams_[stream]>>>({data, count, from, size}, key);
        for (std::size_t i = 0; i < count; ++i) plain[i] ^= other.plain[i % size] + key;
      }
    } else if (kind < 56) {
      if (&shared == &other) return;
      Shared& changed = key % 2 == 0 ? shared : other;
      const std::size_t some = std::min<std::size_t>(changed.plain.size(), 1000);
      Word* const data = written(shared, stream);
      addToOne<<<1, kThreads, 0, streams_[stream]>>>(data, written(other, stream), key % 2 == 0,
                                                     some, key);
      for (std::size_t i = 0; i < some; ++i) changed.plain[i] += key;
    } else if (kind < 59) {
      table_[0] = written(shared, stream);
      addByTable<<<blocks, kThreads, 0, streams_[stream]>>>(table_.data(), count, key);
      for (Word& word : plain) word += key;
      wait(stream);
    } else if (kind < 62) {
      Word* const data = written(shared, stream);
      check(cudaMemsetAsync(data, static_cast<int>(key), count * sizeof(Word), streams_[stream]),
            "cudaMemsetAsync");
      std::fill(plain.begin(), plain.end(), (key & 0xFF) * 0x01010101U);
    } else if (kind < 65) {
      wait(stream);
    } else {
      const std::size_t at = upTo(count - 1);
      const std::size_t some =
          1 + upTo(std::min<std::size_t>(count - at, upTo(3) != 0 ? 50 : count) - 1);
      waitForWriter(shared);
      if (kind < 88) compare(shared, at, some);
      if (kind < 78) return;
      waitForReaders(shared);
      for (std::size_t i = at; i < at + some; ++i) {
        shared.array[i] = plain[i] = static_cast<Word>(randomWord(++numbers_));
      }
    }
    check(cudaGetLastError(), "launch");
  }

  void allocate() {
    arrays_.push_back(std::make_unique<Shared>(1 + (randomWord(++numbers_) >> (44 + upTo(17)))));
    Shared& shared = *arrays_.back();
    for (std::size_t i = 0; i < shared.plain.size(); ++i) {
      shared.array[i] = shared.plain[i] = static_cast<Word>(i * 7 + numbers_);
    }
  }
  void free(Shared& shared) {
    waitForWriter(shared);
    waitForReaders(shared);
    shared.array.free();
    arrays_.erase(std::find_if(arrays_.begin(), arrays_.end(),
                               [&](const auto& one) { return one.get() == &shared; }));
  }

  const std::uint64_t steps_;
  std::uint64_t numbers_ = 0;
  std::array<cudaStream_t, kStreams> streams_{};
  std::vector<std::unique_ptr<Shared>> arrays_;
  Array<Word*> table_;
  std::string wrong_;
};

Outcome useArrays(const Request& request) {
  Outcome outcome;
  const Clock clock;
  outcome.wrong = Program(bySize<std::uint64_t>(request.size, 2'000, 20'000, 60'000)).run(outcome);
  outcome.seconds = clock.seconds();
  return outcome;
}

}  // namespace

int main(int argc, char** argv) { return runProgram(argc, argv, "disjoint_arrays", useArrays); }
