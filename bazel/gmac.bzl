# SPDX-License-Identifier: Apache-2.0
"""How this project compiles: warnings are errors, nothing is visible outside a shared library unless it says so."""

load("//bazel:cuda.bzl", "CUDA_DEFINES", "PROGRAM_CODE", "cuda_fatbin", "if_cuda")
load("//bazel:precompiled.bzl", "precompiled_header")

COPTS = [
    "-Wall",
    "-Wextra",
    "-Werror",
    # g++ 12 sees an overflow in fmt's parser of format strings where there is none.
    "-Wno-stringop-overflow",
    "-fvisibility=hidden",
]

# For tests: most of them compile for longer than they run, and a third of that is the optimiser's. Sanitizers keep their own
# level.
TEST_COPTS = COPTS + select({
    "//:sanitizer": [],
    "//conditions:default": ["-O0"],
})

# Of shared libraries: other libraries of the process do not find the C++ library that is linked into this one.
PRIVATE_RUNTIMES = ["-Wl,--exclude-libs=libstdc++.a:libgcc.a"]

def begin_with(headers):
    """The options of sources that begin with precompiled headers.

    Args:
      headers: their name in //bazel; one of the dependencies as well."""
    return [
        "-include",
        "bazel/{}.h".format(headers),
        # A precompiled header that g++ cannot take costs time, and nothing else.
        "-Winvalid-pch",
        "-Wno-error=invalid-pch",
        # Up to this many KiB, g++ collects no garbage, which is a tenth of its time: the header alone is so large that
        # it would begin at once.
        "--param=ggc-min-heapsize=524288",
    ]

def precompiled_headers():
    """Headers that sources begin with, for each set of flags: g++ compiles a header for one."""
    precompiled_header(
        name = "library_headers",
        src = "library_headers.h",
        copts = COPTS,
        deps = ["@boost"],
    )

    # The headers of gmac_tests, for either level of optimisation.
    for name, copts in [("test_headers_plain", TEST_COPTS), ("test_headers_optimised", COPTS)]:
        precompiled_header(
            name = name,
            testonly = True,
            src = "test_headers.h",
            copts = copts,
            # Of half of the tests by way of what they are linked with.
            defines = CUDA_DEFINES,
            deps = ["@gmock"],
        )

def gmac_library(name, deps = [], copts = [], precompiled = False, **kwargs):
    """A cc_library of this project's own code.

    Args:
      name: the library's name.
      deps: what it includes and is linked with.
      copts: more options of its sources.
      precompiled: whether they begin with the precompiled headers.
      **kwargs: for cc_library."""
    native.cc_library(
        name = name,
        copts = COPTS + copts + (begin_with("library_headers") if precompiled else []),
        deps = deps + (["//bazel:library_headers"] if precompiled else []),
        linkstatic = True,
        **kwargs
    )

def gmac_fatbins(name, srcs, hdrs = [], deps = [], image_names = None, code = PROGRAM_CODE, **kwargs):
    """One cuda_fatbin per .cu file, and the library `name` that has all of them.

    a/b.cu in package p gives #include "p/a/b_fatbin.h", which declares p_a_b_fatbin (NULL without a CUDA toolkit).

    Args:
      name: the library's name.
      srcs: the .cu files.
      hdrs: headers of this package that they include.
      deps: libraries whose headers they include.
      code: for which devices; LIBRARY_CODE for what is installed.
      image_names: optionally, a function from a file's path to a second name, that of the image as an array.
      **kwargs: for every library made."""
    libraries = []
    for src in srcs:
        stem = src[:-len(".cu")] + "_fatbin"
        cuda_fatbin(
            name = stem,
            src = src,
            hdrs = hdrs,
            deps = deps,
            code = code,
            array = image_names(src) if image_names else None,
            symbol = (native.package_name() + "/" + stem).replace("/", "_").replace("-", "_"),
            **kwargs
        )
        libraries.append(":" + stem)
    native.cc_library(name = name, deps = libraries, **kwargs)

def gmac_tests(srcs, deps, deps_of = {}, optimised = [], precompiled = True, shards = {}, **kwargs):
    """One cc_test per file x/y_test.cc, named x/y_test, with GoogleTest's main unless it has its own.

    Args:
      srcs: the files.
      deps: what every test is linked with.
      deps_of: folder prefix -> what the tests below it are linked with besides.
      optimised: prefixes of the files that are compiled as the library is, because they go through many bytes: without
        that, they take several times as long to run. [""]: all of them.
      precompiled: whether they begin with the precompiled headers, which g++ takes where no other macros are defined.
      shards: file -> in how many processes, one after the other or side by side, its tests run; 1 by default.
      **kwargs: for every cc_test."""
    for src in srcs:
        slow = [prefix for prefix in optimised if src.startswith(prefix)]
        headers = "test_headers_optimised" if slow else "test_headers_plain"
        extra = []
        for prefix, more in deps_of.items():
            if src.startswith(prefix):
                extra = extra + more
        native.cc_test(
            name = src[:-len(".cc")],
            srcs = [src],
            copts = (COPTS if slow else TEST_COPTS) + (begin_with(headers) if precompiled else []),
            deps = deps + extra + ["@gmock"] + (["//bazel:" + headers] if precompiled else []),
            linkstatic = True,
            **dict(kwargs, **({"shard_count": shards[src]} if src in shards else {}))
        )
