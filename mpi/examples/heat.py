#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Heat on a plate, with mpi4py and NumPy: each process has a tile with a border of its neighbours' values, which are exchanged
as subarrays. The tiles are shared objects where gmac is in the process, else NumPy's own memory; `heat.py plain` has them there
in any case. It prints the same each time."""
import ctypes
import sys

import numpy
from mpi4py import MPI

EDGE = 96
WIDTH = EDGE + 2
STEPS = 40


class Tile:
    """WIDTH x WIDTH doubles, all 0; `values` is the array."""

    def __init__(self, gmac):
        self._gmac = gmac
        self._address = None
        if gmac is None:
            self.values = numpy.zeros((WIDTH, WIDTH))
            return
        count = WIDTH * WIDTH
        self._address = gmac.adsmAlloc(count * 8)
        if not self._address:
            raise MemoryError(gmac.adsmLastErrorString().decode())
        memory = (ctypes.c_double * count).from_address(self._address)
        self.values = numpy.frombuffer(memory).reshape(WIDTH, WIDTH)
        self.clear()

    def clear(self):
        """Of an object: on the accelerator."""
        ctypes.memset(self.values.ctypes.data, 0, self.values.nbytes)

    def free(self):
        self.values = None
        if self._address is not None:
            self._gmac.adsmFree(self._address)
            self._address = None


def gmac_of_this_process():
    """gmac's functions; None where it is not in the process."""
    process = ctypes.CDLL(None)
    try:
        process.adsmAlloc.restype = ctypes.c_void_p
    except AttributeError:
        return None
    process.adsmAlloc.argtypes = [ctypes.c_size_t]
    process.adsmFree.argtypes = [ctypes.c_void_p]
    process.adsmLastErrorString.restype = ctypes.c_char_p
    return process


def part(rows, columns, row, column):
    """The type of a part of a tile."""
    return MPI.DOUBLE.Create_subarray([WIDTH, WIDTH], [rows, columns], [row, column]).Commit()


def exchange(grid, tile, sides):
    requests = []
    for tag, (dimension, step, sent, received) in enumerate(sides):
        source, target = grid.Shift(dimension, step)
        requests.append(grid.Irecv([tile, 1, received], source, tag))
        requests.append(grid.Isend([tile, 1, sent], target, tag))
    MPI.Request.Waitall(requests)


def main():
    gmac = None if sys.argv[1:] == ["plain"] else gmac_of_this_process()
    world = MPI.COMM_WORLD
    grid = world.Create_cart(MPI.Compute_dims(world.size, 2))
    # The face that goes to a neighbour, and the place of the one that comes from the opposite neighbour.
    sides = [
        (0, 1, part(1, EDGE, EDGE, 1), part(1, EDGE, 0, 1)),
        (0, -1, part(1, EDGE, 1, 1), part(1, EDGE, EDGE + 1, 1)),
        (1, 1, part(EDGE, 1, 1, EDGE), part(EDGE, 1, 1, 0)),
        (1, -1, part(EDGE, 1, 1, 1), part(EDGE, 1, 1, EDGE + 1)),
    ]
    now = Tile(gmac)
    later = Tile(gmac)
    rows, columns = numpy.ogrid[1 : EDGE + 1, 1 : EDGE + 1]
    now.values[1:-1, 1:-1] = (rows * 37 + columns * 11 + grid.rank * 5) % 101
    for _ in range(STEPS):
        exchange(grid, now.values, sides)
        at = now.values
        later.clear()
        later.values[1:-1, 1:-1] = 0.25 * (at[:-2, 1:-1] + at[2:, 1:-1] + at[1:-1, :-2] + at[1:-1, 2:])
        now, later = later, now
    # In memory of Python's own.
    own = numpy.array([(now.values[1:-1, 1:-1] * (columns + 3 * rows)).sum(), now.values.max()])
    all_of_them = numpy.zeros((grid.size, 2)) if grid.rank == 0 else None
    grid.Gather(own, all_of_them)
    largest = grid.allreduce(float(own[1]), MPI.MAX)
    if grid.rank == 0:
        print(f"heat: {all_of_them[:, 0].sum()!r} {largest!r}")
    for _, _, sent, received in sides:
        sent.Free()
        received.Free()
    now.free()
    later.free()
    grid.Free()


main()
