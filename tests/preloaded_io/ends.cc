// SPDX-License-Identifier: Apache-2.0
//
// The sources and targets of the calls' bytes.
#include <fcntl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cstdio>
#include <cstdlib>
#include <tuple>
#include <utility>

#include "tests/preloaded_io/operations.h"

namespace gmac::testing {
namespace {

// The folder of the files. Made with the first use, gone at exit.
class Folder {
 public:
  Folder() {
    const char* const parent = std::getenv("TEST_TMPDIR");
    path_ = std::string(parent != nullptr ? parent : "/tmp") + "/preloaded_io.XXXXXX";
    if (::mkdtemp(path_.data()) == nullptr) std::exit(1);
    std::FILE* const input = std::fopen((path_ + "/input").c_str(), "wb");
    for (std::size_t i = 0; i < kInputBytes; ++i) std::fputc(inputByte(i), input);
    if (std::fclose(input) != 0) std::exit(1);
  }
  ~Folder() {
    ::unlink((path_ + "/input").c_str());
    ::unlink((path_ + "/output").c_str());
    ::rmdir(path_.c_str());
  }
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

const std::string& folder() {
  static const Folder the;
  return the.path();
}

constexpr int kSocketTypes[] = {SOCK_STREAM, SOCK_DGRAM, SOCK_SEQPACKET};

void closeAll(std::initializer_list<int> descriptors) {
  for (const int descriptor : descriptors) {
    if (descriptor >= 0) ::close(descriptor);
  }
}

}  // namespace

// Lines of different lengths, and a few zeros.
unsigned char inputByte(std::size_t offset) {
  return offset % 1009 == 0 || offset % 77 == 0
             ? '\n'
             : static_cast<unsigned char>(offset * 31 + (offset >> 8) * 3);
}

std::string inputPath() { return folder() + "/input"; }
std::string outputPath() { return folder() + "/output"; }

std::vector<unsigned char> drain(int descriptor) {
  std::vector<unsigned char> all;
  std::array<unsigned char, 65536> part;
  for (ssize_t count; (count = ::read(descriptor, part.data(), part.size())) > 0;) {
    all.insert(all.end(), part.begin(), part.begin() + count);
    all.push_back(255);  // messages stay apart
  }
  return all;
}

// ---- Source ----

Source::Source(Random& random) {
  int ends[2] = {-1, -1};
  switch (random.below(12)) {
    default: {
      direct_ = random.oneIn(4);
      if (direct_) descriptor_ = ::open(inputPath().c_str(), O_RDONLY | O_DIRECT);
      if (descriptor_ < 0) descriptor_ = ::open(inputPath().c_str(), O_RDONLY);
      seekable_ = true;
      const std::size_t to = random.below(kInputBytes + 3000);
      ::lseek(descriptor_, static_cast<off_t>(direct_ ? to / 4096 * 4096 : to), SEEK_SET);
      return;
    }
    case 0:
      if (::pipe2(ends, O_NONBLOCK) != 0) std::abort();
      std::tie(descriptor_, other_) = std::pair(ends[0], ends[1]);
      send(random, 60000, true);
      return;
    case 1:
    case 2:
      if (::socketpair(AF_UNIX, kSocketTypes[random.below(3)] | SOCK_NONBLOCK, 0, ends) != 0) {
        std::abort();
      }
      std::tie(descriptor_, other_) = std::pair(ends[0], ends[1]);
      send(random, 30000, false);
      send(random, 30000, true);
      return;
    case 3:
      descriptor_ = ::open("/dev/zero", O_RDONLY);
      return;
    case 4:
      descriptor_ = random.oneIn(2) ? ::open(folder().c_str(), O_RDONLY | O_DIRECTORY)
                                    : ::open("/dev/null", O_WRONLY);
      return;
    case 5:
      return;  // nothing is open under -1
  }
}

void Source::send(Random& random, std::size_t most, bool mayEnd) {
  std::vector<unsigned char> message(random.size(most));
  for (std::size_t i = 0; i < message.size(); ++i) message[i] = inputByte(i);
  if (!message.empty() && ::write(other_, message.data(), message.size()) < 0) std::abort();
  if (mayEnd && random.oneIn(3)) ::close(std::exchange(other_, -1));
}

Source::~Source() { closeAll({descriptor_, other_}); }

void Source::noteAfter(Outcome& outcome) const {
  if (seekable_) {
    outcome.note(::lseek(descriptor_, 0, SEEK_CUR));
  } else if (other_ >= 0) {
    const std::vector<unsigned char> left = drain(descriptor_);
    outcome.rest.insert(outcome.rest.end(), left.begin(), left.end());
  }
}

// ---- Target ----

Target::Target(Random& random) {
  int ends[2] = {-1, -1};
  switch (random.below(10)) {
    default: {
      ::unlink(outputPath().c_str());
      const int flags = random.oneIn(4) ? O_APPEND : 0;
      descriptor_ = ::open(outputPath().c_str(), O_RDWR | O_CREAT | O_TRUNC | flags, 0600);
      if (::write(descriptor_, "before", 6) != 6) std::abort();
      ::lseek(descriptor_, static_cast<off_t>(random.size(100000)), SEEK_SET);
      seekable_ = true;
      return;
    }
    case 0:
      if (::pipe2(ends, O_NONBLOCK) != 0) std::abort();
      std::tie(other_, descriptor_) = std::pair(ends[0], ends[1]);
      return;
    case 1:
    case 2:
      if (::socketpair(AF_UNIX, kSocketTypes[random.below(3)] | SOCK_NONBLOCK, 0, ends) != 0) {
        std::abort();
      }
      std::tie(descriptor_, other_) = std::pair(ends[0], ends[1]);
      return;
    case 3:
      descriptor_ = ::open(random.oneIn(2) ? "/dev/null" : "/dev/full", O_WRONLY);
      return;
    case 4:
      descriptor_ = random.oneIn(2) ? ::open(inputPath().c_str(), O_RDONLY) : -1;
      return;
  }
}

Target::~Target() { closeAll({descriptor_, other_}); }

void Target::noteAfter(Outcome& outcome) const {
  if (seekable_) {
    outcome.note(::lseek(descriptor_, 0, SEEK_CUR));
    ::lseek(descriptor_, 0, SEEK_SET);
  }
  if (seekable_ || other_ >= 0) {
    const std::vector<unsigned char> arrived = drain(seekable_ ? descriptor_ : other_);
    outcome.rest.insert(outcome.rest.end(), arrived.begin(), arrived.end());
  }
}

}  // namespace gmac::testing
