// SPDX-License-Identifier: Apache-2.0
//
// The guards of functions' static variables (Itanium C++ ABI, 3.3.3), in place of the C++ library's
// own. With that one, a child of fork waits for ever for a variable that another thread was making
// at the fork, as that thread does not exist in the child. Here the child makes the variable again.
#include <pthread.h>

#include <atomic>
#include <cstdint>

namespace {

// How many forks this process is away from the one that loaded the library, from 1 on.
constinit std::atomic<std::uint32_t> generation{1};

// Before ordinary constructors, which may use static variables.
[[gnu::constructor(101)]] void countGenerations() {
  (void)pthread_atfork(nullptr, nullptr,
                       [] { generation.fetch_add(1, std::memory_order_relaxed); });
}

// The ABI gives the first byte a meaning, and leaves the others to whoever implements it.
class Guard {
 public:
  explicit Guard(std::uint64_t* guard)
      : made_(*reinterpret_cast<std::uint8_t*>(guard)),
        maker_(reinterpret_cast<std::uint32_t*>(guard)[1]) {}

  bool made() const { return made_.load(std::memory_order_acquire) != 0; }
  void setMade() { made_.store(1, std::memory_order_release); }

  // Whether the calling thread makes the variable now; if not, it has been made meanwhile.
  bool take() {
    const std::uint32_t mine = generation.load(std::memory_order_relaxed);
    while (!made()) {
      std::uint32_t maker = 0;
      if (maker_.compare_exchange_strong(maker, mine) ||
          (maker != mine && maker_.compare_exchange_strong(maker, mine))) {
        if (!made()) return true;
        release();
      } else if (maker == mine) {
        maker_.wait(maker);
      }
    }
    return false;
  }
  void release() {
    maker_.store(0);
    maker_.notify_all();
  }

 private:
  std::atomic_ref<std::uint8_t> made_;
  std::atomic_ref<std::uint32_t> maker_;  // its generation; 0: nobody makes it
};

}  // namespace

// Hidden: the functions of other libraries keep their own guards.
extern "C" {
[[gnu::visibility("hidden")]] int __cxa_guard_acquire(std::uint64_t* guard) noexcept {
  return Guard(guard).take() ? 1 : 0;
}
[[gnu::visibility("hidden")]] void __cxa_guard_release(std::uint64_t* guard) noexcept {
  Guard made(guard);
  made.setMade();
  made.release();
}
[[gnu::visibility("hidden")]] void __cxa_guard_abort(std::uint64_t* guard) noexcept {
  Guard(guard).release();
}
}
