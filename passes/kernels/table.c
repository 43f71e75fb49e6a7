/* table.c: the table of kernels, and what follows from a row. */
#include "passes/kernels/table.h"

const sn_kernel_traits sn_kernels[SN_KERNEL_COUNT] = {
    [SN_KERNEL_NONE] = {.name = "none"},
#define KERNEL(id, ...) [SN_KERNEL_##id] = {.name = #id, __VA_ARGS__},
#include "passes/kernels/kernels.def"
#undef KERNEL
};

bool sn_kernel_can_hold(const sn_kernel_traits *k, sn_holds what) {
    return k->holds[what] != SN_LEVEL_NONE;
}

bool sn_kernel_holds(const sn_kernel_traits *k, sn_holds what, int level) {
    return sn_kernel_can_hold(k, what) && sn_level_reaches(level, k->holds[what]);
}
