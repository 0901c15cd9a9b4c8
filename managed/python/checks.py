# SPDX-License-Identifier: Apache-2.0
"""What the programs here share: steps that compare with NumPy, and a word at the end."""
import sys
import time

import numpy as np

failed = []


def check(name, got, want, tolerance=1e-4):
    """Notes a failure unless two arrays, or numbers, agree."""
    got, want = np.asarray(got), np.asarray(want)
    if got.shape != want.shape or not np.allclose(got, want, rtol=tolerance, atol=tolerance):
        failed.append(name)
        print(f"failed: {name}: {got.ravel()[:4]} in place of {want.ravel()[:4]}")


def run(steps, wait):
    """Runs functions one after another and says how long each takes; ends the program with 1 if one has failed."""
    for step in steps:
        begun = time.perf_counter()
        try:
            step()
            wait()
        except Exception as error:  # a step that fails is told like a wrong value, and the others run
            failed.append(step.__name__)
            print(f"failed: {step.__name__}: {type(error).__name__}: {str(error)[:300]}")
        print(f"{step.__name__:24} {1e3 * (time.perf_counter() - begun):10.1f} ms", flush=True)
    if failed:
        print("failed:", ", ".join(failed))
        sys.exit(1)
    print("all is right")
