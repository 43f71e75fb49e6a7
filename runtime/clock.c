/* clock.c: CLOCK_MONOTONIC as seconds. */
#include "runtime/clock.h"

#include <time.h>

double sn_clock(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}
