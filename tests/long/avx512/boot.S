/* boot.S: from a multiboot loader to main() in long mode, with AVX-512 enabled: no operating system is in between. */
    .section .multiboot, "a"
    .align 4
    .long 0x1BADB002, 0, -0x1BADB002
    .code32
    .text
    .globl _start
_start:
    mov $stack_top, %esp
    /* identity pages of 2 MiB for 4 GiB */
    mov $pml4, %edi
    mov $pdpt + 3, %eax
    mov %eax, (%edi)
    mov $pdpt, %edi
    mov $pd + 3, %eax
    mov $4, %ecx
1:  mov %eax, (%edi)
    add $0x1000, %eax
    add $8, %edi
    loop 1b
    mov $pd, %edi
    mov $0x83, %eax
    mov $2048, %ecx
2:  mov %eax, (%edi)
    add $0x200000, %eax
    add $8, %edi
    loop 2b
    mov $pml4, %eax
    mov %eax, %cr3
    mov %cr4, %eax
    or $(1 << 5 | 1 << 9 | 1 << 10 | 1 << 18), %eax /* PAE, OSFXSR, OSXMMEXCPT, OSXSAVE */
    mov %eax, %cr4
    mov $0xC0000080, %ecx
    rdmsr
    or $(1 << 8), %eax
    wrmsr
    mov %cr0, %eax
    and $~(1 << 2 | 1 << 3), %eax
    or $(1 << 31 | 1 << 1 | 1), %eax
    mov %eax, %cr0
    lgdt gdt_ptr
    ljmp $8, $long_mode
    .code64
long_mode:
    mov $16, %eax
    mov %eax, %ds
    mov %eax, %es
    mov %eax, %ss
    xor %ecx, %ecx
    xgetbv
    or $0xe7, %eax
    xsetbv
    /* gate 6, invalid opcode: gather.c computes what the emulator refuses */
    lea invalid_opcode(%rip), %rax
    mov %ax, idt + 6 * 16
    movw $8, idt + 6 * 16 + 2
    movw $0x8e01, idt + 6 * 16 + 4 /* on a stack of its own: code uses what is below its stack pointer */
    shr $16, %rax
    mov %ax, idt + 6 * 16 + 6
    lidt idt_ptr
    movq $gather_stack_top, task + 36
    mov $task, %eax
    mov %ax, gdt + 24 + 2
    shr $16, %eax
    mov %al, gdt + 24 + 4
    mov %ah, gdt + 24 + 7
    mov $24, %eax
    ltr %ax
    call bare_main
3:  hlt
    jmp 3b
invalid_opcode:
    push %rax; push %rcx; push %rdx; push %rbx; push $0; push %rbp; push %rsi; push %rdi
    push %r8; push %r9; push %r10; push %r11; push %r12; push %r13; push %r14; push %r15
    mov $0xe7, %eax
    xor %edx, %edx
    xsave64 state
    mov %rsp, %rdi
    mov $state, %esi
    mov %rsp, %rbx
    and $-16, %rsp
    cld
    call bare_gather
    mov %rbx, %rsp
    mov $0xe7, %eax
    xor %edx, %edx
    xrstor64 state
    pop %r15; pop %r14; pop %r13; pop %r12; pop %r11; pop %r10; pop %r9; pop %r8
    pop %rdi; pop %rsi; pop %rbp; add $8, %rsp; pop %rbx; pop %rdx; pop %rcx; pop %rax
    iretq
    .data
    .align 8
idt_ptr: .word 16 * 16 - 1
    .quad idt
gdt: .quad 0, 0x00af9b000000ffff, 0x00cf93000000ffff, 0x0000890000000067, 0
gdt_ptr: .word . - gdt - 1
    .long gdt
    .bss
    .align 4096
idt: .skip 16 * 16
task: .skip 104
    .align 4096
state: .skip 4096
pml4: .skip 4096
pdpt: .skip 4096
pd: .skip 4 * 4096
    .skip 1 << 20
stack_top:
    .skip 1 << 14
gather_stack_top:
    .section .note.GNU-stack, "", @progbits
