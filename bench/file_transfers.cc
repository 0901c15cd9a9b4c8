// SPDX-License-Identifier: Apache-2.0
//
// The cost of reading a file to the accelerator, and of writing a kernel's result to a file,
// against the same calls on plain memory.
#include <dlfcn.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <stdexcept>
#include <string>
#include <vector>

#include "bench/add_vectors.h"
#include "bench/interleaved.h"
#include "bench/measure.h"

namespace gmac::bench {
namespace {

void require(bool condition, const char* what) {
  if (!condition) {
    throw std::runtime_error(std::string(what) + ": " + std::strerror(errno));
  }
}

// The library as a program that preloads it has it, with the C library's functions that it
// stands in for. Its runtime is another one than this program's own. Loaded for the life of the
// process.
class Library {
 public:
  Library() {
    const auto path = std::filesystem::read_symlink("/proc/self/exe").parent_path().parent_path() /
                      "gmac" / "libgmac.so";
    library_ = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (library_ == nullptr) {
      throw std::runtime_error(dlerror());
    }
  }
  template <typename Function>
  Function* function(const char* name, Function*) const {
    void* const found = dlsym(library_, name);
    if (found == nullptr) {
      throw std::runtime_error(dlerror());
    }
    return reinterpret_cast<Function*>(found);
  }

 private:
  void* library_;
};
#define GMAC_BENCH_FROM(library, name) (library).function(#name, &(name))

// Two objects of the library's runtime and the kernel that works on them.
class Machine {
 public:
  explicit Machine(std::size_t count)
      : count_(count),
        sync_(GMAC_BENCH_FROM(library_, adsmSync)),
        call_(GMAC_BENCH_FROM(library_, adsmCallUsing)),
        lastError_(GMAC_BENCH_FROM(library_, adsmLastErrorString)),
        readInto(GMAC_BENCH_FROM(library_, read)),
        writeFrom(GMAC_BENCH_FROM(library_, write)) {
    const auto allocate = GMAC_BENCH_FROM(library_, adsmAlloc);
    data = static_cast<float*>(allocate(bytes()));
    other = static_cast<float*>(allocate(bytes()));
    check(data != nullptr && other != nullptr);
    check(GMAC_BENCH_FROM(library_, adsmKernelCreate)(&addVectorsKernel(), &kernel_) ==
          adsmSuccess);
    std::fill_n(data, count_, 0.0F);
    std::fill_n(other, count_, 0.0F);
  }

  std::size_t bytes() const { return count_ * sizeof(float); }
  // to[i] = 2 * from[i] for the first `count` elements, on the accelerator.
  void doubled(float* to, float* from, std::size_t count) {
    void* args[] = {&to, &from, &from, &count};
    const adsmUse_t uses[] = {{to, adsmReadWrite}, {from, adsmRead}};
    check(call_(kernel_, addVectorsGrid(count), {kAddThreads, 1, 1}, 0, args, uses,
                std::size(uses)) == adsmSuccess);
  }
  void doubled(float* to, float* from) { doubled(to, from, count_); }
  void sync() { check(sync_() == adsmSuccess); }

 private:
  void check(bool condition) const {
    if (!condition) {
      throw std::runtime_error(lastError_());
    }
  }

  const std::size_t count_;
  Library library_;
  decltype(&adsmSync) sync_;
  decltype(&adsmCallUsing) call_;
  decltype(&adsmLastErrorString) lastError_;
  adsmKernel_t kernel_ = nullptr;

 public:
  decltype(&read) readInto;
  decltype(&write) writeFrom;
  float* data = nullptr;
  float* other = nullptr;
};

// Private memory, touched.
class Plain {
 public:
  Plain(std::size_t bytes, bool huge) : bytes_(bytes) {
    data_ = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    require(data_ != MAP_FAILED, "mmap");
    require(madvise(data_, bytes, huge ? MADV_HUGEPAGE : MADV_NOHUGEPAGE) == 0, "madvise");
    std::memset(data_, 1, bytes);
  }
  ~Plain() { munmap(data_, bytes_); }
  Plain(const Plain&) = delete;
  Plain& operator=(const Plain&) = delete;
  float* data() const { return static_cast<float*>(data_); }

 private:
  std::size_t bytes_;
  void* data_;
};

// The value of the file's element i.
float valueAt(std::size_t i, std::size_t round) {
  return static_cast<float>((i * 7 + round * 13) % 1021);
}

void fill(float* data, std::size_t count, std::size_t round) {
  for (std::size_t i = 0; i < count; ++i) {
    data[i] = valueAt(i, round);
  }
}

// Every element, since a piece may be anywhere.
void expect(const float* data, std::size_t count, float factor, std::size_t round,
            const char* what) {
  for (std::size_t i = 0; i < count; ++i) {
    if (data[i] != factor * valueAt(i, round)) {
      throw std::runtime_error(std::string(what) + ": element " + std::to_string(i) + " is wrong");
    }
  }
}

void rewind(int file) { require(lseek(file, 0, SEEK_SET) == 0, "lseek"); }

json figures(const Interleaved& turns, std::size_t bytes) {
  const double gib = static_cast<double>(bytes) / (1 << 30);
  return {{"plain", turns.seconds(0) / gib},
          {"plainHuge", turns.seconds(1) / gib},
          {"shared", turns.seconds(2) / gib},
          {"ratio", turns.ratio(2, 0)},
          {"ratioHuge", turns.ratio(2, 1)}};
}

// {bytes, rounds}: reads a file that is in the page cache into plain memory, of small and of huge
// pages, and into a shared object, which a kernel has written before and reads afterwards; seconds
// per GiB.
json readFile(const json& parameters) {
  const std::size_t bytes = parameters["bytes"];
  const std::size_t count = bytes / sizeof(float);
  Machine machine(count);
  const Plain small(bytes, false);
  const Plain huge(bytes, true);
  std::string path = std::filesystem::temp_directory_path() / "gmac-bench-XXXXXX";
  const int file = mkstemp(path.data());
  require(file >= 0 && unlink(path.c_str()) == 0, "a temporary file");
  fill(small.data(), count, 0);
  require(write(file, small.data(), bytes) == static_cast<ssize_t>(bytes), "write");
  require(fdatasync(file) == 0, "fdatasync");
  const Interleaved turns(3, parameters["rounds"], [&](std::size_t i) {
    rewind(file);
    if (i < 2) {
      const Stopwatch watch;
      require(read(file, (i == 0 ? small : huge).data(), bytes) == static_cast<ssize_t>(bytes),
              "read");
      return watch.seconds();
    }
    machine.doubled(machine.data, machine.other);  // other bytes, which only the accelerator has
    machine.sync();
    const Stopwatch watch;
    require(machine.readInto(file, machine.data, bytes) == static_cast<ssize_t>(bytes), "read");
    // A kernel runs when everything has arrived: of one thread, it is itself for free.
    machine.doubled(machine.other, machine.data, 1);
    machine.sync();
    const double seconds = watch.seconds();
    machine.doubled(machine.other, machine.data);
    machine.sync();
    expect(machine.other, count, 2, 0, "a kernel's view of the file");
    return seconds;
  });
  close(file);
  return figures(turns, bytes);
}
const Registration kReadFile("readFile", &readFile);

// {bytes, rounds}: writes plain memory, and an object that a kernel has just written, over a file
// in memory; seconds per GiB.
json writeFile(const json& parameters) {
  const std::size_t bytes = parameters["bytes"];
  const std::size_t count = bytes / sizeof(float);
  Machine machine(count);
  const Plain small(bytes, false);
  const Plain huge(bytes, true);
  const int file = memfd_create("gmac-bench", MFD_CLOEXEC);
  require(file >= 0, "memfd_create");
  require(write(file, small.data(), bytes) == static_cast<ssize_t>(bytes), "write");
  std::size_t round = 0;
  std::vector<float> written(count);
  const Interleaved turns(3, parameters["rounds"], [&](std::size_t i) {
    rewind(file);
    if (i < 2) {
      const Stopwatch watch;
      require(write(file, (i == 0 ? small : huge).data(), bytes) == static_cast<ssize_t>(bytes),
              "write");
      return watch.seconds();
    }
    fill(machine.other, count, ++round);
    machine.doubled(machine.data, machine.other);
    machine.sync();
    const Stopwatch watch;
    require(machine.writeFrom(file, machine.data, bytes) == static_cast<ssize_t>(bytes), "write");
    const double seconds = watch.seconds();
    require(pread(file, written.data(), bytes, 0) == static_cast<ssize_t>(bytes), "pread");
    expect(written.data(), count, 2, round, "the file");
    return seconds;
  });
  close(file);
  return figures(turns, bytes);
}
const Registration kWriteFile("writeFile", &writeFile);

}  // namespace
}  // namespace gmac::bench
