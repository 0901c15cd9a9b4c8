# SPDX-License-Identifier: Apache-2.0
"""JAX: a network is trained, and single operations are compared with NumPy's.

TF_FORCE_UNIFIED_MEMORY=1 makes its memory managed memory. It is one allocation of what the GPU has, or as much more as
XLA_PYTHON_CLIENT_MEM_FRACTION says from 1 on.
"""
import jax
import jax.numpy as jnp
import numpy as np

from checks import check, run


def network(weights, x):
    return jnp.tanh(x @ weights[0]) @ weights[1]


def training():
    key = jax.random.PRNGKey(0)
    weights = [0.1 * jax.random.normal(key, (64, 128)), 0.1 * jax.random.normal(key, (128, 8))]
    x = jax.random.normal(key, (1024, 64))
    y = jnp.sin(x[:, :8])
    gradient = jax.jit(jax.value_and_grad(lambda w: jnp.mean((network(w, x) - y)**2)))
    first = float(gradient(weights)[0])
    for _ in range(200):
        loss, slopes = gradient(weights)
        weights = [w - 0.1 * slope for w, slope in zip(weights, slopes)]
    check("the loss falls by half", float(loss) < first / 2, True)
    host = [np.asarray(w, dtype=np.float64) for w in weights]
    check("the network", network(weights, x), np.tanh(np.asarray(x, dtype=np.float64) @ host[0]) @ host[1], 5e-2)


def operations():
    a = np.random.default_rng(0).standard_normal((300, 300))
    check("svd", jnp.linalg.svd(a, compute_uv=False), np.linalg.svd(a, compute_uv=False), 1e-2)
    check("fft", jnp.abs(jnp.fft.fft(a)), np.abs(np.fft.fft(a)), 1e-2)
    check("sort", jnp.sort(a.ravel()), np.sort(a.ravel()))
    check("sum", jnp.sum(jnp.ones(4_000_000)), 4_000_000)


run([training, operations], lambda: None)
