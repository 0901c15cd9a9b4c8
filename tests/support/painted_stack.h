// SPDX-License-Identifier: Apache-2.0
#ifndef GMAC_TESTS_SUPPORT_PAINTED_STACK_H_
#define GMAC_TESTS_SUPPORT_PAINTED_STACK_H_

#include <sys/mman.h>
#include <ucontext.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstddef>
#include <cstdio>
#include <cstring>

namespace gmac::testing {

// A stack that shows how far down it has been used, with a page below it that nobody may touch.
// Lives as long as the process. Ends the process where there is no memory for it.
class PaintedStack {
 public:
  explicit PaintedStack(std::size_t bytes) : bytes_(bytes) {
    constexpr std::size_t kPage = 4096;
    const std::size_t rounded = (bytes + kPage - 1) / kPage * kPage;
    void* const mapped =
        mmap(nullptr, kPage + rounded, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (mapped == MAP_FAILED || mprotect(mapped, kPage, PROT_NONE) != 0) {
      std::perror("a stack");
      _exit(1);
    }
    begin_ = static_cast<unsigned char*>(mapped) + kPage;
    paint();
  }

  stack_t whole() const { return {begin_, 0, bytes_}; }
  bool contains(const void* address) const {
    return address >= begin_ && address < begin_ + bytes_;
  }
  void paint() { std::memset(begin_, kPaint, bytes_); }
  std::size_t used() const {
    return static_cast<std::size_t>(
        begin_ + bytes_ -
        std::find_if(begin_, begin_ + bytes_, [](unsigned char byte) { return byte != kPaint; }));
  }

  // Runs the function on this stack, as a coroutine runs.
  void run(void (*function)()) const {
    ucontext_t here;
    ucontext_t there;
    getcontext(&there);
    there.uc_stack = whole();
    there.uc_link = &here;
    makecontext(&there, function, 0);
    swapcontext(&here, &there);
  }

 private:
  static constexpr unsigned char kPaint = 0xA5;
  unsigned char* begin_;
  std::size_t bytes_;
};

}  // namespace gmac::testing

#endif  // GMAC_TESTS_SUPPORT_PAINTED_STACK_H_
