// SPDX-License-Identifier: Apache-2.0
#include "mpi/job_marks.h"

#include <dlfcn.h>
#include <glob.h>
#include <pmix.h>

#include <climits>
#include <cstdlib>
#include <cstring>
#include <string>
#include <string_view>

namespace gmac::mpi::marks {
namespace {

constexpr const char* kKey = "gmac.mpi";
// Of the tickets and of what follows them: others take the wire.
constexpr std::uint32_t kProtocol = 1;

// Of the library that MPI itself uses; the version of the header need not be the same: what is used
// here of its structures lies where it did since PMIx 2.
struct Functions {
  decltype(&::PMIx_Init) init = nullptr;
  decltype(&::PMIx_Finalize) finalize = nullptr;
  decltype(&::PMIx_Put) put = nullptr;
  decltype(&::PMIx_Commit) commit = nullptr;
  decltype(&::PMIx_Get) get = nullptr;
};
Functions pmix;
pmix_proc_t self;
bool isSet = false;

// Open MPI 4 loads a component for it, which needs the library; Open MPI 5 needs it itself.
void* libraryOf(const char* mpi) {
  char file[PATH_MAX];
  if (::realpath(mpi, file) == nullptr) {
    return nullptr;
  }
  if (void* const own = ::dlopen(file, RTLD_LAZY | RTLD_NOLOAD)) {
    if (::dlsym(own, "PMIx_Init") != nullptr) {
      return own;
    }
    ::dlclose(own);
  }
  // Where it is installed as its authors do, and as Debian does.
  const std::string folder(file, std::string_view(file).rfind('/') + 1);
  void* component = nullptr;
  for (const char* const place : {"openmpi", "openmpi/lib/openmpi*"}) {
    glob_t found{};
    if (::glob((folder + place + "/mca_pmix_ext*.so").c_str(), 0, nullptr, &found) == 0 &&
        found.gl_pathc == 1 && component == nullptr) {
      component = ::dlopen(found.gl_pathv[0], RTLD_LAZY | RTLD_LOCAL);
    }
    ::globfree(&found);
  }
  return component;
}

template <typename Function>
bool find(void* library, const char* name, Function* function) {
  *function = reinterpret_cast<Function>(::dlsym(library, name));
  return *function != nullptr;
}

bool findAll(void* library) {
  return find(library, "PMIx_Init", &pmix.init) && find(library, "PMIx_Finalize", &pmix.finalize) &&
         find(library, "PMIx_Put", &pmix.put) && find(library, "PMIx_Commit", &pmix.commit) &&
         find(library, "PMIx_Get", &pmix.get);
}

// Whether the launcher says that there are several processes, and not all on this host. (Of the
// whole job, so that all processes find the same.)
bool isOnSeveralHosts() {
  const char* const all = std::getenv("OMPI_COMM_WORLD_SIZE");
  const char* const local = std::getenv("OMPI_COMM_WORLD_LOCAL_SIZE");
  return std::getenv("PMIX_NAMESPACE") != nullptr && all != nullptr && local != nullptr &&
         std::string_view(all) != local;
}

// As far as this process's own store knows.
bool isMarked(int rank) {
  pmix_proc_t process = self;
  process.rank = static_cast<pmix_rank_t>(rank);
  pmix_info_t here{};
  std::strncpy(here.key, PMIX_OPTIONAL, sizeof here.key - 1);
  here.value.type = PMIX_BOOL;
  here.value.data.flag = true;
  pmix_value_t* value = nullptr;
  if (pmix.get(&process, kKey, &here, 1, &value) != PMIX_SUCCESS || value == nullptr) {
    return false;
  }
  const bool isOurs = value->type == PMIX_UINT32 && value->data.uint32 == kProtocol;
  std::free(value);
  return isOurs;
}

}  // namespace

void set(const char* mpi) {
  if (isSet || !isOnSeveralHosts()) {
    return;
  }
  void* const library = libraryOf(mpi);
  if (library == nullptr || !findAll(library)) {
    return;
  }
  if (pmix.init(&self, nullptr, 0) != PMIX_SUCCESS) {
    return;
  }
  isSet = true;
  pmix_value_t value{};
  value.type = PMIX_UINT32;
  value.data.uint32 = kProtocol;
  if (pmix.put(PMIX_GLOBAL, kKey, &value) == PMIX_SUCCESS) {
    (void)pmix.commit();
  }
}

bool onAll(int size) {
  if (!isSet) {
    return false;
  }
  isSet = false;
  bool all = true;
  for (int rank = 0; rank < size && all; ++rank) {
    all = isMarked(rank);
  }
  (void)pmix.finalize(nullptr, 0);
  return all;
}

}  // namespace gmac::mpi::marks
