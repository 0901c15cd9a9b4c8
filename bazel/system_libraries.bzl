# SPDX-License-Identifier: Apache-2.0
"""The libraries that Debian's -dev packages install, one repository each: @NAME//:NAME.

Their headers lie in the compiler's own search path, so a repository checks that they are there and carries only what the
compiler does not find by itself: definitions, archives and linker options. (Declaring Boost's thousands of headers as
inputs would make every sandboxed compilation pay for them.)"""

def _system_library_impl(repository):
    name = repository.name
    missing = []
    for header in repository.attr.headers:
        if not repository.path("/usr/include/" + header).exists:
            missing.append("/usr/include/" + header)
    machine = repository.execute(["uname", "-m"]).stdout.strip()
    libraries = "/usr/lib/{}-linux-gnu/".format(machine)

    # Headers that lie elsewhere are brought into the repository.
    hdrs = []
    for header in repository.attr.other_headers:
        source = repository.path(header.format(libraries = libraries, machine = machine))
        if not source.exists:
            missing.append(str(source))
            continue
        hdrs.append("include/" + source.basename)
        repository.symlink(source, hdrs[-1])
    linkopts = list(repository.attr.linkopts)
    for library in repository.attr.shared_libraries:
        if not repository.path(libraries + library).exists:
            missing.append(libraries + library)
        linkopts.append(libraries + library)
    build = ['package(default_visibility = ["//visibility:public"])']
    for archive in repository.attr.archives:
        source = repository.path(libraries + archive)
        if not source.exists:
            missing.append(str(source))
            continue
        repository.symlink(source, archive)
        build.append('cc_import(name = "archive_{0}", static_library = "{0}")'.format(archive))
    if missing:
        fail("%s: not installed: %s (Debian package %s; ./gmacw setup installs it)" %
             (name, ", ".join(missing), repository.attr.package))

    # The headers alone: for what finds the library at run time, and for what reads them.
    build.append("filegroup(name = \"header_files\", srcs = {})".format(repr(hdrs)))
    build.append("cc_library(name = \"headers\", hdrs = {}, includes = {})".format(
        repr(hdrs),
        repr(["include"] if hdrs else []),
    ))
    build.append("cc_library(name = {}, defines = {}, linkopts = {}, deps = [\":headers\"] + {})".format(
        repr(name),
        repr(repository.attr.defines),
        repr(linkopts),
        repr([":archive_" + archive for archive in repository.attr.archives] + repository.attr.deps),
    ))
    repository.file("BUILD", "\n".join(build) + "\n")

_system_library = repository_rule(
    implementation = _system_library_impl,
    local = True,
    attrs = {
        "package": attr.string(mandatory = True),
        # In the compiler's search path.
        "headers": attr.string_list(),
        # With {libraries} for /usr/lib/MACHINE-linux-gnu/ and {machine} for MACHINE.
        "other_headers": attr.string_list(),
        # Below /usr/lib/MACHINE-linux-gnu.
        "shared_libraries": attr.string_list(),
        "archives": attr.string_list(),
        "defines": attr.string_list(),
        "linkopts": attr.string_list(),
        "deps": attr.string_list(),
    },
)

def system_libraries():
    """Declares @boost, @cli11, @fmt, @nlohmann_json, @lz4, @zstd, @gtest, @gmock, @benchmark, @openmpi, @mpich."""
    _system_library(
        name = "boost",
        package = "libboost-dev",
        headers = ["boost/intrusive/set.hpp"],
    )
    _system_library(
        name = "cli11",
        package = "libcli11-dev",
        headers = ["CLI/CLI.hpp"],
    )
    _system_library(
        name = "fmt",
        package = "libfmt-dev",
        headers = ["fmt/format.h"],
    )
    _system_library(
        name = "nlohmann_json",
        package = "nlohmann-json3-dev",
        headers = ["nlohmann/json.hpp"],
    )
    _system_library(
        name = "lz4",
        package = "liblz4-dev",
        headers = ["lz4.h"],
        archives = ["liblz4.a"],
    )
    _system_library(
        name = "zstd",
        package = "libzstd-dev",
        headers = ["zstd.h"],
        archives = ["libzstd.a"],
    )
    _system_library(
        name = "gtest",
        package = "libgtest-dev",
        headers = ["gtest/gtest.h"],
        archives = ["libgtest.a"],
        linkopts = ["-pthread"],
    )
    _system_library(
        name = "gmock",
        package = "libgmock-dev",
        headers = ["gmock/gmock.h"],
        archives = ["libgmock_main.a", "libgmock.a"],
        deps = ["@gtest"],
    )
    _system_library(
        name = "benchmark",
        package = "libbenchmark-dev",
        headers = ["benchmark/benchmark.h"],
        linkopts = ["-lbenchmark", "-pthread"],
    )

    # By their own paths: `mpi.h` and `libmpi.so` may be another MPI's.
    _system_library(
        name = "openmpi",
        package = "libopenmpi-dev",
        other_headers = ["{libraries}openmpi/include/" + header for header in [
            "mpi-ext.h",
            "mpi.h",
            "mpi_portable_platform.h",
        ]],
        shared_libraries = ["openmpi/lib/libmpi.so"],
        # Without its C++ bindings, which need another library.
        defines = ["OMPI_SKIP_MPICXX=1"],
    )
    # Open MPI's: found at run time.
    _system_library(
        name = "pmix",
        package = "libpmix-dev",
        other_headers = ["{libraries}pmix2/include/" + header for header in [
            "pmix.h",
            "pmix_common.h",
            "pmix_deprecated.h",
            "pmix_version.h",
        ]],
    )
    _system_library(
        name = "mpich",
        package = "libmpich-dev",
        other_headers = ["/usr/include/{machine}-linux-gnu/mpich/" + header for header in [
            "mpi.h",
            "mpi_proto.h",
            "mpicxx.h",
            "mpio.h",
        ]],
        shared_libraries = ["libmpich.so"],
        defines = ["MPICH_SKIP_MPICXX=1"],
    )
