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
    build = ['package(default_visibility = ["//visibility:public"])']
    for archive in repository.attr.archives:
        source = repository.path("/usr/lib/{}-linux-gnu/{}".format(machine, archive))
        if not source.exists:
            missing.append(str(source))
            continue
        repository.symlink(source, archive)
        build.append('cc_import(name = "archive_{0}", static_library = "{0}")'.format(archive))
    if missing:
        fail("%s: not installed: %s (Debian package %s; ./gmacw setup installs it)" %
             (name, ", ".join(missing), repository.attr.package))
    build.append("cc_library(name = {}, defines = {}, linkopts = {}, deps = {})".format(
        repr(name),
        repr(repository.attr.defines),
        repr(repository.attr.linkopts),
        repr([":archive_" + archive for archive in repository.attr.archives] + repository.attr.deps),
    ))
    repository.file("BUILD", "\n".join(build) + "\n")

_system_library = repository_rule(
    implementation = _system_library_impl,
    local = True,
    attrs = {
        "package": attr.string(mandatory = True),
        "headers": attr.string_list(mandatory = True),
        "archives": attr.string_list(),
        "defines": attr.string_list(),
        "linkopts": attr.string_list(),
        "deps": attr.string_list(),
    },
)

def system_libraries():
    """Declares @sigsegv, @boost, @cli11, @fmt, @nlohmann_json, @gtest, @gmock, @benchmark."""
    _system_library(
        name = "sigsegv",
        package = "libsigsegv-dev",
        headers = ["sigsegv.h"],
        archives = ["libsigsegv.a"],
    )
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
        defines = ["FMT_HEADER_ONLY=1"],
    )
    _system_library(
        name = "nlohmann_json",
        package = "nlohmann-json3-dev",
        headers = ["nlohmann/json.hpp"],
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
