// SPDX-License-Identifier: Apache-2.0
#include "managed/program.h"

#include <algorithm>
#include <cinttypes>
#include <cstdio>
#include <cstring>
#include <stdexcept>
#include <string_view>
#include <thread>

namespace managed {
namespace {

constexpr int kWrong = 1;
constexpr int kUsage = 2;
constexpr int kCannotRun = 77;

struct CommandLine {
  Request request;
  const char* sizeName = "small";
  std::string outputPath;
};

// False when the command line is wrong.
bool parse(int argc, char** argv, CommandLine& line) {
  for (int i = 1; i < argc; ++i) {
    const std::string_view word = argv[i];
    const char* const value = i + 1 < argc ? argv[i + 1] : nullptr;
    if (word == "--no-check") {
      line.request.check = false;
    } else if (word == "--output" && value != nullptr) {
      line.outputPath = value;
      ++i;
    } else if (word == "--size" && value != nullptr) {
      constexpr std::string_view kNames[] = {"small", "medium", "large"};
      const auto* const name = std::find(std::begin(kNames), std::end(kNames), value);
      if (name == std::end(kNames)) return false;
      line.sizeName = name->data();
      line.request.size = static_cast<Size>(name - std::begin(kNames));
      ++i;
    } else {
      return false;
    }
  }
  return true;
}

// FNV-1a over words, then over the bytes that are left.
std::uint64_t checksum(const std::vector<unsigned char>& bytes) {
  constexpr std::uint64_t kPrime = 0x100000001B3ULL;
  std::uint64_t sum = 0xCBF29CE484222325ULL;
  std::size_t at = 0;
  for (; at + sizeof(std::uint64_t) <= bytes.size(); at += sizeof(std::uint64_t)) {
    std::uint64_t word;
    std::memcpy(&word, bytes.data() + at, sizeof word);
    sum = (sum ^ word) * kPrime;
    sum ^= sum >> 32;
  }
  for (; at < bytes.size(); ++at) sum = (sum ^ bytes[at]) * kPrime;
  return sum;
}

void writeResult(const std::string& path, const std::vector<unsigned char>& bytes) {
  std::FILE* const file = std::fopen(path.c_str(), "wb");
  const bool written =
      file != nullptr && std::fwrite(bytes.data(), 1, bytes.size(), file) == bytes.size();
  const bool closed = file != nullptr && std::fclose(file) == 0;
  if (!written || !closed) throw std::runtime_error("cannot write " + path);
}

}  // namespace

void check(cudaError_t error, const char* what) {
  if (error != cudaSuccess) {
    throw std::runtime_error(std::string(what) + ": " + cudaGetErrorName(error) + ", " +
                             cudaGetErrorString(error));
  }
}

void append(std::vector<unsigned char>& result, const void* values, std::size_t bytes) {
  const auto* const first = static_cast<const unsigned char*>(values);
  result.insert(result.end(), first, first + bytes);
}

void inParallel(std::size_t count, const std::function<void(std::size_t, std::size_t)>& body) {
  const std::size_t parts =
      std::max<std::size_t>(1, std::min<std::size_t>(std::thread::hardware_concurrency(), count));
  std::vector<std::thread> threads;
  for (std::size_t part = 1; part < parts; ++part) {
    threads.emplace_back(body, count * part / parts, count * (part + 1) / parts);
  }
  body(0, count / parts);
  for (std::thread& thread : threads) thread.join();
}

int runProgram(int argc, char** argv, const char* name, Outcome (*program)(const Request&)) {
  CommandLine line;
  if (!parse(argc, argv, line)) {
    std::fprintf(stderr, "usage: %s [--size small|medium|large] [--output FILE] [--no-check]\n",
                 name);
    return kUsage;
  }
  int devices = 0;
  switch (const cudaError_t error = cudaGetDeviceCount(&devices)) {
    case cudaSuccess:
      break;
    case cudaErrorNoDevice:
    case cudaErrorInsufficientDriver:  // also where there is no driver at all
      std::fprintf(stderr, "%s: no GPU: %s\n", name, cudaGetErrorString(error));
      return kCannotRun;
    default:
      std::fprintf(stderr, "%s: cudaGetDeviceCount: %s\n", name, cudaGetErrorString(error));
      return kWrong;
  }
  try {
    check(cudaFree(nullptr), "creating the context");
    const Outcome outcome = program(line.request);
    if (!line.outputPath.empty()) writeResult(line.outputPath, outcome.result);
    std::printf("{\"program\": \"%s\", \"size\": \"%s\", \"checksum\": \"%016" PRIx64
                "\", \"seconds\": %.6f, \"checked\": %s, \"note\": \"%s\"}\n",
                name, line.sizeName, checksum(outcome.result), outcome.seconds,
                line.request.check && outcome.wrong.empty() ? "true" : "false",
                outcome.note.c_str());
    if (!outcome.wrong.empty()) {
      std::fprintf(stderr, "%s: wrong: %s\n", name, outcome.wrong.c_str());
      return kWrong;
    }
    return 0;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s: %s\n", name, error.what());
    return kWrong;
  }
}

}  // namespace managed
