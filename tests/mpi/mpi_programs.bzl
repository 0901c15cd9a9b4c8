# SPDX-License-Identifier: Apache-2.0
"""Programs of MPI for the tests: compiled and linked once for each MPI."""

load("//bazel:gmac.bzl", "COPTS", "TEST_COPTS")

MPIS = [
    "openmpi",
    "mpich",
]

def mpi_program(name, srcs = None, library = None, gmac = True, optimised = False):
    """NAME_openmpi and NAME_mpich of the same sources.

    Args:
      name: of the program.
      srcs: NAME.cc and the headers of this folder by default.
      library: source of a shared library that comes between the program and the MPI.
      gmac: whether it is linked with libgmac.so, as an application is.
      optimised: whether it is compiled as the library is, because it goes through many bytes."""
    flags = COPTS if optimised else TEST_COPTS
    for mpi in MPIS:
        libraries = []
        if library:
            libraries = ["lib{}_{}.so".format(library[:-len(".cc")], mpi)]
            native.cc_binary(
                name = libraries[0],
                testonly = True,
                srcs = [library],
                copts = flags,
                linkshared = True,
                tags = ["no-bundle"],
                deps = ["@" + mpi],
            )
        native.cc_binary(
            name = name + "_" + mpi,
            testonly = True,
            srcs = (srcs or [name + ".cc"]) + native.glob(["*.h"]) + libraries,
            # As compilers do by default: the program then has copies of the library's variables.
            copts = flags + ["-fpie"],
            tags = ["no-bundle"],
            deps = ["@" + mpi] + ([
                ":device",
                ":kernels",
                "//gmac:shared",
                "//gmac/api:headers",
                "//gmac/api:mpi",
            ] if gmac else []),
        )

def mpi_fortran_program(name, helper, src = None, flags = ""):
    """NAME_openmpi and NAME_mpich of NAME.f90, by the MPI's own compiler.

    Args:
      name: of the program.
      helper: source in C++ that it calls.
      src: another source.
      flags: of the compiler."""
    src = src or name + ".f90"
    native.cc_library(
        name = name + "_helper",
        testonly = True,
        srcs = [helper] + native.glob(["*.h"]),
        copts = TEST_COPTS,
        linkstatic = True,
        tags = ["no-bundle"],
        deps = [
            ":device",
            ":kernels",
            "//gmac/api:headers",
        ],
    )
    for mpi in MPIS:
        native.genrule(
            name = "{}_{}_link".format(name, mpi),
            testonly = True,
            srcs = [
                src,
                ":" + name + "_helper",
                ":flip_fatbin.pic.o",
                "//gmac:interface",
            ],
            outs = ["{}_{}".format(name, mpi)],
            cmd = "mpifort.{} {} -o $@ $(location {}) $$(ls $(locations :{}_helper) | grep '[.]a$$' | head -1) ".format(mpi, flags, src, name) +
                  "$(location :flip_fatbin.pic.o) $(location //gmac:interface) -lstdc++",
            executable = True,
            tags = ["no-bundle"],
        )
