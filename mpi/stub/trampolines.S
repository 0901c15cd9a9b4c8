// SPDX-License-Identifier: Apache-2.0
//
// MPI_x and PMPI_x for every name of MPI: a jump through a slot. A slot first leads to gmacMpiBind,
// which asks bind.cc for the target, keeps it in the slot and goes on there with the arguments as
// they were.
#ifndef __x86_64__
#error "write the trampolines of this processor: they keep every register that carries an argument"
#endif

        .macro trampoline name
        .pushsection .data.rel.local, "aw", @progbits
.Lslot_\name:
        .quad .Lfirst_\name
        .popsection
        .globl \name
        .type \name, @function
        .p2align 4
\name:
        endbr64
        jmp *.Lslot_\name(%rip)
.Lfirst_\name:
        endbr64
        leaq .Lslot_\name(%rip), %r11
        jmp gmacMpiBind
        .size \name, . - \name
        .endm

        .section .data.rel.local, "aw", @progbits
        .p2align 3
        .globl gmacMpiSlots
        .hidden gmacMpiSlots
gmacMpiSlots:

        .text
// %r11: the slot.
        .p2align 4
        .type gmacMpiBind, @function
gmacMpiBind:
        .cfi_startproc
        pushq %rbp
        .cfi_def_cfa_offset 16
        .cfi_offset %rbp, -16
        movq %rsp, %rbp
        .cfi_def_cfa_register %rbp
        subq $192, %rsp
        movq %rax, 0(%rsp)
        movq %rdi, 8(%rsp)
        movq %rsi, 16(%rsp)
        movq %rdx, 24(%rsp)
        movq %rcx, 32(%rsp)
        movq %r8, 40(%rsp)
        movq %r9, 48(%rsp)
        movups %xmm0, 64(%rsp)
        movups %xmm1, 80(%rsp)
        movups %xmm2, 96(%rsp)
        movups %xmm3, 112(%rsp)
        movups %xmm4, 128(%rsp)
        movups %xmm5, 144(%rsp)
        movups %xmm6, 160(%rsp)
        movups %xmm7, 176(%rsp)
        movq %r11, %rdi
        call gmacMpiBindSlot
        movq %rax, %r11
        movq 0(%rsp), %rax
        movq 8(%rsp), %rdi
        movq 16(%rsp), %rsi
        movq 24(%rsp), %rdx
        movq 32(%rsp), %rcx
        movq 40(%rsp), %r8
        movq 48(%rsp), %r9
        movups 64(%rsp), %xmm0
        movups 80(%rsp), %xmm1
        movups 96(%rsp), %xmm2
        movups 112(%rsp), %xmm3
        movups 128(%rsp), %xmm4
        movups 144(%rsp), %xmm5
        movups 160(%rsp), %xmm6
        movups 176(%rsp), %xmm7
        leave
        .cfi_def_cfa %rsp, 8
        jmp *%r11
        .cfi_endproc
        .size gmacMpiBind, . - gmacMpiBind

#define GMAC_MPI_NAME(name) trampoline name; trampoline P##name
#include "mpi/stub/names.inc"
#define GMAC_MPI_FORTRAN(name) trampoline name; trampoline p##name
#include "mpi/stub/fortran_names.inc"

        .section .note.GNU-stack, "", @progbits
