/* Attention reads nothing beyond the last element of K, V, Q and a bias: each ends at an
 * inaccessible page. One program for every number of keys. */
#include "frontend/sinter.h"
#include "ir/ir.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>
#include "runtime/memory.h"
#include "tests/support/scratch.h"

enum { H = 4, HK = 2, D = 20, DV = 7, MAX_KEYS = 600, MAX_QUERIES = 20, N_IN = 4 };

/* `bytes` of numbers; returns their end, that of the readable memory. */
static unsigned char *fence(size_t bytes) {
    unsigned char *p = sn_memory_guarded(bytes);
    assert_non_null(p);
    for (size_t i = 0; i < bytes / sizeof(float); i++) {
        float x = (float)(i % 13) / 13;
        memcpy(p + i * sizeof x, &x, sizeof x);
    }
    return p + bytes;
}

typedef struct setting {
    const char *name, *target;
    int64_t queries;
    bool biased, gradient;
} setting;

static sn_tensor score_bias(const sn_score_ctx *c) {
    return sn_add(c->score, sn_at(c->captured[0], c->q, c->k));
}

static sn_module *build(const setting *s) {
    sn_module *m = sn_module_new("bounds");
    sn_dim keys = sn_symbol(m, "K", 1, MAX_KEYS);
    sn_tensor q = sn_input(m, "q", SN_F32, 1, H, s->queries, D);
    sn_tensor k = sn_input(m, "k", SN_F32, 1, HK, keys, D);
    sn_tensor v = sn_input(m, "v", SN_F32, 1, HK, keys, DV), g[3];
    sn_attention_args a = {q, k, v, .causal = !s->biased};
    if (s->biased) a.captured[0] = sn_input(m, "bias", SN_F32, s->queries, keys);
    if (s->biased) a.score = score_bias;
    sn_entry *e = sn_entry_add(m, "main");
    sn_tensor y = sn_attention_at(SN_HERE, &a);
    sn_entry_output(m, e, "y", y);
    if (!s->gradient) return m;
    sn_grad(sn_sum_all(y), 3, ((sn_tensor[]){q, k, v}), g);
    for (int i = 0; i < 3; i++) sn_entry_output(m, e, (const char *[]){"dq", "dk", "dv"}[i], g[i]);
    return m;
}

static void run_with(sn_session *session, const setting *s, int64_t keys, unsigned char *const *in,
                     float *out) {
    int64_t dims[N_IN][4] = {
        {1, H, s->queries, D}, {1, HK, keys, D}, {1, HK, keys, DV}, {s->queries, keys}};
    int64_t y_dims[4] = {1, H, s->queries, DV};
    const char *names[N_IN] = {"q", "k", "v", "bias"};
    sn_arg_binding arg[N_IN], result[4];
    sn_error err = {0};
    for (int i = 0; i < N_IN; i++) {
        int rank = i < 3 ? 4 : 2;
        size_t n = sizeof(float);
        for (int a = 0; a < rank; a++) n *= (size_t)dims[i][a];
        arg[i] = (sn_arg_binding){names[i], SN_F32, rank, dims[i], in[i] - n};
    }
    int64_t *shape[4] = {y_dims, dims[0], dims[1], dims[2]};
    const char *to[4] = {"y", "dq", "dk", "dv"};
    for (int i = 0; i < 4; i++)
        result[i] = (sn_arg_binding){to[i], SN_F32, 4, shape[i], out + i * H * MAX_KEYS * D};
    if (!sn_run(session, "main", arg, s->biased ? 4 : 3, result, s->gradient ? 4 : 1, &err))
        fail_msg("%s", err.message);
}

static void stays_inside(void **state) {
    const setting *s = *state;
    sn_error err = {0};
    sn_module *m = build(s);
    sn_options o = {.level = 4, .threads = 2, .target = s->target};
    sn_program *p = sn_compile(m, &o, &err);
    sn_session *session = p ? sn_session_new_arrays(p, NULL, 0, &err) : NULL;
    if (!session) fail_msg("%s", err.message);
    unsigned char *in[N_IN];
    float *out = calloc(4 * H * MAX_KEYS * D, sizeof *out);
    const size_t room[N_IN] = {H * MAX_QUERIES * D, HK * MAX_KEYS * D, HK * MAX_KEYS * DV,
                               MAX_QUERIES * MAX_KEYS};
    for (int i = 0; i < N_IN; i++) in[i] = fence(room[i] * sizeof(float));
    for (int64_t keys = 1; keys <= MAX_KEYS; keys += keys < 70 ? 1 : 53)
        run_with(session, s, keys, in, out);
    for (int i = 0; i < N_IN; i++) {
        size_t bytes = room[i] * sizeof(float);
        sn_memory_release_guarded(in[i] - bytes, bytes);
    }
    free(out);
    sn_session_free(session);
    sn_program_free(p);
    sn_module_free(m);
}

int main(void) {
    static setting all[] = {
        {"decoding", NULL, 1, false, false},
        {"decoding, x86-64-v3", "x86-64-v3", 1, false, false},
        {"decoding with a bias", NULL, 3, true, false},
        {"blocks with a bias", NULL, MAX_QUERIES, true, false},
        {"gradient", "x86-64-v3", MAX_QUERIES, false, true},
    };
    enum { N = sizeof all / sizeof *all };
    struct CMUnitTest tests[N];
    for (int i = 0; i < N; i++)
        tests[i] = (struct CMUnitTest){all[i].name, stays_inside, NULL, NULL, &all[i]};
    return cmocka_run_group_tests_name("attention_bounds", tests, scratch_make, scratch_end);
}
