/* test_gguf.c: GGUF files that tests/data/gguf/make_gguf.py wrote from the format's description:
 * values of every tensor type, bit for bit; logits of tiny models and tokens of their vocabularies;
 * the same weights from a folder; damaged and unsupported files. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>
#include <math.h>

#include "runtime/files/gguf.h"
#include "runtime/files/json.h"
#include "runtime/file.h"
#include "tests/support/effort.h"
#include "tests/support/scratch.h"
#include "tests/support/text.h"
#include "model/encoder.h"
#include "model/lm_impl.h"
#include "model/open.h"
#include "driver/storage.h"

#include <sys/stat.h>

#define DATA SN_SOURCE_DIR "/tests/data/gguf/"

static const char *const models[] = {"llama",       "gpt2",     "llama3",  "qwen2",  "qwen3",
                                     "phi3",        "gemma",    "gemma2",  "gemma3", "mixtral",
                                     "mixtral_old", "qwen2moe", "qwen3moe"};
enum { MODELS = sizeof models / sizeof *models, MAX_TOKENS = 16 };
/* Without a vocabulary; by make_family_gguf.py. */
static const char *const families[] = {
    "phi2",      "starcoder2",     "stablelm",      "command-r",   "granite",
    "olmo2",     "gptneox",        "bloom",         "falcon",      "falcon40b",
    "mpt",       "gpt-oss",        "qwen3next",     "qwen35",      "qwen35moe",
    "deepseek2", "deepseek2_yarn", "deepseek2_old", "kimi-linear", "mamba",
    "mamba2",    "jamba",          "granitehybrid"};
enum { FAMILIES = sizeof families / sizeof *families };

static const char *data_path(const char *name, const char *ending) {
    static char buf[2][512];
    static int next;
    char *b = buf[next = !next];
    snprintf(b, sizeof buf[0], DATA "%s%s", name, ending);
    return b;
}

/* ---- values ---- */

static void test_values(void **state) {
    (void)state;
    sn_error e = {0};
    sn_weights *have = sn_weights_open(DATA "formats.gguf", &e),
               *want = sn_weights_open(DATA "formats.safetensors", &e);
    if (!have || !want) fail_msg("%s", e.message);
    assert_int_equal(sn_weights_count(have), sn_weights_count(want));
    for (size_t i = 0; i < sn_weights_count(want); i++) {
        const sn_weight *w = sn_weights_at(want, i);
        const sn_weight *t = sn_weights_need(have, w->name, w->rank, w->shape, NULL);
        assert_non_null(t);
        assert_true(!t->block || !strcmp(t->block->name, w->name));
        float *f = malloc(w->bytes);
        assert_true(f && sn_weight_to_f32(t, f));
        if (memcmp(f, w->data, w->bytes)) fail_msg("%s: the values differ", w->name);
        free(f);
    }
    sn_weights_close(have);
    sn_weights_close(want);
}

/* ---- models ---- */

static cJSON *read_expected(const char *model) {
    sn_mapping m;
    sn_error e = {0};
    const char *path = data_path(model, ".json");
    if (!sn_file_map(path, &m, &e)) fail_msg("%s", e.message);
    cJSON *root = sn_json_parse(path, (const char *)m.data, m.size, &e);
    if (!root) fail_msg("%s", e.message);
    sn_file_unmap(&m);
    return root;
}

static open_model *load_model(const char *path, int level, const char *weights) {
    sn_error e = {0};
    const open_options o = {.path = path,
                            .entries = SN_CACHED,
                            .compile = {.level = level, .backend = "native", .weights = weights}};
    open_model *m = lm_open(&o, &e);
    if (!m) fail_msg("%s: %s", path, e.message);
    return m;
}

static void feed(open_model *m, const int32_t *ids, int64_t n) {
    sn_error e = {0};
    if (!lm_feed(m, ids, n, &e)) fail_msg("%s", e.message);
}

static int64_t read_tokens(const cJSON *expected, int32_t *tokens) {
    int64_t n = 0;
    const cJSON *v;
    cJSON_ArrayForEach(v, cJSON_GetObjectItem(expected, "tokens")) tokens[n++] = v->valueint;
    return n;
}

static void expect_logits(const open_model *m, const cJSON *expected, const char *what) {
    const cJSON *v;
    double most = 0, worst = 0;
    int64_t i = 0;
    cJSON_ArrayForEach(v, cJSON_GetObjectItem(expected, "logits")) {
        assert_true(i < m->model.vocab);
        most = fmax(most, fabs(v->valuedouble));
        double d = fabs(v->valuedouble - m->io->logits[i++]);
        if (!(d <= worst)) worst = d; /* NaN stays */
    }
    assert_int_equal(i, m->model.vocab);
    if (!(worst <= 1e-5 * most)) fail_msg("%s: error %g of %g", what, worst, most);
}

/* Values of a model that was split into files. */
static void test_split(void **state) {
    (void)state;
    sn_error e = {0};
    sn_weights *whole = sn_weights_open(DATA "olmo2.gguf", &e),
               *parts = sn_weights_open(DATA "split-00001-of-00002.gguf", &e);
    if (!whole || !parts) fail_msg("%s", e.message);
    assert_int_equal(sn_weights_count(whole), sn_weights_count(parts));
    for (size_t i = 0; i < sn_weights_count(whole); i++) {
        const sn_weight *w = sn_weights_at(whole, i), *p = sn_weights_find(parts, w->name);
        assert_true(p && p->bytes == w->bytes && !memcmp(p->data, w->data, w->bytes));
    }
    sn_weights_close(whole);
    sn_weights_close(parts);
    assert_null(sn_weights_open(DATA "split-00002-of-00002.gguf", &e));
    expect_error(&e, SN_ERR_FILE, "split-00002-of-00002.gguf", "open the first");
}

/* Keys and names of tensors are those of the architecture. */
static void check_opens(const char *name) {
    sn_error e = {0};
    const open_options o = {
        .path = data_path(name, ".gguf"), .entries = SN_CACHED, .build_only = true};
    open_model *m = lm_open(&o, &e);
    if (!m || !sn_model_takes_all(&m->model, model_weights(m), &e)) fail_msg("%s", e.message);
    model_close(m);
}

static void check_model(const char *name, int level, const char *weights) {
    int32_t tokens[MAX_TOKENS];
    cJSON *expected = read_expected(name);
    int64_t n = read_tokens(expected, tokens);
    open_model *m = load_model(data_path(name, ".gguf"), level, weights);
    feed(m, tokens, n);
    expect_logits(m, expected, name);
    lm_reset(m);
    feed(m, tokens, 2);
    for (int64_t i = 2; i < n; i++) feed(m, tokens + i, 1);
    expect_logits(m, expected, "decode");
    model_close(m);
    cJSON_Delete(expected);
}

static void test_logits(void **state) {
    (void)state;
    for (size_t i = 0; i < MODELS; i++) {
        if (effort_takes(i + 1, 7)) check_model(models[i], 0, "f32");
        if (effort_takes(i, 4)) check_model(models[i], 4, "stored");
    }
    for (size_t i = 0; i < FAMILIES; i++)
        if (effort_takes(i, 6))
            check_model(families[i], 1, "stored");
        else
            check_opens(families[i]);
    check_opens("split-00001-of-00002");
}

/* An encoder: states of all tokens. */
static void check_encoder(const char *name) {
    int32_t tokens[MAX_TOKENS];
    cJSON *expected = read_expected(name);
    const sn_ids ids = {.data = tokens, .count = (size_t)read_tokens(expected, tokens)};
    sn_error e = {0};
    const open_options o = {.path = data_path(name, ".gguf"),
                            .entries = SN_ENCODE,
                            .compile = {.level = 4, .backend = "native"}};
    open_model *m = lm_open(&o, &e);
    if (!m) fail_msg("%s", e.message);
    float *out;
    int64_t each, i = 0;
    if (!encoder_run(m, "encode", "hidden", &ids, NULL, 1, &out, &each, NULL, &e))
        fail_msg("%s", e.message);
    const cJSON *v;
    cJSON_ArrayForEach(v, cJSON_GetObjectItem(expected, "logits")) {
        assert_true(i < each);
        assert_true(fabs(v->valuedouble - out[i++]) < 1e-5);
    }
    assert_int_equal(i, each);
    free(out);
    model_close(m);
    cJSON_Delete(expected);
}

static void test_encoder(void **state) {
    (void)state;
    check_encoder("bert");
    check_encoder("nomic-bert");
}

static void test_tokens(void **state) {
    (void)state;
    for (int i = 0; i <= MODELS; i++) {
        sn_error e = {0};
        const cJSON *text, *id;
        const char *name = i < MODELS ? models[i] : "bert";
        cJSON *expected = read_expected(name);
        sn_tokenizer *t = sn_tokenizer_load(data_path(name, ".gguf"), &e);
        if (!t) fail_msg("%s", e.message);
        cJSON_ArrayForEach(text, cJSON_GetObjectItem(expected, "texts")) {
            const char *s = cJSON_GetObjectItem(text, "text")->valuestring;
            sn_ids ids = {0};
            sn_bytes back = {0};
            size_t at = 0;
            assert_true(sn_tokenizer_encode(t, s, strlen(s), 0, &ids, &e));
            assert_true(sn_tokenizer_decode(t, ids.data, ids.count, 0, &back, &e));
            cJSON_ArrayForEach(id, cJSON_GetObjectItem(text, "ids")) {
                if (at >= ids.count || ids.data[at] != id->valueint)
                    fail_msg("%s: \"%s\": token %zu", name, s, at);
                at++;
            }
            assert_int_equal(at, ids.count);
            assert_string_equal(back.data, s);
            sn_ids_free(&ids);
            sn_bytes_free(&back);
        }
        sn_tokenizer_free(t);
        cJSON_Delete(expected);
    }
}

/* Writes the model as a folder of f32. */
static const char *write_folder(const char *name) {
    sn_error e = {0};
    sn_model_dir *d = sn_model_dir_open(data_path(name, ".gguf"), &e);
    if (!d) fail_msg("%s", e.message);
    size_t n = sn_weights_count(d->weights);
    sn_weight *all = calloc(n, sizeof *all);
    for (size_t i = 0; all && i < n; i++) {
        all[i] = *sn_weights_at(d->weights, i);
        size_t count = (size_t)sn_weight_elements(&all[i]);
        float *f = malloc(count * sizeof *f);
        assert_true(f && sn_weight_to_f32(&all[i], f));
        all[i].data = f, all[i].bytes = count * sizeof *f;
        all[i].dtype = SN_F32, all[i].block = NULL;
    }
    const char *folder = scratch_path(name);
    if (!all || !sn_model_dir_save(folder, d->config, all, n, &e)) fail_msg("%s", e.message);
    for (size_t i = 0; i < n; i++) free((void *)(uintptr_t)all[i].data);
    free(all);
    sn_model_dir_close(d);
    return folder;
}

/* The same bits, whatever the storage of weights. */
static void test_folder(void **state) {
    (void)state;
    static const char *const storage[] = {NULL, "int4"};
    int32_t tokens[MAX_TOKENS];
    cJSON *expected = read_expected("llama");
    int64_t n = read_tokens(expected, tokens);
    char folder[512];
    snprintf(folder, sizeof folder, "%s", write_folder("llama"));
    for (int i = 0; i < 2; i++) {
        if (!effort_takes((size_t)i + 1, 2)) continue;
        open_model *a = load_model(DATA "llama.gguf", 4, storage[i]),
                   *b = load_model(folder, 4, storage[i]);
        feed(a, tokens, n);
        feed(b, tokens, n);
        assert_memory_equal(a->io->logits, b->io->logits, sizeof(float) * (size_t)a->model.vocab);
        model_close(a);
        model_close(b);
    }
    cJSON_Delete(expected);
}

/* Weights as the file stores them, on other CPUs, too: blocks stay integers. */
static void test_stored(void **state) {
    (void)state;
    static const char *const targets[] = {"x86-64-v3", "x86-64-v2"};
    static const char *const packed[] = {"q_proj  i32", "pack       i8", "pack       f16"};
    int32_t tokens[MAX_TOKENS];
    cJSON *expected = read_expected("llama");
    int64_t n = read_tokens(expected, tokens);
    for (size_t i = 0; i < 2; i++) {
        if (!effort_takes(i, 2)) continue;
        sn_error e = {0};
        const open_options o = {
            .path = DATA "llama.gguf",
            .entries = SN_CACHED,
            .compile = {
                .level = 4, .backend = "native", .target = targets[i], .weights = "stored"}};
        open_model *m = lm_open(&o, &e);
        if (!m) fail_msg("%s", e.message);
        feed(m, tokens, n - 1);
        feed(m, tokens + n - 1, 1);
        expect_logits(m, expected, targets[i]);
        char *text = explain_text(m->program, "@prepare");
        for (int k = 0; k < 3; k++) assert_non_null(strstr(text, packed[k]));
        free(text);
        model_close(m);
    }
    cJSON_Delete(expected);
}

/* Products of integers compute the chosen experts only, with gates and their partners together (level 4) or
 * apart. */
static void test_experts_of_integers(void **state) {
    (void)state;
    int32_t tokens[MAX_TOKENS];
    float logits[2][64];
    cJSON *expected = read_expected("gpt-oss");
    int64_t n = read_tokens(expected, tokens);
    for (int i = 0; i < 2; i++) {
        sn_error e = {0};
        int level = 4 * i, chosen = 0;
        const open_options o = {
            .path = DATA "gpt-oss.gguf",
            .entries = SN_CACHED,
            .compile = {.level = level, .backend = "native", .compute = "int8"}};
        open_model *m = lm_open(&o, &e);
        if (!m) fail_msg("%s", e.message);
        char *text = explain_text(m->program, "decode");
        for (const char *at = text; (at = strstr(at, "1 of 4 blocks")); at++) chosen++;
        assert_int_equal(chosen, level ? 4 : 6); /* of two layers */
        free(text);
        feed(m, tokens, n);
        assert_true(m->model.vocab <= 64);
        memcpy(logits[i], m->io->logits, sizeof(float) * (size_t)m->model.vocab);
        for (int64_t k = 0; i && k < m->model.vocab; k++)
            assert_true(fabsf(logits[1][k] - logits[0][k]) < 1e-4f);
        model_close(m);
    }
    cJSON_Delete(expected);
}

/* --weights auto: the first storage that fits. */
static void test_storage(void **state) {
    (void)state;
    static const struct {
        bool file; /* else random f32 */
        size_t available;
        const char *want;
    } rows[] = {{true, SIZE_MAX, "stored"},  {true, 90000, "stored"},   {true, 1000, "int4"},
                {false, SIZE_MAX, "stored"}, {false, 600000, "stored"}, {false, 300000, "bf16"},
                {false, 1000, "int4"}};
    sn_error e = {0};
    const open_options o = {.path = DATA "llama.gguf", .entries = SN_CACHED, .build_only = true};
    open_model *m = lm_open(&o, &e);
    if (!m) fail_msg("%s", e.message);
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        char note[160];
        const char *have = storage_choose(m->model.module, rows[i].file ? model_weights(m) : NULL,
                                          rows[i].available, note, sizeof note);
        assert_string_equal(have, rows[i].want);
        assert_int_equal(*note != 0, strcmp(have, "stored") != 0);
    }
    model_close(m);
}

static void test_special_tokens(void **state) {
    (void)state;
    sn_error e = {0};
    sn_tokenizer *t = sn_tokenizer_load(DATA "llama.gguf", &e);
    if (!t) fail_msg("%s", e.message);
    static const char text[] = "<|im_start|>the[tool]the";
    int32_t start = sn_tokenizer_id(t, "<|im_start|>", 12), tool = sn_tokenizer_id(t, "[tool]", 6),
            the = sn_tokenizer_id(t, " the", 4);
    assert_true(start > 0 && tool > 0 && the > 0);
    assert_int_equal(sn_tokenizer_special(t, SN_TOKEN_BOS), 1);
    assert_int_equal(sn_tokenizer_special(t, SN_TOKEN_EOS), 2);
    assert_int_equal(sn_tokenizer_special(t, SN_TOKEN_UNK), 0);
    sn_ids ids = {0};
    assert_true(sn_tokenizer_encode(t, text, sizeof text - 1, SN_TOK_SPECIAL, &ids, &e));
    const int32_t want[] = {start, the, tool, the};
    assert_int_equal(ids.count, 4);
    assert_memory_equal(ids.data, want, sizeof want);
    sn_ids_free(&ids);
    sn_tokenizer_free(t);
}

/* The keys alone are a vocabulary. */
static void test_keys_alone(void **state) {
    (void)state;
    sn_error e = {0};
    mkdir(scratch_path("tokenizer"), 0700);
    const char *path = scratch_path("tokenizer/tokenizer.gguf");
    assert_true(sn_gguf_save_keys(DATA "gpt2.gguf", path, &e));
    sn_tokenizer *t = sn_tokenizer_load(scratch_path("tokenizer"), &e);
    if (!t) fail_msg("%s", e.message);
    assert_int_equal(sn_tokenizer_vocab_size(t), 268);
    sn_tokenizer_free(t);
    sn_gguf *g = sn_gguf_open(path, &e);
    assert_true(g && !g->tensor_count);
    sn_gguf_close(g);
}

/* ---- damaged files ---- */

/* Replaces the bytes `from` of a file by `to`, which is as long, and opens it. */
static void expect_refusal(const char *from, const char *to, size_t size, const char *say) {
    sn_mapping m;
    sn_error e = {0};
    if (!sn_file_map(DATA "llama.gguf", &m, &e)) fail_msg("%s", e.message);
    unsigned char *copy = malloc(m.size);
    assert_non_null(copy);
    memcpy(copy, m.data, m.size);
    unsigned char *at = memmem(copy, m.size, from, size);
    assert_non_null(at);
    memcpy(at, to, size);
    const char *path = scratch_path("bad.gguf");
    assert_true(scratch_write(path, copy, m.size));
    free(copy);
    sn_file_unmap(&m);
    const open_options o = {
        .path = path, .entries = SN_CACHED, .compile = {.level = 1, .backend = "native"}};
    open_model *l = lm_open(&o, &e);
    if (l) fail_msg("opened; wanted: %s", say);
    expect_error(&e, e.code, "bad.gguf", say);
}

/* The library keeps matrices as the commands do, unless it is told otherwise. */
static void test_default_storage(void **state) {
    (void)state;
    const sn_options compile = {.weights = "bf16"};
    assert_string_equal(lm_options_of("m", NULL).compile.weights, "stored");
    assert_string_equal(lm_options_of("m", &(sn_lm_options){.weights = "f32"}).compile.weights,
                        "f32");
    assert_string_equal(lm_options_of("m", &(sn_lm_options){.compile = &compile}).compile.weights,
                        "bf16");
}

static void test_refused(void **state) {
    (void)state;
    static const struct {
        const char *from, *to, *say;
    } rows[] = {
        {"GGUF\3\0\0\0", "GGUF\1\0\0\0", "version 1 is not supported"},
        {"GGUF\3\0\0\0", "GGUF\0\0\0\3", "little endian"},
        {"general.architecture\b\0\0\0\5\0\0\0\0\0\0\0llama",
         "general.architecture\b\0\0\0\5\0\0\0\0\0\0\0lemma", "the architecture is \"lemma\""},
        {"llama.rope.freq_base", "llama.rope.freq_bass", "\"llama.rope.freq_bass\" is not support"},
        {"llama.rope.dimension_count\4\0\0\0\20", "llama.rope.dimension_count\4\0\0\0\10",
         "\"llama.rope.dimension_count\" is 8; only 16"},
        {"blk.1.ffn_up.weight", "blk.1.ffn_ap.weight",
         "tensor \"model.layers.1.mlp.up_proj.weight\" is missing"},
        {"blk.1.ffn_up.weight\2\0\0\0 \0", "blk.1.ffn_up.weight\2\0\0\0!\0",
         "its shape does not fit its type"},
        {"blk.1.ffn_up.weight\2\0\0\0 \0", "blk.1.ffn_up.weight\2\0\0\0@\0", "overlaps"},
        {"blk.1.attn_k.weight", "blk.1.attn_v.weight", "occurs twice"},
        {"tokenizer.ggml.bos_token_id\4\0\0\0\1\0", "tokenizer.ggml.bos_token_id\4\0\0\0\1\3",
         "but there are 299 tokens"},
        {"tokenizer.ggml.model\b\0\0\0\5\0\0\0\0\0\0\0llama",
         "tokenizer.ggml.model\b\0\0\0\5\0\0\0\0\0\0\0rwkv ", "unknown model"},
    };
    static const int length[] = {8, 8, 37, 20, 31, 19, 25, 25, 19, 33, 37};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        expect_refusal(rows[i].from, rows[i].to, (size_t)length[i], rows[i].say);
}

/* A file that ends anywhere before its last tensor does is refused. */
static void test_truncated(void **state) {
    (void)state;
    sn_mapping m;
    sn_error e = {0};
    if (!sn_file_map(DATA "formats.gguf", &m, &e)) fail_msg("%s", e.message);
    for (size_t n = 4; n < m.size - 64; n += 7) {
        e = (sn_error){0};
        assert_true(scratch_write(scratch_path("short.gguf"), m.data, n));
        assert_null(sn_weights_open(scratch_path("short.gguf"), &e));
        expect_error(&e, SN_ERR_FILE, "short.gguf", "truncated");
    }
    sn_file_unmap(&m);
}

static char *put_bytes(char *at, const void *data, size_t size) {
    return (char *)memcpy(at, data, size) + size;
}

static char *put_string(char *at, const char *text) {
    const uint64_t size = strlen(text);
    return put_bytes(put_bytes(at, &size, 8), text, size);
}

/* Writes slices.gguf, a file of one f32 tensor [count, width]; every number is 1. */
static void write_tensor(const char *name, uint64_t count, uint64_t width) {
    char file[8192] = {0}, *at = file;
    const uint32_t start[] = {0x46554747, 3}, type_string = 8, rank = 2, type_f32 = 0;
    const uint64_t counts[] = {1, 1}, shape[] = {width, count}, offset = 0;
    at = put_bytes(put_bytes(at, start, sizeof start), counts, sizeof counts);
    at = put_bytes(put_string(at, "general.architecture"), &type_string, 4);
    at = put_bytes(put_string(put_string(at, "llama"), name), &rank, 4);
    at = put_bytes(put_bytes(at, shape, sizeof shape), &type_f32, 4);
    at = put_bytes(at, &offset, 8);
    size_t begin = ((size_t)(at - file) + 31) / 32 * 32, n = width ? count * width : 0;
    char *whole = calloc(1, begin + n * 4);
    assert_non_null(whole);
    memcpy(whole, file, (size_t)(at - file));
    for (size_t i = 0; i < n; i++) put_bytes(whole + begin + 4 * i, &(float){1}, 4);
    assert_true(scratch_write(scratch_path("slices.gguf"), whole, begin + n * 4));
    free(whole);
}

/* The tensor begins at the next multiple of 32, wherever the header ends. */
static void test_alignment(void **state) {
    (void)state;
    char name[33] = "";
    for (int i = 0; i < 32; i++) {
        sn_error e = {0};
        name[i] = 'a';
        write_tensor(name, 1, 2);
        sn_weights *w = sn_weights_open(scratch_path("slices.gguf"), &e);
        if (!w) fail_msg("%s", e.message);
        const sn_weight *t = sn_weights_find(w, name);
        assert_true(t && t->bytes == 8);
        assert_memory_equal(t->data, ((const float[]){1, 1}), 8);
        sn_weights_close(w);
    }
}

/* Opens such a file as a model. say: the error; NULL: none. */
static void open_slices(const char *name, uint64_t count, uint64_t width, const char *say) {
    sn_error e = {0};
    write_tensor(name, count, width);
    sn_model_dir *d = sn_model_dir_open(scratch_path("slices.gguf"), &e);
    assert_int_equal(d != NULL, say == NULL);
    if (say) expect_error(&e, SN_ERR_FILE, "slices.gguf", say);
    if (d) assert_int_equal(sn_weights_count(d->weights), count);
    sn_model_dir_close(d);
}

/* The number of slices is free where a tensor has no elements. */
static void test_slices(void **state) {
    (void)state;
    const uint64_t counts[] = {(1ull << 61) + 1, 1ull << 61, 1ull << 62, INT64_MAX, 20000000, 1};
    for (size_t i = 0; i < sizeof counts / sizeof *counts; i++)
        open_slices("x%d.weight", counts[i], 0, "not empty");
    open_slices("x%d.weight", 0, 4, "cannot be cut into 0 experts");
    open_slices("x%d.weight", 4097, 2, "allowed are 1 to 4096 experts");
    char long_name[300] = "%d";
    memset(long_name + 2, 'a', 254);
    open_slices(long_name, 4, 2, "names of at most 255 bytes");
    open_slices("x%d.weight", 4096, 2, NULL);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_values),         cmocka_unit_test(test_logits),
        cmocka_unit_test(test_encoder),        cmocka_unit_test(test_tokens),
        cmocka_unit_test(test_folder),         cmocka_unit_test(test_stored),
        cmocka_unit_test(test_split),          cmocka_unit_test(test_experts_of_integers),
        cmocka_unit_test(test_storage),        cmocka_unit_test(test_keys_alone),
        cmocka_unit_test(test_special_tokens), cmocka_unit_test(test_default_storage),
        cmocka_unit_test(test_refused),        cmocka_unit_test(test_truncated),
        cmocka_unit_test(test_slices),         cmocka_unit_test(test_alignment),
    };
    return cmocka_run_group_tests(tests, scratch_make, scratch_end);
}
