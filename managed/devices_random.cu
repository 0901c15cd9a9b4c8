// SPDX-License-Identifier: Apache-2.0
//
// Random steps on every GPU: kernels, copies, fills and graphs on streams of all kinds, prefetches
// and advice, allocations and frees, and the CPU in between. Each step waits for what used its
// arrays before, on the GPUs by events alone. Result: a digest of every array that was freed, in
// order, and all arrays of the end. DEVICES_RANDOM_CONCURRENT: the CPU uses arrays while kernels
// use others, whatever the devices say of it.
#include <algorithm>
#include <array>
#include <cstdlib>
#include <memory>
#include <optional>

#include "managed/devices.h"

namespace {

using namespace managed;
using Word = std::uint32_t;

constexpr unsigned kThreads = 128;
constexpr std::size_t kArrays = 6;

__host__ __device__ Word mixed(Word word, Word by) { return (word ^ by) * 2654435761U + by; }

__global__ void mix(Word* words, std::size_t count, Word by) {
  const std::size_t i = std::size_t{blockIdx.x} * kThreads + threadIdx.x;
  if (i < count) words[i] = mixed(words[i], by);
}

__global__ void add(Word* to, const Word* from, std::size_t count) {
  const std::size_t i = std::size_t{blockIdx.x} * kThreads + threadIdx.x;
  if (i < count) to[i] += from[i];
}

class Random {
 public:
  explicit Random(std::uint64_t seed) : number_(seed << 32) {}
  std::size_t below(std::size_t bound) { return randomWord(number_++) % bound; }
  Word word() { return static_cast<Word>(randomWord(number_++)); }

 private:
  std::uint64_t number_;
};

// The streams of a device: two of its own, one that the legacy default stream waits for, and both
// default streams.
class Streams {
 public:
  explicit Streams(int device) : first_(device), second_(device), device_(device) {
    check(cudaStreamCreate(&blocking_), "cudaStreamCreate");
  }
  ~Streams() {
    use(device_);
    (void)cudaStreamDestroy(blocking_);
  }
  Streams(const Streams&) = delete;
  Streams& operator=(const Streams&) = delete;
  cudaStream_t any(Random& random) const {
    const std::array<cudaStream_t, 5> streams = {first_.stream(), second_.stream(), blocking_,
                                                 cudaStreamLegacy, cudaStreamPerThread};
    return streams[random.below(streams.size())];
  }
  cudaStream_t forGraphs(Random& random) const {
    return random.below(2) == 0 ? first_.stream() : second_.stream();
  }

 private:
  Lane first_, second_;
  cudaStream_t blocking_ = nullptr;
  int device_;
};

// Managed memory, the words it must hold, and the newest work with it.
struct Tested {
  explicit Tested(std::size_t count) : words(count), wanted(count) {}
  Array<Word> words;
  std::vector<Word> wanted;
  int device = -1;  // of the newest work; -1: none
  cudaStream_t stream = nullptr;
  cudaEvent_t event = nullptr;
};

class Machine {
 public:
  Machine(std::uint64_t seed, std::size_t largest) : random_(seed), largest_(largest) {
    for (int device = 0; device < deviceCount(); ++device) {
      use(device);
      int concurrent = 0;
      check(cudaDeviceGetAttribute(&concurrent, cudaDevAttrConcurrentManagedAccess, device),
            "cudaDeviceGetAttribute");
      concurrent_ =
          concurrent_ && (concurrent != 0 || std::getenv("DEVICES_RANDOM_CONCURRENT") != nullptr);
      devices_.push_back(std::make_unique<Streams>(device));
    }
    check(cudaMallocHost(reinterpret_cast<void**>(&pinned_), kCopied * sizeof(Word)),
          "cudaMallocHost");
    for (auto& array : arrays_) allocate(array);
  }
  ~Machine() { (void)cudaFreeHost(pinned_); }
  Machine(const Machine&) = delete;
  Machine& operator=(const Machine&) = delete;

  void step() {
    Tested& a = *arrays_[random_.below(kArrays)];
    Tested& b = *arrays_[random_.below(kArrays)];
    switch (random_.below(16)) {
      case 0:
      case 1:
      case 2:
        return kernel(a);
      case 3:
      case 4:
        return &a == &b ? kernel(a) : kernelOnTwo(a, b);
      case 5:
        return &a == &b ? fill(a) : copy(a, b);
      case 6:
        return fill(a);
      case 7:
        return copyFromHost(a);
      case 8:
        return prefetchSome(a);
      case 9:
        return adviseSome(a);
      case 10:
        return graph(a);
      case 11:
      case 12:
        return touch(a);
      case 13:
        return rewrite(a);
      case 14:
        return expectAll(a);
      default:
        return random_.below(4) == 0 ? allocate(arrays_[random_.below(kArrays)]) : touch(b);
    }
  }
  Outcome end() {
    for (auto& array : arrays_) {
      waitFor(*array);
      expectAll(*array);
      append(outcome_.result, array->wanted.data(), array->words.bytes());
      give(array);
    }
    outcome_.note = std::to_string(devices_.size()) + " devices";
    return std::move(outcome_);
  }

 private:
  static constexpr std::size_t kCopied = 1000;

  // Some words of an array.
  struct Part {
    std::size_t first, count;
  };
  Part partOf(const Tested& array) {
    const std::size_t all = array.words.size();
    if (random_.below(3) == 0) return {0, all};
    const std::size_t first = random_.below(all);
    return {first, 1 + random_.below(std::min<std::size_t>(all - first, 40'000))};
  }

  // Chooses where the next work runs, after what used the arrays.
  cudaStream_t begin(std::initializer_list<const Tested*> used, bool forGraph = false) {
    device_ = static_cast<int>(random_.below(devices_.size()));
    use(device_);
    const Streams& streams = *devices_[static_cast<std::size_t>(device_)];
    const cudaStream_t stream = forGraph ? streams.forGraphs(random_) : streams.any(random_);
    for (const Tested* array : used) {
      if (array->device >= 0)
        check(cudaStreamWaitEvent(stream, array->event, 0), "cudaStreamWaitEvent");
    }
    return stream;
  }
  void used(Tested& array, cudaStream_t stream) {
    if (array.event != nullptr) check(cudaEventDestroy(array.event), "cudaEventDestroy");
    check(cudaEventCreateWithFlags(&array.event, cudaEventDisableTiming), "cudaEventCreate");
    check(cudaEventRecord(array.event, stream), "cudaEventRecord");
    array.device = device_;
    array.stream = stream;
  }
  // The CPU waits in one of the ways that CUDA has.
  void waitFor(Tested& array) {
    if (!concurrent_) {
      for (std::size_t device = 0; device < devices_.size(); ++device) {
        use(static_cast<int>(device));
        check(cudaDeviceSynchronize(), "cudaDeviceSynchronize");
      }
    } else if (array.device >= 0) {
      use(array.device);
      switch (random_.below(3)) {
        case 0:
          check(cudaEventSynchronize(array.event), "cudaEventSynchronize");
          break;
        case 1:
          check(cudaStreamSynchronize(array.stream), "cudaStreamSynchronize");
          break;
        default:
          check(cudaDeviceSynchronize(), "cudaDeviceSynchronize");
      }
    }
    array.device = -1;
  }

  void kernel(Tested& array) {
    const Part part = partOf(array);
    const Word by = random_.word();
    const cudaStream_t stream = begin({&array});
    mix<<<blocksFor(part.count, kThreads), kThreads, 0, stream>>>(array.words.data() + part.first,
                                                                  part.count, by);
    check(cudaGetLastError(), "launch");
    used(array, stream);
    for (std::size_t i = 0; i < part.count; ++i) {
      Word& word = array.wanted[part.first + i];
      word = mixed(word, by);
    }
  }
  void kernelOnTwo(Tested& to, Tested& from) {
    const std::size_t count = 1 + random_.below(std::min(to.words.size(), from.words.size()));
    const cudaStream_t stream = begin({&to, &from});
    add<<<blocksFor(count, kThreads), kThreads, 0, stream>>>(to.words.data(), from.words.data(),
                                                             count);
    check(cudaGetLastError(), "launch");
    used(to, stream);
    used(from, stream);
    for (std::size_t i = 0; i < count; ++i) to.wanted[i] += from.wanted[i];
  }
  void copy(Tested& to, Tested& from) {
    const std::size_t count = 1 + random_.below(std::min(to.words.size(), from.words.size()));
    const std::size_t bytes = count * sizeof(Word);
    const cudaStream_t stream = begin({&to, &from});
    check(random_.below(2) == 0 ? cudaMemcpyAsync(to.words.data(), from.words.data(), bytes,
                                                  cudaMemcpyDefault, stream)
                                : cudaMemcpyAsync(to.words.data(), from.words.data(), bytes,
                                                  cudaMemcpyDeviceToDevice, stream),
          "cudaMemcpyAsync");
    used(to, stream);
    used(from, stream);
    std::copy_n(from.wanted.begin(), count, to.wanted.begin());
  }
  void fill(Tested& array) {
    const Part part = partOf(array);
    const auto byte = static_cast<unsigned char>(random_.below(256));
    const cudaStream_t stream = begin({&array});
    check(cudaMemsetAsync(array.words.data() + part.first, byte, part.count * sizeof(Word), stream),
          "cudaMemsetAsync");
    used(array, stream);
    std::fill_n(array.wanted.begin() + static_cast<std::ptrdiff_t>(part.first), part.count,
                byte * 0x01010101U);
  }
  // From pinned memory, or from memory that CUDA reads before the call returns.
  void copyFromHost(Tested& array) {
    const std::size_t count = std::min(kCopied, array.words.size());
    std::vector<Word> plain(count);
    Word* from = plain.data();
    if (random_.below(2) == 0) {
      for (std::size_t device = 0; device < devices_.size(); ++device) {
        use(static_cast<int>(device));
        check(cudaDeviceSynchronize(), "cudaDeviceSynchronize");
      }
      from = pinned_;
    }
    for (std::size_t i = 0; i < count; ++i) from[i] = random_.word();
    const cudaStream_t stream = begin({&array});
    check(cudaMemcpyAsync(array.words.data(), from, count * sizeof(Word), cudaMemcpyHostToDevice,
                          stream),
          "cudaMemcpyAsync");
    used(array, stream);
    std::copy_n(from, count, array.wanted.begin());
  }
  void prefetchSome(Tested& array) {
    const Part part = partOf(array);
    const auto to = static_cast<int>(random_.below(devices_.size()));
    const cudaStream_t stream = begin({&array});
    if (!concurrent_) return;  // refused then
    prefetch(array.words.data() + part.first, part.count * sizeof(Word), to, stream);
    used(array, stream);
  }
  void adviseSome(Tested& array) {
    constexpr std::array kAdvice = {
        cudaMemAdviseSetPreferredLocation, cudaMemAdviseUnsetPreferredLocation,
        cudaMemAdviseSetAccessedBy,        cudaMemAdviseUnsetAccessedBy,
        cudaMemAdviseSetReadMostly,        cudaMemAdviseUnsetReadMostly};
    const Part part = partOf(array);
    const auto advice = kAdvice[random_.below(kAdvice.size())];
    const auto device = static_cast<int>(random_.below(devices_.size()));
    if (concurrent_)
      advise(array.words.data() + part.first, part.count * sizeof(Word), advice, device);
  }
  // Three kernels in one graph, which runs twice.
  void graph(Tested& array) {
    const Word by = random_.word();
    const cudaStream_t stream = begin({&array}, true);
    cudaGraph_t graph = nullptr;
    cudaGraphExec_t executable = nullptr;
    check(cudaStreamBeginCapture(stream, cudaStreamCaptureModeRelaxed), "cudaStreamBeginCapture");
    for (Word i = 0; i < 3; ++i)
      mix<<<blocksFor(array.words.size(), kThreads), kThreads, 0, stream>>>(
          array.words.data(), array.words.size(), by + i);
    check(cudaStreamEndCapture(stream, &graph), "cudaStreamEndCapture");
    check(cudaGraphInstantiateWithFlags(&executable, graph, 0), "cudaGraphInstantiate");
    for (int i = 0; i < 2; ++i) check(cudaGraphLaunch(executable, stream), "cudaGraphLaunch");
    used(array, stream);
    check(cudaGraphExecDestroy(executable), "cudaGraphExecDestroy");
    check(cudaGraphDestroy(graph), "cudaGraphDestroy");
    for (Word i = 0; i < 6; ++i) {
      for (Word& word : array.wanted) word = mixed(word, by + i % 3);
    }
  }
  // A small result that the CPU looks at after each of some kernels.
  void touch(Tested& array) {
    const std::size_t at = random_.below(array.words.size());
    const std::size_t rounds = 1 + random_.below(6);
    for (std::size_t i = 0; i < rounds; ++i) {
      waitFor(array);
      expect(array, at, 1);
      if (random_.below(2) == 0) array.words[at] = array.wanted[at] = random_.word();
      if (i + 1 < rounds) kernel(array);
    }
  }
  void rewrite(Tested& array) {
    const Part part = partOf(array);
    waitFor(array);
    for (std::size_t i = 0; i < part.count; ++i)
      array.words[part.first + i] = array.wanted[part.first + i] = random_.word();
  }
  void expectAll(Tested& array) {
    waitFor(array);
    expect(array, 0, array.words.size());
  }
  void expect(const Tested& array, std::size_t first, std::size_t count) {
    if (outcome_.wrong.empty()) {
      outcome_.wrong =
          firstDifference("word", array.words.data() + first, array.wanted.data() + first, count);
    }
  }
  void give(std::unique_ptr<Tested>& array) {
    waitFor(*array);
    if (array->event != nullptr) check(cudaEventDestroy(array->event), "cudaEventDestroy");
    array->words.free();
    array.reset();
  }
  void allocate(std::unique_ptr<Tested>& array) {
    if (array != nullptr) {
      expectAll(*array);
      append(outcome_.result, &array->wanted.front(), sizeof(Word));
      give(array);
    }
    use(static_cast<int>(random_.below(devices_.size())));
    const std::size_t most = random_.below(2) == 0 ? largest_ : largest_ / 16;
    array = std::make_unique<Tested>(1 + random_.below(most));
    if (!concurrent_) waitFor(*array);
    for (std::size_t i = 0; i < array->words.size(); ++i)
      array->words[i] = array->wanted[i] = random_.word();
  }

  Random random_;
  const std::size_t largest_;
  bool concurrent_ = true;
  int device_ = 0;
  std::vector<std::unique_ptr<Streams>> devices_;
  Word* pinned_ = nullptr;
  std::array<std::unique_ptr<Tested>, kArrays> arrays_;
  Outcome outcome_;
};

Outcome run(const Request& request) {
  const std::size_t steps = bySize<std::size_t>(request.size, 600, 2'000, 10'000);
  const std::size_t runs = bySize<std::size_t>(request.size, 3, 4, 4);
  Outcome all;
  const Clock clock;
  for (std::size_t seed = 0; seed < runs && all.wrong.empty(); ++seed) {
    Machine machine(seed, seed % 2 == 0 ? 100'000 : 1'500'000);
    for (std::size_t i = 0; i < steps; ++i) machine.step();
    Outcome one = machine.end();
    append(all.result, one.result.data(), one.result.size());
    if (!one.wrong.empty()) all.wrong = "run " + std::to_string(seed) + ": " + one.wrong;
    all.note = one.note;
  }
  all.seconds = clock.seconds();
  return all;
}

}  // namespace

int main(int argc, char** argv) { return runProgram(argc, argv, "devices_random", run); }
