// SPDX-License-Identifier: Apache-2.0
//
//   random_transfers STEPS SEED apart|together|unexported|unimported [SECONDS]
//
// Random messages between two processes that have a device each, or with "together" one, until so
// many are made or so much time has gone; with one of the last two words, where the driver refuses
// that a device reaches the other's memory: of
// objects, device memory and plain memory on either side, from any layout to any other of as many
// elements, at any offset, by several calls, of 1 byte to 1 MiB, of allocations that come and go.
// Every byte of the receiver's buffer is compared with what MPI's own packing makes of plain
// memory.
#include <mpi.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "tests/mpi/expect.h"
#include "tests/mpi/random_types.h"
#include "tests/mpi/shared.h"

namespace {

using gmac::testing::draw;
using gmac::testing::Rng;

int rank = 0;

enum class Kind { kObject, kDevice, kPlain };

// As many bytes of one kind.
class Room {
 public:
  Room(Kind kind, std::size_t bytes) : kind_(kind), bytes_(bytes) {
    address_ = kind == Kind::kObject   ? adsmAlloc(bytes)
               : kind == Kind::kDevice ? gmac::testing::allocateExportable(bytes)
                                       : std::malloc(bytes);
    if (address_ == nullptr) gmac::testing::fail("allocation");
  }
  ~Room() {
    if (kind_ == Kind::kObject) gmac::testing::require(adsmFree(address_), "adsmFree");
    if (kind_ == Kind::kDevice) gmac::testing::freeExportable(address_);
    if (kind_ == Kind::kPlain) std::free(address_);
  }
  Room(const Room&) = delete;
  Room& operator=(const Room&) = delete;

  std::size_t bytes() const { return bytes_; }
  unsigned char* at(std::size_t offset) const {
    return static_cast<unsigned char*>(address_) + offset;
  }
  // `onDevice`: an object's bytes are current there alone afterwards.
  void write(std::size_t offset, const std::vector<unsigned char>& from, bool onDevice) {
    if (kind_ == Kind::kDevice) {
      gmac::testing::copyToDevice(at(offset), from.data(), from.size());
      return;
    }
    std::memcpy(at(offset), from.data(), from.size());
    if (kind_ == Kind::kObject && onDevice) {
      gmac::testing::flipObject(address_, bytes_);
      gmac::testing::flipObject(address_, bytes_);
    }
  }
  void read(std::size_t offset, std::vector<unsigned char>& to) const {
    if (kind_ == Kind::kDevice) {
      gmac::testing::copyFromDevice(to.data(), at(offset), to.size());
    } else {
      std::memcpy(to.data(), at(offset), to.size());
    }
  }

 private:
  Kind kind_;
  std::size_t bytes_;
  void* address_ = nullptr;
};

// A type of `elements` basic ones, committed.
struct Shape {
  MPI_Datatype type = MPI_DATATYPE_NULL;
  int count = 1;
  std::size_t span = 0;  // in bytes
};
Shape drawShape(Rng& rng, MPI_Datatype base, int elements) {
  Shape shape;
  const int size = gmac::testing::sizeOf(base);
  switch (draw(rng, 0, 4)) {
    case 0:
      MPI_Type_contiguous(1, base, &shape.type);
      shape.count = elements;
      break;
    case 1: {  // rows of the greatest of some lengths that divide it
      int row = draw(rng, 1, 64);
      while (elements % row != 0) --row;
      MPI_Type_vector(elements / row, row, row + draw(rng, 0, 2 * row), base, &shape.type);
      break;
    }
    case 2: {
      std::vector<int> lengths;
      std::vector<int> places;
      int place = 0;
      for (int left = elements; left > 0; left -= lengths.back()) {
        const int most = std::max(1, elements / draw(rng, 1, 200));
        lengths.push_back(std::min(left, draw(rng, 1, most)));
        places.push_back(place);
        place += lengths.back() + draw(rng, 0, 3);
      }
      MPI_Type_indexed(static_cast<int>(lengths.size()), lengths.data(), places.data(), base,
                       &shape.type);
      break;
    }
    case 3: {  // a box in a box
      std::array<int, 3> parts = {1, 1, elements};
      for (std::size_t i = 0; i < 2; ++i) {
        int factor = draw(rng, 1, 16);
        while (parts[2] % factor != 0) --factor;
        parts[i] = factor;
        parts[2] /= factor;
      }
      std::array<int, 3> sizes{};
      std::array<int, 3> starts{};
      for (std::size_t i = 0; i < 3; ++i) {
        sizes[i] = parts[i] + draw(rng, 0, 2);
        starts[i] = draw(rng, 0, sizes[i] - parts[i]);
      }
      MPI_Type_create_subarray(3, sizes.data(), parts.data(), starts.data(),
                               draw(rng, 0, 1) == 0 ? MPI_ORDER_C : MPI_ORDER_FORTRAN, base,
                               &shape.type);
      break;
    }
    default:  // elements with a gap after each
      MPI_Type_create_resized(base, 0, size * draw(rng, 1, 4), &shape.type);
      shape.count = elements;
  }
  MPI_Type_commit(&shape.type);
  shape.span = static_cast<std::size_t>(gmac::testing::spanOf(shape.type, shape.count).last);
  return shape;
}

class Transfers {
 public:
  explicit Transfers(std::uint64_t seed) : rng_(seed) {}

  void step(int number) {
    MPI_Datatype base = MPI_DATATYPE_NULL;
    switch (draw(rng_, 0, 3)) {
      case 0:
        base = MPI_BYTE;
        break;
      case 1:
        base = MPI_SHORT;
        break;
      case 2:
        base = MPI_INT;
        break;
      default:
        base = MPI_DOUBLE;
    }
    const int length = draw(rng_, 0, 99);
    const int bytes = draw(rng_, 1, length < 70 ? 8 << 10 : length < 97 ? 128 << 10 : 1 << 20);
    const int elements = std::max(1, bytes / gmac::testing::sizeOf(base));
    Shape from = drawShape(rng_, base, elements);
    Shape to = draw(rng_, 0, 2) == 0 ? from : drawShape(rng_, base, elements);
    const bool shares = to.type == from.type;
    const int sender = draw(rng_, 0, 1);
    const int call = draw(rng_, 0, 3);
    const bool late = draw(rng_, 0, 399) == 0;
    const bool onDevice = draw(rng_, 0, 2) > 0;
    const std::uint64_t seed = rng_();
    const Shape& own = rank == sender ? from : to;
    // (The two draw the same numbers.)
    std::array<Room*, 2> rooms{};
    std::array<std::size_t, 2> offsets{};
    for (int i = 0; i < 2; ++i) {
      const std::size_t span = i == sender ? from.span : to.span;
      rooms[static_cast<std::size_t>(i)] = room(i, span + 4096);
      offsets[static_cast<std::size_t>(i)] = static_cast<std::size_t>(draw(rng_, 0, 4095));
    }
    Room& mine = *rooms[static_cast<std::size_t>(rank)];
    const std::size_t offset = offsets[static_cast<std::size_t>(rank)];
    const std::vector<unsigned char> sent = pattern(seed, from.span);
    std::vector<unsigned char> expected = pattern(seed + 1, to.span);
    mine.write(offset, rank == sender ? sent : expected, onDevice);
    message(mine.at(offset), own, sender, call, late);
    std::vector<unsigned char> there(own.span);
    mine.read(offset, there);
    if (rank != sender) {
      std::vector<unsigned char> packed(static_cast<std::size_t>(elements) *
                                        static_cast<std::size_t>(gmac::testing::sizeOf(base)));
      const int size = static_cast<int>(packed.size());
      int position = 0;
      MPI_Pack(sent.data(), from.count, from.type, packed.data(), size, &position, MPI_COMM_SELF);
      position = 0;
      MPI_Unpack(packed.data(), size, &position, expected.data(), to.count, to.type, MPI_COMM_SELF);
    }
    const std::vector<unsigned char>& wanted = rank == sender ? sent : expected;
    if (there != wanted) {
      const auto at = std::mismatch(there.begin(), there.end(), wanted.begin()).first;
      gmac::testing::failRank("step " + std::to_string(number) + ": byte " +
                              std::to_string(at - there.begin()) + " of " +
                              std::to_string(there.size()));
    }
    MPI_Type_free(&from.type);
    if (!shares) MPI_Type_free(&to.type);
  }

 private:
  static std::vector<unsigned char> pattern(std::uint64_t seed, std::size_t bytes) {
    std::vector<unsigned char> made(bytes);
    std::uint64_t word = seed | 1;
    for (unsigned char& byte : made) {
      word = word * 6364136223846793005 + 1442695040888963407;
      byte = static_cast<unsigned char>(word >> 56);
    }
    return made;
  }

  // One of that process's rooms with so many bytes; now and then a new one in its place.
  Room* room(int of, std::size_t bytes) {
    constexpr std::size_t kRooms = 24;
    auto& all = rooms_[static_cast<std::size_t>(of)];
    const auto which = static_cast<std::size_t>(draw(rng_, 0, kRooms - 1));
    const bool renewed = draw(rng_, 0, 49) == 0;
    const int kind = draw(rng_, 0, 7);
    if (all.size() < kRooms) all.resize(kRooms);
    std::size_t& has = sizes_[static_cast<std::size_t>(of)][which];
    if (has < bytes || renewed) {
      has = std::max<std::size_t>(bytes + bytes / 2, std::size_t{64} << 10);
      if (of == rank) {
        all[which].reset();
        all[which] = std::make_unique<Room>(kind < 4   ? Kind::kDevice
                                            : kind < 7 ? Kind::kObject
                                                       : Kind::kPlain,
                                            has);
      }
    }
    return all[which].get();
  }

  static void message(void* buffer, const Shape& own, int sender, int call, bool late) {
    constexpr int kTag = 3;
    const int other = 1 - rank;
    MPI_Request request = MPI_REQUEST_NULL;
    if (late && rank != sender) ::usleep(3000);
    if (rank == sender) {
      switch (call) {
        case 0:
          MPI_Isend(buffer, own.count, own.type, other, kTag, MPI_COMM_WORLD, &request);
          break;
        case 1:
          MPI_Ssend(buffer, own.count, own.type, other, kTag, MPI_COMM_WORLD);
          break;
        default:
          MPI_Send(buffer, own.count, own.type, other, kTag, MPI_COMM_WORLD);
      }
    } else if (call % 2 == 0) {
      MPI_Irecv(buffer, own.count, own.type, other, kTag, MPI_COMM_WORLD, &request);
    } else {
      MPI_Recv(buffer, own.count, own.type, other, kTag, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    }
    MPI_Wait(&request, MPI_STATUS_IGNORE);
  }

  Rng rng_;
  std::array<std::vector<std::unique_ptr<Room>>, 2> rooms_;
  std::array<std::array<std::size_t, 24>, 2> sizes_{};
};

}  // namespace

int main(int argc, char** argv) {
  if (argc < 3) {
    std::fprintf(stderr,
                 "random_transfers STEPS SEED apart|together|unexported|unimported [SECONDS]\n");
    return 2;
  }
  const int steps = std::atoi(argv[1]);
  const std::uint64_t seed = std::strtoull(argv[2], nullptr, 0);
  const std::string_view how = argc > 3 ? argv[3] : "apart";
  const double seconds = argc > 4 ? std::atof(argv[4]) : 1e9;
  if (gmac::testing::usesFakeDriver()) gmac::testing::showDevices(2);
  MPI_Init(&argc, &argv);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  if (!gmac::testing::startDevice()) gmac::testing::fail("a build with CUDA");
  if (how != "together") gmac::testing::chooseDevice(rank);
  if (how == "unexported") gmac::testing::refuseExports();
  if (how == "unimported") gmac::testing::refuseImports();
  int done = 0;
  const double start = MPI_Wtime();
  {
    Transfers transfers(seed);
    constexpr int kBetweenLooks = 50;
    for (int over = 0; over == 0 && done < steps; ++done) {
      transfers.step(done);
      if (done % kBetweenLooks != 0) continue;
      over = MPI_Wtime() - start > seconds ? 1 : 0;
      MPI_Bcast(&over, 1, MPI_INT, 0, MPI_COMM_WORLD);
    }
  }
  MPI_Barrier(MPI_COMM_WORLD);
  const double took = MPI_Wtime() - start;
  MPI_Finalize();
  if (rank == 0) std::printf("%d transfers are right, in %.0f s\n", done, took);
}
