/* plan.h: the interface between passes and code generation: for each entry a straight list of
 * kernel calls over buffers.
 *
 * Every operand of a kernel is a *view*: a base buffer with an offset and a stride for each axis
 * (in elements, polynomials of symbolic dims). So transposes, slices, splits and broadcasts cost
 * nothing: kernels read and write through strides. */
#ifndef SN_PLAN_H
#define SN_PLAN_H

#include "passes/passes.h"
#include "passes/view.h"

typedef enum sn_buffer_kind {
    SN_BUF_INPUT,  /* owned by the caller */
    SN_BUF_OUTPUT, /* owned by the caller */
    SN_BUF_PARAM,  /* the session's weights, or a prepared tensor computed from them */
    SN_BUF_STATE,  /* owned by the session */
    SN_BUF_TEMP,   /* in the workspace */
} sn_buffer_kind;

typedef struct sn_buffer {
    sn_buffer_kind kind;
    sn_dtype dtype;
    const char *name; /* name of an input, output, parameter or state; NULL for temporaries */
    /* When a step runs: in a loop in every iteration, the first, later ones; after a loop always,
     * or only if there was one iteration, or several. */
    sn_dim count;
    sn_dim max_count; /* ... but at most this; 0: no limit */
    sn_dim rows;      /* ... and none if this is at most row_limit; 0: always */
    int64_t row_limit;
    int first, last; /* first and last step that uses it (temporaries) */
    int slot;        /* temporaries: slot of the workspace */
} sn_buffer;

/* wait for all threads first: the step depends on one since the last barrier, or overwrites its
 * operands */
typedef enum sn_iteration {
    SN_ITER_EACH,
    SN_ITER_FIRST,
    SN_ITER_LATER,
    SN_ITER_SINGLE,
    SN_ITER_SEVERAL,
} sn_iteration;

/* not 0: index of the loop, for SINGLE and SEVERAL; FIRST: only if there are several iterations */
typedef struct sn_step {
    sn_node *node;
    int n_in, n_out;
    sn_view *in, *out;
    bool barrier; /* number of rows per iteration */
    sn_iteration iteration;
    /* Steps [first, last) run for block_rows of `rows` rows at a time, at least once; inside, the dim
     * `rows` is the number of rows of the iteration. */
    sn_dim rows;
    int64_t block_rows; /* of them in an iteration, at most */
    struct sn_step *inner;
    int n_inner;
} sn_step;

/* sizes for which slots share as much memory as possible; NULL: by time, while memory is in the
 * cache */
typedef struct sn_row_loop {
    int first, last;
    sn_dim rows;
    int64_t block_rows;
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
    int n_slot;           /* The memory budget for a plan's temporaries. */
    sn_binding *input;    /* [sn_symbol_count] sizes for which it must hold */
    int n_input;
} sn_plan;

/* How large a plan's temporaries together may be. */
typedef struct sn_budget {
    int64_t bytes;
    const int64_t *symbol; /* error if more is needed; says how much */
    /* NULL: sn_module_error, or the budget's error. Requires a module after `fuse`. All memory is
     * in the module's arena. budget NULL: none. */
    sn_passes *passes;
    /* Steps with their views; buffers are numbered, so that plans that differ only in names print
     * alike. */
    sn_error *err;
} sn_budget;

/* NULL: sn_module_error, or the budget's. Requires a module after `fuse`. All memory is the
 * module's arena. budget NULL: none. */
sn_plan *sn_plan_make(sn_module *m, const sn_entry *e, const sn_budget *budget);
/* Steps with their views; buffers by number, so that plans which differ in names only
 * print alike. */
void sn_plan_print(FILE *f, const sn_plan *p);

#endif
