// SPDX-License-Identifier: Apache-2.0
#ifndef TESTS_SUPPORT_OTHER_THREAD_H_
#define TESTS_SUPPORT_OTHER_THREAD_H_

#include <functional>
#include <semaphore>
#include <thread>

namespace gmac::testing {

// A thread that takes one step after another, each while the calling thread waits for it.
class OtherThread {
 public:
  ~OtherThread() {
    step_ = nullptr;
    next_.release();
    thread_.join();
  }
  void does(const std::function<void()>& step) {
    step_ = step;
    next_.release();
    done_.acquire();
  }

 private:
  std::function<void()> step_;
  std::binary_semaphore next_{0};
  std::binary_semaphore done_{0};
  std::thread thread_{[this] {
    for (next_.acquire(); step_; next_.acquire()) {
      step_();
      done_.release();
    }
  }};
};

}  // namespace gmac::testing

#endif  // TESTS_SUPPORT_OTHER_THREAD_H_
