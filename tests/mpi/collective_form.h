// SPDX-License-Identifier: Apache-2.0
//
// In which of its forms a random program calls a collective.
#ifndef GMAC_TESTS_MPI_COLLECTIVE_FORM_H_
#define GMAC_TESTS_MPI_COLLECTIVE_FORM_H_

#include "tests/mpi/persistent_collectives.h"
#include "tests/mpi/random_run.h"

namespace gmac::testing {

#ifdef MPICH
constexpr bool kIsMpich = true;
#else
constexpr bool kIsMpich = false;
#endif

class CollectiveForm {
 public:
  explicit CollectiveForm(Run& run)
      : run_(run), kind_(static_cast<Kind>(draw(run.rng, 0, MPI_VERSION >= 4 ? 3 : 2))) {}

  bool blocks() const { return kind_ == Kind::kBlocking; }
  bool isPersistent() const { return kind_ == Kind::kPersistent; }
  // With large counts, where the test has that form.
  bool isWide() const { return kind_ == Kind::kWide; }
  void block() { kind_ = Kind::kBlocking; }
  const char* name() const {
    return isPersistent() ? ", persistent" : isWide() ? ", wide" : blocks() ? "" : ", nonblocking";
  }
  MPI_Request* request() { return &request_; }

  // After the call with that result, completes it; the result of both.
  int finish(int code) {
    if (code != MPI_SUCCESS || request_ == MPI_REQUEST_NULL) return code;
    const int times = isPersistent() ? 2 : 1;
    for (int i = 0; i < times && code == MPI_SUCCESS; ++i) {
      if (isPersistent()) code = MPI_Start(&request_);
      const Memory other(run_.kind, 5000);
      other.flip();
      if (code == MPI_SUCCESS) code = MPI_Wait(&request_, MPI_STATUS_IGNORE);
    }
    if (isPersistent()) MPI_Request_free(&request_);
    return code;
  }

 private:
  enum class Kind { kBlocking, kNonblocking, kPersistent, kWide };

  Run& run_;
  Kind kind_;
  MPI_Request request_ = MPI_REQUEST_NULL;
};

// Calls MPI_name(...), or one of its other forms, and waits until it is complete.
#define GMAC_COLLECTIVE(form, name, iname, ...)                                           \
  (form).finish((form).blocks() || (form).isWide() ? MPI_##name(__VA_ARGS__)              \
                : (form).isPersistent()                                                   \
                    ? GMAC_PERSISTENT(name)(__VA_ARGS__, MPI_INFO_NULL, (form).request()) \
                    : MPI_##iname(__VA_ARGS__, (form).request()))

// Blocks of elements in a buffer, in no order and with gaps.
struct Scattered {
  std::vector<int> counts;
  std::vector<int> places;
  int elements = 0;  // of the buffer

  Scattered(Rng& rng, std::vector<int> blocks) : counts(std::move(blocks)), places(counts.size()) {
    std::vector<std::size_t> order(counts.size());
    for (std::size_t i = 0; i < order.size(); ++i) order[i] = i;
    if (draw(rng, 0, 1) == 0) std::shuffle(order.begin(), order.end(), rng);
    const int widest = draw(rng, 0, 2);
    for (const std::size_t i : order) {
      elements += draw(rng, 0, widest);
      places[i] = elements;
      elements += counts[i];
    }
    // Arrays of nothing have addresses, too.
    counts.push_back(0);
    places.push_back(0);
  }
};

}  // namespace gmac::testing

#endif  // GMAC_TESTS_MPI_COLLECTIVE_FORM_H_
