/* same.h: what must be equal on all ranks that run one program together, for sn_comm_check_same. */
#ifndef SN_TOOLS_SAME_H
#define SN_TOOLS_SAME_H

#include "codegen/program/program.h"
#include "driver/open.h"
#include "runtime/comm/comm.h"

enum { SAME_MACHINE = 2 };
/* The program sinter and what the CPU computes with (target: as --target). */
bool same_machine(const char *target, sn_comm_same out[SAME_MACHINE], sn_error *err);
/* The kernels of these entries (NULL-terminated; all: NULL). Tuning, or another cache of choices, may
 * have led to other ones. */
bool same_kernels(const sn_program *p, const char *const *entries, sn_comm_same *out,
                  sn_error *err);
/* The model: names, types and shapes of its weights, and samples of the values of each. */
sn_comm_same same_model(const open_model *m);

#endif
