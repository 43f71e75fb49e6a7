/* plan.h: the interface between passes and code generation: for each entry a tree of steps, kernel calls over
 * buffers and loops over them.
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
    int first, last; /* first and last call that uses it (temporaries) */
    int slot;        /* temporaries: slot of the workspace; locals: of a thread's locals */
} sn_buffer;

/* A step is a call of a kernel, or a loop over the steps in it. */
typedef enum sn_step_kind {
    SN_STEP_CALL,
    /* for block_rows of `rows` rows at a time, at least once; the dim `rows` is their number inside */
    SN_STEP_ROWS,
    /* for each part of a scan's independent axes: a thread runs its own without waiting for others */
    SN_STEP_SCAN,
    SN_STEP_ELEMENTS, /* in a scan, for each element of its sequences */
    SN_STEP_SEGMENT, /* in that, for the elements of the segment from its first to this one (scan_recompute.c) */
} sn_step_kind;

/* When a step runs: always; in a scan depending on the element; in a loop over rows in one iteration; after it
 * depending on how many there were. */
typedef enum sn_when {
    SN_ALWAYS,
    SN_IF_SEGMENT_BEGINS,
    SN_IF_SEGMENT_ENDS,
    SN_IF_SEGMENT_GOES_ON, /* not for the last element of a loop over a segment */
    SN_IF_FIRST,
    SN_IF_LATER,
    SN_IF_SINGLE,
    SN_IF_SEVERAL,
} sn_when;

/* What a call waits for. An all_gather that ends an entry in the memory of a state may be left to the
 * next run, in which a call before the first use of the state waits, if one was left. */
typedef enum sn_wait {
    SN_WAIT_NOT,
    SN_WAIT,       /* the step with the same node, which has started it */
    SN_WAIT_LEAVE, /* the same, but it may be left to the next run */
    SN_WAIT_LEFT,  /* what an earlier run has left */
} sn_wait;

/* What a window of a scan follows. Elements, and segments of them, are counted in the order of the scan that
 * stores a carry by segment: in one that computes carries again, from the last iteration on. */
typedef enum sn_index {
    SN_BY_PART,    /* of the independent axes only */
    SN_BY_ELEMENT, /* as it lies in the sequence */
    SN_BY_SEGMENT,
    SN_BY_PLACE,  /* of the element in its segment */
    SN_BY_PARITY, /* of carries in two places: the iteration's number modulo 2; the next one's */
    SN_BY_NEXT_PARITY,
    SN_INDEX_COUNT
} sn_index;

/* A window of a scan: an operand's part tile_step[k] times the number of the part on independent axis k further, and
 * `step` elements times `index`. */
enum { SN_SCAN_TILES = 4 };
typedef struct sn_window {
    int buffer;  /* of kind SN_BUF_WINDOW */
    int operand; /* of the scan; from n_in on its results; -1: it is of buffer `local` */
    int local;
    sn_index index;
    sn_dim step, tile_step[SN_SCAN_TILES];
} sn_window;

typedef struct sn_scan_loop {
    bool reverse;
    bool segments;   /* its steps or windows use them */
    bool recomputes; /* carries of the scan in the other direction (scan_recompute.c) */
    sn_dim length;
    int n_tile;
    sn_dim parts[SN_SCAN_TILES];
    int n_window;
    sn_window *window;
} sn_scan_loop;

/* A step of the plan. `node` defines what a call computes (FUSED, or a PRIM with a separate kernel);
 * operand i of the node is in[i]. A loop over rows and a scan have the operands of their node, and after
 * the results what exists for their steps only: each buffer that these use. */
typedef struct sn_step {
    sn_step_kind kind;
    sn_when when;
    sn_node *node;
    int n_in, n_out;
    sn_view *in, *out;
    /* wait for all threads first: the call depends on one since the last barrier, or overwrites its
     * operands; of the first call of a scan: before the scan */
    bool barrier;
    sn_wait wait; /* of a collective */
    /* of a loop over rows; not 0: of the loop that SINGLE and SEVERAL are about; for FIRST: only if there are several
     * iterations */
    sn_dim rows;
    int64_t block_rows; /* maximum number of rows per iteration */
    struct sn_step *inner;
    int n_inner;
    sn_scan_loop *scan;
    const char *why; /* of a copy: what it is for, and what avoids it; NULL: it is none */
    /* by sn_plan_memory: the loop around it (NULL: none), and its calls [first, last) */
    const struct sn_step *around;
    int first, last;
} sn_step;

typedef struct sn_plan {
    sn_module *m;
    const sn_entry *entry;
    sn_step *step; /* [n_step] */
    int n_step;
    sn_step **call; /* [n_call] those of kind SN_STEP_CALL, in order */
    int n_call;
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
/* Elements and bytes of a buffer at these values of the symbolic dims. */
int64_t sn_buffer_elements(sn_module *m, const sn_buffer *b, const int64_t *symbol);
int64_t sn_buffer_bytes(sn_module *m, const sn_buffer *b, const int64_t *symbol);
/* Where slots begin in the workspace at these values, and after them where it ends: [n_slot + 1] bytes. */
void sn_plan_offsets(const sn_plan *p, const int64_t *symbol, int64_t *offset);
/* Operand or result i of a step: results come after the operands. */
static inline sn_view *sn_view_of(const sn_step *s, int i) {
    return i < s->n_in ? &s->in[i] : &s->out[i - s->n_in];
}
/* The innermost loop of this kind around a step; NULL: none. */
const sn_step *sn_step_within(const sn_step *s, sn_step_kind loop);
/* When a step runs, as ", first iteration"; "": always. */
const char *sn_when_text(sn_when when);

#endif
