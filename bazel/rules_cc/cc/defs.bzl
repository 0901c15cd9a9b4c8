# SPDX-License-Identifier: Apache-2.0
"""rules_cc as Bazel 4.2.3 needs it: the native rules under the names that other rule sets load."""

cc_library = native.cc_library
cc_binary = native.cc_binary
cc_test = native.cc_test
cc_import = native.cc_import
cc_proto_library = native.cc_proto_library
cc_toolchain = native.cc_toolchain
cc_toolchain_suite = native.cc_toolchain_suite
objc_library = native.objc_library
