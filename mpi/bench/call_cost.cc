// SPDX-License-Identifier: Apache-2.0
//
// The cost of a call on plain memory: nanoseconds of MPI_Send to MPI_PROC_NULL, and of a message of
// 8 bytes to this process itself; alone, and while a shared object lives. Then messages of 8 B to 4
// KiB from and to objects whose CPU copy is current, beside plain memory in turns. Run it with and
// without `gmac run --mpi`:
//   mpirun -n 1 [gmac run --mpi --] call_cost
#include <dlfcn.h>
#include <mpi.h>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdio>
#include <vector>

namespace {

constexpr int kCalls = 200'000;
constexpr int kRounds = 15;

// The median of kRounds.
template <typename Call>
double nanoseconds(const Call& call) {
  using Clock = std::chrono::steady_clock;
  std::vector<double> rounds;
  for (int i = 0; i < kRounds; ++i) {
    const auto start = Clock::now();
    for (int j = 0; j < kCalls; ++j) call();
    const std::chrono::duration<double, std::nano> took = Clock::now() - start;
    rounds.push_back(took.count() / kCalls);
  }
  std::nth_element(rounds.begin(), rounds.begin() + kRounds / 2, rounds.end());
  return rounds[kRounds / 2];
}

void measure(const char* when) {
  double value = 0;
  const double nobody =
      nanoseconds([&] { MPI_Send(&value, 1, MPI_DOUBLE, MPI_PROC_NULL, 0, MPI_COMM_WORLD); });
  const double self = nanoseconds([&] {
    MPI_Request request;
    MPI_Irecv(&value, 1, MPI_DOUBLE, 0, 0, MPI_COMM_SELF, &request);
    double sent = 1;
    MPI_Send(&sent, 1, MPI_DOUBLE, 0, 0, MPI_COMM_SELF);
    MPI_Wait(&request, MPI_STATUS_IGNORE);
  });
  std::printf("%s: send to nobody %.1f ns, message to itself (3 calls) %.1f ns\n", when, nobody,
              self);
}

// Messages of one place of this process to another one, in every kind of call that is short.
using Exchange = void (*)(std::byte* from, std::byte* to, int bytes);

void irecvAndSend(std::byte* from, std::byte* to, int bytes) {
  MPI_Request request;
  MPI_Irecv(to, bytes, MPI_BYTE, 0, 0, MPI_COMM_SELF, &request);
  MPI_Send(from, bytes, MPI_BYTE, 0, 0, MPI_COMM_SELF);
  MPI_Wait(&request, MPI_STATUS_IGNORE);
}
template <auto send>
void sendLaterAndRecv(std::byte* from, std::byte* to, int bytes) {
  MPI_Request request;
  send(from, bytes, MPI_BYTE, 0, 0, MPI_COMM_SELF, &request);
  MPI_Recv(to, bytes, MPI_BYTE, 0, 0, MPI_COMM_SELF, MPI_STATUS_IGNORE);
  MPI_Wait(&request, MPI_STATUS_IGNORE);
}
void irecvAndIsend(std::byte* from, std::byte* to, int bytes) {
  MPI_Request requests[2];
  MPI_Irecv(to, bytes, MPI_BYTE, 0, 0, MPI_COMM_SELF, &requests[0]);
  MPI_Isend(from, bytes, MPI_BYTE, 0, 0, MPI_COMM_SELF, &requests[1]);
  MPI_Waitall(2, requests, MPI_STATUSES_IGNORE);
}
void sendrecv(std::byte* from, std::byte* to, int bytes) {
  MPI_Sendrecv(from, bytes, MPI_BYTE, 0, 0, to, bytes, MPI_BYTE, 0, 0, MPI_COMM_SELF,
               MPI_STATUS_IGNORE);
}

// What objects add to messages of plain memory. Rounds are shorter than a time slice and take
// turns, and their lower quartiles are compared: so a busy machine does little to them.
void measureObject(std::byte* object) {
  constexpr int kShortRounds = 400;
  constexpr int kCallsOfOne = 100;
  constexpr std::size_t kHalf = std::size_t{1} << 15;
  std::vector<std::byte> plain(2 * kHalf);
  for (std::size_t i = 0; i < 2 * kHalf; ++i) object[i] = std::byte{1};
  constexpr struct {
    const char* calls;
    Exchange exchange;
  } kKinds[] = {{"Irecv, Send, Wait", &irecvAndSend},
                {"Isend, Recv, Wait", &sendLaterAndRecv<&MPI_Isend>},
                {"Issend, Recv, Wait", &sendLaterAndRecv<&MPI_Issend>},
                {"Irecv, Isend, Waitall", &irecvAndIsend},
                {"Sendrecv", &sendrecv}};
  for (int bytes = 8; bytes <= 4096; bytes *= 8) {
    for (const auto& kind : kKinds) {
      const auto round = [&](std::byte* from, std::byte* to) {
        using Clock = std::chrono::steady_clock;
        const auto start = Clock::now();
        for (int i = 0; i < kCallsOfOne; ++i) kind.exchange(from, to, bytes);
        const std::chrono::duration<double, std::nano> took = Clock::now() - start;
        return took.count() / kCallsOfOne;
      };
      std::vector<double> neither;
      std::vector<double> sent;
      std::vector<double> received;
      for (int i = 0; i < kShortRounds; ++i) {
        neither.push_back(round(plain.data(), plain.data() + kHalf));
        sent.push_back(round(object, plain.data() + kHalf));
        received.push_back(round(plain.data(), object + kHalf));
      }
      const auto quartile = [](std::vector<double>& all) {
        std::nth_element(all.begin(), all.begin() + kShortRounds / 4, all.end());
        return all[kShortRounds / 4];
      };
      const double least = quartile(neither);
      std::printf(
          "%4d bytes, %-21s: plain %.0f ns; an object is sent %+.0f ns, received %+.0f ns\n", bytes,
          kind.calls, least, quartile(sent) - least, quartile(received) - least);
    }
  }
}

}  // namespace

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  measure("nothing is shared");
  using Allocate = void* (*)(std::size_t);
  if (const auto allocate = reinterpret_cast<Allocate>(dlsym(RTLD_DEFAULT, "adsmAlloc"))) {
    if (void* const object = allocate(1 << 20)) {
      measure("an object lives");
      measureObject(static_cast<std::byte*>(object));
    }
  }
  MPI_Finalize();
}
