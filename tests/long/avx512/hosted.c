/* hosted.c: the functions of bare.h by those of C. */
#include "bare.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void put(const char *text) {
    fputs(text, stdout);
}
void put_number(long v) {
    printf("%ld", v);
}
void *take(size_t bytes) {
    size_t size = (bytes + 4095) & ~(size_t)4095;
    void *p = aligned_alloc(4096, size);
    if (!p) abort();
    return memset(p, 0, size);
}

int main(void) {
    printf("exit %d\n", run());
    return 0;
}
