// SPDX-License-Identifier: Apache-2.0
//
// Finds and watches the host accelerator's device process.
#ifndef GMAC_TESTS_ACCEL_DEVICE_PROCESS_H_
#define GMAC_TESTS_ACCEL_DEVICE_PROCESS_H_

#include <poll.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <string>

namespace gmac::accel::conformance {

// The device process that watches `application`, found by its name and by the process that its
// pidfd stands for. 0: none.
inline pid_t deviceProcessOf(pid_t application) {
  namespace fs = std::filesystem;
  std::error_code error;
  for (const fs::directory_entry& process : fs::directory_iterator("/proc", error)) {
    std::string name;
    std::ifstream(process.path() / "comm") >> name;
    if (name != "gmac-device") {
      continue;
    }
    for (const fs::directory_entry& file :
         fs::directory_iterator(process.path() / "fdinfo", error)) {
      std::ifstream lines(file.path());
      for (std::string line; std::getline(lines, line);) {
        if (line == "Pid:\t" + std::to_string(application)) {
          return std::stoi(process.path().filename());
        }
      }
    }
  }
  return 0;
}

// Watches a process from before it ends, so that its number cannot mean another one.
class Watched {
 public:
  explicit Watched(pid_t pid) : fd_(static_cast<int>(syscall(SYS_pidfd_open, pid, 0))) {}
  ~Watched() { close(fd_); }
  Watched(const Watched&) = delete;
  Watched& operator=(const Watched&) = delete;
  bool found() const { return fd_ >= 0; }
  // Waits for the end. The limit is there to end a failing test; nothing is measured.
  bool ends() const {
    pollfd watched{fd_, POLLIN, 0};
    return poll(&watched, 1, 10'000) == 1;
  }
  bool runs() const {
    pollfd watched{fd_, POLLIN, 0};
    return poll(&watched, 1, 0) == 0;
  }

 private:
  const int fd_;
};

}  // namespace gmac::accel::conformance

#endif  // GMAC_TESTS_ACCEL_DEVICE_PROCESS_H_
