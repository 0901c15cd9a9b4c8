# SPDX-License-Identifier: Apache-2.0
"""Programs built by the system's compiler as its users call it, without this project's flags for what travels."""

COMPILE = "g++ -std=c++20 -O1 -g1 -Wall -Wextra -Werror -DFMT_HEADER_ONLY -I. -pthread"

def program_as_users_build_it(name, srcs, hdrs, library = None, flags = ""):
    """A program of C++ files, linked with `library` where one is given.

    Args:
      name: the program's.
      srcs: its .cc files, one object each.
      hdrs: what they include.
      library: a shared library.
      flags: more of the compiler's."""
    objects = []
    for src in srcs:
        object = "%s_%s.o" % (name, src[:-len(".cc")])
        native.genrule(
            name = object + "_rule",
            srcs = [src] + hdrs,
            outs = [object],
            tags = ["manual"],
            cmd = "%s %s -c $(location %s) -o $@" % (COMPILE, flags, src),
        )
        objects.append(object)
    native.genrule(
        name = name + "_rule",
        srcs = objects + ([library] if library else []),
        outs = [name],
        cmd = "%s %s -o $@ $(SRCS) -ldl" % (COMPILE, flags),
        executable = True,
        tags = ["manual"],
    )
