// SPDX-License-Identifier: Apache-2.0
#include "bench/patterns.h"

#include <fmt/core.h>

#include <atomic>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <random>
#include <stdexcept>
#include <thread>
#include <vector>

#include "bench/measure.h"
#include "bench/pattern_memory.h"
#include "gmac/api/adsm.h"

namespace gmac::bench {
namespace {

constexpr std::size_t kPage = kTouchedPage;
constexpr std::size_t kLine = 64;
constexpr std::size_t kKiB = 1024;
constexpr std::size_t kMiB = 1024 * kKiB;
// The default size of a pattern's memory.
constexpr std::size_t kBytes = 64 * kMiB;

void touchOnHost(const adsmThreadBlock_t* block, void** args) {
  auto* const data = *static_cast<std::byte**>(args[0]);
  const std::size_t bytes = *static_cast<std::size_t*>(args[1]);
  const std::size_t first = static_cast<std::size_t>(block->blockIdx.x) * block->blockDim.x;
  for (std::size_t page = first; page < first + block->blockDim.x && page * kPage < bytes; ++page) {
    ++*reinterpret_cast<std::uint32_t*>(data + page * kPage);
  }
}

// Shared objects, under the process's protocol.
class SharedMemory final : public PatternMemory {
 public:
  SharedMemory() {
    kernel_ = makeKernel("touchPages", {sizeof(std::byte*), sizeof(std::size_t)}, &touchOnHost);
  }
  ~SharedMemory() override { (void)adsmKernelDestroy(kernel_); }
  SharedMemory(const SharedMemory&) = delete;
  SharedMemory& operator=(const SharedMemory&) = delete;

  std::byte* allocate(std::size_t bytes) override {
    return static_cast<std::byte*>(checkedAlloc(bytes));
  }
  void release(std::byte* data) override { check(adsmFree(data), "adsmFree"); }
  void launch(std::byte* data, std::size_t bytes) override {
    void* args[] = {&data, &bytes};
    check(adsmCall(kernel_, {touchBlocks(bytes), 1, 1}, {kTouchThreads, 1, 1}, 0, args),
          "adsmCall");
  }
  void sync() override { check(adsmSync(), "adsmSync"); }

 private:
  adsmKernel_t kernel_ = nullptr;
};

void store(std::byte* at) { *reinterpret_cast<volatile std::uint64_t*>(at) = 1; }
void load(const std::byte* at) { (void)*reinterpret_cast<const volatile std::uint64_t*>(at); }

// Objects for a pattern, touched by the CPU and by a kernel before the first round.
class Data {
 public:
  Data(PatternMemory& memory, std::size_t objects, std::size_t bytes)
      : memory_(memory), bytes_(bytes) {
    for (std::size_t i = 0; i < objects; ++i) {
      objects_.push_back(memory.allocate(bytes));
      for (std::size_t at = 0; at < bytes; at += kPage) {
        store(objects_.back() + at);
      }
    }
    call();
  }
  ~Data() {
    for (std::byte* object : objects_) {
      memory_.release(object);
    }
  }
  Data(const Data&) = delete;
  Data& operator=(const Data&) = delete;

  std::size_t bytes() const { return bytes_; }
  std::byte* operator[](std::size_t i) const { return objects_[i]; }
  // Kernels that use all of it, and the wait for them.
  void call() {
    for (std::byte* object : objects_) {
      memory_.launch(object, bytes_);
    }
    memory_.sync();
  }

 private:
  PatternMemory& memory_;
  const std::size_t bytes_;
  std::vector<std::byte*> objects_;
};

// One round of a pattern: it is set up once, and then called for each round.
using Round = std::function<void()>;
using MakeRound = Round (*)(PatternMemory& memory, const json& parameters);

// Streams begin apart from each other: at the same offset of each power of two they would contend
// for one set of the caches, which says nothing of protocols.
constexpr std::size_t kStagger = 13 * kLine;

// {streams, objects}: arrays filled in turn, a cache line of each at a time, in one object or in
// one each.
Round streams(PatternMemory& memory, const json& parameters) {
  const std::size_t streams = parameters["streams"];
  const bool several = parameters["objects"];
  const std::size_t bytes = kBytes / streams / kPage * kPage;
  auto data = std::make_shared<Data>(memory, several ? streams : 1, several ? bytes : kBytes);
  return [=] {
    for (std::size_t at = 0; at < bytes - streams * kStagger; at += kLine) {
      for (std::size_t stream = 0; stream < streams; ++stream) {
        std::byte* const array = several ? (*data)[stream] : (*data)[0] + stream * bytes;
        store(array + stream * kStagger + at);
      }
    }
    data->call();
  };
}

// Few streams and many, call by call.
Round phases(PatternMemory& memory, const json&) {
  auto data = std::make_shared<Data>(memory, 1, kBytes);
  return [=] {
    for (const std::size_t streams : {1, 64, 1, 64}) {
      const std::size_t bytes = kBytes / streams;
      for (std::size_t at = 0; at < bytes - streams * kStagger; at += kLine) {
        for (std::size_t stream = 0; stream < streams; ++stream) {
          store((*data)[0] + stream * (bytes + kStagger) + at);
        }
      }
      data->call();
    }
  };
}

// An array filled in order and a counter beside it.
Round counter(PatternMemory& memory, const json&) {
  auto data = std::make_shared<Data>(memory, 1, kBytes);
  return [=] {
    for (std::size_t at = 0; at < kBytes; at += kLine) {
      store((*data)[0] + at);
      store((*data)[0] + kBytes - kLine);
    }
    data->call();
  };
}

// Some columns of a matrix, one after the other.
Round columns(PatternMemory& memory, const json&) {
  constexpr std::size_t kRow = 16 * kKiB;
  constexpr std::size_t kColumns = 64;
  auto data = std::make_shared<Data>(memory, 1, kBytes);
  return [=] {
    for (std::size_t column = 0; column < kColumns; ++column) {
      for (std::size_t row = 0; row < kBytes; row += kRow) {
        store((*data)[0] + row + column * sizeof(std::uint64_t));
      }
    }
    data->call();
  };
}

// {write}: everywhere.
Round randomly(PatternMemory& memory, const json& parameters) {
  constexpr std::size_t kAccesses = 65536;
  const bool write = parameters["write"];
  auto data = std::make_shared<Data>(memory, 1, kBytes);
  auto random = std::make_shared<std::mt19937_64>(1);
  return [=] {
    for (std::size_t access = 0; access < kAccesses; ++access) {
      std::byte* const at = (*data)[0] + (*random)() % (kBytes / kLine) * kLine;
      write ? store(at) : load(at);
    }
    data->call();
  };
}

// {stride, write}: every stride-th byte, in order.
Round strided(PatternMemory& memory, const json& parameters) {
  const std::size_t stride = parameters["stride"];
  const bool write = parameters["write"];
  auto data = std::make_shared<Data>(memory, 1, kBytes);
  return [=] {
    for (std::size_t at = 0; at < kBytes; at += stride) {
      write ? store((*data)[0] + at) : load((*data)[0] + at);
    }
    data->call();
  };
}

// {backward}: everything is read.
Round readAll(PatternMemory& memory, const json& parameters) {
  const bool backward = parameters["backward"];
  auto data = std::make_shared<Data>(memory, 1, kBytes);
  return [=] {
    for (std::size_t at = 0; at < kBytes; at += kLine) {
      load((*data)[0] + (backward ? kBytes - kLine - at : at));
    }
    data->call();
  };
}

// Everything is written in order, several times.
Round again(PatternMemory& memory, const json&) {
  auto data = std::make_shared<Data>(memory, 1, kBytes);
  return [=] {
    for (int pass = 0; pass < 4; ++pass) {
      for (std::size_t at = 0; at < kBytes; at += kLine) {
        store((*data)[0] + at);
      }
    }
    data->call();
  };
}

// {bytes, times, read}: a few bytes to a kernel, and back if `read`.
Round pingPong(PatternMemory& memory, const json& parameters) {
  const std::size_t times = parameters["times"];
  const bool read = parameters["read"];
  auto data = std::make_shared<Data>(memory, 1, parameters["bytes"]);
  // The kernel has a page to do: what is measured is what it takes to get there.
  return [=, &memory] {
    for (std::size_t time = 0; time < times; ++time) {
      std::byte* const at = (*data)[0] + data->bytes() / 2;
      store(at);
      memory.launch(at, kPage);
      memory.sync();
      if (read) {
        load(at);
      }
    }
  };
}

// {times, words}: words of one large object, far from each other, around a call for each, as where
// a program keeps its arrays in a pool.
Round pooled(PatternMemory& memory, const json& parameters) {
  const std::size_t times = parameters["times"];
  const std::size_t words = parameters["words"];
  auto data = std::make_shared<Data>(memory, 1, kBytes);
  return [=, &memory] {
    const auto at = [&](std::size_t word) {
      return (*data)[0] + (2 * word + 1) * data->bytes() / (2 * words);
    };
    for (std::size_t time = 0; time < times; ++time) {
      for (std::size_t word = 0; word < words; ++word) {
        store(at(word));
      }
      for (std::size_t word = 0; word < words; ++word) {
        memory.launch(at(word), kPage);
      }
      memory.sync();
      for (std::size_t word = 0; word < words; ++word) {
        load(at(word));
      }
    }
  };
}

// {times, words, bytes}: the CPU stores each of an object's words before a call of its own.
Round inTurn(PatternMemory& memory, const json& parameters) {
  const std::size_t times = parameters["times"];
  const std::size_t words = parameters["words"];
  auto data = std::make_shared<Data>(memory, 1, parameters["bytes"]);
  return [=, &memory] {
    const std::size_t step = data->bytes() / words;
    for (std::size_t time = 0; time < times; ++time) {
      for (std::size_t word = 0; word < words; ++word) {
        store((*data)[0] + word * step);
        memory.launch((*data)[0] + word * step, kPage);
      }
      memory.sync();
      for (std::size_t word = 0; word < words; ++word) {
        load((*data)[0] + word * step);
      }
    }
  };
}

// {times, bytes}: the CPU writes one half of an object while a kernel works on the other.
Round halves(PatternMemory& memory, const json& parameters) {
  const std::size_t times = parameters["times"];
  auto data = std::make_shared<Data>(memory, 1, parameters["bytes"]);
  return [=, &memory] {
    const std::size_t half = data->bytes() / 2;
    for (std::size_t time = 0; time < times; ++time) {
      memory.launch((*data)[0] + half, half);
      for (std::size_t at = 0; at < half; at += kLine) {
        store((*data)[0] + at);
      }
      memory.sync();
    }
  };
}

// {times}: an object that lives for one call.
Round churn(PatternMemory& memory, const json& parameters) {
  const std::size_t times = parameters["times"];
  return [=, &memory] {
    for (std::size_t time = 0; time < times; ++time) {
      std::byte* const data = memory.allocate(kMiB);
      for (std::size_t at = 0; at < kMiB; at += kLine) {
        store(data + at);
      }
      memory.launch(data, kMiB);
      memory.sync();
      for (std::size_t at = 0; at < kMiB; at += kLine) {
        load(data + at);
      }
      memory.release(data);
    }
  };
}

// {stride}: every stride-th byte is written, the last first.
Round backwards(PatternMemory& memory, const json& parameters) {
  const std::size_t stride = parameters["stride"];
  auto data = std::make_shared<Data>(memory, 1, kBytes);
  return [=] {
    for (std::size_t at = kBytes; at > 0; at -= stride) {
      store((*data)[0] + at - stride);
    }
    data->call();
  };
}

// All strides in turn: what is learned from one says little of the next.
Round changing(PatternMemory& memory, const json&) {
  auto data = std::make_shared<Data>(memory, 1, kBytes);
  return [=] {
    for (const std::size_t stride : {64 * kKiB, kLine, 2 * kMiB, 4 * kKiB}) {
      for (std::size_t at = 0; at < kBytes; at += stride) {
        store((*data)[0] + at);
      }
      data->call();
      for (std::size_t at = 0; at < kBytes; at += 8 * stride) {
        load((*data)[0] + at);
      }
      data->call();
    }
  };
}

// {bytes, times}: all of an object is written before each of several calls.
Round filled(PatternMemory& memory, const json& parameters) {
  const std::size_t times = parameters["times"];
  auto data = std::make_shared<Data>(memory, 1, parameters["bytes"]);
  return [=] {
    for (std::size_t time = 0; time < times; ++time) {
      for (std::size_t at = 0; at < data->bytes(); at += kLine) {
        store((*data)[0] + at);
      }
      data->call();
    }
  };
}

// An array that is copied to one of twice its size whenever it is full.
Round growing(PatternMemory& memory, const json&) {
  constexpr std::size_t kMost = 16 * kMiB;
  return [=, &memory] {
    std::size_t bytes = 64 * kKiB;
    std::byte* data = memory.allocate(bytes);
    for (std::size_t at = 0;; at += kLine) {
      if (at == bytes) {
        memory.launch(data, bytes);
        memory.sync();
        if (bytes == kMost) {
          break;
        }
        std::byte* const next = memory.allocate(2 * bytes);
        for (std::size_t copied = 0; copied < bytes; copied += kLine) {
          load(data + copied);
          store(next + copied);
        }
        memory.release(data);
        data = next;
        bytes *= 2;
      }
      store(data + at);
    }
    memory.release(data);
  };
}

// Objects for one call each, of sizes that rise and fall.
Round sizes(PatternMemory& memory, const json&) {
  return [=, &memory] {
    for (const std::size_t mebibytes : {1, 4, 16, 4, 1, 2, 8, 2}) {
      const std::size_t bytes = mebibytes * kMiB;
      std::byte* const data = memory.allocate(bytes);
      for (std::size_t at = 0; at < bytes; at += kLine) {
        store(data + at);
      }
      memory.launch(data, bytes);
      memory.sync();
      for (std::size_t at = 0; at < bytes; at += kLine) {
        load(data + at);
      }
      memory.release(data);
    }
  };
}

// {objects, bytes}: many objects are made, filled and given to one call each; then a word of each
// is read, and all are released.
Round shortLives(PatternMemory& memory, const json& parameters) {
  const std::size_t objects = parameters["objects"];
  const std::size_t bytes = parameters["bytes"];
  return [=, &memory] {
    std::vector<std::byte*> made;
    for (std::size_t object = 0; object < objects; ++object) {
      made.push_back(memory.allocate(bytes));
      for (std::size_t at = 0; at < bytes; at += kLine) {
        store(made.back() + at);
      }
      memory.launch(made.back(), bytes);
    }
    memory.sync();
    for (std::byte* const data : made) {
      load(data);
      memory.release(data);
    }
  };
}

// Calls use many objects, of which the CPU writes and reads one around each.
Round oneOfMany(PatternMemory& memory, const json&) {
  constexpr std::size_t kObjects = 64;
  auto data = std::make_shared<Data>(memory, kObjects, kMiB);
  return [=] {
    for (std::size_t object = 0; object < kObjects; object += 8) {
      store((*data)[object] + kMiB / 2);
      data->call();
      load((*data)[object] + kMiB / 2);
    }
  };
}

// {times}: the CPU writes a word of each of many objects around each call, which uses another one.
Round allOfMany(PatternMemory& memory, const json& parameters) {
  constexpr std::size_t kObjects = 64;
  const std::size_t times = parameters["times"];
  auto data = std::make_shared<Data>(memory, kObjects, kMiB);
  auto used = std::make_shared<Data>(memory, 1, kMiB);
  return [=] {
    for (std::size_t time = 0; time < times; ++time) {
      for (std::size_t object = 0; object < kObjects; ++object) {
        store((*data)[object] + kMiB / 2);
      }
      used->call();
    }
  };
}

// {bytes, times, reads}: words anywhere are read after each call on all.
Round sparse(PatternMemory& memory, const json& parameters) {
  const std::size_t times = parameters["times"];
  const std::size_t reads = parameters["reads"];
  auto data = std::make_shared<Data>(memory, 1, parameters["bytes"]);
  auto random = std::make_shared<std::mt19937_64>(1);
  return [=] {
    for (std::size_t time = 0; time < times; ++time) {
      for (std::size_t read = 0; read < reads; ++read) {
        load((*data)[0] + (*random)() % (data->bytes() / kLine) * kLine);
      }
      data->call();
    }
  };
}

// Two threads write in turns to lines of one block that are neighbours.
Round alternating(PatternMemory& memory, const json&) {
  constexpr std::size_t kTurns = 200;
  auto data = std::make_shared<Data>(memory, 1, kBytes);
  return [=] {
    std::atomic<std::size_t> turn{0};
    const auto write = [&](std::size_t first) {
      for (std::size_t mine = first; mine < kTurns; mine += 2) {
        for (std::size_t now = turn; now != mine; now = turn) {
          turn.wait(now);
        }
        store((*data)[0] + kBytes / 2 + mine % 64 * kLine);
        turn = mine + 1;
        turn.notify_all();
      }
    };
    std::thread other(write, 1);
    write(0);
    other.join();
    data->call();
  };
}

// One thread writes pieces, each of which another one then reads, with a call after each piece.
Round pipeline(PatternMemory& memory, const json&) {
  constexpr std::size_t kPiece = 4 * kMiB;
  constexpr std::size_t kStep = 64 * kKiB;
  auto data = std::make_shared<Data>(memory, 1, kBytes / 4);
  return [=] {
    for (std::size_t piece = 0; piece < data->bytes(); piece += kPiece) {
      std::atomic<std::size_t> written{piece};
      std::thread producer([&] {
        for (std::size_t at = piece; at < piece + kPiece; at += kLine) {
          store((*data)[0] + at);
          if ((at + kLine) % kStep == 0) {
            written = at + kLine;
            written.notify_all();
          }
        }
      });
      for (std::size_t at = piece; at < piece + kPiece; at += kLine) {
        for (std::size_t end = written; end <= at; end = written) {
          written.wait(end);
        }
        load((*data)[0] + at);
      }
      producer.join();
      data->call();
    }
  };
}

const std::map<std::string, MakeRound>& makers() {
  static const std::map<std::string, MakeRound> kMakers = {
      {"streams", &streams},         {"phases", &phases},       {"counter", &counter},
      {"columns", &columns},         {"random", &randomly},     {"strided", &strided},
      {"readAll", &readAll},         {"again", &again},         {"churn", &churn},
      {"pingPong", &pingPong},       {"backwards", &backwards}, {"changing", &changing},
      {"filled", &filled},           {"growing", &growing},     {"sizes", &sizes},
      {"shortLives", &shortLives},   {"oneOfMany", &oneOfMany}, {"sparse", &sparse},
      {"alternating", &alternating}, {"pipeline", &pipeline},   {"allOfMany", &allOfMany},
      {"pooled", &pooled},           {"halves", &halves},       {"inTurn", &inTurn},
  };
  return kMakers;
}

// {pattern, managed, ...}: rounds of one pattern, on demand (see TurnsInChild).
json pattern(const json& parameters) {
  const std::unique_ptr<PatternMemory> memory =
      parameters["managed"] ? makeManagedMemory() : std::make_unique<SharedMemory>();
  const Round round = makers().at(parameters["pattern"])(*memory, parameters);
  serveTurns([&] {
    const Stopwatch watch;
    round();
    return watch.seconds();
  });
  return {};
}
const Registration kPattern("pattern", &pattern);

std::string sizeText(std::size_t bytes) {
  return bytes < kMiB ? fmt::format("{} KiB", bytes / kKiB) : fmt::format("{} MiB", bytes / kMiB);
}

}  // namespace

#if !GMAC_HAVE_CUDA
std::unique_ptr<PatternMemory> makeManagedMemory() {
  throw std::runtime_error("this build has no CUDA");
}
#endif

std::vector<Pattern> patterns(bool cuda) {
  std::vector<Pattern> all;
  for (const bool several : {false, true}) {
    for (const std::size_t count : {1, 2, 3, 4, 8, 16, 32, 64}) {
      all.push_back({fmt::format("{} write stream{}{}", count, count == 1 ? "" : "s",
                                 several ? ", an object each" : " in one object"),
                     {{"pattern", "streams"}, {"streams", count}, {"objects", several}}});
    }
  }
  all.push_back({"1 and 64 write streams, call by call", {{"pattern", "phases"}}});
  all.push_back({"an array in order and a counter", {{"pattern", "counter"}}});
  all.push_back({"writes by columns", {{"pattern", "columns"}}});
  for (const bool write : {true, false}) {
    const char* const what = write ? "writes" : "reads";
    all.push_back({fmt::format("random {}", what), {{"pattern", "random"}, {"write", write}}});
    for (std::size_t stride = 4 * kKiB; stride <= 4 * kMiB; stride *= 2) {
      all.push_back({fmt::format("{} at a stride of {}", what, sizeText(stride)),
                     {{"pattern", "strided"}, {"stride", stride}, {"write", write}}});
    }
  }
  all.push_back({"reads forwards", {{"pattern", "readAll"}, {"backward", false}}});
  all.push_back({"reads backwards", {{"pattern", "readAll"}, {"backward", true}}});
  all.push_back({"written again before the call", {{"pattern", "again"}}});
  for (const std::size_t bytes : {8 * kKiB, kBytes}) {
    all.push_back(
        {fmt::format("ping-pong of 8 bytes in {}", sizeText(bytes)),
         {{"pattern", "pingPong"}, {"bytes", bytes}, {"times", cuda ? 200 : 20}, {"read", true}}});
  }
  all.push_back(
      {"writes of pages, the last first", {{"pattern", "backwards"}, {"stride", 4 * kKiB}}});
  all.push_back({"strides that change", {{"pattern", "changing"}}});
  all.push_back({"1 MiB filled for each call",
                 {{"pattern", "filled"}, {"bytes", kMiB}, {"times", cuda ? 100 : 20}}});
  all.push_back({"an array that is copied when it grows", {{"pattern", "growing"}}});
  all.push_back({"objects that grow and shrink", {{"pattern", "sizes"}}});
  all.push_back({"objects of 64 KiB for one call each",
                 {{"pattern", "shortLives"}, {"objects", cuda ? 200 : 50}, {"bytes", 64 * kKiB}}});
  all.push_back({"one of 64 objects around each call", {{"pattern", "oneOfMany"}}});
  all.push_back({"a word of each of 64 objects around each call on another one",
                 {{"pattern", "allOfMany"}, {"times", cuda ? 50 : 10}}});
  all.push_back({"64 words read anywhere after each call",
                 {{"pattern", "sparse"},
                  {"bytes", cuda ? 1024 * kMiB : 256 * kMiB},
                  {"times", 2},
                  {"reads", 64}}});
  all.push_back(
      {"a word of 4 MiB read after each call",
       {{"pattern", "sparse"}, {"bytes", 4 * kMiB}, {"times", cuda ? 200 : 20}, {"reads", 1}}});
  all.push_back({"four words of a pool of 64 MiB, a call each",
                 {{"pattern", "pooled"}, {"times", cuda ? 100 : 10}, {"words", 4}}});
  all.push_back(
      {"16 words of 1 MiB, each before a call of its own",
       {{"pattern", "inTurn"}, {"times", cuda ? 100 : 5}, {"words", 16}, {"bytes", kMiB}}});
  all.push_back({"the CPU on one half of 2 MiB, a kernel on the other",
                 {{"pattern", "halves"}, {"times", cuda ? 200 : 20}, {"bytes", 2 * kMiB}}});
  all.push_back({"two threads that write a block in turns", {{"pattern", "alternating"}}});
  all.push_back({"a thread that reads what another writes", {{"pattern", "pipeline"}}});
  // 1,000 of them, and 100,000 launches (2,000 on the host), in all rounds.
  all.push_back({"objects of 1 MiB for one call each", {{"pattern", "churn"}, {"times", 100}}});
  all.push_back({"launches with one small touch each",
                 {{"pattern", "pingPong"},
                  {"bytes", 64 * kKiB},
                  {"times", cuda ? 10000 : 200},
                  {"read", false}}});
  return all;
}

}  // namespace gmac::bench
