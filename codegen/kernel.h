/* kernel.h: from a step of the plan to a kernel: its run-time sizes, its cache key and its family. */
#ifndef SN_KERNEL_H
#define SN_KERNEL_H

#include "codegen/emit/family.h"

int64_t sn_kernel_shared(const sn_kernel *k, const sn_target *t);

/* Describes the kernel of a step. False: the module's error. Memory is the module's. */
bool sn_kernel_describe(sn_module *m, const sn_step *s, sn_kernel *k);

/* What computes it, for reports: the kernel family, or another back end. */
const char *sn_kernel_family_name(const sn_kernel *k);

/* Takes another of the family's tiles: another text, another name. */
void sn_kernel_set_tile(sn_kernel *k, int tile);

#endif
