/* calls.h: the kernel calls of compiled entries as data, for `explain`, profiles and reports. */
#ifndef SN_PROGRAM_CALLS_H
#define SN_PROGRAM_CALLS_H

#include "codegen/program/program.h"

/* Where in the model step i computes, by the parameters that it reads: "h.0.attn.c_attn",
 * "layers.3.attn.q_proj+k_proj+v_proj"; attention by the layer of the calls before it; "" if
 * nothing tells. Arena memory. */
const char *sn_call_name(const sn_program *p, const sn_compiled_entry *c, int i);

/* Fills the call's operations and notes from the step. Arena memory. */
void sn_call_describe(const sn_program *p, const sn_kernel *k, sn_kernel_call *call);

#endif
