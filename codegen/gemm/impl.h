/* impl.h: internals of the GEMM generator, private to this folder.
 * A gemm_plan holds everything that spec and target determine; a gemm_state holds the run-time
 * values of the loops. gemm.c describes the loop nest. */
#ifndef SN_GEMM_IMPL_H
#define SN_GEMM_IMPL_H

#include "codegen/gemm/gemm.h"

enum {
    INT4_PER_WORD = 8, /* int4 values in an i32 */
    GEMM_TILE_ROWS = 5,
    GEMM_LINE = 64 /* bytes of a cache line */
};

/* Functions that the kernel calls; NULL where the plan needs none. */
typedef struct gemm_functions {
    em_val ukr[GEMM_TILE_ROWS]; /* microkernels of tile_rows[i] rows */
    em_val ukr_packed_a;        /* pack_a_per_call: full microtile on packed A */
    em_val ukr_packing_a;       /* pack_in_microkernel: ... that also packs the next MC block */
    em_val ukr_1x2;             /* narrow packed B: one row by two panels */
    em_val int4_row, int4_last_row, int4_dequantize;
    em_val epilogue, pack_a, pack_b;
} gemm_functions;

typedef struct gemm_plan {
    const sn_gemm *g;
    const char *name;
    sn_dtype t;      /* compute type */
    int esize;       /* its bytes */
    sn_dtype b_type; /* of B as the microkernel reads it */
    int lanes;       /* of a vector */
    int nv;          /* vectors of a microtile's row: 2 */
    int nr;          /* NR: columns of a microtile, nv * lanes */
    int panel;       /* columns of a panel */
    int panel_tiles; /* microtiles side by side in a panel: panel / NR */
    int epi_cols;    /* columns of a panel that the epilogue visits: all, or half of them (pairs) */
    int mr;          /* MR: rows of a full microtile, even */
    int half_mr;     /* largest power of two below MR */
    int tile_rows[GEMM_TILE_ROWS]; /* rows of the microkernels: MR, then powers of two down to 1 */
    int n_tile_rows;
    int64_t mc_bytes;     /* size of an MC block of A, which stays in L2 */
    int64_t mc;           /* MC: rows of that block, a multiple of MR */
    int64_t mc_outer;     /* rows that one pass over B serves, a multiple of MC; > MC only if the
                             kernel packs B or blocks K without packed B */
    int64_t kc;           /* KC: columns of A, rows of B per block; K itself unless k_blocked */
    int64_t nc_panels;    /* NC in panels: packed at a time, or with partial C kept at a time */
    bool k_blocked;       /* there is a pc loop; partial C is kept in scratch */
    bool keeps_partial_c; /* ... for the panels of an NC block while the MC block stays (packed B);
                             else for mc_outer rows */
    bool pack_a;          /* A is packed to scratch: prologue, conversion, transposition or strides
                             that the microkernel cannot address */
    bool pack_a_per_call; /* ... only if this call has many panels; only full microtiles read it */
    bool a_transposed;    /* ... a microtile at a time as [k][a_col_stride]: A's columns are
                             contiguous */
    bool pack_b;          /* the kernel packs or dequantizes B, as far as it is not read in place */
    bool b_in_place;      /* with few rows, B is read in place: its rows are contiguous */
    bool direct_c;        /* the microkernel stores whole microtiles to C: no epilogue */
    int64_t a_row_stride; /* elements between rows of A in the microkernel */
    int64_t a_col_stride; /* elements between columns of A in the microkernel */
    bool prefetch_next_a; /* the last panel of an MC block prefetches the next block of A */
    bool pack_next_a;     /* ... and packs it over the rows that are no longer needed */
    bool pack_in_microkernel; /* ... full microtiles within the microkernel (pack_a_per_call) */
    int b_prefetch;           /* length of the prefetch list of B, a power of two; 0: none */
    int c_prefetch;           /* the same for the lines that the epilogue reads and writes */
    int c_prefetch_shift;     /* 2^c_prefetch_shift steps of k share an entry of that list */
    /* scratch: byte offsets of packed A, packed B and the prefetch lists; partial C is at 0 */
    int64_t a_offset, b_offset, b_list_offset, c_list_offset, scratch_bytes;
    gemm_functions fn;
} gemm_plan;

/* Run-time values of the loops. "Next" MC block: the one after this in the ic loop. */
typedef struct gemm_state {
    em_val m, n, k, n_panels;
    em_val batch[SN_GEMM_BATCH];
    em_val a, b;    /* bases of this batch item */
    em_val packs_a; /* pack_a_per_call: full microtiles read packed A */
    em_val b_in_place;
    em_val kc;        /* keeps_partial_c: KC; K itself if this call has few rows */
    em_val jc;        /* jc loop: first panel of the NC block */
    em_val panel_end; /* end of this thread's panels */
    em_val pc, kb;    /* pc loop: first k and size of the KC block; 0 and K if not k_blocked */
    /* ic loop */
    em_val n_rows_ic; /* rows of the whole loop */
    em_val ic, ib;    /* first row and number of rows of the MC block */
    em_val ic_offset; /* ic minus the loop's first row */
    em_val n_tiles;   /* microtiles of the MC block in a panel column */
    em_val has_next_block;
    em_val next_a, next_ic, next_ib; /* next MC block: address in A, first row, number of rows */
    em_val b_next_step;              /* bytes between the lines of B to prefetch */
    em_val is_last_block;            /* keeps_partial_c: last NC and KC block of this MC block */
    em_val next_panel;               /* panel that is read after the last panel of the jr loop */
    em_val has_next_panel;
    /* jr loop */
    em_val jr;                /* index of the panel */
    em_val b_panel, b_stride; /* its elements, elements between its rows */
    em_val b_next;            /* address of the B to prefetch */
    em_val is_last_panel;     /* last panel of this MC block, and a next block exists */
    em_val next_a_step;       /* bytes of the next block's rows to prefetch per step of k */
    em_val packs_next_a;      /* ir loop: this full microtile packs one of the next block */
} gemm_state;

/* plan.c */
bool gemm_plan_make(gemm_plan *p, const sn_gemm *g, const sn_target *t, sn_dtype compute,
                    sn_error *err);
bool gemm_is(sn_gemm_size s, int64_t v); /* a constant equal to v */

em_val gemm_size(em *e, sn_gemm_size s);
/* First column of B in a panel. */
em_val gemm_first_column(em *e, const gemm_plan *p, int64_t pair_distance, em_val panel);
/* Element offset of a batch item: the operand's offset plus its batch strides. */
em_val gemm_offset(em *e, const sn_gemm *g, const sn_gemm_operand *o, const em_val *batch);
em_val gemm_function(em *e, const gemm_plan *p, const char *suffix, const em_type *params, int n,
                     bool keep); /* internal; keep: never inlined */

/* micro.c: void micro(A, B, T, k, next, next_step, b_stride, own, ahead, ahead_step, begun, to,
 * to_row) for `rows` rows (see there) */
enum { GEMM_UKR_PARAMS = 13 };
typedef enum gemm_ukr { GEMM_UKR, GEMM_UKR_1X2, GEMM_UKR_PACKED_A, GEMM_UKR_PACKING_A } gemm_ukr;
em_val gemm_emit_ukr(em *e, const gemm_plan *p, int rows, gemm_ukr kind);

/* four.c: right operands of int4 (signatures there) */
em_val gemm_emit_int4_row(em *e, const gemm_plan *p, bool last);
em_val gemm_emit_int4_dequantize(em *e, const gemm_plan *p);
em_val gemm_emit_int4_pack(em *e, const gemm_plan *p, sn_dtype dtype, sn_gemm_size row,
                           sn_gemm_size col, int64_t pair_distance);

/* edge.c */
em_val gemm_emit_epilogue(em *e, const gemm_plan *p);
em_val gemm_emit_pack_a(em *e, const gemm_plan *p);
bool gemm_check_pair(sn_gemm_size n, int64_t pair_distance, sn_dtype compute, sn_error *err);
em_val gemm_emit_pack_b(em *e, const gemm_plan *p, const char *suffix, sn_dtype dtype,
                        sn_gemm_size row, sn_gemm_size col, int64_t pair_distance);

/* fetch.c: prefetch lists */
void gemm_plan_prefetch(gemm_plan *p); /* fills p->b_prefetch, p->c_prefetch */
em_val gemm_emit_b_prefetch_list(em *e, const gemm_plan *p, const gemm_state *s, em_val start,
                                 em_val rows);
em_val gemm_emit_c_prefetch_list(em *e, const gemm_plan *p, const gemm_state *s, em_val start,
                                 em_val rows, em_val sums);
void gemm_prefetch_row_sums(em *e, const gemm_plan *p, const gemm_state *s, em_val start,
                            em_val rows);
void gemm_prefetch_b(em *e, const gemm_plan *p, em_val list, em_val k);
void gemm_prefetch_c(em *e, const gemm_plan *p, em_val list, em_val k);

#endif
