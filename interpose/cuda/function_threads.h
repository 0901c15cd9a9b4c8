// SPDX-License-Identifier: Apache-2.0
//
// Threads that run functions of the CPU for the threads of the driver.
#ifndef GMAC_INTERPOSE_CUDA_FUNCTION_THREADS_H_
#define GMAC_INTERPOSE_CUDA_FUNCTION_THREADS_H_

#include <mutex>

namespace gmac::interpose {

// Keeps as many threads as functions have ever run at once: a thread takes longer to make than most
// functions run. The worst of it: where functions follow each other within kMostSpin, a thread
// spins for as long after the last of them, and the driver's thread while each runs. One instance,
// never destroyed; thread-safe; not in a child of fork.
class FunctionThreads {
 public:
  static FunctionThreads& get();

  // Runs `body` in another thread and returns when it has returned. In the caller's where no thread
  // can be made: an access that needs a copy then fails with the driver's error.
  template <typename Body>
  void run(Body& body) {
    runApart([](void* argument) { (*static_cast<Body*>(argument))(); }, &body);
  }

 private:
  using Function = void (*)(void* argument);
  class Thread;

  void runApart(Function function, void* argument);
  Thread* take();
  void putBack(Thread* thread);

  std::mutex mutex_;
  Thread* idle_ = nullptr;  // a list; the first one ran last
};

}  // namespace gmac::interpose

#endif  // GMAC_INTERPOSE_CUDA_FUNCTION_THREADS_H_
