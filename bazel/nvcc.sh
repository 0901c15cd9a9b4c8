#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# nvcc.sh NVCC OUTPUT ARGUMENTS...: runs nvcc with a temporary directory of its own. Two nvcc in two sandboxes have the
# same process number, after which nvcc names its files, and would overwrite each other's in a shared one.
set -euo pipefail
nvcc=$1
output=$2
shift 2
scratch=$(mktemp -d "$(dirname "$output")/nvcc.XXXXXX")
trap 'rm -rf "$scratch"' EXIT
TMPDIR=$(realpath "$scratch") "$nvcc" "$@" -o "$output"
