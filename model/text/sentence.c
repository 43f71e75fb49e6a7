/* sentence.c: prompts and lengths of Sentence-Transformers folders. Reads JSON with the functions that
 * deployed programs have. */
#include "model/text/sentence.h"
#include "runtime/file.h"
#include "model/text/generation_impl.h"
#include "model/tokenizer/tok.h"

#include <stdlib.h>
#include <string.h>

/* An optional file of the folder; *out stays NULL without it. */
static bool read_file(const char *folder, const char *name, cJSON **out, sn_error *err) {
    if (!folder || !sn_folder_has(folder, name)) return true;
    char *path = sn_path_join(folder, name);
    if (!path) return sn_fail(err, SN_ERR_MEMORY, "out of memory");
    *out = sn_json_read(path, err);
    free(path);
    return *out != NULL;
}

/* Whether the tokenizer does not distinguish capitals. */
static bool is_lower_case(const sn_tokenizer *t) {
    sn_ids a = {0}, b = {0};
    bool same = t && sn_tokenizer_encode(t, "A", 1, 0, &a, NULL) &&
                sn_tokenizer_encode(t, "a", 1, 0, &b, NULL) && a.count == b.count &&
                (!a.count || !memcmp(a.data, b.data, a.count * sizeof *a.data));
    sn_ids_free(&a);
    sn_ids_free(&b);
    return same;
}

static bool take_limits(sentence_settings *s, const cJSON *root, sn_error *err) {
    static const char file[] = "sentence_bert_config.json";
    const cJSON *length = cJSON_GetObjectItemCaseSensitive(root, "max_seq_length");
    int32_t n = INT32_MAX;
    if (length && !cJSON_IsNull(length) && !sn_json_int(length, 1, 1 << 24, &n))
        return sn_fail(err, SN_ERR_FILE, "%s: \"max_seq_length\" is not a number of tokens", file);
    if (n < s->longest) s->longest = n;
    const cJSON *lower = cJSON_GetObjectItemCaseSensitive(root, "do_lower_case");
    return !cJSON_IsTrue(lower) || is_lower_case(s->tokenizer) ||
           sn_fail(err, SN_ERR_FILE, "%s: \"do_lower_case\" needs a tokenizer that lower-cases",
                   file);
}

bool sn_sentence_open(sentence_settings *s, const char *folder, sn_error *err) {
    cJSON *limits = NULL;
    bool ok = read_file(folder, "config_sentence_transformers.json", &s->prompts, err) &&
              read_file(folder, "sentence_bert_config.json", &limits, err) &&
              (!limits || take_limits(s, limits, err));
    cJSON_Delete(limits);
    return ok;
}

void sn_sentence_close(sentence_settings *s) {
    cJSON_Delete(s->prompts);
    s->prompts = NULL;
}

/* The prompt of this name; NULL: there is none. */
static const char *find_prompt(const sentence_settings *s, const char *name) {
    const cJSON *list = cJSON_GetObjectItemCaseSensitive(s->prompts, "prompts");
    return cJSON_GetStringValue(cJSON_GetObjectItemCaseSensitive(list, name));
}

bool sn_sentence_has_prompt(const sentence_settings *s, const char *name) {
    return find_prompt(s, name) != NULL;
}

const char *sn_sentence_prompt(const sentence_settings *s, const char *name, sn_error *err) {
    if (!name)
        name = cJSON_GetStringValue(
            cJSON_GetObjectItemCaseSensitive(s->prompts, "default_prompt_name"));
    if (!name) return "";
    const char *text = find_prompt(s, name);
    if (!text) sn_fail(err, SN_ERR_USAGE, "the model has no prompt called \"%.60s\"", name);
    return text;
}

/* Removes tokens from the end of the text, before the special tokens that follow it. */
static bool cut_text(const sentence_settings *s, sn_ids *ids, sn_error *err) {
    sn_ids empty = {0};
    if (!sn_tokenizer_encode(s->tokenizer, "", 0, SN_TOK_TEMPLATE, &empty, err)) return false;
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

/* A list of ids as a text. */
static bool read_ids(const sentence_settings *s, const char *text, size_t size, sn_ids *out,
                     sn_error *err) {
    if (!sn_lm_encode_text(NULL, text, size, false, out, err)) return false;
    for (size_t i = 0; s->vocab && i < out->count; i++)
        if (out->data[i] >= s->vocab)
            return sn_fail(err, SN_ERR_RANGE, "token %d is outside the vocabulary 0..%lld",
                           (int)out->data[i], (long long)s->vocab - 1);
    return true;
}

static bool read_words(const sentence_settings *s, const char *prompt, const char *text,
                       size_t size, sn_ids *out, sn_error *err) {
    size_t before = strlen(prompt), all = before + size;
    char *whole = malloc(all + 1);
    if (!whole) return sn_fail(err, SN_ERR_MEMORY, "out of memory");
    memcpy(whole, prompt, before);
    memcpy(whole + before, text, size);
    bool ok =
        sn_tokenizer_encode(s->tokenizer, whole, all, SN_TOK_SPECIAL | SN_TOK_TEMPLATE, out, err);
    free(whole);
    return ok;
}

bool sn_sentence_read_text(const sentence_settings *s, const char *prompt, const char *text,
                           size_t size, bool cut, sn_ids *out, sn_error *err) {
    bool ok = s->tokenizer ? !size || read_words(s, prompt, text, size, out, err)
                           : read_ids(s, text, size, out, err);
    if (ok && (!size || !out->count))
        return sn_fail(err, SN_ERR_USAGE, "the text is empty: there is nothing to read");
    if (ok && (int64_t)out->count > s->longest && cut && s->tokenizer) ok = cut_text(s, out, err);
    if (ok && (int64_t)out->count > s->longest)
        ok = sn_fail(err, SN_ERR_RANGE,
                     "the text has %zu tokens, but the model embeds at most %lld: shorten it%s",
                     out->count, (long long)s->longest, s->tokenizer ? ", or --truncate" : "");
    return ok;
}
