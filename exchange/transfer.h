// SPDX-License-Identifier: Apache-2.0
//
// Messages that are copied once, by the receiver, from the sender's memory to its own, whatever the
// layouts of the two are.
//
//     sender                                            receiver
//     auto sending = exchange.send(1, base, layout);
//     sending->describe(description);
//     (message with the description)          ----->    auto receiving = exchange.receive(0,
//                                                           description, base, layout);
//     until *sending->advance() is true                 until *receiving->advance() is true
//
// Each side calls advance() whenever it has time; a call never waits. While a message is under way
// the sender's memory stays as it is, and its owner may take it back at any time: the receiver is
// then told that what it has read is worth nothing.
#ifndef GMAC_EXCHANGE_TRANSFER_H_
#define GMAC_EXCHANGE_TRANSFER_H_

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <memory>
#include <optional>

#include "exchange/layout_bytes.h"
#include "gmac/base/status.h"

namespace gmac::exchange {

// By which way the bytes go.
enum class Path {
  kMapped,   // the receiver has the sender's memory file mapped
  kRead,     // the receiver reads the sender's memory by process_vm_readv ("CMA")
  kRing,     // the sender packs into fragments of shared memory, the receiver unpacks them
  kDevice,   // the receiver's device has the sender's device memory imported, and copies from there
  kPinned,   // the sender's device packs into a ring of pinned shared memory, over its bus, while
             // the receiver's unpacks what is there, over its own
  kCopy,     // the sender has packed all of it into shared memory (Sending::leaveCopy)
  kArriving  // as kDevice, and one kernel of the receiver's device has unpacked all of it while the
             // sender's packed it ahead; the sender knows it as kDevice
};
inline constexpr int kPaths = 7;
const char* pathName(Path path);

// How the receiver comes to know the sender's layout, where a message has no room for it (more than
// 256 bytes: lists of blocks). FALCON-X, sections 4.1 to 4.3. The receiver reads it from memory
// that both have.
enum class LayoutExchange {
  // By its hash. The receiver reads it when it does not know it, or not any more
  // (Options::maxLayouts), and keeps it. For all but one message of a layout this is the least
  // work.
  kMemoised,
  // It is laid down and read again for each message.
  kNaive,
  // A list is laid down in parts for each message, and the receiver reads one after the other while
  // it copies what the ones before name; it keeps none. The sender has to advance() meanwhile. What
  // is no list without dims, or is in device memory, goes memoised.
  kPipelined
};

namespace internal {
class Incoming;
class Outgoing;
}  // namespace internal

enum class ExportId : std::uint64_t;  // exchange.h

struct SendOptions {
  // The memory is that of this export, of a memory file, and the base is so many bytes behind its
  // start. All of the layout lies inside.
  ExportId file{0};
  std::int64_t fileOffset = 0;
  // The base is an address of this process's device, and what a device does to the memory is done.
  // `device` and `deviceOffset` are then as the two above are for files, of an export of device
  // memory.
  bool onDevice = false;
  ExportId device{0};
  std::int64_t deviceOffset = 0;
  // Nothing: kDevice or kMapped if there is such an export that the receiver can be given, else
  // chosen by the layout, and kRing on a device. A file that the receiver cannot map it reads,
  // where it may; what it can do neither with becomes kRing all the same. kCopy and kArriving are
  // none; kMapped and kRead are none of device memory, and kDevice and kPinned of no other. kPinned
  // is never chosen: it takes a ring of Options::pinnedRingBytes, and there are few.
  std::optional<Path> path = std::nullopt;
  // Of the ring; a multiple of 4096.
  std::size_t fragmentBytes = std::size_t{64} << 10;
  std::size_t fragments = 4;
  // Of kPinned; a multiple of 4096, of which the ring has room for at least 2.
  std::size_t pinnedFragment = std::size_t{4} << 20;
  LayoutExchange layouts = LayoutExchange::kMemoised;
  // Of a layout that is laid down in parts: bytes of a part, at least 1.
  std::size_t layoutPartBytes = std::size_t{64} << 10;
  // Takes room for a copy of all bytes, so that leaveCopy() may be called. Its pages are taken when
  // it is.
  bool mayCopy = false;
  // Of a ring of either kind: once all bytes are packed, the message is over for the sender, and
  // the ring is the receiver's to free. One that holds all bytes needs no receiver for that
  // (Sending::needsNobody). Of kRing, the first advance() after describe() ends the message then,
  // and the ring is its copy, too: mayCopy takes no more room. Of kPinned: only if the receiver has
  // imported the ring for an earlier message, and the ring has room for all of this one; else
  // nothing of this holds.
  bool leavesRing = false;
};

// A message at its sender. Owner; one thread at a time. May outlive its exchange.
class Sending {
 public:
  Sending();
  Sending(Sending&&) noexcept;
  Sending& operator=(Sending&&) noexcept;
  // Takes it back if it is not over: a receiver that still reads is told so.
  ~Sending();

  std::int64_t bytes() const;
  // How it goes as far as this side knows.
  Path path() const;
  // Once; what the receiver needs. Of a message that goes by the ring, packs one fragment.
  void describe(std::span<std::byte, 128> description);
  // Does what there is to do, and returns whether the receiver has all: the memory may be used
  // again. Never waits. adsmErrorSystem: the receiver's process has ended, or has given up; the
  // message is over.
  Result<bool> advance();
  // Whether the message is over as soon as all of it is packed, whatever its receiver does.
  bool needsNobody() const;
  // advance() until it is over, or the limit: then false.
  Result<bool> wait(std::chrono::milliseconds limit);
  // Takes a described message back that the receiver has not begun with. False: it has.
  bool recall();
  // Packs a described message that the receiver has not begun with into memory that is the
  // receiver's to free: the message is over for the sender. False: the receiver has begun, or it is
  // over. adsmErrorHostMemory: there is no memory for the copy, and nothing has changed;
  // adsmErrorInvalidValue: it was begun without room for one.
  Result<bool> leaveCopy();
  // The same, also if the receiver has begun: it then begins again, with the copy. So the memory is
  // the sender's again after no more than the time of a pack, whatever the receiver does. False: it
  // was over.
  Result<bool> leaveCopyNow();
  // Whether it is over because the receiver has given up.
  bool declined() const;

 private:
  friend class Exchange;
  explicit Sending(std::unique_ptr<internal::Outgoing> message);
  std::unique_ptr<internal::Outgoing> message_;
};

// A message at its receiver. Owner; one thread at a time. May outlive its exchange.
class Receiving {
 public:
  Receiving();
  Receiving(Receiving&&) noexcept;
  Receiving& operator=(Receiving&&) noexcept;
  // Gives up if it is not over; the sender is told.
  ~Receiving();

  std::int64_t bytes() const;
  Path path() const;
  // Copies at most so many bytes, and returns whether all are there. Never waits for the sender.
  // adsmErrorSystem: its process has ended; adsmErrorInvalidValue: it has taken the message back,
  // or what it says of it cannot be. The message is over then, and what was copied worth nothing.
  Result<bool> advance(std::int64_t most = std::numeric_limits<std::int64_t>::max());
  Result<bool> wait(std::chrono::milliseconds limit);

  // All bytes, packed, where they are (in the sender's memory, or its copy), for those who bring
  // them to their place themselves in place of advance(), and then call end(). NULL: it is to be
  // advance(). The layout and the base of receive() mean nothing then.
  const std::byte* packed() const;
  // The same in memory of this process's device: an import of the sender's. NULL as above.
  const std::byte* packedOnDevice() const;
  // Whether packed() will be there: the sender is packing all of it. Meanwhile advance(0) tells if
  // its process ends.
  bool isBeingPacked() const;
  // All of packed(), or packedOnDevice(), has been read. True: that was the message, and it is
  // over. False: it was not; it is elsewhere now, and to be read again, or by advance(). Errors as
  // of advance().
  Result<bool> end();

 private:
  friend class Exchange;
  explicit Receiving(std::unique_ptr<internal::Incoming> message);
  std::unique_ptr<internal::Incoming> message_;
};

}  // namespace gmac::exchange

#endif  // GMAC_EXCHANGE_TRANSFER_H_
