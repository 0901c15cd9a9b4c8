// SPDX-License-Identifier: Apache-2.0
//
// Accesses that libc makes for the program, and accesses at the start and end of threads and of the
// program.
#include <dlfcn.h>
#include <pthread.h>
#include <regex.h>
#include <unistd.h>
#include <wchar.h>

#include <algorithm>
#include <atomic>
#include <climits>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <latch>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "tests/neighbours/subject.h"

namespace {

using subject::allocate;
using subject::close;
using subject::say;

constexpr std::size_t kText = 200000;

// A text of words, ended, in memory whose current copy is the accelerator's; its first byte is one
// more than it was.
char* closedText() {
  auto* const text = reinterpret_cast<char*>(allocate());
  unsigned seed = 1;
  for (std::size_t i = 0; i < kText; ++i) {
    seed = seed * 1103515245 + 12345;
    text[i] = (seed >> 16) % 6 == 0 ? ' ' : static_cast<char>('a' + (seed >> 16) % 26);
  }
  text[0] = 'a';
  close(reinterpret_cast<unsigned char*>(text));
  return text;
}

void again(char* text) {
  text[0] = 'a';
  close(reinterpret_cast<unsigned char*>(text));
}

unsigned long sumOf(const char* bytes, std::size_t count) {
  unsigned long sum = 0;
  for (std::size_t i = 0; i < count; ++i) sum = sum * 31 + static_cast<unsigned char>(bytes[i]);
  return sum;
}

SCENARIO(strings) {
  char* const text = closedText();
  say("strlen %zu", std::strlen(text));
  again(text);
  std::string formatted(kText + 100, '\0');
  const int length = std::snprintf(formatted.data(), formatted.size(), "<%s|%.40s>", text, text);
  say("snprintf %d %lx", length, sumOf(formatted.data(), static_cast<std::size_t>(length)));
  again(text);
  std::printf("%.100s\n", text);
  std::fflush(stdout);
  again(text);
  say("strchr %td", std::strchr(text, '\0') - text);
  again(text);
  say("strstr %td", std::strstr(text, "the") - text);
  again(text);
  say("memchr %td", static_cast<char*>(std::memchr(text, ' ', kText)) - text);
  again(text);
  const std::unique_ptr<char, decltype(&std::free)> copy(strdup(text), &std::free);
  say("strdup %lx", sumOf(copy.get(), kText));
  again(text);
  say("strcmp %d", std::strcmp(text, copy.get()));
  again(text);
  say("sscanf into it %d", std::sscanf("4711 abc", "%*d %s", text + 5000));
  say("%s", text + 5000);
  again(text);
  say("sprintf into it %d %s", std::sprintf(text + 9000, "%d-%s", 17, "x"), text + 9000);
  again(text);
  say("strtol %ld", std::strtol(std::strcpy(text + 100, "4711"), nullptr, 10));
  again(text);
  int words = 0;
  for (char *rest = text, *word; (word = strsep(&rest, " ")) != nullptr;) words += *word != '\0';
  say("words %d", words);
  return 0;
}

SCENARIO(sorting) {
  char* const text = closedText();
  std::qsort(text, kText, 1, [](const void* a, const void* b) {
    return *static_cast<const char*>(a) - *static_cast<const char*>(b);
  });
  say("qsort %lx", sumOf(text, kText));
  again(text);
  std::sort(text, text + kText, std::greater<>());
  say("sort %lx", sumOf(text, kText));
  again(text);
  const char key = 'q';
  std::sort(text, text + kText);
  again(text);
  const void* found = std::bsearch(&key, text, kText, 1, [](const void* a, const void* b) {
    return *static_cast<const char*>(a) - *static_cast<const char*>(b);
  });
  say("bsearch %d", found != nullptr);
  return 0;
}

SCENARIO(regularExpressions) {
  char* const text = closedText();
  regex_t expression;
  say("regcomp %d", regcomp(&expression, "[aeiou][^ ]+ing", REG_EXTENDED));
  regmatch_t match = {};
  say("regexec %d", regexec(&expression, text, 1, &match, 0));
  say("at %d to %d", match.rm_so, match.rm_eo);
  regfree(&expression);
  return 0;
}

// Accesses like those of checksums and compressors: two running sums, back references, a table.
SCENARIO(compressorLoop) {
  char* const text = closedText();
  unsigned a = 1;
  unsigned b = 0;
  std::size_t matched = 0;
  for (std::size_t i = 0; i < kText; ++i) {
    a = (a + static_cast<unsigned char>(text[i])) % 65521;
    b = (b + a) % 65521;
    if (i >= 5000) {
      std::size_t length = 0;
      while (i + length < kText && length < 258 && text[i + length] == text[i - 5000 + length])
        ++length;
      matched += length;
    }
  }
  say("%x%x %zu", b, a, matched);
  again(text);
  std::memmove(text + 50000, text, 100000);
  again(text);
  say("memmove %lx", sumOf(text, kText));
  std::memset(text + 777, 'z', 70000);
  again(text);
  say("memset %lx", sumOf(text, kText));
  return 0;
}

SCENARIO(streams) {
  char* const text = closedText();
  char* buffer = nullptr;
  std::size_t size = 0;
  FILE* stream = open_memstream(&buffer, &size);
  std::fputs(text, stream);
  std::fprintf(stream, "%s", text);
  std::fclose(stream);
  say("memstream %zu %lx", size, sumOf(buffer, size));
  std::free(buffer);
  again(text);
  stream = fmemopen(text, kText, "r");
  char line[100];
  say("fgets %lx", std::fgets(line, sizeof line, stream) != nullptr ? sumOf(line, 99) : 0);
  std::fclose(stream);
  return 0;
}

// ---- Threads

unsigned char* memory = nullptr;

void touch(const char* who, std::size_t at) {
  auto* const byte = static_cast<volatile unsigned char*>(memory + at);
  *byte = static_cast<unsigned char>(*byte + 1);
  say("%s: %d %d", who, *byte, *static_cast<volatile unsigned char*>(memory));
}

void onThread(std::size_t stackBytes, void* (*body)(void*), void* argument = nullptr) {
  pthread_attr_t attributes;
  pthread_attr_init(&attributes);
  if (stackBytes != 0) pthread_attr_setstacksize(&attributes, stackBytes);
  pthread_t thread;
  const int error = pthread_create(&thread, &attributes, body, argument);
  if (error != 0) {
    say("pthread_create: %d", error);
    return;
  }
  pthread_join(thread, nullptr);
  pthread_attr_destroy(&attributes);
}

SCENARIO(smallStacks) {
  memory = allocate();
  for (const std::size_t bytes : {std::size_t{32} << 10, std::size_t{64} << 10}) {
    close(memory);
    onThread(bytes, [](void*) -> void* {
      touch("thread", 5000);
      return nullptr;
    });
  }
  return 0;
}

struct AtThreadEnd {
  ~AtThreadEnd() { touch("destructor of a thread's variable", 6000); }
};
thread_local std::unique_ptr<AtThreadEnd> atThreadEnd;

SCENARIO(threadEnd) {
  memory = allocate();
  static pthread_key_t key;
  pthread_key_create(&key, [](void*) {
    close(memory);
    touch("destructor of a key", 7000);
  });
  for (int round = 0; round < 3; ++round) {
    onThread(0, [](void*) -> void* {
      pthread_setspecific(key, memory);
      atThreadEnd = std::make_unique<AtThreadEnd>();
      close(memory);
      return nullptr;
    });
  }
  return 0;
}

SCENARIO(manyThreads) {
  memory = allocate();
  close(memory);
  std::vector<std::thread> threads;
  for (std::size_t i = 0; i < 16; ++i) {
    threads.emplace_back([i] {
      for (int round = 0; round < 50; ++round) ++memory[1000 + i * 64 + i * 4096];
    });
  }
  for (std::thread& thread : threads) thread.join();
  close(memory);
  unsigned sum = 0;
  for (std::size_t i = 0; i < 16; ++i) sum += memory[1000 + i * 64 + i * 4096];
  say("%u", sum);
  return 0;
}

SCENARIO(loadedLibrary) {
  memory = allocate();
  memory[3000] = 41;
  close(memory);
  char address[32];
  std::snprintf(address, sizeof address, "%p", static_cast<void*>(memory + 3000));
  setenv("GMAC_TEST_ADDRESS", address, 1);
  void* const library = dlopen(std::getenv("GMAC_TEST_LIBRARY"), RTLD_NOW);
  if (library == nullptr) {
    say("dlopen: %s", dlerror());
    return 1;
  }
  say("%d", memory[3000]);
  close(memory);
  dlclose(library);
  say("%d", memory[3000]);
  return 0;
}

// ---- The program's own start and end

bool wanted = false;

[[gnu::constructor]] void beforeMain() {
  // Only for the scenario that is about it; its name is the last thing in the command line.
  char line[256] = {};
  if (FILE* file = std::fopen("/proc/self/cmdline", "r")) {
    (void)!std::fread(line, 1, sizeof line - 1, file);
    std::fclose(file);
  }
  const char* const scenario = line + std::strlen(line) + 1;
  wanted = std::strcmp(scenario, "beforeAndAfterMain") == 0;
  if (!wanted) return;
  memory = allocate();
  std::atexit([] {
    close(memory);
    touch("first handler, last to run", 1);
  });
  close(memory);
  touch("constructor", 2);
}

[[gnu::destructor]] void afterMain() {
  if (!wanted) return;
  close(memory);
  touch("destructor", 3);
}

struct Global {
  ~Global() {
    if (!wanted) return;
    close(memory);
    touch("global object's destructor", 4);
  }
} global;

SCENARIO(beforeAndAfterMain) {
  std::atexit([] {
    close(memory);
    touch("last handler, first to run", 1);
  });
  touch("main", 2);
  return 3;
}

// More than a stream's buffer takes: libc gives it to the kernel.
SCENARIO(printing) {
  char* const text = closedText();
  const std::unique_ptr<FILE, decltype(&std::fclose)> file(std::tmpfile(), &std::fclose);
  say("fprintf %d", std::fprintf(file.get(), "<%s|%.40s>", text, text));
  again(text);
  say("fputs %d", std::fputs(text, file.get()) >= 0);
  again(text);
  say("fputs of an end %d", std::fputs(text + kText - 5, file.get()) >= 0);
  std::rewind(file.get());
  std::string all(3 * kText, '\0');
  const std::size_t count = std::fread(all.data(), 1, all.size(), file.get());
  say("%zu bytes, %lx", count, sumOf(all.data(), count));
  return 0;
}

// The runtime starts, and with it the accelerator, in one of several threads that the program has.
SCENARIO(startsBesideThreads) {
  std::atomic<bool> stop{false};
  std::vector<std::thread> beside;
  for (int i = 0; i < 4; ++i) {
    beside.emplace_back([&] {
      while (!stop) ::usleep(1000);
    });
  }
  unsigned char* memory = nullptr;
  std::thread([&] { memory = allocate(); }).join();
  memory[0] = 1;
  close(memory);
  say("from the accelerator: %d", memory[0]);
  std::thread([&] { ++memory[0]; }).join();
  close(memory);
  say("again: %d", memory[0]);
  stop = true;
  for (std::thread& thread : beside) thread.join();
  return 0;
}

// The library's own locks are all that orders its threads.
SCENARIO(allocatesInThreads) {
  constexpr int kThreads = 4;
  std::latch there{kThreads};
  std::atomic<int> wrong{0};
  std::vector<std::thread> threads;
  for (int i = 0; i < kThreads; ++i) {
    threads.emplace_back([&, i] {
      there.arrive_and_wait();
      for (int round = 0; round < 8; ++round) {
        unsigned char* const memory = allocate();
        memory[round + 1] = static_cast<unsigned char>(i + 1);
        close(memory);
        wrong += memory[round + 1] != i + 1 ? 1 : 0;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  say("wrong: %d", wrong.load());
  return 0;
}

}  // namespace
