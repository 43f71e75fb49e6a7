/* report_graph.c: the graph of an entry before the passes and after each one that changed it, with
 * the kernel that computes each node in the end. */
#include "codegen/program/calls.h"
#include "tools/inspect/report.h"

#include <stdlib.h>
#include <string.h>

/* An entry's graph after a pass. */
typedef struct stage {
    const sn_pass_record *record;
    const sn_entry *entry;
    sn_order order;
    int *kernel;        /* [order.n] the call that computes the node, -1: none */
    inspect_fold *fold; /* [order.n] */
    int n_fold;
} stage;

typedef struct grapher {
    report *r;
    cJSON *to; /* the entry's object */
    const sn_program *p;
    const sn_compiled_entry *c;
    sn_module *m;
    stage *stage; /* [n] */
    int n;
    uint32_t n_id;
    int *at;           /* by id: 1 + position in the order of the stage under way; 0: not in it */
    int *link, *after; /* by id, by lineage: 1 + lineage entry that replaces the node; 0: no more */
    uint8_t *listed;   /* by id: is in the list of nodes */
    const char **tap;  /* by id: the user's name for the tensor */
} grapher;

static const char *name_of(const grapher *g, const sn_node *n) {
    const char *name = sn_attr_str(n, SN_A_name, "");
    return *name || !g->tap[n->id] ? name : g->tap[n->id];
}

/* ---- which kernel computes a node ---- */

static void mark_order(grapher *g, const stage *s) {
    memset(g->at, 0, sizeof *g->at * g->n_id);
    for (int i = 0; i < s->order.n; i++) g->at[s->order.node[i]->id] = i + 1;
}

/* After all passes the plan's steps are nodes. */
static void kernels_of_plan(grapher *g, stage *s) {
    const sn_plan *plan = g->c->code.plan;
    mark_order(g, s);
    for (int i = 0; i < plan->n_step; i++) {
        int at = g->at[plan->step[i].node->id];
        if (at) s->kernel[at - 1] = plan->step[i].first;
    }
}

/* The links of the lineage that a pass recorded. */
static void link_lineage(grapher *g, const sn_lineage *list, int from, int to) {
    memset(g->link, 0, sizeof *g->link * g->n_id);
    for (int i = to; i-- > from;) {
        if (list[i].from >= g->n_id) continue;
        g->after[i] = g->link[list[i].from];
        g->link[list[i].from] = i + 1;
    }
}

/* The position of what became of node id in the stage that is marked; -1: it is gone. `steps` limits
 * the search. */
static int find_successor(const grapher *g, const sn_lineage *list, uint32_t id, int *steps) {
    if (id < g->n_id && g->at[id]) return g->at[id] - 1;
    for (int i = id < g->n_id ? g->link[id] : 0; i && --*steps > 0; i = g->after[i - 1]) {
        int at = find_successor(g, list, list[i - 1].to, steps);
        if (at >= 0) return at;
    }
    return -1;
}

/* Kernels of a stage from those of the next one. */
static void kernels_of_next(grapher *g, stage *s, const stage *next, const sn_lineage *list) {
    enum { STEPS = 256 };
    mark_order(g, next);
    link_lineage(g, list, s->record->n_lineage, next->record->n_lineage);
    for (int i = 0; i < s->order.n; i++) {
        int steps = STEPS, at = find_successor(g, list, s->order.node[i]->id, &steps);
        if (at >= 0 && s->order.node[i]->n_in) s->kernel[i] = next->kernel[at];
    }
}

/* A view belongs to the kernel whose result it shows; a node that disappeared, or a view of a leaf,
 * to the kernel that reads it. */
static void kernels_of_neighbours(grapher *g, stage *s) {
    mark_order(g, s);
    for (int i = 0; i < s->order.n; i++) {
        const sn_node *n = s->order.node[i];
        bool view = sn_ops[n->op].flags & SN_OPF_VIEW || n->op == SN_OP_result;
        int of = view ? s->kernel[g->at[n->in[0]->id] - 1] : -1;
        if (of >= 0) s->kernel[i] = of;
    }
    for (int i = s->order.n; i-- > 0;) {
        const sn_node *n = s->order.node[i];
        for (int k = 0; k < n->n_in && s->kernel[i] >= 0; k++) {
            int at = g->at[n->in[k]->id] - 1;
            if (at >= 0 && s->kernel[at] < 0 && n->in[k]->n_in) s->kernel[at] = s->kernel[i];
        }
    }
}

/* ---- what repeats ---- */

static bool same_names(const char *a, const char *b) {
    return !*a == !*b && (!*a || sn_call_similar_names(a, b));
}

typedef struct list {
    const grapher *g;
    const stage *s;
} list;

/* Nodes of one operation, type and source line; in kernels of one kind or in none. */
static bool alike(const void *ctx, int i, int j) {
    const list *l = ctx;
    const sn_node *a = l->s->order.node[i], *b = l->s->order.node[j];
    const sn_kernel *k = l->g->c->code.kernel;
    int x = l->s->kernel[i], y = l->s->kernel[j];
    return a->op == b->op && a->dtype == b->dtype && a->rank == b->rank && a->n_in == b->n_in &&
           a->loc.line == b->loc.line && (x < 0) == (y < 0) &&
           (x < 0 || !strcmp(sn_kernel_family_name(&k[x]), sn_kernel_family_name(&k[y]))) &&
           (!a->rank || !memcmp(a->shape, b->shape, sizeof *a->shape * a->rank)) &&
           same_names(name_of(l->g, a), name_of(l->g, b));
}

/* ---- JSON ---- */

/* "{axis=1}" of the text form; "": no attributes but the type and the name. */
static void add_attributes(const grapher *g, cJSON *o, const sn_node *n) {
    enum { MAX_LENGTH = 160 };
    char *text = NULL;
    size_t size = 0;
    FILE *f = open_memstream(&text, &size);
    if (!f) {
        g->r->full = true;
        return;
    }
    sn_print_node(f, n);
    if (fclose(f) == 0 && text) {
        char *from = strchr(text, '{'), *end = from ? strrchr(from, '}') : NULL;
        if (end) *end = 0;
        if (end && strlen(from + 1) > MAX_LENGTH) strcpy(from + MAX_LENGTH - 3, "...");
        if (end && strncmp(from + 1, "name=", 5) != 0) report_text(g->r, o, "attributes", from + 1);
    }
    free(text);
}

static void add_node(grapher *g, cJSON *nodes, const sn_node *n) {
    char shape[160];
    report *r = g->r;
    if (g->listed[n->id] || r->full) return;
    g->listed[n->id] = 1;
    cJSON *o = report_object(r, nodes, NULL);
    report_number(r, o, "id", n->id);
    report_text(r, o, "op", sn_ops[n->op].name);
    const sn_node *type = n->n_result > 1 ? n->result_type[0] : n;
    sn_shape_print(g->m, type->rank, type->shape, shape, sizeof shape);
    char text[200];
    snprintf(text, sizeof text, "%s%s%s", sn_dtype_name((sn_dtype)type->dtype), shape,
             n->n_result > 1 ? ", ..." : "");
    report_text(r, o, "type", text);
    cJSON *in = report_list(r, o, "in");
    for (int i = 0; i < n->n_in; i++) report_add_number(r, in, n->in[i]->id);
    if (*name_of(g, n)) report_text(r, o, "name", name_of(g, n));
    int file = report_file(r, n->loc.file);
    if (file >= 0) {
        report_number(r, o, "file", file);
        report_number(r, o, "line", n->loc.line);
    }
    if (n->n_attr) add_attributes(g, o, n);
}

static void add_results(grapher *g, cJSON *o, const sn_entry *e) {
    cJSON *results = report_list(g->r, o, "results");
    const sn_binding *lists[] = {e->output, e->assign};
    int size[] = {e->n_output, e->n_assign};
    for (int l = 0; l < 2; l++)
        for (int i = 0; i < size[l]; i++) {
            cJSON *b = report_object(g->r, results, NULL);
            report_text(g->r, b, "kind", l ? "state" : "output");
            report_text(g->r, b, "name", lists[l][i].name);
            report_number(g->r, b, "node", lists[l][i].node->id);
        }
}

static void add_stage(grapher *g, cJSON *stages, cJSON *nodes, const stage *s) {
    report *r = g->r;
    const sn_pass_info *pass = s->record->pass;
    cJSON *o = report_object(r, stages, NULL);
    report_text(r, o, "name", pass ? sn_stages[pass->stage].name : "as written");
    report_text(r, o, "purpose",
                pass ? sn_stages[pass->stage].purpose : "the graph that the model's code built");
    report_text(r, o, "file", pass ? sn_stages[pass->stage].file : "");
    report_number(r, o, "rewrites", s->record->rewrites);
    cJSON *order = report_list(r, o, "nodes"), *kernel = report_list(r, o, "kernels");
    for (int i = 0; i < s->order.n && !r->full; i++) {
        add_node(g, nodes, s->order.node[i]);
        report_add_number(r, order, s->order.node[i]->id);
        report_add_number(r, kernel, s->kernel[i]);
    }
    cJSON *folds = report_list(r, o, "folds");
    for (int i = 0; i < s->n_fold; i++) {
        cJSON *d = report_object(r, folds, NULL);
        report_number(r, d, "first", s->fold[i].first);
        report_number(r, d, "period", s->fold[i].period);
        report_number(r, d, "times", s->fold[i].times);
    }
    add_results(g, o, s->entry);
}

/* ---- all stages ---- */

static bool same_order(const stage *a, const stage *b) {
    return a->order.n == b->order.n &&
           (!a->order.n ||
            !memcmp(a->order.node, b->order.node, sizeof *a->order.node * (size_t)a->order.n));
}

/* The stages that differ from the one before. */
static void find_stages(grapher *g) {
    const sn_passes *passes = &g->p->passes;
    const char *name = g->c->code.plan->entry->name;
    g->stage = sn_arena_alloc(g->m, sizeof *g->stage * (size_t)(passes->n_record + 1));
    for (int i = 0; i < passes->n_record; i++) {
        stage s = {.record = &passes->record[i],
                   .entry = sn_entries_find(passes->record[i].graph, name)};
        if (!s.entry) continue;
        s.order = sn_entry_topo(g->m, s.entry);
        size_t n = (size_t)s.order.n + 1;
        s.kernel = sn_arena_alloc(g->m, sizeof *s.kernel * n);
        s.fold = sn_arena_alloc(g->m, sizeof *s.fold * n);
        for (int k = 0; k < s.order.n; k++) s.kernel[k] = -1;
        if (!g->n || !same_order(&g->stage[g->n - 1], &s)) g->stage[g->n++] = s;
    }
}

static void find_taps(grapher *g) {
    const sn_entry *e = sn_entry_get(g->m, g->c->code.plan->entry->name);
    for (int i = 0; e && i < e->n_tap; i++) g->tap[e->tap[i].node->id] = e->tap[i].name;
}

static void collect(void *ctx) {
    enum { MAX_PERIOD = 2048 };
    grapher *g = ctx;
    const sn_lineage *lineage;
    int n_lineage = sn_lineage_list(g->m, &lineage);
    g->n_id = sn_module_node_count(g->m);
    g->at = sn_arena_alloc(g->m, sizeof *g->at * g->n_id);
    g->link = sn_arena_alloc(g->m, sizeof *g->link * g->n_id);
    g->after = sn_arena_alloc(g->m, sizeof *g->after * (size_t)(n_lineage + 1));
    g->listed = sn_arena_alloc(g->m, g->n_id);
    g->tap = sn_arena_alloc(g->m, sizeof *g->tap * g->n_id);
    find_taps(g);
    find_stages(g);
    for (int i = g->n; i-- > 0;) {
        stage *s = &g->stage[i];
        if (i == g->n - 1)
            kernels_of_plan(g, s);
        else
            kernels_of_next(g, s, s + 1, lineage);
        kernels_of_neighbours(g, s);
        list l = {g, s};
        s->n_fold = inspect_folds_find(s->order.n, MAX_PERIOD, alike, &l, s->fold);
    }
    cJSON *nodes = report_list(g->r, g->to, "nodes");
    cJSON *stages = report_list(g->r, g->to, "stages");
    for (int i = 0; i < g->n; i++) add_stage(g, stages, nodes, &g->stage[i]);
}

bool report_graph(report *r, cJSON *entry, const sn_program *p, const char *name, sn_error *err) {
    grapher g = {.r = r, .to = entry, .p = p, .c = sn_program_entry(p, name), .m = p->m};
    if (!g.c) return sn_fail(err, SN_ERR_USAGE, "there is no entry '%s'", name);
    return (sn_module_try(p->m, collect, &g) && !r->full) ||
           sn_fail(err, SN_ERR_MEMORY, "out of memory for the graphs of '%s'", name);
}
