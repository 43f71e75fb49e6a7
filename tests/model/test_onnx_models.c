/* ONNX files as the models that commands run: decoders whose past tokens are in states, embeddings and classes give what
 * torch gives; files with other inputs are refused. */
#include "codegen/aot/aot.h"
#include "driver/npz.h"
#include "ir/ir.h"
#include "model/embedder.h"
#include "model/open.h"
#include "model/transcribe.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>
#include "tests/support/protobuf.h"

#include "tests/support/artefact.h"

#define DATA SN_SOURCE_DIR "/tests/data/onnx/"

typedef struct wanted {
    const char *name;
    sn_npy array;
} wanted;

static bool keep(void *ctx, const char *name, sn_npy *a, sn_error *err) {
    wanted *w = ctx;
    (void)err;
    if (!strcmp(name, w->name))
        w->array = *a;
    else
        sn_npy_free(a);
    return true;
}

/* An array of what torch was given or said. */
static sn_npy torch_array(const char *file, const char *name) {
    wanted w = {.name = name};
    sn_error e = {0};
    if (!npz_read(file, keep, &w, &e)) fail_msg("%s", e.message);
    assert_non_null(w.array.data);
    return w.array;
}

static open_model *open_for(const char *path, int entries, sn_error *e) {
    static char cache[96];
    snprintf(cache, sizeof cache, "%s/cache", scratch_dir);
    return lm_open(
        &(open_options){
            .path = path,
            .entries = entries,
            .any_model = entries != SN_CACHED,
            .compile = {.level = 4, .backend = "native", .cache_dir = cache, .threads = 2}},
        e);
}

static void expect_near(const float *x, const float *y, int64_t n, const char *what) {
    float worst = 0, largest = 0;
    for (int64_t i = 0; i < n; i++) {
        worst = fmaxf(worst, fabsf(x[i] - y[i]));
        largest = fmaxf(largest, fabsf(y[i]));
    }
    if (!(worst <= 1e-5f * largest)) fail_msg("%s: differs by %g of %g", what, worst, largest);
}

/* Nothing joins past tokens with new ones: the states are written where they are. */
static void expect_in_place(open_model *m, int states) {
    for (int k = 0; k < 2; k++) {
        const sn_entry *e = sn_entry_get(m->model.module, k ? "decode" : "prefill");
        assert_non_null(e);
        assert_int_equal(e->n_assign, states);
        assert_int_equal(e->n_output, 1);
        sn_order order = sn_entry_topo(m->model.module, e);
        for (int i = 0; i < order.n; i++) {
            const sn_node *n = order.node[i];
            if (n->op == SN_OP_concat)
                for (int j = 0; j < n->n_in; j++)
                    assert_true(n->in[j]->op != SN_OP_slice || n->in[j]->in[0]->op != SN_OP_state);
        }
    }
}

/* The logits of token after token are those that the graph without past gives for all of them at once. */
static void test_decoder(void **state) {
    enum { V = 11, N = 9, FIRST = 4 };
    static const int32_t ids[N] = {1, 7, 3, 10, 0, 5, 5, 2, 9};
    int64_t all[N], mask[N], at[N];
    float logits[N][V];
    sn_error e = {0};
    (void)state;
    open_model *m = open_for(DATA "llama.onnx", SN_FORWARD, &e);
    if (!m) fail_msg("%s", e.message);
    for (int i = 0; i < N; i++) all[i] = ids[i], mask[i] = 1, at[i] = i;
    sn_arg_binding in[] = {SN_BIND("input_ids", SN_I64, all, 1, N),
                           SN_BIND("attention_mask", SN_I64, mask, 1, N),
                           SN_BIND("position_ids", SN_I64, at, 1, N)};
    sn_arg_binding out = SN_BIND("logits", SN_F32, logits, 1, N, V);
    if (!sn_run(m->session, "forward", in, 3, &out, 1, &e)) fail_msg("%s", e.message);
    model_close(m);

    m = open_for(DATA "llama_past.onnx", SN_CACHED, &e);
    if (!m) fail_msg("%s", e.message);
    assert_int_equal(m->model.vocab, V);
    expect_in_place(m, 2);
    assert_true(lm_feed(m, ids, FIRST, &e));
    expect_near(m->io->logits, logits[FIRST - 1], V, "prefill");
    for (int i = FIRST; i < N - 2; i++) {
        assert_true(lm_feed(m, ids + i, 1, &e));
        expect_near(m->io->logits, logits[i], V, "decode");
    }
    assert_true(lm_feed(m, ids + N - 2, 2, &e)); /* several tokens after others */
    expect_near(m->io->logits, logits[N - 1], V, "prefill after tokens");
    model_close(m);
}

/* Logits of the last of n tokens, by the graph as it is. */
static void whole_logits(open_model *m, const int32_t *ids, int64_t n, float *logits) {
    enum { V = 11, MAX = 16 };
    int64_t all[MAX], mask[MAX], at[MAX];
    float y[MAX][V];
    sn_error e = {0};
    for (int i = 0; i < n; i++) all[i] = ids[i], mask[i] = 1, at[i] = i;
    sn_arg_binding in[] = {SN_BIND("input_ids", SN_I64, all, 1, n),
                           SN_BIND("attention_mask", SN_I64, mask, 1, n),
                           SN_BIND("position_ids", SN_I64, at, 1, n)};
    sn_arg_binding out = SN_BIND("logits", SN_F32, y, 1, n, V);
    if (!sn_run(m->session, "forward", in, 3, &out, 1, &e)) fail_msg("%s", e.message);
    memcpy(logits, y[n - 1], sizeof *y);
}

/* Several sequences of different lengths decode together, and each gets what it would get alone; a row is begun again. */
static void test_rows(void **state) {
    enum { V = 11, ROWS = 3, STEPS = 3 };
    static const struct {
        int row, n;
        int32_t ids[6];
    } starts[] = {{0, 2, {1, 7}}, {1, 5, {3, 10, 0, 5, 5}}, {2, 1, {4}}, {1, 2, {9, 2}}};
    int32_t text[ROWS][16], past[ROWS], next[ROWS];
    float logits[ROWS][V], wanted[V];
    sn_error e = {0};
    (void)state;
    open_model *whole = open_for(DATA "llama.onnx", SN_FORWARD, &e);
    open_model *m = lm_open(
        &(open_options){
            .path = DATA "llama_past.onnx",
            .entries = SN_CACHED,
            .sequences = ROWS,
            .compile = {.level = 4, .backend = "native", .cache_dir = "none", .threads = 2}},
        &e);
    if (!whole || !m) fail_msg("%s", e.message);
    for (size_t s = 0; s < sizeof starts / sizeof *starts; s++) {
        const int row = starts[s].row;
        sn_arg_binding in[] = {
            SN_BIND("tokens", SN_I32, (void *)(uintptr_t)starts[s].ids, 1, starts[s].n),
            SN_BIND_DIM("P", 0), SN_BIND_DIM("R", row)};
        sn_arg_binding out = SN_BIND("logits", SN_F32, logits[row], 1, V);
        if (!sn_run(m->session, "prefill", in, 3, &out, 1, &e)) fail_msg("%s", e.message);
        memcpy(text[row], starts[s].ids, sizeof starts[s].ids);
        past[row] = starts[s].n;
        whole_logits(whole, text[row], past[row], wanted);
        expect_near(logits[row], wanted, V, "prefill of a row");
        if (s < 2) continue;
        for (int k = 0; k < STEPS; k++) {
            int32_t longest = 0;
            for (int r = 0; r < ROWS; r++) {
                text[r][past[r]] = next[r] = (3 * r + 5 * k + 1) % V;
                longest = past[r] > longest ? past[r] : longest;
            }
            sn_arg_binding step[] = {SN_BIND("tokens", SN_I32, next, ROWS, 1),
                                     SN_BIND("past", SN_I32, past, ROWS),
                                     SN_BIND_DIM("P", longest)};
            sn_arg_binding all = SN_BIND("logits", SN_F32, logits, ROWS, V);
            if (!sn_run(m->session, "decode", step, 3, &all, 1, &e)) fail_msg("%s", e.message);
            for (int r = 0; r < ROWS; r++) {
                whole_logits(whole, text[r], ++past[r], wanted);
                expect_near(logits[r], wanted, V, "a row of decode");
            }
        }
    }
    model_close(m);
    model_close(whole);
    assert_null(lm_open(
        &(open_options){.path = DATA "gpt_past.onnx", .entries = SN_CACHED, .sequences = 2}, &e));
    assert_non_null(strstr(e.message, "it has no input 'attention_mask'"));
}

/* A table of positions, or of what is visible, limits the context of all entries. */
static void test_context(void **state) {
    static const struct {
        const char *file;
        int64_t context;
    } cases[] = {{DATA "gpt_past.onnx", 64}, {DATA "llama_past.onnx", 2048}};
    (void)state;
    for (int i = 0; i < 2; i++) {
        sn_error e = {0};
        open_model *m = lm_open(
            &(open_options){.path = cases[i].file, .entries = SN_CACHED, .build_only = true}, &e);
        if (!m) fail_msg("%s", e.message);
        assert_int_equal(m->model.context, cases[i].context);
        expect_in_place(m, 2);
        model_close(m);
    }
}

/* All of the context can be used, by steps of any number of tokens, and not one token more. */
static void test_whole_context(void **state) {
    enum { CONTEXT = 64 };
    static const int64_t first[] = {1, CONTEXT - 1, CONTEXT};
    static const int32_t ids[CONTEXT];
    (void)state;
    for (int i = 0; i < 3; i++) {
        sn_error e = {0};
        open_model *m = open_for(DATA "gpt_past.onnx", SN_CACHED, &e);
        if (!m || !lm_feed(m, ids, first[i], &e) ||
            (first[i] < CONTEXT && !lm_feed(m, ids, CONTEXT - first[i], &e)))
            fail_msg("%d: %s", i, e.message);
        assert_false(lm_feed(m, ids, 1, &e));
        expect_error(&e, SN_ERR_RANGE, "64", "context");
        e = (sn_error){0};
        float logits[11];
        sn_arg_binding in[] = {SN_BIND("tokens", SN_I32, (void *)(uintptr_t)ids, 1, 1),
                               SN_BIND_DIM("P", CONTEXT)},
                       out = SN_BIND("logits", SN_F32, logits, 1, 11);
        assert_false(sn_run(m->session, "decode", in, 2, &out, 1, &e));
        expect_error(&e, SN_ERR_RANGE, "P", "63");
        model_close(m);
    }
}

/* What the object's header declares. */
typedef struct object {
    const void *weights;
    int64_t bytes, threads;
    void *pool;
    int32_t target, mapped;
} object;

/* An object has the bits of the JIT: after a prompt, and after one more token. */
static void test_object(void **state) {
    enum { V = 11, N = 5, STATE = 1 << 20 };
    static const int32_t ids[N + 1] = {1, 7, 3, 10, 0, 5};
    int (*open)(object *, const char *), (*begin)(const object *, void *);
    int (*prefill)(const object *, void *, void *, int64_t, int64_t, const int32_t *, float *);
    int (*decode)(const object *, void *, void *, int64_t, const int32_t *, float *);
    int64_t (*workspace)(const object *, int64_t, int64_t);
    void (*end)(object *);
    float got[2][V];
    object o = {0};
    sn_error e = {0};
    (void)state;
    open_model *m = open_for(DATA "llama_past.onnx", SN_CACHED, &e);
    if (!m) fail_msg("%s", e.message);
    sn_emit_options eo = sn_emit_options_default();
    eo.name = "llama";
    eo.dir = scratch_dir;
    eo.compile = m->compiled;
    if (!sn_emit(m->session, &eo, &e)) fail_msg("%s", e.message);
    const artefact_symbol symbols[] = {{&open, "llama_open"},
                                       {&begin, "llama_state_init"},
                                       {&prefill, "llama_prefill"},
                                       {&decode, "llama_decode"},
                                       {&workspace, "llama_prefill_workspace"},
                                       {&end, "llama_close"}};
    void *lib = artefact_load("llama", symbols, 6);
    assert_int_equal(open(&o, scratch_path("llama.weights")), 0);
    const int64_t bytes = workspace(&o, 64, 0);
    void *memory = aligned_alloc(64, STATE),
         *work = aligned_alloc(64, (size_t)(bytes + 63) / 64 * 64);
    assert_true(bytes > 0 && memory && work);
    assert_int_equal(begin(&o, memory), 0);
    assert_int_equal(prefill(&o, memory, work, N, 0, ids, got[0]), 0);
    assert_int_equal(decode(&o, memory, work, N, ids + N, got[1]), 0);
    assert_true(lm_feed(m, ids, N, &e));
    assert_memory_equal(got[0], m->io->logits, sizeof got[0]);
    assert_true(lm_feed(m, ids + N, 1, &e));
    assert_memory_equal(got[1], m->io->logits, sizeof got[1]);
    end(&o);
    dlclose(lib);
    free(memory);
    free(work);
    model_close(m);
}

/* A folder with config, and the file in a folder in it; the config says how to pool. */
static void test_embeddings(void **state) {
    static const char *const pooling[] = {"mean", "cls"};
    static const char modules[] = "[{\"idx\":0,\"name\":\"0\",\"path\":\"\",\"type\":\"sentence_"
                                  "transformers.models.Transformer\"},"
                                  "{\"idx\":1,\"name\":\"1\",\"path\":\"1_Pooling\",\"type\":"
                                  "\"sentence_transformers.models.Pooling\"}]";
    (void)state;
    sn_npy ids = torch_array(DATA "encoder.npz", "in.input_ids"),
           hidden = torch_array(DATA "encoder.npz", "out.last_hidden_state");
    const int64_t T = ids.shape[1], d = hidden.shape[2];
    char text[200] = "", file[300], config[200];
    for (int64_t i = 0; i < T; i++)
        snprintf(text + strlen(text), sizeof text - strlen(text), "%lld ",
                 (long long)((int64_t *)ids.data)[i]);
    sn_mapping onnx;
    sn_error e = {0};
    assert_true(sn_file_map(DATA "encoder.onnx", &onnx, &e));
    mkdir(scratch_path("model"), 0755);
    mkdir(scratch_path("model/onnx"), 0755);
    mkdir(scratch_path("model/1_Pooling"), 0755);
    assert_true(scratch_write(scratch_path("model/onnx/model.onnx"), onnx.data, onnx.size));
    assert_true(scratch_write(scratch_path("model/modules.json"), modules, strlen(modules)));
    snprintf(config, sizeof config, "{\"model_type\":\"bert\",\"max_position_embeddings\":32}");
    assert_true(scratch_write(scratch_path("model/config.json"), config, strlen(config)));
    snprintf(file, sizeof file, "%s", scratch_path("model/onnx/model.onnx"));
    for (int k = 0; k < 2; k++) {
        snprintf(config, sizeof config, "{\"word_embedding_dimension\":%d,\"pooling_mode\":\"%s\"}",
                 (int)d, pooling[k]);
        assert_true(
            scratch_write(scratch_path("model/1_Pooling/config.json"), config, strlen(config)));
        sn_options compile = {.level = 4, .cache_dir = scratch_path("cache")};
        sn_embedder *m = sn_embedder_open(k ? file : scratch_path("model"),
                                          &(sn_lm_options){.compile = &compile}, &e);
        if (!m) fail_msg("%s", e.message);
        assert_int_equal(sn_embedder_width(m), d);
        float *out = calloc((size_t)d, sizeof *out), *want = calloc((size_t)d, sizeof *want);
        assert_true(sn_embedder_embed(m, text, out, &e));
        for (int64_t i = 0; i < (k ? 1 : T); i++) /* of the first text, which has no padding */
            for (int64_t c = 0; c < d; c++)
                want[c] += ((float *)hidden.data)[i * d + c] / (float)(k ? 1 : T);
        expect_near(out, want, d, pooling[k]);
        free(out);
        free(want);
        sn_embedder_close(m);
    }
    sn_file_unmap(&onnx);
    sn_npy_free(&ids);
    sn_npy_free(&hidden);
}

static void test_classes(void **state) {
    sn_error e = {0};
    float logits[2][10];
    (void)state;
    sn_npy x = torch_array(DATA "vit.npz", "in.pixel_values"),
           y = torch_array(DATA "vit.npz", "out.logits");
    open_model *m = open_for(DATA "vit.onnx", SN_FORWARD | SN_CLASSIFY, &e);
    if (!m) fail_msg("%s", e.message);
    assert_int_equal(m->model.labels, 10);
    assert_int_equal(m->model.image, 32);
    assert_int_equal(m->model.channels, 3);
    sn_arg_binding in = SN_BIND("pixels", SN_F32, x.data, 2, 3, 32, 32),
                   out = SN_BIND("logits", SN_F32, logits, 2, 10);
    assert_true(sn_run(m->session, "forward", &in, 1, &out, 1, &e));
    expect_near(logits[0], y.data, 20, "vit");
    model_close(m);
    sn_npy_free(&x);
    sn_npy_free(&y);

    m = lm_open(&(open_options){.path = DATA "bert.onnx",
                                .entries = SN_FORWARD | SN_CLASSIFY,
                                .any_model = true,
                                .build_only = true},
                &e); /* logits of each token */
    if (!m) fail_msg("%s", e.message);
    assert_true(m->model.per_token && m->model.labels == 11 && m->model.context == 64);
    model_close(m);
}

/* One token for each of two beams; the first one's logits, or both, are those after this token in torch's run. */
static void decode_pair(open_model *m, const int32_t *tokens, int32_t past, int32_t n, bool both,
                        const float *want) {
    enum { V = 11 };
    float logits[2][V];
    sn_error e = {0};
    sn_arg_binding in[] = {SN_BIND("tokens", SN_I32, (void *)(uintptr_t)tokens, 2, 1),
                           SN_BIND_DIM("P", past), SN_BIND_DIM("S", n),
                           SN_BIND("lengths", SN_I32, &n, 1)};
    sn_arg_binding out = SN_BIND("logits", SN_F32, logits, 2, V);
    const int n_in = m->model.hop ? 3 : m->model.mel ? 2 : 4;
    if (!sn_run(m->session, "decode", in, n_in, &out, 1, &e)) fail_msg("%s", e.message);
    for (int i = 0; i < 1 + both; i++) expect_near(logits[i], want, V, "decode of a pair");
}

/* What torch was given, and said. */
typedef struct pair_reference {
    sn_npy source, lengths, ids, logits;
} pair_reference;

/* Runs the encoder on row r of the sources; its length. */
static int32_t encode_pair(open_model *m, const pair_reference *y, int r) {
    sn_error e = {0};
    const int64_t *shape = y->source.shape, *numbers = y->source.data;
    const bool samples = m->model.hop != 0;
    const int32_t n = (int32_t)((int64_t *)y->lengths.data)[r];
    int32_t words[16] = {0}, length = n;
    const int64_t size = samples ? shape[1] : m->model.mel ? shape[1] * shape[2] : 0;
    float *const sound = (float *)y->source.data + r * size;
    sn_arg_binding text[] = {SN_BIND("source", SN_I32, words, 1, n),
                             SN_BIND("lengths", SN_I32, &length, 1)},
                   wave[] = {SN_BIND("samples", SN_F32, sound, 1, shape[1]), SN_BIND_DIM("S", n)},
                   features = SN_BIND("features", SN_F32, sound, 1, shape[1], shape[2]);
    for (int i = 0; !m->model.mel && i < n; i++) words[i] = (int32_t)numbers[r * shape[1] + i];
    sn_session_reset(m->session);
    const bool ok = samples        ? sn_run(m->session, "prefill", wave, 2, NULL, 0, &e)
                    : m->model.mel ? sn_run(m->session, "prefill", &features, 1, NULL, 0, &e)
                                   : sn_run(m->session, "prefill", text, 2, NULL, 0, &e);
    if (!ok) fail_msg("%s", e.message);
    return n;
}

/* Token by token in two beams: the second one goes astray until it continues the first one. */
static void follow_pair(open_model *m, const pair_reference *y) {
    enum { V = 11, STRAY = 3 };
    const int T = (int)y->ids.shape[1];
    sn_error e = {0};
    for (int r = 0; r < 2; r++) {
        const int32_t n = encode_pair(m, y, r);
        for (int t = 0; t < T; t++) {
            const int32_t right = (int32_t)((int64_t *)y->ids.data)[r * T + t],
                          tokens[2] = {right, (right + (t < STRAY)) % V};
            sn_arg_binding parents = SN_BIND("parents", SN_I32, ((int32_t[]){0, 0}), 2);
            if (t == STRAY) assert_true(sn_run(m->session, "reorder", &parents, 1, NULL, 0, &e));
            decode_pair(m, tokens, t, n, t >= STRAY, (float *)y->logits.data + (r * T + t) * V);
        }
    }
}

/* Encoder-decoders of several files, with and without a merged decoder. */
static void test_pairs(void **state) {
    static const char *const cases[][2] = {
        {"text", ""}, {"near", "/decoder_model_merged.onnx"}, {"sound", ""}, {"samples", ""}};
    (void)state;
    for (size_t k = 0; k < sizeof cases / sizeof *cases; k++) {
        char path[256];
        snprintf(path, sizeof path, DATA "%s/reference.npz", cases[k][0]);
        pair_reference y = {torch_array(path, "source"), torch_array(path, "lengths"),
                            torch_array(path, "ids"), torch_array(path, "logits")};
        snprintf(path, sizeof path, DATA "%s%s", cases[k][0], cases[k][1]);
        sn_error e = {0};
        open_model *m = lm_open(
            &(open_options){
                .path = path,
                .entries = SN_CACHED,
                .any_model = true,
                .beams = 2,
                .compile = {.level = 4, .backend = "native", .cache_dir = "none", .threads = 2}},
            &e);
        if (!m) fail_msg("%s", e.message);
        assert_int_equal(m->model.context, 64);
        assert_int_equal(m->model.vocab, 11);
        assert_int_equal(m->model.source_vocab, y.source.dtype == SN_I64 ? 11 : 0);
        if (m->model.hop) assert_true(m->model.hop == 48 && m->model.lead == 48);
        follow_pair(m, &y);
        model_close(m);
        sn_npy_free(&y.source);
        sn_npy_free(&y.lengths);
        sn_npy_free(&y.ids);
        sn_npy_free(&y.logits);
    }
}

/* The ends of the parts of a sound, in seconds, and its first tokens. */
typedef struct parts {
    double end[8];
    int n;
    int32_t ids[32];
} parts;

static bool take_part(void *user, double begin, double end, const int32_t *ids, int64_t n,
                      sn_error *err) {
    parts *p = user;
    (void)err;
    for (int i = 0; !p->n && i < 32; i++) p->ids[i] = i < n ? ids[i] : -1;
    assert_true(n > 0 && p->n < 8 && fabs(begin - (p->n ? p->end[p->n - 1] : 0)) < 1e-9);
    p->end[p->n++] = end;
    return true;
}

static open_model *open_samples(const char *path, sn_error *e) {
    return lm_open(
        &(open_options){.path = path,
                        .entries = SN_CACHED,
                        .any_model = true,
                        .compile = {.level = 4, .backend = "native", .cache_dir = "none"}},
        e);
}

static audio chirp(int n, float factor, float offset) {
    audio a = {.sample = malloc(sizeof(float) * (size_t)n), .n = (size_t)n, .rate = 16000};
    assert_non_null(a.sample);
    for (int i = 0; i < n; i++) a.sample[i] = factor * sinf((float)i * (float)i * 1e-4F) + offset;
    return a;
}

static parts hear(open_model *m, audio a) {
    sn_error e = {0};
    parts p = {.n = 0};
    transcribe_options o = {.sink = take_part, .user = &p};
    if (!transcribe(m, &a, &o, &e)) fail_msg("%s", e.message);
    audio_free(&a);
    return p;
}

/* A model of samples reads 1500 positions at once. Longer sound is divided where it is quiet. */
static void test_samples(void **state) {
    enum { WINDOW = 48 * 1501, N = 100000, QUIET = 40000, LOUD = 45000 };
    sn_error e = {0};
    audio a = chirp(N, 1, 0);
    (void)state;
    for (int i = QUIET; i < LOUD; i++) a.sample[i] *= 1e-3F;
    open_model *m = open_samples(DATA "samples", &e);
    if (!m) fail_msg("%s", e.message);
    assert_int_equal(m->model.frames, WINDOW);
    const parts p = hear(m, a);
    assert_int_equal(p.n, 2);
    assert_true(p.end[0] > QUIET / 16e3 && p.end[0] <= LOUD / 16e3 + 0.05);
    assert_true(fabs(p.end[1] - N / 16e3) < 1e-9);
    assert_true(hear(m, chirp(3, 1, 0)).n == 1); /* less than a position */
    transcribe_options o = {.timestamps = true};
    a = chirp(10, 1, 0);
    assert_false(transcribe(m, &a, &o, &e));
    expect_error(&e, SN_ERR_USAGE, "decoder_model_merged", "--timestamps");
    audio_free(&a);
    model_close(m);
}

/* Copies the folder; `fixed`: its encoder takes 336 samples. */
static void copy_samples(bool fixed) {
    static const char *const names[] = {"encoder_model.onnx", "decoder_model_merged.onnx",
                                        "config.json"};
    static const char param[] = "\x12\x0bnum_samples",
                      value[] = "\x08\x01\x08\xd0\x82\x80\x80\x80\x80\x80\x80\x80";
    mkdir(scratch_path("samples"), 0755);
    for (int i = 0; i < 3; i++) {
        char from[256], to[64];
        sn_mapping map;
        sn_error e = {0};
        snprintf(from, sizeof from, DATA "samples/%s", names[i]);
        snprintf(to, sizeof to, "samples/%s", names[i]);
        if (!sn_file_map(from, &map, &e)) fail_msg("%s", e.message);
        char data[1 << 17];
        assert_true(map.size <= sizeof data && memcpy(data, map.data, map.size));
        if (fixed && !i)
            memcpy(memmem(data, map.size, param, sizeof param - 1), value, sizeof value);
        assert_true(scratch_write(scratch_path(to), data, map.size));
        sn_file_unmap(&map);
    }
}

static bool same_parts(const parts *a, const parts *b) {
    return a->n == b->n && !memcmp(a->ids, b->ids, sizeof a->ids) &&
           !memcmp(a->end, b->end, sizeof *a->end * (size_t)a->n);
}

static double longest(const parts *p) {
    double most = p->end[0];
    for (int i = 1; i < p->n; i++) most = fmax(most, p->end[i] - p->end[i - 1]);
    return most;
}

/* preprocessor_config.json says the rate, and whether the sound is normalised. */
static void test_prepared_samples(void **state) {
    static const char json[] = "{\"sampling_rate\": 8000, \"do_normalize\": true}",
                      wrong[] = "{\"sampling_rate\": 10}";
    enum { N = 150000 };
    sn_error e = {0};
    (void)state;
    copy_samples(false);
    open_model *m = open_samples(scratch_path("samples"), &e);
    if (!m) fail_msg("%s", e.message);
    parts plain = hear(m, chirp(N, 1, 0)), quiet = hear(m, chirp(N, 0.01F, 0.3F));
    assert_true(!same_parts(&plain, &quiet) && longest(&plain) <= 1501 * 48 / 16e3);
    const char *path = scratch_path("samples/preprocessor_config.json");
    assert_true(scratch_write(path, json, strlen(json)));
    plain = hear(m, chirp(N, 1, 0)), quiet = hear(m, chirp(N, 0.01F, 0.3F));
    assert_true(same_parts(&plain, &quiet) && longest(&plain) > 1501 * 48 / 16e3);
    assert_true(
        scratch_write(scratch_path("samples/preprocessor_config.json"), wrong, strlen(wrong)));
    audio a = chirp(N, 1, 0);
    assert_false(transcribe(m, &a, &(transcribe_options){.sink = take_part}, &e));
    expect_error(&e, SN_ERR_FILE, "preprocessor_config.json", "sampling_rate");
    audio_free(&a);
    model_close(m);
    e = (sn_error){0};
    copy_samples(true);
    assert_null(open_samples(scratch_path("samples"), &e));
    expect_error(&e, SN_ERR_FILE, "samples", "dynamic axis");
}

static void test_refusals(void **state) {
    static const struct {
        const char *file;
        int entries;
        const char *what;
    } cases[] = {
        {"gpt.onnx", SN_CACHED,
         "has the inputs input_ids and past_key_values.* and the output logits"},
        {"t5.onnx", SN_FORWARD | SN_CLASSIFY,
         "nothing gives the input 'decoder_input_ids' its values"},
    };
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char path[256];
        sn_error e = {0};
        snprintf(path, sizeof path, DATA "%s", cases[i].file);
        assert_null(open_for(path, cases[i].entries, &e));
        expect_error(&e, SN_ERR_USAGE, cases[i].file, cases[i].what);
    }
    sn_error e = {0};
    const open_options translates = {
        .path = DATA "text/encoder_model.onnx", .entries = SN_CACHED, .translates = true};
    assert_null(lm_open(&translates, &e));
    expect_error(&e, SN_ERR_USAGE, "encoder_model.onnx",
                 "this is not the decoder of an encoder-decoder");
    e = (sn_error){0};
    sn_mapping onnx;
    assert_true(sn_file_map(DATA "text/decoder_with_past_model.onnx", &onnx, &e));
    assert_true(
        scratch_write(scratch_path("decoder_with_past_model_q.onnx"), onnx.data, onnx.size));
    assert_null(open_for(scratch_path("decoder_with_past_model_q.onnx"), SN_CACHED, &e));
    expect_error(&e, SN_ERR_FILE, "decoder_with_past_model_q.onnx: this decoder",
                 "encoder_model_q.onnx, which is not there");
    e = (sn_error){0};
    assert_true(scratch_write(scratch_path("other.onnx"), onnx.data, onnx.size));
    assert_null(open_for(scratch_path("other.onnx"), SN_CACHED, &e));
    expect_error(&e, SN_ERR_USAGE, "other.onnx", "so that its encoder is found");
    sn_file_unmap(&onnx);
    e = (sn_error){0};
    assert_null(lm_open(
        &(open_options){.path = DATA "gpt_past.onnx", .entries = SN_CACHED, .sequences = 2}, &e));
    expect_error(&e, SN_ERR_USAGE, "gpt_past.onnx", "runs one sequence at a time");
    e = (sn_error){0};
    assert_null(lm_open(
        &(open_options){.path = DATA "gpt_past.onnx", .entries = SN_CACHED, .context = 65}, &e));
    expect_error(&e, SN_ERR_USAGE, "gpt_past.onnx",
                 "the requested context of 65 exceeds what the graph has tables for, 64");
}

/* ---- files of a few nodes, written here ---- */

/* "name type size size": an input, or an output, of sizes that are numbers or names. */
static void put_value(bytes *graph, int field, char *words) {
    bytes shape = {0}, tensor = {0}, type = {0}, info = {0};
    char *rest, *word = strtok_r(words, " ", &rest);
    put_text(&info, 1, word);
    put_int(&tensor, 1, atoi(strtok_r(NULL, " ", &rest)));
    while ((word = strtok_r(NULL, " ", &rest))) {
        bytes dim = {0};
        if (atoi(word))
            put_int(&dim, 1, atoi(word));
        else
            put_text(&dim, 2, word);
        put_message(&shape, 1, &dim);
    }
    put_message(&tensor, 2, &shape);
    put_message(&type, 1, &tensor);
    put_message(&info, 2, &type);
    put_message(graph, field, &info);
}

/* "Operator inputs outputs attribute=integer": names and integers have commas between them. An attribute of the other form,
 * "attribute:node node", is a graph, whose words are joined by slashes and whose last output is its result. */
static void put_node(bytes *graph, char *words, const char *space) {
    bytes node = {0};
    char *rest, *part, *word = strtok_r(words, space, &rest), *in = strtok_r(NULL, space, &rest),
                       *out = strtok_r(NULL, space, &rest);
    put_text(&node, 4, word);
    for (word = strtok_r(in, ",", &part); word; word = strtok_r(NULL, ",", &part))
        put_text(&node, 1, word);
    put_text(&node, 2, out);
    while ((word = strtok_r(NULL, space, &rest))) {
        bytes attribute = {0}, inner = {0}, result = {0};
        char *value = strpbrk(word, "=:");
        const bool is_graph = *value == ':';
        *value++ = 0;
        put_text(&attribute, 1, word);
        if (is_graph) {
            put_node(&inner, value, "/");
            put_text(&result, 1, word);
            put_message(&inner, 12, &result);
            put_message(&attribute, 6, &inner);
        } else if (!strcmp(word, "axis") || !strcmp(word, "to") || !strcmp(word, "keepdims")) {
            put_int(&attribute, 3, atoi(value));
        } else {
            put_int(&attribute, 8, atoll(value));
        }
        const bool one = !strcmp(word, "axis") || !strcmp(word, "to") || !strcmp(word, "keepdims");
        put_int(&attribute, 20, is_graph ? 5 : one ? 2 : 7);
        put_message(&node, 5, &attribute);
    }
    put_message(graph, 1, &node);
}

/* A file of version 9, whose operators have their axes in attributes. A line begins with '<', an input, '>', an output,
 * or an operator. */
static const char *write_graph(const char *text) {
    char *copy = strdup(text), *rest;
    bytes graph = {0}, model = {0}, opset = {0};
    for (char *line = strtok_r(copy, "\n", &rest); line; line = strtok_r(NULL, "\n", &rest)) {
        if (*line == '<' || *line == '>')
            put_value(&graph, *line == '<' ? 11 : 12, line + 1);
        else
            put_node(&graph, line, " ");
    }
    free(copy);
    put_int(&opset, 2, 9);
    put_int(&model, 1, 4);
    put_message(&model, 8, &opset);
    put_message(&model, 7, &graph);
    const char *path = scratch_path("small.onnx");
    assert_true(scratch_write(path, model.data, model.n));
    return path;
}

#define TOKENS "<input_ids 7 b s\nCast input_ids f to=1\n"
#define THREE "Unsqueeze f f1 axes=2\nConcat f1,f1,f1 f3 axis=2\n" /* [b, s, 3] */
#define PIXELS "<pixel_values 1 b 3 8 8\n"
#define PAST TOKENS "<past_key_values.0.k 1 b p 3\n" THREE
#define JOINED                                                                                     \
    "Concat past_key_values.0.k,f3 k axis=1\nReduceSum k r axes=1 keepdims=1\nAdd r,f3 logits\n"
#define LOGITS ">logits 1 b s 3\n"
#define PRESENT ">present.0.k 1 b p+s 3\n"
#define CLASSES (SN_FORWARD | SN_CLASSIFY)

/* Commands take memory by the shapes of what they get, and states hold all tokens so far: other graphs are refused. */
static void test_shapes(void **state) {
    static const struct {
        const char *graph;
        int entries;
        const char *what; /* NULL: it is taken */
    } cases[] = {
        {TOKENS "Neg f sentence_embedding\n>sentence_embedding 1 b s", SN_EMBED,
         "the output 'sentence_embedding' is f32[B,T] ("},
        {TOKENS "ReduceSum f text_embeds axes=1 keepdims=0\n>text_embeds 1 b", SN_EMBED,
         "is f32[B] ("},
        {TOKENS THREE "Unsqueeze f3 last_hidden_state axes=1\n>last_hidden_state 1 b 1 s 3",
         SN_EMBED, "not [batch, n] or [batch, tokens, n] with a number as n"},
        {TOKENS THREE "ReduceSum f3 h axes=0 keepdims=0\n"
                      "ReduceSum h sentence_embedding axes=0 keepdims=1\n>sentence_embedding 1 1 3",
         SN_EMBED, "is f32[1,3] ("},
        {TOKENS THREE "ReduceSum f3 text_embeds axes=1 keepdims=0\n>text_embeds 1 b 3", SN_EMBED,
         NULL},
        {PIXELS "Neg pixel_values last_hidden_state\n>last_hidden_state 1 b 3 8 8", SN_EMBED,
         "not [batch, n] or [batch, patches, n] with a number as n"},
        {TOKENS THREE "ReduceSum f3 logits axes=1 keepdims=1\n>logits 1 b 1 3", CLASSES,
         "the output 'logits' is f32[B,1,3] ("},
        {TOKENS THREE "Unsqueeze f3 logits axes=1\n>logits 1 b 1 s 3", CLASSES,
         "is f32[B,1,T,3] ("},
        {TOKENS THREE "Neg f3 logits\n>logits 1 b s 3", CLASSES, NULL},
        {PIXELS "ReduceSum pixel_values logits axes=0 keepdims=0\n>logits 1 3 8 8", CLASSES,
         "is f32[3,8,8] ("},
        {PAST "ReduceSum past_key_values.0.k r axes=1 keepdims=1\nAdd r,f3 logits\n" LOGITS,
         SN_CACHED, "no output 'present.0.k' gives the input 'past_key_values.0.k' its next value"},
        {PAST JOINED "Slice k present.0.k axes=1 starts=1 ends=99999\n" LOGITS PRESENT, SN_CACHED,
         "the output 'present.0.k' is not the input 'past_key_values.0.k' and the rows of new"},
        {PAST JOINED "Neg k present.0.k\n" LOGITS PRESENT, SN_CACHED,
         "the output 'present.0.k' is not the input 'past_key_values.0.k' and the rows of new"},
        {PAST JOINED "Identity k present.0.k\n" LOGITS PRESENT, SN_CACHED, NULL},
        {PAST JOINED "Identity k present.0.k\n" LOGITS PRESENT,
         SN_CACHED | SN_STEP | SN_ENCODE | SN_CLASSIFY, NULL}, /* as `compile` asks */
        /* the branches have other shapes: only one is taken */
        {PAST "<use_cache_branch 9 1\n"
              "If use_cache_branch k "
              "then_branch:Concat/past_key_values.0.k,f3/then_branch/axis=1 "
              "else_branch:Identity/f3/else_branch\n"
              "ReduceSum k r axes=1 keepdims=1\nAdd r,f3 logits\n"
              "Identity k present.0.k\n" LOGITS PRESENT,
         SN_CACHED, NULL},
        /* names that the entry has, for other sizes */
        {"<input_ids 7 T B\nCast input_ids f to=1\n" THREE
         "Identity f3 last_hidden_state\n>last_hidden_state 1 T B 3",
         SN_EMBED, NULL},
    };
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        sn_error e = {0};
        open_model *m = lm_open(&(open_options){.path = write_graph(cases[i].graph),
                                                .entries = cases[i].entries,
                                                .any_model = true,
                                                .build_only = true},
                                &e);
        if (cases[i].what) {
            assert_null(m);
            expect_error(&e, SN_ERR_FILE, "small.onnx", cases[i].what);
        } else {
            if (!m) fail_msg("%s", e.message);
            if (cases[i].entries & SN_CACHED)
                assert_non_null(sn_entry_get(m->model.module, "decode"));
        }
        model_close(m);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_decoder),  cmocka_unit_test(test_rows),
        cmocka_unit_test(test_context),  cmocka_unit_test(test_whole_context),
        cmocka_unit_test(test_object),   cmocka_unit_test(test_embeddings),
        cmocka_unit_test(test_classes),  cmocka_unit_test(test_pairs),
        cmocka_unit_test(test_samples),  cmocka_unit_test(test_prepared_samples),
        cmocka_unit_test(test_refusals), cmocka_unit_test(test_shapes),
    };
    return cmocka_run_group_tests(tests, scratch_make, scratch_end);
}
