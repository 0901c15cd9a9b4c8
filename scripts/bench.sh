# SPDX-License-Identifier: Apache-2.0
# ./gmacw bench: every micro-benchmark program, with the arguments given.

run_benchmarks() {
  bazel_build //bench/... >&2
  local programs program
  find_built programs 'kind(cc_binary, //bench/...)'
  [[ ${#programs[@]} -gt 0 ]] || fail "bench/ has no x_bench.cc"
  for program in "${programs[@]}"; do
    say "$program" >&2
    "bazel-bin/$program" "$@"
  done
}
