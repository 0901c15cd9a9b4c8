// SPDX-License-Identifier: Apache-2.0
#include "mpi/abi/errors.h"

#include <map>
#include <mutex>
#include <new>

#include "gmac/base/log.h"

namespace gmac::mpi::GMAC_MPI_ABI {
namespace {

// Codes are never given back to MPI; a program that goes on after errors has a few.
constexpr std::size_t kMaxCodes = 1000;

struct Codes {
  std::mutex lock;
  std::map<std::string, int> byText;
  int errorClass = MPI_SUCCESS;  // of them all; not yet made
};
Codes& codes() {
  static auto* const codes = new Codes;
  return *codes;
}

int find(const std::string& text) {
  Codes& all = codes();
  const std::lock_guard guard(all.lock);
  const auto found = all.byText.find(text);
  if (found != all.byText.end()) {
    return found->second;
  }
  return all.byText.size() < kMaxCodes ? MPI_SUCCESS : MPI_ERR_OTHER;
}

// (MPICH 4.0 mixes up the texts of codes that are added to its own classes.)
int ownClass() {
  Codes& all = codes();
  {
    const std::lock_guard guard(all.lock);
    if (all.errorClass != MPI_SUCCESS) {
      return all.errorClass;
    }
  }
  int made = MPI_ERR_OTHER;
  if (real().Add_error_class(&made) != MPI_SUCCESS ||
      real().Add_error_string(made, "gmac: the call has failed") != MPI_SUCCESS) {
    return MPI_ERR_OTHER;
  }
  const std::lock_guard guard(all.lock);
  if (all.errorClass == MPI_SUCCESS) {
    all.errorClass = made;
  }
  return all.errorClass;
}

}  // namespace

int errorCode(const char* call, const std::string& reason) {
  std::string text = std::string(call) + ": " + reason;
  writeLogLine(text);
  text = "gmac: " + text;
  text.resize(std::min(text.size(), std::size_t{MPI_MAX_ERROR_STRING - 1}));
  if (const int code = find(text); code != MPI_SUCCESS) {
    return code;
  }
  int code = MPI_ERR_OTHER;
  if (real().Add_error_code(ownClass(), &code) != MPI_SUCCESS ||
      real().Add_error_string(code, text.c_str()) != MPI_SUCCESS) {
    return MPI_ERR_OTHER;
  }
  Codes& all = codes();
  const std::lock_guard guard(all.lock);
  return all.byText.try_emplace(text, code).first->second;
}

int noMemory(const char* call) noexcept {
  try {
    return errorCode(call, "no memory for what gmac notes of it");
  } catch (const std::bad_alloc&) {
    return MPI_ERR_NO_MEM;
  }
}

int refuseForMemory(const char* call) noexcept {
  const int code = noMemory(call);
  (void)real().Comm_call_errhandler(MPI_COMM_WORLD, code);
  return code;
}

int refuse(MPI_Comm communicator, const char* call, const std::string& reason) {
  const int code = errorCode(call, reason);
  (void)real().Comm_call_errhandler(communicator, code);
  return code;
}

int refuse(MPI_File file, const char* call, const std::string& reason) {
  const int code = errorCode(call, reason);
  (void)real().File_call_errhandler(file, code);
  return code;
}

int refuseAtWindow(MPI_Win window, const char* call, const std::string& reason) {
  const int code = errorCode(call, reason);
  (void)real().Win_call_errhandler(window, code);
  return code;
}

}  // namespace gmac::mpi::GMAC_MPI_ABI
