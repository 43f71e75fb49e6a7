/* elem.c: the code of every elementwise op, one row per ELEM of ops.def, and of regions. */
#include "codegen/emit/elem.h"
#include "codegen/emit/vmath.h"

#include <math.h>

typedef em_val elem_fn(em *e, const sn_node *n, const em_val *x);

static sn_dtype operand_type(const sn_node *n) {
    return (sn_dtype)n->in[n->n_in - 1]->dtype; /* of select: not the condition */
}

/* u8 and bool are unsigned, everything else in `em` is signed: i32 holds both. */
static em_val widen(em *e, const sn_node *n, em_val v) {
    sn_dtype t = operand_type(n);
    if (t == SN_BOOL) return em_convert(e, v, SN_BOOL, SN_I32);
    return t == SN_U8 || t == SN_I8 ? em_convert(e, v, t, SN_I32) : v;
}

static em_val narrow(em *e, const sn_node *n, em_val v) {
    sn_dtype t = (sn_dtype)n->dtype;
    return t == SN_U8 || t == SN_I8 ? em_int_cast(e, v, e->i8) : v;
}

/* Rounding to an integer. Before SSE4.1 LLVM would call a function of libm for each lane: there,
 * adding and taking away 2^23 (2^52) rounds what is smaller, the rest are integers (or NaN). */
static em_val round_even(em *e, em_val x) {
    if (e->target->arch != SN_ARCH_X86_64 || e->target->vector_bytes > 16)
        return em_unary_intrinsic(e, "llvm.roundeven", x);
    LLVMFastMathFlags old = em_fast(e, 0);
    em_val big = em_like(e, x, em_elem_type(x) == e->f64 ? 0x1p52 : 0x1p23), a = em_abs(e, x);
    em_val r = em_sub(e, em_add(e, a, big), big);
    r = em_select(e, em_cmp(e, EM_LT, a, big), r, a);
    em_val args[] = {r, x};
    em_type t = LLVMTypeOf(x);
    r = em_intrinsic(e, "llvm.copysign", &t, 1, args, 2);
    em_fast(e, old);
    return em_select(e, em_cmp(e, EM_NE, x, x), x, r);
}

static em_val round_down(em *e, em_val x) {
    if (e->target->arch != SN_ARCH_X86_64 || e->target->vector_bytes > 16)
        return em_unary_intrinsic(e, "llvm.floor", x);
    em_val r = round_even(e, x);
    return em_select(e, em_cmp(e, EM_GT, r, x), em_sub(e, r, em_like(e, r, 1)), r);
}

/* --- integer division: floored, by zero 0 ----------------------------------------------------- */

static bool constant_operand(const sn_node *n, int i, int64_t *v) {
    const sn_node *c = n->in[i];
    while (c->op == SN_OP_broadcast || c->op == SN_OP_cast) c = c->in[0];
    double d = c->op == SN_OP_const ? sn_attr_flt(c, SN_A_value, 0) : 0.5;
    if (d != floor(d) || fabs(d) > 0x1p53) return false;
    *v = (int64_t)d;
    return true;
}

/* i32: the quotient in f64 is exact enough, since x/y is not an integer only if it is 1/|y| away from
 * one. There is no vector instruction for integer division. */
static em_val floor_div_i32(em *e, em_val x, em_val y) {
    int lanes = em_lanes_of(x) > em_lanes_of(y) ? em_lanes_of(x) : em_lanes_of(y);
    em_type t = em_vec(e->f64, lanes), ti = em_vec(e->i32, lanes);
    em_val fx = LLVMBuildSIToFP(e->b, em_splat(e, x, lanes / em_lanes_of(x)), t, "");
    em_val fy = LLVMBuildSIToFP(e->b, em_splat(e, y, lanes / em_lanes_of(y)), t, "");
    em_val q = round_down(e, em_div(e, fx, fy));
    em_type over[] = {ti, t};
    q = em_intrinsic(e, "llvm.fptosi.sat", over, 2, &q, 1); /* NaN (0/0) gives 0 */
    em_val zero = em_cmp(e, EM_EQ, y, em_like(e, y, 0));
    q = em_select(e, zero, em_like(e, q, 0), q);
    em_val minus = em_cmp(e, EM_EQ, y, em_like(e, y, -1)); /* INT_MIN / -1 wraps */
    return em_select(e, minus, em_neg(e, x), q);
}

/* Lane by lane, as the machine does it. LLVM 19 folds a division of 64-bit vectors by different
 * constants to wrong quotients: <0, 1, 2, 3, ...> / <1, 1, 2, 3, ...> has 2 in lane 3. */
static em_val divide_lanes(em *e, em_val x, em_val y) {
    int lanes = em_lanes_of(x) > em_lanes_of(y) ? em_lanes_of(x) : em_lanes_of(y);
    if (lanes == 1) return em_div(e, x, y);
    x = em_splat(e, x, lanes / em_lanes_of(x));
    y = em_splat(e, y, lanes / em_lanes_of(y));
    em_val q = LLVMGetPoison(LLVMTypeOf(x));
    for (int i = 0; i < lanes; i++) {
        em_val at = em_i32(e, i);
        em_val one = em_div(e, LLVMBuildExtractElement(e->b, x, at, ""),
                            LLVMBuildExtractElement(e->b, y, at, ""));
        q = LLVMBuildInsertElement(e->b, q, one, at, "");
    }
    return q;
}

/* y_is_constant: y is the same positive constant in all lanes; LLVM multiplies by its inverse. */
static em_val floor_div_any(em *e, em_val x, em_val y, bool y_is_constant) {
    em_val zero = em_cmp(e, EM_EQ, y, em_like(e, y, 0));
    em_val minus = em_cmp(e, EM_EQ, y, em_like(e, y, -1)); /* traps for the smallest x */
    em_val safe = em_select(e, em_or(e, zero, minus), em_like(e, y, 1), y);
    em_val q = y_is_constant ? em_div(e, x, safe) : divide_lanes(e, x, safe),
           r = em_sub(e, x, em_mul(e, q, safe));
    em_val below = em_and(e, em_cmp(e, EM_NE, r, em_like(e, r, 0)),
                          em_cmp(e, EM_LT, em_xor(e, r, safe), em_like(e, r, 0)));
    q = em_select(e, below, em_sub(e, q, em_like(e, q, 1)), q);
    q = em_select(e, minus, em_neg(e, x), q);
    return em_select(e, zero, em_like(e, q, 0), q);
}

static em_val floor_div(em *e, const sn_node *n, const em_val *x) {
    int64_t c;
    em_val a = widen(e, n, x[0]), b = widen(e, n, x[1]);
    if (constant_operand(n, 1, &c) && c > 0) {
        int shift = 0;
        while (((int64_t)1 << shift) < c && shift < 62) shift++;
        if (((int64_t)1 << shift) == c) return em_ashr(e, a, em_like(e, a, shift));
        return floor_div_any(e, a, em_like(e, a, (double)c), true);
    }
    bool fits = LLVMGetIntTypeWidth(em_elem_type(a)) <= 32;
    return fits && em_lanes_of(a) * em_lanes_of(b) > 1 ? floor_div_i32(e, a, b)
                                                       : floor_div_any(e, a, b, false);
}

/* --- the rows --------------------------------------------------------------------------------- */

#define ROW(name) static em_val elem_##name(em *e, const sn_node *n, const em_val *x)
#define SAME(name, ...)                                                                            \
    ROW(name) {                                                                                    \
        (void)n;                                                                                   \
        return __VA_ARGS__;                                                                        \
    }

SAME(neg, em_neg(e, x[0]))
SAME(exp, sn_vmath_emit(e, SN_V_EXP, x[0]))
SAME(exp2, sn_vmath_emit(e, SN_V_EXP2, x[0]))
SAME(expm1, sn_vmath_emit(e, SN_V_EXPM1, x[0]))
SAME(log, sn_vmath_emit(e, SN_V_LOG, x[0]))
SAME(log1p, sn_vmath_emit(e, SN_V_LOG1P, x[0]))
SAME(sqrt, sn_vmath_emit(e, SN_V_SQRT, x[0]))
SAME(rsqrt, sn_vmath_emit(e, SN_V_RSQRT, x[0]))
SAME(recip, sn_vmath_emit(e, SN_V_RECIP, x[0]))
SAME(tanh, sn_vmath_emit(e, SN_V_TANH, x[0]))
SAME(sigmoid, sn_vmath_emit(e, SN_V_SIGMOID, x[0]))
SAME(erf, sn_vmath_emit(e, SN_V_ERF, x[0]))
SAME(gelu, sn_vmath_emit(e, SN_V_GELU, x[0]))
SAME(gelu_tanh, sn_vmath_emit(e, SN_V_GELU_TANH, x[0]))
SAME(sin, sn_vmath_emit(e, SN_V_SIN, x[0]))
SAME(cos, sn_vmath_emit(e, SN_V_COS, x[0]))
SAME(atan, sn_vmath_emit(e, SN_V_ATAN, x[0]))
SAME(floor, round_down(e, x[0]))
SAME(ceil, em_neg(e, round_down(e, em_neg(e, x[0]))))
SAME(round, round_even(e, x[0]))
SAME(pow, sn_vmath_pow(e, x[0], x[1]))
SAME(not, em_not(e, x[0]))
SAME(stop_gradient, (void)e, x[0])
SAME(add, em_add(e, x[0], x[1]))
SAME(sub, em_sub(e, x[0], x[1]))
SAME(mul, em_mul(e, x[0], x[1]))
SAME(and, em_and(e, x[0], x[1]))
SAME(or, em_or(e, x[0], x[1]))
SAME(xor, em_xor(e, x[0], x[1]))
SAME(select, em_select(e, x[0], x[1], x[2]))
SAME(lt, em_cmp(e, EM_LT, widen(e, n, x[0]), widen(e, n, x[1])))
SAME(le, em_cmp(e, EM_LE, widen(e, n, x[0]), widen(e, n, x[1])))
SAME(eq, em_cmp(e, EM_EQ, widen(e, n, x[0]), widen(e, n, x[1])))
SAME(ne, em_cmp(e, EM_NE, widen(e, n, x[0]), widen(e, n, x[1])))

ROW(abs) {
    return operand_type(n) == SN_U8 ? x[0] : em_abs(e, x[0]);
}

ROW(max) {
    return narrow(e, n, em_max_nan(e, widen(e, n, x[0]), widen(e, n, x[1])));
}

ROW(min) {
    return narrow(e, n, em_min_nan(e, widen(e, n, x[0]), widen(e, n, x[1])));
}

ROW(sign) {
    em_val v = widen(e, n, x[0]), zero = em_like(e, v, 0);
    em_val low = em_select(e, em_cmp(e, EM_LT, v, zero), em_like(e, v, -1), zero);
    return narrow(e, n, em_select(e, em_cmp(e, EM_GT, v, zero), em_like(e, v, 1), low));
}

SAME(ieee_div, em_div(e, x[0], x[1]))
ROW(div) {
    if (em_is_float(x[0])) return em_div(e, x[0], x[1]);
    return narrow(e, n, floor_div(e, n, x));
}

ROW(mod) {
    if (em_is_float(x[0]))
        return em_sub(e, x[0], em_mul(e, x[1], round_down(e, em_div(e, x[0], x[1]))));
    em_val a = widen(e, n, x[0]), b = widen(e, n, x[1]);
    em_val r = em_sub(e, a, em_mul(e, b, floor_div(e, n, x)));
    return narrow(e, n, em_select(e, em_cmp(e, EM_EQ, b, em_like(e, b, 0)), em_like(e, r, 0), r));
}

/* Shifts by counts outside the type's bits are defined here, not in LLVM. */
static em_val shifted(em *e, const sn_node *n, const em_val *x, bool left) {
    em_val v = widen(e, n, x[0]), by = widen(e, n, x[1]);
    int bits = (int)LLVMGetIntTypeWidth(em_elem_type(v));
    em_val out = em_or(e, em_cmp(e, EM_LT, by, em_like(e, by, 0)),
                       em_cmp(e, EM_GE, by, em_like(e, by, bits)));
    if (!left) return narrow(e, n, em_ashr(e, v, em_select(e, out, em_like(e, by, bits - 1), by)));
    em_val safe = em_shl(e, v, em_select(e, out, em_like(e, by, 0), by));
    return narrow(e, n, em_select(e, out, em_like(e, v, 0), safe));
}
SAME(shift_left, shifted(e, n, x, true))
SAME(shift_right, shifted(e, n, x, false))

ROW(cast) {
    sn_dtype from = (sn_dtype)n->in[0]->dtype, to = (sn_dtype)n->dtype;
    if (from == to) return x[0];
    if (to == SN_BOOL) return em_cmp(e, EM_NE, x[0], em_like(e, x[0], 0));
    if (sn_dtype_is_float(from)) from = e->compute;
    return em_convert(e, x[0], from, sn_dtype_is_float(to) ? e->compute : to);
}

static elem_fn *const elem_table[SN_OP_COUNT] = {
#define ELEM(name, ...) [SN_OP_##name] = elem_##name,
#include "ir/ops.def"
};

em_val sn_emit_rounded(em *e, sn_dtype t, em_val v) {
    if (!sn_dtype_is_float(t) || sn_dtype_size(t) >= sn_dtype_size(e->compute)) return v;
    return em_convert(e, em_convert(e, v, e->compute, t), t, e->compute);
}

em_val sn_emit_elem(em *e, const sn_node *n, const em_val *x) {
    elem_fn *f = elem_table[n->op];
    if (f && sn_ops[n->op].flags & SN_OPF_UNROUNDED) return f(e, n, x);
    if (f) return sn_emit_rounded(e, (sn_dtype)n->dtype, f(e, n, x));
    sn_fail(&e->err, SN_ERR_INTERNAL, "%s is not an elementwise op and cannot be part of a region",
            sn_ops[n->op].name);
    return sn_emit_const(e, (sn_dtype)n->dtype, 0);
}

em_val sn_emit_const(em *e, sn_dtype t, double value) {
    if (sn_dtype_is_float(t)) return em_f(e, sn_round_to(t, value));
    if (t == SN_BOOL) return em_i1(e, value != 0);
    return LLVMConstInt(em_mem_type(e, t), (unsigned long long)(int64_t)sn_round_to(t, value),
                        true);
}

em_val sn_emit_integer(em *e, sn_dtype t, em_val i) {
    if (!sn_dtype_is_float(t)) return em_convert(e, i, SN_I64, t);
    return sn_emit_rounded(e, t, em_convert(e, i, SN_I64, e->compute));
}

em_val sn_emit_loaded(em *e, sn_dtype t, em_val v) {
    return t == SN_BOOL ? em_cmp(e, EM_NE, v, em_like(e, v, 0)) : v;
}

/* --- regions ---------------------------------------------------------------------------------- */

static uint32_t *slot_of(const sn_region_code *c, const sn_node *n) {
    return &c->slot[n->id - c->base];
}

int sn_region_place(const sn_region_code *c, const sn_node *n) {
    return (int)*slot_of(c, n) - 1;
}

bool sn_region_begin(sn_region_code *c, em *e, const sn_region *r) {
    sn_module *m = r->out[0]->m;
    c->e = e;
    c->region = r;
    c->order = sn_region_topo(m, r);
    uint32_t lo = UINT32_MAX, hi = 0;
    for (int i = 0; i < c->order.n; i++) {
        uint32_t id = c->order.node[i]->id;
        lo = id < lo ? id : lo;
        hi = id > hi ? id : hi;
    }
    size_t n = (size_t)c->order.n;
    c->base = lo;
    c->slot = sn_arena_alloc(m, (size_t)(hi - lo + 1) * sizeof *c->slot);
    for (int i = 0; i < c->order.n; i++) *slot_of(c, c->order.node[i]) = (uint32_t)i + 1;
    c->operand = sn_arena_alloc(m, n * sizeof *c->operand);
    for (int i = 0; i < c->order.n; i++) {
        const sn_node *k = c->order.node[i];
        c->operand[i] = sn_arena_alloc(m, (size_t)k->n_in * sizeof **c->operand);
        for (int j = 0; j < k->n_in; j++) c->operand[i][j] = sn_region_place(c, k->in[j]);
    }
    c->value = sn_arena_alloc(m, n * sizeof *c->value * (size_t)(c->copies ? c->copies : 1));
    c->deps = sn_arena_alloc(m, n * sizeof *c->deps);
    return e->err.code == SN_OK;
}

/* Operands precede their users in the order, so one pass updates all nodes. */
static void spread_deps(sn_region_code *c) {
    for (int i = 0; i < c->order.n; i++) {
        const sn_node *n = c->order.node[i];
        if (c->fixed && c->fixed[i]) continue;
        for (int j = 0; j < n->n_in; j++) c->deps[i] |= c->deps[sn_region_place(c, n->in[j])];
    }
}

void sn_region_arg(sn_region_code *c, int i, em_val v, uint32_t deps) {
    for (int p = 0; p < c->order.n; p++) {
        const sn_node *n = c->order.node[p];
        if (n->op != SN_OP_arg || sn_attr_int(n, SN_A_index, -1) != i) continue;
        c->value[p] = v;
        c->deps[p] = deps;
    }
    spread_deps(c);
}

static em_val emit_node(const sn_region_code *c, int i, int copy) {
    const sn_node *n = c->order.node[i];
    em_val x[SN_MAX_RANK + 1] = {NULL}, v = c->leaf ? c->leaf(c, i, copy) : NULL;
    if (v) return v;
    if (n->op == SN_OP_const)
        return sn_emit_const(c->e, (sn_dtype)n->dtype, sn_attr_flt(n, SN_A_value, 0));
    bool computes = n->op == SN_OP_broadcast || sn_is_elementwise(n);
    for (int j = 0; j < n->n_in && computes; j++) x[j] = sn_region_at(c, c->operand[i][j], copy);
    return n->op == SN_OP_broadcast ? x[0] : sn_emit_elem(c->e, n, x);
}

em_val sn_region_at(const sn_region_code *c, int i, int copy) {
    if (c->once && c->once[i]) copy = 0;
    em_val *v = &c->value[copy * c->order.n + i];
    if (!*v) *v = emit_node(c, i, copy);
    return *v;
}

void sn_region_emit(sn_region_code *c, uint32_t allowed) {
    for (int i = 0; i < c->order.n; i++) {
        if ((c->deps[i] & ~allowed) || c->order.node[i]->op == SN_OP_arg) continue;
        if (!c->needed || c->needed[i]) sn_region_at(c, i, 0);
    }
}

void sn_region_forget(sn_region_code *c, uint32_t bits) {
    for (int k = 0; k < (c->copies ? c->copies : 1); k++)
        for (int i = 0; i < c->order.n; i++)
            if (bits == ~0u || c->deps[i] & bits) c->value[k * c->order.n + i] = NULL;
}

void sn_region_only(sn_region_code *c, sn_node *const *root, int n_root, const sn_node *const *leaf,
                    int n_leaf) {
    c->needed = sn_arena_alloc(c->region->out[0]->m, (size_t)c->order.n * sizeof *c->needed);
    for (int i = 0; i < n_root; i++) c->needed[sn_region_place(c, root[i])] = true;
    for (int i = c->order.n - 1; i >= 0; i--) { /* users come later in the order */
        const sn_node *n = c->order.node[i];
        for (int j = 0; j < n_leaf; j++)
            if (leaf[j] == n) c->needed[i] = false;
        for (int j = 0; j < n->n_in && c->needed[i]; j++)
            c->needed[sn_region_place(c, n->in[j])] = true;
    }
}

void sn_region_give(sn_region_code *c, const sn_node *n, em_val v) {
    c->value[sn_region_place(c, n)] = v;
}

em_val sn_region_node(const sn_region_code *c, const sn_node *n) {
    return c->value[sn_region_place(c, n)];
}

void sn_region_fix(sn_region_code *c, const sn_node *n, uint32_t deps) {
    if (!c->fixed) c->fixed = sn_arena_alloc(n->m, (size_t)c->order.n * sizeof *c->fixed);
    c->fixed[sn_region_place(c, n)] = true;
    c->deps[sn_region_place(c, n)] = deps;
}

uint32_t sn_region_node_deps(const sn_region_code *c, const sn_node *n) {
    return c->deps[sn_region_place(c, n)];
}

bool sn_region_needs(const sn_region_code *c, const sn_node *n) {
    return !c->needed || c->needed[sn_region_place(c, n)];
}

em_val sn_region_value(const sn_region_code *c, int out) {
    return c->value[sn_region_place(c, c->region->out[out])];
}

uint32_t sn_region_deps(const sn_region_code *c, int out) {
    return c->deps[sn_region_place(c, c->region->out[out])];
}

/* --- reductions ------------------------------------------------------------------------------- */

em_val sn_reduce_neutral(em *e, const sn_node *n) {
    sn_dtype t = (sn_dtype)n->dtype;
    em_type elem = sn_dtype_is_float(t) ? e->ft : em_mem_type(e, t);
    if (n->op == SN_OP_reduce_sum) return em_zero(elem);
    if (t == SN_U8) return n->op == SN_OP_reduce_max ? em_zero(elem) : LLVMConstAllOnes(elem);
    return em_neutral(e, n->op == SN_OP_reduce_max ? EM_MAX : EM_MIN, elem);
}

em_val sn_reduce(em *e, const sn_node *n, bool ignores_nan, em_val a, em_val b) {
    if (n->op == SN_OP_reduce_sum) return em_add(e, a, b);
    bool max = n->op == SN_OP_reduce_max;
    if (n->dtype == SN_U8) return em_select(e, max ? em_ult(e, b, a) : em_ult(e, a, b), a, b);
    if (!em_is_float(a)) return max ? em_imax(e, a, b) : em_imin(e, a, b);
    if (ignores_nan) return max ? em_max(e, a, b) : em_min(e, a, b);
    return max ? em_max_nan(e, a, b) : em_min_nan(e, a, b);
}

em_val sn_reduce_lanes(em *e, const sn_node *n, bool ignores_nan, em_val v) {
    for (int k = em_lanes_of(v) / 2; k >= 1; k /= 2)
        v = sn_reduce(e, n, ignores_nan, k > 1 ? em_part(e, v, 0, k) : em_extract(e, v, 0),
                      k > 1 ? em_part(e, v, k, k) : em_extract(e, v, 1));
    return sn_emit_rounded(e, (sn_dtype)n->dtype, v);
}
