// SPDX-License-Identifier: Apache-2.0
#include <memory>
#include <numeric>

#include "tests/mpi/random_run.h"

namespace gmac::testing {
namespace {

// A set of messages between everybody, all under way at once.
struct Message {
  int source;
  int destination;
  int mode;
  int sentPast;
  int receivedPast;
  int count;
  MPI_Datatype type;
};

constexpr int kLongestBytes = 6000;

std::vector<Message> drawMessages(Run& run, Types& types) {
  std::vector<Message> messages(static_cast<std::size_t>(draw(run.rng, 1, 6)));
  for (Message& message : messages) {
    message.source = draw(run.rng, 0, run.size - 1);
    message.destination = draw(run.rng, 0, run.size - 1);  // itself, now and then
    message.mode = draw(run.rng, 0, 3);
    message.sentPast = Buffer::drawPast(run.rng);
    message.receivedPast = Buffer::drawPast(run.rng);
    message.type = types.derived(run.rng, types.base(run.rng), 3);
    message.count = drawCount(run.rng, message.type);
    message.count = std::min(message.count, kLongestBytes / std::max(1, sizeOf(message.type)));
  }
  return messages;
}

int start(const Message& message, const Buffer& buffer, int tag, MPI_Comm comm,
          MPI_Request* request) {
  return (message.mode == 0 ? MPI_Issend : MPI_Isend)(buffer.address(), message.count, message.type,
                                                      message.destination, tag, comm, request);
}

int startLater(const Message& message, const Buffer& buffer, int tag, MPI_Comm comm,
               MPI_Request* request) {
#if MPI_VERSION >= 4
  if (message.sentPast == 0) {
    return MPI_Send_init_c(buffer.address(), message.count, message.type, message.destination, tag,
                           comm, request);
  }
#endif
  constexpr decltype(&MPI_Send_init) kModes[] = {&MPI_Ssend_init, &MPI_Bsend_init, &MPI_Rsend_init,
                                                 &MPI_Send_init};
  return kModes[message.mode](buffer.address(), message.count, message.type, message.destination,
                              tag, comm, request);
}

}  // namespace

void completeAll(int way, std::vector<MPI_Request>& requests, std::vector<MPI_Status>& statuses) {
  const int count = static_cast<int>(requests.size());
  std::vector<int> indices(requests.size());
  std::vector<MPI_Status> some(requests.size());
  int index = 0;
  int done = 0;
  switch (way) {
    case 0:
      MPI_Waitall(count, requests.data(), statuses.data());
      break;
    case 1:
      for (std::size_t i = 0; i < requests.size(); ++i) {
        statuses[i] = freshStatus();
        MPI_Wait(&requests[i], &statuses[i]);
      }
      break;
    case 2:
      for (std::size_t i = 0; i < requests.size(); ++i) {
        statuses[i] = freshStatus();
        for (done = 0; done == 0;) MPI_Test(&requests[i], &done, &statuses[i]);
      }
      break;
    case 3:
      for (int i = 0; i < count; ++i) {
        MPI_Status status = freshStatus();
        MPI_Waitany(count, requests.data(), &index, &status);
        statuses[static_cast<std::size_t>(index)] = status;
      }
      break;
    case 4:
      for (int left = count; left > 0;) {
        MPI_Status status = freshStatus();
        MPI_Testany(count, requests.data(), &index, &done, &status);
        if (done == 0) continue;
        statuses[static_cast<std::size_t>(index)] = status;
        --left;
      }
      break;
    case 5:
      for (done = 0; done == 0;) MPI_Testall(count, requests.data(), &done, statuses.data());
      break;
    default:
      for (int left = count; left > 0; left -= done) {
        if (way == 6) {
          MPI_Waitsome(count, requests.data(), &done, indices.data(), some.data());
        } else {
          MPI_Testsome(count, requests.data(), &done, indices.data(), some.data());
        }
        for (std::size_t i = 0; i < static_cast<std::size_t>(done); ++i) {
          statuses[static_cast<std::size_t>(indices[i])] = some[i];
        }
      }
  }
}

namespace {

// Of one process: the requests, of its receives first, and their buffers.
struct Requests {
  std::vector<std::unique_ptr<Buffer>> sent;
  std::vector<std::unique_ptr<Buffer>> received;
  std::vector<MPI_Datatype> receivedTypes;
  std::vector<MPI_Request> handles;

  template <typename Receive, typename Send>
  Requests(Run& run, const std::vector<Message>& messages, const Receive& receive,
           const Send& send) {
    const int tag = static_cast<int>(run.steps.size()) * 1000;
    for (std::size_t i = 0; i < messages.size(); ++i) {
      const Message& message = messages[i];
      if (message.destination != run.rank) continue;
      received.push_back(
          std::make_unique<Buffer>(run, message.type, message.count, message.receivedPast));
      receivedTypes.push_back(message.type);
      run.noteResult("receive", receive(received.back()->address(), message.count, message.type,
                                        message.source, tag + static_cast<int>(i), run.comm,
                                        &handles.emplace_back()));
    }
    for (std::size_t i = 0; i < messages.size(); ++i) {
      const Message& message = messages[i];
      if (message.source != run.rank) continue;
      sent.push_back(std::make_unique<Buffer>(run, message.type, message.count, message.sentPast));
      run.noteResult("send", send(message, *sent.back(), tag + static_cast<int>(i), run.comm,
                                  &handles.emplace_back()));
    }
  }

  // Completes them, and notes all that there is to be seen.
  void finishAll(Run& run, int way) {
    std::vector<MPI_Status> statuses(handles.size());
    completeAll(way, handles, statuses);
    for (std::size_t i = 0; i < received.size(); ++i) {
      run.noteStatus(statuses[i], receivedTypes[i]);
    }
    for (const MPI_Request handle : handles) {
      run.note(handle == MPI_REQUEST_NULL ? "freed" : "not freed");
    }
    for (const auto& buffer : received) buffer->noteBytes(run, "received");
    for (const auto& buffer : sent) buffer->noteBytes(run, "sent");
  }
};

// A kernel that uses none of the buffers.
void otherKernel(const Run& run) {
  const Memory other(run.kind, 5000);
  other.flip();
}

}  // namespace

void nonblockingMessages(Run& run) {
  Types types;
  const std::vector<Message> messages = drawMessages(run, types);
  const int way = draw(run.rng, 0, 7);
  const bool kernelsMeanwhile = draw(run.rng, 0, 1) == 0;
  Requests requests(run, messages, &MPI_Irecv, &start);
  if (kernelsMeanwhile) otherKernel(run);
  requests.finishAll(run, way);
}

// Started and completed several times; freed at the end.
void persistentMessages(Run& run) {
  Types types;
  const std::vector<Message> messages = drawMessages(run, types);
  int room = 0;
  for (const Message& message : messages) {
    int bytes = 0;
    MPI_Pack_size(message.count, message.type, run.comm, &bytes);
    room += bytes + MPI_BSEND_OVERHEAD;
  }
  const Memory attached(run.kind, static_cast<std::size_t>(room) + 1);
  MPI_Buffer_attach(attached.address(), room);
  {
    Requests requests(run, messages, &MPI_Recv_init, &startLater);
    int rounds = draw(run.rng, 0, 3);
#ifdef OPEN_MPI
    // (Open MPI 4.1 sends a buffered message's first bytes once more.)
    for (const Message& message : messages) rounds = message.mode == 1 ? 1 : rounds;
#endif
    for (int round = 0; round < rounds; ++round) {
      const int past = Buffer::drawPast(run.rng);
      const int way = draw(run.rng, 0, 7);
      const bool all = draw(run.rng, 0, 1) == 0;
      for (const auto& buffer : requests.sent) buffer->undergo(past);
      const auto startThose = [&](std::size_t first, std::size_t count) {
        if (all) MPI_Startall(static_cast<int>(count), requests.handles.data() + first);
        for (std::size_t i = 0; i < count && !all; ++i) MPI_Start(&requests.handles[first + i]);
      };
      startThose(0, requests.received.size());
      MPI_Barrier(run.comm);  // for MPI_Rsend_init
      startThose(requests.received.size(), requests.sent.size());
      if (past == 0) otherKernel(run);
      requests.finishAll(run, way);
    }
    for (MPI_Request& handle : requests.handles) {
      run.noteResult("MPI_Request_free", MPI_Request_free(&handle));
    }
  }
  void* detached = nullptr;
  MPI_Buffer_detach(&detached, &room);
  if (detached != attached.address()) fail("MPI_Buffer_detach gives the buffer back");
}

}  // namespace gmac::testing
