// SPDX-License-Identifier: Apache-2.0
//
// The program's reports of its measurements: table, JSON, data and scripts for gnuplot.
#include "datatypes/results.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <set>
#include <sstream>
#include <string>

#include "datatypes/failure.h"
#include "datatypes/plots.h"
#include "datatypes/ways.h"
#include "tests/support/temporary_folder.h"

namespace datatypes {
namespace {

namespace fs = std::filesystem;
using ::testing::ContainsRegex;
using ::testing::HasSubstr;
using ::testing::Not;

Row someRow() {
  Row row;
  row.group = "vector";
  row.work = "vector 8 B @ 512 B";
  row.size = "1 MiB";
  row.into = "device";
  row.method = "kernel";
  row.us = {{"engine", 10}, {"hand", 8}, {"copy2d", 36}};
  row.boundUs = 2.5;
  row.verdicts = {{"<= 1.05 of hand", 1.05, 1.25, "", false},
                  {">= 20 % of bound", 20, 25, " %", true}};
  return row;
}

Figure someFigure() {
  Figure figure;
  figure.name = "mpich-fig4";
  figure.title = "A figure";
  Panel panel{"vector-8B", "It's a vector", "packed bytes", "time, us", true, true, {}, {}, {}};
  panel.set(64, "Pack", 8);
  panel.set(64, "CUDA", 9);
  panel.set(4096, "Pack", 10.5);
  figure.panels.push_back(panel);
  figure.notes = {"a note"};
  return figure;
}

std::string contents(const fs::path& path) {
  std::ostringstream text;
  text << std::ifstream(path).rdbuf();
  return text.str();
}

TEST(Verdict, IsMetOnTheRightSideOfItsLimit) {
  EXPECT_TRUE((Verdict{"", 1.05, 1.05, "", false}).met());
  EXPECT_FALSE((Verdict{"", 1.05, 1.06, "", false}).met());
  EXPECT_TRUE((Verdict{"", 80, 80, "", true}).met());
  EXPECT_FALSE((Verdict{"", 80, 79, "", true}).met());
}

TEST(Table, HasTimesRatiosAndEveryTarget) {
  const std::string table = toTable({someRow()});
  EXPECT_THAT(table, ContainsRegex("vector 8 B @ 512 B +1 MiB +device +kernel +10.0 +8.00 +36.0 "
                                   "+2.50 +1.25 +4.00 +<= 1.05 of hand +1.25 +MISSED"));
  EXPECT_THAT(table, ContainsRegex("\n +>= 20 % of bound +25.0 % +met"));
}

TEST(Table, ShowsWaysBesideALine) {
  Row row = someRow();
  row.us["copy"] = 9;
  row.us["engine, 2 blocks"] = 12;
  row.beside = {"engine, 2 blocks", "not measured"};
  const std::string table = toTable({row});
  EXPECT_THAT(table, ContainsRegex("\n  engine, 2 blocks +12.0 +75.0 % of a copy"));
  EXPECT_THAT(table, Not(HasSubstr("not measured")));
}

TEST(Table, NamesWhatFailed) {
  Row row = someRow();
  row.error = "hand: byte 3 is wrong";
  const std::string table = toTable({row});
  EXPECT_THAT(table, HasSubstr("FAILED"));
  EXPECT_THAT(table, HasSubstr("failed: vector 8 B @ 512 B, 1 MiB: hand: byte 3 is wrong"));
}

TEST(Results, AreRightWithoutErrorsAndMetWithoutMisses) {
  Results results;
  results.rows = {someRow()};
  EXPECT_TRUE(results.right());
  EXPECT_FALSE(results.allMet());
  results.rows[0].verdicts.erase(results.rows[0].verdicts.begin());
  EXPECT_TRUE(results.allMet());
  results.figures = {someFigure()};
  results.figures[0].error = "no memory";
  EXPECT_FALSE(results.right());
  results.figures.clear();
  results.rows[0].error = "wrong";
  EXPECT_FALSE(results.right());
}

TEST(Json, HasRowsFiguresAndWhatIsLeftOut) {
  Results results;
  results.device = "a device";
  results.rows = {someRow()};
  results.figures = {someFigure()};
  results.leftOut = {"small: no GPU"};
  const auto json = toJson(results);
  const auto& row = json["rows"][0];
  EXPECT_EQ(row["us"]["engine"], 10.0);
  EXPECT_EQ(row["us"]["bound"], 2.5);
  EXPECT_EQ(row["targets"][0]["atMost"], 1.05);
  EXPECT_EQ(row["targets"][0]["met"], false);
  EXPECT_EQ(row["targets"][1]["atLeast"], 20.0);
  EXPECT_FALSE(row.contains("error"));
  const auto& panel = json["figures"][0]["panels"][0];
  EXPECT_EQ(panel["points"][0]["x"], 64.0);
  EXPECT_EQ(panel["points"][0]["y"]["CUDA"], 9.0);
  EXPECT_FALSE(panel["points"][1]["y"].contains("CUDA"));
  EXPECT_EQ(json["leftOut"][0], "small: no GPU");
}

TEST(Plots, DataHasAColumnForEachSeries) {
  EXPECT_EQ(plotData(someFigure().panels[0]),
            "# It's a vector\n# packed bytes | Pack | CUDA\n64 8 9\n4096 10.5 ?\n");
}

TEST(Plots, DataOfATableHasItsLines) {
  Panel panel{"faces", "Faces", "face", "MB/s", false, false, {}, {}, {"64^3 X-Y", "64^3 Y-Z"}};
  panel.set(0, "Pack", 900);
  panel.set(1, "Pack", 800);
  EXPECT_THAT(plotData(panel), HasSubstr("\n\"64^3 X-Y\" 900\n\"64^3 Y-Z\" 800\n"));
  EXPECT_THAT(plotScript(panel, "d", "s"), HasSubstr("using 2:xtic(1)"));
}

TEST(Plots, ScriptsPlotEverySeriesAndQuote) {
  const std::string script = plotScript(someFigure().panels[0], "a.dat", "a.svg");
  EXPECT_THAT(script, HasSubstr("set title 'It''s a vector'"));
  EXPECT_THAT(script, HasSubstr("set logscale x 2"));
  EXPECT_THAT(script, HasSubstr("'a.dat' using 1:2 title 'Pack'"));
  EXPECT_THAT(script, HasSubstr("'a.dat' using 1:3 title 'CUDA'"));
}

class PlotFolder : public gmac::testing::FolderTest {
 protected:
  ~PlotFolder() override { setenv("PATH", path_.c_str(), 1); }
  // In place of gnuplot: does these words of shell in the folder of the script.
  void gnuplot(const std::string& words) {
    const fs::path program = folder_ / "bin" / "gnuplot";
    fs::create_directories(program.parent_path());
    std::ofstream(program) << "#!/bin/sh\n" << words << "\n";
    fs::permissions(program, fs::perms::owner_all);
    setenv("PATH", ((folder_ / "bin").string() + ":" + path_).c_str(), 1);
  }

  const std::string path_ = std::getenv("PATH");
};

TEST_F(PlotFolder, GetsDataScriptsAndWhatGnuplotDraws) {
  gnuplot("cp \"$1\" \"${1%.gp}.svg\"");
  const fs::path plots = folder_ / "new" / "plots";
  EXPECT_THAT(writePlots({someFigure()}, plots), HasSubstr("1 plots"));
  EXPECT_EQ(contents(plots / "mpich-fig4-vector-8B.dat"), plotData(someFigure().panels[0]));
  EXPECT_THAT(contents(plots / "mpich-fig4-vector-8B.gp"),
              HasSubstr("set output 'mpich-fig4-vector-8B.svg'"));
  EXPECT_TRUE(fs::exists(plots / "mpich-fig4-vector-8B.svg"));
}

TEST_F(PlotFolder, SaysWhereThereIsNoGnuplot) {
  setenv("PATH", folder_.c_str(), 1);
  EXPECT_THAT(writePlots({someFigure()}, folder_ / "plots"), HasSubstr("no gnuplot"));
  EXPECT_TRUE(fs::exists(folder_ / "plots" / "mpich-fig4-vector-8B.gp"));
}

TEST_F(PlotFolder, AGnuplotThatFailsIsAFailure) {
  gnuplot("exit 3");
  EXPECT_THROW(writePlots({someFigure()}, folder_ / "plots"), Failure);
}

TEST_F(PlotFolder, AFolderThatCannotBeMadeIsAFailure) {
  std::ofstream(folder_ / "file") << "no folder";
  EXPECT_THROW(writePlots({someFigure()}, folder_ / "file" / "plots"), Failure);
}

TEST(Ways, AreRunInTurnsAndComparedRoundByRound) {
  constexpr std::size_t kRounds = 16;
  std::string order;
  const Times times({{"a", [&] { order += 'a'; }, {}}, {"b", [&] { order += 'b'; }, {}}}, kRounds);
  // Two runs of each to learn how long they take, then the rounds: each with both, in either order.
  ASSERT_EQ(order.substr(0, 4), "aabb");
  const auto turnOf = [&](char way) {
    const auto runs = static_cast<std::size_t>(std::count(order.begin(), order.end(), way)) - 2;
    EXPECT_EQ(runs % kRounds, 0U);
    return std::string(runs / kRounds, way);
  };
  const std::string a = turnOf('a');
  const std::string b = turnOf('b');
  const std::size_t bytes = a.size() + b.size();
  std::set<std::string> rounds;
  for (std::size_t at = 4; at < order.size(); at += bytes) {
    rounds.insert(order.substr(at, bytes));
  }
  EXPECT_EQ(rounds, (std::set<std::string>{a + b, b + a}));
  EXPECT_TRUE(times.has("a"));
  EXPECT_FALSE(times.has("c"));
  EXPECT_FALSE(times.ratio("a", "c").has_value());
  EXPECT_EQ(times.ratio("a", "a"), 1.0);
  EXPECT_EQ(times.over("b", "b"), 0.0);
  EXPECT_EQ(times.quickest({"c", "a"}), "a");
  EXPECT_EQ(times.quickest({"c"}), "");
}

TEST(Ways, WhatComesBetweenIsDoneBeforeEveryRun) {
  std::string order;
  const Times times({{"a", [&] { order += 'a'; }, [&] { order += '-'; }}}, 2);
  EXPECT_THAT(order, ContainsRegex("^(-a)+$"));
}

}  // namespace
}  // namespace datatypes
