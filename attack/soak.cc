// SPDX-License-Identifier: Apache-2.0
//
// Random operations of several threads, for as long as --seconds says; then nothing is left of
// them: no descriptor, mapping, thread or memory.
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <random>
#include <thread>

#include "attack/subject.h"
#include "gmac/api/adsm_datatype.h"

namespace attack {
namespace {

struct Object {
  std::uint32_t* words;
  std::size_t count;
  std::uint32_t base;  // words[i] is base + i
};

// The work of one thread on objects of its own.
class Soaker {
 public:
  explicit Soaker(unsigned seed) : random_(seed) {}
  ~Soaker() {
    while (!objects_.empty()) free(objects_.size() - 1);
  }
  Soaker(const Soaker&) = delete;
  Soaker& operator=(const Soaker&) = delete;

  void step() {
    const unsigned operation = below(100);
    if (objects_.empty() || (operation < 15 && objects_.size() < 30)) {
      allocateOne();
      return;
    }
    const std::size_t which = below(static_cast<unsigned>(objects_.size()));
    Object& one = objects_[which];
    if (operation < 30) {
      free(which);
    } else if (operation < 60) {
      const std::uint32_t by = below(5);
      add(one.words, one.count, by);
      one.base += by;
    } else if (operation < 75) {
      for (int i = 0; i < 50; ++i) expect(one, below(static_cast<unsigned>(one.count)));
    } else if (operation < 82) {
      const std::size_t begin = below(static_cast<unsigned>(one.count));
      for (std::size_t i = begin; i < one.count; ++i) {
        one.words[i] = one.base + static_cast<std::uint32_t>(i);
      }
    } else if (operation < 88) {
      copy(one);
    } else if (operation < 93) {
      file(one);
    } else if (operation < 96) {
      sync();
    } else {
      pack(one);
    }
  }

 private:
  unsigned below(unsigned most) { return static_cast<unsigned>(random_() % most); }

  void allocateOne() {
    const unsigned sizes[] = {4000, 8000, 100000, 700000, 2000000};
    Object one{};
    one.count = below(sizes[below(5)]) + 1;
    one.words = allocate(one.count);
    one.base = below(1000);
    for (std::size_t i = 0; i < one.count; ++i) {
      one.words[i] = one.base + static_cast<std::uint32_t>(i);
    }
    objects_.push_back(one);
  }
  void free(std::size_t which) {
    check(adsmFree(objects_[which].words), "adsmFree");
    objects_[which] = objects_.back();
    objects_.pop_back();
  }
  static void expect(const Object& one, std::size_t i) {
    require(one.words[i] == one.base + i, "word {} of {} is {}, not {}", i, one.count, one.words[i],
            one.base + i);
  }
  void copy(const Object& one) {
    plain_.resize(one.count);
    std::memcpy(plain_.data(), one.words, one.count * 4);
    for (std::size_t i = 0; i < one.count; i += 97) {
      require(plain_[i] == one.base + i, "a copy's word {} is {}", i, plain_[i]);
    }
    std::memcpy(one.words, plain_.data(), one.count * 4);
  }
  static void file(const Object& one) {
    std::FILE* const stream = std::tmpfile();
    const bool written = std::fwrite(one.words, 4, one.count, stream) == one.count;
    std::rewind(stream);
    std::memset(one.words, 0xff, one.count * 4);
    const bool read = std::fread(one.words, 4, one.count, stream) == one.count;
    std::fclose(stream);
    require(written && read, "a file of {} words", one.count);
  }
  void pack(const Object& one) {
    const std::size_t count = one.count / 2;
    if (count == 0) return;
    adsmType_t type = nullptr;
    check(adsmTypeVector(static_cast<std::int64_t>(count), 1, 2, ADSM_TYPE_4, &type),
          "adsmTypeVector");
    check(adsmTypeCommit(type), "adsmTypeCommit");
    plain_.resize(count);
    check(adsmPack(plain_.data(), one.words, 1, type), "adsmPack");
    for (std::size_t i = 0; i < count; i += 53) {
      require(plain_[i] == one.base + 2 * i, "packed word {} is {}", i, plain_[i]);
    }
    check(adsmUnpack(one.words, plain_.data(), 1, type), "adsmUnpack");
    check(adsmTypeFree(type), "adsmTypeFree");
  }

  std::mt19937 random_;
  std::vector<Object> objects_;
  std::vector<std::uint32_t> plain_;
};

void soakFor(double seconds, unsigned seed) {
  std::vector<std::thread> threads;
  for (unsigned id = 0; id < 4; ++id) {
    threads.emplace_back([=] {
      Soaker soaker(seed * 4 + id);
      for (const double end = now() + seconds; now() < end;) soaker.step();
    });
  }
  for (std::thread& thread : threads) thread.join();
  sync();
}

struct Holdings {
  std::size_t descriptors = countDescriptors();
  std::size_t mappings = countMappings();
  std::size_t threads = countThreads();
  std::size_t residentKiB = attack::residentKiB();
};

void soak(const char* protocol) {
  ::setenv("GMAC_PROTOCOL", protocol, 1);
  const double seconds = wantedSeconds();
  // Caches and arenas reach their size first.
  soakFor(seconds / 3, 1);
  const Holdings before;
  soakFor(seconds / 3, 2);
  const Holdings middle;
  soakFor(seconds / 3, 3);
  const Holdings after;
  // The C library's heaps and the objects' files come and go; what grows in both thirds leaks.
  constexpr std::size_t kMappings = 200;
  constexpr std::size_t kResidentKiB = 64 * 1024;
  const auto grows = [](std::size_t a, std::size_t b, std::size_t c, std::size_t by) {
    return b > a + by && c > b + by;
  };
  require(after.descriptors <= before.descriptors, "{} descriptors became {}", before.descriptors,
          after.descriptors);
  require(after.threads <= before.threads + 1, "{} threads became {}", before.threads,
          after.threads);
  require(!grows(before.mappings, middle.mappings, after.mappings, kMappings),
          "{} mappings became {}, then {}", before.mappings, middle.mappings, after.mappings);
  require(!grows(before.residentKiB, middle.residentKiB, after.residentKiB, kResidentKiB),
          "{} KiB became {}, then {}", before.residentKiB, middle.residentKiB, after.residentKiB);
}

std::vector<Attack> soaks() {
  std::vector<Attack> attacks;
  for (const char* protocol : {"batch", "lazy", "rolling"}) {
    attacks.push_back({fmt::format("soak/{}", protocol), [protocol] { soak(protocol); },
                       wantedSeconds() * 2 + 60});
  }
  return attacks;
}
const Registration kSoaks(soaks());

}  // namespace
}  // namespace attack
