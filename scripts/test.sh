# SPDX-License-Identifier: Apache-2.0
# ./gmacw test: format, pages, tests with what they need, and one last line with what they counted. With targets given: only these,
# without the format and the pages.

run_tests() {
  local arguments=() targets=()
  while [[ $# -gt 0 ]]; do
    case $1 in
      --config)
        case ${2-} in
          asan | ubsan | tsan | debug | mpi-asan | mpi-tsan) ;;
          *) fail_usage "--config takes one of asan, ubsan, tsan, debug, mpi-asan, mpi-tsan, and got '${2-}'" ;;
        esac
        arguments+=("--config=$2")
        shift
        ;;
      -*) arguments+=("$1") ;;
      *) targets+=("$1") ;;
    esac
    shift
  done
  local everything=false
  [[ ${#targets[@]} -gt 0 ]] || everything=true targets=(//...) arguments+=(--build_tests_only)

  # A step that fails does not keep the others from running; it counts as a failure beside the tests' own.
  local failures=() events bazel_status=0
  ! $everything || check_format || failures+=("format")
  ! $everything || check_pages || failures+=("pages")
  say "testing ${targets[*]}${arguments[*]:+ }${arguments[*]}"
  events=$(mktemp)
  run_bazel test --keep_going --build_event_json_file="$events" "${arguments[@]}" "${targets[@]}" || bazel_status=$?
  # 3 is Bazel's word for tests that failed, which are counted one by one; anything else is a build that failed.
  [[ $bazel_status == 0 || $bazel_status == 3 ]] || failures+=("build")
  local status=0
  python3 scripts/count_tests.py "$events" "${failures[@]}" || status=1
  rm -f "$events"
  return "$status"
}
