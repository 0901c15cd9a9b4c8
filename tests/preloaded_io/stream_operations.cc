// SPDX-License-Identifier: Apache-2.0
//
// stdio and iostreams.
#undef _FORTIFY_SOURCE
#include <fcntl.h>
#include <stdio.h>
#include <stdio_ext.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <utility>

#include "tests/preloaded_io/operations.h"

extern "C" {
size_t __fread_chk(void*, size_t, size_t, size_t, FILE*);
size_t __fread_unlocked_chk(void*, size_t, size_t, size_t, FILE*);
char* __fgets_chk(char*, size_t, int, FILE*);
char* __fgets_unlocked_chk(char*, size_t, int, FILE*);
}

namespace gmac::testing {
namespace {

constexpr std::size_t kMost = std::size_t{3} << 20;

// A stream to read from, at any place, with any buffer of its own.
FILE* anyInput(Random& random) {
  FILE* stream = nullptr;
  if (random.oneIn(4)) {
    int ends[2];
    if (::pipe(ends) != 0) std::abort();
    std::vector<unsigned char> message(random.size(60000));
    for (std::size_t i = 0; i < message.size(); ++i) message[i] = inputByte(i);
    if (!message.empty() && ::write(ends[1], message.data(), message.size()) < 0) std::abort();
    ::close(ends[1]);
    stream = ::fdopen(ends[0], "rb");
  } else {
    stream = ::fopen(inputPath().c_str(), "rb");
    ::fseek(stream, static_cast<long>(random.below(kInputBytes + 100)), SEEK_SET);
  }
  if (random.oneIn(4)) ::setvbuf(stream, nullptr, _IONBF, 0);
  if (random.oneIn(2)) ::fgetc(stream);  // a buffer that is used in part
  return stream;
}

void noteInput(Outcome& outcome, FILE* stream) {
  outcome.note(::ftell(stream));
  outcome.note(::feof(stream) != 0);
  outcome.note(::ferror(stream) != 0);
  outcome.note(::fgetc(stream));
  ::fclose(stream);
}

Outcome doFread(Random random, const Memory& memory) {
  const Span span = anySpan(random, memory, kMost, false);
  const std::size_t size = 1 + random.size(5000);
  const std::size_t items = span.bytes / size;
  const std::size_t form = random.below(4);
  FILE* const stream = anyInput(random);
  Outcome outcome;
  outcome.make([&] {
    switch (form) {
      case 0:
        return ::fread_unlocked(span.at, size, items, stream);
      case 1:
        return __fread_chk(span.at, span.bytes, size, items, stream);
      case 2:
        return __fread_unlocked_chk(span.at, span.bytes, size, items, stream);
      default:
        return ::fread(span.at, size, items, stream);
    }
  });
  noteInput(outcome, stream);
  return outcome;
}

// Many small ones, as programs read structures.
Outcome doFreadItems(Random random, const Memory& memory) {
  const Span span = anySpan(random, memory, kMost, false);
  const std::size_t size = 1 + random.below(6000);
  FILE* const stream = anyInput(random);
  Outcome outcome;
  outcome.make([&] {
    std::size_t items = 0;
    for (std::size_t at = 0; at + size <= span.bytes && items < 500; at += size, ++items) {
      if (::fread(span.at + at, size, 1, stream) != 1) break;
    }
    return items;
  });
  noteInput(outcome, stream);
  return outcome;
}

Outcome doFgets(Random random, const Memory& memory) {
  const Span span = anySpan(random, memory, 100000, false);
  const int room = static_cast<int>(span.bytes);
  auto* const text = reinterpret_cast<char*>(span.at);
  const std::size_t form = random.below(4);
  FILE* const stream = anyInput(random);
  Outcome outcome;
  outcome.make([&] {
    const char* line = nullptr;
    switch (form) {
      case 0:
        line = ::fgets_unlocked(text, room, stream);
        break;
      case 1:
        line = __fgets_chk(text, span.bytes, room, stream);
        break;
      case 2:
        line = __fgets_unlocked_chk(text, span.bytes, room, stream);
        break;
      default:
        line = ::fgets(text, room, stream);
    }
    return line == nullptr ? 0 : line == text ? 1 : 2;
  });
  noteInput(outcome, stream);
  return outcome;
}

// Into buffers that are large enough: what happens to others is no plain memory's matter.
Outcome doGetline(Random random, const Memory& memory) {
  constexpr std::size_t kRoom = 4096;  // lines are shorter
  constexpr int kDelimiters[] = {'\n', '\n', 0, 'x'};
  const int delimiter = kDelimiters[random.below(4)];
  const Span span = {memory.at + Memory::kControlBytes +
                         random.below(memory.bytes - Memory::kControlBytes - (1 << 16)),
                     delimiter == '\n' ? kRoom : 1 << 16};
  Told told(memory);
  char** const buffer = told.put(random, reinterpret_cast<char*>(span.at));
  std::size_t* const room = told.put(random, span.bytes);
  const std::size_t form = random.below(3);
  FILE* const stream = anyInput(random);
  Outcome outcome;
  outcome.make([&] {
    return form == 0 && delimiter == '\n' ? ::getline(buffer, room, stream)
           : form == 1                    ? __getdelim(buffer, room, delimiter, stream)
                                          : ::getdelim(buffer, room, delimiter, stream);
  });
  outcome.note(*room);
  outcome.note(*buffer == reinterpret_cast<char*>(span.at));
  noteInput(outcome, stream);
  return outcome;
}

FILE* anyOutput(Random& random) {
  FILE* stream = nullptr;
  // Whatever another operation left there is no part of this one, also when nothing is written.
  ::unlink(outputPath().c_str());
  if (random.oneIn(10)) {
    stream = ::fopen("/dev/full", "wb");
  } else {
    stream = ::fopen(outputPath().c_str(), random.oneIn(4) ? "ab+" : "wb+");
  }
  constexpr int kModes[] = {_IOFBF, _IOLBF, _IONBF};
  if (random.oneIn(2)) ::setvbuf(stream, nullptr, kModes[random.below(3)], 0);
  if (random.oneIn(2)) ::fputs("before", stream);
  return stream;
}

void noteOutput(Outcome& outcome, FILE* stream) {
  outcome.note(::fputs("after", stream) < 0);
  outcome.note(::ferror(stream) != 0);
  outcome.note(::fclose(stream));
  const int file = ::open(outputPath().c_str(), O_RDONLY);
  if (file < 0) return;
  const std::vector<unsigned char> written = drain(file);
  outcome.rest.insert(outcome.rest.end(), written.begin(), written.end());
  ::close(file);
  ::unlink(outputPath().c_str());
}

Outcome doFwrite(Random random, const Memory& memory) {
  const Span span = anySpan(random, memory, kMost, false);
  const std::size_t size = 1 + random.size(5000);
  const std::size_t items = span.bytes / size;
  const bool unlocked = random.oneIn(2);
  FILE* const stream = anyOutput(random);
  Outcome outcome;
  outcome.make([&] {
    return unlocked ? ::fwrite_unlocked(span.at, size, items, stream)
                    : ::fwrite(span.at, size, items, stream);
  });
  noteOutput(outcome, stream);
  return outcome;
}

Outcome doFputs(Random random, const Memory& memory) {
  Span span = anySpan(random, memory, kMost, false);
  if (span.bytes == 0) span = {memory.at + Memory::kControlBytes, 1};
  for (std::size_t i = 0; i < span.bytes; ++i) {
    if (span.at[i] == 0) span.at[i] = ' ';
  }
  span.at[span.bytes - 1] = 0;
  const auto* const text = reinterpret_cast<const char*>(span.at);
  const bool unlocked = random.oneIn(2);
  FILE* const stream = anyOutput(random);
  Outcome outcome;
  outcome.make([&] { return unlocked ? ::fputs_unlocked(text, stream) : ::fputs(text, stream); });
  noteOutput(outcome, stream);
  return outcome;
}

// A stream whose own buffer the program wants shared.
Outcome doSetvbuf(Random random, const Memory& memory) {
  const Span buffer = anySpan(random, memory, 100000, false);
  std::vector<unsigned char> before(buffer.at, buffer.at + buffer.bytes);
  const std::size_t bytes = random.size(50000);
  const bool asBuffer = random.oneIn(2) && buffer.bytes > 0;
  Outcome outcome;
  FILE* const stream = ::fopen(inputPath().c_str(), "rb");
  if (asBuffer) {
    ::setbuffer(stream, reinterpret_cast<char*>(buffer.at), buffer.bytes);
  } else {
    outcome.note(::setvbuf(stream, reinterpret_cast<char*>(buffer.at), _IOFBF, buffer.bytes));
  }
  std::vector<unsigned char> text(bytes);
  outcome.make([&] { return ::fread(text.data(), 1, bytes, stream); });
  outcome.rest.insert(outcome.rest.end(), text.begin(), text.end());
  ::fclose(stream);
  // The content of a stream's buffer is not compared.
  std::copy(before.begin(), before.end(), buffer.at);
  return outcome;
}

Outcome doIfstream(Random random, const Memory& memory) {
  const Span span = anySpan(random, memory, kMost, false);
  std::ifstream stream(inputPath(), std::ios::binary);
  stream.seekg(static_cast<std::streamoff>(random.below(kInputBytes)));
  if (random.oneIn(2)) stream.get();
  Outcome outcome;
  outcome.make([&] {
    stream.read(reinterpret_cast<char*>(span.at), static_cast<std::streamsize>(span.bytes));
    return stream.gcount();
  });
  outcome.error = 0;  // a stream promises nothing of errno
  outcome.note(stream.rdstate());
  stream.clear();
  outcome.note(static_cast<long>(stream.tellg()));
  return outcome;
}

Outcome doOfstream(Random random, const Memory& memory) {
  const Span span = anySpan(random, memory, kMost, false);
  Outcome outcome;
  {
    std::ofstream stream(outputPath(), std::ios::binary | std::ios::trunc);
    stream << "before";
    outcome.make([&] {
      stream.write(reinterpret_cast<const char*>(span.at),
                   static_cast<std::streamsize>(span.bytes));
      return stream.good();
    });
    outcome.error = 0;
    stream << "after";
  }
  const int file = ::open(outputPath().c_str(), O_RDONLY);
  const std::vector<unsigned char> written = drain(file);
  outcome.rest.insert(outcome.rest.end(), written.begin(), written.end());
  ::close(file);
  return outcome;
}

}  // namespace

const std::vector<Operation>& streamOperations() {
  static const std::vector<Operation> all = {
      {"fread", doFread},     {"fread_items", doFreadItems}, {"fgets", doFgets},
      {"getline", doGetline}, {"fwrite", doFwrite},          {"fputs", doFputs},
      {"setvbuf", doSetvbuf}, {"ifstream", doIfstream},      {"ofstream", doOfstream}};
  return all;
}

}  // namespace gmac::testing
