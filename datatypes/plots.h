// SPDX-License-Identifier: Apache-2.0
#ifndef GMAC_DATATYPES_PLOTS_H_
#define GMAC_DATATYPES_PLOTS_H_

#include <filesystem>
#include <string>
#include <vector>

#include "datatypes/results.h"

namespace datatypes {

// For gnuplot: a panel's points as columns (x, then one for each series, "?" where nothing was
// measured), and a script that draws them into `svg`.
std::string plotData(const Panel& panel);
std::string plotScript(const Panel& panel, const std::string& data, const std::string& svg);

// Writes FIGURE-PANEL.dat and .gp for every panel into `folder`, which is made, and draws the .svg
// where gnuplot is found. Returns what there is to say about it. Throws Failure when a file cannot
// be written or gnuplot fails.
std::string writePlots(const std::vector<Figure>& figures, const std::filesystem::path& folder);

}  // namespace datatypes

#endif  // GMAC_DATATYPES_PLOTS_H_
