#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""doc_paths.py [PAGE...]: finds what the pages (README.md, CONTRIBUTING.md and docs/*.md by default) call a file, a folder,
a function or a Bazel target of this tree and is none.

`a/b.cc` and `b.cc` are files, `a/b/` is a folder; (`f`, `g`) behind a file are words of that file, and [text](page) is a
file; //a:b is a target, //a/... some. Prints what is wrong; exit status 1 when something is."""

import glob
import os
import re
import subprocess
import sys

NAME = re.compile(r"[\w*./-]+\.(?:bzl|c|cc|cu|cuh|f90|h|inc|lds|md|py|S|sh)|[\w-][\w.-]*(?:/[\w.-]+)*/")
QUOTED = re.compile(r"`([^`\n]+)`(?:\s+\(((?:`[^`]+`(?:,\s+)?)+)\))?")
LINK = re.compile(r"\]\(([^)#:\s]+)(?:#[^)]*)?\)")
LABEL = re.compile(r"(?<![\w:/])//([a-z][\w/-]*(?:/\.\.\.)?)(?::([\w./-]+))?")
# Other projects' headers.
FOREIGN = {"mpi.h", "mpif.h"}
# Where headers lie that are installed elsewhere: <gmac/adsm.h>.
INSTALLED = {"gmac/": "gmac/api/"}


def tree():
    """The files of this tree and their folders."""
    files = subprocess.run(("git", "ls-files", "--cached", "--others", "--exclude-standard"), text=True, check=True,
                           stdout=subprocess.PIPE).stdout.split()
    folders = set()
    for file in files:
        while file := os.path.dirname(file):
            folders.add(file)
    return files, folders


def matches(name, files, folders):
    """The files or folders that a page may mean: what ends with the name. `*` stands for letters within one."""
    names = [name] + [at + name[len(prefix):] for prefix, at in INSTALLED.items() if name.startswith(prefix)]
    pattern = re.compile("(?:.*/)?(?:" + "|".join(re.escape(each.rstrip("/")).replace(r"\*", "[^/]*") for each in names) + ")")
    return [path for path in (folders if name.endswith("/") else files) if pattern.fullmatch(path)]


def is_target(package, name, files):
    """Whether a BUILD file has a target of that name, or one for a source file or an MPI of it."""
    if package.endswith("/..."):
        return name is None and any(file.startswith(package[:-3]) and file.endswith("/BUILD") for file in files)
    if package + "/BUILD" not in files:
        return False
    name = name or os.path.basename(package)
    with open(package + "/BUILD", encoding="utf-8") as file:
        text = file.read()
    names = (name, re.sub("_(openmpi|mpich)$", "", name), re.sub("(?<=_)(openmpi|mpich)$", "", name))
    return (any('"{}"'.format(each) in text for each in names)
            or any("{}/{}{}".format(package, name, ending) in files for ending in (".cc", ".sh")))


def wrong(page, files, folders):
    with open(page, encoding="utf-8") as file:
        text = file.read()
    for link in LINK.findall(text):
        if not os.path.exists(os.path.join(os.path.dirname(page), link)):
            yield "no file '{}'".format(link)
    for label in LABEL.finditer(text):
        if not is_target(label[1], label[2], files):
            yield "no target '{}'".format(label[0])
    for name, words in QUOTED.findall(text):
        if not NAME.fullmatch(name) or name in FOREIGN:
            continue
        found = matches(name, files, folders)
        if not found:
            yield "no file or folder '{}'".format(name)
        for word in re.findall(r"`(\w[\w:]*)`", words):
            if not any(has(path, word.split("::")[-1]) for path in found if os.path.isfile(path)):
                yield "no '{}' in '{}'".format(word, name)


def has(path, word):
    with open(path, encoding="utf-8", errors="replace") as file:
        return re.search(r"\b{}\b".format(re.escape(word)), file.read()) is not None


def main():
    files, folders = tree()
    failed = False
    for page in sys.argv[1:] or ["README.md", "CONTRIBUTING.md"] + sorted(glob.glob("docs/*.md")):
        for message in wrong(page, files, folders):
            print("{}: {}".format(page, message))
            failed = True
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
