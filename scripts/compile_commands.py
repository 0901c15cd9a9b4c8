#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""compile_commands.py [--output FILE] [BAZEL FLAGS...]: writes the compile commands of every C++ source of this tree, as
Bazel would run them, to compile_commands.json for clangd and clang-tidy. Builds nothing; generated headers exist after a
build."""

import argparse
import json
import os
import re
import shlex
import subprocess
import sys

# Options of g++ that clang does not know, or that name what only g++ can read: its precompiled headers.
GCC_ONLY = {"-fno-canonical-system-headers", "-Wno-stringop-overflow", "-Winvalid-pch", "-Wno-error=invalid-pch"}
GCC_ONLY_WITH_VALUE = {"-include"}
# Flags that only write files.
OUTPUTS = {"-MD"}
OUTPUTS_WITH_VALUE = {"-MF", "-o"}


def bazel(*arguments):
    return subprocess.run(("bazel",) + arguments, text=True, check=True, stdout=subprocess.PIPE,
                          stderr=subprocess.DEVNULL).stdout


def without_outputs(arguments):
    result, skip = [], False
    for argument in arguments:
        if skip:
            skip = False
        elif argument in OUTPUTS_WITH_VALUE or argument in GCC_ONLY_WITH_VALUE:
            skip = True
        elif argument not in OUTPUTS and argument not in GCC_ONLY and not argument.startswith(("-frandom-seed=", "--param=")):
            result.append(argument)
    return result


def compilation(action):
    """The compiler's arguments; None for another action. A rule of our own (attack/subject.bzl) has them in a shell's line."""
    arguments = action["arguments"]
    if action["mnemonic"] == "Genrule":
        line = re.search(r"; (g\+\+ .* -c .*)", arguments[-1])
        return shlex.split(line.group(1)) if line else None
    return arguments


def add_commands(graph, external, found):
    """Adds to `found` an entry for each source file that `graph` compiles and that is not there yet."""
    root = os.getcwd()
    host = {entry["id"] for entry in graph["configuration"] if "-opt-exec-" in entry["mnemonic"] or entry["mnemonic"] == "host"
            or entry.get("isTool")}
    for action in graph["actions"]:
        arguments = compilation(action)
        if arguments is None:
            continue
        source = arguments[arguments.index("-c") + 1]
        if action["configurationId"] in host or source.startswith(("external/", "bazel-out/")) or source in found:
            continue
        arguments = [argument.replace("external/", external, 1) if argument.startswith(("external/", "-Iexternal/")) else argument
                     for argument in without_outputs(arguments)]
        found[source] = {"directory": root, "file": os.path.join(root, source), "arguments": arguments}


def commands(flags):
    """One entry for each source file: that of the target configuration, whichever target compiles it first."""
    # The sources of other repositories (system libraries) are reached through the output base.
    external = os.path.join(bazel("info", "output_base").strip(), "external") + "/"
    found = {}
    # The wildcard of all packages leaves out what is built by hand alone.
    for targets in ("//...", "deps(//attack:attack)"):
        graph = json.loads(bazel("aquery", "--output=jsonproto", *flags, 'mnemonic("CppCompile|Genrule", {})'.format(targets)))
        add_commands(graph, external, found)
    return [found[source] for source in sorted(found)]


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--output", default="compile_commands.json")
    options, flags = parser.parse_known_args()
    entries = commands(flags)
    draft = options.output + ".new"
    with open(draft, "w", encoding="utf-8") as file:
        json.dump(entries, file, indent=1)
    os.replace(draft, options.output)
    print("{}: {} sources".format(options.output, len(entries)), file=sys.stderr)


if __name__ == "__main__":
    main()
