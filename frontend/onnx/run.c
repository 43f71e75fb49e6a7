/* run.c: runs through the nodes of a graph, its subgraphs and functions: names, versions, and the functions of
 * the table. */
#include "frontend/onnx/load.h"

#include <stdio.h>
#include <string.h>
#define XXH_INLINE_ALL
#include <xxhash.h>

enum { MAX_NODES = 1 << 18 }; /* with those of functions, each time they are called */

/* ---- names ---- */

onnx_scope *onnx_scope_new(onnx_import *im, onnx_scope *up, const onnx_call *call,
                           const onnx_list *opset) {
    onnx_scope *s = sn_arena_alloc(im->arena, sizeof *s);
    *s = (onnx_scope){.up = up, .call = call, .opset = opset, .size = 64};
    s->slot = sn_arena_alloc(im->arena, sizeof *s->slot * s->size);
    return s;
}

static onnx_value **slot_of(const onnx_scope *s, const char *name) {
    size_t at = XXH3_64bits(name, strlen(name)) & (s->size - 1);
    while (s->slot[at] && strcmp(s->slot[at]->name, name) != 0) at = (at + 1) & (s->size - 1);
    return &s->slot[at];
}

onnx_value *onnx_scope_find(const onnx_scope *s, const char *name) {
    onnx_value *v = NULL;
    for (; s && !v; s = s->up) v = *slot_of(s, name);
    return v;
}

bool onnx_scope_add(onnx_import *im, onnx_scope *s, const char *name, onnx_value *v) {
    if (2 * s->used >= s->size) {
        const onnx_scope old = *s;
        s->size *= 2;
        s->slot = sn_arena_alloc(im->arena, sizeof *s->slot * s->size);
        for (size_t i = 0; i < old.size; i++)
            if (old.slot[i]) *slot_of(s, old.slot[i]->name) = old.slot[i];
    }
    onnx_value **slot = slot_of(s, name), *named = v;
    if (*slot) return sn_fail(im->err, SN_ERR_FILE, "%s: '%s' is computed twice", im->path, name);
    if (!v->name || strcmp(v->name, name) != 0) { /* the value of another name */
        named = onnx_new_value(im, name);
        *named = *v;
        named->name = name;
    }
    s->used++;
    *slot = named;
    return true;
}

static int64_t version_of(const onnx_list *opset, const char *domain) {
    for (int i = 0; i < opset->n; i++) {
        const onnx_opset *o = &ONNX_AT(*opset, onnx_opset, i);
        const char *of = o->domain && strcmp(o->domain, "ai.onnx") != 0 ? o->domain : "";
        if (!strcmp(of, domain)) return o->version;
    }
    return 1;
}

static const char *domain_of(const onnx_node *n) {
    return n->domain && strcmp(n->domain, "ai.onnx") != 0 ? n->domain : "";
}

static const onnx_function *function_of(const onnx_import *im, const onnx_node *n) {
    for (int i = 0; i < im->model->function.n; i++) {
        const onnx_function *f = &ONNX_AT(im->model->function, onnx_function, i);
        if (f->name && n->op && !strcmp(f->name, n->op) &&
            !strcmp(f->domain ? f->domain : "", domain_of(n)))
            return f;
    }
    return NULL;
}

/* ---- what is not supported ---- */

static void check_nodes(onnx_import *im, const onnx_list *nodes, const onnx_list *opset, int depth,
                        sn_problems *p) {
    for (int i = 0; depth < ONNX_NEST && i < nodes->n; i++) {
        const onnx_node *n = &ONNX_AT(*nodes, onnx_node, i);
        const char *domain = domain_of(n), *op = n->op ? n->op : "";
        const onnx_row *near = NULL;
        const int64_t version = version_of(opset, domain);
        char a[48], b[64], d[48];
        if (!function_of(im, n) && !onnx_find_row(domain, op, version, &near))
            sn_problem(p, "%s '%s' (%s, version %lld%s)", sn_printable(a, sizeof a, op),
                       sn_printable(b, sizeof b,
                                    n->name && *n->name ? n->name
                                    : n->out.n          ? ONNX_AT(n->out, const char *, 0)
                                                        : ""),
                       sn_printable(d, sizeof d, *domain ? domain : "ai.onnx"), (long long)version,
                       near ? ", other versions are" : "");
        for (int k = 0; k < n->attribute.n; k++) {
            const onnx_attribute *at = &ONNX_AT(n->attribute, onnx_attribute, k);
            if (at->graph) check_nodes(im, &at->graph->node, opset, depth + 1, p);
        }
    }
}

bool onnx_check_operators(onnx_import *im) {
    sn_problems p = {0};
    char head[300];
    check_nodes(im, &im->model->graph->node, &im->model->opset, 0, &p);
    for (int i = 0; i < im->model->function.n; i++) {
        const onnx_function *f = &ONNX_AT(im->model->function, onnx_function, i);
        check_nodes(im, &f->node, f->opset.n ? &f->opset : &im->model->opset, 0, &p);
    }
    if (im->model->graph->sparse.n) sn_problem(&p, "sparse initialisers");
    snprintf(head, sizeof head, "%.200s: not supported", im->path);
    return sn_problems_check(&p, head, SN_ERR_FILE, im->err);
}

/* ---- nodes ---- */

bool onnx_add_initialisers(onnx_import *im, onnx_scope *s, const onnx_graph *g) {
    onnx_call c = {.im = im, .m = im->m, .at = {sn_arena_str(im->m, im->path), 0}, .scope = s};
    for (int i = 0; i < g->init.n; i++) {
        const onnx_tensor *t = &ONNX_AT(g->init, onnx_tensor, i);
        if (!t->name || !*t->name)
            return sn_fail(im->err, SN_ERR_FILE, "%s: an initialiser has no name", im->path);
        onnx_value *v = onnx_file_value(&c, t, t->name);
        if (!v || !onnx_scope_add(im, s, t->name, v)) return false;
    }
    return true;
}

/* The outputs of a call get their names. */
static bool name_outputs(onnx_call *c) {
    for (int i = 0; i < c->node->out.n && i < ONNX_OUT_MAX; i++) {
        const char *name = ONNX_AT(c->node->out, const char *, i);
        if (*name && c->out[i] && !onnx_scope_add(c->im, c->scope, name, c->out[i])) return false;
    }
    return true;
}

static bool run_function(onnx_call *c, const onnx_function *f) {
    onnx_import *im = c->im;
    onnx_scope *s = onnx_scope_new(im, NULL, c, f->opset.n ? &f->opset : c->scope->opset);
    for (int i = 0; i < f->in.n; i++)
        if (onnx_given(c, i) && !onnx_scope_add(im, s, ONNX_AT(f->in, const char *, i), c->in[i]))
            return false;
    if (!onnx_run_nodes(im, s, &f->node)) return false;
    for (int i = 0; i < f->out.n && i < ONNX_OUT_MAX; i++)
        c->out[i] = onnx_scope_find(s, ONNX_AT(f->out, const char *, i));
    return true;
}

static bool run_node(onnx_import *im, onnx_scope *s, const onnx_node *n) {
    const char *domain = domain_of(n);
    const onnx_row *near;
    onnx_call *c = sn_arena_alloc(im->arena, sizeof *c);
    onnx_value **in = sn_arena_alloc(im->arena, sizeof *in * (size_t)(n->in.n + 1));
    *c = (onnx_call){.im = im,
                     .m = im->m,
                     .at = {sn_arena_str(im->m, im->path), ++im->number},
                     .node = n,
                     .scope = s,
                     .opset = version_of(s->opset, domain),
                     .n_in = n->in.n,
                     .in = in};
    if (im->number > MAX_NODES) return onnx_fail(c, "the graph has more than %d nodes", MAX_NODES);
    for (int i = 0; i < n->in.n; i++) {
        const char *name = ONNX_AT(n->in, const char *, i);
        in[i] = *name ? onnx_scope_find(s, name) : NULL;
        if (*name && !in[i])
            return onnx_fail(
                c,
                "its input '%s' is not computed before it: the graph has a cycle, or is "
                "not sorted",
                name);
    }
    const onnx_function *f = function_of(im, n);
    c->row = f ? NULL : onnx_find_row(domain, n->op ? n->op : "", c->opset, &near);
    const bool ok = f ? run_function(c, f) : c->row && c->row->make(c);
    if (im->again) return false;
    const sn_error *e = sn_module_error(im->m);
    if (e->code) return onnx_fail(c, "%s", e->message);
    return (ok && name_outputs(c)) || onnx_fail(c, "it cannot be imported");
}

bool onnx_run_nodes(onnx_import *im, onnx_scope *s, const onnx_list *nodes) {
    if (im->depth == ONNX_NEST)
        return sn_fail(im->err, SN_ERR_FILE, "%s: functions or subgraphs are nested too deeply",
                       im->path);
    im->depth++;
    bool ok = true;
    for (int i = 0; ok && i < nodes->n; i++) ok = run_node(im, s, &ONNX_AT(*nodes, onnx_node, i));
    im->depth--;
    return ok;
}

bool onnx_run_graph(onnx_call *c, const onnx_graph *g, int n_in, onnx_value *const *in,
                    onnx_value **values) {
    onnx_scope *s = onnx_scope_new(c->im, c->scope, c->scope->call, c->scope->opset);
    for (int i = 0; i < n_in; i++) {
        const char *name = ONNX_AT(g->input, onnx_value_info, i).name;
        if (!name || !onnx_scope_add(c->im, s, name, in[i]))
            return onnx_fail(c, "input %d of a subgraph has no name", i);
    }
    if (!onnx_add_initialisers(c->im, s, g) || !onnx_run_nodes(c->im, s, &g->node)) return false;
    for (int i = 0; i < g->output.n && i < ONNX_OUT_MAX; i++) {
        const char *name = ONNX_AT(g->output, onnx_value_info, i).name;
        values[i] = name ? onnx_scope_find(s, name) : NULL;
        if (!values[i])
            return onnx_fail(c, "no node of a subgraph computes its output '%s'", name ? name : "");
    }
    return true;
}
