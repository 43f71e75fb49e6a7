/* remat.c: see remat.h.
 *
 * Starts at the step with the most live memory. For every tensor that is live there but only needed
 * later, it considers the chain of steps that recomputes it just before that use, from parameters,
 * inputs and tensors that are live anyway. It takes the chain that frees most memory per work,
 * until the budget holds. A whole block of a network is such a chain, starting at the block's
 * input. */
#include "passes/kernels/costs.h"
#include "passes/kernels/table.h"
#include "passes/plan/remat.h"
#include "passes/plan/memory.h"
#include "passes/plan/product.h"

#include <stdlib.h>
#include <string.h>

enum { MAX_CHAIN = 96, ROUNDS = 1000, PATIENCE = 400, TOO_SMALL = 1000 };

typedef struct search {
    sn_module *m;
    int cap_buffer, cap_step, cap_use; /* capacity of the lists below, and of the plan's buffers */
    int max_steps;
    sn_plan *p;
    const sn_budget *budget;
    int64_t *size; /* [n_buffer] bytes */
    double *cost;  /* [n_step] time, in bytes that could be moved meanwhile */
    int64_t *live; /* [n_step] bytes of temporaries live during the step */
    int *at;       /* [n_buffer] for counting */
    int *from;     /* [n_buffer + 1] into use */
    int *use;      /* steps that use a buffer, ascending; -1 - step if it is written */
} search;

typedef struct chain {
    int step[MAX_CHAIN], n;
    int made[MAX_CHAIN], n_made; /* buffers that the chain must compute */
    int kept[MAX_CHAIN], n_kept; /* buffers that must stay live until the chain runs */
    int at, until;               /* frees memory at step `at`; runs before step `until` */
    int patience;                /* number of tensors left to consider */
} chain;

static int step_of(int use) {
    return use < 0 ? -1 - use : use;
}

static int64_t bytes_of(const search *s, const sn_buffer *b) {
    return (sn_buffer_bytes(s->m, b, s->budget->symbol) + 63) & ~(int64_t)63;
}

/* ---- uses ---- */

static void count_uses(search *s, bool fill) {
    const sn_plan *p = s->p;
    int *at = s->at;
    memset(at, 0, sizeof *at * (size_t)p->n_buffer);
    for (int i = 0; i < p->n_step; i++) {
        const sn_step *t = &p->step[i];
        for (int k = 0; k < t->n_in + t->n_out; k++) {
            bool written = k >= t->n_in;
            int b = written ? t->out[k - t->n_in].buffer : t->in[k].buffer;
            if (fill) s->use[s->from[b] + at[b]] = written ? -1 - i : i;
            at[b]++;
        }
    }
    if (fill) return;
    int sum = 0;
    for (int b = 0; b < p->n_buffer; b++) {
        s->from[b] = sum;
        sum += at[b];
    }
    s->from[p->n_buffer] = sum;
}

static int first_use(const search *s, int b) {
    return step_of(s->use[s->from[b]]);
}

static int last_use(const search *s, int b) {
    return step_of(s->use[s->from[b + 1] - 1]);
}

static bool is_temp(const search *s, int b) {
    return s->p->buffer[b].kind == SN_BUF_TEMP && s->from[b] < s->from[b + 1];
}

/* A list with capacity `cap` whose first n items are kept. */
static void *wider(search *s, const void *list, size_t item, int n, int cap) {
    void *grown = sn_arena_alloc(s->m, item * (size_t)(cap + 2));
    if (n) memcpy(grown, list, item * (size_t)n);
    return grown;
}

/* Makes room for this many more buffers and steps. */
static void make_room(search *s, int buffers, int steps) {
    sn_plan *p = s->p;
    if (p->n_buffer + buffers > s->cap_buffer) {
        int cap = s->cap_buffer = 2 * (p->n_buffer + buffers);
        p->buffer = wider(s, p->buffer, sizeof *p->buffer, p->n_buffer, cap);
        s->size = wider(s, s->size, sizeof *s->size, s->size ? p->n_buffer : 0, cap);
        s->from = wider(s, NULL, sizeof *s->from, 0, cap);
        s->at = wider(s, NULL, sizeof *s->at, 0, cap);
    }
    if (p->n_step + steps > s->cap_step) {
        int cap = s->cap_step = 2 * (p->n_step + steps);
        p->step = wider(s, p->step, sizeof *p->step, p->n_step, cap);
        s->cost = wider(s, s->cost, sizeof *s->cost, s->cost ? p->n_step : 0, cap);
        s->live = wider(s, NULL, sizeof *s->live, 0, cap);
    }
}

static void look(search *s) {
    const sn_plan *p = s->p;
    memset(s->live, 0, sizeof *s->live * (size_t)(p->n_step + 1));
    count_uses(s, false);
    if (s->from[p->n_buffer] > s->cap_use) {
        s->cap_use = 2 * s->from[p->n_buffer];
        s->use = wider(s, NULL, sizeof *s->use, 0, s->cap_use);
    }
    count_uses(s, true);
    for (int b = 0; b < p->n_buffer; b++) {
        if (!is_temp(s, b)) continue;
        s->live[first_use(s, b)] += s->size[b];
        s->live[last_use(s, b) + 1] -= s->size[b];
    }
    for (int i = 1; i < p->n_step; i++) s->live[i] += s->live[i - 1];
}

static int highest(const search *s) {
    int top = 0;
    for (int i = 1; i < s->p->n_step; i++)
        if (s->live[i] > s->live[top]) top = i;
    return top;
}

/* The first step after `at` that uses b, if nothing at `at` uses it; -1. A chain that makes b again ends before
 * b is written then (add_buffer). */
static int next_read(const search *s, int b, int at) {
    for (int k = s->from[b]; k < s->from[b + 1]; k++) {
        int i = step_of(s->use[k]);
        if (i == at) return -1;
        if (i > at) return i;
    }
    return -1;
}

static bool written_between(const search *s, int b, int after, int before) {
    for (int k = s->from[b]; k < s->from[b + 1]; k++)
        if (s->use[k] < 0 && step_of(s->use[k]) > after && step_of(s->use[k]) < before) return true;
    return false;
}

/* Time of a step in bytes that could be moved meanwhile. */
static double cost_of(const search *s, const sn_step *t) {
    double bytes = 0;
    for (int i = 0; i < t->n_inner; i++) bytes += cost_of(s, &t->inner[i]);
    if (t->kind != SN_STEP_CALL) return bytes;
    for (int i = 0; i < t->n_in + t->n_out; i++) {
        const sn_view *v = sn_view_of(t, i);
        double n =
            (double)sn_dim_eval(s->m, sn_dim_product(s->m, v->rank, v->shape), s->budget->symbol);
        bytes += n * (double)sn_dtype_size(v->dtype);
    }
    const sn_kernel_traits *kernel = sn_kernel_of(t->node);
    if (kernel->macs)
        bytes +=
            (double)sn_dim_eval(s->m, kernel->flops(s->m, t), s->budget->symbol) / SN_OPS_PER_BYTE;
    return bytes;
}

/* Sizes and times of buffers and steps. */
static void measure(search *s) {
    const sn_plan *p = s->p;
    make_room(s, 1, 1);
    for (int b = 0; b < p->n_buffer; b++) s->size[b] = bytes_of(s, &p->buffer[b]);
    for (int i = 0; i < p->n_step; i++) s->cost[i] = cost_of(s, &p->step[i]);
}

/* ---- chains ---- */

static bool in_list(const int *list, int n, int v) {
    for (int i = 0; i < n; i++)
        if (list[i] == v) return true;
    return false;
}

static bool push(int *list, int *n, int v) {
    if (in_list(list, *n, v)) return true;
    if (*n == MAX_CHAIN) return false;
    list[(*n)++] = v;
    return true;
}

static bool add_buffer(const search *s, chain *c, int b);

/* Makes what step `reader` reads from buffer x available when the chain runs. */
static bool provide(const search *s, chain *c, int x, int reader) {
    /* a tensor this much smaller than the freed one is kept instead of recomputed */
    enum { SMALL = 8 };
    sn_buffer_kind kind = s->p->buffer[x].kind;
    if (c->patience-- < 0) return false;
    if (kind == SN_BUF_PARAM || kind == SN_BUF_INPUT || in_list(c->made, c->n_made, x)) return true;
    if (written_between(s, x, reader, c->until)) return false; /* it has another value by then */
    if (kind != SN_BUF_TEMP || last_use(s, x) >= c->until) return true;
    if (last_use(s, x) >= c->at) return push(c->kept, &c->n_kept, x);
    int n = c->n, n_made = c->n_made, n_kept = c->n_kept; /* lists only grow */
    if (add_buffer(s, c, x)) return true;
    c->n = n;
    c->n_made = n_made;
    c->n_kept = n_kept;
    return s->size[x] <= s->size[c->made[0]] / SMALL && push(c->kept, &c->n_kept, x);
}

/* Adds the steps that make buffer b. */
static bool add_buffer(const search *s, chain *c, int b) {
    if (!push(c->made, &c->n_made, b)) return false;
    for (int k = s->from[b]; k < s->from[b + 1]; k++) {
        if (s->use[k] >= 0) continue;
        int w = step_of(s->use[k]);
        const sn_step *t = &s->p->step[w];
        if (w >= c->at) return false;
        if (in_list(c->step, c->n, w)) continue;
        if (sn_ops[t->node->op].flags & SN_OPF_COLLECTIVE) return false;
        for (int i = 0; i < t->n_out; i++) /* a state must not be updated twice */
            if (s->p->buffer[t->out[i].buffer].kind == SN_BUF_STATE) return false;
        if (!push(c->step, &c->n, w)) return false;
        for (int i = 0; i < t->n_in; i++)
            if (!provide(s, c, t->in[i].buffer, w)) return false;
    }
    return true;
}

/* Whether the chain computes all of buffer b. */
static bool complete(const search *s, const chain *c, int b) {
    bool any = false;
    for (int k = s->from[b]; k < s->from[b + 1]; k++) {
        if (s->use[k] >= 0) continue;
        if (!in_list(c->step, c->n, step_of(s->use[k]))) return false;
        any = true;
    }
    return any;
}

/* Buffers that the chain's steps write, each once; returns their number. */
static int written(const search *s, const chain *c, int *list) {
    int n = 0;
    for (int i = 0; i < c->n; i++) {
        const sn_step *t = &s->p->step[c->step[i]];
        for (int k = 0; k < t->n_out; k++)
            if (!push(list, &n, t->out[k].buffer)) return -1;
    }
    return n;
}

static int ascending(const void *a, const void *b) {
    return *(const int *)a - *(const int *)b;
}

/* Whether the chain's copy replaces b from then on. */
static bool replaces(const search *s, const chain *c, int b) {
    return is_temp(s, b) && last_use(s, b) >= c->until && complete(s, c, b);
}

static int place_in(const chain *c, int step) {
    for (int j = 0; j < c->n; j++)
        if (c->step[j] == step) return j;
    return -1;
}

/* The maximum size of the chain's results (n buffers) while it runs. */
static int64_t peak_of(const search *s, const chain *c, int n, const int *list) {
    int64_t change[MAX_CHAIN + 1] = {0}, sum = 0, top = 0;
    for (int i = 0; i < n; i++) {
        int first = c->n, last = replaces(s, c, list[i]) ? c->n - 1 : -1;
        for (int k = s->from[list[i]]; k < s->from[list[i] + 1]; k++) {
            int j = place_in(c, step_of(s->use[k]));
            if (j >= 0 && s->use[k] < 0 && j < first) first = j;
            if (j > last) last = j;
        }
        change[first] += s->size[list[i]];
        change[last + 1] -= s->size[list[i]];
    }
    for (int j = 0; j < c->n; j++) {
        sum += change[j];
        if (sum > top) top = sum;
    }
    return top;
}

/* Bytes freed at the step with most memory, per byte of time; 0: the chain is useless, or no better
 * than `least`. */
static double worth(const search *s, chain *c, int64_t peak, double least) {
    int list[MAX_CHAIN], n = written(s, c, list);
    int64_t freed = 0, around = s->live[c->until];
    double cost = 0;
    if (n < 0) return 0;
    qsort(c->step, (size_t)c->n, sizeof *c->step, ascending);
    for (int i = 0; i < n; i++) {
        if (!replaces(s, c, list[i])) continue;
        around -= s->size[list[i]];
        if (next_read(s, list[i], c->at) >= c->until) freed += s->size[list[i]];
    }
    for (int i = 0; i < c->n_kept; i++) {
        int x = c->kept[i], last = last_use(s, x);
        if (last < c->at) freed -= s->size[x];
        for (int k = last + 1; k < c->until; k++)
            if (k != c->at && s->live[k] + s->size[x] >= peak) return 0;
        around += s->size[x];
    }
    const sn_step *next = &s->p->step[c->until]; /* its results do not exist yet */
    for (int i = 0; i < next->n_out; i++)
        if (is_temp(s, next->out[i].buffer) && first_use(s, next->out[i].buffer) == c->until)
            around -= s->size[next->out[i].buffer];
    for (int i = 0; i < c->n; i++) cost += s->cost[c->step[i]];
    if (freed <= 0 || (double)freed / (cost + 1) <= least ||
        around + peak_of(s, c, n, list) >= peak)
        return 0;
    return (double)freed / (cost + 1);
}

/* ---- applying a chain ---- */

static int fresh_buffer(search *s, int like) {
    sn_plan *p = s->p;
    p->buffer[p->n_buffer] = p->buffer[like];
    p->buffer[p->n_buffer].kind = SN_BUF_TEMP;
    p->buffer[p->n_buffer].name = NULL;
    s->size[p->n_buffer] = s->size[like];
    return p->n_buffer++;
}

static sn_view *copy_views(search *s, int n, const sn_view *from) {
    sn_view *v = sn_arena_alloc(s->m, sizeof *v * (size_t)(n + 1));
    if (n) memcpy(v, from, sizeof *v * (size_t)n);
    return v;
}

/* A copy with views and steps of its own. */
static sn_step copy_step(search *s, const sn_step *from) {
    sn_step t = *from;
    t.in = copy_views(s, t.n_in, t.in);
    t.out = copy_views(s, t.n_out, t.out);
    t.inner = sn_arena_alloc(s->m, sizeof *t.inner * (size_t)(t.n_inner + 1));
    for (int i = 0; i < t.n_inner; i++) t.inner[i] = copy_step(s, &from->inner[i]);
    return t;
}

static void redirect(int n, sn_view *v, int n_made, const int *from, const int *to) {
    for (int i = 0; i < n; i++)
        for (int k = 0; k < n_made; k++)
            if (v[i].buffer == from[k] && to[k] >= 0) {
                v[i].buffer = to[k];
                break;
            }
}

static void take(search *s, const chain *c) {
    sn_plan *p = s->p;
    int list[MAX_CHAIN], fresh[MAX_CHAIN], whole[MAX_CHAIN], n = written(s, c, list);
    make_room(s, n, c->n);
    for (int i = 0; i < n; i++) {
        fresh[i] = fresh_buffer(s, list[i]);
        whole[i] = complete(s, c, list[i]) ? fresh[i] : -1;
    }
    size_t rest = (size_t)(p->n_step - c->until);
    memmove(p->step + c->until + c->n, p->step + c->until, sizeof *p->step * rest);
    memmove(s->cost + c->until + c->n, s->cost + c->until, sizeof *s->cost * rest);
    p->n_step += c->n;
    for (int i = 0; i < c->n; i++) {
        sn_step *t = &p->step[c->until + i];
        *t = copy_step(s, &p->step[c->step[i]]); /* all of them before `until` */
        s->cost[c->until + i] = s->cost[c->step[i]];
        redirect(t->n_in, t->in, n, list, whole);
        redirect(t->n_out, t->out, n, list, fresh);
    }
    for (int i = 0; i < n; i++) /* the caller's results already exist */
        if (p->buffer[list[i]].kind != SN_BUF_TEMP) whole[i] = -1;
    for (int i = c->until + c->n; i < p->n_step; i++) {
        redirect(p->step[i].n_in, p->step[i].in, n, list, whole);
        redirect(p->step[i].n_out, p->step[i].out, n, list, whole);
    }
}

/* Applies one chain for the step with the most memory. False: there is none. */
static bool improve(search *s) {
    int top = highest(s);
    double best_worth = 0;
    chain found = {.n = 0}, *best = &found, c = {.n = 0};
    for (int b = 0; b < s->p->n_buffer; b++) {
        if (!is_temp(s, b) || first_use(s, b) > top || last_use(s, b) <= top) continue;
        if (s->size[b] < s->live[top] / TOO_SMALL) continue;
        int until = next_read(s, b, top);
        c.n = c.n_made = c.n_kept = 0;
        c.at = top;
        c.until = until;
        c.patience = PATIENCE;
        if (until < 0 || !add_buffer(s, &c, b)) continue;
        double w = worth(s, &c, s->live[top], best_worth);
        if (w <= 0) continue;
        best_worth = w;
        *best = c;
    }
    if (best_worth <= 0 || s->p->n_step + best->n > s->max_steps) return false;
    const sn_node *n = s->p->step[best->step[best->n - 1]].node;
    int target = best->made[0];
    if (s->budget->passes)
        sn_remark_add(s->budget->passes, "memory", n, false,
                      "%.2f MB are recomputed instead of stored, by %d kernel call%s",
                      (double)s->size[target] * 1e-6, best->n, best->n > 1 ? "s" : "");
    take(s, best);
    return true;
}

static bool fail(const search *s, int64_t need) {
    char sizes[256] = "";
    size_t at = 0;
    for (int i = 0; i < sn_symbol_count(s->m) && at + 64 < sizeof sizes; i++)
        at += (size_t)snprintf(sizes + at, sizeof sizes - at, "%s%s = %lld", i ? ", " : " for ",
                               sn_symbol_at(s->m, i)->name, (long long)s->budget->symbol[i]);
    return sn_fail(s->budget->err, SN_ERR_MEMORY,
                   "entry %s needs %.1f MB for the tensors between kernels%s, even with everything "
                   "recomputed that can be; the memory budget is %.1f MB. Hint: increase the "
                   "budget, or use smaller sizes",
                   s->p->entry->name, (double)need * 1e-6, sizes, (double)s->budget->bytes * 1e-6);
}

bool sn_plan_remat(sn_plan *p, const sn_budget *budget) {
    search s = {.m = p->m, .p = p, .budget = budget, .max_steps = 3 * p->n_step};
    int64_t target = budget->bytes; /* of live memory: slots waste some */
    if (sn_plan_arena(p, budget->symbol) <= budget->bytes) return true;
    p->pack_slots = true;
    p->planned_sizes = budget->symbol;
    measure(&s);
    for (int round = 0; p->n_step && round < ROUNDS; round++) {
        look(&s);
        if (s.live[highest(&s)] <= target) {
            int64_t arena = sn_plan_arena(p, budget->symbol);
            if (arena <= budget->bytes) return true;
            target -= arena - budget->bytes;
        } else if (!improve(&s)) {
            int64_t arena = sn_plan_arena(p, budget->symbol);
            return arena <= budget->bytes || fail(&s, arena);
        }
        if (sn_module_error(p->m)->code) return false;
    }
    return !p->n_step || fail(&s, sn_plan_arena(p, budget->symbol));
}
