/* values.c: see values.h. */
#include "tools/run/values.h"
#include "codegen/program/program.h"
#include "driver/npz.h"
#include "runtime/cli/screen.h"
#include "runtime/problems.h"
#include "runtime/rng.h"
#include "runtime/str.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- what the user gives ---- */

typedef struct taking { /* arrays of an archive */
    run_given *g;
    const char *name, *as; /* the array that is wanted, and its name here; NULL: all */
    bool found;
} taking;

static bool add_given(run_given *g, const char *name, size_t length, struct run_value v,
                      sn_error *err) {
    for (int i = 0; i < g->n; i++)
        if (strlen(g->item[i].name) == length && !strncmp(g->item[i].name, name, length))
            return sn_fail(err, SN_ERR_USAGE, "--input gives '%.*s' twice", (int)length, name);
    if (g->n == RUN_GIVEN) return sn_fail(err, SN_ERR_USAGE, "more than %d inputs", RUN_GIVEN);
    v.name = strndup(name, length);
    if (!v.name) return sn_fail(err, SN_ERR_MEMORY, "out of memory");
    g->item[g->n++] = v;
    return true;
}

static bool take_array(void *ctx, const char *name, sn_npy *a, sn_error *err) {
    taking *t = ctx;
    bool wanted = !t->name || !strcmp(t->name, name);
    const char *as = t->as ? t->as : name;
    t->found |= wanted;
    struct run_value v = {.array = *a, .of_archive = !t->name};
    if (wanted && add_given(t->g, as, strlen(as), v, err)) return true;
    sn_npy_free(a);
    return !wanted;
}

/* "NAME=FILE.npz", "NAME=FILE.npz:ARRAY" or "FILE.npz" with name NULL. */
static bool give_archive(run_given *g, const char *name, const char *source, sn_error *err) {
    const char *colon = strstr(source, ".npz:");
    char path[4096];
    snprintf(path, sizeof path, "%.*s", colon ? (int)(colon - source) + 4 : (int)strlen(source),
             source);
    taking t = {g, colon ? colon + 5 : name, name, false};
    if (!npz_read(path, take_array, &t, err)) return false;
    return t.found || !t.name || sn_fail(err, SN_ERR_FILE, "%s has no array '%s'", path, t.name);
}

/* "LO..HI" or a number. */
static bool read_range(const char *s, double *lo, double *hi) {
    char first[64], *end;
    const char *dots = strstr(s, "..");
    snprintf(first, sizeof first, "%.*s", dots ? (int)(dots - s) : 63, s);
    *lo = *hi = strtod(first, &end);
    if (end == first || *end) return false;
    if (!dots) return true;
    *hi = strtod(dots + 2, &end);
    return end != dots + 2 && !*end;
}

static bool give(run_given *g, const char *text, sn_error *err) {
    const char *equals = strchr(text, '=');
    if (!equals && sn_ends_with(text, ".npz")) return give_archive(g, NULL, text, err);
    if (!equals || equals == text)
        return sn_fail(err, SN_ERR_USAGE,
                       "--input '%s': write NAME=FILE.npy, NAME=FILE.npz:ARRAY, NAME=random, "
                       "NAME=LO..HI, NAME=NUMBER or FILE.npz",
                       text);
    const char *source = equals + 1;
    size_t length = (size_t)(equals - text);
    struct run_value v = {.random = !strcmp(source, "random")};
    if (v.random) return add_given(g, text, length, v, err);
    if (sn_ends_with(source, ".npz") || strstr(source, ".npz:")) {
        char name[512];
        snprintf(name, sizeof name, "%.*s", (int)length, text);
        return give_archive(g, name, source, err);
    }
    bool range = read_range(source, &v.lo, &v.hi);
    if (range)
        return v.lo <= v.hi ? add_given(g, text, length, v, err)
                            : sn_fail(err, SN_ERR_USAGE, "--input '%s': an empty range", text);
    if (!sn_npy_open(source, &v.array, err)) return false;
    if (add_given(g, text, length, v, err)) return true;
    sn_npy_free(&v.array);
    return false;
}

bool run_given_read(const arg_texts *text, run_given *out, sn_error *err) {
    *out = (run_given){.n = 0};
    for (int i = 0; i < text->n; i++)
        if (!give(out, text->item[i], err)) return false;
    return true;
}

void run_given_free(run_given *g) {
    for (int i = 0; i < g->n; i++) {
        free(g->item[i].name);
        sn_npy_free(&g->item[i].array);
    }
    g->n = 0;
}

static bool reads(sn_module *m, const sn_entry *e, const char *input) {
    sn_order order = sn_entry_topo(m, e);
    for (int i = 0; i < order.n; i++)
        if (order.node[i]->op == SN_OP_input &&
            !strcmp(sn_attr_str(order.node[i], SN_A_name, ""), input))
            return true;
    return false;
}

typedef struct known_names { /* of inputs and parameters */
    const char *name[256];
    int n;
    char text[200]; /* the inputs, "a, b" */
} known_names;

static void know(known_names *k, const sn_node *x) {
    const char *name = sn_attr_str(x, SN_A_name, "");
    if ((x->op != SN_OP_input && x->op != SN_OP_param) || *name == '@') return;
    for (int i = 0; i < k->n; i++)
        if (!strcmp(k->name[i], name)) return;
    if (k->n == 255) return;
    k->name[k->n++] = name;
    size_t used = strlen(k->text);
    if (x->op == SN_OP_input)
        snprintf(k->text + used, sizeof k->text - used, "%s%s", used ? ", " : "", name);
}

static bool fail_unknown(sn_module *m, const char *model, const char *name, sn_error *err) {
    known_names k = {.n = 0};
    for (int i = 0; i < sn_entry_count(m); i++) {
        sn_order order = sn_entry_topo(m, sn_entry_at(m, i));
        for (int a = 0; a < order.n; a++) know(&k, order.node[a]);
    }
    const char *near = sn_nearest_name(name, k.name);
    return sn_fail(err, SN_ERR_USAGE, "%s has no input or parameter '%s'%s%s%s; its inputs: %s",
                   model, name, near ? "; did you mean '" : "", near ? near : "", near ? "'?" : "",
                   *k.text ? k.text : "none");
}

bool run_given_used(const run_given *g, sn_module *m, const char *model, const char *command,
                    sn_error *err) {
    for (int i = 0; i < g->n; i++) {
        const struct run_value *v = &g->item[i];
        const sn_entry *reader = NULL;
        if (v->used) continue;
        for (int k = 0; k < sn_entry_count(m) && !reader; k++)
            if (reads(m, sn_entry_at(m, k), v->name)) reader = sn_entry_at(m, k);
        if (!reader) return fail_unknown(m, model, v->name, err);
        if (!v->of_archive)
            return sn_fail(err, SN_ERR_USAGE,
                           "nothing reads the input '%s' here; entry '%s' does: --entry %s",
                           v->name, reader->name, reader->name);
        sn_screen_note(command, "'%s' of the archive is not read: only entry '%s' does", v->name,
                       reader->name);
    }
    return true;
}

static struct run_value *find_given(const run_given *g, const char *name) {
    for (int i = 0; g && i < g->n; i++)
        if (!strcmp(g->item[i].name, name)) return (struct run_value *)&g->item[i];
    return NULL;
}

/* ---- elements ---- */

static uint32_t stream_of(const char *name) {
    uint32_t h = 7;
    for (; *name; name++) h = h * 31 + (unsigned char)*name;
    return h;
}

/* Integers are given as integers that the type holds. */
static bool range_fits(const struct run_value *v, sn_dtype t, sn_error *err) {
    const double ends[] = {v->lo, v->hi};
    for (int i = 0; i < 2 && !sn_dtype_is_float(t); i++) {
        int64_t held = 0;
        bool whole = ends[i] == floor(ends[i]) && fabs(ends[i]) < 0x1p62;
        if (whole) sn_dtype_store(t, &held, 0, ends[i]);
        if (!whole || sn_dtype_load(t, &held, 0) != ends[i])
            return sn_fail(err, SN_ERR_RANGE, "'%s' is %s, which cannot hold %.9g", v->name,
                           sn_dtype_name(t), ends[i]);
    }
    return true;
}

static void fill_range(const char *name, const struct run_value *v, sn_dtype t, void *data,
                       int64_t n) {
    sn_rng r = {.seed = 3, .stream = SN_STREAM_DATA, .step = stream_of(name)};
    for (int64_t i = 0; i < n; i++) {
        double u = sn_rng_uniform53(&r), x = v->lo + u * (v->hi - v->lo);
        if (!sn_dtype_is_float(t)) x = fmin(floor(v->lo + u * (v->hi - v->lo + 1)), v->hi);
        sn_dtype_store(t, data, i, x);
    }
}

/* Copies an array into a leaf of type t and this shape: floats to floats, integers to integers that
 * hold them. */
static bool convert(const struct run_value *v, sn_dtype t, int rank, const int64_t *shape,
                    void *data, sn_error *err) {
    const sn_npy *a = &v->array;
    bool same = a->rank == rank && sn_dtype_is_float(a->dtype) == sn_dtype_is_float(t);
    char want[128] = "", have[128] = "";
    for (int i = 0, w = 0, h = 0; i < 8; i++) {
        if (i < rank)
            w += snprintf(want + w, sizeof want - (size_t)w, "%s%lld", i ? "," : "",
                          (long long)shape[i]);
        if (i < a->rank)
            h += snprintf(have + h, sizeof have - (size_t)h, "%s%lld", i ? "," : "",
                          (long long)a->shape[i]);
        same = same && (i >= rank || a->shape[i] == shape[i]);
    }
    if (!same)
        return sn_fail(err, SN_ERR_SHAPE, "'%s' is %s[%s], but %s[%s] is given", v->name,
                       sn_dtype_name(t), want, sn_dtype_name(a->dtype), have);
    for (int64_t i = 0; i < a->count; i++) {
        double x = sn_dtype_load(a->dtype, a->data, i);
        sn_dtype_store(t, data, i, x);
        if (!sn_dtype_is_float(t) && sn_dtype_load(t, data, i) != x)
            return sn_fail(err, SN_ERR_RANGE, "'%s': element %lld is %.17g, which %s cannot hold",
                           v->name, (long long)i, x, sn_dtype_name(t));
    }
    if (a->dtype == t) memcpy(data, a->data, a->bytes); /* i64 beyond 2^53, NaN as it is */
    return true;
}

/* What is given for a leaf; false without err->code: nothing is. */
static bool fill_given(run_given *g, const char *name, sn_dtype t, int rank, const int64_t *shape,
                       int64_t n, void *data, sn_error *err) {
    struct run_value *v = find_given(g, name);
    if (v) v->used = true;
    if (!v || v->random) return false;
    if (v->array.data) return convert(v, t, rank, shape, data, err);
    if (!range_fits(v, t, err)) return false;
    fill_range(name, v, t, data, n);
    return true;
}

/* ---- parameters ---- */

/* Gains are near 1, biases small, matrices keep the size of what they multiply. */
static void fill_param(const char *name, uint64_t seed, const sn_node *p, int64_t n, void *data) {
    sn_rng r = {.seed = seed, .stream = SN_STREAM_INIT, .step = stream_of(name)};
    bool gain =
        p->rank < 2 && !sn_ends_with(name, "bias") &&
        (sn_ends_with(name, ".weight") || sn_ends_with(name, "_var") || strstr(name, "norm"));
    double last = p->rank ? (double)p->shape[p->rank - 1] : 1;
    double size = p->rank < 2 ? 0.1 : 0.7 / sqrt(last > 0 ? last : 1);
    for (int64_t i = 0; i < n; i++)
        sn_dtype_store((sn_dtype)p->dtype, data, i, gain + size * (double)sn_rng_normal(&r));
}

static bool make_param(run_params *p, const open_model *m, const sn_node *node, run_given *g,
                       uint64_t seed, sn_error *err) {
    const char *name = sn_attr_str(node, SN_A_name, "");
    int64_t n = 1;
    for (int a = 0; a < node->rank; a++) {
        int64_t size;
        if (!sn_dim_is_const(node->m, node->shape[a], &size))
            return sn_fail(err, SN_ERR_SHAPE,
                           "parameter '%s' has a symbolic shape: make it an input", name);
        n *= size;
    }
    sn_dtype t = (sn_dtype)node->dtype;
    void *data = aligned_alloc(64, ((size_t)n * sn_dtype_size(t) + 64) / 64 * 64);
    if (!data) return sn_fail(err, SN_ERR_MEMORY, "out of memory for '%s'", name);
    p->list[p->n] = (sn_arg_binding){name, t, node->rank, node->shape, data};
    p->own[p->n++] = data;
    if (fill_given(g, name, t, node->rank, node->shape, n, data, err)) return true;
    if (err->code) return false;
    const sn_weights *w = model_weights(m);
    const sn_weight *stored = w ? sn_weights_find(w, name) : NULL;
    const struct run_value *given = find_given(g, name);
    if (!stored && w && !(given && given->random))
        return sn_fail(err, SN_ERR_FILE,
                       "tensor \"%s\" is missing in the weights; --input %s=FILE.npy gives it, "
                       "--input %s=random makes it",
                       name, name, name);
    if (!stored) return fill_param(name, seed, node, n, data), true;
    if (t == stored->dtype && !stored->block && sn_weight_elements(stored) == n) {
        memcpy(data, stored->data, stored->bytes);
        return true;
    }
    if (t != SN_F32 || sn_weight_elements(stored) != n)
        return sn_fail(err, SN_ERR_SHAPE, "'%s' has another type or size in the weights", name);
    return sn_weight_to_f32(stored, data) ||
           sn_fail(err, SN_ERR_FILE, "'%s' cannot be converted", name);
}

bool run_params_make(run_params *p, const open_model *m, run_given *g, uint64_t seed,
                     sn_error *err) {
    sn_module *mod = m->model.module;
    uint32_t nodes = sn_module_node_count(mod);
    int count = 0;
    for (uint32_t i = 0; i < nodes; i++) count += sn_module_node(mod, i)->op == SN_OP_param;
    *p = (run_params){.list = calloc((size_t)count + 1, sizeof *p->list),
                      .own = calloc((size_t)count + 1, sizeof *p->own)};
    if (!p->list || !p->own) return sn_fail(err, SN_ERR_MEMORY, "out of memory");
    for (uint32_t i = 0; i < nodes; i++) {
        const sn_node *node = sn_module_node(mod, i);
        if (node->op == SN_OP_param && !make_param(p, m, node, g, seed, err)) return false;
    }
    return true;
}

void run_params_free(run_params *p) {
    for (int i = 0; i < p->n; i++) free(p->own[i]);
    free(p->own);
    free(p->list);
    *p = (run_params){0};
}

/* ---- sizes and inputs ---- */

typedef struct taken { /* sizes of symbols from given arrays */
    int64_t value[LOOK_SYMBOLS];
    const char *from[LOOK_SYMBOLS]; /* name of the array; NULL: not known yet */
    sn_error *err;
} taken;

/* The only unknown symbol of d; -1: none; -2: several. */
static int unknown_of(const sn_module *m, sn_dim d, const taken *t) {
    int found = -1;
    bool used[SN_MAX_SYMBOLS] = {false};
    sn_dim_symbols(m, d, used);
    for (int s = 0; s < sn_symbol_count(m) && s < LOOK_SYMBOLS; s++)
        if (used[s] && !t->from[s]) found = found == -1 ? s : -2;
    return found;
}

/* Axis a of an input is d, and `size` is given: the symbol in it follows (16*C = 208: C = 13). */
static bool take_size(const sn_module *m, const struct run_value *v, int a, sn_dim d, taken *t) {
    char dim[64];
    int64_t size = v->array.shape[a];
    int s = unknown_of(m, d, t);
    sn_dim_print(m, d, dim, sizeof dim);
    if (s == -2) return true; /* --sizes, or an error where the array is converted */
    if (s == -1) {
        int64_t is = sn_dim_eval(m, d, t->value);
        int of = sn_symbol_find(m, dim);
        if (is == size) return true;
        if (of < 0 || !strcmp(t->from[of], v->name))
            return sn_fail(t->err, SN_ERR_SHAPE, "axis %d of '%s' is %s = %lld, but %lld is given",
                           a, v->name, dim, (long long)is, (long long)size);
        return sn_fail(t->err, SN_ERR_SHAPE,
                       "arrays disagree about %s: '%s' says %lld, but axis %d of '%s' says %lld",
                       dim, t->from[of], (long long)is, a, v->name, (long long)size);
    }
    const sn_symbol *x = sn_symbol_at(m, s);
    enum { MAX_SPAN = 1 << 24 };
    int64_t end = x->hi < x->lo + MAX_SPAN ? x->hi : x->lo + MAX_SPAN;
    bool alone = sn_symbol_find(m, dim) == s; /* whose bounds are checked with all sizes */
    if (alone) t->value[s] = size;
    for (int64_t n = x->lo; !alone && n <= end && !t->from[s]; n++) {
        t->value[s] = n;
        if (sn_dim_eval(m, d, t->value) == size) t->from[s] = v->name;
    }
    if (!alone && !t->from[s])
        return sn_fail(t->err, SN_ERR_SHAPE,
                       "axis %d of '%s' is %s, which is %lld for no %s in %lld..%lld", a, v->name,
                       dim, (long long)size, x->name, (long long)x->lo, (long long)x->hi);
    t->from[s] = v->name;
    return true;
}

/* The sizes that follow from given arrays: from axes that are one symbol, then from others. */
static bool sizes_of_given(const sn_module *m, const sn_entry *e, const run_given *g, char *text,
                           size_t size, sn_error *err) {
    sn_order order = sn_entry_topo((sn_module *)(uintptr_t)m, e);
    taken t = {.err = err};
    for (int i = 0; i < 2 * order.n; i++) {
        const sn_node *in = order.node[i % order.n];
        const struct run_value *v =
            in->op == SN_OP_input ? find_given(g, sn_attr_str(in, SN_A_name, "")) : NULL;
        if (!v || !v->array.data) continue;
        if (v->array.rank != in->rank)
            return sn_fail(err, SN_ERR_SHAPE, "'%s' has %d axes, but %d are given", v->name,
                           in->rank, v->array.rank);
        for (int a = 0; a < in->rank; a++) {
            char dim[64];
            sn_dim_print(m, in->shape[a], dim, sizeof dim);
            bool alone = sn_symbol_find(m, dim) >= 0, constant = in->shape[a] >= 0;
            if (alone == (i >= order.n) || constant) continue;
            if (!take_size(m, v, a, in->shape[a], &t)) return false;
        }
    }
    size_t used = strlen(text);
    for (int s = 0; s < sn_symbol_count(m) && s < LOOK_SYMBOLS && used + 100 < size; s++)
        if (t.from[s])
            used += (size_t)snprintf(text + used, size - used, "%s%s=%lld", used ? "," : "",
                                     sn_symbol_at(m, s)->name, (long long)t.value[s]);
    return true;
}

bool run_sizes(const sn_module *m, const sn_entry *e, const run_given *g, int64_t length,
               int64_t batch, bool past, const char *sizes, char *text, size_t size,
               sn_error *err) {
    int b = sn_symbol_find(m, "B");
    bool two = b >= 0 && sn_symbol_at(m, b)->hi >= batch && sn_symbol_at(m, b)->lo <= batch;
    char more[64] = "", usual[LOOK_SIZES];
    if (two) snprintf(more, sizeof more, "B=%lld", (long long)batch);
    if (!inspect_inputs_sizes(m, length, past, more, usual, err)) return false;
    snprintf(text, size, "%s", usual);
    if (!sizes_of_given(m, e, g, text, size, err)) return false;
    size_t used = strlen(text);
    if (sizes && used + strlen(sizes) + 2 < size)
        snprintf(text + used, size - used, "%s%s", used ? "," : "", sizes);
    return true;
}

static bool is_limited(const sn_program *p, const char *entry, const char *name) {
    const sn_compiled_entry *c = sn_program_entry(p, entry);
    for (int i = 0; i < c->n_limit; i++)
        if (!strcmp(c->limit[i].input, name)) return true;
    return false;
}

static int64_t elements_of(const sn_arg_binding *a) {
    int64_t n = 1;
    for (int k = 0; k < a->rank; k++) n *= a->shape[k];
    return n;
}

static bool fill_argument(run_given *g, const sn_arg_binding *a, sn_error *err) {
    return fill_given(g, a->name, a->dtype, a->rank, a->shape, elements_of(a), a->data, err);
}

bool run_inputs_given(inspect_inputs *in, run_given *g, sn_error *err) {
    for (int i = 0; i < in->n_data; i++)
        if (!fill_argument(g, &in->arg[i], err) && err->code) return false;
    return true;
}

bool run_inputs_make(inspect_inputs *in, const sn_program *p, const char *entry, const char *sizes,
                     run_given *g, int64_t vocab, sn_error *err) {
    if (!inspect_inputs_make(in, p, entry, sizes, err)) return false;
    for (int i = 0; i < in->n_data; i++) {
        const sn_arg_binding *a = &in->arg[i];
        if (fill_argument(g, a, err)) continue;
        if (err->code) return false;
        if (vocab > 0 && !strcmp(a->name, "targets") && !is_limited(p, entry, a->name))
            fill_range(a->name, &(struct run_value){.lo = 0, .hi = (double)vocab - 1}, a->dtype,
                       a->data, elements_of(a));
    }
    return true;
}

void run_state_fill(const sn_node *state, int64_t n, void *data) {
    const char *name = sn_attr_str(state, SN_A_name, "");
    sn_dtype t = (sn_dtype)state->dtype;
    memset(data, 0, (size_t)n * sn_dtype_size(t));
    if (sn_dtype_is_float(t)) fill_range(name, &(struct run_value){.lo = 0, .hi = 1}, t, data, n);
}
