// SPDX-License-Identifier: Apache-2.0
//
// Random bytes, the memory of processes, offsets, terminals.
#include <fcntl.h>
#include <poll.h>
#include <sys/random.h>
#include <sys/sendfile.h>
#include <sys/uio.h>
#include <termios.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>

#include "tests/preloaded_io/operations.h"

namespace gmac::testing {
namespace {

// The bytes differ each time, so the test checks only that bytes arrived, and none where none
// should.
void forgetRandomBytes(Outcome& outcome, const Span& span, std::size_t count) {
  if (count >= 16) {
    outcome.note(std::all_of(span.at, span.at + count,
                             [&](unsigned char byte) { return byte == span.at[0]; }));
  }
  std::fill_n(span.at, count, 42);
}

Outcome doGetrandom(Random random, const Memory& memory) {
  const Span span = anySpan(random, memory, 200000);
  const unsigned flags = random.oneIn(8) ? 0x8000 : random.oneIn(2) ? GRND_NONBLOCK : 0;
  Outcome outcome;
  outcome.make([&] { return ::getrandom(span.at, span.bytes, flags); });
  forgetRandomBytes(outcome, span, static_cast<std::size_t>(std::max(outcome.result, 0L)));
  outcome.parts = {{span.at, span.bytes}};
  return outcome;
}

Outcome doGetentropy(Random random, const Memory& memory) {
  const Span span = anySpan(random, memory, 300, false);
  Outcome outcome;
  outcome.make([&] { return ::getentropy(span.at, span.bytes); });
  forgetRandomBytes(outcome, span, outcome.result == 0 ? span.bytes : 0);
  return outcome;
}

Outcome doArc4random(Random random, const Memory& memory) {
  const Span span = anySpan(random, memory, 100000, false);
  Outcome outcome;
  outcome.make([&] {
    ::arc4random_buf(span.at, span.bytes);
    return 0;
  });
  forgetRandomBytes(outcome, span, span.bytes);
  return outcome;
}

// Between this process and itself: to and from private memory, or within the memory itself.
template <typename Call>
Outcome betweenProcesses(Random& random, const Memory& memory, bool reads, const Call& call) {
  Told told(memory);
  std::vector<unsigned char> own(200000);
  for (std::size_t i = 0; i < own.size(); ++i) own[i] = inputByte(i);
  const std::vector<iovec> privately = {{own.data(), 70000}, {own.data() + 70000, 130000}};
  const std::vector<iovec> here = anyVector(random, memory, 200000);
  const bool remoteIsMemory = random.oneIn(2);
  const std::vector<iovec>& local = remoteIsMemory ? privately : here;
  const std::vector<iovec>& remote = remoteIsMemory ? here : privately;
  const iovec* const localTable = told.put(random, local);
  const iovec* const remoteTable = told.put(random, remote);
  Outcome outcome;
  outcome.make([&] {
    return call(::getpid(), localTable, local.size(), remoteTable, remote.size(),
                random.oneIn(10) ? 1ul : 0ul);
  });
  if (reads != remoteIsMemory) {
    outcome.parts = here;  // the memory was written
  } else {
    const std::size_t count = static_cast<std::size_t>(std::max(outcome.result, 0L));
    outcome.rest.insert(outcome.rest.end(), own.data(), own.data() + count);
  }
  return outcome;
}

Outcome doProcessReadv(Random random, const Memory& memory) {
  return betweenProcesses(random, memory, true, ::process_vm_readv);
}
Outcome doProcessWritev(Random random, const Memory& memory) {
  return betweenProcesses(random, memory, false, ::process_vm_writev);
}

// Files' bytes move past memory; where from and where to is told by address.
Outcome doOffsets(Random random, const Memory& memory) {
  Told told(memory);
  const int from = ::open(inputPath().c_str(), O_RDONLY);
  const int to = ::open(outputPath().c_str(), O_RDWR | O_CREAT | O_TRUNC, 0600);
  int ends[2];
  if (::pipe2(ends, O_NONBLOCK) != 0) std::abort();
  off64_t* const first = told.put(random, static_cast<off64_t>(random.below(kInputBytes + 500)));
  off64_t* const second = told.put(random, static_cast<off64_t>(random.below(100000)));
  const std::size_t bytes = random.size(200000);
  const std::size_t form = random.below(4);
  Outcome outcome;
  outcome.make([&]() -> ssize_t {
    switch (form) {
      case 0:
        return ::sendfile(to, from, first, bytes);
      case 1:
        return ::sendfile64(to, from, first, bytes);
      case 2:
        return ::copy_file_range(from, first, to, second, bytes, 0);
      default:
        return ::splice(from, first, ends[1], nullptr, bytes, 0);
    }
  });
  outcome.note(*first);
  outcome.note(*second);
  outcome.note(::lseek(from, 0, SEEK_CUR));
  outcome.note(::lseek(to, 0, SEEK_CUR));
  for (const int arrived : {to, ends[0]}) {
    ::lseek(arrived, 0, SEEK_SET);
    const std::vector<unsigned char> rest = drain(arrived);
    outcome.rest.insert(outcome.rest.end(), rest.begin(), rest.end());
  }
  for (const int descriptor : {from, to, ends[0], ends[1]}) ::close(descriptor);
  return outcome;
}

// Bytes through a terminal arrive a little later.
std::vector<unsigned char> readSoon(int descriptor, std::size_t most) {
  std::vector<unsigned char> bytes(most);
  pollfd wanted = {descriptor, POLLIN, 0};
  const bool there = most > 0 && ::poll(&wanted, 1, 5000) == 1;
  const ssize_t count = there ? ::read(descriptor, bytes.data(), most) : 0;
  bytes.resize(static_cast<std::size_t>(std::max<ssize_t>(count, 0)));
  return bytes;
}

// A terminal gives a line at a time, whatever room there is.
Outcome doTerminal(Random random, const Memory& memory) {
  const int program = ::posix_openpt(O_RDWR | O_NOCTTY);
  if (program < 0 || ::grantpt(program) != 0 || ::unlockpt(program) != 0) std::abort();
  const int terminal = ::open(::ptsname(program), O_RDWR | O_NOCTTY);
  termios settings;
  if (::tcgetattr(terminal, &settings) != 0) std::abort();
  settings.c_lflag &= ~static_cast<tcflag_t>(ECHO);
  settings.c_oflag &= ~static_cast<tcflag_t>(OPOST);
  if (::tcsetattr(terminal, TCSANOW, &settings) != 0) std::abort();
  const char lines[] = "a line\nanother one\nno line yet";
  if (::write(program, lines, sizeof lines - 1) < 0) std::abort();
  const Span first = anySpan(random, memory, 5000);
  const Span second = anySpan(random, memory, 500, false);
  Outcome outcome;
  outcome.make([&] { return ::read(terminal, first.at, first.bytes); });
  outcome.parts = {{first.at, first.bytes}};
  const std::vector<unsigned char> next = readSoon(terminal, 100);
  outcome.rest.insert(outcome.rest.end(), next.begin(), next.end());
  const ssize_t written = ::write(terminal, second.at, second.bytes);
  outcome.note(written);
  for (std::size_t left = static_cast<std::size_t>(std::max<ssize_t>(written, 0)); left > 0;) {
    const std::vector<unsigned char> shown = readSoon(program, left);
    if (shown.empty()) break;
    outcome.rest.insert(outcome.rest.end(), shown.begin(), shown.end());
    left -= shown.size();
  }
  ::close(terminal);
  ::close(program);
  return outcome;
}

}  // namespace

const std::vector<Operation>& otherOperations() {
  static const std::vector<Operation> all = {{"getrandom", doGetrandom},
                                             {"getentropy", doGetentropy},
                                             {"arc4random_buf", doArc4random},
                                             {"process_vm_readv", doProcessReadv},
                                             {"process_vm_writev", doProcessWritev},
                                             {"offsets", doOffsets},
                                             {"terminal", doTerminal}};
  return all;
}

}  // namespace gmac::testing
