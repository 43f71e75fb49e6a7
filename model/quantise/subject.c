/* subject.c: opens the model to be quantised, runs it and measures it. */
#include "model/quantise/subject_impl.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MEASURE "measure"

/* ---- opening ---- */

/* Entries and outputs to measure, the first that a model has. */
static const struct {
    const char *entry, *output;
} measures[] = {
    {"embed", "embedding"}, {"encode", "hidden"}, {"loss", "loss"}, {"forward", "logits"}};

static sn_node *output_of(sn_module *m, const char *entry, const char *output) {
    const sn_entry *e = sn_entry_get(m, entry);
    for (int i = 0; e && i < e->n_output; i++)
        if (!strcmp(e->output[i].name, output)) return e->output[i].node;
    return NULL;
}

/* Decoders and encoder-decoders have a loss of the next token; encoders give vectors. */
static bool find_measured(subject *s, sn_error *err) {
    const sn_model *model = &s->m->model;
    if (model->image || model->mel || s->m->code.define)
        return sn_fail(err, SN_ERR_USAGE,
                       model->mel ? "a %s model transcribes sound: only models of texts are "
                                    "quantised"
                       : model->image
                           ? "a %s model reads images: only models of texts are quantised"
                           : "%s is a model in C: pass the folder of a trained one",
                       model->type);
    bool next = model->source_vocab || sn_entry_get(s->module, "decode");
    for (size_t i = 0; i < sizeof measures / sizeof *measures && !s->measured; i++) {
        bool loss = !strcmp(measures[i].output, "loss");
        if (loss != next) continue;
        s->measured = output_of(s->module, measures[i].entry, measures[i].output);
        s->output = measures[i].output;
        s->has_loss = loss;
    }
    return s->measured ||
           sn_fail(err, SN_ERR_USAGE, "a %s model has no entry that reads a text", model->type);
}

bool subject_open(subject *s, const subject_options *o, sn_error *err) {
    const lm_options lo = {.command = o->command,
                           .path = o->path,
                           .tokenizer = o->tokenizer,
                           .entries = SN_ALL_ENTRIES | SN_EMBED,
                           .any_model = true,
                           .build_only = true};
    *s = (subject){.compile = o->compile};
    s->m = lm_open(&lo, err);
    if (!s->m) return false;
    s->module = s->m->model.module;
    if (!lm_weights(s->m))
        return sn_fail(err, SN_ERR_USAGE, "the model has no weights to quantise");
    if (!find_measured(s, err) || !subject_find(s, err)) return false;
    sn_entries_clear(s->module);
    sn_entry *e = sn_entry_add(s->module, MEASURE);
    sn_entry_output(s->module, e, s->output, s->measured);
    return subject_read_texts(s, o, err);
}

void subject_close(subject *s) {
    for (int i = 0; i < s->n_param; i++) {
        if (s->param[i].original != s->param[i].data) free(s->param[i].original);
        free(s->param[i].data);
    }
    for (int i = 0; i < s->n_product; i++) free(s->product[i].matrix);
    for (int i = 0; i < s->n_text; i++) {
        free(s->text[i].tokens);
        free(s->text[i].targets);
        free(s->text[i].source);
    }
    for (int i = 0; s->vectors && i < s->n_held; i++) free(s->vectors[i]);
    free(s->vectors), free(s->width);
    free(s->param), free(s->matrix), free(s->product), free(s->text);
    lm_close(s->m);
    *s = (subject){0};
}

/* ---- parameters ---- */

float *subject_param_edit(subject *s, int param, sn_error *err) {
    subject_param *p = &s->param[param];
    p->changed = true;
    if (p->data != p->original) return p->data;
    float *copy = malloc(sizeof *copy * (size_t)p->count + 1);
    if (!copy) {
        sn_fail(err, SN_ERR_MEMORY, "out of memory for '%s'", p->name);
        return NULL;
    }
    memcpy(copy, p->original, sizeof *copy * (size_t)p->count);
    return p->data = copy;
}

void subject_restore(subject *s, int param) {
    subject_param *p = &s->param[param];
    if (p->data != p->original) free(p->data);
    p->data = p->original;
}

void subject_commit(subject *s) {
    for (int i = 0; i < s->n_param; i++) {
        if (s->param[i].original != s->param[i].data) free(s->param[i].original);
        s->param[i].original = s->param[i].data;
    }
}

/* to [rows, columns] = from [columns, rows] transposed, or the same. */
static void copy_matrix(float *to, const float *from, int64_t rows, int64_t columns, bool swap) {
    for (int64_t i = 0; i < rows; i++)
        for (int64_t j = 0; j < columns; j++)
            to[i * columns + j] = swap ? from[j * rows + i] : from[i * columns + j];
}

float *subject_matrix_get(const subject *s, const subject_matrix *w) {
    float *out = malloc(sizeof *out * (size_t)(w->n * w->k) + 1);
    if (out) copy_matrix(out, s->param[w->param].data, w->n, w->k, w->swapped);
    return out;
}

bool subject_matrix_set(subject *s, const subject_matrix *w, const float *value, sn_error *err) {
    float *data = subject_param_edit(s, w->param, err);
    if (data && w->swapped)
        copy_matrix(data, value, w->k, w->n, true);
    else if (data)
        memcpy(data, value, sizeof *data * (size_t)(w->n * w->k));
    return data != NULL;
}

/* ---- running ---- */

bool subject_session_open(subject *s, subject_session *out, const sn_options *o, bool original,
                          const bool *changed, sn_error *err) {
    *out = (subject_session){0};
    sn_arg_binding *list = calloc((size_t)s->n_param + 1, sizeof *list);
    if (!list) return sn_fail(err, SN_ERR_MEMORY, "out of memory");
    for (int i = 0; i < s->n_param; i++) {
        const subject_param *p = &s->param[i];
        bool old = original && !(changed && changed[i]);
        list[i] = (sn_arg_binding){p->name, SN_F32, p->node->rank, p->node->shape,
                                   old ? p->original : p->data};
    }
    out->program = sn_compile(s->module, o, err);
    if (out->program) out->session = sn_session_new_arrays(out->program, list, s->n_param, err);
    free(list);
    if (out->session) return true;
    subject_session_close(out);
    return false;
}

void subject_session_close(subject_session *x) {
    sn_session_free(x->session);
    sn_program_free(x->program);
    *x = (subject_session){0};
}

bool subject_run(const subject *s, sn_session *session, const char *entry, const subject_text *t,
                 const sn_arg_binding *out, int n_out, sn_error *err) {
    int32_t length = (int32_t)(t->source ? t->n_source : t->n);
    int32_t *zeros = calloc((size_t)t->n + 1, sizeof *zeros);
    if (!zeros) return sn_fail(err, SN_ERR_MEMORY, "out of memory");
    (void)s;
    const sn_arg_binding in[] = {
        SN_BIND("tokens", SN_I32, t->tokens, 1, t->n), SN_BIND("lengths", SN_I32, &length, 1),
        SN_BIND("types", SN_I32, zeros, 1, t->n), SN_BIND("targets", SN_I32, t->targets, 1, t->n),
        SN_BIND("source", SN_I32, t->source, 1, t->n_source)};
    int n_in = t->source ? 5 : t->targets ? 4 : 3;
    bool ok = sn_run(session, entry, in, n_in, out, n_out, err);
    free(zeros);
    return ok;
}

/* ---- measuring ---- */

/* The measured output on a text; the caller frees it. NULL on error. */
static float *run_measured(const subject *s, const subject_session *x, const subject_text *t,
                           int64_t *count, sn_error *err) {
    int32_t length = (int32_t)(t->source ? t->n_source : t->n);
    int64_t shape[8] = {0};
    const sn_arg_binding in[] = {
        SN_BIND("tokens", SN_I32, NULL, 1, t->n), SN_BIND("lengths", SN_I32, &length, 1),
        SN_BIND("types", SN_I32, NULL, 1, t->n), SN_BIND("targets", SN_I32, NULL, 1, t->n),
        SN_BIND("source", SN_I32, NULL, 1, t->n_source)};
    int n_in = t->source ? 5 : t->targets ? 4 : 3;
    int rank = sn_output_shape(x->program, MEASURE, in, n_in, s->output, shape, err);
    if (rank < 0) return NULL;
    *count = 1;
    for (int a = 0; a < rank; a++) *count *= shape[a];
    float *data = malloc(sizeof *data * (size_t)*count + 1);
    const sn_arg_binding out = {s->output, SN_F32, rank, shape, data};
    if (!data) sn_fail(err, SN_ERR_MEMORY, "out of memory");
    if (data && subject_run(s, x->session, MEASURE, t, &out, 1, err)) return data;
    free(data);
    return NULL;
}

static const subject_text *held(const subject *s, int i) {
    return &s->text[s->n_text - s->n_held + i];
}

static double cosine(const float *a, const float *b, int64_t n) {
    double ab = 0, aa = 0, bb = 0;
    for (int64_t i = 0; i < n; i++) {
        ab += (double)a[i] * b[i];
        aa += (double)a[i] * a[i];
        bb += (double)b[i] * b[i];
    }
    return aa > 0 && bb > 0 ? ab / sqrt(aa * bb) : 0;
}

/* Sums over the texts for measuring: losses, or 1 minus cosines; *count: of how many. keep: stores the
 * vectors instead. */
static bool sum_measured(const subject *s, const subject_session *x, bool keep, double *sum,
                         double *count, sn_error *err) {
    *sum = *count = 0;
    for (int i = 0; i < s->n_held; i++) {
        int64_t n;
        float *y = run_measured(s, x, held(s, i), &n, err);
        if (!y) return false;
        for (int64_t k = 0; s->has_loss && k < n; k++) *sum += (double)y[k];
        *count += s->has_loss ? (double)n : 1;
        if (!s->has_loss && !keep) *sum += 1 - cosine(y, s->vectors[i], n);
        if (keep) s->vectors[i] = y, s->width[i] = n;
        if (!keep) free(y);
    }
    if (isfinite(*sum)) return true;
    return sn_fail(err, SN_ERR_RANGE, "the model's results on the text are not finite");
}

bool subject_reference(subject *s, sn_error *err) {
    subject_session x;
    double sum, count;
    bool keep = !s->has_loss;
    if (keep) {
        s->vectors = calloc((size_t)s->n_held + 1, sizeof *s->vectors);
        s->width = calloc((size_t)s->n_held + 1, sizeof *s->width);
        if (!s->vectors || !s->width) return sn_fail(err, SN_ERR_MEMORY, "out of memory");
    }
    bool ok = subject_session_open(s, &x, &s->compile, false, NULL, err) &&
              sum_measured(s, &x, keep, &sum, &count, err);
    if (ok) s->reference = sum / count;
    subject_session_close(&x);
    return ok;
}

bool subject_measure(const subject *s, const subject_session *x, double *loss, sn_error *err) {
    double sum, count;
    if (!sum_measured(s, x, false, &sum, &count, err)) return false;
    *loss = s->has_loss ? expm1(sum / count - s->reference) : sum / count;
    return true;
}

/* ---- reports ---- */

bool subject_show(const subject_progress *p, sn_error *err, double done, const char *fmt, ...) {
    char text[256];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    return p->show(p->ctx, text, done) || sn_fail(err, SN_ERR_USAGE, "interrupted");
}

void subject_line(const subject_progress *p, const char *fmt, ...) {
    char text[400];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    p->line(p->ctx, text);
}
