# SPDX-License-Identifier: Apache-2.0
"""Numba's managed arrays, which kernels and NumPy use alike."""
import numpy as np
from numba import cuda

from checks import check, run

if not hasattr(np, "row_stack"):
    np.row_stack = np.vstack  # Numba still asks for it


@cuda.jit
def add_scaled(scale, x, y):
    i = cuda.grid(1)
    if i < x.size:
        y[i] += scale * x[i]


@cuda.jit
def count(x, counts):
    i = cuda.grid(1)
    if i < x.size:
        cuda.atomic.add(counts, int(x[i]), 1)


def blocks(array):
    return (array.size + 255) // 256


def array(n, value=0, dtype=np.float32):
    result = cuda.managed_array(n, dtype=dtype)
    result[:] = value
    return result


def rounds():
    n = 1 << 20
    x, y = array(n, np.arange(n)), array(n, 1)
    for i in range(200):
        add_scaled[blocks(x), 256](1.0, x, y)
        cuda.synchronize()
        check("a word", y[3], 1 + 3 * (i + 1))
        y[4] = 0
    check("all", y[5:], 1 + 200.0 * np.arange(5, n), 1e-3)


def atomics():
    x, counts = array(100_000, np.random.default_rng(0).integers(0, 10, 100_000), np.int32), array(10, 0, np.int32)
    count[blocks(x), 256](x, counts)
    cuda.synchronize()
    check("counts", counts, np.bincount(x, minlength=10))


def streams():
    work = [(cuda.stream(), array(50_000, i), array(50_000)) for i in range(3)]
    for stream, x, y in work:
        for _ in range(10):
            add_scaled[blocks(x), 256, stream](2.0, x, y)
    for i, (stream, _, y) in enumerate(work):
        stream.synchronize()
        check("a stream's", y, np.full(50_000, 20.0 * i))


def other_memory():
    host = np.arange(100_000, dtype=np.float32)
    there = cuda.to_device(host)
    sums = cuda.to_device(host)
    add_scaled[blocks(host), 256](1.0, there, sums)
    check("the device's", sums.copy_to_host(), 2 * host)
    mapped = cuda.mapped_array(1000, dtype=np.float32)
    mapped[:] = 5
    add_scaled[blocks(mapped), 256](1.0, mapped, mapped)
    cuda.synchronize()
    check("mapped", mapped, np.full(1000, 10.0))


def come_and_go():
    for i in range(300):
        x = array(1000 * (1 + i % 50), 1)
        add_scaled[blocks(x), 256](1.0, x, x)
        cuda.synchronize()
        check("a new array", (x[0], x[-1]), (2, 2))


run([rounds, atomics, streams, other_memory, come_and_go], cuda.synchronize)
