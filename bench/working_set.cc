// SPDX-License-Identifier: Apache-2.0
//
// Objects that do not fit into a GPU's memory, beside a program that streams its data by hand.
#include "bench/working_set.h"

#include <cstddef>
#include <memory>
#include <stdexcept>
#include <vector>

#include "bench/measure.h"
#include "gmac/api/adsm.h"

namespace gmac::bench {

#if !GMAC_HAVE_CUDA
std::unique_ptr<StreamedByHand> streamByHand(std::size_t, std::size_t) {
  throw std::runtime_error("this build has no CUDA");
}
std::unique_ptr<Reservation> leaveFree(std::size_t) {
  throw std::runtime_error("this build has no CUDA");
}
#endif

namespace {

class SharedPieces {
 public:
  SharedPieces(std::size_t pieces, std::size_t bytes) : words_(bytes / sizeof(unsigned)) {
    kernel_ = makeKernel("addOneToAll", {sizeof(void*), sizeof(std::size_t)}, nullptr);
    for (std::size_t i = 0; i < pieces; ++i) {
      pieces_.push_back(checkedAlloc(bytes));
    }
  }
  ~SharedPieces() {
    (void)adsmKernelDestroy(kernel_);
    for (void* const piece : pieces_) {
      (void)adsmFree(piece);
    }
  }
  SharedPieces(const SharedPieces&) = delete;
  SharedPieces& operator=(const SharedPieces&) = delete;

  void use(std::size_t piece) {
    void* args[] = {&pieces_[piece], &words_};
    const adsmUse_t use{pieces_[piece], adsmReadWrite};
    check(adsmCallUsing(kernel_, {kSweepBlocks, 1, 1}, {kSweepThreads, 1, 1}, 0, args, &use, 1),
          "adsmCallUsing");
  }
  static void sync() { check(adsmSync(), "adsmSync"); }
  unsigned firstWord(std::size_t piece) const { return *static_cast<unsigned*>(pieces_[piece]); }

 private:
  std::size_t words_;
  adsmKernel_t kernel_ = nullptr;
  std::vector<void*> pieces_;
};

// Sweeps on demand (see TurnsInChild). The first half of the pieces takes part in each coldEvery-th
// one, the second half, which finds no room when it is allocated, in all.
template <typename Set>
void sweep(Set& set, std::size_t pieces, std::size_t coldEvery) {
  std::size_t number = 0;
  std::vector<unsigned> uses(pieces);
  serveTurns([&] {
    const bool all = number++ % coldEvery == 0;
    const Stopwatch watch;
    for (std::size_t i = all ? 0 : pieces / 2; i < pieces; ++i) {
      set.use(i);
      ++uses[i];
    }
    set.sync();
    const double seconds = watch.seconds();
    for (std::size_t i = 0; all && i < pieces; ++i) {
      if (set.firstWord(i) != uses[i]) {
        throw std::runtime_error("a piece has been worked on wrongly");
      }
    }
    return seconds;
  });
}

// {pieces, bytes, coldEvery, byHand, free}: so many pieces of so many bytes each, streamed by hand,
// or objects with `free` bytes of the GPU's memory free. A process each: gmac would take the work
// of the other for work on its objects.
json workingSet(const json& parameters) {
  const auto pieces = parameters["pieces"].get<std::size_t>();
  const auto bytes = parameters["bytes"].get<std::size_t>();
  const auto coldEvery = parameters["coldEvery"].get<std::size_t>();
  if (parameters["byHand"].get<bool>()) {
    sweep(*streamByHand(pieces, bytes), pieces, coldEvery);
    return {};
  }
  check(adsmFree(checkedAlloc(1)), "adsmFree");  // so that the runtime has started
  const std::unique_ptr<Reservation> reservation = leaveFree(parameters["free"].get<std::size_t>());
  SharedPieces objects(pieces, bytes);
  sweep(objects, pieces, coldEvery);
  return {};
}
const Registration kWorkingSet("workingSet", &workingSet);

}  // namespace
}  // namespace gmac::bench
