# SPDX-License-Identifier: Apache-2.0
# ./gmacw bench: the micro-benchmarks, compared with the committed baseline.

run_benchmarks() {
  bazel_build //bench:bench >&2
  cd "$invoked_from"
  exec "$root/bazel-bin/bench/bench" --baseline "$root/bench/baseline.json" "$@"
}
