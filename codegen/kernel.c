/* kernel.c: what a step of the plan needs from its kernel: family, run-time sizes, identity. */
#include "codegen/kernel.h"
#include "codegen/emit/elem.h"
#include "passes/plan/product.h"

#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

/* ---- family ---- */

static const sn_family *const families[SN_KERNEL_COUNT] = {
#define KERNEL(name, ...) [SN_KERNEL_##name] = &sn_family_##name,
#include "passes/kernels/kernels.def"
};

/* Steps of another back end make no code of their own. */
const sn_family sn_family_primitive = {.emit = NULL};
const sn_family sn_family_collective = {.emit = NULL};

/* ---- run-time sizes ---- */

static bool want(sn_kernel *k, sn_dim d) {
    if (sn_dim_is_const(k->m, d, NULL)) return true;
    for (int i = 0; i < k->n_dim; i++)
        if (k->dim[i] == d) return true;
    if (k->n_dim == SN_KERNEL_DIMS) return false;
    k->dim[k->n_dim++] = d;
    return true;
}

static bool want_view(sn_kernel *k, const sn_view *v) {
    bool ok = true;
    for (int i = 0; i < v->rank; i++) ok = ok && want(k, v->shape[i]) && want(k, v->stride[i]);
    return ok;
}

static bool want_region(sn_kernel *k, const sn_region *r) {
    bool ok = true;
    if (!r) return true;
    sn_order order = sn_region_topo(k->m, r);
    for (int i = 0; i < order.n; i++) {
        const sn_node *n = order.node[i];
        const sn_attr *d = sn_attr_get(n, SN_A_dim);
        if (d) ok = ok && want(k, d->i);
        for (int j = 0; j < n->rank; j++) ok = ok && want(k, n->shape[j]);
    }
    return ok;
}

/* By their hashes, which are the same in every module: a walk over a region meets them in the order of
 * ids, which depends on what else the module has. */
static void sort_dims(const sn_kernel *k, int n, sn_dim *d) {
    for (int i = 1; i < n; i++)
        for (int j = i; j > 0 && sn_dim_hash(k->m, d[j]) < sn_dim_hash(k->m, d[j - 1]); j--) {
            sn_dim smaller = d[j];
            d[j] = d[j - 1];
            d[j - 1] = smaller;
        }
}

static bool want_all(sn_kernel *k) {
    const sn_step *s = k->step;
    bool ok = true;
    for (int i = 0; i < s->n_in + s->n_out; i++) ok = ok && want_view(k, sn_view_of(s, i));
    const int of_views = k->n_dim;
    for (int i = 0; i < s->node->n_attr; i++)
        if (sn_attr_table[s->node->attr[i].key].kind == SN_AK_REGION)
            ok = ok && want_region(k, s->node->attr[i].r);
    sort_dims(k, k->n_dim - of_views, k->dim + of_views);
    if (!ok)
        sn_module_fail(k->m, SN_ERR_INTERNAL, "a kernel would need more than %d run-time sizes",
                       SN_KERNEL_DIMS);
    return ok;
}

/* ---- identity ---- */

typedef struct text {
    char *s;
    size_t n, cap;
    sn_module *m;
} text;

static void put(text *t, const char *s) {
    size_t len = strlen(s);
    if (t->n + len + 1 > t->cap) {
        size_t cap = 2 * (t->cap + len + 256);
        char *grown = sn_arena_alloc(t->m, cap);
        if (t->n) memcpy(grown, t->s, t->n);
        t->s = grown;
        t->cap = cap;
    }
    memcpy(t->s + t->n, s, len + 1);
    t->n += len;
}

static void put_dims(text *t, const char *label, int n, const sn_dim *d) {
    int len = sn_shape_print(t->m, n, d, NULL, 0);
    char *b = sn_arena_alloc(t->m, (size_t)len + 1);
    sn_shape_print(t->m, n, d, b, (size_t)len + 1);
    put(t, label);
    put(t, b);
}

static void put_attr(text *t, const sn_attr *a) {
    char b[64];
    put(t, " ");
    put(t, sn_attr_table[a->key].name);
    put(t, "=");
    switch (sn_attr_table[a->key].kind) {
    case SN_AK_STR:
        put(t, a->s);
        break;
    case SN_AK_FLT:
        sn_number_print(b, sizeof b, 17, a->f);
        put(t, b);
        break;
    case SN_AK_REGION:
        put(t, sn_region_text(t->m, a->r));
        break;
    case SN_AK_DIM:
        put_dims(t, "", 1, &a->i);
        break;
    case SN_AK_DIMS:
        put_dims(t, "", a->n, a->v);
        break;
    case SN_AK_INTS:
        for (int i = 0; i < a->n; i++) {
            snprintf(b, sizeof b, "%lld,", (long long)a->v[i]);
            put(t, b);
        }
        break;
    default:
        snprintf(b, sizeof b, "%lld", (long long)a->i);
        put(t, b);
    }
}

static void put_view(text *t, const sn_view *v) {
    put(t, "\n ");
    put(t, sn_dtype_name(v->dtype));
    put_dims(t, "", v->rank, v->shape);
    put_dims(t, " by ", v->rank, v->stride);
}

/* Arithmetic is in f64 where an operand, a result or a value between them is; panels of products
 * are of the product's type. */
static bool is_wide(const sn_step *s) {
    if (sn_kernel_of(s->node)->contraction) return s->in[0].dtype == SN_F64;
    for (int i = 0; i < s->n_in + s->n_out; i++)
        if (sn_view_of(s, i)->dtype == SN_F64) return true;
    const sn_region *body = sn_attr_region(s->node, SN_A_body);
    sn_order order = body ? sn_region_topo(s->node->m, body) : (sn_order){0};
    for (int i = 0; i < order.n; i++)
        if (order.node[i]->dtype == SN_F64) return true;
    return false;
}

static void describe(sn_kernel *k) {
    text t = {.m = k->m};
    const sn_step *s = k->step;
    put(&t, k->traits->name);
    put(&t, k->compute == SN_F64 ? " f64 " : " f32 ");
    put(&t, sn_ops[s->node->op].name);
    for (int i = 0; i < s->node->n_attr; i++) put_attr(&t, &s->node->attr[i]);
    for (int i = 0; i < s->n_in; i++) put_view(&t, &s->in[i]);
    put(&t, "\n->");
    for (int i = 0; i < s->n_out; i++) put_view(&t, &s->out[i]);
    put_dims(&t, "\ndim ", k->n_dim, k->dim); /* code reads them by number */
    if (k->traits->contraction && sn_product_symmetric(k->m, s)) put(&t, "\nsymmetric");
    if (k->tile) {
        char tile[24];
        snprintf(tile, sizeof tile, "\ntile %d", k->tile);
        put(&t, tile);
    }
    k->text = t.s;
    XXH128_hash_t h = XXH3_128bits(t.s, t.n);
    snprintf(k->name, sizeof k->name, "sn_%s_%016llx%08x", k->traits->name,
             (unsigned long long)h.high64, (unsigned)h.low64);
}

bool sn_kernel_describe(sn_module *m, const sn_step *s, sn_kernel *k) {
    *k = (sn_kernel){.m = m, .step = s, .compute = SN_F32};
    sn_kernel_id id = sn_kernel_variant(s->node);
    k->traits = &sn_kernels[id];
    k->family = families[id];
    if (!k->family) {
        sn_module_fail(m, SN_ERR_INTERNAL, "no kernel family generates code for '%s'",
                       sn_ops[s->node->op].name);
        return false;
    }
    if (is_wide(s)) k->compute = SN_F64;
    if (!want_all(k)) return false;
    describe(k);
    return true;
}

const char *sn_kernel_family_name(const sn_kernel *k) {
    return sn_attr_str(k->step->node, SN_A_backend, k->traits->name);
}

int64_t sn_kernel_shared(const sn_kernel *k, const sn_target *t) {
    return k->family->shared ? k->family->shared(k, t) : 0;
}

void sn_kernel_set_tile(sn_kernel *k, int tile) {
    k->tile = tile;
    describe(k);
}
