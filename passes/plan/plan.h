/* plan.h: what the passes hand to code generation: for each entry a straight list of kernel calls
 * over buffers.
 *
 * Every operand of a kernel is a *view*: a base buffer with an offset and a stride for each axis
 * (in elements, polynomials of symbolic dims). So transposes, slices, splits and broadcasts cost
 * nothing: kernels read and write through strides. */
#ifndef SN_PLAN_H
#define SN_PLAN_H

#include "passes/passes.h"
#include "passes/view.h"

typedef enum sn_buffer_kind {
    SN_BUF_INPUT,  /* the caller's */
    SN_BUF_OUTPUT, /* the caller's */
    SN_BUF_PARAM,  /* the session's weights, or a prepared tensor made from them */
    SN_BUF_STATE,  /* the session's */
    SN_BUF_TEMP,   /* in the workspace */
} sn_buffer_kind;

typedef struct sn_buffer {
    sn_buffer_kind kind;
    sn_dtype dtype;
    const char *name; /* of an input, output, parameter or state; NULL for temporaries */
    sn_dim count;     /* elements */
    sn_dim most;      /* ... but not more than that; 0: no limit */
    sn_dim rows;      /* ... and none where this is at most `beyond`; 0: always */
    int64_t beyond;
    int first, last; /* steps that write it first and use it last (temporaries) */
    int slot;        /* temporaries: slot of the workspace */
} sn_buffer;

/* When a step runs: in a loop in each turn, the first, later ones; after a loop always, or only if
 * there was a single turn, or several. */
typedef enum sn_turn {
    SN_TURN_EACH,
    SN_TURN_FIRST,
    SN_TURN_LATER,
    SN_TURN_SINGLE,
    SN_TURN_SEVERAL,
} sn_turn;

/* One kernel call. `node` says what to compute (FUSED, or a PRIM with a kernel of its own); operand
 * i of the node is in[i]. While a plan is made, `inner` are the calls of a chunks node
 * (chunks.h). */
typedef struct sn_step {
    sn_node *node;
    int n_in, n_out;
    sn_view *in, *out;
    bool barrier; /* wait for all threads before it: it depends on a step since the last barrier, or
                     overwrites what one uses */
    sn_turn turn;
    sn_dim rows;  /* not 0: of the loop, for SINGLE and SEVERAL; FIRST: only if there are several */
    int64_t most; /* of them in a turn */
    struct sn_step *inner;
    int n_inner;
} sn_step;

/* Steps [first, last) run for `most` of `rows` rows at a time, at least once; meanwhile the dim
 * `rows` stands for how many these are. */
typedef struct sn_row_loop {
    int first, last;
    sn_dim rows;
    int64_t most;
} sn_row_loop;

typedef struct sn_plan {
    sn_module *m;
    const sn_entry *entry;
    sn_step *step;
    int n_step;
    sn_row_loop *loop; /* [n_loop] in order */
    int n_loop;
    sn_buffer *buffer;
    int n_buffer;
    const int64_t *meant; /* sizes for which slots share as much memory as they can; NULL: as they
                             come, while memory is warm */
    int n_slot; /* a slot's size is the maximum over its tenants; offsets are prefix sums, 64-byte
                   aligned */
    sn_binding *input; /* [n_input] in order of appearance */
    int n_input;
} sn_plan;

/* How large a plan's temporaries together may be. */
typedef struct sn_budget {
    int64_t bytes;
    const int64_t *symbol; /* [sn_symbol_count] the sizes that this is meant for */
    sn_passes *passes;     /* for remarks; may be NULL */
    sn_error *err;         /* says how much is needed if it is more */
} sn_budget;

/* NULL: sn_module_error, or the budget's. Requires a module after `fuse`. All memory is the
 * module's arena. budget NULL: none. */
sn_plan *sn_plan_make(sn_module *m, const sn_entry *e, const sn_budget *budget);
/* Steps with their views; buffers by number, so that plans which differ in names only
 * print alike. */
void sn_plan_print(FILE *f, const sn_plan *p);

#endif
