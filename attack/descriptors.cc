// SPDX-License-Identifier: Apache-2.0
//
// Programs that close descriptors which they do not own, or were started without some.
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstring>
#include <string>

#include "attack/subject.h"

namespace attack {
namespace {

constexpr std::size_t kWords = std::size_t{2} << 20;

// An object with a pattern that the accelerator has seen.
std::uint32_t* patterned() {
  std::uint32_t* const words = allocate(kWords);
  for (std::size_t i = 0; i < kWords; ++i) words[i] = static_cast<std::uint32_t>(i);
  add(words, kWords, 1);
  sync();
  return words;
}
void requirePattern(const std::uint32_t* words, std::uint32_t added, const char* when) {
  for (std::size_t i = 0; i < kWords; ++i) {
    require(words[i] == i + added, "{}: word {} is {}, not {}", when, i, words[i], i + added);
  }
}

// As daemons are started: the numbers are free when the runtime starts, and belong to the program.
// Its messages go to a descriptor far above.
void startedWithout(int first, int last) {
  const int log = ::fcntl(STDOUT_FILENO, F_DUPFD, 100);
  for (int descriptor = first; descriptor <= last; ++descriptor) ::close(descriptor);
  std::string wrong;
  {
    std::uint32_t* const words = patterned();
    for (int descriptor = 0; descriptor <= 2; ++descriptor) {
      if (descriptor < first || descriptor > last) continue;
      char byte = 0;
      if (::write(descriptor, "a line to nowhere\n", 18) >= 0 || errno != EBADF) {
        wrong = fmt::format("write({}) reached something", descriptor);
      }
      if (::fcntl(descriptor, F_GETFD) >= 0) {
        wrong = fmt::format("descriptor {} is taken", descriptor);
      } else if (::read(descriptor, &byte, 1) >= 0) {
        wrong = fmt::format("read({}) read something", descriptor);
      }
    }
    ::dup2(log, STDOUT_FILENO);
    require(wrong.empty(), "{}", wrong);
    requirePattern(words, 1, "after writes to what was closed");
    add(words, kWords, 1);
    sync();
    requirePattern(words, 2, "after a call");
    check(adsmFree(words), "adsmFree");
  }
  work();
}

std::vector<Attack> startsWithout() {
  std::vector<Attack> attacks;
  for (int descriptor = 0; descriptor < 10; ++descriptor) {
    attacks.push_back({fmt::format("descriptors/started without {}", descriptor),
                       [descriptor] { startedWithout(descriptor, descriptor); }});
  }
  attacks.push_back({"descriptors/started without 0 to 2", [] { startedWithout(0, 2); }});
  attacks.push_back({"descriptors/started without 0 to 9", [] { startedWithout(0, 9); }});
  return attacks;
}
const Registration kStartsWithout(startsWithout());

// ---- Closed under the runtime

constexpr std::size_t kFileBytes = std::size_t{4} << 20;

std::string fileName(int number) { return fmt::format("precious{}", number); }

void writeFile(int number) {
  const int file = ::open(fileName(number).c_str(), O_RDWR | O_CREAT | O_TRUNC, 0644);
  require(file >= 0, "open: {}", std::strerror(errno));
  const std::string block(65536, static_cast<char>('A' + number % 26));
  for (std::size_t done = 0; done < kFileBytes; done += block.size()) {
    require(::write(file, block.data(), block.size()) == static_cast<ssize_t>(block.size()),
            "write: {}", std::strerror(errno));
  }
}
void requireFile(int number) {
  struct stat status {};
  require(::stat(fileName(number).c_str(), &status) == 0 &&
              status.st_size == static_cast<off_t>(kFileBytes),
          "the program's file has {} bytes, not {}", status.st_size, kFileBytes);
  const int file = ::open(fileName(number).c_str(), O_RDONLY);
  std::string block(65536, '\0');
  for (std::size_t done = 0; done < kFileBytes; done += block.size()) {
    require(::read(file, block.data(), block.size()) == static_cast<ssize_t>(block.size()), "read");
    require(block == std::string(65536, static_cast<char>('A' + number % 26)),
            "the program's file has changed at {}", done);
  }
  ::close(file);
}

// The program goes on with allocations, calls and frees, any of which may fail or end it with a
// reason, but none of which may touch its files.
void useAll(std::uint32_t* words) {
  std::string why;
  (void)tryAdd(words, kWords, 1);
  (void)adsmSync();
  for (int i = 0; i < 4; ++i) {
    auto* const more = static_cast<char*>(adsmAlloc(std::size_t{16} << 20));
    if (more == nullptr) break;
    std::memset(more, 3, std::size_t{16} << 20);
    (void)adsmFree(more);
  }
  (void)adsmFree(words);
  (void)workOrError(&why);
}

// In a child of its own process, which a fault may end.
void closedUnder(int first, int last, int files) {
  const End end =
      runProgram({"/proc/self/exe", fmt::format("descriptors/.close {} {}", first, last)}, 15);
  const bool told = end.signal == SIGABRT && end.output.find("gmac: ") != std::string::npos;
  require((end.exitStatus == 0 || told) && !end.timedOut, "closing {} to {}: {}", first, last,
          end.text());
  for (int number = 0; number < files; ++number) requireFile(number);
}

std::vector<Attack> closes() {
  std::vector<Attack> attacks;
  const auto addClosing = [&](int first, int last, int files) {
    // The attack of the child process, under a name of its own.
    attacks.push_back({fmt::format("descriptors/.close {} {}", first, last), [first, last, files] {
                         std::uint32_t* const words = patterned();
                         for (int one = first; one <= last; ++one) ::close(one);
                         for (int number = 0; number < files; ++number) writeFile(number);
                         useAll(words);
                       }});
    attacks.push_back({first == last ? fmt::format("descriptors/closes {}", first)
                                     : fmt::format("descriptors/closes {} to {}", first, last),
                       [first, last, files] { closedUnder(first, last, files); }, 30});
  };
  for (int descriptor = 3; descriptor < 10; ++descriptor) addClosing(descriptor, descriptor, 1);
  addClosing(3, 1023, 6);
  return attacks;
}
const Registration kCloses(closes());

}  // namespace
}  // namespace attack
