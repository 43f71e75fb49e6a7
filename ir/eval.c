/* eval.c: the driver of the reference evaluator: bound leaves, memory, order, rounding. Primitives
 * are in eval_prims.c; scalar functions are the expressions of ops.def; composites are evaluated
 * through their decompositions. */
#include "ir/eval_impl.h"

#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

typedef struct bound {
    char *name;
    void *data;
    size_t bytes;
    bool wide; /* doubles, whatever the leaf's type */
} bound;

typedef struct slot { /* one node */
    sn_value *val;    /* NULL: not computed yet; [n_result] */
    sn_node **part;   /* FUSED: the result nodes of its decomposition */
    int n_part;
} slot;

typedef struct eval_axis { /* of the mesh; mesh NULL: all others */
    const char *mesh;
    struct sn_comm *comm;
} eval_axis;

struct sn_eval {
    sn_module *m;
    int64_t *symbol; /* values of the symbolic dimensions */
    bool exact, bf16;
    const sn_numbers *numbers; /* instead of floats; NULL: doubles */
    void *of;                  /* these numbers */
    eval_axis axis[SN_MAX_MESH_AXES + 1];
    int n_axis;
    sn_eval *inner; /* evaluates regions; NULL: none so far */
    bound *bound;
    int n_bound;
    slot *slot; /* [n_slot] by node id */
    size_t n_slot;
    void **block; /* everything allocated by the evaluation */
    size_t n_block;
};

/* ---- scalar functions ---- */

static const eval_fn prim_table[SN_OP_COUNT] = {
#define PRIM(name, ...) [SN_OP_##name] = eval_##name,
#include "ir/ops.def"
};

/* Rounds results to their type; with `exact`, f32 keeps double precision. */
static void round_values(const sn_eval *ev, sn_value *v) {
    if (v->dtype == SN_F64 || (v->dtype == SN_F32 && ev->exact)) return;
    if (ev->numbers && sn_dtype_is_float(v->dtype)) return;
    for (int64_t i = 0; i < v->n; i++)
        v->data[i] = ev->numbers && v->dtype == SN_BOOL ? ev->numbers->to_bool(ev->of, v->data[i])
                                                        : sn_round_to(v->dtype, v->data[i]);
}

double sn_eval_number(const eval_call *c, sn_dtype t, double x, bool exact) {
    const sn_numbers *f = c->ev->numbers;
    return f && sn_dtype_is_float(t) ? f->number(c->ev->of, x, exact) : x;
}

double sn_eval_elem(const eval_call *c, sn_op op, sn_dtype t, double x, double y) {
    const sn_numbers *f = c->ev->numbers;
    return f ? f->elem(c->ev->of, op, t, t, x, y, y)
             : sn_elem_ref(op, !sn_dtype_is_float(t), x, y, y);
}

double sn_eval_sum(const eval_call *c, const double *x, const double *y, int64_t n) {
    double sum = 0;
    if (c->ev->numbers && sn_dtype_is_float(c->in[0]->dtype))
        return c->ev->numbers->dot(c->ev->of, x, y, n);
    for (int64_t k = 0; k < n; k++) sum += x[k] * y[k];
    return sum;
}

static bool eval_elem(eval_call *c) {
    const sn_value *x = c->in[0], *y = c->n->n_in > 1 ? c->in[1] : x, *z = c->in[c->n->n_in - 1];
    for (int i = 1; i < c->n->n_in; i++)
        if (c->in[i]->rank != x->rank ||
            memcmp(c->in[i]->shape, x->shape, sizeof *x->shape * (size_t)x->rank))
            return sn_eval_fail(c, SN_ERR_SHAPE, "operands of different shapes");
    sn_dtype t = (sn_dtype)c->n->dtype;
    double *out = sn_eval_alloc(c, t, x->rank, x->shape);
    if (!out) return false;
    bool integer = !sn_dtype_is_float(x->dtype);
    sn_op op = (sn_op)c->n->op;
    const sn_numbers *f = c->ev->numbers;
    for (int64_t i = 0; i < x->n; i++)
        out[i] = f ? f->elem(c->ev->of, op, x->dtype, t, x->data[i], y->data[i], z->data[i])
                   : sn_elem_ref(op, integer, x->data[i], y->data[i], z->data[i]);
    return true;
}

/* ---- memory and errors ---- */

bool sn_eval_fail(eval_call *c, sn_code code, const char *fmt, ...) {
    char text[512];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    sn_loc loc = sn_module_loc(c->ev->m);
    sn_module_set_loc(c->ev->m, c->n->loc);
    sn_module_fail(c->ev->m, code, "%s (node %u): %s", sn_ops[c->n->op].name, (unsigned)c->n->id,
                   text);
    sn_module_set_loc(c->ev->m, loc);
    return false;
}

/* Zeroed memory that lives until the evaluator drops its values; NULL fails the module. */
static void *new_block(sn_eval *ev, size_t count, size_t size) {
    if ((ev->n_block & (ev->n_block - 1)) == 0) { /* full at every power of two */
        size_t cap = ev->n_block ? 2 * ev->n_block : 1;
        void **b = realloc(ev->block, cap * sizeof *b);
        if (b) ev->block = b;
        if (!b) goto out_of_memory;
    }
    void *p = calloc(count ? count : 1, size);
    if (p) return ev->block[ev->n_block++] = p;
out_of_memory:
    sn_module_fail(ev->m, SN_ERR_MEMORY, "evaluator: out of memory for %zu elements", count);
    return NULL;
}

static void forget_values(sn_eval *ev) {
    for (size_t i = 0; i < ev->n_block; i++) free(ev->block[i]);
    free(ev->block);
    ev->block = NULL;
    ev->n_block = 0;
    if (ev->slot) memset(ev->slot, 0, ev->n_slot * sizeof *ev->slot);
}

static bool set_type(eval_call *c, sn_dtype t, int rank, const int64_t *shape) {
    sn_value *v = c->out;
    *v = (sn_value){.dtype = t, .rank = rank, .n = 1};
    int64_t count = 1; /* empty axes count as 1 */
    for (int i = 0; i < rank; i++) {
        if (shape[i] < 0)
            return sn_eval_fail(c, SN_ERR_RANGE, "the size %lld of axis %d is negative",
                                (long long)shape[i], i);
        if (shape[i] && count > SN_MAX_ELEMENTS / shape[i])
            return sn_eval_fail(c, SN_ERR_MEMORY, "more than 2^48 elements");
        if (shape[i]) count *= shape[i];
        v->shape[i] = shape[i];
        v->n *= shape[i];
    }
    return true;
}

double *sn_eval_alloc(eval_call *c, sn_dtype t, int rank, const int64_t *shape) {
    if (!set_type(c, t, rank, shape)) return NULL;
    return c->out->data = new_block(c->ev, (size_t)c->out->n, sizeof *c->out->data);
}

bool sn_eval_alias(eval_call *c, int rank, const int64_t *shape) {
    if (!set_type(c, c->in[0]->dtype, rank, shape)) return false;
    if (c->out->n != c->in[0]->n)
        return sn_eval_fail(c, SN_ERR_SHAPE, "%lld elements do not match %lld places",
                            (long long)c->in[0]->n, (long long)c->out->n);
    c->out->data = c->in[0]->data;
    return true;
}

struct sn_comm *sn_eval_comm(const eval_call *c) {
    const char *mesh = sn_attr_str(c->n, SN_A_mesh, "");
    struct sn_comm *others = NULL;
    for (int i = 0; i < c->ev->n_axis; i++) {
        const eval_axis *a = &c->ev->axis[i];
        if (!a->mesh) others = a->comm;
        if (a->mesh && !strcmp(a->mesh, mesh)) return a->comm;
    }
    return others;
}

void sn_eval_set_comm(sn_eval *ev, const char *mesh, struct sn_comm *c) {
    if (ev->n_axis <= SN_MAX_MESH_AXES)
        ev->axis[ev->n_axis++] = (eval_axis){mesh ? sn_arena_str(ev->m, mesh) : NULL, c};
}

int64_t sn_eval_dim(const eval_call *c, sn_dim d) {
    return sn_dim_eval(c->ev->m, d, c->ev->symbol);
}

/* ---- leaves ---- */

bool sn_eval_leaf(eval_call *c) {
    const char *name = sn_attr_str(c->n, SN_A_name, "");
    const bound *b = NULL;
    for (int i = 0; i < c->ev->n_bound; i++)
        if (!strcmp(c->ev->bound[i].name, name)) b = &c->ev->bound[i];
    bool random = !b && c->ev->numbers && sn_is_float(c->n);
    if (!b && !random)
        return sn_eval_fail(c, SN_ERR_USAGE, "'%s' has no value; bind one before evaluating", name);
    int64_t shape[SN_MAX_RANK];
    for (int i = 0; i < c->n->rank; i++) shape[i] = sn_eval_dim(c, c->n->shape[i]);
    sn_dtype t = (sn_dtype)c->n->dtype;
    double *out = sn_eval_alloc(c, t, c->n->rank, shape);
    if (!out) return false;
    if (random) {
        c->ev->numbers->leaf(c->ev->of, name, c->out->n, out);
        return true;
    }
    if (b->wide) t = SN_F64;
    if (b->bytes != (size_t)c->out->n * sn_dtype_size(t))
        return sn_eval_fail(c, SN_ERR_SHAPE,
                            "'%s' needs %lld elements of %s, but %zu bytes are bound", name,
                            (long long)c->out->n, sn_dtype_name(t), b->bytes);
    for (int64_t i = 0; i < c->out->n; i++) out[i] = sn_dtype_load(t, b->data, i);
    for (int64_t i = 0; !b->wide && i < c->out->n; i++)
        out[i] = sn_eval_number(c, t, out[i], false);
    return true;
}

static bool bind_data(sn_eval *ev, const char *name, const void *data, size_t bytes, bool wide) {
    bound *b = NULL;
    for (int i = 0; i < ev->n_bound; i++)
        if (!strcmp(ev->bound[i].name, name)) b = &ev->bound[i];
    void *copy = malloc(bytes ? bytes : 1);
    if (copy && !b) {
        bound *list = realloc(ev->bound, sizeof *list * (size_t)(ev->n_bound + 1));
        if (list) {
            ev->bound = list;
            b = &list[ev->n_bound];
            *b = (bound){.name = strdup(name)};
            if (b->name)
                ev->n_bound++;
            else
                b = NULL;
        }
    } else if (copy) {
        forget_values(ev);
    }
    if (!copy || !b) {
        free(copy);
        sn_module_fail(ev->m, SN_ERR_MEMORY, "evaluator: out of memory for the value of '%s'",
                       name);
        return false;
    }
    if (bytes) memcpy(copy, data, bytes);
    free(b->data);
    b->data = copy;
    b->bytes = bytes;
    b->wide = wide;
    return true;
}

bool sn_eval_bind(sn_eval *ev, const char *name, const void *data, size_t bytes) {
    return bind_data(ev, name, data, bytes, false);
}

bool sn_eval_bind_f64(sn_eval *ev, const char *name, const double *data, int64_t n) {
    return bind_data(ev, name, data, (size_t)n * sizeof *data, true);
}

/* ---- the driver ---- */

sn_eval *sn_eval_new(sn_module *m, const int64_t *symbol_values) {
    sn_eval *ev = calloc(1, sizeof *ev);
    size_t n = (size_t)sn_symbol_count(m);
    int64_t *symbol = malloc((n + 1) * sizeof *symbol);
    if (!ev || !symbol) {
        free(ev);
        free(symbol);
        sn_module_fail(m, SN_ERR_MEMORY, "evaluator: out of memory");
        return NULL;
    }
    if (n) memcpy(symbol, symbol_values, n * sizeof *symbol);
    *ev = (sn_eval){.m = m, .symbol = symbol, .exact = true};
    return ev;
}

void sn_eval_free(sn_eval *ev) {
    if (!ev) return;
    sn_eval_free(ev->inner);
    forget_values(ev);
    for (int i = 0; i < ev->n_bound; i++) {
        free(ev->bound[i].name);
        free(ev->bound[i].data);
    }
    free(ev->bound);
    free(ev->slot);
    free(ev->symbol);
    free(ev);
}

void sn_eval_set_exact(sn_eval *ev, bool exact) {
    if (ev->exact != exact) forget_values(ev);
    ev->exact = exact;
}

void sn_eval_set_bf16(sn_eval *ev, bool bf16) {
    if (ev->bf16 != bf16) forget_values(ev);
    ev->bf16 = bf16;
}

void sn_eval_set_numbers(sn_eval *ev, const sn_numbers *numbers, void *of) {
    if (ev->numbers != numbers || ev->of != of) forget_values(ev);
    ev->numbers = numbers;
    ev->of = of;
}

bool sn_eval_has_numbers(const eval_call *c) {
    return c->ev->numbers;
}

bool sn_eval_takes_bf16(const eval_call *c) {
    if (c->ev->numbers) return false;
    return sn_attr_get(c->n, SN_A_compute) || (c->ev->bf16 && c->in[0]->dtype == SN_F32);
}

/* The node's slot; NULL: out of memory. Slots move when decompositions add nodes to the module. */
static slot *slot_of(sn_eval *ev, const sn_node *n) {
    if (n->id >= ev->n_slot) {
        size_t count = (size_t)sn_module_node_count(ev->m) * 2;
        slot *s = realloc(ev->slot, count * sizeof *s);
        if (!s) {
            sn_module_fail(ev->m, SN_ERR_MEMORY, "evaluator: out of memory");
            return NULL;
        }
        memset(s + ev->n_slot, 0, (count - ev->n_slot) * sizeof *s);
        ev->slot = s;
        ev->n_slot = count;
    }
    return &ev->slot[n->id];
}

/* The nodes that must be evaluated before n: its operands, or the decomposition of a composite. */
static bool list_needs(sn_eval *ev, const sn_node *n, sn_node *const **need, int *count) {
    *need = n->in;
    *count = n->n_in;
    if (sn_ops[n->op].kind == SN_COMP) {
        *need = &n->decomposition;
        *count = 1;
    } else if (sn_ops[n->op].kind == SN_FUSED) {
        slot *s = slot_of(ev, n);
        if (!s->part) {
            sn_node *part[SN_MAX_RESULTS];
            int n_part = 0;
            if (!sn_decompose(ev->m, (sn_op)n->op, n->n_in, n->in, n->n_attr, n->attr, &n_part,
                              part))
                return false;
            s->part = new_block(ev, (size_t)n_part, sizeof *s->part);
            if (!s->part) return false;
            memcpy(s->part, part, sizeof *part * (size_t)n_part);
            s->n_part = n_part;
        }
        *need = s->part;
        *count = s->n_part;
    }
    return true;
}

/* Checks that the value has the type that was inferred when the node was created. */
static bool check_type(eval_call *c) {
    const sn_value *v = c->out;
    bool ok = v->dtype == c->n->dtype && v->rank == c->n->rank;
    for (int i = 0; ok && i < v->rank; i++) ok = v->shape[i] == sn_eval_dim(c, c->n->shape[i]);
    if (ok) return true;
    char shape[256];
    sn_shape_print(c->ev->m, c->n->rank, c->n->shape, shape, sizeof shape);
    return sn_eval_fail(c, SN_ERR_INTERNAL, "the inferred type %s%s is not that of the value",
                        sn_dtype_name((sn_dtype)c->n->dtype), shape);
}

/* Computes n, whose operands are computed. */
static bool compute(sn_eval *ev, sn_node *n) {
    sn_node *const *need;
    int count;
    if (!list_needs(ev, n, &need, &count)) return false;
    const sn_op_info *info = &sn_ops[n->op];
    if (info->kind == SN_COMP) {
        slot_of(ev, n)->val = slot_of(ev, n->decomposition)->val;
        return true;
    }
    sn_value *val = new_block(ev, n->n_result, sizeof *val);
    const sn_value **in = new_block(ev, (size_t)count, sizeof *in);
    if (!val || !in) return false;
    for (int i = 0; i < count; i++) in[i] = slot_of(ev, need[i])->val;
    if (info->kind == SN_FUSED) {
        for (int i = 0; i < n->n_result && i < count; i++) val[i] = *in[i];
    } else {
        eval_call c = {ev, n, in, val};
        bool ok = info->kind == SN_ELEM ? eval_elem(&c) : prim_table[n->op](&c);
        if (!ok || !check_type(&c)) return false;
        if (ev->numbers && ev->numbers->failed(ev->of))
            return sn_eval_fail(&c, SN_ERR_MEMORY, "no memory for more exact numbers (4 GiB)");
        if (!count || val->data != in[0]->data) round_values(ev, val);
    }
    slot_of(ev, n)->val = val;
    return true;
}

const sn_value *sn_eval_node(sn_eval *ev, sn_node *n) {
    if (sn_module_error(ev->m)->code || n == sn_module_error_node(ev->m)) return NULL;
    /* Uses an explicit stack, because a graph may be deeper than the C stack. */
    size_t used = 0, cap = 64;
    sn_node **stack = malloc(cap * sizeof(sn_node *));
    bool ok = stack != NULL;
    if (ok) stack[used++] = n;
    while (ok && used) {
        sn_node *top = stack[used - 1];
        slot *s = slot_of(ev, top);
        if (!s || s->val) {
            ok = s != NULL;
            used--;
            continue;
        }
        sn_node *const *need;
        int count;
        ok = list_needs(ev, top, &need, &count);
        size_t before = used;
        for (int i = 0; ok && i < count; i++) {
            s = slot_of(ev, need[i]);
            ok = s != NULL;
            if (!ok || s->val) continue;
            if (used == cap) {
                sn_node **wider = realloc(stack, 2 * cap * sizeof *wider);
                ok = wider != NULL;
                if (!ok) break;
                stack = wider;
                cap *= 2;
            }
            stack[used++] = need[i];
        }
        if (ok && used == before) ok = compute(ev, top);
    }
    free(stack);
    if (ok) return slot_of(ev, n)->val;
    sn_module_fail(ev->m, SN_ERR_MEMORY, "evaluator: out of memory"); /* keeps an earlier error */
    return NULL;
}

bool sn_eval_region(eval_call *c, const sn_region *r, sn_value *arg, sn_value *out) {
    sn_eval *ev = c->ev;
    if (!ev->inner) ev->inner = sn_eval_new(ev->m, ev->symbol);
    if (!ev->inner) return false;
    forget_values(ev->inner);
    ev->inner->exact = ev->exact;
    ev->inner->bf16 = ev->bf16;
    ev->inner->numbers = ev->numbers;
    ev->inner->of = ev->of;
    memcpy(ev->inner->axis, ev->axis, sizeof ev->axis);
    ev->inner->n_axis = ev->n_axis;
    for (int i = 0; i < r->n_arg; i++) {
        slot *s = slot_of(ev->inner, r->arg[i]);
        if (!s) return false;
        s->val = &arg[i];
    }
    for (int i = 0; i < r->n_out; i++) {
        const sn_value *v = sn_eval_node(ev->inner, r->out[i]);
        if (!v) return false;
        out[i] = *v;
    }
    return true;
}
