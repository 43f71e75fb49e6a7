/* sentence.c: prompts and lengths of Sentence-Transformers folders. */
#include "model/sentence.h"

#include <stdlib.h>
#include <string.h>

/* An optional file of the model's folder; *out stays NULL without it. */
static bool open_file(const lm *m, const char *name, sn_config **out, sn_error *err) {
    char *path = m->dir ? sn_model_dir_file(m->dir, name) : NULL;
    if (path) *out = sn_config_open(path, err);
    bool ok = !path || *out;
    free(path);
    return ok;
}

/* Whether the tokenizer does not distinguish capitals. */
static bool is_lower_case(const lm *m) {
    sn_ids a = {0}, b = {0};
    bool same = m->tokenizer && sn_tokenizer_encode(m->tokenizer, "A", 1, 0, &a, NULL) &&
                sn_tokenizer_encode(m->tokenizer, "a", 1, 0, &b, NULL) && a.count == b.count &&
                (!a.count || !memcmp(a.data, b.data, a.count * sizeof *a.data));
    sn_ids_free(&a);
    sn_ids_free(&b);
    return same;
}

bool sentence_open(const lm *m, sentence_settings *s, sn_error *err) {
    *s = (sentence_settings){.longest = m->model.context};
    if (!open_file(m, "config_sentence_transformers.json", &s->config, err) ||
        !open_file(m, "sentence_bert_config.json", &s->limits, err))
        return false;
    if (s->limits) {
        int64_t n = sn_config_int_or(s->limits, "max_seq_length", s->longest, 1, 1 << 24);
        if (n < s->longest) s->longest = n;
        if (sn_config_bool_or(s->limits, "do_lower_case", false) && !is_lower_case(m))
            sn_config_problem(s->limits, "\"do_lower_case\" needs a tokenizer that lower-cases");
        if (!sn_config_check(s->limits, err)) return false;
    }
    if (s->config && sn_config_has(s->config, "prompts"))
        s->prompts = sn_config_section(s->config, "prompts");
    return !s->config || sn_config_check(s->config, err);
}

void sentence_close(sentence_settings *s) {
    sn_config_free(s->config);
    sn_config_free(s->prompts);
    sn_config_free(s->limits);
}

bool sentence_has_prompt(const sentence_settings *s, const char *name) {
    return s->prompts && sn_config_has(s->prompts, name);
}

const char *sentence_prompt(sentence_settings *s, const char *name, sn_error *err) {
    const char *usual =
        s->config ? sn_config_string_or(s->config, "default_prompt_name", NULL) : NULL;
    if (!name) name = usual;
    if (!name) return "";
    if (!sentence_has_prompt(s, name)) {
        sn_fail(err, SN_ERR_USAGE, "the model has no prompt called \"%.60s\"", name);
        return NULL;
    }
    const char *text = sn_config_string(s->prompts, name);
    return sn_config_check(s->prompts, err) ? text : NULL;
}

/* Removes tokens from the end of the text, before the special tokens that follow it. */
static bool cut_text(const lm *m, const sentence_settings *s, sn_ids *ids, sn_error *err) {
    sn_ids empty = {0};
    if (!sn_tokenizer_encode(m->tokenizer, "", 0, SN_TOK_TEMPLATE, &empty, err)) return false;
    size_t after = 0, longest = (size_t)s->longest;
    while (after < empty.count &&
           empty.data[empty.count - 1 - after] == ids->data[ids->count - 1 - after])
        after++;
    sn_ids_free(&empty);
    if (after > longest) after = longest;
    memmove(ids->data + longest - after, ids->data + ids->count - after, after * sizeof *ids->data);
    ids->count = longest;
    return true;
}

bool sentence_read_text(const lm *m, const sentence_settings *s, const char *prompt,
                        const char *text, size_t size, bool cut, sn_ids *out, sn_error *err) {
    size_t before = strlen(prompt), all = before + size;
    if (!m->tokenizer) return encoder_read(m, text, size, out, err);
    char *whole = malloc(all + 1);
    if (!whole) return sn_fail(err, SN_ERR_MEMORY, "out of memory");
    memcpy(whole, prompt, before);
    memcpy(whole + before, text, size);
    bool ok = size || sn_fail(err, SN_ERR_USAGE, "the text is empty: there is nothing to read");
    ok = ok &&
         sn_tokenizer_encode(m->tokenizer, whole, all, SN_TOK_SPECIAL | SN_TOK_TEMPLATE, out, err);
    free(whole);
    if (ok && (int64_t)out->count > s->longest && cut) ok = cut_text(m, s, out, err);
    if (ok && (int64_t)out->count > s->longest)
        ok = sn_fail(err, SN_ERR_RANGE,
                     "the text has %zu tokens, but the model embeds at most %lld: shorten it, or "
                     "--truncate",
                     out->count, (long long)s->longest);
    return ok;
}
