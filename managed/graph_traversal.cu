// SPDX-License-Identifier: Apache-2.0
//
// Breadth-first search over a linked graph: nodes with lists of links, in many managed allocations
// that point into one another. The CPU builds the lists, the GPU follows them level by level, the
// CPU asks after each level whether anything was reached. Then the CPU puts shortcuts into the same
// lists, and the search runs again. Result: every node's distance, twice.
#include <deque>

#include "managed/program.h"

namespace {

using namespace managed;

struct Link;

struct Node {
  Link* first;
  unsigned distance;
};

struct Link {
  Node* to;
  Link* next;
};

constexpr unsigned kFar = ~0U;
constexpr std::size_t kDegree = 6;
// Neighbours are near, so that a search has many levels.
constexpr std::size_t kReach = 4096;
// Elements of one allocation.
constexpr std::size_t kRoom = 1 << 16;

std::size_t neighbour(std::size_t node, std::size_t k, std::size_t nodes) {
  return (node + 1 + randomWord(node * kDegree + k) % kReach) % nodes;
}

// The i-th shortcut.
struct Shortcut {
  std::size_t from;
  std::size_t to;
};
Shortcut shortcut(std::size_t i, std::size_t nodes) {
  const std::uint64_t word = randomWord(~i);
  return {(word >> 32) % nodes, (word & 0xFFFFFFFFU) % nodes};
}

__global__ void visit(Node* const* rooms, std::size_t nodes, unsigned level, unsigned* reached) {
  const std::size_t i = std::size_t{blockIdx.x} * blockDim.x + threadIdx.x;
  if (i >= nodes) return;
  const Node& node = rooms[i / kRoom][i % kRoom];
  if (node.distance != level) return;
  unsigned found = 0;
  for (const Link* link = node.first; link != nullptr; link = link->next) {
    if (atomicCAS(&link->to->distance, kFar, level + 1) == kFar) ++found;
  }
  if (found > 0) atomicAdd(reached, found);
}

class Graph {
 public:
  explicit Graph(std::size_t nodes)
      : count_(nodes), rooms_((nodes + kRoom - 1) / kRoom), reached_(1) {
    for (std::size_t i = 0; i < rooms_.size(); ++i) {
      nodes_.emplace_back(kRoom);
      rooms_[i] = nodes_.back().data();
    }
    for (std::size_t i = 0; i < count_; ++i) node(i) = {nullptr, kFar};
    for (std::size_t i = 0; i < count_; ++i) {
      for (std::size_t k = 0; k < kDegree; ++k) connect(i, neighbour(i, k, count_));
    }
  }

  void connect(std::size_t from, std::size_t to) {
    if (linksUsed_ == links_.size() * kRoom) links_.emplace_back(kRoom);
    Link& link = links_.back()[linksUsed_++ % kRoom];
    link = {&node(to), node(from).first};
    node(from).first = &link;
  }

  // Appends all distances from `start` to `result`.
  void search(std::size_t start, std::vector<unsigned char>& result) {
    for (std::size_t i = 0; i < count_; ++i) node(i).distance = kFar;
    node(start).distance = 0;
    constexpr unsigned kThreads = 256;
    for (unsigned level = 0;; ++level) {
      reached_[0] = 0;
      visit<<<blocksFor(count_, kThreads), kThreads>>>(rooms_.data(), count_, level,
                                                       reached_.data());
      check(cudaGetLastError(), "launch");
      check(cudaDeviceSynchronize(), "cudaDeviceSynchronize");
      if (reached_[0] == 0) break;
    }
    std::vector<unsigned> distances(count_);
    for (std::size_t i = 0; i < count_; ++i) distances[i] = node(i).distance;
    append(result, distances.data(), count_ * sizeof(unsigned));
  }

 private:
  Node& node(std::size_t i) const { return rooms_[i / kRoom][i % kRoom]; }

  std::size_t count_;
  Array<Node*> rooms_;
  Array<unsigned> reached_;
  std::deque<Array<Node>> nodes_;
  std::deque<Array<Link>> links_;
  std::size_t linksUsed_ = 0;
};

// The distances without any list: the neighbours are computed again.
std::vector<unsigned> reference(std::size_t nodes, std::size_t start,
                                const std::vector<std::vector<std::size_t>>& shortcuts) {
  std::vector<unsigned> distances(nodes, kFar);
  std::vector<std::size_t> queue = {start};
  distances[start] = 0;
  for (std::size_t next = 0; next < queue.size(); ++next) {
    const std::size_t from = queue[next];
    const auto reach = [&](std::size_t to) {
      if (distances[to] != kFar) return;
      distances[to] = distances[from] + 1;
      queue.push_back(to);
    };
    for (std::size_t k = 0; k < kDegree; ++k) reach(neighbour(from, k, nodes));
    if (!shortcuts.empty()) {
      for (const std::size_t to : shortcuts[from]) reach(to);
    }
  }
  return distances;
}

Outcome traverse(const Request& request) {
  const std::size_t nodes =
      bySize<std::size_t>(request.size, 100'000, std::size_t{1} << 20, std::size_t{1} << 22);
  const std::size_t shortcutCount = nodes / 1000;
  const std::size_t second = nodes / 3;
  Outcome outcome;
  const Clock clock;
  {
    Graph graph(nodes);
    graph.search(0, outcome.result);
    for (std::size_t i = 0; i < shortcutCount; ++i) {
      const Shortcut added = shortcut(i, nodes);
      graph.connect(added.from, added.to);
    }
    graph.search(second, outcome.result);
  }
  outcome.seconds = clock.seconds();

  if (request.check) {
    const auto* const got = reinterpret_cast<const unsigned*>(outcome.result.data());
    std::vector<std::vector<std::size_t>> shortcuts;
    outcome.wrong = firstDifference("distance", got, reference(nodes, 0, shortcuts).data(), nodes);
    shortcuts.resize(nodes);
    for (std::size_t i = 0; i < shortcutCount; ++i) {
      const Shortcut added = shortcut(i, nodes);
      shortcuts[added.from].push_back(added.to);
    }
    if (outcome.wrong.empty()) {
      outcome.wrong = firstDifference("distance with shortcuts", got + nodes,
                                      reference(nodes, second, shortcuts).data(), nodes);
    }
  }
  return outcome;
}

}  // namespace

int main(int argc, char** argv) { return runProgram(argc, argv, "graph_traversal", traverse); }
