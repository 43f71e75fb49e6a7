/* What `explain` says about calls: where they compute, their costs, which of them repeat. */
#include "tools/inspect/explain.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

/* Two layers of a linear map and a tanh of its own kernel, then a look-up table. */
static sn_program *two_layers(sn_module **m) {
    sn_error err = {0};
    *m = sn_module_new("two");
    sn_dim T = sn_symbol(*m, "T", 1, 64);
    sn_tensor ids = sn_input(*m, "ids", SN_I32, T);
    sn_tensor x = sn_nn_embedding(ids, "table", 1000, 32);
    for (int l = 0; l < 4; l++) {
        sn_scope_push(*m, "layer.%d", l);
        x = sn_nn_linear(sn_tanh(sn_nn_linear(x, "up", 64, SN_BIAS)), "down", 32, 0);
        sn_scope_pop(*m);
    }
    sn_entry_begin(*m, "forward");
    sn_output("y", x);
    sn_program *p = sn_compile(*m, &(sn_options){.level = 4, .cache_dir = "none"}, &err);
    if (!p) fail_msg("%s", err.message);
    return p;
}

static void calls_of_a_model(void **state) {
    (void)state;
    sn_module *m;
    sn_program *p = two_layers(&m);
    sn_error err = {0};
    explain_entry e;
    assert_true(explain_open(&e, p, "forward", "T=10", &err));
    assert_true(explain_find_folds(&e, &err));
    assert_int_equal(e.n, 9);
    assert_string_equal(e.call[0].name, "table");
    assert_string_equal(e.call[1].name, "layer.0.up");
    assert_string_equal(e.call[8].name, "layer.3.down");
    assert_string_equal(e.call[1].family, "gemm");
    assert_non_null(strstr(e.call[1].fused, "tanh"));
    /* 2 M N K; x, W, b and y once */
    assert_true(e.call[1].flops == 2.0 * 10 * 64 * 32);
    assert_true(e.call[1].bytes == 4.0 * (10 * 32 + 64 * 32 + 64 + 10 * 64));
    assert_true(e.call[1].result_bytes == 4.0 * 10 * 64);
    /* of the table only the rows that are looked up, and the ids */
    assert_true(e.call[0].bytes == 4.0 * (10 * 32 + 10 * 32 + 10));
    assert_int_equal(e.call[2].n_reads, 1);
    assert_int_equal(e.call[2].reads[0], 1);
    assert_int_equal(e.n_fold, 1);
    assert_int_equal(e.fold[0].first, 1);
    assert_int_equal(e.fold[0].period, 2);
    assert_int_equal(e.fold[0].times, 4);
    assert_string_equal(e.folded[1], "layer.*.up");
    double share = 0;
    for (int i = 0; i < e.n; i++) share += explain_share(&e, i);
    assert_true(share > 0.999 && share < 1.001);
    explain_close(&e);

    assert_false(explain_open(&e, p, "backward", NULL, &err));
    assert_non_null(strstr(err.message, "no entry 'backward'"));
    explain_close(&e);
    sn_program_free(p);
    sn_module_free(m);
}

static void add_up(sn_scan_step *s) {
    s->next[0] = s->y[0] = sn_tanh(sn_add(s->carry[0], s->x[0]));
}

/* A call in the body of a loop counts once for each element, its bytes as well as its operations. */
static void calls_of_a_loop(void **state) {
    (void)state;
    sn_error err = {0};
    sn_module *m = sn_module_new("loop");
    sn_dim T = sn_symbol(m, "T", 1, 64);
    sn_entry_begin(m, "forward");
    sn_tensor x = sn_input(m, "x", SN_F32, T, 32), zero = sn_full(m, SN_F32, 0, 32);
    sn_output("y", sn_scan(.carry = {zero}, .x = {x}, .axis = 0, .body = add_up).y[0]);
    sn_options o = {.level = 0, .cache_dir = "none", .plan_only = true};
    sn_program *p = sn_compile(m, &o, &err);
    if (!p) fail_msg("%s", err.message);
    const sn_kernel_call *c;
    int n = sn_program_calls(p, "forward", "T=10", &c, &err), add = 0;
    while (add < n && !strstr(c[add].fused, "add")) add++;
    assert_true(add < n);
    assert_true(c[add].operations == 10.0 * 32 * 8);
    assert_true(c[add].bytes == 10.0 * 3 * 32 * 4);
    sn_program_free(p);
    sn_module_free(m);
}

static sn_tensor same_document(const sn_score_ctx *c) {
    return sn_eq(sn_at(c->captured[0], c->q), sn_at(c->captured[0], c->k));
}

/* FLOP of attention are those of the visible pairs, at level 0 of all pairs, which it computes; of other
 * kernels none are counted. 2048 rows are more than are counted one by one. */
static void visible_pairs(void **state) {
    (void)state;
    enum { D = 16 };
    static const struct {
        bool causal, documents;
        int64_t window, T, pairs;
    } rows[] = {
        {true, false, 0, 256, 256 * 257 / 2},    {true, false, 16, 256, 256 * 16 - 120},
        {true, false, 0, 2048, 2048 * 2049 / 2}, {true, false, 16, 2048, 2048 * 16 - 120},
        {false, true, 0, 256, 4 * 64 * 64}, /* four documents, which is what inputs are made of */
        {false, false, 0, 256, 256 * 256}};
    for (size_t r = 0; r < sizeof rows / sizeof *rows; r++)
        for (int level = 0; level <= 4; level += 4) {
            sn_error err = {0};
            sn_module *m = sn_module_new("pairs");
            sn_dim T = sn_symbol(m, "T", 1, 4096);
            sn_tensor x = sn_reshape(sn_input(m, "x", SN_F32, T, D), 1, 1, T, D);
            sn_attention_args a = {
                .q = x, .k = x, .v = x, .causal = rows[r].causal, .window = rows[r].window};
            if (rows[r].documents) {
                a.mask = same_document;
                a.captured[0] = sn_input(m, "documents", SN_I32, T);
            }
            sn_entry_begin(m, "forward");
            sn_output("y", sn_exp(sn_attention_at(SN_HERE, &a)));
            sn_program *p = sn_compile(m, &(sn_options){.level = level, .cache_dir = "none"}, &err);
            if (!p) fail_msg("%s", err.message);
            explain_entry e;
            char sizes[32];
            snprintf(sizes, sizeof sizes, "T=%d", (int)rows[r].T);
            if (!explain_open(&e, p, "forward", sizes, &err)) fail_msg("%s", err.message);
            assert_string_equal(e.sizes, sizes);
            int64_t all = rows[r].T * rows[r].T, pairs = level ? rows[r].pairs : all;
            double off = e.flops / (4.0 * D * (double)pairs) - 1;
            /* level 0 also has a product with one column, for values that are not finite */
            assert_true(off > -2e-3 && off < (level ? 2e-3 : 1.0 / 16));
            if (level && rows[r].T == 256) assert_true(e.flops == 4.0 * D * (double)pairs);
            if (level && !rows[r].window && rows[r].causal)
                assert_true(e.flops == 4.0 * D * (double)pairs);
            explain_close(&e);
            sn_program_free(p);
            sn_module_free(m);
        }
}

static sn_tensor every_third(const sn_score_ctx *c) {
    return sn_eq(sn_mod(sn_add(c->q, c->k), 3), 0);
}

/* A causal mask hides tiles and shows some; one of every third key hides part of each. */
static void tiles_of_masks(void **state) {
    (void)state;
    for (int causal = 0; causal < 2; causal++) {
        sn_error err = {0};
        sn_module *m = sn_module_new("masks");
        sn_dim T = sn_symbol(m, "T", 1, 1024);
        sn_tensor x = sn_reshape(sn_input(m, "x", SN_F32, T, 16), 1, 1, T, 16);
        sn_entry_begin(m, "forward");
        sn_output("y", causal ? sn_attention(x, x, x, .causal = true)
                              : sn_attention(x, x, x, .mask = every_third));
        sn_program *p = sn_compile(m, &(sn_options){.level = 4, .cache_dir = "none"}, &err);
        if (!p) fail_msg("%s", err.message);
        explain_entry e;
        assert_true(explain_open(&e, p, "forward", NULL, &err));
        assert_true(explain_find_folds(&e, &err) && explain_find_tiles(&e, p, &err));
        int at = 0;
        while (at < e.n && strcmp(e.call[at].family, "flash") != 0) at++;
        assert_true(at < e.n);
        assert_string_equal(e.tile_sizes, "T=512");
        const explain_tiles *t = &e.tiles[at];
        if (causal) {
            assert_true(t->skipped > t->partial && t->full > 0 && t->partial > 0);
        } else {
            assert_true(t->skipped == 0 && t->full == 0 && t->partial > 0);
        }
        char *text = NULL;
        size_t size = 0;
        FILE *f = open_memstream(&text, &size);
        explain_table(f, &e, false);
        fclose(f);
        assert_non_null(strstr(text, causal ? " % are skipped, " : "no tile is empty or full"));
        free(text);
        explain_close(&e);
        sn_program_free(p);
        sn_module_free(m);
    }
}

static sn_tensor is_chosen(const sn_score_ctx *c) {
    return sn_at(c->captured[0], c->q, c->k);
}

/* What queries choose for themselves is known in a run only; rows that are looked up and then added up are
 * said to be in memory. */
static void choices_and_rows(void **state) {
    (void)state;
    sn_error err = {0};
    sn_module *m = sn_module_new("choices");
    sn_dim T = sn_symbol(m, "T", 1, 1024);
    sn_tensor x = sn_input(m, "x", SN_F32, T, 16), h = sn_reshape(x, 1, 1, T, 16);
    sn_tensor chosen = sn_gt(sn_matmul(sn_tanh(x), sn_swap(x, 0, 1)), 0);
    sn_tensor ids = sn_input(m, "ids", SN_I32, T, 8), w = sn_input(m, "w", SN_F32, T, 8, 1);
    sn_tensor rows = sn_gather(sn_param(m, "values", SN_F32, 100, 32), 0, ids);
    sn_entry_begin(m, "forward");
    sn_output("y", sn_attention(h, h, h, .mask = is_chosen, .captured = {chosen}));
    sn_output("z", sn_sum(sn_mul(w, rows), 1));
    sn_program *p = sn_compile(m, &(sn_options){.level = 4, .cache_dir = "none"}, &err);
    if (!p) fail_msg("%s", err.message);
    explain_entry e;
    assert_true(explain_open(&e, p, "forward", NULL, &err));
    assert_true(explain_find_folds(&e, &err) && explain_find_tiles(&e, p, &err));
    char *text = NULL;
    size_t size = 0;
    FILE *f = open_memstream(&text, &size);
    explain_table(f, &e, false);
    fclose(f);
    if (!strstr(text, "that choose different keys leave few tiles empty")) fail_msg("%s", text);
    const char *const *list;
    int n = sn_program_remarks(p, "forward", false, &list, &err), found = 0;
    for (int i = 0; i < n; i++)
        found += strstr(list[i], "reduce_sum: f32[T,8,32], rows of `gather` (test_explain.c:") &&
                 strstr(list[i], "), stays in memory before this sum");
    assert_int_equal(found, 1);
    free(text);
    explain_close(&e);
    sn_program_free(p);
    sn_module_free(m);
}

/* A kernel of attention whose heads mix says where they do. */
static void where_heads_mix(void **state) {
    (void)state;
    static const char *const where[] = {"", "heads mix before the softmax, tile by tile",
                                        "heads mix after the softmax, tile by tile",
                                        "heads mix before and after the softmax, tile by tile"};
    for (int mix = 1; mix < 4; mix++) {
        sn_error err = {0};
        sn_module *m = sn_module_new("mixed");
        sn_tensor x = sn_input(m, "x", SN_F32, 1, 4, 64, 16), w = sn_input(m, "w", SN_F32, 4, 4);
        sn_entry_begin(m, "forward");
        sn_output("y", sn_attention(x, x, x, .mix_scores = mix & 1 ? w : NULL,
                                    .mix_weights = mix & 2 ? w : NULL));
        sn_options o = {.level = 4, .cache_dir = "none", .plan_only = true};
        sn_program *p = sn_compile(m, &o, &err);
        if (!p) fail_msg("%s", err.message);
        const sn_kernel_call *c;
        int n = sn_program_calls(p, "forward", NULL, &c, &err), found = 0;
        for (int i = 0; i < n; i++) found += strstr(c[i].notes, where[mix]) != NULL;
        assert_int_equal(found, 1);
        sn_program_free(p);
        sn_module_free(m);
    }
}

/* The gradient of sn_top_k puts cotangents at its indices, that of sn_sort sorts these. */
static void sorts_of_gradients(void **state) {
    (void)state;
    for (int top = 0; top < 2; top++) {
        sn_error err = {0};
        sn_module *m = sn_module_new("sorts");
        sn_tensor x = sn_input(m, "x", SN_F32, sn_symbol(m, "T", 1, 64), 32), g;
        sn_entry_begin(m, "step");
        sn_tensor y = top ? sn_top_k(x, 4, NULL) : sn_sort(x, -1, true);
        sn_grad(sn_sum_all(sn_mul(sn_square(y), sn_arange(m, SN_F32, top ? 4 : 32))), 1, &x, &g);
        sn_output("g", g);
        sn_options o = {.level = 4, .cache_dir = "none", .plan_only = true};
        sn_program *p = sn_compile(m, &o, &err);
        if (!p) fail_msg("%s", err.message);
        const sn_kernel_call *c;
        int n = sn_program_calls(p, "step", NULL, &c, &err), sorts = 0, scatters = 0;
        for (int i = 0; i < n; i++) {
            sorts += !strcmp(c[i].family, "argsort");
            if (!strcmp(c[i].family, "argsort")) /* numbers are sorted one by one */
                assert_true(explain_estimate(&c[i]) > (top ? 4 : 16) * c[i].bytes);
            scatters += !strcmp(c[i].family, "scatter");
        }
        assert_int_equal(sorts, top ? 1 : 2);
        assert_int_equal(scatters, top);
        sn_program_free(p);
        sn_module_free(m);
    }
}

/* Convolutions of queries, keys and values that are normalised, then a delta rule. */
static void delta_step(sn_scan_step *s) {
    sn_tensor q = s->x[0], k = sn_expand(s->x[1], 2);
    sn_tensor miss = sn_sub(s->x[2], sn_sum(sn_mul(s->carry[0], k), 1));
    s->next[0] = sn_add(s->carry[0], sn_mul(k, sn_expand(miss, 1)));
    s->y[0] = sn_sum(sn_mul(s->next[0], sn_expand(q, 2)), 1);
}

static sn_tensor convolved(sn_module *m, sn_tensor x, const char *name) {
    sn_dim T = sn_dim_of(x, 1);
    sn_tensor all = sn_pad(x, 1, 2, 0, 0), w = sn_param(m, name, SN_F32, 16, 3), y = NULL;
    for (int i = 0; i < 3; i++) {
        sn_tensor term = sn_mul(sn_slice(all, 1, i, T), sn_index(w, 1, i));
        y = y ? sn_add(y, term) : term;
    }
    return sn_silu(y);
}

/* A recurrence does not take the work that picks shifted rows: these would be copied for it. */
static void rows_of_recurrences(void **state) {
    (void)state;
    double bytes[2];
    for (int apart = 0; apart < 2; apart++) { /* below level 4 it takes nothing */
        sn_error err = {0};
        sn_module *m = sn_module_new("shifts");
        sn_tensor x = sn_input(m, "x", SN_F32, 2, sn_symbol(m, "T", 1, 1024), 16), part[3];
        static const char *const name[] = {"q", "k", "v"};
        sn_entry_begin(m, "forward");
        for (int i = 0; i < 3; i++) {
            part[i] = convolved(m, sn_tanh(sn_mul(x, i + 1)), name[i]);
            sn_tensor size = sn_add(sn_sum_keep(sn_square(part[i]), -1), 1e-6);
            if (i < 2) part[i] = sn_mul(part[i], sn_rsqrt(size));
        }
        sn_tensor S = sn_full(m, SN_F32, 0, 2, 16, 16);
        sn_output("y", sn_scan(.carry = {S}, .x = {part[0], part[1], part[2]}, .axis = 1,
                               .body = delta_step)
                           .y[0]);
        sn_options o = {.level = 4 - apart, .cache_dir = "none", .plan_only = true};
        sn_program *p = sn_compile(m, &o, &err);
        if (!p) fail_msg("%s", err.message);
        const sn_kernel_call *c;
        int n = sn_program_calls(p, "forward", NULL, &c, &err), recurrences = 0;
        bytes[apart] = 0;
        for (int i = 0; i < n; i++) {
            bytes[apart] += c[i].bytes;
            recurrences += !strcmp(c[i].family, "recurrence");
        }
        assert_int_equal(recurrences, 1);
        sn_program_free(p);
        sn_module_free(m);
    }
    if (!(bytes[0] <= bytes[1])) fail_msg("%g bytes, %g apart", bytes[0], bytes[1]);
}

/* Folds of made-up calls: letters are kernels, digits the layer in the name. */
static void folds_are_found(void **state) {
    (void)state;
    static const struct {
        const char *calls;
        int n_fold, first, period, times;
    } rows[] = {
        {"abcabcabc", 1, 0, 3, 3}, {"xabababy", 1, 1, 2, 3}, {"aaaa", 1, 0, 1, 4},
        {"abcd", 0, 0, 0, 0},      {"abab", 0, 0, 0, 0}, /* two calls saved: not worth a fold */
        {"abcabcab", 1, 0, 3, 2},
    };
    for (size_t r = 0; r < sizeof rows / sizeof *rows; r++) {
        sn_kernel_call call[16];
        char family[16][2] = {{0}};
        sn_error err = {0};
        explain_entry e = {.call = call, .n = (int)strlen(rows[r].calls)};
        e.folded = calloc((size_t)e.n + 1, sizeof *e.folded);
        for (int i = 0; i < e.n; i++) {
            family[i][0] = rows[r].calls[i];
            call[i] = (sn_kernel_call){"", family[i], "", "", "", "", "",   "", 0,
                                       0,  "",        1,  1,  1,  1,  NULL, 0};
        }
        assert_true(explain_find_folds(&e, &err));
        assert_int_equal(e.n_fold, rows[r].n_fold);
        if (e.n_fold) {
            assert_int_equal(e.fold[0].first, rows[r].first);
            assert_int_equal(e.fold[0].period, rows[r].period);
            assert_int_equal(e.fold[0].times, rows[r].times);
        }
        explain_close(&e);
    }
}

/* What a caller that builds its arguments at run time reads; parameters that become inputs. */
static void signature_of_a_program(void **state) {
    (void)state;
    sn_error err = {0};
    sn_module *m = sn_module_new("signature");
    sn_dim T = sn_symbol(m, "T", 1, 64);
    sn_entry_begin(m, "forward");
    sn_tensor w = sn_param(m, "a b", SN_F32, 3), count = sn_state(m, "count", SN_I32, SN_SCALAR);
    sn_output("y", sn_mul(sn_concat(0, sn_input(m, "x", SN_F32, T, 3), sn_expand(w, 0)), w));
    sn_assign(count, sn_add(count, 1));
    const char *name = NULL;
    assert_int_equal(sn_entry_vjp(m, "forward", "back", &err), 2);
    assert_int_equal(sn_entry_vjp(m, "backward", "more", &err), -1);
    assert_non_null(strstr(err.message, "no such entry"));
    for (int inputs = 0; inputs < 2; inputs++) {
        sn_program *p = sn_compile(m, &(sn_options){.level = 4, .cache_dir = "none"}, &err);
        if (!p) fail_msg("%s", err.message);
        char *text = NULL;
        size_t size = 0;
        FILE *f = open_memstream(&text, &size);
        sn_program_signature(p, f);
        fclose(f);
        assert_non_null(strstr(text, "dim\tT\t1\t64\n"));
        assert_non_null(strstr(text, "state\tcount\ti32\t[]\n"));
        assert_non_null(strstr(text, inputs ? "in\ta b\tf32\t[3]\n" : "param\ta b\tf32\t[3]\n"));
        assert_non_null(strstr(text, "in\tx\tf32\t[T,3]\n"));
        assert_non_null(strstr(text, "out\ty\tf32\t[T+1,3]\n"));
        assert_non_null(strstr(text, "in\tweights.y\tf32\t[T+1,3]\n"));
        assert_non_null(strstr(text, "out\tgradient.x\tf32\t[T,3]\n"));
        free(text);
        sn_program_free(p);
        assert_int_equal(sn_params_to_inputs(m, 1, &name), !inputs);
    }
    assert_string_equal(name, "a b");
    sn_program_signature(NULL, stdout);
    assert_int_equal(sn_params_to_inputs(NULL, 0, NULL), 0);
    sn_module_free(m);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(calls_of_a_model),   cmocka_unit_test(calls_of_a_loop),
        cmocka_unit_test(tiles_of_masks),     cmocka_unit_test(visible_pairs),
        cmocka_unit_test(choices_and_rows),   cmocka_unit_test(where_heads_mix),
        cmocka_unit_test(sorts_of_gradients), cmocka_unit_test(rows_of_recurrences),
        cmocka_unit_test(folds_are_found),    cmocka_unit_test(signature_of_a_program)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
