// SPDX-License-Identifier: Apache-2.0
#include "mpi/abi/peers.h"

#include <sched.h>

#include <algorithm>
#include <shared_mutex>
#include <unordered_map>
#include <utility>

#include "mpi/abi/fragments.h"
#include "mpi/abi/handle.h"
#include "mpi/abi/types.h"

namespace gmac::mpi::GMAC_MPI_ABI {
namespace {

// Communicators by MPI's handles, which are used again: an attribute tells when one is freed.
struct Known {
  std::shared_mutex lock;  // never kept while MPI is called: MPI calls forget()
  std::unordered_map<std::uint64_t, PeersPtr> peers;  // NULL: none there
  std::atomic<std::uint64_t> changes{1};
  int keyval = MPI_KEYVAL_INVALID;
  std::atomic<bool> opened{false};
  // Of one communicator there is one object. Kept while MPI is called, for calls that wait for
  // nothing; recursive, as an error handler of the application's may call MPI.
  std::recursive_mutex making;
  RecentAnswers<PeersPtr> recent;  // where one thread at a time calls MPI
};
Known& known() {
  static auto* const known = new Known;  // also for exit handlers
  return *known;
}

RecentAnswers<PeersPtr>& recentAnswers() {
  if (!concurrentCalls()) {
    return known().recent;
  }
  static thread_local RecentAnswers<PeersPtr> ofThread;
  return ofThread;
}

int copyNothing(MPI_Comm, int, void*, void*, void*, int* copied) {
  *copied = 0;
  return MPI_SUCCESS;
}

std::int64_t bytesOf(const MPI_Status& status) {
  MPI_Count bytes = 0;
  return real().Get_elements_x(&status, MPI_BYTE, &bytes) == MPI_SUCCESS ? bytes : MPI_UNDEFINED;
}

}  // namespace

std::shared_ptr<Reread> Reread::send(const tickets::Bytes& bytes, MPI_Message* message) {
  // Of two threads, each finds its own again.
  static std::atomic<unsigned> number{0};
  constexpr unsigned kTags = 32768;  // any MPI has as many
  const int tag = static_cast<int>(number.fetch_add(1) % kTags);
  auto reread = std::make_shared<Reread>();
  reread->bytes_ = bytes;
  const MPI_Comm own = ownCommunicator();
  int found = 0;
  if (real().Isend(reread->bytes_.data(), tickets::kBytes, MPI_BYTE, 0, tag, own, &reread->sent_) !=
      MPI_SUCCESS) {
    return nullptr;
  }
  while (found == 0) {
    if (real().Improbe(0, tag, own, &found, message, MPI_STATUS_IGNORE) != MPI_SUCCESS) {
      return nullptr;
    }
  }
  return reread;
}

Reread::~Reread() {
  if (sent_ != MPI_REQUEST_NULL) {
    (void)real().Wait(&sent_, MPI_STATUS_IGNORE);
  }
}

void Held::show(MPI_Status* status) const {
  if (status == MPI_STATUS_IGNORE) {
    return;
  }
  (void)real().Status_set_elements_x(status, MPI_BYTE, bytes);
  (void)real().Status_set_cancelled(status, 0);
  status->MPI_SOURCE = source;
  status->MPI_TAG = tag;
}

int Peers::forget(MPI_Comm communicator, int, void*, void*) {
  PeersPtr removed;
  Known& all = known();
  const std::lock_guard guard(all.lock);
  const auto found = all.peers.find(keyOf(communicator));
  if (found != all.peers.end()) {
    removed = std::move(found->second);
    all.peers.erase(found);
  }
  if (removed != nullptr) {
    removed->freed_ = true;
  }
  all.changes.fetch_add(1, std::memory_order_release);
  return MPI_SUCCESS;
}

PeersPtr Peers::make(MPI_Comm communicator) {
  int between = 0;
  MPI_Group group = MPI_GROUP_NULL;
  MPI_Group world = MPI_GROUP_NULL;
  int size = 0;
  if (real().Comm_test_inter(communicator, &between) != MPI_SUCCESS || between != 0 ||
      real().Comm_size(communicator, &size) != MPI_SUCCESS ||
      real().Comm_group(communicator, &group) != MPI_SUCCESS) {
    return nullptr;
  }
  std::vector<int> own(static_cast<std::size_t>(size));
  std::vector<int> ranks(static_cast<std::size_t>(size), MPI_UNDEFINED);
  for (int i = 0; i < size; ++i) own[static_cast<std::size_t>(i)] = i;
  if (real().Comm_group(MPI_COMM_WORLD, &world) == MPI_SUCCESS) {
    (void)real().Group_translate_ranks(group, size, own.data(), world, ranks.data());
    (void)real().Group_free(&world);
  }
  (void)real().Group_free(&group);
  bool any = false;
  for (int& rank : ranks) {
    const bool takesTickets =
        rank != MPI_UNDEFINED && (tickets::reaches(rank) || tickets::takesFragments(rank));
    rank = takesTickets ? rank : -1;
    any = any || rank >= 0;
  }
  if (!any) {
    return nullptr;
  }
  auto peers = std::make_shared<Peers>(communicator, std::move(ranks));
  peers->self_ = peers;
  return peers;
}

PeersPtr Peers::of(MPI_Comm communicator) {
  if (!tickets::inUse() || communicator == MPI_COMM_NULL) {
    return nullptr;
  }
  Known& all = known();
  const std::uint64_t key = keyOf(communicator);
  RecentAnswers<PeersPtr>& recent = recentAnswers();
  const std::uint64_t changes = all.changes.load(std::memory_order_acquire);
  if (const PeersPtr* const peers = recent.find(key, changes)) {
    return *peers;
  }
  {
    const std::shared_lock guard(all.lock);
    const auto found = all.peers.find(key);
    if (found != all.peers.end()) {
      recent.keep(key, changes, found->second);
      return found->second;
    }
  }
  const std::lock_guard making(all.making);
  if (!all.opened) {
    (void)real().Comm_create_keyval(&copyNothing, &Peers::forget, &all.keyval, nullptr);
    all.opened = true;
  }
  {
    const std::shared_lock guard(all.lock);
    const auto found = all.peers.find(key);
    if (found != all.peers.end()) {
      return found->second;
    }
  }
  PeersPtr made = make(communicator);
  if (real().Comm_set_attr(communicator, all.keyval, nullptr) == MPI_SUCCESS) {
    const std::lock_guard guard(all.lock);
    all.peers[key] = made;
  }
  return made;
}

const PeersPtr* Peers::recent(MPI_Comm communicator) {
  return recentAnswers().find(keyOf(communicator), known().changes.load(std::memory_order_acquire));
}

const PeersPtr* Peers::recent(MPI_Comm communicator, int source) {
  static constinit const PeersPtr kNobody;
  if (!tickets::inUse()) {
    return &kNobody;
  }
  const PeersPtr* const found = recent(communicator);
  return found != nullptr && *found != nullptr && !(*found)->maySend(source) ? &kNobody : found;
}

PeersPtr Peers::of(MPI_Comm communicator, int source) {
  PeersPtr peers = of(communicator);
  return peers != nullptr && peers->maySend(source) ? peers : nullptr;
}

bool Peers::mustRead(const MPI_Status& status) const {
  return rankInWorld(status.MPI_SOURCE) >= 0 &&
         bytesOf(status) == static_cast<std::int64_t>(tickets::kBytes);
}

std::optional<Held> Peers::readMatched(MPI_Message message, const MPI_Status& status) {
  Held held = {message, status.MPI_SOURCE, status.MPI_TAG, bytesOf(status), nullptr, self_.lock()};
  if (!mustRead(status)) {
    return held;
  }
  tickets::Bytes bytes{};
  if (real().Mrecv(bytes.data(), tickets::kBytes, MPI_BYTE, &message, MPI_STATUS_IGNORE) !=
      MPI_SUCCESS) {
    return std::nullopt;
  }
  if (const auto ticket = tickets::read(bytes)) {
    held.bytes = ticket->payloadBytes;
  }
  held.reread = Reread::send(bytes, &held.message);
  return held.reread != nullptr ? std::optional(std::move(held)) : std::nullopt;
}

// While it lasts, receives that begin wait, so what MPI has shows itself to this thread alone, but
// for the receives that have begun before: each of these takes one message at most.
class Peers::Taking {
 public:
  explicit Taking(Peers& peers) : peers_(peers) {
    const std::lock_guard guard(peers.lock_);
    if (peers.taking_) {
      return;
    }
    for (const Matching* one = peers.awaited_; one != nullptr; one = one->after_) {
      begun_.push_back(one->pattern_);
    }
    peers.taking_ = true;
    // (Either such a one sees this, or is seen here.)
    if (peers.posting_.any()) {
      peers.taking_ = false;
      return;
    }
    peers.taken_.begin();
    mayTake_ = true;
  }
  ~Taking() {
    if (mayTake_) {
      const std::lock_guard guard(peers_.lock_);
      peers_.taken_.end();
      peers_.taking_ = false;
    }
  }
  Taking(const Taking&) = delete;
  Taking& operator=(const Taking&) = delete;

  // False: another thread is at it.
  explicit operator bool() const { return mayTake_; }
  // The receives that have begun before.
  const std::vector<Pattern>& begun() const { return begun_; }

 private:
  Peers& peers_;
  bool mayTake_ = false;
  std::vector<Pattern> begun_;
};

// Of a thread that takes. Asks once more than there are receives that may take what is found: if
// all answers are the same, one at least has met none.
bool Peers::lookAt(int source, int tag, const std::vector<Pattern>& begun, MPI_Status* status) {
  const auto others = std::count_if(begun.begin(), begun.end(), [source](const Pattern& pattern) {
    return source == MPI_ANY_SOURCE || pattern.source == MPI_ANY_SOURCE || pattern.source == source;
  });
  for (std::ptrdiff_t i = 0; i <= others; ++i) {
    int found = 0;
    MPI_Status next = {};
    if (real().Iprobe(source, tag, communicator_, &found, &next) != MPI_SUCCESS || found == 0 ||
        (i > 0 && (next.MPI_SOURCE != status->MPI_SOURCE || next.MPI_TAG != status->MPI_TAG ||
                   bytesOf(next) != bytesOf(*status)))) {
      return false;
    }
    *status = next;
  }
  return true;
}

bool Peers::lookAgain(int source, int tag, MPI_Status* status) {
  const Taking taking(*this);
  return taking && lookAt(source, tag, taking.begun(), status);
}

// The first message of the source. What a receive that has begun may match is left to it, also
// where that is over meanwhile: what MPI has then is another message.
bool Peers::takeOne(int source, const std::vector<Pattern>& begun, int* tag) {
  int found = 0;
  MPI_Status status = {};
  MPI_Message message;
  if (!lookAt(source, MPI_ANY_TAG, begun, &status) ||
      std::any_of(begun.begin(), begun.end(),
                  [&](const Pattern& one) { return one.matches(source, status.MPI_TAG); }) ||
      real().Improbe(source, status.MPI_TAG, communicator_, &found, &message, &status) !=
          MPI_SUCCESS ||
      found == 0) {
    return false;
  }
  std::optional<Held> held = readMatched(message, status);
  if (!held.has_value()) {
    return false;
  }
  *tag = held->tag;
  const std::lock_guard guard(lock_);
  held->number = ++heldEver_;
  held_.push_back(std::move(*held));
  heldCount_ = held_.size();
  return true;
}

bool Peers::hold(int source, int tag) {
  const Taking taking(*this);
  int taken = tag;
  bool done = false;
  do {
    done = taking && takeOne(source, taking.begun(), &taken);
  } while (done && taken != tag);
  return done;
}

std::deque<Held>::iterator Peers::findHeld(const Pattern& pattern) {
  return std::find_if(held_.begin(), held_.end(),
                      [&](const Held& held) { return pattern.matches(held.source, held.tag); });
}

bool Peers::show(int source, int tag, MPI_Status* status) {
  if (heldCount_ == 0) {
    return false;
  }
  const std::lock_guard guard(lock_);
  const auto found = findHeld({source, tag});
  if (found == held_.end()) {
    return false;
  }
  found->show(status);
  return true;
}

Matching::Matching(const PeersPtr& peers, int source, int tag)
    : peers_(peers), pattern_{source, tag} {
  if (peers == nullptr) {
    return;
  }
  const bool concurrent = concurrentCalls();
  if (!concurrent && peers->heldCount_ == 0) {
    return;
  }
  while (true) {
    {
      const std::lock_guard guard(peers->lock_);
      if (!peers->taking_) {
        const auto found = peers->findHeld(pattern_);
        if (found != peers->held_.end()) {
          held_ = std::move(*found);
          peers->held_.erase(found);
          peers->heldCount_ = peers->held_.size();
        } else if (concurrent) {
          listed_ = true;
          peers->taken_.begin();
          after_ = std::exchange(peers->awaited_, this);
          if (after_ != nullptr) after_->before_ = this;
        }
        return;
      }
    }
    ::sched_yield();
  }
}

Posting::Posting(const PeersPtr& peers) : mayPost_(peers == nullptr || peers->holdsNothing()) {
  if (peers == nullptr || !mayPost_ || !concurrentCalls()) {
    return;
  }
  // Either this one sees that a probe is at it, or the probe sees this one.
  peers->posting_.begin();
  mayPost_ = !peers->taking_ && peers->holdsNothing();
  if (mayPost_) {
    peers_ = peers;
  } else {
    peers->posting_.end();
  }
}

Matching::~Matching() {
  if (listed_) {
    const std::lock_guard guard(peers_->lock_);
    peers_->taken_.end();
    (before_ != nullptr ? before_->after_ : peers_->awaited_) = after_;
    if (after_ != nullptr) after_->before_ = before_;
  }
}

void Matching::putBack() {
  const std::lock_guard guard(peers_->lock_);
  auto& all = peers_->held_;
  const auto place = std::find_if(all.begin(), all.end(),
                                  [&](const Held& other) { return other.number > held_->number; });
  all.insert(place, std::move(*held_));
  peers_->heldCount_ = peers_->held_.size();
}

namespace {

struct Matched {
  std::mutex lock;
  std::unordered_map<std::uint64_t, Held> messages;
  std::atomic<std::size_t> count{0};
};
Matched& allMatched() {
  static auto* const all = new Matched;  // also for exit handlers
  return *all;
}

// Receives a message for nobody, so that neither MPI nor a sender keeps it.
void drop(Held held) {
  std::vector<std::byte> bytes(held.reread != nullptr ? tickets::kBytes
                                                      : static_cast<std::size_t>(held.bytes));
  MPI_Status status = {};
  const int count = static_cast<int>(std::min<std::size_t>(bytes.size(), INT32_MAX));
  if (receiveHeld(bytes.data(), count, MPI_BYTE, held, &status) == MPI_SUCCESS &&
      bytes.size() == tickets::kBytes) {
    if (const auto ticket = tickets::read(std::span(bytes).first<tickets::kBytes>())) {
      if (ticket->fragmentBytes > 0) {
        fragments::discard(*ticket);
      } else if (tickets::isTransfer(*ticket)) {
        tickets::discard(*ticket);
      } else {
        (void)tickets::collect(*ticket);
      }
    }
  }
}

}  // namespace

void matched::add(const Held& held) {
  Matched& all = allMatched();
  const std::lock_guard guard(all.lock);
  all.messages[keyOf(held.message)] = held;
  all.count = all.messages.size();
}

std::optional<Held> matched::take(MPI_Message message) {
  Matched& all = allMatched();
  if (all.count == 0) {
    return std::nullopt;
  }
  const std::lock_guard guard(all.lock);
  const auto found = all.messages.find(keyOf(message));
  if (found == all.messages.end()) {
    return std::nullopt;
  }
  std::optional<Held> held = std::move(found->second);
  all.messages.erase(found);
  all.count = all.messages.size();
  return held;
}

void matched::dropAll() {
  Matched& all = allMatched();
  std::unordered_map<std::uint64_t, Held> messages;
  {
    const std::lock_guard guard(all.lock);
    messages.swap(all.messages);
    all.count = 0;
  }
  for (auto& [key, held] : messages) {
    drop(std::move(held));
  }
}

void Peers::dropHeld(MPI_Comm communicator) {
  Known& all = known();
  PeersPtr peers;
  {
    const std::shared_lock guard(all.lock);
    const auto found = all.peers.find(keyOf(communicator));
    if (found != all.peers.end()) peers = found->second;
  }
  if (peers == nullptr || peers->heldCount_ == 0) {
    return;
  }
  std::deque<Held> held;
  {
    const std::lock_guard guard(peers->lock_);
    held.swap(peers->held_);
    peers->heldCount_ = 0;
  }
  for (Held& one : held) {
    drop(std::move(one));
  }
}

void Peers::close() {
  Known& all = known();
  if (!all.opened) {
    return;
  }
  std::vector<MPI_Comm> communicators;
  {
    const std::shared_lock guard(all.lock);
    for (const auto& [key, peers] : all.peers) {
      if (peers != nullptr) communicators.push_back(peers->communicator_);
    }
  }
  for (const MPI_Comm communicator : communicators) {
    dropHeld(communicator);
  }
  matched::dropAll();
  {
    const std::lock_guard guard(all.lock);
    all.peers.clear();
    all.recent.clear();
    all.changes.fetch_add(1, std::memory_order_release);
  }
  (void)real().Comm_free_keyval(&all.keyval);
  all.opened = false;
}

bool notReceived(int code) {
  int errorClass = MPI_SUCCESS;
  return code != MPI_SUCCESS && real().Error_class(code, &errorClass) == MPI_SUCCESS &&
         (errorClass == MPI_ERR_COUNT || errorClass == MPI_ERR_TYPE ||
          errorClass == MPI_ERR_BUFFER || errorClass == MPI_ERR_ARG ||
          errorClass == MPI_ERR_REQUEST);
}

int receiveHeld(void* buffer, int count, MPI_Datatype datatype, Held& held, MPI_Status* status) {
  return real().Mrecv(buffer, count, datatype, &held.message, status);
}

int receiveHeld(void* buffer, int count, MPI_Datatype datatype, Held& held, MPI_Request* request) {
  return real().Imrecv(buffer, count, datatype, &held.message, request);
}

int startSend(const void* buffer, int count, MPI_Datatype datatype, int destination, int tag,
              MPI_Comm communicator, MPI_Request* request) {
  return real().Isend(buffer, count, datatype, destination, tag, communicator, request);
}

#if MPI_VERSION >= 4
int receiveHeld(void* buffer, MPI_Count count, MPI_Datatype datatype, Held& held,
                MPI_Status* status) {
  return real().Mrecv_c(buffer, count, datatype, &held.message, status);
}

int receiveHeld(void* buffer, MPI_Count count, MPI_Datatype datatype, Held& held,
                MPI_Request* request) {
  return real().Imrecv_c(buffer, count, datatype, &held.message, request);
}

int startSend(const void* buffer, MPI_Count count, MPI_Datatype datatype, int destination, int tag,
              MPI_Comm communicator, MPI_Request* request) {
  return real().Isend_c(buffer, count, datatype, destination, tag, communicator, request);
}
#endif

}  // namespace gmac::mpi::GMAC_MPI_ABI
