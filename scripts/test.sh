# SPDX-License-Identifier: Apache-2.0
# ./gmacw test: format, lint, build, tests, and one last line with what the tests counted.

run_tests() {
  local arguments=() targets=()
  while [[ $# -gt 0 ]]; do
    case $1 in
      --config)
        [[ $# -gt 1 ]] || fail_usage "--config takes one of asan, ubsan, tsan, debug"
        arguments+=("--config=$2")
        shift
        ;;
      -*) arguments+=("$1") ;;
      *) targets+=("$1") ;;
    esac
    shift
  done
  [[ ${#targets[@]} -gt 0 ]] || targets=(//...)

  # What is wrong here does not keep the tests from running, but fails the command.
  local status=0
  check_format || status=1
  check_lint || status=1

  say "testing ${targets[*]} ${arguments[*]}"
  local events
  events=$(mktemp)
  run_bazel test --build_event_json_file="$events" "${arguments[@]}" "${targets[@]}" || status=$?
  # Counts from the results' own files; a build that failed, or a test that died, counts too.
  python3 scripts/count_tests.py "$events" || status=$((status ? status : 1))
  rm -f "$events"
  return "$status"
}
