// SPDX-License-Identifier: Apache-2.0
//
// The measurements: rows of the cost table, figures, and what was left out.
#ifndef GMAC_DATATYPES_RESULTS_H_
#define GMAC_DATATYPES_RESULTS_H_

#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

namespace datatypes {

// One thing that a row must reach, and what it reached.
struct Verdict {
  std::string target;  // e.g. "1.05 of hand"
  double limit = 0;    // in `unit`
  double value = 0;
  std::string unit;  // "" for a ratio
  bool atLeast = false;
  bool met() const { return atLeast ? value >= limit : value <= limit; }
};

// One line of the cost table. Times in microseconds.
struct Row {
  std::string group;
  std::string work;
  std::string size;
  std::string method;                // that the engine chose; "" where it is no pack
  std::string into;                  // "device", "pinned", "cpu", "" where it is no pack
  std::map<std::string, double> us;  // by way: "engine", "hand", "copy2d", "copy", "empty", ...
  std::optional<double> boundUs;
  std::vector<Verdict> verdicts;
  std::vector<std::string> beside;  // ways that the table shows below the line
  std::string error;                // "": all outputs were right
  nlohmann::json details;           // what else is known: the engine's report, its canonical form
};

// One diagram of a figure: y over x for each series; a point that was not measured is missing.
struct Panel {
  std::string name;  // of its files: "vector-8B"
  std::string title;
  std::string xLabel;
  std::string yLabel;
  bool logX = false;
  bool logY = false;
  std::vector<std::string> series;
  std::map<double, std::map<std::string, double>> points;
  // Of the table that a panel is where its lines have names: x is the number of the line.
  std::vector<std::string> lines;

  void set(double x, const std::string& name, double y);
};

struct Figure {
  std::string name;  // "mpich-fig4"
  std::string title;
  std::vector<Panel> panels;
  std::vector<std::string> notes;  // what differs from the paper, and what is left for later
  std::string error;
};

struct Results {
  std::string device;
  std::string accelerator;
  std::vector<Row> rows;
  std::vector<Figure> figures;
  std::vector<std::string> leftOut;

  bool right() const;   // nothing failed, no output was wrong
  bool allMet() const;  // every target that could be measured
};

std::string toTable(const std::vector<Row>& rows);
std::string toText(const Figure& figure);
nlohmann::ordered_json toJson(const Results& results);

}  // namespace datatypes

#endif  // GMAC_DATATYPES_RESULTS_H_
