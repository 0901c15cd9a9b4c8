#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Makes a file part of a program:
#   embed.sh header SYMBOL              prints the header that declares it
#   embed.sh object SYMBOL FILE OBJECT [ARRAY]
#                                       an object file that holds it; ARRAY is a name for its first byte
#   embed.sh null SYMBOL OBJECT         an object file that says that there is none
set -euo pipefail

assemble() { # OBJECT; assembly on the standard input
  ${CC:-gcc} -x assembler -c - -o "$1"
}

symbols() { # SYMBOL ADDRESS SIZE
  cat <<EOF
    .section .data.rel.ro,"aw",@progbits
    .balign 8
    .globl $1
    .hidden $1
    .type $1, @object
    .size $1, 8
$1:
    .quad $2
    .globl $1_bytes
    .hidden $1_bytes
    .type $1_bytes, @object
    .size $1_bytes, 8
$1_bytes:
    .quad $3
    .section .note.GNU-stack,"",@progbits
EOF
}

case $1 in
  header)
    cat <<EOF
// SPDX-License-Identifier: Apache-2.0
// Generated: a CUDA module image that is part of this program; NULL where it was built without a CUDA toolkit.
#pragma once
extern "C" {
extern const unsigned char* const $2 __attribute__((visibility("hidden")));
extern const unsigned long $2_bytes __attribute__((visibility("hidden")));
}
EOF
    ;;
  object)
    {
      printf '    .section .rodata\n    .balign 64\n'
      [[ -z ${5:-} ]] || printf '    .globl %s\n    .hidden %s\n    .type %s, @object\n%s:\n' "$5" "$5" "$5" "$5"
      printf '.Limage:\n    .incbin "%s"\n.Lend:\n' "$3"
      symbols "$2" .Limage '.Lend - .Limage'
    } | assemble "$4"
    ;;
  null)
    symbols "$2" 0 0 | assemble "$3"
    ;;
esac
