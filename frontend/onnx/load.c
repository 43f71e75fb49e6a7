/* load.c: an ONNX file as an entry of a module. The graph is imported into modules of its own first, until
 * nothing more is learnt about its symbolic dims: which of them are equal, and their bounds. */
#include "frontend/onnx/load.h"
#include "frontend/onnx/onnx.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- inputs and outputs ---- */

onnx_value *onnx_plain_input(onnx_call *c, const char *name, sn_dtype type, const sn_dim *shape) {
    return onnx_tensor_value(c->im, name,
                             sn_input_at((sn_loc){c->at.file, 0}, c->m, name, type, shape));
}

bool onnx_plain_output(onnx_call *c, const char *name, onnx_value *v) {
    sn_output(name, onnx_tensor_of(c, v));
    return true;
}

static bool add_input(onnx_import *im, onnx_scope *scope, const onnx_value_info *v) {
    const onnx_tensor_type *t = v->type ? v->type->tensor : NULL;
    sn_dtype type;
    if (!v->name || !*v->name || !t || !t->shape)
        return sn_fail(im->err, SN_ERR_FILE,
                       "%s: the input '%s' is not a tensor with a known number of axes", im->path,
                       v->name ? v->name : "");
    if (!onnx_dtype(t->element, &type))
        return sn_fail(im->err, SN_ERR_FILE,
                       "%s: the input '%s' has the element type %lld, which is not supported",
                       im->path, v->name, (long long)t->element);
    if (t->shape->dim.n > SN_MAX_RANK)
        return sn_fail(im->err, SN_ERR_FILE, "%s: the input '%s' has more than %d axes", im->path,
                       v->name, SN_MAX_RANK);
    sn_dim shape[SN_MAX_RANK + 1];
    int n = t->shape->dim.n;
    for (int i = 0; i < n; i++) {
        const onnx_dim *d = &ONNX_AT(t->shape->dim, onnx_dim, i);
        char name[128];
        snprintf(name, sizeof name, "%.100s_%d%s", v->name, i, im->role->renames ? "_2" : "");
        if (d->value >= (int64_t)1 << 40)
            return sn_fail(im->err, SN_ERR_FILE, "%s: axis %d of the input '%s' has %lld elements",
                           im->path, i, v->name, (long long)d->value);
        if (d->param && *d->param)
            shape[i] = onnx_file_dim(im, d->param);
        else if (d->value > 0)
            shape[i] = d->value;
        else
            shape[i] = onnx_symbol(im, name, true);
    }
    shape[n] = SN_END;
    onnx_call c = {.im = im, .m = im->m, .at = {sn_arena_str(im->m, im->path), 0}};
    onnx_value *value = im->role->input(&c, v->name, type, shape);
    if (!value) return im->again ? false : onnx_fail(&c, "the input '%s' cannot be used", v->name);
    value->narrow = (onnx_type)t->element;
    return onnx_scope_add(im, scope, sn_arena_str(im->m, v->name), value);
}

static bool add_output(onnx_import *im, const onnx_scope *scope, const onnx_value_info *info) {
    onnx_call call = {.im = im, .m = im->m, .at = {sn_arena_str(im->m, im->path), im->number + 1}};
    onnx_call *c = &call;
    onnx_value *v = info->name ? onnx_scope_find(scope, info->name) : NULL;
    if (!v)
        return sn_fail(im->err, SN_ERR_FILE, "%s: no node computes the output '%s'", im->path,
                       info->name ? info->name : "");
    return im->role->output(c, info->name, v) && sn_module_ok(im->m, im->err);
}

static void use_file(onnx_import *im, const char *path, onnx_model *model) {
    im->path = path;
    im->model = model;
}

static bool import_graph(onnx_import *im) {
    const onnx_graph *g = im->model->graph;
    onnx_scope *scope = onnx_scope_new(im, NULL, NULL, &im->model->opset);
    im->number = im->depth = 0;
    if (!onnx_add_initialisers(im, scope, g)) return false;
    for (int i = 0; i < g->input.n; i++) {
        const onnx_value_info *v = &ONNX_AT(g->input, onnx_value_info, i);
        if (v->name && onnx_scope_find(scope, v->name)) continue; /* it has a value */
        if (!add_input(im, scope, v)) return false;
    }
    if (!sn_module_ok(im->m, im->err) || !onnx_run_nodes(im, scope, &g->node)) return false;
    for (int i = 0; i < g->output.n; i++)
        if (!add_output(im, scope, &ONNX_AT(g->output, onnx_value_info, i))) return false;
    return !im->again &&
           (g->output.n || sn_fail(im->err, SN_ERR_FILE, "%s: the graph has no output", im->path));
}

/* Imports the graphs of role[n], in order, into one entry. */
static bool import_entry(onnx_import *im, const onnx_role *role, int n) {
    im->again = false;
    im->n_weight = im->n_kept;
    im->between = NULL;
    sn_entry_begin_at((sn_loc){sn_arena_str(im->m, role->path), 0}, im->m, role->entry);
    for (int i = 0; i < n; i++) {
        im->role = &role[i];
        im->past = NULL;
        use_file(im, role[i].path, role[i].model);
        if (!import_graph(im)) return false;
    }
    return true;
}

/* ---- the files ---- */

typedef struct load {
    onnx_import im;
    sn_module *into;
    onnx_choose *choose;
    void *ctx;
    bool ok;
} load;

/* Imports into modules that are thrown away until nothing is learnt. */
static bool learn(onnx_import *im, const onnx_role *role, int n) {
    enum { MAX_TIMES = 2 * ONNX_FACTS };
    im->n_fact = 0;
    for (int i = 0; i < MAX_TIMES; i++) {
        sn_error failed = {0}, *err = im->err;
        im->err = &failed;
        im->m = sn_module_new("onnx");
        if (!im->m) return sn_fail(err, SN_ERR_MEMORY, "%s: out of memory", im->path);
        const bool ok = import_entry(im, role, n);
        im->err = err;
        sn_module_free(im->m);
        if (ok) return true;
        if (im->again) continue;
        if (err && failed.code) *err = failed;
        return false;
    }
    return sn_fail(im->err, SN_ERR_FILE, "%s: its sizes contradict each other", im->path);
}

/* Of role[n], those of the first one's entry. */
static int parts_of(const onnx_role *role, int n) {
    int parts = 1;
    while (parts < n && role[parts].joins) parts++;
    return parts;
}

/* Entries of one model have one context: the smallest that the graphs were found to have. */
static bool learn_context(onnx_import *im, onnx_role *role, int n) {
    int64_t least = role->context;
    for (int i = 0, parts; i < n; i += parts) {
        parts = parts_of(role + i, n - i);
        if (!learn(im, &role[i], parts)) return false;
        for (int k = 0; k < im->n_fact; k++) {
            const onnx_fact *f = &im->fact[k];
            const int64_t room = !strcmp(f->name, "T") || !strcmp(f->name, "S") ? f->hi
                                 : !strcmp(f->name, "P")                        ? f->hi + 1
                                                                                : least;
            if (!f->is && room < least) least = room;
        }
    }
    for (int i = 0; i < n; i++) role[i].context = least;
    return true;
}

static bool load_entry(load *l, const onnx_role *role, int n) {
    onnx_import *im = &l->im;
    if (!learn(im, role, n)) return false;
    im->m = l->into;
    if (!import_entry(im, role, n)) return false;
    im->n_kept = im->n_weight;
    return true;
}

static onnx_model *read_file(onnx_import *im, const char *path) {
    sn_mapping map;
    use_file(im, path, NULL);
    if (!sn_weights_map(im->weights, path, &map, im->err)) return NULL;
    im->model = onnx_read(im->arena, path, (onnx_bytes){map.data, map.size}, im->err);
    return im->model && onnx_check_operators(im) ? im->model : NULL;
}

/* Each file that roles name is read once. */
static bool read_files(onnx_import *im, onnx_role *role, int n) {
    const char *path = im->path;
    onnx_model *model = im->model;
    for (int i = 0; i < n; i++) {
        if (!role[i].path) role[i].path = path, role[i].model = model;
        for (int k = 0; k < i && !role[i].model; k++)
            if (!strcmp(role[k].path, role[i].path)) role[i].model = role[k].model;
        if (!role[i].model) role[i].model = read_file(im, role[i].path);
        if (!role[i].model) return false;
    }
    return true;
}

/* Reads the files of the roles, and finds those that can be made: all, those before the first extra one, or the extra
 * ones. Returns their number; 0: err is that of the former. */
static int prepare(onnx_import *im, onnx_role *role, int n) {
    sn_error *err = im->err, all = {0}, rest = {0};
    int first = 0;
    while (first < n && !role[first].extra) first++;
    if (first == n || !first)
        return n > 0 && read_files(im, role, n) && (n == 1 || learn_context(im, role, n)) ? n : 0;
    im->err = &all;
    const bool read = read_files(im, role, n);
    bool whole = read && learn_context(im, role, n);
    im->err = err;
    if (whole) return n;
    if (learn_context(im, role, first)) return first;
    im->err = &rest;
    whole = read && learn_context(im, role + first, n - first);
    im->err = err;
    if (!whole) return 0;
    if (err) *err = (sn_error){0};
    memmove(role, role + first, sizeof *role * (size_t)(n - first));
    return n - first;
}

static void load_graph(void *ctx) {
    load *l = ctx;
    onnx_import *im = &l->im;
    onnx_role role[ONNX_ROLES] = {{0}};
    if (!read_file(im, im->path)) return;
    const int n = prepare(im, role, l->choose(l->ctx, im->model->graph, role, im->err));
    bool ok = n > 0;
    for (int i = 0, parts; ok && i < n; i += parts) {
        parts = parts_of(role + i, n - i);
        ok = load_entry(l, &role[i], parts);
    }
    l->ok = ok && sn_weights_put(im->weights, im->weight, (size_t)im->n_weight, im->err);
}

sn_weights *onnx_load_with(sn_module *m, const char *path, int64_t size_max, onnx_choose *choose,
                           void *ctx, sn_error *err) {
    load l = {.into = m,
              .choose = choose,
              .ctx = ctx,
              .im = {.path = path, .run_graph = onnx_run_graph, .size_max = size_max, .err = err}};
    l.im.arena = sn_module_new(path);
    l.im.weights = sn_weights_begin(path, err);
    if (!l.im.arena) sn_fail(err, SN_ERR_MEMORY, "%s: out of memory", path);
    if (l.im.arena && l.im.weights && !sn_module_try(l.im.arena, load_graph, &l))
        sn_module_ok(l.im.arena, err);
    free(l.im.weight);
    sn_module_free(l.im.arena);
    if (l.ok) return l.im.weights;
    sn_weights_close(l.im.weights);
    return NULL;
}

static int choose_plain(void *ctx, const onnx_graph *g, onnx_role *roles, sn_error *err) {
    const sn_onnx_options *o = ctx;
    (void)g, (void)err;
    roles[0] = (onnx_role){.entry = o && o->entry ? o->entry : "forward",
                           .input = onnx_plain_input,
                           .output = onnx_plain_output};
    return 1;
}

sn_weights *sn_onnx_load(sn_module *m, const char *path, const sn_onnx_options *o, sn_error *err) {
    sn_error unused = {0};
    if (!err) err = &unused;
    if (!sn_given(m, "sn_onnx_load", "the module", err) ||
        !sn_given(path, "sn_onnx_load", "the path", err) || !sn_module_ok(m, err))
        return NULL;
    return onnx_load_with(m, path, o && o->size_max ? o->size_max : 65536, choose_plain,
                          (void *)(uintptr_t)o, err);
}

bool sn_onnx_operator_at(int i, sn_onnx_operator *out) {
    const onnx_row *r = onnx_row_at(i);
    if (r) *out = (sn_onnx_operator){r->name, r->domain, r->since, r->until};
    return r != NULL;
}
