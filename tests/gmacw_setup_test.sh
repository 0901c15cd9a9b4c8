#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# ./gmacw build installs the packages that are missing, and those alone: when none is, it asks nothing of apt-get. With programs
# of this test's own in the place of dpkg-query, apt-get, sudo and bazel.
set -uo pipefail
failures=0
fakes=$(mktemp -d)
trap 'rm -rf "$fakes"' EXIT
export FAKES=$fakes

fake() { # NAME, and the script on the standard input
  {
    echo '#!/usr/bin/env bash'
    cat
  } >"$fakes/$1"
  chmod +x "$fakes/$1"
}
# Says of each package that it is there, but for those in $MISSING.
fake dpkg-query <<'END'
for word; do
  [[ $word == -* || " $MISSING " == *" $word "* ]] || echo "ii  $word"
done
END
fake sudo <<'END'
exec "$@"
END
# Succeeds as often as apt-get does with lists that are there; $FAILS: the first installation does not.
fake apt-get <<'END'
echo "apt-get $*" >>"$FAKES/calls"
[[ -z ${FAILS-} || $1 != install || -e $FAKES/updated ]] || exit 100
[[ $1 != update ]] || touch "$FAKES/updated"
END
fake bazel <<'END'
echo "bazel $1 ${*: -1}" >>"$FAKES/calls"
END

# Builds //x, and compares what was called with the lines given.
calls() { # WHEN LINES...
  local when=$1 said
  shift
  rm -f "$fakes/calls" "$fakes/updated"
  said=$(PATH="$fakes:$PATH" HOME="$fakes" ./gmacw build //x 2>&1)
  if [[ $(cat "$fakes/calls") == "$(printf '%s\n' "$@")" ]]; then
    echo "ok: $when"
  else
    echo "FAILED: $when: called $(cat "$fakes/calls"); said: $said"
    failures=$((failures + 1))
  fi
}

install="apt-get install -y -q --no-install-recommends"
MISSING="" calls "nothing is missing" "bazel build //x"
export MISSING="libfmt-dev g++"
calls "two packages are missing" "$install g++ libfmt-dev" "bazel build //x"
FAILS=1 calls "the package lists are stale" "$install g++ libfmt-dev" "apt-get update -q" "$install g++ libfmt-dev" \
  "bazel build //x"

[[ $failures == 0 ]]
