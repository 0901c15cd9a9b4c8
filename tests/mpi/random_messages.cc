// SPDX-License-Identifier: Apache-2.0
#include "tests/mpi/random_run.h"

namespace gmac::testing {
namespace {

// Some of its faults in plain memory and without gmac are kept out of the programs. From about 8
// KiB on, messages of types with gaps may be called truncated.
#ifdef MPICH
constexpr bool kIsMpich4 = true;
#else
constexpr bool kIsMpich4 = false;
#endif
constexpr int kLongestBytes = 6000;
constexpr int kShortBytes = 1000;

// Both sides of a message: their types agree, and are seldom the same.
struct Sides {
  Types types;
  MPI_Datatype sent;
  MPI_Datatype received;
  int sentCount;
  int receivedCount;

  bool fits() const {
    return std::int64_t{sizeOf(sent)} * sentCount <= std::int64_t{sizeOf(received)} * receivedCount;
  }

  explicit Sides(Rng& rng) {
    MPI_Datatype base = types.base(rng);
    sent = types.derived(rng, base, 3);
    sentCount = drawCount(rng, sent);
    if (kIsMpich4 && draw(rng, 0, 3) == 0) {
      received = sent = base = MPI_INT;
      receivedCount = sentCount;
      return;
    }
    if (kIsMpich4) {
      sentCount = std::min(sentCount, kLongestBytes / std::max(1, sizeOf(sent)));
    }
    const int elements =
        static_cast<int>(std::int64_t{sizeOf(sent)} * sentCount / std::max(1, sizeOf(base)));
    switch (draw(rng, 0, 2)) {
      case 0:
        received = sent;
        receivedCount = sentCount;
        break;
      case 1:
        received = base;
        receivedCount = elements;
        break;
      default:
        received = types.spread(elements, base);
        receivedCount = 1;
    }
    switch (draw(rng, 0, 9)) {
      case 0:
        receivedCount += draw(rng, 1, 5);
        break;
      case 1:
        // Too short: truncated. (Open MPI 4.1 writes past the end of one for a long message.)
        if (sizeOf(sent) * sentCount < kShortBytes) receivedCount = draw(rng, 0, receivedCount);
        break;
      default:
        break;
    }
  }
};

// How a message is received; wildcards where there is only one to match.
struct Reception {
  int how;
  bool anySource;
  bool anyTag;
  bool ignoresStatus;

  explicit Reception(Rng& rng)
      : how(draw(rng, 0, 3)),
        anySource(draw(rng, 0, 2) == 0),
        anyTag(draw(rng, 0, 2) == 0),
        ignoresStatus(draw(rng, 0, 4) == 0) {}
};

void receive(Run& run, const Sides& sides, const Reception& reception, const Buffer& buffer,
             int source, int tag) {
  // A wildcard matches this message alone.
  const int from = reception.anySource && source != MPI_PROC_NULL ? MPI_ANY_SOURCE : source;
  const int with = reception.anyTag && (!reception.anySource || run.size == 2) ? MPI_ANY_TAG : tag;
  MPI_Status status = freshStatus();
  MPI_Status* const asked = reception.ignoresStatus ? MPI_STATUS_IGNORE : &status;
  int code = MPI_SUCCESS;
  if (reception.how == 2) {
    MPI_Probe(from, with, run.comm, &status);
    run.noteStatus(status, sides.received);
    code = MPI_Recv(buffer.address(), sides.receivedCount, sides.received, status.MPI_SOURCE,
                    status.MPI_TAG, run.comm, asked);
  } else if (reception.how == 3) {
    MPI_Message message;
    MPI_Mprobe(from, with, run.comm, &message, &status);
    run.noteStatus(status, sides.received);
    code = MPI_Mrecv(buffer.address(), sides.receivedCount, sides.received, &message, asked);
  } else {
    code = MPI_Recv(buffer.address(), sides.receivedCount, sides.received, from, with, run.comm,
                    asked);
  }
  run.noteResult("receive", code);
  run.judge(code, sides.fits());
  // MPI does not say what a message that was too long leaves behind.
  if (code != MPI_SUCCESS) return;
  if (!reception.ignoresStatus) run.noteStatus(status, sides.received);
  buffer.noteBytes(run, "received");
}

int send(const Run& run, const Buffer& buffer, const Sides& sides, int mode, int destination,
         int tag) {
  const MPI_Comm comm = run.comm;
  switch (mode) {
    case 0:
      return MPI_Ssend(buffer.address(), sides.sentCount, sides.sent, destination, tag, comm);
    case 1: {
      int bytes = 0;
      MPI_Pack_size(sides.sentCount, sides.sent, comm, &bytes);
      const Memory attached(run.kind, static_cast<std::size_t>(bytes) + MPI_BSEND_OVERHEAD);
      MPI_Buffer_attach(attached.address(), static_cast<int>(attached.size()));
      const int code =
          MPI_Bsend(buffer.address(), sides.sentCount, sides.sent, destination, tag, comm);
      void* detached = nullptr;
      int size = 0;
      MPI_Buffer_detach(&detached, &size);
      if (detached != attached.address()) fail("MPI_Buffer_detach gives the buffer back");
      return code;
    }
    default:
      return MPI_Send(buffer.address(), sides.sentCount, sides.sent, destination, tag, comm);
  }
}

// Everybody to the right, at the same time.
void shift(Run& run, const Sides& sides, int sentPast, int receivedPast, int tag) {
  const bool replaces = draw(run.rng, 0, 2) == 0;
  const bool open = draw(run.rng, 0, 2) == 0;  // the ends are MPI_PROC_NULL
  const bool last = run.rank == run.size - 1;
  const bool first = run.rank == 0;
  const int right = last ? (open ? MPI_PROC_NULL : 0) : run.rank + 1;
  const int left = first ? (open ? MPI_PROC_NULL : run.size - 1) : run.rank - 1;
  const Buffer sent(run, sides.sent, sides.sentCount, sentPast);
  MPI_Status status = {};  // (MPICH 4.0 sets the error field.)
  if (replaces) {
    const int code = MPI_Sendrecv_replace(sent.address(), sides.sentCount, sides.sent, right, tag,
                                          left, tag, run.comm, &status);
    run.noteResult("MPI_Sendrecv_replace", code);
    run.judge(code, true);
    if (code != MPI_SUCCESS) return;
    run.noteStatus(status, sides.sent);
    sent.noteBytes(run, "replaced");
    return;
  }
  const Buffer received(run, sides.received, sides.receivedCount, receivedPast);
  const int code =
      MPI_Sendrecv(sent.address(), sides.sentCount, sides.sent, right, tag, received.address(),
                   sides.receivedCount, sides.received, left, tag, run.comm, &status);
  run.noteResult("MPI_Sendrecv", code);
  sent.noteBytes(run, "sent");
  run.judge(code, left == MPI_PROC_NULL || sides.fits());
  if (code != MPI_SUCCESS) return;
  run.noteStatus(status, sides.received);
  received.noteBytes(run, "received");
}

}  // namespace

void blockingMessage(Run& run) {
  const Sides sides(run.rng);
  const int tag = static_cast<int>(run.steps.size()) * 1000 + draw(run.rng, 0, 999);
  const int sentPast = Buffer::drawPast(run.rng);
  const int receivedPast = Buffer::drawPast(run.rng);
  const bool flipsAfter = draw(run.rng, 0, 1) == 0;
  const int source = draw(run.rng, 0, run.size - 1);
  const int distance = draw(run.rng, 1, run.size - 1);
  const int destination = (source + distance) % run.size;
  const int mode = draw(run.rng, 0, 3);
  const Reception reception(run.rng);
  const bool toNobody = draw(run.rng, 0, 15) == 0;
  if (draw(run.rng, 0, 3) == 0) {
    shift(run, sides, sentPast, receivedPast, tag);
  } else if (run.rank == source) {
    const Buffer buffer(run, sides.sent, sides.sentCount, sentPast);
    run.noteResult("send",
                   send(run, buffer, sides, mode, toNobody ? MPI_PROC_NULL : destination, tag));
    // A kernel that comes after the call sees and spoils nothing of the message.
    if (flipsAfter) buffer.flip();
    buffer.noteBytes(run, "sent");
  } else if (run.rank == destination) {
    const Buffer buffer(run, sides.received, sides.receivedCount, receivedPast);
    receive(run, sides, reception, buffer, toNobody ? MPI_PROC_NULL : source, tag);
    if (flipsAfter) buffer.flip();
  }
}

// MPI refuses the same calls as ever, which touch nothing.
void wrongArguments(Run& run) {
  Types types;
  const MPI_Datatype type = types.derived(run.rng, types.base(run.rng), 2);
  const int count = std::max(1, drawCount(run.rng, type));  // MPICH takes any type for none
  const Buffer buffer(run, type, count, Buffer::drawPast(run.rng));
  const int peer = draw(run.rng, 0, run.size - 1);
  MPI_Datatype uncommitted;
  MPI_Type_vector(2, 1, 3, MPI_INT, &uncommitted);
  int code = MPI_SUCCESS;
  const bool sends = draw(run.rng, 0, 1) == 0;
  const auto call = [&](int n, MPI_Datatype t, int p, int tag) {
    MPI_Status status = {};
    code = sends ? MPI_Send(buffer.address(), n, t, p, tag, run.comm)
                 : MPI_Recv(buffer.address(), n, t, p, tag, run.comm, &status);
  };
  switch (draw(run.rng, 0, 4)) {
    case 0:
      call(-1, type, peer, 1);
      break;
    case 1:
      call(count, MPI_DATATYPE_NULL, peer, 1);
      break;
    case 2:
      call(count, type, run.size, 1);
      break;
    case 3:
      call(count, type, peer, -7);
      break;
    default:
      call(1, uncommitted, peer, 1);
  }
  run.noteResult("wrong", code);
  buffer.noteBytes(run, "untouched");
  MPI_Type_free(&uncommitted);
}

}  // namespace gmac::testing
