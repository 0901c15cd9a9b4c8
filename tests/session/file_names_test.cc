// SPDX-License-Identifier: Apache-2.0
#include "gmac/session/file_names.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <string>
#include <string_view>

namespace gmac {
namespace {

const char* nothing(const char* /*name*/) { return nullptr; }
const char* openMpis(const char* name) {
  return std::string_view(name) == "OMPI_COMM_WORLD_RANK" ? "13" : nullptr;
}
const char* slurms(const char* name) {
  return std::string_view(name) == "SLURM_PROCID" ? "2"
         : std::string_view(name) == "PMI_RANK"   ? "none"
                                                  : nullptr;
}

TEST(OwnFileName, IsThePathWhereNothingIsAskedFor) {
  EXPECT_EQ(ownFileName("stats.json", &nothing), "stats.json");
  EXPECT_EQ(ownFileName("", &nothing), "");
  EXPECT_EQ(ownFileName("100%/x%d%", &nothing), "100%/x%d%");
}

TEST(OwnFileName, HasTheProcessAndTheRank) {
  const std::string process = std::to_string(::getpid());
  EXPECT_EQ(ownFileName("a.%p", &nothing), "a." + process);
  EXPECT_EQ(ownFileName("%p%p", &nothing), process + process);
  EXPECT_EQ(ownFileName("a.%r.json", &openMpis), "a.13.json");
  EXPECT_EQ(ownFileName("a.%r", &slurms), "a.2") << "what is no number is passed over";
  EXPECT_EQ(ownFileName("a.%r", &nothing), "a.0");
}

TEST(OwnFileName, TakesTwoForOne) {
  EXPECT_EQ(ownFileName("%%r%%", &openMpis), "%r%");
  EXPECT_EQ(ownFileName("%%%r", &openMpis), "%13");
}

}  // namespace
}  // namespace gmac
