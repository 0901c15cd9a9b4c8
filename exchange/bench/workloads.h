// SPDX-License-Identifier: Apache-2.0
//
// The messages that are measured: the application kernels of FALCON-X, Table 3, at growing sizes,
// and plain vectors.
#ifndef GMAC_EXCHANGE_BENCH_WORKLOADS_H_
#define GMAC_EXCHANGE_BENCH_WORKLOADS_H_

#include <string>
#include <vector>

#include "gmac/datatype/layout/layout.h"

namespace gmac::exchange::bench {

// One message: both sides' layouts, of the same number of bytes.
struct Workload {
  std::string group;  // what --only takes
  std::string name;
  datatype::Layout from;
  datatype::Layout to;
  // Of the time of an MPI_Send and MPI_Recv of the same datatypes; 0: nothing is promised.
  double most = 0;
};

std::vector<Workload> workloads();
// The groups, each once, in that order.
std::vector<std::string> groupNames();

}  // namespace gmac::exchange::bench

#endif  // GMAC_EXCHANGE_BENCH_WORKLOADS_H_
