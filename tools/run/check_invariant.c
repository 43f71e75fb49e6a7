/* check_invariant.c: which changes that should not matter leave the bits of every result as they are: the number of
 * threads, another session, the rows beside a row, tokens behind a token, the level, the instructions, and pieces
 * of a sequence. */
#include "codegen/program/program.h"
#include "passes/kernels/levels.h"
#include "tools/run/check.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { TOKENS = 13, ROWS = 3, BEHIND = 6, MAX_ENTRIES = 32 };

/* What changes; the first is what the others are compared with. */
static const struct variant {
    const char *check;
    int level, threads; /* level -1: as the first */
    const char *target; /* NULL: this CPU */
    bool promised;      /* a difference fails the check */
} variants[] = {{"", -1, 1, NULL, true},
                {"session", -1, 1, NULL, true},
                {"threads", -1, 2, NULL, true},
                {"threads", -1, 3, NULL, true},
                {"threads", -1, 8, NULL, true},
                {"level", 0, 1, NULL, false},
                {"level", 1, 1, NULL, false},
                {"level", 2, 1, NULL, false},
                {"level", 3, 1, NULL, false},
                {"level", 4, 1, NULL, false},
                {"x86-64-v2", -1, 1, "x86-64-v2", false},
                {"x86-64-v3", -1, 1, "x86-64-v3", false},
                {"x86-64-v4", -1, 1, "x86-64-v4", false}};
enum { N_VARIANTS = sizeof variants / sizeof *variants };

typedef struct invariant {
    const check_options *o;
    check_report *r;
    open_model *m;
    run_params params;
    sn_program *p; /* of the current variant */
    sn_session *s;
    int n; /* entries */
    char *entry[MAX_ENTRIES];
    inspect_inputs in[MAX_ENTRIES];
    run_results base[MAX_ENTRIES];
    sn_error *err;
} invariant;

static int top_level(const check_options *o) {
    int top = 0;
    for (int l = 0; l <= 4; l++)
        if (o->levels >> l & 1) top = l;
    return top;
}

/* What the program is compiled to keep must not change. */
static bool keeps(const check_options *o, int invariant) {
    const sn_options compiled = {.invariant = o->invariant};
    return (sn_options_invariant(&compiled) & invariant) != 0;
}

static void close_variant(invariant *v) {
    sn_session_free(v->s);
    sn_program_free(v->p);
    v->s = NULL;
    v->p = NULL;
}

static bool open_variant(invariant *v, const struct variant *with, sn_error *err) {
    sn_options o = {.level = with->level < 0 ? top_level(v->o) : with->level,
                    .threads = with->threads,
                    .target = with->target,
                    .backend = v->o->backend,
                    .compute = v->o->compute,
                    .weights = v->o->weights,
                    .invariant = v->o->invariant,
                    .cache_dir = v->o->cache_dir,
                    .passes = v->o->off};
    v->p = sn_compile(v->m->model.module, &o, err);
    v->s = v->p ? sn_session_new_arrays(v->p, v->params.list, v->params.n, err) : NULL;
    if (!v->s) close_variant(v);
    return v->s != NULL;
}

static check_cell *cell_of(invariant *v, const char *entry, const char *check) {
    check_cell *c = check_add(v->r, entry, "results", check);
    if (!c)
        sn_fail(v->err, SN_ERR_MEMORY, "out of memory");
    else if (!c->verdict)
        c->verdict = "equal";
    return c;
}

/* The first difference of a check stays. */
static void note(check_cell *c, bool promised, const char *why) {
    if (!strcmp(c->verdict, "differs")) return;
    c->verdict = "differs";
    c->holds = !promised;
    snprintf(c->detail, sizeof c->detail, "%.390s", why);
}

static void describe(const struct variant *with, char *text, size_t size) {
    if (with->target)
        snprintf(text, size, "for %s", with->target);
    else if (with->level >= 0)
        snprintf(text, size, "at level %d", with->level);
    else if (with->threads > 1)
        snprintf(text, size, "with %d threads", with->threads);
    else
        snprintf(text, size, "in another session");
}

static bool same_bits(const void *x, const void *y, int64_t n, size_t size, int64_t *at) {
    for (*at = 0; *at < n; ++*at)
        if (memcmp((const char *)x + (size_t)*at * size, (const char *)y + (size_t)*at * size,
                   size))
            return false;
    return true;
}

static bool compare_variant(invariant *v, const struct variant *with) {
    sn_error why = {0};
    char how[64], text[300];
    describe(with, how, sizeof how);
    if (with->level >= 0 && keeps(v->o, SN_INVARIANT_CHUNK) &&
        !sn_level_reaches(with->level, SN_LEVEL_ATTENTION))
        return true; /* there is no such program */
    if (v->o->progress) v->o->progress(v->o->ctx, how);
    if (!open_variant(v, with, &why)) /* another CPU's code */
        return with->target ? true : sn_fail(v->err, why.code, "%s: %s", how, why.message);
    bool ok = true;
    for (int i = 0; ok && i < v->n; i++) {
        sn_module *m = v->m->model.module;
        run_results got = {0};
        check_cell *c = cell_of(v, v->entry[i], with->check);
        ok = c && run_entry(v->s, m, sn_entry_get(m, v->entry[i]), &v->in[i], true, &got, v->err);
        for (int k = 0; ok && k < got.n; k++) {
            const run_tensor *x = &v->base[i].list[k];
            int64_t at;
            if (same_bits(x->data, got.list[k].data, x->n, sn_dtype_size((sn_dtype)x->node->dtype),
                          &at))
                continue;
            snprintf(text, sizeof text, "'%.100s', element %lld of %lld, %s", x->name,
                     (long long)at, (long long)x->n, how);
            note(c, with->promised, text);
        }
        run_results_free(&got);
    }
    close_variant(v);
    return ok;
}

/* ---- rows ---- */

static bool has_rows(const sn_node *n) {
    char dim[32] = "";
    if (n->rank) sn_dim_print(n->m, n->shape[0], dim, sizeof dim);
    return !strcmp(dim, "B");
}

/* The inputs of one row alone: views of those of all rows. */
static void take_row(const invariant *v, int entry, int64_t row, inspect_inputs *in) {
    sn_module *m = v->m->model.module;
    sn_order order = sn_entry_topo(m, sn_entry_get(m, v->entry[entry]));
    *in = v->in[entry];
    for (int i = 0; i < in->n_data; i++) {
        sn_arg_binding *a = &in->arg[i];
        size_t bytes = sn_dtype_size(a->dtype);
        a->shape = in->shape[i];
        for (int k = 0; k < order.n; k++) {
            const sn_node *x = order.node[k];
            if (x->op != SN_OP_input || strcmp(sn_attr_str(x, SN_A_name, ""), a->name) != 0 ||
                !has_rows(x))
                continue;
            for (int d = 1; d < a->rank; d++) bytes *= (size_t)a->shape[d];
            a->data = (char *)a->data + (size_t)row * bytes;
            in->shape[i][0] = 1;
        }
    }
    in->symbol[sn_symbol_find(m, "B")] = 1;
    for (int i = 0; i < sn_symbol_count(m) && in->n_data + i < in->n; i++)
        in->arg[in->n_data + i].data = &in->symbol[i];
}

/* Each row of a batch against the same row alone. */
static bool compare_rows(invariant *v, int entry) {
    sn_module *m = v->m->model.module;
    int b = sn_symbol_find(m, "B");
    const sn_entry *e = sn_entry_get(m, v->entry[entry]);
    if (b < 0 || v->in[entry].symbol[b] != ROWS || e->n_assign || inspect_inputs_past(m, e))
        return true;
    check_cell *c = NULL;
    bool ok = true;
    char text[300];
    for (int64_t row = 0; ok && row < ROWS; row++) {
        inspect_inputs in;
        run_results one = {0};
        take_row(v, entry, row, &in);
        ok = run_entry(v->s, m, sn_entry_get(m, v->entry[entry]), &in, true, &one, v->err);
        for (int k = 0; ok && k < one.n; k++) {
            const run_tensor *all = &v->base[entry].list[k];
            size_t size = sn_dtype_size((sn_dtype)all->node->dtype);
            int64_t at;
            if (!has_rows(all->node)) continue;
            if (!c && !(c = cell_of(v, v->entry[entry], "batch"))) ok = false;
            if (!ok || same_bits((char *)all->data + (size_t)(row * one.list[k].n) * size,
                                 one.list[k].data, one.list[k].n, size, &at))
                continue;
            snprintf(text, sizeof text, "'%.100s', row %lld, element %lld of %lld, alone",
                     all->name, (long long)row, (long long)at, (long long)one.list[k].n);
            note(c, keeps(v->o, SN_INVARIANT_BATCH), text);
        }
        run_results_free(&one);
    }
    return ok;
}

/* ---- pieces ---- */

/* A prompt of five tokens at once, then token by token, against all at once. */
static bool compare_pieces(invariant *v) {
    check_report pieces = {0};
    char text[300];
    bool ok = check_decoding(v->o, v->s, v->m->model.vocab, &pieces, v->err);
    for (int i = 0; ok && i < pieces.n; i++) {
        check_cell *c = cell_of(v, pieces.cell[i].entry, "chunk");
        if (!(ok = c != NULL)) break;
        snprintf(text, sizeof text, "%.200s, from token %lld of %lld on: error %.3g of the largest",
                 pieces.cell[i].detail[0] ? pieces.cell[i].detail : "the same tokens at once",
                 (long long)pieces.cell[i].first, (long long)pieces.cell[i].tokens,
                 pieces.cell[i].error);
        if (!(pieces.cell[i].error <= 0))
            note(c, !pieces.cell[i].holds || keeps(v->o, SN_INVARIANT_CHUNK), text);
    }
    check_report_free(&pieces);
    return ok;
}

/* ---- tokens behind ---- */

/* Where element i of `small`, which begins each axis of `large`, is in that. */
static int64_t place_in(const int64_t *large, const int64_t *small, int rank, int64_t i) {
    int64_t at = 0, stride = 1;
    for (int a = rank - 1; a >= 0; a--) {
        at += i % small[a] * stride;
        stride *= large[a];
        i /= small[a];
    }
    return at;
}

/* The inputs of the entry for some more tokens; they begin with those that the base has. */
static bool lengthen(invariant *v, int entry, inspect_inputs *in) {
    sn_module *m = v->m->model.module;
    const sn_entry *e = sn_entry_get(m, v->entry[entry]);
    char sizes[512];
    if (!run_sizes(m, e, NULL, TOKENS + BEHIND, ROWS, false, NULL, sizes, sizeof sizes, v->err) ||
        !run_inputs_make(in, v->p, e->name, sizes, NULL, v->m->model.vocab, v->err))
        return false;
    for (int i = 0; i < in->n_data; i++) {
        const sn_arg_binding *from = &v->in[entry].arg[i];
        sn_arg_binding *to = &in->arg[i];
        size_t size = sn_dtype_size(to->dtype);
        int64_t n = 1;
        for (int a = 0; a < to->rank; a++) n *= from->shape[a];
        for (int64_t k = 0; k < n; k++)
            memcpy((char *)to->data + (size_t)place_in(to->shape, from->shape, to->rank, k) * size,
                   (const char *)from->data + (size_t)k * size, size);
    }
    return true;
}

/* Results of the base against those with tokens behind. If one is far off, it depends on them. */
static bool compare_longer(invariant *v, int entry, const run_tensor *x, const run_tensor *y) {
    const sn_dtype t = (sn_dtype)x->node->dtype;
    const size_t size = sn_dtype_size(t);
    int64_t first = -1;
    double largest = 0, error = 0;
    for (int64_t k = 0; k < x->n; k++) {
        int64_t at = place_in(y->shape, x->shape, x->node->rank, k);
        double want = sn_dtype_load(t, x->data, k), got = sn_dtype_load(t, y->data, at);
        if (first < 0 && memcmp((const char *)x->data + (size_t)k * size,
                                (const char *)y->data + (size_t)at * size, size))
            first = k;
        largest = fmax(largest, fabs(want));
        error = fmax(error, fabs(got - want));
    }
    check_cell *c = cell_of(v, v->entry[entry], "padding");
    char text[300];
    if (c && !(error <= 1e-3 * largest)) {
        c->verdict = "depends";
        snprintf(c->detail, sizeof c->detail, "'%.100s' reads tokens behind", x->name);
        return true;
    }
    snprintf(text, sizeof text, "'%.100s', element %lld of %lld, with %d tokens behind", x->name,
             (long long)first, (long long)x->n, BEHIND);
    if (c && first >= 0) note(c, keeps(v->o, SN_INVARIANT_CHUNK), text);
    return c != NULL;
}

static bool compare_padding(invariant *v, int entry) {
    sn_module *m = v->m->model.module;
    const sn_entry *e = sn_entry_get(m, v->entry[entry]);
    int t = sn_symbol_find(m, "T");
    bool usual = !v->o->sizes && !(v->o->given && v->o->given->n);
    if (!usual || t < 0 || v->in[entry].symbol[t] != TOKENS || e->n_assign ||
        inspect_inputs_past(m, e))
        return true;
    inspect_inputs in = {.n = 0};
    run_results longer = {0};
    bool ok = lengthen(v, entry, &in) && run_entry(v->s, m, e, &in, true, &longer, v->err);
    for (int k = 0; ok && k < longer.n; k++) {
        const run_tensor *x = &v->base[entry].list[k];
        if (longer.list[k].n > x->n) ok = compare_longer(v, entry, x, &longer.list[k]);
    }
    inspect_inputs_free(&in);
    run_results_free(&longer);
    return ok;
}

/* ---- the base ---- */

static bool run_base(invariant *v) {
    sn_module *m = v->m->model.module;
    int64_t vocab = v->m->model.labels ? v->m->model.labels : v->m->model.vocab;
    if (!open_variant(v, &variants[0], v->err)) return false;
    bool ok = true;
    for (int i = 0; ok && i < sn_entry_count(m) && v->n < MAX_ENTRIES; i++) {
        char sizes[512];
        const sn_entry *e = sn_entry_at(m, i);
        if (v->o->entry && strcmp(v->o->entry, e->name) != 0) continue;
        int k = v->n++;
        ok = (v->entry[k] = strdup(e->name)) || sn_fail(v->err, SN_ERR_MEMORY, "out of memory");
        ok = ok &&
             run_sizes(m, e, v->o->given, TOKENS, ROWS, inspect_inputs_past(m, e), v->o->sizes,
                       sizes, sizeof sizes, v->err) &&
             run_inputs_make(&v->in[k], v->p, e->name, sizes, v->o->given, vocab, v->err) &&
             run_entry(v->s, m, sn_entry_get(m, v->entry[k]), &v->in[k], true, &v->base[k], v->err);
    }
    for (int i = 0; ok && i < v->n; i++) ok = compare_rows(v, i) && compare_padding(v, i);
    ok = ok && (!v->o->decoding || compare_pieces(v));
    close_variant(v);
    return ok;
}

bool check_invariant(const check_options *o, check_report *r, sn_error *err) {
    invariant *v = calloc(1, sizeof *v);
    *r = (check_report){0};
    if (!v) return sn_fail(err, SN_ERR_MEMORY, "out of memory");
    *v = (invariant){.o = o, .r = r, .m = model_open(o->model, err), .err = err};
    bool ok = v->m && run_params_make(&v->params, v->m, o->given, o->seed, err);
    if (ok && o->entry && !sn_entry_get(v->m->model.module, o->entry))
        ok = sn_fail(err, SN_ERR_USAGE, "there is no entry '%s'", o->entry);
    ok = ok && run_base(v);
    for (int i = 1; ok && i < N_VARIANTS; i++)
        if (variants[i].level < 0 || o->levels >> variants[i].level & 1)
            ok = compare_variant(v, &variants[i]);
    for (int i = 0; i < v->n; i++) {
        free(v->entry[i]);
        inspect_inputs_free(&v->in[i]);
        run_results_free(&v->base[i]);
    }
    run_params_free(&v->params);
    if (v->m) model_close(v->m);
    free(v);
    return ok;
}
