/* token_rules.c: reads the rules, with the JSON functions that deployed programs have, and applies
 * them. */
#include "model/text/token_rules.h"
#include "model/sample.h"
#include "model/tokenizer/tok.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---- reading ---- */

typedef struct source {
    const char *path;
    const cJSON *root;
    sn_error *err;
} source;

static const cJSON *get(const source *s, const char *key) {
    const cJSON *item = cJSON_GetObjectItemCaseSensitive(s->root, key);
    return cJSON_IsNull(item) ? NULL : item;
}

static bool malformed(const source *s, const char *key, const char *what) {
    return sn_fail(s->err, SN_ERR_FILE, "%s: \"%s\" is not %s", s->path, key, what);
}

static bool take_count(const source *s, const char *key, int64_t *out) {
    const cJSON *item = get(s, key);
    int32_t n;
    if (!item) return true;
    if (!sn_json_int(item, 0, 1 << 30, &n)) return malformed(s, key, "a count");
    *out = n;
    return true;
}

static bool take_token(const source *s, const char *key, int32_t *out) {
    const cJSON *item = get(s, key);
    if (cJSON_IsArray(item) && item->child) item = item->child;
    return !item || sn_json_int(item, 0, INT32_MAX, out) || malformed(s, key, "a token");
}

static bool take_number(const source *s, const char *key, double lo, double hi, double *out) {
    const cJSON *item = get(s, key);
    if (!item) return true;
    if (!cJSON_IsNumber(item) || !(item->valuedouble >= lo && item->valuedouble <= hi))
        return malformed(s, key, "a number in its range");
    *out = item->valuedouble;
    return true;
}

static bool push_tokens(const source *s, const char *key, const cJSON *list, sn_ids *out) {
    int32_t id;
    for (const cJSON *e = list->child; e; e = e->next)
        if (!sn_json_int(e, 0, INT32_MAX, &id))
            return malformed(s, key, "a list of tokens");
        else if (!sn_ids_push(out, id, s->err))
            return false;
    return true;
}

static bool take_tokens(const source *s, const char *key, sn_ids *out) {
    const cJSON *list = get(s, key);
    if (list && !cJSON_IsArray(list)) return malformed(s, key, "a list of tokens");
    return !list || push_tokens(s, key, list, out);
}

/* Rows of one token are tokens that never occur. */
static bool take_rows(const source *s, const char *key, sn_token_rules *r) {
    const cJSON *rows = get(s, key);
    for (const cJSON *row = cJSON_IsArray(rows) ? rows->child : NULL; row; row = row->next) {
        int n = cJSON_IsArray(row) ? cJSON_GetArraySize(row) : 0;
        sn_ids *out = n == 1 ? &r->never : &r->never_rows;
        if (n < 1) return malformed(s, key, "a list of lists of tokens");
        if (n > 1 && !sn_ids_push(out, n, s->err)) return false;
        if (!push_tokens(s, key, row, out)) return false;
    }
    return true;
}

/* Rules that change the result and are not supported, unless they have this value. */
static const struct {
    const char *key;
    double same;
} others[] = {{"encoder_no_repeat_ngram_size", 0},
              {"encoder_repetition_penalty", 1},
              {"num_beam_groups", 1},
              {"diversity_penalty", 0},
              {"exponential_decay_length_penalty", NAN},
              {"force_words_ids", NAN},
              {"sequence_bias", NAN},
              {"guidance_scale", 1}};

static bool check_others(const source *s) {
    for (size_t i = 0; i < sizeof others / sizeof *others; i++) {
        const cJSON *item = get(s, others[i].key);
        if (item && !(cJSON_IsNumber(item) && item->valuedouble == others[i].same))
            return sn_fail(s->err, SN_ERR_FILE, "%s: \"%s\" is not supported", s->path,
                           others[i].key);
    }
    return true;
}

static bool take_stop(const source *s, sn_beam_stop *out) {
    const cJSON *item = get(s, "early_stopping");
    const char *text = cJSON_GetStringValue(item);
    if (item && !cJSON_IsBool(item) && (!text || strcmp(text, "never")))
        return malformed(s, "early_stopping", "true, false or \"never\"");
    *out = text ? SN_BEAM_STOP_SURE : cJSON_IsTrue(item) ? SN_BEAM_STOP_FULL : SN_BEAM_STOP_LIKELY;
    return true;
}

/* max_length and min_length count the start token. */
static bool take_lengths(const source *s, sn_token_rules *r) {
    int64_t max_length = 0, min_length = 0, min_new = 0;
    if (!take_count(s, "max_length", &max_length) || !take_count(s, "min_length", &min_length))
        return false;
    if (max_length > 1) r->max_tokens = max_length - 1;
    if (min_length > 1) r->min_tokens = min_length;
    if (!take_count(s, "max_new_tokens", &r->max_tokens) ||
        !take_count(s, "min_new_tokens", &min_new))
        return false;
    if (min_new) r->min_tokens = min_new + 1;
    return true;
}

static bool take_rules(const source *s, sn_token_rules *r) {
    r->length_penalty = 1;
    return take_count(s, "num_beams", &r->beams) && take_lengths(s, r) &&
           take_number(s, "length_penalty", 0, 100, &r->length_penalty) && take_stop(s, &r->stop) &&
           take_token(s, "decoder_start_token_id", &r->start) &&
           take_token(s, "eos_token_id", &r->eos) &&
           take_token(s, "forced_bos_token_id", &r->first) &&
           take_token(s, "forced_eos_token_id", &r->last) &&
           take_count(s, "no_repeat_ngram_size", &r->no_repeat) &&
           take_number(s, "repetition_penalty", 0.01, 100, &r->repetition_penalty) &&
           take_tokens(s, "suppress_tokens", &r->never) &&
           take_tokens(s, "begin_suppress_tokens", &r->never_first) &&
           take_rows(s, "bad_words_ids", r) && check_others(s);
}

bool sn_token_rules_read(sn_token_rules *r, const char *folder, sn_error *err) {
    static const char *const names[] = {"generation_config.json", "config.json"};
    *r = (sn_token_rules)SN_TOKEN_RULES_NONE;
    int file = 0;
    while (folder && file < 2 && !sn_folder_has(folder, names[file])) file++;
    if (!folder || file == 2) return true;
    char *path = sn_path_join(folder, names[file]);
    cJSON *root = path ? sn_json_read(path, err) : NULL;
    bool ok = path || sn_fail(err, SN_ERR_MEMORY, "out of memory");
    const source s = {path, root, err};
    bool has = root && (!file || cJSON_IsTrue(get(&s, "is_encoder_decoder")));
    ok = ok && root && (!has || take_rules(&s, r));
    r->transformers = has && (!file || get(&s, "architectures") || get(&s, "transformers_version"));
    if (!ok) sn_token_rules_free(r);
    cJSON_Delete(root);
    free(path);
    return ok;
}

void sn_token_rules_free(sn_token_rules *r) {
    sn_ids_free(&r->never);
    sn_ids_free(&r->never_first);
    sn_ids_free(&r->never_rows);
}

/* ---- applying ---- */

void sn_token_rules_normalise(float *x, int64_t n) {
    double sum = 0, largest = x[sn_sample_largest(x, (size_t)n)];
    for (int64_t i = 0; i < n; i++) sum += exp(x[i] - largest);
    for (int64_t i = 0; i < n; i++) x[i] = (float)(x[i] - largest - log(sum));
}

bool sn_token_rules_apply_to(const sn_token_rules *r) {
    return r && (r->min_tokens || r->first >= 0 || r->last >= 0 || r->no_repeat ||
                 r->repetition_penalty != 1 || r->never.count || r->never_first.count ||
                 r->never_rows.count);
}

static void forbid(float *scores, int64_t vocab, int32_t token) {
    if (token >= 0 && token < vocab) scores[token] = -INFINITY;
}

static void allow_only(float *scores, int64_t vocab, int32_t token) {
    for (int64_t i = 0; i < vocab; i++) scores[i] = i == token ? 0 : -INFINITY;
}

/* [Keskar et al. 2019, section 4.1], once for each token that occurred */
static void penalise(const int32_t *tokens, int64_t n, double penalty, float *scores,
                     int64_t vocab) {
    for (int64_t i = 0; i < n; i++) {
        bool again = tokens[i] >= vocab;
        for (int64_t k = 0; k < i && !again; k++) again = tokens[k] == tokens[i];
        if (again) continue;
        float *x = &scores[tokens[i]];
        *x = *x < 0 ? (float)(*x * penalty) : (float)(*x / penalty);
    }
}

/* Forbids what would complete `size` tokens that occurred in a row. */
static void forbid_repeats(const int32_t *tokens, int64_t n, int64_t size, float *scores,
                           int64_t vocab) {
    const int32_t *last = tokens + n - (size - 1);
    for (int64_t i = 0; i + size <= n; i++)
        if (!memcmp(tokens + i, last, sizeof *tokens * (size_t)(size - 1)))
            forbid(scores, vocab, tokens[i + size - 1]);
}

static void forbid_rows(const sn_ids *rows, const int32_t *tokens, int64_t n, float *scores,
                        int64_t vocab) {
    for (size_t at = 0; at < rows->count; at += (size_t)rows->data[at] + 1) {
        int64_t before = rows->data[at] - 1;
        const int32_t *row = rows->data + at + 1;
        if (before <= n && !memcmp(tokens + n - before, row, sizeof *row * (size_t)before))
            forbid(scores, vocab, row[before]);
    }
}

void sn_token_rules_apply(const sn_token_rules *r, const int32_t *tokens, int64_t n,
                          int64_t max_tokens, int32_t eos, float *scores, int64_t vocab) {
    if (r->first >= 0 && r->first < vocab && n == 1) {
        allow_only(scores, vocab, r->first);
        return;
    }
    if (r->last >= 0 && r->last < vocab && n == max_tokens) {
        allow_only(scores, vocab, r->last);
        return;
    }
    if (r->repetition_penalty != 1) penalise(tokens, n, r->repetition_penalty, scores, vocab);
    if (r->no_repeat) forbid_repeats(tokens, n, r->no_repeat, scores, vocab);
    forbid_rows(&r->never_rows, tokens, n, scores, vocab);
    if (n < r->min_tokens) forbid(scores, vocab, eos);
    for (size_t i = 0; i < r->never.count; i++) forbid(scores, vocab, r->never.data[i]);
    for (size_t i = 0; i < r->never_first.count && n == 1 + (r->first >= 0); i++)
        forbid(scores, vocab, r->never_first.data[i]);
}
