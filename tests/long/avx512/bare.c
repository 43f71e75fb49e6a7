/* bare.c: the functions of bare.h, and what an artefact needs of a C library, without an operating
 * system: text goes to the first serial port. The weights are in the object, so no file is opened. */
#include "bare.h"

#include <stdint.h>
#include <sys/types.h>

enum { SERIAL = 0x3f8, POWER = 0x8900 };

void *memcpy(void *restrict to, const void *restrict from, size_t n);
void *memset(void *to, int c, size_t n);
void *memmove(void *to, const void *from, size_t n);

void *memcpy(void *restrict to, const void *restrict from, size_t n) {
    void *first = to;
    __asm__ volatile("rep movsb" : "+D"(to), "+S"(from), "+c"(n)::"memory");
    return first;
}
void *memset(void *to, int c, size_t n) {
    void *first = to;
    __asm__ volatile("rep stosb" : "+D"(to), "+c"(n) : "a"(c) : "memory");
    return first;
}
void *memmove(void *to, const void *from, size_t n) {
    if ((uintptr_t)to - (uintptr_t)from >= n) return memcpy(to, from, n);
    for (char *a = to; n--;) a[n] = ((const char *)from)[n];
    return to;
}

/* ---- files: none ---- */

int open(const char *path, int flags, ...);
int close(int file);
off_t lseek(int file, off_t at, int from);
void *mmap(void *at, size_t n, int protection, int flags, int file, off_t from);
int munmap(void *at, size_t n);
int madvise(void *at, size_t n, int advice);

int open(const char *path, int flags, ...) {
    return (void)path, (void)flags, -1;
}
int close(int file) {
    return (void)file, -1;
}
off_t lseek(int file, off_t at, int from) {
    return (void)file, (void)at, (void)from, -1;
}
void *mmap(void *at, size_t n, int protection, int flags, int file, off_t from) {
    return (void)at, (void)n, (void)protection, (void)flags, (void)file, (void)from, (void *)-1;
}
int munmap(void *at, size_t n) {
    return (void)at, (void)n, -1;
}
int madvise(void *at, size_t n, int advice) {
    return (void)at, (void)n, (void)advice, 0;
}

/* ---- text and memory ---- */

static void out(uint16_t port, uint8_t v) {
    __asm__ volatile("outb %0, %1" ::"a"(v), "Nd"(port));
}

static uint8_t in(uint16_t port) {
    uint8_t v;
    __asm__ volatile("inb %1, %0" : "=a"(v) : "Nd"(port));
    return v;
}

void put(const char *text) {
    for (; *text; text++) {
        while (!(in(SERIAL + 5) & 0x20)) {
        }
        out(SERIAL, (uint8_t)*text);
    }
}

void put_number(long v) {
    char text[24], *at = text + sizeof text;
    unsigned long rest = v < 0 ? -(unsigned long)v : (unsigned long)v;
    *--at = 0;
    do *--at = (char)('0' + rest % 10);
    while (rest /= 10);
    if (v < 0) *--at = '-';
    put(at);
}

extern char bare_end[]; /* of the program, by bare.ld */

void *take(size_t bytes) {
    static uintptr_t end;
    if (!end) end = ((uintptr_t)bare_end + 4095) & ~(uintptr_t)4095;
    void *p = (void *)end;
    end += (bytes + 4095) & ~(size_t)4095;
    return memset(p, 0, bytes);
}

/* ---- the beginning and the end ---- */

void bare_main(void);

void bare_main(void) {
    out(SERIAL + 3, 3); /* 8 bits */
    int code = run();
    put("exit "), put_number(code), put("\n");
    while (!(in(SERIAL + 5) & 0x40)) {
    } /* until all is sent */
    for (const char *s = "Shutdown"; *s; s++) out(POWER, (uint8_t)*s);
    for (;;) __asm__ volatile("hlt");
}
