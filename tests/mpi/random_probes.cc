// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cstring>
#include <memory>

#include "tests/mpi/random_run.h"

namespace gmac::testing {
namespace {

constexpr int kTags = 3;
// The length of a ticket: an honest message of that length is none.
constexpr int kTicketBytes = 480;
// (Open MPI 4.1 and MPICH 4.0 go wrong with longer ones of types with gaps.)
constexpr int kLongestBytes = 6000;

struct Letter {
  int source;
  int tag;
  int count;
  MPI_Datatype type;
  int sentPast;
};

// The question about a message, and the way in which it is received.
enum class Ask { kNothing, kProbe, kIprobe, kMprobe, kImprobe, kOther };
enum class How { kRecv, kIrecv, kSendrecv, kReplace, kPersistent, kWays };

std::vector<Letter> drawLetters(Run& run, Types& types, int receiver) {
  std::vector<Letter> letters(static_cast<std::size_t>(draw(run.rng, 1, 8)));
  for (Letter& letter : letters) {
    letter.source = (receiver + draw(run.rng, 1, run.size - 1)) % run.size;
    letter.tag = draw(run.rng, 1, kTags);
    letter.sentPast = Buffer::drawPast(run.rng);
    if (draw(run.rng, 0, 3) == 0) {
      letter.type = MPI_BYTE;
      letter.count = kTicketBytes;
      continue;
    }
    letter.type = types.derived(run.rng, types.base(run.rng), 2);
    letter.count =
        std::min(drawCount(run.rng, letter.type), kLongestBytes / std::max(1, sizeOf(letter.type)));
  }
  return letters;
}

// The messages that are left, in the order in which their sources have sent them.
class Mail {
 public:
  explicit Mail(const std::vector<Letter>& letters) {
    for (const Letter& letter : letters) left_.push_back(&letter);
  }
  bool empty() const { return left_.empty(); }
  const Letter& draw(Rng& rng) const {
    return *left_[static_cast<std::size_t>(
        gmac::testing::draw(rng, 0, static_cast<int>(left_.size()) - 1))];
  }
  bool oneSource() const {
    return std::all_of(left_.begin(), left_.end(), [&](const Letter* letter) {
      return letter->source == left_.front()->source;
    });
  }
  // The first of that source, which may be any where there is one.
  const Letter& first(int source, int tag) const {
    return **std::find_if(left_.begin(), left_.end(), [&](const Letter* letter) {
      return (source == MPI_ANY_SOURCE || letter->source == source) &&
             (tag == MPI_ANY_TAG || letter->tag == tag);
    });
  }
  void remove(const Letter& letter) { left_.erase(std::find(left_.begin(), left_.end(), &letter)); }

 private:
  std::vector<const Letter*> left_;
};

int receiveBy(Run& run, How how, const Buffer& buffer, const Letter& letter, int source, int tag,
              MPI_Status* status) {
  MPI_Request request = MPI_REQUEST_NULL;
  void* const to = buffer.address();
  int code = MPI_SUCCESS;
  // (MPICH 4.0 sets the error field in these.)
  if (how == How::kSendrecv || how == How::kReplace) status->MPI_ERROR = MPI_SUCCESS;
  switch (how) {
    case How::kRecv:
      return MPI_Recv(to, letter.count, letter.type, source, tag, run.comm, status);
    case How::kIrecv:
      code = MPI_Irecv(to, letter.count, letter.type, source, tag, run.comm, &request);
      return code != MPI_SUCCESS ? code : MPI_Wait(&request, status);
    case How::kSendrecv:
      return MPI_Sendrecv(to, 0, MPI_INT, MPI_PROC_NULL, 0, to, letter.count, letter.type, source,
                          tag, run.comm, status);
    case How::kReplace:
      return MPI_Sendrecv_replace(to, letter.count, letter.type, MPI_PROC_NULL, 0, source, tag,
                                  run.comm, status);
    default:
      break;
  }
  code = MPI_Recv_init(to, letter.count, letter.type, source, tag, run.comm, &request);
  if (code == MPI_SUCCESS) code = MPI_Start(&request);
  int done = 0;
  while (code == MPI_SUCCESS && done == 0) code = MPI_Test(&request, &done, status);
  run.note(request != MPI_REQUEST_NULL ? "the request remains" : "the request is gone");
  MPI_Request_free(&request);
  return code;
}

}  // namespace

// Everybody sends to one process, which asks for the messages, and receives them in another order
// than they have come.
void probedMessages(Run& run) {
  Types types;
  const int receiver = draw(run.rng, 0, run.size - 1);
  const std::vector<Letter> letters = drawLetters(run, types, receiver);
  const int base = static_cast<int>(run.steps.size()) * 1000;
  if (run.rank != receiver) {
    std::vector<std::unique_ptr<Buffer>> buffers;
    std::vector<MPI_Request> requests;
    for (const Letter& letter : letters) {
      if (letter.source != run.rank) continue;
      buffers.push_back(std::make_unique<Buffer>(run, letter.type, letter.count, letter.sentPast));
      MPI_Isend(buffers.back()->address(), letter.count, letter.type, receiver, base + letter.tag,
                run.comm, &requests.emplace_back());
    }
    MPI_Waitall(static_cast<int>(requests.size()), requests.data(), MPI_STATUSES_IGNORE);
  }
  Mail mail(letters);
  while (!mail.empty()) {
    const Letter& wanted = mail.draw(run.rng);
    const int source =
        mail.oneSource() && draw(run.rng, 0, 1) == 0 ? MPI_ANY_SOURCE : wanted.source;
    const int tag = draw(run.rng, 0, 2) == 0 ? MPI_ANY_TAG : wanted.tag;
    const int other = mail.draw(run.rng).source;
    const auto ask = static_cast<Ask>(draw(run.rng, 0, static_cast<int>(Ask::kOther)));
    const auto how = static_cast<How>(draw(run.rng, 0, static_cast<int>(How::kWays) - 1));
    const int past = Buffer::drawPast(run.rng);
    const bool later = draw(run.rng, 0, 1) == 0;
    const Letter& letter = mail.first(source, tag);
    mail.remove(letter);
    if (run.rank != receiver) continue;
    const int with = tag == MPI_ANY_TAG ? tag : base + tag;
    MPI_Status status = freshStatus();
    MPI_Message message = MPI_MESSAGE_NULL;
    int flag = 0;
    if (ask == Ask::kProbe) {
      MPI_Probe(source, with, run.comm, &status);
    } else if (ask == Ask::kIprobe) {
      while (flag == 0) MPI_Iprobe(source, with, run.comm, &flag, &status);
    } else if (ask == Ask::kMprobe) {
      MPI_Mprobe(source, with, run.comm, &message, &status);
    } else if (ask == Ask::kImprobe) {
      while (flag == 0) MPI_Improbe(source, with, run.comm, &flag, &message, &status);
    } else if (ask == Ask::kOther) {
      // Of another process, maybe; whatever comes first.
      MPI_Iprobe(other, MPI_ANY_TAG, run.comm, &flag, MPI_STATUS_IGNORE);
    }
    if (ask != Ask::kNothing && ask != Ask::kOther) run.noteStatus(status, letter.type);
    const Buffer buffer(run, letter.type, letter.count, past);
    status = freshStatus();
    MPI_Request request = MPI_REQUEST_NULL;
    int code = MPI_SUCCESS;
    if (message == MPI_MESSAGE_NULL) {
      code = receiveBy(run, how, buffer, letter, source, with, &status);
    } else if (later) {
      code = MPI_Imrecv(buffer.address(), letter.count, letter.type, &message, &request);
      if (code == MPI_SUCCESS) code = MPI_Wait(&request, &status);
    } else {
      code = MPI_Mrecv(buffer.address(), letter.count, letter.type, &message, &status);
    }
    run.noteResult("receive", code);
    run.judge(code, true);
    // (After a failure, too, the receiver draws what the others draw.)
    if (code != MPI_SUCCESS) continue;
    run.noteStatus(status, letter.type);
    buffer.noteBytes(run, "received");
  }
  // A message that a third process sends in the next step is not yet there for MPI_ANY_SOURCE.
  MPI_Barrier(run.comm);
}

}  // namespace gmac::testing
