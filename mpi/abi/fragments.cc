// SPDX-License-Identifier: Apache-2.0
#include "mpi/abi/fragments.h"

#include <dlfcn.h>

#include <algorithm>
#include <atomic>
#include <bit>
#include <chrono>
#include <iterator>
#include <list>
#include <mutex>
#include <new>
#include <random>
#include <utility>
#include <vector>

#include "mpi/abi/requests.h"
#include "mpi/job_marks.h"
#include "mpi/spinning.h"
#include "mpi/staging_memory.h"

namespace gmac::mpi::GMAC_MPI_ABI {
namespace {

using std::int64_t;
using Clock = std::chrono::steady_clock;

// Tags on the communicator, of which any MPI has 32768: of a message's fragments, which arrive in
// order; of the receiver's answer to its ticket; and of a process that attends.
constexpr int kNumbers = 16'000;
constexpr int kAnswer = kNumbers;
constexpr int kAttends = 2 * kNumbers;

// Packs that are under way at a time: the device need not wait for this process.
constexpr std::size_t kPacksAhead = 4;
// The most bytes that may be sent and not yet received. More takes the wire.
constexpr int64_t kMostUnderWay = StagingMemory::kKeptBytes;
// The shorter the first fragment and the last, the more is overlapped, but each takes a handshake
// of MPI's. (1 MiB: docs/results.md.)
int64_t fragmentBytes() {
  constexpr int64_t kMost = int64_t{1} << 20;
  return std::min(kMost, tickets::leastFragmented() / 4);
}

struct Fragment {
  int64_t first;
  int64_t bytes;
};

// The parts of a payload.
class Parts {
 public:
  Parts(int64_t bytes, int64_t fragment) : bytes_(bytes), fragment_(fragment) {}
  std::size_t count() const {
    return static_cast<std::size_t>((bytes_ + fragment_ - 1) / fragment_);
  }
  Fragment operator[](std::size_t i) const {
    const int64_t first = static_cast<int64_t>(i) * fragment_;
    return {first, std::min(fragment_, bytes_ - first)};
  }

 private:
  int64_t bytes_;
  int64_t fragment_;
};

// Private memory that MPI reads, or that it writes to for nobody. Of a message that is sent also
// its number, which no other has meanwhile.
struct Posted {
  int number = kNumbers;  // none
  StagingMemory memory;
  int64_t bytes = 0;
  std::vector<MPI_Request> requests;
  std::size_t done = 0;                   // of them, from the first on
  MPI_Request answer = MPI_REQUEST_NULL;  // the receiver's, which is awaited

  // Whether MPI needs it no more.
  bool isSent() {
    for (; done < requests.size(); ++done) {
      int isOver = 0;
      if (real().Test(&requests[done], &isOver, MPI_STATUS_IGNORE) == MPI_SUCCESS && isOver == 0) {
        return false;
      }
    }
    return true;
  }
  bool isAnswered() {
    int isOver = 1;
    return answer == MPI_REQUEST_NULL ||
           real().Test(&answer, &isOver, MPI_STATUS_IGNORE) != MPI_SUCCESS || isOver != 0;
  }
  // Of a message that was not sent.
  void expectNoAnswer() {
    if (answer == MPI_REQUEST_NULL) return;
    (void)real().Cancel(&answer);
    (void)real().Wait(&answer, MPI_STATUS_IGNORE);
  }
};

struct OtherRank {
  std::atomic<bool> attends{false};   // it takes this process's fragments
  std::atomic<bool> wasTold{false};   // that this process takes its fragments
  std::atomic<unsigned> attended{0};  // its messages on the wire, by this process
};

struct All {
  MPI_Comm communicator;  // meaningful while isOpen
  std::atomic<bool> isOpen{false};
  std::vector<OtherRank> ranks;
  std::atomic<bool> anyWasTold{false};
  std::atomic<int64_t> underWay{0};
  std::mutex lock;                                          // guards the next
  std::vector<bool> numbers = std::vector<bool>(kNumbers);  // those in use
  int lastNumber = 0;
  // Of messages whose call is over. (What a receiver truncates that has no room for a ticket
  // remains with its sender.)
  std::list<Posted> left;
  std::atomic<bool> anyLeft{false};
};
All& all() {
  static auto* const all = new All;  // also for exit handlers
  return *all;
}

void progress() {
  int found = 0;
  (void)real().Iprobe(MPI_ANY_SOURCE, MPI_ANY_TAG, ownCommunicator(), &found, MPI_STATUS_IGNORE);
}

// One that is not in use; the number of numbers: there is none.
int takeNumber() {
  All& state = all();
  const std::lock_guard guard(state.lock);
  for (int i = 0; i < kNumbers; ++i) {
    const int number = state.lastNumber = (state.lastNumber + 1) % kNumbers;
    if (!state.numbers[static_cast<std::size_t>(number)]) {
      state.numbers[static_cast<std::size_t>(number)] = true;
      return number;
    }
  }
  return kNumbers;
}

// Under the lock: the message is over.
void release(All& state, const Posted& posted) {
  state.underWay -= posted.bytes;
  if (posted.number < kNumbers) state.numbers[static_cast<std::size_t>(posted.number)] = false;
}

// Frees what MPI has sent meanwhile. (No lock is kept while MPI is called.)
void sweepLeft() {
  All& state = all();
  if (!state.anyLeft) {
    return;
  }
  std::list<Posted> left;
  std::list<Posted> over;
  {
    const std::lock_guard guard(state.lock);
    left.swap(state.left);
  }
  for (auto at = left.begin(); at != left.end();) {
    const auto next = std::next(at);
    if (at->isSent() && at->isAnswered()) over.splice(over.end(), left, at);
    at = next;
  }
  const std::lock_guard guard(state.lock);
  for (const Posted& posted : over) release(state, posted);
  state.left.splice(state.left.end(), left);
  state.anyLeft = !state.left.empty();
}

// Whether the rank takes fragments, by the last that it has said.
bool attends(int rank) {
  All& state = all();
  OtherRank& other = state.ranks[static_cast<std::size_t>(rank)];
  int found = 1;
  while (found != 0) {
    MPI_Message message;
    // (Matched: of two threads one receives it.)
    if (real().Improbe(rank, kAttends, state.communicator, &found, &message, MPI_STATUS_IGNORE) !=
            MPI_SUCCESS ||
        found == 0) {
      break;
    }
    (void)real().Mrecv(nullptr, 0, MPI_BYTE, &message, MPI_STATUS_IGNORE);
    other.attends = true;
  }
  return other.attends;
}

// Why a message has failed. Without memory for the text it has failed all the same.
class Failure {
 public:
  void note(const char* reason) noexcept {
    if (!reason_.empty()) return;
    try {
      reason_ = reason;
    } catch (const std::bad_alloc&) {
      reason_ = "no memory";  // short enough to need none
    }
  }
  explicit operator bool() const { return !reason_.empty(); }
  const std::string& reason() const { return reason_; }

 private:
  std::string reason_;
};

// A message without bytes, which nobody waits for here.
void tell(int rank, int tag) {
  MPI_Request request = MPI_REQUEST_NULL;
  if (real().Isend(nullptr, 0, MPI_BYTE, rank, tag, all().communicator, &request) == MPI_SUCCESS) {
    (void)real().Request_free(&request);
  }
}

}  // namespace

// ---- The sender.

struct FragmentedSend::State {
  State(int64_t payloadBytes, int receiver)
      : parts(payloadBytes, fragmentBytes()), rank(receiver) {}

  // Begins to pack the next part. A pack that does not begin is none, and post() says so.
  void packNext() {
    const Fragment part = parts[packs.size()];
    adsmPackEvent_t event = nullptr;
    if (!failure && elements->beginPart(true, posted.memory.data() + part.first, part.first,
                                        part.bytes, &event) != adsmSuccess) {
      failure.note(adsmLastErrorString());
    }
    packs.push_back(event);
  }
  // Whether the pack has gone well.
  bool endPack(std::size_t i) {
    const adsmPackEvent_t pack = std::exchange(packs[i], nullptr);
    if (pack != nullptr && adsmPackWait(pack) != adsmSuccess && !failure) {
      failure.note(adsmLastErrorString());
    }
    return !failure;
  }

  const Parts parts;
  const int rank;
  const Elements* elements = nullptr;
  tickets::Bytes ticket{};
  std::vector<adsmPackEvent_t> packs;  // of the parts that were begun
  std::list<Posted> kept{1};           // goes where it is left, without an allocation
  Posted& posted = kept.front();
  bool isPosted = false;
  bool isOver = false;
  Clock::time_point lateAt{};  // none: nobody waits yet
  Failure failure;
  requests::MayBeUnsettled unsettled;
};

FragmentedSend::FragmentedSend(std::unique_ptr<State> state) : state_(std::move(state)) {}

std::shared_ptr<FragmentedSend> FragmentedSend::begin(const Elements& elements, int rank) {
  All& state = all();
  const int64_t bytes = elements.bytes();
  sweepLeft();
  if (!state.isOpen || !attends(rank) || !elements.openParts()) {
    return nullptr;
  }
  auto message = std::make_shared<FragmentedSend>(std::make_unique<State>(bytes, rank));
  State& own = *message->state_;
  own.posted.bytes = bytes;
  state.underWay += bytes;
  own.posted.number = takeNumber();
  own.posted.memory = StagingMemory(static_cast<std::size_t>(bytes));
  own.packs.reserve(own.parts.count());
  own.posted.requests.reserve(own.parts.count());
  if (own.posted.number == kNumbers || state.underWay > kMostUnderWay ||
      own.posted.memory.data() == nullptr ||
      real().Irecv(nullptr, 0, MPI_BYTE, rank, kAnswer + own.posted.number, state.communicator,
                   &own.posted.answer) != MPI_SUCCESS) {
    return nullptr;  // the wire says what is wrong
  }
  own.posted.memory.pin(kPinning);
  own.elements = &elements;
  own.ticket = tickets::writeFragmented(bytes, own.parts[0].bytes, own.posted.number);
  while (own.packs.size() < std::min(kPacksAhead, own.parts.count())) {
    own.packNext();
  }
  return message;
}

FragmentedSend::~FragmentedSend() {
  recall();
  All& state = all();
  Posted& posted = state_->posted;
  if (!state_->isPosted) posted.expectNoAnswer();
  const bool isOver = posted.isSent() && posted.isAnswered();
  const std::lock_guard guard(state.lock);
  if (isOver) {
    release(state, posted);
    return;
  }
  state.left.splice(state.left.end(), state_->kept);
  state.anyLeft = true;
}

const tickets::Bytes& FragmentedSend::ticket() const { return state_->ticket; }

const std::string& FragmentedSend::reason() const { return state_->failure.reason(); }

void FragmentedSend::recall() {
  if (state_->isPosted) {
    return;
  }
  for (std::size_t i = 0; i < state_->packs.size(); ++i) {
    (void)state_->endPack(i);
  }
  state_->isOver = true;
}

// A part that cannot be packed, and all after it, are sent without their bytes.
void FragmentedSend::post() {
  State& own = *state_;
  if (own.isPosted || own.isOver) {
    return;
  }
  own.isPosted = true;
  for (std::size_t i = 0; i < own.parts.count(); ++i) {
    for (Spinning spinning; own.packs[i] != nullptr && adsmPackDone(own.packs[i]) == 0;
         spinning.turn()) {
      progress();
    }
    const bool packed = own.endPack(i);
    if (own.packs.size() < own.parts.count()) {
      own.packNext();
    }
    const Fragment part = own.parts[i];
    MPI_Request request = MPI_REQUEST_NULL;
    if (real().Isend(own.posted.memory.data() + part.first,
                     packed ? static_cast<int>(part.bytes) : 0, MPI_BYTE, own.rank,
                     own.posted.number, all().communicator, &request) != MPI_SUCCESS &&
        !own.failure) {
      own.failure.note("MPI does not send a part of the message");
    }
    own.posted.requests.push_back(request);
  }
}

bool FragmentedSend::settled() {
  State& own = *state_;
  if (own.isOver) {
    return true;
  }
  own.isOver = own.posted.isSent();
  if (own.isOver || own.posted.isAnswered()) {
    return own.isOver;
  }
  const auto now = Clock::now();
  if (own.lateAt == Clock::time_point()) {
    own.lateAt = now + tickets::answerWait(own.posted.bytes);
  }
  if (now >= own.lateAt) {
    all().ranks[static_cast<std::size_t>(own.rank)].attends = false;
    own.isOver = true;
  }
  return own.isOver;
}

// ---- The receiver.

struct FragmentedReceive::State {
  State(const tickets::Ticket& ticket, std::byte* to)
      : parts(ticket.payloadBytes, ticket.fragmentBytes), packed(to) {}

  const Parts parts;
  std::byte* const packed;
  const Elements* elements = nullptr;  // NULL: the payload is not unpacked
  std::vector<MPI_Request> requests;
  std::size_t arrived = 0;               // of them, from the first on
  std::vector<adsmPackEvent_t> unpacks;  // of those
  std::size_t unpacked = 0;              // of these
  Failure failure;
};

FragmentedReceive::FragmentedReceive(const tickets::Ticket& ticket, std::byte* packed,
                                     const Elements* elements)
    : state_(std::make_unique<State>(ticket, packed)) {
  State& own = *state_;
  if (elements != nullptr && elements->openParts()) {
    own.elements = elements;
  }
  own.requests.reserve(own.parts.count());
  own.unpacks.reserve(own.parts.count());
  const MPI_Comm communicator = all().communicator;
  for (std::size_t i = 0; i < own.parts.count(); ++i) {
    const Fragment part = own.parts[i];
    MPI_Request request = MPI_REQUEST_NULL;
    if (real().Irecv(packed + part.first, static_cast<int>(part.bytes), MPI_BYTE, ticket.sender,
                     ticket.number, communicator, &request) != MPI_SUCCESS &&
        !own.failure) {
      own.failure.note("MPI does not receive a part of the message");
    }
    own.requests.push_back(request);
  }
  tell(ticket.sender, kAnswer + ticket.number);
}

// (Destroyed early only where there is no memory for a failure's text.)
FragmentedReceive::~FragmentedReceive() {
  while (!advance()) {
    progress();
  }
}

bool FragmentedReceive::advance() {
  State& own = *state_;
  for (; own.arrived < own.requests.size(); ++own.arrived) {
    const Fragment part = own.parts[own.arrived];
    int isOver = 1;
    MPI_Status status = {};
    MPI_Count bytes = part.bytes;
    const int code = real().Test(&own.requests[own.arrived], &isOver, &status);
    if (code == MPI_SUCCESS && isOver == 0) {
      break;
    }
    if (!own.failure &&
        (code != MPI_SUCCESS || real().Get_elements_x(&status, MPI_BYTE, &bytes) != MPI_SUCCESS)) {
      own.failure.note("MPI does not receive a part of the message");
    }
    if (!own.failure && bytes != part.bytes) {
      own.failure.note("its sender has failed to pack it");
    }
    adsmPackEvent_t event = nullptr;
    if (!own.failure && own.elements != nullptr &&
        own.elements->beginPart(false, own.packed + part.first, part.first, part.bytes, &event) !=
            adsmSuccess) {
      own.failure.note(adsmLastErrorString());
    }
    own.unpacks.push_back(event);
  }
  for (; own.unpacked < own.unpacks.size(); ++own.unpacked) {
    adsmPackEvent_t& event = own.unpacks[own.unpacked];
    if (event == nullptr) continue;
    if (adsmPackDone(event) == 0) break;
    if (adsmPackWait(std::exchange(event, nullptr)) != adsmSuccess && !own.failure) {
      own.failure.note(adsmLastErrorString());
    }
  }
  return own.unpacked == own.requests.size();
}

bool FragmentedReceive::unpacks() const { return state_->elements != nullptr; }

const std::string& FragmentedReceive::reason() const { return state_->failure.reason(); }

// ---- The processes.

namespace fragments {

// All fragments go to the same private memory, where nobody reads them. (Open MPI 4.1 writes past
// the end of receives that are too short for long messages.) Without that memory, the sender takes
// this process for late.
void discard(const tickets::Ticket& ticket) noexcept try {
  All& state = all();
  const Parts parts(ticket.payloadBytes, ticket.fragmentBytes);
  std::list<Posted> kept(1);
  Posted& posted = kept.front();
  posted.memory = StagingMemory(static_cast<std::size_t>(ticket.fragmentBytes));
  if (posted.memory.data() == nullptr) {
    return;
  }
  posted.requests.reserve(parts.count());
  for (std::size_t i = 0; i < parts.count(); ++i) {
    MPI_Request request = MPI_REQUEST_NULL;
    (void)real().Irecv(posted.memory.data(), static_cast<int>(parts[i].bytes), MPI_BYTE,
                       ticket.sender, ticket.number, state.communicator, &request);
    posted.requests.push_back(request);
  }
  tell(ticket.sender, kAnswer + ticket.number);
  const std::lock_guard guard(state.lock);
  state.left.splice(state.left.end(), kept);
  state.anyLeft = true;
} catch (const std::bad_alloc&) {
  // as above
}

// A sender whose receiver was late sends as before until it is told again: after 1, 2, 4 and at
// last 1024 such messages. The others need not hear it more often.
void noteAttention(int rank) {
  All& state = all();
  if (!state.isOpen || !tickets::takesFragments(rank)) {
    return;
  }
  constexpr unsigned kMost = 1024;
  OtherRank& other = state.ranks[static_cast<std::size_t>(rank)];
  const unsigned times = other.attended.fetch_add(1) + 1;
  if (!std::has_single_bit(times) && times % kMost != 0) {
    return;
  }
  other.wasTold = true;
  state.anyWasTold = true;
  tell(rank, kAttends);
}

bool mayComeFromAny() { return all().anyWasTold.load(std::memory_order_relaxed); }

bool mayCome(int rank) {
  const All& state = all();
  return mayComeFromAny() && rank >= 0 && static_cast<std::size_t>(rank) < state.ranks.size() &&
         state.ranks[static_cast<std::size_t>(rank)].wasTold;
}

void prepare() {
#ifdef OPEN_MPI
  Dl_info info;
  if (tickets::wanted() && ::dladdr(reinterpret_cast<const void*>(real().Init), &info) != 0 &&
      info.dli_fname != nullptr) {
    marks::set(info.dli_fname);
  }
#endif
}

namespace {

// A number that the processes have in common, by the first of them.
bool agree(MPI_Comm communicator, tickets::Nonce* nonce) {
  std::random_device random;
  for (std::uint64_t& word : *nonce) {
    word = (std::uint64_t{random()} << 32) | random();
  }
  return real().Bcast(nonce->data(), sizeof *nonce, MPI_BYTE, 0, communicator) == MPI_SUCCESS;
}

}  // namespace

void open(int size) {
  All& state = all();
  if (!marks::onAll(size)) {
    return;
  }
  MPI_Group group = MPI_GROUP_NULL;
  if (real().Comm_group(MPI_COMM_WORLD, &group) != MPI_SUCCESS) {
    return;
  }
  const bool made = real().Comm_create(MPI_COMM_WORLD, group, &state.communicator) == MPI_SUCCESS;
  (void)real().Group_free(&group);
  tickets::Nonce nonce{};
  if (!made || real().Comm_set_errhandler(state.communicator, MPI_ERRORS_RETURN) != MPI_SUCCESS ||
      !agree(state.communicator, &nonce)) {
    return;
  }
  state.ranks = std::vector<OtherRank>(static_cast<std::size_t>(size));
  state.isOpen = true;
  tickets::admitFragments(nonce);
}

void close() {
  All& state = all();
  if (!state.isOpen) {
    return;
  }
  // Nobody receives any more when all are here.
  MPI_Request request = MPI_REQUEST_NULL;
  int done = 0;
  int code = real().Ibarrier(state.communicator, &request);
  for (Spinning spinning; code == MPI_SUCCESS && done == 0; spinning.turn()) {
    sweepLeft();
    code = real().Test(&request, &done, MPI_STATUS_IGNORE);
  }
  sweepLeft();
  state.isOpen = false;
  // (MPI may read what is left until its end.)
  if (!state.anyLeft) {
    (void)real().Comm_free(&state.communicator);
  }
}

}  // namespace fragments
}  // namespace gmac::mpi::GMAC_MPI_ABI
