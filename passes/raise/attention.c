/* attention.c: raises dot, any elementwise operations, softmax [, dropout], dot to attention; also
 * without softmax, where the elementwise operations give the weights, divided by their sum or not.
 *
 * The chain is followed from the values' product down to the scores' product. Each axis of the
 * scores is a list of pieces (axes that a reshape merged are split again). The role of a piece in
 * the second product determines what it is: a batch axis, a head, a group of query heads, the
 * query. The chain is then written as a scalar expression of the pieces' indices (index.h), from
 * which region.c makes the node. Layouts, broadcasts and transposes thus become views of q, k and
 * v.
 *
 * A score or weight with another user in the same entry prevents this: it would have to be computed
 * twice. */
#include "passes/backend.h"
#include "passes/graph_util.h"
#include "passes/kernels/table.h"
#include "passes/match.h"
#include "passes/raise/attention.h"
#include "passes/raise/region.h"

#include <string.h>

enum { STAND_IN = 2000, MAX_DEPTH = 24 };

/* ---- the chain ---- */

static bool is_step(const sn_node *n) {
    return sn_is_elementwise(n) || n->op == SN_OP_reshape || n->op == SN_OP_transpose ||
           n->op == SN_OP_broadcast;
}

/* Products reachable below n through steps, at most `cap`, the nearest to the left first. seen: by
 * id. */
static int find_products(sn_node *n, uint8_t *seen, sn_node **found, int count, int cap) {
    sn_node *opened = sn_element_opened(n);
    if (seen[n->id]) return count;
    seen[n->id] = 1;
    if (opened) return find_products(opened, seen, found, count, cap);
    if (n->op == SN_OP_dot) {
        if (count < cap) found[count++] = n;
        return count;
    }
    if (!is_step(n) || n->dtype == SN_BOOL) return count;
    for (int i = 0; i < n->n_in; i++) count = find_products(n->in[i], seen, found, count, cap);
    return count;
}

static score_step *chain_find(ra_match *k, const sn_node *n) {
    for (int i = 0; i < k->n_chain; i++)
        if (k->chain[i].n == n) return &k->chain[i];
    return NULL;
}

static score_step *chain_add(ra_match *k, sn_node *n) {
    if (k->n_chain == MAX_CHAIN) return NULL;
    score_step *c = &k->chain[k->n_chain++];
    *c = (score_step){.n = n};
    return c;
}

/* Whether the first product is below n. */
static bool is_above(ra_match *k, sn_node *n) {
    enum { UNKNOWN, NO, YES };
    sn_node *opened = sn_element_opened(n);
    if (n == k->scores) return true;
    if (k->above[n->id] == UNKNOWN) {
        bool yes = opened && is_above(k, opened);
        for (int i = 0; i < n->n_in && is_step(n) && !yes; i++) yes = is_above(k, n->in[i]);
        k->above[n->id] = yes ? YES : NO;
    }
    return k->above[n->id] == YES;
}

static score_step *walk(ra_match *k, sn_node *n, int depth);

/* An elementwise step: its operands from the chain agree on the index; the others are read at
 * it. */
static bool walk_elem(ra_match *k, sn_node *n, score_step *c, int depth) {
    score_step *from[3] = {NULL};
    const score_step *first = NULL;
    sn_node *value[3];
    if (n->n_in > 3) return false;
    for (int i = 0; i < n->n_in; i++) {
        if (!is_above(k, n->in[i])) continue;
        if (!(from[i] = walk(k, n->in[i], depth - 1))) return false;
        from[i]->uses++;
        for (int a = 0; first && a < n->rank; a++)
            if (!sn_index_equal(&first->ix[a], &from[i]->ix[a])) return false;
        first = from[i];
    }
    if (!first) return false;
    for (int a = 0; a < n->rank; a++) c->ix[a] = first->ix[a];
    if (!k->element) return true;
    for (int i = 0; i < n->n_in; i++)
        value[i] = from[i] ? from[i]->value : sn_element_of(k->element, n->in[i], c->ix);
    c->value = sn_node_new(k->m, (sn_op)n->op, n->n_in, value, n->n_attr, n->attr);
    return true;
}

static score_step *walk(ra_match *k, sn_node *n, int depth) {
    score_step *c = chain_find(k, n), made = {.n = n};
    if (c) return c;
    if (!depth) return NULL;
    sn_node *opened = sn_element_opened(n);
    if (opened) {
        score_step *o = walk(k, opened, depth - 1);
        if (!o || !(c = chain_add(k, n))) return NULL;
        memcpy(c->ix, o->ix, sizeof c->ix);
        c->value = o->value;
        return c;
    }
    if (sn_is_elementwise(n)) {
        if (!walk_elem(k, n, &made, depth)) return NULL;
    } else {
        if (!is_step(n)) return NULL;
        score_step *x = walk(k, n->in[0], depth - 1);
        if (!x) return NULL;
        x->uses++;
        made.value = x->value;
        if (!sn_index_push(n, x->ix, made.ix)) return NULL;
    }
    if (!(c = chain_add(k, n))) return NULL;
    *c = made;
    return c;
}

/* Indices (with `element`, values) of the chain, given those of the scores. */
static score_step *walk_chain(ra_match *k, const sn_index *ix, sn_element *element) {
    k->n_chain = 0;
    k->element = element;
    score_step *c = chain_add(k, k->scores);
    memcpy(c->ix, ix, sizeof *ix * k->scores->rank);
    c->value = k->score_value;
    return walk(k, k->top, MAX_DEPTH);
}

/* Indices of the second product's operand, through the views between it and softmax. */
static score_step *walk_weights(ra_match *k) {
    sn_node *view[MAX_DEPTH];
    int n = 0;
    for (sn_node *v = k->weights; v != k->softmax; v = v == k->guard ? k->softmax : v->in[0]) {
        if (n == MAX_DEPTH) return NULL;
        view[n++] = v;
    }
    score_step *from = chain_find(k, k->top), *c = from;
    if (!from) return NULL;
    from->uses += k->more_uses;
    if (k->softmax != k->top) {
        if (!(c = chain_add(k, k->softmax))) return NULL;
        from->uses++;
        memcpy(c->ix, from->ix, sizeof c->ix);
    }
    while (n > 0) {
        score_step *next = chain_add(k, view[--n]);
        if (!next) return NULL;
        if (next->n == k->guard) {
            memcpy(next->ix, c->ix, sizeof c->ix);
            c->uses += 2; /* of the comparison */
        } else if (!sn_index_push(next->n, c->ix, next->ix))
            return NULL;
        c->uses++;
        c = next;
    }
    c->uses++;
    return c;
}

/* ---- pieces ---- */

static sn_node *stand_in(ra_match *k, int i) {
    return sn_arg(k->m, STAND_IN + i, SN_I32, 0, NULL);
}

/* Which axis of the scores is the keys', and which operand is q. */
static bool find_key_axis(ra_match *k) {
    sn_index ix[SN_MAX_RANK];
    int from[2];
    for (int i = 0; i < k->scores->rank; i++)
        ix[i] = sn_index_whole(stand_in(k, i), k->scores->shape[i]);
    const score_step *c = walk_chain(k, ix, NULL) ? walk_weights(k) : NULL;
    const sn_attr *contract = ra_contract_of(k->product, k->side);
    if (!c || !contract || contract->n != 1) return false;
    const sn_index *key = &c->ix[contract->v[0]];
    bool softmax = k->kind == SN_WEIGHTS_SOFTMAX; /* its axis, even where it has one element */
    if (softmax)
        key = &chain_find(k, k->top)->ix[sn_attr_int(k->softmax, SN_A_axis, k->top->rank - 1)];
    for (int i = 0; i < k->scores->rank; i++) {
        if (!sn_index_is(key, stand_in(k, i))) continue;
        ra_result_axis(k->scores, i, from);
        k->key_axis = i;
        k->q_side = from[0] < 0 ? 0 : 1;
        return (from[0] < 0) != (from[1] < 0);
    }
    return false;
}

static bool add_piece(ra_match *k, int axis, sn_dim size, bool in_k) {
    if (k->n_piece == MAX_PIECES) return false;
    k->piece[k->n_piece] = (operand_part){.axis = axis, .size = size, .in_k = in_k};
    k->n_piece++;
    return true;
}

/* The sizes that a reshape merged into axis `axis` of x; returns their number, 1 if none. Heads
 * repeated for their queries count as one axis: region.c removes the repetition. */
static int merged_sizes(ra_match *k, const sn_node *x, int axis, sn_dim *size) {
    size[0] = x->shape[axis];
    while (x->op == SN_OP_transpose) {
        axis = (int)sn_attr_get(x, SN_A_perm)->v[axis];
        x = x->in[0];
    }
    if (x->op != SN_OP_reshape) return 1;
    const sn_node *y = x->in[0];
    sn_index ix[SN_MAX_RANK], out[SN_MAX_RANK];
    for (int i = 0; i < y->rank; i++) ix[i] = sn_index_whole(stand_in(k, i), y->shape[i]);
    if (!sn_index_reshape(k->m, y->rank, ix, x->rank, x->shape, out)) return 1;
    for (int i = 0; i < out[axis].n; i++) {
        const sn_digit *d = &out[axis].d[i];
        if (d->size != d->total) return 1; /* y's axis is itself split */
        for (int a = 0; a < y->rank; a++)
            if (d->src == stand_in(k, a) && ra_repeats(y, a)) return 1;
    }
    if (out[axis].n < 2) return 1;
    for (int i = 0; i < out[axis].n; i++) size[i] = out[axis].d[i].size;
    return out[axis].n;
}

static bool make_pieces(ra_match *k) {
    sn_dim size[SN_MAX_DIGITS];
    int from[2];
    k->n_piece = 0;
    for (int i = 0; i < k->scores->rank; i++) {
        if (i == k->key_axis) continue;
        ra_result_axis(k->scores, i, from);
        int q = from[k->q_side], key = from[1 - k->q_side];
        if (q < 0) return false; /* keys with an axis that queries do not have */
        int n = merged_sizes(k, k->scores->in[k->q_side], q, size);
        const sn_node *keys = k->scores->in[1 - k->q_side];
        if (n == 1 && key >= 0) n = merged_sizes(k, keys, key, size);
        for (int j = 0; j < n; j++)
            if (!add_piece(k, i, size[j], key >= 0 && !ra_repeats(keys, key))) return false;
    }
    return true;
}

/* Splits the piece that d is a part of, so that d is whole. False: it is whole already. */
static bool split_piece(ra_match *k, const sn_digit *d) {
    for (int i = 0; i < k->n_piece; i++) {
        sn_dim part[3], high;
        int n = 0;
        if (k->piece[i].var != d->src || d->size == d->total) continue;
        if (!sn_dim_div(k->m, d->total, sn_dim_mul(k->m, d->low, d->size), &high)) return false;
        if (high != 1) part[n++] = high;
        part[n++] = d->size;
        if (d->low != 1) part[n++] = d->low;
        if (k->n_piece + n - 1 > MAX_PIECES) return false;
        operand_part old = k->piece[i];
        memmove(k->piece + i + n, k->piece + i + 1,
                sizeof *k->piece * (size_t)(k->n_piece - i - 1));
        k->n_piece += n - 1;
        for (int j = 0; j < n; j++) {
            k->piece[i + j] = old;
            k->piece[i + j].size = part[j];
        }
        return true;
    }
    return false;
}

static void score_indices(const ra_match *k, const sn_index *piece_ix, sn_index *ix) {
    memset(ix, 0, sizeof *ix * SN_MAX_RANK);
    for (int i = 0; i < k->n_piece; i++) sn_index_append(k->m, &ix[k->piece[i].axis], &piece_ix[i]);
    ix[k->key_axis] = sn_index_whole(k->key_var, k->scores->shape[k->key_axis]);
}

/* Whether v varies along the axis that corresponds to the weights' axis a. */
static bool values_have(const ra_match *k, int a) {
    const sn_attr *bw = ra_batch_of(k->product, k->side),
                  *bv = ra_batch_of(k->product, 1 - k->side);
    for (int i = 0; bw && i < bw->n; i++)
        if (bw->v[i] == a) return !ra_repeats(k->product->in[1 - k->side], (int)bv->v[i]);
    return false;
}

/* Marks the pieces that v has. Pieces that the second product treats in parts are split, and *again
 * is set. */
static bool mark_values(ra_match *k, bool *again) {
    sn_index piece_ix[MAX_PIECES], ix[SN_MAX_RANK];
    *again = false;
    for (int i = 0; i < k->n_piece; i++) {
        k->piece[i].var = stand_in(k, 16 + i);
        k->piece[i].in_v = false;
        piece_ix[i] = sn_index_whole(k->piece[i].var, k->piece[i].size);
    }
    k->key_var = stand_in(k, 15);
    score_indices(k, piece_ix, ix);
    score_step *w = walk_chain(k, ix, NULL) ? walk_weights(k) : NULL;
    if (!w) return false;
    const sn_attr *contract = ra_contract_of(k->product, k->side);
    if (!contract || contract->n != 1) return false;
    const sn_index *key = &w->ix[contract->v[0]];
    bool one_key = k->scores->shape[k->key_axis] == 1;
    if (!sn_index_is(key, k->key_var) && !(one_key && key->n == 0)) return false;
    for (int a = 0; a < k->weights->rank; a++)
        for (int i = 0; i < w->ix[a].n; i++) {
            const sn_digit *d = &w->ix[a].d[i];
            if (d->src == k->key_var) continue;
            if (split_piece(k, d)) return *again = true;
            for (int j = 0; j < k->n_piece && values_have(k, a); j++)
                k->piece[j].in_v |= k->piece[j].var == d->src;
        }
    return true;
}

/* How likely a piece that only queries have is the query axis: run-time sizes first, then the
 * single query of a decoding step, then the last one. */
static int query_rank(const ra_match *k, int i) {
    const operand_part *p = &k->piece[i];
    if (p->in_k || p->in_v) return 0;
    if (!sn_dim_is_const(k->m, p->size, NULL)) return 3;
    return p->size == 1 ? 2 : 1;
}

/* One of the pieces that only queries have is the query, the others are groups of heads. */
static void assign_roles(ra_match *k) {
    int query = -1;
    for (int i = 0; i < k->n_piece; i++)
        if (query_rank(k, i) && (query < 0 || query_rank(k, i) >= query_rank(k, query))) query = i;
    for (int i = 0; i < k->n_piece; i++) {
        operand_part *p = &k->piece[i];
        p->role = p->in_k || p->in_v ? BATCH : i == query ? QUERY : GROUP;
    }
}

/* ---- the node ---- */

/* Indices of the pieces from b, h and q. */
static void piece_indices(const ra_match *k, const ra_order *o, const sn_score_args *a,
                          sn_index *ix) {
    sn_dim H = sn_dim_mul(k->m, o->Hk, o->G), low[3] = {1, 1, 1}, total[3] = {o->B, H, o->Tq};
    sn_node *src[3] = {a->b, a->h, a->q};
    for (int i = k->n_piece - 1; i >= 0; i--) {
        int which = i < o->n_outer ? 0 : i < o->n_batch + o->n_group ? 1 : 2;
        const operand_part *p = &k->piece[o->index[i]];
        ix[o->index[i]].n = p->size != 1;
        ix[o->index[i]].d[0] = (sn_digit){src[which], low[which], p->size, total[which]};
        low[which] = sn_dim_mul(k->m, low[which], p->size);
    }
}

/* The piece of the heads that mix; -1: they are not heads of q, k or v. */
static int find_head(const ra_match *k) {
    sn_dim low = 1;
    for (int i = k->n_piece - 1; i >= 0; i--) {
        const operand_part *p = &k->piece[i];
        if (p->axis != k->mix->axis) continue;
        if (low == k->mix->low && p->size == k->mix->size) return p->role == BATCH ? i : -1;
        low = sn_dim_mul(k->m, low, p->size);
    }
    return -1;
}

/* The first node of the chain with another user; NULL: none. */
static const sn_node *find_other_user(ra_match *k) {
    for (int i = 0; i < k->n_chain; i++) {
        const sn_node *n = k->chain[i].n;
        if (sn_raise_uses(k->r, n) > k->chain[i].uses + (k->lse && n == k->top)) return n;
    }
    return NULL;
}

/* The logsumexp that reads the softmax's operand, too: attention has it as a second result. */
static sn_node *find_lse(const ra_match *k) {
    if (k->kind != SN_WEIGHTS_SOFTMAX || k->sink || k->mix) return NULL;
    const int64_t axis = sn_attr_int(k->softmax, SN_A_axis, k->top->rank - 1);
    for (int i = 0; i < k->r->order.n; i++) {
        sn_node *n = k->r->order.node[i];
        if (n->op == SN_OP_logsumexp && n->in[0] == k->top && k->r->users[n->id] &&
            sn_attr_int(n, SN_A_axis, n->rank - 1) == axis)
            return n;
    }
    return NULL;
}

/* The entry that reads n most often, where its other users are. */
static const sn_order *entry_with_users(const ra_match *k, const sn_node *n) {
    const sn_raiser *r = k->r;
    int maximum = -1;
    const sn_order *found = &r->order;
    for (int e = 0; e < r->n_entry; e++) {
        int uses = 0;
        for (int i = 0; i < r->of_entry[e].n; i++)
            for (int j = 0; j < r->of_entry[e].node[i]->n_in; j++)
                uses += r->of_entry[e].node[i]->in[j] == n;
        if (uses > maximum) maximum = uses, found = &r->of_entry[e];
    }
    return found;
}

/* The first operation of the entry that reads n and is not part of the match; NULL: there is none. */
static const sn_node *reader_beside(ra_match *k, const sn_order *entry, const sn_node *n) {
    for (int i = 0; i < entry->n; i++) {
        const sn_node *u = entry->node[i];
        for (int j = 0; j < u->n_in; j++)
            if (u->in[j] == n && u != k->product && !chain_find(k, u)) return u;
    }
    return NULL;
}

/* What needs n beside the match: the first operation that is not elementwise, or the last one that is;
 * NULL: an output. */
static const sn_node *other_reader(ra_match *k, const sn_node *n) {
    const sn_order *entry = entry_with_users(k, n);
    const sn_node *reader = reader_beside(k, entry, n), *next = reader;
    for (int i = 0; next && i < MAX_DEPTH; i++) {
        if (!is_step(reader) && !sn_element_opened((sn_node *)(uintptr_t)reader)) break;
        if ((next = reader_beside(k, entry, reader))) reader = next;
    }
    return reader;
}

/* Reports once why the product did not become attention. `what`: the node in the way. */
static void remark(sn_raiser *r, const sn_node *product, const sn_node *what, const char *why,
                   const char *advice) {
    char text[900];
    snprintf(text, sizeof text, "no attention kernel: its %s %s, so the weights stay in memory%s%s",
             sn_name_with_place(what), why, advice ? ". " : "", advice ? advice : "");
    for (int i = 0; i < r->p->n_remark; i++)
        if (r->p->remark[i].node == product && !strcmp(r->p->remark[i].text, text)) return;
    sn_remark_add(r->p, "raise", product, true, "%s", text);
}

/* Without a softmax only a tensor of queries and keys, both of run-time size, is worth a remark. */
static bool is_expected(const ra_match *k) {
    if (k->kind == SN_WEIGHTS_SOFTMAX) return true;
    bool queries = false;
    for (int i = 0; i < k->n_piece; i++)
        queries |= !k->piece[i].in_k && !sn_dim_is_const(k->m, k->piece[i].size, NULL);
    return queries && !sn_dim_is_const(k->m, k->scores->shape[k->key_axis], NULL);
}

static void remark_reader(ra_match *k, const sn_node *what) {
    if (!is_expected(k)) return;
    const sn_node *reader = other_reader(k, what);
    ra_way way = {.beside = true, .keys = k->scores->shape[k->key_axis]};
    for (int i = 0; i < k->n_chain; i++) way.exponential |= k->chain[i].n->op == SN_OP_exp;
    const char *advice = ra_advice_on(reader, &way);
    remark(k->r, k->product, what,
           sn_arena_printf(k->m, "is needed elsewhere, by %s",
                           reader ? sn_name_with_place(reader) : "an output"),
           advice ? sn_arena_printf(k->m, "Instead: %s", advice) : "This has no fused form");
}

/* Whether dropout numbers the weights by batch, head, query and key. */
static bool in_order(ra_match *k, const ra_order *o) {
    const score_step *c = chain_find(k, k->dropped);
    int next = 0, n = k->n_piece;
    for (int a = 0; c && a < k->dropped->rank; a++)
        for (int i = 0; i < c->ix[a].n; i++) {
            const sn_digit *d = &c->ix[a].d[i];
            if (d->size == 1) continue;
            while (next < n && k->piece[o->index[next]].size == 1) next++;
            const sn_node *want = next < n ? k->piece[o->index[next]].var : k->key_var;
            if (next > n || d->src != want || d->size != d->total) return false;
            next++;
        }
    return c != NULL;
}

/* The logsumexp becomes attention's y. */
static bool take_lse(ra_match *k, const ra_order *o, const score_step *top, sn_node *y) {
    sn_node *lse = y->op == SN_OP_attention ? sn_b_attention_lse(y) : NULL;
    lse = lse ? ra_arrange_lse(k, o, top, lse) : NULL;
    if (!lse || lse->dtype != k->lse->dtype || sn_module_error(k->m)->code) return false;
    k->r->replacement[k->lse->id] = lse;
    return k->r->has_replacement = true;
}

/* The replacement of the second product; NULL: it is not attention with these scores. */
static sn_node *try_match(ra_match *k) {
    bool again = true;
    if (k->scores->dtype != k->product->dtype || k->softmax->dtype != k->product->dtype ||
        !sn_match_float(k->product) || !find_key_axis(k) || !make_pieces(k))
        return NULL;
    for (int round = 0; again; round++)
        if (round == MAX_PIECES || !mark_values(k, &again)) return NULL;
    k->lse = find_lse(k);
    if (find_other_user(k)) {
        remark_reader(k, find_other_user(k));
        return NULL;
    }
    assign_roles(k);
    if (k->mix && (k->head = find_head(k)) < 0) return NULL;
    ra_order o = ra_order_pieces(k);
    if (k->mix && (o.G != 1 || o.Hk != k->mix->size)) return NULL;
    const score_step *w = chain_find(k, k->weights);
    ra_operands x;
    if (k->dropped && !in_order(k, &o)) {
        remark(k->r, k->product, k->dropped, "numbers weights in an order other than b, h, q, k",
               NULL);
        return NULL;
    }
    if (!w || !ra_make_operands(k, &o, w, &x)) return NULL;

    sn_node *sink = NULL;
    if (k->sink && !(sink = ra_make_sink(k, &o, chain_find(k, k->softmax)))) return NULL;

    sn_score_args a = sn_score_args_make(k->m, (sn_dtype)k->scores->dtype);
    sn_index piece_ix[MAX_PIECES], ix[SN_MAX_RANK];
    score_step weights = *w; /* its index in pieces; walks the chain again */
    score_step top = *chain_find(k, k->top);
    piece_indices(k, &o, &a, piece_ix);
    sn_node *key_var = k->key_var;
    k->key_var = a.k;
    k->score_value = a.score;
    score_indices(k, piece_ix, ix);
    const score_step *c = walk_chain(k, ix, sn_element_new(k->m));
    k->key_var = key_var;
    sn_node *y = NULL;
    if (c && c->value) {
        sn_node *w = k->factor == 1 ? c->value : sn_b_scalar(SN_OP_mul, c->value, k->factor);
        y = sn_attention_make(x.q, x.k, x.v, &a, w, k->kind, sink, k->dropped,
                              k->mix ? k->mix->matrix : NULL);
    }
    if (y && k->kind != SN_WEIGHTS_SOFTMAX && !ra_is_worth(y)) return NULL;
    if (y && k->lse && !take_lse(k, &o, &top, y)) return NULL;
    y = y ? ra_arrange_result(k, &o, &weights, &x, y) : NULL;
    return y && k->outside != 1 ? sn_b_scalar(SN_OP_mul, y, k->outside) : y;
}

bool sn_raise_wants_attention(const sn_raiser *r) {
    const sn_pass_options *o = &r->p->o;
    return o->only || (sn_level_reaches(o->level, sn_kernels[SN_KERNEL_flash].level) &&
                       !sn_backend_wanted(r->p));
}

/* Looks for the product of the scores below weights that k describes. */
static sn_node *match_below(ra_match *k) {
    sn_node *found[4];
    uint8_t *seen = sn_marks_open(k->m);
    int count = find_products(k->top, seen, found, 0, 4);
    sn_marks_close(k->m, seen);
    for (int i = 0; i < count; i++) {
        k->scores = found[i];
        k->above = sn_marks_open(k->m);
        bool may = k->kind == SN_WEIGHTS_SOFTMAX || ra_may_be_plain(k);
        sn_node *y = may ? try_match(k) : NULL;
        sn_marks_close(k->m, k->above);
        if (y || sn_module_error(k->m)->code) return y;
    }
    return NULL;
}

static ra_match *begin_match(sn_raiser *r, sn_node *product, int side) {
    if (!r->scratch) r->scratch = sn_arena_alloc(r->m, sizeof(ra_match));
    ra_match *k = r->scratch;
    k->r = r;
    k->m = r->m;
    k->product = product;
    k->weights = product->in[side];
    k->side = side;
    k->more_uses = 0;
    k->factor = k->outside = 1;
    k->dropped = k->sink = k->lse = k->guard = NULL;
    k->mix = NULL;
    k->head = -1;
    return k;
}

/* The softmax whose rows of NaN are 0 in w, as attention has them anyway: where(p != p, 0, p); else w. */
static sn_node *below_guard(sn_node *w) {
    const sn_node *p = w->op == SN_OP_select ? w->in[2] : NULL, *is_nan = p ? w->in[0] : NULL;
    const bool guards = p && p->op == SN_OP_softmax && is_nan->op == SN_OP_ne &&
                        is_nan->in[0] == p && is_nan->in[1] == p && sn_match_value(w->in[1], 0);
    return guards ? w->in[2] : w;
}

sn_node *ra_raise_product(sn_raiser *r, sn_node *product, int side, const ra_mix *mix) {
    ra_match *k = begin_match(r, product, side);
    sn_node *w = sn_below_moves(product->in[side]);
    k->mix = mix;
    if (w->op == SN_OP_dropout) {
        k->dropped = w;
        w = sn_below_moves(w->in[0]);
    }
    if (below_guard(w) != w) {
        k->guard = w;
        w = below_guard(w);
    }
    if (w->op == SN_OP_softmax) {
        k->kind = SN_WEIGHTS_SOFTMAX;
        k->softmax = w;
        k->top = w->in[0];
        k->sink = w->n_in > 1 ? w->in[1] : NULL;
    } else {
        ra_plain_weights(k, w);
    }
    if (mix && (k->kind != SN_WEIGHTS_SOFTMAX || k->sink || k->dropped)) return NULL;
    return match_below(k);
}

/* dot(softmax(f(dot(q, k))), v) = attention(q, k, v) with f as its regions; without softmax, f gives
 * the weights */
sn_node *sn_raise_attention(sn_raiser *r, sn_node *n) {
    if (!sn_raise_wants_attention(r)) return NULL;
    for (int side = 0; side < 2; side++) {
        sn_node *y = ra_raise_product(r, n, side, NULL);
        if (y || sn_module_error(r->m)->code) return y;
    }
    return NULL;
}

/* Factor i of n is a product whose weights' rows factor j divides: attention, times the other
 * factors. */
static sn_node *raise_divided(sn_raiser *r, sn_node *n, sn_node *const *f, int i, int j) {
    ra_rows rows;
    sn_node *dot = f[i];
    if (dot->op != SN_OP_dot || !sn_shapes_equal(dot, n) || sn_raise_uses(r, dot) > 1 ||
        !ra_row_divisor(f[j], &rows) || sn_match_below(f[j])->rank != n->rank)
        return NULL;
    for (int side = 0; side < 2; side++) {
        const sn_attr *over = ra_contract_of(dot, side);
        if (dot->in[side] != rows.sum.weights || !over || over->n != 1 ||
            over->v[0] != rows.sum.axis || !ra_goes_with(sn_match_below(f[j]), dot, side))
            continue;
        ra_match *k = begin_match(r, dot, side);
        ra_divide_by(k, &rows, 1);
        k->softmax = k->top;
        sn_node *y = match_below(k);
        if (y) return y;
    }
    return NULL;
}

/* dot(w, v) / sum(w) = attention with the weights w / sum(w), where both sum over the same axis */
sn_node *sn_raise_divide_attention(sn_raiser *r, sn_node *n) {
    sn_node *f[6], *y = NULL;
    double c;
    int count =
        sn_raise_wants_attention(r) && sn_match_float(n) ? sn_match_factors(n, NULL, f, 6, &c) : -1;
    for (int i = 0; i < count; i++)
        for (int j = 0; j < count; j++) {
            if (i == j || !(y = raise_divided(r, n, f, i, j))) continue;
            f[i] = f[j] = NULL;
            return sn_raise_times(y, count, f, c);
        }
    return NULL;
}

/* Converts attention with callbacks to the form that plain operations get. */
sn_node *sn_raise_settle_attention(sn_node *n) {
    if (sn_attr_get(n, SN_A_mesh)) return NULL; /* what its order depends on would be lost */
    return sn_attention_canonical(n, 1);
}

/* attention(..) c with weights that nothing divides = attention with c times these weights */
sn_node *sn_raise_scale_weights(sn_raiser *r, sn_node *n) {
    double c;
    sn_node *y = sn_match_scaled(n, &c);
    if (y == n || y->op != SN_OP_attention || sn_raise_uses(r, y) > 1 ||
        sn_attr_int(y, SN_A_weights, SN_WEIGHTS_SOFTMAX) != SN_WEIGHTS_PLAIN)
        return NULL;
    return sn_attention_canonical(y, c);
}

/* The log-sum-exp keeps to the form of its attention: one kernel computes both. */
sn_node *sn_raise_settle_lse(sn_node *n) {
    return n->in[0]->op == SN_OP_attention ? sn_b_attention_lse(n->in[0]) : NULL;
}
