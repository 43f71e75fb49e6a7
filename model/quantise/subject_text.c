/* subject_text.c: texts to calibrate and to measure with: windows of one text for decoders, lines for
 * encoders, pairs of lines for encoder-decoders. The last fifth is for measuring only. */
#include "model/quantise/subject_impl.h"
#include "model/encoder.h"

#include <stdlib.h>
#include <string.h>

/* A copy of n ids; NULL: out of memory. */
static int32_t *copy_ids(const int32_t *ids, int64_t n) {
    int32_t *out = malloc(sizeof *out * (size_t)n + 1);
    if (out && n) memcpy(out, ids, sizeof *out * (size_t)n);
    return out;
}

static bool add_text(subject *s, subject_text t, sn_error *err) {
    subject_text *more = realloc(s->text, sizeof *more * (size_t)(s->n_text + 1));
    if (more) s->text = more;
    if (more && t.tokens) {
        more[s->n_text++] = t;
        return true;
    }
    free(t.tokens), free(t.targets), free(t.source);
    return sn_fail(err, SN_ERR_MEMORY, "out of memory");
}

/* ---- decoders ---- */

static bool read_windows(subject *s, const char *text, size_t size, int64_t window, sn_error *err) {
    sn_ids ids = {0};
    bool ok = lm_encode(s->m, text, size, true, &ids, err);
    int64_t n = ok ? (int64_t)ids.count - 1 : 0; /* targets */
    if (ok && n < 2 * 8)
        ok = sn_fail(err, SN_ERR_USAGE, "the text has only %lld tokens: give a longer one",
                     (long long)ids.count);
    if (n < 2 * window) window = n / 2;
    for (int64_t from = 0; ok && from + window <= n; from += window)
        ok = add_text(s,
                      (subject_text){.tokens = copy_ids(ids.data + from, window),
                                     .targets = copy_ids(ids.data + from + 1, window),
                                     .n = window},
                      err);
    sn_ids_free(&ids);
    return ok;
}

/* ---- lines ---- */

static bool add_line(subject *s, const char *line, size_t size, sn_error *err) {
    sn_ids ids = {0};
    sn_error why = {0};
    bool ok = encoder_read(s->m, line, size, &ids, &why);
    if (ok)
        ok = add_text(s,
                      (subject_text){.tokens = copy_ids(ids.data, (int64_t)ids.count),
                                     .n = (int64_t)ids.count},
                      err);
    else if (why.code == SN_ERR_RANGE)
        s->skipped++, ok = true;
    else
        sn_fail(err, why.code, "%s", why.message);
    sn_ids_free(&ids);
    return ok;
}

static bool add_pair(subject *s, const char *line, size_t size, const char *target,
                     size_t target_size, sn_error *err) {
    sn_ids in = {0}, out = {0};
    int32_t bos, eos;
    bool ok = lm_encode_source(s->m, line, size, &in, err) &&
              lm_encode(s->m, target, target_size, false, &out, err) &&
              translate_ends(s->m, &bos, &eos, err);
    while (ok && out.count && out.data[out.count - 1] == eos) out.count--;
    int64_t n = (int64_t)out.count + 1, context = s->m->model.context;
    if (ok && (n > context || (int64_t)in.count > context || !in.count)) {
        s->skipped++;
    } else if (ok) {
        subject_text t = {.tokens = malloc(sizeof(int32_t) * (size_t)n),
                          .targets = malloc(sizeof(int32_t) * (size_t)n),
                          .source = copy_ids(in.data, (int64_t)in.count),
                          .n = n,
                          .n_source = (int64_t)in.count};
        for (int64_t i = 0; t.tokens && t.targets && i < n; i++) {
            t.tokens[i] = i ? out.data[i - 1] : bos;
            t.targets[i] = i < n - 1 ? out.data[i] : eos;
        }
        ok = add_text(s, t, err);
    }
    sn_ids_free(&in);
    sn_ids_free(&out);
    return ok;
}

/* The next line from *at, without its end; false: there is none. */
static bool next_line(const char **at, const char *end, const char **line, size_t *size) {
    if (*at >= end) return false;
    const char *stop = memchr(*at, '\n', (size_t)(end - *at));
    *line = *at;
    *size = (size_t)((stop ? stop : end) - *at);
    *at = stop ? stop + 1 : end;
    if (*size && (*line)[*size - 1] == '\r') --*size;
    return true;
}

static bool read_lines(subject *s, const char *text, size_t size, sn_error *err) {
    const char *at = text, *line;
    size_t n;
    bool ok = true;
    while (ok && next_line(&at, text + size, &line, &n))
        if (n) ok = add_line(s, line, n, err);
    return ok;
}

static bool read_pairs(subject *s, const subject_options *o, sn_error *err) {
    const char *a = o->text.data, *b = o->target.data, *line, *target;
    const char *a_end = a + o->text.size, *b_end = b + o->target.size;
    size_t n, m;
    bool ok = true, more = true;
    while (ok && (more = next_line(&a, a_end, &line, &n)) && next_line(&b, b_end, &target, &m))
        if (n) ok = add_pair(s, line, n, target, m, err);
    if (ok && (more || b < b_end))
        ok = sn_fail(err, SN_ERR_USAGE, "%s and %s have different numbers of lines", o->text.name,
                     o->target.name);
    return ok;
}

/* ---- choosing ---- */

/* Keeps texts at even distances, of the first n, so that they have at most `most` tokens (but one text);
 * the others are freed. Returns how many stay, and their tokens. */
static int thin(subject_text *t, int n, int64_t most, int64_t *tokens) {
    int64_t all = 0, seen = 0;
    for (int i = 0; i < n; i++) all += t[i].n + t[i].n_source;
    int kept = 0;
    *tokens = 0;
    for (int i = 0; i < n; i++) {
        int64_t size = t[i].n + t[i].n_source;
        seen += size;
        if ((double)(*tokens + size) * (double)all <= (double)most * (double)seen ||
            (i == n - 1 && !kept)) {
            *tokens += size;
            t[kept++] = t[i];
        } else {
            free(t[i].tokens), free(t[i].targets), free(t[i].source);
        }
    }
    return kept;
}

static bool split_texts(subject *s, int64_t most, sn_error *err) {
    if (s->n_text < 2)
        return sn_fail(err, SN_ERR_USAGE,
                       "the text gives only %d sequence%s that fit%s the model: give at least 2",
                       s->n_text, s->n_text == 1 ? "" : "s", s->n_text == 1 ? "s" : "");
    int n = s->n_text, held = n / 5 ? n / 5 : 1;
    subject_text *last = s->text + n - held;
    int first = thin(s->text, n - held, most, &s->tokens);
    s->n_held = thin(last, held, most / 4, &s->held_tokens);
    memmove(s->text + first, last, sizeof *last * (size_t)s->n_held);
    s->n_text = first + s->n_held;
    return true;
}

bool subject_read_texts(subject *s, const subject_options *o, sn_error *err) {
    int64_t context = s->m->model.context, window = context < o->window ? context : o->window;
    bool ok;
    if (s->m->model.source_vocab)
        ok = o->target.data
                 ? read_pairs(s, o, err)
                 : sn_fail(err, SN_ERR_USAGE,
                           "%s models predict a result from a source: give the results of the "
                           "lines of %s, too (--target FILE)",
                           s->m->model.type, o->text.name);
    else if (o->target.data)
        ok = sn_fail(err, SN_ERR_USAGE, "--target is for encoder-decoders: %s models read one text",
                     s->m->model.type);
    else
        ok = s->kind == SUBJECT_LOSS ? read_windows(s, o->text.data, o->text.size, window, err)
                                     : read_lines(s, o->text.data, o->text.size, err);
    return ok && split_texts(s, o->tokens, err);
}
