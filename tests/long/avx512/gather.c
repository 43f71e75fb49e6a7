/* gather.c: gathers whose index is in zmm16 .. zmm31. Bochs 2.7 takes them for invalid, because it reads the
 * fifth bit of the index register as one of vvvv. boot.S calls this for every invalid instruction. */
#include "bare.h"

#include <stdint.h>

enum { OPMASKS = 1088, ZMM_HIGH = 1152, ZMM_16 = 1664, YMM_HIGH = 576, XMM = 160, IN_USE = 512 };

/* General registers in the order of boot.S: r15 .. r8, rdi, rsi, rbp, none, rbx, rdx, rcx, rax. */
typedef struct frame {
    uint64_t reg[16], rip;
} frame;

/* Byte `at` of vector register n in an XSAVE area. */
static uint8_t *vector(uint8_t *area, int n, int at) {
    if (n >= 16) return area + ZMM_16 + 64 * (n - 16) + at;
    if (at < 16) return area + XMM + 16 * n + at;
    return at < 32 ? area + YMM_HIGH + 16 * n + at - 16 : area + ZMM_HIGH + 32 * n + at - 32;
}

static void refuse(const frame *f) {
    put("invalid instruction at "), put_number((long)f->rip), put("\n");
    for (;;) __asm__ volatile("cli; hlt");
}

void bare_gather(frame *f, uint8_t *area);

void bare_gather(frame *f, uint8_t *area) {
    const uint8_t *p = (const uint8_t *)f->rip;
    const int op = p[4], mod = p[5] >> 6, sib = p[6];
    if (p[0] != 0x62 || (p[1] & 15) != 2 || op < 0x90 || op > 0x93 || (p[5] & 7) != 4) refuse(f);
    const int index = (sib >> 3 & 7) | (p[1] & 0x40 ? 0 : 8) | (p[3] & 8 ? 0 : 16);
    const int to = (p[5] >> 3 & 7) | (p[1] & 0x80 ? 0 : 8) | (p[1] & 0x10 ? 0 : 16);
    const int base = (sib & 7) | (p[1] & 0x20 ? 0 : 8);
    const int size = p[2] & 0x80 ? 8 : 4, of_index = op & 1 ? 8 : 4;
    const int n = (16 << (p[3] >> 5 & 3)) / (size > of_index ? size : of_index);
    if (base == 4 || (mod == 0 && (sib & 7) == 5)) refuse(f); /* rsp; no base */
    int64_t by = mod == 1 ? (int8_t)p[7] * size : mod == 2 ? *(const int32_t *)(p + 7) : 0;
    uint64_t *mask = (uint64_t *)(area + OPMASKS) + (p[3] & 7);
    for (int i = 0; i < n; i++) {
        if (!(*mask >> i & 1)) continue;
        uint64_t at = 0;
        for (int b = 0; b < of_index; b++)
            at |= (uint64_t)*vector(area, index, i * of_index + b) << 8 * b;
        if (of_index == 4) at = (uint64_t)(int32_t)at;
        const uint8_t *from =
            (const uint8_t *)(f->reg[15 - base] + (uint64_t)by + (at << (sib >> 6)));
        for (int b = 0; b < size; b++) *vector(area, to, i * size + b) = from[b];
    }
    for (int b = n * size; b < 64; b++) *vector(area, to, b) = 0;
    *mask = 0;
    *(uint64_t *)(area + IN_USE) |= 0xe6;
    f->rip += mod == 1 ? 8 : mod == 2 ? 11 : 7;
}
