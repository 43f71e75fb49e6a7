/* import_ctranslate2.c: CTranslate2's model.bin, binary version 2, of the encoder-decoder specs
 * TransformerBase and TransformerBig. Source: OpenNMT/CTranslate2, src/models/model.cc
 * (Model::load).
 *
 * u32 version; string spec; u32 revision; u32 count; per tensor: string name, u8 rank, u32 dims,
 * u8 item size, u32 item count, data. A string is a u16 length, which counts the final NUL, and
 * bytes. Only f32 tensors are taken; int8 and int16 models are refused.
 *
 * Tensor names are kept, e.g. decoder/layer_3/attention/linear_1/weight. Weights are [out, in].
 * self_attention/linear_0 = q|k|v fused, linear_1 = output; attention (over the encoder's output)
 * linear_0 = q, linear_1 = k|v fused, linear_2 = output; gamma and beta are the scale and shift of
 * LayerNorm. decoder/projection is the output layer, {encoder,decoder}/embeddings the embeddings.
 *
 * The config has model_type "ctranslate2_transformer", Hugging Face's names for encoder-decoders
 * (d_model, encoder_layers, decoder_layers, encoder_attention_heads, decoder_attention_heads,
 * encoder_ffn_dim, decoder_ffn_dim, activation_function, scale_embedding, decoder_start_token_id)
 * and
 *   "linear_layout": "out_in"
 *   "norm_order": "pre", "final_layer_norm": true    a LayerNorm before each sublayer, one at the
 * end of each stack "position_encoding": "sinusoidal_concatenated"   [sin(d/2) | cos(d/2)], with
 * the angles pos * exp(-ln(10000) / (d/2 - 1) * j) "position_start": 1 the first token's position
 *   "source_vocab_size", "target_vocab_size", "source_unk_token_id", "target_unk_token_id"
 * source_vocabulary.txt and target_vocabulary.txt (one token a line, ids from 0; the id after the
 * last line is for unknown ones) are taken from beside the model and copied. */
#include "tools/import.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const struct {
    const char *spec;
    int64_t heads;
} specs[] = {{"TransformerBase", 8}, {"TransformerBig", 16}};

/* Reads forward; once something did not fit, `bad` stays set and reads give zeros. */
typedef struct cursor {
    const unsigned char *at, *end;
    bool bad;
} cursor;

static const unsigned char *take(cursor *c, size_t n) {
    static const unsigned char zeros[4];
    if (c->bad || (size_t)(c->end - c->at) < n) {
        c->bad = true;
        return zeros;
    }
    c->at += n;
    return c->at - n;
}

static uint32_t take_u8(cursor *c) {
    return *take(c, 1);
}

static uint32_t take_u16(cursor *c) {
    const unsigned char *p = take(c, 2);
    return p[0] | (uint32_t)p[1] << 8;
}

static uint32_t take_u32(cursor *c) {
    uint32_t v;
    memcpy(&v, take(c, 4), 4);
    return v;
}

/* A string inside the file: NUL-terminated there, or bad. */
static const char *take_string(cursor *c) {
    size_t n = take_u16(c);
    const char *s = (const char *)take(c, n);
    if (c->bad || n == 0 || memchr(s, 0, n) != s + n - 1) c->bad = true;
    return c->bad ? "" : s;
}

bool ctranslate2_matches(const sn_mapping *m) {
    cursor c = {m->data, m->data + m->size, false};
    uint32_t version = take_u32(&c);
    const char *spec = take_string(&c);
    return !c.bad && version >= 1 && version < 100 && !strncmp(spec, "Transformer", 11);
}

/* One tensor; returns what is wrong, or NULL. */
static const char *take_tensor(cursor *c, import_list *l, const char **name) {
    *name = take_string(c);
    sn_weight t = {.name = *name, .dtype = SN_F32, .rank = (int)take_u8(c)};
    if (c->bad) return "truncated";
    if (t.rank > SN_WEIGHT_RANK) return "more than 8 dimensions";
    for (int i = 0; i < t.rank; i++) t.shape[i] = take_u32(c);
    uint32_t item_size = take_u8(c), items = take_u32(c);
    if (c->bad) return "truncated";
    if (item_size != 4) return "not f32; convert the model without --quantization";
    if (sn_weight_elements(&t) != (int64_t)items) return "its shape and its size do not fit";
    const void *data = take(c, (size_t)items * 4);
    if (c->bad) return "truncated";
    if (import_find(l, *name)) return "occurs twice";
    import_add(l, *name, SN_F32, t.rank, t.shape, data);
    return NULL;
}

static bool read_model(const sn_mapping *m, const char *path, import_list *l, int64_t *heads,
                       sn_error *err) {
    cursor c = {m->data, m->data + m->size, false};
    uint32_t version = take_u32(&c);
    const char *spec = take_string(&c);
    take_u32(&c); /* revision of the spec */
    uint32_t count = take_u32(&c);
    if (c.bad) return sn_fail(err, SN_ERR_FILE, "%s: not a CTranslate2 model: truncated?", path);
    if (version != 2)
        return sn_fail(err, SN_ERR_FILE,
                       "%s: CTranslate2 binary version %" PRIu32 "; only 2 is read", path, version);
    for (size_t i = 0; i < sizeof specs / sizeof *specs; i++)
        if (!strcmp(spec, specs[i].spec)) *heads = specs[i].heads;
    char shown[100];
    if (!*heads)
        return sn_fail(err, SN_ERR_FILE, "%s: spec \"%s\" is not supported; known: %s, %s", path,
                       sn_printable(shown, sizeof shown, spec), specs[0].spec, specs[1].spec);
    for (uint32_t i = 0; i < count; i++) {
        const char *name, *why = take_tensor(&c, l, &name);
        if (why)
            return sn_fail(err, SN_ERR_FILE, "%s: tensor %" PRIu32 " \"%s\": %s", path, i,
                           sn_printable(shown, sizeof shown, name), why);
    }
    return c.at == c.end || sn_fail(err, SN_ERR_FILE, "%s: %zu bytes after the last tensor", path,
                                    (size_t)(c.end - c.at));
}

/* ---- the architecture ---- */

typedef struct sizes {
    int64_t width, inner, heads, layers[2], vocab[2];
} sizes;

static const char *const stacks[2] = {"encoder", "decoder"};

/* Shapes by letter: d width, q 3 d, k 2 d, f inner, s and t the two vocabularies. */
typedef struct kind {
    const char *name, *shape;
} kind;

static const kind layer_kinds[] = {{"self_attention/layer_norm/gamma", "d"},
                                   {"self_attention/layer_norm/beta", "d"},
                                   {"self_attention/linear_0/weight", "qd"},
                                   {"self_attention/linear_0/bias", "q"},
                                   {"self_attention/linear_1/weight", "dd"},
                                   {"self_attention/linear_1/bias", "d"},
                                   {"ffn/layer_norm/gamma", "d"},
                                   {"ffn/layer_norm/beta", "d"},
                                   {"ffn/linear_0/weight", "fd"},
                                   {"ffn/linear_0/bias", "f"},
                                   {"ffn/linear_1/weight", "df"},
                                   {"ffn/linear_1/bias", "d"},
                                   {NULL, NULL}};
static const kind cross_kinds[] = {{"attention/layer_norm/gamma", "d"},
                                   {"attention/layer_norm/beta", "d"},
                                   {"attention/linear_0/weight", "dd"},
                                   {"attention/linear_0/bias", "d"},
                                   {"attention/linear_1/weight", "kd"},
                                   {"attention/linear_1/bias", "k"},
                                   {"attention/linear_2/weight", "dd"},
                                   {"attention/linear_2/bias", "d"},
                                   {NULL, NULL}};
static const kind outer_kinds[] = {{"encoder/embeddings/weight", "sd"},
                                   {"encoder/layer_norm/gamma", "d"},
                                   {"encoder/layer_norm/beta", "d"},
                                   {"decoder/embeddings/weight", "td"},
                                   {"decoder/layer_norm/gamma", "d"},
                                   {"decoder/layer_norm/beta", "d"},
                                   {"decoder/projection/weight", "td"},
                                   {"decoder/projection/bias", "t"},
                                   {NULL, NULL}};

static int64_t find_dim(const sizes *z, char letter) {
    const char letters[] = "dqkfst";
    const int64_t all[] = {z->width, 3 * z->width, 2 * z->width,
                           z->inner, z->vocab[0],  z->vocab[1]};
    return all[strchr(letters, letter) - letters];
}

/* Checks tensors "PREFIX" + name; returns how many rows there are. */
static size_t check_kinds(const import_list *l, const sizes *z, const char *prefix, const kind *k,
                          sn_problems *p) {
    size_t n = 0;
    for (; k[n].name; n++) {
        char name[120];
        snprintf(name, sizeof name, "%s%s", prefix, k[n].name);
        const sn_weight *t = import_find(l, name);
        int rank = (int)strlen(k[n].shape);
        bool fits = t && t->rank == rank;
        for (int i = 0; fits && i < rank; i++) fits = t->shape[i] == find_dim(z, k[n].shape[i]);
        if (!t)
            sn_problem(p, "tensor \"%s\" is missing", name);
        else if (!fits)
            sn_problem(p, "tensor \"%s\" has a shape that does not fit the others", name);
    }
    return n;
}

static int64_t count_layers(const import_list *l, const char *stack) {
    for (int64_t n = 0;; n++) {
        char name[80];
        snprintf(name, sizeof name, "%s/layer_%" PRId64 "/ffn/linear_0/weight", stack, n);
        if (!import_find(l, name)) return n;
    }
}

static bool find_sizes(const import_list *l, sizes *z, const char *path, sn_error *err) {
    const sn_weight *in = import_find(l, outer_kinds[0].name), *out, *ffn;
    out = import_find(l, "decoder/embeddings/weight");
    ffn = import_find(l, "encoder/layer_0/ffn/linear_0/weight");
    if (!in || !out || !ffn || in->rank != 2 || out->rank != 2 || ffn->rank != 2)
        return sn_fail(err, SN_ERR_FILE, "%s: embeddings or the first layer are missing", path);
    z->width = in->shape[1];
    z->inner = ffn->shape[0];
    z->vocab[0] = in->shape[0];
    z->vocab[1] = out->shape[0];
    sn_problems p = {0};
    size_t known = check_kinds(l, z, "", outer_kinds, &p);
    for (int s = 0; s < 2; s++) {
        z->layers[s] = count_layers(l, stacks[s]);
        for (int64_t n = 0; n < z->layers[s]; n++) {
            char prefix[64];
            snprintf(prefix, sizeof prefix, "%s/layer_%" PRId64 "/", stacks[s], n);
            known += check_kinds(l, z, prefix, layer_kinds, &p);
            if (s == 1) known += check_kinds(l, z, prefix, cross_kinds, &p);
        }
    }
    if (z->width % z->heads)
        sn_problem(&p, "width %" PRId64 " is not a multiple of %" PRId64 " heads", z->width,
                   z->heads);
    if (!p.count && known != l->count)
        sn_problem(&p, "%zu tensors more than the architecture has", l->count - known);
    return sn_problems_check(&p, path, SN_ERR_FILE, err);
}

static sn_config *make_config(const sizes *z) {
    sn_config *c = sn_config_new("config.json");
    if (!c) return NULL;
    sn_config_set_string(c, "model_type", "ctranslate2_transformer");
    sn_config_set_int(c, "d_model", z->width);
    for (int s = 0; s < 2; s++) {
        const struct {
            const char *key;
            int64_t value;
        } rows[] = {{"layers", z->layers[s]}, {"attention_heads", z->heads}, {"ffn_dim", z->inner}};
        for (int i = 0; i < 3; i++) {
            char key[40];
            snprintf(key, sizeof key, "%s_%s", stacks[s], rows[i].key);
            sn_config_set_int(c, key, rows[i].value);
        }
    }
    sn_config_set_int(c, "source_vocab_size", z->vocab[0]);
    sn_config_set_int(c, "target_vocab_size", z->vocab[1]);
    sn_config_set_int(c, "source_unk_token_id", z->vocab[0] - 1);
    sn_config_set_int(c, "target_unk_token_id", z->vocab[1] - 1);
    sn_config_set_int(c, "pad_token_id", 0);
    sn_config_set_int(c, "bos_token_id", 1);
    sn_config_set_int(c, "eos_token_id", 2);
    sn_config_set_int(c, "decoder_start_token_id", 1);
    sn_config_set_string(c, "activation_function", "relu");
    sn_config_set_float(c, "layer_norm_eps", 1e-5);
    sn_config_set_bool(c, "scale_embedding", true);
    sn_config_set_string(c, "norm_order", "pre");
    sn_config_set_bool(c, "final_layer_norm", true);
    sn_config_set_string(c, "position_encoding", "sinusoidal_concatenated");
    sn_config_set_int(c, "position_start", 1);
    sn_config_set_string(c, "linear_layout", "out_in");
    return c;
}

/* Copies the vocabularies that lie beside the model, after checking their length. */
static bool copy_vocabulary(const import_request *r, const char *name, int64_t size, bool copy,
                            sn_error *err) {
    char *path = import_beside(r->input, name);
    sn_mapping m;
    if (!path) return sn_fail(err, SN_ERR_MEMORY, "%s: out of memory", r->input);
    bool ok = sn_file_map(path, &m, err);
    if (ok) {
        int64_t lines = 0;
        for (size_t i = 0; i < m.size; i++) lines += m.data[i] == '\n' || i + 1 == m.size;
        sn_file_unmap(&m);
        ok = lines + 1 == size ||
             sn_fail(err, SN_ERR_FILE,
                     "%s: has %" PRId64 " tokens, but the model expects %" PRId64
                     " and one for unknown ones",
                     path, lines, size - 1);
    }
    ok = ok && (!copy || import_copy(path, r->output, name, err));
    free(path);
    return ok;
}

bool import_ctranslate2(const import_request *r, sn_error *err) {
    static const char *const names[2] = {"source_vocabulary.txt", "target_vocabulary.txt"};
    sn_mapping m;
    import_list l = {0};
    sizes z = {0};
    if (!sn_file_map(r->input, &m, err)) return false;
    bool ok = read_model(&m, r->input, &l, &z.heads, err) && find_sizes(&l, &z, r->input, err);
    for (int i = 0; i < 2; i++) ok = ok && copy_vocabulary(r, names[i], z.vocab[i], false, err);
    if (ok) {
        sn_config *c = make_config(&z);
        ok = import_save(r, c, &l, err);
        sn_config_free(c);
    }
    for (int i = 0; i < 2; i++) ok = ok && copy_vocabulary(r, names[i], z.vocab[i], true, err);
    import_list_free(&l);
    sn_file_unmap(&m);
    return ok;
}
