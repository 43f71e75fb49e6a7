/* tok_sentencepiece.c: SentencePiece's .model, a protocol buffer (sentencepiece_model.proto), with
 * a unigram or BPE model:
 *   ModelProto      1 pieces, 2 trainer_spec, 3 normalizer_spec, 5 denormalizer_spec
 *   SentencePiece   1 piece, 2 score (float), 3 type
 *   TrainerSpec     3 model_type, 24 treat_whitespace_as_suffix, 35 byte_fallback, 40 unk_id,
 *                   41 bos_id, 42 eos_id, 43 pad_id
 *   NormalizerSpec  2 precompiled_charsmap, 3 add_dummy_prefix, 4 remove_extra_whitespaces,
 *                   5 escape_whitespaces */
#include <stdlib.h>
#include <string.h>

#include "model/tokenizer/tok_bpe.h"
#include "model/tokenizer/tok_sp_class.h"
#include "model/tokenizer/tok_unigram.h"

/* ---- protocol buffers ---- */

typedef struct message {
    const unsigned char *at, *end;
} message;

typedef struct field {
    uint32_t number;
    uint64_t value;  /* varint, or 32 or 64 bits */
    message content; /* length-delimited */
} field;

static bool read_varint(message *m, uint64_t *out) {
    *out = 0;
    for (unsigned shift = 0; m->at < m->end && shift < 64; shift += 7) {
        unsigned char byte = *m->at++;
        *out |= (uint64_t)(byte & 0x7F) << shift;
        if (!(byte & 0x80)) return true;
    }
    return false;
}

static bool read_fixed(message *m, size_t n, uint64_t *out) {
    if ((size_t)(m->end - m->at) < n) return false;
    *out = 0;
    for (size_t i = 0; i < n; i++) *out |= (uint64_t)*m->at++ << 8 * i;
    return true;
}

/* The next field; false at the end, or with *bad set if the message is malformed. */
static bool next_field(message *m, field *f, bool *bad) {
    uint64_t tag, size;
    *f = (field){0};
    if (*bad || m->at == m->end) return false;
    bool ok = read_varint(m, &tag) && tag >> 3 <= UINT32_MAX;
    f->number = ok ? (uint32_t)(tag >> 3) : 0;
    switch (ok ? tag & 7 : 3) {
    case 0:
        ok = read_varint(m, &f->value);
        break;
    case 1:
        ok = read_fixed(m, 8, &f->value);
        break;
    case 2:
        ok = read_varint(m, &size) && size <= (uint64_t)(m->end - m->at);
        if (ok) f->content = (message){m->at, m->at + size};
        if (ok) m->at += size;
        break;
    case 5:
        ok = read_fixed(m, 4, &f->value);
        break;
    default:
        ok = false;
    }
    *bad = !ok;
    return ok;
}

/* ---- the model ---- */

enum { UNIGRAM = 1, BPE = 2 };
enum { NORMAL = 1, UNKNOWN, CONTROL, USER_DEFINED, UNUSED, BYTE };

typedef struct model {
    const char *path;
    message all;
    int64_t type, role[SN_TOKEN_ROLES];
    size_t unknowns; /* pieces of type UNKNOWN */
    bool suffix, bytes, prefix, collapse, escape;
    message charsmap;
    sn_sp_numbering numbering;
    /* being made */
    sn_tokenizer *t;
    sn_bpe *bpe; /* one of the two */
    sn_unigram *unigram;
    sn_bytes text;
    sn_error *err;
} model;

static bool malformed(const model *m, const char *what) {
    return sn_fail(m->err, SN_ERR_FILE,
                   "%s: %s is malformed: the file is truncated, or not a SentencePiece model",
                   m->path, what);
}

static bool read_trainer(model *m, message s) {
    bool bad = false;
    for (field f; next_field(&s, &f, &bad);) {
        int64_t value = (int64_t)f.value;
        if (f.number == 3) m->type = value;
        if (f.number == 24) m->suffix = value;
        if (f.number == 35) m->bytes = value;
        if (f.number == 40) m->role[SN_TOKEN_UNK] = value;
        if (f.number == 41) m->role[SN_TOKEN_BOS] = value;
        if (f.number == 42) m->role[SN_TOKEN_EOS] = value;
        if (f.number == 43) m->role[SN_TOKEN_PAD] = value;
    }
    return !bad || malformed(m, "trainer_spec");
}

static bool read_normalizer(model *m, message s) {
    bool bad = false;
    for (field f; next_field(&s, &f, &bad);) {
        if (f.number == 2) m->charsmap = f.content;
        if (f.number == 3) m->prefix = f.value;
        if (f.number == 4) m->collapse = f.value;
        if (f.number == 5) m->escape = f.value;
    }
    return !bad || malformed(m, "normalizer_spec");
}

static bool read_specs(model *m) {
    bool bad = false;
    message all = m->all;
    for (field f; next_field(&all, &f, &bad);) {
        if (f.number == 2 && !read_trainer(m, f.content)) return false;
        if (f.number == 3 && !read_normalizer(m, f.content)) return false;
        if (f.number == 5 && f.content.at < f.content.end) { /* only its charsmap matters */
            message s = f.content;
            for (field g; next_field(&s, &g, &bad);)
                if (g.number == 2 && g.content.at < g.content.end)
                    return sn_fail(m->err, SN_ERR_FILE,
                                   "%s: rules for decoding (denormalizer_spec) are not supported",
                                   m->path);
        }
    }
    if (bad) return malformed(m, "the file");
    if (m->type == UNIGRAM || m->type == BPE) return true;
    return sn_fail(m->err, SN_ERR_FILE,
                   "%s: model type %lld (word or char) is not supported: unigram (1) and BPE (2) "
                   "are",
                   m->path, (long long)m->type);
}

/* ---- pieces ---- */

static bool add_user(model *m, sn_norm *n, const message *piece) {
    int32_t id = (int32_t)n->users.count;
    const char *text = (const char *)piece->at;
    size_t size = (size_t)(piece->end - piece->at);
    return sn_vocab_set(&n->users, id, text, size, 0, m->err) &&
           (!m->bpe || sn_vocab_set(&m->bpe->users, id, m->text.data, m->text.size, 0, m->err));
}

static bool read_piece(model *m, message s) {
    static const unsigned flags[] = {
        0, 0, SN_TOKEN_CONTROL, SN_TOKEN_CONTROL, SN_TOKEN_USER, SN_TOKEN_UNUSED, SN_TOKEN_BYTE};
    bool bad = false;
    message piece = {0};
    uint64_t type = NORMAL;
    uint32_t bits = 0;
    float score;
    for (field f; next_field(&s, &f, &bad);) {
        if (f.number == 1) piece = f.content;
        if (f.number == 2) bits = (uint32_t)f.value;
        if (f.number == 3) type = f.value;
    }
    if (bad || type < NORMAL || type > BYTE || piece.at == piece.end)
        return malformed(m, "a piece");
    if (type == BYTE && !sn_is_byte_token((const char *)piece.at, (size_t)(piece.end - piece.at)))
        return sn_fail(m->err, SN_ERR_FILE,
                       "%s: the piece \"%.*s\" stands for a byte, but is not <0x00> to <0xFF>",
                       m->path, (int)(piece.end - piece.at < 40 ? piece.end - piece.at : 40),
                       (const char *)piece.at);
    m->unknowns += type == UNKNOWN;
    memcpy(&score, &bits, 4);
    int32_t id = sn_sp_next(&m->numbering, (const char *)piece.at, (size_t)(piece.end - piece.at),
                            type != UNKNOWN && type != CONTROL);
    if (id < 0) return true;
    m->text.size = 0;
    if (!sn_swap_spaces((const char *)piece.at, (size_t)(piece.end - piece.at), &m->text, m->err))
        return false;
    if (sn_vocab_find(&m->t->vocab, m->text.data, m->text.size) >= 0)
        return malformed(m, "a piece that occurs twice");
    if (!sn_vocab_set(&m->t->vocab, id, m->text.data, m->text.size, flags[type], m->err) ||
        (type == USER_DEFINED && !add_user(m, &m->t->norm[m->t->norms - 1], &piece)))
        return false;
    if (type == UNKNOWN) m->t->special[SN_TOKEN_UNK] = id;
    if (type == CONTROL) {
        sn_added a = {(char *)(uintptr_t)piece.at, (size_t)(piece.end - piece.at), .id = id,
                      .special = true};
        if (!sn_tok_add(m->t, &a, m->err)) return false;
    }
    if (m->unigram) {
        if (type == NORMAL && (double)score - 10 < m->unigram->unk_score)
            m->unigram->unk_score = (double)(score - 10);
        return sn_unigram_score(m->unigram, id, (double)score, m->err);
    }
    if (!(score > -1e30f && score < 1e30f)) return malformed(m, "a score");
    return sn_bpe_score(m->bpe, id, score, m->err);
}

static bool read_pieces(model *m) {
    bool bad = false;
    for (field f; next_field(&m->all, &f, &bad);)
        if (f.number == 1 && !read_piece(m, f.content)) return false;
    if (bad || !m->numbering.pieces) return malformed(m, "the list of pieces");
    return m->unknowns == 1 ||
           sn_fail(m->err, SN_ERR_FILE, "%s: %zu pieces stand for unknown text: there must be one",
                   m->path, m->unknowns);
}

static bool make(model *m, const cJSON *config) {
    m->bpe = m->type == BPE ? sn_bpe_new(&sn_tok_llama, m->err) : NULL;
    m->unigram = m->type == UNIGRAM ? sn_unigram_new(m->err) : NULL;
    m->t = m->bpe ? &m->bpe->base : m->unigram ? &m->unigram->base : NULL;
    if (!m->t || !sn_sp_add_steps(&m->numbering, m->t, m->err)) return false;
    sn_norm *n = sn_tok_add_norm(m->t, m->err);
    if (!n) return false;
    m->t->foreign = m->t->swapped = true;
    m->t->decoding.strip = m->prefix || m->collapse;
    m->t->decoding.strip_all = m->collapse;
    n->run = sn_norm_sentencepiece;
    n->prefix = m->prefix, n->suffix = m->suffix, n->collapse = m->collapse, n->escape = m->escape;
    size_t size = (size_t)(m->charsmap.end - m->charsmap.at);
    if (size && !sn_charsmap_read(&n->map, (const char *)m->charsmap.at, size, m->err))
        return false;
    if (m->unigram) m->unigram->floats = true;
    if (m->bpe) m->bpe->by_score = m->bpe->fuse_unk = true;
    if (!read_pieces(m) || !sn_sp_finish(&m->numbering, m->t, m->err)) return false;
    for (int r = 0; r < SN_TOKEN_ROLES && !m->numbering.class; r++)
        if (m->t->special[r] < 0 && m->role[r] >= 0 && m->role[r] < (int64_t)m->t->vocab.count)
            m->t->special[r] = (int32_t)m->role[r];
    if (m->bytes) sn_vocab_find_bytes(&m->t->vocab, m->bpe ? m->bpe->byte_id : m->unigram->byte_id);
    return sn_tok_read_added(m->t, m->path, config, m->err) &&
           sn_tok_finish(m->t, config, m->err) &&
           (!m->unigram || sn_unigram_finish(m->unigram, m->err));
}

sn_tokenizer *sn_tok_load_sentencepiece(const char *path, const cJSON *config, sn_error *err) {
    sn_mapping file;
    if (!sn_file_map(path, &file, err)) return NULL;
    model m = {.path = path,
               .all = {file.data, (const unsigned char *)file.data + file.size},
               .type = UNIGRAM,
               .role = {[SN_TOKEN_BOS] = 1,
                        [SN_TOKEN_EOS] = 2,
                        [SN_TOKEN_MASK] = -1,
                        [SN_TOKEN_UNK] = 0,
                        [SN_TOKEN_PAD] = -1},
               .prefix = true,
               .collapse = true,
               .escape = true,
               .err = err};
    bool ok = sn_sp_begin(&m.numbering, path, config, err) && read_specs(&m) && make(&m, config);
    sn_sp_end(&m.numbering);
    sn_bytes_free(&m.text);
    sn_file_unmap(&file);
    if (ok) return m.t;
    sn_tokenizer_free(m.t);
    return NULL;
}
