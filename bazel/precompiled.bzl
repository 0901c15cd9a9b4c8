# SPDX-License-Identifier: Apache-2.0
"""Headers that g++ parses once and not again for every source that begins with them."""

load("@bazel_tools//tools/build_defs/cc:action_names.bzl", "CPP_COMPILE_ACTION_NAME")
load("@bazel_tools//tools/cpp:toolchain_utils.bzl", "find_cpp_toolchain")

def _precompiled_header_impl(ctx):
    toolchain = find_cpp_toolchain(ctx)
    features = cc_common.configure_features(
        ctx = ctx,
        cc_toolchain = toolchain,
        requested_features = ctx.features,
        unsupported_features = ctx.disabled_features,
    )
    contexts = [dep[CcInfo].compilation_context for dep in ctx.attr.deps]

    # g++ takes NAME.h.gch where it finds it beside NAME.h.
    header = ctx.actions.declare_file(ctx.label.name + ".h")
    precompiled = ctx.actions.declare_file(ctx.label.name + ".h.gch")
    ctx.actions.symlink(output = header, target_file = ctx.file.src)
    variables = cc_common.create_compile_variables(
        feature_configuration = features,
        cc_toolchain = toolchain,
        output_file = precompiled.path,
        user_compile_flags = ctx.fragments.cpp.copts + ctx.fragments.cpp.cxxopts + ctx.attr.copts,
        preprocessor_defines = depset(ctx.attr.defines, transitive = [context.defines for context in contexts]),
        use_pic = True,
    )
    arguments = ctx.actions.args()
    arguments.add_all(cc_common.get_memory_inefficient_command_line(
        feature_configuration = features,
        action_name = CPP_COMPILE_ACTION_NAME,
        variables = variables,
    ))
    arguments.add_all(["-x", "c++-header", "-c", header, "-o", precompiled])
    ctx.actions.run(
        executable = cc_common.get_tool_for_action(feature_configuration = features, action_name = CPP_COMPILE_ACTION_NAME),
        arguments = [arguments],
        inputs = depset([header], transitive = [toolchain.all_files] + [context.headers for context in contexts]),
        outputs = [precompiled],
        env = cc_common.get_environment_variables(
            feature_configuration = features,
            action_name = CPP_COMPILE_ACTION_NAME,
            variables = variables,
        ),
        mnemonic = "CppPrecompile",
        progress_message = "Precompiling %{label}",
    )
    files = depset([header, precompiled])
    return [
        DefaultInfo(files = files),
        CcInfo(compilation_context = cc_common.create_compilation_context(
            headers = files,
            defines = depset(ctx.attr.defines),
        )),
    ]

precompiled_header = rule(
    implementation = _precompiled_header_impl,
    doc = """PACKAGE/NAME.h and what g++ has made of it, for sources whose copts have
-include PACKAGE/NAME.h and all of `copts`, and whose definitions are `defines`: g++ takes it for no others.""",
    attrs = {
        "src": attr.label(allow_single_file = [".h"], mandatory = True),
        "copts": attr.string_list(),
        # Also of what depends on it.
        "defines": attr.string_list(),
        "deps": attr.label_list(providers = [CcInfo]),
        "_cc_toolchain": attr.label(default = "@bazel_tools//tools/cpp:current_cc_toolchain"),
    },
    fragments = ["cpp"],
    toolchains = ["@bazel_tools//tools/cpp:toolchain_type"],
)
