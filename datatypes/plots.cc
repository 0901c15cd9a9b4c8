// SPDX-License-Identifier: Apache-2.0
#include "datatypes/plots.h"

#include <errno.h>
#include <fmt/core.h>
#include <spawn.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>

#include "datatypes/failure.h"

namespace datatypes {
namespace {

// Of a gnuplot string in single quotes.
std::string quoted(const std::string& text) {
  std::string result = "'";
  for (const char c : text) {
    if (c == '\'') result += c;
    result += c;
  }
  return result + "'";
}

void write(const std::filesystem::path& path, const std::string& text) {
  std::ofstream file(path);
  file << text;
  if (!file.flush()) {
    throw Failure(fmt::format("cannot write {}: {}", path.string(), strerror(errno)));
  }
}

// Draws with gnuplot, from within the folder. False where there is no gnuplot.
bool draw(const std::filesystem::path& folder, const std::vector<std::string>& scripts) {
  std::vector<std::string> words = {"gnuplot"};
  words.insert(words.end(), scripts.begin(), scripts.end());
  std::vector<char*> arguments;
  for (std::string& word : words) arguments.push_back(word.data());
  arguments.push_back(nullptr);
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_addchdir_np(&actions, folder.c_str());
  pid_t child = 0;
  const int error = posix_spawnp(&child, "gnuplot", &actions, nullptr, arguments.data(), environ);
  posix_spawn_file_actions_destroy(&actions);
  if (error == ENOENT) return false;
  if (error != 0) throw Failure(fmt::format("cannot start gnuplot: {}", strerror(error)));
  int status = 0;
  while (waitpid(child, &status, 0) < 0 && errno == EINTR) {
  }
  if (!WIFEXITED(status) || WEXITSTATUS(status) != 0) {
    throw Failure(fmt::format("gnuplot failed on the scripts in {}", folder.string()));
  }
  return true;
}

}  // namespace

std::string plotData(const Panel& panel) {
  std::string text = fmt::format("# {}\n# {}", panel.title, panel.xLabel);
  for (const std::string& name : panel.series) text += fmt::format(" | {}", name);
  text += '\n';
  for (const auto& [x, values] : panel.points) {
    text += panel.lines.empty()
                ? fmt::format("{:g}", x)
                : fmt::format("\"{}\"", panel.lines.at(static_cast<std::size_t>(x)));
    for (const std::string& name : panel.series) {
      const auto found = values.find(name);
      text += found == values.end() ? " ?" : fmt::format(" {:.6g}", found->second);
    }
    text += '\n';
  }
  return text;
}

std::string plotScript(const Panel& panel, const std::string& data, const std::string& svg) {
  std::string text = "set terminal svg size 640,420 dynamic background '#ffffff'\n";
  text += fmt::format("set output {}\n", quoted(svg));
  text += fmt::format("set title {} noenhanced\n", quoted(panel.title));
  text += fmt::format("set xlabel {} noenhanced\n", quoted(panel.xLabel));
  text += fmt::format("set ylabel {} noenhanced\n", quoted(panel.yLabel));
  text += "set datafile missing '?'\nset key outside below noenhanced\nset grid\n";
  if (panel.logX) text += "set logscale x 2\nset format x '2^{%L}'\n";
  if (panel.logY) text += "set logscale y\n";
  const bool bars = !panel.lines.empty();
  text += bars ? "set style data histograms\nset style fill solid 0.7\nset xtics rotate by -45 "
                 "noenhanced\nset yrange [0:*]\n"
               : "set style data linespoints\n";
  if (!bars && !panel.logY) text += "set yrange [0:*]\n";
  text += "plot ";
  for (std::size_t i = 0; i < panel.series.size(); ++i) {
    const auto column = i + 2;
    text += fmt::format("{}{} using {} title {}", i == 0 ? "" : ", \\\n     ", quoted(data),
                        bars ? fmt::format("{}:xtic(1)", column) : fmt::format("1:{}", column),
                        quoted(panel.series[i]));
  }
  return text + '\n';
}

std::string writePlots(const std::vector<Figure>& figures, const std::filesystem::path& folder) {
  std::error_code error;
  std::filesystem::create_directories(folder, error);
  if (error) {
    throw Failure(fmt::format("cannot create {}: {}", folder.string(), error.message()));
  }
  std::vector<std::string> scripts;
  for (const Figure& figure : figures) {
    for (const Panel& panel : figure.panels) {
      // Gnuplot takes data of no points for a mistake.
      if (panel.points.empty()) continue;
      const std::string stem = fmt::format("{}-{}", figure.name, panel.name);
      write(folder / (stem + ".dat"), plotData(panel));
      write(folder / (stem + ".gp"), plotScript(panel, stem + ".dat", stem + ".svg"));
      scripts.push_back(stem + ".gp");
    }
  }
  if (scripts.empty())
    return fmt::format("no figure was measured: nothing to plot in {}", folder.string());
  // Each script sets all that it needs, but one run would carry settings over.
  for (const std::string& script : scripts) {
    if (!draw(folder, {script})) {
      return fmt::format("{} scripts for gnuplot in {}; there is no gnuplot here to draw them",
                         scripts.size(), folder.string());
    }
  }
  return fmt::format("{} plots in {}", scripts.size(), folder.string());
}

}  // namespace datatypes
