/* import_llama2c.c: llama2.c's "legacy" (version 0) checkpoint and tokenizer.bin. Source:
 * karpathy/llama2.c, run.c read_checkpoint and memory_map_weights, build_tokenizer.
 *
 * Header: seven i32: dim, hidden, layers, heads, kv heads, vocabulary, positions; a negative
 * vocabulary means that the classifier is stored separately, at the end. Then f32 matrices [out,
 * in], each kind for all layers at once; then two RoPE tables [positions, head size / 2], which are
 * ignored.
 *
 * Produces Hugging Face's Llama names and config keys with model_type "llama", plus
 *   "rope_interleaved": true   RoPE rotates the pairs (2i, 2i+1); Hugging Face's files, without the
 *                              key, have (i, i + head size / 2)
 * The tokenizer is copied to tokenizer.bin; without --tokenizer it is looked for next to the model
 * as tokenizer.bin or tokN.bin (N: the vocabulary size). */
#include "model/import/import.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { HEADER = 28 };

typedef struct shape {
    int64_t dim, hidden, layers, heads, kv_heads, vocab, positions;
    bool tied;
} shape;

/* Limits of the sizes: far above any llama2.c model, low enough that no product overflows. */
static const struct {
    const char *name;
    int32_t limit;
} fields[7] = {{"dim", 1 << 16},      {"hidden", 1 << 18},   {"layers", 1 << 10},
               {"heads", 1 << 10},    {"kv heads", 1 << 10}, {"vocabulary", 1 << 22},
               {"positions", 1 << 20}};

/* How a kind of matrix is stored in the file, in this order. */
typedef struct kind {
    const char *name; /* what follows "model.layers.N." if `layered`; NULL: skipped */
    bool layered;
    int64_t rows, cols; /* rows 0: a vector */
} kind;

static int64_t count_floats(const shape *s, const kind *k) {
    return (k->layered ? s->layers : 1) * (k->rows ? k->rows : 1) * k->cols;
}

enum { KINDS = 13 };

/* Fills the layout; the last row is the classifier, absent if tied to the embedding. */
static int find_layout(const shape *s, kind k[KINDS]) {
    int64_t d = s->dim, kv = d / s->heads * s->kv_heads;
    const kind all[KINDS] = {{"model.embed_tokens.weight", false, s->vocab, d},
                             {"input_layernorm.weight", true, 0, d},
                             {"self_attn.q_proj.weight", true, d, d},
                             {"self_attn.k_proj.weight", true, kv, d},
                             {"self_attn.v_proj.weight", true, kv, d},
                             {"self_attn.o_proj.weight", true, d, d},
                             {"post_attention_layernorm.weight", true, 0, d},
                             {"mlp.gate_proj.weight", true, s->hidden, d},
                             {"mlp.down_proj.weight", true, d, s->hidden},
                             {"mlp.up_proj.weight", true, s->hidden, d},
                             {"model.norm.weight", false, 0, d},
                             {NULL, false, 2 * s->positions, d / s->heads / 2}, /* RoPE tables */
                             {"lm_head.weight", false, s->vocab, d}};
    memcpy(k, all, sizeof all);
    return s->tied ? KINDS - 1 : KINDS;
}

/* Reads the sizes from the header and checks their limits. */
static bool read_shape(const sn_mapping *m, shape *s, char *why, size_t why_size) {
    int32_t v[7];
    memcpy(v, m->data, HEADER);
    s->tied = v[5] > 0;
    if (v[5] < 0 && v[5] > INT32_MIN) v[5] = -v[5];
    for (int i = 0; i < 7; i++)
        if (v[i] < 1 || v[i] > fields[i].limit) {
            snprintf(why, why_size, "%s is %" PRId32 "; allowed: 1 to %" PRId32, fields[i].name,
                     v[i], fields[i].limit);
            return false;
        }
    *s = (shape){v[0], v[1], v[2], v[3], v[4], v[5], v[6], s->tied};
    if (s->dim % s->heads || s->dim / s->heads % 2)
        snprintf(why, why_size, "dim %" PRId64 " is not heads %" PRId64 " times an even size",
                 s->dim, s->heads);
    else if (s->heads % s->kv_heads)
        snprintf(why, why_size, "kv heads %" PRId64 " do not divide heads %" PRId64, s->kv_heads,
                 s->heads);
    else
        return true;
    return false;
}

static uint64_t find_size(const shape *s) {
    kind k[KINDS];
    uint64_t floats = 0;
    for (int i = 0, n = find_layout(s, k); i < n; i++) floats += (uint64_t)count_floats(s, &k[i]);
    return HEADER + 4 * floats;
}

static bool check_model(const sn_mapping *m, shape *s, const char *path, sn_error *err) {
    char why[120];
    int32_t magic = 0;
    if (m->size >= 4) memcpy(&magic, m->data, 4);
    if (magic == 0x616b3432)
        return sn_fail(err, SN_ERR_FILE, "%s: llama2.c version 1 or 2; export it with --version 0",
                       path);
    if (m->size < HEADER)
        return sn_fail(err, SN_ERR_FILE, "%s: %zu bytes is too short for a llama2.c checkpoint",
                       path, m->size);
    if (!read_shape(m, s, why, sizeof why))
        return sn_fail(err, SN_ERR_FILE, "%s: not a llama2.c checkpoint: %s", path, why);
    uint64_t want = find_size(s);
    if (m->size == want) return true;
    return sn_fail(err, SN_ERR_FILE,
                   "%s: %s: its header asks for %" PRIu64 " bytes, the file has %zu", path,
                   m->size < want ? "truncated" : "too long", want, m->size);
}

bool llama2c_matches(const sn_mapping *m) {
    shape s;
    return check_model(m, &s, "", NULL);
}

/* Adds a tensor per layer that points into the mapped file. */
static void list_tensors(const shape *s, const sn_mapping *m, import_list *l) {
    kind k[KINDS];
    const unsigned char *at = m->data + HEADER;
    for (int i = 0, n = find_layout(s, k); i < n; i++) {
        int64_t size[2] = {k[i].rows, k[i].cols}, layers = k[i].layered ? s->layers : 1;
        size_t bytes = 4 * (size_t)count_floats(s, &k[i]);
        for (int64_t layer = 0; k[i].name && layer < layers; layer++) {
            char name[80];
            if (k[i].layered)
                snprintf(name, sizeof name, "model.layers.%" PRId64 ".%s", layer, k[i].name);
            import_add(l, k[i].layered ? name : k[i].name, SN_F32, k[i].rows ? 2 : 1,
                       k[i].rows ? size : size + 1, at + bytes / (size_t)layers * (size_t)layer);
        }
        at += bytes;
    }
}

static sn_config *make_config(const shape *s) {
    sn_config *c = sn_config_new("config.json");
    if (!c) return NULL;
    sn_config_set_string(c, "model_type", "llama");
    sn_config_set_int(c, "vocab_size", s->vocab);
    sn_config_set_int(c, "hidden_size", s->dim);
    sn_config_set_int(c, "intermediate_size", s->hidden);
    sn_config_set_int(c, "num_hidden_layers", s->layers);
    sn_config_set_int(c, "num_attention_heads", s->heads);
    sn_config_set_int(c, "num_key_value_heads", s->kv_heads);
    sn_config_set_int(c, "max_position_embeddings", s->positions);
    sn_config_set_string(c, "hidden_act", "silu");
    sn_config_set_float(c, "rms_norm_eps", 1e-5);
    sn_config_set_float(c, "rope_theta", 10000);
    sn_config_set_bool(c, "rope_interleaved", true);
    sn_config_set_bool(c, "tie_word_embeddings", s->tied);
    sn_config_set_int(c, "bos_token_id", 1);
    sn_config_set_int(c, "eos_token_id", 2);
    sn_config_set_string(c, "torch_dtype", "float32");
    return c;
}

/* i32 longest token, then per token: f32 score, i32 length, bytes. The file has no count: the
 * tokens must fill it, and their number must equal the model's vocabulary. */
static bool check_tokenizer(const char *path, int64_t vocab, sn_error *err) {
    sn_mapping m;
    if (!sn_file_map(path, &m, err)) return false;
    int64_t count = 0;
    size_t at = 4;
    while (at <= m.size && m.size - at >= 8) {
        int32_t n;
        memcpy(&n, m.data + at + 4, 4);
        if (n < 0 || (size_t)n > m.size - at - 8) break;
        at += 8 + (size_t)n;
        count++;
    }
    bool whole = at == m.size;
    sn_file_unmap(&m);
    if (!whole)
        return sn_fail(err, SN_ERR_FILE, "%s: malformed or truncated after token %" PRId64, path,
                       count);
    return count == vocab || sn_fail(err, SN_ERR_FILE,
                                     "%s: has %" PRId64 " tokens, but the model's vocabulary is "
                                     "%" PRId64,
                                     path, count, vocab);
}

/* *out: the tokenizer's path, allocated, or NULL if none was found. */
static bool find_tokenizer(const import_request *r, int64_t vocab, char **out, sn_error *err) {
    char by_size[32];
    snprintf(by_size, sizeof by_size, "tok%" PRId64 ".bin", vocab);
    const char *const names[] = {"tokenizer.bin", by_size};
    *out = NULL;
    for (int i = 0; i < 2 && !*out; i++) {
        char *p = r->tokenizer ? realpath(r->tokenizer, NULL) : import_beside(r->input, names[i]);
        if (!p && r->tokenizer) p = strdup(r->tokenizer); /* whoever opens it says what is wrong */
        if (!p) return sn_fail(err, SN_ERR_MEMORY, "%s: out of memory", r->input);
        if (r->tokenizer || sn_file_exists(p))
            *out = p;
        else
            free(p);
    }
    return true;
}

/* Other tokenizer files in the folder would take precedence over the one that is written. */
static bool check_output(const import_request *r, sn_error *err) {
    bool ok = true;
    for (size_t i = 0; ok && import_tokenizer_file(i); i++) {
        if (!strcmp(import_tokenizer_file(i), "tokenizer.bin")) continue;
        char *p = sn_path_join(r->output, import_tokenizer_file(i));
        if (!p) return sn_fail(err, SN_ERR_MEMORY, "out of memory");
        if (sn_file_exists(p))
            ok = sn_fail(err, SN_ERR_FILE,
                         "%s would take precedence over the model's tokenizer.bin: remove it, or "
                         "choose another folder",
                         p);
        free(p);
    }
    return ok;
}

bool import_llama2c(const import_request *r, sn_error *err) {
    sn_mapping m;
    if (!sn_file_map(r->input, &m, err)) return false;
    shape s = {0};
    bool ok = check_model(&m, &s, r->input, err);
    char *tokenizer = NULL;
    ok = ok && find_tokenizer(r, s.vocab, &tokenizer, err) &&
         (!tokenizer || (check_tokenizer(tokenizer, s.vocab, err) && check_output(r, err)));
    if (ok) {
        import_list l = {0};
        list_tensors(&s, &m, &l);
        sn_config *c = make_config(&s);
        ok = import_save(r, c, &l, err);
        sn_config_free(c);
        import_list_free(&l);
    }
    ok = ok && (!tokenizer || import_copy(tokenizer, r->output, "tokenizer.bin", err));
    free(tokenizer);
    sn_file_unmap(&m);
    return ok;
}
