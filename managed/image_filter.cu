// SPDX-License-Identifier: Apache-2.0
//
// A filter for a film of grey images (binary PGM, one after the other in a file): reads each image
// with fread straight into managed memory, replaces every pixel by the median of the nine around it
// on the GPU, and writes the image with fwrite straight from managed memory. Result: the bytes of
// the filtered film.
//
// Where the operating system refuses managed memory in its calls (EFAULT), the program does what
// programs do there: it goes through a buffer, and says so.
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <stdexcept>

#include "managed/program.h"

namespace {

using namespace managed;
using Pixel = unsigned char;

struct Film {
  unsigned width;
  unsigned height;
  unsigned images;
  std::size_t pixels() const { return std::size_t{width} * height; }
};

__host__ __device__ void order(Pixel& a, Pixel& b) {
  const Pixel low = a < b ? a : b;
  b = a < b ? b : a;
  a = low;
}

// Of nine, by the shortest network of exchanges.
__host__ __device__ Pixel median(Pixel (&p)[9]) {
  order(p[1], p[2]), order(p[4], p[5]), order(p[7], p[8]), order(p[0], p[1]), order(p[3], p[4]);
  order(p[6], p[7]), order(p[1], p[2]), order(p[4], p[5]), order(p[7], p[8]), order(p[0], p[3]);
  order(p[5], p[8]), order(p[4], p[7]), order(p[3], p[6]), order(p[1], p[4]), order(p[2], p[5]);
  order(p[4], p[7]), order(p[4], p[2]), order(p[6], p[4]), order(p[4], p[2]);
  return p[4];
}

// Pixels outside the image are those of its edge.
__host__ __device__ Pixel filtered(const Pixel* image, unsigned width, unsigned height, unsigned x,
                                   unsigned y) {
  Pixel around[9];
  for (int dy = -1; dy <= 1; ++dy) {
    for (int dx = -1; dx <= 1; ++dx) {
      const int column = static_cast<int>(x) + dx;
      const int row = static_cast<int>(y) + dy;
      const unsigned nearX = column < 0                          ? 0
                             : column >= static_cast<int>(width) ? width - 1
                                                                 : column;
      const unsigned nearY = row < 0 ? 0 : row >= static_cast<int>(height) ? height - 1 : row;
      around[(dy + 1) * 3 + (dx + 1)] = image[std::size_t{nearY} * width + nearX];
    }
  }
  return median(around);
}

__global__ void filter(const Pixel* in, Pixel* out, unsigned width, unsigned height) {
  const unsigned x = blockIdx.x * blockDim.x + threadIdx.x;
  const unsigned y = blockIdx.y * blockDim.y + threadIdx.y;
  if (x < width && y < height) {
    out[std::size_t{y} * width + x] = filtered(in, width, height, x, y);
  }
}

[[noreturn]] void failOn(const char* what) {
  throw std::runtime_error(std::string(what) + ": " + std::strerror(errno));
}

// A file that is gone when the program is. Owner.
class ScratchFile {
 public:
  ScratchFile() {
    const char* const folder = std::getenv("TMPDIR");
    std::string path = std::string(folder != nullptr ? folder : "/tmp") + "/film.XXXXXX";
    const int descriptor = mkstemp(path.data());
    if (descriptor < 0) failOn("mkstemp");
    unlink(path.c_str());
    file_ = fdopen(descriptor, "w+b");
    if (file_ == nullptr) failOn("fdopen");
  }
  ~ScratchFile() { std::fclose(file_); }
  ScratchFile(const ScratchFile&) = delete;
  ScratchFile& operator=(const ScratchFile&) = delete;
  std::FILE* get() const { return file_; }

 private:
  std::FILE* file_;
};

// Reads and writes pixels in managed memory, with a buffer between where that is refused.
class Pixels {
 public:
  void read(std::FILE* file, Pixel* to, std::size_t count) {
    const long start = std::ftell(file);
    errno = 0;
    if (!throughBuffer_ && std::fread(to, 1, count, file) == count) return;
    if (!throughBuffer_) goThroughBuffer(file, start, "fread");
    buffer_.resize(count);
    if (std::fread(buffer_.data(), 1, count, file) != count) failOn("fread");
    std::copy(buffer_.begin(), buffer_.end(), to);
  }

  void write(std::FILE* file, const Pixel* from, std::size_t count) {
    // So that what is refused is these pixels and nothing before them.
    if (std::fflush(file) != 0) failOn("fflush");
    const long start = std::ftell(file);
    errno = 0;
    if (!throughBuffer_ && std::fwrite(from, 1, count, file) == count && std::fflush(file) == 0) {
      return;
    }
    if (!throughBuffer_) goThroughBuffer(file, start, "fwrite");
    buffer_.assign(from, from + count);
    if (std::fwrite(buffer_.data(), 1, count, file) != count) failOn("fwrite");
  }

  bool throughBuffer() const { return throughBuffer_; }

 private:
  void goThroughBuffer(std::FILE* file, long start, const char* what) {
    if (errno != EFAULT) failOn(what);
    std::clearerr(file);
    if (std::fseek(file, start, SEEK_SET) != 0) failOn("fseek");
    throughBuffer_ = true;
  }

  bool throughBuffer_ = false;
  std::vector<Pixel> buffer_;
};

void writeHeader(std::FILE* file, const Film& film) {
  if (std::fprintf(file, "P5\n%u %u\n255\n", film.width, film.height) < 0) failOn("fprintf");
}

Film readHeader(std::FILE* file) {
  Film film{};
  if (std::fscanf(file, "P5 %u %u 255", &film.width, &film.height) != 2 ||
      std::fgetc(file) != '\n') {
    throw std::runtime_error("this is no image");
  }
  return film;
}

// A gradient with noise, which is what a median is for.
std::vector<Pixel> imageNumber(const Film& film, unsigned image) {
  std::vector<Pixel> pixels(film.pixels());
  inParallel(pixels.size(), [&](std::size_t first, std::size_t last) {
    for (std::size_t i = first; i < last; ++i) {
      const std::uint64_t noise = randomWord(i + image * pixels.size());
      const auto smooth = static_cast<Pixel>((i % film.width + i / film.width + 16 * image) / 32);
      pixels[i] = noise % 16 == 0 ? static_cast<Pixel>(noise >> 8) : smooth;
    }
  });
  return pixels;
}

Outcome filterFilm(const Request& request) {
  const Film film =
      bySize(request.size, Film{320, 200, 3}, Film{4096, 3000, 16}, Film{8192, 6000, 24});
  const ScratchFile input, output;
  for (unsigned image = 0; image < film.images; ++image) {
    const std::vector<Pixel> pixels = imageNumber(film, image);
    writeHeader(input.get(), film);
    if (std::fwrite(pixels.data(), 1, pixels.size(), input.get()) != pixels.size()) {
      failOn("fwrite");
    }
  }
  std::rewind(input.get());

  Outcome outcome;
  Pixels io;
  const Clock clock;
  {
    Array<Pixel> in(film.pixels()), out(film.pixels());
    for (unsigned image = 0; image < film.images; ++image) {
      const Film found = readHeader(input.get());
      if (found.pixels() != film.pixels()) throw std::runtime_error("an image of another size");
      io.read(input.get(), in.data(), in.size());
      const dim3 threads(32, 8);
      filter<<<dim3(blocksFor(found.width, threads.x), blocksFor(found.height, threads.y)),
               threads>>>(in.data(), out.data(), found.width, found.height);
      check(cudaGetLastError(), "launch");
      check(cudaDeviceSynchronize(), "cudaDeviceSynchronize");
      writeHeader(output.get(), found);
      io.write(output.get(), out.data(), out.size());
    }
    in.free();
    out.free();
  }
  if (std::fflush(output.get()) != 0) failOn("fflush");
  outcome.seconds = clock.seconds();
  if (io.throughBuffer()) outcome.note = "the system refused managed memory: through a buffer";

  outcome.result.resize(static_cast<std::size_t>(std::ftell(output.get())));
  std::rewind(output.get());
  if (std::fread(outcome.result.data(), 1, outcome.result.size(), output.get()) !=
      outcome.result.size()) {
    failOn("fread");
  }
  if (request.check) {
    std::rewind(output.get());
    std::vector<Pixel> got(film.pixels()), wanted(film.pixels());
    for (unsigned image = 0; image < film.images && outcome.wrong.empty(); ++image) {
      const std::vector<Pixel> pixels = imageNumber(film, image);
      inParallel(film.height, [&](std::size_t first, std::size_t last) {
        for (std::size_t y = first; y < last; ++y) {
          for (unsigned x = 0; x < film.width; ++x) {
            wanted[y * film.width + x] =
                filtered(pixels.data(), film.width, film.height, x, static_cast<unsigned>(y));
          }
        }
      });
      readHeader(output.get());
      if (std::fread(got.data(), 1, got.size(), output.get()) != got.size()) failOn("fread");
      outcome.wrong = firstDifference("pixel", got.data(), wanted.data(), wanted.size());
    }
  }
  return outcome;
}

}  // namespace

int main(int argc, char** argv) { return runProgram(argc, argv, "image_filter", filterFilm); }
