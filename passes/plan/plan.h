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

/* Bytes between the slots of the workspace: tensors whose size is a multiple of a cache's way do not all
 * begin in the same set. No power of two, so that many of them do not meet either. */
enum { SN_SLOT_GAP = 320 };

typedef enum sn_buffer_kind {
    SN_BUF_INPUT,  /* owned by the caller */
    SN_BUF_OUTPUT, /* owned by the caller */
    SN_BUF_PARAM,  /* the session's weights, or a prepared tensor computed from them */
    SN_BUF_STATE,  /* owned by the session */
    SN_BUF_TEMP,   /* in the workspace */
    SN_BUF_LOCAL,  /* in the workspace, one for each thread: between the kernels of a scan's body */
    SN_BUF_WINDOW, /* of another buffer, in a scan: what the current iteration reads or writes */
} sn_buffer_kind;

typedef struct sn_buffer {
    sn_buffer_kind kind;
    sn_dtype dtype;
    const char *name; /* name of an input, output, parameter or state; NULL for temporaries */
    /* elements */
    sn_dim count;
    sn_dim max_count; /* ... but at most this; 0: no limit */
    sn_dim rows;      /* ... and none if this is at most row_limit; 0: always */
    int64_t row_limit;
    sn_dim segments; /* as often as a loop of this length has segments (scan.h); 0: once */
    int first, last; /* first and last step that uses it (temporaries) */
    int slot;        /* temporaries: slot of the workspace; locals: of a thread's locals */
} sn_buffer;

/* When a step runs: in a loop in every iteration, the first, later ones; after a loop always, or
 * only if there was one iteration, or several. */
typedef enum sn_iteration {
    SN_ITER_EACH,
    SN_ITER_FIRST,
    SN_ITER_LATER,
    SN_ITER_SINGLE,
    SN_ITER_SEVERAL,
} sn_iteration;

/* What a call waits for. An all_gather that ends an entry in the memory of a state may be left to the
 * next run, in which a call before the first use of the state waits, if one was left. */
typedef enum sn_wait {
    SN_WAIT_NOT,
    SN_WAIT,       /* the step with the same node, which has started it */
    SN_WAIT_LEAVE, /* the same, but it may be left to the next run */
    SN_WAIT_LEFT,  /* what an earlier run has left */
} sn_wait;

struct sn_scan_loop;

/* One kernel call. `node` defines the computation (FUSED, or a PRIM with a separate kernel);
 * operand i of the node is in[i]. During planning, `inner` are the calls of a row_blocked
 * node (row_blocks.h), or with `scan` of a scan (scan.h). */
typedef struct sn_step {
    sn_node *node;
    int n_in, n_out;
    sn_view *in, *out;
    /* wait for all threads first: the step depends on one since the last barrier, or overwrites its
     * operands */
    bool barrier;
    sn_wait wait; /* of a collective */
    sn_iteration iteration;
    /* not 0: rows of the loop, for SINGLE and SEVERAL; for FIRST: only if there are several
     * iterations */
    sn_dim rows;
    int64_t block_rows; /* maximum number of rows per iteration */
    struct sn_step *inner;
    int n_inner;
    const struct sn_scan_loop *scan;
    const char *why; /* of a copy: what it is for, and what avoids it; NULL: it is none */
} sn_step;

/* Steps [first, last) run for block_rows of `rows` rows at a time, at least once; inside, the dim
 * `rows` is the number of rows of the iteration. */
typedef struct sn_row_loop {
    int first, last;
    sn_dim rows;
    int64_t block_rows;
} sn_row_loop;

/* A window of a scan: begins at `base` and moves by `step` elements from one iteration to the next,
 * by tile_step[k] from one part of independent axis k to the next. */
enum { SN_SCAN_TILES = 4 };
typedef struct sn_window {
    int buffer;  /* of kind SN_BUF_WINDOW */
    int operand; /* of the scan; from n_in on its results */
    sn_dim step, tile_step[SN_SCAN_TILES];
    bool per_segment; /* moves from one segment to the next, and always forward */
} sn_window;

/* A carry: two locals, and windows of them that change places after each iteration. */
typedef struct sn_scan_carry {
    int now, next;
    int local[2];
} sn_scan_carry;

/* A window `at` that is set to an element of what window `home` sees the first of. */
typedef struct sn_scan_place {
    int home, at;
    sn_dim step;
} sn_scan_place;

/* Carries of the scan in the other direction. The first of each segment is in memory (scan_recompute.c);
 * before the loop's first element of a segment, the others are computed again: steps [begin, restore_end)
 * copy the first of the segment to `now`; for each element, [restore_end, store_end) store `now`, and
 * [store_end, step_end) compute `next` of it. Steps from `step_end` on are the element's. */
typedef struct sn_recompute {
    int n, restore_end, store_end, step_end;
    sn_scan_carry *carry; /* [n] */
    sn_scan_place *first; /* [n] of what is in memory, by segment */
    sn_scan_place *past;  /* [n] of a segment's carries; home: a local */
    int n_sequence;
    sn_scan_place *sequence; /* [n_sequence] what the steps read, by element */
} sn_recompute;

/* Steps [first, last), a loop over `length` elements for each part of the independent axes: threads
 * share the parts, and a thread runs the whole loop without waiting for others. Steps before `begin`
 * run once a part before the iterations, those from `end` on after them. */
typedef struct sn_scan_loop {
    int first, begin, end, last;
    int hoisted_end; /* steps [begin, hoisted_end) run for the first element of each segment only */
    sn_recompute *recompute; /* NULL: nothing is computed again */
    int parent;              /* the loop that it is nested in: no parts of its own; -1: none */
    bool reverse;
    sn_dim length;
    int n_tile;
    sn_dim parts[SN_SCAN_TILES];
    int n_window, n_carry;
    const sn_window *window;
    const sn_scan_carry *carry;
    int n_in, n_out;
    const sn_view *in, *out; /* of the scan */
} sn_scan_loop;

typedef struct sn_plan {
    sn_module *m;
    const sn_entry *entry;
    sn_step *step;
    int n_step;
    sn_row_loop *loop; /* [n_loop] in order */
    int n_loop;
    sn_scan_loop *scan; /* [n_scan] in order, outer ones first */
    int n_scan;
    int n_local; /* slots of a thread's locals */
    sn_buffer *buffer;
    int n_buffer;
    /* pack_slots: slots share as much memory as possible, for these sizes (NULL: the upper bounds); otherwise by time, while
     * memory is in the cache */
    bool pack_slots;
    const int64_t *planned_sizes;
    /* a slot's size is the maximum over its tenants; offsets are prefix sums, 64-byte aligned */
    int n_slot;
    sn_binding *input; /* [n_input] in order of appearance */
    int n_input;
} sn_plan;

/* The memory budget for a plan's temporaries. */
typedef struct sn_budget {
    int64_t bytes;
    const int64_t *symbol; /* [sn_symbol_count] sizes for which it must hold */
    /* for remarks; may be NULL */
    sn_passes *passes;
    /* error if more is needed; says how much */
    sn_error *err;
} sn_budget;

/* NULL: sn_module_error, or the budget's error. Requires a module after `fuse`. All memory is in
 * the module's arena. budget NULL: none. */
sn_plan *sn_plan_make(sn_module *m, const sn_entry *e, const sn_budget *budget);
/* Steps with their views; buffers are numbered, so that plans that differ only in names print
 * alike. */
void sn_plan_print(FILE *f, const sn_plan *p);

#endif
