// SPDX-License-Identifier: Apache-2.0
#include <cstdlib>
#include <memory>
#include <string_view>

#include "tests/mpi/random_run.h"

namespace gmac::testing {

#if MPI_VERSION >= 4
namespace {

constexpr int kLongestBytes = 6000;

// MPICH 4.0's own functions leave the status empty and free types that are in use: they are called
// where gmac serves them, and are an MPI_Irecv and an MPI_Isend elsewhere.
bool isServed(const Run& run, int bytes) {
  const char* const tickets = std::getenv("GMAC_MPI_TICKETS");
  return (run.kind != Memory::Kind::kPlain && bytes > 0) ||
         (!run.isReference && (tickets == nullptr || std::string_view(tickets) != "0"));
}

// One call of every rank: to a rank at a distance, from the one on the other side.
struct Shift {
  bool replaces;
  bool counted;  // by the form for large counts
  int tag;
  int left;
  int right;
  int count;
  int receivedCount;
  MPI_Datatype type;
  bool anySource;
  bool served;
  std::unique_ptr<Buffer> sent;
  std::unique_ptr<Buffer> received;

  Shift(Run& run, Types& types, int number) {
    replaces = draw(run.rng, 0, 1) == 0;
    counted = draw(run.rng, 0, 1) == 0;
    tag = static_cast<int>(run.steps.size()) * 1000 + number;
    const int distance = draw(run.rng, 0, run.size - 1);
    const bool open = draw(run.rng, 0, 2) == 0;  // the ends are MPI_PROC_NULL
    const int to = run.rank + distance;
    const int from = run.rank - distance;
    right = to < run.size ? to : open ? MPI_PROC_NULL : to - run.size;
    left = from >= 0 ? from : open ? MPI_PROC_NULL : from + run.size;
    anySource = draw(run.rng, 0, 2) == 0 && left != MPI_PROC_NULL;
    type = types.derived(run.rng, types.base(run.rng), 3);
    count = std::min(drawCount(run.rng, type), kLongestBytes / std::max(1, sizeOf(type)));
    receivedCount = replaces ? count : count + draw(run.rng, 0, 2);
    served = isServed(run, sizeOf(type) * count);
    const int sentPast = Buffer::drawPast(run.rng);
    const int receivedPast = Buffer::drawPast(run.rng);
    sent = std::make_unique<Buffer>(run, type, count, sentPast);
    // Replaced bytes begin as the bytes that are sent.
    received = replaces && served ? nullptr
                                  : std::make_unique<Buffer>(run, type, receivedCount,
                                                             replaces ? sentPast : receivedPast);
  }

  int source() const { return anySource ? MPI_ANY_SOURCE : left; }

  // Of the requests, the first is the one with the status.
  void begin(Run& run, std::vector<MPI_Request>& requests, std::vector<MPI_Request>& more) const {
    MPI_Request& request = requests.emplace_back();
    int code = MPI_SUCCESS;
    if (!served) {
      MPI_Irecv(received->address(), receivedCount, type, source(), tag, run.comm, &request);
      code = MPI_Isend(sent->address(), count, type, right, tag, run.comm, &more.emplace_back());
    } else if (replaces) {
      code = counted ? MPI_Isendrecv_replace_c(sent->address(), count, type, right, tag, source(),
                                               tag, run.comm, &request)
                     : MPI_Isendrecv_replace(sent->address(), count, type, right, tag, source(),
                                             tag, run.comm, &request);
    } else {
      code = counted
                 ? MPI_Isendrecv_c(sent->address(), count, type, right, tag, received->address(),
                                   receivedCount, type, source(), tag, run.comm, &request)
                 : MPI_Isendrecv(sent->address(), count, type, right, tag, received->address(),
                                 receivedCount, type, source(), tag, run.comm, &request);
    }
    run.noteResult("send and receive", code);
  }

  void note(Run& run, const MPI_Status& status) const {
    // (MPICH 4.0 leaves that of an MPI_Irecv from nobody empty.)
    if (left != MPI_PROC_NULL) run.noteStatus(status, type);
    (received != nullptr ? received : sent)->noteBytes(run, "received");
    if (!replaces) sent->noteBytes(run, "sent");
  }
};

}  // namespace

void sendsAndReceives(Run& run) {
  Types types;
  std::vector<Shift> shifts;
  const int count = draw(run.rng, 1, 4);
  for (int i = 0; i < count; ++i) shifts.emplace_back(run, types, i);
  const int way = draw(run.rng, 0, 7);
  std::vector<MPI_Request> requests;
  std::vector<MPI_Request> more;
  for (const Shift& shift : shifts) shift.begin(run, requests, more);
  requests.insert(requests.end(), more.begin(), more.end());
  std::vector<MPI_Status> statuses(requests.size());
  completeAll(way, requests, statuses);
  for (std::size_t i = 0; i < shifts.size(); ++i) {
    shifts[i].note(run, statuses[i]);
    run.note(requests[i] == MPI_REQUEST_NULL ? "freed" : "not freed");
  }
}
#endif

}  // namespace gmac::testing
