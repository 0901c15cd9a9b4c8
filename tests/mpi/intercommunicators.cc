// SPDX-License-Identifier: Apache-2.0
//
// Collectives between two groups: rank 0 alone, and the others. Each in plain memory and in shared
// objects, with equal results.
#include <mpi.h>

#include <cstdio>
#include <string>
#include <vector>

#include "tests/mpi/shared.h"

namespace {

using gmac::testing::Memory;

constexpr int kCount = 3000;

int rank = 0;

// The results of all calls together.
std::string results(Memory::Kind kind, MPI_Comm inter) {
  int others = 0;
  MPI_Comm_remote_size(inter, &others);
  const auto room = sizeof(int) * static_cast<std::size_t>(kCount * others);
  std::string all;
  const auto call = [&](const char* name, const auto& function) {
    const Memory sent(kind, room);
    const Memory received(kind, room);
    for (std::size_t i = 0; i < room; ++i) {
      sent.data()[i] = static_cast<unsigned char>(i * 7 + static_cast<std::size_t>(rank));
      received.data()[i] = static_cast<unsigned char>(i);
    }
    sent.flip();
    received.flip();
    const int code = function(sent.data(), received.data());
    all += std::string(name) + std::to_string(code);
    for (const Memory* memory : {&sent, &received}) {
      all.append(reinterpret_cast<const char*>(memory->data()), memory->size());
    }
  };
  const std::vector<int> counts(static_cast<std::size_t>(others), kCount);
  std::vector<int> places;
  std::vector<int> bytes;
  for (int i = others; i > 0; --i) {
    places.push_back((i - 1) * kCount);
    bytes.push_back(places.back() * static_cast<int>(sizeof(int)));
  }
  const std::vector<MPI_Datatype> types(counts.size(), MPI_INT);
  const int root = rank == 0 ? MPI_ROOT : 0;
  const int secondRoot = rank == 0 ? 1 : rank == 2 ? MPI_ROOT : MPI_PROC_NULL;
  for (const int r : {root, secondRoot}) {
    call("Bcast", [&](void* out, void*) { return MPI_Bcast(out, kCount, MPI_INT, r, inter); });
    call("Gather", [&](void* out, void* in) {
      return MPI_Gather(out, kCount, MPI_INT, in, kCount, MPI_INT, r, inter);
    });
    call("Scatterv", [&](void* out, void* in) {
      return MPI_Scatterv(out, counts.data(), places.data(), MPI_INT, in, kCount, MPI_INT, r,
                          inter);
    });
    call("Reduce", [&](void* out, void* in) {
      return MPI_Reduce(out, in, kCount, MPI_INT, MPI_SUM, r, inter);
    });
  }
  call("Allgatherv", [&](void* out, void* in) {
    return MPI_Allgatherv(out, kCount, MPI_INT, in, counts.data(), places.data(), MPI_INT, inter);
  });
  call("Alltoallw", [&](void* out, void* in) {
    return MPI_Alltoallw(out, counts.data(), bytes.data(), types.data(), in, counts.data(),
                         bytes.data(), types.data(), inter);
  });
  call("Allreduce", [&](void* out, void* in) {
    return MPI_Allreduce(out, in, kCount, MPI_INT, MPI_BXOR, inter);
  });
  return all;
}

}  // namespace

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm group;
  MPI_Comm inter;
  MPI_Comm_split(MPI_COMM_WORLD, rank == 0 ? 0 : 1, rank, &group);
  MPI_Intercomm_create(group, 0, MPI_COMM_WORLD, rank == 0 ? 1 : 0, 1, &inter);
  const std::string plain = results(Memory::Kind::kPlain, inter);
  const std::string shared = results(Memory::Kind::kShared, inter);
  if (plain != shared) {
    std::fprintf(stderr, "rank %d: the results differ\n", rank);
    MPI_Abort(MPI_COMM_WORLD, 1);
  }
  MPI_Comm_free(&inter);
  MPI_Comm_free(&group);
  MPI_Finalize();
  if (rank == 0) std::puts("groups agree");
}
