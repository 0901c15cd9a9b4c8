# SPDX-License-Identifier: Apache-2.0
"""Fills a shared buffer from a file with readinto, has a kernel double it, and checks the result: program.py KERNELS FILE."""

import array
import ctypes
import faulthandler
import signal
import subprocess
import sys
import threading

WORDS = 300000

faulthandler.enable()
gmac = ctypes.CDLL(None)
kernels = ctypes.CDLL(sys.argv[1])


class Dim(ctypes.Structure):
    _fields_ = [("x", ctypes.c_uint), ("y", ctypes.c_uint), ("z", ctypes.c_uint)]


class KernelDesc(ctypes.Structure):
    _fields_ = [
        ("name", ctypes.c_char_p),
        ("paramCount", ctypes.c_size_t),
        ("paramSizes", ctypes.POINTER(ctypes.c_size_t)),
        ("host", ctypes.c_void_p),
        ("cudaImage", ctypes.c_void_p),
        ("cudaName", ctypes.c_char_p),
        ("cudartSymbol", ctypes.c_void_p),
        ("constantCount", ctypes.c_size_t),
        ("constants", ctypes.c_void_p),
    ]


gmac.adsmAlloc.restype = ctypes.c_void_p
gmac.adsmAlloc.argtypes = [ctypes.c_size_t]
gmac.adsmFree.argtypes = [ctypes.c_void_p]
gmac.adsmLastErrorString.restype = ctypes.c_char_p
gmac.adsmCall.argtypes = [ctypes.c_void_p, Dim, Dim, ctypes.c_size_t, ctypes.POINTER(ctypes.c_void_p)]


def check(error):
    if error != 0:
        sys.exit(gmac.adsmLastErrorString().decode())


sizes = (ctypes.c_size_t * 2)(8, 8)
description = KernelDesc(b"doubleWords", 2, sizes, ctypes.cast(kernels.doubleWords, ctypes.c_void_p))
kernel = ctypes.c_void_p()
check(gmac.adsmKernelCreate(ctypes.byref(description), ctypes.byref(kernel)))

address = gmac.adsmAlloc(4 * WORDS)
if not address:
    sys.exit(gmac.adsmLastErrorString().decode())
words = (ctypes.c_uint32 * WORDS).from_address(address)
view = memoryview(words).cast("B")


# The expected bytes of the buffer.
expected = array.array("I", bytes(4 * WORDS))


def double():
    global expected
    pointer, count = ctypes.c_void_p(address), ctypes.c_size_t(WORDS)
    arguments = (ctypes.c_void_p * 2)(ctypes.addressof(pointer), ctypes.addressof(count))
    check(gmac.adsmCall(kernel, Dim(1, 1, 1), Dim(1, 1, 1), 0, arguments))
    check(gmac.adsmSync())
    expected = array.array("I", (2 * word % 2**32 for word in expected))


for buffering in (0, -1):
    double()  # the accelerator's copy is the current one when readinto comes
    expected = array.array("I", (i * 2654435761 % 2**32 for i in range(WORDS)))
    with open(sys.argv[2], "wb") as file:
        expected.tofile(file)
    with open(sys.argv[2], "rb", buffering=buffering) as file:
        done = 0
        while done < len(view):
            done += file.readinto(view[done:])
    double()
    assert words[:] == expected.tolist(), "after readinto, buffering %d" % buffering
    double()
    with open(sys.argv[2], "wb", buffering=buffering) as file:
        done = 0
        while done < len(view):
            done += file.write(view[done:])
    with open(sys.argv[2], "rb") as file:
        assert file.read() == expected.tobytes(), "after write, buffering %d" % buffering

# Things that programs do beside: threads, children, blocked signals.
def sumInThread(sums):
    sums.append(sum(words[:1000]))


double()
sums = []
threads = [threading.Thread(target=sumInThread, args=(sums,)) for _ in range(4)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
assert sums == 4 * [sum(expected[:1000])]
assert subprocess.run(["/bin/sh", "-c", "exit 3"]).returncode == 3
assert subprocess.check_output(["/bin/echo", "child"]) == b"child\n"
signal.pthread_sigmask(signal.SIG_BLOCK, range(1, 32))
double()
assert signal.SIGSEGV in signal.pthread_sigmask(signal.SIG_BLOCK, [])
assert words[:] == expected.tolist()
check(gmac.adsmFree(address))
print("well")
