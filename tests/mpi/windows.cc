// SPDX-License-Identifier: Apache-2.0
//
// Windows over shared objects: every synchronisation, with bytes that are current on the
// accelerator alone, and with stores, kernels and other processes' operations side by side. For
// three processes.
#include <mpi.h>

#include <array>
#include <atomic>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <memory>
#include <string>
#include <thread>

#include "tests/mpi/expect.h"
#include "tests/mpi/shared.h"

namespace {

using gmac::testing::expect;
using gmac::testing::expectSuccess;
using gmac::testing::kMask;
using gmac::testing::Memory;
using gmac::testing::says;

constexpr int kBytes = 100'000;
int rank = 0;
int ranks = 0;
int next = 0;
int previous = 0;

unsigned char valueOf(int owner, int round, int i) {
  return static_cast<unsigned char>(owner * 71 + round * 13 + i * 7 + i / 256);
}

// An object, and the window over it.
class Windowed {
 public:
  explicit Windowed(int bytes = kBytes, int unit = 1)
      : memory_(std::make_unique<Memory>(Memory::Kind::kShared, static_cast<std::size_t>(bytes))) {
    std::memset(memory_->data(), 0, memory_->size());
    create(unit);
  }
  ~Windowed() { MPI_Win_free(&window); }
  Windowed(const Windowed&) = delete;
  Windowed& operator=(const Windowed&) = delete;

  unsigned char* data() const { return memory_->data(); }
  int* ints() const { return static_cast<int*>(static_cast<void*>(memory_->data())); }
  // Writes such values, which are current on the accelerator alone then.
  void fillByKernel(int round) const {
    for (std::size_t i = 0; i < memory_->size(); ++i) {
      data()[i] = valueOf(rank, round, static_cast<int>(i)) ^ kMask;
    }
    memory_->flip();
  }
  void flip() const { memory_->flip(); }
  void freeMemory() { memory_.reset(); }

  MPI_Win window = MPI_WIN_NULL;

 private:
  void create(int unit) {
    const int code = MPI_Win_create(memory_->data(), static_cast<MPI_Aint>(memory_->size()), unit,
                                    MPI_INFO_NULL, MPI_COMM_WORLD, &window);
    expectSuccess(code, "a window over an object");
    MPI_Win_set_errhandler(window, MPI_ERRORS_RETURN);
  }
  std::unique_ptr<Memory> memory_;
};

void attributes() {
  const Windowed object(kBytes, 4);
  void* base = nullptr;
  MPI_Aint* size = nullptr;
  int* unit = nullptr;
  int* flavor = nullptr;
  int* model = nullptr;
  int found = 0;
  MPI_Win_get_attr(object.window, MPI_WIN_BASE, static_cast<void*>(&base), &found);
  expect(found != 0 && base == object.data(), "the base is the object");
  MPI_Win_get_attr(object.window, MPI_WIN_SIZE, static_cast<void*>(&size), &found);
  expect(found != 0 && *size == kBytes, "the size is the object's");
  MPI_Win_get_attr(object.window, MPI_WIN_DISP_UNIT, static_cast<void*>(&unit), &found);
  expect(found != 0 && *unit == 4, "the displacement unit");
  MPI_Win_get_attr(object.window, MPI_WIN_CREATE_FLAVOR, static_cast<void*>(&flavor), &found);
  expect(found != 0 && *flavor == MPI_WIN_FLAVOR_CREATE, "the flavor");
  MPI_Win_get_attr(object.window, MPI_WIN_MODEL, static_cast<void*>(&model), &found);
  expect(found != 0 && *model == MPI_WIN_SEPARATE, "the separate memory model");
  alignas(16) int plain = 0;  // (MPICH 4.0 rounds the address that it tells)
  MPI_Win other;
  MPI_Win_create(&plain, sizeof plain, 1, MPI_INFO_NULL, MPI_COMM_WORLD, &other);
  MPI_Win_get_attr(other, MPI_WIN_BASE, static_cast<void*>(&base), &found);
  expect(base == &plain, "the base of plain memory");
  MPI_Win_free(&other);
}

// Kernels, stores and puts of two neighbours, byte by byte, in one epoch after the other.
void fences() {
  const Windowed object;
  const Memory fetched(Memory::Kind::kShared, kBytes);
  MPI_Datatype pairs;  // every third byte
  MPI_Type_vector(kBytes / 3, 1, 3, MPI_BYTE, &pairs);
  MPI_Type_commit(&pairs);
  for (int round = 0; round < 4; ++round) {
    object.fillByKernel(round);
    MPI_Win_fence(0, object.window);
    MPI_Get(fetched.data(), kBytes, MPI_BYTE, next, 0, kBytes, MPI_BYTE, object.window);
    MPI_Win_fence(0, object.window);
    for (int i = 0; i < kBytes; ++i) {
      expect(fetched.data()[i] == valueOf(next, round, i), "what a kernel has written is fetched");
    }
    // Bytes 0, 3, ... from the one, 1, 4, ... from the other; and 2, 5, ... by the owner.
    unsigned char put[kBytes / 3];
    for (int i = 0; i < kBytes / 3; ++i) put[i] = valueOf(rank, round, 3 * i + 1);
    MPI_Put(put, kBytes / 3, MPI_BYTE, next, 0, 1, pairs, object.window);
    MPI_Put(put, kBytes / 3, MPI_BYTE, previous, 1, 1, pairs, object.window);
    for (int i = 2; i < kBytes; i += 3) object.data()[i] = 200;
    MPI_Win_fence(0, object.window);
    const auto expected = [&](int owner, int i) -> unsigned char {
      const int before = (owner + ranks - 1) % ranks;
      const int after = (owner + 1) % ranks;
      if (i >= kBytes / 3 * 3) return i % 3 == 2 ? 200 : valueOf(owner, round, i);
      return i % 3 == 0   ? valueOf(before, round, i + 1)
             : i % 3 == 1 ? valueOf(after, round, i)
                          : 200;
    };
    for (int i = 0; i < kBytes; ++i) {
      expect(object.data()[i] == expected(rank, i), "puts and stores in one epoch, byte by byte");
    }
    object.flip();
    MPI_Win_fence(0, object.window);
    MPI_Get(fetched.data(), kBytes, MPI_BYTE, previous, 0, kBytes, MPI_BYTE, object.window);
    MPI_Win_fence(0, object.window);
    for (int i = 0; i < kBytes; ++i) {
      expect(fetched.data()[i] == (expected(previous, i) ^ kMask), "and a kernel after them");
    }
  }
  MPI_Type_free(&pairs);
}

// Assertions only save work.
void assertions() {
  const Windowed object(4096);
  int value = 0;
  const auto fetch = [&] {
    value = -1;
    MPI_Get(&value, 1, MPI_INT, next, 8, 1, MPI_INT, object.window);
  };
  object.ints()[2] = 5;
  MPI_Win_fence(MPI_MODE_NOPRECEDE | MPI_MODE_NOPUT, object.window);
  fetch();
  MPI_Win_fence(MPI_MODE_NOSTORE | MPI_MODE_NOPUT, object.window);
  expect(value == 5, "nothing stored, nothing put");
  MPI_Win_fence(MPI_MODE_NOSTORE, object.window);
  const int put = 50 + rank;
  MPI_Put(&put, 1, MPI_INT, next, 0, 1, MPI_INT, object.window);
  MPI_Win_fence(MPI_MODE_NOSTORE | MPI_MODE_NOSUCCEED, object.window);
  expect(object.ints()[0] == 50 + previous, "puts after a fence that asserts none before it");
  // A store since the last fence, and since the store a synchronisation that publishes nothing.
  object.ints()[2] = 7;
  MPI_Win_start(MPI_GROUP_EMPTY, 0, object.window);
  MPI_Win_complete(object.window);
  MPI_Win_fence(MPI_MODE_NOPRECEDE | MPI_MODE_NOSTORE, object.window);
  fetch();
  MPI_Win_fence(0, object.window);
  expect(value == 7, "a store that an earlier synchronisation came after");
}

void generalActiveTarget(bool tests) {
  const Windowed object;
  MPI_Group all;
  MPI_Group others;
  MPI_Comm_group(MPI_COMM_WORLD, &all);
  const std::array<int, 2> both = {next, previous};
  MPI_Group_incl(all, 2, both.data(), &others);
  const Memory fetched(Memory::Kind::kShared, kBytes);
  for (int round = 0; round < 3; ++round) {
    object.fillByKernel(round);
    MPI_Win_post(others, 0, object.window);
    MPI_Win_start(others, 0, object.window);
    MPI_Get(fetched.data(), 1000, MPI_BYTE, next, 5000, 1000, MPI_BYTE, object.window);
    const int put = 1000 * round + rank;
    MPI_Put(&put, 1, MPI_INT, next, 0, 1, MPI_INT, object.window);
    MPI_Put(&put, 1, MPI_INT, previous, kBytes - 4, 1, MPI_INT, object.window);
    object.data()[5] = 9;
    MPI_Win_complete(object.window);
    for (int i = 0; i < 1000; ++i) {
      expect(fetched.data()[i] == valueOf(next, round, 5000 + i), "fetched when complete");
    }
    if (tests) {
      for (int done = 0; done == 0;) MPI_Win_test(object.window, &done);
    } else {
      MPI_Win_wait(object.window);
    }
    int last = 0;
    std::memcpy(&last, object.data() + kBytes - 4, sizeof last);
    expect(object.ints()[0] == 1000 * round + previous && last == 1000 * round + next,
           "what was put is there after the wait");
    expect(object.data()[5] == 9, "and what was stored");
    expect(object.data()[6] == valueOf(rank, round, 6), "and all else");
  }
  MPI_Group_free(&all);
  MPI_Group_free(&others);
}

// Everybody adds to every number of rank 0's, and counts.
void accumulates() {
  constexpr int kNumbers = 3000;
  const Windowed object(kNumbers * 4, 4);
  for (int i = 0; i < kNumbers; ++i) object.ints()[i] = i ^ 0x5a5a5a5a;
  object.flip();
  MPI_Win_fence(0, object.window);
  std::array<int, kNumbers> ones{};
  ones.fill(rank + 1);
  MPI_Accumulate(ones.data(), kNumbers, MPI_INT, 0, 0, kNumbers, MPI_INT, MPI_SUM, object.window);
  MPI_Win_fence(0, object.window);
  for (int i = 0; i < kNumbers; ++i) {
    expect(object.ints()[i] == i + (rank == 0 ? 6 : 0), "accumulated by all, at a fence");
  }
  MPI_Barrier(MPI_COMM_WORLD);
  // A lock for each, with kernels of the owner's between them.
  for (int round = 0; round < 3; ++round) {
    MPI_Win_lock(MPI_LOCK_EXCLUSIVE, 0, 0, object.window);
    MPI_Accumulate(ones.data(), kNumbers, MPI_INT, 0, 0, kNumbers, MPI_INT, MPI_SUM, object.window);
    MPI_Win_unlock(0, object.window);
    MPI_Barrier(MPI_COMM_WORLD);
    if (rank == 0) {
      MPI_Win_lock(MPI_LOCK_EXCLUSIVE, 0, 0, object.window);
      for (int i = 0; i < kNumbers; ++i) {
        expect(object.ints()[i] == i + 6 * (round + 2), "accumulated by all, under locks");
      }
      object.flip();
      object.flip();
      MPI_Win_unlock(0, object.window);
    }
    MPI_Barrier(MPI_COMM_WORLD);
  }
  // A counter.
  constexpr int kTurns = 100;
  MPI_Win_lock_all(0, object.window);
  const int one = 1;
  int before = -1;
  int last = -1;
  for (int i = 0; i < kTurns; ++i) {
    MPI_Fetch_and_op(&one, &before, MPI_INT, 0, 17, MPI_SUM, object.window);
    MPI_Win_flush(0, object.window);
    expect(before > last, "a counter counts");
    last = before;
  }
  MPI_Win_unlock_all(object.window);
  MPI_Barrier(MPI_COMM_WORLD);
  MPI_Win_lock(MPI_LOCK_SHARED, rank, 0, object.window);
  expect(object.ints()[17] == 17 + (rank == 0 ? 6 * 4 + kTurns * ranks : 0), "all that count");
  MPI_Win_unlock(rank, object.window);
}

#ifdef MPICH  // Open MPI 4.1 crashes where the processes do not share the memory.
void comparesAndSwaps() {
  const Windowed object(4096, 4);
  MPI_Win_lock_all(0, object.window);
  const int mine = rank + 1;
  const int none = 0;
  int before = -1;
  MPI_Compare_and_swap(&mine, &none, &before, MPI_INT, 0, 3, object.window);
  MPI_Win_unlock_all(object.window);
  MPI_Barrier(MPI_COMM_WORLD);
  MPI_Win_lock(MPI_LOCK_SHARED, rank, 0, object.window);
  const int winner = object.ints()[3];
  MPI_Win_unlock(rank, object.window);
  expect(rank != 0 || (winner >= 1 && winner <= ranks), "one of them swaps");
  expect(rank != 0 || (before == 0) == (winner == 1), "and knows it");
}
#endif

// One epoch for all: MPI_Win_sync on the owner's side.
void passiveTarget() {
  const Windowed object;
  MPI_Win_lock_all(0, object.window);
  for (int round = 0; round < 4; ++round) {
    object.fillByKernel(round);
    MPI_Win_sync(object.window);
    MPI_Barrier(MPI_COMM_WORLD);
    unsigned char fetched[1000];
    MPI_Get(fetched, 1000, MPI_BYTE, next, 40'000, 1000, MPI_BYTE, object.window);
    MPI_Win_flush(next, object.window);
    for (int i = 0; i < 1000; ++i) {
      expect(fetched[i] == valueOf(next, round, 40'000 + i), "published by MPI_Win_sync");
    }
    const int put = 7000 + 10 * round + rank;
    MPI_Request request;
    MPI_Rput(&put, 1, MPI_INT, next, 80'000, 1, MPI_INT, object.window, &request);
    MPI_Wait(&request, MPI_STATUS_IGNORE);
    MPI_Win_flush_all(object.window);
    object.data()[80'004] = static_cast<unsigned char>(round);  // beside it
    MPI_Barrier(MPI_COMM_WORLD);
    MPI_Win_sync(object.window);
    int got = 0;
    std::memcpy(&got, object.data() + 80'000, sizeof got);
    expect(got == 7000 + 10 * round + previous, "what was put is there after MPI_Win_sync");
    expect(object.data()[80'004] == round, "and what was stored beside it");
    MPI_Barrier(MPI_COMM_WORLD);
  }
  MPI_Win_unlock_all(object.window);
  // A flag that the owner waits for.
  MPI_Barrier(MPI_COMM_WORLD);
  std::memset(object.data(), 0, 8);
  MPI_Win_lock_all(0, object.window);
  MPI_Win_sync(object.window);
  MPI_Barrier(MPI_COMM_WORLD);
  const int one = 1;
  MPI_Accumulate(&one, 1, MPI_INT, next, 0, 1, MPI_INT, MPI_REPLACE, object.window);
  MPI_Win_flush(next, object.window);
  while (object.ints()[0] == 0) {
    int found = 0;
    MPI_Iprobe(MPI_ANY_SOURCE, 77, MPI_COMM_WORLD, &found, MPI_STATUS_IGNORE);
    MPI_Win_sync(object.window);
  }
  MPI_Win_unlock_all(object.window);
}

// As programs do that were written for the unified model.
void barriers() {
  const Windowed object;
  std::array<int, 100> put{};
  put.fill(rank + 1);
  for (int round = 0; round < 3; ++round) {
    std::memset(object.data(), 0xff, kBytes);
    MPI_Barrier(MPI_COMM_WORLD);
    MPI_Win_lock(MPI_LOCK_EXCLUSIVE, next, 0, object.window);
    MPI_Put(put.data(), 100, MPI_INT, next, 4000, 100, MPI_INT, object.window);
    MPI_Win_unlock(next, object.window);
    MPI_Barrier(MPI_COMM_WORLD);
    for (int i = 0; i < 100; ++i) {
      expect(object.ints()[1000 + i] == previous + 1,
             "what is put after a barrier, over stores before it");
    }
    expect(object.ints()[999] == -1 && object.ints()[1100] == -1, "and stores beside it");
    MPI_Barrier(MPI_COMM_WORLD);
  }
}

void ownTarget() {
  const Windowed object;
  object.fillByKernel(0);
  int value = 12345;
  MPI_Win_lock(MPI_LOCK_EXCLUSIVE, rank, 0, object.window);
  MPI_Put(&value, 1, MPI_INT, rank, 400, 1, MPI_INT, object.window);
  MPI_Win_flush(rank, object.window);
  expect(object.ints()[100] == 12345, "a process's own put is there after the flush");
  value = 1;
  MPI_Accumulate(&value, 1, MPI_INT, rank, 400, 1, MPI_INT, MPI_SUM, object.window);
  MPI_Win_unlock(rank, object.window);
  expect(object.ints()[100] == 12346, "and what it accumulates after the unlock");
  expect(object.data()[404] == valueOf(rank, 0, 404), "beside what a kernel has written");
  // Over stores that nothing has published: to what was public there.
  MPI_Win_lock(MPI_LOCK_SHARED, rank, 0, object.window);
  std::array<int, 3> before{};
  std::memcpy(before.data(), object.ints() + 100, sizeof before);
  for (int i = 0; i < 3; ++i) {
    object.ints()[100 + i] = 5;
    MPI_Put(&before[static_cast<std::size_t>(i)], 1, MPI_INT, rank, 400 + 4 * i, 1, MPI_INT,
            object.window);
  }
  MPI_Win_flush(rank, object.window);
  expect(std::memcmp(object.ints() + 100, before.data(), sizeof before) == 0,
         "puts come after the stores before them");
  MPI_Win_unlock(rank, object.window);
}

// The bytes that a get brings into the window go on from there after the same fence.
void relays() {
  for (const bool typed : {false, true}) {
    const Windowed object(40'000);
    const Memory fetched(Memory::Kind::kShared, 40'000);
    MPI_Datatype type;
    MPI_Type_vector(1000, typed ? 10 : 20, 20, MPI_BYTE, &type);
    MPI_Type_commit(&type);
    for (int round = 0; round < 6; ++round) {
      for (int i = 0; i < 20'000; ++i) object.data()[i] = valueOf(rank, round, i);
      // The value there was what will be fetched, and is another one: nobody sees the difference
      // by what was last public.
      for (int i = 20'000; i < 40'000; ++i) object.data()[i] = valueOf(next, round, i - 20'000);
      MPI_Win_fence(0, object.window);
      std::memset(object.data() + 20'000, 1, 20'000);
      MPI_Get(object.data() + 20'000, 1, type, next, 0, 1, type, object.window);
      MPI_Win_fence(0, object.window);
      MPI_Get(fetched.data(), 20'000, MPI_BYTE, next, 20'000, 20'000, MPI_BYTE, object.window);
      MPI_Win_fence(0, object.window);
      for (int i = 0; i < 20'000; ++i) {
        const bool there = !typed || i % 20 < 10;
        expect(object.data()[20'000 + i] == (there ? valueOf(next, round, i) : 1),
               "a get into the window itself");
        expect(fetched.data()[i] == (there ? valueOf((next + 1) % ranks, round, i) : 1),
               "and from there, an epoch later");
      }
    }
    MPI_Win_fence(MPI_MODE_NOSUCCEED, object.window);
    MPI_Win_lock(MPI_LOCK_SHARED, next, 0, object.window);
    std::memset(object.data() + 20'000, 2, 20'000);
    MPI_Get(object.data() + 20'000, 1, type, next, 0, 1, type, object.window);
    MPI_Win_flush(next, object.window);
    for (int i = 0; i < 20'000; ++i) {
      expect(object.data()[20'000 + i] == (!typed || i % 20 < 10 ? valueOf(next, 5, i) : 2),
             "a get of what was public there, over a store that was not");
    }
    MPI_Win_unlock(next, object.window);
    MPI_Type_free(&type);
  }
}

// Fetching operations whose results lie in the window.
void resultsInTheWindow() {
  const Windowed object(4096, 4);
  object.ints()[0] = 100 + rank;
  object.ints()[1] = 3;
  MPI_Win_fence(0, object.window);
  MPI_Get_accumulate(object.ints() + 1, 1, MPI_INT, object.ints() + 10, 1, MPI_INT, next, 0, 1,
                     MPI_INT, MPI_SUM, object.window);
  MPI_Win_fence(0, object.window);
  expect(object.ints()[10] == 100 + next, "a result in the window");
  expect(object.ints()[0] == 103 + rank, "and the sum");
  int fetched = 0;
  MPI_Get(&fetched, 1, MPI_INT, next, 10, 1, MPI_INT, object.window);
  MPI_Win_fence(0, object.window);
  expect(fetched == 100 + (next + 1) % ranks, "and others fetch that");
}

void freedWindow() {
  auto object = std::make_unique<Memory>(Memory::Kind::kShared, kBytes);
  std::memset(object->data(), 0, kBytes);
  object->flip();
  MPI_Win window;
  MPI_Win_create(object->data(), kBytes, 1, MPI_INFO_NULL, MPI_COMM_WORLD, &window);
  const int put = 4000 + rank;
  MPI_Win_lock(MPI_LOCK_SHARED, next, 0, window);
  MPI_Put(&put, 1, MPI_INT, next, 200, 1, MPI_INT, window);
  MPI_Win_unlock(next, window);
  MPI_Win_free(&window);
  int got = 0;
  std::memcpy(&got, object->data() + 200, sizeof got);
  expect(got == 4000 + previous, "what was put is there when the window is freed");
  expect(object->data()[0] == kMask, "and what a kernel has written");
}

void freedMemory() {
  {
    Windowed object;
    MPI_Win_fence(0, object.window);
    object.freeMemory();
    expectSuccess(MPI_Win_fence(0, object.window),
                  "a fence after the object was freed, and nothing put");
    MPI_Barrier(MPI_COMM_WORLD);
    const int put = 1 + rank;
    MPI_Put(&put, 1, MPI_INT, next, 0, 1, MPI_INT, object.window);
    expect(says(MPI_Win_fence(0, object.window), "the window's memory was freed"),
           "what is put into freed memory is lost, and said");
    int got = 0;
    MPI_Get(&got, 1, MPI_INT, next, 0, 1, MPI_INT, object.window);
    expectSuccess(MPI_Win_fence(0, object.window), "once");
    expect(got == 1 + rank, "the public copy stays");
  }
  Windowed object;
  MPI_Win_lock(MPI_LOCK_SHARED, next, 0, object.window);
  const int put = 1 + rank;
  MPI_Put(&put, 1, MPI_INT, next, 0, 1, MPI_INT, object.window);
  MPI_Win_unlock(next, object.window);
  object.freeMemory();
}

// Two windows over one object.
void twoWindows() {
  const Windowed object(4096, 4);
  MPI_Win second;
#if MPI_VERSION >= 4
  MPI_Win_create_c(object.data() + 1024, 1024, 4, MPI_INFO_NULL, MPI_COMM_WORLD, &second);
#else
  MPI_Win_create(object.data() + 1024, 1024, 4, MPI_INFO_NULL, MPI_COMM_WORLD, &second);
#endif
  MPI_Win_fence(0, second);
  const int put = 900 + rank;
  MPI_Put(&put, 1, MPI_INT, next, 3, 1, MPI_INT, second);
  MPI_Win_fence(0, second);
  expect(object.ints()[256 + 3] == 900 + previous, "put through the second window");
  MPI_Win_fence(0, object.window);
  int got = 0;
  MPI_Get(&got, 1, MPI_INT, next, 256 + 3, 1, MPI_INT, object.window);
  MPI_Win_fence(0, object.window);
  expect(got == 900 + rank, "and fetched through the first");
  MPI_Win_free(&second);
}

// Threads store to the object, each to bytes of its own, while others put beside them and the
// window is synchronised over and over.
void threads() {
  const Windowed object(30'000);
  MPI_Win_lock_all(0, object.window);
  std::atomic<bool> stops{false};
  std::array<std::thread, 2> storing;
  for (int t = 0; t < 2; ++t) {
    storing[static_cast<std::size_t>(t)] = std::thread([&, t] {
      for (int round = 1; !stops; ++round) {
        for (int i = t; i < 30'000; i += 3) {
          unsigned char& byte = object.data()[i];
          // Nobody has undone the last one.
          expect(byte == static_cast<unsigned char>(round - 1), "a store stays");
          byte = static_cast<unsigned char>(round);
        }
        std::this_thread::yield();
      }
    });
  }
  MPI_Datatype thirds;
  MPI_Type_vector(10'000, 1, 3, MPI_BYTE, &thirds);
  MPI_Type_commit(&thirds);
  std::array<unsigned char, 10'000> put{};
  for (int round = 1; round <= 12; ++round) {
    put.fill(static_cast<unsigned char>(round));
    MPI_Put(put.data(), 10'000, MPI_BYTE, next, 2, 1, thirds, object.window);
    MPI_Win_flush(next, object.window);
    MPI_Win_sync(object.window);
    if (round % 4 == 0) {
      MPI_Barrier(MPI_COMM_WORLD);
      MPI_Win_sync(object.window);
      for (int i = 2; i < 30'000; i += 3) {
        expect(object.data()[i] == round, "what is put between stores arrives");
      }
      MPI_Barrier(MPI_COMM_WORLD);
    }
  }
  stops = true;
  for (std::thread& thread : storing) thread.join();
  MPI_Win_unlock_all(object.window);
  MPI_Barrier(MPI_COMM_WORLD);
  std::array<unsigned char, 3> fetched{};
  MPI_Win_lock(MPI_LOCK_SHARED, next, 0, object.window);
  MPI_Get(fetched.data(), 3, MPI_BYTE, next, 0, 3, MPI_BYTE, object.window);
  MPI_Win_unlock(next, object.window);
  std::array<unsigned char, 3> theirs{};
  MPI_Sendrecv(object.data(), 3, MPI_BYTE, previous, 1, theirs.data(), 3, MPI_BYTE, next, 1,
               MPI_COMM_WORLD, MPI_STATUS_IGNORE);
  expect(fetched == theirs, "and what threads have stored is fetched");
  MPI_Type_free(&thirds);
}

void refusals() {
  const Memory object(Memory::Kind::kShared, kBytes);
  MPI_Win window;
  expect(says(MPI_Win_create(object.data() - 1, kBytes, 1, MPI_INFO_NULL, MPI_COMM_WORLD, &window),
              "MPI_Win_create: the window would be partly over a shared object"),
         "a window over a part of an object and something else is refused");
  MPI_Win_create_dynamic(MPI_INFO_NULL, MPI_COMM_WORLD, &window);
  MPI_Win_set_errhandler(window, MPI_ERRORS_RETURN);
  expect(says(MPI_Win_attach(window, object.data(), kBytes),
              "MPI_Win_attach: the memory is a shared object's or a device's"),
         "an object is not attached");
  MPI_Win_free(&window);
  // An argument that MPI refuses.
  const int code =
      MPI_Win_create(object.data(), kBytes, -1, MPI_INFO_NULL, MPI_COMM_WORLD, &window);
  int errorClass = MPI_SUCCESS;
  MPI_Error_class(code, &errorClass);
  expect(errorClass == MPI_ERR_DISP || errorClass == MPI_ERR_ARG, "MPI's own errors stay");
}

}  // namespace

int main(int argc, char** argv) {
  int provided = 0;
  // One thread calls MPI: more are refused by Open MPI's windows where it has no RDMA (pt2pt).
  MPI_Init_thread(&argc, &argv, MPI_THREAD_FUNNELED, &provided);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &ranks);
  MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
  next = (rank + 1) % ranks;
  previous = (rank + ranks - 1) % ranks;
  expect(ranks == 3, "three ranks: mpirun -n 3");
  attributes();
  fences();
  assertions();
  generalActiveTarget(false);
  generalActiveTarget(true);
  accumulates();
#ifdef MPICH
  comparesAndSwaps();
#endif
  passiveTarget();
  barriers();
  ownTarget();
  relays();
  resultsInTheWindow();
  freedWindow();
  freedMemory();
  twoWindows();
  threads();
  refusals();
  MPI_Finalize();
  if (rank == 0) std::puts("windows are right");
}
