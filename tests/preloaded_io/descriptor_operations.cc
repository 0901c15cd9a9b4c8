// SPDX-License-Identifier: Apache-2.0
//
// read, write, and their positioned, vectored and fortified forms.
#undef _FORTIFY_SOURCE
#include <fcntl.h>
#include <sys/uio.h>
#include <unistd.h>

#include "tests/preloaded_io/operations.h"

extern "C" {
ssize_t __read_chk(int, void*, size_t, size_t);
ssize_t __pread_chk(int, void*, size_t, off_t, size_t);
ssize_t __pread64_chk(int, void*, size_t, off64_t, size_t);
}

namespace gmac::testing {
namespace {

constexpr std::size_t kMost = std::size_t{3} << 20;

// Sometimes what direct I/O asks for.
Span alignedAtTimes(Random& random, Span span) {
  if (!random.oneIn(4)) return span;
  auto* const aligned = reinterpret_cast<unsigned char*>(
      (reinterpret_cast<std::uintptr_t>(span.at) + 4095) / 4096 * 4096);
  const std::size_t lost = static_cast<std::size_t>(aligned - span.at);
  if (span.bytes < lost) return span;
  return {aligned, (span.bytes - lost) / 4096 * 4096};
}

off_t anyOffset(Random& random) {
  switch (random.below(12)) {
    case 0:
      return -1;
    case 1:
      return -5;
    case 2:
      return INT64_MAX - 100;
    case 3:
      return static_cast<off_t>(kInputBytes - random.size(5000));
    default:
      return static_cast<off_t>(random.below(kInputBytes / 4096) * 4096 +
                                (random.oneIn(2) ? random.below(4096) : 0));
  }
}

template <typename Call>
Outcome readOne(Random& random, const Memory& memory, const Call& call) {
  const Source source(random);
  const Span span = alignedAtTimes(random, anySpan(random, memory, kMost, source.mayLeave()));
  Outcome outcome;
  outcome.parts = {{span.at, span.bytes}};
  outcome.make([&] { return call(source.descriptor(), span.at, span.bytes); });
  source.noteAfter(outcome);
  return outcome;
}

template <typename Call>
Outcome writeOne(Random& random, const Memory& memory, const Call& call) {
  const Target target(random);
  const Span span = anySpan(random, memory, kMost);
  Outcome outcome;
  outcome.make([&] { return call(target.descriptor(), span.at, span.bytes); });
  target.noteAfter(outcome);
  return outcome;
}

template <typename Call>
Outcome readMany(Random& random, const Memory& memory, const Call& call) {
  const Source source(random);
  Told told(memory);
  Outcome outcome;
  outcome.parts = anyVector(random, memory, kMost, source.mayLeave());
  const iovec* const parts = told.put(random, outcome.parts);
  const int count = random.oneIn(40) ? -1 : static_cast<int>(outcome.parts.size());
  outcome.make([&] { return call(source.descriptor(), parts, count); });
  source.noteAfter(outcome);
  return outcome;
}

template <typename Call>
Outcome writeMany(Random& random, const Memory& memory, const Call& call) {
  const Target target(random);
  Told told(memory);
  const std::vector<iovec> parts = anyVector(random, memory, kMost);
  const iovec* const table = told.put(random, parts);
  Outcome outcome;
  outcome.make([&] { return call(target.descriptor(), table, static_cast<int>(parts.size())); });
  target.noteAfter(outcome);
  return outcome;
}

int anyFlags(Random& random) {
  constexpr int kFlags[] = {0, 0, 0, RWF_NOWAIT, RWF_APPEND, RWF_DSYNC, 0x40000000};
  return kFlags[random.below(std::size(kFlags))];
}

Outcome doRead(Random random, const Memory& memory) { return readOne(random, memory, ::read); }
Outcome doReadChecked(Random random, const Memory& memory) {
  return readOne(random, memory, [](int descriptor, void* at, std::size_t bytes) {
    return __read_chk(descriptor, at, bytes, bytes);
  });
}
Outcome doPread(Random random, const Memory& memory) {
  const off_t offset = anyOffset(random);
  const std::size_t form = random.below(4);
  return readOne(random, memory, [&](int descriptor, void* at, std::size_t bytes) {
    switch (form) {
      case 0:
        return ::pread64(descriptor, at, bytes, offset);
      case 1:
        return __pread_chk(descriptor, at, bytes, offset, bytes);
      case 2:
        return __pread64_chk(descriptor, at, bytes, offset, bytes);
      default:
        return ::pread(descriptor, at, bytes, offset);
    }
  });
}
Outcome doWrite(Random random, const Memory& memory) { return writeOne(random, memory, ::write); }
Outcome doPwrite(Random random, const Memory& memory) {
  const off_t offset = anyOffset(random);
  const bool large = random.oneIn(2);
  return writeOne(random, memory, [&](int descriptor, const void* at, std::size_t bytes) {
    return large ? ::pwrite64(descriptor, at, bytes, offset % (1 << 22))
                 : ::pwrite(descriptor, at, bytes, offset % (1 << 22));
  });
}
Outcome doReadv(Random random, const Memory& memory) { return readMany(random, memory, ::readv); }
Outcome doPreadv(Random random, const Memory& memory) {
  const off_t offset = anyOffset(random);
  const bool large = random.oneIn(2);
  return readMany(random, memory, [&](int descriptor, const iovec* parts, int count) {
    return large ? ::preadv64(descriptor, parts, count, offset)
                 : ::preadv(descriptor, parts, count, offset);
  });
}
Outcome doPreadv2(Random random, const Memory& memory) {
  const off_t offset = anyOffset(random);
  const int flags = anyFlags(random);
  const bool large = random.oneIn(2);
  return readMany(random, memory, [&](int descriptor, const iovec* parts, int count) {
    return large ? ::preadv64v2(descriptor, parts, count, offset, flags)
                 : ::preadv2(descriptor, parts, count, offset, flags);
  });
}
Outcome doWritev(Random random, const Memory& memory) {
  return writeMany(random, memory, ::writev);
}
Outcome doPwritev(Random random, const Memory& memory) {
  const off_t offset = anyOffset(random) % (1 << 22);
  const bool large = random.oneIn(2);
  return writeMany(random, memory, [&](int descriptor, const iovec* parts, int count) {
    return large ? ::pwritev64(descriptor, parts, count, offset)
                 : ::pwritev(descriptor, parts, count, offset);
  });
}
Outcome doPwritev2(Random random, const Memory& memory) {
  const off_t offset = anyOffset(random) % (1 << 22);
  const int flags = anyFlags(random);
  const bool large = random.oneIn(2);
  return writeMany(random, memory, [&](int descriptor, const iovec* parts, int count) {
    return large ? ::pwritev64v2(descriptor, parts, count, offset, flags)
                 : ::pwritev2(descriptor, parts, count, offset, flags);
  });
}

}  // namespace

const std::vector<Operation>& descriptorOperations() {
  static const std::vector<Operation> all = {
      {"read", doRead},       {"__read_chk", doReadChecked}, {"pread", doPread},
      {"write", doWrite},     {"pwrite", doPwrite},          {"readv", doReadv},
      {"preadv", doPreadv},   {"preadv2", doPreadv2},        {"writev", doWritev},
      {"pwritev", doPwritev}, {"pwritev2", doPwritev2}};
  return all;
}

}  // namespace gmac::testing
