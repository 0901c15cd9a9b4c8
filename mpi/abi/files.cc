// SPDX-License-Identifier: Apache-2.0
//
// MPI-IO: the memory's side of a transfer goes through private memory. Views, pointers and what is
// in the file are MPI's.
#include <atomic>
#include <cstdint>
#include <cstring>
#include <mutex>
#include <string_view>
#include <type_traits>
#include <unordered_map>
#include <utility>

#include "mpi/abi/errors.h"
#include "mpi/abi/handle.h"
#include "mpi/abi/hooks.h"
#include "mpi/abi/operand.h"
#include "mpi/abi/requests.h"
#include "mpi/abi/staged.h"

namespace gmac::mpi::GMAC_MPI_ABI {
namespace {

enum class Way { kRead, kWrite };

// Whether all processes that have the file take part.
constexpr bool isCollective(std::string_view call) {
  return call.find("_all") != std::string_view::npos ||
         call.find("_ordered") != std::string_view::npos;
}

// What a transfer has to know of a file's view. (An error is for MPI to find.)
struct View {
  bool native =
      true;  // the file has the bytes as memory has them: else MPI converts them by their types
  bool hasGaps = false;

  explicit View(MPI_File file) {
    MPI_Offset displacement = 0;
    MPI_Datatype types[2] = {MPI_DATATYPE_NULL, MPI_DATATYPE_NULL};
    char representation[MPI_MAX_DATAREP_STRING + 1] = "";
    if (real().File_get_view(file, &displacement, &types[0], &types[1], representation) !=
        MPI_SUCCESS) {
      return;
    }
    native = std::strcmp(representation, "native") == 0;
    MPI_Count bytes = 0;
    MPI_Count lowerBound = 0;
    MPI_Count extent = 0;
    hasGaps = real().Type_size_x(types[1], &bytes) != MPI_SUCCESS ||
              real().Type_get_extent_x(types[1], &lowerBound, &extent) != MPI_SUCCESS ||
              bytes != extent;
    for (MPI_Datatype& type : types) {
      if (isDerived(type)) {
        (void)real().Type_free(&type);
      }
    }
  }
};

// The buffer of one transfer: its packed payload; or, where MPI looks at the types, its elements as
// they stand.
class FileBuffer : public Pending {
 public:
  FileBuffer(Way way, std::string_view call)
      : reads_(way == Way::kRead), isCollective_(isCollective(call)) {}

  Ready prepare(MPI_File file, void* buffer, MPI_Count count, MPI_Datatype type) {
    const View view(file);
    native_ = view.native;
    fills_ = !reads_ || isCollective_ || view.hasGaps;
    type_ = type;
    return native_ ? staged_.prepare(buffer, count, type) : operand_.prepare(buffer, count, type);
  }
  // What a file is too short for stays as it is. MPIs say of it that it has been read, in
  // collective calls (Open MPI 4.1, MPICH 4.0) and where a view has gaps (MPICH): so then the
  // payload is what the buffer has. That costs a pack.
  bool pack() override { return native_ ? !fills_ || staged_.repack() : operand_.pack(); }
  bool deliver(const MPI_Status& status) override {
    // (Open MPI 4.1 says of some that they were cancelled, which cannot be.)
    return !reads_ || (native_ ? staged_.unpackReceived(status) : operand_.unpack());
  }
  const std::string& reason() const override {
    return native_ ? staged_.reason() : operand_.reason();
  }

  // For MPI, with the application's count.
  void* address() const { return native_ ? staged_.address() : operand_.address(); }
  MPI_Datatype datatype() const { return native_ ? staged_.datatype() : type_; }

 private:
  Staged staged_;
  Operand operand_;
  MPI_Datatype type_{};
  const bool reads_;
  const bool isCollective_;
  bool fills_ = true;
  bool native_ = true;
};
using FileBufferPtr = std::shared_ptr<FileBuffer>;

// Split collectives that have begun and not ended, by file: a file has one at most. Thread-safe.
class Splits {
 public:
  bool any() const { return count_.load(std::memory_order_acquire) != 0; }
  void add(MPI_File file, FileBufferPtr buffer) {
    const std::lock_guard guard(lock_);
    buffers_[keyOf(file)] = std::move(buffer);
    count_.store(buffers_.size(), std::memory_order_release);
  }
  // NULL: none of ours.
  FileBufferPtr take(MPI_File file) {
    const std::lock_guard guard(lock_);
    const auto found = buffers_.find(keyOf(file));
    if (found == buffers_.end()) {
      return nullptr;
    }
    FileBufferPtr buffer = std::move(found->second);
    buffers_.erase(found);
    count_.store(buffers_.size(), std::memory_order_release);
    return buffer;
  }

 private:
  std::mutex lock_;
  std::unordered_map<std::uint64_t, FileBufferPtr> buffers_;
  std::atomic<std::size_t> count_{0};
};
Splits& splits() {
  static auto* const splits = new Splits;  // also for exit handlers
  return *splits;
}

int deliver(const FileBufferPtr& buffer, const MPI_Status& status, MPI_File file,
            const char* call) {
  return buffer->deliver(status) ? MPI_SUCCESS : refuse(file, call, buffer->reason());
}

// The end of a call by its last argument. `function` calls MPI with one of that kind.

template <typename Function>
int finish(const char* call, MPI_File file, const FileBufferPtr& buffer, const Function& function,
           MPI_Status* status) {
  MPI_Status own = {};
  MPI_Status* const filled = status != MPI_STATUS_IGNORE ? status : &own;
  const int code = function(filled);
  return code != MPI_SUCCESS ? code : deliver(buffer, *filled, file, call);
}

template <typename Function>
int finish(const char* call, MPI_File file, const FileBufferPtr& buffer, const Function& function,
           MPI_Request* request) {
  requests::keepOrphans(false);
  const int code = function(request);
  if (code != MPI_SUCCESS) {
    return code;
  }
  // One handle may stand for all that were complete at once.
  int done = 0;
  MPI_Status status = {};
  if (real().Request_get_status(*request, &done, &status) == MPI_SUCCESS && done != 0) {
    return deliver(buffer, status, file, call);
  }
  requests::add(*request, buffer);
  return code;
}

template <typename Function>
int finish(const char*, MPI_File file, const FileBufferPtr& buffer, const Function& function) {
  const int code = function();
  if (code == MPI_SUCCESS) {
    splits().add(file, buffer);
  }
  return code;
}

// `call` calls MPI with an address, a datatype and `last`.
template <typename Call, typename... Last>
int perform(const char* name, Way way, MPI_File file, const void* buffer, MPI_Count count,
            MPI_Datatype type, const Call& call, Last... last) {
  if (file == MPI_FILE_NULL || !needsStaging(buffer, count, type)) {
    return call(const_cast<void*>(buffer), type, last...);
  }
  const auto staged = std::make_shared<FileBuffer>(way, name);
  const Ready ready = staged->prepare(file, const_cast<void*>(buffer), count, type);
  if (ready == Ready::kLetMpiRefuse) {
    return call(const_cast<void*>(buffer), type, last...);
  }
  if (ready == Ready::kFailed || !staged->pack()) {
    return refuse(file, name, staged->reason());
  }
  return finish(
      name, file, staged,
      [&](auto... ours) { return call(staged->address(), staged->datatype(), ours...); }, last...);
}

// File_read, and all that have the same first arguments; the last one is a status, a request, or
// none.
template <Layer layer, auto call, Way way, typename Buffer, typename Count, typename... Last>
int transfer(MPI_File file, Buffer* buffer, Count count, MPI_Datatype type, Last... last) {
  const auto function = next<layer>().*call;
  return perform(
      kName<call>, way, file, buffer, count, type,
      [&](void* address, MPI_Datatype wire, auto... end) {
        return function(file, address, count, wire, end...);
      },
      last...);
}

// File_read_at and its like.
template <Layer layer, auto call, Way way, typename Buffer, typename Count, typename... Last>
int transferAt(MPI_File file, MPI_Offset offset, Buffer* buffer, Count count, MPI_Datatype type,
               Last... last) {
  const auto function = next<layer>().*call;
  return perform(
      kName<call>, way, file, buffer, count, type,
      [&](void* address, MPI_Datatype wire, auto... end) {
        return function(file, offset, address, count, wire, end...);
      },
      last...);
}

// The end of a split collective.
template <Layer layer, auto call, typename Buffer>
int end(MPI_File file, Buffer* buffer, MPI_Status* status) {
  const auto function = next<layer>().*call;
  const FileBufferPtr staged = splits().any() ? splits().take(file) : nullptr;
  if (staged == nullptr) {
    return function(file, buffer, status);
  }
  return finish(
      kName<call>, file, staged,
      [&](MPI_Status* filled) { return function(file, staged->address(), filled); }, status);
}

}  // namespace

std::span<const Hook> fileHooks() {
  static const Hook hooks[] = {
#define GMAC_MPI_FILE(name, function, way) GMAC_MPI_HOOKS(name, function, Way::way),
#define GMAC_MPI_FILE_END(name) GMAC_MPI_HOOK(name, end, &Calls::name),
#include "mpi/abi/file_calls.inc"
#undef GMAC_MPI_FILE
#undef GMAC_MPI_FILE_END
  };
  return hooks;
}

}  // namespace gmac::mpi::GMAC_MPI_ABI
