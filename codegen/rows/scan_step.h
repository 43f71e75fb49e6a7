/* scan_step.h: one element of a fused_scan for one vector of its lane axis: the body's values, what is
 * kept between elements, and results. Written by scan_step.c, used by fused_scan.c. */
#ifndef SN_SCAN_STEP_H
#define SN_SCAN_STEP_H

#include "codegen/emit/elem.h"
#include "codegen/rows/body.h"
#include "passes/fused_scan.h"

enum { CHUNK = 32 }; /* elements of the sequence */

/* What an element computes. */
typedef enum phase {
    BEFORE,  /* the sequence: what does not depend on the element */
    FORWARD, /* the next values of carries that are recomputed */
    RECORD,  /* the same, and keeps what WALK reads */
    WALK     /* the other carries, and outputs */
} phase;

typedef enum place { OPERAND, RESULT, STACK, SCRATCH, CHECKPOINT } place;

typedef struct value {
    sn_node *n;
    bool lane, inner, moves; /* changes along the axis; along the sequence */
    bool reduces;            /* the inner axis */
    bool crosses, mixed;     /* it reduces the lanes; it, or what it is made of, does */
    bool forward, walk;      /* needed for carries that are recomputed; for the rest */
    bool recorded;           /* RECORD keeps it for WALK */
    int stage;               /* reductions that must be finished before */
    bool keeps;              /* a carry, or what does not move and is read by what does */
    em_val kept;             /* on the stack, for a chunk */
    /* in bytes: in the group's part of scratch, in a checkpoint, in the record */
    int64_t offset, checkpoint, record;
} value;

typedef struct gen {
    em *e;
    const sn_kernel *k;
    sn_lanes l;
    value *value;                    /* by place */
    sn_region_code code;             /* the same places; copies: elements of the group */
    int n_value, lanes, group, last; /* last: stage of the last loop over the inner axis */
    int n_in, n_out, n_own;          /* operands; results; carries that are results */
    /* of a group in scratch; of a checkpoint; of the record; of sums */
    int64_t bytes, checkpoint_bytes, record_bytes, sum_bytes;
    int64_t sum[SN_MAX_RESULTS]; /* by result, if it is summed: where its vectors are */
    em_val *base, *at; /* of operands and results: of this block; of this group and element */
    em_val store, checkpoint; /* this group's parts of scratch */
    em_val record, sums;      /* parts of scratch */
    em_val T, chunk;          /* the sequence's length; the chunk's first element */
    em_val local;             /* the element's number in the chunk */
    em_val mask;              /* NULL: all lanes */
    em_val inner;             /* index of the group's first element of the inner axis */
    phase phase;
} gen;

value *sn_step_value(const gen *g, const sn_node *n);
const sn_view *sn_step_view(const gen *g, int i);
/* The result of the body that result i of the kernel is. */
int sn_step_out(const gen *g, int i);
/* Whether operand or result i has an axis of elements; whether it is a sum of blocks. */
bool sn_step_is_sequence(const gen *g, int i);
bool sn_step_is_summed(const gen *g, int i);
bool sn_step_has_inner(gen *g, const sn_node *n);
/* The stride of operand or result i along a class; 0: it has no such axis. */
sn_dim sn_step_stride(gen *g, int i, int class);
int sn_step_operand_stage(const gen *g, const sn_node *n);
bool sn_step_is_fixed_scalar(const value *x);
int64_t sn_step_elements(const gen *g, const value *x); /* of a vector of it */
/* Whether this phase computes it. */
bool sn_step_computes(const gen *g, const value *x);

void sn_step_begin(gen *g);                           /* before all of these; g stays where it is */
em_val sn_step_emit(gen *g, const sn_node *n, int u); /* the value at element u of the group */
/* All values; all but those that are computed once for all groups. */
void sn_step_forget_all(gen *g);
void sn_step_forget_group(gen *g);
/* Moves a carry, or something that does not move. */
void sn_step_move(gen *g, const value *x, place from, place to);
void sn_step_stages(gen *g); /* BEFORE: puts what does not move into scratch */
void sn_step_run(gen *g);    /* an element: the body of g->phase, and what it stores */

/* A loop over the inner axis by groups; no loop if there is one group. */
em_loop sn_step_begin_inner(gen *g);
void sn_step_end_inner(gen *g, em_loop *l);

#endif
