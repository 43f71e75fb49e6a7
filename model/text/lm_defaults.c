/* lm_defaults.c: how a text is continued if a request does not say: from the generation_config.json
 * that Hugging Face puts beside a model. Reads JSON with the functions that deployed programs
 * have. */
#include "model/text/generation_impl.h"
#include "model/tokenizer/tok.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

typedef struct source {
    const char *path;
    const cJSON *root;
    sn_error *err;
} source;

/* Sets *value from a key that is present and not null. */
static bool take_number(const source *s, const char *key, double lo, double hi, double *value) {
    const cJSON *item = cJSON_GetObjectItemCaseSensitive(s->root, key);
    if (!item || cJSON_IsNull(item)) return true;
    if (!cJSON_IsNumber(item) || !(item->valuedouble >= lo && item->valuedouble <= hi))
        return sn_fail(s->err, SN_ERR_FILE, "%s: \"%s\" is not a number from %g to %g", s->path,
                       key, lo, hi);
    *value = item->valuedouble;
    return true;
}

static bool take_integer(const source *s, const char *key, int32_t hi, int64_t *value) {
    const cJSON *item = cJSON_GetObjectItemCaseSensitive(s->root, key);
    int32_t number;
    if (!item || cJSON_IsNull(item)) return true;
    if (!sn_json_int(item, 0, hi, &number))
        return sn_fail(s->err, SN_ERR_FILE, "%s: \"%s\" is not an integer from 0 to %d", s->path,
                       key, (int)hi);
    *value = number;
    return true;
}

/* Keys that count only if "do_sample" is true, as in transformers; false: greedy. */
static bool take_sampling(lm_defaults *d, const source *s) {
    const cJSON *sample = cJSON_GetObjectItemCaseSensitive(s->root, "do_sample");
    if (cJSON_IsFalse(sample)) d->temperature = 0;
    return !cJSON_IsTrue(sample) || (take_number(s, "temperature", 0, 1e30, &d->temperature) &&
                                     take_number(s, "top_p", 1e-6, 1, &d->top_p) &&
                                     take_number(s, "min_p", 0, 1, &d->min_p) &&
                                     take_integer(s, "top_k", INT32_MAX, &d->top_k));
}

/* Keys by which transformers chooses other tokens; `same`: a value without effect. */
static const struct {
    const char *key;
    double same;
    bool sampling; /* counts only if "do_sample" is true */
} others[] = {{"num_beams", 1, false},
              {"no_repeat_ngram_size", 0, false},
              {"min_length", 0, false},
              {"min_new_tokens", 0, false},
              {"bad_words_ids", NAN, false},
              {"suppress_tokens", NAN, false},
              {"begin_suppress_tokens", NAN, false},
              {"forced_bos_token_id", NAN, false},
              {"forced_eos_token_id", NAN, false},
              {"force_words_ids", NAN, false},
              {"sequence_bias", NAN, false},
              {"penalty_alpha", 0, false},
              {"guidance_scale", 1, false},
              {"exponential_decay_length_penalty", NAN, false},
              {"typical_p", 1, true},
              {"epsilon_cutoff", 0, true},
              {"eta_cutoff", 0, true}};

static void note_others(lm_defaults *d, const source *s) {
    bool sample = cJSON_IsTrue(cJSON_GetObjectItemCaseSensitive(s->root, "do_sample"));
    size_t at = 0;
    for (size_t i = 0; i < sizeof others / sizeof *others && at < sizeof d->unread; i++) {
        const cJSON *v = cJSON_GetObjectItemCaseSensitive(s->root, others[i].key);
        bool none = !v || cJSON_IsNull(v) || (cJSON_IsArray(v) && !cJSON_GetArraySize(v)) ||
                    (cJSON_IsNumber(v) && v->valuedouble == others[i].same);
        if (none || (others[i].sampling && !sample)) continue;
        at += (size_t)snprintf(d->unread + at, sizeof d->unread - at, at ? ", %s" : "%s",
                               others[i].key);
    }
}

static bool take_config(lm_defaults *d, const char *path, sn_error *err) {
    cJSON *root = sn_json_read(path, err);
    const source s = {path, root, err};
    bool ok = root && take_sampling(d, &s) &&
              take_number(&s, "repetition_penalty", 0.01, 100, &d->repetition_penalty) &&
              take_integer(&s, "max_new_tokens", 1 << 30, &d->tokens);
    if (ok) note_others(d, &s);
    cJSON_Delete(root);
    return ok;
}

bool sn_lm_defaults_read(const char *folder, lm_defaults *out, sn_error *err) {
    *out = (lm_defaults){.tokens = 256, .temperature = 1, .top_p = 1, .repetition_penalty = 1};
    char *path = folder ? sn_path_join(folder, "generation_config.json") : NULL;
    if (folder && !path) return sn_fail(err, SN_ERR_MEMORY, "out of memory");
    bool ok = !path || !sn_file_exists(path) || take_config(out, path, err);
    free(path);
    return ok;
}
