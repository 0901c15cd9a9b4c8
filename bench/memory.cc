// SPDX-License-Identifier: Apache-2.0
//
// The cost, to a memcpy of no shared memory, of passing through the library.
#include <dlfcn.h>
#include <sys/mman.h>

#include <algorithm>
#include <filesystem>
#include <stdexcept>
#include <string>

#include "bench/interleaved.h"
#include "bench/measure.h"

namespace gmac::bench {
namespace {

using Move = void* (*)(void*, const void*, std::size_t);
using Set = void* (*)(void*, int, std::size_t);

void* symbol(void* library, const std::string& name) {
  void* const found = dlsym(library, name.c_str());
  if (found == nullptr) {
    throw std::runtime_error(dlerror());
  }
  return found;
}

// The library beside this program, as a program that preloads it has it; its runtime is another one
// than this program's own.
void* interposer() {
  const auto path = std::filesystem::read_symlink("/proc/self/exe").parent_path().parent_path() /
                    "gmac" / "libgmac.so";
  void* const library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) {
    throw std::runtime_error(dlerror());
  }
  return library;
}

// {function, bytes, calls, rounds}: memcpy, memmove or memset through the library and without it,
// on private memory that lies between shared objects; nanoseconds a call. What is called is what
// any program's calls reach: a function through a pointer that the dynamic linker has set.
json interposed(const json& parameters) {
  const std::string name = parameters["function"];
  const std::size_t bytes = parameters["bytes"];
  const std::size_t calls = parameters["calls"];
  void* const library = interposer();
  void* const libc = dlopen("libc.so.6", RTLD_NOW | RTLD_NOLOAD);
  if (libc == nullptr) {
    throw std::runtime_error(dlerror());
  }
  // Private memory that lies between shared objects: where an object was.
  const auto allocate = reinterpret_cast<decltype(&adsmAlloc)>(symbol(library, "adsmAlloc"));
  const auto release = reinterpret_cast<decltype(&adsmFree)>(symbol(library, "adsmFree"));
  constexpr std::size_t kObjectBytes = std::size_t{4} << 20;
  void* objects[3];
  for (void*& object : objects) {
    object = allocate(kObjectBytes);
    if (object == nullptr) {
      throw std::runtime_error("no shared objects");
    }
  }
  std::sort(std::begin(objects), std::end(objects));
  check(release(objects[1]), "adsmFree");
  if (mmap(objects[1], kObjectBytes, PROT_READ | PROT_WRITE,
           MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) == MAP_FAILED) {
    throw std::runtime_error("no private memory between shared objects");
  }
  char* const to = static_cast<char*>(objects[1]);
  char* const from = to + kObjectBytes / 2;
  std::fill_n(to, kObjectBytes, 'x');
  void* volatile functions[] = {symbol(libc, name), symbol(library, name)};
  if (functions[0] == functions[1]) {
    throw std::runtime_error("the library does not stand in for " + name);
  }
  const Interleaved turns(2, parameters["rounds"], [&](std::size_t i) {
    if (name == "memset") {
      const Set set = reinterpret_cast<Set>(functions[i]);
      const Stopwatch watch;
      for (std::size_t call = 0; call < calls; ++call) {
        (void)set(to, 0, bytes);
      }
      return watch.seconds() / static_cast<double>(calls);
    }
    const Move move = reinterpret_cast<Move>(functions[i]);
    const Stopwatch watch;
    for (std::size_t call = 0; call < calls; ++call) {
      (void)move(to, from, bytes);
    }
    return watch.seconds() / static_cast<double>(calls);
  });
  return {{"direct", turns.seconds(0) * 1e9},
          {"interposed", turns.seconds(1) * 1e9},
          {"over", turns.over(1, 0) * 1e9},
          {"ratio", turns.ratio(1, 0)}};
}
const Registration kInterposed("interposedMemory", &interposed);

}  // namespace
}  // namespace gmac::bench
