// SPDX-License-Identifier: Apache-2.0
#include "gmac/accel/cuda/default_device.h"

#include <fmt/core.h>

#include <atomic>
#include <charconv>
#include <cstdlib>
#include <optional>
#include <string_view>

#include "gmac/base/log.h"

namespace gmac::accel::cuda {
namespace {

std::atomic<bool> spreads{false};

// Of Open MPI, MPICH and Intel MPI, MVAPICH, Slurm and PALS.
constexpr const char* kLocalRanks[] = {"OMPI_COMM_WORLD_LOCAL_RANK", "MPI_LOCALRANKID",
                                       "MV2_COMM_WORLD_LOCAL_RANK", "SLURM_LOCALID",
                                       "PALS_LOCAL_RANKID"};

std::optional<int> numberIn(const char* variable) noexcept {
  const char* const text = std::getenv(variable);
  if (text == nullptr) return std::nullopt;
  const std::string_view digits(text);
  int number = 0;
  const auto [rest, error] = std::from_chars(digits.data(), digits.data() + digits.size(), number);
  if (error != std::errc{} || rest != digits.data() + digits.size() || number < 0) {
    return std::nullopt;
  }
  return number;
}

std::optional<int> localRank() noexcept {
  for (const char* const variable : kLocalRanks) {
    if (const std::optional<int> rank = numberIn(variable)) return rank;
  }
  return std::nullopt;
}

// Also before the runtime has started, and with it set the threshold.
bool saysMore() noexcept {
  const char* const level = std::getenv("GMAC_LOG");
  return logs(LogLevel::kInfo) || (level != nullptr && (std::string_view(level) == "info" ||
                                                        std::string_view(level) == "debug"));
}

}  // namespace

void spreadByLocalRank() noexcept { spreads.store(true, std::memory_order_release); }

bool hasDefaultDevice() noexcept {
  return numberIn("GMAC_DEVICE").has_value() ||
         (spreads.load(std::memory_order_acquire) && localRank().has_value());
}

Result<int> defaultDevice(int visible) {
  // (A value that is no number is refused when the runtime starts.)
  if (const std::optional<int> chosen = numberIn("GMAC_DEVICE")) {
    if (*chosen >= visible) {
      return gmac::fail(adsmErrorConfiguration,
                        "GMAC_DEVICE={}: the CUDA driver sees {}, so allowed is 0{}", *chosen,
                        visible == 1 ? "1 device" : fmt::format("{} devices", visible),
                        visible == 1 ? "" : fmt::format(" to {}", visible - 1));
    }
    return *chosen;
  }
  const std::optional<int> rank = localRank();
  if (!spreads.load(std::memory_order_acquire) || !rank.has_value()) {
    return 0;
  }
  const int device = *rank % visible;
  static std::atomic<bool> said{false};
  if (visible > 1 && saysMore() && !said.exchange(true)) {
    writeLogLine(
        fmt::format("mpi: local rank {} has device {} of {}, unless the program chooses one "
                    "itself (GMAC_DEVICE, cudaSetDevice)",
                    *rank, device, visible));
  }
  return device;
}

}  // namespace gmac::accel::cuda
