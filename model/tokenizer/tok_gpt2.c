/* tok_gpt2.c: GPT-2's byte-level BPE and its files: vocab.json (token -> id, the bytes of a token
 * encoded as printable characters) and merges.txt (one merge per line, best first). */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "model/tokenizer/tok_bpe.h"
#include "model/tokenizer/utf8.h"

const char sn_gpt2_pattern[] = "'s|'t|'re|'ve|'m|'ll|'d"
                               "| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)|\\s+";

bool sn_gpt2_find_bytes(sn_bpe *b, sn_error *err) {
    for (int i = 0; i < 256; i++) {
        char c = (char)i;
        b->byte_id[i] = sn_vocab_find(&b->base.vocab, &c, 1);
        if (b->byte_id[i] < 0)
            return sn_fail(err, SN_ERR_FILE, "vocabulary has no token for byte 0x%02X",
                           (unsigned)i);
    }
    return true;
}

/* ---- loading ---- */

static bool read_vocab(sn_bpe *b, const char *path, const cJSON *root, sn_error *err) {
    sn_bytes text = {0};
    int32_t limit = sn_vocab_limit((size_t)cJSON_GetArraySize(root)), id;
    bool ok = true;
    for (const cJSON *e = root->child; ok && e; e = e->next) {
        if (!sn_json_int(e, 0, limit, &id))
            ok = sn_fail(err, SN_ERR_FILE, "%s: id of \"%.60s\" is not an integer in 0..%d", path,
                         e->string, (int)limit);
        else
            ok = sn_gpt2_decode_chars(e->string, strlen(e->string), &text, err) &&
                 sn_vocab_set(&b->base.vocab, id, text.data, text.size, 0, err);
    }
    sn_bytes_free(&text);
    return ok;
}

static bool read_merge(sn_bpe *b, const char *line, size_t size, sn_bytes part[2], sn_error *err) {
    const char *space = memchr(line, ' ', size);
    size_t left = space ? (size_t)(space - line) : 0, right = space ? size - left - 1 : 0;
    if (!left || !right || memchr(space + 1, ' ', right))
        return sn_fail(err, SN_ERR_FILE, "expected two tokens separated by one space");
    return sn_gpt2_decode_chars(line, left, &part[0], err) &&
           sn_gpt2_decode_chars(space + 1, right, &part[1], err) &&
           sn_bpe_add_merge(b, &part[0], &part[1], err);
}

static bool read_merges(sn_bpe *b, const char *path, sn_error *err) {
    sn_mapping file;
    sn_bytes part[2] = {{0}, {0}};
    sn_error why = {0};
    if (!sn_file_map(path, &file, err)) return false;
    bool ok = true;
    size_t number = 0;
    for (const char *at = (const char *)file.data, *end = at + file.size; ok && at < end;
         number++) {
        const char *line = at, *stop = memchr(at, '\n', (size_t)(end - at));
        if (!stop) stop = end;
        at = stop + (stop < end);
        if (stop > line && stop[-1] == '\r') stop--;
        size_t size = (size_t)(stop - line);
        if (size == 0 || (number == 0 && size >= 8 && !memcmp(line, "#version", 8))) continue;
        ok = read_merge(b, line, size, part, &why);
    }
    if (!ok) sn_fail(err, why.code, "%s line %zu: %s", path, number, why.message);
    sn_bytes_free(&part[0]);
    sn_bytes_free(&part[1]);
    sn_file_unmap(&file);
    return ok;
}

sn_tokenizer *sn_tok_load_gpt2(const char *vocab, const cJSON *root, const char *merges,
                               const cJSON *config, sn_error *err) {
    sn_bpe *b = sn_bpe_new(&sn_tok_gpt2, err);
    if (!b) return NULL;
    b->byte_level = true;
    sn_error why = {0};
    if (!read_vocab(b, vocab, root, err) || !read_merges(b, merges, err) ||
        !sn_tok_add_split(&b->base, sn_gpt2_pattern, SN_ISOLATED, err) ||
        !sn_tok_read_added(&b->base, vocab, config, err) || !sn_tok_finish(&b->base, config, err))
        goto fail;
    if (sn_tokenizer_id(&b->base, "a</w>", 5) >= 0) {
        sn_fail(err, SN_ERR_FILE,
                "%s: tokens end with </w>, as CLIP's: such a vocabulary needs a tokenizer.json",
                vocab);
        goto fail;
    }
    if (!sn_gpt2_find_bytes(b, &why)) {
        sn_fail(err, why.code, "%s: %s", vocab, why.message);
        goto fail;
    }
    return &b->base;
fail:
    sn_tokenizer_free(&b->base);
    return NULL;
}

/* ---- saving ---- */

static bool write_vocab(const sn_bpe *b, sn_bytes *out, sn_error *err) {
    sn_bytes spelled = {0};
    bool ok = sn_bytes_append(out, "{", 1, err), more = false;
    for (int32_t id = 0; ok && (size_t)id < b->base.vocab.count; id++) {
        size_t size;
        const char *text = sn_vocab_text(&b->base.vocab, id, &size);
        if (!text) continue;
        char number[16];
        int digits = snprintf(number, sizeof number, ": %d", (int)id);
        spelled.size = 0;
        ok = (!more || sn_bytes_append(out, ", ", 2, err)) &&
             sn_gpt2_spell(text, size, &spelled, err) &&
             sn_json_quote(out, spelled.data, spelled.size, err) &&
             sn_bytes_append(out, number, (size_t)digits, err);
        more = true;
    }
    sn_bytes_free(&spelled);
    return ok && sn_bytes_append(out, "}\n", 2, err);
}

static int compare_rank(const void *a, const void *b) {
    const sn_pair *x = a, *y = b;
    return x->rank < y->rank ? -1 : x->rank > y->rank;
}

static bool write_merges(const sn_bpe *b, sn_bytes *out, sn_error *err) {
    sn_pair *list = malloc((b->pairs.used + 1) * sizeof *list);
    if (!list) return sn_fail(err, SN_ERR_MEMORY, "tokenizer: out of memory when saving");
    size_t n = 0;
    for (size_t i = 0; i < b->pairs.slots; i++)
        if (b->pairs.slot[i].left >= 0) list[n++] = b->pairs.slot[i];
    qsort(list, n, sizeof *list, compare_rank);
    bool ok = sn_bytes_append(out, "#version: 0.2\n", 14, err);
    for (size_t i = 0; ok && i < n; i++) {
        size_t ls, rs;
        const char *l = sn_vocab_text(&b->base.vocab, list[i].left, &ls);
        const char *r = sn_vocab_text(&b->base.vocab, list[i].right, &rs);
        ok = sn_gpt2_spell(l, ls, out, err) && sn_bytes_append(out, " ", 1, err) &&
             sn_gpt2_spell(r, rs, out, err) && sn_bytes_append(out, "\n", 1, err);
    }
    free(list);
    return ok;
}

static bool save_gpt2(const sn_tokenizer *t, const char *dir, sn_error *err) {
    const sn_bpe *b = (const sn_bpe *)t;
    sn_bytes vocab = {0}, merges = {0};
    bool ok = write_vocab(b, &vocab, err) && write_merges(b, &merges, err) &&
              sn_tok_write(dir, "vocab.json", &vocab, err) &&
              sn_tok_write(dir, "merges.txt", &merges, err);
    sn_bytes_free(&vocab);
    sn_bytes_free(&merges);
    return ok;
}

const sn_tok_kind sn_tok_gpt2 = {"gpt2-bpe",   sizeof(sn_bpe), SN_BPE_SCRATCH, sn_bpe_encode,
                                 sn_bpe_clear, save_gpt2,      sn_bpe_destroy, sn_bpe_serialise};
