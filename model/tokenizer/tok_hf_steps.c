/* tok_hf_steps.c: the steps of a tokenizer.json besides the model: normalizer, pre_tokenizer,
 * decoder. A table for each names the types that are known. An unknown step is an error, because
 * ignoring it would silently produce wrong ids. */
#include <string.h>

#include "model/tokenizer/tok_bpe.h"
#include "model/tokenizer/tok_hf.h"
#include "model/tokenizer/tok_wordpiece.h"

const cJSON *sn_hf_get(const cJSON *object, const char *key) {
    return cJSON_GetObjectItemCaseSensitive(object, key);
}

const char *sn_hf_text(const cJSON *object, const char *key) {
    return cJSON_GetStringValue(sn_hf_get(object, key));
}

bool sn_hf_bool(const cJSON *object, const char *key, bool otherwise) {
    const cJSON *item = sn_hf_get(object, key);
    return cJSON_IsBool(item) ? cJSON_IsTrue(item) : otherwise;
}

static bool is_text(const cJSON *object, const char *key, const char *want) {
    const char *text = sn_hf_text(object, key);
    return text && !strcmp(text, want);
}

bool sn_hf_refuse(sn_hf_reading *r, const char *what, const char *value) {
    return sn_fail(r->err, SN_ERR_FILE, "%s: %s \"%.60s\" is not supported", r->path, what,
                   value ? value : "(no type)");
}

/* A type of step and the function that applies it. */
typedef struct step_rule {
    const char *type;
    bool (*apply)(sn_hf_reading *r, const cJSON *step);
} step_rule;

/* Applies the rule for a step's type; a "Sequence" holds steps in an array of the given name. */
static bool apply_step(sn_hf_reading *r, const cJSON *step, const char *what, const char *list,
                       const step_rule *rules, int depth) {
    if (!step || cJSON_IsNull(step)) return true;
    const char *type = sn_hf_text(step, "type");
    if (type && !strcmp(type, "Sequence") && depth < 4) {
        const cJSON *steps = sn_hf_get(step, list);
        if (!cJSON_IsArray(steps)) return sn_hf_refuse(r, what, "Sequence without steps");
        for (const cJSON *e = steps->child; e; e = e->next)
            if (!apply_step(r, e, what, list, rules, depth + 1)) return false;
        return true;
    }
    for (; type && rules->type; rules++)
        if (!strcmp(rules->type, type)) return rules->apply(r, step);
    return sn_hf_refuse(r, what, type);
}

static bool append_escaped(sn_bytes *out, const char *text, sn_error *err) {
    bool ok = sn_bytes_append(out, "", 0, err);
    for (; ok && *text; text++) {
        bool plain = (unsigned char)*text >= 0x80 || *text == '_' || *text <= ' ' ||
                     (*text >= '0' && *text <= '9') || (*text >= 'A' && *text <= 'Z') ||
                     (*text >= 'a' && *text <= 'z');
        ok = sn_bytes_append(out, "\\", !plain, err) && sn_bytes_append(out, text, 1, err);
    }
    return ok;
}

/* The regular expression of "pattern": {"Regex": ...} or {"String": ...}, into r->text. */
static bool read_pattern(sn_hf_reading *r, const cJSON *step) {
    const cJSON *pattern = sn_hf_get(step, "pattern");
    const char *regex = sn_hf_text(pattern, "Regex"), *string = sn_hf_text(pattern, "String");
    r->text.size = 0;
    if (regex) return sn_bytes_append(&r->text, regex, strlen(regex), r->err);
    if (string && *string) return append_escaped(&r->text, string, r->err);
    return sn_hf_refuse(r, "pattern", "without Regex or String");
}

/* A text that mentions U+2581 says that the vocabulary writes spaces so. */
static void note_spaces(sn_hf_reading *r, const char *text) {
    if (text && strstr(text, SN_METASPACE)) r->t->swapped = true;
}

/* ---- normalizer ---- */

static sn_norm *add_norm(sn_hf_reading *r,
                         bool (*run)(const sn_norm *, sn_leaves, sn_bytes *, sn_error *)) {
    sn_norm *n = sn_tok_add_norm(r->t, r->err);
    if (n) n->run = run;
    return n;
}

static bool take_form(sn_hf_reading *r, const cJSON *step) {
    static const char *const names[] = {
        [SN_NFC] = "NFC", [SN_NFD] = "NFD", [SN_NFKC] = "NFKC", [SN_NFKD] = "NFKD"};
    sn_norm *n = add_norm(r, sn_norm_form);
    for (int form = 0; n && form <= SN_NFKD; form++)
        if (is_text(step, "type", names[form])) n->form = (sn_form)form;
    return n && sn_unicode_need(r->t, r->err);
}

static bool take_lowercase(sn_hf_reading *r, const cJSON *step) {
    (void)step;
    return add_norm(r, sn_norm_lower) && sn_unicode_need(r->t, r->err);
}

static bool take_strip_accents(sn_hf_reading *r, const cJSON *step) {
    (void)step;
    return add_norm(r, sn_norm_strip_accents) && sn_unicode_need(r->t, r->err);
}

static bool take_nmt(sn_hf_reading *r, const cJSON *step) {
    (void)step;
    return add_norm(r, sn_norm_nmt);
}

static bool take_prepend(sn_hf_reading *r, const cJSON *step) {
    const char *text = sn_hf_text(step, "prepend");
    if (!text) return sn_hf_refuse(r, "prepend", "(no text)");
    note_spaces(r, text);
    sn_norm *n = add_norm(r, sn_norm_prepend);
    return n && sn_bytes_append(&n->text, text, strlen(text), r->err);
}

static bool take_replace(sn_hf_reading *r, const cJSON *step) {
    const char *content = sn_hf_text(step, "content");
    if (!content) return sn_hf_refuse(r, "replacement", "without content");
    note_spaces(r, content);
    sn_norm *n = read_pattern(r, step) ? add_norm(r, sn_norm_replace) : NULL;
    return n && sn_bytes_append(&n->text, content, strlen(content), r->err) &&
           (n->regex = sn_regex_new(r->text.data, r->text.size, r->err));
}

static bool take_strip_space(sn_hf_reading *r, const cJSON *step) {
    sn_norm *n = add_norm(r, sn_norm_strip);
    if (!n) return false;
    n->left = sn_hf_bool(step, "strip_left", true);
    n->right = sn_hf_bool(step, "strip_right", true);
    return true;
}

static bool take_precompiled(sn_hf_reading *r, const cJSON *step) {
    const char *map = sn_hf_text(step, "precompiled_charsmap");
    if (!map || !*map) return true; /* an empty table */
    sn_norm *n = add_norm(r, sn_norm_precompiled);
    sn_error why = {0};
    if (!n || !sn_unicode_need(r->t, r->err)) return false;
    return sn_charsmap_decode(&n->map, map, &why) ||
           sn_fail(r->err, why.code, "%s: %s", r->path, why.message);
}

static bool take_bert_normalizer(sn_hf_reading *r, const cJSON *step) {
    sn_norm *n = add_norm(r, sn_norm_bert);
    if (!n) return false;
    n->clean = sn_hf_bool(step, "clean_text", true);
    n->chinese = sn_hf_bool(step, "handle_chinese_chars", true);
    n->lower = sn_hf_bool(step, "lowercase", true);
    n->strip = sn_hf_bool(step, "strip_accents", n->lower);
    return sn_unicode_need(r->t, r->err);
}

static const step_rule normalizers[] = {{"NFC", take_form},
                                        {"NFD", take_form},
                                        {"NFKC", take_form},
                                        {"NFKD", take_form},
                                        {"Lowercase", take_lowercase},
                                        {"StripAccents", take_strip_accents},
                                        {"Nmt", take_nmt},
                                        {"Prepend", take_prepend},
                                        {"Replace", take_replace},
                                        {"Strip", take_strip_space},
                                        {"Precompiled", take_precompiled},
                                        {"BertNormalizer", take_bert_normalizer},
                                        {NULL, NULL}};

/* ---- pre_tokenizer ---- */

static bool take_byte_level(sn_hf_reading *r, const cJSON *step) {
    bool again = r->byte_level;
    r->byte_level = true;
    bool prefix = sn_hf_bool(step, "add_prefix_space", true);
    bool words = sn_hf_bool(step, "use_regex", true);
    if (again) return sn_hf_refuse(r, "a second pre_tokenizer", "ByteLevel");
    r->byte_steps = r->t->splits + (prefix || words);
    if (!prefix && !words) return true;
    sn_split *s = sn_tok_add_split(r->t, words ? sn_gpt2_pattern : NULL, SN_ISOLATED, r->err);
    if (!s) return false;
    s->prefix = prefix ? SN_PREFIX_ALWAYS : SN_PREFIX_NONE;
    s->unless = true;
    return true;
}

/* Without "behavior": Isolated. */
static bool read_behavior(sn_hf_reading *r, const cJSON *step, sn_behavior *out) {
    static const char *const names[] = {[SN_ISOLATED] = "Isolated",
                                        [SN_REMOVED] = "Removed",
                                        [SN_CONTIGUOUS] = "Contiguous",
                                        [SN_MERGED_WITH_PREVIOUS] = "MergedWithPrevious",
                                        [SN_MERGED_WITH_NEXT] = "MergedWithNext"};
    for (int i = 0; i <= SN_MERGED_WITH_NEXT; i++) {
        *out = (sn_behavior)i;
        if (is_text(step, "behavior", names[i])) return true;
    }
    *out = SN_ISOLATED;
    return !sn_hf_get(step, "behavior") ||
           sn_hf_refuse(r, "split behavior", sn_hf_text(step, "behavior"));
}

static bool take_split(sn_hf_reading *r, const cJSON *step) {
    sn_behavior behavior;
    if (!read_behavior(r, step, &behavior) || !read_pattern(r, step)) return false;
    sn_split *s = sn_tok_add_split(r->t, r->text.data, behavior, r->err);
    if (s) s->invert = sn_hf_bool(step, "invert", false);
    return s != NULL;
}

static bool take_digits(sn_hf_reading *r, const cJSON *step) {
    bool single = sn_hf_bool(step, "individual_digits", false);
    return sn_tok_add_split(r->t, single ? "\\p{N}" : "\\p{N}+", SN_ISOLATED, r->err);
}

static bool take_punctuation(sn_hf_reading *r, const cJSON *step) {
    sn_behavior behavior;
    return read_behavior(r, step, &behavior) &&
           sn_tok_add_split(r->t, "[!-/:-@\\[-`{-~\\p{P}]", behavior, r->err);
}

static bool keep_matches(sn_hf_reading *r, const char *pattern) {
    sn_split *s = sn_tok_add_split(r->t, pattern, SN_REMOVED, r->err);
    if (s) s->invert = true;
    return s != NULL;
}

#define WORD "\\p{Alphabetic}\\p{M}\\p{Nd}\\p{Pc}\\x{200C}\\x{200D}"
static bool take_whitespace(sn_hf_reading *r, const cJSON *step) {
    (void)step;
    return keep_matches(r, "[" WORD "]+|[^" WORD "\\p{White_Space}]+");
}

static bool take_whitespace_split(sn_hf_reading *r, const cJSON *step) {
    (void)step;
    return keep_matches(r, "[^\\p{White_Space}]+");
}

static bool take_bert(sn_hf_reading *r, const cJSON *step) {
    (void)step;
    return keep_matches(r, sn_bert_pattern);
}

static bool take_delimiter(sn_hf_reading *r, const cJSON *step) {
    const char *text = sn_hf_text(step, "delimiter");
    if (!text || !*text) return sn_hf_refuse(r, "delimiter", text);
    r->text.size = 0;
    return append_escaped(&r->text, text, r->err) &&
           sn_tok_add_split(r->t, r->text.data, SN_REMOVED, r->err);
}

static sn_prefix metaspace_prefix(const cJSON *step) {
    if (is_text(step, "prepend_scheme", "first")) return SN_PREFIX_FIRST;
    if (is_text(step, "prepend_scheme", "never")) return SN_PREFIX_NONE;
    return sn_hf_bool(step, "add_prefix_space", true) ? SN_PREFIX_ALWAYS : SN_PREFIX_NONE;
}

static bool take_metaspace(sn_hf_reading *r, const cJSON *step) {
    const char *space = sn_hf_text(step, "replacement");
    if (!space || strcmp(space, SN_METASPACE)) return sn_hf_refuse(r, "replacement", space);
    bool words = sn_hf_bool(step, "split", true);
    sn_split *s = sn_tok_add_split(r->t, words ? SN_METASPACE : NULL, SN_MERGED_WITH_NEXT, r->err);
    if (!s) return false;
    strcpy(s->space, SN_METASPACE);
    s->prefix = metaspace_prefix(step);
    s->unless = r->t->swapped = true;
    return true;
}

static const step_rule pre_tokenizers[] = {
    {"ByteLevel", take_byte_level},  {"Split", take_split},
    {"Digits", take_digits},         {"Punctuation", take_punctuation},
    {"Whitespace", take_whitespace}, {"WhitespaceSplit", take_whitespace_split},
    {"BertPreTokenizer", take_bert}, {"CharDelimiterSplit", take_delimiter},
    {"Metaspace", take_metaspace},   {NULL, NULL}};

/* ---- decoder ---- */

static bool accept(sn_hf_reading *r, const cJSON *step) {
    (void)r, (void)step;
    return true;
}

static bool take_replace_decoder(sn_hf_reading *r, const cJSON *step) {
    const char *string = sn_hf_text(sn_hf_get(step, "pattern"), "String");
    if (!string || strcmp(string, SN_METASPACE) || !is_text(step, "content", " "))
        return sn_hf_refuse(r, "decoder that replaces", string);
    r->t->swapped = true;
    return true;
}

static bool take_strip(sn_hf_reading *r, const cJSON *step) {
    int32_t start, stop;
    if (!is_text(step, "content", " ") || !sn_json_int(sn_hf_get(step, "start"), 0, 1, &start) ||
        !sn_json_int(sn_hf_get(step, "stop"), 0, 0, &stop))
        return sn_hf_refuse(r, "strip of", sn_hf_text(step, "content"));
    r->t->decoding.strip = start;
    return true;
}

static bool take_metaspace_decoder(sn_hf_reading *r, const cJSON *step) {
    r->t->decoding.strip = metaspace_prefix(step) != SN_PREFIX_NONE;
    r->t->swapped = true;
    return true;
}

static bool take_wordpiece_decoder(sn_hf_reading *r, const cJSON *step) {
    const char *prefix = sn_hf_text(step, "prefix");
    sn_decoding *d = &r->t->decoding;
    d->join = true;
    d->cleanup = sn_hf_bool(step, "cleanup", true);
    d->prefix.size = 0;
    return sn_bytes_append(&d->prefix, prefix ? prefix : "##", prefix ? strlen(prefix) : 2, r->err);
}

static bool take_suffix_decoder(sn_hf_reading *r, const cJSON *step) {
    const char *suffix = sn_hf_text(step, "suffix");
    r->t->decoding.suffix.size = 0;
    return sn_bytes_append(&r->t->decoding.suffix, suffix ? suffix : "</w>",
                           suffix ? strlen(suffix) : 4, r->err);
}

static const step_rule decoders[] = {{"ByteLevel", accept},
                                     {"ByteFallback", accept},
                                     {"Fuse", accept},
                                     {"Replace", take_replace_decoder},
                                     {"Strip", take_strip},
                                     {"Metaspace", take_metaspace_decoder},
                                     {"WordPiece", take_wordpiece_decoder},
                                     {"BPEDecoder", take_suffix_decoder},
                                     {NULL, NULL}};

/* Steps after ByteLevel see the letters that it spells bytes with. */
static bool spell_bytes(sn_hf_reading *r) {
    sn_tokenizer *t = r->t;
    if (!r->byte_level || r->byte_steps == t->splits) return true;
    if (!sn_tok_add_split(t, NULL, SN_ISOLATED, r->err)) return false;
    for (size_t i = t->splits - 1; i > r->byte_steps; i--) t->split[i] = t->split[i - 1];
    t->split[r->byte_steps] = (sn_split){.spell = true};
    return t->spelled = true;
}

bool sn_hf_read_steps(sn_hf_reading *r) {
    return apply_step(r, sn_hf_get(r->root, "normalizer"), "normalizer", "normalizers", normalizers,
                      0) &&
           apply_step(r, sn_hf_get(r->root, "pre_tokenizer"), "pre_tokenizer", "pretokenizers",
                      pre_tokenizers, 0) &&
           spell_bytes(r) &&
           apply_step(r, sn_hf_get(r->root, "decoder"), "decoder", "decoders", decoders, 0);
}
