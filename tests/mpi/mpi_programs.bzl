# SPDX-License-Identifier: Apache-2.0
"""Programs of MPI for the tests: compiled and linked once for each MPI."""

load("//bazel:gmac.bzl", "COPTS")

MPIS = [
    "openmpi",
    "mpich",
]

def mpi_program(name, srcs = None):
    """NAME_openmpi and NAME_mpich of the same sources, linked with libgmac.so as an application is.

    Args:
      name: of the program.
      srcs: NAME.cc and the headers of this folder by default."""
    for mpi in MPIS:
        native.cc_binary(
            name = name + "_" + mpi,
            testonly = True,
            srcs = (srcs or [name + ".cc"]) + native.glob(["*.h"]) + ["//gmac:libgmac.so"],
            # As compilers do by default: the program then has copies of the library's variables.
            copts = COPTS + ["-fpie"],
            tags = ["no-bundle"],
            deps = [
                "//gmac/api:headers",
                "@" + mpi,
            ],
        )
