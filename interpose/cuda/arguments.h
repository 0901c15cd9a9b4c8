// SPDX-License-Identifier: Apache-2.0
//
// Kernel arguments that lie in shared memory. The driver reads them while it holds its own locks,
// after the launch has closed their pages: a fault there would ask the driver for bytes and never
// return. So it gets private copies, made before that.
#ifndef GMAC_INTERPOSE_CUDA_ARGUMENTS_H_
#define GMAC_INTERPOSE_CUDA_ARGUMENTS_H_

#include <cuda.h>

#include <optional>

#include "interpose/base/scratch.h"

namespace gmac::interpose {

// Forgets the kernels' parameters, because their handles may be reused. Call it before something is
// unloaded.
void forgetKernels() noexcept;

// The arguments of one launch as the driver may read them: the caller's own unless a part of them
// is shared. The driver tells how many parameters a kernel has and how large they are. An old
// driver does not (before CUDA 12.4): then only the leading arguments that are shared are copied,
// each with as many bytes as a parameter may have. For the stack; one thread's. Not for the fault
// handler.
class LaunchArguments {
 public:
  // `function` may be a CUkernel, as it may in a launch.
  LaunchArguments(CUfunction function, void** params, void** extra);
  LaunchArguments(const LaunchArguments&) = delete;
  LaunchArguments& operator=(const LaunchArguments&) = delete;

  // CUDA_SUCCESS, or why the bytes cannot be read.
  CUresult result() const { return result_; }
  CUfunction function() const { return function_; }
  void** params() const { return params_; }
  void** extra() const { return extra_; }

  // Tells the runtime which objects the arguments name, for a kernel that the calling thread's
  // device is to run: where memory may lie on several devices, that is a reason to lie there.
  // Pointers may be arguments or members of arguments. A hint.
  void name() const;

 private:
  void copyParams(CUfunction function);
  void copyExtra();

  const CUfunction function_;
  void** params_;
  void** extra_;
  CUresult result_ = CUDA_SUCCESS;
  std::optional<Scratch> own_;
};

// The same for a launch's configuration and its attributes.
class LaunchConfiguration {
 public:
  explicit LaunchConfiguration(const CUlaunchConfig* given);
  LaunchConfiguration(const LaunchConfiguration&) = delete;
  LaunchConfiguration& operator=(const LaunchConfiguration&) = delete;

  CUresult result() const { return result_; }
  const CUlaunchConfig* get() const { return given_; }

 private:
  const CUlaunchConfig* given_;
  CUresult result_ = CUDA_SUCCESS;
  CUlaunchConfig config_;
  std::optional<Scratch> attributes_;
};

}  // namespace gmac::interpose

#endif  // GMAC_INTERPOSE_CUDA_ARGUMENTS_H_
