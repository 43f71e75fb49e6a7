/* amx.c: the microkernel on AMX's tiles (codegen/tile/amx.c). A microtile has up to 32 rows, two tiles of A,
 * and NR columns, one or two tiles of B; its sums are two or four tiles. A step has 16 words of K. The bits do
 * not depend on M, N, threads or microtiles, but are not those of bf16.c. A single row of weights in groups has a kernel
 * of its own, which sums in the order of bf16.c.
 *
 * The configuration says how many rows and bytes of a tile count, and that is all that an instruction reads or
 * writes. The kernel sets the one of a full step; a microkernel sets another one for fewer rows than 16, or for
 * the last K mod 16 words, and that of a full step again. */
#include "codegen/gemm/impl.h"

enum { ROWS = 16, WORDS = 16, A_TILES = 4, B_TILES = 6 };

static void configure_full(em *e) {
    tile_amx_configure(e, ROWS, em_i32(e, WORDS));
}

void gemm_begin_tiles(em *e, const gemm_plan *p) {
    if (p->amx) configure_full(e);
}

void gemm_end_tiles(em *e, const gemm_plan *p) {
    if (p->amx) tile_amx_release(e);
}

typedef struct amx {
    int row_tiles, col_tiles;
    em_val a_stride, b_stride; /* bytes between rows */
} amx;

typedef void mover(em *e, int tile, em_val at, em_val stride);

/* The sums from or to `c`, whose rows are `stride` words apart. */
static void move_sums(em *e, const amx *m, mover *move, em_val c, em_val stride) {
    em_val bytes = em_mul(e, stride, 4);
    for (int i = 0; i < m->row_tiles; i++)
        for (int j = 0; j < m->col_tiles; j++) {
            em_val at = em_add(e, em_mul(e, bytes, i * ROWS), j * 64);
            move(e, 2 * i + j, em_gep_bytes(e, c, at), bytes);
        }
}

static void zero_sums(em *e, const amx *m) {
    for (int i = 0; i < m->row_tiles; i++)
        for (int j = 0; j < m->col_tiles; j++) tile_amx_zero(e, 2 * i + j);
}

static void emit_step(em *e, const amx *m, em_val a, em_val b) {
    for (int j = 0; j < m->col_tiles; j++)
        tile_amx_load(e, B_TILES + j, em_gep_bytes(e, b, j * 64), m->b_stride);
    for (int i = 0; i < m->row_tiles; i++) {
        em_val at = em_gep_bytes(e, a, em_mul(e, m->a_stride, i * ROWS));
        tile_amx_load(e, A_TILES + i, at, m->a_stride);
        for (int j = 0; j < m->col_tiles; j++) tile_amx_add(e, 2 * i + j, A_TILES + i, B_TILES + j);
    }
}

/* The last words, fewer than WORDS: the other configuration clears the sums, which wait in memory. */
static void emit_rest(em *e, const amx *m, int rows, em_val words, const em_val *at, em_val c,
                      em_val stride) {
    em_branch some = em_if(e, em_cmp(e, EM_GT, words, 0));
    move_sums(e, m, tile_amx_store, c, stride);
    tile_amx_configure(e, rows, em_int_cast(e, words, e->i32));
    move_sums(e, m, tile_amx_load, c, stride);
    emit_step(e, m, at[0], at[1]);
    move_sums(e, m, tile_amx_store, c, stride);
    configure_full(e);
    em_else(e, &some);
    move_sums(e, m, tile_amx_store, c, stride);
    if (rows < ROWS) configure_full(e);
    em_endif(e, &some);
}

void gemm_emit_amx(em *e, const gemm_plan *p, int rows, int64_t a_stride, em_val k,
                   const gemm_ukr_args *arg) {
    const int of_tile = rows < ROWS ? rows : ROWS;
    const amx m = {rows / of_tile, p->nv, em_i64(e, a_stride * 4), em_i64(e, p->panel * 4)};
    const bool direct = p->direct_c;
    em_val c = direct ? arg->c : arg->tile, stride = direct ? arg->c_stride : em_i64(e, p->panel);
    em_val at[] = {arg->a, arg->b}, whole = em_round_down(e, k, WORDS);
    if (rows < ROWS) tile_amx_configure(e, rows, em_i32(e, WORDS));
    em_branch first = em_if(e, em_cmp(e, EM_EQ, arg->pc, 0));
    zero_sums(e, &m);
    em_else(e, &first);
    move_sums(e, &m, tile_amx_load, arg->tile, em_i64(e, p->panel));
    em_endif(e, &first);
    em_loop l = em_for(e, 0, whole, WORDS);
    em_carries(e, &l, at, 2);
    emit_step(e, &m, at[0], at[1]);
    at[0] = em_gep_bytes(e, at[0], WORDS * 4);
    at[1] = em_gep_bytes(e, at[1], em_mul(e, m.b_stride, WORDS));
    em_end(e, &l);
    emit_rest(e, &m, of_tile, em_sub(e, k, whole), at, c, stride);
}
