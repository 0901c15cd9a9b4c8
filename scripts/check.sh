# SPDX-License-Identifier: Apache-2.0
# Format and lint.

format_patterns=('*.h' '*.hpp' '*.cc' '*.cu' '*.c')

format_sources() {
  local files
  mapfile -t files < <(sources "${format_patterns[@]}")
  [[ ${#files[@]} == 0 ]] || clang-format -i "${files[@]}"
}

check_format() {
  local files
  mapfile -t files < <(sources "${format_patterns[@]}")
  [[ ${#files[@]} -gt 0 ]] || return 0
  say "checking the format of ${#files[@]} files"
  local wrong
  wrong=$(clang-format --dry-run "${files[@]}" 2>&1 | sed -n 's/^\([^ :]*\):[0-9].*/\1/p' | sort -u)
  [[ -n $wrong ]] || return 0
  printf 'not formatted (./gmacw format does it): %s\n' $wrong >&2
  return 1
}

# The pages name only files, folders and functions that exist, and the map has what each room includes.
check_pages() {
  say "checking what the pages name"
  local status=0
  python3 scripts/doc_paths.py >&2 || status=1
  python3 scripts/room_map.py >&2 || status=1
  return "$status"
}

# Some files include headers that a build generates.
build_generated_headers() {
  local headers
  mapfile -t headers < <(bazel query --noshow_progress --ui_event_filters=-info 'kind(genrule, filter("_header$", //...))')
  [[ ${#headers[@]} == 0 ]] || run_bazel build "${headers[@]}"
}

run_lint() { # [--since REVISION] [FILES]
  build_generated_headers
  python3 scripts/lint.py "$@"
}
