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

int start(const Message& message, const Buffer& buffer, int tag, MPI_Comm comm,
          MPI_Request* request) {
  void* const address = buffer.address();
  return message.mode == 0 ? MPI_Issend(address, message.count, message.type, message.destination,
                                        tag, comm, request)
                           : MPI_Isend(address, message.count, message.type, message.destination,
                                       tag, comm, request);
}

// Completes all requests, in one of MPI's ways. statuses[i] is that of requests[i].
void finish(int way, std::vector<MPI_Request>& requests, std::vector<MPI_Status>& statuses) {
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
      for (std::size_t i = 0; i < requests.size(); ++i) MPI_Wait(&requests[i], &statuses[i]);
      break;
    case 2:
      for (std::size_t i = 0; i < requests.size(); ++i) {
        for (done = 0; done == 0;) MPI_Test(&requests[i], &done, &statuses[i]);
      }
      break;
    case 3:
      for (int i = 0; i < count; ++i) {
        MPI_Status status = {};
        MPI_Waitany(count, requests.data(), &index, &status);
        statuses[static_cast<std::size_t>(index)] = status;
      }
      break;
    case 4:
      for (int left = count; left > 0;) {
        MPI_Status status = {};
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

}  // namespace

void nonblockingMessages(Run& run) {
  Types types;
  std::vector<Message> messages(static_cast<std::size_t>(draw(run.rng, 1, 6)));
  for (Message& message : messages) {
    message.source = draw(run.rng, 0, run.size - 1);
    message.destination = draw(run.rng, 0, run.size - 1);  // itself, now and then
    message.mode = draw(run.rng, 0, 2);
    message.sentPast = Buffer::drawPast(run.rng);
    message.receivedPast = Buffer::drawPast(run.rng);
    message.type = types.derived(run.rng, types.base(run.rng), 3);
    message.count = drawCount(run.rng, message.type);
    message.count = std::min(message.count, kLongestBytes / std::max(1, sizeOf(message.type)));
  }
  const int way = draw(run.rng, 0, 7);
  const bool kernelsMeanwhile = draw(run.rng, 0, 1) == 0;
  const int tag = static_cast<int>(run.steps.size()) * 1000;

  std::vector<std::unique_ptr<Buffer>> sent;
  std::vector<std::unique_ptr<Buffer>> received;
  std::vector<MPI_Request> requests;
  std::vector<MPI_Datatype> typeOf;  // of the receives; MPI_DATATYPE_NULL: a send
  for (std::size_t i = 0; i < messages.size(); ++i) {
    const Message& message = messages[i];
    if (message.destination == run.rank) {
      received.push_back(
          std::make_unique<Buffer>(run, message.type, message.count, message.receivedPast));
      run.noteResult("MPI_Irecv", MPI_Irecv(received.back()->address(), message.count, message.type,
                                            message.source, tag + static_cast<int>(i), run.comm,
                                            &requests.emplace_back()));
      typeOf.push_back(message.type);
    }
    if (message.source == run.rank) {
      sent.push_back(std::make_unique<Buffer>(run, message.type, message.count, message.sentPast));
      run.noteResult("MPI_Isend", start(message, *sent.back(), tag + static_cast<int>(i), run.comm,
                                        &requests.emplace_back()));
      typeOf.push_back(MPI_DATATYPE_NULL);
    }
  }
  // A kernel that uses none of the buffers.
  if (kernelsMeanwhile) {
    const Memory other(run.kind, 5000);
    other.flip();
  }
  std::vector<MPI_Status> statuses(requests.size());
  finish(way, requests, statuses);
  for (std::size_t i = 0; i < requests.size(); ++i) {
    if (typeOf[i] != MPI_DATATYPE_NULL) run.noteStatus(statuses[i], typeOf[i]);
    run.note(requests[i] == MPI_REQUEST_NULL ? "freed" : "not freed");
  }
  for (const auto& buffer : received) buffer->noteBytes(run, "received");
  for (const auto& buffer : sent) buffer->noteBytes(run, "sent");
}

}  // namespace gmac::testing
