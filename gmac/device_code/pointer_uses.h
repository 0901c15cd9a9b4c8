// SPDX-License-Identifier: Apache-2.0
//
// Which of a kernel's parameters it uses as pointers into global memory, found in its PTX.
//
// The answer is for whoever moves memory: a kernel that accesses what the answer leaves out reads
// or writes stale bytes. So whatever is not understood makes the kernel unknown. The analysis
// ignores the order of instructions and the conditions of branches.
//
// It rests on these assumptions, which hold for what compilers make of C++ programs without
// undefined behaviour:
//  - An address that is computed from a pointer lies in the same allocation as the pointer.
//    Offsets may be any numbers, also from memory; differences of pointers to different
//    allocations, and addresses in them that are compressed to offsets, are not offsets. All
//    allocations are aligned to 256 bytes.
//  - In a sum, at most one term is a pointer, apart from differences of two of them. If a word of
//    the parameters has the value of an address in an allocation, it is a pointer to it, and no
//    integer that has this value by chance.
//  - A null pointer, with an offset that cannot be an address itself, accesses nothing.
//  - Pointers are not put together again from pieces that were multiplied by variables or moved
//    by conditions, in order to subtract them from other pointers.
//  - Variables of the module are no objects of the caller's, except those with attribute managed
//    and extern ones, which make the kernel unknown. The driver's memory for grid barriers, whose
//    address is in %envreg, is none either.
//  - A pointer in memory is an aligned word of 8 bytes. It points into the allocation that the
//    kernel uses by way of it, or to its end, as a parameter does.
//  - The text is accepted by ptxas; registers are not read before they are written, and kernels
//    do not write to their parameters.
#ifndef GMAC_DEVICE_CODE_POINTER_USES_H_
#define GMAC_DEVICE_CODE_POINTER_USES_H_

#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "gmac/device_code/ptx.h"

namespace gmac::device_code {

// A kernel's parameter. Parameters lie one after the other, each at its alignment.
struct ParameterPlace {
  std::uint32_t offset;  // bytes from the start of the parameters
  std::uint32_t bytes;
  friend bool operator==(const ParameterPlace&, const ParameterPlace&) = default;
};

// A word (8 bytes) of the parameters, through which the kernel may access memory if it is a
// pointer. It may be an integer as well: what it is shows in its value. A value that is the end of
// an allocation may mean that one (from where a loop counts back), besides the one that begins
// there: the caller must take both.
struct PointerUse {
  std::uint32_t offset;  // bytes from the start of the parameters
  bool writes;           // it may write, and read; otherwise it only reads
  friend bool operator==(const PointerUse&, const PointerUse&) = default;
};

// Words of which one is the base of an address; the others are integers that are added to it. The
// caller must find that at least one of them is the address of memory that it knows, else the
// launch may access anything.
struct AddressBase {
  std::vector<std::uint32_t> offsets;  // sorted
  // If all words are 0, nothing is accessed (null pointers that the kernel checks for).
  bool nullable;
  friend bool operator==(const AddressBase&, const AddressBase&) = default;
};

// Memory out of which the kernel loads pointers (a table), and whether it writes to what they point
// to, or only reads it. Every word of `words` that is a pointer points into a table, which is its
// whole allocation, or two of them as with PointerUse; the other words are integers. `bases` asks
// that one word is known memory, or that all are 0: then there is no table.
//
// Each aligned word (8 bytes) of a table may be a pointer that the kernel uses, also one to the end
// of an allocation, as with PointerUse. It may be anything else as well: null, an integer, the
// address of memory that is no object. A kernel that also uses pointers which lie in what a table's
// pointers point to is unknown.
//
// The kernel uses the pointers that it finds in the table. So the caller must
//  - read the table after everything that the kernel comes after, or else take the launch as
//    unknown;
//  - make sure that nobody writes to the table from then until the kernel ends: neither others, nor
//    the kernel by way of `pointers` or of any table;
//  - count as used all that the words of the table point to.
struct TableUse {
  std::vector<std::uint32_t> words;  // bytes from the start of the parameters; sorted, not empty
  bool writes;                       // it may write, and read; otherwise it only reads
  friend bool operator==(const TableUse&, const TableUse&) = default;
};

struct KernelUses {
  std::vector<ParameterPlace> parameters;  // as declared
  std::uint32_t parameterBytes;            // up to the end of the last one
  // Sorted by offset. The kernel accesses global memory only through those that are pointers,
  // and what the pointers in `tables` point to, provided that all of `bases` are known.
  std::vector<PointerUse> pointers;
  std::vector<AddressBase> bases;
  std::vector<TableUse> tables;  // sorted by words
};

// What `kernel` (its mangled name) of the PTX text `ptx` uses. nullopt: unknown; it may access
// any memory. Takes any bytes; time and memory are linear in the text, with a bound on the effort
// for each instruction. Thread-safe. Not for the fault handler: it allocates.
std::optional<KernelUses> usesOf(std::string_view ptx, std::string_view kernel);
// Likewise, for several kernels of one text, which must still exist.
std::optional<KernelUses> usesOf(const ptx::Module& module, std::string_view kernel);

}  // namespace gmac::device_code

#endif  // GMAC_DEVICE_CODE_POINTER_USES_H_
