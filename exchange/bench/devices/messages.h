// SPDX-License-Identifier: Apache-2.0
//
// The messages between two device memories that are measured: FALCON-X, Figures 13 and 14, and the
// Open MPI paper, Figures 10 to 15, at the papers' sizes and larger.
#ifndef GMAC_EXCHANGE_BENCH_DEVICES_MESSAGES_H_
#define GMAC_EXCHANGE_BENCH_DEVICES_MESSAGES_H_

#include <string>
#include <vector>

#include "gmac/datatype/layout/layout.h"

namespace gmac::exchange::bench {

struct Message {
  std::string group;   // what --only takes, and a figure
  std::string series;  // within the figure; "": the figure has one
  std::string name;
  double x;  // where the figure has it
  datatype::Layout from;
  datatype::Layout to;
  // How much of each GPU other work takes meanwhile: a share of its multiprocessors.
  double busy = 0;
  // The most thread blocks of the kernels written by hand, which alone are measured then; 0: as
  // many as run best, and all ways.
  int blocks = 0;
  // Limits of the message with gmac: in microseconds, and as a multiple of the better kernel
  // written by hand. 0: nothing is promised. Between two GPUs.
  double mostUs = 0;
  double mostOfHand = 0;
};

std::vector<Message> messages();

struct Group {
  std::string name;
  std::string title;
  std::string xLabel;
};
std::vector<Group> groups();

}  // namespace gmac::exchange::bench

#endif  // GMAC_EXCHANGE_BENCH_DEVICES_MESSAGES_H_
