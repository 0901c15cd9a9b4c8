// SPDX-License-Identifier: Apache-2.0
#include <dlfcn.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "gmac/api/adsm.h"
#include "tests/neighbours/subject.h"

namespace subject {
namespace {

Scenario* first = nullptr;

template <typename Function>
Function* find(const char* name) {
  auto* const found = reinterpret_cast<Function*>(::dlsym(RTLD_DEFAULT, name));
  if (found == nullptr) {
    say("nobody preloaded %s", name);
    ::_exit(99);
  }
  return found;
}

bool isShared() { return std::getenv("GMAC_TEST_SHARED") != nullptr; }

void check(bool well, const char* what) {
  if (well) return;
  say("%s: %s", what, find<decltype(adsmLastErrorString)>("adsmLastErrorString")());
  ::_exit(98);
}

void addOne(const adsmThreadBlock_t*, void** args) { ++**static_cast<unsigned char**>(args[0]); }

}  // namespace

Scenario::Scenario(const char* name, int (*run)()) : name(name), run(run), next(first) {
  first = this;
}

Scenario* scenarios() noexcept { return first; }

void say(const char* format, ...) {
  char line[512];
  va_list arguments;
  va_start(arguments, format);
  int length = std::vsnprintf(line, sizeof line - 1, format, arguments);
  va_end(arguments);
  line[length++] = '\n';
  (void)!::write(STDOUT_FILENO, line, static_cast<std::size_t>(length));
}

unsigned char* allocate() {
  void* memory = nullptr;
  if (isShared()) {
    memory = find<decltype(adsmAlloc)>("adsmAlloc")(kBytes);
    check(memory != nullptr, "adsmAlloc");
    std::memset(memory, 0, kBytes);
  } else {
    memory = ::mmap(nullptr, kBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  }
  return static_cast<unsigned char*>(memory);
}

void close(unsigned char* memory) {
  if (!isShared()) {
    ++*memory;
    return;
  }
  static adsmKernel_t kernel = nullptr;
  if (kernel == nullptr) {
    static const std::size_t kSizes[] = {sizeof(void*)};
    adsmKernelDesc_t description = {};
    description.name = "addOne";
    description.paramCount = 1;
    description.paramSizes = kSizes;
    description.host = &addOne;
    check(
        find<decltype(adsmKernelCreate)>("adsmKernelCreate")(&description, &kernel) == adsmSuccess,
        "adsmKernelCreate");
  }
  void* args[] = {&memory};
  check(find<decltype(adsmCall)>("adsmCall")(kernel, {1, 1, 1}, {1, 1, 1}, 0, args) == adsmSuccess,
        "adsmCall");
  check(find<decltype(adsmSync)>("adsmSync")() == adsmSuccess, "adsmSync");
}

}  // namespace subject

int main(int argc, char** argv) {
  for (const subject::Scenario* one = subject::scenarios(); one != nullptr; one = one->next) {
    if (argc == 2 && std::strcmp(argv[1], one->name) == 0) return one->run();
    if (argc == 1) std::puts(one->name);
  }
  return argc == 1 ? 0 : 97;
}
