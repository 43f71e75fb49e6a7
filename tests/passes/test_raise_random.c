/* Random attention: layouts of q, k, v, scores and result, masks, biases and the position of the
 * scale are random; every graph must become the attention node and keep its value. Products along any axes,
 * all of one size, keep theirs. */
#include "tests/support/fuzz/fuzz.h"
#include "tests/support/pass_check.h"
#include "frontend/sinter.h"
#include "tests/support/text.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

typedef struct draw {
    sn_module *m;
    fuzz_rng r;
    sn_dim B, T, S; /* batch, queries, keys */
    int n_bias;
    int equal; /* the size of all axes; 0: they differ */
} draw;

enum { H = 3, D = 4, E = 5 };

static int below(draw *g, int n) {
    return fuzz_below(&g->r, n);
}

static sn_dim size_of(const draw *g, char letter) {
    if (g->equal) return g->equal;
    switch (letter) {
    case 'b':
        return g->B;
    case 'h':
        return H;
    case 'q':
        return g->T;
    case 'k':
        return g->S;
    default:
        return letter == 'd' ? D : E;
    }
}

static void shuffle(draw *g, char *s) {
    for (int i = (int)strlen(s); i-- > 1;) {
        int j = below(g, i + 1);
        char c = s[i];
        s[i] = s[j];
        s[j] = c;
    }
}

static sn_tensor tensor(draw *g, const char *name, const char *letters, sn_dtype t) {
    sn_dim shape[8];
    int n = (int)strlen(letters);
    for (int i = 0; i < n; i++) shape[i] = size_of(g, letters[i]);
    shape[n] = SN_END;
    return sn_input_at(SN_HERE, g->m, name, t, shape);
}

static int place(const char *letters, char c) {
    return (int)(strchr(letters, c) - letters);
}

/* The index along a letter, spread by 1s over the axes of `letters`. */
static sn_tensor index_along(draw *g, const char *letters, char c, sn_dtype t) {
    sn_dim shape[8];
    int n = (int)strlen(letters);
    for (int i = 0; i < n; i++)
        shape[i] = letters[i] == c || below(g, 2) ? size_of(g, letters[i]) : 1;
    shape[n] = SN_END;
    return sn_iota_at(SN_HERE, g->m, t, place(letters, c), shape);
}

/* A tensor of some of the letters, with size 1 for the others. */
static sn_tensor partial(draw *g, const char *letters, sn_dtype t) {
    char some[8] = "", name[16];
    sn_dim shape[8];
    int n = (int)strlen(letters), k = 0;
    for (int i = 0; i < n; i++) {
        bool has = below(g, 2);
        if (has) some[k++] = letters[i];
        shape[i] = has ? size_of(g, letters[i]) : 1;
    }
    some[k] = 0;
    shape[n] = SN_END;
    snprintf(name, sizeof name, "t%d", g->n_bias++);
    if (!k) return sn_full_at(SN_HERE, g->m, t, 1, shape);
    return sn_reshape_at(SN_HERE, tensor(g, name, some, t), shape);
}

static sn_tensor draw_mask(draw *g, const char *letters, int depth) {
    static const sn_dtype types[] = {SN_I32, SN_I64, SN_F32};
    sn_dtype t = types[below(g, 3)];
    sn_tensor q = index_along(g, letters, 'q', t), k = index_along(g, letters, 'k', t);
    switch (below(g, depth ? 8 : 5)) {
    case 0:
        return sn_le(k, q);
    case 1:
        return sn_lt(sn_sub(q, k), 2);
    case 2:
        return sn_not(sn_gt(k, sn_add(q, 1)));
    case 3:
        return sn_gt(partial(g, letters, SN_I32), 0);
    case 4:
        return sn_eq(sn_mod(sn_sub(q, k), 2), 0);
    case 5:
        return sn_not(draw_mask(g, letters, depth - 1));
    case 6:
        return sn_or(draw_mask(g, letters, depth - 1), draw_mask(g, letters, depth - 1));
    default:
        return sn_and(draw_mask(g, letters, depth - 1), draw_mask(g, letters, depth - 1));
    }
}

static sn_tensor draw_step(draw *g, const char *letters, sn_tensor s) {
    switch (below(g, 7)) {
    case 0:
        return sn_div(s, sqrt(D));
    case 1:
        return sn_mul(2, sn_tanh(sn_mul(s, 0.5)));
    case 2:
        return sn_add(partial(g, letters, SN_F32), s);
    case 3:
        return sn_where(draw_mask(g, letters, 2), s, -INFINITY);
    case 4:
        return sn_add(s, sn_where(draw_mask(g, letters, 1), 0, -INFINITY));
    case 5:
        return sn_sub(s, sn_mul(partial(g, letters, SN_F32),
                                sn_cast(index_along(g, letters, 'k', SN_I32), SN_F32)));
    default:
        return sn_where(draw_mask(g, letters, 1), s, -1e4);
    }
}

static sn_tensor draw_softmax(draw *g, sn_tensor s, int axis) {
    if (below(g, 2)) return sn_softmax(s, axis);
    sn_tensor e = sn_exp(below(g, 2) ? sn_sub(s, sn_amax_keep(s, axis)) : s);
    return sn_div(e, sn_sum_keep(e, axis));
}

static sn_tensor draw_attention(draw *g) {
    char lq[] = "bhqd", lk[] = "bhkd", ls[] = "bhqk", lv[] = "bhke", lo[] = "bhqe", spec[32];
    shuffle(g, lq);
    shuffle(g, lk);
    shuffle(g, ls);
    shuffle(g, lv);
    shuffle(g, lo);
    sn_tensor q = tensor(g, "q", lq, SN_F32), k = tensor(g, "k", lk, SN_F32);
    sn_tensor v = tensor(g, "v", lv, SN_F32);
    bool first = below(g, 2);
    snprintf(spec, sizeof spec, "%s,%s->%s", first ? lq : lk, first ? lk : lq, ls);
    sn_tensor s = sn_einsum(spec, first ? q : k, first ? k : q);
    for (int i = below(g, 4); i > 0; i--) s = draw_step(g, ls, s);
    s = draw_softmax(g, s, place(ls, 'k'));
    first = below(g, 2);
    snprintf(spec, sizeof spec, "%s,%s->%s", first ? ls : lv, first ? lv : ls, lo);
    return sn_einsum(spec, first ? s : v, first ? v : s);
}

/* Another operand of a product of x, whose letters are `of`: it has some of these, and new ones. The result has
 * four letters. */
static sn_tensor draw_product(draw *g, sn_tensor x, const char *of, const char *name,
                              const char *fresh, char *result) {
    char common[8], other[16], spec[40];
    const int n = 2 + below(g, 2); /* in both operands; of three, two are batch axes */
    bool first = below(g, 2);
    strcpy(common, of);
    shuffle(g, common);
    snprintf(other, sizeof other, "%.*s%.*s", n, common, 4 - n, fresh);
    snprintf(result, 8, "%s%.*s%.*s", common + n, 4 - n, fresh, n == 3 ? 2 : 0, common);
    shuffle(g, other);
    shuffle(g, result);
    sn_tensor y = tensor(g, name, other, SN_F32);
    snprintf(spec, sizeof spec, "%s,%s->%s", first ? of : other, first ? other : of, result);
    return sn_einsum(spec, first ? x : y, first ? y : x);
}

/* Two products around a softmax, along any axes. */
static sn_tensor draw_products(draw *g) {
    char ls[8], lo[8], steps[] = "bhqk";
    sn_tensor s = draw_product(g, tensor(g, "q", "bhqd", SN_F32), "bhqd", "k", "ke", ls);
    shuffle(g, steps);
    for (int i = below(g, 3); i > 0; i--) s = draw_step(g, steps, s);
    s = draw_softmax(g, s, below(g, 2) ? place(steps, 'k') : below(g, 4));
    return draw_product(g, s, ls, "v", "xy", lo);
}

static void check_random(uint64_t seed, bool any) {
    static const char passes[] = "simplify,raise";
    char why[600] = "";
    draw g = {.m = sn_module_new("random"), .r = {seed}, .equal = any ? 2 + 2 * (seed & 1) : 0};
    assert_non_null(g.m);
    g.B = sn_symbol(g.m, "B", 1, 4);
    g.T = below(&g, 2) ? sn_symbol(g.m, "T", 1, 8) : 4;
    g.S = below(&g, 2) ? g.T : sn_symbol(g.m, "S", 1, 8);
    sn_entry_begin(g.m, "f");
    sn_output("y", any ? draw_products(&g) : draw_attention(&g));
    if (sn_module_error(g.m)->code) fail_msg("%s", sn_module_error(g.m)->message);
    char *text = module_text(g.m);
    bool ok = pass_check(text, passes, 1e-5, any, why, sizeof why) &&
              pass_run(g.m, passes, why, sizeof why);
    char *after = module_text(g.m);
    const char *dot = strstr(text, "= dot"); /* a mask may hide every score: then one is left */
    if (ok && !any && dot && strstr(dot + 1, "= dot") && !strstr(after, "= attention"))
        snprintf(why, sizeof why, "no attention"), ok = false;
    sn_module_free(g.m);
    if (!ok) fail_msg("seed %llu: %s\n%s", (unsigned long long)seed, why, text);
    free(after);
    free(text);
}

static void random_attention(void **state) {
    (void)state;
    const char *seed = getenv("SN_FUZZ_SEED"), *count = getenv("SN_FUZZ_COUNT");
    uint64_t first = seed ? strtoull(seed, NULL, 0) : 1;
    int n = count ? atoi(count) : 150;
    for (int i = 0; i < n; i++) check_random(first + (uint64_t)i, false);
}

/* What is attention in some of them only: values are kept. */
static void random_products(void **state) {
    (void)state;
    const char *seed = getenv("SN_FUZZ_SEED"), *count = getenv("SN_FUZZ_COUNT");
    uint64_t first = seed ? strtoull(seed, NULL, 0) : 1;
    int n = count ? atoi(count) : 400;
    for (int i = 0; i < n; i++) check_random(first + (uint64_t)i, true);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(random_attention),
                                       cmocka_unit_test(random_products)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
