// SPDX-License-Identifier: Apache-2.0
//
// The cost table: what packing must reach, line by line.
#ifndef GMAC_DATATYPES_COST_H_
#define GMAC_DATATYPES_COST_H_

#include <string>
#include <vector>

#include "datatypes/session.h"
#include "datatypes/type.h"
#include "datatypes/ways.h"
#include "datatypes/workload.h"

namespace datatypes {

// The target of a row.
struct Rule {
  enum class Kind {
    kTimesHand,  // at most `value` times the kernel written by hand
    kTimesBest,  // at most `value` times the quickest of all ways
    kOfBound,    // at least the share `value` of the bound's rate
    kOfCopy,     // at least the share `value` of a contiguous copy's rate
  };
  Kind kind;
  double value;
};

// One pack that is measured.
struct CostCase {
  std::string group;
  Workload workload;
  Place into = Place::kDevice;
  std::vector<Rule> rules;
  bool forceMethods = false;  // every method of the engine, too
  bool twoBlocks = false;     // the engine in two thread blocks, too
};

// All cases; `small` ones of the same layouts, for a machine without a GPU.
std::vector<CostCase> costCases(bool small);

// Checks every way to do a case, times them in turns, and judges.
Row measureOnGpu(Session& session, const CostCase& one);
// The engine alone, from a shared object that the accelerator has written.
Row measureWithoutGpu(Session& session, const CostCase& one);

// Measurements that are not of a CostCase.
void measureFirstUse(Session& session);
void measureSmallPacks(Session& session);
void measureCommits(Session& session);
void measureSharedFaces(Session& session);

std::vector<Group> costGroups();

}  // namespace datatypes

#endif  // GMAC_DATATYPES_COST_H_
