/* calls.h: the kernel calls of compiled entries as data, for `explain`, profiles and reports. */
#ifndef SN_PROGRAM_CALLS_H
#define SN_PROGRAM_CALLS_H

#include "codegen/program/program.h"
#include "passes/plan/plan.h"

/* Where in the model step i computes, by the parameters that it reads: "h.0.attn.c_attn",
 * "layers.3.attn.q_proj+k_proj+v_proj"; attention by the layer of the calls before it; "" if
 * nothing tells. Arena memory. */
const char *sn_call_name(const sn_program *p, const sn_compiled_entry *c, int i);

/* "h.11.ln_1" and "h.12.ln_1" give "h.*.ln_1": numbers that differ become "*", for names that
 * are equal but for numbers and "*"; of others the first. malloc; NULL: out of memory. */
char *sn_call_common_name(const char *a, const char *b);
/* Are two names equal but for numbers and "*"? */
bool sn_call_similar_names(const char *a, const char *b);

/* The cost of a call as a function of the symbolic dims. */
typedef struct sn_call_operand {
    sn_dim elements;         /* that the call reads or writes, but at most */
    const sn_buffer *buffer; /* as many as this has */
    size_t element_bytes;
    bool result;
} sn_call_operand;

typedef struct sn_call_formula {
    sn_dim flops;      /* of one run */
    sn_dim iterations; /* how often it runs: in the body of a scan, for each element and part */
    sn_dim segments;   /* and for each segment of a loop of this length; 0: none */
    double visible;    /* of these, the share whose pairs the mask of an attention shows */
    bool product;      /* they are multiply-adds of products */
    sn_when when;
    bool only_several; /* in the first iteration, unless it is the only one */
    sn_dim rows;       /* of the loop that `when` is about, in an iteration at most */
    int64_t block_rows;
    sn_call_operand *operand;
    int n_operand;
} sn_call_formula;

/* The formula of step i. Arena memory. */
sn_call_formula sn_call_formula_of(const sn_program *p, const sn_entry_code *u, int i);
/* sn_program_calls with the inputs that masks read: [n_in] with data, and values of the symbolic dims. */
int sn_program_calls_on(const sn_program *p, const char *entry, const char *sizes,
                        const sn_arg_binding *in, int n_in, const sn_kernel_call **list,
                        sn_error *err);
/* Fills flops, bytes and result_bytes at these values of the symbolic dims. */
void sn_call_cost(const sn_program *p, const sn_call_formula *q, const int64_t *symbol,
                  sn_kernel_call *call);

#endif
