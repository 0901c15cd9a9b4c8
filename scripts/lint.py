#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Runs clang-tidy on .cc files, several at a time, and only on those that changed since they last passed.

A file has changed when it, a header of this tree that it includes (directly or not), .clang-tidy or clang-tidy itself has.
Prints what is wrong; exit status 1 when something is."""

import concurrent.futures
import hashlib
import os
import re
import shutil
import subprocess
import sys

CACHE = os.path.join(os.path.expanduser("~"), ".cache", "gmac", "lint")
INCLUDE = re.compile(r'^\s*#\s*include\s+"([^"]+)"', re.MULTILINE)
CUDA_INCLUDE = re.compile(r"^\s*#\s*include\s+<(cuda|cupti)[a-z_0-9]*\.h>", re.MULTILINE)


def read(path):
    with open(path, encoding="utf-8", errors="replace") as file:
        return file.read()


def closure(path, texts):
    """The file and every header of this tree that it includes, generated ones excepted; sorted."""
    found, pending = set(), [path]
    while pending:
        current = pending.pop()
        if current in found:
            continue
        found.add(current)
        if current not in texts:
            texts[current] = read(current)
        pending += [name for name in INCLUDE.findall(texts[current]) if os.path.exists(name)]
    return sorted(found)


def cuda_home():
    """The toolkit whose headers the build uses, or None: $CUDA_HOME, nvcc on the PATH, the usual folder."""
    nvcc = shutil.which("nvcc")
    for home in (os.environ.get("CUDA_HOME"), nvcc and os.path.dirname(os.path.dirname(os.path.realpath(nvcc))),
                 "/usr/local/cuda"):
        if home and os.path.exists(os.path.join(home, "include", "cuda.h")):
            return home
    return None


def flags(home):
    result = ["-std=c++20", "-I.", "-Ibazel-bin", "-DFMT_HEADER_ONLY=1", '-DGMAC_VERSION="0"', "-DGMAC_HAVE_CUDA={}".format(int(home is not None))]
    if shutil.which("mpicc"):
        mpi = subprocess.run(["mpicc", "--showme:compile"], text=True, check=False, stdout=subprocess.PIPE).stdout.split()
        result += [flag.replace("-I", "-isystem", 1) for flag in mpi if flag.startswith("-I")]
    if home:
        result += ["-DPARBOIL_CUDA=1", "-isystem", os.path.join(home, "include")]
    return result


def lint(path, arguments):
    """clang-tidy's findings, "" when there are none."""
    run = subprocess.run(["clang-tidy", "--quiet", path, "--"] + arguments, text=True, check=False,
                         stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    if run.returncode == 0:
        return ""
    lines = [line for line in run.stdout.splitlines() if not re.match(r"^\d+ warnings? (and \d+ errors? )?generated", line)]
    return "\n".join(lines) + "\n"


def main():
    os.makedirs(CACHE, exist_ok=True)
    home = cuda_home()
    arguments = flags(home)
    version = subprocess.run(["clang-tidy", "--version"], text=True, check=True, stdout=subprocess.PIPE).stdout
    texts, jobs, left_out = {}, [], 0
    for path in sys.argv[1:]:
        files = closure(path, texts)
        if home is None and any(CUDA_INCLUDE.search(texts[file]) for file in files):
            left_out += 1
            continue
        key = hashlib.sha256("\0".join([version, read(".clang-tidy"), " ".join(arguments), path] +
                                       [file + "\0" + texts[file] for file in files]).encode()).hexdigest()
        stamp = os.path.join(CACHE, key)
        if not os.path.exists(stamp):
            jobs.append((path, stamp))
    print("gmacw: linting {} of {} files".format(len(jobs), len(sys.argv) - 1) +
          (", leaving out {} that need CUDA's headers".format(left_out) if left_out else ""), flush=True)
    failed = False
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        for (_, stamp), findings in zip(jobs, pool.map(lambda job: lint(job[0], arguments), jobs)):
            if findings:
                failed = True
                sys.stdout.write(findings)
                sys.stdout.flush()
            else:
                with open(stamp, "w", encoding="utf-8"):
                    pass
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
