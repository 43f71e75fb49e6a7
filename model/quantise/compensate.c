/* compensate.c: GPTQ for all matrices of a model, one product after the other. Tables come first: what
 * they give is the input of everything else. Each of their numbers is rounded by itself, also if the
 * table is a linear map, too (tied embeddings): corrections for the map would be errors of look-ups. */
#include "model/quantise/compensate.h"
#include "model/quantise/gptq.h"
#include "model/quantise/moments.h"

#include <stdlib.h>
#include <string.h>

typedef struct work {
    subject *s;
    const subject_progress *p;
    double damping;
    bool gptq;
    int64_t done, all; /* numbers */
} work;

static bool fits(const subject_matrix *w) {
    return w->k % GPTQ_GROUP == 0;
}

/* Rounds a matrix. h, u: of its inputs, NULL: of a table. Prints the error of rounding each number by
 * itself and that of what was chosen. */
static bool round_matrix(work *k, const subject_matrix *w, const double *h, const double *u,
                         sn_error *err) {
    subject *s = k->s;
    size_t n = (size_t)(w->n * w->k);
    const char *name = s->param[w->param].name;
    float *before = subject_matrix_get(s, w), *after = subject_matrix_get(s, w),
          *off = subject_matrix_get(s, w);
    bool ok = (before && after && off) || sn_fail(err, SN_ERR_MEMORY, "out of memory");
    if (ok) gptq_plain(off, w->n, w->k);
    if (ok && k->gptq)
        ok = gptq_round(after, w->n, w->k, u, err);
    else if (ok)
        memcpy(after, off, sizeof *off * n);
    if (ok && h) {
        for (size_t i = 0; i < n; i++) off[i] -= before[i];
        double plain = gptq_error(before, off, w->n, w->k, h);
        for (size_t i = 0; i < n; i++) off[i] = after[i] - before[i];
        double now = gptq_error(before, off, w->n, w->k, h);
        subject_line(k->p, "  %-52s int4   error %6.2f %% -> %6.2f %%", name, 100 * plain,
                     100 * now);
    } else if (ok) {
        subject_line(k->p, "  %-52s int4   table", name);
    }
    ok = ok && subject_matrix_set(s, w, after, err);
    free(before);
    free(after);
    free(off);
    k->done += (int64_t)n;
    return ok && subject_show(k->p, err, (double)k->done / (double)k->all, "rounding %s", name);
}

/* Rounds the matrices of a product, except tables. */
static bool round_product(work *k, int product, sn_error *err) {
    subject *s = k->s;
    const subject_product *p = &s->product[product];
    bool any = false;
    for (int i = 0; i < p->n_matrix; i++) {
        const subject_matrix *w = &s->matrix[p->matrix[i]];
        any |= fits(w) && !w->table;
    }
    if (!any) return true;
    size_t n = (size_t)(p->k * p->k);
    double *h = moments_gram(s, product, err), *u = h ? malloc(sizeof *u * n + 1) : NULL;
    bool ok = h && (u || sn_fail(err, SN_ERR_MEMORY, "out of memory"));
    if (ok) memcpy(u, h, sizeof *u * n);
    ok = ok && (!k->gptq || gptq_factor(u, p->k, k->damping, err));
    for (int i = 0; ok && i < p->n_matrix; i++) {
        const subject_matrix *w = &s->matrix[p->matrix[i]];
        if (fits(w) && !w->table) ok = round_matrix(k, w, h, u, err);
    }
    free(h);
    free(u);
    return ok;
}

bool compensate(subject *s, bool gptq, double damping, const subject_progress *p, sn_error *err) {
    work k = {.s = s, .p = p, .damping = damping, .gptq = gptq, .all = 1};
    bool ok = true;
    for (int i = 0; i < s->n_matrix; i++)
        if (fits(&s->matrix[i])) k.all += s->matrix[i].n * s->matrix[i].k;
    for (int i = 0; ok && i < s->n_matrix; i++)
        if ((s->matrix[i].table || s->matrix[i].product < 0) && fits(&s->matrix[i]))
            ok = round_matrix(&k, &s->matrix[i], NULL, NULL, err);
    for (int i = 0; ok && i < s->n_product; i++) ok = round_product(&k, i, err);
    return ok;
}
