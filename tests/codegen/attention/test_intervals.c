/* Interval arithmetic on masks: what the compiled code says of a tile holds for each of its pairs,
 * and where a person sees that a tile is empty or full the code sees it too. */
#include "codegen/jit/jit.h"
#include "codegen/attention/mask_intervals.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

enum { Q, K, T = 96, TILE = 16 };

typedef sn_node *build_fn(sn_node *q, sn_node *k);
typedef bool sees_fn(int q, int k);

typedef struct row {
    const char *name;
    build_fn *ir;
    sees_fn *sees;
    bool exact; /* every empty and every full tile is found */
} row;

static sn_node *num(sn_node *x, double v) {
    return sn_b_const(x->m, (sn_dtype)x->dtype, v);
}

#define BIN(op, x, y) sn_b_binary(SN_OP_##op, x, y)

/* A hash whose product wraps. */
#define HASH(x) BIN(div, BIN(mul, BIN(xor, x, num(x, 0x2c1b)), num(x, 0x297a2d39)), num(x, 65536))
static int hash(int x) {
    int64_t wrapped = (int32_t)((uint32_t)(x ^ 0x2c1b) * 0x297a2d39u);
    return (int)((wrapped - (wrapped & 0xffff)) / 65536);
}

/* One line a mask: name, exact, IR of q and k, the same in C. */
#define MASKS(_)                                                                                   \
    _(causal, true, BIN(le, k, q), k <= q)                                                         \
    _(less, true, BIN(lt, k, BIN(sub, q, num(q, 20))), k < q - 20)                                 \
    _(window, true, BIN(and, BIN(le, k, q), BIN(lt, BIN(sub, q, k), num(q, 9))),                   \
      k <= q && q - k < 9)                                                                         \
    _(other, true, sn_b_unary(SN_OP_not, BIN(le, k, q)), k > q)                                    \
    _(either, true, BIN(or, BIN(le, k, q), BIN(lt, k, num(k, 33))), k <= q || k < 33)              \
    _(exclusive, false, BIN(xor, BIN(le, k, q), BIN(lt, k, num(k, 32))), (k <= q) != (k < 32))     \
    _(near, true, BIN(le, sn_b_unary(SN_OP_abs, BIN(sub, q, k)), num(q, 5)), abs(q - k) <= 5)      \
    _(blocks, true, BIN(eq, BIN(div, q, num(q, 32)), BIN(div, k, num(k, 32))), q / 32 == k / 32)   \
    _(apart, true, BIN(ne, BIN(div, q, num(q, 32)), BIN(div, k, num(k, 32))), q / 32 != k / 32)    \
    _(strided, false, BIN(eq, BIN(mod, BIN(sub, q, k), num(q, 7)), num(q, 0)),                     \
      ((q - k) % 7 + 7) % 7 == 0)                                                                  \
    _(implied, true, BIN(le, BIN(le, k, q), BIN(lt, k, num(k, 33))), k > q || k < 33)              \
    _(only_later, true, BIN(lt, BIN(le, k, q), BIN(lt, k, num(k, 48))), k > q && k < 48)           \
    _(columns, true, BIN(lt, BIN(mod, k, num(k, 48)), num(k, 16)), k % 48 < 16)                    \
    _(scaled, true,                                                                                \
      BIN(lt, BIN(mul, k, num(k, -3)), BIN(sub, num(q, 10), BIN(mul, q, num(q, 2)))),              \
      -3 * k < 10 - 2 * q)                                                                         \
    _(clamped, true, BIN(le, BIN(min, k, num(k, 40)), BIN(max, q, num(q, 20))),                    \
      (k < 40 ? k : 40) <= (q > 20 ? q : 20))                                                      \
    _(chosen, false, sn_b_select(BIN(lt, q, num(q, 32)), BIN(le, k, q), BIN(le, q, k)),            \
      q < 32 ? k <= q : q <= k)                                                                    \
    _(counted, true,                                                                               \
      BIN(eq,                                                                                      \
          BIN(add, sn_b_cast(BIN(le, k, q), SN_I32), sn_b_cast(BIN(lt, k, num(k, 64)), SN_I32)),   \
          num(q, 2)),                                                                              \
      k <= q && k < 64)                                                                            \
    _(float_window, true,                                                                          \
      BIN(le, sn_b_cast(BIN(sub, q, k), SN_F32), sn_b_const(q->m, SN_F32, 20.5)), q - k <= 20)     \
    _(float_sums, true,                                                                            \
      BIN(lt, BIN(sub, sn_b_cast(q, SN_F32), sn_b_const(q->m, SN_F32, 9)),                         \
          BIN(add, sn_b_cast(k, SN_F32), sn_b_const(q->m, SN_F32, 0.5))),                          \
      q - 9 <= k)                                                                                  \
    _(float_to_int, true,                                                                          \
      BIN(lt, BIN(sub, q, k),                                                                      \
          sn_b_cast(sn_b_unary(SN_OP_neg, sn_b_const(q->m, SN_F32, -7.5)), SN_I32)),               \
      q - k < 7)                                                                                   \
    _(not_a_number, true,                                                                          \
      BIN(lt, sn_b_cast(k, SN_F32), sn_b_unary(SN_OP_log, sn_b_const(q->m, SN_F32, -1))), false)   \
    _(shifted, true, BIN(eq, BIN(shift_right, q, num(q, 5)), BIN(shift_right, k, num(k, 5))),      \
      q / 32 == k / 32)                                                                            \
    _(shifted_left, true, BIN(lt, BIN(shift_left, k, num(k, 2)), q), 4 * k < q)                    \
    _(signs, true, BIN(lt, sn_b_unary(SN_OP_sign, BIN(sub, q, k)), num(q, 0)), q < k)              \
    _(as_bool, true,                                                                               \
      BIN(eq, sn_b_cast(BIN(div, q, num(q, 48)), SN_BOOL),                                         \
          sn_b_cast(BIN(div, k, num(k, 48)), SN_BOOL)),                                            \
      (q >= 48) == (k >= 48))                                                                      \
    _(negated, true, BIN(lt, sn_b_unary(SN_OP_neg, q), sn_b_unary(SN_OP_neg, k)), -q < -k)         \
    _(by_unknown, false, BIN(lt, BIN(div, q, BIN(sub, k, num(k, 30))), num(q, 1)),                 \
      k == 30 || (k > 30 ? q / (k - 30) : -((q + 29 - k) / (30 - k))) < 1)                         \
    _(bits, false, BIN(eq, BIN(and, k, num(k, 1)), num(k, 0)), k % 2 == 0)                         \
    _(bit_blocks, true, BIN(eq, BIN(and, BIN(xor, q, k), num(k, 32)), num(k, 0)),                  \
      ((q ^ k) & 32) == 0)                                                                         \
    _(set_bits, true, BIN(lt, BIN(or, q, num(q, 15)), k), (q | 15) < k)                            \
    _(bits_of_both_signs, false, BIN(le, BIN(and, BIN(sub, q, k), num(q, -16)), num(q, -16)),      \
      ((q - k) & -16) <= -16)                                                                      \
    _(negative_bits, true, BIN(eq, BIN(or, BIN(sub, k, num(k, 128)), num(k, 31)), num(k, -65)),    \
      ((k - 128) | 31) == -65)                                                                     \
    _(hashed, true,                                                                                \
      BIN(eq, BIN(and, HASH(BIN(div, q, num(q, 16))), num(q, 1)),                                  \
          BIN(and, HASH(BIN(div, k, num(k, 16))), num(k, 1))),                                     \
      (hash(q / 16) & 1) == (hash(k / 16) & 1))                                                    \
    _(compared, true, BIN(lt, sn_b_cast(k, SN_F32), sn_b_cast(q, SN_F32)), k < q)                  \
    _(floats, false,                                                                               \
      BIN(lt, sn_b_unary(SN_OP_exp2, sn_b_cast(k, SN_F32)),                                        \
          sn_b_unary(SN_OP_exp2, sn_b_cast(q, SN_F32))),                                           \
      k < q)

#define DEFINE(name, exact, ir, c)                                                                 \
    static sn_node *ir_##name(sn_node *q, sn_node *k) {                                            \
        (void)q, (void)k;                                                                          \
        return ir;                                                                                 \
    }                                                                                              \
    static bool sees_##name(int q, int k) {                                                        \
        (void)q, (void)k;                                                                          \
        return c;                                                                                  \
    }
MASKS(DEFINE)
#define ROW(name, exact, ir, c) {#name, ir_##name, sees_##name, exact},
static const row rows[] = {MASKS(ROW)};

static sn_kernel_fn *compile(sn_jit *jit, const sn_target *t, const row *r, sn_module *m) {
    sn_error err = {0};
    em e;
    sn_node *arg[] = {sn_arg(m, 0, SN_I32, 0, NULL), sn_arg(m, 1, SN_I32, 0, NULL)};
    sn_node *out = r->ir(arg[Q], arg[K]);
    const sn_region *region = sn_region_new(m, 2, arg, 1, &out);
    if (sn_module_error(m)->code) fail_msg("%s: %s", r->name, sn_module_error(m)->message);
    assert_true(em_init(&e, t, r->name, SN_F32, &err));
    em_kernel(&e, r->name);
    sn_interval_code c = {.e = &e};
    assert_true(sn_interval_begin(&c, &e, region));
    for (int i = 0; i < 2; i++)
        sn_interval_arg(&c, i, (sn_interval){em_dim(&e, 2 * i), em_dim(&e, 2 * i + 1)}, 1);
    sn_interval_emit(&c, 1);
    sn_interval x = sn_interval_result(&c);
    em_store(&e, SN_BOOL, em_buf(&e, 0), x.lo);
    em_store(&e, SN_BOOL, em_buf(&e, 1), x.hi);
    em_end_kernel(&e);
    LLVMModuleRef mod = em_finish(&e, &err);
    if (!mod || !sn_jit_compile(jit, mod, NULL, &err)) fail_msg("%s", err.message);
    void *p = sn_jit_lookup(jit, r->name, &err);
    sn_kernel_fn *f;
    memcpy(&f, &p, sizeof f);
    em_free(&e);
    return f;
}

static void sound_and_sharp(void **state) {
    (void)state;
    sn_target t;
    sn_error err = {0};
    assert_true(sn_target_init(&t, NULL, &err));
    sn_jit *jit = sn_jit_create(&t, NULL, &err);
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        sn_module *m = sn_module_new("t");
        sn_kernel_fn *f = compile(jit, &t, &rows[i], m);
        int found = 0;
        for (int q = 0; q < T; q += TILE)
            for (int k = 0; k < T; k += TILE) {
                int n = 0;
                for (int j = 0; j < TILE * TILE; j++) n += rows[i].sees(q + j / TILE, k + j % TILE);
                uint8_t surely = 9, maybe = 9;
                f((void *[]){&surely, &maybe}, (int64_t[]){q, q + TILE - 1, k, k + TILE - 1}, NULL,
                  0, 1);
                bool full = n == TILE * TILE;
                if ((surely && !full) || (!maybe && n))
                    fail_msg("%s: tile %d, %d: %d visible, surely %d, maybe %d", rows[i].name, q, k,
                             n, surely, maybe);
                if (rows[i].exact && (surely != full || maybe != (n > 0)))
                    fail_msg("%s: tile %d, %d is not seen to be %s", rows[i].name, q, k,
                             full ? "full" : "empty");
                found += surely || !maybe;
            }
        if (rows[i].exact) assert_true(found > 0);
        sn_module_free(m);
    }
    sn_jit_destroy(jit);
}

static void what_is_decidable(void **state) {
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        sn_module *m = sn_module_new("t");
        sn_node *arg[] = {sn_arg(m, 0, SN_I32, 0, NULL), sn_arg(m, 1, SN_I32, 0, NULL)};
        sn_node *out = rows[i].ir(arg[Q], arg[K]);
        const sn_node *culprit = NULL;
        int shows = sn_interval_shows(sn_region_new(m, 2, arg, 1, &out), &culprit);
        bool never = !strcmp(rows[i].name, "floats");
        assert_int_equal(shows, never ? 0 : SN_SHOWS_EMPTY | SN_SHOWS_FULL);
        assert_int_equal(culprit != NULL, never);
        sn_module_free(m);
    }
}

/* What is left of a mask with a part that cannot be bounded. */
static void what_a_part_shows(void **state) {
    (void)state;
    enum { EMPTY = SN_SHOWS_EMPTY, FULL = SN_SHOWS_FULL };
    sn_module *m = sn_module_new("t");
    sn_node *q = sn_arg(m, 0, SN_I32, 0, NULL), *k = sn_arg(m, 1, SN_I32, 0, NULL);
    sn_node *causal = BIN(le, k, q), *dark = ir_floats(q, k);
    sn_node *to_int = BIN(eq, sn_b_cast(sn_b_unary(SN_OP_sin, sn_b_cast(k, SN_F32)), SN_I32), q);
    const struct {
        sn_node *out;
        int shows;
    } part[] = {
        {BIN(and, causal, dark), EMPTY},
        {BIN(or, causal, dark), FULL},
        {sn_b_unary(SN_OP_not, BIN(or, causal, dark)), EMPTY},
        {BIN(xor, causal, dark), 0},
        {BIN(eq, sn_b_cast(BIN(and, causal, dark), SN_I32), num(q, 1)), 0},
        {BIN(or, BIN(and, causal, dark), BIN(lt, k, num(k, 8))), EMPTY | FULL},
        {sn_b_select(causal, BIN(lt, q, num(q, 8)), dark), EMPTY | FULL},
        {sn_b_select(dark, causal, BIN(lt, q, num(q, 8))), EMPTY | FULL},
        {sn_b_select(dark, causal, to_int), 0},
        {to_int, 0},
    };
    for (size_t i = 0; i < sizeof part / sizeof *part; i++) {
        sn_node *arg[] = {q, k}, *out = part[i].out;
        const sn_node *culprit = NULL;
        int shows = sn_interval_shows(sn_region_new(m, 2, arg, 1, &out), &culprit);
        if (shows != part[i].shows || !culprit) fail_msg("part %d shows %d", (int)i, shows);
    }
    sn_module_free(m);
}

/* A table whose elements are their indices. */
static sn_interval identity(void *ctx, const sn_node *n, const sn_interval *index) {
    (void)ctx, (void)n;
    return index[0];
}

/* A part of a tile of queries reads a table where it is, and decides what the whole tile cannot; a table read at the
 * key alone, or at both, keeps the range that the whole tile has. */
static void parts_of_a_tile(void **state) {
    (void)state;
    enum { OF_Q = 1, OF_K = 2, BLOCK = 64 };
    sn_error err = {0};
    sn_target t;
    em e;
    sn_module *m = sn_module_new("t");
    const sn_dim size[] = {8};
    sn_node *arg[] = {sn_arg(m, Q, SN_I32, 0, NULL), sn_arg(m, K, SN_I32, 0, NULL),
                      sn_arg(m, 2, SN_I32, 1, size)};
    sn_node *in_block = BIN(div, arg[Q], num(arg[Q], BLOCK));
    sn_node *at_q = SN_NODE(m, gather_nd, SN_NO_ATTRS, arg[2], in_block);
    sn_node *at_k =
        SN_NODE(m, gather_nd, SN_NO_ATTRS, arg[2], BIN(div, arg[K], num(arg[K], BLOCK)));
    sn_node *at_both = SN_NODE(m, gather_nd, SN_NO_ATTRS, arg[2], BIN(sub, arg[Q], arg[K]));
    sn_node *out = BIN(and, BIN(eq, at_q, at_k), BIN(le, at_both, num(at_both, 1 << 20)));
    const sn_region *region = sn_region_new(m, 3, arg, 1, &out);
    assert_true(sn_target_init(&t, NULL, &err) && em_init(&e, &t, "parts", SN_F32, &err));
    em_kernel(&e, "parts");
    sn_interval_code whole = {.e = &e, .at = identity}, part = whole;
    part.coarse = &whole, part.fine = OF_Q, part.same = OF_K;
    sn_interval_code *code[] = {&whole, &part};
    for (int i = 0; i < 2; i++) {
        assert_true(sn_interval_begin(code[i], &e, region));
        sn_interval_arg(code[i], Q, (sn_interval){em_dim(&e, 2 * i), em_dim(&e, 2 * i + 1)}, OF_Q);
        sn_interval_arg(code[i], K, (sn_interval){em_dim(&e, 4), em_dim(&e, 5)}, OF_K);
        sn_interval_emit(code[i], ~0u);
        em_store(&e, SN_BOOL, em_buf(&e, 2 * i), sn_interval_result(code[i]).lo);
        em_store(&e, SN_BOOL, em_buf(&e, 2 * i + 1), sn_interval_result(code[i]).hi);
    }
    em_end_kernel(&e);
    sn_jit *jit = sn_jit_create(&t, NULL, &err);
    LLVMModuleRef mod = em_finish(&e, &err);
    if (!mod || !sn_jit_compile(jit, mod, NULL, &err)) fail_msg("%s", err.message);
    void *p = sn_jit_lookup(jit, "parts", &err);
    sn_kernel_fn *f;
    memcpy(&f, &p, sizeof f);
    for (int k = 0; k < 2; k++) { /* queries 0 .. 95, of these 16 .. 31 */
        uint8_t r[4];
        int64_t dim[] = {0, 95, 16, 31, k * BLOCK, k * BLOCK + BLOCK - 1};
        f((void *[]){&r[0], &r[1], &r[2], &r[3]}, dim, NULL, 0, 1);
        assert_false(r[0]);
        assert_true(r[1]);
        assert_int_equal(r[2], k == 0);
        assert_int_equal(r[3], k == 0);
    }
    em_free(&e);
    sn_jit_destroy(jit);
    sn_module_free(m);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sound_and_sharp), cmocka_unit_test(what_is_decidable),
        cmocka_unit_test(what_a_part_shows), cmocka_unit_test(parts_of_a_tile)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
