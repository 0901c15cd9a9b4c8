// SPDX-License-Identifier: Apache-2.0
//
// ./gmacw exchange's program: every message arrives by every way, and it says what it measured.
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "tests/neighbours/mpi_ranks.h"

namespace gmac::testing {
namespace {

namespace fs = std::filesystem;

class Transfers : public ::testing::TestWithParam<std::string> {
 protected:
  static ProgramEnd run(const std::vector<std::string>& arguments, int processes = 2) {
    std::vector<std::string> words = mpirun(GetParam(), processes, 240);
    words.push_back(fs::absolute("exchange/bench/transfers_" + GetParam()).string());
    words.insert(words.end(), arguments.begin(), arguments.end());
    return runProgram(words, mpiVariables());
  }
};

INSTANTIATE_TEST_SUITE_P(, Transfers, ::testing::Values("openmpi", "mpich"),
                         [](const auto& info) { return info.param; });

TEST_P(Transfers, ArriveByEveryWay) {
  const fs::path file = fs::temp_directory_path() /
                        ("transfers-" + GetParam() + std::to_string(::getpid()) + ".json");
  const std::vector<std::string> arguments = {"--repeat", "1",          "--only",   "MILC_su3_zd",
                                              "one-side", "WRF_y_vec",  "NAS_MG_z", "NAS_MG_x",
                                              "--json",   file.string()};
  const ProgramEnd end = run(arguments);
  ASSERT_EQ(end.exitStatus, 0) << end.seen();
  const auto runs = nlohmann::json::parse(std::ifstream(file), nullptr, false);
  fs::remove(file);
  ASSERT_TRUE(runs.is_array() && runs.size() == 1) << runs;
  EXPECT_EQ(runs[0]["mpi"], GetParam() == "openmpi" ? "Open MPI" : "MPICH");
  EXPECT_EQ(runs[0]["rows"].size(), 21U);
  for (const auto& row : runs[0]["rows"]) {
    EXPECT_EQ(row["right"], true) << row;
    EXPECT_EQ(row["us"].size(), 7U) << row;
    for (const auto& [way, us] : row["us"].items()) EXPECT_GT(us.get<double>(), 0) << row;
    EXPECT_NE(end.output.find(row["message"].get<std::string>()), std::string::npos);
  }
}

TEST_P(Transfers, WrongCommandLinesAreNamed) {
  const ProgramEnd unknown = run({"--only", "nothing"});
  EXPECT_EQ(unknown.exitStatus, 2) << unknown.seen();
  EXPECT_NE(unknown.errors.find("nothing"), std::string::npos) << unknown.seen();
  EXPECT_NE(unknown.errors.find("NAS_MG_z"), std::string::npos) << unknown.seen();
  const ProgramEnd alone = run({}, 1);
  EXPECT_NE(alone.exitStatus, 0);
  EXPECT_NE(alone.errors.find("there have to be 2"), std::string::npos) << alone.seen();
}

// ./gmacw exchange --devices, as far as it goes without a GPU.
TEST(Devices, SaysWhatItMeasuresAndWhatItNeeds) {
  const std::string program = fs::absolute("exchange/bench/devices/devices_openmpi").string();
  if (!fs::exists(program)) GTEST_SKIP() << "built without the CUDA toolkit";
  const auto run = [&](const std::vector<std::string>& arguments) {
    std::vector<std::string> words = mpirun("openmpi", 2, 60);
    words.push_back(program);
    words.insert(words.end(), arguments.begin(), arguments.end());
    return runProgram(words, mpiVariables());
  };
  const ProgramEnd list = run({"--list"});
  EXPECT_EQ(list.exitStatus, 0) << list.seen();
  EXPECT_NE(list.output.find("MILC_su3_zd\nNAS_MG\n"), std::string::npos) << list.seen();
  const ProgramEnd unknown = run({"--only", "nothing"});
  EXPECT_EQ(unknown.exitStatus, 2) << unknown.seen();
  EXPECT_NE(unknown.errors.find("SPECFEM3D_cm"), std::string::npos) << unknown.seen();
  const ProgramEnd bare = run({});
  EXPECT_NE(bare.exitStatus, 0) << bare.seen();
  EXPECT_NE(bare.errors.find("gmac is not loaded: mpirun -n 2 gmac run --mpi"), std::string::npos)
      << bare.seen();
}

}  // namespace
}  // namespace gmac::testing
