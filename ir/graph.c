/* graph.c: interned nodes. Only this file creates them. */
#include "ir/module_impl.h"

#include <math.h>
#include <string.h>

#define MAX_ATTR 16

static uint64_t hash_node(const void *p) {
    return ((const sn_node *)p)->hash;
}

static bool same_node(const void *item, const void *key) {
    const sn_node *a = item, *b = key;
    if (a->hash != b->hash || a->op != b->op || a->n_in != b->n_in || a->n_attr != b->n_attr)
        return false;
    for (int i = 0; i < a->n_in; i++)
        if (a->in[i] != b->in[i]) return false;
    for (int i = 0; i < a->n_attr; i++)
        if (!sn_attr_same(&a->attr[i], &b->attr[i])) return false;
    return true;
}

static uint64_t hash_of(const sn_node *key) {
    uint64_t h = key->op;
    for (int i = 0; i < key->n_in; i++) h = sn_hash_word(key->in[i]->hash, h);
    for (int i = 0; i < key->n_attr; i++) h = sn_attr_hash(key->m, &key->attr[i], h);
    return h;
}

static const sn_node *constant_of(const sn_node *n) {
    while (n->op == SN_OP_broadcast || n->op == SN_OP_reshape || n->op == SN_OP_cast) n = n->in[0];
    return n->op == SN_OP_const ? n : NULL;
}

static double scale_of(const sn_node *x) { /* |c| of x c; else 0 */
    const sn_node *c = x->op == SN_OP_mul ? constant_of(x->in[1]) : NULL;
    return c ? fabs(sn_attr_flt(c, SN_A_value, 0)) : 0;
}
/* The order of commutative operands: constants last, deeper ones first (x + bias), larger factors first
 * (a multiply-add rounds the same product whatever the shapes), by hash, by the order of creation. */
static bool comes_before(const sn_node *a, const sn_node *b) {
    bool ca = constant_of(a), cb = constant_of(b);
    if (ca != cb) return cb;
    if (a->depth != b->depth) return a->depth > b->depth;
    double x = scale_of(a), y = scale_of(b);
    return x != y ? x > y : a->hash != b->hash ? a->hash < b->hash : a->id < b->id;
}

static sn_node *check_operands(sn_module *m, sn_op op, int n_in, sn_node *const *in, int n_attr) {
    const sn_op_info *info = &sn_ops[op];
    if (m->error.code) return m->error_node;
    if (n_in < info->min_in || (info->max_in >= 0 && n_in > info->max_in) || n_attr > MAX_ATTR)
        return sn_module_fail(
            m, SN_ERR_USAGE, "%s: %d operands given, expected %s%d", info->name, n_in,
            info->max_in < 0 || info->max_in > info->min_in ? "at least " : "", info->min_in);
    if (n_in > UINT16_MAX)
        return sn_module_fail(m, SN_ERR_USAGE, "%s: %d operands given, expected at most %d",
                              info->name, n_in, UINT16_MAX);
    for (int i = 0; i < n_in; i++) {
        if (!in[i]) return sn_module_fail(m, SN_ERR_USAGE, "%s: operand %d is NULL", info->name, i);
        if (in[i]->m != m)
            return sn_module_fail(m, SN_ERR_USAGE, "%s: operand %d belongs to another module",
                                  info->name, i);
        if (in[i] == m->error_node) return m->error_node;
        if (in[i]->n_result > 1 && op != SN_OP_result)
            return sn_module_fail(m, SN_ERR_USAGE,
                                  "%s: operand %d (%s) has several results; select one with result",
                                  info->name, i, sn_ops[in[i]->op].name);
    }
    return NULL;
}

/* COMP and FUSED: the decomposition determines the types. Messages name the outermost composite. */
static bool expand(sn_module *m, const sn_node *key, int *n_result, sn_node **results) {
    const sn_node *outer = m->composite;
    if (!outer) m->composite = key;
    bool ok = sn_decompose(m, (sn_op)key->op, key->n_in, key->in, key->n_attr, key->attr, n_result,
                           results);
    m->composite = outer;
    return ok && !m->error.code;
}

static void register_node(sn_module *m, sn_node *n) {
    if (m->n_node == m->cap_node) {
        m->cap_node = m->cap_node ? m->cap_node * 2 : 256;
        m->node = sn_arena_resize(m, m->node, m->n_node, m->cap_node, sizeof *m->node);
        m->stamp = sn_arena_resize(m, m->stamp, m->n_node, m->cap_node, sizeof *m->stamp);
    }
    for (int i = 0; i < n->n_in; i++) {
        if (n->in[i]->depth >= n->depth) n->depth = n->in[i]->depth + 1;
        n->leaves |= n->in[i]->leaves;
        if (sn_ops[n->op].flags & SN_OPF_COLLECTIVE) n->leaves |= SN_LEAF_OTHER;
    }
    if (!n->n_in && n->op != SN_OP_const)
        n->leaves = n->op == SN_OP_param ? SN_LEAF_PARAM : SN_LEAF_OTHER;
    n->id = m->n_node;
    m->node[m->n_node++] = n;
}

static sn_node *make_node(sn_module *m, sn_op op, int n_in, sn_node *const *in, int n_attr,
                          const sn_attr *attr) {
    sn_node *bad = check_operands(m, op, n_in, in, n_attr);
    if (bad) return bad;
    sn_attr sorted[MAX_ATTR];
    sn_attrs_sort(sorted, n_attr, attr);
    sn_node *swapped[2];
    if ((sn_ops[op].flags & SN_OPF_COMM) && !m->raw && comes_before(in[1], in[0])) {
        swapped[0] = in[1];
        swapped[1] = in[0];
        in = swapped;
    }
    sn_node key = {.m = m,
                   .op = (uint16_t)op,
                   .n_in = (uint16_t)n_in,
                   .n_attr = (uint16_t)n_attr,
                   .in = in,
                   .attr = sorted};
    key.hash = hash_of(&key);
    sn_table_reserve(m, &m->nodes, hash_node);
    void **slot = sn_table_find(&m->nodes, key.hash, same_node, &key);
    if (*slot) return *slot;

    int n_result = 1;
    sn_type type[SN_MAX_RESULTS];
    sn_node *decomposition[SN_MAX_RESULTS];
    sn_op_kind kind = sn_ops[op].kind;
    if (kind == SN_COMP || kind == SN_FUSED) {
        if (!expand(m, &key, &n_result, decomposition)) return m->error_node;
        for (int i = 0; i < n_result; i++) {
            type[i] = (sn_type){.dtype = decomposition[i]->dtype, .rank = decomposition[i]->rank};
            if (type[i].rank)
                memcpy(type[i].shape, decomposition[i]->shape,
                       sizeof(sn_dim) * (size_t)type[i].rank);
        }
    } else {
        if (!sn_infer(m, op, n_in, in, n_attr, sorted, &n_result, type)) return m->error_node;
        for (int i = 0; n_result > 1 && i < n_result; i++)
            decomposition[i] = sn_arg(m, i, type[i].dtype, type[i].rank, type[i].shape);
        sn_node *folded =
            m->raw || n_result > 1 ? NULL : sn_fold(m, op, n_in, in, n_attr, sorted, &type[0]);
        if (folded) return folded;
    }
    sn_node *n = sn_arena_alloc(m, sizeof *n);
    *n = key;
    n->in = sn_arena_copy(m, in, (size_t)n_in * sizeof *in);
    sn_attrs_keep(m, sorted, n_attr);
    n->attr = sn_arena_copy(m, sorted, (size_t)n_attr * sizeof *sorted);
    n->dtype = (uint8_t)type[0].dtype;
    n->rank = (uint8_t)type[0].rank;
    n->shape = sn_arena_copy(m, type[0].shape, sizeof(sn_dim) * (size_t)type[0].rank);
    n->n_result = (uint8_t)n_result;
    n->loc = m->loc;
    if (kind == SN_COMP) n->decomposition = decomposition[0];
    if (n_result > 1)
        n->result_type = sn_arena_copy(m, decomposition, sizeof *decomposition * (size_t)n_result);
    register_node(m, n);
    sn_table_reserve(m, &m->nodes, hash_node); /* expansion or folding may have added nodes */
    *sn_table_find(&m->nodes, n->hash, same_node, n) = n;
    m->nodes.used++;
    return n;
}

typedef struct birth {
    sn_module *m;
    sn_op op;
    int n_in, n_attr;
    sn_node *const *in;
    const sn_attr *attr;
    sn_node *node;
} birth;

static void make_born(void *ctx) {
    birth *b = ctx;
    b->node = make_node(b->m, b->op, b->n_in, b->in, b->n_attr, b->attr);
}

sn_node *sn_node_new(sn_module *m, sn_op op, int n_in, sn_node *const *in, int n_attr,
                     const sn_attr *attr) {
    if (m->guard) return make_node(m, op, n_in, in, n_attr, attr);
    birth b = {m, op, n_in, n_attr, in, attr, m->error_node};
    sn_module_try(m, make_born, &b);
    return b.node;
}

sn_node *sn_node_with(const sn_node *n, sn_node *const *in) {
    bool same = true;
    for (int i = 0; i < n->n_in; i++) same &= in[i] == n->in[i];
    if (same) return (sn_node *)n;
    sn_loc loc = n->m->loc;
    n->m->loc = n->loc;
    sn_node *r = sn_node_new(n->m, (sn_op)n->op, n->n_in, in, n->n_attr, n->attr);
    n->m->loc = loc;
    return r;
}

uint32_t sn_module_node_count(const sn_module *m) {
    return m->n_node;
}

sn_node *sn_module_node(const sn_module *m, uint32_t id) {
    return id < m->n_node ? m->node[id] : NULL;
}
