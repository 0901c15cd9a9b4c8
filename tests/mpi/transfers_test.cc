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
  static ProgramEnd run(const std::vector<std::string>& arguments, int processes = 2,
                        const std::string& program = "transfers_") {
    std::vector<std::string> words = mpirun(GetParam(), processes, 240);
    words.push_back(fs::absolute("exchange/bench/" + program + GetParam()).string());
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

// Figures have more rows than single messages.
TEST_P(Transfers, FiguresCompareTheStepsAndTheExchangesOfLayouts) {
  const fs::path folder =
      fs::temp_directory_path() / ("figures-" + GetParam() + std::to_string(::getpid()));
  const fs::path file = folder / "all.json";
  fs::create_directories(folder);
  const ProgramEnd end = run({"--repeat", "1", "--only", "steps", "lists", "--json", file.string(),
                              "--plots", folder.string()});
  ASSERT_EQ(end.exitStatus, 0) << end.seen();
  const auto runs = nlohmann::json::parse(std::ifstream(file), nullptr, false);
  ASSERT_TRUE(runs.is_array() && runs.size() == 1) << runs;
  int steps = 0;
  int streams = 0;
  for (const auto& row : runs[0]["rows"]) {
    EXPECT_EQ(row["right"], true) << row;
    if (row["group"] == "steps") {
      ++steps;
      EXPECT_EQ(row["us"].size(), 5U) << row;
      for (const char* const step : {"translation", "exchange", "addresses", "copy"}) {
        EXPECT_GT(row["stepsUs"][step].get<double>(), 0) << row;
      }
    } else {
      ++streams;
      for (const char* const rates : {"us", "oneWayGBps", "bothWaysGBps"}) {
        EXPECT_EQ(row[rates].size(), 6U) << row;
        EXPECT_GT(row[rates]["naive"].get<double>(), 0) << row;
        EXPECT_GT(row[rates]["pipelined"].get<double>(), 0) << row;
      }
    }
  }
  EXPECT_EQ(steps, 5);
  EXPECT_EQ(streams, 8);
  for (const char* const panel : {"steps", "messages"}) {
    EXPECT_TRUE(fs::exists(folder / ("transfers-steps-" + GetParam() + "-" + panel + ".gp")));
  }
  for (const char* const panel : {"", "-one-way", "-both-ways"}) {
    EXPECT_TRUE(fs::exists(folder / ("transfers-lists-" + GetParam() + panel + ".dat")));
  }
  fs::remove_all(folder);
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

TEST_P(Transfers, FacesOfAStencilArrive) {
  const fs::path file =
      fs::temp_directory_path() / ("stencil-" + GetParam() + std::to_string(::getpid()) + ".json");
  // (In three dimensions from eight processes on.)
  const ProgramEnd end =
      run({"--repeat", "1", "--edge", "18", "--json", file.string()}, 8, "stencil_3d_");
  ASSERT_EQ(end.exitStatus, 0) << end.seen();
  const auto runs = nlohmann::json::parse(std::ifstream(file), nullptr, false);
  fs::remove(file);
  ASSERT_TRUE(runs.is_array() && runs.size() == 1) << runs;
  ASSERT_EQ(runs[0]["rows"].size(), 3U) << runs;
  for (const auto& row : runs[0]["rows"]) {
    EXPECT_EQ(row["right"], true) << row;
    EXPECT_EQ(row["us"].size(), 3U) << row;
  }
  EXPECT_EQ(runs[0]["rows"][2]["grid"], nlohmann::json::parse("[2,2,2]"));
}

TEST_P(Transfers, WrongCommandLinesOfTheStencilAreNamed) {
  const auto says = [](const ProgramEnd& end, const char* words) {
    EXPECT_NE(end.exitStatus, 0) << end.seen();
    EXPECT_NE(end.errors.find(words), std::string::npos) << end.seen();
  };
  says(run({"--edge", "2"}, 2, "stencil_3d_"), "--edge: Value 2 not in range 4 to 1024");
  says(run({"--edge", "4"}, 5, "stencil_3d_"), "--edge 4: 5 processes need at least 5");
  says(run({}, 1, "stencil_3d_"), "there have to be 2 or more");
  // A group of the other program is none of this one's, and no mistake.
  const ProgramEnd other = run({"--only", "MILC_su3_zd"}, 2, "stencil_3d_");
  EXPECT_EQ(other.exitStatus, 0) << other.seen();
  EXPECT_EQ(other.output, "");
  const ProgramEnd stencil = run({"--only", "3D-stencil"});
  EXPECT_EQ(stencil.exitStatus, 0) << stencil.seen();
  EXPECT_EQ(stencil.output, "");
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
