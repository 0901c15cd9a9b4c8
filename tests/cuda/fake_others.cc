// SPDX-License-Identifier: Apache-2.0
//
// The fake driver's arrays, batches, graphs, functions of the CPU, stores of streams, contexts, and
// the calls that the runtime refuses. Also the names by which programs find them.
#include <algorithm>
#include <cstring>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <span>
#include <string>

#include "tests/cuda/fake_internal.h"

using namespace gmac::fake_cuda;  // NOLINT: the driver's functions live in no namespace

struct CUgraphNode_st {
  CUDA_MEMCPY3D copy;
};
struct CUgraph_st {
  std::vector<std::function<CUresult()>> nodes;
  std::deque<CUgraphNode_st> copies;
};
struct CUgraphExec_st {
  CUgraph_st graph;
};

namespace {

std::function<CUresult()> copyOf(const CUDA_MEMCPY3D& copy) {
  return [copy] {
    const auto at = [](CUmemorytype type, const void* host, CUdeviceptr device) {
      return type == CU_MEMORYTYPE_HOST ? reinterpret_cast<CUdeviceptr>(host) : device;
    };
    const CUdeviceptr from = at(copy.srcMemoryType, copy.srcHost, copy.srcDevice);
    const CUdeviceptr to = at(copy.dstMemoryType, copy.dstHost, copy.dstDevice);
    for (std::size_t z = 0; z < copy.Depth; ++z) {
      for (std::size_t y = 0; y < copy.Height; ++y) {
        std::memcpy(bytesAt(to + copy.dstXInBytes + (z * copy.dstHeight + y) * copy.dstPitch),
                    bytesAt(from + copy.srcXInBytes + (z * copy.srcHeight + y) * copy.srcPitch),
                    copy.WidthInBytes);
      }
    }
    return CUDA_SUCCESS;
  };
}

// Each attribute holds from an entry on. What is to be read during the call is read then. The
// entries before one that is wrong are queued.
CUresult submitBatch(std::span<const CUdeviceptr> to, const CUdeviceptr* from,
                     const std::size_t* bytes, const CUmemcpyAttributes* attributes,
                     std::span<const std::size_t> firsts, std::size_t* failed, CUstream stream) {
  if (failed != nullptr) *failed = SIZE_MAX;
  if (firsts.empty() || firsts.size() > to.size() || attributes == nullptr || firsts[0] != 0 ||
      firsts.back() >= to.size() ||
      std::adjacent_find(firsts.begin(), firsts.end(), std::greater_equal<>()) != firsts.end()) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  std::size_t attribute = 0;
  for (std::size_t i = 0; i < to.size(); ++i) {
    if (bytes[i] == 0 || !ofOneKind(to[i], bytes[i]) || !ofOneKind(from[i], bytes[i])) {
      if (failed != nullptr) *failed = i;
      return CUDA_ERROR_INVALID_VALUE;
    }
    if (attribute + 1 < firsts.size() && firsts[attribute + 1] == i) ++attribute;
    std::vector<std::byte> now;
    if (attributes[attribute].srcAccessOrder == CU_MEMCPY_SRC_ACCESS_ORDER_DURING_API_CALL) {
      now.assign(bytesAt(from[i]), bytesAt(from[i]) + bytes[i]);
    }
    submit(stream, [now, target = to[i], source = from[i], size = bytes[i]] {
      std::memcpy(bytesAt(target), now.empty() ? bytesAt(source) : now.data(), size);
      return CUDA_SUCCESS;
    });
  }
  return CUDA_SUCCESS;
}

template <typename Fill>
std::function<CUresult()> fillOf(const Fill& fill) {
  return [fill] {
    if (backingOf(fill.dst) == nullptr) return CUDA_ERROR_ILLEGAL_ADDRESS;
    for (std::size_t i = 0; i < fill.width; ++i)
      std::memcpy(backingOf(fill.dst) + i * fill.elementSize, &fill.value, fill.elementSize);
    return CUDA_SUCCESS;
  };
}

template <typename Node>
std::function<CUresult()> nodeOf(const Node& node) {
  const unsigned grid[] = {node.gridDimX, node.gridDimY, node.gridDimZ};
  const unsigned block[] = {node.blockDimX, node.blockDimY, node.blockDimZ};
  return launchOf(node.func != nullptr ? node.func : reinterpret_cast<CUfunction>(node.kern), grid,
                  block, node.sharedMemBytes, node.kernelParams, node.extra);
}

}  // namespace

extern "C" {

#pragma GCC visibility push(default)

CUresult cuArrayCreate(CUarray* array, const CUDA_ARRAY_DESCRIPTOR* description) {
  FAKE_CALL();
  const std::size_t channel = description->Format == CU_AD_FORMAT_FLOAT ? sizeof(float) : 1;
  if (channel == 1 && description->Format != CU_AD_FORMAT_UNSIGNED_INT8) {
    return CUDA_ERROR_NOT_SUPPORTED;
  }
  CUDA_ARRAY_DESCRIPTOR described = *description;
  described.Height = std::max<std::size_t>(described.Height, 1);
  const std::size_t element = channel * described.NumChannels;
  *array = new CUarray_st{described, element,
                          std::vector<std::byte>(described.Width * element * described.Height)};
  return CUDA_SUCCESS;
}
CUresult cuArray3DGetDescriptor(CUDA_ARRAY3D_DESCRIPTOR* description, CUarray array) {
  FAKE_CALL();
  *description = {array->description.Width,  array->description.Height,      0,
                  array->description.Format, array->description.NumChannels, 0};
  return CUDA_SUCCESS;
}
CUresult cuArrayDestroy(CUarray array) {
  FAKE_CALL();
  delete array;
  return CUDA_SUCCESS;
}
CUresult cuMemcpyHtoA(CUarray array, std::size_t offset, const void* from, std::size_t bytes) {
  FAKE_CALL();
  std::memcpy(array->bytes.data() + offset, from, bytes);
  return CUDA_SUCCESS;
}
CUresult cuMemcpyAtoH(void* to, CUarray array, std::size_t offset, std::size_t bytes) {
  FAKE_CALL();
  std::memcpy(to, array->bytes.data() + offset, bytes);
  return CUDA_SUCCESS;
}
CUresult cuMemcpyDtoA(CUarray array, std::size_t offset, CUdeviceptr from, std::size_t bytes) {
  FAKE_CALL();
  std::memcpy(array->bytes.data() + offset, bytesAt(from), bytes);
  return CUDA_SUCCESS;
}
CUresult cuMemcpyAtoD(CUdeviceptr to, CUarray array, std::size_t offset, std::size_t bytes) {
  FAKE_CALL();
  std::memcpy(bytesAt(to), array->bytes.data() + offset, bytes);
  return CUDA_SUCCESS;
}
CUresult cuMemcpyHtoAAsync(CUarray array, std::size_t offset, const void* from, std::size_t bytes,
                           CUstream) {
  return cuMemcpyHtoA(array, offset, from, bytes);
}
CUresult cuMemcpyAtoHAsync(void* to, CUarray array, std::size_t offset, std::size_t bytes,
                           CUstream) {
  return cuMemcpyAtoH(to, array, offset, bytes);
}

CUresult cuMemcpyBatchAsync(CUdeviceptr* to, CUdeviceptr* from, std::size_t* bytes,
                            std::size_t count, CUmemcpyAttributes* attributes, std::size_t* firsts,
                            std::size_t attributeCount, CUstream stream) {
  FAKE_CALL();
  return submitBatch({to, count}, from, bytes, attributes, {firsts, attributeCount}, nullptr,
                     stream);
}
CUresult cuMemcpy3DBatchAsync(std::size_t count, CUDA_MEMCPY3D_BATCH_OP* operations,
                              unsigned long long, CUstream stream) {
  FAKE_CALL();
  for (std::size_t i = 0; i < count; ++i) {
    CUDA_MEMCPY3D copy{};
    const auto pitch = [&](const CUmemcpy3DOperand& operand) {
      return operand.op.ptr.rowLength != 0 ? operand.op.ptr.rowLength : operations[i].extent.width;
    };
    copy.srcMemoryType = copy.dstMemoryType = CU_MEMORYTYPE_DEVICE;
    copy.srcDevice = operations[i].src.op.ptr.ptr;
    copy.dstDevice = operations[i].dst.op.ptr.ptr;
    copy.srcPitch = pitch(operations[i].src);
    copy.dstPitch = pitch(operations[i].dst);
    copy.srcHeight = copy.dstHeight = copy.Height = operations[i].extent.height;
    copy.WidthInBytes = operations[i].extent.width;
    copy.Depth = operations[i].extent.depth;
    if (!ofOneKind(copy)) return CUDA_ERROR_INVALID_VALUE;
    submit(stream, copyOf(copy));
  }
  return CUDA_SUCCESS;
}

CUresult cuGraphCreate(CUgraph* graph, unsigned) {
  FAKE_CALL();
  *graph = new CUgraph_st;
  return CUDA_SUCCESS;
}
CUresult cuGraphDestroy(CUgraph graph) {
  FAKE_CALL();
  delete graph;
  return CUDA_SUCCESS;
}
CUresult cuGraphAddMemcpyNode(CUgraphNode* node, CUgraph graph, const CUgraphNode*, std::size_t,
                              const CUDA_MEMCPY3D* copy, CUcontext) {
  FAKE_CALL();
  graph->nodes.push_back(copyOf(*copy));
  if (node != nullptr) *node = &graph->copies.emplace_back(CUgraphNode_st{*copy});
  return CUDA_SUCCESS;
}
CUresult cuGraphMemcpyNodeGetParams(CUgraphNode node, CUDA_MEMCPY3D* copy) {
  FAKE_CALL();
  *copy = node->copy;
  return CUDA_SUCCESS;
}
CUresult cuGraphAddMemsetNode(CUgraphNode*, CUgraph graph, const CUgraphNode*, std::size_t,
                              const CUDA_MEMSET_NODE_PARAMS* fill, CUcontext) {
  FAKE_CALL();
  graph->nodes.push_back(fillOf(*fill));
  return CUDA_SUCCESS;
}
CUresult cuGraphAddBatchMemOpNode(CUgraphNode*, CUgraph, const CUgraphNode*, std::size_t,
                                  const CUDA_BATCH_MEM_OP_NODE_PARAMS*) {
  FAKE_CALL();
  return CUDA_SUCCESS;
}
CUresult cuGraphBatchMemOpNodeSetParams(CUgraphNode, const CUDA_BATCH_MEM_OP_NODE_PARAMS*) {
  FAKE_CALL();
  return CUDA_SUCCESS;
}
CUresult cuGraphExecBatchMemOpNodeSetParams(CUgraphExec, CUgraphNode,
                                            const CUDA_BATCH_MEM_OP_NODE_PARAMS*) {
  FAKE_CALL();
  return CUDA_SUCCESS;
}
CUresult cuGraphAddExternalSemaphoresWaitNode(CUgraphNode*, CUgraph, const CUgraphNode*,
                                              std::size_t, const CUDA_EXT_SEM_WAIT_NODE_PARAMS*) {
  FAKE_CALL();
  return CUDA_SUCCESS;
}
CUresult cuGraphExternalSemaphoresWaitNodeSetParams(CUgraphNode,
                                                    const CUDA_EXT_SEM_WAIT_NODE_PARAMS*) {
  FAKE_CALL();
  return CUDA_SUCCESS;
}
CUresult cuGraphExecExternalSemaphoresWaitNodeSetParams(CUgraphExec, CUgraphNode,
                                                        const CUDA_EXT_SEM_WAIT_NODE_PARAMS*) {
  FAKE_CALL();
  return CUDA_SUCCESS;
}
CUresult cuGraphNodeSetParams(CUgraphNode, CUgraphNodeParams*) {
  FAKE_CALL();
  return CUDA_SUCCESS;
}
CUresult cuGraphExecNodeSetParams(CUgraphExec, CUgraphNode, CUgraphNodeParams*) {
  FAKE_CALL();
  return CUDA_SUCCESS;
}
CUresult cuGraphAddNode(CUgraphNode*, CUgraph graph, const CUgraphNode*, const CUgraphEdgeData*,
                        std::size_t, CUgraphNodeParams* node) {
  FAKE_CALL();
  if (node->type == CU_GRAPH_NODE_TYPE_MEMCPY)
    graph->nodes.push_back(copyOf(node->memcpy.copyParams));
  if (node->type == CU_GRAPH_NODE_TYPE_KERNEL) graph->nodes.push_back(nodeOf(node->kernel));
  if (node->type == CU_GRAPH_NODE_TYPE_MEMSET) graph->nodes.push_back(fillOf(node->memset));
  return CUDA_SUCCESS;
}
CUresult cuGraphAddKernelNode(CUgraphNode*, CUgraph graph, const CUgraphNode*, std::size_t,
                              const CUDA_KERNEL_NODE_PARAMS* node) {
  FAKE_CALL();
  graph->nodes.push_back(nodeOf(*node));
  return CUDA_SUCCESS;
}
CUresult cuGraphInstantiateWithFlags(CUgraphExec* executable, CUgraph graph, unsigned long long) {
  FAKE_CALL();
  *executable = new CUgraphExec_st{*graph};
  return CUDA_SUCCESS;
}
CUresult cuGraphExecDestroy(CUgraphExec executable) {
  FAKE_CALL();
  delete executable;
  return CUDA_SUCCESS;
}
CUresult cuGraphLaunch(CUgraphExec executable, CUstream stream) {
  FAKE_CALL();
  for (const auto& node : executable->graph.nodes) submit(stream, node);
  return CUDA_SUCCESS;
}

CUresult cuLaunchCooperativeKernel(CUfunction function, unsigned gridX, unsigned gridY,
                                   unsigned gridZ, unsigned blockX, unsigned blockY,
                                   unsigned blockZ, unsigned sharedBytes, CUstream stream,
                                   void** args) {
  return cuLaunchKernel(function, gridX, gridY, gridZ, blockX, blockY, blockZ, sharedBytes, stream,
                        args, nullptr);
}
CUresult cuLaunchKernelEx(const CUlaunchConfig* config, CUfunction function, void** args,
                          void** extra) {
  return cuLaunchKernel(function, config->gridDimX, config->gridDimY, config->gridDimZ,
                        config->blockDimX, config->blockDimY, config->blockDimZ,
                        config->sharedMemBytes, config->hStream, args, extra);
}

CUresult cuLaunchHostFunc(CUstream stream, CUhostFn function, void* userData) {
  FAKE_CALL();
  return submitHost(stream, [=] { function(userData); });
}
CUresult cuStreamAddCallback(CUstream stream, CUstreamCallback callback, void* userData, unsigned) {
  FAKE_CALL();
  return submitHost(stream, [=] { callback(stream, CUDA_SUCCESS, userData); });
}

CUresult cuStreamWriteValue32(CUstream stream, CUdeviceptr address, cuuint32_t value, unsigned) {
  FAKE_CALL();
  return submit(stream, [=] {
    std::memcpy(bytesAt(address), &value, sizeof value);
    return CUDA_SUCCESS;
  });
}
CUresult cuStreamWriteValue64(CUstream stream, CUdeviceptr address, cuuint64_t value, unsigned) {
  FAKE_CALL();
  return submit(stream, [=] {
    std::memcpy(bytesAt(address), &value, sizeof value);
    return CUDA_SUCCESS;
  });
}
CUresult cuStreamWaitValue32(CUstream, CUdeviceptr, cuuint32_t, unsigned) {
  FAKE_CALL();
  return CUDA_SUCCESS;
}
CUresult cuStreamBatchMemOp(CUstream, unsigned, CUstreamBatchMemOpParams*, unsigned) {
  FAKE_CALL();
  return CUDA_SUCCESS;
}

CUresult cuCtxCreate(CUcontext* context, CUctxCreateParams*, unsigned, CUdevice device) {
  FAKE_CALL();
  if (!isDevice(device)) return CUDA_ERROR_INVALID_DEVICE;
  *context = makeContext(device);
  return cuCtxPushCurrent(*context);
}
CUresult cuCtxDestroy(CUcontext context) {
  FAKE_CALL();
  CUcontext current = nullptr;
  if (cuCtxGetCurrent(&current) == CUDA_SUCCESS && current == context) cuCtxPopCurrent(&current);
  endContext(context);
  return CUDA_SUCCESS;
}
CUresult cuDevicePrimaryCtxReset(CUdevice device) {
  const Call call(__func__);  // also where a kernel has crashed
  if (!isDevice(device)) return CUDA_ERROR_INVALID_DEVICE;
  resetDevice(device);
  return CUDA_SUCCESS;
}

CUresult cuMemRetainAllocationHandle(CUmemGenericAllocationHandle*, void*) {
  FAKE_CALL();
  return CUDA_SUCCESS;
}
CUresult cuMemGetHandleForAddressRange(void*, CUdeviceptr, std::size_t, CUmemRangeHandleType,
                                       unsigned long long) {
  FAKE_CALL();
  return CUDA_SUCCESS;
}

#pragma GCC visibility pop
}

namespace gmac::fake_cuda {

namespace {
#define FAKE_ENTRY(entry) {#entry, reinterpret_cast<void*>(&::entry)},
const std::map<std::string, void*> kEntries = {
    FAKE_ENTRY(cuLaunchCooperativeKernel) FAKE_ENTRY(cuLaunchKernelEx) FAKE_ENTRY(
        cuGraphAddKernelNode) FAKE_ENTRY(cuMemFreeHost) FAKE_ENTRY(cuMemAllocManaged)
        FAKE_ENTRY(cuMemFreeAsync) FAKE_ENTRY(cuMemPrefetchBatchAsync) FAKE_ENTRY(
            cuMemDiscardBatchAsync) FAKE_ENTRY(cuMemRangeGetAttribute)
            FAKE_ENTRY(cuMemRangeGetAttributes) FAKE_ENTRY(cuStreamAttachMemAsync) FAKE_ENTRY(
                cuLibraryGetManaged) FAKE_ENTRY(cuLibraryUnload) FAKE_ENTRY(cuMemGetAddressRange)
                FAKE_ENTRY(cuPointerGetAttribute) FAKE_ENTRY(cuPointerGetAttributes) FAKE_ENTRY(
                    cuArrayCreate) FAKE_ENTRY(cuMemcpy2DUnaligned) FAKE_ENTRY(cuMemcpy3D)
                    FAKE_ENTRY(cuMemcpy3DPeer) FAKE_ENTRY(cuMemcpy3DPeerAsync) FAKE_ENTRY(
                        cuMemsetD2D8) FAKE_ENTRY(cuMemsetD2D16Async) FAKE_ENTRY(cuMemsetD2D32)
                        FAKE_ENTRY(cuArrayDestroy) FAKE_ENTRY(cuMemcpyHtoA) FAKE_ENTRY(
                            cuMemcpyAtoH) FAKE_ENTRY(cuMemcpyDtoA) FAKE_ENTRY(cuMemcpyAtoD)
                            FAKE_ENTRY(cuMemcpyHtoAAsync) FAKE_ENTRY(cuMemcpyAtoHAsync) FAKE_ENTRY(
                                cuMemcpy3DBatchAsync) FAKE_ENTRY(cuMemcpy2DAsync)
                                FAKE_ENTRY(cuMemcpy3DAsync) FAKE_ENTRY(cuMemcpyAsync) FAKE_ENTRY(
                                    cuGraphCreate) FAKE_ENTRY(cuGraphDestroy) FAKE_ENTRY(cuGraphAddMemcpyNode)
                                    FAKE_ENTRY(cuGraphMemcpyNodeGetParams) FAKE_ENTRY(cuGraphAddMemsetNode) FAKE_ENTRY(
                                        cuGraphAddBatchMemOpNode) FAKE_ENTRY(cuGraphBatchMemOpNodeSetParams)
                                        FAKE_ENTRY(cuGraphExecBatchMemOpNodeSetParams) FAKE_ENTRY(
                                            cuGraphAddExternalSemaphoresWaitNode) FAKE_ENTRY(cuGraphExternalSemaphoresWaitNodeSetParams)
                                            FAKE_ENTRY(cuGraphExecExternalSemaphoresWaitNodeSetParams) FAKE_ENTRY(
                                                cuGraphNodeSetParams) FAKE_ENTRY(cuGraphExecNodeSetParams)

                                                FAKE_ENTRY(cuGraphAddNode) FAKE_ENTRY(
                                                    cuGraphInstantiateWithFlags) FAKE_ENTRY(cuGraphExecDestroy)
                                                    FAKE_ENTRY(cuGraphLaunch) FAKE_ENTRY(cuLaunchHostFunc) FAKE_ENTRY(
                                                        cuStreamAddCallback) FAKE_ENTRY(cuStreamWriteValue32)
                                                        FAKE_ENTRY(
                                                            cuStreamWriteValue64) FAKE_ENTRY(cuStreamWaitValue32)
                                                            FAKE_ENTRY(cuStreamBatchMemOp) FAKE_ENTRY(cuCtxCreate) FAKE_ENTRY(
                                                                cuCtxDestroy) FAKE_ENTRY(cuDevicePrimaryCtxReset)
                                                                FAKE_ENTRY(cuIpcGetMemHandle) FAKE_ENTRY(
                                                                    cuMemUnmap)
                                                                    FAKE_ENTRY(cuMemSetAccess) FAKE_ENTRY(
                                                                        cuMemAddressFree) FAKE_ENTRY(cuMemRetainAllocationHandle)
                                                                        FAKE_ENTRY(cuMemGetHandleForAddressRange) FAKE_ENTRY(
                                                                            cuStreamDestroy) FAKE_ENTRY(cuStreamBeginCapture)
                                                                            FAKE_ENTRY(cuStreamWaitEvent) FAKE_ENTRY(
                                                                                cuStreamEndCapture) FAKE_ENTRY(cuCtxGetCurrent)
                                                                                FAKE_ENTRY(
                                                                                    cuCtxPushCurrent) FAKE_ENTRY(cuCtxPopCurrent)
                                                                                    FAKE_ENTRY(cuDevicePrimaryCtxRetain) FAKE_ENTRY(
                                                                                        cuDeviceGetAttribute)
                                                                                        FAKE_ENTRY(cuStreamQuery) FAKE_ENTRY(
                                                                                            cuStreamGetCtx)
                                                                                            FAKE_ENTRY(
                                                                                                cuMemcpyDtoDAsync)
                                                                                                FAKE_ENTRY(
                                                                                                    cuDevicePrimaryCtxRelease)
                                                                                                    FAKE_ENTRY(
                                                                                                        cuEventCreate)
                                                                                                        FAKE_ENTRY(
                                                                                                            cuMemsetD8Async)};
#undef FAKE_ENTRY
void* const kBatch = reinterpret_cast<void*>(&::cuMemcpyBatchAsync);
void* const kPrefetch = reinterpret_cast<void*>(&::cuMemPrefetchAsync);
void* const kAdvise = reinterpret_cast<void*>(&::cuMemAdvise);
}  // namespace
}  // namespace gmac::fake_cuda

// The older signatures, in fake_managed.cc.
#undef cuMemcpyBatchAsync
#undef cuMemPrefetchAsync
#undef cuMemAdvise
#undef cuDevicePrimaryCtxReset
extern "C" {
__attribute__((visibility("default"))) CUresult cuMemcpyBatchAsync(
    CUdeviceptr* to, CUdeviceptr* from, std::size_t* bytes, std::size_t count,
    CUmemcpyAttributes* attributes, std::size_t* firsts, std::size_t attributeCount,
    std::size_t* failed, CUstream stream) {
  FAKE_CALL();
  return submitBatch({to, count}, from, bytes, attributes, {firsts, attributeCount}, failed,
                     stream);
}
__attribute__((visibility("default"))) CUresult cuDevicePrimaryCtxReset(CUdevice device) {
  const Call call(__func__);  // also where a kernel has crashed
  if (!isDevice(device)) return CUDA_ERROR_INVALID_DEVICE;
  resetDevice(device);
  return CUDA_SUCCESS;
}
CUresult cuMemPrefetchAsync(CUdeviceptr, std::size_t, CUdevice, CUstream);
CUresult cuMemAdvise(CUdeviceptr, std::size_t, CUmem_advise, CUdevice);
}

namespace gmac::fake_cuda {

void* moreEntries(const char* name, int version) {
  const bool old = version < 12020;
  if (std::strcmp(name, "cuMemcpyBatchAsync") == 0)
    return version < 13000 ? reinterpret_cast<void*>(&::cuMemcpyBatchAsync) : kBatch;
  if (std::strcmp(name, "cuMemPrefetchAsync") == 0)
    return old ? reinterpret_cast<void*>(&::cuMemPrefetchAsync) : kPrefetch;
  if (std::strcmp(name, "cuDevicePrimaryCtxReset") == 0 && version < 11000)
    return reinterpret_cast<void*>(&::cuDevicePrimaryCtxReset);
  if (std::strcmp(name, "cuMemAdvise") == 0)
    return old ? reinterpret_cast<void*>(&::cuMemAdvise) : kAdvise;
  const auto entry = kEntries.find(name);
  return entry == kEntries.end() ? nullptr : entry->second;
}

}  // namespace gmac::fake_cuda
