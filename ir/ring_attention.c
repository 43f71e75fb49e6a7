/* ring_attention.c: attention whose rows are divided among ranks [Liu, Zaharia and Abbeel, Ring
 * Attention with Blockwise Transformers, 2023].
 *
 * Queries attend to one piece of keys after the other: this rank's own, those of the rank before, of
 * the one before that, ... Each piece's result o_j and log-sum-exp e_j are merged with what came
 * before:
 *
 *   top = max(e, e_j);  o = (o e^(e - top) + o_j e^(e_j - top)) / sum;  e = top + log sum
 *
 * Regions see heads and positions among all: three arguments more are the first head, and the
 * positions of the first query and of the first key. Tiles that the mask hides cost nothing, as in
 * every attention. With {behind} keys of later ranks, and of ranks too far before, are not sent
 * either.
 *
 * A piece of keys and values is under way while attention to the one before is computed. For that, it
 * is fetched after the last but one is done, and no call begins before the results of the one before
 * are joined. Operands that are not read say so. Results and sums stay in one place
 * (plan/overwrite.c). So a rank holds, beyond its own tensors, two pieces of keys and values and the
 * result of one call. The backward part is in ring_grad.c. */
#include "ir/decomp_impl.h"
#include "ir/grad_impl.h"
#include "ir/ring.h"

#include <math.h>
#include <string.h>

static int64_t number(const ring *g, sn_attr_key key, int64_t otherwise) {
    const sn_attr *a = sn_attr_find(g->n_attr, g->attr, key);
    return a ? a->i : otherwise;
}

/* ---- pieces ---- */

/* How many pieces of keys make a piece at most {piece} bytes. */
static int64_t count_pieces(const ring *g) {
    enum { BYTES = 1 << 18, MAX_PIECES = 16 };
    const sn_node *k = g->in[1];
    sn_dim row = sn_dim_mul(g->m, k->shape[1], sn_dim_mul(g->m, k->shape[2], k->shape[3]));
    int64_t batch = 1, limit = number(g, SN_A_piece, BYTES), size = sn_dim_hi(g->m, row);
    sn_dim_is_const(g->m, k->shape[0], &batch);
    double bytes = (double)size * (double)batch * (double)sn_dtype_size((sn_dtype)k->dtype);
    double n = limit > 0 ? ceil(bytes / (double)limit) : 1;
    return n < 1 ? 1 : n > MAX_PIECES ? MAX_PIECES : (int64_t)n;
}

/* Groups of heads first: they share nothing. Slices of rows need a number of rows. */
static void divide(ring *g) {
    enum { ROWS = 64 }; /* fewer keys are not worth a call */
    int64_t heads = 1, rows = 0, n = count_pieces(g), least = number(g, SN_A_piece, 0) ? 1 : ROWS;
    g->groups = g->slices = 1;
    if (sn_dim_is_const(g->m, g->in[1]->shape[1], &heads))
        while (g->groups < heads && (g->groups < n || heads % g->groups)) g->groups++;
    if (!sn_dim_is_const(g->m, g->in[1]->shape[2], &rows)) return;
    int64_t half = rows / g->halves, wanted = g->groups * g->halves;
    g->slices = (n + wanted - 1) / wanted;
    while (g->slices > 1 && (half % g->slices || half / g->slices < least)) g->slices--;
}

void ring_open(ring *g, sn_module *m, int n_in, sn_node *const *in, int n_attr,
               const sn_attr *attr) {
    *g = (ring){.m = m, .n_in = n_in, .in = in, .n_attr = n_attr, .attr = attr, .type = SN_F32};
    g->ranks = number(g, SN_A_ranks, 1);
    g->wrap = !sn_attr_find(n_attr, attr, SN_A_behind);
    g->halves = number(g, SN_A_zigzag, 0) ? RING_HALVES : 1;
    g->behind = number(g, SN_A_behind, g->halves * g->ranks - 1);
    g->blocks = g->behind < g->ranks && g->halves == 1 ? g->behind + 1 : g->ranks;
    for (int i = 0; i < n_in; i++)
        if (in[i]->dtype == SN_F64) g->type = SN_F64;
    divide(g);
    g->self = sn_b_own_rank(m, sn_attr_find(n_attr, attr, SN_A_mesh)->s, g->ranks);
    for (int i = 0; i < 2; i++) {
        sn_dim half = in[i]->shape[2];
        if (g->halves > 1) sn_dim_div(m, half, sn_dim_const(m, g->halves), &half);
        g->rows[i] = sn_b_dim(m, SN_I32, half);
    }
}

/* The i-th of n equal parts of an axis. */
static sn_node *part_of(sn_node *x, int axis, int64_t i, int64_t n) {
    sn_dim size;
    if (n == 1 || !sn_dim_div(x->m, x->shape[axis], sn_dim_const(x->m, n), &size)) return x;
    return sn_b_slice(x, axis, sn_dim_mul(x->m, size, sn_dim_const(x->m, i)), size);
}

sn_node *ring_queries(const ring *g, sn_node *x, const ring_place *at) {
    return part_of(part_of(x, 1, at->group, g->groups), 2, at->half, g->halves);
}

sn_node *ring_keys(const ring *g, sn_node *x, const ring_place *at) {
    return part_of(part_of(x, 1, at->group, g->groups), 2, at->from * g->slices + at->slice,
                   g->halves * g->slices);
}

sn_node *ring_whole(const ring *g, sn_node *const *part, int64_t n) {
    sn_node **row = sn_arena_alloc(g->m, sizeof *row * (size_t)g->groups);
    for (int64_t i = 0; i < g->groups; i++)
        row[i] = n == 1 ? part[i] : sn_b_concat(g->m, (int)n, part + i * n, 2);
    return g->groups == 1 ? row[0] : sn_b_concat(g->m, (int)g->groups, row, 1);
}

/* With {zigzag} and a causal mask: the first half of every rank's rows comes before every second one. */
static bool is_hidden_half(const ring *g, int64_t half, int64_t from) {
    return g->halves > 1 && !g->wrap && !half && from;
}

bool ring_sees(const ring *g, const ring_place *at) {
    return !is_hidden_half(g, at->half, at->from);
}

/* The first half of the rank j before is j halves before the nearest queries, or R + 1 - j before those of rank j - 1's
 * second half; the second one is needed by earlier ranks only. */
bool ring_needs(const ring *g, const ring_place *at) {
    int64_t around = g->ranks + 1 - at->j, near = at->j < around ? at->j : around;
    if (g->halves == 1 || g->wrap || !at->j) return true;
    return (at->from ? g->ranks - at->j : near) <= g->behind;
}

/* ---- exchanges ---- */

/* The rank that an exchange gets from is `shift` further. With {zigzag} second halves are visible to
 * earlier ranks only: those that lie R - j further. */
static int64_t shift_of(const ring *g, const ring_place *at, bool *wrap) {
    bool later = is_hidden_half(g, 0, at->from);
    *wrap = g->wrap || (g->halves > 1 && !later);
    return later ? g->ranks - at->j : -at->j;
}

sn_node *ring_fetch(const ring *g, sn_node *x, const ring_place *at, const ring_waits *after) {
    bool wrap;
    int64_t shift = shift_of(g, at, &wrap);
    return at->j ? sn_b_permute(x, shift, wrap, g->n_attr, g->attr, after->n, after->node) : x;
}

sn_node *ring_send_back(const ring *g, sn_node *d, const ring_place *at) {
    bool wrap;
    int64_t shift = shift_of(g, at, &wrap);
    return at->j ? sn_b_permute(d, -shift, wrap, g->n_attr, g->attr, 0, NULL) : d;
}

/* One element of each row of the first head of x, for an operand that is not read. */
static sn_node *little(sn_node *x) {
    sn_dim start[4] = {0}, size[4] = {x->shape[0], 1, x->shape[2], 1};
    return sn_node_new(x->m, SN_OP_slice, 1, &x,
                       SN_ATTRS(SN_LIST(start, 4, start), SN_LIST(size, 4, size)));
}

void ring_wait(const ring *g, ring_waits *l, sn_node *x, sn_node *like) {
    l->node[l->n++] = x ? little(x) : sn_b_cast(little(like), g->type);
}

/* ---- calls ---- */

enum { FIRSTS = 3 };

/* A region of heads and positions as one of indices, with more arguments: the first head, the
 * positions of the first query and the first key, and what is not read. first: the argument b. */
static const sn_region *of_indices(const ring *g, const sn_region *r, int first,
                                   const ring_waits *waits) {
    sn_module *m = g->m;
    int n = r->n_arg;
    sn_node **arg = sn_arena_alloc(m, sizeof *arg * (size_t)(2 * n + FIRSTS + RING_WAITS)), *out;
    sn_node **use = arg + n + FIRSTS + RING_WAITS;
    for (int i = 0; i < n; i++) {
        const sn_node *a = r->arg[i];
        use[i] = arg[i] = sn_arg(m, i, (sn_dtype)a->dtype, a->rank, a->shape);
    }
    for (int i = 0; i < FIRSTS; i++) {
        int at = first + 1 + i;
        arg[n + i] = sn_arg(m, n + i, SN_I32, 0, NULL);
        if (i || g->groups > 1) use[at] = OP2(add, arg[at], arg[n + i]);
    }
    for (int i = 0; i < waits->n; i++) {
        const sn_node *d = waits->node[i];
        arg[n + FIRSTS + i] = sn_arg(m, n + FIRSTS + i, (sn_dtype)d->dtype, d->rank, d->shape);
    }
    sn_region_inline(r, use, &out);
    return sn_region_new(m, n + FIRSTS + waits->n, arg, 1, &out);
}

/* The position of the first row of a half of a rank; rows: in a half. */
static sn_node *first_of(const ring *g, sn_node *rank, int64_t half, sn_node *rows) {
    if (half) rank = OP2(sub, sn_b_const(g->m, SN_I32, (double)(2 * g->ranks - 1)), rank);
    return OP2(mul, rank, rows);
}

/* The first head, query and key. */
static void find_firsts(const ring *g, const ring_place *at, sn_node **first) {
    sn_module *m = g->m;
    sn_dim heads = g->in[0]->shape[1], rows = ring_keys(g, g->in[1], at)->shape[2];
    if (g->groups > 1) sn_dim_div(m, heads, sn_dim_const(m, g->groups), &heads);
    sn_node *from = OPC(mod, OPC(sub, g->self, (double)at->j), (double)g->ranks);
    first[0] = sn_b_dim(m, SN_I32, sn_dim_mul(m, heads, sn_dim_const(m, at->group)));
    first[1] = first_of(g, g->self, at->half, g->rows[0]);
    first[2] = first_of(g, from, at->from, g->rows[1]);
    if (at->slice)
        first[2] = OP2(add, first[2],
                       sn_b_dim(m, SN_I32, sn_dim_mul(m, rows, sn_dim_const(m, at->slice))));
}

sn_node *ring_call(const ring *g, const ring_place *at, sn_node *const *kv, int n_given,
                   sn_node *const *given, int64_t index, const ring_waits *waits) {
    sn_module *m = g->m;
    int n = 0, n_attr = 0;
    sn_node **in =
        sn_arena_alloc(m, sizeof *in * (size_t)(g->n_in + n_given + FIRSTS + RING_WAITS));
    sn_attr *attr = sn_arena_alloc(m, sizeof *attr * (size_t)(g->n_attr + 2));
    in[n++] = ring_queries(g, g->in[0], at);
    in[n++] = kv[0];
    in[n++] = kv[1];
    for (int i = 0; i < n_given; i++) in[n++] = given[i];
    for (int i = 3; i < g->n_in; i++) in[n++] = g->in[i];
    find_firsts(g, at, in + n);
    n += FIRSTS;
    for (int i = 0; i < waits->n; i++) in[n++] = waits->node[i];
    for (int i = 0; i < g->n_attr; i++) {
        sn_attr a = g->attr[i];
        if (a.key == SN_A_index || a.key == SN_A_ranks || a.key == SN_A_behind ||
            a.key == SN_A_zigzag || a.key == SN_A_piece)
            continue;
        if (a.key == SN_A_score || a.key == SN_A_mask)
            a.r = of_indices(g, a.r, a.key == SN_A_score, waits);
        attr[n_attr++] = a;
    }
    if (!n_given) return sn_node_new(m, SN_OP_attention, n, in, n_attr, attr);
    attr[n_attr++] = SN_INT(lse, 1);
    attr[n_attr++] = SN_INT(index, index);
    return sn_node_new(m, SN_OP_attention_grad, n, in, n_attr, attr);
}

/* ---- the forward part ---- */

/* o and e of the pieces so far with those of one more; see above. */
static void merge(sn_node **o, sn_node **e, sn_node *o_j, sn_node *e_j) {
    if (!*o) {
        *o = o_j, *e = e_j;
        return;
    }
    sn_node *top = OP2(max, *e, e_j), *none = OPC(eq, top, -INFINITY);
    sn_node *zero = sn_b_const(top->m, (sn_dtype)top->dtype, 0);
    sn_node *one = sn_b_const(top->m, (sn_dtype)top->dtype, 1);
    sn_node *from = sn_b_select(none, zero, top);
    sn_node *w = OP1(exp, OP2(sub, *e, from)), *w_j = OP1(exp, OP2(sub, e_j, from));
    sn_node *sum = sn_b_select(none, one, OP2(add, w, w_j));
    *o = OP2(add, OP2(mul, *o, OP2(div, w, sum)), OP2(mul, o_j, OP2(div, w_j, sum)));
    *e = OP2(add, top, OP1(log, sum));
}

/* Results after the last step, and after the one before. */
typedef struct progress {
    sn_node *last, *before;
} progress;

/* All halves of a group's queries and one piece of keys. o, e: [halves] */
static void forward_step(const ring *g, ring_place at, progress *done, sn_node **o, sn_node **e) {
    ring_waits after = {0};
    if (done->before) ring_wait(g, &after, done->before, NULL);
    done->before = done->last;
    sn_node *kv[2];
    for (int i = 0; i < 2; i++) kv[i] = ring_fetch(g, ring_keys(g, g->in[1 + i], &at), &at, &after);
    for (at.half = 0; at.half < g->halves; at.half++) {
        if (!ring_sees(g, &at)) continue;
        ring_waits waits = {0};
        ring_wait(g, &waits, done->last, ring_queries(g, g->in[0], &at));
        sn_node *y = ring_call(g, &at, kv, 0, NULL, 0, &waits);
        merge(&o[at.half], &e[at.half], sn_b_cast(y, g->type), sn_b_attention_lse(y));
        done->last = o[at.half];
    }
}

void ring_forward(const ring *g, sn_node **o, sn_node **e) {
    progress done = {0};
    ring_place at = {0};
    for (int64_t i = 0; i < g->groups * g->halves; i++) o[i] = e[i] = NULL;
    for (at.group = 0; at.group < g->groups; at.group++)
        for (at.from = 0; at.from < g->halves; at.from++)
            for (at.slice = 0; at.slice < g->slices; at.slice++)
                for (at.j = 0; at.j < g->blocks && !g->m->error.code; at.j++)
                    if (ring_needs(g, &at))
                        forward_step(g, at, &done, o + at.group * g->halves,
                                     e + at.group * g->halves);
}

bool decomp_ring_attention(decomp *c) {
    ring g;
    sn_dim half;
    if (!sn_dc_attr(c, SN_A_mesh) || sn_dc_int(c, SN_A_ranks, 0) < 1)
        return sn_dc_fail(c, "the mesh axis and the number of its ranks are needed");
    if (sn_dc_attr(c, SN_A_rate) || sn_dc_attr(c, SN_A_weights) || sn_dc_attr(c, SN_A_sink))
        return sn_dc_fail(c, "needs weights that are a softmax, without dropout and sink");
    if (sn_dc_int(c, SN_A_behind, 0) < 0) return sn_dc_fail(c, "hides the keys of its own rank");
    if (sn_dc_int(c, SN_A_piece, 1) < 1) return sn_dc_fail(c, "a piece has no bytes");
    for (int i = 0; i < 3; i++)
        if (c->in[i]->rank != 4) return sn_dc_fail(c, "q, k and v need 4 axes");
    if (sn_dc_int(c, SN_A_zigzag, 0) &&
        (c->in[0]->shape[2] != c->in[1]->shape[2] ||
         !sn_dim_div(c->m, c->in[0]->shape[2], sn_dim_const(c->m, 2), &half)))
        return sn_dc_fail(c, "zigzag needs an even number of rows, of keys as of queries");
    ring_open(&g, c->m, c->n_in, c->in, c->n_attr, c->attr);
    size_t parts = (size_t)(g.groups * g.halves);
    sn_node **o = sn_arena_alloc(c->m, 2 * parts * sizeof *o);
    ring_forward(&g, o, o + parts);
    return !c->m->error.code && sn_dc_done(c, ring_whole(&g, o, g.halves));
}
