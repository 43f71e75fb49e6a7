/* smooth.c: SmoothQuant by powers of two. */
#include "model/quantise/smooth.h"
#include "model/quantise/moments.h"
#include "model/quantise/origin.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* A product with what is known of its inputs x and of its matrices W, all with an element per channel. */
typedef struct channels {
    int64_t k, n;               /* n: rows of all matrices */
    const float *most, *square; /* of x: the largest magnitude, the mean square */
    float *weight, *energy;     /* of W: the largest magnitude, the sum of squares */
    float **matrix;             /* [n_matrix] copies as [n, k] */
} channels;

/* The expected squared error of the product in int8, relative to the squares of what it sums, if channel
 * c is divided by 2^exponent[c]: of rounding x, with a scale a row, and W, with a scale a row
 * (uniformly distributed errors; rows of x as large as the largest). */
static double expected_error(const subject *s, const subject_product *p, const channels *c,
                             const int *exponent) {
    double most = 0, energy = 0, all = 0, moments = 0, rows = 0;
    for (int64_t j = 0; j < c->k; j++) {
        most = fmax(most, ldexp((double)c->most[j], -exponent[j]));
        energy += ldexp((double)c->energy[j], 2 * exponent[j]);
        moments += ldexp((double)c->square[j], -2 * exponent[j]);
        all += (double)c->energy[j] * (double)c->square[j];
    }
    for (int i = 0; i < p->n_matrix; i++) {
        const subject_matrix *w = &s->matrix[p->matrix[i]];
        for (int64_t r = 0; r < w->n; r++) {
            double high = 0;
            for (int64_t j = 0; j < c->k; j++)
                high = fmax(high, ldexp(fabs((double)c->matrix[i][r * c->k + j]), exponent[j]));
            rows += high * high;
        }
    }
    return all > 0 ? (most * most * energy + rows * moments) / (12 * 127.0 * 127.0 * all) : 0;
}

/* exponent[j] for the product's channels: log2 of most^alpha / weight^(1 - alpha), the same for channels
 * that share one of the origin. */
static void choose_exponents(const channels *c, const origin *o, double alpha, int *exponent,
                             float *most, float *weight) {
    enum { LIMIT = 16 };
    memset(most, 0, sizeof *most * (size_t)o->count);
    memset(weight, 0, sizeof *weight * (size_t)o->count);
    for (int64_t j = 0; j < c->k; j++) {
        int64_t at = origin_channel(o, j);
        most[at] = fmaxf(most[at], c->most[j]);
        weight[at] = fmaxf(weight[at], c->weight[j]);
    }
    for (int64_t j = 0; j < c->k; j++) {
        int64_t at = origin_channel(o, j);
        double x = 0;
        if (most[at] > 0 && weight[at] > 0)
            x = alpha * log2((double)most[at]) - (1 - alpha) * log2((double)weight[at]);
        exponent[j] = (int)fmax(-LIMIT, fmin(LIMIT, rint(x)));
    }
}

static void scale(float *x, int exponent) {
    *x = ldexpf(*x, exponent);
}

/* Divides the channels of the origin and multiplies the columns of the product. */
static bool apply(subject *s, const subject_product *p, const origin *o, const int *exponent,
                  sn_error *err) {
    for (int64_t j = 0; j < p->k; j++) {
        int64_t at = origin_channel(o, j);
        bool again = o->share > 1 && (j / o->size) % o->share; /* another head of the same values */
        for (int v = 0; v < 2 && !again; v++) {
            float *x = o->vector[v] < 0 ? NULL : subject_param_edit(s, o->vector[v], err);
            if (o->vector[v] >= 0 && !x) return false;
            if (x) scale(&x[o->first + at], -exponent[j]);
        }
        if (o->matrix >= 0 && !again) {
            float *x = subject_param_edit(s, o->matrix, err);
            const sn_dim *shape = s->param[o->matrix].node->shape;
            if (!x) return false;
            int64_t row = o->first + at, n = shape[o->swapped ? 0 : 1];
            for (int64_t i = 0; i < n; i++)
                scale(o->swapped ? &x[i * shape[1] + row] : &x[row * n + i], -exponent[j]);
        }
    }
    for (int m = 0; m < p->n_matrix; m++) {
        const subject_matrix *w = &s->matrix[p->matrix[m]];
        float *x = subject_param_edit(s, w->param, err);
        if (!x) return false;
        for (int64_t i = 0; i < w->n; i++)
            for (int64_t j = 0; j < w->k; j++)
                scale(w->swapped ? &x[j * w->n + i] : &x[i * w->k + j], exponent[j]);
    }
    return true;
}

static bool read_matrices(const subject *s, const subject_product *p, channels *c, sn_error *err) {
    c->k = p->k;
    c->weight = calloc(2 * (size_t)p->k + 1, sizeof *c->weight);
    c->matrix = calloc((size_t)p->n_matrix + 1, sizeof *c->matrix);
    bool ok = c->weight && c->matrix;
    if (ok) c->energy = c->weight + p->k;
    for (int m = 0; ok && m < p->n_matrix; m++) {
        const subject_matrix *w = &s->matrix[p->matrix[m]];
        const float *x = c->matrix[m] = subject_matrix_get(s, w);
        ok = x != NULL;
        for (int64_t i = 0; ok && i < w->n; i++)
            for (int64_t j = 0; j < w->k; j++, x++) {
                c->weight[j] = fmaxf(c->weight[j], fabsf(*x));
                c->energy[j] += *x * *x;
            }
    }
    return ok || sn_fail(err, SN_ERR_MEMORY, "out of memory");
}

static void free_channels(const subject_product *p, channels *c) {
    for (int m = 0; c->matrix && m < p->n_matrix; m++) free(c->matrix[m]);
    free(c->matrix);
    free(c->weight);
}

static bool smooth_product(subject *s, int product, const origin *o, const moments *x,
                           const subject_progress *progress, sn_error *err) {
    static const double strength[] = {0.25, 0.5, 0.75};
    const subject_product *p = &s->product[product];
    channels c = {.most = x->most[product], .square = x->square[product]};
    size_t k = (size_t)p->k;
    int *exponent = calloc(2 * k + 1, sizeof *exponent), *best = exponent + k;
    float *room = calloc(2 * k + 1, sizeof *room);
    bool ok = ((exponent && room) || sn_fail(err, SN_ERR_MEMORY, "out of memory")) &&
              read_matrices(s, p, &c, err);
    double before = ok ? expected_error(s, p, &c, best) : 0, least = before, alpha = 0;
    for (int i = 0; ok && i < 3; i++) {
        choose_exponents(&c, o, strength[i], exponent, room, room + k);
        double error = expected_error(s, p, &c, exponent);
        if (error < least) {
            least = error, alpha = strength[i];
            memcpy(best, exponent, sizeof *best * k);
        }
    }
    if (ok && alpha > 0) ok = apply(s, p, o, best, err);
    if (ok)
        subject_line(progress,
                     "  %-52s smooth alpha %.2f, expected error of int8 %5.2f %% -> %5.2f %%",
                     p->label, alpha, 100 * sqrt(before), 100 * sqrt(least));
    free_channels(p, &c);
    free(exponent);
    free(room);
    return ok;
}

/* The subject's results are those of before: else its parameters are restored. */
static bool check_results(subject *s, const subject_progress *progress, sn_error *err) {
    subject_session x;
    double loss;
    bool ok = subject_session_open(s, &x, &s->compile, false, NULL, err);
    if (!ok) return false;
    ok = subject_measure(s, &x, &loss, err);
    subject_session_close(&x);
    if (ok && fabs(loss) > 1e-6) {
        for (int i = 0; i < s->n_param; i++) subject_restore(s, i);
        subject_line(progress, "  smoothing changes results in f32 by %.2g: it is undone", loss);
    }
    if (ok) subject_commit(s);
    return ok;
}

bool smooth_outliers(subject *s, const subject_progress *progress, sn_error *err) {
    int *users = origin_users(s);
    moments x = {0};
    bool ok = (users || sn_fail(err, SN_ERR_MEMORY, "out of memory")) && moments_make(s, &x, err);
    for (int i = 0; ok && i < s->n_product; i++) {
        origin o;
        ok = subject_show(progress, err, (double)i / s->n_product, "smoothing %s",
                          s->product[i].label);
        if (ok && origin_find(s, i, users, &o)) ok = smooth_product(s, i, &o, &x, progress, err);
    }
    free(users);
    moments_free(&x);
    return ok && check_results(s, progress, err);
}
