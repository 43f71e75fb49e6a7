/* import_ctranslate2.c: CTranslate2's model.bin, binary version 2, of the encoder-decoder specs
 * TransformerBase and TransformerBig. Source: OpenNMT/CTranslate2, src/models/model.cc
 * (Model::load).
 *
 * u32 version; string spec; u32 revision; u32 count; per tensor: string name, u8 rank, u32 dims, u8
 * item size, u32 item count, data. A string is a u16 length, including the final NUL, and bytes.
 * Items are f32, or int8 or int16 with an f32 tensor NAME_scale, one number in all or one per row:
 * the weight is the integer divided by the scale, and is converted to f32.
 *
 * The model becomes an "edt" (frontend/families/edt.c) with that file's tensor names: the fused q|k|v and
 * k|v matrices of CTranslate2 are split; gamma and beta of its norms are weight and bias. Config:
 * norms first and one after each stack, two vocabularies, embeddings times sqrt(d), positions from
 * 1 on, with [sin(d/2) | cos(d/2)] of the angles pos * exp(-ln(10000) / (d/2 - 1) * j).
 *
 * source_vocabulary.txt and target_vocabulary.txt (one token per line, ids from 0; the id after the
 * last line is unk) are read from the model's folder. Vocabularies of single characters become
 * source_vocabulary.json and target_vocabulary.json, which the tokenizer reads; others are copied
 * unchanged, because their splitting rules are not in the files. */
#include "model/import/import.h"
#include "model/tokenizer/tok.h"
#include "model/tokenizer/utf8.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const struct {
    const char *spec;
    int64_t heads;
} specs[] = {{"TransformerBase", 8}, {"TransformerBig", 16}};

/* A sequential reader; after an error `bad` stays set and reads return zeros. */
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

/* A NUL-terminated string inside the file; otherwise sets bad. */
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

/* Converts a tensor of int8 or int16 to f32: each item divided by its row's scale. */
static const char *widen(import_list *l, const char *name, const sn_weight *t, size_t item_size,
                         const unsigned char *data) {
    char scale_name[200];
    snprintf(scale_name, sizeof scale_name, "%.180s_scale", name);
    const sn_weight *scale = import_find(l, scale_name);
    int64_t count = sn_weight_elements(t), rows = scale ? sn_weight_elements(scale) : 0;
    if (!rows || (rows != 1 && (!t->rank || rows != t->shape[0])))
        return "not f32, and without one scale for all or one per row";
    float *out = count ? import_own(l, malloc((size_t)count * sizeof *out)) : NULL;
    if (!out) return count ? "out of memory" : "is empty";
    for (int64_t i = 0; i < count; i++) {
        int16_t wide;
        memcpy(&wide, data + (size_t)i * item_size, item_size == 2 ? 2 : 1);
        float by, q = item_size == 2 ? (float)wide : (float)(int8_t)data[i];
        memcpy(&by, (const char *)scale->data + (size_t)(i / (count / rows)) * sizeof by,
               sizeof by);
        out[i] = q / by;
    }
    import_add(l, name, SN_F32, t->rank, t->shape, out);
    return NULL;
}

/* Reads one tensor; returns an error text, or NULL. With narrow false it takes f32 tensors, with
 * narrow true the others, whose scales are then known. */
static const char *take_tensor(cursor *c, import_list *l, bool narrow, const char **name) {
    *name = take_string(c);
    sn_weight t = {.name = *name, .dtype = SN_F32, .rank = (int)take_u8(c)};
    if (c->bad) return "truncated";
    if (t.rank > SN_WEIGHT_RANK) return "more than 8 dimensions";
    for (int i = 0; i < t.rank; i++) t.shape[i] = take_u32(c);
    uint32_t item_size = take_u8(c), items = take_u32(c);
    if (c->bad) return "truncated";
    if (item_size != 4 && item_size != 2 && item_size != 1) return "neither f32 nor int8 nor int16";
    if (sn_weight_elements(&t) != (int64_t)items) return "its shape and size do not match";
    const unsigned char *data = take(c, (size_t)items * item_size);
    if (c->bad) return "truncated";
    if (narrow != (item_size != 4)) return NULL;
    if (import_find(l, *name)) return "occurs twice";
    if (narrow) return widen(l, *name, &t, item_size, data);
    import_add(l, *name, SN_F32, t.rank, t.shape, data);
    return NULL;
}

/* Reads all tensors of the file; false on error. */
static bool take_tensors(cursor *c, uint32_t count, bool narrow, const char *path, import_list *l,
                         sn_error *err) {
    char shown[100];
    for (uint32_t i = 0; i < count; i++) {
        const char *name, *why = take_tensor(c, l, narrow, &name);
        if (why)
            return sn_fail(err, SN_ERR_FILE, "%s: tensor %" PRIu32 " \"%s\": %s", path, i,
                           sn_printable(shown, sizeof shown, name), why);
    }
    return c->at == c->end || sn_fail(err, SN_ERR_FILE, "%s: %zu bytes after the last tensor", path,
                                      (size_t)(c->end - c->at));
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
                       "%s: CTranslate2 binary version %" PRIu32
                       "; only version 2 is supported: open "
                       "the model that it was converted from",
                       path, version);
    for (size_t i = 0; i < sizeof specs / sizeof *specs; i++)
        if (!strcmp(spec, specs[i].spec)) *heads = specs[i].heads;
    char shown[100];
    if (!*heads)
        return sn_fail(err, SN_ERR_FILE, "%s: spec \"%s\" is not supported; known: %s, %s", path,
                       sn_printable(shown, sizeof shown, spec), specs[0].spec, specs[1].spec);
    cursor again = c;
    return take_tensors(&c, count, false, path, l, err) &&
           take_tensors(&again, count, true, path, l, err);
}

/* ---- the architecture ---- */

typedef struct sizes {
    int64_t width, inner, heads, layers[2], vocab[2];
} sizes;

static const char *const stacks[2] = {"encoder", "decoder"};

/* Shapes by letter: d width, q 3 d, k 2 d, f inner, s and t the two vocabularies. `to`: edt's name,
 * or several separated by "|" for equal parts of the first axis; '@' is the layer's norm before
 * self-attention, '#' that before the feed-forward part. */
typedef struct kind {
    const char *name, *shape, *to;
} kind;

static const kind layer_kinds[] = {
    {"self_attention/layer_norm/gamma", "d", "@.weight"},
    {"self_attention/layer_norm/beta", "d", "@.bias"},
    {"self_attention/linear_0/weight", "qd", "attn.q.weight|attn.k.weight|attn.v.weight"},
    {"self_attention/linear_0/bias", "q", "attn.q.bias|attn.k.bias|attn.v.bias"},
    {"self_attention/linear_1/weight", "dd", "attn.out.weight"},
    {"self_attention/linear_1/bias", "d", "attn.out.bias"},
    {"ffn/layer_norm/gamma", "d", "#.weight"},
    {"ffn/layer_norm/beta", "d", "#.bias"},
    {"ffn/linear_0/weight", "fd", "mlp1.weight"},
    {"ffn/linear_0/bias", "f", "mlp1.bias"},
    {"ffn/linear_1/weight", "df", "mlp2.weight"},
    {"ffn/linear_1/bias", "d", "mlp2.bias"},
    {0}};
static const kind cross_kinds[] = {
    {"attention/layer_norm/gamma", "d", "norm4.weight"},
    {"attention/layer_norm/beta", "d", "norm4.bias"},
    {"attention/linear_0/weight", "dd", "cross.q.weight"},
    {"attention/linear_0/bias", "d", "cross.q.bias"},
    {"attention/linear_1/weight", "kd", "cross.k.weight|cross.v.weight"},
    {"attention/linear_1/bias", "k", "cross.k.bias|cross.v.bias"},
    {"attention/linear_2/weight", "dd", "cross.out.weight"},
    {"attention/linear_2/bias", "d", "cross.out.bias"},
    {0}};
static const kind outer_kinds[] = {
    {"encoder/embeddings/weight", "sd", "encoder.embed_tokens.weight"},
    {"encoder/layer_norm/gamma", "d", "encoder.norm.weight"},
    {"encoder/layer_norm/beta", "d", "encoder.norm.bias"},
    {"decoder/embeddings/weight", "td", "decoder.embed_tokens.weight"},
    {"decoder/layer_norm/gamma", "d", "decoder.norm.weight"},
    {"decoder/layer_norm/beta", "d", "decoder.norm.bias"},
    {"decoder/projection/weight", "td", "lm_head.weight"},
    {"decoder/projection/bias", "t", "lm_head.bias"},
    {0}};

static int64_t find_dim(const sizes *z, char symbol) {
    const char symbols[] = "dqkfst";
    const int64_t all[] = {z->width, 3 * z->width, 2 * z->width,
                           z->inner, z->vocab[0],  z->vocab[1]};
    return all[strchr(symbols, symbol) - symbols];
}

/* Checks the tensors "PREFIX" + name; returns the number of them and their scales. */
static size_t check_kinds(const import_list *l, const sizes *z, const char *prefix, const kind *k,
                          sn_problems *p) {
    size_t n = 0, scales = 0;
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
            sn_problem(p, "tensor \"%s\" has a shape that does not match the others", name);
        snprintf(name, sizeof name, "%s%s_scale", prefix, k[n].name);
        scales += import_find(l, name) != NULL;
    }
    return n + scales;
}

/* Adds the parts of t under edt's names: `to` as in kind, after a prefix and the stack. */
static void add_parts(import_list *out, const sn_weight *t, const char *prefix, const char *to,
                      int stack) {
    static const char *const norms[2][2] = {{"norm1", "norm2"}, {"norm3", "norm5"}};
    int64_t parts = 1, shape[SN_WEIGHT_RANK];
    for (const char *c = to; *c; c++) parts += *c == '|';
    memcpy(shape, t->shape, sizeof shape);
    shape[0] /= parts;
    for (int64_t i = 0; i < parts; i++, to += strcspn(to, "|") + 1) {
        bool norm = *to == '@' || *to == '#';
        char name[160];
        snprintf(name, sizeof name, "%s%s%.*s", prefix, norm ? norms[stack][*to == '#'] : "",
                 (int)strcspn(to, "|") - norm, to + norm);
        import_add(out, name, SN_F32, t->rank, shape,
                   (const char *)t->data + (size_t)i * (t->bytes / (size_t)parts));
    }
}

static void rename_kinds(const import_list *l, import_list *out, const char *from, const char *to,
                         int stack, const kind *k) {
    for (; k->name; k++) {
        char name[120];
        snprintf(name, sizeof name, "%s%s", from, k->name);
        add_parts(out, import_find(l, name), to, k->to, stack);
    }
}

/* Adds the whole model under edt's names, without copying data. */
static void rename_model(const import_list *l, const sizes *z, import_list *out) {
    rename_kinds(l, out, "", "", 0, outer_kinds);
    for (int s = 0; s < 2; s++)
        for (int64_t n = 0; n < z->layers[s]; n++) {
            char from[64], to[64];
            snprintf(from, sizeof from, "%s/layer_%" PRId64 "/", stacks[s], n);
            snprintf(to, sizeof to, "%s.%" PRId64 ".", stacks[s], n);
            rename_kinds(l, out, from, to, s, layer_kinds);
            if (s == 1) rename_kinds(l, out, from, to, s, cross_kinds);
        }
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
        sn_problem(&p, "%zu tensors do not belong to the architecture", l->count - known);
    return sn_problems_check(&p, path, SN_ERR_FILE, err);
}

static sn_config *make_config(const sizes *z) {
    static const struct {
        const char *key, *text; /* text NULL: use the number */
        int64_t number;
    } fixed[] = {{"model_type", "edt", 0},
                 {"max_position_embeddings", NULL, 256}, /* CTranslate2's max_decoding_length */
                 {"position_start", NULL, 1},
                 {"positions", "sinusoid_concatenated", 0},
                 {"norm_order", "pre", 0},
                 {"pad_token_id", NULL, 0},
                 {"bos_token_id", NULL, 1},
                 {"eos_token_id", NULL, 2},
                 {"decoder_start_token_id", NULL, 1}};
    sn_config *c = sn_config_new("config.json");
    if (!c) return NULL;
    for (size_t i = 0; i < sizeof fixed / sizeof *fixed; i++)
        if (fixed[i].text)
            sn_config_set_string(c, fixed[i].key, fixed[i].text);
        else
            sn_config_set_int(c, fixed[i].key, fixed[i].number);
    sn_config_set_int(c, "d_model", z->width);
    sn_config_set_int(c, "ffn_dim", z->inner);
    sn_config_set_int(c, "attention_heads", z->heads);
    sn_config_set_int(c, "encoder_layers", z->layers[0]);
    sn_config_set_int(c, "decoder_layers", z->layers[1]);
    sn_config_set_int(c, "source_vocab_size", z->vocab[0]);
    sn_config_set_int(c, "vocab_size", z->vocab[1]);
    sn_config_set_int(c, "source_unk_token_id", z->vocab[0] - 1);
    sn_config_set_int(c, "unk_token_id", z->vocab[1] - 1);
    sn_config_set_float(c, "layer_norm_eps", 1e-5);
    sn_config_set_bool(c, "scale_embedding", true);
    sn_config_set_bool(c, "final_layer_norm", true);
    sn_config_set_bool(c, "tie_word_embeddings", false);
    sn_config_set_bool(c, "output_bias", true);
    return c;
}

/* ---- vocabularies ---- */

/* The line at `at`, its size without the newline; moves *at to the next line. */
static const char *take_line(const sn_mapping *m, size_t *at, size_t *size) {
    const char *line = (const char *)m->data + *at;
    const char *end = memchr(line, '\n', m->size - *at);
    *size = end ? (size_t)(end - line) : m->size - *at;
    *at += *size + (end != NULL);
    if (*size && line[*size - 1] == '\r') --*size;
    return line;
}

static bool is_symbol(const char *text, size_t size) {
    uint32_t cp = SN_UTF8_INVALID;
    if (size > 2 && text[0] == '<' && text[size - 1] == '>') return true;
    return size && sn_utf8_next(text, size, &cp) == size && cp != SN_UTF8_INVALID;
}

/* The vocabulary.json of a character vocabulary: the file's lines, then unk. */
static bool write_symbols(const sn_mapping *m, sn_bytes *out, int64_t size, sn_error *err) {
    static const char head[] =
        "{\"format\": \"sinter-vocabulary\", \"version\": 1, \"kind\": \"char\",\n\"tokens\": [";
    bool ok = sn_bytes_append(out, head, sizeof head - 1, err);
    for (size_t at = 0, n; ok && at < m->size;) {
        const char *line = take_line(m, &at, &n);
        ok = sn_json_quote(out, line, n, err) && sn_bytes_append(out, ",\n", 2, err);
    }
    char tail[160];
    int n = snprintf(
        tail, sizeof tail,
        "\"<unk>\"],\n\"special\": {\"pad\": 0, \"bos\": 1, \"eos\": 2, \"unk\": %" PRId64 "}}\n",
        size - 1);
    return ok && sn_bytes_append(out, tail, (size_t)n, err);
}

/* Checks the vocabulary NAME.txt in the model's folder; write: also writes it to the output
 * folder. */
static bool take_vocabulary(const import_request *r, const char *name, int64_t size, bool write,
                            sn_error *err) {
    char file[40], json[40];
    snprintf(file, sizeof file, "%s.txt", name);
    snprintf(json, sizeof json, "%s.json", name);
    char *path = import_beside(r->input, file);
    sn_mapping m;
    if (!path) return sn_fail(err, SN_ERR_MEMORY, "%s: out of memory", r->input);
    bool ok = sn_file_map(path, &m, err);
    if (ok) {
        int64_t lines = 0;
        bool symbols = true;
        for (size_t at = 0, n; at < m.size; lines++) {
            const char *line = take_line(&m, &at, &n);
            symbols &= is_symbol(line, n);
        }
        ok = lines + 1 == size ||
             sn_fail(err, SN_ERR_FILE,
                     "%s: has %" PRId64 " tokens, but the model expects %" PRId64
                     " and one for unknown text",
                     path, lines, size - 1);
        sn_bytes text = {0};
        if (ok && write && symbols)
            ok = write_symbols(&m, &text, size, err) && sn_tok_write(r->output, json, &text, err);
        else if (ok && write)
            ok = import_copy(path, r->output, file, err);
        sn_bytes_free(&text);
        sn_file_unmap(&m);
    }
    free(path);
    return ok;
}

bool import_ctranslate2(const import_request *r, sn_error *err) {
    static const char *const names[2] = {"source_vocabulary", "target_vocabulary"};
    sn_mapping m;
    import_list l = {0}, renamed = {0};
    sizes z = {0};
    if (!sn_file_map(r->input, &m, err)) return false;
    bool ok = read_model(&m, r->input, &l, &z.heads, err) && find_sizes(&l, &z, r->input, err);
    for (int i = 0; i < 2; i++) ok = ok && take_vocabulary(r, names[i], z.vocab[i], false, err);
    if (ok) {
        rename_model(&l, &z, &renamed);
        sn_config *c = make_config(&z);
        ok = import_save(r, c, &renamed, err);
        sn_config_free(c);
    }
    for (int i = 0; i < 2; i++) ok = ok && take_vocabulary(r, names[i], z.vocab[i], true, err);
    import_list_free(&renamed);
    import_list_free(&l);
    sn_file_unmap(&m);
    return ok;
}
