// SPDX-License-Identifier: Apache-2.0
#include "tests/preloaded_io/memory.h"

#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>

namespace gmac::testing {
namespace {

constexpr std::size_t kObjectBytes = std::size_t{2} << 20;
constexpr std::size_t kGuardBytes = 64 * 1024;
constexpr std::size_t kOwnBytes = 256 * 1024;

template <typename T>
T argument(void** arguments, int index) {
  return *static_cast<T*>(arguments[index]);
}

unsigned char patternAt(std::size_t index, std::uint64_t seed) {
  return static_cast<unsigned char>((index + seed) * 167 + (index >> 9));
}

void fillOnHost(const adsmThreadBlock_t*, void** arguments) {
  auto* const to = argument<unsigned char*>(arguments, 0);
  const auto bytes = argument<std::size_t>(arguments, 1);
  const auto seed = argument<std::uint64_t>(arguments, 2);
  for (std::size_t i = 0; i < bytes; ++i) to[i] = patternAt(i, seed);
}

void copyOnHost(const adsmThreadBlock_t*, void** arguments) {
  std::memcpy(argument<unsigned char*>(arguments, 0), argument<const unsigned char*>(arguments, 1),
              argument<std::size_t>(arguments, 2));
}

[[noreturn]] void giveUp(const char* what) {
  std::fprintf(stderr, "%s: %s\n", what, api().lastErrorString());
  std::exit(1);
}

adsmKernel_t makeKernel(const char* name, adsmHostKernel_t function) {
  static constexpr std::size_t kSizes[] = {sizeof(void*), sizeof(std::size_t), sizeof(std::size_t)};
  adsmKernelDesc_t description = {};
  description.name = name;
  description.paramCount = 3;
  description.paramSizes = kSizes;
  description.host = function;
  adsmKernel_t kernel = nullptr;
  if (api().kernelCreate(&description, &kernel) != adsmSuccess) giveUp(name);
  return kernel;
}

unsigned char* allocate(std::size_t bytes) {
  void* const object = api().alloc(bytes);
  if (object == nullptr) giveUp("no object");
  return static_cast<unsigned char*>(object);
}

// Two objects with nothing between them and nothing after.
unsigned char* allocateNeighbours() {
  std::vector<unsigned char*> objects;
  for (int tries = 0; tries < 24; ++tries) {
    objects.push_back(allocate(kObjectBytes));
    std::sort(objects.begin(), objects.end());
    const auto isThird = [&](unsigned char* object) {
      return std::binary_search(objects.begin(), objects.end(), object - kObjectBytes) &&
             std::binary_search(objects.begin(), objects.end(), object - 2 * kObjectBytes);
    };
    const auto third = std::find_if(objects.begin(), objects.end(), isThird);
    if (third == objects.end()) continue;
    unsigned char* const found = *third - 2 * kObjectBytes;
    for (unsigned char* object : objects) {
      if (object != found && object != found + kObjectBytes) api().free(object);
    }
    return found;
  }
  giveUp("no two objects are neighbours");
}

// Whether a system call can read there; not through libc, which the library stands in for.
bool readable(const unsigned char* at) {
  unsigned char byte;
  const iovec to = {&byte, 1};
  const iovec from = {const_cast<unsigned char*>(at), 1};
  return ::syscall(SYS_process_vm_readv, ::getpid(), &to, 1, &from, 1, 0) == 1;
}

}  // namespace

Span anySpan(Random& random, const Memory& memory, std::size_t most, bool mayLeave) {
  const std::size_t room = memory.bytes - Memory::kControlBytes;
  const std::size_t bytes = random.size(std::min(most, room));
  unsigned char* const end = memory.at + memory.bytes;
  switch (random.below(8)) {
    case 0:
      return {end - bytes, bytes};
    case 1: {
      const std::size_t before = std::min(bytes / 2, memory.border - Memory::kControlBytes);
      return {memory.at + memory.border - before, std::min(bytes, memory.bytes - memory.border)};
    }
    case 2:
      if (mayLeave && memory.endsInNothing) return {end - bytes, bytes + random.size(20000)};
      [[fallthrough]];
    default:
      return {end - room + random.below(room - bytes + 1), bytes};
  }
}

std::vector<iovec> anyVector(Random& random, const Memory& memory, std::size_t most,
                             bool mayLeave) {
  std::vector<iovec> parts(random.oneIn(50) ? 1020 + random.below(8) : random.below(9));
  const std::size_t mostOfPart = parts.size() > 16 ? most / 512 : most;
  for (iovec& part : parts) {
    const std::size_t kind = random.below(8);
    if (kind == 0) {
      const std::size_t bytes = random.size(std::min(mostOfPart, memory.ownBytes));
      part = {memory.own + random.below(memory.ownBytes - bytes + 1), bytes};
    } else if (kind == 1) {
      part = {random.oneIn(2) ? nullptr : memory.at, 0};
    } else {
      const Span span = anySpan(random, memory, mostOfPart, mayLeave && random.oneIn(4));
      part = {span.at, span.bytes};
    }
  }
  if (!parts.empty() && random.oneIn(40)) parts[random.below(parts.size())].iov_len = ~0ul - 5;
  return parts;
}

TwoSides::TwoSides()
    : own_{std::vector<unsigned char>(kOwnBytes), std::vector<unsigned char>(kOwnBytes)} {
  const std::size_t bytes = 2 * kObjectBytes;
  void* const plain = ::mmap(nullptr, bytes + kGuardBytes, PROT_READ | PROT_WRITE,
                             MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (plain == MAP_FAILED ||
      ::mprotect(static_cast<char*>(plain) + bytes, kGuardBytes, PROT_NONE) != 0) {
    giveUp("no plain memory");
  }
  seen_ = allocate(bytes);
  unsigned char* const objects = allocateNeighbours();
  // A freed object's pages may still be there for a while.
  for (int tries = 0; readable(objects + bytes) && tries < 1000; ++tries) ::usleep(1000);
  const bool nothing = !readable(objects + bytes) && !readable(objects + bytes + kGuardBytes - 1);
  plain_ = {
      static_cast<unsigned char*>(plain), bytes, kObjectBytes, nothing, own_[0].data(), kOwnBytes};
  shared_ = {objects, bytes, kObjectBytes, nothing, own_[1].data(), kOwnBytes};
  fill_ = makeKernel("fill", fillOnHost);
  copy_ = makeKernel("copy", copyOnHost);
  before_.resize(bytes);
  std::memset(plain, 0, bytes);
  std::memset(objects, 0, bytes);
}

void TwoSides::runKernel(adsmKernel_t kernel, void** arguments) {
  const adsmDim_t one = {1, 1, 1};
  if (api().call(kernel, one, one, 0, arguments) != adsmSuccess || api().sync() != adsmSuccess) {
    giveUp("a kernel");
  }
}

void TwoSides::stir(Random& random) {
  const std::size_t room = plain_.bytes - Memory::kControlBytes;
  for (std::size_t actions = 1 + random.below(4); actions > 0; --actions) {
    std::size_t bytes = random.size(room);
    const std::size_t offset = Memory::kControlBytes + random.below(room - bytes + 1);
    std::uint64_t seed = random.next();
    switch (random.below(3)) {
      case 0: {
        unsigned char* to = shared_.at + offset;
        void* arguments[] = {&to, &bytes, &seed};
        runKernel(fill_, arguments);
        for (std::size_t i = 0; i < bytes; ++i) plain_.at[offset + i] = patternAt(i, seed);
        break;
      }
      case 1: {
        const std::size_t step = 1 + random.below(100000);
        for (std::size_t i = 0; i < bytes; i += step) {
          plain_.at[offset + i] = shared_.at[offset + i] = patternAt(i, seed);
        }
        break;
      }
      default: {
        volatile unsigned sum = 0;
        for (std::size_t i = 0; i < bytes; i += 4096) sum = sum + shared_.at[offset + i];
        break;
      }
    }
  }
}

void TwoSides::remember() { before_.assign(plain_.at, plain_.at + plain_.bytes); }

void TwoSides::settle(const std::vector<iovec>& parts, std::size_t count) {
  std::vector<unsigned char> settled = before_;
  for (const iovec& part : parts) {
    const std::size_t bytes = std::min(part.iov_len, count);
    count -= bytes;
    const auto* const at = static_cast<unsigned char*>(part.iov_base);
    if (bytes == 0 || at < plain_.at || at >= plain_.at + plain_.bytes) continue;
    const std::size_t inside = std::min<std::size_t>(bytes, plain_.at + plain_.bytes - at);
    std::memcpy(settled.data() + (at - plain_.at), at, inside);
  }
  std::copy_n(plain_.at, Memory::kControlBytes, settled.begin());
  std::copy(settled.begin(), settled.end(), plain_.at);
}

std::string TwoSides::firstDifference(const char* who, const unsigned char* seen) const {
  const auto [plain, other] = std::mismatch(plain_.at, plain_.at + plain_.bytes, seen);
  if (plain == plain_.at + plain_.bytes) return {};
  std::size_t wrong = 0;
  for (std::size_t i = 0; i < plain_.bytes; ++i) wrong += plain_.at[i] != seen[i];
  return std::to_string(wrong) + " bytes differ for the " + who + ", first at " +
         std::to_string(plain - plain_.at) + ": " + std::to_string(*other) + " instead of " +
         std::to_string(*plain);
}

std::string TwoSides::difference() { return firstDifference("CPU", shared_.at); }

std::string TwoSides::differenceOnAccelerator() {
  void* arguments[] = {&seen_, &shared_.at, &shared_.bytes};
  runKernel(copy_, arguments);
  return firstDifference("accelerator", seen_);
}

}  // namespace gmac::testing
