// SPDX-License-Identifier: Apache-2.0
//
// Coherence protocols: total tables (state, event) -> (move, next state), exactly the machines of
// Figure 6 (Gelado et al., section 4.3), extended by blocks that are open in part. A protocol
// decides; gmac/coherence/ moves and protects. The protection of a block follows from its state
// alone: Invalid none, ReadOnly read, Dirty read and write; PartReadOnly and PartDirty the same
// inside the window, and none outside.
#ifndef GMAC_PROTOCOLS_PROTOCOL_H_
#define GMAC_PROTOCOLS_PROTOCOL_H_

#include <boost/intrusive/list.hpp>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string_view>

#include "gmac/protocols/block.h"

namespace gmac {

enum class Event : std::uint8_t {
  kRead,       // the CPU reads, and gets the whole block
  kWrite,      // the CPU writes, and gets the whole block
  kReadPart,   // the CPU reads, and a window is enough: the block's own, where it is open in part
  kWritePart,  // the CPU writes, and a window is enough
  kCall,       // a call is made that may write the block
  kCallRead,   // a call is made that only reads it
  kSync,       // the application waited for its calls
  kEvict,      // the rolling size is exceeded and the block is the oldest
};

// How much moves follows from the states.
enum class Move : std::uint8_t {
  kNone,
  kFetch,  // accelerator -> CPU: what the next state has on the CPU, less what this one has
  kFlush,  // CPU -> accelerator: what this state has on the CPU alone
};

struct Transition {
  Move move;
  State next;
  friend constexpr bool operator==(const Transition&, const Transition&) = default;
};

using RollingList = boost::intrusive::list<
    Block,
    boost::intrusive::member_hook<Block, boost::intrusive::list_member_hook<>, &Block::rolling>>;

// One protocol of the running process. Owned by the process's objects and guarded by the lock of
// all objects; the fault handler calls it.
class Protocol {
 public:
  virtual ~Protocol() = default;

  virtual std::string_view name() const noexcept = 0;
  virtual Transition on(State state, Event event) const noexcept = 0;
  // The state of a new object's blocks, whose copies are equal.
  virtual State initial() const noexcept = 0;
  // Whether an object is one block.
  virtual bool wholeObjects() const noexcept = 0;
  // Whether a sync moves anything, that is, whether on(kInvalid, kSync) fetches.
  bool fetchesAtSync() const noexcept {
    return on(State::kInvalid, Event::kSync).move == Move::kFetch;
  }

  // Notifications. Constant time, no allocation.
  // An object was allocated; freed.
  virtual void allocated() noexcept {}
  virtual void freed() noexcept {}
  // A block became dirty, whole or in part; stopped being dirty.
  virtual void becameDirty(Block&) noexcept {}
  virtual void leftDirty(Block&) noexcept {}
  // A block was evicted: after leftDirty().
  virtual void evicted(Block&) noexcept {}
  // A call takes a block that is dirty or evicted: before leftDirty().
  virtual void released(Block&) noexcept {}
  // No call will need the CPU's writes to a dirty or evicted block: its object is being freed, or
  // the accelerator overwrites it. Before leftDirty().
  virtual void dropped(Block&) noexcept {}
  // A call has released the blocks that it uses.
  virtual void called() noexcept {}
  // How many more blocks may become dirty before one is evicted.
  virtual std::size_t room() const noexcept { return SIZE_MAX; }
  // The block to evict now: the oldest that is neither in transit nor held; NULL while the rolling
  // size is not exceeded by more dirty blocks than are being flushed already. The caller evicts it
  // (on(its state, kEvict)) and asks again.
  virtual Block* evictionCandidate(std::size_t flushing) noexcept {
    (void)flushing;
    return nullptr;
  }
};

struct RollingOptions {
  std::size_t step = 2;   // blocks that every object adds to the least rolling size
  std::size_t fixed = 0;  // blocks; 0: adaptive
};

std::unique_ptr<Protocol> makeBatchProtocol();
std::unique_ptr<Protocol> makeLazyProtocol();
std::unique_ptr<Protocol> makeRollingProtocol(const RollingOptions& options);

// Every protocol, by the name that users give it (GMAC_PROTOCOL). A new one takes a source file of
// its own, and two lines here.
struct NamedProtocol {
  std::string_view name;
  std::unique_ptr<Protocol> (*make)(const RollingOptions& options);
};
inline constexpr NamedProtocol kProtocols[] = {
    {"batch", [](const RollingOptions&) { return makeBatchProtocol(); }},
    {"lazy", [](const RollingOptions&) { return makeLazyProtocol(); }},
    {"rolling", &makeRollingProtocol},
};

}  // namespace gmac

#endif  // GMAC_PROTOCOLS_PROTOCOL_H_
