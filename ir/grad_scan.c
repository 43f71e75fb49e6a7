/* grad_scan.c: the gradient of a scan: a scan in the other direction. Its carries are the cotangents
 * of the carries and the sums for the captured tensors; its sequences are the carries before each
 * element, which a second result of the forward scan keeps, the sequences of the forward scan, and
 * the cotangents of its outputs; its outputs are the cotangents of the sequences. */
#include "ir/grad_impl.h"

#include <string.h>

/* A result's cotangent is read when the node itself is reached, which has a smaller id. */
bool grad_result(grad *c) {
    sn_node *n = c->n->in[0];
    if (n->op != SN_OP_scan && n->op != SN_OP_recurrence) return false;
    c->sum[n->id] = c->g; /* any: the node has one */
    return true;
}

sn_node *sn_gr_cotangent(const grad *c, int i) {
    if (c->n->n_result == 1) return c->g;
    const sn_node *r = sn_b_result(c->n, i);
    return r->id < c->count ? c->sum[r->id] : NULL;
}

/* A scan under construction: operands, what stands for them in the body, and its results. */
typedef struct draft {
    sn_module *m;
    int n_carry, n_sequence, n_in, n_out;
    sn_node **in, **arg;
    sn_node *out[SN_MAX_RESULTS];
    bool reverse;
} draft;

sn_node *sn_gr_stand_in(sn_module *m, int rank, const sn_dim *shape, sn_dtype t) {
    char name[48];
    snprintf(name, sizeof name, "@scan.%u", (unsigned)m->n_node);
    return sn_node_new(m, SN_OP_input, 0, NULL,
                       SN_ATTRS(SN_STR(name, name), SN_INT(dtype, t), SN_LIST(shape, rank, shape)));
}

static bool add_result(draft *d, sn_node *x) {
    if (d->n_out == SN_MAX_RESULTS) {
        sn_module_fail(d->m, SN_ERR_USAGE,
                       "gradient of scan: more than %d carries, captured tensors and sequences "
                       "have a gradient; join some of them",
                       SN_MAX_RESULTS);
        return false;
    }
    d->out[d->n_out++] = x;
    return true;
}

/* Adds an operand; returns what stands for it. */
static sn_node *add_operand(draft *d, sn_node *x, bool sequence) {
    sn_node *a = sn_gr_stand_in(d->m, x->rank - sequence, x->shape + sequence, (sn_dtype)x->dtype);
    d->in[d->n_in] = x;
    d->arg[d->n_in++] = a;
    return a;
}

static sn_node *finish(draft *d) {
    sn_module *m = d->m;
    if (m->error.code) return m->error_node;
    sn_region *body = sn_region_extract(m, d->n_in, d->arg, d->n_out, d->out);
    sn_attr attr[] = {SN_INT(carries, d->n_carry), SN_INT(sequences, d->n_sequence),
                      SN_REG(body, body), SN_INT(reverse, 1)};
    return sn_node_new(m, SN_OP_scan, d->n_in, d->in, 3 + d->reverse, attr);
}

static bool is_float(const sn_node *x) {
    return sn_dtype_is_float((sn_dtype)x->dtype);
}

/* The backward body over the forward body's arguments. */
typedef struct back {
    grad *c;
    sn_scan s;
    sn_node **arg;                  /* [n_in] what stands for the forward body's arguments */
    sn_node *y[SN_MAX_RESULTS];     /* the forward body's results over these */
    sn_node *g[SN_MAX_RESULTS];     /* what stands for their cotangents; NULL: zero */
    sn_node **d;                    /* [n_in] cotangents of the arguments; NULL: zero */
    int first_sum, n_sum, first_dx; /* results for captured tensors and sequences */
} back;

static bool differentiate(back *b) {
    sn_module *m = b->c->n->m;
    sn_node *y[SN_MAX_RESULTS], *g[SN_MAX_RESULTS];
    sn_node **wrt = sn_arena_alloc(m, 2 * sizeof *wrt * (size_t)(b->s.n_in + 1));
    sn_node **d = wrt + b->s.n_in + 1;
    int n = 0, n_wrt = 0;
    for (int i = 0; i < b->s.body->n_out; i++)
        if (b->g[i]) y[n] = b->y[i], g[n++] = b->g[i];
    for (int i = 0; i < b->s.n_in; i++)
        if (is_float(b->arg[i]) && (i < b->s.n_carry || sn_gr_needs(b->c, i)))
            wrt[n_wrt++] = b->arg[i];
    if (n_wrt) sn_pullback_all(n, y, g, n_wrt, wrt, d);
    for (int i = 0, k = 0; i < b->s.n_in; i++)
        if (k < n_wrt && wrt[k] == b->arg[i]) b->d[i] = d[k++];
    return !m->error.code;
}

/* By operand: whether the backward body reads it. */
static bool *find_read(const back *b, const draft *d) {
    sn_module *m = d->m;
    bool *read = sn_arena_alloc(m, (size_t)b->s.n_in + 1);
    sn_order order = sn_topo(m, d->n_out, d->out);
    memset(read, 0, (size_t)b->s.n_in + 1);
    for (int k = 0; k < order.n; k++)
        for (int i = 0; i < b->s.n_in; i++) read[i] |= order.node[k] == b->arg[i];
    return read;
}

/* Adds carries from which others that are kept follow: those may be computed again. */
static void keep_sources(const back *b, bool *keep) {
    const sn_scan *s = &b->s;
    for (bool more = true; more;) {
        sn_node *next[SN_MAX_RESULTS];
        int n = 0;
        more = false;
        for (int i = 0; i < s->n_carry; i++)
            if (keep[i]) next[n++] = s->body->out[i];
        sn_order order = sn_topo(b->c->n->m, n, next);
        for (int i = 0; i < s->n_carry; i++)
            for (int k = 0; k < order.n && !keep[i]; k++)
                more |= keep[i] = order.node[k] == s->body->arg[i];
    }
}

/* The forward scan with the carries that `keep` names as further outputs; at[i]: which result. */
static sn_node *with_history(const back *b, const bool *keep, int *at) {
    sn_node *n = b->c->n;
    draft f = {.m = n->m, .n_out = b->s.body->n_out};
    memcpy(f.out, b->s.body->out, sizeof *f.out * (size_t)f.n_out);
    for (int i = 0; i < b->s.n_carry; i++) {
        at[i] = f.n_out;
        if (keep[i] && !add_result(&f, b->s.body->arg[i])) return n->m->error_node;
    }
    if (f.n_out == b->s.body->n_out) return n;
    sn_region *body = sn_region_new(n->m, b->s.n_in, b->s.body->arg, f.n_out, f.out);
    sn_attr *attr = sn_arena_alloc(n->m, sizeof *attr * n->n_attr);
    for (int i = 0; i < n->n_attr; i++) {
        attr[i] = n->attr[i];
        if (attr[i].key == SN_A_body) attr[i].r = body;
    }
    sn_node *kept = sn_node_new(n->m, SN_OP_scan, n->n_in, n->in, n->n_attr, attr);
    for (int i = 0; i < b->s.body->n_out && !n->m->error.code; i++)
        sn_replace(sn_b_result(n, i), sn_b_result(kept, i));
    return kept;
}

/* Results of the backward body: carries that are cotangents of carries, sums for captured tensors,
 * then cotangents of sequences. */
static bool collect(back *b, draft *d) {
    for (int i = 0; i < b->s.n_carry; i++) {
        if (!is_float(b->arg[i])) continue;
        sn_node *g = b->d[i] ? b->d[i] : sn_gr_fill(b->arg[i], 0);
        if (!add_result(d, g)) return false;
    }
    b->first_sum = d->n_out;
    for (int i = b->s.n_carry + b->s.n_sequence; i < b->s.n_in; i++) {
        if (!b->d[i]) continue;
        sn_node *sum = add_operand(d, sn_gr_fill(b->c->n->in[i], 0), false);
        if (!add_result(d, OP2(add, sum, b->d[i]))) return false;
    }
    d->n_carry = b->first_dx = d->n_out;
    for (int i = b->s.n_carry; i < b->s.n_carry + b->s.n_sequence; i++)
        if (b->d[i] && !add_result(d, b->d[i])) return false;
    return true;
}

/* Adds a sequence whose element `inside` stands for. */
static void add_sequence(draft *d, sn_node *x, sn_node *inside) {
    d->in[d->n_in] = x;
    d->arg[d->n_in++] = inside;
    d->n_sequence++;
}

bool grad_scan(grad *c) {
    sn_node *n = c->n;
    sn_module *m = n->m;
    back b = {.c = c, .s = sn_scan_of(n)};
    const sn_scan *s = &b.s;
    size_t room = (size_t)(2 * s->n_in + 2 * s->body->n_out + 2);
    draft d = {.m = m, .reverse = !s->reverse};
    d.in = sn_arena_alloc(m, 2 * sizeof *d.in * room);
    d.arg = d.in + room;
    b.arg = sn_arena_alloc(m, 2 * sizeof *b.arg * (size_t)(s->n_in + 1));
    b.d = b.arg + s->n_in + 1;
    for (int i = 0; i < s->n_in; i++) {
        const sn_node *a = s->body->arg[i];
        b.arg[i] = sn_gr_stand_in(m, a->rank, a->shape, (sn_dtype)a->dtype);
    }
    if (m->error.code) return true;
    sn_region_inline(s->body, b.arg, b.y);
    for (int i = 0; i < s->n_carry; i++) {
        if (!is_float(n->in[i])) continue;
        sn_node *g = sn_gr_cotangent(c, i);
        b.g[i] = add_operand(&d, g ? g : sn_gr_fill(n->in[i], 0), false);
    }
    for (int i = s->n_carry; i < s->body->n_out; i++) /* their operands follow the carries */
        if (sn_gr_cotangent(c, i))
            b.g[i] = sn_gr_stand_in(m, b.y[i]->rank, b.y[i]->shape, (sn_dtype)b.y[i]->dtype);
    if (m->error.code || !differentiate(&b) || !collect(&b, &d)) return true;
    bool *read = find_read(&b, &d);
    bool *keep = sn_arena_alloc(m, (size_t)s->n_in + 1);
    memcpy(keep, read, (size_t)s->n_in + 1);
    keep_sources(&b, keep);
    int *at = sn_arena_alloc(m, sizeof *at * (size_t)(s->n_carry + 1));
    sn_node *forward = with_history(&b, keep, at);
    if (m->error.code) return true;
    for (int i = 0; i < s->n_carry; i++)
        if (read[i]) add_sequence(&d, sn_b_result(forward, at[i]), b.arg[i]);
    for (int i = s->n_carry; i < s->n_carry + s->n_sequence; i++) /* at least one */
        if (read[i] || (i == s->n_carry && !d.n_sequence)) add_sequence(&d, n->in[i], b.arg[i]);
    for (int i = s->n_carry; i < s->body->n_out; i++)
        if (b.g[i]) add_sequence(&d, sn_gr_cotangent(c, i), b.g[i]);
    for (int i = s->n_carry + s->n_sequence; i < s->n_in; i++)
        if (read[i]) d.in[d.n_in] = n->in[i], d.arg[d.n_in++] = b.arg[i];
    sn_node *all = finish(&d);
    if (m->error.code) return true;
    int at_carry = 0, at_sum = b.first_sum, at_dx = b.first_dx;
    for (int i = 0; i < s->n_in; i++) {
        bool carry = i < s->n_carry, sequence = sn_scan_is_sequence(s, i);
        int k = -1;
        if (carry && is_float(n->in[i])) k = at_carry++;
        if (!carry && b.d[i]) k = sequence ? at_dx++ : at_sum++;
        if (k >= 0 && sn_gr_needs(c, i)) sn_gr_give(c, i, sn_b_result(all, k));
    }
    return true;
}
