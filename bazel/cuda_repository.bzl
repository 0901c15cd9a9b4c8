# SPDX-License-Identifier: Apache-2.0
"""Finds the CUDA toolkit: $CUDA_HOME, then nvcc on the PATH, then the usual installation folder.

Makes @cuda//:cuda.bzl (CUDA_AVAILABLE, CUDA_HOME, CUDA_VERSION), @cuda//:headers, @cuda//:cudart_static and
@cuda//:cudart_shared; the last three are empty without a toolkit."""

_WITHOUT = """
package(default_visibility = ["//visibility:public"])
cc_library(name = "headers")
cc_library(name = "cudart_static")
cc_library(name = "cudart_shared")
filegroup(name = "toolkit", srcs = [])
"""

_WITH = """
package(default_visibility = ["//visibility:public"])
cc_library(
    name = "headers",
    # The driver's, the runtime's and CUPTI's headers; nvcc finds the rest by itself.
    hdrs = glob(
        [
            "include/cuda*.h",
            "include/generated_cuda*.h",
            "include/cupti*.h",
            "include/*_types.h",
            "include/*_functions.h",
            "include/*_functions.hpp",
            "include/channel_descriptor.h",
            "include/crt/*.h",
            "include/crt/*.hpp",
        ],
        allow_empty = True,
    ),
    includes = ["include"],
)
cc_import(name = "cudart_archive", static_library = "lib/libcudart_static.a")
cc_library(
    name = "cudart_static",
    linkopts = ["-ldl", "-lrt", "-lpthread"],
    deps = [":cudart_archive", ":headers"],
)
cc_import(name = "cudart_library", shared_library = "lib/@CUDART@")
cc_library(name = "cudart_shared", deps = [":cudart_library", ":headers"])
# An action that calls nvcc depends on its version, not on the thousands of files of the toolkit.
filegroup(name = "toolkit", srcs = ["cuda.bzl"])
"""

def _find(repository):
    home = repository.os.environ.get("CUDA_HOME", "")
    candidates = [home] if home else []
    nvcc = repository.which("nvcc")
    if nvcc:
        candidates.append(str(nvcc.realpath.dirname.dirname))
    candidates.append("/usr/local/cuda")
    for candidate in candidates:
        if repository.path(candidate + "/bin/nvcc").exists and repository.path(candidate + "/include/cuda.h").exists:
            return candidate
    return None

def _constants(available, home, version):
    return "CUDA_AVAILABLE = {}\nCUDA_HOME = {}\nCUDA_VERSION = {}\n".format(available, repr(home), repr(version))

def _cuda_repository_impl(repository):
    home = _find(repository)
    archive = None
    for folder in ["lib64", "lib", "targets/x86_64-linux/lib"]:
        path = repository.path("%s/%s/libcudart_static.a" % (home, folder)) if home else None
        if path and path.exists and not archive:
            archive = path
    if not home or not archive:
        # buildifier: disable=print
        print("no CUDA toolkit found: the CUDA accelerators and kernels are left out of this build")
        repository.file("cuda.bzl", _constants(False, "", ""))
        repository.file("BUILD", _WITHOUT)
        return
    version = repository.execute([home + "/bin/nvcc", "--version"]).stdout.strip().split("\n")[-1]
    repository.symlink(home + "/include", "include")
    repository.symlink(archive, "lib/libcudart_static.a")
    # By the name that programs look for, libcudart.so.N, whatever the file that this leads to is called.
    library = archive.dirname.get_child("libcudart.so").realpath
    library_name = ".".join(library.basename.split(".")[:3])
    repository.symlink(library, "lib/" + library_name)
    repository.file("cuda.bzl", _constants(True, home, version))
    repository.file("BUILD", _WITH.replace("@CUDART@", library_name))

cuda_repository = repository_rule(
    implementation = _cuda_repository_impl,
    environ = ["CUDA_HOME", "PATH"],
    local = True,
    configure = True,
)
