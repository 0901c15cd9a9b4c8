// SPDX-License-Identifier: Apache-2.0
//
// The figures and tables of the two papers, as far as one process on one GPU can draw them.
//   MPICH paper: Jenkins et al., "Enabling Fast, Noncontiguous GPU Data Movement in Hybrid MPI+GPU
//   Environments". Open MPI paper: Wu et al., "GPU-Aware Non-contiguous Data Movement in Open MPI".
#ifndef GMAC_DATATYPES_FIGURES_H_
#define GMAC_DATATYPES_FIGURES_H_

#include <vector>

#include "datatypes/session.h"

namespace datatypes {

std::vector<Group> mpichFigures();
std::vector<Group> openMpiFigures();

// A group that draws one figure; what fails in `draw` is the figure's error.
Group figureGroup(const char* name, const char* title,
                  void (*draw)(Session& session, Figure& figure));

}  // namespace datatypes

#endif  // GMAC_DATATYPES_FIGURES_H_
