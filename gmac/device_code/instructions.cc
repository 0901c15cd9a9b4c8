// SPDX-License-Identifier: Apache-2.0
#include "gmac/device_code/instructions.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <unordered_set>

namespace gmac::device_code {
namespace {

template <std::size_t kCount>
bool isAmong(std::string_view word, const std::array<std::string_view, kCount>& words) {
  return std::find(words.begin(), words.end(), word) != words.end();
}

}  // namespace

Parts partsOf(std::string_view opcode) {
  Parts parts;
  for (std::size_t start = 0; start <= opcode.size();) {
    const std::size_t end = std::min(opcode.find('.', start), opcode.size());
    parts.push_back(opcode.substr(start, end - start));
    start = end + 1;
  }
  return parts;
}

bool has(const Parts& parts, std::string_view part) {
  return std::find(parts.begin() + 1, parts.end(), part) != parts.end();
}

bool isArithmetic(std::string_view opcode) {
  static const std::unordered_set<std::string_view> kOpcodes{
      "abs",   "activemask", "add",   "addc",   "and",      "bfe",      "bfi",       "bfind",
      "bmsk",  "brev",       "clz",   "cnot",   "copysign", "cos",      "cvt",       "div",
      "dp2a",  "dp4a",       "elect", "ex2",    "fma",      "fns",      "isspacep",  "lg2",
      "lop3",  "mad",        "mad24", "madc",   "match",    "max",      "min",       "mma",
      "mov",   "movmatrix",  "mul",   "mul24",  "neg",      "not",      "or",        "popc",
      "prmt",  "rcp",        "redux", "rem",    "rsqrt",    "sad",      "selp",      "set",
      "setp",  "shf",        "shfl",  "shl",    "shr",      "sin",      "slct",      "sqrt",
      "sub",   "subc",       "szext", "tanh",   "testp",    "vabsdiff", "vabsdiff2", "vabsdiff4",
      "vadd",  "vadd2",      "vadd4", "vavrg2", "vavrg4",   "vmad",     "vmax",      "vmax2",
      "vmax4", "vmin",       "vmin2", "vmin4",  "vote",     "vset",     "vset2",     "vset4",
      "vshl",  "vshr",       "vsub",  "vsub2",  "vsub4",    "xor",
  };
  return kOpcodes.contains(opcode);
}

bool isControl(std::string_view opcode) {
  static const std::unordered_set<std::string_view> kOpcodes{
      "bra", "brx",  "brkpt",     "exit",    "griddepcontrol", "membar",
      "ret", "trap", "nanosleep", "pmevent", "setmaxnreg",
  };
  return kOpcodes.contains(opcode);
}

bool isModifierOfAccess(std::string_view part) {
  static const std::unordered_set<std::string_view> kModifiers{
      "weak",    "volatile", "relaxed", "acquire", "release", "acq_rel", "sc",  "mmio", "cta",
      "cluster", "gpu",      "sys",     "nc",      "ca",      "cg",      "cs",  "cv",   "lu",
      "wb",      "wt",       "v2",      "v4",      "v8",      "noftz",   "add", "min",  "max",
      "and",     "or",       "xor",     "inc",     "dec",     "exch",    "cas",
  };
  return kModifiers.contains(part) || part.starts_with("L1::") || part.starts_with("L2::") ||
         part.starts_with("level::");
}

bool expectsWriters(const Parts& parts) {
  return has(parts, "volatile") || has(parts, "relaxed") || has(parts, "acquire") ||
         has(parts, "mmio") || has(parts, "cv");
}

bool isSpecialRegister(std::string_view name) {
  static const std::unordered_set<std::string_view> kNames{
      "%laneid",
      "%warpid",
      "%nwarpid",
      "%smid",
      "%nsmid",
      "%gridid",
      "%lanemask_eq",
      "%lanemask_le",
      "%lanemask_lt",
      "%lanemask_ge",
      "%lanemask_gt",
      "%clock",
      "%clock_hi",
      "%clock64",
      "%globaltimer",
      "%globaltimer_lo",
      "%globaltimer_hi",
      "%total_smem_size",
      "%aggr_smem_size",
      "%dynamic_smem_size",
      "%cluster_ctarank",
      "%cluster_nctarank",
      "%is_explicit_cluster",
      "WARP_SZ",
  };
  static constexpr std::array<std::string_view, 7> kVectors{
      "%tid", "%ntid", "%ctaid", "%nctaid", "%clusterid", "%nclusterid", "%cluster_ctaid"};
  static constexpr std::array<std::string_view, 3> kFields{"x", "y", "z"};
  if (kNames.contains(name)) {
    return true;
  }
  const std::size_t dot = name.find('.');
  if (dot == std::string_view::npos) {
    return false;
  }
  const std::string_view vector = name.substr(0, dot);
  return isAmong(name.substr(dot + 1), kFields) &&
         (isAmong(vector, kVectors) || vector == "%cluster_nctaid");
}

bool isEnvironment(std::string_view name) { return name == "%envreg1" || name == "%envreg2"; }

}  // namespace gmac::device_code
