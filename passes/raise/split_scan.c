/* split_scan.c: a scan that carries a matrix and smaller tensors, which do not depend on the matrix: sums of
 * keys, running maxima. A loop for each smaller one comes first; what it carries before and after each
 * element becomes two sequences for the others. The loop that is left has one carry. */
#include "passes/graph_util.h"
#include "passes/raise/recurrence.h"

enum { MAX_MORE = 2 * SN_MAX_RESULTS };

typedef struct splitter {
    sn_module *m;
    sn_node *n; /* the scan */
    sn_scan s;
    sn_node *from[MAX_MORE],
        *to[MAX_MORE]; /* what earlier loops give: nodes of the body, sequences */
    int n_more;
    uint8_t *seen; /* by id: [count] */
    uint32_t count;
} splitter;

static int more_at(const splitter *p, const sn_node *n) {
    for (int i = 0; i < p->n_more; i++)
        if (p->from[i] == n) return i;
    return -1;
}

/* Marks what n is computed from, down to what is given. */
static void reach(const splitter *p, const sn_node *n) {
    if (p->seen[n->id]) return;
    p->seen[n->id] = 1;
    for (int i = 0; i < n->n_in && more_at(p, n) < 0; i++) reach(p, n->in[i]);
}

static void reach_all(splitter *p, int n_out, sn_node *const *out) {
    p->seen = sn_arena_alloc(p->m, p->count);
    for (int i = 0; i < n_out; i++) reach(p, out[i]);
}

static bool needs_carry(const splitter *p, int c) {
    const sn_node *arg = p->s.body->arg[c];
    return p->seen[arg->id] && more_at(p, arg) < 0;
}

/* The loop with carry c alone and these results of the body. */
static sn_node *make_loop(splitter *p, int c, int n_out, sn_node *const *out) {
    const sn_region *r = p->s.body;
    sn_node **cut = sn_arena_alloc(p->m, sizeof *cut * (size_t)(p->s.n_in + MAX_MORE + 1));
    sn_node **in = sn_arena_alloc(p->m, sizeof *in * (size_t)(p->s.n_in + MAX_MORE + 1));
    int n = 0, n_carry = p->s.n_carry, end = n_carry + p->s.n_sequence;
    reach_all(p, n_out, out);
    cut[n] = r->arg[c], in[n++] = p->n->in[c];
    for (int i = n_carry; i < end; i++)
        if (p->seen[r->arg[i]->id]) cut[n] = r->arg[i], in[n++] = p->n->in[i];
    for (int i = 0; i < p->n_more; i++)
        if (p->seen[p->from[i]->id]) cut[n] = p->from[i], in[n++] = p->to[i];
    if (n == 1) cut[n] = r->arg[n_carry], in[n++] = p->n->in[n_carry]; /* its length counts */
    const int n_sequence = n - 1;
    for (int i = end; i < p->s.n_in; i++)
        if (p->seen[r->arg[i]->id]) cut[n] = r->arg[i], in[n++] = p->n->in[i];
    sn_region *body = sn_region_extract(p->m, n, cut, n_out, out);
    sn_attr attr[4] = {SN_INT(carries, 1), SN_INT(sequences, n_sequence), SN_REG(body, body)};
    if (p->s.reverse) attr[3] = SN_INT(reverse, 1);
    return sn_node_new(p->m, SN_OP_scan, n, in, p->s.reverse ? 4 : 3, attr);
}

static void give(splitter *p, sn_node *from, sn_node *to) {
    if (p->n_more == MAX_MORE || more_at(p, from) >= 0) return;
    p->from[p->n_more] = from;
    p->to[p->n_more++] = to;
}

/* Makes the loop of a carry that needs no other one than those whose loops were made. */
static bool peel(splitter *p, int last, bool *made, sn_node **result) {
    sn_node *const *next = p->s.body->out;
    for (int c = 0; c < p->s.n_carry; c++) {
        bool alone = c != last && !made[c];
        reach_all(p, 1, &next[c]);
        for (int o = 0; o < p->s.n_carry && alone; o++) alone = o == c || !needs_carry(p, o);
        if (!alone) continue;
        sn_node *out[3] = {next[c], p->s.body->arg[c], next[c]};
        sn_node *loop = make_loop(p, c, 3, out);
        result[c] = sn_b_result(loop, 0);
        give(p, p->s.body->arg[c], sn_b_result(loop, 1));
        give(p, next[c], sn_b_result(loop, 2));
        return made[c] = true;
    }
    return false;
}

int sn_largest_carry(const sn_scan *s) {
    int at = 0;
    bool alone = true;
    for (int c = 1; c < s->n_carry; c++) {
        int rank = s->body->arg[c]->rank, maximum = s->body->arg[at]->rank;
        alone = rank > maximum || (alone && rank < maximum);
        if (rank > maximum) at = c;
    }
    return alone ? at : -1;
}

sn_node *sn_split_scan(sn_node *n, int *carry, int *output, sn_node **result) {
    splitter p = {.m = n->m, .n = n, .s = sn_scan_of(n), .count = sn_module_node_count(n->m)};
    const sn_region *r = p.s.body;
    bool made[SN_MAX_RESULTS] = {false};
    int last = sn_largest_carry(&p.s), n_out = 1;
    if (p.s.n_carry < 2 || p.s.n_tile || p.s.again || last < 0) return NULL;
    while (peel(&p, last, made, result)) continue;
    for (int c = 0; c < p.s.n_carry; c++)
        if (c != last && !made[c]) return NULL;
    sn_node *out[2] = {r->out[last]};
    *carry = last, *output = -1;
    for (int i = p.s.n_carry; i < r->n_out; i++) {
        int given = more_at(&p, r->out[i]);
        if (given >= 0) {
            result[i] = p.to[given];
            continue;
        }
        if (*output >= 0) return NULL;
        *output = i;
        out[n_out++] = r->out[i];
    }
    return sn_module_error(n->m)->code ? NULL : make_loop(&p, last, n_out, out);
}
