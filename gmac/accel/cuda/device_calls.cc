// SPDX-License-Identifier: Apache-2.0
#include "gmac/accel/cuda/device_calls.h"

#include <algorithm>
#include <cstring>

namespace gmac::accel::cuda {

namespace {

enum class Severity { kOrdinary, kKernelCrashed, kDeviceGone, kCudaEnded };

// How much a failure leaves usable. The numbers are CUresult's and cudaError_t's alike.
Severity severityOf(int code) noexcept {
  switch (code) {
    case 700:  // illegal address
    case 702:  // launch timeout
    case 710:  // assertion in a kernel
    case 714:  // hardware stack error
    case 715:  // illegal instruction
    case 716:  // misaligned address
    case 717:  // invalid address space
    case 718:  // invalid program counter
    case 719:  // launch failed
      return Severity::kKernelCrashed;
    case 46:   // device unavailable
    case 214:  // uncorrectable memory error
    case 220:  // uncorrectable link error
    case 226:  // contained memory error
    case 709:  // context destroyed
    case 721:  // tensor memory leaked by a kernel
    case 802:  // system not ready
      return Severity::kDeviceGone;
    case kCudaDeinitialized:
      return Severity::kCudaEnded;
    default:
      return Severity::kOrdinary;
  }
}

}  // namespace

Status DeviceHealth::lostStatus() const noexcept {
  const bool described = state_.load(std::memory_order_acquire) == kLost;
  const Status status =
      gmac::fail(adsmErrorAcceleratorLost, "the accelerator is lost; it failed with: {}",
                 described ? cause_ : "a failure that another thread is reporting");
  if (described) recordErrorNumber(code_);
  return status;
}

void DeviceHealth::learn(int code, const char* words) noexcept {
  if (severityOf(code) != Severity::kKernelCrashed) return;
  static_cast<void>(die(
      code,
      ShortText("a kernel crashed; a CUDA call of the program's failed with {}: {}", code, words)
          .view()));
}

bool DeviceHealth::die(int code, std::string_view text) noexcept {
  int healthy = kHealthy;
  if (!state_.compare_exchange_strong(healthy, kDying, std::memory_order_acq_rel)) return false;
  const std::size_t length = std::min(text.size(), sizeof cause_ - 1);
  std::memcpy(cause_, text.data(), length);
  cause_[length] = '\0';
  code_ = code;
  state_.store(kLost, std::memory_order_release);
  return true;
}

Status DeviceHealth::fail(int code, adsmError_t otherwise, std::string_view call,
                          std::string_view arguments, const char* words) noexcept {
  const Severity severity = severityOf(code);
  if (severity == Severity::kOrdinary) {
    // Pinning asks the driver for CPU memory; everything else that runs out of memory runs out of
    // the accelerator's.
    const bool exhausted = code == kCudaOutOfMemory && otherwise != adsmErrorHostMemory;
    const Status status = gmac::fail(exhausted ? adsmErrorAcceleratorMemory : otherwise,
                                     "{}({}) failed with {}: {}", call, arguments, code, words);
    recordErrorNumber(code);
    return status;
  }
  // (CUDA has no words of its own left once it has ended.)
  const bool ended = severity == Severity::kCudaEnded;
  const ShortText text("{}({}) failed with {}: {}", call, arguments, code,
                       ended ? "the process exits, and CUDA has ended before" : words);
  const std::string_view described = text.view();
  if (ended) ended_.store(true, std::memory_order_release);
  const bool first = die(code, described);
  if (!first) return lostStatus();
  const Status status = gmac::fail(
      severity == Severity::kKernelCrashed ? adsmErrorKernel : adsmErrorAcceleratorLost, "{}{}",
      severity == Severity::kKernelCrashed
          ? "a kernel crashed and took the accelerator's contents with it; "
          : "the accelerator is lost; ",
      described);
  recordErrorNumber(code);
  return status;
}

Status missingImplementation(const adsmKernelDesc_t& desc, std::string_view field,
                             std::string_view accelerator) {
  return gmac::fail(adsmErrorNoImplementation,
                    "kernel {} has no implementation for accelerator {}: {} is NULL", desc.name,
                    accelerator, field);
}

Status constantTooSmall(const adsmKernelDesc_t& desc, const adsmConstant_t& constant,
                        std::size_t holds, std::size_t bytes) {
  return gmac::fail(adsmErrorInvalidValue, "constant {} of kernel {} holds {} bytes, not {}",
                    constant.name, desc.name, holds, bytes);
}

ShortText describeLaunch(const adsmKernelDesc_t& desc, const LaunchShape& shape) noexcept {
  return ShortText("kernel {}, grid {}x{}x{}, block {}x{}x{}, {} shared bytes", desc.name,
                   shape.grid.x, shape.grid.y, shape.grid.z, shape.block.x, shape.block.y,
                   shape.block.z, shape.sharedBytes);
}

}  // namespace gmac::accel::cuda
