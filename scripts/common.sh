# SPDX-License-Identifier: Apache-2.0
# Shared by all parts of gmacw. `root` and `invoked_from` are gmacw's.

say() { echo "gmacw: $*"; }

fail() {
  echo "gmacw: $*" >&2
  exit 1
}

fail_usage() {
  echo "gmacw: $*" >&2
  exit 2
}

# Checks a command's arguments before it does anything: a mistyped option must not become a file's name.
no_arguments() { # COMMAND ARGUMENTS...
  [[ $# == 1 ]] || fail_usage "$1 takes no arguments, and got '$2'; see ./gmacw help"
}

no_empty_argument() { # COMMAND ARGUMENTS...
  local command=$1 argument
  shift
  for argument in "$@"; do
    [[ -n $argument ]] || fail_usage "$command: an argument is empty; see ./gmacw help"
  done
}

one_path() { # COMMAND WHAT ARGUMENTS...
  local command=$1 what=$2
  shift 2
  [[ $# == 1 ]] || fail_usage "$command takes one argument, $what, and got $#; see ./gmacw help"
  case $1 in
    '') fail_usage "$command: $what is empty; see ./gmacw help" ;;
    -*) fail_usage "$command: no option '$1'; for $what of that name write './$1'" ;;
  esac
}

# A path as the caller meant it, whatever the current directory is now.
absolute() {
  case $1 in
    /*) printf '%s\n' "$1" ;;
    *) printf '%s\n' "$invoked_from/$1" ;;
  esac
}

# The flags of all of gmacw's Bazel commands. The disk cache lets several checkouts use one another's results.
bazel_flags() {
  printf '%s\n' "--disk_cache=${GMAC_BAZEL_CACHE:-$HOME/.cache/gmac/bazel}"
  if [[ -t 1 && -t 2 ]]; then
    printf '%s\n' --show_progress --curses=yes --color=yes
  else
    printf '%s\n' --color=no --curses=no --show_result=0
  fi
}

# bazel VERB ARGUMENTS..., with the shared flags; everything it says goes to the standard output.
run_bazel() {
  local verb=$1 flags
  shift
  mapfile -t flags < <(bazel_flags)
  if [[ -t 1 && -t 2 ]]; then
    bazel "$verb" "${flags[@]}" "$@" 2>&1
  else
    # Only what matters to whoever reads a log: neither Bazel's info lines nor its hint about test sizes, which it cannot be
    # told to keep. The status is Bazel's (pipefail).
    bazel "$verb" "${flags[@]}" "$@" 2>&1 |
      { grep -vE --line-buffered '^(INFO|Loading|Analyzing): ?|specified size is too big|^Target .* up-to-date' || true; }
  fi
}

# Fills the array named with the files of the targets that a query gives, relative to bazel-bin.
find_built() { # ARRAY QUERY
  local labels
  labels=$(bazel query --noshow_progress --ui_event_filters=-info "$2") || fail "bazel query failed"
  mapfile -t "$1" < <(sed -e '/^$/d' -e 's|^//||' -e 's|:|/|' <<<"$labels" | sort)
}

version() { sed -n 's/^VERSION = "\(.*\)"$/\1/p' bazel/version.bzl; }
so_version() { sed -n 's/^SO_VERSION = "\(.*\)"$/\1/p' bazel/version.bzl; }

bazel_build() {
  say "building $*"
  run_bazel build "$@"
}

# Our own C++ and CUDA sources, whether or not git knows them yet.
sources() { # PATTERN...
  git ls-files --cached --others --exclude-standard -- "$@" | while read -r file; do
    [[ ! -e $file ]] || printf '%s\n' "$file"
  done
}
