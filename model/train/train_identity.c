/* train_identity.c: what a run was started with, as lines and hashes stored in the checkpoint; a
 * run can only be resumed with the same. */
#include "model/train/train.h"

#include "runtime/file.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

const train_part train_parts[TRAIN_PARTS] = {
    [TRAIN_SETTINGS] = {"sinter.settings", "settings"},
    [TRAIN_MODEL] = {"sinter.model", "model"},
    [TRAIN_TOKENIZER] = {"sinter.tokenizer", "tokenizer"},
    [TRAIN_TEXT] = {"sinter.text", "text"},
    [TRAIN_VALIDATION] = {"sinter.validation", "validation text"},
};

static void add(XXH3_state_t *h, const void *data, size_t bytes) {
    uint64_t size = bytes; /* prefixed, to keep the parts separate */
    XXH3_64bits_update(h, &size, sizeof size);
    if (bytes) XXH3_64bits_update(h, data, bytes);
}

static void add_documents(XXH3_state_t *h, const sn_documents *d, const int32_t *label) {
    add(h, d->ids.data, d->ids.count * sizeof *d->ids.data);
    for (size_t i = 0; i < d->count; i++) {
        uint64_t end = d->end[i];
        XXH3_64bits_update(h, &end, sizeof end);
    }
    add(h, label, label ? d->count * sizeof *label : 0);
}

static void add_tokenizer(XXH3_state_t *h, const sn_tokenizer *t) {
    const char *kind = sn_tokenizer_kind(t);
    add(h, kind, strlen(kind));
    for (int32_t id = 0; id < sn_tokenizer_vocab_size(t); id++) {
        size_t size = 0;
        const char *text = sn_tokenizer_text(t, id, &size);
        add(h, text, text ? size : 0);
    }
    for (int role = 0; role < SN_TOKEN_ROLES; role++) {
        int32_t id = sn_tokenizer_special(t, (sn_token_role)role);
        add(h, &id, sizeof id);
    }
}

/* The model's config, or the file of a model in C. */
static bool add_model(XXH3_state_t *h, const train_settings *s, sn_error *err) {
    size_t size = 0;
    char *text = sn_config_print(s->model, &size);
    if (!text) return sn_fail(err, SN_ERR_MEMORY, "out of memory");
    add(h, text, size);
    free(text);
    sn_mapping m;
    if (!s->source) return true;
    if (!sn_file_map(s->source, &m, err)) return false;
    add(h, m.data, m.size);
    sn_file_unmap(&m);
    return true;
}

bool train_identify(const train_settings *s, const train_data *d, train_identity *out,
                    sn_error *err) {
    XXH3_state_t *h = XXH3_createState();
    if (!h) return sn_fail(err, SN_ERR_MEMORY, "out of memory");
    train_settings_text(s, out->part[TRAIN_SETTINGS], sizeof out->part[0]);
    bool ok = true;
    for (int p = TRAIN_SETTINGS + 1; ok && p < TRAIN_PARTS; p++) {
        XXH3_64bits_reset(h);
        if (p == TRAIN_MODEL) ok = add_model(h, s, err);
        if (p == TRAIN_TOKENIZER) add_tokenizer(h, d->tokenizer);
        if (p == TRAIN_TEXT) {
            add_documents(h, &d->text, d->label);
            add_documents(h, &d->target, NULL);
        }
        if (p == TRAIN_VALIDATION) {
            add(h, &s->validation_part, sizeof s->validation_part);
            add_documents(h, &d->text_validation, d->label_validation);
            add_documents(h, &d->target_validation, NULL);
        }
        snprintf(out->part[p], sizeof out->part[p], "%016llx",
                 (unsigned long long)XXH3_64bits_digest(h));
    }
    XXH3_freeState(h);
    return ok;
}

/* Where two lines of settings begin to differ: at a name. */
static size_t first_difference(const char *a, const char *b) {
    size_t i = 0;
    while (a[i] && a[i] == b[i]) i++;
    while (i && !(a[i - 1] == ' ' && isalpha((unsigned char)a[i]))) i--;
    return i;
}

bool train_identity_check(const train_identity *now, const sn_weights *made, sn_error *err) {
    for (int p = 0; p < TRAIN_PARTS; p++) {
        const char *then = sn_weights_meta(made, train_parts[p].key);
        if (then && !strcmp(then, now->part[p])) continue;
        char change[700] = "";
        if (p == TRAIN_SETTINGS && then) {
            size_t i = first_difference(then, now->part[p]);
            snprintf(change, sizeof change, ": %.300s; now: %.300s", then + i, now->part[p] + i);
        }
        return sn_fail(err, SN_ERR_USAGE,
                       "%s: created with %s%s, so the run cannot be resumed bit-identically%s. "
                       "Choose another folder, or use the same %s",
                       sn_weights_path(made), p == TRAIN_SETTINGS ? "other " : "another ",
                       train_parts[p].what, change, train_parts[p].what);
    }
    return true;
}
