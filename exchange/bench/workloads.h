// SPDX-License-Identifier: Apache-2.0
//
// The messages that are measured: those of FALCON-X's figures, and plain vectors.
#ifndef GMAC_EXCHANGE_BENCH_WORKLOADS_H_
#define GMAC_EXCHANGE_BENCH_WORKLOADS_H_

#include <string>
#include <vector>

#include "exchange/bench/ways.h"
#include "gmac/datatype/layout/layout.h"

namespace gmac::exchange::bench {

// One message: both sides' layouts, of the same number of bytes.
struct Workload {
  std::string group;
  std::string name;
  double x;  // where the figure has it
  datatype::Layout from;
  datatype::Layout to;
  std::string series;  // of a figure that has more than one; else ""
  // Of the time of an MPI_Send and MPI_Recv of the same datatypes; 0: nothing is promised.
  double most = 0;
};

struct Group {
  std::string name;   // what --only takes
  std::string title;  // of its figure; "": it has none
  std::string xLabel;
  std::vector<Way> ways;
  bool streams = false;  // many messages at once too, one way and both ways
  bool steps = false;    // the steps of a message, each alone
};

// The group that stencil_3d measures.
inline constexpr const char* kStencilGroup = "3D-stencil";

std::vector<Workload> workloads();
// In the order of the workloads.
std::vector<Group> groups();

}  // namespace gmac::exchange::bench

#endif  // GMAC_EXCHANGE_BENCH_WORKLOADS_H_
