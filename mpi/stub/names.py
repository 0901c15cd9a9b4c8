#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What the stub exports, from the headers of the MPI libraries.

    names.py trampolines HEADER...   a line GMAC_MPI_NAME(MPI_Send) for every function that one of them declares, or that
                                     Open MPI 4 has for a collective of mpi/abi/collective_calls.inc, if that is one of them
    names.py globals HEADER...       a line GMAC_MPI_GLOBAL(ompi_mpi_byte) for every variable that stands for a handle
"""
import re
import sys

# Where Open MPI's mpi-ext.h leads, and what adsm_mpi.h asks for by name.
MORE_TRAMPOLINES = {"MPIX_Query_cuda_support", "MPIX_Gmac_type_digest", "MPIX_Gmac_type_known"}


def text_of(path):
    with open(path, encoding="utf-8") as file:
        text = file.read()
    text = re.sub(r"/\*.*?\*/", " ", text, flags=re.DOTALL)
    return re.sub(r"//[^\n]*", " ", text)


def functions(text):
    # Without what the preprocessor reads: macros that look like prototypes are none.
    text = re.sub(r"^[ \t]*#(?:[^\\\n]|\\.|\\\n)*", " ", text, flags=re.MULTILINE)
    found = set(re.findall(r"\b(?:int|double|void|P?MPI_\w+)\s*\*?\s+P?(MPIX?_[A-Za-z]\w*)\s*\(", text))
    # MPI_File_f2c and its like are functions; MPI_NULL_COPY_FN and its like are constants.
    return {name for name in found if not name.isupper() and name.upper() != name}


# Open MPI 4 has the persistent collectives by these names, in headers that mpi-ext.h includes.
def persistent_collectives(text):
    names = re.findall(r"^GMAC_MPI_COLLECTIVE\((\w+)", text, flags=re.MULTILINE)
    return {f"MPIX_{name}_init" for name in names}


def handles(text):
    return set(re.findall(r"OMPI_PREDEFINED_GLOBAL\s*\(\s*MPI_\w+\s*,\s*(\w+)\s*\)", text))


def main(what, paths):
    names = set(MORE_TRAMPOLINES) if what == "trampolines" else set()
    for path in paths:
        text = text_of(path)
        names |= functions(text) | persistent_collectives(text) if what == "trampolines" else handles(text)
    macro = "GMAC_MPI_NAME" if what == "trampolines" else "GMAC_MPI_GLOBAL"
    for name in sorted(names):
        print(f"{macro}({name})")


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2:])
