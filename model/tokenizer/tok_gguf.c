/* tok_gguf.c: the vocabulary in a GGUF file: keys "tokenizer.ggml.*". Three models: "llama"
 * (SentencePiece BPE by scores), "gpt2" (byte-level BPE by merges; "pre" names the patterns that
 * split the text) and "bert" (WordPiece). */
#include <math.h>
#include <string.h>

#include "runtime/files/gguf.h"
#include "model/tokenizer/tok_bpe.h"
#include "model/tokenizer/tok_wordpiece.h"

#define KEY "tokenizer.ggml."

/* Values of token_type. */
enum { NORMAL = 1, UNKNOWN, CONTROL, USER_DEFINED, UNUSED, BYTE };

typedef struct reading {
    const sn_gguf *g;
    sn_bytes text; /* scratch */
    sn_error *err;
} reading;

static const sn_gguf_key *find(const reading *r, const char *key) {
    char name[96];
    snprintf(name, sizeof name, KEY "%s", key);
    return sn_gguf_find(r->g, name);
}

static bool get_bool(const reading *r, const char *key, bool otherwise) {
    double v = sn_gguf_number(find(r, key), 0);
    return isnan(v) ? otherwise : v != 0;
}

static int type_of(const sn_gguf_key *types, size_t id) {
    double v = types ? sn_gguf_number(types, id) : NORMAL;
    return v >= NORMAL && v <= BYTE ? (int)v : NORMAL;
}

/* ---- texts ---- */

/* Writes a token's text as it appears in text to r->text. */
typedef bool spelling(reading *r, const char *text, size_t size, bool special);

static bool plain(reading *r, const char *text, size_t size) {
    r->text.size = 0;
    return sn_bytes_append(&r->text, text, size, r->err);
}

static bool spell_llama(reading *r, const char *text, size_t size, bool special) {
    if (special) return plain(r, text, size);
    r->text.size = 0;
    return sn_swap_spaces(text, size, &r->text, r->err);
}

static bool spell_gpt2(reading *r, const char *text, size_t size, bool special) {
    return special ? plain(r, text, size) : sn_gpt2_decode_chars(text, size, &r->text, r->err);
}

/* Converters write the first piece of a word with U+2581 before it, and omit "##". */
static bool spell_bert(reading *r, const char *text, size_t size, bool special) {
    if (special || (size && *text == '[')) return plain(r, text, size);
    if (size >= 3 && !memcmp(text, SN_METASPACE, 3)) return plain(r, text + 3, size - 3);
    return plain(r, "##", 2) && sn_bytes_append(&r->text, text, size, r->err);
}

static bool read_tokens(reading *r, sn_tokenizer *t, spelling *spell) {
    const sn_gguf_key *tokens = find(r, "tokens"), *types = find(r, "token_type");
    const char *text;
    size_t at = 0, size, id = 0;
    if (!tokens || !tokens->count || tokens->count > INT32_MAX / 2)
        return sn_fail(r->err, SN_ERR_FILE, "%s: \"" KEY "tokens\" is missing, empty or too long",
                       r->g->path);
    if (types && types->count != tokens->count)
        return sn_fail(r->err, SN_ERR_FILE,
                       "%s: \"" KEY "token_type\" has %zu elements, but there are %zu tokens",
                       r->g->path, types->count, tokens->count);
    for (; sn_gguf_string(tokens, &at, &text, &size); id++) {
        int type = type_of(types, id);
        bool control = type == CONTROL || type == UNKNOWN;
        if (type == BYTE && !sn_is_byte_token(text, size))
            return sn_fail(r->err, SN_ERR_FILE,
                           "%s: token %zu stands for a byte, but is not <0x00> to <0xFF>",
                           r->g->path, id);
        if (!spell(r, text, size, control || type == USER_DEFINED) ||
            !sn_vocab_set(&t->vocab, (int32_t)id, r->text.data, r->text.size,
                          control ? SN_TOKEN_CONTROL : 0, r->err))
            return false;
        sn_added added = {r->text.data, r->text.size, .id = (int32_t)id,
                          .special = type == CONTROL};
        if ((type == CONTROL || type == USER_DEFINED) && !sn_tok_add(t, &added, r->err))
            return false;
    }
    return true;
}

/* ---- special tokens ---- */

static bool read_roles(reading *r, sn_tokenizer *t) {
    static const struct {
        sn_token_role role;
        const char *key;
    } roles[] = {{SN_TOKEN_BOS, "bos_token_id"},     {SN_TOKEN_BOS, "cls_token_id"},
                 {SN_TOKEN_EOS, "eos_token_id"},     {SN_TOKEN_EOS, "seperator_token_id"},
                 {SN_TOKEN_UNK, "unknown_token_id"}, {SN_TOKEN_PAD, "padding_token_id"},
                 {SN_TOKEN_MASK, "mask_token_id"}};
    for (size_t i = 0; i < sizeof roles / sizeof *roles; i++) {
        const sn_gguf_key *k = find(r, roles[i].key);
        double id = sn_gguf_number(k, 0);
        if (!k || id == UINT32_MAX) continue; /* none */
        if (!(id >= 0 && id < (double)t->vocab.count) || id != floor(id))
            return sn_fail(r->err, SN_ERR_FILE, "%s: \"%s\" is %g, but there are %zu tokens",
                           r->g->path, k->name, id, t->vocab.count);
        if (t->special[roles[i].role] < 0) t->special[roles[i].role] = (int32_t)id;
    }
    t->foreign = true;
    return sn_tok_finish(t, NULL, r->err);
}

/* ---- the three models ---- */

static bool read_scores(reading *r, sn_bpe *b) {
    const sn_gguf_key *k = find(r, "scores");
    size_t n = b->base.vocab.count;
    if (!k || k->count != n)
        return sn_fail(r->err, SN_ERR_FILE, "%s: \"" KEY "scores\" must have %zu numbers",
                       r->g->path, n);
    for (size_t i = 0; i < n; i++) {
        const float score = (float)sn_gguf_number(k, i);
        if (!sn_bpe_score(b, (int32_t)i, score, r->err)) return false;
        if (isnan(score))
            return sn_fail(r->err, SN_ERR_FILE, "%s: score of token %zu is NaN", r->g->path, i);
    }
    return true;
}

static sn_tokenizer *read_llama(reading *r) {
    sn_bpe *b = sn_bpe_new(&sn_tok_llama, r->err);
    if (!b) return NULL;
    b->by_score = b->base.swapped = true;
    b->base.decoding.strip = get_bool(r, "add_space_prefix", true);
    sn_split *spaces = sn_tok_add_split(&b->base, NULL, SN_ISOLATED, r->err);
    if (spaces) strcpy(spaces->space, SN_METASPACE);
    if (spaces) spaces->prefix = b->base.decoding.strip ? SN_PREFIX_ALWAYS : SN_PREFIX_NONE;
    if (spaces && read_tokens(r, &b->base, spell_llama) && read_scores(r, b)) {
        sn_vocab_find_bytes(&b->base.vocab, b->byte_id);
        if (read_roles(r, &b->base)) return &b->base;
    }
    sn_tokenizer_free(&b->base);
    return NULL;
}

/* How text is split before merging (ggml-org/llama.cpp, src/llama-vocab.cpp). */
#define GPT2 "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)|\\s+"
#define NEW(digits)                                                                                \
    "(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}" digits                     \
    "| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"
#define UPPER "[\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}]"
#define LOWER "[\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}]"
/* Letters with case but those of Georgian that got one in Unicode 11; scripts without spaces. */
#define CASED_LETTERS "(?:(?![\\x{10d0}-\\x{10ff}])\\p{L&})+"
#define CJK "[\\x{800}-\\x{9fa5}\\x{ac00}-\\x{d7ff}]+"
/* One or more, or any number, of a class without Han characters. */
#define NOT_HAN(class, count) "(?:(?!\\p{Han})" class ")" count
#define SUFFIX "(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
#define CASED(ending, digits)                                                                      \
    "[^\\r\\n\\p{L}\\p{N}]?" UPPER "*" LOWER "+" ending "|[^\\r\\n\\p{L}\\p{N}]?" UPPER "+" LOWER  \
    "*" ending "|\\p{N}" digits "| ?[^\\s\\p{L}\\p{N}]+[\\r\\n/]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"
static const struct {
    const char *names; /* values of "pre", with a space around each */
    bool whole_first;  /* a piece that is itself a token is not split */
    const char *pattern[6];
} splits[] = {
    {" gpt-2 phi-2 olmo mpt jina-en jina-es jina-de gigachat modern-bert ", false, {GPT2}},
    {" llama-bpe llama3 llama-v3 falcon3 ", true, {NEW("{1,3}")}},
    {" dbrx smaug-bpe ", false, {NEW("{1,3}")}},
    {" qwen2 stablelm2 deepseek-r1-qwen megrez ", false, {NEW("")}},
    {" smollm starcoder refact command-r codeshell exaone ", false, {"\\p{N}", GPT2}},
    {" falcon ", false, {"[\\p{P}\\$\\+<=>\\^~\\|`]+", GPT2, "[0-9][0-9][0-9]"}},
    {" tekken ", true, {CASED("", "")}},
    {" gpt-4o ", false, {CASED(SUFFIX, "{1,3}")}},
    {" qwen35 ",
     false,
     {"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?[\\p{L}\\p{M}]+|\\p{N}"
      "| ?[^\\s\\p{L}\\p{M}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"}},
    {" deepseek-llm ",
     false,
     {"[\\r\\n]", "\\s?" CASED_LETTERS,
      "\\s?[!-/:-~\\x{ff01}-\\x{ff0f}\\x{ff1a}-\\x{ff5e}\\x{2018}-\\x{201f}\\x{3000}-\\x{3002}]+",
      "\\s+$", CJK, "\\p{N}+"}},
    {" deepseek-coder ", false, {"[\\r\\n]", "\\s?\\p{L}+", "\\s?\\p{P}+", CJK, "\\p{N}"}},
    {" deepseek-v3 hunyuan-dense joyai-llm ",
     false,
     {"\\p{N}{1,3}", "[\\x{4e00}-\\x{9fa5}\\x{3040}-\\x{30ff}]+",
      "[!-/:-@\\[-`{-~][A-Za-z]+|[^\\r\\n\\p{L}\\p{P}\\p{S}]?[\\p{L}\\p{M}]+| "
      "?[\\p{P}\\p{S}]+[\\r\\n]*"
      "|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"}},
    {" kimi-k2 ",
     false,
     {"\\p{Han}+|[^\\r\\n\\p{L}\\p{N}]?" NOT_HAN(UPPER, "*") NOT_HAN(LOWER, "+") SUFFIX
      "|[^\\r\\n\\p{L}\\p{N}]?" NOT_HAN(UPPER, "+") NOT_HAN(LOWER, "*") SUFFIX
      "|\\p{N}{1,3}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"}},
};

static bool read_patterns(reading *r, sn_bpe *b) {
    const sn_gguf_key *k = find(r, "pre");
    char name[64] = " gpt-2 ", names[400] = "";
    const char *text;
    size_t at = 0, size, n = 0;
    if (sn_gguf_string(k, &at, &text, &size))
        snprintf(name, sizeof name, " %.*s ", (int)(size < 60 ? size : 60), text);
    else if (!sn_gguf_says(sn_gguf_find(r->g, "general.architecture"), "gpt2"))
        return sn_fail(r->err, SN_ERR_FILE,
                       "%s: \"" KEY "pre\", which says how text is split, is missing: convert the "
                       "model again with a newer program",
                       r->g->path);
    for (size_t i = 0; i < sizeof splits / sizeof *splits; i++) {
        if (strstr(splits[i].names, name)) {
            b->whole_first = splits[i].whole_first;
            for (int p = 0; p < 6 && splits[i].pattern[p]; p++)
                if (!sn_tok_add_split(&b->base, splits[i].pattern[p], SN_ISOLATED, r->err))
                    return false;
            return true;
        }
        if (n < sizeof names)
            n += (size_t)snprintf(names + n, sizeof names - n, "%s", splits[i].names);
    }
    return sn_fail(r->err, SN_ERR_FILE, "%s: \"" KEY "pre\" is \"%.*s\"; known: %s", r->g->path,
                   (int)strlen(name) - 2, name + 1, names);
}

static bool read_merges(reading *r, sn_bpe *b) {
    const sn_gguf_key *k = find(r, "merges");
    sn_bytes part[2] = {{0}, {0}};
    sn_error why = {0};
    const char *text;
    size_t at = 0, size, number = 0;
    if (!k) return sn_fail(r->err, SN_ERR_FILE, "%s: \"" KEY "merges\" is missing", r->g->path);
    bool ok = true;
    for (; ok && sn_gguf_string(k, &at, &text, &size); number++) {
        const char *space = size > 1 ? memchr(text + 1, ' ', size - 1) : NULL;
        size_t left = space ? (size_t)(space - text) : 0;
        ok = space ? sn_gpt2_decode_chars(text, left, &part[0], &why) &&
                         sn_gpt2_decode_chars(space + 1, size - left - 1, &part[1], &why) &&
                         sn_bpe_add_merge(b, &part[0], &part[1], &why)
                   : sn_fail(&why, SN_ERR_FILE, "expected two tokens separated by one space");
    }
    if (!ok) sn_fail(r->err, why.code, "%s: merge %zu: %s", r->g->path, number - 1, why.message);
    sn_bytes_free(&part[0]);
    sn_bytes_free(&part[1]);
    return ok;
}

static sn_tokenizer *read_gpt2(reading *r) {
    sn_bpe *b = sn_bpe_new(&sn_tok_gpt2, r->err);
    if (!b) return NULL;
    sn_error why = {0};
    b->byte_level = true;
    sn_split *prefix = sn_tok_add_split(&b->base, NULL, SN_ISOLATED, r->err);
    if (prefix && get_bool(r, "add_space_prefix", false)) {
        prefix->prefix = SN_PREFIX_ALWAYS;
        prefix->unless = true;
    }
    if (prefix && read_tokens(r, &b->base, spell_gpt2) && read_merges(r, b) &&
        read_patterns(r, b)) {
        if (!sn_gpt2_find_bytes(b, &why))
            sn_fail(r->err, why.code, "%s: %s", r->g->path, why.message);
        else if (read_roles(r, &b->base))
            return &b->base;
    }
    sn_tokenizer_free(&b->base);
    return NULL;
}

static sn_tokenizer *read_bert(reading *r) {
    sn_wordpiece *w = sn_wordpiece_new("##", r->err);
    if (!w) return NULL;
    if (sn_wordpiece_bert(w, r->err) && read_tokens(r, &w->base, spell_bert) &&
        read_roles(r, &w->base))
        return &w->base;
    sn_tokenizer_free(&w->base);
    return NULL;
}

sn_tokenizer *sn_tok_load_gguf(const char *path, sn_error *err) {
    static const struct {
        const char *model;
        sn_tokenizer *(*read)(reading *r);
    } models[] = {{"llama", read_llama}, {"gpt2", read_gpt2}, {"bert", read_bert}};
    sn_gguf *g = sn_gguf_open(path, err);
    if (!g) return NULL;
    reading r = {.g = g, .err = err};
    sn_tokenizer *t = NULL;
    const sn_gguf_key *k = find(&r, "model");
    size_t i = 0, n = sizeof models / sizeof *models;
    while (i < n && !sn_gguf_says(k, models[i].model)) i++;
    if (i < n)
        t = models[i].read(&r);
    else
        sn_fail(err, SN_ERR_FILE, "%s: %s; supported: llama, gpt2, bert", path,
                k ? "the vocabulary (\"" KEY "model\") has an unknown model"
                  : "the file has no vocabulary (\"" KEY "model\")");
    sn_bytes_free(&r.text);
    sn_gguf_close(g);
    return t;
}
