/* entities.c: groups the labels of tokens to words and names. */
#include "model/entities.h"
#include "model/sample.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Whether a label is "B-…" (*begins) or "I-…". */
static bool is_part(const char *label, bool *begins) {
    *begins = label && label[0] == 'B';
    return label && (label[0] == 'B' || label[0] == 'I') && label[1] == '-';
}

const char *entity_label(const open_model *m, int64_t label, bool *begins) {
    const char *name = lm_label(m, label);
    return is_part(name, begins) ? name + 2 : name;
}

/* Whether the config's labels mark names. */
static bool has_names(const open_model *m) {
    bool begins, found = false;
    for (int64_t i = 0; i < m->model.labels && !found; i++)
        found = is_part(lm_label(m, i), &begins);
    return found;
}

/* A word's label, from the logits of its first token. */
static entity label_word(const open_model *m, float *logits, const sn_place *place) {
    entity e = {.begin = place->begin, .end = place->end};
    if (m->model.labels == 1) {
        e.p = 1 / (1 + expf(-logits[0]));
        return e;
    }
    sn_sample_softmax(logits, m->model.labels);
    e.label = (int64_t)sn_sample_largest(logits, (size_t)m->model.labels);
    e.p = logits[e.label];
    return e;
}

static bool same_name(const open_model *m, int64_t a, int64_t b) {
    bool begins_a, begins_b;
    const char *x = entity_label(m, a, &begins_a), *y = entity_label(m, b, &begins_b);
    return x && y && !begins_b && !strcmp(x, y);
}

/* Appends a word, or joins it to the name before it. words: of the last entity. */
static void add_word(const open_model *m, bool names, entity word, entity *list, size_t *n,
                     size_t *words, bool *open) {
    const char *label = lm_label(m, word.label);
    if (names && label && !strcmp(label, "O")) {
        *open = false;
        return;
    }
    if (names && *open && same_name(m, list[*n - 1].label, word.label)) {
        entity *last = &list[*n - 1];
        last->p = (last->p * (float)*words + word.p) / (float)(*words + 1);
        last->end = word.end;
        ++*words;
        return;
    }
    list[(*n)++] = word;
    *words = 1;
    *open = true;
}

bool encoder_entities(open_model *m, const char *text, size_t size, entity **out, size_t *n,
                      sn_error *err) {
    encoder_text t;
    float *logits = NULL;
    int64_t each = 0, length = 0;
    size_t words = 0;
    bool names = has_names(m), open = false;
    *out = NULL, *n = 0;
    bool ok =
        encoder_read_places(m, text, size, &t, err) &&
        encoder_run(m, "forward", "logits", &t.ids, NULL, 1, &logits, &each, &length, err) &&
        (each == length * m->model.labels ||
         sn_fail(err, SN_ERR_USAGE, "the model gives %lld logits to %lld tokens, not %lld to each",
                 (long long)each, (long long)length, (long long)m->model.labels)) &&
        ((*out = calloc(t.n + 1, sizeof **out)) || sn_fail(err, SN_ERR_MEMORY, "out of memory"));
    for (size_t i = 0; ok && i < t.n;) {
        sn_place word = t.place[i];
        float *row = logits + (t.first + i) * (size_t)m->model.labels;
        for (i++; i < t.n && t.place[i].continues; i++)
            if (t.place[i].end > word.end) word.end = t.place[i].end;
        if (word.end > word.begin)
            add_word(m, names, label_word(m, row, &word), *out, n, &words, &open);
    }
    encoder_text_free(&t);
    free(logits);
    return ok;
}
