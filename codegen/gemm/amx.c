/* amx.c: the microkernel on AMX's tiles: a register of 16 rows of 16 words, eight of them. A microtile has up
 * to 32 rows, two tiles of A, and NR columns, one or two tiles of B; its sums are two or four tiles. A step
 * has 16 words of K. For each element tdpbf16ps sums the products of the even k of a step, and those of the
 * odd k, from 0 on in order, then adds both sums to what was there before: the bits do not depend on M, N,
 * threads or microtiles, but are not those of bf16.c.
 *
 * The configuration of the tiles says how many rows and bytes of them count, and that is all that an
 * instruction reads or writes. The kernel sets the one of a full step; a microkernel sets another one for
 * fewer rows than 16, or for the last K mod 16 words, and that of a full step again. */
#include "codegen/gemm/impl.h"

enum { ROWS = 16, WORDS = 16, A_TILES = 4, B_TILES = 6, CONFIG_WORDS = 16 };

/* rows: of the tiles of A and C, words (i32): of K. */
static void configure(em *e, int rows, em_val words) {
    const int64_t tile = 64 | 64 << 16, height = rows * 0x0101;
    const int64_t fixed[CONFIG_WORDS] = {
        [0] = 1, [4] = tile, [5] = tile, [7] = tile, [12] = height << 16 | height, [13] = height};
    em_val v = em_zero(em_vec(e->i32, CONFIG_WORDS)), memory = em_stack(e, SN_I32, CONFIG_WORDS);
    for (int i = 0; i < CONFIG_WORDS; i++)
        if (fixed[i]) v = em_insert(e, v, em_i32(e, (int32_t)fixed[i]), i);
    em_val bytes = LLVMBuildMul(e->b, words, em_i32(e, 4 | 4 << 16), "");
    em_val rows_of_b = LLVMBuildMul(e->b, words, em_i32(e, 0x01010000), "");
    v = em_insert(e, v, bytes, 6);
    v = em_insert(e, v, LLVMBuildAdd(e->b, rows_of_b, em_i32(e, (int32_t)height), ""), 13);
    em_store_raw(e, v, memory, 64);
    em_intrinsic(e, "llvm.x86.ldtilecfg", NULL, 0, &memory, 1);
}

void gemm_begin_tiles(em *e, const gemm_plan *p) {
    if (p->amx) configure(e, ROWS, em_i32(e, WORDS));
}

void gemm_end_tiles(em *e, const gemm_plan *p) {
    if (p->amx) em_intrinsic(e, "llvm.x86.tilerelease", NULL, 0, NULL, 0);
}

static em_val number(em *e, int tile) {
    return LLVMConstInt(LLVMInt8TypeInContext(e->ctx), (unsigned)tile, 0);
}

static void access(em *e, const char *name, int tile, em_val at, em_val stride) {
    em_intrinsic(e, name, NULL, 0, (em_val[]){number(e, tile), at, stride}, 3);
}

typedef struct amx {
    const gemm_plan *p;
    int row_tiles, col_tiles;
    em_val a_stride, b_stride; /* bytes between rows */
} amx;

enum { LOAD, STORE };

/* The sums at `c`, whose rows are `stride` words apart. */
static void move_sums(em *e, const amx *m, int what, em_val c, em_val stride) {
    static const char *const names[] = {"llvm.x86.tileloadd64", "llvm.x86.tilestored64"};
    em_val bytes = em_mul(e, stride, 4);
    for (int i = 0; i < m->row_tiles; i++)
        for (int j = 0; j < m->col_tiles; j++) {
            em_val at = em_add(e, em_mul(e, bytes, i * ROWS), j * 64);
            access(e, names[what], 2 * i + j, em_gep_bytes(e, c, at), bytes);
        }
}

static void zero_sums(em *e, const amx *m) {
    for (int i = 0; i < m->row_tiles; i++)
        for (int j = 0; j < m->col_tiles; j++) {
            em_val tile = number(e, 2 * i + j);
            em_intrinsic(e, "llvm.x86.tilezero", NULL, 0, &tile, 1);
        }
}

static void emit_step(em *e, const amx *m, em_val a, em_val b) {
    for (int j = 0; j < m->col_tiles; j++)
        access(e, "llvm.x86.tileloadd64", B_TILES + j, em_gep_bytes(e, b, j * 64), m->b_stride);
    for (int i = 0; i < m->row_tiles; i++) {
        em_val at = em_gep_bytes(e, a, em_mul(e, m->a_stride, i * ROWS));
        access(e, "llvm.x86.tileloadd64", A_TILES + i, at, m->a_stride);
        for (int j = 0; j < m->col_tiles; j++)
            em_intrinsic(
                e, "llvm.x86.tdpbf16ps", NULL, 0,
                (em_val[]){number(e, 2 * i + j), number(e, A_TILES + i), number(e, B_TILES + j)},
                3);
    }
}

/* The last words, fewer than WORDS: the other configuration clears the sums, which wait in memory. */
static void emit_rest(em *e, const amx *m, int rows, em_val words, const em_val *at, em_val c,
                      em_val stride) {
    em_branch some = em_if(e, em_cmp(e, EM_GT, words, 0));
    move_sums(e, m, STORE, c, stride);
    configure(e, rows, em_int_cast(e, words, e->i32));
    move_sums(e, m, LOAD, c, stride);
    emit_step(e, m, at[0], at[1]);
    move_sums(e, m, STORE, c, stride);
    configure(e, ROWS, em_i32(e, WORDS));
    em_else(e, &some);
    move_sums(e, m, STORE, c, stride);
    if (rows < ROWS) configure(e, ROWS, em_i32(e, WORDS));
    em_endif(e, &some);
}

void gemm_emit_amx(em *e, const gemm_plan *p, int rows, int64_t a_stride, em_val k,
                   const gemm_ukr_args *arg) {
    const int of_tile = rows < ROWS ? rows : ROWS;
    const amx m = {p, rows / of_tile, p->nv, em_i64(e, a_stride * 4), em_i64(e, p->panel * 4)};
    const bool direct = p->direct_c;
    em_val c = direct ? arg->c : arg->tile, stride = direct ? arg->c_stride : em_i64(e, p->panel);
    em_val at[] = {arg->a, arg->b}, whole = em_round_down(e, k, WORDS);
    if (rows < ROWS) configure(e, rows, em_i32(e, WORDS));
    em_branch first = em_if(e, em_cmp(e, EM_EQ, arg->pc, 0));
    zero_sums(e, &m);
    em_else(e, &first);
    move_sums(e, &m, LOAD, arg->tile, em_i64(e, p->panel));
    em_endif(e, &first);
    em_loop l = em_for(e, 0, whole, WORDS);
    em_carries(e, &l, at, 2);
    emit_step(e, &m, at[0], at[1]);
    at[0] = em_gep_bytes(e, at[0], WORDS * 4);
    at[1] = em_gep_bytes(e, at[1], em_mul(e, m.b_stride, WORDS));
    em_end(e, &l);
    emit_rest(e, &m, of_tile, em_sub(e, k, whole), at, c, stride);
}
