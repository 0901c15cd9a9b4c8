// SPDX-License-Identifier: Apache-2.0
//
// Graph nodes that name memory. They run when the graph is launched, which releases and acquires
// every object. They must name the accelerator's copy, because nothing else may be touched then.
#include <cuda.h>

#include <algorithm>
#include <optional>

#include "gmac/api/adsm.h"
#include "interpose/cuda/arguments.h"
#include "interpose/cuda/call.h"

// cuda.h shows the newest signature under this name; the symbol is the older one.
#undef cuGraphAddNode
#undef cuGraphAddKernelNode
#undef cuGraphKernelNodeSetParams
#undef cuGraphExecKernelNodeSetParams
extern "C" {
CUresult cuGraphAddNode(CUgraphNode*, CUgraph, const CUgraphNode*, size_t, CUgraphNodeParams*);
CUresult cuGraphAddKernelNode(CUgraphNode*, CUgraph, const CUgraphNode*, size_t,
                              const CUDA_KERNEL_NODE_PARAMS_v1*);
CUresult cuGraphAddKernelNode_v2(CUgraphNode*, CUgraph, const CUgraphNode*, size_t,
                                 const CUDA_KERNEL_NODE_PARAMS_v2*);
CUresult cuGraphKernelNodeSetParams(CUgraphNode, const CUDA_KERNEL_NODE_PARAMS_v1*);
CUresult cuGraphKernelNodeSetParams_v2(CUgraphNode, const CUDA_KERNEL_NODE_PARAMS_v2*);
CUresult cuGraphExecKernelNodeSetParams(CUgraphExec, CUgraphNode,
                                        const CUDA_KERNEL_NODE_PARAMS_v1*);
CUresult cuGraphExecKernelNodeSetParams_v2(CUgraphExec, CUgraphNode,
                                           const CUDA_KERNEL_NODE_PARAMS_v2*);
}

#define GMAC_CUDA_PLAIN_CALLS(X)                                                               \
  X(cuGraphAddKernelNode, cuGraphAddKernelNode, 0, 12000, Node)                                \
  X(cuGraphAddKernelNode, cuGraphAddKernelNode_v2, 12000, INT_MAX, Node)                       \
  X(cuGraphKernelNodeSetParams, cuGraphKernelNodeSetParams, 0, 12000, Node)                    \
  X(cuGraphKernelNodeSetParams, cuGraphKernelNodeSetParams_v2, 12000, INT_MAX, Node)           \
  X(cuGraphExecKernelNodeSetParams, cuGraphExecKernelNodeSetParams, 0, 12000, Node)            \
  X(cuGraphExecKernelNodeSetParams, cuGraphExecKernelNodeSetParams_v2, 12000, INT_MAX, Node)   \
  X(cuGraphAddMemcpyNode, cuGraphAddMemcpyNode, 0, INT_MAX, Node)                              \
  X(cuGraphMemcpyNodeSetParams, cuGraphMemcpyNodeSetParams, 0, INT_MAX, Node)                  \
  X(cuGraphExecMemcpyNodeSetParams, cuGraphExecMemcpyNodeSetParams, 0, INT_MAX, Node)          \
  X(cuGraphAddMemsetNode, cuGraphAddMemsetNode, 0, INT_MAX, Node)                              \
  X(cuGraphMemsetNodeSetParams, cuGraphMemsetNodeSetParams, 0, INT_MAX, Node)                  \
  X(cuGraphExecMemsetNodeSetParams, cuGraphExecMemsetNodeSetParams, 0, INT_MAX, Node)          \
  X(cuGraphAddBatchMemOpNode, cuGraphAddBatchMemOpNode, 0, INT_MAX, WaitingNode)               \
  X(cuGraphBatchMemOpNodeSetParams, cuGraphBatchMemOpNodeSetParams, 0, INT_MAX, WaitingNode)   \
  X(cuGraphExecBatchMemOpNodeSetParams, cuGraphExecBatchMemOpNodeSetParams, 0, INT_MAX,        \
    WaitingNode)                                                                               \
  X(cuGraphAddExternalSemaphoresWaitNode, cuGraphAddExternalSemaphoresWaitNode, 0, INT_MAX,    \
    WaitingNode)                                                                               \
  X(cuGraphExternalSemaphoresWaitNodeSetParams, cuGraphExternalSemaphoresWaitNodeSetParams, 0, \
    INT_MAX, WaitingNode)                                                                      \
  X(cuGraphExecExternalSemaphoresWaitNodeSetParams,                                            \
    cuGraphExecExternalSemaphoresWaitNodeSetParams, 0, INT_MAX, WaitingNode)                   \
  X(cuGraphAddNode, cuGraphAddNode, 12020, 12030, WaitingNode)                                 \
  X(cuGraphAddNode, cuGraphAddNode_v2, 12030, INT_MAX, WaitingNode)                            \
  X(cuGraphNodeSetParams, cuGraphNodeSetParams, 0, INT_MAX, WaitingNode)                       \
  X(cuGraphExecNodeSetParams, cuGraphExecNodeSetParams, 0, INT_MAX, WaitingNode)

namespace gmac::interpose {
namespace {

GMAC_CUDA_PLAIN_CALLS(GMAC_CUDA_PLAIN_TYPE)

// What a description says: a shared address that no node may name, or 0; why the description cannot
// be read, if it cannot; and whether it is a copy or fill of a shared range.
struct Findings {
  std::uintptr_t unusable = 0;
  CUresult result = CUDA_SUCCESS;
  Ranges ranges;  // that it copies or fills
};

// A node's description as the driver gets it; the caller's own is not changed.
template <typename Argument>
struct Described : Findings {
  explicit Described(Argument given) : argument(given) {}
  Argument argument;
};

template <typename Kernel>
concept NamesKernel = requires(const Kernel& kernel) {
  kernel.kern;
};

// A kernel node. The driver reads its arguments now.
template <typename Kernel>
struct DescribedKernel : Findings {
  explicit DescribedKernel(const Kernel* given) : argument(given) {
    if (given == nullptr) return;
    kernel = *given;
    argument = &kernel;
    CUfunction function = kernel.func;
    if constexpr (NamesKernel<Kernel>) {
      if (function == nullptr) function = reinterpret_cast<CUfunction>(kernel.kern);
    }
    arguments.emplace(function, kernel.kernelParams, kernel.extra);
    kernel.kernelParams = arguments->params();
    kernel.extra = arguments->extra();
    result = arguments->result();
  }
  Kernel kernel;
  std::optional<LaunchArguments> arguments;
  const Kernel* argument;
};

template <>
struct Described<const CUDA_KERNEL_NODE_PARAMS_v1*> : DescribedKernel<CUDA_KERNEL_NODE_PARAMS_v1> {
  using DescribedKernel::DescribedKernel;
};
template <>
struct Described<const CUDA_KERNEL_NODE_PARAMS_v2*> : DescribedKernel<CUDA_KERNEL_NODE_PARAMS_v2> {
  using DescribedKernel::DescribedKernel;
};

// As nameDevice(). What the driver finds by itself stays as the program has described it: it
// accepts no other kind of memory for a node later, and nodes of captured copies have the program's
// kinds.
Ranges nameNode(CUDA_MEMCPY3D& copy) {
  const CUmemorytype from = copy.srcMemoryType;
  const CUmemorytype to = copy.dstMemoryType;
  const NamedCopy named = interpose::nameDevice(copy);
  if (from == CU_MEMORYTYPE_UNIFIED) copy.srcMemoryType = from;
  if (to == CU_MEMORYTYPE_UNIFIED) copy.dstMemoryType = to;
  Ranges ranges;
  if (named.fromShared) ranges.reads(named.from);
  if (named.toShared) ranges.writes(named.to);
  return ranges;
}

template <typename Fill>
Ranges nameFill(Fill& fill) {
  Ranges ranges;
  const std::uintptr_t first = cpuAddressOf(fill.dst);
  if (!shared(first, 1)) return ranges;
  fill.dst = onDevice(first);
  ranges.writes(spanOf(first, fill.width * fill.elementSize, fill.height, 1, fill.pitch, 0));
  return ranges;
}

bool waits(const CUstreamBatchMemOpParams& value) {
  return value.operation == CU_STREAM_MEM_OP_WAIT_VALUE_32 ||
         value.operation == CU_STREAM_MEM_OP_WAIT_VALUE_64;
}

// A stream that waits for a value stored by the CPU would wait forever, and a store would be lost
// among the CPU's: nothing releases and acquires around a single node.
std::uintptr_t sharedValue(const CUstreamBatchMemOpParams* values, unsigned count) {
  for (unsigned i = 0; values != nullptr && i < count; ++i) {
    const CUstreamBatchMemOpType operation = values[i].operation;
    const bool waits = interpose::waits(values[i]);
    const bool writes = operation == CU_STREAM_MEM_OP_WRITE_VALUE_32 ||
                        operation == CU_STREAM_MEM_OP_WRITE_VALUE_64;
    if (!waits && !writes) continue;
    const CUdeviceptr address = waits ? values[i].waitValue.address : values[i].writeValue.address;
    if (shared(cpuAddressOf(address), 1)) return address;
  }
  return 0;
}

template <>
struct Described<const CUDA_MEMCPY3D*> : Findings {
  explicit Described(const CUDA_MEMCPY3D* given) : argument(given) {
    if (given == nullptr) return;
    copy = *given;
    ranges = nameNode(copy);
    if (!ranges.all().empty()) argument = &copy;
  }
  CUDA_MEMCPY3D copy;
  const CUDA_MEMCPY3D* argument;
};

template <>
struct Described<const CUDA_MEMSET_NODE_PARAMS*> : Findings {
  explicit Described(const CUDA_MEMSET_NODE_PARAMS* given) : argument(given) {
    if (given == nullptr) return;
    fill = *given;
    ranges = nameFill(fill);
    argument = &fill;
  }
  CUDA_MEMSET_NODE_PARAMS fill;
  const CUDA_MEMSET_NODE_PARAMS* argument;
};

template <>
struct Described<const CUDA_BATCH_MEM_OP_NODE_PARAMS*> : Findings {
  explicit Described(const CUDA_BATCH_MEM_OP_NODE_PARAMS* given) : argument(given) {
    if (given != nullptr) unusable = sharedValue(given->paramArray, given->count);
  }
  const CUDA_BATCH_MEM_OP_NODE_PARAMS* argument;
};

// The description that holds any kind of node. The driver writes into some kinds, so only a kind
// that it just reads is replaced by a copy.
template <>
struct Described<CUgraphNodeParams*> : Findings {
  explicit Described(CUgraphNodeParams* given) : argument(given) {
    if (given == nullptr) return;
    switch (given->type) {
      case CU_GRAPH_NODE_TYPE_KERNEL:
        node = *given;
        kernel.emplace(&node.kernel);
        node.kernel = kernel->kernel;
        result = kernel->result;
        argument = &node;
        break;
      case CU_GRAPH_NODE_TYPE_MEMCPY:
        node = *given;
        ranges = nameNode(node.memcpy.copyParams);
        argument = &node;
        break;
      case CU_GRAPH_NODE_TYPE_MEMSET:
        node = *given;
        ranges = nameFill(node.memset);
        argument = &node;
        break;
      case CU_GRAPH_NODE_TYPE_BATCH_MEM_OP:
        unusable = sharedValue(given->memOp.paramArray, given->memOp.count);
        break;
      default:
        break;
    }
  }
  CUgraphNodeParams node;
  CUgraphNodeParams* argument;
  std::optional<DescribedKernel<CUDA_KERNEL_NODE_PARAMS_v3>> kernel;
};

struct Node {
  template <ZeroStream Zero, typename Real, typename... Args>
  static CUresult run(Real real, Args... args) {
    return add(real, Described<Args>(args)...);
  }

 private:
  template <typename Real, typename... Arguments>
  static CUresult add(Real real, const Arguments&... described) {
    CUresult result = CUDA_SUCCESS;
    ((result = described.result != CUDA_SUCCESS ? described.result : result), ...);
    if (result != CUDA_SUCCESS) return result;
    std::uintptr_t unusable = 0;
    ((unusable = described.unusable != 0 ? described.unusable : unusable), ...);
    if (unusable != 0) {
      return refuse(adsmErrorNotSupported, "a graph's stream memory operation", unusable,
                    "it would not be seen by the CPU; use a kernel or a copy");
    }
    if ((described.ranges.all().empty() && ...)) return direct(real, described.argument...);
    // Kernels may use memory of both kinds; a range may not lie in both when the graph runs, nor
    // when the driver looks at it now. It may refuse the node: until then it is as in a capture.
    coherence::captureBegins();
    (coherence::work().keepWhole(described.ranges.all()), ...);
    result = direct(real, described.argument...);
    if (result == CUDA_SUCCESS) coherence::noteRecorded();
    coherence::captureEnds();
    return result;
  }
};

// Whether an argument describes a node that waits for what the CPU, another process or another API
// does.
template <typename Argument>
bool mayWait(Argument) {
  return false;
}
bool anyWaits(const CUstreamBatchMemOpParams* values, unsigned count) {
  return values != nullptr && std::any_of(values, values + count, waits);
}
bool mayWait(const CUDA_BATCH_MEM_OP_NODE_PARAMS* node) {
  return node != nullptr && anyWaits(node->paramArray, node->count);
}
bool mayWait(const CUDA_EXT_SEM_WAIT_NODE_PARAMS*) { return true; }
bool mayWait(CUgraphNodeParams* node) {
  if (node == nullptr) return false;
  return node->type == CU_GRAPH_NODE_TYPE_EXT_SEMAS_WAIT ||
         (node->type == CU_GRAPH_NODE_TYPE_BATCH_MEM_OP &&
          anyWaits(node->memOp.paramArray, node->memOp.count));
}

// A node of a kind that may wait, or of any kind. The graph may be launched once something is
// shared.
struct WaitingNode {
  static constexpr bool kEvenUnshared = true;

  template <ZeroStream Zero, typename Real, typename... Args>
  static CUresult run(Real real, Args... args) {
    const bool waits = (mayWait(args) || ...);
    const CUresult result =
        anythingShared() ? Node::run<Zero>(real, args...) : direct(real, args...);
    if (waits && result == CUDA_SUCCESS) coherence::noteOpenWait();
    return result;
  }
};

}  // namespace

GMAC_CUDA_TABLE(cudaGraphs, GMAC_CUDA_NONE, GMAC_CUDA_PLAIN_CALLS)

}  // namespace gmac::interpose
