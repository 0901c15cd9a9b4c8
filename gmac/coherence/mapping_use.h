// SPDX-License-Identifier: Apache-2.0
//
// How many of the process's mappings the objects take.
#ifndef GMAC_COHERENCE_MAPPING_USE_H_
#define GMAC_COHERENCE_MAPPING_USE_H_

#include <cstddef>

#include "gmac/coherence/object.h"
#include "gmac/os/mapping_budget.h"

namespace gmac {

// Counts what living objects take: for themselves, for installed chunks (pieces), and for edges
// between blocks. Guarded by the lock; fault path.
class MappingUse {
 public:
  // An object, or all of them together, with fewer edges is left alone while the kernel has
  // mappings.
  static constexpr std::size_t kFewEdges = 64;
  // Mappings that one change takes, at most.
  static constexpr std::size_t kOfAChange = 2;
  static constexpr std::size_t kOfAMovedChunk = 2;  // where it was, and where it is

  // `limit`: of the process; 0: the kernel's.
  MappingUse(std::size_t limit, bool movedPages) : budget_(limit), movedPages_(movedPages) {}

  // An object lives; does no more, and has no edges.
  void added(const Object& object) {
    ++objects_;
    pieces_ += object.pieces;
  }
  void removed(const Object& object) {
    --objects_;
    pieces_ -= object.pieces;
  }
  void noteEdges(Object& object, std::size_t edges) {
    if (edges > object.edges) {
      budget_.taken();
    }
    edges_ = edges_ - object.edges + edges;
    object.edges = edges;
  }
  // A chunk of a living object was installed.
  void installed(Object& object) {
    if (movedPages_) {
      object.pieces += kOfAMovedChunk;
      pieces_ += kOfAMovedChunk;
    }
  }

  std::size_t objects() const { return objects_; }
  std::size_t edges() const { return edges_; }
  std::size_t ofAnObject() const { return movedPages_ ? 3 : 1; }
  // Those that the objects have, if the kernel joins no two objects.
  std::size_t total() const { return objects_ * ofAnObject() + pieces_ + edges_; }
  // Whether the objects may take `more`; whether they may, or have few edges.
  bool allows(std::size_t more) { return budget_.allows(total(), more); }
  bool allowsOrFew(std::size_t more) { return edges_ < kFewEdges || allows(more); }
  const os::MappingBudget& budget() const { return budget_; }

 private:
  os::MappingBudget budget_;
  const bool movedPages_;
  std::size_t objects_ = 0;
  std::size_t edges_ = 0;
  std::size_t pieces_ = 0;
};

}  // namespace gmac

#endif  // GMAC_COHERENCE_MAPPING_USE_H_
