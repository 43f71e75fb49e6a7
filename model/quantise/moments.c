/* moments.c: compiles entries that sum or compare the inputs of linear maps, and runs them on the
 * calibration texts. */
#include "model/quantise/moments.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define ENTRY "calibrate"

/* The product's inputs as [rows, k]. */
static sn_node *rows_of(const subject_product *p) {
    sn_node *x = p->input;
    const sn_dim shape[] = {sn_dim_product(x->m, x->rank - 1, x->shape), x->shape[x->rank - 1]};
    return sn_b_reshape(x, 2, shape);
}

static sn_node *gram_of(const subject_product *p) {
    const int64_t rows = 0;
    sn_node *x = rows_of(p);
    return SN_NODE(x->m, dot,
                   SN_ATTRS(SN_LIST(batch_a, 0, &rows), SN_LIST(batch_b, 0, &rows),
                            SN_LIST(contract_a, 1, &rows), SN_LIST(contract_b, 1, &rows)),
                   x, x);
}

/* [k] of [1, k], over the rows. */
static sn_node *flat(sn_node *x) {
    return sn_b_reshape(x, 1, &x->shape[1]);
}

static sn_node *range_of(const subject_product *p) {
    const int64_t rows = 0;
    return flat(sn_b_reduce(SN_OP_reduce_max, sn_b_unary(SN_OP_abs, rows_of(p)), 1, &rows));
}

static sn_node *square_of(const subject_product *p) {
    const int64_t rows = 0;
    sn_node *x = rows_of(p);
    return flat(sn_b_mean(sn_b_binary(SN_OP_mul, x, x), 1, &rows));
}

/* A session whose only entry has outputs "0", "1", ... of the products from .. from + n - 1: the largest
 * magnitudes, then the mean squares, or the Gram matrices; in f32, with the parameters as they are. */
static bool open_session(subject *s, int from, int n, bool channels, subject_session *out,
                         sn_error *err) {
    sn_entries *before = sn_entries_save(s->module);
    sn_entries_clear(s->module);
    sn_entry *e = sn_entry_add(s->module, ENTRY);
    for (int i = 0; i < (channels ? 2 * n : n); i++) {
        const subject_product *p = &s->product[from + i % n];
        sn_node *y = !channels ? gram_of(p) : i < n ? range_of(p) : square_of(p);
        sn_entry_output(s->module, e, sn_arena_printf(s->module, "%d", i), y);
    }
    bool ok =
        sn_module_ok(s->module, err) && subject_session_open(s, out, &s->compile, false, NULL, err);
    sn_entries_restore(s->module, before);
    return ok;
}

double *moments_gram(subject *s, int product, sn_error *err) {
    int64_t k = s->product[product].k;
    size_t n = (size_t)(k * k);
    subject_session x = {0};
    double *sum = calloc(n + 1, sizeof *sum);
    float *each = malloc(sizeof *each * n + 1);
    bool ok = (sum && each) || sn_fail(err, SN_ERR_MEMORY, "out of memory");
    ok = ok && open_session(s, product, 1, false, &x, err);
    const sn_arg_binding out = SN_BIND("0", SN_F32, each, k, k);
    for (int i = 0; ok && i < s->n_text - s->n_held; i++) {
        ok = subject_run(x.session, ENTRY, &s->text[i], &out, 1, err);
        for (size_t j = 0; ok && j < n; j++) sum[j] += (double)each[j];
    }
    subject_session_close(&x);
    free(each);
    if (ok) return sum;
    free(sum);
    return NULL;
}

/* Room for most, square and the results of a run, which are the first half. */
static bool new_moments(const subject *s, moments *x) {
    size_t n = 0, m = (size_t)s->n_product;
    for (size_t i = 0; i < m; i++) n += (size_t)s->product[i].k;
    x->most = calloc(4 * m + 1, sizeof *x->most);
    x->data = calloc(4 * n + 1, sizeof *x->data);
    if (!x->most || !x->data) return false;
    x->square = x->most + m;
    float *at = x->data;
    for (size_t i = 0; i < 4 * m; at += s->product[i % m].k, i++) x->most[i] = at;
    return true;
}

void moments_free(moments *x) {
    free(x->most);
    free(x->data);
    *x = (moments){0};
}

/* Adds the results of a run, which are parts[2 n_product ..]. */
static void add_run(const subject *s, moments *x) {
    int n = s->n_product;
    for (int i = 0; i < n; i++)
        for (int64_t c = 0; c < s->product[i].k; c++) {
            x->most[i][c] = fmaxf(x->most[i][c], x->most[2 * n + i][c]);
            x->square[i][c] += x->most[3 * n + i][c];
        }
}

bool moments_make(subject *s, moments *x, sn_error *err) {
    int n = s->n_product, texts = s->n_text - s->n_held;
    subject_session run = {0};
    *x = (moments){0};
    sn_arg_binding *out = calloc(2 * (size_t)n + 1, sizeof *out);
    char(*name)[12] = calloc(2 * (size_t)n + 1, sizeof *name);
    bool ok = (out && name && new_moments(s, x)) || sn_fail(err, SN_ERR_MEMORY, "out of memory");
    ok = ok && open_session(s, 0, n, true, &run, err);
    for (int i = 0; ok && i < 2 * n; i++) {
        snprintf(name[i], sizeof name[i], "%d", i);
        out[i] = (sn_arg_binding){name[i], SN_F32, 1, &s->product[i % n].k, x->most[2 * n + i]};
    }
    for (int t = 0; ok && t < texts; t++) {
        ok = subject_run(run.session, ENTRY, &s->text[t], out, 2 * n, err);
        if (ok) add_run(s, x);
    }
    for (int i = 0; ok && i < n; i++)
        for (int64_t c = 0; c < s->product[i].k; c++) x->square[i][c] /= (float)texts;
    subject_session_close(&run);
    free(out);
    free(name);
    return ok;
}
