// SPDX-License-Identifier: Apache-2.0
//
// Many copies in one call. They are one piece of device work; its ranges are those of every copy
// that names shared memory. Copies of ranges go to the driver in parts (parts.h); those of rows and
// layers do not: pages of objects that have one copy go back to the device's memory for them.
#include <cuda.h>

#include <cstddef>
#include <new>
#include <type_traits>
#include <vector>

#include "gmac/api/adsm.h"
#include "interpose/cuda/call.h"
#include "interpose/cuda/parts.h"

// cuda.h shows the newest signatures under these names; the symbols are the older ones.
#undef cuMemcpyBatchAsync
#undef cuMemcpy3DBatchAsync
extern "C" {
CUresult cuMemcpyBatchAsync(CUdeviceptr*, CUdeviceptr*, size_t*, size_t, CUmemcpyAttributes*,
                            size_t*, size_t, size_t*, CUstream);
CUresult cuMemcpy3DBatchAsync(size_t, CUDA_MEMCPY3D_BATCH_OP*, size_t*, unsigned long long,
                              CUstream);
}

#define GMAC_CUDA_STREAM_CALLS(X)                                            \
  X(cuMemcpyBatchAsync, cuMemcpyBatchAsync, _ptsz, 12080, 13000, Batch)      \
  X(cuMemcpyBatchAsync, cuMemcpyBatchAsync_v2, _ptsz, 13000, INT_MAX, Batch) \
  X(cuMemcpy3DBatchAsync, cuMemcpy3DBatchAsync, _ptsz, 12080, 13000, Batch)  \
  X(cuMemcpy3DBatchAsync, cuMemcpy3DBatchAsync_v2, _ptsz, 13000, INT_MAX, Batch)

namespace gmac::interpose {
namespace {

GMAC_CUDA_STREAM_CALLS(GMAC_CUDA_STREAM_TYPE)

// The ranges of a batch, as many as there are.
class ManyRanges {
 public:
  // Records one end of a copy; returns its address for the driver.
  CUdeviceptr end(CUdeviceptr address, const Extent& cpu, bool write) {
    if (!shared(cpu.first, cpu.bytes)) return address;
    const auto* const first = reinterpret_cast<const void*>(cpu.first);
    if (!write || cpu.gaps) ranges_.push_back({first, cpu.bytes, false});
    if (write) ranges_.push_back({first, cpu.bytes, true});
    return onDevice(cpu.first);
  }
  void inParts() {
    for (DeviceRange& range : ranges_) range.inParts = true;
  }
  std::span<const DeviceRange> all() const { return ranges_; }

 private:
  std::vector<DeviceRange> ranges_;
};

// Copies of one range each, as the driver gets them.
class Entries {
 public:
  void add(CUdeviceptr target, CUdeviceptr source, std::size_t size) {
    targets.push_back(target);
    sources.push_back(source);
    sizes.push_back(size);
  }
  std::size_t count() const { return sizes.size(); }
  // Whether each is one part.
  bool areWhole() const {
    bool whole = true;
    for (std::size_t i = 0; i < count() && whole; ++i) {
      const Rows ends[] = {{cpuAddressOf(targets[i])}, {cpuAddressOf(sources[i])}};
      whole = sizes[i] == 0 || partOf({.width = sizes[i]}, {}, ends).width == sizes[i];
    }
    return whole;
  }
  // All their parts. `begins`: the first part of each; `wholes`: of each part, its entry's number.
  Entries parts(std::vector<std::size_t>* begins, std::vector<std::size_t>* wholes) const {
    Entries all;
    for (std::size_t i = 0; i < count(); ++i) {
      begins->push_back(all.count());
      (void)inParts(cpuAddressOf(targets[i]), cpuAddressOf(sources[i]), sizes[i],
                    [&](std::size_t at, std::size_t bytes) {
                      all.add(targets[i] + at, sources[i] + at, bytes);
                      wholes->push_back(i);
                      return CUDA_SUCCESS;
                    });
    }
    return all;
  }

  std::vector<CUdeviceptr> targets, sources;
  std::vector<std::size_t> sizes;
};

// How the driver has ended a batch, and the number of the copy that has failed. The program's
// variable for that may lie in shared memory, which the driver must not touch meanwhile.
class Failure {
 public:
  // An argument of the program's, as the driver gets it.
  template <typename Argument>
  Argument argument(Argument given) {
    if constexpr (std::is_same_v<Argument, std::size_t*>) {
      program_ = given;
      return given == nullptr ? nullptr : &number_;
    } else {
      return given;
    }
  }
  // A batch that fails may have been submitted in part.
  Submitted ended(CUresult result) {
    refused_ = result != CUDA_SUCCESS;
    return {result, true};
  }
  // After the device work. `wholes`: of each part, the number of the program's copy; empty: they
  // are the same.
  void tell(const std::vector<std::size_t>& wholes = {}) const {
    if (!refused_ || program_ == nullptr) return;
    *program_ = number_ < wholes.size() ? wholes[number_] : number_;
  }

 private:
  std::size_t* program_ = nullptr;
  std::size_t number_ = SIZE_MAX;  // that of none
  bool refused_ = false;
};

struct Batch {
  // The arrays may lie in shared memory themselves, so the driver gets copies of them. `firsts`:
  // the numbers of the entries from which on each of the attributes holds.
  template <ZeroStream Zero, typename Real, typename... Rest>
  static CUresult run(Real real, CUdeviceptr* to, CUdeviceptr* from, std::size_t* bytes,
                      std::size_t count, CUmemcpyAttributes* attributes, std::size_t* firsts,
                      std::size_t attributeCount, Rest... rest) {
    const auto pass = [&] {
      return direct(real, to, from, bytes, count, attributes, firsts, attributeCount, rest...);
    };
    // What the driver refuses is not read.
    const bool attributesLack = attributeCount != 0 && (attributes == nullptr || firsts == nullptr);
    if (to == nullptr || from == nullptr || bytes == nullptr || attributesLack ||
        attributeCount > count) {
      return pass();
    }
    return guarded([&] {
      ManyRanges ranges;
      Entries entries;
      for (std::size_t i = 0; i < count; ++i) {
        const CUdeviceptr source =
            ranges.end(from[i], {cpuAddressOf(from[i]), bytes[i], false}, false);
        const CUdeviceptr target = ranges.end(to[i], {cpuAddressOf(to[i]), bytes[i], false}, true);
        entries.add(target, source, bytes[i]);
      }
      if (ranges.all().empty()) return pass();
      ranges.inParts();
      std::vector<CUmemcpyAttributes> given(attributes, attributes + attributeCount);
      std::vector<std::size_t> begins(firsts, firsts + attributeCount);
      std::vector<std::size_t> wholes;
      Failure failure;
      const auto submit = [&](Entries& all) {
        return failure.ended(real(all.targets.data(), all.sources.data(), all.sizes.data(),
                                  all.count(), given.data(), begins.data(), attributeCount,
                                  failure.argument(rest)...));
      };
      const CUresult result =
          coherently(nativeStream(Zero, streamAmong(rest...)), ranges.all(), Returns::kAtOnce,
                     [&]() -> Submitted {
                       if (entries.areWhole()) return submit(entries);
                       return guarded([&]() -> Submitted {
                         std::vector<std::size_t> partOfEntry;
                         Entries parts = entries.parts(&partOfEntry, &wholes);
                         for (std::size_t& begin : begins) {
                           begin = begin < count ? partOfEntry[begin] : parts.count();
                         }
                         return submit(parts);
                       });
                     });
      failure.tell(wholes);
      return result;
    });
  }

  template <ZeroStream Zero, typename Real, typename... Rest>
  static CUresult run(Real real, std::size_t count, CUDA_MEMCPY3D_BATCH_OP* operations,
                      Rest... rest) {
    if (operations == nullptr) return direct(real, count, operations, rest...);
    return guarded([&] {
      ManyRanges ranges;
      std::vector<CUDA_MEMCPY3D_BATCH_OP> named(operations, operations + count);
      for (CUDA_MEMCPY3D_BATCH_OP& operation : named) {
        name(ranges, operation, operation.src, false);
        name(ranges, operation, operation.dst, true);
      }
      if (ranges.all().empty()) return direct(real, count, operations, rest...);
      Failure failure;
      const CUresult result = coherently(
          nativeStream(Zero, streamAmong(rest...)), ranges.all(), Returns::kAtOnce,
          [&] { return failure.ended(real(count, named.data(), failure.argument(rest)...)); });
      failure.tell();
      return result;
    });
  }

 private:
  // The lengths of rows and layers count elements. Their size is that of the array on the other
  // side; if both sides are linear memory, an element is a byte.
  static void name(ManyRanges& ranges, const CUDA_MEMCPY3D_BATCH_OP& operation,
                   CUmemcpy3DOperand& operand, bool write) {
    if (operand.type != CU_MEMCPY_OPERAND_TYPE_POINTER) return;
    auto& pointer = operand.op.ptr;
    const CUextent3D& size = operation.extent;
    const std::size_t element = elementBytes(operation);
    const std::size_t width = size.width * element;
    const std::size_t pitch = pointer.rowLength != 0 ? pointer.rowLength * element : width;
    const std::size_t rows = pointer.layerHeight != 0 ? pointer.layerHeight : size.height;
    pointer.ptr = ranges.end(
        pointer.ptr,
        spanOf(cpuAddressOf(pointer.ptr), width, size.height, size.depth, pitch, pitch * rows),
        write);
  }

  static std::size_t elementBytes(const CUDA_MEMCPY3D_BATCH_OP& operation) {
    for (const CUmemcpy3DOperand* operand : {&operation.src, &operation.dst}) {
      if (operand->type != CU_MEMCPY_OPERAND_TYPE_ARRAY) continue;
      const std::size_t bytes = interpose::elementBytes(operand->op.array.array, 4);
      return bytes != 0 ? bytes : 1;
    }
    return 1;
  }

  template <typename Work>
  static auto guarded(Work&& work) noexcept -> decltype(work()) {
    try {
      return work();
    } catch (const std::bad_alloc&) {
      return CUDA_ERROR_OUT_OF_MEMORY;
    }
  }
};

}  // namespace

GMAC_CUDA_TABLE(cudaBatches, GMAC_CUDA_STREAM_CALLS, GMAC_CUDA_NONE)

}  // namespace gmac::interpose
