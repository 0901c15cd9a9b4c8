// SPDX-License-Identifier: Apache-2.0
//
// A program that is not linked with the library: it finds the API only when the library is
// preloaded.
//   probe read FILE   reads the file into a shared object with one read() and prints its bytes' sum
#include <dlfcn.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>

namespace {

[[noreturn]] void end(const char* what) {
  std::fprintf(stderr, "probe: %s\n", what);
  std::exit(1);
}

void readInto(const char* path) {
  const auto allocate = reinterpret_cast<void* (*)(size_t)>(dlsym(RTLD_DEFAULT, "adsmAlloc"));
  if (allocate == nullptr) end("no library is preloaded");
  const int descriptor = open(path, O_RDONLY);
  struct stat status {};
  if (descriptor < 0 || fstat(descriptor, &status) != 0) end("cannot open the file");
  const auto bytes = static_cast<size_t>(status.st_size);
  auto* const shared = static_cast<unsigned char*>(allocate(bytes));
  if (shared == nullptr) end("no shared object");
  if (read(descriptor, shared, bytes) != status.st_size) end("a short read");
  unsigned long sum = 0;
  for (size_t i = 0; i < bytes; ++i) sum += shared[i];
  std::printf("%lu\n", sum);
}

}  // namespace

int main(int argc, char** argv) {
  if (argc == 3 && std::strcmp(argv[1], "read") == 0) {
    readInto(argv[2]);
    return 0;
  }
  end("usage: probe read FILE");
}
