// SPDX-License-Identifier: Apache-2.0
//
// Files of random programs, and the calls of MPI-IO by number.
#ifndef GMAC_TESTS_MPI_FILE_CALLS_H_
#define GMAC_TESTS_MPI_FILE_CALLS_H_

#include <unistd.h>

#include <array>
#include <cstdlib>
#include <string>

#include "tests/mpi/random_run.h"
#include "tests/mpi/temporary_file.h"

namespace gmac::testing {

#ifdef MPICH
inline constexpr bool kIsMpich4 = true;
#else
inline constexpr bool kIsMpich4 = false;
#endif

class File {
 public:
  // Begins with those bytes of rank 0's.
  explicit File(Run& run, const std::string& begins = {}) : run_(run) {
    const std::string name = temporaryFileOf(run.comm, begins);
    if (MPI_File_open(run.comm, name.c_str(),
                      MPI_MODE_CREATE | MPI_MODE_RDWR | MPI_MODE_DELETE_ON_CLOSE, MPI_INFO_NULL,
                      &file_) != MPI_SUCCESS) {
      fail("MPI_File_open");
    }
  }
  ~File() { MPI_File_close(&file_); }
  File(const File&) = delete;
  File& operator=(const File&) = delete;
  MPI_File get() const { return file_; }

  // Lets all read what all have written; by the common pointer, from the beginning.
  void turn(bool rewinds) const {
    MPI_File_sync(file_);
    MPI_Barrier(run_.comm);
    MPI_File_sync(file_);
    if (rewinds) MPI_File_seek_shared(file_, 0, MPI_SEEK_SET);
  }

 private:
  Run& run_;
  MPI_File file_ = MPI_FILE_NULL;
};

// How something is read or written.
enum Call : int {
  kSingle,
  kAt,
  kAll,
  kAtAll,
  kOrdered,
  kShared,  // by rank 0 alone
  kBeginAll,
  kBeginAtAll,
  kBeginOrdered,
  kNonblocking,
  kNonblockingAt,
  kNonblockingAll,
  kNonblockingAtAll,
  kNonblockingShared,
  kCalls
};

// One call and what completes it: `name` calls the forms of `direction`, read or write.
#define GMAC_FILE_CALL(name, direction, form, Count)                                              \
  inline int name(Call call, MPI_File file, MPI_Offset offset, void* buffer, Count count,         \
                  MPI_Datatype type, MPI_Status* status) {                                        \
    MPI_Request request = MPI_REQUEST_NULL;                                                       \
    int code = MPI_SUCCESS;                                                                       \
    const auto then = [&](int (*end)(MPI_File, decltype(buffer), MPI_Status*)) {                  \
      return code != MPI_SUCCESS ? code : end(file, buffer, status);                              \
    };                                                                                            \
    const auto wait = [&] { return code != MPI_SUCCESS ? code : MPI_Wait(&request, status); };    \
    switch (call) {                                                                               \
      case kSingle:                                                                               \
        return MPI_File_##direction##form(file, buffer, count, type, status);                     \
      case kAt:                                                                                   \
        return MPI_File_##direction##_at##form(file, offset, buffer, count, type, status);        \
      case kAll:                                                                                  \
        return MPI_File_##direction##_all##form(file, buffer, count, type, status);               \
      case kAtAll:                                                                                \
        return MPI_File_##direction##_at_all##form(file, offset, buffer, count, type, status);    \
      case kOrdered:                                                                              \
        return MPI_File_##direction##_ordered##form(file, buffer, count, type, status);           \
      case kShared:                                                                               \
        return MPI_File_##direction##_shared##form(file, buffer, count, type, status);            \
      case kBeginAll:                                                                             \
        code = MPI_File_##direction##_all_begin##form(file, buffer, count, type);                 \
        return then([](MPI_File f, void* b, MPI_Status* s) {                                      \
          return MPI_File_##direction##_all_end(f, b, s);                                         \
        });                                                                                       \
      case kBeginAtAll:                                                                           \
        code = MPI_File_##direction##_at_all_begin##form(file, offset, buffer, count, type);      \
        return then([](MPI_File f, void* b, MPI_Status* s) {                                      \
          return MPI_File_##direction##_at_all_end(f, b, s);                                      \
        });                                                                                       \
      case kBeginOrdered:                                                                         \
        code = MPI_File_##direction##_ordered_begin##form(file, buffer, count, type);             \
        return then([](MPI_File f, void* b, MPI_Status* s) {                                      \
          return MPI_File_##direction##_ordered_end(f, b, s);                                     \
        });                                                                                       \
      case kNonblocking:                                                                          \
        code = MPI_File_i##direction##form(file, buffer, count, type, &request);                  \
        return wait();                                                                            \
      case kNonblockingAt:                                                                        \
        code = MPI_File_i##direction##_at##form(file, offset, buffer, count, type, &request);     \
        return wait();                                                                            \
      case kNonblockingAll:                                                                       \
        code = MPI_File_i##direction##_all##form(file, buffer, count, type, &request);            \
        return wait();                                                                            \
      case kNonblockingAtAll:                                                                     \
        code = MPI_File_i##direction##_at_all##form(file, offset, buffer, count, type, &request); \
        return wait();                                                                            \
      default:                                                                                    \
        code = MPI_File_i##direction##_shared##form(file, buffer, count, type, &request);         \
        return wait();                                                                            \
    }                                                                                             \
  }
GMAC_FILE_CALL(readBy, read, , int)
GMAC_FILE_CALL(writeBy, write, , int)
#if MPI_VERSION >= 4
GMAC_FILE_CALL(readLargeBy, read, _c, MPI_Count)
GMAC_FILE_CALL(writeLargeBy, write, _c, MPI_Count)
#endif
#undef GMAC_FILE_CALL

}  // namespace gmac::testing

#endif  // GMAC_TESTS_MPI_FILE_CALLS_H_
