/* gathers.c: all_gather of parameters that the ranks divide (ZeRO 3): where the plan needs a whole one,
 * it is gathered a layer ahead, and again for a later need if more than its size is gathered between
 * the two, so that those of two layers are whole at a time. */
#include "passes/plan/collectives.h"
#include "passes/plan/edit.h"

#include <stdlib.h>
#include <string.h>

/* One gathering: the steps that read its buffer, as positions in the plan without gatherings. */
typedef struct gathering {
    sn_step step;
    int *reader, n_reader; /* all steps that read the tensor */
    int need, last, start;
    int64_t size;
} gathering;

typedef struct gatherings {
    sn_plan *p;
    gathering *list; /* by need */
    int n, cap;
} gatherings;

static bool is_gathering(const sn_plan *p, const sn_step *s) {
    if (s->node->op != SN_OP_all_gather) return false;
    sn_buffer_kind from = p->buffer[s->in[0].buffer].kind, to = p->buffer[s->out[0].buffer].kind;
    return (from == SN_BUF_STATE || from == SN_BUF_PARAM) && to == SN_BUF_TEMP;
}

/* ---- taking them out ---- */

static void add(gatherings *g, gathering x) {
    g->list = sn_arena_grow(g->p->m, g->list, sizeof *g->list, g->n, &g->cap);
    g->list[g->n++] = x;
}

static void take_out(gatherings *g) {
    sn_plan *p = g->p;
    int n = 0;
    for (int i = 0; i < p->n_step; i++)
        if (is_gathering(p, &p->step[i]))
            add(g, (gathering){.step = p->step[i],
                               .size = sn_plan_elements(p, p->step[i].out[0].buffer)});
        else
            p->step[n++] = p->step[i];
    p->n_step = n;
}

/* ---- needs ---- */

static void find_readers(gatherings *g) {
    sn_plan *p = g->p;
    for (int i = 0; i < g->n; i++) {
        gathering *x = &g->list[i];
        x->reader = sn_arena_alloc(p->m, sizeof *x->reader * (size_t)(p->n_step + 1));
        for (int k = 0; k < p->n_step; k++)
            if (sn_plan_uses(p, k, x->step.out[0].buffer)) x->reader[x->n_reader++] = k;
    }
}

/* Elements of other tensors that are gathered for steps after `from`, up to `to`. */
static int64_t between(const gatherings *g, int skip, int from, int to) {
    int64_t sum = 0;
    for (int i = 0; i < g->n; i++) {
        const gathering *x = &g->list[i];
        bool used = false;
        for (int k = 0; k < x->n_reader && i != skip; k++)
            used |= x->reader[k] > from && x->reader[k] <= to;
        if (used) sum += x->size;
    }
    return sum;
}

static bool is_written(const sn_plan *p, int buffer, int from, int to) {
    for (int i = from; i < to; i++)
        if (sn_plan_writes(p, i, buffer)) return true;
    return false;
}

/* A buffer like b for the steps [from, to]. */
static int copy_buffer(sn_plan *p, int b, int from, int to) {
    sn_buffer *grown = sn_arena_alloc(p->m, sizeof *grown * (size_t)(p->n_buffer + 1));
    memcpy(grown, p->buffer, sizeof *grown * (size_t)p->n_buffer);
    grown[p->n_buffer] = grown[b];
    p->buffer = grown;
    sn_plan_rename(p, b, p->n_buffer, from, to + 1);
    return p->n_buffer++;
}

/* One gathering for each group of neighbouring readers of tensor i of those that were taken out. */
static void group(gatherings *g, const gatherings *all, int i) {
    sn_plan *p = g->p;
    gathering x = all->list[i];
    int operand = x.step.in[0].buffer;
    x.need = -1;
    for (int r = 0; r < x.n_reader; r++) {
        int k = x.reader[r];
        bool again = x.need >= 0 && !is_written(p, operand, x.need, k) &&
                     between(all, i, x.last, k) > x.size;
        if (again) add(g, x);
        if (again || x.need < 0) x.need = k;
        x.last = k;
    }
    if (x.need >= 0) add(g, x);
}

static int by_need(const void *a, const void *b) {
    const gathering *x = a, *y = b;
    if (x->need != y->need) return x->need < y->need ? -1 : 1;
    return (x->step.node->id > y->step.node->id) - (x->step.node->id < y->step.node->id);
}

/* Every gathering but the first of a tensor gets memory of its own. */
static void separate(gatherings *g) {
    for (int i = 0; i < g->n; i++) {
        sn_view *out = sn_arena_alloc(g->p->m, sizeof *out);
        gathering *x = &g->list[i];
        bool first = true;
        for (int k = 0; k < i; k++) first &= g->list[k].step.node != x->step.node;
        *out = x->step.out[0];
        if (!first) out->buffer = copy_buffer(g->p, out->buffer, x->need, x->last);
        x->step.out = out;
    }
}

/* ---- putting them back ---- */

/* The layer of a parameter: its name up to the first part that is a number; without one, all of it. */
static size_t layer_length(const char *name) {
    for (const char *part = name; *part;) {
        size_t n = strcspn(part, "."), digits = strspn(part, "0123456789");
        if (n && digits == n) return (size_t)(part - name) + n;
        part += n + (part[n] == '.');
    }
    return strlen(name);
}

static bool same_layer(const gathering *x, const gathering *y) {
    const char *a = sn_attr_str(x->step.node, SN_A_name, ""),
               *b = sn_attr_str(y->step.node, SN_A_name, "");
    size_t n = layer_length(a);
    return n == layer_length(b) && !strncmp(a, b, n);
}

/* A layer is gathered while the one before it is computed, that is from the moment on when the first
 * tensor of that one is needed; but not before the operand is complete. */
static void find_starts(gatherings *g) {
    for (int i = 0, first = 0, before = 0; i < g->n; i++) {
        gathering *x = &g->list[i];
        if (i && !same_layer(x, &g->list[i - 1])) before = first, first = i;
        x->start = g->list[before].need;
        while (is_written(g->p, x->step.in[0].buffer, x->start, x->need)) x->start++;
    }
}

static void put_back(gatherings *g) {
    sn_plan *p = g->p;
    sn_step *step = sn_arena_alloc(p->m, sizeof *step * (size_t)(p->n_step + 2 * g->n + 1));
    int n = 0;
    for (int at = 0; at <= p->n_step; at++) {
        for (int i = 0; i < g->n; i++)
            if (g->list[i].start == at) step[n++] = g->list[i].step;
        for (int i = 0; i < g->n; i++) {
            if (g->list[i].need != at) continue;
            step[n] = g->list[i].step;
            step[n++].wait = SN_WAIT;
        }
        if (at < p->n_step) step[n++] = p->step[at];
    }
    p->step = step;
    p->n_step = n;
}

void sn_plan_gathers(sn_plan *p) {
    gatherings all = {.p = p}, g = {.p = p};
    take_out(&all);
    if (!all.n) return;
    find_readers(&all);
    for (int i = 0; i < all.n; i++) group(&g, &all, i);
    qsort(g.list, (size_t)g.n, sizeof *g.list, by_need);
    separate(&g);
    find_starts(&g);
    put_back(&g);
}

int64_t sn_plan_gathered(const sn_plan *p) {
    int64_t maximum = 0;
    for (int at = 0; at < p->n_call; at++) {
        int64_t bytes = 0;
        for (int i = 0; i <= at; i++) {
            const sn_step *s = p->call[i];
            const sn_buffer *b = s->n_out ? &p->buffer[s->out[0].buffer] : NULL;
            if (!s->wait && is_gathering(p, s) && b->first <= at && at <= b->last)
                bytes += sn_plan_elements(p, s->out[0].buffer) * (int64_t)sn_dtype_size(b->dtype);
        }
        maximum = bytes > maximum ? bytes : maximum;
    }
    return maximum;
}
