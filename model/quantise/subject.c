/* subject.c: opens the model to be quantised, runs it and measures it. */
#include "model/quantise/subject_impl.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MEASURE "measure"

/* ---- opening ---- */

/* Entries and outputs to measure: the first of a model's kinds that it has. */
enum { ENCODERS = 1, DECODERS = 2, PAIRS = 4 };
static const struct {
    const char *entry, *output;
    subject_kind kind;
    int models;
} measures[] = {{"loss", "loss", SUBJECT_LOSS, DECODERS},
                {"embed", "embedding", SUBJECT_COSINE, ENCODERS},
                {"encode", "hidden", SUBJECT_COSINE, ENCODERS},
                {"forward", "logits", SUBJECT_GREEDY, PAIRS},
                {"forward", "logits", SUBJECT_COSINE, ENCODERS}};

static sn_node *output_of(sn_module *m, const char *entry, const char *output) {
    const sn_entry *e = sn_entry_get(m, entry);
    for (int i = 0; e && i < e->n_output; i++)
        if (!strcmp(e->output[i].name, output)) return e->output[i].node;
    return NULL;
}

static bool find_measured(subject *s, sn_error *err) {
    const sn_model *model = &s->m->model;
    if (model->image || model->mel || *s->m->code.name)
        return sn_fail(err, SN_ERR_USAGE,
                       model->mel     ? "%s models transcribe sound: only models of texts are "
                                        "quantised"
                       : model->image ? "%s models read images: only models of texts are quantised"
                                      : "%s is a model in C: pass the folder of a trained one",
                       model->type);
    int models = model->source_vocab                 ? PAIRS
                 : sn_entry_get(s->module, "decode") ? DECODERS
                                                     : ENCODERS;
    for (size_t i = 0; i < sizeof measures / sizeof *measures && !s->measured; i++) {
        if (!(measures[i].models & models)) continue;
        s->measured = output_of(s->module, measures[i].entry, measures[i].output);
        s->output = measures[i].output;
        s->kind = measures[i].kind;
    }
    return s->measured ||
           sn_fail(err, SN_ERR_USAGE, "%s models have no entry that reads a text", model->type);
}

bool subject_open(subject *s, const subject_options *o, sn_error *err) {
    const open_options lo = {.command = o->command,
                             .path = o->path,
                             .tokenizer = o->tokenizer,
                             .entries = SN_ALL_ENTRIES | SN_EMBED,
                             .any_model = true,
                             .build_only = true};
    *s = (subject){.compile = o->compile};
    s->m = lm_open(&lo, err);
    if (!s->m) return false;
    s->module = s->m->model.module;
    if (!model_weights(s->m))
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
    free(s->vectors);
    free(s->param), free(s->matrix), free(s->product), free(s->text);
    model_close(s->m);
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

/* A module with the entries alone. Compiling leaves nodes in its module, so that many compilations of
 * one would fill it. The caller frees it. NULL on error. */
static sn_module *copy_entries(subject *s, sn_error *err) {
    char *text = NULL;
    size_t size = 0;
    FILE *f = open_memstream(&text, &size);
    bool ok = f && sn_print_module(f, s->module) && !ferror(f);
    ok = f && !fclose(f) && ok;
    sn_module *copy = ok ? sn_parse(text, s->m->model.type, false, err) : NULL;
    if (!ok) sn_fail(err, SN_ERR_MEMORY, "out of memory");
    free(text);
    return copy;
}

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
    sn_module *copy = copy_entries(s, err);
    out->program = copy ? sn_compile(copy, o, err) : NULL;
    sn_module_free(copy);
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

bool subject_run(sn_session *session, const char *entry, const subject_text *t,
                 const sn_arg_binding *out, int n_out, sn_error *err) {
    int32_t length = (int32_t)(t->source ? t->n_source : t->n);
    int32_t *zeros = calloc((size_t)t->n + 1, sizeof *zeros);
    if (!zeros) return sn_fail(err, SN_ERR_MEMORY, "out of memory");
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
    if (data && subject_run(x->session, MEASURE, t, &out, 1, err)) return data;
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

typedef struct sums {
    double sum, count; /* of losses, of 1 - cosine */
    /* SUBJECT_GREEDY: the lead in f32 of each position's greedy token over the next one, how many of
     * these tokens are others now, and the squares of the changes of their leads */
    float *lead;
    int64_t positions, others;
    double squares;
} sums;

/* Adds the positions of a text, `now` and `before` [n, vocab]. */
static bool add_leads(sums *x, const float *now, const float *before, int64_t n, int64_t vocab) {
    float *more = realloc(x->lead, sizeof *more * (size_t)(x->positions + n) + 1);
    if (!more) return false;
    x->lead = more;
    for (int64_t t = 0; t < n; t++, now += vocab, before += vocab) {
        int64_t first = 0, next = -1, now_first = 0;
        for (int64_t v = 1; v < vocab; v++) {
            if (now[v] > now[now_first]) now_first = v;
            if (before[v] > before[first])
                next = first, first = v;
            else if (next < 0 || before[v] > before[next])
                next = v;
        }
        if (next < 0) next = first;
        double lead = (double)before[first] - (double)before[next];
        double change = (double)now[first] - (double)now[next] - lead;
        more[x->positions++] = (float)lead;
        x->others += now_first != first;
        x->squares += change * change;
    }
    return true;
}

/* The part of the greedy tokens that changes, if changes of leads are normally distributed. */
static double part_of_others(const sums *x) {
    double deviation = sqrt(x->squares / (double)x->positions), expected = 0;
    for (int64_t t = 0; deviation > 0 && t < x->positions; t++)
        expected += 0.5 * erfc((double)x->lead[t] / deviation * M_SQRT1_2);
    return fmax(expected, (double)x->others) / (double)x->positions;
}

/* Sums over the texts for measuring. keep: stores the vectors instead. out->lead: the caller frees it. */
static bool sum_measured(const subject *s, const subject_session *x, bool keep, sums *out,
                         sn_error *err) {
    bool ok = true;
    *out = (sums){0};
    for (int i = 0; ok && i < s->n_held; i++) {
        int64_t n, vocab = s->m->model.vocab;
        double all = 0;
        float *y = run_measured(s, x, held(s, i), &n, err);
        if (!y) return false;
        for (int64_t k = 0; k < n; k++) all += (double)y[k];
        ok = isfinite(all) ||
             sn_fail(err, SN_ERR_RANGE, "the model's results on the text are not finite");
        out->count += s->kind == SUBJECT_LOSS ? (double)n : 1;
        if (s->kind == SUBJECT_LOSS) out->sum += all;
        if (s->kind == SUBJECT_COSINE && !keep) out->sum += 1 - cosine(y, s->vectors[i], n);
        if (ok && s->kind == SUBJECT_GREEDY && !keep)
            ok = add_leads(out, y, s->vectors[i], n / vocab, vocab) ||
                 sn_fail(err, SN_ERR_MEMORY, "out of memory");
        if (keep) s->vectors[i] = y;
        if (!keep) free(y);
    }
    return ok;
}

bool subject_reference(subject *s, sn_error *err) {
    subject_session x;
    sums all;
    bool keep = s->kind != SUBJECT_LOSS;
    if (keep && !(s->vectors = calloc((size_t)s->n_held + 1, sizeof *s->vectors)))
        return sn_fail(err, SN_ERR_MEMORY, "out of memory");
    bool ok = subject_session_open(s, &x, &s->compile, false, NULL, err) &&
              sum_measured(s, &x, keep, &all, err);
    if (ok) s->reference = all.sum / all.count;
    subject_session_close(&x);
    return ok;
}

bool subject_measure(const subject *s, const subject_session *x, double *loss, sn_error *err) {
    sums all;
    bool ok = sum_measured(s, x, false, &all, err);
    if (ok && s->kind == SUBJECT_GREEDY)
        *loss = part_of_others(&all);
    else if (ok)
        *loss = s->kind == SUBJECT_LOSS ? expm1(all.sum / all.count - s->reference)
                                        : all.sum / all.count;
    free(all.lead);
    return ok;
}

const char *subject_measure_name(const subject *s) {
    static const char *const names[] = {"perplexity", "1 - cosine", "greedy tokens"};
    return names[s->kind];
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
