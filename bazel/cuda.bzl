# SPDX-License-Identifier: Apache-2.0
"""CUDA sources, with or without a CUDA toolkit on the build machine.

The library's kernels are machine code for LIBRARY_CODE's architectures, those of tests, benchmarks and other programs for
PROGRAM_CODE's; and all are PTX, for every other device."""

load("@cuda//:cuda.bzl", "CUDA_AVAILABLE", "CUDA_HOME")

def _code(architectures, ptx):
    return ["-gencode=arch=compute_{0},code=sm_{0}".format(architecture) for architecture in architectures] + [
        "-gencode=arch=compute_{0},code=compute_{0}".format(ptx),
    ]

LIBRARY_CODE = _code(["75", "80", "90"], ptx = "90")

# For the GPU that is measured; other ones' drivers compile the PTX. Both from one pass of the compiler's, which takes a
# second for each of sixty files.
PROGRAM_CODE = ["-gencode=arch=compute_75,code=[sm_90,compute_75]"]

_FLAGS = [
    "-O3",
    # Uncompressed, the pack kernels alone would be 7 MB; line information would triple that. The other modes (and nvcc's
    # default) make images that drivers before CUDA 12.4 cannot read.
    "-Xfatbin=-compress-all",
    "-Xfatbin=-compress-mode=speed",
    "-Xcompiler=-fPIC,-fvisibility=hidden,-Wall",
]

def if_cuda(yes, no = []):
    """`yes` where the build has a CUDA toolkit, else `no`."""
    return yes if CUDA_AVAILABLE else no

# For code that has a CUDA half: GMAC_HAVE_CUDA is 1 or 0.
CUDA_DEFINES = ["GMAC_HAVE_CUDA=" + ("1" if CUDA_AVAILABLE else "0")]

def _nvcc_impl(ctx):
    contexts = [dep[CcInfo].compilation_context for dep in ctx.attr.deps]
    arguments = ctx.actions.args()
    arguments.add(CUDA_HOME + "/bin/nvcc")
    arguments.add(ctx.outputs.out)
    arguments.add_all(ctx.attr.code)
    arguments.add("--std=" + ctx.attr.standard)
    arguments.add_all(_FLAGS)
    arguments.add_all([".", ctx.bin_dir.path, ctx.genfiles_dir.path], format_each = "-I%s", uniquify = True)
    for context in contexts:
        arguments.add_all(context.includes, format_each = "-I%s")
        arguments.add_all(context.quote_includes, format_each = "-I%s")
        arguments.add_all(context.system_includes, before_each = "-isystem")
        arguments.add_all(context.defines, format_each = "-D%s")
    arguments.add("-fatbin" if ctx.attr.fatbin else "-c")
    arguments.add(ctx.file.src)
    ctx.actions.run(
        executable = ctx.executable._nvcc,
        arguments = [arguments],
        inputs = depset(
            [ctx.file.src] + ctx.files.hdrs + ctx.files._toolkit,
            transitive = [context.headers for context in contexts],
        ),
        outputs = [ctx.outputs.out],
        use_default_shell_env = True,
        mnemonic = "Nvcc",
        progress_message = "Compiling kernels of %{label}",
    )
    return [DefaultInfo(files = depset([ctx.outputs.out]))]

_nvcc = rule(
    implementation = _nvcc_impl,
    attrs = {
        "src": attr.label(allow_single_file = [".cu"], mandatory = True),
        "hdrs": attr.label_list(allow_files = True),
        "deps": attr.label_list(providers = [CcInfo]),
        "fatbin": attr.bool(mandatory = True),
        "code": attr.string_list(default = PROGRAM_CODE),
        "standard": attr.string(default = "c++20"),
        "out": attr.output(mandatory = True),
        "_toolkit": attr.label(default = "@cuda//:toolkit"),
        "_nvcc": attr.label(default = "//bazel:nvcc", executable = True, cfg = "host"),
    },
)

def cuda_fatbin(name, src, symbol, array = None, hdrs = [], deps = [], code = PROGRAM_CODE, **kwargs):
    """A cc_library with the machine code of `src`, for accelerators that load modules at run time.

    #include "PACKAGE/NAME.h" declares `extern "C" const unsigned char* const SYMBOL`: the fatbin, or NULL where the build
    had no CUDA toolkit; and `extern "C" const unsigned long SYMBOL_bytes`, its size. With a toolkit the bytes themselves
    are also `extern "C" const unsigned char ARRAY[]` when `array` is given."""
    header = name + ".h"
    assembly = name + ".S"
    native.genrule(
        name = name + "_header",
        outs = [header],
        cmd = "$(location //bazel:embed) header {} > $@".format(symbol),
        tools = ["//bazel:embed"],
    )
    if CUDA_AVAILABLE:
        _nvcc(
            name = name + "_image",
            src = src,
            hdrs = hdrs,
            deps = deps,
            code = code,
            out = name + ".fatbin",
            fatbin = True,
        )
        native.genrule(
            name = name + "_object",
            srcs = [name + ".fatbin"],
            outs = [name + ".pic.o"],
            cmd = "$(location //bazel:embed) object {} $< $@ {}".format(symbol, array or ""),
            tools = ["//bazel:embed"],
        )
    else:
        native.genrule(
            name = name + "_object",
            outs = [name + ".pic.o"],
            cmd = "$(location //bazel:embed) null {} $@".format(symbol),
            tools = ["//bazel:embed"],
        )
    native.cc_library(name = name, srcs = [name + ".pic.o"], hdrs = [header], linkstatic = True, **kwargs)

def cuda_library(name, srcs, hdrs = [], deps = [], **kwargs):
    """A cc_library of .cu files compiled by nvcc and linked with the static CUDA runtime; empty without a toolkit."""
    objects = []
    if CUDA_AVAILABLE:
        for src in srcs:
            out = src[:-len(".cu")] + ".cu.pic.o"
            _nvcc(name = out + "_nvcc", src = src, hdrs = hdrs, deps = deps, out = out, fatbin = False)
            objects.append(out)
    native.cc_library(
        name = name,
        srcs = objects,
        hdrs = hdrs,
        deps = deps + ["@cuda//:cudart_static"],
        linkstatic = True,
        alwayslink = True,
        **kwargs
    )

def cuda_programs(name, srcs, hdrs = [], deps = [], linkopts = []):
    """Two programs of each .cu file, of one compilation: static/STEM and shared/STEM, linked with the static and with the
    shared CUDA runtime; none at all without a toolkit. The filegroup `name` has all of them.

    They are C++17: the standard library's headers of C++20 take a third of nvcc's time."""
    programs = []
    if CUDA_AVAILABLE:
        for src in srcs:
            stem = src[:-len(".cu")]
            out = stem + ".cu.pic.o"
            _nvcc(name = out + "_nvcc", src = src, hdrs = hdrs, deps = deps, out = out, fatbin = False, standard = "c++17")
            for runtime in ["static", "shared"]:
                program = runtime + "/" + stem
                native.cc_binary(
                    name = program,
                    srcs = [out],
                    linkopts = linkopts,
                    deps = deps + ["@cuda//:cudart_" + runtime],
                )
                programs.append(program)
    native.filegroup(name = name, srcs = programs)

def cuda_binary(name, srcs, hdrs = [], deps = [], **kwargs):
    """A program of .cu files; not there at all without a toolkit."""
    if CUDA_AVAILABLE:
        cuda_library(name = name + "_lib", srcs = srcs, hdrs = hdrs, deps = deps)
        native.cc_binary(name = name, deps = [":" + name + "_lib"], **kwargs)
