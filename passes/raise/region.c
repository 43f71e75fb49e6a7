/* region.c: builds a canonical attention node from an expression of one score (region.h). */
#include "passes/raise/region.h"
#include "passes/graph_util.h"
#include "passes/holds.h"
#include "passes/match.h"
#include "passes/simplify/simplify.h"

#include <math.h>
#include <string.h>

enum { MAX_CAPTURED = 16, MAX_TERMS = 32, STAND_IN = 1000 /* argument index of placeholders */ };

sn_score_args sn_score_args_make(sn_module *m, sn_dtype t) {
    return (sn_score_args){.score = sn_arg(m, STAND_IN, t, 0, NULL),
                           .b = sn_arg(m, STAND_IN + 1, SN_I32, 0, NULL),
                           .h = sn_arg(m, STAND_IN + 2, SN_I32, 0, NULL),
                           .q = sn_arg(m, STAND_IN + 3, SN_I32, 0, NULL),
                           .k = sn_arg(m, STAND_IN + 4, SN_I32, 0, NULL)};
}

/* ---- captured tensors ---- */

typedef struct capture {
    sn_node *node[MAX_CAPTURED];
    int n;
    bool full;
    uint8_t *seen; /* by id */
} capture;

static int compare_nodes(const sn_node *a, const sn_node *b) {
    if (a->depth != b->depth) return a->depth < b->depth ? -1 : 1;
    if (a->hash != b->hash) return a->hash < b->hash ? -1 : 1;
    return (a->id > b->id) - (a->id < b->id);
}

/* Inserts into the sorted list. */
static void add_capture(capture *c, sn_node *n) {
    for (int i = 0; i < c->n; i++)
        if (c->node[i] == n) return;
    if (c->n == MAX_CAPTURED) {
        c->full = true;
        return;
    }
    int i = c->n++;
    for (; i > 0 && compare_nodes(n, c->node[i - 1]) < 0; i--) c->node[i] = c->node[i - 1];
    c->node[i] = n;
}

static bool is_stand_in(const sn_node *n) {
    return n->op == SN_OP_arg && sn_attr_int(n, SN_A_index, 0) >= STAND_IN;
}

static void find_captured(capture *c, sn_node *n) {
    const sn_group scores = {.kernel = SN_KERNEL_flash};
    if (c->seen[n->id]) return;
    c->seen[n->id] = 1;
    if (is_stand_in(n)) return;
    bool outside = n->op == SN_OP_arg || sn_kernel_refuses(&scores, SN_IN_SCORE, n);
    if (outside || sn_reads_far(n, 0)) add_capture(c, outside ? n : n->in[0]);
    for (int i = sn_reads_far(n, 0); i < n->n_in && !outside; i++) find_captured(c, n->in[i]);
}

/* ---- the expression ---- */

static bool is_hiding(const sn_node *n) {
    return n->op == SN_OP_select && sn_match_value(n->in[2], -INFINITY);
}

/* The same of a weight, which is 0 where a key is hidden. */
static bool is_zeroing(const sn_node *n) {
    return n->op == SN_OP_select && sn_match_value(n->in[2], 0);
}

/* A hidden key stays hidden, whatever is added to it and by whatever positive number it is
 * scaled. */
static sn_node *float_mask(void *ctx, sn_node *n) {
    double c;
    (void)ctx;
    n = sn_simplify_node(n, SN_LEVEL_HIGHEST);
    bool sum = n->op == SN_OP_add || n->op == SN_OP_sub;
    for (int i = 0; i < 2; i++) {
        if (!(sum && (i == 0 || n->op == SN_OP_add)) &&
            !(i == 0 && n->op == SN_OP_mul && sn_match_const(n->in[1], &c) && c > 0) &&
            !(i == 0 && n->op == SN_OP_cast && sn_dtype_is_float((sn_dtype)n->dtype)))
            continue;
        const sn_node *s = n->in[i];
        if (!is_hiding(s)) continue;
        sn_node *in[2] = {n->in[0], n->n_in > 1 ? n->in[1] : NULL};
        in[i] = s->in[1];
        return sn_b_select(s->in[0], sn_node_with(n, in),
                           sn_b_const(n->m, (sn_dtype)n->dtype, -INFINITY));
    }
    return n;
}

/* A number that a hidden key's score or weight may have. */
static bool is_none(double x) {
    return x == 0 || x == -INFINITY;
}

/* n where operand i is `none` instead; NAN: not known. */
static double value_of_hidden(const sn_node *n, int i, double none) {
    double x[3] = {0};
    bool known = true;
    for (int j = 0; j < n->n_in; j++) {
        if (j == i)
            x[j] = none;
        else
            known &= sn_match_const(n->in[j], &x[j]);
    }
    if (known) return sn_elem_ref((sn_op)n->op, false, x[0], x[1], x[2]);
    if (n->op == SN_OP_mul && none == 0) return 0;
    bool sum = n->op == SN_OP_add || (n->op == SN_OP_sub && i == 0);
    return sum && none == -INFINITY ? none : NAN;
}

/* c ? none : x = not c ? x : none; x times c as a number = c ? x : 0 */
static sn_node *select_weight(sn_node *n) {
    double none;
    if (n->op == SN_OP_select && sn_match_const(n->in[1], &none) && is_none(none) &&
        !sn_match_const(n->in[2], &none))
        return sn_b_select(sn_b_unary(SN_OP_not, n->in[0]), n->in[2], n->in[1]);
    for (int i = 0; i < 2 && n->op == SN_OP_mul; i++) {
        const sn_node *c = n->in[i];
        if (c->op == SN_OP_cast && c->in[0]->dtype == SN_BOOL)
            return sn_b_select(c->in[0], n->in[1 - i], sn_b_const(n->m, (sn_dtype)n->dtype, 0));
    }
    return n;
}

/* Without softmax, the weight of a key that is hidden somewhere in the expression: f(c ? x : none)
 * = c ? f(x) : 0 where f(none) is 0, as that of sigmoid, exp and relu of -inf. */
static sn_node *float_zero(void *ctx, sn_node *n) {
    (void)ctx;
    n = select_weight(sn_simplify_node(n, SN_LEVEL_HIGHEST));
    if (!sn_is_elementwise(n) || n->op == SN_OP_select || n->n_in > 3 ||
        !sn_dtype_is_float((sn_dtype)n->dtype))
        return n;
    for (int i = 0; i < n->n_in; i++) {
        sn_node *s = n->in[i], *in[3];
        double none;
        if (s->op != SN_OP_select || !sn_match_const(s->in[2], &none) || !is_none(none)) continue;
        none = value_of_hidden(n, i, none);
        if (!is_none(none)) continue;
        for (int j = 0; j < n->n_in; j++) in[j] = j == i ? s->in[1] : n->in[j];
        return sn_b_select(s->in[0], sn_node_with(n, in),
                           sn_b_const(n->m, (sn_dtype)n->dtype, none));
    }
    return n;
}

/* ---- finite masks ---- */

enum { SCORE, INDEX_B, INDEX_H, INDEX_Q, INDEX_K, CAPTURED }; /* arguments of a region of scores */
#define HIDES (-1e30) /* what scores are far above: hidden keys that get this or less weigh 0 */

static const sn_node *uncast(const sn_node *n) {
    while (n->op == SN_OP_cast) n = n->in[0];
    return n;
}

static bool is_argument(const sn_node *n, int64_t index) {
    return n->op == SN_OP_arg && sn_attr_int(n, SN_A_index, -1) == index;
}

/* Whether n is q + more with more >= least. */
static bool is_query_from(sn_module *m, const sn_node *n, int64_t least) {
    double more;
    n = uncast(n);
    if (is_argument(n, INDEX_Q)) return least <= 0;
    if (n->op != SN_OP_add) return false;
    const int i = is_argument(uncast(n->in[1]), INDEX_Q);
    const sn_node *other = uncast(n->in[1 - i]);
    if (!is_argument(uncast(n->in[i]), INDEX_Q)) return false;
    if (sn_match_const(other, &more)) return more >= (double)least;
    return other->op == SN_OP_dim_value && sn_dim_lo(m, sn_attr_int(other, SN_A_dim, -1)) >= least;
}

/* Whether the condition is k <= q + n, or its contrary, q + n < k, with n >= 0: each query sees key 0. */
static bool sees_first_key(sn_module *m, const sn_node *c, bool contrary) {
    if (c->op != SN_OP_le && c->op != SN_OP_lt) return false;
    const bool strict = (c->op == SN_OP_lt) != contrary; /* k < q + n */
    return is_argument(uncast(c->in[contrary]), INDEX_K) &&
           is_query_from(m, c->in[!contrary], strict);
}

/* Whether n hides no key by a value: it reads no captured tensor and has no number like HIDES. */
static bool hides_nothing(const sn_node *n) {
    double c;
    if (sn_match_const(n, &c)) return fabs(c) < -HIDES;
    if (n->op == SN_OP_arg) return sn_attr_int(n, SN_A_index, CAPTURED) < CAPTURED;
    if (!sn_is_elementwise(n) && n->op != SN_OP_dim_value) return false;
    for (int i = 0; i < n->n_in; i++)
        if (!hides_nothing(n->in[i])) return false;
    return true;
}

/* c ? x : v, or x + (c ? 0 : v), with a number v <= HIDES: a key that is hidden by such a v weighs 0, as
 * with -inf, if the query sees another key. */
static sn_node *hide_by_infinity(sn_module *m, sn_node *n) {
    double v;
    sn_node *x = n, *s = n;
    for (int i = 0; i < 2 && n->op == SN_OP_add; i++)
        if (n->in[i]->op == SN_OP_select) s = n->in[i], x = n->in[1 - i];
    if (s->op != SN_OP_select) return n;
    const bool contrary = sn_match_const(s->in[1], &v) && v <= HIDES; /* c ? v : x */
    sn_node *shown = s->in[contrary ? 2 : 1];
    if (!sn_match_const(s->in[contrary ? 1 : 2], &v) || !(v <= HIDES) || isinf(v)) return n;
    if (s == n)
        x = shown;
    else if (!sn_match_value(shown, 0))
        return n;
    if (!sees_first_key(m, s->in[0], contrary) || !hides_nothing(x)) return n;
    sn_node *sees = contrary ? sn_b_unary(SN_OP_not, s->in[0]) : s->in[0];
    return sn_b_select(sees, x, sn_b_const(m, (sn_dtype)n->dtype, -INFINITY));
}

typedef struct terms {
    sn_node *node[MAX_TERMS];
    int n;
} terms;

/* The conditions joined by `and`, sorted, each once. False: too many. */
static bool split_and(terms *t, sn_node *c) {
    if (c->op == SN_OP_and) return split_and(t, c->in[0]) && split_and(t, c->in[1]);
    int i = 0;
    while (i < t->n && compare_nodes(t->node[i], c) < 0) i++;
    if (i < t->n && t->node[i] == c) return true;
    if (t->n == MAX_TERMS) return false;
    memmove(t->node + i + 1, t->node + i, sizeof *t->node * (size_t)(t->n - i));
    t->node[i] = c;
    t->n++;
    return true;
}

static sn_node *join_and(sn_node *mask, sn_node *c) {
    return mask ? sn_b_binary(SN_OP_and, mask, c) : c;
}

/* Removes from *value the masks that do not depend on the score, down to a term that does. NULL:
 * there is none. plain: the value is a weight. */
static sn_node *peel_masks(sn_module *m, sn_node **value, const sn_node *score, bool plain) {
    terms t = {.n = 0}, c;
    sn_node *mask = NULL, *rest = NULL;
    while (!rest && (is_hiding(*value) || (plain && is_zeroing(*value)))) {
        terms more = t;
        c.n = 0;
        if (!split_and(&c, (*value)->in[0])) break;
        bool fits = true;
        for (int i = 0; i < c.n && fits; i++) {
            if (sn_depends_on(m, c.node[i], score))
                rest = join_and(rest, c.node[i]);
            else
                fits = split_and(&more, c.node[i]);
        }
        if (!fits || (rest && more.n == t.n)) break;
        t = more;
        *value = rest ? sn_b_select(rest, (*value)->in[1], (*value)->in[2]) : (*value)->in[1];
    }
    for (int i = 0; i < t.n; i++) mask = join_and(mask, t.node[i]);
    return mask;
}

typedef struct rescale {
    sn_node *score, *scaled;
} rescale;

static sn_node *drop_scale(void *ctx, sn_node *n) {
    const rescale *r = ctx;
    return n == r->scaled ? r->score : n;
}

/* c > 0 if the score is only used as score * c; then *value uses the score itself. 1 otherwise. */
static double take_scale(sn_module *m, sn_node **value, sn_node *score) {
    double c = 1;
    sn_node *scaled = NULL;
    sn_order order = sn_topo(m, 1, value);
    for (int i = 0; i < order.n; i++) {
        sn_node *n = order.node[i];
        for (int j = 0; j < n->n_in; j++) {
            if (n->in[j] != score) continue;
            if (scaled || n->op != SN_OP_mul || !sn_match_const(n->in[1], &c)) return 1;
            scaled = n;
        }
    }
    if (!scaled || !(c > 0) || isinf(c) || *value == score) return 1;
    sn_rewrite(m, 1, value, drop_scale, &(rescale){score, scaled});
    return c;
}

/* A factor that equals 1 / sqrt d up to rounding is replaced by it. */
static double settle_scale(sn_module *m, double c, sn_dim d) {
    int64_t width;
    if (!sn_dim_is_const(m, d, &width) || width < 1) return c;
    double usual = 1 / sqrt((double)width);
    return sn_match_near(c, usual) ? usual : c;
}

/* ---- repeated heads ---- */

/* [B,Hk,T,d] if n [B,H,T,d] repeats each of its heads H/Hk times in a row; NULL: it does not */
static sn_node *unrepeat_heads(sn_node *n) {
    int64_t perm[4] = {0, 1, 2, 3};
    sn_node *r = n;
    if (r->op == SN_OP_transpose) {
        memcpy(perm, sn_attr_get(r, SN_A_perm)->v, sizeof perm);
        r = r->in[0];
    }
    sn_node *spread = r->op == SN_OP_reshape ? r->in[0] : NULL;
    int axis = (int)perm[1]; /* of heads, in r; in `spread` that axis and the next one */
    if (!spread || spread->op != SN_OP_broadcast || r->rank != 4 || spread->rank != 5) return NULL;
    sn_node *x = spread->in[0];
    sn_dim few[5], one[4];
    for (int i = 0; i < 5; i++) {
        int j = i - (5 - x->rank);
        few[i] = j < 0 ? 1 : x->shape[j];
        sn_dim want = i <= axis ? (i < axis ? r->shape[i] : spread->shape[i])
                                : (i == axis + 1 ? spread->shape[i] : r->shape[i - 1]);
        if (spread->shape[i] != want || few[i] != (i == axis + 1 ? 1 : want)) return NULL;
    }
    for (int i = 0; i < 4; i++) one[i] = i <= axis ? few[i] : few[i + 1];
    return sn_b_transpose(sn_b_reshape(x, 4, one), 4, perm);
}

/* ---- the node ---- */

static const sn_region *make_region(sn_module *m, const sn_score_args *a, const capture *c,
                                    bool with_score, sn_node *out) {
    sn_node *cut[5 + MAX_CAPTURED];
    int n = 0;
    if (with_score) cut[n++] = a->score;
    cut[n++] = a->b;
    cut[n++] = a->h;
    cut[n++] = a->q;
    cut[n++] = a->k;
    for (int i = 0; i < c->n; i++) cut[n++] = c->node[i];
    return sn_region_extract(m, n, cut, 1, &out);
}

static capture capture_all(sn_module *m, sn_node *value, sn_node *mask) {
    capture c = {.n = 0, .seen = sn_arena_alloc(m, sn_module_node_count(m))};
    if (value) find_captured(&c, value);
    if (mask) find_captured(&c, mask);
    return c;
}

/* Simplifies the expression and extracts mask and scale. Uses a closed region, so that the graph
 * below the captured tensors is not walked. */
static bool settle(sn_module *m, const sn_score_args *a, bool plain, sn_node **value,
                   sn_node **mask, double *scale) {
    capture c = capture_all(m, *value, NULL);
    if (c.full) return false;
    const sn_region *r = make_region(m, a, &c, true, *value);
    if (sn_module_error(m)->code) return false;
    sn_node *out[2] = {r->out[0]};
    for (int round = 0; round < 64; round++)
        if (!sn_rewrite(m, 1, out, plain ? float_zero : float_mask, NULL)) break;
    if (!plain) out[0] = hide_by_infinity(m, out[0]);
    out[1] = peel_masks(m, &out[0], r->arg[0], plain);
    *scale = take_scale(m, &out[0], r->arg[0]);
    r = sn_region_new(m, r->n_arg, r->arg, out[1] ? 2 : 1, out);
    if (sn_module_error(m)->code) return false;
    sn_node *arg[5 + MAX_CAPTURED] = {a->score, a->b, a->h, a->q, a->k};
    for (int i = 0; i < c.n; i++) arg[5 + i] = c.node[i];
    sn_region_inline(r, arg, out);
    *value = out[0];
    *mask = out[1];
    return true;
}

sn_node *sn_attention_make(sn_node *q, sn_node *k, sn_node *v, const sn_score_args *a,
                           sn_node *value, sn_weights_kind weights, sn_node *sink,
                           const sn_node *dropped, sn_node *const mix[2]) {
    sn_module *m = q->m;
    sn_node *mask = NULL;
    double scale;
    if (!settle(m, a, weights != SN_WEIGHTS_SOFTMAX, &value, &mask, &scale)) return NULL;
    scale = settle_scale(m, scale, q->shape[3]);
    capture c = capture_all(m, value, mask);
    for (int i = 0; i < c.n; i++) /* would widen the computation */
        c.full |= c.node[i]->dtype == SN_F64 && q->dtype != SN_F64;
    if (c.full) return NULL;
    sn_node *few_k = unrepeat_heads(k), *few_v = unrepeat_heads(v);
    if (!mix && few_k && few_v && few_k->shape[1] == few_v->shape[1]) {
        k = few_k;
        v = few_v;
    }
    sn_node *in[7 + MAX_CAPTURED] = {q, k, v};
    int n_in = 3, which = 0;
    for (int i = 0; i < 2 && mix; i++) {
        if (!mix[i]) continue;
        in[n_in++] = mix[i];
        which |= 1 << i;
    }
    for (int i = 0; i < c.n; i++) in[n_in++] = c.node[i];
    sn_attr attr[8] = {SN_FLT(scale, scale)};
    int n_attr = 1;
    if (weights) attr[n_attr++] = SN_INT(weights, weights);
    if (value != a->score) attr[n_attr++] = SN_REG(score, make_region(m, a, &c, true, value));
    if (mask) attr[n_attr++] = SN_REG(mask, make_region(m, a, &c, false, mask));
    if (sink) {
        attr[n_attr++] = SN_INT(sink, 1);
        in[n_in++] = sink;
    }
    if (dropped) {
        attr[n_attr++] = SN_FLT(rate, sn_attr_flt(dropped, SN_A_rate, 0));
        attr[n_attr++] = SN_INT(stream, sn_attr_int(dropped, SN_A_stream, 0));
        in[n_in++] = dropped->in[dropped->n_in - 1];
    }
    if (which) attr[n_attr++] = SN_INT(mix, which);
    if (sn_module_error(m)->code) return NULL;
    return sn_node_new(m, which ? SN_OP_mixed_attention : SN_OP_attention, n_in, in, n_attr, attr);
}

/* The region's result over the placeholders and the captured tensors, operands from `first` on. */
static sn_node *open_region(sn_element *e, const sn_node *n, const sn_region *r, sn_node *score,
                            const sn_score_args *a, int first) {
    sn_node **arg = sn_arena_alloc(n->m, sizeof *arg * (size_t)(r->n_arg + 1)), *out;
    int k = 0;
    if (score) arg[k++] = score;
    arg[k++] = a->b;
    arg[k++] = a->h;
    arg[k++] = a->q;
    arg[k++] = a->k;
    for (int i = first; k < r->n_arg; i++) arg[k++] = n->in[i];
    sn_region_inline(r, arg, &out);
    return sn_element_of(e, out, NULL);
}

sn_node *sn_attention_canonical(sn_node *n, double factor) {
    sn_module *m = n->m;
    if (!sn_match_float(n->in[0])) return NULL;
    sn_dtype t = (sn_dtype)n->in[0]->dtype;
    for (int i = 1; i < 3; i++)
        if (n->in[i]->dtype != t) return NULL;
    int64_t width;
    const sn_attr *scale = sn_attr_get(n, SN_A_scale);
    const sn_region *score = sn_attr_region(n, SN_A_score), *mask = sn_attr_region(n, SN_A_mask);
    if (!scale && !sn_dim_is_const(m, n->in[0]->shape[3], &width)) return NULL;
    double c = scale ? scale->f : 1 / sqrt((double)width);
    sn_score_args a = sn_score_args_make(m, t);
    sn_element *e = sn_element_new(m);
    sn_node *value = c == 1 ? a.score : sn_b_scalar(SN_OP_mul, a.score, c);
    sn_node *mix[2] = {NULL, NULL};
    int first = 3, which = (int)sn_attr_int(n, SN_A_mix, 0);
    for (int i = 0; i < 2; i++)
        if (which >> i & 1) mix[i] = n->in[first++];
    if (score) value = open_region(e, n, score, value, &a, first);
    if (factor != 1) value = sn_b_scalar(SN_OP_mul, value, factor);
    if (mask)
        value = sn_b_select(open_region(e, n, mask, NULL, &a, first), value,
                            sn_b_const(m, t, -INFINITY));
    const sn_node *dropped = sn_attr_get(n, SN_A_rate) ? n : NULL;
    sn_weights_kind weights = (sn_weights_kind)sn_attr_int(n, SN_A_weights, SN_WEIGHTS_SOFTMAX);
    int sink = sn_attention_sink(n);
    return sn_attention_make(n->in[0], n->in[1], n->in[2], &a, value, weights,
                             sink < 0 ? NULL : n->in[sink], dropped, which ? mix : NULL);
}
