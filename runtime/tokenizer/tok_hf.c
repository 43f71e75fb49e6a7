/* tok_hf.c: Hugging Face's tokenizer.json with BPE (byte level; characters with byte fallback) or
 * WordPiece models. The file describes a pipeline: normalizer, pre_tokenizer, model,
 * post_processor, decoder. Known steps set fields of the tokenizer. An unknown step is an error,
 * because ignoring it would silently produce wrong ids. */
#include <string.h>

#include "runtime/tokenizer/tok_bpe.h"
#include "runtime/tokenizer/tok_wordpiece.h"

static const char metaspace[] = "\xE2\x96\x81"; /* U+2581, represents a space */

typedef struct reading {
    const char *path;
    const cJSON *root, *model;
    sn_bpe *bpe;                    /* one of the two is created */
    sn_wordpiece_options wordpiece; /* filled before the object is created */
    bool spaces;                    /* the texts represent spaces by U+2581 */
    sn_bytes text;                  /* scratch */
    sn_error *err;
} reading;

/* ---- JSON helpers ---- */

static const cJSON *get(const cJSON *object, const char *key) {
    return cJSON_GetObjectItemCaseSensitive(object, key);
}

static const char *get_text(const cJSON *object, const char *key) {
    return cJSON_GetStringValue(get(object, key));
}

static bool get_bool(const cJSON *object, const char *key, bool otherwise) {
    const cJSON *item = get(object, key);
    return cJSON_IsBool(item) ? cJSON_IsTrue(item) : otherwise;
}

static bool is_text(const cJSON *object, const char *key, const char *want) {
    const char *text = get_text(object, key);
    return text && !strcmp(text, want);
}

/* A type of pipeline step and the function that applies it. */
typedef struct step_rule {
    const char *type;
    bool (*apply)(reading *r, const cJSON *step);
} step_rule;

static bool refuse(reading *r, const char *what, const char *value) {
    return sn_fail(r->err, SN_ERR_FILE, "%s: %s \"%.60s\" is not supported", r->path, what,
                   value ? value : "(no type)");
}

/* Applies the rule for a step's type; a "Sequence" holds steps in an array of the given name. */
static bool apply_step(reading *r, const cJSON *step, const char *what, const char *list,
                       const step_rule *rules, int depth) {
    if (!step || cJSON_IsNull(step)) return true;
    const char *type = get_text(step, "type");
    if (type && !strcmp(type, "Sequence") && depth < 4) {
        const cJSON *steps = get(step, list);
        if (!cJSON_IsArray(steps)) return refuse(r, what, "Sequence without steps");
        for (const cJSON *e = steps->child; e; e = e->next)
            if (!apply_step(r, e, what, list, rules, depth + 1)) return false;
        return true;
    }
    for (; type && rules->type; rules++)
        if (!strcmp(rules->type, type)) return rules->apply(r, step);
    return refuse(r, what, type);
}

static bool accept(reading *r, const cJSON *step) {
    (void)r, (void)step;
    return true;
}

/* ---- BPE: normalizer, pre_tokenizer, decoder ---- */

static bool take_prepend(reading *r, const cJSON *step) {
    if (!is_text(step, "prepend", metaspace))
        return refuse(r, "prepend", get_text(step, "prepend"));
    r->bpe->prefix = SN_PREFIX_ALWAYS;
    return true;
}

static bool take_replace(reading *r, const cJSON *step) {
    const cJSON *pattern = get(step, "pattern");
    if (!is_text(pattern, "String", " ") || !is_text(step, "content", metaspace))
        return refuse(r, "replacement of", get_text(pattern, "String"));
    r->spaces = true;
    return true;
}

static const step_rule bpe_normalizers[] = {
    {"Prepend", take_prepend}, {"Replace", take_replace}, {NULL, NULL}};

static bool take_byte_level(reading *r, const cJSON *step) {
    r->bpe->byte_level = true;
    if (get_bool(step, "add_prefix_space", true)) {
        r->bpe->prefix = SN_PREFIX_ALWAYS;
        r->bpe->prefix_unless = true;
    }
    return !get_bool(step, "use_regex", true) ||
           sn_bpe_add_pattern(r->bpe, sn_gpt2_pattern, r->err);
}

/* Both behaviours keep the matches as pieces. "Removed" with invert would also drop what lies
 * between them; supported because such patterns leave nothing between. */
static bool take_split(reading *r, const cJSON *step) {
    const char *behavior = get_text(step, "behavior");
    const char *regex = get_text(get(step, "pattern"), "Regex");
    bool invert = get_bool(step, "invert", false);
    if (!regex) return refuse(r, "split by", "a string");
    if (!behavior || strcmp(behavior, invert ? "Removed" : "Isolated"))
        return refuse(r, "split behavior", behavior);
    return sn_bpe_add_pattern(r->bpe, regex, r->err);
}

static bool take_digits(reading *r, const cJSON *step) {
    bool single = get_bool(step, "individual_digits", false);
    return sn_bpe_add_pattern(r->bpe, single ? "\\p{N}" : "\\p{N}+", r->err);
}

static sn_prefix metaspace_prefix(const cJSON *step) {
    if (is_text(step, "prepend_scheme", "first")) return SN_PREFIX_FIRST;
    if (is_text(step, "prepend_scheme", "never")) return SN_PREFIX_NONE;
    return get_bool(step, "add_prefix_space", true) ? SN_PREFIX_ALWAYS : SN_PREFIX_NONE;
}

static bool take_metaspace(reading *r, const cJSON *step) {
    if (!is_text(step, "replacement", metaspace))
        return refuse(r, "replacement", get_text(step, "replacement"));
    r->spaces = r->bpe->prefix_unless = true;
    r->bpe->prefix = metaspace_prefix(step);
    return !get_bool(step, "split", true) ||
           sn_bpe_add_pattern(r->bpe, " [^ ]*|[^ ]+", r->err); /* a space starts a piece */
}

static const step_rule bpe_pre_tokenizers[] = {{"ByteLevel", take_byte_level},
                                               {"Split", take_split},
                                               {"Digits", take_digits},
                                               {"Metaspace", take_metaspace},
                                               {NULL, NULL}};

static bool take_strip(reading *r, const cJSON *step) {
    int32_t start, stop;
    if (!is_text(step, "content", " ") || !sn_json_int(get(step, "start"), 0, 1, &start) ||
        !sn_json_int(get(step, "stop"), 0, 0, &stop))
        return refuse(r, "strip of", get_text(step, "content"));
    r->bpe->strip = start;
    return true;
}

static bool take_metaspace_decoder(reading *r, const cJSON *step) {
    r->bpe->strip = metaspace_prefix(step) != SN_PREFIX_NONE;
    return true;
}

static const step_rule bpe_decoders[] = {
    {"ByteLevel", accept}, {"ByteFallback", accept}, {"Fuse", accept},
    {"Replace", accept},   {"Strip", take_strip},    {"Metaspace", take_metaspace_decoder},
    {NULL, NULL}};

/* ---- vocabulary and merges ---- */

/* Converts a text of the file to the vocabulary's form, into r->text. */
static bool plain_text(reading *r, const char *text, size_t size) {
    if (r->bpe && r->bpe->byte_level) return sn_gpt2_unspell(text, size, &r->text, r->err);
    r->text.size = 0;
    if (!sn_bytes_append(&r->text, "", 0, r->err)) return false;
    for (size_t at = 0; at < size;) {
        bool space = r->spaces && size - at >= 3 && !memcmp(text + at, metaspace, 3);
        if (!sn_bytes_append(&r->text, space ? " " : text + at, 1, r->err)) return false;
        at += space ? 3 : 1;
    }
    return true;
}

static bool read_vocab(reading *r, sn_tokenizer *t) {
    const cJSON *vocab = get(r->model, "vocab");
    if (!cJSON_IsObject(vocab))
        return sn_fail(r->err, SN_ERR_FILE, "%s: model.vocab must be an object", r->path);
    int32_t limit = sn_vocab_limit((size_t)cJSON_GetArraySize(vocab)), id;
    for (const cJSON *e = vocab->child; e; e = e->next) {
        if (!sn_json_int(e, 0, limit, &id))
            return sn_fail(r->err, SN_ERR_FILE, "%s: id of \"%.60s\" is not an integer in 0..%d",
                           r->path, e->string, (int)limit);
        if (!plain_text(r, e->string, strlen(e->string)) ||
            !sn_vocab_set(&t->vocab, id, r->text.data, r->text.size, 0, r->err))
            return false;
    }
    return true;
}

static bool read_added(reading *r, sn_tokenizer *t) {
    const cJSON *list = get(r->root, "added_tokens");
    int32_t limit = sn_vocab_limit(t->vocab.count), id;
    for (const cJSON *e = cJSON_IsArray(list) ? list->child : NULL; e; e = e->next) {
        const char *content = get_text(e, "content");
        size_t size;
        if (!content || !sn_json_int(get(e, "id"), 0, limit, &id))
            return sn_fail(r->err, SN_ERR_FILE,
                           "%s: an added token needs a content and an id in 0..%d", r->path,
                           (int)limit);
        if (!sn_vocab_text(&t->vocab, id, &size) &&
            (!plain_text(r, content, strlen(content)) ||
             !sn_vocab_set(&t->vocab, id, r->text.data, r->text.size, 0, r->err)))
            return false;
        bool special = get_bool(e, "special", false);
        if (special) t->vocab.entry[id].flags |= SN_TOKEN_CONTROL;
        if (!sn_tok_add(t, id, special, get_bool(e, "lstrip", false), get_bool(e, "rstrip", false),
                        r->err))
            return false;
    }
    return true;
}

/* One merge, "a b" or ["a", "b"]. */
static bool read_merge(reading *r, const cJSON *merge, sn_bytes part[2]) {
    const char *text[2] = {cJSON_GetStringValue(merge), NULL};
    size_t size[2] = {0, 0};
    if (text[0]) {
        text[1] = strchr(text[0], ' ');
        if (text[1]) size[0] = (size_t)(text[1]++ - text[0]);
    } else if (cJSON_GetArraySize(merge) == 2) {
        text[0] = cJSON_GetStringValue(merge->child);
        text[1] = cJSON_GetStringValue(merge->child->next);
        if (text[0]) size[0] = strlen(text[0]);
    }
    if (!text[0] || !text[1]) return sn_fail(r->err, SN_ERR_FILE, "expected two tokens");
    size[1] = strlen(text[1]);
    for (int i = 0; i < 2; i++) {
        part[i].size = 0;
        if (!plain_text(r, text[i], size[i]) ||
            !sn_bytes_append(&part[i], r->text.data, r->text.size, r->err))
            return false;
    }
    return sn_bpe_add_merge(r->bpe, &part[0], &part[1], r->err);
}

static bool read_merges(reading *r) {
    const cJSON *merges = get(r->model, "merges");
    sn_bytes part[2] = {{0}, {0}};
    sn_error why = {0}, *err = r->err;
    if (!cJSON_IsArray(merges))
        return sn_fail(err, SN_ERR_FILE, "%s: model.merges must be an array", r->path);
    bool ok = true;
    size_t number = 0;
    r->err = &why;
    for (const cJSON *e = merges->child; ok && e; e = e->next, number++)
        ok = read_merge(r, e, part);
    r->err = err;
    if (!ok) sn_fail(err, why.code, "%s: merge %zu: %s", r->path, number - 1, why.message);
    sn_bytes_free(&part[0]);
    sn_bytes_free(&part[1]);
    return ok;
}

/* ---- special tokens ---- */

static void take_role(sn_tokenizer *t, sn_token_role role, const char *name) {
    if (name && t->special[role] < 0)
        t->special[role] = sn_vocab_find(&t->vocab, name, strlen(name));
}

/* The tokens before and after the text in the template for a single text are bos and eos. */
static void read_template(sn_tokenizer *t, const cJSON *step, int depth) {
    const cJSON *list = get(step, "processors"), *single = get(step, "single");
    if (cJSON_IsArray(list) && depth < 4)
        for (const cJSON *e = list->child; e; e = e->next) read_template(t, e, depth + 1);
    sn_token_role role = SN_TOKEN_BOS;
    for (const cJSON *e = cJSON_IsArray(single) ? single->child : NULL; e; e = e->next) {
        if (get(e, "Sequence")) role = SN_TOKEN_EOS;
        take_role(t, role, get_text(get(e, "SpecialToken"), "id"));
    }
    const cJSON *cls = get(step, "cls"), *sep = get(step, "sep"); /* ["[CLS]", 101] */
    if (cJSON_IsArray(cls)) take_role(t, SN_TOKEN_BOS, cJSON_GetStringValue(cls->child));
    if (cJSON_IsArray(sep)) take_role(t, SN_TOKEN_EOS, cJSON_GetStringValue(sep->child));
}

static bool finish(reading *r, sn_tokenizer *t, const cJSON *config) {
    t->foreign = true;
    if (t->vocab.count == 0) return sn_fail(r->err, SN_ERR_FILE, "%s: no tokens", r->path);
    take_role(t, SN_TOKEN_UNK, get_text(r->model, "unk_token"));
    read_template(t, get(r->root, "post_processor"), 0);
    return sn_tok_finish(t, config, r->err);
}

/* ---- the two models ---- */

static bool no_affix(reading *r, const char *key) {
    const char *affix = get_text(r->model, key);
    return !affix || !*affix || refuse(r, key, affix);
}

/* Byte level is recognised by the pre_tokenizer or, if that only splits, by the decoder. */
static sn_tokenizer *load_bpe(reading *r, const cJSON *config) {
    sn_bpe *b = r->bpe = sn_bpe_new(&sn_tok_llama, r->err);
    if (!b) return NULL;
    bool ok = no_affix(r, "continuing_subword_prefix") && no_affix(r, "end_of_word_suffix") &&
              apply_step(r, get(r->root, "normalizer"), "normalizer", "normalizers",
                         bpe_normalizers, 0) &&
              apply_step(r, get(r->root, "pre_tokenizer"), "pre_tokenizer", "pretokenizers",
                         bpe_pre_tokenizers, 0) &&
              apply_step(r, get(r->root, "decoder"), "decoder", "decoders", bpe_decoders, 0);
    if (b->byte_level) b->base.kind = &sn_tok_gpt2;
    b->whole_first = get_bool(r->model, "ignore_merges", false);
    b->fuse_unk = get_bool(r->model, "fuse_unk", false);
    ok = ok && read_vocab(r, &b->base) && read_merges(r) && read_added(r, &b->base);
    if (ok && !b->byte_level && get_bool(r->model, "byte_fallback", false))
        sn_bpe_find_byte_tokens(b);
    sn_error why = {0};
    if (ok && b->byte_level && !sn_gpt2_find_bytes(b, &why))
        ok = sn_fail(r->err, why.code, "%s: %s", r->path, why.message);
    if (ok && finish(r, &b->base, config)) return &b->base;
    sn_tokenizer_free(&b->base);
    return NULL;
}

static bool take_bert_normalizer(reading *r, const cJSON *step) {
    r->wordpiece.clean = get_bool(step, "clean_text", true);
    r->wordpiece.chinese = get_bool(step, "handle_chinese_chars", true);
    r->wordpiece.lower = get_bool(step, "lowercase", true);
    r->wordpiece.strip = get_bool(step, "strip_accents", r->wordpiece.lower);
    return true;
}

static const step_rule bert_normalizers[] = {{"BertNormalizer", take_bert_normalizer},
                                             {NULL, NULL}};
static const step_rule bert_pre_tokenizers[] = {{"BertPreTokenizer", accept}, {NULL, NULL}};
static const step_rule bert_decoders[] = {{"WordPiece", accept}, {NULL, NULL}};

static sn_tokenizer *load_wordpiece(reading *r, const cJSON *config) {
    const char *prefix = get_text(r->model, "continuing_subword_prefix");
    r->wordpiece = (sn_wordpiece_options){.max_chars = 100, .prefix = prefix ? prefix : "##"};
    const cJSON *max = get(r->model, "max_input_chars_per_word");
    if (max && !sn_json_int(max, 1, INT32_MAX, &r->wordpiece.max_chars)) {
        sn_fail(r->err, SN_ERR_FILE, "%s: max_input_chars_per_word is not a positive integer",
                r->path);
        return NULL;
    }
    if (!apply_step(r, get(r->root, "normalizer"), "normalizer", "normalizers", bert_normalizers,
                    0) ||
        !apply_step(r, get(r->root, "pre_tokenizer"), "pre_tokenizer", "pretokenizers",
                    bert_pre_tokenizers, 0) ||
        !apply_step(r, get(r->root, "decoder"), "decoder", "decoders", bert_decoders, 0))
        return NULL;
    sn_wordpiece *w = sn_wordpiece_new(&r->wordpiece, r->err);
    if (!w) return NULL;
    if (read_vocab(r, &w->base) && read_added(r, &w->base) && finish(r, &w->base, config))
        return &w->base;
    sn_tokenizer_free(&w->base);
    return NULL;
}

sn_tokenizer *sn_tok_load_hf(const char *path, const cJSON *root, const cJSON *config,
                             sn_error *err) {
    reading r = {.path = path, .root = root, .model = get(root, "model"), .err = err};
    const char *type = get_text(r.model, "type");
    /* files of old versions have no type */
    if (!type) type = get(r.model, "merges") ? "BPE" : "WordPiece";
    sn_tokenizer *t = NULL;
    if (!strcmp(type, "BPE"))
        t = load_bpe(&r, config);
    else if (!strcmp(type, "WordPiece"))
        t = load_wordpiece(&r, config);
    else
        refuse(&r, "model", type);
    sn_bytes_free(&r.text);
    return t;
}
