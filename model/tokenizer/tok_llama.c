/* tok_llama.c: SentencePiece-style BPE and its file in llama2.c, tokenizer.bin: i32 longest token,
 * then for each id f32 score, i32 size, bytes; little endian. Ids 0, 1, 2 are unk, bos, eos;
 * "<0x00>".."<0xFF>" are byte tokens; a word begins with its space. */
#include <math.h>
#include <string.h>

#include "model/tokenizer/tok_bpe.h"

enum { UNK = 0, BOS = 1, EOS = 2, FIRST_TEXT = 3 };

static uint32_t get_u32(const char *p) {
    const unsigned char *b = (const unsigned char *)p;
    return b[0] | (uint32_t)b[1] << 8 | (uint32_t)b[2] << 16 | (uint32_t)b[3] << 24;
}

static bool put_u32(sn_bytes *out, uint32_t v, sn_error *err) {
    char b[4] = {(char)v, (char)(v >> 8), (char)(v >> 16), (char)(v >> 24)};
    return sn_bytes_append(out, b, 4, err);
}

/* llama2.c wraps the texts of bos and eos in newlines, for display. */
static bool is_wrapped(int32_t id, const char *text, size_t size) {
    return (id == BOS || id == EOS) && size > 2 && text[0] == '\n' && text[size - 1] == '\n';
}

static bool read_tokens(sn_bpe *b, const char *path, const sn_mapping *file, sn_error *err) {
    const char *data = (const char *)file->data, *at = data + 4, *end = data + file->size;
    uint32_t longest = get_u32(data), found = 0;
    for (int32_t id = 0; at < end; id++) {
        if (end - at < 8 || get_u32(at + 4) > (size_t)(end - at - 8))
            return sn_fail(err, SN_ERR_FILE,
                           "%s: token %d at byte %td extends past the end: the file is truncated, "
                           "or not a tokenizer.bin of llama2.c",
                           path, (int)id, at - data);
        uint32_t bits = get_u32(at), size = get_u32(at + 4);
        float score;
        memcpy(&score, &bits, 4);
        if (!sn_bpe_score(b, id, score, err)) return false;
        if (isnan(score))
            return sn_fail(err, SN_ERR_FILE, "%s: score of token %d is NaN", path, (int)id);
        const char *text = at + 8;
        at += 8 + size;
        unsigned flags = id < FIRST_TEXT ? SN_TOKEN_CONTROL : 0;
        if (size > found) found = size;
        if (is_wrapped(id, text, size)) text++, size -= 2;
        if (!sn_vocab_set(&b->base.vocab, id, text, size, flags, err)) return false;
    }
    if (found < longest)
        return sn_fail(
            err, SN_ERR_FILE,
            "%s: the longest token has %u bytes, not %u as the file says: it is truncated, "
            "or not a tokenizer.bin of llama2.c",
            path, found, longest);
    return b->base.vocab.count > FIRST_TEXT ||
           sn_fail(err, SN_ERR_FILE, "%s: only %zu tokens", path, b->base.vocab.count);
}

sn_tokenizer *sn_tok_load_llama(const char *path, const cJSON *config, sn_error *err) {
    sn_mapping file;
    if (!sn_file_map(path, &file, err)) return NULL;
    sn_bpe *b = sn_bpe_new(&sn_tok_llama, err);
    bool ok = b && (file.size >= 4 || sn_fail(err, SN_ERR_FILE, "%s: empty", path)) &&
              read_tokens(b, path, &file, err);
    if (ok) {
        b->by_score = b->base.decoding.strip = true;
        b->base.special[SN_TOKEN_UNK] = UNK;
        b->base.special[SN_TOKEN_BOS] = BOS;
        b->base.special[SN_TOKEN_EOS] = EOS;
        sn_vocab_find_bytes(&b->base.vocab, b->byte_id);
        sn_split *prefix = sn_tok_add_split(&b->base, NULL, SN_ISOLATED, err);
        if (prefix) prefix->prefix = SN_PREFIX_FIRST;
        ok = prefix && sn_tok_finish(&b->base, config, err);
    }
    sn_file_unmap(&file);
    if (ok) return &b->base;
    if (b) sn_tokenizer_free(&b->base);
    return NULL;
}

static bool save_llama(const sn_tokenizer *t, const char *dir, sn_error *err) {
    const sn_bpe *b = (const sn_bpe *)t;
    sn_bytes out = {0};
    uint32_t longest = 0; /* llama2.c does not count the newlines around bos and eos */
    for (size_t id = 0; id < t->vocab.count; id++)
        if (t->vocab.entry[id].size > longest) longest = t->vocab.entry[id].size;
    bool ok = put_u32(&out, longest, err);
    for (int32_t id = 0; ok && (size_t)id < t->vocab.count; id++) {
        size_t size;
        const char *text = sn_vocab_text(&t->vocab, id, &size);
        uint32_t bits, wrap = id == BOS || id == EOS;
        memcpy(&bits, &b->score[id], 4);
        ok = put_u32(&out, bits, err) && put_u32(&out, (uint32_t)size + 2 * wrap, err) &&
             sn_bytes_append(&out, "\n", wrap, err) && sn_bytes_append(&out, text, size, err) &&
             sn_bytes_append(&out, "\n", wrap, err);
    }
    ok = ok && sn_tok_write(dir, "tokenizer.bin", &out, err);
    sn_bytes_free(&out);
    return ok;
}

const sn_tok_kind sn_tok_llama = {"llama-bpe",  sizeof(sn_bpe), SN_BPE_SCRATCH, sn_bpe_encode,
                                  sn_bpe_clear, save_llama,     sn_bpe_destroy, sn_bpe_serialise};
