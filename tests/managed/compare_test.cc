// SPDX-License-Identifier: Apache-2.0
//
// The comparer, with shell scripts in place of the programs and of `gmac`: which results count as
// equal, what it measures, and what it reports when a run fails.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>

#include "managed/compare/child.h"
#include "managed/compare/comparison.h"
#include "managed/compare/report.h"

namespace managed::compare {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using ::testing::SizeIs;

// Writes RESULT to the file after --output, and its line, with SECONDS in it. A word of the command
// line is kept in the file `words`, one line for each run.
constexpr const char* kGood = R"(
for word; do [ "$previous" = --output ] && output=$word; previous=$word; done
echo "${UNDER:-managed} $*" >>"$(dirname "$0")/words"
printf "$RESULT" >"$output"
echo "{\"checksum\": \"12\", \"seconds\": $SECONDS_TAKEN, \"note\": \"$NOTE\"}"
)";

class Compare : public ::testing::Test {
 protected:
  void SetUp() override {
    options_.size = "small";
    options_.repeats = 3;
    options_.accelerators = {"cuda"};
    options_.protocols = {"rolling"};
    options_.programs = {"jacobi"};
    options_.runtimes = {"static"};
    options_.timeoutSeconds = 20;
    options_.programFolder = folder_.path();
    options_.gmacCommand = folder_.path() / "gmac";
    // Runs what stands after "--".
    script("gmac", R"(while [ "$1" != -- ]; do UNDER="$UNDER$1 "; shift; done
shift; export UNDER; exec "$@" )");
    ::testing::internal::CaptureStderr();  // progress
  }
  void TearDown() override { ::testing::internal::GetCapturedStderr(); }

  void script(const std::string& name, const std::string& body) {
    const fs::path path = folder_.path() / name;
    fs::create_directories(path.parent_path());
    std::ofstream(path) << "#!/bin/sh\n" << body << "\n";
    fs::permissions(path, fs::perms::owner_all);
  }

  // The program, good but for what `before` sets or does.
  void program(const std::string& before, const std::string& name = "static/jacobi") {
    script(name, "RESULT=bytes SECONDS_TAKEN=0.5 NOTE=\n" + before + kGood);
  }

  ScratchFolder folder_;
  Options options_;
};

TEST_F(Compare, EqualResultsAreEqualAndTimesAreSideBySide) {
  program(R"(case $UNDER in *managed*) SECONDS_TAKEN=0.25;; esac)");
  const Comparison comparison = compareAll(options_);
  ASSERT_THAT(comparison.rows, SizeIs(1));
  const Row& row = comparison.rows[0];
  EXPECT_TRUE(row.equal);
  EXPECT_TRUE(comparison.allEqual());
  EXPECT_THAT(row.managed.seconds, ElementsAre(0.5, 0.5, 0.5));
  EXPECT_THAT(row.gmac.seconds, ElementsAre(0.25, 0.25, 0.25));
  const std::string table = toTable(comparison);
  EXPECT_THAT(table,
              ::testing::ContainsRegex("jacobi +static +cuda +rolling +0.5000 +0.2500 +0.50 +yes"));
}

TEST_F(Compare, RunsInTurnAndChecksTheFirstOfEachWay) {
  options_.protocols = {"rolling", "lazy"};
  options_.repeats = 2;
  program("");
  ASSERT_TRUE(compareAll(options_).allEqual());
  std::ifstream words(folder_.path() / "static/words");
  std::vector<std::string> lines;
  for (std::string line; std::getline(words, line);) lines.push_back(line);
  const auto managedWay = HasSubstr("managed --size small");
  const auto rolling = HasSubstr("run --managed --accel cuda --protocol rolling");
  const auto lazy = HasSubstr("run --managed --accel cuda --protocol lazy");
  const auto unchecked = HasSubstr("--no-check");
  EXPECT_THAT(lines, ElementsAre(AllOf(managedWay, Not(unchecked)), AllOf(rolling, Not(unchecked)),
                                 AllOf(lazy, Not(unchecked)), AllOf(managedWay, unchecked),
                                 AllOf(rolling, unchecked), AllOf(lazy, unchecked)));
}

TEST_F(Compare, OneOtherByteUnderGmacIsADifference) {
  program(R"(case $UNDER in *managed*) RESULT=bytez;; esac)");
  const Comparison comparison = compareAll(options_);
  ASSERT_THAT(comparison.rows, SizeIs(1));
  EXPECT_FALSE(comparison.rows[0].equal);
  EXPECT_FALSE(comparison.allEqual());
  EXPECT_THAT(toTable(comparison), AllOf(HasSubstr("NO"), HasSubstr("the result is another one")));
}

TEST_F(Compare, ALongerAndAShorterResultAreDifferences) {
  program(R"(case $UNDER in *managed*) RESULT=bytesx;; esac)");
  EXPECT_FALSE(compareAll(options_).allEqual());
  program(R"(case $UNDER in *managed*) RESULT=byte;; esac)");
  EXPECT_FALSE(compareAll(options_).allEqual());
}

TEST_F(Compare, AResultThatChangesInALaterRunIsADifference) {
  program(R"sh(words=$(dirname "$0")/words
[ -e "$words" ] && [ "$(wc -l <"$words")" -ge 5 ] && RESULT=other)sh");
  EXPECT_FALSE(compareAll(options_).allEqual());
}

TEST_F(Compare, AProgramThatFindsItsResultWrongIsAFailure) {
  program(R"(case $UNDER in *managed*) echo "jacobi: wrong: cell 3" >&2; exit 1;; esac)");
  const Comparison comparison = compareAll(options_);
  EXPECT_FALSE(comparison.allEqual());
  EXPECT_THAT(toTable(comparison), HasSubstr("exit status 1: jacobi: wrong: cell 3"));
}

TEST_F(Compare, AProgramThatFailsWithManagedMemoryIsNotCalledEqual) {
  program(R"([ -n "$UNDER" ] || { echo "no memory" >&2; exit 1; })");
  const Comparison comparison = compareAll(options_);
  ASSERT_THAT(comparison.rows, SizeIs(1));
  EXPECT_FALSE(comparison.rows[0].equal);
  EXPECT_THAT(comparison.rows[0].gmac.seconds, SizeIs(3));
  EXPECT_THAT(toTable(comparison), HasSubstr("no memory"));
}

TEST_F(Compare, ACrashAndAHangAreNamed) {
  program(R"(case $UNDER in *managed*) kill -SEGV $$;; esac)");
  EXPECT_THAT(toTable(compareAll(options_)), HasSubstr("killed by signal 11"));
  options_.timeoutSeconds = 1;
  program(R"(case $UNDER in *managed*) sleep 600;; esac)");
  const Comparison comparison = compareAll(options_);
  EXPECT_FALSE(comparison.allEqual());
  EXPECT_THAT(toTable(comparison), HasSubstr("did not end in time"));
}

TEST_F(Compare, AProgramThatSaysNothingIsAFailure) {
  program(R"(exit 0)");
  const Comparison comparison = compareAll(options_);
  EXPECT_FALSE(comparison.allEqual());
  EXPECT_THAT(toTable(comparison), HasSubstr("did not print its line"));
}

TEST_F(Compare, WithoutAGpuEveryProgramIsLeftOutByName) {
  options_.programs = {"jacobi", "kmeans"};
  program(R"(echo "jacobi: no GPU: none here" >&2; exit 77)");
  const Comparison comparison = compareAll(options_);
  EXPECT_THAT(comparison.rows, IsEmpty());
  EXPECT_TRUE(comparison.allEqual());
  EXPECT_THAT(toTable(comparison), AllOf(HasSubstr("skipped: jacobi static: jacobi: no GPU"),
                                         HasSubstr("skipped: kmeans static: not built")));
}

TEST_F(Compare, AGpuThatOnlyGmacDoesNotFindIsAFailure) {
  program(R"(case $UNDER in *managed*) echo "no GPU" >&2; exit 77;; esac)");
  EXPECT_FALSE(compareAll(options_).allEqual());
}

TEST_F(Compare, NotesAreShown) {
  program("NOTE='through a buffer'");
  EXPECT_THAT(toTable(compareAll(options_)),
              HasSubstr("note: jacobi static cuda rolling, managed: through a buffer"));
}

TEST_F(Compare, RealManagedMemoryRunsWithoutTheUsersVariables) {
  setenv("GMAC_TEST_MARK", "mark", 1);
  program(R"([ -n "$UNDER" ] && [ "$GMAC_TEST_MARK" != mark ] && exit 1
[ -z "$UNDER" ] && [ -n "$GMAC_TEST_MARK" ] && exit 1)");
  EXPECT_TRUE(compareAll(options_).allEqual()) << toTable(compareAll(options_));
  unsetenv("GMAC_TEST_MARK");
}

TEST_F(Compare, JsonHasEveryRun) {
  program("");
  const auto json = toJson(compareAll(options_), options_);
  EXPECT_EQ(json["repeats"], 3);
  ASSERT_EQ(json["rows"].size(), 1U);
  EXPECT_EQ(json["rows"][0]["program"], "jacobi");
  EXPECT_EQ(json["rows"][0]["equal"], true);
  EXPECT_EQ(json["rows"][0]["ratio"], 1.0);
  EXPECT_EQ(json["rows"][0]["gmac"]["seconds"].size(), 3U);
}

TEST_F(Compare, TheMedianIsTheMiddleOne) {
  EXPECT_EQ((Measured{{3, 1, 2}, "", "", ""}).median(), 2);
  EXPECT_EQ((Measured{{4, 1}, "", "", ""}).median(), 2.5);
  EXPECT_EQ(Measured{}.median(), 0);
}

// The command itself: what its exit status and its file say.
class CompareCommand : public Compare {
 protected:
  int command(const std::string& words) {
    const std::string line = fs::absolute("managed/compare/compare").string() + " --programs-in " +
                             folder_.path().string() + " --gmac " + options_.gmacCommand.string() +
                             " " + words + " >" + (folder_.path() / "out").string() + " 2>&1";
    const int status = std::system(line.c_str());
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  }
  std::string contents(const std::string& name) {
    std::ostringstream text;
    text << std::ifstream(folder_.path() / name).rdbuf();
    return text.str();
  }
};

TEST_F(CompareCommand, EndsWithWhetherAllIsEqual) {
  const std::string json = (folder_.path() / "runs.json").string();
  program("");
  EXPECT_EQ(command("--program jacobi --runtime static --json " + json), 0);
  EXPECT_THAT(contents("out"), HasSubstr("yes"));
  EXPECT_THAT(contents("runs.json"), HasSubstr("\"equal\": true"));
  program(R"(case $UNDER in *managed*) RESULT=other;; esac)");
  EXPECT_EQ(command("--program jacobi --runtime static"), 1);
}

TEST_F(CompareCommand, AnswersWrongWordsWithTheRightOnes) {
  EXPECT_EQ(command("--size huge"), 2);
  EXPECT_THAT(contents("out"), HasSubstr("medium"));
  EXPECT_EQ(command("--protocol eager"), 2);
  EXPECT_THAT(contents("out"), HasSubstr("batch, lazy, rolling"));
  EXPECT_EQ(command("--program life"), 2);
  EXPECT_THAT(contents("out"), HasSubstr("graph_traversal"));
  EXPECT_EQ(command("--repeats 0"), 2);
  EXPECT_EQ(command("--help"), 0);
}

TEST_F(CompareCommand, AFileThatCannotBeWrittenCostsNoRun) {
  program("");
  EXPECT_EQ(command("--program jacobi --runtime static --json /no/such/folder/x"), 1);
  EXPECT_FALSE(fs::exists(folder_.path() / "static/words"));
}

}  // namespace
}  // namespace managed::compare
