# SPDX-License-Identifier: Apache-2.0
"""The version that is installed. SO_VERSION changes with the binary interfaces of libgmac.so and libgmac_mpi.so."""

VERSION = "0.1.0"
SO_VERSION = "0"
