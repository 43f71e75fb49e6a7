/* Importers: the shipped models are imported completely and correctly; corrupted and hostile files
 * are rejected. */
#include "codegen/aot/file.h"
#include "model/import/import.h"
#include "driver/npz.h"
#include "runtime/npy.h"
#include "model/tokenizer.h"
#include "tools/artefact/inspect_artefact.h"

#include <setjmp.h>
#include <stdarg.h>
#include <cmocka.h>
#include <inttypes.h>
#include <math.h>
#include <sys/stat.h>

#include "tests/support/effort.h"
#include "tests/support/scratch.h"

#define MODELS SN_SOURCE_DIR "/examples/models/"
#define REFERENCE SN_SOURCE_DIR "/tests/data/reference/"

static const char stories[] = MODELS "stories260K/stories260K.bin";
static const char sorter[] = MODELS "nano-gpt-sort/gpt-nano-sort-model.json";
static const char digits[] = MODELS "mnist-vit/mnist_vit.npz";
static const char digits_config[] = MODELS "mnist-vit/import.json";
static const char names[] = MODELS "aren-transliteration/model.bin";

static double told, told_total;

static void tell(void *ctx, double done, double total) {
    (void)ctx;
    assert_true(done >= told && done <= total);
    told = done;
    told_total = total;
}

/* Imports into scratch/model and opens the result. */
static sn_model_dir *import_and_open(const char *input, const char *config) {
    sn_weights_progress progress = {.advance = tell};
    import_request r = {
        .input = input, .output = scratch_path("model"), .config = config, .progress = &progress};
    told = told_total = 0;
    sn_error e = {0};
    if (!import_model(&r, NULL, &e)) fail_msg("%s", e.message);
    assert_true(told > 0 && told == told_total);
    sn_model_dir *m = sn_model_dir_open(r.output, &e);
    if (!m) fail_msg("%s", e.message);
    return m;
}

/* The bytes of a whole file, to be freed. */
static unsigned char *read_all(const char *path, size_t *size) {
    sn_mapping m;
    sn_error e = {0};
    if (!sn_file_map(path, &m, &e)) fail_msg("%s", e.message);
    unsigned char *copy = malloc(m.size);
    memcpy(copy, m.data, m.size);
    *size = m.size;
    sn_file_unmap(&m);
    return copy;
}

/* Bytes at `offset` of a file are what the tensor holds. */
static void expect_bytes(const sn_model_dir *m, const char *name, const unsigned char *file,
                         size_t offset, int rank, int64_t d0, int64_t d1) {
    const sn_weight *t = sn_weights_find(m->weights, name);
    if (!t) fail_msg("%s is missing", name);
    assert_int_equal(t->dtype, SN_F32);
    assert_int_equal(t->rank, rank);
    assert_int_equal(t->shape[0], d0);
    if (rank == 2) assert_int_equal(t->shape[1], d1);
    assert_memory_equal(t->data, file + offset, t->bytes);
}

/* ---- llama2.c ---- */

static void stories_model(void **state) {
    (void)state;
    sn_model_dir *m = import_and_open(stories, NULL);
    sn_config *c = m->config;
    assert_string_equal(sn_config_string(c, "model_type"), "llama");
    static const struct {
        const char *key;
        int64_t value;
    } keys[] = {{"vocab_size", 512},
                {"hidden_size", 64},
                {"intermediate_size", 172},
                {"num_hidden_layers", 5},
                {"num_attention_heads", 8},
                {"num_key_value_heads", 4},
                {"max_position_embeddings", 512},
                {"bos_token_id", 1},
                {"eos_token_id", 2}};
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++)
        assert_int_equal(sn_config_int(c, keys[i].key, 0, 1000), keys[i].value);
    assert_true(sn_config_float(c, "rms_norm_eps", 0, 1) == 1e-5);
    assert_true(sn_config_float(c, "rope_theta", 0, 1e9) == 10000);
    assert_true(sn_config_bool(c, "tie_word_embeddings"));
    assert_true(sn_config_bool(c, "rope_interleaved"));
    sn_error e = {0};
    assert_true(sn_config_check(c, &e));

    /* Places follow from the order of matrices in run.c. */
    size_t size, at = 28;
    unsigned char *f = read_all(stories, &size);
    expect_bytes(m, "model.embed_tokens.weight", f, at, 2, 512, 64);
    at += 4 * 512 * 64;
    expect_bytes(m, "model.layers.3.input_layernorm.weight", f, at + 4 * 3 * 64, 1, 64, 0);
    at += 4 * 5 * 64;
    expect_bytes(m, "model.layers.0.self_attn.q_proj.weight", f, at, 2, 64, 64);
    at += 4 * 5 * 64 * 64;
    expect_bytes(m, "model.layers.4.self_attn.k_proj.weight", f, at + 4 * 4 * 32 * 64, 2, 32, 64);
    at += 4 * 5 * 32 * 64;
    expect_bytes(m, "model.layers.1.self_attn.v_proj.weight", f, at + 4 * 32 * 64, 2, 32, 64);
    at += 4 * 5 * 32 * 64;
    expect_bytes(m, "model.layers.2.self_attn.o_proj.weight", f, at + 4 * 2 * 64 * 64, 2, 64, 64);
    at += 4 * 5 * 64 * 64;
    expect_bytes(m, "model.layers.4.post_attention_layernorm.weight", f, at + 4 * 4 * 64, 1, 64, 0);
    at += 4 * 5 * 64;
    expect_bytes(m, "model.layers.1.mlp.gate_proj.weight", f, at + 4 * 172 * 64, 2, 172, 64);
    at += 4 * 5 * 172 * 64;
    expect_bytes(m, "model.layers.1.mlp.down_proj.weight", f, at + 4 * 172 * 64, 2, 64, 172);
    at += 4 * 5 * 172 * 64;
    expect_bytes(m, "model.layers.4.mlp.up_proj.weight", f, at + 4 * 4 * 172 * 64, 2, 172, 64);
    at += 4 * 5 * 172 * 64;
    expect_bytes(m, "model.norm.weight", f, at, 1, 64, 0);
    assert_int_equal(sn_weights_count(m->weights), 2 + 5 * 9);
    free(f);
    for (size_t i = 0; i < sn_weights_count(m->weights); i++)
        assert_int_equal((uintptr_t)sn_weights_at(m->weights, i)->data % 64, 0);

    size_t have, want;
    unsigned char *tok = read_all(MODELS "stories260K/tok512.bin", &want);
    char *copy_path = sn_model_dir_file(m, "tokenizer.bin");
    assert_non_null(copy_path);
    unsigned char *copy = read_all(copy_path, &have);
    assert_int_equal(have, want);
    assert_memory_equal(copy, tok, want);
    free(copy_path), free(copy), free(tok);
    sn_model_dir_close(m);
    scratch_remove(scratch_path("model"));
}

/* A two-layer checkpoint of 1s, 2s, ... in file order; returns its size. dim 4, heads 2. */
static size_t make_llama2c(unsigned char *out, bool tied) {
    int32_t head[7] = {4, 6, 2, 2, 1, tied ? 5 : -5, 3};
    memcpy(out, head, 28);
    size_t floats = 5 * 4 + 2 * 4 + 2 * (16 + 8 + 8 + 16) + 2 * 4 + 2 * 3 * 24 + 4 + 2 * 3 * 1;
    if (!tied) floats += 5 * 4;
    for (size_t i = 0; i < floats; i++) {
        float v = (float)(i + 1);
        memcpy(out + 28 + 4 * i, &v, 4);
    }
    return 28 + 4 * floats;
}

static void untied_classifier_is_kept(void **state) {
    (void)state;
    unsigned char file[2048];
    size_t n = make_llama2c(file, false);
    const char *path = scratch_path("own.bin");
    assert_true(scratch_write(path, file, n));
    sn_model_dir *m = import_and_open(path, NULL);
    expect_bytes(m, "lm_head.weight", file, n - 4 * 20, 2, 5, 4);
    assert_false(sn_config_bool(m->config, "tie_word_embeddings"));
    assert_null(sn_model_dir_file(m, "tokenizer.bin"));
    sn_model_dir_close(m);
    scratch_remove(scratch_path("model"));
    unlink(path);
}

/* Importing these bytes with a format fails, says so, and writes nothing. */
static void expect_refusal(const char *format, const void *bytes, size_t n, const char *what) {
    const char *path = scratch_path("bad.file");
    assert_true(scratch_write(path, bytes, n));
    import_request r = {.input = path, .output = scratch_path("refused"), .config = digits_config};
    sn_error e = {0};
    if (import_model(&r, format, &e)) fail_msg("accepted although: %s", what);
    expect_error(&e, SN_ERR_FILE, "bad.file", what);
    assert_false(sn_file_exists(r.output));
    unlink(path);
    unlink(scratch_path("digits.npz"));
}

static void hostile_llama2c(void **state) {
    (void)state;
    unsigned char good[2048], bad[2048];
    size_t n = make_llama2c(good, true);
    static const struct {
        int field;
        int32_t value;
        const char *what;
    } cases[] = {{0, 0, "dim is 0; allowed: 1 to 65536"},
                 {0, -4, "dim is -4"},
                 {0, 1 << 17, "dim is 131072"},
                 {0, 6, "dim 6 is not heads 2 times an even size"},
                 {1, INT32_MAX, "hidden is 2147483647"},
                 {2, 0, "layers is 0"},
                 {2, 3, "truncated: its header asks for"},
                 {2, 1, "too long: its header asks for"},
                 {3, 0, "heads is 0"},
                 {3, 3, "dim 4 is not heads 3"},
                 {4, 2000, "kv heads is 2000"},
                 {4, -1, "kv heads is -1"},
                 {5, 0, "vocabulary is 0"},
                 {5, INT32_MIN, "vocabulary is -2147483648"},
                 {5, 4000000, "truncated"},
                 {6, 1 << 21, "positions is 2097152"},
                 {0, 0x616b3432, "version 1 or 2"}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        memcpy(bad, good, n);
        memcpy(bad + 4 * cases[i].field, &cases[i].value, 4);
        expect_refusal("llama2c", bad, n, cases[i].what);
    }
    const int32_t dim = 24, heads[2] = {4, 3};
    memcpy(bad, good, n);
    memcpy(bad, &dim, 4);
    memcpy(bad + 12, heads, 8);
    expect_refusal("llama2c", bad, n, "kv heads 3 do not divide heads 4");
    for (size_t cut = 0; cut < n; cut += cut < 40 ? 1 : 37)
        expect_refusal("llama2c", good, cut, cut < 28 ? "too short" : "truncated");
    expect_refusal("llama2c", good, n + 1, "too long");
    int32_t max[7] = {1 << 16, 1 << 18, 1 << 10, 1 << 10, 1 << 10, 1 << 22, 1 << 20};
    memcpy(bad, max, 28); /* the largest sizes believed do not overflow */
    expect_refusal("llama2c", bad, n, "truncated");
}

static void hostile_llama2c_tokenizers(void **state) {
    (void)state;
    size_t n;
    unsigned char *tok = read_all(MODELS "stories260K/tok512.bin", &n);
    const char *path = scratch_path("tok.bin");
    static const struct {
        size_t cut;
        const char *what;
    } cases[] = {{1, "malformed or truncated after token 511"}, {6226, "malformed or truncated"}};
    import_request r = {.input = stories, .tokenizer = path, .output = scratch_path("refused")};
    for (int i = 0; i < 4; i++) {
        sn_error e = {0};
        unsigned char *copy = malloc(n + 9);
        memcpy(copy, tok, n);
        memset(copy + n, 0, 9);
        if (i == 3) memset(copy + 8, 0xff, 4); /* a negative length */
        size_t size = i < 2 ? n - cases[i].cut : i == 2 ? n + 8 : n;
        assert_true(scratch_write(path, copy, size));
        free(copy);
        assert_false(import_model(&r, NULL, &e));
        expect_error(&e, SN_ERR_FILE, "tok.bin",
                     i < 2    ? cases[i].what
                     : i == 2 ? "has 513 tokens, but the model's vocabulary is 512"
                              : "malformed or truncated after token 0");
        assert_false(sn_file_exists(r.output));
    }
    unlink(path);
    sn_error e = {0};
    assert_false(import_model(&r, NULL, &e));
    expect_error(&e, SN_ERR_FILE, "tok.bin", "No such file");
    free(tok);
}

/* ---- JSON tensors ---- */

static void sorter_model(void **state) {
    (void)state;
    sn_model_dir *m = import_and_open(sorter, NULL);
    sn_config *c = m->config;
    sn_error e = {0};
    assert_string_equal(sn_config_string(c, "model_type"), "gpt2");
    assert_int_equal(sn_config_int(c, "n_layer", 0, 99), 3);
    assert_int_equal(sn_config_int(c, "n_head", 0, 99), 3);
    assert_int_equal(sn_config_int(c, "n_embd", 0, 99), 48);
    assert_int_equal(sn_config_int(c, "n_inner", 0, 999), 192);
    assert_int_equal(sn_config_int(c, "vocab_size", 0, 99), 3);
    assert_int_equal(sn_config_int(c, "n_positions", 0, 99), 11);
    assert_string_equal(sn_config_string(c, "activation_function"), "gelu_new");
    assert_string_equal(sn_config_string(c, "linear_layout"), "out_in");
    assert_true(sn_config_float(c, "attn_pdrop", 0, 1) == 0.1);
    assert_false(sn_config_bool(c, "tie_word_embeddings"));
    assert_true(sn_config_check(c, &e));
    assert_int_equal(sn_weights_count(m->weights), 5 + 3 * 12);
    assert_null(sn_weights_find(m->weights, "transformer.h.0.attn.bias"));
    const sn_weight *qkv = sn_weights_find(m->weights, "transformer.h.1.attn.c_attn.weight");
    assert_non_null(qkv);
    assert_int_equal(qkv->shape[0], 144);
    assert_int_equal(qkv->shape[1], 48);

    /* The values are right: token and position embedding rows sum to upstream's x. */
    import_list ref;
    if (!json_tensors_read(REFERENCE "nano-gpt-sort/gpt-nano-sort-t0-partials.json", &ref, NULL,
                           &e))
        fail_msg("%s", e.message);
    assert_int_equal(ref.count, 25);
    const float *idx = import_find(&ref, "idx")->data, *x = import_find(&ref, "x")->data;
    const float *wte = sn_weights_find(m->weights, "transformer.wte.weight")->data;
    const float *wpe = sn_weights_find(m->weights, "transformer.wpe.weight")->data;
    for (int row = 0; row < 33; row++)
        for (int d = 0; d < 48; d++)
            assert_true(fabsf(wte[(int)idx[row] * 48 + d] + wpe[row % 11 * 48 + d] -
                              x[row * 48 + d]) < 1e-6f);
    import_list_free(&ref);
    sn_model_dir_close(m);
    scratch_remove(scratch_path("model"));
}

static void hostile_json_tensors(void **state) {
    (void)state;
#define TENSOR(shape, data)                                                                        \
    "{\"a\":{\"shape\":" shape ",\"dtype\":\"torch.float32\",\"data\":\"" data "\"}}"
    static const char *const cases[][2] = {
        {"{", "not valid JSON: line 1, column 2"},
        {"[]", "not a JSON object"},
        {"{} {}", "not valid JSON: line 1, column 4"},
        {"{}", "has no \"config\""},
        {"{\"config\": 3}", "not a JSON object"},
        {"{\"config\": {\"n_layer\": 0, \"n_head\": 5}}", "\"n_layer\" is 0; allowed"},
        {"{\"config\": {\"n_layer\": 0, \"n_head\": 5}}", "\"n_embd\" is missing"},
        {"{\"config\": {\"n_layer\": 1, \"n_head\": 5, \"n_embd\": 48, \"vocab_size\": 3, "
         "\"block_size\": 4}}",
         "\"n_head\" = 5 does not divide \"n_embd\" = 48"},
        {"{\"config\": {\"n_layer\": 1, \"n_head\": 1, \"n_embd\": 48, \"vocab_size\": 3, "
         "\"block_size\": 4}}",
         "tensor \"transformer.wte.weight\" is missing; tensor \"transformer.wpe.weight\" is"},
        {"{\"a\": 1}", "\"a\": needs \"shape\""},
        {"{\"a\":{\"shape\":[1],\"dtype\":\"torch.int64\",\"data\":\"AAAAAA==\"}}",
         "\"a\": dtype is not torch.float32"},
        {TENSOR("[-1]", "AAAAAA=="), "\"a\": shape is not"},
        {TENSOR("[1.5]", "AAAAAA=="), "\"a\": shape is not"},
        {TENSOR("[1,1,1,1,1,1,1,1,1]", "AAAAAA=="), "\"a\": shape is not"},
        {TENSOR("[1e9]", "AAAAAA=="), "\"a\": data is not base64"},
        {TENSOR("[1000000000,1000000000,1000000000]", "AAAAAA=="), "\"a\": data is not base64"},
        {TENSOR("[2]", "AAAAAA=="), "\"a\": data is not base64"},
        {TENSOR("[1]", "AAAAAA"), "\"a\": data is not base64"},
        {TENSOR("[1]", "AAA=AA=="), "\"a\": data is not base64"},
        {TENSOR("[1]", "AAAA!A=="), "\"a\": data is not base64"},
        {TENSOR("[1]", "AAAAAAAA"), "\"a\": data is not base64"}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        expect_refusal("json-tensors", cases[i][0], strlen(cases[i][0]), cases[i][1]);
}

/* ---- NumPy archives ---- */

static void digits_model(void **state) {
    (void)state;
    sn_model_dir *m = import_and_open(digits, digits_config);
    sn_config *c = m->config;
    sn_error e = {0};
    static const struct {
        const char *key;
        int64_t value;
    } keys[] = {{"hidden_size", 32},        {"intermediate_size", 64}, {"num_hidden_layers", 1},
                {"num_attention_heads", 1}, {"image_size", 28},        {"patch_size", 7},
                {"num_channels", 1},        {"num_labels", 10}};
    assert_string_equal(sn_config_string(c, "model_type"), "vit");
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++)
        assert_int_equal(sn_config_int(c, keys[i].key, 0, 1000), keys[i].value);
    assert_string_equal(sn_config_string(c, "norm_order"), "post");
    assert_string_equal(sn_config_string(c, "pooling"), "mean");
    assert_true(sn_config_float(c, "image_mean", 0, 1) == 0.1307);
    assert_true(sn_config_check(c, &e));
    assert_int_equal(sn_weights_count(m->weights), 19);
    /* Stored arrays: each tensor's bytes occur in the archive as they are. */
    size_t n;
    unsigned char *f = read_all(digits, &n);
    for (size_t i = 0; i < 19; i++) {
        const sn_weight *t = sn_weights_at(m->weights, i);
        assert_non_null(memmem(f, n, t->data, t->bytes));
    }
    const char *alone = scratch_path("digits.npz"); /* without the import.json beside it */
    assert_true(scratch_write(alone, f, n));
    free(f);
    const int64_t shape[] = {96, 32};
    sn_problems p = {0};
    assert_non_null(sn_weights_need(m->weights, "encoder.0.attn.in_proj_weight", 2, shape, &p));
    sn_model_dir_close(m);
    scratch_remove(scratch_path("model"));

    import_request r = {.input = digits, .output = scratch_path("model")};
    assert_true(import_model(&r, NULL, &e)); /* with it */
    scratch_remove(scratch_path("model"));
    r = (import_request){.input = alone = scratch_path("digits.npz"),
                         .output = scratch_path("refused")};
    assert_false(import_model(&r, NULL, &e));
    expect_error(&e, SN_ERR_USAGE, "digits.npz", "give --config");
    const char *path = r.config = scratch_path("heads.json");
    assert_true(scratch_write(path, "{\"num_attention_heads\": 3}", 26));
    e = (sn_error){0};
    assert_false(import_model(&r, NULL, &e));
    expect_error(&e, SN_ERR_FILE, "heads.json", "does not divide width 32");
    assert_false(sn_file_exists(r.output));
    unlink(path);
}

/* Python's zipfile with ZIP_DEFLATED packed the same arrays. */
static void deflated_archive_is_the_same(void **state) {
    (void)state;
    sn_model_dir *m = import_and_open(digits, digits_config);
    assert_int_equal(rename(scratch_path("model"), scratch_path("stored")), 0);
    sn_model_dir *d =
        import_and_open(SN_SOURCE_DIR "/tests/data/mnist_vit_deflated.npz", digits_config);
    assert_int_equal(sn_weights_count(d->weights), sn_weights_count(m->weights));
    for (size_t i = 0; i < sn_weights_count(m->weights); i++) {
        const sn_weight *a = sn_weights_at(m->weights, i);
        const sn_weight *b = sn_weights_find(d->weights, a->name);
        assert_non_null(b);
        assert_int_equal(a->bytes, b->bytes);
        assert_memory_equal(a->data, b->data, a->bytes);
    }
    sn_model_dir_close(m);
    sn_model_dir_close(d);
    scratch_remove(scratch_path("model"));
    scratch_remove(scratch_path("stored"));
}

/* Bytes that grow at the end. */
typedef struct blob {
    unsigned char data[4096];
    size_t size;
} blob;

static void put(blob *b, const void *data, size_t size) {
    memcpy(b->data + b->size, data, size);
    b->size += size;
}

static void put_le(blob *b, uint64_t value, int bytes) {
    for (int i = 0; i < bytes; i++) b->data[b->size++] = (unsigned char)(value >> 8 * i);
}

static uint32_t find_crc(const unsigned char *p, size_t n) {
    uint32_t c = ~0u;
    for (size_t i = 0; i < n; i++) {
        c ^= p[i];
        for (int k = 0; k < 8; k++) c = c >> 1 ^ (c & 1 ? 0xedb88320u : 0);
    }
    return ~c;
}

/* One file of an archive: its name, and the text of its header's shape, which is of no elements or,
 * "", of one. */
typedef struct npz_entry {
    const char *name, *shape;
    bool again;             /* its data is the entry's before it */
    uint32_t deflated_size; /* claimed size of a deflated entry; 0: stored */
} npz_entry;

static void put_entry(blob *b, blob *directory, const npz_entry *e, size_t *local) {
    blob npy = {.size = 0};
    char header[128];
    int n = snprintf(header, sizeof header,
                     "{'descr': '<f4', 'fortran_order': False, 'shape': (%s), }", e->shape);
    put(&npy, "\x93NUMPY\1\0", 8);
    put_le(&npy, (uint64_t)n, 2);
    put(&npy, header, (size_t)n);
    if (!*e->shape) put_le(&npy, 0, 4);
    size_t name = strlen(e->name);
    if (!e->again) {
        *local = b->size;
        put(b, "PK\3\4", 4);
        for (int i = 0; i < 22; i++) put_le(b, 0, 1);
        put_le(b, name, 2);
        put_le(b, 0, 2);
        put(b, e->name, name);
        put(b, npy.data, npy.size);
    }
    put(directory, "PK\1\2", 4);
    put_le(directory, 0, 6); /* versions, flags */
    put_le(directory, e->deflated_size ? 8 : 0, 2);
    put_le(directory, 0, 4); /* time */
    put_le(directory, find_crc(npy.data, npy.size), 4);
    put_le(directory, npy.size, 4);
    put_le(directory, e->deflated_size ? e->deflated_size : npy.size, 4);
    put_le(directory, name, 2);
    put_le(directory, 0, 8);
    put_le(directory, 0, 4);
    put_le(directory, *local, 4);
    put(directory, e->name, name);
}

static void expect_npz_refusal(const npz_entry *e, int n, const char *what) {
    blob b = {.size = 0}, directory = {.size = 0};
    size_t local = 0;
    for (int i = 0; i < n; i++) put_entry(&b, &directory, &e[i], &local);
    size_t start = b.size;
    put(&b, directory.data, directory.size);
    put(&b, "PK\5\6", 4);
    put_le(&b, 0, 6);
    put_le(&b, (uint64_t)n, 2);
    put_le(&b, directory.size, 4);
    put_le(&b, start, 4);
    put_le(&b, 0, 2);
    expect_refusal("npz", b.data, b.size, what);
}

/* An axis of size 0 lets the others carry any number; entries may share data or claim any size. */
static bool count_array(void *ctx, const char *name, sn_npy *a, sn_error *err) {
    (void)name, (void)err;
    ++*(int *)ctx;
    sn_npy_free(a);
    return true;
}

/* As many arrays as an archive can have take a second; 40 s if each name is compared with all others. */
static void many_arrays(void **state) {
    (void)state;
    enum { N = EFFORT_SANITIZED ? 4096 : 65535 };
    static npz_array list[N];
    static char names[N][12];
    const int64_t shape[] = {1};
    sn_error e = {0};
    for (int i = 0; i < N; i++) {
        snprintf(names[i], sizeof names[i], "%d", i);
        list[i] = (npz_array){names[i], SN_U8, 1, shape, names[i], 1};
    }
    for (int twice = 0; twice < 2; twice++) {
        int read = 0;
        if (twice) list[N - 1].name = "0";
        assert_true(npz_write(scratch_path("many.npz"), list, N, &e));
        alarm(20);
        assert_int_equal(npz_read(scratch_path("many.npz"), count_array, &read, &e), !twice);
        alarm(0);
        assert_int_equal(read, N - twice);
    }
    expect_error(&e, SN_ERR_FILE, "many.npz", "duplicate name");
    unlink(scratch_path("many.npz"));
}

static void hostile_npz(void **state) {
    (void)state;
    static const npz_entry empty[] = {
        {.name = "pos_embed.npy", .shape = "0, 4, 8"},
        {.name = "patch_embed.proj.weight.npy", .shape = "0, 9223372036854775807"},
        {.name = "encoder.0.ffn.fc1.weight.npy", .shape = "0, 8"},
        {.name = "classifier.weight.npy", .shape = "0, 8"}};
    expect_npz_refusal(empty, 4, "\"pos_embed\": is empty");
    static const npz_entry twice[] = {{.name = "a.npy", .shape = ""},
                                      {.name = "a.npy", .shape = ""}};
    expect_npz_refusal(twice, 2, "duplicate name");
    static const char *const letters[] = {"a.npy", "b.npy", "c.npy", "d.npy",
                                          "e.npy", "f.npy", "g.npy", "h.npy"};
    npz_entry shared[8];
    for (int i = 0; i < 8; i++) shared[i] = (npz_entry){letters[i], "", .again = i > 0};
    expect_npz_refusal(shared, 8, "entries share their data");
    static const npz_entry bomb[] = {
        {.name = "a.npy", .shape = "1,", .deflated_size = (uint32_t)70 << 20}};
    expect_npz_refusal(bomb, 1, "too large for the size of the archive");
    size_t n;
    unsigned char *f = read_all(digits, &n), *place = memmem(f, n, "\x93NUMPY", 6);
    place[200] ^= 1; /* of the data: what is read is not what was written */
    expect_refusal("npz", f, n, "wrong checksum");
    free(f);
}

/* ---- files of `sinter compile` ---- */

/* Files that begin as a .weights file but end before its first page does. */
static void short_weights_are_damaged(void **state) {
    (void)state;
    static const size_t sizes[] = {sizeof(sn_aot_header), 200, 4095, 4096 + 33};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        unsigned char *bytes = calloc(1, sizes[i]);
        sn_aot_header h = {SN_AOT_MAGIC, SN_AOT_FILE_VERSION,
                           .bytes = sizes[i]}; /* which is right */
        memcpy(bytes, &h, sizeof h);
        const char *path = scratch_path("short.weights");
        assert_true(scratch_write(path, bytes, sizes[i]));
        bool found = false;
        sn_error e = {0};
        if (!inspect_artefact(path, &found, &e)) fail_msg("%s", e.message);
        assert_true(found);
        unlink(path);
        free(bytes);
    }
}

/* ---- CTranslate2 ---- */

static void names_model(void **state) {
    (void)state;
    sn_model_dir *m = import_and_open(names, NULL);
    sn_config *c = m->config;
    sn_error e = {0};
    static const struct {
        const char *key;
        int64_t value;
    } keys[] = {{"d_model", 32},
                {"encoder_layers", 6},
                {"decoder_layers", 6},
                {"attention_heads", 8},
                {"ffn_dim", 128},
                {"source_vocab_size", 51},
                {"vocab_size", 43},
                {"unk_token_id", 42},
                {"source_unk_token_id", 50},
                {"position_start", 1},
                {"decoder_start_token_id", 1}};
    assert_string_equal(sn_config_string(c, "model_type"), "edt");
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++)
        assert_int_equal(sn_config_int(c, keys[i].key, 0, 1000), keys[i].value);
    assert_true(sn_config_bool(c, "scale_embedding"));
    assert_true(sn_config_check(c, &e));
    assert_int_equal(sn_weights_count(m->weights), 260); /* 200, and what was fused apart */
    size_t n;
    unsigned char *f = read_all(names, &n);
    /* places: upstream's file */
    expect_bytes(m, "decoder.embed_tokens.weight", f, 72, 2, 43, 32);
    expect_bytes(m, "decoder.4.cross.k.weight", f, 286877, 2, 32, 32);
    expect_bytes(m, "decoder.4.cross.v.weight", f, 286877 + 32 * 32 * 4, 2, 32, 32);
    expect_bytes(m, "encoder.norm.weight", f, 741592, 1, 32, 0);
    free(f);
    /* the vocabularies, as the tokenizer reads them: U+0622 is line 31 of the source's */
    sn_tokenizer *source = sn_tokenizer_load(scratch_path("model/source_vocabulary.json"), &e);
    sn_tokenizer *target = sn_tokenizer_load(scratch_path("model/target_vocabulary.json"), &e);
    assert_true(source && target);
    assert_int_equal(sn_tokenizer_vocab_size(source), 51);
    assert_int_equal(sn_tokenizer_vocab_size(target), 43);
    assert_int_equal(sn_tokenizer_id(source, "\u0622", 2), 31);
    assert_int_equal(sn_tokenizer_special(source, SN_TOKEN_UNK), 50);
    assert_int_equal(sn_tokenizer_special(target, SN_TOKEN_BOS), 1);
    assert_int_equal(sn_tokenizer_special(target, SN_TOKEN_EOS), 2);
    sn_tokenizer_free(source);
    sn_tokenizer_free(target);
    sn_model_dir_close(m);
    scratch_remove(scratch_path("model"));

    import_request r = {.input = scratch_path("alone.bin"), .output = scratch_path("refused")};
    f = read_all(names, &n);
    assert_true(scratch_write(r.input, f, n));
    assert_false(import_model(&r, NULL, &e));
    expect_error(&e, SN_ERR_FILE, "source_vocabulary.txt", "No such file");
    assert_true(scratch_write(scratch_path("source_vocabulary.txt"), "a\nb", 3));
    e = (sn_error){0};
    assert_false(import_model(&r, NULL, &e));
    expect_error(&e, SN_ERR_FILE, "source_vocabulary.txt",
                 "has 2 tokens, but the model expects 50");
    assert_false(sn_file_exists(r.output));
    unlink(r.input);
    unlink(scratch_path("source_vocabulary.txt"));
    free(f);
}

static void hostile_ctranslate2(void **state) {
    (void)state;
    size_t n;
    unsigned char *good = read_all(names, &n), *bad = malloc(n + 1);
    static const struct {
        size_t at;
        unsigned char value;
        const char *what;
    } cases[] = {{0, 3, "CTranslate2 binary version 3; only version 2 is supported: open"},
                 {6, 'X', "spec \"XransformerBase\" is not supported"},
                 {4, 15, "truncated?"},
                 {26, 201, "tensor 200 \"\": truncated"},
                 {26, 199, "after the last tensor"},
                 {58, 9, "more than 8 dimensions"},
                 {59, 44, "its shape and size do not match"},
                 {67, 3, "neither f32 nor int8"},
                 {68, 0, "its shape and size do not match"},
                 {32, 'X', "embeddings or the first layer are missing"}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        memcpy(bad, good, n);
        bad[cases[i].at] = cases[i].value;
        expect_refusal("ctranslate2", bad, n, cases[i].what);
    }
    memcpy(bad, good, n);
    bad[n] = 0;
    expect_refusal("ctranslate2", bad, n + 1, "1 bytes after the last tensor");
    for (size_t cut = 0; cut < n; cut += cut < 100 ? 1 : 50021)
        expect_refusal("ctranslate2", good, cut, "truncated");
    unsigned char *name = memmem(bad, n, "decoder/layer_5/ffn/linear_1/bias", 33);
    assert_non_null(name);
    memcpy(name, "decoder/layer_4/ffn/linear_1/bias", 33);
    expect_refusal("ctranslate2", bad, n, "occurs twice");
    memcpy(name, "decoder/layer_5/ffn/linear_7/bias", 33);
    expect_refusal("ctranslate2", bad, n, "\"decoder/layer_5/ffn/linear_1/bias\" is missing");
    free(bad);
    free(good);
}

/* ---- all formats ---- */

/* Random damage to a shipped model: refused with a message about the file, or imported whole. */
static void damage(const char *input, const char *format, size_t window, int rounds) {
    size_t n;
    unsigned char *good = read_all(input, &n), *bad = malloc(n);
    const char *path = scratch_path("damaged.bin");
    uint64_t seed = 0x9e3779b97f4a7c15u + n;
    int refused = 0;
    for (int i = 0; i < rounds; i++) {
        memcpy(bad, good, n);
        size_t size = i % 8 ? n : next_random(&seed) % n;
        for (uint64_t k = next_random(&seed) % 4; k; k--) {
            uint64_t at = next_random(&seed) % window; /* structure: front and back of the file */
            bad[next_random(&seed) % 2 ? at : n - 1 - at] = (unsigned char)next_random(&seed);
        }
        assert_true(scratch_write(path, bad, size));
        import_request r = {
            .input = path, .output = scratch_path("model"), .config = digits_config};
        sn_error e = {0};
        if (!import_model(&r, format, &e)) {
            refused++;
            assert_true(e.code == SN_ERR_FILE || e.code == SN_ERR_USAGE);
            if (!strstr(e.message, scratch_dir)) fail_msg("no file in: %s", e.message);
        }
        scratch_remove(scratch_path("model"));
    }
    assert_true(refused >= rounds / 8);
    unlink(path);
    free(good);
    free(bad);
}

static void damaged_files_never_crash(void **state) {
    (void)state;
    unsigned char small[2048];
    size_t n = make_llama2c(small, true);
    const char *path = scratch_path("small.bin");
    assert_true(scratch_write(path, small, n));
    damage(path, "llama2c", 28, 300);
    unlink(path);
    damage(digits, "npz", 1500, 1500);
    damage(sorter, "json-tensors", 1000, 60);
    damage(names, "ctranslate2", 2000, 150);
}

static void formats_are_recognised(void **state) {
    (void)state;
    static const char *const file[] = {stories, sorter, digits, names,
                                       REFERENCE "../onnx/gpt.onnx"};
    static const char *const format[] = {"llama2c", "json-tensors", "npz", "ctranslate2", "onnx"};
    for (int i = 0; i < 5; i++) {
        sn_mapping m;
        sn_error e = {0};
        assert_true(sn_file_map(file[i], &m, &e));
        for (const import_format *f = import_formats; f->name; f++)
            assert_true(strlen(f->what) > 10 && f->matches(&m) == !strcmp(f->name, format[i]));
        sn_file_unmap(&m);
    }
    expect_refusal(NULL, "hello", 5, "unknown format; known: ctranslate2, npz");
    import_request r = {.input = stories, .output = scratch_path("refused")};
    sn_error e = {0};
    assert_false(import_model(&r, "pickle", &e));
    expect_error(&e, SN_ERR_USAGE, "pickle", "unknown import format");
    r.input = scratch_path("none/model.bin");
    e = (sn_error){0};
    assert_false(import_model(&r, NULL, &e));
    expect_error(&e, SN_ERR_FILE, r.input, "No such file");
    r = (import_request){.input = stories, .output = scratch_path("file/model")};
    assert_true(scratch_write(scratch_path("file"), "x", 1));
    e = (sn_error){0};
    assert_false(import_model(&r, NULL, &e));
    expect_error(&e, SN_ERR_FILE, "/file", "is not a folder");
    unlink(scratch_path("file"));
}

/* The reference data that tests elsewhere read. */
static void reference_arrays(void **state) {
    (void)state;
    sn_error e = {0};
    sn_npy ids, logits;
    assert_true(sn_npy_open(REFERENCE "stories260K/greedy_ids.npy", &ids, &e));
    assert_int_equal(ids.count, 201);
    assert_int_equal(ids.dtype, SN_I32);
    assert_int_equal(((const int32_t *)ids.data)[0], 1);
    assert_true(sn_npy_open(REFERENCE "stories260K/logits_first_64.npy", &logits, &e));
    assert_int_equal(logits.shape[0], 64);
    assert_int_equal(logits.shape[1], 512);
    for (int t = 0; t < 63; t++) { /* greedy: the best logit is the next token */
        const float *row = (const float *)logits.data + 512 * t;
        for (int v = 0; v < 512; v++)
            assert_true(row[v] <= row[((const int32_t *)ids.data)[t + 1]]);
    }
    sn_npy_free(&ids);
    sn_npy_free(&logits);
    assert_true(sn_npy_open(REFERENCE "mnist-vit/logits_1000.npy", &logits, &e));
    assert_int_equal(logits.shape[0], 1000);
    assert_int_equal(logits.shape[1], 10);
    sn_npy_free(&logits);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(stories_model),
                                       cmocka_unit_test(untied_classifier_is_kept),
                                       cmocka_unit_test(hostile_llama2c),
                                       cmocka_unit_test(hostile_llama2c_tokenizers),
                                       cmocka_unit_test(sorter_model),
                                       cmocka_unit_test(hostile_json_tensors),
                                       cmocka_unit_test(digits_model),
                                       cmocka_unit_test(deflated_archive_is_the_same),
                                       cmocka_unit_test(many_arrays),
                                       cmocka_unit_test(hostile_npz),
                                       cmocka_unit_test(short_weights_are_damaged),
                                       cmocka_unit_test(names_model),
                                       cmocka_unit_test(hostile_ctranslate2),
                                       cmocka_unit_test(damaged_files_never_crash),
                                       cmocka_unit_test(formats_are_recognised),
                                       cmocka_unit_test(reference_arrays)};
    return cmocka_run_group_tests(tests, scratch_make, scratch_end);
}
