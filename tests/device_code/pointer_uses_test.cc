// SPDX-License-Identifier: Apache-2.0
#include "gmac/device_code/pointer_uses.h"

#include <gtest/gtest.h>

#include <cstddef>
#include <random>
#include <string>
#include <string_view>
#include <vector>

#include "tests/support/seed.h"

namespace gmac::device_code {
namespace {

constexpr std::string_view kHead =
    ".version 8.0 // of the ISA\n.target sm_75, debug\n.address_size 64\n"
    ".extern .func __assertfail(.param .b64 a, .param .b64 b, .param .b32 c, .param .b64 d,"
    " .param .b64 e);\n"
    ".extern .func (.param .b32 r) vprintf(.param .b64 a, .param .b64 b);\n"
    ".func (.param .b64 r) square(.param .b64 x)\n{\n.reg .f64 %fd<3>;\n"
    "ld.param.f64 %fd1, [x];\nmul.f64 %fd2, %fd1, %fd1;\nst.param.f64 [r], %fd2;\nret;\n}\n"
    ".func (.param .b64 r) first(.param .b64 x)\n{\n.reg .b64 %rd<3>;\n"
    "ld.param.u64 %rd1, [x];\nld.u64 %rd2, [%rd1];\nst.param.b64 [r], %rd2;\nret;\n}\n"
    ".func (.param .b64 r) inRegister(.reg .b64 x)\n{\nret;\n}\n"
    ".global .align 8 .u64 pointer;\n.const .align 8 .b8 table[64] = {1, 2, 3};\n"
    ".global .attribute(.managed) .align 8 .u64 managed;\n.extern .global .align 8 .u64 foreign;\n"
    ".global .align 1 .b8 text[6] = {97, 46, 99, 117};\n.extern .shared .align 16 .b8 dynamic[];\n";

// Parameters: p, q, r at 0, 8, 16; n at 24, 32 bits; m at 32, 64 bits; s at 40, 24 bytes.
constexpr std::string_view kParameters =
    "(.param .u64 p, .param .u64 .ptr .global .align 4 q, .param .u64 r, .param .u32 n,"
    " .param .u64 m, .param .align 8 .b8 s[24])";

// %p, %q, %r, %m are the parameters, %n is the 32-bit one; %i is the thread's number, %i8 8 times
// that.
constexpr std::string_view kStart =
    ".reg .pred %p<9>;\n.reg .b16 %h<9>;\n.reg .b32 %w<9>, %n, %i;\n.reg .b64 %d<20>;\n"
    ".reg .b64 %p, %q, %r, %m, %i8; .reg .f64 %f<9>; .reg .b128 %z;\n"
    "ld.param.u64 %p, [p];\nld.param.u64 %q, [q+0];\nld.param.b64 %r, [r];\nld.param.u32 %n, [n];\n"
    "ld.param.s64 %m, [m];\nmov.u32 %i, %tid.x;\nmul.wide.u32 %i8, %i, 8;\n";

std::string moduleWith(std::string_view body) {
  return std::string(kHead) + ".visible .entry kernel" + std::string(kParameters) +
         "\n.maxntid 128, 1, 1\n{\n" + std::string(kStart) + std::string(body) + "\nret;\n}\n";
}

// Such as "0r 16w | 0 8+24! | 0r 0+8w". First the pointers: the kernel reads through word 0 and
// writes through word 16. Then the bases of addresses: word 0, which may be null; and word 8 or
// word 24, one of which must be known memory. Last the tables, if there are any: it reads what the
// pointers in the memory of word 0 point to, and writes what those in the memory of words 0 and 8
// point to.
std::string shown(const std::optional<KernelUses>& uses) {
  if (!uses) {
    return "unknown";
  }
  std::string text;
  for (const PointerUse& use : uses->pointers) {
    text += std::to_string(use.offset) + (use.writes ? "w " : "r ");
  }
  text += "|";
  for (const AddressBase& base : uses->bases) {
    std::string sum;
    for (const std::uint32_t offset : base.offsets) {
      sum += (sum.empty() ? "" : "+") + std::to_string(offset);
    }
    text += " " + sum + (base.nullable ? "" : "!");
  }
  text += uses->tables.empty() ? "" : " |";
  for (const TableUse& table : uses->tables) {
    std::string words;
    for (const std::uint32_t offset : table.words) {
      words += (words.empty() ? "" : "+") + std::to_string(offset);
    }
    text += " " + words + (table.writes ? "w" : "r");
  }
  return text;
}

struct Case {
  std::string_view what;
  std::string_view body;
  std::string_view uses;
};

void expectAll(const std::vector<Case>& cases) {
  for (const Case& each : cases) {
    EXPECT_EQ(shown(usesOf(moduleWith(each.body), "kernel")), each.uses) << each.what << "\n"
                                                                         << each.body;
  }
}

// All end with an access, which alone makes the kernel unknown, or else is known.
void expectAllWithAccess(const std::vector<Case>& cases) {
  constexpr std::string_view kAccess = "ld.u8 %h1";
  expectAll(cases);
  for (const Case& each : cases) {
    const std::string_view without = each.body.substr(0, each.body.rfind(kAccess));
    EXPECT_NE(shown(usesOf(moduleWith(without), "kernel")), "unknown") << each.what << "\n"
                                                                       << without;
  }
}

TEST(PointerUses, AreParametersThatAddressesAreMadeOf) {
  expectAll({
      {"nothing", "", "|"},
      {"a read", "ld.global.f64 %f1, [%p];", "0r | 0"},
      {"a generic read", "ld.u32 %w1, [%p+4];", "0r | 0"},
      {"a write", "st.global.u32 [%q], %n;", "8w | 8"},
      {"both", "ld.u32 %w1, [%p]; st.u32 [%p], %w1;", "0w | 0"},
      {"indexed by threads",
       "cvta.to.global.u64 %d1, %p; add.s64 %d2, %d1, %i8;\n"
       "ld.global.nc.v2.f64 {%f1, %f2}, [%d2+-16];",
       "0r | 0"},
      {"indexed by 32 bits of memory",
       "ld.global.u32 %w1, [%q]; mul.wide.s32 %d1, %w1, 4; add.s64 %d2, %p, %d1;\n"
       "st.global.u32 [%d2], %n;",
       "0w 8r | 0 8"},
      {"indexed by 64 bits of memory",
       "ld.global.u64 %d1, [%q]; shl.b64 %d2, %d1, 3; add.s64 %d3, %p, %d2;\n"
       "st.global.u32 [%d3], %n;",
       "0w 8r | 0! 8"},
      {"indexed by a long parameter", "shl.b64 %d1, %m, 3; add.s64 %d2, %p, %d1; ld.u8 %h1, [%d2];",
       "0r 32r | 0!"},
      {"which may be the base itself", "add.s64 %d1, %p, %m; ld.u8 %h1, [%d1];", "0r 32r | 0+32"},
      {"multiplied and added",
       "mad.wide.u32 %d1, %i, 4, %p; mad.lo.s64 %d2, %m, 24, %q;\n"
       "ld.u8 %h1, [%d1]; st.u8 [%d2], %h1;",
       "0r 8w 32w | 0 8!"},
      {"indexed backwards", "sub.s64 %d1, %p, %i8; ld.u8 %h1, [%d1];", "0r | 0"},
      {"aligned", "and.b64 %d1, %p, -16; ld.u8 %h1, [%d1];", "0r | 0"},
      {"at an address, if the word is 0", "add.s64 %d1, %p, 0x7f1200000000; ld.u8 %h1, [%d1];",
       "0r | 0!"},
      {"likewise", "ld.u8 %h1, [%p+0x302000000];", "0r | 0!"},
      {"tagged", "or.b64 %d1, %p, 8; ld.u8 %h1, [%d1];", "0r | 0"},
      {"indexed by few bits and by many",
       "ld.u8 %h1, [%p+1]; shl.b64 %d1, %m, 3; add.s64 %d2, %p, %d1; ld.u8 %h1, [%d2];\n"
       "ld.u8 %h2, [%p+2];",
       "0r 32r | 0!"},
      {"a pointer, or its sum with an integer and with many bits",
       "add.s64 %d1, %p, %m; ld.u64 %d2, [%q]; add.s64 %d3, %d1, %d2;\n"
       "selp.b64 %d4, %p, %d3, %p1; ld.u8 %h1, [%d4];",
       "0r 8r 32r | 0! 8"},
      {"selected", "setp.eq.s32 %p1, %n, 3; selp.b64 %d1, %p, %q, %p1; ld.u8 %h1, [%d1];",
       "0r 8r | 0 8"},
      {"minimum", "min.u64 %d1, %p, %q; st.u8 [%d1], %h1;", "0w 8w | 0 8"},
      {"a pointer or null", "selp.b64 %d1, %p, 0, %p1; ld.u8 %h1, [%d1+8];", "0r | 0"},
      {"defined twice, once conditionally",
       "mov.u64 %d1, %p; @%p1 mov.u64 %d1, %q; @!%p1 ld.u8 %h1, [%d1];", "0r 8r | 0 8"},
      {"advanced in a loop",
       "mov.u64 %d1, %p;\n$L1:\nst.u8 [%d1], 0;\nadd.s64 %d1, %d1, %m;\n@%p1 bra.uni $L1;",
       "0w 32w | 0"},
      {"of a structure", "ld.param.v2.u64 {%d1, %d2}, [s+8]; ld.u8 %h1, [%d2];", "56r | 56"},
      {"of a structure, by its address",
       "mov.b64 %d1, s; ld.param.u64 %d2, [%d1+16]; ld.u8 %h1, [%d2];", "56r | 56"},
      {"an atomic", "atom.global.add.u32 %w1, [%p], 1; red.global.add.f64 [%q+8], %f1;",
       "0w 8w | 0 8"},
      {"copies to shared memory",
       "mov.u32 %w1, dynamic; cp.async.ca.shared.global [%w1], [%p], 16, 8;\n"
       "cp.async.commit_group; cp.async.wait_group 0;",
       "0r | 0"},
      {"matrices",
       "wmma.load.a.sync.aligned.row.m16n16k16.global.f16 {%w1,%w2}, [%p], %w3;\n"
       "wmma.store.d.sync.aligned.row.m16n16k16.f32 [%q], {%w1, %w2}, %w3;",
       "0r 8w | 0 8"},
      {"hints", "prefetch.global.L2 [%p]; discard.global.L2 [%q], 128;", "0r 8w | 0 8"},
      {"a policy",
       "createpolicy.fractional.L2::evict_last.b64 %d1, 1.0;\n"
       "ld.global.L2::cache_hint.b32 %w1, [%p], %d1;",
       "0r | 0"},
      {"a bit of everything",
       "setp.lt.and.s32 %p1|%p2, %n, %i, %p3; vote.sync.ballot.b32 %w1, %p1, -1;\n"
       "shfl.sync.down.b32 %w2|%p1, %w1, 1, 31, -1; bar.sync 0; membar.gl;\n"
       "bar.red.popc.u32 %w3, 0, %p1; fence.acq_rel.gpu; nanosleep.u32 %w1; exit;",
       "|"},
  });
}

// As the pointers in float** rows and in struct { float* a; int n; }* e.
TEST(PointerUses, MayLieInMemoryThatParametersPointTo) {
  expectAll({
      {"a pointer in memory", "ld.global.u64 %d1, [%p]; ld.u8 %h1, [%d1];", "0r | 0 | 0r"},
      {"that is written to", "ld.global.nc.u64 %d1, [%p]; st.u8 [%d1+4], 0;", "0r | 0 | 0w"},
      {"or both", "ld.u64 %d1, [%p]; ld.u8 %h1, [%d1]; red.add.u32 [%d1], 1;", "0r | 0 | 0w"},
      {"as a double", "ld.f64 %f1, [%p]; mov.b64 %d1, %f1; ld.u8 %h1, [%d1];", "0r | 0 | 0r"},
      {"of an array",
       "add.s64 %d1, %p, %i8; ld.u64 %d2, [%d1+16]; cvta.to.global.u64 %d3, %d2;\n"
       "ld.global.u8 %h1, [%d3];",
       "0r | 0 | 0r"},
      {"in a vector", "ld.v2.u64 {_, %d1}, [%p]; ld.u8 %h1, [%d1];", "0r | 0 | 0r"},
      {"indexed by threads", "ld.u64 %d1, [%p]; add.s64 %d2, %d1, %i8; ld.u8 %h1, [%d2];",
       "0r | 0 | 0r"},
      {"indexed by 32 bits beside it",
       "ld.u64 %d1, [%p]; ld.u32 %w1, [%p+8]; mad.wide.s32 %d2, %w1, 4, %d1; ld.u8 %h1, [%d2];",
       "0r | 0 | 0r"},
      {"indexed backwards",
       "ld.u64 %d1, [%p]; sub.s64 %d2, %d1, %i8; add.s64 %d2, %d2, -8; ld.u8 %h1, [%d2];",
       "0r | 0 | 0r"},
      {"plus low bits of a parameter",
       "ld.u64 %d1, [%p]; and.b64 %d2, %q, 15; add.s64 %d3, %d1, %d2; ld.u8 %h1, [%d3];",
       "0r | 0 | 0r"},
      {"advanced in a loop",
       "ld.u64 %d1, [%p];\n$L1:\nst.u8 [%d1], 0;\nadd.s64 %d1, %d1, 4;\n@%p1 bra.uni $L1;",
       "0r | 0 | 0w"},
      {"or a parameter", "ld.u64 %d1, [%p]; @%p1 mov.u64 %d1, %q; st.u8 [%d1], 0;",
       "0r 8w | 0 8 | 0w"},
      {"or null", "ld.u64 %d1, [%p]; selp.b64 %d2, %d1, 0, %p1; ld.u8 %h1, [%d2+8];",
       "0r | 0 | 0r"},
      {"or of a variable", "ld.u64 %d1, [%p]; @%p1 mov.u64 %d1, text; ld.u8 %h1, [%d1];",
       "0r | 0 | 0r"},
      {"of a table or of none", "selp.b64 %d1, %p, 0, %p1; ld.u64 %d2, [%d1]; ld.u8 %h1, [%d2];",
       "0r | 0 | 0r"},
      {"of either table",
       "ld.u64 %d1, [%p]; ld.u64 %d2, [%q]; min.u64 %d3, %d1, %d2; ld.u8 %h1, [%d3];",
       "0r 8r | 0 8 | 0+8r"},
      {"of two tables", "ld.u64 %d1, [%p]; ld.u64 %d2, [%q]; ld.u8 %h1, [%d1]; st.u8 [%d2], %h1;",
       "0r 8r | 0 8 | 0r 8w"},
      {"in a table that is written", "ld.u64 %d1, [%p]; st.u64 [%p], %q; ld.u8 %h1, [%d1];",
       "0w | 0 | 0r"},
      {"in a table indexed by a long parameter",
       "shl.b64 %d1, %m, 3; add.s64 %d2, %p, %d1; ld.u64 %d3, [%d2]; ld.u8 %h1, [%d3];",
       "0r 32r | 0! | 0+32r"},
      {"in what may be the table itself",
       "add.s64 %d1, %p, %m; ld.u64 %d2, [%d1]; ld.u8 %h1, [%d2];", "0r 32r | 0+32 | 0+32r"},
      {"in the table if the first word is null",
       "add.s64 %d1, %p, %m; @%p1 mov.u64 %d1, %p; ld.u64 %d2, [%d1]; ld.u8 %h1, [%d2];",
       "0r 32r | 0 | 0+32r"},
      {"in a table counted back from",
       "ld.u64 %d1, [%q]; shl.b64 %d2, %d1, 3; sub.s64 %d3, %p, %d2; ld.u64 %d4, [%d3];\n"
       "ld.u8 %h1, [%d4];",
       "0r 8r | 0! 8 | 0r"},
      {"an index that a pointer in memory leads to",
       "ld.u64 %d1, [%p]; ld.u64 %d2, [%d1]; shl.b64 %d3, %d2, 3; add.s64 %d4, %q, %d3;\n"
       "st.u8 [%d4], 0;",
       "0r 8w | 0 8! | 0r"},
      {"an index in a table subtracted",
       "ld.u64 %d1, [%p]; sub.s64 %d2, %q, %d1; ld.u8 %h1, [%d2];", "0r 8r | 0 8!"},
      {"an index as well",
       "ld.u64 %d1, [%p]; ld.u8 %h1, [%d1]; add.s64 %d2, %q, %d1; ld.u8 %h1, [%d2];",
       "0r 8r | 0 8! | 0r"},
  });
}

TEST(PointerUses, LieInMemoryOnlyWhereTheyAreNumbersOtherwise) {
  expectAllWithAccess({
      {"in memory that a table points to", "ld.u64 %d1, [%p]; ld.u64 %d2, [%d1]; ld.u8 %h1, [%d2];",
       "unknown"},
      {"in memory or in a variable",
       "mov.u64 %d1, pointer; @%p1 mov.u64 %d1, %p; ld.u64 %d2, [%d1]; ld.u8 %h1, [%d2];",
       "unknown"},
      {"in shared memory where a parameter says",
       "cvta.shared.u64 %d1, %p; ld.u64 %d2, [%d1]; ld.u8 %h1, [%d2];", "unknown"},
      {"in the memory of grid barriers",
       "mov.u32 %w1, %envreg2; mov.u32 %w2, %envreg1; mov.b64 %d1, {%w1, %w2};\n"
       "ld.u64 %d2, [%d1]; ld.u8 %h1, [%d2];",
       "unknown"},
      {"loaded while it may be written", "ld.volatile.u64 %d1, [%p]; ld.u8 %h1, [%d1];", "unknown"},
      {"likewise", "ld.relaxed.gpu.u64 %d1, [%p]; ld.u8 %h1, [%d1];", "unknown"},
      {"likewise", "ld.acquire.sys.u64 %d1, [%p]; ld.u8 %h1, [%d1];", "unknown"},
      {"likewise", "ld.mmio.relaxed.sys.u64 %d1, [%p]; ld.u8 %h1, [%d1];", "unknown"},
      {"likewise", "ld.cv.u64 %d1, [%p]; ld.u8 %h1, [%d1];", "unknown"},
      {"in 32 bits", "ld.u32 %d1, [%p]; ld.u8 %h1, [%d1];", "unknown"},
      {"indexed by 64 bits of memory",
       "ld.u64 %d1, [%p]; ld.u64 %d2, [%q]; shl.b64 %d3, %d2, 3; add.s64 %d4, %d1, %d3;\n"
       "ld.u8 %h1, [%d4];",
       "unknown"},
      {"in the other order",
       "ld.u64 %d1, [%p]; ld.u64 %d2, [%q]; shl.b64 %d3, %d2, 3; add.s64 %d4, %d3, %d1;\n"
       "ld.u8 %h1, [%d4];",
       "unknown"},
      {"indexed by a long parameter",
       "ld.u64 %d1, [%p]; shl.b64 %d2, %m, 3; add.s64 %d3, %d1, %d2; ld.u8 %h1, [%d3];", "unknown"},
      {"two of them", "ld.v2.u64 {%d1, %d2}, [%p]; add.s64 %d3, %d1, %d2; ld.u8 %h1, [%d3];",
       "unknown"},
      {"their difference", "ld.v2.u64 {%d1, %d2}, [%p]; sub.s64 %d3, %d1, %d2; ld.u8 %h1, [%d3];",
       "unknown"},
      {"less a parameter", "ld.u64 %d1, [%p]; sub.s64 %d2, %d1, %q; ld.u8 %h1, [%d2];", "unknown"},
      {"plus a difference of parameters",
       "ld.u64 %d1, [%p]; sub.s64 %d2, %q, %p; add.s64 %d3, %d1, %d2; ld.u8 %h1, [%d3];",
       "unknown"},
      {"less an index of 64 bits",
       "ld.u64 %d1, [%p]; shl.b64 %d2, %m, 3; sub.s64 %d3, %d1, %d2; ld.u8 %h1, [%d3];", "unknown"},
      {"plus a symbol",
       "ld.u64 %d1, [%p]; mov.u64 %d2, text; add.s64 %d3, %d1, %d2; ld.u8 %h1, [%d3];", "unknown"},
      {"plus what may be an address", "ld.u64 %d1, [%p]; ld.u8 %h1, [%d1+0x302000000];", "unknown"},
      {"less what may be one",
       "ld.u64 %d1, [%p]; sub.s64 %d2, %d1, -12918456320; ld.u8 %h1, [%d2];", "unknown"},
      {"negated twice", "ld.u64 %d1, [%p]; neg.s64 %d2, %d1; neg.s64 %d3, %d2; ld.u8 %h1, [%d3];",
       "unknown"},
      {"doubled", "ld.u64 %d1, [%p]; shl.b64 %d2, %d1, 1; ld.u8 %h1, [%d2];", "unknown"},
      {"times 1", "ld.u64 %d1, [%p]; mul.lo.s64 %d2, %d1, 1; ld.u8 %h1, [%d2];", "unknown"},
      {"aligned", "ld.u64 %d1, [%p]; and.b64 %d2, %d1, -16; ld.u8 %h1, [%d2];", "unknown"},
      {"tagged", "ld.u64 %d1, [%p]; or.b64 %d2, %d1, 8; ld.u8 %h1, [%d2];", "unknown"},
      {"without the upper bits",
       "ld.u64 %d1, [%p]; and.b64 %d2, %d1, 0xffffffffffff; ld.u8 %h1, [%d2];", "unknown"},
      {"exclusive or", "ld.u64 %d1, [%p]; xor.b64 %d2, %d1, %m; ld.u8 %h1, [%d2];", "unknown"},
      {"united", "ld.u64 %d1, [%p]; or.b64 %d2, %d1, %i8; ld.u8 %h1, [%d2];", "unknown"},
      {"halves",
       "ld.u64 %d1, [%p]; mov.b64 {%w1, %w2}, %d1; mov.b64 %d2, {%w1, %w2}; ld.u8 %h1, [%d2];",
       "unknown"},
      {"shuffled",
       "ld.u64 %d1, [%p]; mov.b64 {%w1, %w2}, %d1; shfl.sync.idx.b32 %w3, %w1, 0, 31, -1;\n"
       "mov.b64 %d2, {%w3, %w2}; ld.u8 %h1, [%d2];",
       "unknown"},
      {"by way of shared memory",
       "ld.u64 %d1, [%p]; st.shared.u64 [dynamic], %d1; ld.shared.u64 %d2, [dynamic];\n"
       "ld.u8 %h1, [%d2];",
       "unknown"},
      {"converted",
       "ld.u64 %d1, [%p]; cvt.u32.u64 %w1, %d1; cvt.u64.u32 %d2, %w1; ld.u8 %h1, [%d2];",
       "unknown"},
      {"a number or a word",
       "ld.u64 %d1, [%p]; @%p1 ld.shared.u64 %d1, [dynamic]; ld.u8 %h1, [%d1];", "unknown"},
      {"a parameter, or in the memory of grid barriers",
       "mov.u32 %w1, %envreg2; mov.u32 %w2, %envreg1; mov.b64 %d1, {%w1, %w2};\n"
       "ld.u64 %d2, [%d1]; selp.b64 %d3, %q, %d2, %p1; ld.u8 %h1, [%d3];",
       "unknown"},
      {"a parameter, or a word indexed by 64 bits",
       "ld.u64 %d1, [%p]; shl.b64 %d2, %m, 3; add.s64 %d3, %d1, %d2;\n"
       "selp.b64 %d4, %q, %d3, %p1; ld.u8 %h1, [%d4];",
       "unknown"},
      {"a parameter, or a word less a parameter",
       "ld.u64 %d1, [%p]; sub.s64 %d2, %d1, %q; selp.b64 %d3, %r, %d2, %p1; ld.u8 %h1, [%d3];",
       "unknown"},
      {"a parameter, or a word plus a symbol",
       "ld.u64 %d1, [%p]; mov.u64 %d2, text; add.s64 %d3, %d1, %d2;\n"
       "selp.b64 %d4, %q, %d3, %p1; ld.u8 %h1, [%d4];",
       "unknown"},
      {"a parameter less a word, plus another",
       "ld.v2.u64 {%d1, %d2}, [%r]; sub.s64 %d3, %p, %d1; add.s64 %d4, %d3, %d2;\n"
       "ld.u8 %h1, [%d4];",
       "unknown"},
  });
  expectAll({
      {"a list", "mov.u64 %d1, %p;\n$L1:\nld.u64 %d1, [%d1+8];\n@%p1 bra.uni $L1;", "unknown"},
      {"a tree",
       "mov.u64 %d1, %p;\n$L1:\nld.u32 %w1, [%d1+16];\nld.v2.u64 {%d2, %d3}, [%d1];\n"
       "selp.b64 %d1, %d2, %d3, %p1;\n@%p2 bra.uni $L1;",
       "unknown"},
  });
}

TEST(PointerUses, AreUnknownOncePointersComeFromMemory) {
  expectAllWithAccess({
      {"in a variable", "ld.global.u64 %d1, [pointer]; ld.u8 %h1, [%d1];", "unknown"},
      {"in a constant", "ld.const.u64 %d1, [table+8]; ld.u8 %h1, [%d1];", "unknown"},
      {"in shared memory",
       "st.shared.u64 [dynamic], %p; ld.shared.u64 %d1, [dynamic];\n"
       "ld.u8 %h1, [%d1];",
       "unknown"},
      {"by an exchange", "atom.exch.b64 %d1, [%p], 0; ld.u8 %h1, [%d1];", "unknown"},
      {"of 128 bits", "ld.b128 %z, [%p]; mov.b128 {%d1, %d2}, %z; ld.u8 %h1, [%d1];", "unknown"},
      {"through a parameter's address",
       "mov.b64 %d1, s; cvta.param.u64 %d2, %d1; ld.u64 %d3, [%d2]; ld.u8 %h1, [%d3];", "unknown"},
      {"of a parameter at a variable place",
       "mov.b64 %d1, s; add.s64 %d2, %d1, %i8; ld.param.u64 %d3, [%d2]; ld.u8 %h1, [%d3];",
       "unknown"},
      {"of either of two parameters",
       "mov.b64 %d1, s; @%p1 mov.b64 %d1, p; ld.param.u64 %d2, [%d1]; ld.u8 %h1, [%d2];",
       "unknown"},
      {"of a parameter at a place that moves",
       "mov.b64 %d1, s; add.s64 %d1, %d1, 8; ld.param.u64 %d2, [%d1]; ld.u8 %h1, [%d2];",
       "unknown"},
      {"plus a scaled parameter",
       "ld.u64 %d1, [%p]; shl.b64 %d2, %q, 1; add.s64 %d3, %d1, %d2; ld.u8 %h1, [%d3];", "unknown"},
  });
}

TEST(PointerUses, AreUnknownOncePointersArePutTogether) {
  expectAllWithAccess({
      {"halves of a parameter",
       "ld.param.v2.u32 {%w1, %w2}, [p]; mov.b64 %d1, {%w1, %w2}; ld.u8 %h1, [%d1];", "unknown"},
      {"halves of a register", "mov.b64 {%w1, %w2}, %p; mov.b64 %d1, {%w1, %w2}; ld.u8 %h1, [%d1];",
       "unknown"},
      {"shifted halves",
       "cvt.u32.u64 %w1, %p; shr.u64 %d1, %p, 32; shl.b64 %d2, %d1, 32; cvt.u64.u32 %d3, %w1;\n"
       "or.b64 %d4, %d2, %d3; ld.u8 %h1, [%d4];",
       "unknown"},
      {"halves in memory", "ld.v2.u32 {%w1, %w2}, [%p]; mov.b64 %d1, {%w1, %w2}; ld.u8 %h1, [%d1];",
       "unknown"},
      {"inserted halves",
       "ld.u32 %w1, [%p]; cvt.u64.u32 %d1, %w1; bfi.b64 %d2, %d1, %d1, 32, 32; ld.u8 %h1, [%d2];",
       "unknown"},
      {"bytes",
       "ld.u8 %d1, [%p]; mul.lo.s64 %d2, %d2, 256; mov.u64 %d2, 0;\n"
       "add.s64 %d2, %d2, %d1; ld.u8 %h1, [%d2];",
       "unknown"},
      {"an upper half times a constant",
       "ld.u32 %w1, [%p]; mov.u32 %w2, 65536; mul.wide.u32 %d1, %w1, %w2; ld.u8 %h1, [%d1];",
       "unknown"},
      {"compressed to 32 bits",
       "and.b64 %d1, %p, -4294967296; ld.u32 %w1, [%q]; cvt.u64.u32 %d2, %w1;\n"
       "or.b64 %d3, %d1, %d2; ld.u8 %h1, [%d3];",
       "unknown"},
      {"relative to a large block", "and.b64 %d1, %p, -512; ld.u8 %h1, [%d1];", "unknown"},
      {"an integer as an address", "ld.u8 %h1, [%n];", "unknown"},
      {"a large constant", "mov.u64 %d1, 139637976727552; ld.u8 %h1, [%d1];", "unknown"},
      {"a large offset from null", "mov.u64 %d1, 0; ld.u8 %h1, [%d1+139637976727552];", "unknown"},
      {"an absolute address", "ld.u8 %h1, [139637976727552];", "unknown"},
      {"complemented", "not.b64 %d1, %p; not.b64 %d2, %d1; ld.u8 %h1, [%d2];", "unknown"},
      {"exclusive or", "xor.b64 %d1, %p, %q; xor.b64 %d2, %d1, %q; ld.u8 %h1, [%d2];", "unknown"},
      {"never written", "ld.u8 %h1, [%d9];", "unknown"},
      {"nullable with 35 bits, not with more",
       "ld.u32 %w1, [%p]; cvt.u64.u32 %d1, %w1; shl.b64 %d2, %d1, 3; add.s64 %d3, %q, %d2;\n"
       "shl.b64 %d4, %d1, 32; add.s64 %d5, %r, %d4; ld.u8 %h1, [%d3]; ld.u8 %h1, [%d5];",
       "0r 8r 16r | 0 8 16!"},
  });
}

TEST(PointerUses, AreUnknownWherePointersMayCancel) {
  expectAllWithAccess({
      {"difference as the base", "sub.s64 %d1, %p, %q; ld.u8 %h1, [%d1];", "unknown"},
      {"pointer in memory plus a difference",
       "ld.u64 %d1, [%p]; sub.s64 %d2, %p, %q; add.s64 %d3, %d1, %d2; ld.u8 %h1, [%d3];",
       "unknown"},
      {"with the difference taken from memory",
       "ld.u64 %d1, [%r]; ld.u64 %d4, [%r+8]; sub.s64 %d2, %p, %d1; add.s64 %d3, %d4, %d2;\n"
       "ld.u8 %h1, [%d3];",
       "unknown"},
      {"in another order",
       "ld.u64 %d1, [%r]; sub.s64 %d2, %d1, %q; add.s64 %d3, %p, %d2; ld.u8 %h1, [%d3];",
       "unknown"},
      {"in a third order",
       "ld.u64 %d1, [%r]; add.s64 %d2, %d1, %p; ld.u64 %d4, [%r+8]; sub.s64 %d3, %d2, %d4;\n"
       "ld.u8 %h1, [%d3];",
       "unknown"},
      {"negated", "ld.u64 %d1, [%r]; neg.s64 %d2, %d1; add.s64 %d3, %p, %d2; ld.u8 %h1, [%d3];",
       "unknown"},
      {"multiplied by -1",
       "ld.u64 %d1, [%r]; mul.lo.s64 %d2, %d1, -1; add.s64 %d3, %p, %d2; ld.u8 %h1, [%d3];",
       "unknown"},
      {"with another parameter",
       "ld.u64 %d1, [%r]; sub.s64 %d2, %p, %d1; add.s64 %d3, %d2, %q; ld.u8 %h1, [%d3];",
       "unknown"},
      {"negated and with low bits",
       "ld.u64 %d1, [%r]; neg.s64 %d2, %d1; or.b64 %d3, %d2, %i8; add.s64 %d4, %p, %d3;\n"
       "ld.u8 %h1, [%d4];",
       "unknown"},
      {"half of a difference is an index",
       "sub.s64 %d1, %q, %p; shr.s64 %d2, %d1, 4; shl.b64 %d3, %d2, 3; add.s64 %d4, %p, %d3;\n"
       "ld.u8 %h1, [%d4];",
       "0r 8r | 0!"},
      {"an index in memory subtracted",
       "ld.u64 %d1, [%q]; shl.b64 %d2, %d1, 2; sub.s64 %d3, %p, %d2; ld.u8 %h1, [%d3];",
       "0r 8r | 0! 8"},
      {"a symbol's difference",
       "mov.u64 %d1, pointer; ld.u64 %d2, [%q]; sub.s64 %d3, %d2, %d1; add.s64 %d4, %d3, %d1;\n"
       "ld.u8 %h1, [%d4];",
       "unknown"},
  });
}

TEST(PointerUses, AreUnknownWithInstructionsThatAreNot) {
  expectAll({
      {"another opcode", "frobnicate.u64 %d1, %p;", "unknown"},
      {"one after a place in the source", ".loc 1 2 3 st.u8 [%q], 0;", "unknown"},
      {"one after a comment there", ".loc 1 2 3 /*\n*/ st.u8 [%q], 0;", "unknown"},
      {"another modifier", "ld.frob.u32 %w1, [%p];", "unknown"},
      {"textures", "tex.2d.v4.f32.f32 {%w1,%w2,%w3,%w4}, [%p, {%w1, %w2}];", "unknown"},
      {"surfaces", "sust.b.1d.b32.trap [%p, {%w1}], {%w2};", "unknown"},
      {"bulk copies", "cp.async.bulk.global.shared::cta.bulk_group [%p], [%w1], 16;", "unknown"},
      {"the stack", "alloca.u64 %d1, 16;", "unknown"},
      {"clusters", "mapa.u64 %d1, %p, %w1;", "unknown"},
      {"a managed variable", "ld.global.u64 %d1, [managed];", "unknown"},
      {"its address", "mov.u64 %d1, managed; st.u8 [%d1], 0;", "unknown"},
      {"a variable of another module", "st.global.u8 [foreign], 0;", "unknown"},
      {"undeclared registers", "mov.u64 %x1, %p;", "unknown"},
      {"registers out of their range", "mov.u64 %d20, %p;", "unknown"},
      {"a name of two things", "{ .reg .b64 pointer; mov.u64 pointer, 0; ld.u8 %h1, [pointer]; }",
       "unknown"},
      {"a parameter beyond its end", "ld.param.u64 %d1, [s+20];", "unknown"},
      {"a parameter beyond its end, by its address",
       "mov.b64 %d1, s+8; ld.param.u64 %d2, [%d1+16];", "unknown"},
      {"an open comment", "/* ", "unknown"},
      {"printf",
       "{ .param .b64 a0; st.param.b64 [a0], 0; .param .b64 a1; st.param.b64 [a1], 0;\n"
       ".param .b32 v0; call.uni (v0), vprintf, (a0, a1); ld.param.b32 %w1, [v0]; }",
       "unknown"},
      {"a call by pointer", "call (v0), %d1, (a0), prototype;", "unknown"},
  });
}

TEST(PointerUses, KnowCallsThatAccessNothingOfTheirArguments) {
  constexpr std::string_view kCall =
      "{ .param .b64 a0; st.param.f64 [a0+0], %f1; .param .b64 v0;\n"
      "call.uni (v0), FUNCTION, (a0); ld.param.f64 %f2, [v0+0]; } st.f64 [%p], %f2;";
  const auto calling = [&](std::string_view function) {
    std::string text(kCall);
    return text.replace(text.find("FUNCTION"), 8, function);
  };
  const std::string assertion =
      "mov.u64 %d1, text; cvta.global.u64 %d2, %d1;\n{ .param .b64 a0; st.param.b64 [a0], %d2;\n"
      ".param .b32 a1; st.param.b32 [a1+0], 29; .param .b64 a2; st.param.b64 [a2], 1;\n"
      "call.uni __assertfail, (a0, a0, a1, a0, a2); }";
  std::string foreign = assertion;
  foreign.replace(foreign.find("%d2;\n.param"), 3, "%p");
  const std::string tableText = "ld.u64 %d2, [%p];\n" + assertion.substr(assertion.find('{'));
  std::string loaded = calling("square");
  loaded += " mov.b64 %d5, %f2; ld.u8 %h1, [%d5];";
  expectAll({
      {"arithmetic", calling("square"), "0w | 0"},
      {"its result as a pointer", loaded, "unknown"},
      {"a read", calling("first"), "unknown"},
      {"arguments in registers", calling("inRegister"), "unknown"},
      {"a kernel", calling("kernel"), "unknown"},
      {"nothing of that name", calling("squar"), "unknown"},
      {"a failing assertion", assertion, "|"},
      {"with a text that a table has", tableText, "unknown"},
      {"with a parameter as its text", foreign, "unknown"},
  });
}

TEST(PointerUses, MergeScopesAndFollowTheDriversBarriers) {
  expectAll({
      {"a register of two scopes",
       "{ .reg .b64 %t; mov.u64 %t, %p; ld.u8 %h1, [%t]; }\n"
       "{ .reg .b64 %t; mov.u64 %t, %q; st.u8 [%t], 0; }",
       "0w 8w | 0 8"},
      {"one of another width",
       "{ .reg .b32 %t; ld.u32 %t, [%p]; }\n{ .reg .b64 %t; mov.u64 %t, %q; ld.u8 %h1, [%t]; }",
       "unknown"},
      {"a barrier of the grid",
       "mov.u32 %w1, %envreg2; cvt.u64.u32 %d1, %w1; mov.u32 %w2, %envreg1;\n"
       "cvt.u64.u32 %d2, %w2; bfi.b64 %d3, %d2, %d1, 32, 32; add.s64 %d4, %d3, 4;\n"
       "atom.add.release.gpu.u32 %w3, [%d4], 1; ld.acquire.gpu.u32 %w4, [%d4];",
       "|"},
      {"packed",
       "mov.u32 %w1, %envreg2; mov.u32 %w2, %envreg1; mov.b64 %d1, {%w1, %w2};\n"
       "ld.volatile.u32 %w3, [%d1];",
       "|"},
      {"with other halves", "mov.u32 %w1, %envreg2; mov.b64 %d1, {%w1, %n}; ld.u8 %h1, [%d1];",
       "unknown"},
      {"by another number of bits",
       "mov.u32 %w1, %envreg2; cvt.u64.u32 %d1, %w1; shl.b64 %d2, %d1, 16; ld.u8 %h1, [%d2];",
       "unknown"},
      {"local and shared arrays",
       ".local .align 8 .b8 depot[64]; .shared .b32 tile[32]; mov.u64 %d1, depot;\n"
       "cvta.local.u64 %d2, %d1; add.s64 %d3, %d2, %i8; st.u64 [%d3], %p; st.shared.u32 [tile+4], "
       "1;",
       "|"},
      {"comments and locations",
       ".loc 1 23 5, function_name $L1, inlined_at 1 2 3\n.pragma \"nounroll; // \";\n"
       "ld.u8 /* ; */ %h1, // [%q];\n[%p];",
       "0r | 0"},
      {"jumps by table",
       "$table: .branchtargets $L1, $L2; brx.idx %w1, $table;\n$L1: $L2: ld.u8 %h1, [%p];",
       "0r | 0"},
  });
}

TEST(PointerUses, BeginWithTheLayoutOfParameters) {
  const auto uses = usesOf(moduleWith(""), "kernel");
  ASSERT_TRUE(uses);
  const std::vector<ParameterPlace> places{{0, 8}, {8, 8}, {16, 8}, {24, 4}, {32, 8}, {40, 24}};
  EXPECT_EQ(uses->parameters, places);
  EXPECT_EQ(uses->parameterBytes, 64U);
}

TEST(PointerUses, AreOfTheKernelOfThatName) {
  const std::string text = std::string(kHead) +
                           ".entry kernel1(.param .u64 a)\n{ .reg .b64 x; ld.param.u64 x, [a];\n"
                           "st.global.u8 [x], 0; }\n.entry kernel;\n"
                           ".entry kernel(.param .f32 v, .param .u64 a)\n.pragma \"x\";\n{\n"
                           ".reg .b64 x, %r<2>; ld.param.u64 x, [a]; ld.u8 %r1, [x]; ret; }\n"
                           ".entry odd(.param .texref t) { ret; }\n.entry twice { ret; }\n"
                           ".entry twice { ret; }\n.section .debug_info { .b8 1 \n }\n";
  EXPECT_EQ(shown(usesOf(text, "kernel")), "8r | 8");
  EXPECT_EQ(shown(usesOf(text, "kernel1")), "0w | 0");
  EXPECT_EQ(shown(usesOf(text, "kern")), "unknown");
  EXPECT_EQ(shown(usesOf(text, "square")), "unknown") << "no kernel";
  EXPECT_EQ(shown(usesOf(text, "odd")), "unknown");
  EXPECT_EQ(shown(usesOf(text, "twice")), "unknown");
  EXPECT_EQ(shown(usesOf("", "kernel")), "unknown");
  EXPECT_EQ(shown(usesOf(".version 8.0 .target sm_75 .entry kernel { ret; }", "kernel")), "unknown")
      << "32-bit addresses";
}

// As nvcc 13 makes them. s.x[i * s.stride] += dt * s.m[i] * s.y[i], where x, y and m lie one after
// the other in s; a search that halves the difference of two pointers;
// and e[k].a[i] *= 2 for struct { float* a; int n; }* e.
constexpr std::string_view kCompiled = R"(
//
// Generated by NVIDIA NVVM Compiler
//
.version 9.0
.target sm_90
.address_size 64

.visible .entry structure(
.param .align 8 .b8 param_0[40],
.param .f32 param_1
)
{
.reg .pred %p<2>;
.reg .f32 %f<7>;
.reg .b32 %r<6>;
.reg .b64 %rd<15>;
ld.param.f32 %f1, [param_1];
ld.param.u64 %rd4, [param_0+32];
ld.param.u32 %r2, [param_0+24];
ld.param.u64 %rd3, [param_0+16];
ld.param.u64 %rd2, [param_0+8];
ld.param.u64 %rd1, [param_0];
mov.u32 %r3, %ntid.x;
mov.u32 %r4, %ctaid.x;
mov.u32 %r5, %tid.x;
mad.lo.s32 %r1, %r4, %r3, %r5;
setp.ge.s32 %p1, %r1, %r2;
@%p1 bra $L__BB9_2;
cvta.to.global.u64 %rd5, %rd3;
cvta.to.global.u64 %rd6, %rd2;
cvta.to.global.u64 %rd7, %rd1;
cvt.s64.s32 %rd8, %r1;
mul.wide.s32 %rd9, %r1, 4;
add.s64 %rd10, %rd5, %rd9;
ld.global.f32 %f2, [%rd10];
mul.f32 %f3, %f2, %f1;
add.s64 %rd11, %rd6, %rd9;
ld.global.f32 %f4, [%rd11];
mul.lo.s64 %rd12, %rd4, %rd8;
shl.b64 %rd13, %rd12, 2;
add.s64 %rd14, %rd7, %rd13;
ld.global.f32 %f5, [%rd14];
fma.rn.f32 %f6, %f3, %f4, %f5;
st.global.f32 [%rd14], %f6;
$L__BB9_2:
ret;
}
.visible .entry binarySearch(
.param .u64 param_0,
.param .u64 param_1,
.param .u64 param_2,
.param .u64 param_3
)
{
.reg .pred %p<4>;
.reg .b32 %r<2>;
.reg .b64 %rd<50>;
ld.param.u64 %rd17, [param_0];
ld.param.u64 %rd18, [param_1];
ld.param.u64 %rd19, [param_2];
ld.param.u64 %rd20, [param_3];
mov.u32 %r1, %tid.x;
cvt.u64.u32 %rd1, %r1;
cvta.to.global.u64 %rd47, %rd17;
shl.b64 %rd21, %rd20, 3;
add.s64 %rd45, %rd47, %rd21;
setp.le.u64 %p1, %rd45, %rd47;
mov.u64 %rd49, %rd17;
@%p1 bra $L__BB29_3;
cvta.to.global.u64 %rd22, %rd18;
shl.b64 %rd23, %rd1, 3;
add.s64 %rd24, %rd22, %rd23;
ld.global.u64 %rd4, [%rd24];
add.s64 %rd44, %rd17, %rd21;
mov.u64 %rd49, %rd17;
mov.u64 %rd48, %rd47;
$L__BB29_2:
sub.s64 %rd26, %rd44, %rd49;
shr.u64 %rd27, %rd26, 63;
shr.s64 %rd28, %rd26, 3;
add.s64 %rd29, %rd28, %rd27;
shl.b64 %rd30, %rd29, 2;
and.b64 %rd31, %rd30, -8;
add.s64 %rd32, %rd47, %rd31;
add.s64 %rd33, %rd48, %rd31;
add.s64 %rd34, %rd49, %rd31;
ld.global.u64 %rd35, [%rd33];
setp.lt.s64 %p2, %rd35, %rd4;
add.s64 %rd36, %rd32, 8;
add.s64 %rd37, %rd33, 8;
add.s64 %rd38, %rd34, 8;
selp.b64 %rd47, %rd36, %rd47, %p2;
selp.b64 %rd48, %rd37, %rd48, %p2;
selp.b64 %rd49, %rd38, %rd49, %p2;
selp.b64 %rd45, %rd45, %rd32, %p2;
selp.b64 %rd44, %rd44, %rd34, %p2;
setp.lt.u64 %p3, %rd47, %rd45;
@%p3 bra $L__BB29_2;
$L__BB29_3:
sub.s64 %rd39, %rd49, %rd17;
shr.s64 %rd40, %rd39, 3;
cvta.to.global.u64 %rd41, %rd19;
shl.b64 %rd42, %rd1, 3;
add.s64 %rd43, %rd41, %rd42;
st.global.u64 [%rd43], %rd40;
ret;
}
.visible .entry arrayOfStructures(
.param .u64 param_0,
.param .u32 param_1
)
{
.reg .pred %p<5>;
.reg .f32 %f<3>;
.reg .b32 %r<15>;
.reg .b64 %rd<11>;
ld.param.u64 %rd4, [param_0];
ld.param.u32 %r9, [param_1];
mov.u32 %r13, %ctaid.x;
setp.ge.s32 %p1, %r13, %r9;
@%p1 bra $L__BB9_6;
mov.u32 %r2, %tid.x;
mov.u32 %r3, %nctaid.x;
mov.u32 %r4, %ntid.x;
cvta.to.global.u64 %rd1, %rd4;
$L__BB9_2:
cvt.s64.s32 %rd2, %r13;
mul.wide.s32 %rd5, %r13, 16;
add.s64 %rd6, %rd1, %rd5;
add.s64 %rd3, %rd6, 8;
ld.global.u32 %r10, [%rd6+8];
setp.ge.s32 %p2, %r2, %r10;
@%p2 bra $L__BB9_5;
mov.u32 %r14, %r2;
$L__BB9_4:
ld.global.u64 %rd7, [%rd3+-8];
cvta.to.global.u64 %rd8, %rd7;
mul.wide.s32 %rd9, %r14, 4;
add.s64 %rd10, %rd8, %rd9;
ld.global.f32 %f1, [%rd10];
add.f32 %f2, %f1, %f1;
st.global.f32 [%rd10], %f2;
ld.global.u32 %r11, [%rd3];
add.s32 %r14, %r14, %r4;
setp.lt.s32 %p3, %r14, %r11;
@%p3 bra $L__BB9_4;
$L__BB9_5:
cvt.u32.u64 %r12, %rd2;
add.s32 %r13, %r12, %r3;
setp.lt.s32 %p4, %r13, %r9;
@%p4 bra $L__BB9_2;
$L__BB9_6:
ret;
}
)";

TEST(PointerUses, AreThoseOfCompiledKernels) {
  EXPECT_EQ(shown(usesOf(kCompiled, "structure")), "0w 8r 16r 32w | 0! 8 16");
  EXPECT_EQ(shown(usesOf(kCompiled, "binarySearch")), "0r 8r 16w 24r | 0! 8 16");
  EXPECT_EQ(shown(usesOf(kCompiled, "arrayOfStructures")), "0r | 0 | 0w");
}

TEST(PointerUses, TakeTimeInProportionToTheText) {
  // Each register is made of the one before it, and all of them of two parameters.
  std::string body;
  std::string registers = ".reg .b64 %e<100000>;\nmov.u64 %e0, %p;\n";
  for (int i = 1; i < 100000; ++i) {
    const std::string before = "%e" + std::to_string(i - 1);
    registers += "selp.b64 %e" + std::to_string(i) + ", " + before + ", %q, %p1;\n";
  }
  EXPECT_EQ(shown(usesOf(moduleWith(registers + "ld.u8 %h1, [%e99999];"), "kernel")),
            "0r 8r | 0 8");
}

TEST(PointerUses, TakeAnyBytes) {
  const std::string text = moduleWith(
      "{ .reg .b64 %t; ld.param.v2.u64 {%d1, %t}, [s+8]; mad.lo.s64 %d2, %m, 24, %t;\n"
      "mov.b64 %d3, {%n, %i}; bfi.b64 %d4, %d3, %d2, 32, 32; @!%p1 st.global.f64 [%d2+8], %f1;\n"
      "$L1: cp.async.ca.shared.global [%w1], [%p], 16; call.uni (v0), square, (a0);\n"
      "ld.v2.u64 {%d5, %d6}, [%p]; add.s64 %d7, %d6, %i8; st.u8 [%d7], 0; ld.u8 %h1, [%d5]; }");
  const std::uint64_t seed = testing::seedOr(1);
  SCOPED_TRACE(seed);
  std::mt19937_64 random(seed);
  const auto below = [&](std::size_t end) { return static_cast<std::size_t>(random() % end); };
  for (long step = 0; step < testing::stepsOr(3000); ++step) {
    std::string changed = text;
    for (std::size_t changes = 1 + below(4); changes > 0; --changes) {
      const std::size_t at = below(changed.size());
      switch (below(5)) {
        case 0:
          changed[at] = static_cast<char>(random());
          break;
        case 1:
          changed.erase(at, 1 + below(20));
          break;
        case 2:
          changed.insert(at, changed.substr(below(changed.size()), below(40)));
          break;
        case 3:
          changed[at] = "{}[]()<>,;:@!|+-\"/*.%0"[below(22)];
          break;
        default:
          changed.resize(changed.size() - below(changed.size() / 4));
          break;
      }
    }
    usesOf(changed, "kernel");
  }
}

}  // namespace
}  // namespace gmac::device_code
