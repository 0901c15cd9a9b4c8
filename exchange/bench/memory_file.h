// SPDX-License-Identifier: Apache-2.0
//
// The memory that messages are sent from and received in: a file's, so that others can map it.
#ifndef GMAC_EXCHANGE_BENCH_MEMORY_FILE_H_
#define GMAC_EXCHANGE_BENCH_MEMORY_FILE_H_

#include <cstddef>
#include <cstdint>

namespace gmac::exchange::bench {

// Mapped, all pages there and all bytes kUntouched. Owner.
class MemoryFile {
 public:
  static constexpr std::byte kUntouched{0xEE};
  // Throws std::runtime_error.
  explicit MemoryFile(std::int64_t bytes);
  ~MemoryFile();
  MemoryFile(const MemoryFile&) = delete;
  MemoryFile& operator=(const MemoryFile&) = delete;

  std::byte* data() const { return data_; }
  std::size_t bytes() const { return bytes_; }  // whole pages
  int file() const { return file_; }

 private:
  std::size_t bytes_;
  int file_ = -1;
  std::byte* data_ = nullptr;
};

}  // namespace gmac::exchange::bench

#endif  // GMAC_EXCHANGE_BENCH_MEMORY_FILE_H_
