// SPDX-License-Identifier: Apache-2.0
//
// C++ on top of adsm.h: an allocator for standard containers, an owning pointer, and a typed kernel
// launch. Header-only, C++17 and later, usable in .cu files. Failures throw adsm::Error. Everything
// is as thread-safe as the C function that it calls.
#ifndef GMAC_ADSM_HPP_
#define GMAC_ADSM_HPP_

#include <array>
#include <cstddef>
#include <cstring>
#include <limits>
#include <memory>
#include <new>
#include <optional>
#include <stdexcept>
#include <string>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

#include "adsm.h"

namespace adsm {

// ---- Errors ----

// A call that failed: its code, and the runtime's sentence about it.
class Error : public std::runtime_error {
 public:
  Error(adsmError_t code, const std::string& text)
      : std::runtime_error(text.empty() ? std::string(adsmErrorName(code)) : text), code_(code) {}
  adsmError_t code() const noexcept { return code_; }

 private:
  adsmError_t code_;
};

// Throws the calling thread's last error when `code` is one.
inline void check(adsmError_t code) {
  if (code != adsmSuccess) throw Error(code, adsmLastErrorString());
}

// ---- Memory ----

namespace detail {

// The bytes of `count` elements, at least 1, as adsmAlloc requires.
template <typename T>
std::size_t bytesOf(std::size_t count) {
  if (count > std::numeric_limits<std::size_t>::max() / sizeof(T))
    throw std::bad_array_new_length();
  return count == 0 ? 1 : count * sizeof(T);
}

inline void* allocate(std::size_t bytes) {
  void* const address = adsmAlloc(bytes);
  if (address == nullptr) throw Error(adsmLastError(), adsmLastErrorString());
  return address;
}

// The alignment of every address from adsmAlloc.
constexpr std::size_t kAlignment = 256;

// The bytes of `count` elements that nobody constructs.
template <typename T>
std::size_t bytesForOverwrite(std::size_t count) {
  static_assert(std::is_trivially_default_constructible_v<T> && std::is_trivially_destructible_v<T>,
                "elements that need construction: use makeUnique");
  static_assert(alignof(T) <= kAlignment, "shared objects are aligned to 256 bytes");
  return bytesOf<T>(count);
}

}  // namespace detail

// Lets standard containers keep their elements in shared objects, e.g. std::vector<float,
// adsm::Allocator<float>>; pass data() to kernels. Stateless: all allocators are equal. allocate()
// throws Error, and std::bad_array_new_length for counts whose bytes cannot be counted.
template <typename T>
class Allocator {
 public:
  using value_type = T;
  using is_always_equal = std::true_type;
  static_assert(alignof(T) <= detail::kAlignment, "shared objects are aligned to 256 bytes");

  Allocator() noexcept = default;
  template <typename U>
  Allocator(const Allocator<U>&) noexcept {}  // NOLINT(google-explicit-constructor)

  T* allocate(std::size_t count) {
    return static_cast<T*>(detail::allocate(detail::bytesOf<T>(count)));
  }
  // A container cannot report a failure here; the runtime keeps it as the thread's last error.
  void deallocate(T* address, std::size_t) noexcept { static_cast<void>(adsmFree(address)); }

  template <typename U>
  friend bool operator==(const Allocator&, const Allocator<U>&) noexcept {
    return true;
  }
  template <typename U>
  friend bool operator!=(const Allocator&, const Allocator<U>&) noexcept {
    return false;
  }
};

// Destroys the elements that makeUnique constructed, on the CPU, and frees the object. Elements
// without a destructor are not touched, so nothing is fetched for them.
template <typename T>
class Deleter {
 public:
  Deleter() noexcept = default;
  void operator()(T* address) const noexcept {
    if constexpr (!std::is_trivially_destructible_v<T>) address->~T();
    static_cast<void>(adsmFree(const_cast<std::remove_cv_t<T>*>(address)));
  }
};

template <typename T>
class Deleter<T[]> {
 public:
  Deleter() noexcept = default;
  explicit Deleter(std::size_t count) noexcept : count_(count) {}
  void operator()(T* address) const noexcept {
    if constexpr (!std::is_trivially_destructible_v<T>) {
      for (std::size_t i = count_; i > 0; --i) address[i - 1].~T();
    }
    static_cast<void>(adsmFree(const_cast<std::remove_cv_t<T>*>(address)));
  }
  // The number of elements of the array.
  std::size_t count() const noexcept { return count_; }

 private:
  std::size_t count_ = 0;
};

// The owner of one shared object (T) or of an array (T[]).
template <typename T>
using unique_ptr = std::unique_ptr<T, Deleter<T>>;

// A shared object holding one T, constructed on the CPU from the arguments.
template <typename T, typename... Args, std::enable_if_t<!std::is_array_v<T>, int> = 0>
unique_ptr<T> makeUnique(Args&&... args) {
  static_assert(alignof(T) <= detail::kAlignment, "shared objects are aligned to 256 bytes");
  void* const memory = detail::allocate(sizeof(T));
  try {
    return unique_ptr<T>(::new (memory) T(std::forward<Args>(args)...));
  } catch (...) {
    static_cast<void>(adsmFree(memory));
    throw;
  }
}

// A shared object holding `count` value-initialised elements, e.g. makeUnique<float[]>(1000):
// zeros.
template <typename T, std::enable_if_t<std::is_array_v<T> && std::extent_v<T> == 0, int> = 0>
unique_ptr<T> makeUnique(std::size_t count) {
  using Element = std::remove_extent_t<T>;
  static_assert(alignof(Element) <= detail::kAlignment, "shared objects are aligned to 256 bytes");
  auto* const elements = static_cast<Element*>(detail::allocate(detail::bytesOf<Element>(count)));
  std::size_t made = 0;
  try {
    for (; made < count; ++made) ::new (static_cast<void*>(elements + made)) Element();
  } catch (...) {
    while (made > 0) elements[--made].~Element();
    static_cast<void>(adsmFree(elements));
    throw;
  }
  return unique_ptr<T>(elements, Deleter<T>(count));
}

// The same without a first pass over the elements: they hold whatever the object holds. For types
// that need no construction, and arrays that a kernel or a read() fills.
template <typename T, std::enable_if_t<std::is_array_v<T> && std::extent_v<T> == 0, int> = 0>
unique_ptr<T> makeUniqueForOverwrite(std::size_t count) {
  using Element = std::remove_extent_t<T>;
  void* const address = detail::allocate(detail::bytesForOverwrite<Element>(count));
  return unique_ptr<T>(static_cast<Element*>(address), Deleter<T>(count));
}

// The same, in pieces of 2 MiB over several devices in turn (adsmAllocStriped); no devices: all.
template <typename T, std::enable_if_t<std::is_array_v<T> && std::extent_v<T> == 0, int> = 0>
unique_ptr<T> makeUniqueStripedForOverwrite(std::size_t count,
                                            const std::vector<int>& devices = {}) {
  using Element = std::remove_extent_t<T>;
  void* const address =
      adsmAllocStriped(detail::bytesForOverwrite<Element>(count), static_cast<int>(devices.size()),
                       devices.empty() ? nullptr : devices.data());
  if (address == nullptr) throw Error(adsmLastError(), adsmLastErrorString());
  return unique_ptr<T>(static_cast<Element*>(address), Deleter<T>(count));
}

// ---- Kernels ----

// One, two or three dimensions, each 1 or more.
struct Dim {
  // A plain number is a dimension, and so is what the C functions take.
  // NOLINTNEXTLINE(google-explicit-constructor)
  constexpr Dim(unsigned x = 1, unsigned y = 1, unsigned z = 1) : value{x, y, z} {}
  // NOLINTNEXTLINE(google-explicit-constructor)
  constexpr Dim(adsmDim_t dim) : value(dim) {}
  adsmDim_t value;
};

// The shape of a launch: blocks, threads per block, and bytes of scratch per block.
struct Grid {
  constexpr Grid(Dim gridDim, Dim blockDim, std::size_t shared = 0)
      : grid(gridDim), block(blockDim), sharedBytes(shared) {}
  Dim grid;
  Dim block;
  std::size_t sharedBytes;
};

// A call's access to the object that contains an address; see adsmAccess_t. For Kernel::uses.
inline adsmUse_t reads(const volatile void* object) {
  return {const_cast<const void*>(object), adsmRead};
}
inline adsmUse_t writes(const volatile void* object) {
  return {const_cast<const void*>(object), adsmWrite};
}
inline adsmUse_t readsAndWrites(const volatile void* object) {
  return {const_cast<const void*>(object), adsmReadWrite};
}

// The same for a part of it, `bytes` from there on (0: all of it); see adsmRangeUse_t.
inline adsmRangeUse_t reads(const volatile void* address, std::size_t bytes) {
  return {const_cast<const void*>(address), bytes, adsmRead};
}
inline adsmRangeUse_t writes(const volatile void* address, std::size_t bytes) {
  return {const_cast<const void*>(address), bytes, adsmWrite};
}
inline adsmRangeUse_t readsAndWrites(const volatile void* address, std::size_t bytes) {
  return {const_cast<const void*>(address), bytes, adsmReadWrite};
}

// The implementations of a kernel. Leave the members of missing ones unset. `constants` must
// outlive the Kernel.
struct Implementations {
  const char* name = nullptr;       // for messages; required
  adsmHostKernel_t host = nullptr;  // `host`
  const void* cudaImage = nullptr;  // `cuda`: a module image, and the function's name in it
  const char* cudaName = nullptr;
  const void* cudartSymbol = nullptr;  // `cudart`: the __global__ function
  const adsmConstant_t* constants = nullptr;
  std::size_t constantCount = 0;
};

namespace detail {

template <typename P, typename Arg, typename = void>
struct FitsWithoutNarrowing : std::false_type {};
// Braces let the language check for narrowing.
template <typename P, typename Arg>
struct FitsWithoutNarrowing<P, Arg, std::void_t<decltype(P{std::declval<Arg>()})>>
    : std::is_convertible<Arg, P> {};

template <typename Params, typename Args, typename = void>
struct AllFit : std::false_type {};
template <typename... P, typename... Args>
struct AllFit<std::tuple<P...>, std::tuple<Args...>,
              std::enable_if_t<sizeof...(P) == sizeof...(Args)>>
    : std::conjunction<FitsWithoutNarrowing<P, Args>...> {};

// The arguments of Kernel::uses(), and their common type: ranges, if one of them is a range.
template <typename T>
constexpr bool kIsUse = std::is_same_v<T, adsmUse_t> || std::is_same_v<T, adsmRangeUse_t>;
template <typename... Uses>
using CommonUse =
    std::conditional_t<(std::is_same_v<Uses, adsmRangeUse_t> || ...), adsmRangeUse_t, adsmUse_t>;
template <typename Common, typename Use>
Common useAs(const Use& use) {
  if constexpr (std::is_same_v<Common, Use>) {
    return use;
  } else {
    return {use.object, 0, use.access};
  }
}

}  // namespace detail

template <typename Signature>
class Kernel;

// A kernel whose parameters are P..., e.g. Kernel<void(const float*, float*, int)>: launched as
//   kernel(adsm::Grid{blocks, threads}, in, out, n);  // uses all objects
//   kernel.uses(adsm::reads(in), adsm::writes(out))(adsm::Grid{blocks, threads}, in, out, n);
//   kernel.uses(adsm::reads(in), adsm::writes(out, bytes))(...);  // a part of `out`
//   (adsmCallRanges)
//
// An argument that does not convert to its parameter, or only by narrowing (a double to an int),
// does not compile. The launch is asynchronous; adsm::sync() waits. Move-only owner of the
// adsmKernel_t. The destructor waits for the kernel's calls in flight. Launching from several
// threads is allowed, moving at the same time is not.
template <typename... P>
class Kernel<void(P...)> {
  static_assert((std::is_trivially_copyable_v<P> && ...),
                "kernel parameters are copied to the accelerator byte by byte");

 public:
  // adsmErrorInvalidValue names the field that is wrong.
  explicit Kernel(const Implementations& of) {
    // One more than needed, since an array of none is not allowed.
    const std::size_t paramSizes[] = {sizeof(P)..., 0};
    adsmKernelDesc_t desc{};
    desc.name = of.name;
    desc.paramCount = sizeof...(P);
    desc.paramSizes = paramSizes;
    desc.host = of.host;
    desc.cudaImage = of.cudaImage;
    desc.cudaName = of.cudaName;
    desc.cudartSymbol = of.cudartSymbol;
    desc.constantCount = of.constantCount;
    desc.constants = of.constants;
    check(adsmKernelCreate(&desc, &kernel_));
  }
  ~Kernel() { reset(); }
  Kernel(Kernel&& other) noexcept : kernel_(std::exchange(other.kernel_, nullptr)) {}
  Kernel& operator=(Kernel&& other) noexcept {
    if (this != &other) {
      reset();
      kernel_ = std::exchange(other.kernel_, nullptr);
    }
    return *this;
  }
  Kernel(const Kernel&) = delete;
  Kernel& operator=(const Kernel&) = delete;

  // Launches; all objects that are not bound to other kernels count as read and written.
  template <typename... Args, typename = std::enable_if_t<
                                  detail::AllFit<std::tuple<P...>, std::tuple<Args&&...>>::value>>
  void operator()(const Grid& shape, Args&&... args) const {
    launch(
        [&](void** pointers) {
          return adsmCall(kernel_, shape.grid.value, shape.block.value, shape.sharedBytes,
                          pointers);
        },
        P{std::forward<Args>(args)}...);
  }

  // This kernel on one device (adsmCallOn): kernel.on(1)(...), kernel.on(1).uses(...)(...). Not
  // used after the Kernel's end.
  class OnDevice {
   public:
    template <typename... Args, typename = std::enable_if_t<
                                    detail::AllFit<std::tuple<P...>, std::tuple<Args&&...>>::value>>
    void operator()(const Grid& shape, Args&&... args) const {
      launch(
          [&](void** pointers) {
            return adsmCallOn(device_, kernel_, shape.grid.value, shape.block.value,
                              shape.sharedBytes, pointers, nullptr, 0);
          },
          P{std::forward<Args>(args)}...);
    }
    template <typename... Uses, typename = std::enable_if_t<(detail::kIsUse<Uses> && ...)>>
    auto uses(const Uses&... list) const {
      using Use = detail::CommonUse<Uses...>;
      return Using<sizeof...(Uses), Use>(kernel_, {{detail::useAs<Use>(list)...}}, device_);
    }

   private:
    friend class Kernel;
    OnDevice(adsmKernel_t kernel, int device) : kernel_(kernel), device_(device) {}
    adsmKernel_t kernel_;
    int device_;
  };
  OnDevice on(int device) const { return OnDevice(kernel_, device); }

  // A launch of this kernel that uses exactly the listed objects, or parts of objects (none at all:
  // uses()).
  template <std::size_t Count, typename Use = adsmUse_t>
  class Using {
   public:
    template <typename... Args, typename = std::enable_if_t<
                                    detail::AllFit<std::tuple<P...>, std::tuple<Args&&...>>::value>>
    void operator()(const Grid& shape, Args&&... args) const {
      launch(
          [&](void** pointers) {
            if constexpr (std::is_same_v<Use, adsmRangeUse_t>) {
              return adsmCallRanges(device_.value_or(ADSM_ANY_DEVICE), kernel_, shape.grid.value,
                                    shape.block.value, shape.sharedBytes, pointers, uses_.data(),
                                    Count);
            } else {
              return call(shape, pointers);
            }
          },
          P{std::forward<Args>(args)}...);
    }

   private:
    friend class Kernel;
    Using(adsmKernel_t kernel, std::array<Use, Count> uses,
          std::optional<int> device = std::nullopt)
        : kernel_(kernel), uses_(uses), device_(device) {}
    adsmError_t call(const Grid& shape, void** pointers) const {
      if (!device_) {
        return adsmCallUsing(kernel_, shape.grid.value, shape.block.value, shape.sharedBytes,
                             pointers, uses_.data(), Count);
      }
      // (NULL would not mean that it uses none.)
      static constexpr adsmUse_t kNone{};
      return adsmCallOn(*device_, kernel_, shape.grid.value, shape.block.value, shape.sharedBytes,
                        pointers, Count == 0 ? &kNone : uses_.data(), Count);
    }
    adsmKernel_t kernel_;
    std::array<Use, Count> uses_;
    std::optional<int> device_;
  };

  template <typename... Uses, typename = std::enable_if_t<(detail::kIsUse<Uses> && ...)>>
  auto uses(const Uses&... list) const {
    using Use = detail::CommonUse<Uses...>;
    return Using<sizeof...(Uses), Use>(kernel_, {{detail::useAs<Use>(list)...}});
  }

  // From now on calls use `object` only if it is bound to their kernel (adsmBind).
  void bind(const volatile void* object, adsmAccess_t access) const {
    check(adsmBind(const_cast<const void*>(object), kernel_, access));
  }

  // Sets a constant for all calls made afterwards (adsmSetConstant).
  template <typename T>
  void setConstant(const char* name, const T& value) const {
    static_assert(std::is_trivially_copyable_v<T>, "constants are copied byte by byte");
    check(adsmSetConstant(kernel_, name, &value, sizeof value));
  }
  void setConstant(const char* name, const void* data, std::size_t bytes) const {
    check(adsmSetConstant(kernel_, name, data, bytes));
  }

  // For the C functions; still owned by this object.
  adsmKernel_t get() const noexcept { return kernel_; }

 private:
  template <typename Call>
  static void launch(const Call& call, P... values) {
    void* pointers[] = {const_cast<void*>(static_cast<const volatile void*>(&values))..., nullptr};
    check(call(pointers));
  }

  void reset() noexcept {
    if (kernel_ != nullptr) static_cast<void>(adsmKernelDestroy(kernel_));
    kernel_ = nullptr;
  }

  adsmKernel_t kernel_ = nullptr;
};

// ---- Devices ----

inline int deviceCount() {
  int count = 0;
  check(adsmDeviceCount(&count));
  return count;
}

inline adsmDeviceInfo_t deviceInfo(int device) {
  adsmDeviceInfo_t info;
  check(adsmDeviceInfo(device, &info));
  return info;
}

// Moves the object that contains these bytes to a device (adsmMigrate).
inline void migrate(const volatile void* address, std::size_t bytes, int device) {
  check(adsmMigrate(const_cast<const void*>(address), bytes, device));
}

// Waits for all calls made before and acquires their writes; throws their errors.
inline void sync() { check(adsmSync()); }

}  // namespace adsm

#endif  // GMAC_ADSM_HPP_
