# SPDX-License-Identifier: Apache-2.0
"""CuPy with managed memory: its libraries and kernels, and NumPy arrays over the same bytes.

cupy_arrays.py [pool|plain]: with CuPy's pool of memory (the default), or an allocation for each array.
"""
import ctypes
import sys

import cupy
import numpy as np

from checks import check, run

random = np.random.default_rng(1)


def managed(pool):
    allocate = cupy.cuda.malloc_managed
    cupy.cuda.set_allocator(cupy.cuda.MemoryPool(allocate).malloc if pool else allocate)


def on_cpu(array):
    """The CPU's view of an array: the same bytes."""
    return np.frombuffer((ctypes.c_byte * array.nbytes).from_address(array.data.ptr), dtype=array.dtype).reshape(
        array.shape)


def wait():
    cupy.cuda.Device().synchronize()


def compare(name, got, want, tolerance=1e-4):
    check(name, cupy.asnumpy(got), want, tolerance)


def arithmetic():
    for n in (10, 1000, 100_003, 3_000_000):
        x, y = (random.standard_normal(n).astype(np.float32) for _ in range(2))
        a, b = cupy.asarray(x), cupy.asarray(y)
        compare("sin", cupy.sin(a) * b + cupy.exp(-a * a), np.sin(x) * y + np.exp(-x * x))
        compare("sum", a.sum(), x.sum(dtype=np.float64), 1e-2)
        compare("argmax", a.argmax(), x.argmax())
        compare("cumsum", cupy.cumsum(a.astype(cupy.float64)), np.cumsum(x.astype(np.float64)))
        compare("sort", cupy.sort(a), np.sort(x))
        compare("unique", cupy.unique((a * 10).astype(cupy.int32)), np.unique((x * 10).astype(np.int32)))
        compare("histogram", cupy.histogram(a, bins=20)[0], np.histogram(x, bins=20)[0])


def views():
    n = 1 << 20
    a = cupy.zeros(n, dtype=cupy.float32)
    wait()
    view = on_cpu(a)
    for i in range(200):
        view[i] = i + 1
        a *= 2
        wait()
        check("a word", view[i], 2 * (i + 1))
    view[:] = np.arange(n, dtype=np.float32)
    compare("sum of the CPU's", a.sum(dtype=cupy.float64), n * (n - 1) / 2)
    b = a + 1
    wait()
    other = on_cpu(b)
    check("the GPU's", other, view + 1)
    other[::-1].sort()
    compare("sorted by the CPU", b[:10], np.arange(n, n - 10, -1, dtype=np.float32))


def products():
    for n in (16, 100, 513, 1024):
        x, y = (random.standard_normal((n, n)).astype(np.float32) for _ in range(2))
        a, b = cupy.asarray(x), cupy.asarray(y)
        compare("matrix by matrix", a @ b, x @ y, 1e-2)
        compare("matrix by vector", a @ b[:, 0].copy(), x @ y[:, 0], 1e-2)
        compare("many at once", cupy.matmul(a.reshape(1, n, n).repeat(3, 0), b)[2], x @ y, 1e-2)


def equations():
    for n in (8, 64, 300):
        x = random.standard_normal((n, n))
        matrix, right = x @ x.T + n * np.eye(n), random.standard_normal(n)
        a = cupy.asarray(matrix)
        compare("solve", cupy.linalg.solve(a, cupy.asarray(right)), np.linalg.solve(matrix, right))
        compare("cholesky", cupy.linalg.cholesky(a), np.linalg.cholesky(matrix))
        compare("svd", cupy.linalg.svd(a, compute_uv=False), np.linalg.svd(matrix, compute_uv=False))
        q, r = cupy.linalg.qr(a)
        compare("qr", q @ r, matrix)
        compare("eigenvalues", cupy.linalg.eigvalsh(a), np.linalg.eigvalsh(matrix))


def transforms():
    for shape in ((128,), (1000,), (64, 64), (16, 32, 64), (1 << 18,)):
        x = random.standard_normal(shape) + 1j * random.standard_normal(shape)
        a = cupy.asarray(x)
        compare("fft", cupy.fft.fftn(a), np.fft.fftn(x))
        compare("and back", cupy.fft.ifftn(cupy.fft.fftn(a)), x)


def sparse():
    import cupyx.scipy.sparse
    import scipy.sparse
    m = scipy.sparse.random(500, 400, 0.05, random_state=1, format="csr", dtype=np.float64)
    v = random.standard_normal(400)
    c = cupyx.scipy.sparse.csr_matrix(m)
    compare("sparse by vector", c @ cupy.asarray(v), m @ v)
    compare("sparse by sparse", (c @ c.T).toarray(), (m @ m.T).toarray())


def numbers():
    cupy.random.seed(3)
    a = cupy.random.standard_normal(1_000_000)
    compare("mean", a.mean(), 0, 1e-2)
    compare("permutation", cupy.sort(cupy.random.permutation(10_000)), np.arange(10_000))


def kernels():
    raw = cupy.RawKernel(
        r"""extern "C" __global__ void twice(const float* x, float* y, int n) {
              const int i = blockIdx.x * blockDim.x + threadIdx.x;
              if (i < n) y[i] = 2 * x[i] + i;
            }""", "twice")
    n = 100_000
    x = random.standard_normal(n).astype(np.float32)
    a = cupy.asarray(x)
    b = cupy.empty_like(a)
    raw((n // 256 + 1,), (256,), (a, b, n))
    compare("raw kernel", b, 2 * x + np.arange(n), 1e-2)
    norm = cupy.ReductionKernel("T x", "T y", "x * x", "a + b", "y = sqrt(a)", "0", "norm")
    compare("reduction kernel", norm(a), np.sqrt((x.astype(np.float64)**2).sum()), 1e-2)


def streams():
    arrays = []
    for i in range(4):
        with cupy.cuda.Stream(non_blocking=True) as stream:
            a = cupy.full(300_000, i, dtype=cupy.float64)
            for _ in range(20):
                a = a + 1
            arrays.append((a, stream.record()))
    for i, (a, event) in enumerate(arrays):
        event.synchronize()
        check("a stream's", on_cpu(a), np.full(300_000, i + 20.0))


def graphs():
    stream = cupy.cuda.Stream(non_blocking=True)
    a = cupy.ones(10_000, dtype=cupy.float32)
    b = cupy.zeros_like(a)
    wait()
    with stream:
        stream.begin_capture()
        cupy.add(b, a, out=b)
        cupy.multiply(b, 2, out=b)
        graph = stream.end_capture()
    want = 0
    for _ in range(5):
        graph.launch(stream)
        want = 2 * (want + 1)
    stream.synchronize()
    view = on_cpu(b)
    check("graph", view, np.full(10_000, want))
    view[3] = 0
    graph.launch(stream)
    stream.synchronize()
    check("graph after the CPU", view[3], 2)


def come_and_go():
    for i in range(400):
        a = cupy.arange(1000 + 300 * i)
        b = 2 * a + 1
        check("a new array", int(b[5]), 11)
        if i % 3 == 0:
            wait()
            check("a new array's view", on_cpu(b)[7], 15)


managed(pool=sys.argv[1:] != ["plain"])
run([arithmetic, views, products, equations, transforms, sparse, numbers, kernels, streams, graphs, come_and_go, arithmetic], wait)
