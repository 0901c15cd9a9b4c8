// SPDX-License-Identifier: Apache-2.0
//
// The program as a user meets it: on the host accelerator, and with a GPU where there is one.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <set>
#include <sstream>
#include <string>

#include "tests/support/temporary_folder.h"

namespace datatypes {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

constexpr const char* kNoGpu = "CUDA_VISIBLE_DEVICES= GMAC_ACCEL=host";

class Program : public gmac::testing::FolderTest {
 protected:
  int run(const std::string& words, const std::string& variables = kNoGpu) {
    const std::string line = variables + " " + fs::absolute("datatypes/datatypes").string() + " " +
                             words + " >" + (folder_ / "out").string() + " 2>" +
                             (folder_ / "err").string();
    const int status = std::system(line.c_str());
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  }
  std::string contents(const fs::path& name) {
    std::ostringstream text;
    text << std::ifstream(folder_ / name).rdbuf();
    return text.str();
  }
  nlohmann::json json(const fs::path& name) { return nlohmann::json::parse(contents(name)); }
};

TEST_F(Program, AnswersWrongWordsWithTheRightOnes) {
  EXPECT_EQ(run("--only vector sphere"), 2);
  EXPECT_THAT(contents("err"), AllOf(HasSubstr("'sphere'"), HasSubstr("triangle"),
                                     HasSubstr("mpich-fig4"), HasSubstr("openmpi-fig14")));
  EXPECT_EQ(run("--repeat 0"), 2);
  EXPECT_THAT(contents("err"), HasSubstr("--repeat"));
  EXPECT_EQ(run("--first-pack nowhere"), 2);
  EXPECT_THAT(contents("err"), AllOf(HasSubstr("nowhere"), HasSubstr("pinned")));
  EXPECT_EQ(run("--first-pack device"), 1);
  EXPECT_THAT(contents("err"), HasSubstr("needs a GPU: GMAC_ACCEL is host"));
  EXPECT_EQ(run("--repeat many"), 2);
  EXPECT_EQ(run("--colour"), 2);
  EXPECT_THAT(contents("err"), HasSubstr("--help"));
  EXPECT_EQ(run("--help"), 0);
  EXPECT_THAT(contents("out"), AllOf(HasSubstr("--plots"), HasSubstr("--gate")));
}

TEST_F(Program, ListsWhatOnlyTakes) {
  EXPECT_EQ(run("--list"), 0);
  EXPECT_THAT(contents("out"), AllOf(HasSubstr("faces "), HasSubstr("mpich-table3 ")));
  EXPECT_THAT(contents("err"), IsEmpty());
}

TEST_F(Program, WithoutAGpuMeasuresEveryLayoutOnTheHostAndSaysWhatItLeavesOut) {
  const fs::path file = folder_ / "all.json";
  EXPECT_EQ(run("--repeat 1 --json " + file.string() + " --plots " + (folder_ / "plots").string()),
            0)
      << contents("out") << contents("err");
  const auto all = json("all.json");
  EXPECT_EQ(all["accelerator"], "host");
  std::set<std::string> measured;
  for (const auto& row : all["rows"]) {
    SCOPED_TRACE(row.dump());
    measured.insert(row["group"]);
    EXPECT_GT(row["us"]["engine"], 0.0);
    EXPECT_FALSE(row.contains("error"));
    EXPECT_FALSE(row["us"].contains("hand"));
  }
  EXPECT_EQ(measured, (std::set<std::string>{"vector", "vectors", "submatrix", "triangle",
                                             "subarray", "indexed", "indexed-pairs", "structs",
                                             "transpose", "nested", "faces", "commit", "shared"}));
  EXPECT_THAT(all["figures"], IsEmpty());
  const std::string out = contents("out");
  for (const char* name : {"left out: small: ", "left out: pipeline: ", "left out: mpich-fig4: ",
                           "left out: openmpi-fig14: ", "left out: hand, copy2d and bound"}) {
    EXPECT_THAT(out, HasSubstr(name));
  }
  EXPECT_THAT(out, AllOf(HasSubstr("engine us"), HasSubstr("structs {double, int[2], char}"),
                         HasSubstr("nothing to plot"), Not(HasSubstr("FAILED"))));
}

TEST_F(Program, AFaceOfASharedGridMovesAloneAndWithoutAFault) {
  const fs::path file = folder_ / "shared.json";
  ASSERT_EQ(run("--only shared --repeat 1 --gate --json " + file.string()), 0)
      << contents("out") << contents("err");
  const auto all = json("shared.json");
  ASSERT_EQ(all["rows"].size(), 3U);
  for (const auto& row : all["rows"]) {
    EXPECT_EQ(row["details"]["faults"], 0.0);
    EXPECT_EQ(row["details"]["gridBytes"], 64 * 64 * 64 * 8);
    ASSERT_EQ(row["targets"].size(), 2U);
    EXPECT_EQ(row["targets"][0]["atMost"], 64.0 * 64 * 8);
    EXPECT_EQ(row["targets"][0]["met"], true);
    EXPECT_EQ(row["targets"][1]["met"], true);
  }
}

TEST_F(Program, AFileThatCannotBeWrittenCostsNoRun) {
  EXPECT_EQ(run("--only vector --json /no/such/folder/x"), 1);
  EXPECT_THAT(contents("err"), AllOf(HasSubstr("/no/such/folder/x"), Not(HasSubstr("measuring"))));
}

// Every way is compared with the reference before it is timed.
TEST_F(Program, WithAGpuAllWaysAgree) {
  const std::string file = (folder_ / "gpu.json").string();
  ASSERT_NE(run("--only structs small shared mpich-fig5 --repeat 3 --json " + file, ""), 2);
  const auto all = json("gpu.json");
  if (all["accelerator"] == "host") GTEST_SKIP() << all["device"];
  for (const auto& row : all["rows"]) {
    EXPECT_FALSE(row.contains("error")) << row.dump();
  }
  EXPECT_TRUE(all["rows"][0]["us"].contains("hand"));
  ASSERT_EQ(all["figures"].size(), 1U);
  EXPECT_FALSE(all["figures"][0].contains("error")) << all["figures"][0]["error"];
  EXPECT_EQ(all["figures"][0]["panels"].size(), 4U);
}

}  // namespace
}  // namespace datatypes
