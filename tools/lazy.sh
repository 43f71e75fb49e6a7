#!/bin/sh
# lazy.sh NM ARCHIVE PREFIX=LIBRARY...: assembly for x86-64 that defines the functions named PREFIX* that the archive calls.
# Each jumps to the address in its slot, which is the library's function after the first call: see lazy.c.
nm=$1 archive=$2
shift 2
for pair in "$@"; do
    soname=$(objdump -p "${pair#*=}" | awk '$1 == "SONAME" {print $2}')
    [ "$soname" ] || exit 1
    "$nm" -u "$archive" | awk -v prefix="${pair%%=*}" -v soname="$soname" '$1 == "U" && index($2, prefix) == 1 {print $2, soname}'
done | sort -u | awk '
{ name[NR] = $1; soname[NR] = $2 }
function words(symbol, word, i) {
    printf ".section .data.rel,\"aw\"\n.balign 8\n.hidden %s\n.globl %s\n%s:\n", symbol, symbol, symbol
    for (i = 1; i <= NR; i++) printf ".quad %s%d\n", word, i
}
END {
    print ".text"
    for (i = 1; i <= NR; i++) {
        printf ".hidden %s\n.globl %s\n.type %s, @function\n%s: jmp *sn_lazy_slot+%d(%%rip)\n", name[i], name[i], name[i], name[i], 8 * (i - 1)
        printf ".Lfirst%d: push $%d\njmp .Lbind\n", i, i - 1
    }
    # the arguments survive the call; r11 is free between functions
    n = split("rax rdi rsi rdx rcx r8 r9", kept, " ")
    print ".Lbind:"
    for (i = 1; i <= n; i++) printf "push %%%s\n", kept[i]
    print "sub $136, %rsp"
    for (i = 0; i < 8; i++) printf "movups %%xmm%d, %d(%%rsp)\n", i, 16 * i
    printf "mov %d(%%rsp), %%rdi\ncall sn_lazy_bind\nmov %%rax, %%r11\n", 136 + 8 * n
    for (i = 0; i < 8; i++) printf "movups %d(%%rsp), %%xmm%d\n", 16 * i, i
    print "add $136, %rsp"
    for (i = n; i >= 1; i--) printf "pop %%%s\n", kept[i]
    print "add $8, %rsp\njmp *%r11"
    words("sn_lazy_slot", ".Lfirst")
    words("sn_lazy_name", ".Lname")
    words("sn_lazy_library", ".Llibrary")
    print ".section .rodata.str1.1,\"aMS\",@progbits,1"
    for (i = 1; i <= NR; i++) printf ".Lname%d: .asciz \"%s\"\n.Llibrary%d: .asciz \"%s\"\n", i, name[i], i, soname[i]
    print ".section .note.GNU-stack,\"\",@progbits"
}'
