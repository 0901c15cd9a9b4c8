#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""compile_commands.py [--output FILE] [BAZEL FLAGS...]: writes the compile commands of every C++ source of this tree, as
Bazel would run them, to compile_commands.json for clangd and clang-tidy. Builds nothing; generated headers exist after a
build."""

import argparse
import json
import os
import subprocess
import sys

# Options of g++ that clang does not know.
GCC_ONLY = {"-fno-canonical-system-headers", "-Wno-stringop-overflow", "-Wunused-but-set-parameter"}
# What only writes files.
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
        elif argument in OUTPUTS_WITH_VALUE:
            skip = True
        elif argument not in OUTPUTS and argument not in GCC_ONLY and not argument.startswith("-frandom-seed="):
            result.append(argument)
    return result


def commands(flags):
    """One entry for each source file: that of the target configuration, whichever target compiles it first."""
    root = os.getcwd()
    # The sources of other repositories (system libraries) are reached through the output base.
    external = os.path.join(bazel("info", "output_base").strip(), "external") + "/"
    graph = json.loads(bazel("aquery", "--output=jsonproto", *flags, 'mnemonic("CppCompile", //...)'))
    host = {entry["id"] for entry in graph["configuration"] if "-opt-exec-" in entry["mnemonic"] or entry["mnemonic"] == "host"
            or entry.get("isTool")}
    found = {}
    for action in graph["actions"]:
        arguments = action["arguments"]
        source = arguments[arguments.index("-c") + 1]
        if action["configurationId"] in host or source.startswith(("external/", "bazel-out/")) or source in found:
            continue
        arguments = [argument.replace("external/", external, 1) if argument.startswith(("external/", "-Iexternal/")) else argument
                     for argument in without_outputs(arguments)]
        found[source] = {"directory": root, "file": os.path.join(root, source), "arguments": arguments}
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
