#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""lint.py [--since REVISION] [FILE...]: runs clang-tidy on .cc files (all of this tree by default) with the flags of the
build, several at a time, and only on those that changed since they last passed.

A file has changed when it, a header of this tree that it includes (directly or not), its flags, .clang-tidy or clang-tidy
itself has. --since leaves out the files that are as they were in REVISION, and so are their headers.
What has passed is noted in GMAC_LINT_CACHE (~/.cache/gmac/lint), a folder that may be kept from machine to machine.
Prints what is wrong; exit status 1 when something is."""

import argparse
import concurrent.futures
import hashlib
import json
import os
import re
import subprocess
import sys

CACHE = os.environ.get("GMAC_LINT_CACHE") or os.path.join(os.path.expanduser("~"), ".cache", "gmac", "lint")
INCLUDE = re.compile(r'^\s*#\s*include\s+"([^"]+)"', re.MULTILINE)


def read(path):
    with open(path, encoding="utf-8", errors="replace") as file:
        return file.read()


def run(*words, check=True):
    return subprocess.run(words, text=True, check=check, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)


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
        for name in INCLUDE.findall(texts[current]):
            # A header is named from the root of the tree, or as a neighbour.
            pending += [at for at in (name, os.path.normpath(os.path.join(os.path.dirname(current), name)))
                        if os.path.exists(at)]
    return sorted(found)


def changed_since(revision):
    """The files that differ from a revision of git, those that it does not know included."""
    names = run("git", "diff", "--name-only", revision).stdout + run("git", "ls-files", "--others", "--exclude-standard").stdout
    return set(names.split())


def build_flags():
    """source -> the compiler's arguments, as Bazel has them."""
    file = "compile_commands.json"
    subprocess.run([sys.executable, "scripts/compile_commands.py", "--output", file], check=True)
    root = os.getcwd()
    with open(file, encoding="utf-8") as commands:
        sources = {os.path.relpath(entry["file"], root): entry["arguments"] for entry in json.load(commands)}
    # (Assembly is compiled, too.)
    return {path: flags for path, flags in sources.items() if path.endswith(".cc")}


def lint(path):
    """clang-tidy's findings, "" when there are none."""
    # The compiler's own warnings are g++'s business: clang's are others. Without optimisation the C library's headers define
    # no inline forms of functions that we define ourselves.
    done = run("clang-tidy", "--quiet", "-p", ".", "--extra-arg=-Wno-unknown-warning-option", "--extra-arg=-Wno-error",
               "--extra-arg=-O0", path, check=False)
    if done.returncode == 0:
        return ""
    lines = [line for line in done.stdout.splitlines() if not re.match(r"^\d+ warnings? (and \d+ errors? )?generated", line)]
    return "\n".join(lines) + "\n"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--since", metavar="REVISION")
    parser.add_argument("files", nargs="*", metavar="FILE")
    options = parser.parse_args()
    os.makedirs(CACHE, exist_ok=True)
    flags = build_flags()
    for file in options.files:
        if file not in flags:
            sys.exit("lint: no target compiles {}".format(file))
    files = options.files or sorted(flags)
    changed = changed_since(options.since) if options.since else None
    everything = changed is None or ".clang-tidy" in changed
    version = run("clang-tidy", "--version").stdout
    texts, jobs = {}, []
    for path in files:
        sources = closure(path, texts)
        if not everything and not changed.intersection(sources):
            continue
        key = hashlib.sha256("\0".join([version, read(".clang-tidy"), "\0".join(flags[path]), path] +
                                       [source + "\0" + texts[source] for source in sources]).encode()).hexdigest()
        stamp = os.path.join(CACHE, key)
        if not os.path.exists(stamp):
            jobs.append((path, stamp))
    print("lint: {} of {} files".format(len(jobs), len(files)), flush=True)
    failed = False
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        for (_, stamp), findings in zip(jobs, pool.map(lambda job: lint(job[0]), jobs)):
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
