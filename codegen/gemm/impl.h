/* impl.h: internals of the GEMM generator, private to this folder.
 * A gemm_plan holds everything that spec and target determine; a gemm_state holds the run-time
 * values of the loops. loops.c describes the loop nest. */
#ifndef SN_GEMM_IMPL_H
#define SN_GEMM_IMPL_H

#include "codegen/emit/signature.h"
#include "codegen/gemm/gemm.h"
#include "codegen/tile/tile.h"
#include "ir/ir.h"

enum {
    GEMM_TILE_ROWS = 7,
    GEMM_PACK_A_PANELS = 12, /* panels from which on packing A costs little */
    GEMM_LINE = 64           /* bytes of a cache line */
};

/* Functions that the kernel calls; NULL where the plan needs none. */
typedef struct gemm_functions {
    em_val ukr[GEMM_TILE_ROWS]; /* microkernels of tile_rows[i] rows */
    em_val ukr_packed_a;        /* pack_a_per_call: full microtile on packed A */
    em_val ukr_packing_a;       /* pack_in_microkernel: ... that also packs the next MC block */
    em_val block;               /* short K: an MC block by whole panels */
    em_val ukr_1x2;             /* narrow packed B: one row by two panels */
    em_val group_row, group_last_row, group_sums, dequantize;
    em_val int_row, int_ukr[GEMM_TILE_ROWS], int_pack_a, int_unpack;
    em_val epilogue, pack_a, pack_b;
} gemm_functions;

struct gemm_plan;
enum { GEMM_TERMS = 4 }; /* products of a step for an accumulator, at most */

/* How the microkernel multiplies: elements, or words of several consecutive k. The loops see words:
 * K is counted in them (the last is filled with zeros), and a word has the size of the compute type,
 * so a panel has as many columns, and a block as many bytes, as in that type. Only packing and a step
 * of the microkernel look into a word. dot.c, int8.c and bf16.c have the rows. */
typedef struct gemm_dot {
    const char *name;
    int k_of_word;
    int terms;      /* products of a step for an accumulator */
    int a_words;    /* words of a packed row of A for a word of K */
    bool unsigns_a; /* A is packed + 128; accumulators start at the panel's first row */
    /* The factors of a step: from A at `from`, in all lanes; from a vector of B. The step itself. */
    void (*a_terms)(em *e, const struct gemm_plan *p, em_val from, em_val *a);
    void (*b_terms)(em *e, const struct gemm_plan *p, em_val words, em_val *b);
    em_val (*multiply_add)(em *e, const struct gemm_plan *p, const em_val *a, const em_val *b,
                           em_val acc);
    /* Stores a vector of elements k and following of a packed row of A; NULL: as they are. */
    void (*store_a)(em *e, const struct gemm_plan *p, em_val v, em_val row, em_val k);
} gemm_dot;

/* The product of i8 with grouped integers by the integer units (grouped_int.c). Byte offsets
 * c .. factors are in scratch, comp and sums in a packed row of A. */
typedef struct gemm_ints {
    bool on;
    int k_of_word;    /* k that an i32 word holds: 4 bytes or 2 i16 */
    bool sums_shorts; /* products of bytes are added as i16 */
    int offset;       /* what makes the integers unsigned bytes */
    int mr;           /* rows of the full microtile, a power of two */
    int64_t mc, kc;   /* rows of A that are packed, k of a panel that are unpacked at a time */
    /* packed row: words, -offset * sums, sums, what its prologue left for the epilogue */
    int64_t row_bytes, comp_offset, sums_offset, row_scale_offset;
    int64_t b_offset, factors_offset;
} gemm_ints;

typedef struct gemm_plan {
    const sn_gemm *g;
    sn_gemm word_spec; /* words: the spec with K in words; g points to it */
    em_size k;         /* K in elements */
    const char *name;
    sn_dtype t; /* of accumulators and words: the compute type; of 8-bit integers i32 */
    const gemm_dot *dot;
    int sum_rows;    /* int8: rows of a panel above the words, 1 */
    int esize;       /* its bytes */
    sn_dtype b_type; /* of B as the microkernel reads it */
    int lanes;       /* of a vector */
    int nv;          /* vectors of a microtile's row: 2; 1 if N is at most one vector; 4 with few
                        registers or by_lane */
    int nr;          /* NR: columns of a microtile, nv * lanes */
    int panel;       /* columns of a panel */
    int panel_tiles; /* microtiles side by side in a panel: panel / NR */
    int epi_cols;    /* columns of a panel that the epilogue visits: all, or half of them (pairs) */
    int mr;          /* MR: rows of a full microtile */
    int half_mr;     /* largest power of two below MR */
    bool small_tile; /* few registers: a step has few multiply-adds */
    bool by_lane;    /* a factor of multiply-adds is a lane of a vector of A */
    bool amx;        /* the microkernels are those of amx.c */
    bool odd_tiles;  /* experts have few rows each: microkernels of 3 and 5 rows, too */
    /* rows of the microkernels: MR, then powers of two down to 1, with odd_tiles 5 and 3 between */
    int tile_rows[GEMM_TILE_ROWS];
    int n_tile_rows;
    int64_t l1_bytes, l2_bytes; /* of a thread */

    int64_t mc_bytes;     /* size of an MC block of A, which stays in L2 */
    int64_t mc;           /* MC: rows of that block, a multiple of MR */
    int64_t mc_outer;     /* rows that a packed NC block serves, a multiple of MC; MC unless the
                             kernel packs B */
    int64_t kc;           /* KC: columns of A, rows of B per block; K itself unless k_blocked */
    int64_t nc_panels;    /* NC in panels: packed at a time, or with partial C kept at a time */
    bool k_blocked;       /* there is a pc loop; partial C is kept in scratch */
    bool keeps_partial_c; /* ... for the panels of an NC block while the MC block stays (packed B);
                             else for mc_outer rows */
    int joined_k;         /* k of A that packing joins in a word; 1: A is packed as it is */
    bool pack_a;          /* A is packed to scratch: prologue, conversion, transposition or strides
                             that the microkernel cannot address */
    bool pack_a_per_call; /* ... only if this call has many panels; only full microtiles read it */
    int pack_a_panels;    /* ... so many */
    bool a_by_columns;    /* ... A's columns are contiguous */
    bool a_transposed;    /* ... a microtile at a time as [k][a_col_stride]: A's columns are
                             contiguous */
    bool pack_b;          /* the kernel packs or dequantizes B, as far as it is not read in place */
    bool b_in_place;      /* with few rows, B is read in place: its rows are contiguous */
    bool direct_c;        /* the microkernel stores whole panels to C: no epilogue callback */
    int64_t a_row_stride; /* elements between rows of A in the microkernel */
    int64_t a_col_stride; /* elements between columns of A in the microkernel */
    bool prefetch_next_a; /* the last panel of an MC block prefetches the next block of A */
    int next_a_bytes;     /* ... so many in a step of k: of 4 k if int8 */
    bool pack_next_a;     /* ... and packs it over rows that have been used */
    bool pack_in_microkernel; /* ... full microtiles within the microkernel (pack_a_per_call) */
    bool short_k;             /* B stays in L2; an MC block, of few microtiles, is one function */
    bool has_ukr_1x2;         /* there is a microkernel of one row by two panels */
    bool has_group_row;       /* ... one for a single row by panels of grouped integers */
    int b_prefetch;           /* length of the prefetch list of B, a power of two; 0: none */
    bool c_at_once;           /* the few lines that the epilogue reads and writes are prefetched
                                 when a microtile row begins */
    int c_prefetch;           /* else the length of their list; 0: none */
    int c_prefetch_shift;     /* 2^c_prefetch_shift steps of k share an entry of that list */
    /* scratch: byte offsets of packed A, packed B, the prefetch lists and the sums of a row over
     * scale groups; partial C is at 0 */
    int64_t a_offset, b_offset, b_list_offset, c_list_offset, sums_offset, scratch_bytes;
    gemm_ints ints;
    int64_t mirror_offset; /* symmetric: a transposed row of microtiles */
    int64_t sort_offset;   /* blocks: first row of each block in the sorted rows, then these */
    gemm_functions fn;
} gemm_plan;

/* Run-time values of the loops. "Next" MC block: the one after this in the ic loop. */
typedef struct gemm_state {
    em_val m, n, k, n_panels;
    em_val batch[SN_GEMM_BATCH];
    em_val a, b;    /* bases of this batch item */
    em_val packs_a; /* pack_a_per_call: full microtiles read packed A */
    em_val keeps_a; /* one row, which an earlier work item has packed; NULL: never */
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
    em_val is_last_nc;               /* keeps_partial_c: last NC block of this MC block ... */
    em_val is_last_block;            /* ... and its last KC block */
    em_val next_panel;               /* panel that is read after the last panel of the jr loop */
    em_val has_next_panel;
    /* jr loop */
    em_val jr;                /* index of the panel */
    em_val b_panel, b_stride; /* its elements, elements between its rows */
    em_val b_next;            /* address of the B to prefetch */
    em_val is_last_panel;     /* last panel of this MC block, and a next block exists */
    em_val ends_use_of_a; /* ... or last of this KC block of it: these k of A are read no more */
    em_val next_a_step;   /* bytes of the next block's rows to prefetch per step of k */
    em_val packs_next_a;  /* ir loop: this full microtile packs one of the next block */
} gemm_state;

/* plan.c */
const gemm_dot *gemm_dot_of(const sn_gemm *g, const sn_target *t);
bool gemm_plan_make(gemm_plan *p, const sn_gemm *g, const sn_target *t, sn_dtype compute,
                    sn_error *err);
bool gemm_check_pair(em_size n, int64_t half_width, sn_dtype compute, sn_error *err);

/* common.c */
bool gemm_is(em_size s, int64_t v); /* a constant equal to v */
/* Whether N is known and no more than a panel. */
bool gemm_has_one_panel(const gemm_plan *p);
/* First column of B in a panel. */
em_val gemm_first_column(em *e, const gemm_plan *p, int64_t half_width, em_val panel);
/* Blocks into which rows are sorted; 0: they are not. */
int64_t gemm_count_blocks(const sn_gemm *g);
/* n_blocks: the row of C at a position in the sorted rows; the row of A that it is made of. */
em_val gemm_sorted_row(em *e, em_val list, em_val position);
em_val gemm_row_of_a(em *e, const gemm_plan *p, em_val row_of_c);
/* row_scale: where row i of A, packed in the compute type from `a` on, has what its prologue left for
 * the epilogue: at its end. */
em_val gemm_row_scale(em *e, const gemm_plan *p, em_val a, em_val i);
/* ... where row 0 would begin as words (ints) to have it at the same place. */
em_val gemm_row_of_words(em *e, const gemm_plan *p, em_val a);
/* The elements of words; of the block of kb words from word pc on, of k elements. */
em_val gemm_elements(em *e, em_val words, int of_word);
em_val gemm_block_elements(em *e, em_val k, em_val pc, em_val kb, int of_word);
/* Element offset of a batch item: the operand's offset plus its batch strides. */
em_val gemm_offset(em *e, const sn_gemm *g, const sn_gemm_operand *o, const em_val *batch);
/* "kernel.suffix", the name of one of the kernel's functions. */
typedef struct gemm_name {
    char text[256];
} gemm_name;
gemm_name gemm_name_of(const gemm_plan *p, const char *suffix);

/* n elements of a matrix from p on, adjacent or `stride` apart, in the compute type. */
em_val gemm_load_row(em *e, sn_dtype t, em_val p, int n, em_val mask);
em_val gemm_load_strided(em *e, sn_dtype t, em_val p, em_size stride, int n, em_val mask);

static inline em_val zero(em *e) {
    return em_i64(e, 0);
}
static inline em_val one(em *e) {
    return em_i64(e, 1);
}
/* Whether B is one panel: nothing of B comes next, and each row of A is read once. */
static inline bool gemm_one_panel(const gemm_plan *p) {
    return p->g->n.slot < 0 && p->g->n.value <= p->panel;
}
/* Around code that packs A: it runs unless s->keeps_a. */
em_branch gemm_if_packs(em *e, const gemm_state *s);
void gemm_end_packs(em *e, const gemm_state *s, em_branch *br);
/* Part `part` of `parts` of n things, evenly: [lo, hi). */
void gemm_share(em *e, em_val n, em_val part, em_val parts, em_val *lo, em_val *hi);

/* micro.c: the microkernel,
 *   tile[i][j] = (pc ? tile[i][j] : 0) + sum over l < k of A[i][l] B[l][j], i < rows, j < NR
 *   a, b         A at the plan's strides; NR columns of a panel or, in place, of B
 *   tile         partial C, or scratch; its row stride is a panel
 *   k            columns of A
 *   b_next       full microtiles: B to prefetch, b_next_step bytes further in each step of k; or
 *                the prefetch list of B
 *   b_stride     elements between rows of B in place; ukr_1x2: between the two panels
 *   c_list       prefetch list of the epilogue
 *   next_a       full microtiles: rows of the next MC block to prefetch, next_a_step bytes further
 *                in each step of k; or to pack
 *   pc           first k of the KC block; not 0: continues the sums in tile
 *   c, c_stride  direct_c: the result goes here, with this row stride, instead of to tile
 * The hints (b_next, c_list, next_a) are what BLIS passes in auxinfo. A microkernel ignores what
 * its variant and the plan do not use. */
/* clang-format off */
#define GEMM_UKR_PARAMS(P) \
    P(ptr, a) P(ptr, b) P(ptr, tile) P(i64, k) P(ptr, b_next) P(i64, b_next_step) \
    P(i64, b_stride) P(ptr, c_list) P(ptr, next_a) P(i64, next_a_step) P(i64, pc) \
    P(ptr, c) P(i64, c_stride)
/* clang-format on */
EM_SIGNATURE(gemm_ukr, GEMM_UKR_PARAMS)

typedef enum gemm_ukr_kind {
    GEMM_UKR,
    GEMM_UKR_1X2,       /* one row by two panels: tile[0] and tile[1] */
    GEMM_UKR_PACKED_A,  /* reads packed A in a plan that usually does not (pack_a_per_call) */
    GEMM_UKR_PACKING_A, /* ... and packs rows of next_a over those that it has read */
} gemm_ukr_kind;
em_val gemm_emit_ukr(em *e, const gemm_plan *p, int rows, gemm_ukr_kind kind);

/* amx.c: the microkernel of 1, 2, 4, 8, 16 or 32 rows. gemm_begin_tiles and gemm_end_tiles enclose a thread's work. */
void gemm_emit_amx(em *e, const gemm_plan *p, int rows, int64_t a_stride, em_val k,
                   const gemm_ukr_args *arg);
void gemm_begin_tiles(em *e, const gemm_plan *p);
void gemm_end_tiles(em *e, const gemm_plan *p);

/* micro.c: an MC block of MC rows by n_panels whole panels from b on, stored at c (short_k). A call
 * for each microtile, and what the loops compute for it, would take a tenth of the time. */
#define GEMM_BLOCK_PARAMS(P) P(ptr, a) P(ptr, b) P(ptr, c) P(i64, c_stride) P(i64, n_panels)
EM_SIGNATURE(gemm_block, GEMM_BLOCK_PARAMS)
em_val gemm_emit_block(em *e, const gemm_plan *p);

/* epilogue.c: epilogue and store of acc[n_rows][panel], the accumulators of C from (row, col) on; a:
 * packed A of these rows (row_scale), as words if the integer units multiply them (ints).
 * They come from memory (L1), so that all microkernels share one copy of the epilogue. */
/* clang-format off */
#define GEMM_EPILOGUE_PARAMS(P) \
    P(ptr, buf) P(ptr, dim) P(ptr, acc) P(ptr, a) P(i64, row) P(i64, n_rows) P(i64, col) \
    P(i64, batch0) P(i64, batch1) P(i64, batch2)
/* clang-format on */
EM_SIGNATURE(gemm_epilogue, GEMM_EPILOGUE_PARAMS)
em_val gemm_emit_epilogue(em *e, const gemm_plan *p);

/* pack.c: dst[i][k] = prologue(A[row + i][pc + k]), i < n_rows, k < kb; a: base of the batch item.
 * Rows are written in whole vectors: a_row_stride has room. a_transposed: dst[k][i]. */
/* clang-format off */
#define GEMM_PACK_A_PARAMS(P) \
    P(ptr, buf) P(ptr, dim) P(ptr, a) P(ptr, dst) P(i64, row) P(i64, n_rows) P(i64, pc) \
    P(i64, kb) P(i64, batch0) P(i64, batch1) P(i64, batch2)
/* clang-format on */
EM_SIGNATURE(gemm_pack_a, GEMM_PACK_A_PARAMS)
em_val gemm_emit_pack_a(em *e, const gemm_plan *p);

/* pack.c: dst[k][j] = src[k * row + j * col], k < kb, j < n_cols; 0 up to the panel's width. Pairs:
 * half a panel of these, then the columns half_width further. ragged_k: of the k-th of the sorted
 * rows. */
#define GEMM_PACK_B_PARAMS(P)                                                                      \
    P(ptr, buf) P(ptr, dim) P(ptr, src) P(ptr, dst) P(i64, kb) P(i64, n_cols) P(i64, sorted)
EM_SIGNATURE(gemm_pack_b, GEMM_PACK_B_PARAMS)
em_val gemm_emit_pack_b(em *e, const gemm_plan *p, sn_dtype dtype, em_size row, em_size col,
                        int64_t half_width);

/* pack_groups.c: quantises and packs the columns of panel number `panel`: `left` of them, from `col`
 * on (of the first half, with pairs). */
void gemm_emit_pack_groups(em *e, const gemm_plan *p, const sn_gemm_pack *g, em_val panel,
                           em_val col, em_val left);

/* grouped.c: c[j] = row a times NR columns of a panel of grouped integers q. sums: of the row over
 * each scale group, used with minima. last: of the last panel, behind which no byte may be read. */
#define GEMM_GROUP_ROW_PARAMS(P)                                                                   \
    P(ptr, a) P(ptr, q) P(ptr, factors) P(ptr, outer_scales) P(ptr, sums) P(ptr, c)
EM_SIGNATURE(gemm_group_row, GEMM_GROUP_ROW_PARAMS)
em_val gemm_emit_group_row(em *e, const gemm_plan *p, bool last);
/* sums[g] = sum of row a over scale group g. */
#define GEMM_GROUP_SUMS_PARAMS(P) P(ptr, a) P(ptr, sums)
EM_SIGNATURE(gemm_group_sums, GEMM_GROUP_SUMS_PARAMS)
em_val gemm_emit_group_sums(em *e, const gemm_plan *p);
/* dst[k][j] = the elements of n_groups scale groups of a panel. */
#define GEMM_DEQUANTIZE_PARAMS(P)                                                                  \
    P(ptr, q) P(ptr, factors) P(ptr, outer_scales) P(ptr, dst) P(i64, n_groups)
EM_SIGNATURE(gemm_dequantize, GEMM_DEQUANTIZE_PARAMS)
em_val gemm_emit_dequantize(em *e, const gemm_plan *p);
/* A panel of grouped integers, from some scale group on: integers, factors, factors of factors. */
typedef struct gemm_group_panel {
    em_val q, factors, outer_scales;
} gemm_group_panel;
/* first: K times the number of the panel, plus k; b: the first panel's integers */
gemm_group_panel gemm_group_panel_at(em *e, const gemm_plan *p, em_val b, em_val first);
/* ... `group` scale groups further */
gemm_group_panel gemm_group_of_panel(em *e, const gemm_plan *p, const gemm_group_panel *b,
                                     em_val group);
/* Factor `part` (0: scale, 1: minimum) of the first scale group, columns c and following. */
em_val gemm_load_factor(em *e, const gemm_plan *p, const gemm_group_panel *b, int part, int c);
/* Prefetches integers some way behind the scale group at `at`. */
void gemm_prefetch_group(em *e, const gemm_plan *p, em_val at);
/* gemm_pack_b for a panel of words; the source holds 4-bit integers, as floats or i8. */
em_val gemm_emit_words_pack(em *e, const gemm_plan *p, const sn_gemm_pack *g);

/* fp4.c: doubled floats of 4 bits. The 4 bits of integers; the integers of the lowest 4 bits. */
em_val gemm_fp4_code(em *e, em_val x);
em_val gemm_fp4_value(em *e, em_val code);
/* Words of bytes from 0 to 15 as words of the integers plus GEMM_FP4_OFFSET. */
enum { GEMM_FP4_OFFSET = 12 };
em_val gemm_fp4_bytes(em *e, em_val codes);

extern const gemm_dot gemm_floats;                                   /* dot.c */
void gemm_take_a(em *e, const gemm_plan *p, em_val from, em_val *a); /* one word */
void gemm_take_b(em *e, const gemm_plan *p, em_val words, em_val *b);

const gemm_dot *gemm_bf16_dot(const sn_target *t); /* bf16.c */

/* int8.c: products of 8-bit integers. */
const gemm_dot *gemm_int8_dot(const sn_target *t);
/* gemm_pack_b for a panel of words; kb: K in elements. */
typedef struct gemm_quads {
    sn_dtype dtype; /* of the source: i8, or floats that are 8-bit integers */
    em_size row, col;
    int64_t half_width;
} gemm_quads;
em_val gemm_emit_quads_pack(em *e, const gemm_plan *p, const gemm_quads *b);

/* grouped_int.c: sets p->ints, and the offsets of scratch if it is on. */
void gemm_plan_ints(gemm_plan *p, const sn_target *t);
/* Packed rows of A: dst[i] = words, and sums over scale groups, of row i. */
#define GEMM_INT_PACK_A_PARAMS(P)                                                                  \
    P(ptr, buf)                                                                                    \
    P(ptr, dim)                                                                                    \
    P(ptr, a) P(ptr, dst) P(i64, row) P(i64, n_rows) P(i64, batch0) P(i64, batch1) P(i64, batch2)
EM_SIGNATURE(gemm_int_pack_a, GEMM_INT_PACK_A_PARAMS)
em_val gemm_emit_int_pack_a(em *e, const gemm_plan *p);
/* dst[k / k_of_word][P] = words of n_groups scale groups of a panel; factors: theirs. */
#define GEMM_INT_UNPACK_PARAMS(P)                                                                  \
    P(ptr, q) P(ptr, factors) P(ptr, outer_scales) P(ptr, dst) P(ptr, dst_factors) P(i64, n_groups)
EM_SIGNATURE(gemm_int_unpack, GEMM_INT_UNPACK_PARAMS)
em_val gemm_emit_int_unpack(em *e, const gemm_plan *p);
/* acc[i][j] += `rows` packed rows of A times NR columns of the unpacked panel, for n_groups scale
 * groups. comp: of the first row and scale group. */
#define GEMM_INT_UKR_PARAMS(P)                                                                     \
    P(ptr, a) P(ptr, comp) P(ptr, b) P(ptr, factors) P(ptr, acc) P(i64, n_groups)
EM_SIGNATURE(gemm_int_ukr, GEMM_INT_UKR_PARAMS)
em_val gemm_emit_int_ukr(em *e, const gemm_plan *p, int rows);
/* 4 bits: c[j] = a packed row times a panel. */
#define GEMM_INT_ROW_PARAMS(P) P(ptr, a) P(ptr, q) P(ptr, factors) P(ptr, outer_scales) P(ptr, c)
EM_SIGNATURE(gemm_int_row, GEMM_INT_ROW_PARAMS)
em_val gemm_emit_int_row(em *e, const gemm_plan *p);

/* grouped_loops.c: all of these functions; gemm_emit_loops with them */
void gemm_emit_int_functions(em *e, gemm_plan *p);
void gemm_emit_int_loops(em *e, const gemm_plan *p, gemm_state *s, em_val row0, em_val row1,
                         em_val panel0, em_val panel1);

/* blocks.c: expert products (n_blocks): each row of C uses one block of columns. The rows of
 * the loops are positions in the sorted rows; batch[0] is the address of these, batch[1] the first
 * column of the block. */
void gemm_emit_blocks(em *e, const gemm_plan *p, gemm_state *s);
/* ragged_k: sorts the columns of A by their blocks; gemm_begin_ragged sets K and, in batch[2], the
 * address of the sorted ones of block `item`, in batch[1] their number. */
void gemm_sort_ragged(em *e, const gemm_plan *p);
void gemm_begin_ragged(em *e, const gemm_plan *p, gemm_state *s, em_val item);

/* loops.c: the product of rows [row0, row1) and panels [panel0, panel1) of a batch item */
void gemm_emit_loops(em *e, const gemm_plan *p, gemm_state *s, em_val row0, em_val row1,
                     em_val panel0, em_val panel1);

/* tile.c: what the loops do with a microtile row, a panel and an MC block */
em_val gemm_packed_a(em *e, const gemm_plan *p, const gemm_state *s, em_val tile, em_val ir);
em_val gemm_a_tile(em *e, const gemm_plan *p, const gemm_state *s, em_val tile, em_val ir);
em_val gemm_tile_rows(em *e, const gemm_plan *p, em_val left);
bool gemm_has_tile(const gemm_plan *p, int rows); /* less than MR */
/* Whether MR rows and `left_over` more become two microtiles of about half the size. */
bool gemm_halves(const gemm_plan *p, int left_over);
void gemm_emit_tile(em *e, const gemm_plan *p, const gemm_state *s, em_val tile, em_val ir,
                    em_val rows);
void gemm_call_epilogue(em *e, const gemm_plan *p, const gemm_state *s, em_val acc, em_val a,
                        em_val row, em_val rows, em_val panel);

/* prefetch.c: what a microtile prefetches. A list is an array of addresses in scratch that the
 * microkernel walks, one each step of k. The lists are for `rows` rows from row ir of the MC block;
 * `acc`: their partial C. */
void gemm_plan_prefetch(
    gemm_plan *p); /* sets b_prefetch, c_at_once, c_prefetch, c_prefetch_shift */
em_val gemm_emit_b_list(em *e, const gemm_plan *p, const gemm_state *s, em_val ir, em_val rows);
em_val gemm_emit_c_list(em *e, const gemm_plan *p, const gemm_state *s, em_val ir, em_val rows,
                        em_val acc);
/* c_at_once: without a list. */
void gemm_prefetch_epilogue(em *e, const gemm_plan *p, const gemm_state *s, em_val ir, em_val rows,
                            em_val complete);
void gemm_prefetch_row_sums(em *e, const gemm_plan *p, const gemm_state *s, em_val ir, em_val rows);
/* The prefetch of step k from such a list. */
void gemm_prefetch_b(em *e, const gemm_plan *p, em_val list, em_val k);
void gemm_prefetch_c(em *e, const gemm_plan *p, em_val list, em_val k);

#endif
