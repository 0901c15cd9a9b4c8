// SPDX-License-Identifier: Apache-2.0
//
// Where each trampoline leads, decided when it is first used.
#include <dlfcn.h>

#include <atomic>
#include <cstddef>
#include <cstdlib>
#include <mutex>
#include <string>
#include <string_view>

#include "gmac/base/log.h"
#include "gmac/session/mpi_settings.h"
#include "mpi/stub/abi.h"
#include "mpi/stub/launch.h"
#include "mpi/stub/library.h"

extern "C" {
// In trampolines.S: two for each name of kNames.
[[gnu::visibility("hidden")]] extern std::atomic<void*> gmacMpiSlots[];
// The function behind the trampoline of `slot`.
[[gnu::visibility("hidden"), gnu::used]] void* gmacMpiBindSlot(std::atomic<void*>* slot);
}

namespace gmac::mpi {
namespace {

constexpr const char* kNames[] = {
#define GMAC_MPI_NAME(name) #name, "P" #name,
#include "mpi/stub/names.inc"
#undef GMAC_MPI_NAME
#define GMAC_MPI_FORTRAN(name) #name, "p" #name,
#include "mpi/stub/fortran_names.inc"
#undef GMAC_MPI_FORTRAN
};

// Guarded by lock().
struct Chosen {
  Library library;
  std::string version;
  const Abi* abi = nullptr;
};
Chosen& chosen() {
  static auto* const chosen = new Chosen;  // also for exit handlers
  return *chosen;
}
std::mutex& lock() {
  static auto* const lock = new std::mutex;
  return *lock;
}

void* own(const char* name) { return ::dlsym(chosen().library.handle, name); }

void* next(const char* name) {
  void* const symbol = ::dlsym(RTLD_NEXT, name);
  // Not there when the library was loaded by dlopen().
  return symbol != nullptr ? symbol : own(name);
}

// A variable may be the program's own copy of it, which the library uses as well.
void* variable(const char* name) {
  void* const symbol = ::dlsym(RTLD_DEFAULT, name);
  return symbol != nullptr ? symbol : own(name);
}

// Once there is an MPI library.
void choose(const char* name) {
  Chosen& choice = chosen();
  if (choice.library.handle != nullptr) {
    return;
  }
  logThreshold = LogLevel{gmacLogLevel()};
  choice.library = findLibrary();
  if (choice.library.handle == nullptr) {
    writeLogLine(std::string("mpi: ") + name +
                 " is called, and no MPI library is loaded in this process");
    std::abort();
  }
  choice.version = versionOf(choice.library);
  for (const std::string& other : choice.library.others) {
    writeLogLine("mpi: two MPI libraries are loaded, " + choice.library.path + " and " + other +
                 "; calls go to the first");
  }
  choice.abi = abiOf(choice.version, choice.library.path);
  if (choice.abi == nullptr) {
    writeLogLine("mpi: \"" + choice.version + "\" (" + choice.library.path +
                 ") is left alone: known are Open MPI 4 and 5, MPICH and its family");
    return;
  }
  choice.abi->open(&next, &variable);
}

// In place of this library's own functions (abi/collective_types.cc) where the MPI is left alone.
int knowsNothing() { return 0; }

void* targetOf(const char* name) {
  const std::lock_guard guard(lock());
  noteCall();
  choose(name);
  void* const real = next(name);
  void* const hook = chosen().abi != nullptr ? chosen().abi->hook(name) : nullptr;
  if (hook != nullptr) {
    return hook;
  }
  if (real == nullptr && std::string_view(name).find("MPIX_Gmac_") != std::string_view::npos) {
    return reinterpret_cast<void*>(&knowsNothing);
  }
  if (real == nullptr) {
    writeLogLine(std::string("mpi: ") + name + " is called, and " + chosen().version +
                 " has no such function");
    std::abort();
  }
  return real;
}

}  // namespace
}  // namespace gmac::mpi

void* gmacMpiBindSlot(std::atomic<void*>* slot) {
  void* const target = gmac::mpi::targetOf(gmac::mpi::kNames[slot - gmacMpiSlots]);
  slot->store(target, std::memory_order_release);
  return target;
}
