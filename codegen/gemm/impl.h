/* impl.h: the inside of the GEMM generator, shared by the gemm files only.
 * A plan holds what follows from spec and target; the emitters below write one function each. */
#ifndef SN_GEMM_IMPL_H
#define SN_GEMM_IMPL_H

#include "codegen/gemm/gemm.h"

enum {
    GEMM_WORD = 8, /* 4-bit integers of an i32 */
    GEMM_SIZES = 5,
    GEMM_LINE = 64 /* bytes */
};

typedef struct gemm_plan {
    const sn_gemm *g;
    const char *name;
    sn_dtype t;      /* compute type */
    int esize;       /* its bytes */
    sn_dtype b_type; /* of B as the micro-kernel reads it */
    int lanes;       /* of a vector */
    int panel;       /* columns of a panel */
    int columns;     /* of these the epilogue walks: all, or the first half of pairs */
    int nv;          /* vectors of a micro-tile's row: 2 */
    int parts;       /* micro-tiles side by side in a panel */
    int mr;          /* most rows of a micro-tile, even */
    bool copy_a;     /* A goes through scratch (prologue, conversion, transposition, bad strides) */
    bool dual;       /* ... but only for many panels, and only full tiles read it there */
    bool turned_a;   /* ... a tile at a time as [k][a_step], because its columns are contiguous */
    bool pack_b;     /* B may go through scratch: packed or widened there */
    bool direct_b;   /* ... or be read in place when few rows use it (columns are contiguous) */
    bool direct_c;   /* whole tiles leave the micro-kernel for C: nothing happens to them before */
    bool chunked;    /* K is cut in chunks of kc; partial sums wait in scratch */
    bool waits;      /* ... while the group's rows stay, for the panels of a block (packed B) */
    int64_t kc;      /* rows of B (columns of A) at a time; K itself unless chunked */
    int64_t a_stride;     /* elements between A's rows as the micro-kernel sees them */
    int64_t a_step;       /* elements between A's columns, likewise */
    int64_t group_bytes;  /* of A's rows that stay in L2 */
    int64_t mc;           /* rows of A at a time, a multiple of mr */
    int64_t super;        /* chunked: rows whose sums wait, a multiple of mc */
    int size[GEMM_SIZES]; /* rows of the micro-tiles: mr, then powers of two down to 1 */
    int n_sizes;
    int64_t np;    /* panels of B packed at a time; chunked: whose sums wait */
    int half;      /* rows of the largest micro-tile but mr */
    bool ahead;    /* a group's last panel fetches the next group's rows of A */
    bool relay;    /* ... and copies them where its own are no more needed */
    bool within;   /* ... full tiles while they are computed (dual) */
    int fetch;     /* addresses of B that a tile fetches, a power of two; 0: no list (fetch.c) */
    int own;       /* the same of lines that its epilogue reads and writes */
    int own_shift; /* 2^own_shift steps of k share an address */
    int64_t a_at, b_at, f_at, o_at, scratch; /* byte offsets in scratch (sums at 0), its size */
    /* emitted functions */
    em_val micro[GEMM_SIZES];    /* of size[i] rows */
    em_val copied;               /* dual: of mr rows of the copy; else NULL */
    em_val turning;              /* the same, and copies those of the next group; else NULL */
    em_val twin;                 /* narrow panels, one row: two panels at once; else NULL */
    em_val row, last_row, widen; /* of 4-bit integers; else NULL */
    em_val finish, copy, pack;
} gemm_plan;

/* What the loops know at their depth. */
typedef struct gemm_state {
    em_val m, n, k, panels;
    em_val batch[SN_GEMM_BATCH];
    em_val a, b;         /* this batch item's bases */
    em_val row0, valid;  /* group: first row, rows that exist */
    em_val sum_row;      /* group: its place among the rows that are walked together */
    em_val walked;       /* number of these */
    em_val more;         /* is there a group after this one? */
    em_val copied;       /* are full tiles read from the copy? */
    em_val next_rows;    /* its rows of A, as they are stored */
    em_val next_row;     /* its first row */
    em_val next_valid;   /* its number of rows */
    em_val in_place;     /* B is read where it lies, but for the columns at its end */
    em_val blocks;       /* group: tiles */
    em_val next_step;    /* bytes between lines fetched ahead */
    em_val first_panel;  /* of the panels that are packed, or whose sums wait */
    em_val end_panel;    /* of all that this thread has */
    em_val chunk;        /* waits: so much of K at a time; K itself for few rows */
    em_val k0, kn;       /* chunk of K; unchunked: 0 and K */
    em_val panel;        /* its number */
    em_val bp, b_stride; /* its elements, distance of its rows */
    em_val next;         /* the panel after it */
    em_val after;        /* what is read after the last of the panels that pass by */
    em_val leap;         /* is there such a thing? */
    em_val last;         /* waits: the group's last block and chunk */
    em_val turn;         /* the group's last panel, and there is a group after it */
    em_val taken;        /* within: a full tile of that panel, and of the next group */
    em_val rows_step;    /* bytes of the next group's rows that a step of k fetches */
} gemm_state;

/* plan.c */
bool gemm_plan_make(gemm_plan *p, const sn_gemm *g, const sn_target *t, sn_dtype compute,
                    sn_error *err);
bool gemm_is(sn_gemm_size s, int64_t v); /* a constant equal to v */

em_val gemm_size(em *e, sn_gemm_size s);
/* B's first column in a panel. */
em_val gemm_first_column(em *e, const gemm_plan *p, int64_t pair, em_val panel);
/* Element offset of a batch item: the operand's offset and its batch strides. */
em_val gemm_offset(em *e, const sn_gemm *g, const sn_gemm_operand *o, const em_val *batch);
em_val gemm_function(em *e, const gemm_plan *p, const char *suffix, const em_type *params, int n,
                     bool keep); /* internal; keep: never inlined */

/* micro.c: void micro(A, B, T, k, next, next_step, b_stride, own, ahead, ahead_step, begun, to,
 * to_row) for `rows` rows (see there) */
enum { GEMM_MICRO_PARAMS = 13 };
typedef enum gemm_micro { GEMM_MICRO, GEMM_TWIN, GEMM_COPIED, GEMM_TURNING } gemm_micro;
em_val gemm_emit_micro(em *e, const gemm_plan *p, int rows, gemm_micro kind);

/* four.c: right factors of 4-bit integers (signatures there) */
em_val gemm_emit_four_row(em *e, const gemm_plan *p, bool last);
em_val gemm_emit_four_widen(em *e, const gemm_plan *p);
em_val gemm_emit_four_pack(em *e, const gemm_plan *p, sn_dtype dtype, sn_gemm_size row,
                           sn_gemm_size col, int64_t pair);

/* edge.c: what touches the operands outside the micro-kernel */
em_val gemm_emit_finish(em *e, const gemm_plan *p); /* epilogue and store of a tile */
em_val gemm_emit_copy(em *e, const gemm_plan *p);   /* rows of A to scratch, with the prologue */
bool gemm_check_pair(sn_gemm_size n, int64_t pair, sn_dtype compute, sn_error *err);
em_val gemm_emit_pack_panel(em *e, const gemm_plan *p, const char *suffix, sn_dtype dtype,
                            sn_gemm_size row, sn_gemm_size col, int64_t pair);

/* fetch.c: what a tile fetches while it is computed */
void gemm_plan_fetch(gemm_plan *p); /* fills p->fetch, p->own */
/* Fill a list, which they return, for the tile of `rows` rows from row `start` of the group on. */
em_val gemm_emit_fetch_list(em *e, const gemm_plan *p, const gemm_state *s, em_val start,
                            em_val rows);
em_val gemm_emit_own_list(em *e, const gemm_plan *p, const gemm_state *s, em_val start, em_val rows,
                          em_val sums);
void gemm_emit_fetch_sums(em *e, const gemm_plan *p, const gemm_state *s, em_val start,
                          em_val rows);
/* Emit the prefetch of step `k` of such a list. */
void gemm_emit_fetch(em *e, const gemm_plan *p, em_val list, em_val k);
void gemm_emit_own(em *e, const gemm_plan *p, em_val list, em_val k);

#endif
