/* floor.c: the bits of CPUID leaves (or of the auxiliary vector) that indicate a target's
 * features. Sources: Intel SDM volume 2, CPUID; x86-64 psABI, table 3.1; Linux
 * Documentation/arch/arm64/elf_hwcaps.rst and arch/riscv/include/uapi/asm/hwcap.h. */
#include "codegen/aot/aot.h"

#include <string.h>

enum { EAX, EBX, ECX, EDX };
enum { HWCAP = 16, HWCAP2 = 26 };
#define EXTENDED 0x80000001u
#define ONE(n) (UINT64_C(1) << (n))

/* with: the target feature that requires the bit; NULL: every x86-64 CPU above the first level.
 * LLVM's CPU names imply some features that target.c does not list. Code for such CPUs may use them,
 * so they are tested together with a listed feature of the same CPUs. */
static const struct {
    sn_arch arch;
    const char *with;
    uint32_t leaf, sub;
    int reg;
    uint64_t mask;
} bits[] = {
    {SN_ARCH_X86_64, "sse3", 1, 0, ECX, ONE(0)},
    {SN_ARCH_X86_64, "ssse3", 1, 0, ECX, ONE(9)},
    {SN_ARCH_X86_64, "sse4.1", 1, 0, ECX, ONE(19)},
    {SN_ARCH_X86_64, "sse4.2", 1, 0, ECX, ONE(20) | ONE(13)}, /* CMPXCHG16B */
    {SN_ARCH_X86_64, "popcnt", 1, 0, ECX, ONE(23)},
    {SN_ARCH_X86_64, "popcnt", EXTENDED, 0, ECX, ONE(0)},  /* LAHF */
    {SN_ARCH_X86_64, "avx", 1, 0, ECX, ONE(28) | ONE(27)}, /* OSXSAVE */
    {SN_ARCH_X86_64, "f16c", 1, 0, ECX, ONE(29)},
    {SN_ARCH_X86_64, "fma", 1, 0, ECX, ONE(12)},
    {SN_ARCH_X86_64, "movbe", 1, 0, ECX, ONE(22)},
    {SN_ARCH_X86_64, "lzcnt", EXTENDED, 0, ECX, ONE(5)},
    {SN_ARCH_X86_64, "avx2", 7, 0, EBX, ONE(5)},
    {SN_ARCH_X86_64, "bmi", 7, 0, EBX, ONE(3)},
    {SN_ARCH_X86_64, "bmi2", 7, 0, EBX, ONE(8)},
    {SN_ARCH_X86_64, "avxvnni", 7, 1, EAX, ONE(4)},
    {SN_ARCH_X86_64, "avx512f", 7, 0, EBX, ONE(16)},
    {SN_ARCH_X86_64, "avx512dq", 7, 0, EBX, ONE(17)},
    {SN_ARCH_X86_64, "avx512cd", 7, 0, EBX, ONE(28)},
    {SN_ARCH_X86_64, "avx512bw", 7, 0, EBX, ONE(30)},
    {SN_ARCH_X86_64, "avx512vl", 7, 0, EBX, ONE(31)},
    {SN_ARCH_X86_64, "avx512vbmi", 7, 0, ECX, ONE(1)},
    {SN_ARCH_X86_64, "avx512vbmi2", 7, 0, ECX, ONE(6)},
    {SN_ARCH_X86_64, "avx512vbmi2", 7, 0, EBX, ONE(21)},                    /* IFMA */
    {SN_ARCH_X86_64, "avx512vbmi2", 7, 0, ECX, ONE(8) | ONE(12) | ONE(14)}, /* GFNI, BITALG,
                                                                               VPOPCNTDQ */
    {SN_ARCH_X86_64, "avx512vnni", 7, 0, ECX, ONE(11)},
    {SN_ARCH_X86_64, "avx512bf16", 7, 1, EAX, ONE(5)},
    {SN_ARCH_X86_64, "avx512fp16", 7, 0, EDX, ONE(23)},
    {SN_ARCH_AARCH64, "neon", HWCAP, 0, 0, ONE(0) | ONE(1)},      /* FP, ASIMD */
    {SN_ARCH_AARCH64, "fullfp16", HWCAP, 0, 0, ONE(9) | ONE(10)}, /* FPHP, ASIMDHP */
    {SN_ARCH_AARCH64, "dotprod", HWCAP, 0, 0,
     ONE(20) | ONE(8) | ONE(12) | ONE(15)}, /* LSE, RDM, RCPC */
    {SN_ARCH_AARCH64, "sve", HWCAP, 0, 0, ONE(22)},
    {SN_ARCH_AARCH64, "bf16", HWCAP2, 0, 0, ONE(14)},
    {SN_ARCH_AARCH64, "i8mm", HWCAP2, 0, 0, ONE(13)},
    {SN_ARCH_RISCV64, "v", HWCAP, 0, 0, ONE('v' - 'a')},
};

static const struct {
    const char *with;
    uint64_t xcr0;
} states[] = {{"avx", 0x6}, {"avx512f", 0xe6}};

int sn_target_floor(const sn_target *t, sn_cpu_test *test, uint64_t *xcr0) {
    int n = 0;
    *xcr0 = 0;
    for (size_t i = 0; i < sizeof bits / sizeof *bits; i++) {
        if (bits[i].arch != t->arch || !sn_target_has(t, bits[i].with)) continue;
        int k = 0;
        while (k < n && (test[k].leaf != bits[i].leaf || test[k].sub != bits[i].sub ||
                         test[k].reg != bits[i].reg))
            k++;
        if (k == n) test[n++] = (sn_cpu_test){bits[i].leaf, bits[i].sub, bits[i].reg, 0};
        test[k].mask |= bits[i].mask;
    }
    for (size_t i = 0; i < sizeof states / sizeof *states; i++)
        if (t->arch == SN_ARCH_X86_64 && sn_target_has(t, states[i].with)) *xcr0 |= states[i].xcr0;
    return n;
}

const char *sn_target_needs(const sn_target *t, char *text, size_t size) {
    size_t n = 0;
    const char *last = "";
    snprintf(text, size, "every CPU of the architecture");
    for (size_t i = 0; i < sizeof bits / sizeof *bits && n < size; i++) {
        if (bits[i].arch != t->arch || !sn_target_has(t, bits[i].with)) continue;
        if (strcmp(last, bits[i].with))
            n += (size_t)snprintf(text + n, size - n, n ? " %s" : "%s", bits[i].with);
        last = bits[i].with;
    }
    if (t->sve_bytes && n < size) snprintf(text + n, size - n, " sve=%d", 8 * t->sve_bytes);
    return text;
}

const char *sn_target_base(sn_module *m, const sn_target *t) {
    static const char *const base[] = {[SN_ARCH_X86_64] = "x86-64",
                                       [SN_ARCH_AARCH64] = "aarch64",
                                       [SN_ARCH_RISCV64] = "riscv64",
                                       [SN_ARCH_WASM32] = "wasm32"};
    return sn_arena_printf(m, "%s,os=%s", base[t->arch], sn_target_system(t)->name);
}
