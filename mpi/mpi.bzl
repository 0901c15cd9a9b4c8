# SPDX-License-Identifier: Apache-2.0
"""What stands between an application and one MPI."""

load("//bazel:gmac.bzl", "gmac_library")

def mpi_abi(name, headers, defines):
    """mpi/abi/ compiled against one MPI's headers, and linked with no MPI.

    Args:
      name: of the MPI, and of the namespace.
      headers: its mpi.h.
      defines: what that header wants defined in C++."""
    gmac_library(
        name = name,
        srcs = native.glob(["abi/*.cc", "abi/*.inc"]) + [":openmpi_globals"],
        hdrs = native.glob(["abi/*.h"]),
        alwayslink = True,
        local_defines = defines + ["GMAC_MPI_ABI=" + name],
        deps = [
            ":abi",
            ":far_rows",
            ":handle_table",
            ":job_marks",
            ":launch",
            ":public_copy",
            ":slow_messages",
            ":staging_memory",
            ":tickets",
            "//exchange",
            headers,
            "//gmac/api:mpi",
            "//gmac/base",
            "//gmac/coherence:shared_memory",
            "//gmac/datatype/engine:cpu_bytes",
            "//gmac/datatype/layout",
            "//gmac/session:device_memory",
        ],
    )
