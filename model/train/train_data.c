/* train_data.c: splits texts into documents of tokens and makes datasets; loads a tokenizer, or
 * trains one on the training text. */
#include "model/train/train.h"

#include "runtime/files/gguf.h"
#include "model/import/import.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

/* A document as a range of a mapped text. */
typedef struct piece {
    const char *text;
    size_t size;
} piece;

/* The next document of the text from *at on; false at the end. */
static bool next_piece(const sn_mapping *m, train_documents unit, size_t *at, piece *out) {
    const char *text = (const char *)m->data;
    if (*at >= m->size) return false;
    size_t from = *at, end = m->size;
    if (unit != TRAIN_WHOLE) {
        const char *gap = unit == TRAIN_LINES ? "\n" : "\n\n";
        size_t width = strlen(gap);
        const char *found = memmem(text + from, m->size - from, gap, width);
        if (found) end = (size_t)(found - text);
        *at = found ? end + width : m->size;
    } else {
        *at = m->size;
    }
    *out = (piece){text + from, end - from};
    return true;
}

/* An integer of digits only, up to INT32_MAX; -1: anything else. */
static int32_t read_label(const char *text, const char *end) {
    int64_t v = text < end ? 0 : -1;
    for (; text < end && v >= 0; text++) {
        bool digit = *text >= '0' && *text <= '9';
        v = digit ? v * 10 + (*text - '0') : -1;
        if (v > INT32_MAX) v = -1;
    }
    return (int32_t)v;
}

/* The label of a line "LABEL<tab>TEXT"; the piece is reduced to the text. */
static bool take_label(const char *path, size_t line, piece *p, int32_t *label, sn_error *err) {
    const char *tab = memchr(p->text, '\t', p->size);
    *label = tab ? read_label(p->text, tab) : -1;
    if (*label < 0)
        return sn_fail(err, SN_ERR_FILE,
                       "%s: line %zu is not LABEL<tab>TEXT with a number as label", path, line);
    p->size -= (size_t)(tab + 1 - p->text);
    p->text = tab + 1;
    return true;
}

static bool add_label(int32_t **list, size_t i, int32_t label, sn_error *err) {
    if ((i & (i - 1)) == 0) { /* the capacity doubles at powers of two */
        int32_t *grown = realloc(*list, (i ? 2 * i : 1) * sizeof *grown);
        if (!grown) return sn_fail(err, SN_ERR_MEMORY, "out of memory");
        *list = grown;
    }
    (*list)[i] = label;
    return true;
}

static bool read_documents(const train_settings *s, const sn_tokenizer *t, const char *path,
                           sn_documents *out, int32_t **label, sn_error *err) {
    sn_mapping m;
    if (!sn_file_map(path, &m, err)) return false;
    bool ok = m.size > 0 || sn_fail(err, SN_ERR_FILE, "%s: the file is empty", path);
    piece p;
    for (size_t at = 0; ok && next_piece(&m, s->documents, &at, &p);) {
        int32_t v = 0;
        if (label)
            ok = take_label(path, out->count + 1, &p, &v, err) &&
                 add_label(label, out->count, v, err);
        sn_error why = {0};
        if (ok && !sn_tokenizer_encode(t, p.text, p.size, 0, &out->ids, &why))
            ok = sn_fail(err, why.code, "%s: %s", path, why.message);
        bool keep = p.size > 0 || s->data.task == SN_TASK_PAIRS || label;
        if (ok && keep) ok = sn_documents_close(out, err);
    }
    sn_file_unmap(&m);
    return ok;
}

static bool learn_tokenizer(const train_settings *s, train_data *d, sn_error *err) {
    sn_mapping a, b = {0};
    if (!sn_file_map(s->text, &a, err)) return false;
    bool ok = (!s->target || sn_file_map(s->target, &b, err)) &&
              (a.size > 0 || sn_fail(err, SN_ERR_FILE, "%s: the file is empty", s->text));
    char *all = ok ? malloc(a.size + b.size + 1) : NULL;
    if (ok && !all) ok = sn_fail(err, SN_ERR_MEMORY, "out of memory");
    if (ok) {
        memcpy(all, a.data, a.size);
        if (b.size) memcpy(all + a.size, b.data, b.size);
        d->tokenizer = sn_tokenizer_train(&s->learn, all, a.size + b.size, err);
        ok = d->tokenizer != NULL;
    }
    free(all);
    sn_file_unmap(&a);
    if (s->target && b.data) sn_file_unmap(&b);
    return ok;
}

/* The vocabulary size of the config, or the tokenizer's if absent. */
static bool settle_vocabulary(train_settings *s, train_data *d, sn_error *err) {
    static const char *const keys[] = {"vocab_size", "n_vocab"};
    int64_t have = sn_tokenizer_vocab_size(d->tokenizer);
    const char *type = sn_config_string_or(s->model, "model_type", "");
    const char *key = keys[!strcmp(type, "tse_gpt")];
    if (!sn_config_has(s->model, key)) sn_config_set_int(s->model, key, have);
    int64_t vocab = sn_config_int(s->model, key, 1, 1 << 24);
    if (!sn_config_check(s->model, err)) return false;
    if (vocab < have)
        return sn_fail(err, SN_ERR_SHAPE,
                       "the tokenizer has %lld tokens, but the model's \"%s\" is %lld: omit it "
                       "from the config, or use a tokenizer of that size",
                       (long long)have, key, (long long)vocab);
    d->vocab = (int32_t)vocab;
    return true;
}

static sn_dataset_options options_of(const train_settings *s, const train_data *d) {
    sn_dataset_options o = s->data;
    o.vocab = d->vocab;
    bool wrapped = s->data.task != SN_TASK_NEXT || s->documents != TRAIN_WHOLE;
    if (wrapped) {
        o.bos = sn_tokenizer_special(d->tokenizer, SN_TOKEN_BOS);
        o.eos = sn_tokenizer_special(d->tokenizer, SN_TOKEN_EOS);
    }
    o.mask = sn_tokenizer_special(d->tokenizer, SN_TOKEN_MASK);
    return o;
}

static bool read_texts(const train_settings *s, train_data *d, sn_error *err) {
    bool labels = s->data.task == SN_TASK_CLASSES, pairs = s->data.task == SN_TASK_PAIRS;
    const sn_tokenizer *t = d->tokenizer;
    bool ok = read_documents(s, t, s->text, &d->text, labels ? &d->label : NULL, err) &&
              (!pairs || read_documents(s, t, s->target, &d->target, NULL, err));
    if (!ok || !s->text_validation) return ok;
    if (pairs && !s->target_validation)
        return sn_fail(err, SN_ERR_USAGE,
                       "\"validation_target\" is missing: the translations of %s",
                       s->text_validation);
    return read_documents(s, t, s->text_validation, &d->text_validation,
                          labels ? &d->label_validation : NULL, err) &&
           (!pairs || read_documents(s, t, s->target_validation, &d->target_validation, NULL, err));
}

static bool open_sets(const train_settings *s, train_data *d, sn_error *err) {
    sn_dataset_options o = options_of(s, d), check = o;
    check.order = SN_ORDER_GIVEN;
    sn_document_range text = sn_documents_all(&d->text), target = sn_documents_all(&d->target);
    sn_document_range later = sn_documents_all(&d->text_validation),
                      later_target = sn_documents_all(&d->target_validation);
    const int32_t *label = d->label_validation;
    bool split = !s->text_validation && s->validation_part > 0;
    if (split) {
        if (target.count && target.count != text.count)
            return sn_fail(err, SN_ERR_FILE,
                           "%s has %zu lines but %s %zu: each line needs a translation", s->text,
                           text.count, s->target, target.count);
        size_t unused[2];
        if (!sn_documents_split(&d->text, s->validation_part, &text, &later, d->cut_end, err))
            return false;
        if (target.count && !sn_documents_split(&d->target, s->validation_part, &target,
                                                &later_target, unused, err))
            return false;
        label = d->label ? d->label + text.count : NULL;
    }
    sn_error why = {0};
    d->train = sn_dataset_new(&o, text, target, d->label, &why);
    if (!d->train) return sn_fail(err, why.code, "%s: %s", s->text, why.message);
    if (!later.count) return true;
    d->validation = sn_dataset_new(&check, later, later_target, label, &why);
    if (d->validation) return true;
    return sn_fail(err, why.code, "validation: %s%s", why.message,
                   split ? " (\"validation_part\": 0 trains without validation)" : "");
}

bool train_data_open(train_settings *s, train_data *out, sn_error *err) {
    *out = (train_data){0};
    bool ok =
        s->text || sn_fail(err, SN_ERR_USAGE,
                           "no text to train on: give \"data\": {\"text\": FILE}, or --text FILE");
    if (ok && s->tokenizer)
        ok = (out->tokenizer = sn_tokenizer_load(s->tokenizer, err)) != NULL;
    else if (ok)
        ok = learn_tokenizer(s, out, err);
    ok = ok && settle_vocabulary(s, out, err) && read_texts(s, out, err) && open_sets(s, out, err);
    if (!ok) train_data_close(out);
    return ok;
}

bool train_data_save_tokenizer(const train_settings *s, const train_data *d, const char *folder,
                               sn_error *err) {
    if (!s->tokenizer) return sn_tokenizer_save(d->tokenizer, folder, err);
    if (sn_gguf_is_file(s->tokenizer)) {
        char *to = sn_path_join(folder, "tokenizer.gguf");
        bool saved = to ? sn_gguf_save_keys(s->tokenizer, to, err)
                        : sn_fail(err, SN_ERR_MEMORY, "out of memory");
        free(to);
        return saved;
    }
    struct stat st;
    bool is_folder = stat(s->tokenizer, &st) == 0 && S_ISDIR(st.st_mode), ok = true;
    for (size_t i = 0; ok && import_tokenizer_file(i); i++) {
        const char *name = import_tokenizer_file(i);
        char *from =
            is_folder ? sn_path_join(s->tokenizer, name) : import_beside(s->tokenizer, name);
        ok = from || sn_fail(err, SN_ERR_MEMORY, "out of memory");
        if (ok && sn_file_exists(from)) ok = import_copy(from, folder, name, err);
        free(from);
    }
    return ok;
}

void train_data_close(train_data *d) {
    sn_dataset_free(d->train), sn_dataset_free(d->validation);
    sn_documents_free(&d->text), sn_documents_free(&d->text_validation);
    sn_documents_free(&d->target), sn_documents_free(&d->target_validation);
    free(d->label), free(d->label_validation);
    sn_tokenizer_free(d->tokenizer);
    *d = (train_data){0};
}
