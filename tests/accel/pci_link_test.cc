// SPDX-License-Identifier: Apache-2.0
#include "gmac/accel/cuda/pci_link.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <string>

namespace gmac::accel::cuda {
namespace {

namespace fs = std::filesystem;

// A device below its port, as in /sys.
class PciLinkRate : public ::testing::Test {
 protected:
  void SetUp() override {
    fs::remove_all(root_);
    fs::create_directories(port_ / "0000:1b:00.0");
    fs::create_directories(devices_);
    fs::create_directory_symlink(port_ / "0000:1b:00.0", devices_ / "0000:1b:00.0");
  }
  static void write(const fs::path& path, const std::string& text) { std::ofstream(path) << text; }
  void device(const char* speed, const char* width) const {
    write(port_ / "0000:1b:00.0/max_link_speed", std::string(speed) + "\n");
    write(port_ / "0000:1b:00.0/current_link_width", std::string(width) + "\n");
  }
  double rate() const { return pciLinkRate(devices_, "0000:1b:00.0"); }

  const fs::path root_ = fs::path(::testing::TempDir()) / "pci_link";
  const fs::path port_ = root_ / "pci0000:1a/0000:1a:01.0";
  const fs::path devices_ = root_ / "devices";
};

TEST_F(PciLinkRate, IsOfSpeedAndWidth) {
  device("32.0 GT/s PCIe", "16");
  EXPECT_NEAR(rate(), 63015, 1);
  device("16.0 GT/s PCIe", "8");
  EXPECT_NEAR(rate(), 15754, 1);
  device("5 GT/s", "16");
  EXPECT_NEAR(rate(), 8000, 1);
}

TEST_F(PciLinkRate, IsNoFasterThanThePort) {
  device("32.0 GT/s PCIe", "16");
  write(port_ / "max_link_speed", "16.0 GT/s PCIe\n");
  EXPECT_NEAR(rate(), 31508, 1);
  write(port_ / "max_link_speed", "64.0 GT/s PCIe\n");
  EXPECT_NEAR(rate(), 63015, 1);
  write(port_ / "max_link_speed", "Unknown\n");
  EXPECT_NEAR(rate(), 63015, 1);
}

TEST_F(PciLinkRate, IsZeroWhereItIsNotSaid) {
  EXPECT_EQ(rate(), 0);
  device("Unknown", "16");
  EXPECT_EQ(rate(), 0);
  device("32.0 GT/s PCIe", "0");
  EXPECT_EQ(rate(), 0);
  EXPECT_EQ(pciLinkRate(devices_, "0000:ff:00.0"), 0);
}

}  // namespace
}  // namespace gmac::accel::cuda
