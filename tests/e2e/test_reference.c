/* Whole models through compiled code against their references, at every fusion level, with both
 * back ends, one and two threads: logits, every named tensor, greedy tokens, and one program for
 * every length. SN_DATA_DIR (a folder with decoder/stories15M) adds a larger model. */
#include "codegen/backend.h"
#include "runtime/npy.h"
#include "model/sample.h"
#include "model/import/import.h"
#include "model/open.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include "tests/support/effort.h"
#include "tests/support/scratch.h"

#include <math.h>

#define MODELS SN_SOURCE_DIR "/examples/models/"
#define REFERENCE SN_SOURCE_DIR "/tests/data/reference/"

static const char *const stories = MODELS "stories260K/stories260K.bin";
static const char *const nano = MODELS "nano-gpt-sort/gpt-nano-sort-model.json";

/* ---- helpers ---- */

static void need(bool ok, const sn_error *err) {
    if (!ok) fail_msg("%s", err->message);
}

/* How to compile: every test runs over a table of these. */
typedef struct way {
    int level, threads;
    const char *backend;
} way;
static const way ways[] = {{0, 1, "native"}, {0, 2, "native"}, {1, 1, "native"}, {1, 2, "native"},
                           {2, 1, "native"}, {2, 2, "native"}, {3, 1, "native"}, {3, 2, "native"},
                           {4, 1, "native"}, {4, 2, "native"}, {4, 2, "onednn"}, {2, 1, "onednn"},
                           {0, 2, "onednn"}};

/* The last three need a library. */
static int count_ways(void) {
    return (int)(sizeof ways / sizeof *ways) - (sn_backend_library() ? 0 : 3);
}

/* The default run takes some levels and back ends with each test; `first` chooses which. */
static bool takes(int i, int first) {
    return effort_takes((size_t)(i / 2 + first), 4);
}

static open_model *load_way(const char *path, int entries, const way *w, const char *const *taps) {
    sn_error err = {0};
    open_options o = {.path = path, .entries = entries, .compile = sn_options_default()};
    o.compile.level = w->level;
    o.compile.threads = w->threads;
    o.compile.backend = w->backend;
    o.compile.cache_dir = scratch_path("cache");
    o.compile.taps = taps;
    o.compile.n_taps = taps ? 1 : 0;
    open_model *m = lm_open(&o, &err);
    need(m != NULL, &err);
    return m;
}

/* Largest difference; equal infinities do not differ. */
static double distance(const float *got, const float *want, int64_t n) {
    double worst = 0;
    for (int64_t i = 0; i < n; i++) {
        if (got[i] == want[i]) continue;
        double d = fabs((double)got[i] - want[i]);
        if (!(d <= worst)) worst = d; /* a NaN stays */
    }
    return worst;
}

static void close_to(const char *what, const way *w, const float *got, const float *want, int64_t n,
                     double bound) {
    double d = distance(got, want, n);
    if (!(d < bound))
        fail_msg("%s, level %d, %s, %d threads: off by %g", what, w->level, w->backend, w->threads,
                 d);
}

static void *allocate(int64_t n, size_t size) {
    void *p = calloc((size_t)n + 1, size);
    assert_non_null(p);
    return p;
}

/* Logits [T, V] of tokens [T], to be freed. */
static float *forward(open_model *m, const int32_t *tokens, int64_t T) {
    sn_error err = {0};
    float *logits = allocate(T * m->model.vocab, sizeof *logits);
    sn_arg_binding in = SN_BIND("tokens", SN_I32, (void *)(uintptr_t)tokens, 1, T);
    sn_arg_binding out = SN_BIND("logits", SN_F32, logits, 1, T, m->model.vocab);
    need(sn_run(m->session, "forward", &in, 1, &out, 1, &err), &err);
    return logits;
}

static void no_recompilation(const open_model *m) {
    assert_int_equal(sn_program_stats(m->program).recompilations, 0);
}

/* ---- a model of the llama2.c format and its reference folder ---- */

typedef struct reference {
    sn_npy ids, logits;
    int64_t rows; /* of logits */
} reference;

static reference open_reference(const char *ids, const char *logits) {
    sn_error err = {0};
    reference r;
    need(sn_npy_open(ids, &r.ids, &err), &err);
    need(sn_npy_open(logits, &r.logits, &err), &err);
    assert_int_equal(r.ids.dtype, SN_I32);
    r.rows = r.logits.shape[0];
    return r;
}

static void close_reference(reference *r) {
    sn_npy_free(&r->ids);
    sn_npy_free(&r->logits);
}

/* Thread count changes no bit in native kernels: the two ways of a level must agree exactly. */
static void check_logits(const char *path, const reference *r) {
    float *before = NULL;
    for (int i = 0; i < count_ways(); i++) {
        if (!takes(i, 0)) continue;
        open_model *m = load_way(path, SN_FORWARD, &ways[i], NULL);
        int64_t n = r->rows * m->model.vocab;
        float *logits = forward(m, r->ids.data, r->rows);
        assert_int_equal(r->logits.count, n);
        close_to("logits", &ways[i], logits, r->logits.data, n, 1e-4);
        bool same = i && ways[i].level == ways[i - 1].level && !strcmp(ways[i].backend, "native");
        if (same) assert_memory_equal(before, logits, sizeof *logits * (size_t)n);
        no_recompilation(m);
        free(before);
        before = logits;
        model_close(m);
    }
    free(before);
}

static void check_tokens(const char *path, const reference *r, const way *w) {
    sn_error err = {0};
    const int32_t *ids = r->ids.data;
    open_model *m = load_way(path, SN_CACHED, w, NULL);
    for (int64_t i = 0; i + 1 < r->ids.count; i++) {
        need(lm_feed(m, &ids[i], 1, &err), &err);
        int32_t next = (int32_t)sn_sample_largest(m->io->logits, (size_t)m->model.vocab);
        if (next != ids[i + 1])
            fail_msg("token %d is %d, not %d (level %d, %s)", (int)i, (int)next, (int)ids[i + 1],
                     w->level, w->backend);
    }
    no_recompilation(m);
    model_close(m);
}

static void stories_logits(void **state) {
    (void)state;
    reference r = open_reference(REFERENCE "stories260K/greedy_ids.npy",
                                 REFERENCE "stories260K/logits_first_64.npy");
    check_logits(stories, &r);
    close_reference(&r);
}

static void stories_tokens(void **state) {
    (void)state;
    reference r = open_reference(REFERENCE "stories260K/greedy_ids.npy",
                                 REFERENCE "stories260K/logits_first_64.npy");
    assert_int_equal(r.ids.count, 201);
    for (int i = 0; i < count_ways(); i++)
        if (takes(i, 3)) check_tokens(stories, &r, &ways[i]);
    close_reference(&r);
}

static void larger_stories(void **state) {
    (void)state;
    const char *data = getenv("SN_DATA_DIR");
    char path[3][1024];
    static const char *const names[] = {"stories15M.bin", "reference/greedy_ids.npy",
                                        "reference/logits_first_8.npy"};
    for (int i = 0; i < 3; i++)
        snprintf(path[i], sizeof path[i], "%s/decoder/stories15M/%s", data ? data : "", names[i]);
    if (!data || !sn_file_exists(path[0])) {
        print_message("skipped: SN_DATA_DIR names no folder with decoder/stories15M\n");
        skip();
    }
    reference r = open_reference(path[1], path[2]);
    assert_int_equal(r.ids.count, 101);
    check_logits(path[0], &r);
    check_tokens(path[0], &r, &(way){4, 2, "native"});
    if (sn_backend_library()) check_tokens(path[0], &r, &(way){4, 2, "onednn"});
    check_tokens(path[0], &r, &(way){0, 1, "native"});
    close_reference(&r);
}

/* ---- nano-gpt-sort: every tensor of the reference run, read out by name ---- */

static void nano_tensors(const import_list *ref, const way *w) {
    static const char *const in_layer[] = {"ln1", "q",     "k",    "v",     "qkv",
                                           "att", "attSm", "y",    "yProj", "attnResid",
                                           "ln2", "fc",    "gelu", "mlp",   "mlpResid"};
    static const char *const outside[] = {"tok_emb", "pos_emb", "x",       "block0", "block1",
                                          "block2",  "ln_f",    "lm_head", "probs"};
    enum { IN = sizeof in_layer / sizeof *in_layer, OUT = sizeof outside / sizeof *outside };
    static const char *const all[] = {"*"};
    sn_error err = {0};
    const float *idx = import_find(ref, "idx")->data;
    int32_t tokens[33];
    for (int i = 0; i < 33; i++) tokens[i] = (int32_t)idx[i];
    assert_int_equal(ref->count, IN + OUT + 1); /* and idx: none is left out */
    open_model *m = load_way(nano, SN_FORWARD, w, all);
    sn_arg_binding in = SN_BIND("tokens", SN_I32, tokens, 3, 11), out[IN + OUT];
    char name[IN + OUT][64];
    const sn_weight *want[IN + OUT];
    for (int i = 0; i < IN + OUT; i++) {
        const char *theirs = i < IN ? in_layer[i] : outside[i - IN];
        snprintf(name[i], sizeof name[i], "%s%s", i < IN ? "h.0." : "", theirs);
        want[i] = import_find(ref, theirs);
        assert_non_null(want[i]);
        out[i] = (sn_arg_binding){name[i], SN_F32, want[i]->rank, want[i]->shape,
                                  allocate(sn_weight_elements(want[i]), sizeof(float))};
    }
    need(sn_run(m->session, "forward", &in, 1, out, IN + OUT, &err), &err);
    for (int i = 0; i < IN + OUT; i++) {
        close_to(name[i], w, out[i].data, want[i]->data, sn_weight_elements(want[i]), 1e-5);
        free(out[i].data);
    }
    model_close(m);
}

static void nano_every_tensor(void **state) {
    (void)state;
    sn_error err = {0};
    import_list ref = {0};
    need(json_tensors_read(REFERENCE "nano-gpt-sort/gpt-nano-sort-t0-partials.json", &ref, NULL,
                           &err),
         &err);
    for (int i = 0; i < count_ways(); i++)
        if (takes(i, 2)) nano_tensors(&ref, &ways[i]);
    import_list_free(&ref);
}

/* The model does what it was trained for: all 729 inputs come out sorted. */
static void nano_sorts(void **state) {
    (void)state;
    sn_error err = {0};
    open_model *m = load_way(nano, SN_CACHED, &(way){4, 2, "native"}, NULL);
    int wrong = 0;
    for (int code = 0; code < 729; code++) {
        int32_t digit[6], count[3] = {0}, next;
        for (int i = 0, c = code; i < 6; i++, c /= 3) count[digit[i] = c % 3]++;
        lm_reset(m);
        need(lm_feed(m, digit, 6, &err), &err);
        bool sorted = true;
        for (int i = 0; i < 6; i++) {
            next = (int32_t)sn_sample_largest(m->io->logits, 3);
            sorted &= next == (i < count[0] ? 0 : i < count[0] + count[1] ? 1 : 2);
            if (i < 5) need(lm_feed(m, &next, 1, &err), &err);
        }
        wrong += !sorted;
    }
    no_recompilation(m);
    model_close(m);
    assert_int_equal(wrong, 0);
}

/* ---- GPT-2 124M ---- */

static open_model *open_gpt2(const way *w) {
    sn_error err = {0};
    open_options o = {.preset = "gpt2", .entries = SN_FORWARD, .compile = sn_options_default()};
    o.compile.level = w->level;
    o.compile.threads = w->threads;
    o.compile.backend = w->backend;
    o.compile.cache_dir = scratch_path("cache");
    open_model *m = lm_open(&o, &err);
    need(m != NULL, &err);
    return m;
}

static void fill_tokens(int32_t *tokens, int n) {
    uint64_t seed = 5;
    for (int i = 0; i < n; i++) tokens[i] = (int32_t)(next_random(&seed) % 50257);
}

/* One program serves every length from 1 to 1024; a prefix's logits do not depend on what follows
 * (SPEC property 1), up to the rounding of other tiles. */
static void gpt2_every_length(void **state) {
    (void)state;
    static const int lengths[] = {1024, 1, 2, 15, 64, 257};
    enum { V = 50257 };
    int32_t tokens[1024];
    fill_tokens(tokens, 1024);
    const way w = {4, 2, "auto"};
    open_model *m = open_gpt2(&w);
    assert_true(model_parameters(m) == 124439808);
    float *all = forward(m, tokens, 1024);
    for (size_t i = 1; i < sizeof lengths / sizeof *lengths; i++) {
        float *logits = forward(m, tokens, lengths[i]);
        close_to("a shorter run", &w, logits, all, (int64_t)lengths[i] * V, 1e-4);
        free(logits);
    }
    free(all);
    no_recompilation(m);
    model_close(m);
}

static void gpt2_levels_agree(void **state) {
    (void)state;
    if (!effort_is_long()) skip(); /* smaller models: test_decoder, spec_table */
    enum { V = 50257, T = 33 };
    int32_t tokens[T];
    fill_tokens(tokens, T);
    float *first = NULL;
    for (int level = 0; level <= 4; level++) {
        const way w = {level, 2, "native"};
        open_model *m = open_gpt2(&w);
        float *logits = forward(m, tokens, T);
        if (first) {
            close_to("levels", &w, logits, first, (int64_t)T * V, 1e-4);
            free(logits);
        } else {
            first = logits;
        }
        model_close(m);
    }
    free(first);
}

int main(int argc, char **argv) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(stories_logits),    cmocka_unit_test(stories_tokens),
        cmocka_unit_test(nano_every_tensor), cmocka_unit_test(nano_sorts),
        cmocka_unit_test(larger_stories),
    };
    const struct CMUnitTest large[] = {
        cmocka_unit_test(gpt2_every_length),
        cmocka_unit_test(gpt2_levels_agree),
    };
    return argc > 1 && !strcmp(argv[1], "gpt2")
               ? cmocka_run_group_tests(large, scratch_make, scratch_end)
               : cmocka_run_group_tests(tests, scratch_make, scratch_end);
}
