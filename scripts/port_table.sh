#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# The changes of porting each benchmark from CUDA with explicit copies to gmac: the lines removed and added between the two
# versions of its program, blank lines and comments aside, as a Markdown table.
# usage: scripts/port_table.sh [--diff NAME]   (with --diff: one benchmark's changes, line by line)
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

# The body of the function $2 in file $1, without blank lines and comments.
body() {
  awk -v start="^void $2\\\\(" '$0 ~ start { inside = 1; next } inside && /^}/ { exit } inside' "$1" |
    sed -e 's|//.*||' -e 's/[[:space:]]*$//' | grep -v '^$'
}

# A program that moved a helper out of its run function would hide lines: both have all of theirs in it.
compare() { diff "${@:2}" <(body "parboil/$1/run_explicit.cu" runExplicit) <(body "parboil/$1/run_gmac.cc" runGmac) || true; }

programs=$(cd parboil && for file in */run_gmac.cc; do dirname "$file"; done)
if [[ ${1:-} == --diff ]]; then
  name=${2:-}
  folder=${name//-/_}
  if [[ ! -f parboil/$folder/run_gmac.cc ]]; then
    printf 'there is no benchmark "%s"; there are: %s\n' "$name" "$(echo $programs | tr _ -)" >&2
    exit 2
  fi
  compare "$folder" -U1000 --label "$name with explicit copies" --label "$name with gmac"
  exit
elif [[ $# -gt 0 ]]; then
  printf 'usage: scripts/port_table.sh [--diff NAME]\n' >&2
  exit 2
fi

echo '| benchmark | lines with explicit copies | lines with gmac | removed | added |'
echo '|---|---|---|---|---|'
for folder in $programs; do
  printf '| %s | %d | %d | %d | %d |\n' "${folder//_/-}" \
    "$(body "parboil/$folder/run_explicit.cu" runExplicit | wc -l)" "$(body "parboil/$folder/run_gmac.cc" runGmac | wc -l)" \
    "$(compare "$folder" | grep -c '^<')" "$(compare "$folder" | grep -c '^>')"
done
