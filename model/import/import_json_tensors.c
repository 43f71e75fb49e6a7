/* import_json_tensors.c: JSON files of tensors, as in bbycroft/llm-viz's sample GPT:
 *   {"config": {...},
 *    "NAME": {"shape": [..], "dtype": "torch.float32", "data": BASE64 of f32}, ...}
 *
 * A file with minGPT's names becomes a model folder with Hugging Face's GPT-2 names
 * (transformer.wte, wpe, h.N.ln_1, attn.c_attn, attn.c_proj, ln_2, mlp.c_fc, mlp.c_proj, ln_f;
 * lm_head) and config keys (model_type "gpt2", n_layer, n_head, n_embd, n_inner, n_positions,
 * vocab_size ...), plus
 *   "linear_layout": "out_in"   weights of linear layers are [out, in]. Hugging Face's GPT-2 has
 *                               [in, out] ("in_out", the default for model_type gpt2 if the key
 *                               is absent).
 * Causal masks (attn.bias) are dropped: they are not weights. */
#include "model/import/import.h"
#include "runtime/files/json.h"
#include "runtime/str.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define SIZE_LIMIT ((size_t)1 << 30)

bool json_tensors_matches(const sn_mapping *m) {
    size_t i = 0;
    while (i < m->size && i < 64 && strchr(" \t\r\n", m->data[i]) && m->data[i]) i++;
    return i < m->size && m->data[i] == '{';
}

/* Value of a base64 digit, or -1. */
static int digit_value(unsigned char c) {
    if (c >= 'A' && c <= 'Z') return c - 'A';
    if (c >= 'a' && c <= 'z') return c - 'a' + 26;
    if (c >= '0' && c <= '9') return c - '0' + 52;
    return c == '+' ? 62 : c == '/' ? 63 : -1;
}

/* Decodes exactly `bytes` bytes, padded with '=' to full groups; otherwise false. */
static bool decode_base64(const char *text, unsigned char *out, size_t bytes) {
    size_t groups = (bytes + 2) / 3;
    if (strlen(text) != groups * 4) return false;
    for (size_t g = 0, at = 0; g < groups; g++, text += 4) {
        size_t take = bytes - at < 3 ? bytes - at : 3;
        uint32_t v = 0;
        for (size_t i = 0; i < 4; i++) {
            int d = digit_value((unsigned char)text[i]);
            if (i > take ? text[i] != '=' : d < 0) return false;
            v = v << 6 | (uint32_t)(i > take ? 0 : d);
        }
        for (size_t i = 0; i < take; i++) out[at++] = (unsigned char)(v >> (16 - 8 * i));
    }
    return true;
}

/* Reads one entry; on failure `why` is the reason. */
static bool read_tensor(const cJSON *item, import_list *l, const char **why) {
    const cJSON *shape = cJSON_GetObjectItemCaseSensitive(item, "shape");
    const cJSON *dtype = cJSON_GetObjectItemCaseSensitive(item, "dtype");
    const cJSON *data = cJSON_GetObjectItemCaseSensitive(item, "data"), *d;
    sn_weight t = {.dtype = SN_F32};
    *why = "needs \"shape\", \"dtype\" and \"data\"";
    if (!cJSON_IsArray(shape) || !cJSON_IsString(dtype) || !cJSON_IsString(data)) return false;
    *why = "dtype is not torch.float32";
    if (strcmp(dtype->valuestring, "torch.float32")) return false;
    *why = "shape is not an array of up to 8 sizes";
    cJSON_ArrayForEach(d, shape) {
        if (t.rank == SN_WEIGHT_RANK || !cJSON_IsNumber(d) || !(d->valuedouble >= 0) ||
            d->valuedouble > SIZE_LIMIT || d->valuedouble != floor(d->valuedouble))
            return false;
        t.shape[t.rank++] = (int64_t)d->valuedouble;
    }
    int64_t n = sn_weight_elements(&t);
    *why = "data is not base64 of as many floats as the shape requires";
    if (n < 0 || (uint64_t)n > SIZE_LIMIT / 4) return false;
    size_t length = strlen(data->valuestring);
    if (length / 4 * 3 < (size_t)n * 4) return false; /* checked before allocating n bytes */
    float *values = import_own(l, malloc((size_t)n * 4 + 1));
    if (values && !decode_base64(data->valuestring, (unsigned char *)values, (size_t)n * 4))
        return false;
    if (values) import_add(l, item->string, SN_F32, t.rank, t.shape, values);
    return true;
}

/* Copies "config" through its text, because a sn_config owns its tree. */
static sn_config *read_config(const cJSON *item, const char *path, sn_error *err) {
    char *text = cJSON_PrintUnformatted(item);
    sn_config *c = NULL;
    if (text)
        c = sn_config_parse(path, text, strlen(text), err);
    else
        sn_fail(err, SN_ERR_MEMORY, "%s: out of memory", path);
    cJSON_free(text);
    return c;
}

bool json_tensors_read(const char *path, import_list *out, sn_config **config, sn_error *err) {
    sn_mapping m;
    *out = (import_list){0};
    if (config) *config = NULL;
    if (!sn_file_map(path, &m, err)) return false;
    cJSON *root =
              m.size <= SIZE_LIMIT ? sn_json_parse(path, (const char *)m.data, m.size, err) : NULL,
          *item;
    bool ok =
        root || m.size <= SIZE_LIMIT ||
        sn_fail(err, SN_ERR_FILE, "%s: over the limit of %zu bytes", path, (size_t)SIZE_LIMIT);
    ok = ok && root;
    cJSON_ArrayForEach(item, (ok ? root : NULL)) {
        const char *why;
        char name[100];
        if (!strcmp(item->string, "config")) {
            if (config && !*config) ok = (*config = read_config(item, path, err)) != NULL;
        } else if (!read_tensor(item, out, &why))
            ok = sn_fail(err, SN_ERR_FILE, "%s: \"%s\": %s", path,
                         sn_printable(name, sizeof name, item->string), why);
        if (!ok) break;
    }
    if (ok && out->failed) ok = sn_fail(err, SN_ERR_MEMORY, "%s: out of memory", path);
    cJSON_Delete(root);
    sn_file_unmap(&m);
    if (!ok) {
        import_list_free(out);
        if (config) sn_config_free(*config), *config = NULL;
    }
    return ok;
}

/* ---- GPT-2 ---- */

typedef struct gpt2 {
    int64_t layers, heads, width, vocab, positions, inner;
} gpt2;

/* A size by letter: d width, q 3 d, f inner, v vocabulary, p positions. */
static int64_t find_dim(const gpt2 *g, char symbol) {
    return symbol == 'd'   ? g->width
           : symbol == 'q' ? 3 * g->width
           : symbol == 'f' ? g->inner
           : symbol == 'v' ? g->vocab
                           : g->positions;
}

typedef struct kind {
    const char *name, *shape; /* name after "transformer.h.N." if inside a layer */
} kind;

static const kind layer_kinds[] = {
    {"ln_1.weight", "d"},      {"ln_1.bias", "d"},           {"attn.c_attn.weight", "qd"},
    {"attn.c_attn.bias", "q"}, {"attn.c_proj.weight", "dd"}, {"attn.c_proj.bias", "d"},
    {"ln_2.weight", "d"},      {"ln_2.bias", "d"},           {"mlp.c_fc.weight", "fd"},
    {"mlp.c_fc.bias", "f"},    {"mlp.c_proj.weight", "df"},  {"mlp.c_proj.bias", "d"}};
static const kind outer_kinds[] = {{"transformer.wte.weight", "vd"},
                                   {"transformer.wpe.weight", "pd"},
                                   {"transformer.ln_f.weight", "d"},
                                   {"transformer.ln_f.bias", "d"},
                                   {"lm_head.weight", "vd"}};

/* Moves a tensor of the right shape from `in` to `out`, or records a problem. */
static void take_tensor(const import_list *in, import_list *out, const gpt2 *g, const char *name,
                        const char *shape, sn_problems *p) {
    const sn_weight *t = import_find(in, name);
    int rank = (int)strlen(shape);
    bool fits = t && t->rank == rank;
    for (int i = 0; fits && i < rank; i++) fits = t->shape[i] == find_dim(g, shape[i]);
    if (fits)
        import_add(out, name, SN_F32, rank, t->shape, t->data);
    else if (!t)
        sn_problem(p, "tensor \"%s\" is missing", name);
    else
        sn_problem(p, "tensor \"%s\" does not have the shape that the config requires", name);
}

static void take_all(const import_list *in, import_list *out, const gpt2 *g, sn_problems *p) {
    for (size_t i = 0; i < sizeof outer_kinds / sizeof *outer_kinds; i++)
        take_tensor(in, out, g, outer_kinds[i].name, outer_kinds[i].shape, p);
    for (int64_t n = 0; n < g->layers; n++) {
        char name[80];
        for (size_t i = 0; i < sizeof layer_kinds / sizeof *layer_kinds; i++) {
            snprintf(name, sizeof name, "transformer.h.%" PRId64 ".%s", n, layer_kinds[i].name);
            take_tensor(in, out, g, name, layer_kinds[i].shape, p);
        }
    }
}

/* Records tensors that are neither weights nor causal masks. */
static void find_strangers(const import_list *in, const import_list *out, sn_problems *p) {
    for (size_t i = 0; i < in->count; i++) {
        const char *name = in->tensor[i].name;
        if (!sn_ends_with(name, ".attn.bias") && !import_find(out, name)) {
            char shown[100];
            sn_problem(p, "unknown tensor \"%s\"", sn_printable(shown, sizeof shown, name));
        }
    }
}

static sn_config *make_config(const gpt2 *g, sn_config *from) {
    static const char *const dropouts[] = {"embd_pdrop", "resid_pdrop", "attn_pdrop"};
    sn_config *c = sn_config_new("config.json");
    if (!c) return NULL;
    sn_config_set_string(c, "model_type", "gpt2");
    sn_config_set_int(c, "vocab_size", g->vocab);
    sn_config_set_int(c, "n_positions", g->positions);
    sn_config_set_int(c, "n_embd", g->width);
    sn_config_set_int(c, "n_layer", g->layers);
    sn_config_set_int(c, "n_head", g->heads);
    sn_config_set_int(c, "n_inner", g->inner);
    sn_config_set_string(c, "activation_function", "gelu_new");
    sn_config_set_float(c, "layer_norm_epsilon", 1e-5);
    sn_config_set_bool(c, "tie_word_embeddings", false);
    sn_config_set_string(c, "linear_layout", "out_in");
    for (int i = 0; i < 3; i++)
        if (sn_config_has(from, dropouts[i]))
            sn_config_set_float(c, dropouts[i], sn_config_float(from, dropouts[i], 0, 0.999));
    return c;
}

/* Reads the sizes from the file's config; minGPT's block_size is n_positions. */
static bool read_sizes(sn_config *c, const import_list *in, gpt2 *g, sn_error *err) {
    *g = (gpt2){
        sn_config_int(c, "n_layer", 1, 1024),       sn_config_int(c, "n_head", 1, 1024),
        sn_config_int(c, "n_embd", 1, 1 << 16),     sn_config_int(c, "vocab_size", 1, 1 << 22),
        sn_config_int(c, "block_size", 1, 1 << 20), 0};
    if (g->width % g->heads)
        sn_config_problem(c, "\"n_head\" = %" PRId64 " does not divide \"n_embd\" = %" PRId64,
                          g->heads, g->width);
    const sn_weight *fc = import_find(in, "transformer.h.0.mlp.c_fc.bias");
    g->inner = fc && fc->rank == 1 ? fc->shape[0] : 4 * g->width;
    return sn_config_check(c, err);
}

bool import_json_tensors(const import_request *r, sn_error *err) {
    import_list in, out = {0};
    sn_config *from, *to = NULL;
    gpt2 g;
    if (!json_tensors_read(r->input, &in, &from, err)) return false;
    bool ok = from || sn_fail(err, SN_ERR_FILE, "%s: has no \"config\"", r->input);
    ok = ok && read_sizes(from, &in, &g, err);
    if (ok) {
        sn_problems p = {0};
        take_all(&in, &out, &g, &p);
        find_strangers(&in, &out, &p);
        to = make_config(&g, from);
        ok = sn_config_check(from, err) && sn_problems_check(&p, r->input, SN_ERR_FILE, err) &&
             import_save(r, to, &out, err);
    }
    sn_config_free(from);
    sn_config_free(to);
    import_list_free(&in);
    import_list_free(&out);
    return ok;
}
