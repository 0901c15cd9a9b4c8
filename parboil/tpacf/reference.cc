// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <array>
#include <cmath>
#include <numbers>
#include <string>
#include <vector>

#include "parboil/parallel.h"
#include "parboil/tpacf/tpacf.h"

namespace parboil::tpacf {
namespace {

using Point = std::array<double, 3>;

double squaredDistance(const Point& a, const Point& b) {
  const double x = a[0] - b[0];
  const double y = a[1] - b[1];
  const double z = a[2] - b[2];
  return x * x + y * y + z * z;
}

double distance(const Point& a, const Point& b) { return std::sqrt(squaredDistance(a, b)); }

// The points of a set in a binary tree of balls. Immutable once made.
class Tree {
 public:
  struct Node {
    Point centre;
    double radius;
    std::uint32_t begin, end;   // of the points
    std::uint32_t left, right;  // nodes; 0 for a leaf
  };

  Tree(const float* rightAscension, const float* declination, std::uint32_t count)
      : points_(count) {
    constexpr double kDegree = std::numbers::pi / 180;
    for (std::uint32_t i = 0; i < count; ++i) {
      const double a = rightAscension[i] * kDegree;
      const double d = declination[i] * kDegree;
      points_[i] = {std::cos(d) * std::cos(a), std::cos(d) * std::sin(a), std::sin(d)};
    }
    split(0, count);
  }

  const Node& node(std::uint32_t index) const { return nodes_[index]; }
  const Point& point(std::uint32_t index) const { return points_[index]; }

 private:
  std::uint32_t split(std::uint32_t begin, std::uint32_t end) {
    constexpr std::uint32_t kLeaf = 8;
    Point low = points_[begin];
    Point high = low;
    for (std::uint32_t i = begin; i < end; ++i) {
      for (std::size_t c = 0; c < 3; ++c) {
        low[c] = std::min(low[c], points_[i][c]);
        high[c] = std::max(high[c], points_[i][c]);
      }
    }
    Node made{{}, 0, begin, end, 0, 0};
    std::size_t widest = 0;
    for (std::size_t c = 0; c < 3; ++c) {
      made.centre[c] = (low[c] + high[c]) / 2;
      if (high[c] - low[c] > high[widest] - low[widest]) widest = c;
    }
    for (std::uint32_t i = begin; i < end; ++i)
      made.radius = std::max(made.radius, distance(points_[i], made.centre));
    const auto index = static_cast<std::uint32_t>(nodes_.size());
    nodes_.push_back(made);
    if (end - begin > kLeaf) {
      const std::uint32_t middle = begin + (end - begin) / 2;
      std::nth_element(points_.begin() + begin, points_.begin() + middle, points_.begin() + end,
                       [=](const Point& a, const Point& b) { return a[widest] < b[widest]; });
      const std::uint32_t left = split(begin, middle);
      const std::uint32_t right = split(middle, end);
      nodes_[index].left = left;
      nodes_[index].right = right;
    }
    return index;
  }

  std::vector<Point> points_;
  std::vector<Node> nodes_;
};

// Counts the pairs of a point of one tree and a point of the other. Two balls whose pairs all fall
// into one bin are counted without looking at the pairs. Used by one thread.
class Counter {
 public:
  Counter(const Tree& first, const Tree& second) : first_(first), second_(second) {
    makeEdges(chords_);
    for (unsigned k = 0; k <= kBins; ++k) {
      surelyBelow_[k] = (chords_[k] - kChordSlack) * (chords_[k] - kChordSlack);
      surelyAbove_[k] = (chords_[k] + kChordSlack) * (chords_[k] + kChordSlack);
    }
  }

  Counts count() {
    visit(0, 0);
    return counts_;
  }

 private:
  // The bin of a chord; -1 and kBins for the outside.
  int binOf(double chord) const {
    return static_cast<int>(std::upper_bound(chords_, chords_ + kBins + 1, chord) - chords_) - 1;
  }

  void visit(std::uint32_t a, std::uint32_t b) {
    const Tree::Node& nodeA = first_.node(a);
    const Tree::Node& nodeB = second_.node(b);
    const double between = distance(nodeA.centre, nodeB.centre);
    const double reach = nodeA.radius + nodeB.radius + 2 * kChordSlack;
    const int nearest = binOf(between - reach);
    if (nearest == binOf(between + reach)) {
      if (nearest >= 0 && nearest < static_cast<int>(kBins)) {
        counts_.sure[nearest] += std::uint64_t{nodeA.end - nodeA.begin} * (nodeB.end - nodeB.begin);
      }
    } else if (nodeA.left != 0 && (nodeB.left == 0 || nodeA.radius >= nodeB.radius)) {
      visit(nodeA.left, b);
      visit(nodeA.right, b);
    } else if (nodeB.left != 0) {
      visit(a, nodeB.left);
      visit(a, nodeB.right);
    } else {
      for (std::uint32_t i = nodeA.begin; i < nodeA.end; ++i) {
        for (std::uint32_t j = nodeB.begin; j < nodeB.end; ++j)
          add(squaredDistance(first_.point(i), second_.point(j)));
      }
    }
  }

  void add(double squaredChord) {
    int bin = static_cast<int>(kBins);
    while (bin >= 0 && squaredChord < surelyAbove_[bin]) --bin;
    if (bin < static_cast<int>(kBins) && squaredChord > surelyBelow_[bin + 1]) {
      ++counts_.near[bin + 1];
    } else if (bin >= 0 && bin < static_cast<int>(kBins)) {
      ++counts_.sure[bin];
    }
  }

  const Tree& first_;
  const Tree& second_;
  double chords_[kBins + 1];
  double surelyBelow_[kBins + 1];  // squared chords
  double surelyAbove_[kBins + 1];
  Counts counts_{};
};

}  // namespace

void countAll(const Parameters& size, const float* degrees, Counts* counts) {
  std::vector<Tree> trees;
  trees.reserve(size.sets());
  for (std::uint32_t s = 0; s < size.sets(); ++s) {
    const float* set = degrees + 2 * std::size_t{size.points} * s;
    trees.emplace_back(set, set + size.points, size.points);
  }
  parallelFor(size.histograms(), [&](std::size_t h) {
    const Pairing pair = pairingOf(static_cast<std::uint32_t>(h), size.randomSets);
    counts[h] = Counter(trees[pair.first], trees[pair.second]).count();
    if (pair.first != pair.second) return;
    // A set against itself: every pair was seen twice, and each point against itself, which is
    // below the first edge.
    for (std::uint64_t& n : counts[h].sure) n /= 2;
    for (std::uint64_t& n : counts[h].near) n /= 2;
  });
}

// Tolerance: a bin may miss none of the pairs that are in it for certain and hold no more besides
// than those near its edges; all bins together must hold every pair that is not near the outermost
// edges.
Check compare(const Parameters& size, const unsigned long long* histograms, const Counts* counts) {
  std::uint64_t pairs = 0;
  std::uint64_t undecided = 0;
  for (std::uint32_t h = 0; h < size.histograms(); ++h) {
    const unsigned long long* got = histograms + std::size_t{h} * kBins;
    const Counts& want = counts[h];
    const auto outside = [&](const std::string& what, std::uint64_t n, std::uint64_t low,
                             std::uint64_t high) {
      return Check{false, what + " of histogram " + std::to_string(h) + " is " + std::to_string(n) +
                              ", reference " + std::to_string(low) + " to " + std::to_string(high)};
    };
    std::uint64_t total = 0;
    std::uint64_t least = 0;
    for (unsigned k = 0; k < kBins; ++k) {
      const std::uint64_t most = want.sure[k] + want.near[k] + want.near[k + 1];
      if (got[k] < want.sure[k] || got[k] > most)
        return outside("bin " + std::to_string(k), got[k], want.sure[k], most);
      total += got[k];
      least += want.sure[k] + (k == 0 ? 0 : want.near[k]);
    }
    const std::uint64_t most = least + want.near[0] + want.near[kBins];
    if (total < least || total > most) return outside("the sum", total, least, most);
    pairs += total;
    for (const std::uint64_t n : want.near) undecided += n;
  }
  return {pairs > 0, std::to_string(pairs) + " pairs in their bins, " + std::to_string(undecided) +
                         " of them too near to an edge to tell"};
}

Check check(const Context& context) {
  const Parameters size = parameters(context.size);
  std::vector<Counts> counts(size.histograms());
  const auto path = dataPath(context, "tpacf", "ref");
  if (isCurrent(path, kReference, context.size)) {
    InputFile(path, kReference, context.size).read(counts.data(), counts.size() * sizeof(Counts));
  } else {
    std::vector<float> degrees(2 * std::size_t{size.points} * size.sets());
    InputFile input(dataPath(context, "tpacf", "in"), kInput, context.size);
    input.read(degrees.data(), degrees.size() * sizeof(float));
    countAll(size, degrees.data(), counts.data());
    OutputFile file(path, kReference, context.size);
    file.write(counts.data(), counts.size() * sizeof(Counts));
    file.commit();
  }
  std::vector<unsigned long long> histograms(std::size_t{size.histograms()} * kBins);
  InputFile output(dataPath(context, "tpacf", "out"), kOutput, context.size);
  output.read(histograms.data(), histograms.size() * sizeof(unsigned long long));
  return compare(size, histograms.data(), counts.data());
}

}  // namespace parboil::tpacf
