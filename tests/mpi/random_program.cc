// SPDX-License-Identifier: Apache-2.0
//
//   random_program [--programs N] [--seed S] [--memory shared|device|pinned|plain|mixed]
//                  [--step N|views]
//
// Random programs of MPI, each run in plain memory and in another one: bytes, statuses and results
// must be the same. Of mixed memory, every second rank's is plain. Prints the seed of one that
// differs. What differs between plain and plain memory is MPI's own doing. Views of files are in
// programs of their own.
#include <mpi.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <string>
#include <string_view>
#include <utility>

#include "tests/mpi/random_run.h"

namespace {

using namespace gmac::testing;

constexpr int kStepsOfAProgram = 4;

constexpr int kAny = -1;
constexpr int kViews = -2;

// `only`: the number of the step that all are, or one of these. `messagesOnly`: no one-sided steps
// (MPICH 4.0 does not get through some where every second rank's memory is staged), and none with
// files (in plain memory those are a model, which calls no MPI).
std::vector<Step> run(std::uint64_t seed, Memory::Kind kind, bool isReference, MPI_Comm world,
                      int only, bool messagesOnly) {
  Rng rng(seed);
  // Messages of a program that failed reach no other.
  MPI_Comm comm;
  MPI_Comm_dup(world, &comm);
  Run program{rng, kind, isReference, comm, 0, 0, {}};
  MPI_Comm_rank(comm, &program.rank);
  MPI_Comm_size(comm, &program.size);
  for (int i = 0; i < kStepsOfAProgram; ++i) {
    program.steps.emplace_back();
    constexpr void (*kSteps[])(Run&) = {
      &wrongArguments,
      &nonblockingMessages,
      &nonblockingMessages,
      &persistentMessages,
      &collective,
      &collective,
      &reduction,
      &neighbours,
      &packing,
      &packing,
      &fileTransfer,
      &oneSided,
#if MPI_VERSION >= 4
      &sendsAndReceives,
      &partitionedMessages,
#endif
      &probedMessages,
      &probedMessages,
      &blockingMessage,
      &blockingMessage,
      &blockingMessage,
      &blockingMessage
    };
    const auto step = only == kViews ? &fileViews
                      : only == kAny ? kSteps[draw(rng, 0, std::size(kSteps) - 1)]
                                     : kSteps[only];
    const bool isMessage = step != &oneSided && step != &fileTransfer && step != &fileViews;
    (messagesOnly && !isMessage ? &probedMessages : step)(program);
  }
  MPI_Comm_free(&comm);
  return std::move(program.steps);
}

void show(int rank, const char* kind, const std::string& note) {
  std::fprintf(stderr, "rank %d, %s: ", rank, kind);
  for (const char c : note.substr(0, 300)) {
    std::fprintf(stderr, std::isprint(static_cast<unsigned char>(c)) != 0 ? "%c" : "\\x%02x",
                 static_cast<unsigned char>(c));
  }
  std::fprintf(stderr, "\n");
}

bool agree(int rank, const Step& plain, const Step& other) {
  if (plain.unreliable) return true;
  const auto [a, b] =
      std::mismatch(plain.notes.begin(), plain.notes.end(), other.notes.begin(), other.notes.end());
  if (a == plain.notes.end() && b == other.notes.end()) return true;
  if (!plain.notes.empty()) show(rank, "step", plain.notes.front());
  if (a != plain.notes.end()) show(rank, "plain", *a);
  if (b != other.notes.end()) show(rank, "other", *b);
  for (const std::string& error : plain.errors) show(rank, "plain", error);
  for (const std::string& error : other.errors) show(rank, "other", error);
  if (a != plain.notes.end() && b != other.notes.end() && a->size() == b->size()) {
    const auto at = std::mismatch(a->begin(), a->end(), b->begin()).first - a->begin();
    std::size_t others = 0;
    for (std::size_t i = 0; i < a->size(); ++i) others += (*a)[i] != (*b)[i] ? 1 : 0;
    const auto place = static_cast<std::size_t>(at);
    std::fprintf(stderr, "rank %d: %zu of %zu bytes differ, the first at %zu: %02x and %02x\n",
                 rank, others, a->size(), place, static_cast<unsigned char>((*a)[place]),
                 static_cast<unsigned char>((*b)[place]));
  }
  return false;
}

// The errors that MPI itself gave for calls that are right, in plain memory. By class: their
// number, and the text of the first.
using Unexpected = std::map<int, std::pair<unsigned long long, std::string>>;

void note(int code, Unexpected* all) {
  if (code == MPI_SUCCESS) return;
  int errorClass = MPI_SUCCESS;
  MPI_Error_class(code, &errorClass);
  auto& [count, text] = (*all)[errorClass];
  if (count++ == 0) text = errorText(code);
}

Memory::Kind kindOf(std::string_view name) {
  if (name == "plain") return Memory::Kind::kPlain;
  if (name == "shared") return Memory::Kind::kShared;
  if (!startDevice()) fail("a build with CUDA");
  return name == "device" ? Memory::Kind::kDevice : Memory::Kind::kPinned;
}

const char* textOption(int argc, char** argv, const char* name, const char* otherwise) {
  for (int i = 1; i + 1 < argc; ++i) {
    if (std::strcmp(argv[i], name) == 0) return argv[i + 1];
  }
  return otherwise;
}

std::uint64_t option(int argc, char** argv, const char* name, std::uint64_t otherwise) {
  const char* const text = textOption(argc, argv, name, nullptr);
  return text != nullptr ? std::strtoull(text, nullptr, 0) : otherwise;
}

}  // namespace

int main(int argc, char** argv) {
  // The table of requests is another one where several threads may call MPI.
  int level = 0;
  MPI_Init_thread(&argc, &argv,
                  option(argc, argv, "--threads", 0) != 0 ? MPI_THREAD_MULTIPLE : MPI_THREAD_SINGLE,
                  &level);
  const std::uint64_t first = option(argc, argv, "--seed", 1);
  const std::uint64_t programs = option(argc, argv, "--programs", 100);
  const std::string_view memory = textOption(argc, argv, "--memory", "shared");
  const bool mixed = memory == "mixed";
  const Memory::Kind second = kindOf(mixed ? "shared" : memory);
  const std::string_view step = textOption(argc, argv, "--step", "");
  const int only = step.empty()      ? kAny
                   : step == "views" ? kViews
                                     : static_cast<int>(option(argc, argv, "--step", 0));
  MPI_Comm world;
  MPI_Comm_dup(MPI_COMM_WORLD, &world);
  MPI_Comm_set_errhandler(world, MPI_ERRORS_RETURN);
  MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
  MPI_Comm_set_errhandler(MPI_COMM_SELF, MPI_ERRORS_RETURN);
  int rank = 0;
  MPI_Comm_rank(world, &rank);
  unsigned long long unreliable = 0;
  Unexpected unexpected;
  for (std::uint64_t seed = first; seed < first + programs; ++seed) {
    const auto plain = run(seed, Memory::Kind::kPlain, true, world, only, mixed);
    const bool plainHere = mixed && (seed + static_cast<std::uint64_t>(rank)) % 2 == 0;
    const auto other =
        run(seed, plainHere ? Memory::Kind::kPlain : second, false, world, only, mixed);
    bool same = true;
    for (std::size_t i = 0; i < plain.size(); ++i) {
      same = agree(rank, plain[i], other[i]) && same;
      unreliable += plain[i].unreliable ? 1 : 0;
      note(plain[i].unexpected, &unexpected);
    }
    if (!same) {
      std::fprintf(stderr, "FAILED: seed %llu\n", static_cast<unsigned long long>(seed));
      std::fflush(stderr);
      sleep(1);  // the launcher passes that on
      MPI_Abort(MPI_COMM_WORLD, 1);
    }
  }
  MPI_Comm_free(&world);
  MPI_Finalize();
  if (rank == 0) {
    std::printf("%llu programs agree; %llu steps of rank 0 not compared\n",
                static_cast<unsigned long long>(programs), unreliable);
    for (const auto& [errorClass, seen] : unexpected) {
      std::printf("MPI's own errors in plain memory: %llu of class %d: %s\n", seen.first,
                  errorClass, seen.second.c_str());
    }
  }
}
