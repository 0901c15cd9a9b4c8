# SPDX-License-Identifier: Apache-2.0
"""PyTorch: a network is trained on the GPU and on the CPU, and the losses are compared; and single operations.

torch_network.py [LIBRARY]: with memory from gmacMalloc(bytes, device, stream) and gmacFree of a library, which may be managed
memory (allocator.cc); without, with PyTorch's own.
"""
import os
import sys

import torch

from checks import check, run

library = sys.argv[1] if len(sys.argv) > 1 else None
if library:
    allocator = torch.cuda.memory.CUDAPluggableAllocator(os.path.abspath(library), "gmacMalloc", "gmacFree")
    torch.cuda.memory.change_current_allocator(allocator)


def losses(device):
    torch.manual_seed(0)
    network = torch.nn.Sequential(torch.nn.Linear(64, 128), torch.nn.GELU(), torch.nn.LayerNorm(128), torch.nn.Linear(128, 10))
    x = torch.randn(512, 64)
    network, x, y = network.to(device), x.to(device), x[:, :10].argmax(1).to(device)
    optimizer = torch.optim.SGD(network.parameters(), lr=0.05)
    result = []
    for _ in range(60):
        optimizer.zero_grad()
        loss = torch.nn.functional.cross_entropy(network(x), y)
        loss.backward()
        optimizer.step()
        result.append(loss.item())
    return result


def training():
    check("losses", losses("cuda"), losses("cpu"), 1e-3)


def operations():
    torch.manual_seed(1)
    image, kernel = torch.randn(8, 3, 64, 64), torch.randn(16, 3, 3, 3)
    check("convolution", torch.nn.functional.conv2d(image.cuda(), kernel.cuda()).cpu(),
          torch.nn.functional.conv2d(image, kernel), 1e-2)
    query = torch.randn(2, 4, 128, 64)
    check("attention", torch.nn.functional.scaled_dot_product_attention(query.cuda(), query.cuda(), query.cuda()).cpu(),
          torch.nn.functional.scaled_dot_product_attention(query, query, query), 1e-2)
    values = torch.randn(100_000)
    check("sort", values.cuda().sort()[0].cpu(), values.sort()[0])
    check("svd", torch.linalg.svdvals(torch.eye(100).cuda() + 1).cpu(), torch.linalg.svdvals(torch.eye(100) + 1), 1e-3)
    check("fft", torch.fft.fft(values.cuda()).abs().cpu(), torch.fft.fft(values).abs(), 1e-1)
    pinned = values.pin_memory()
    check("pinned", pinned.to("cuda", non_blocking=True).cpu(), values)


def graphs():
    if library:
        return  # PyTorch records graphs with memory of its own alone
    source = torch.zeros(1000, device="cuda")
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        target = 2 * source + 1
    source.fill_(3)
    graph.replay()
    check("graph", target.cpu(), torch.full((1000,), 7.0))


def come_and_go():
    for i in range(300):
        check("a new tensor", torch.full((1000 + 500 * i,), 3.0, device="cuda").sum().item(), 3.0 * (1000 + 500 * i))


run([training, operations, graphs, come_and_go], torch.cuda.synchronize)
