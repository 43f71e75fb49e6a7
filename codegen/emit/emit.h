/* emit.h: the vocabulary in which kernels are written: loops, loads, tails, arithmetic, reductions.
 * A thin layer over the LLVM C API, which handles types, element conversion, masks, fast-math flags
 * and alignment, so that kernels read as loops over tiles. */
#ifndef SN_EMIT_H
#define SN_EMIT_H

#include "codegen/emit/llvm_compat.h"
#include "codegen/emit/target.h"

#include <stdio.h>

/* Values. An em_val is a scalar or a vector. Every operation below takes either; if one operand is a
 * vector and the other a scalar, the scalar is broadcast. Arithmetic is float or (signed) integer,
 * depending on the type of the operands, which must otherwise agree.
 *
 * em_load converts float elements to the compute type (f32 or f64), em_store converts them back;
 * other elements have the same type in registers and memory. A condition or mask is i1 or <n x i1>.
 * A bool in memory is one byte, 0 or 1.
 *
 * A C integer may stand where an i64 is expected in arithmetic, comparisons, em_select, offsets of em_gep and bounds of
 * em_for: em_for(e, 0, n, 1). The macros at the end of this header make it a constant.
 *
 * The first error is recorded in `err` of the context. Emission continues with harmless values, and
 * em_finish fails. */
typedef LLVMValueRef em_val;
typedef LLVMTypeRef em_type;

typedef struct em {
    const sn_target *target; /* borrowed */
    LLVMContextRef ctx;      /* owned */
    LLVMModuleRef mod;       /* owned until em_finish */
    LLVMBuilderRef b;        /* where code goes */
    LLVMValueRef fn;         /* the function being written */
    sn_dtype compute;        /* SN_F32 or SN_F64: type of all float arithmetic */
    int lanes;               /* of a compute vector: 16, 8 or 4 for f32 */
    em_type tvoid, ptr, i1, i8, i16, i32, i64, f32, f64;
    em_type ft;            /* compute scalar */
    em_type vt;            /* compute vector of `lanes` */
    LLVMFastMathFlags fmf; /* on every float instruction from now on; default: contract only */
    em_val buf, dim, scratch, tid, nthreads; /* parameters of the kernel being written */
    sn_error err;
} em;

/* A context with an empty module called `name`. compute: SN_F32 or SN_F64. False on failure. */
bool em_init(em *e, const sn_target *t, const char *name, sn_dtype compute, sn_error *err);
void em_free(em *e); /* also after a failed em_init or after em_finish */
/* A fatal error of LLVM left this module unusable, even for disposal: em_free leaks it. */
void em_abandon(LLVMModuleRef mod);

/* The finished module after verification; it stays owned by `e` and lives until em_free. NULL and
 * `err` if an emission error stuck or LLVM's verifier objects. */
LLVMModuleRef em_finish(em *e, sn_error *err);
void em_dump(const em *e, FILE *out); /* the module as LLVM IR text */

/* --- functions --------------------------------------------------------------------------------
 * Every kernel has one signature:
 *   void kernel(void *const *buf, const int64_t *dim, void *scratch, int64_t tid, int64_t nthreads)
 * buf: base pointers of operands and results; dim: the run-time sizes and strides it asked for;
 * scratch: this thread's memory, aligned to 64 bytes; 0 <= tid < nthreads. Kernels contain no
 * barriers. */
typedef void sn_kernel_fn(void *const *buf, const int64_t *dim, void *scratch, int64_t tid,
                          int64_t nthreads);

void em_kernel(em *e,
               const char *name); /* begins a kernel; sets buf, dim, scratch, tid, nthreads */
void em_end_kernel(em *e);
em_val em_buf(em *e, int k); /* buf[k]: a pointer */
em_val em_dim(em *e, int k); /* dim[k]: an i64 */

/* A size, stride or offset in elements: a constant (slot < 0), or dim[slot] of the call. */
typedef struct em_size {
    int64_t value;
    int slot;
} em_size;

#define EM_SIZE_CONST(v) ((em_size){(v), -1})
#define EM_SIZE_DIM(s) ((em_size){0, (s)})
em_val em_size_value(em *e, em_size s);

/* Begins a function that is local to the module; its pointer parameters are noalias. em_ret ends it;
 * functions cannot be nested. Returns the function, for em_call. signature.h gives names to the
 * parameters. */
em_val em_function(em *e, const char *name, em_type ret, const em_type *params, int n);
em_val em_param(em *e, int k);
void em_ret(em *e, em_val v); /* v NULL: void */
em_val em_call(em *e, em_val fn, const em_val *args, int n);
void em_no_inline(em *e, em_val fn); /* never inlines fn */
/* LLVM compiles fn as fast as it can, as with -O0. */
void em_no_optimise(em *e, em_val fn);
/* LLVM optimises the function that is being written, but then selects its instructions as fast as it
 * can: for outer loops, whose time is that of the functions they call. */
void em_outer(em *e);
/* Does what em_outer promised; between LLVM's optimiser and its code generator. */
void em_settle_outer(LLVMModuleRef mod);
/* WebAssembly: the module exports the function under this name. */
void em_export(em *e, em_val fn, const char *name);

em_val em_extern(em *e, const char *name, em_type ret, const em_type *params, int n);
/* An LLVM intrinsic, overloaded on the types `over`: em_intrinsic(e, "llvm.fma", &t, 1,
 * args, 3). */
em_val em_intrinsic(em *e, const char *name, const em_type *over, int n_over, const em_val *args,
                    int n);
em_val em_unary_intrinsic(em *e, const char *name, em_val x); /* overloaded on the type of x */

/* The floating-point state of generated code: round to nearest, no traps, subnormal operands and
 * results are zero. em_fp_enter sets it on the calling thread and returns the former state (NULL if
 * the target has none), for em_fp_leave. Only calls may occur between the two, because LLVM may move
 * arithmetic across them. */
em_val em_fp_enter(em *e);
void em_fp_leave(em *e, em_val before);

/* n elements of t on the stack, aligned to 64 bytes, allocated once at function entry. */
em_val em_stack(em *e, sn_dtype t, int64_t n);

/* --- types and constants ---------------------------------------------------------------------- */
em_type em_mem_type(em *e, sn_dtype t); /* as stored: bool is i8, bf16 i16, f16 half or i16 */
em_type em_vec(em_type t, int n);       /* <n x t>; t itself for n = 1 */
int em_lanes_of(em_val v);              /* 1 for a scalar */
em_type em_elem_type(em_val v);         /* of a vector; a scalar's own */
bool em_is_float(em_val v);

em_val em_i64(em *e, int64_t v);
em_val em_i32(em *e, int32_t v);
em_val em_i1(em *e, bool v);
em_val em_const(em_type elem, double v);   /* scalar of that type, float or integer */
em_val em_f(em *e, double v);              /* compute scalar */
em_val em_vf(em *e, double v);             /* compute vector, all lanes v */
em_val em_like(em *e, em_val x, double v); /* constant of x's type, float or integer */
em_val em_zero(em_type t);
em_val em_splat(em *e, em_val scalar, int n); /* <n x .>; the scalar itself for n = 1 */
em_val em_iota(em *e, em_type elem, int n);   /* integer vector 0, 1, ... n-1 */

/* --- arithmetic ------------------------------------------------------------------------------- */
LLVMFastMathFlags em_fast(em *e, LLVMFastMathFlags flags); /* sets, returns the former ones */

em_val em_add(em *e, em_val a, em_val b);
em_val em_sub(em *e, em_val a, em_val b);
em_val em_mul(em *e, em_val a, em_val b);
em_val em_div(em *e, em_val a, em_val b); /* integers: signed, towards zero */
em_val em_rem(em *e, em_val a, em_val b); /* integers only, sign of a */
em_val em_neg(em *e, em_val a);
em_val em_abs(em *e, em_val a);
em_val em_sqrt(em *e, em_val a);
/* a*b + c, with one rounding if the target has FMA, else (fmuladd) at the target's choice. */
em_val em_fma(em *e, em_val a, em_val b, em_val c);
/* One instruction on x86: a > b ? a : b; if either is NaN the result is b. */
em_val em_max(em *e, em_val a, em_val b);
em_val em_min(em *e, em_val a, em_val b);
/* NaN if either is NaN. */
em_val em_max_nan(em *e, em_val a, em_val b);
em_val em_min_nan(em *e, em_val a, em_val b);

em_val em_and(em *e, em_val a, em_val b); /* bitwise; integers and masks */
em_val em_or(em *e, em_val a, em_val b);
em_val em_xor(em *e, em_val a, em_val b);
em_val em_not(em *e, em_val a);
em_val em_shl(em *e, em_val a, em_val b);
em_val em_lshr(em *e, em_val a, em_val b);
em_val em_ashr(em *e, em_val a, em_val b);

typedef enum em_cmp_op { EM_EQ, EM_NE, EM_LT, EM_LE, EM_GT, EM_GE } em_cmp_op;
/* Floats: false if either is NaN, except EM_NE, which is then true (C's rules). Integers signed. */
em_val em_cmp(em *e, em_cmp_op op, em_val a, em_val b);
em_val em_ult(em *e, em_val a, em_val b); /* unsigned integers */
em_val em_select(em *e, em_val cond, em_val a, em_val b);

em_val em_bitcast(em *e, em_val v, em_type t);
em_val em_int_cast(em *e, em_val v, em_type elem); /* sign-extends or truncates; i1 gives 0 or 1 */
em_val em_idx(em *e, em_val v);                    /* any integer as i64 */
/* Converts a value of type `from` (or a mask, an integer) to another element type. Float to integer
 * truncates and saturates, NaN gives 0; to bool: nonzero. f64 is converted to f16 and bf16 through
 * f32. */
em_val em_convert(em *e, em_val v, sn_dtype from, sn_dtype to);

/* --- lanes ------------------------------------------------------------------------------------ */
em_val em_extract(em *e, em_val v, int lane);
em_val em_extract_at(em *e, em_val v, em_val lane);
em_val em_insert(em *e, em_val v, em_val x, int lane);
em_val em_shuffle(em *e, em_val a, em_val b, const int *lanes, int n); /* lane < 0: undefined */
em_val em_part(em *e, em_val v, int first, int n);                     /* n consecutive lanes */
em_val em_concat(em *e, em_val a, em_val b);
void em_transpose(em *e, em_val *v, int n); /* n vectors v[n] of n lanes, in registers */

typedef enum em_red { EM_SUM, EM_MAX, EM_MIN } em_red;
em_val em_combine(em *e, em_red op, em_val a, em_val b); /* em_add, em_max, em_min */
em_val em_neutral(em *e, em_red op, em_type t);          /* 0, -inf, +inf of that type */
/* All lanes to a scalar, in a fixed order: halves are folded until one lane is left. */
em_val em_reduce(em *e, em_red op, em_val v);

/* --- memory ----------------------------------------------------------------------------------- */
em_val em_gep(em *e, em_val base, sn_dtype t, em_val index); /* base + index elements */
em_val em_gep_bytes(em *e, em_val base, em_val offset);

/* The first `valid` (i64) of n lanes; for valid <= 0 none, for valid >= n all. */
em_val em_tail_mask(em *e, em_val valid, int n);

/* Loads n consecutive elements of t: float types arrive in the compute type, integers as they are,
 * bool as i8. n = 1 gives a scalar. em_load_mask: masked lanes read nothing and are `fill` (NULL:
 * 0); a NULL mask means all lanes, so that the same code serves full and partial tiles. */
em_val em_load(em *e, sn_dtype t, em_val p, int n);
em_val em_load_mask(em *e, sn_dtype t, em_val p, int n, em_val mask, em_val fill);
em_val em_load_tail(em *e, sn_dtype t, em_val p, int n, em_val valid);
em_val em_load_splat(em *e, sn_dtype t, em_val p, int n); /* one element in all n lanes */
/* base[index[i]] for each lane; masked lanes (mask not NULL) are 0. index: i32 or i64 vector. */
em_val em_gather(em *e, sn_dtype t, em_val base, em_val index, em_val mask);

/* Stores all lanes of v as elements of t; v is of the compute type, an integer or a mask. */
void em_store(em *e, sn_dtype t, em_val p, em_val v);
void em_store_mask(em *e, sn_dtype t, em_val p, em_val v, em_val mask);
void em_store_tail(em *e, sn_dtype t, em_val p, em_val v, em_val valid);

/* Elements as stored, no conversion; `align` in bytes (0: that of one element). */
em_val em_load_raw(em *e, em_type t, em_val p, unsigned align);
void em_store_raw(em *e, em_val v, em_val p, unsigned align);

/* Prefetches the line at p; write: it will be written; level: 3 all caches .. 0 non-temporal. */
void em_prefetch(em *e, em_val p, bool write, int level);

/* Atomically adds v to the i64 at p and returns the former value (relaxed ordering). */
em_val em_fetch_add(em *e, em_val p, em_val v);

/* --- control ----------------------------------------------------------------------------------
 * for (i = lo; i < hi; i += step), step > 0; lo, hi, step are i64; l.i is the index. The state of a
 * loop is in carried values or a variable (em_var), which conditional code can set. em_carries makes the loop carry n
 * values: before it v holds what the first iteration starts with, after it what an iteration starts with; what v holds
 * at em_end goes to the next one; after em_end v holds the last ones. v must exist until then. NULLs are not carried.
 * Carries must be declared before other code of the body.
 *
 *     em_loop l = em_for(e, 0, n, 16);
 *     em_val sum = em_vf(e, 0);
 *     em_carries(e, &l, &sum, 1);
 *     sum = em_add(e, sum, em_load(e, SN_F32, em_gep(e, x, SN_F32, l.i), 16));
 *     em_end(e, &l);
 *     sum = em_reduce(e, EM_SUM, sum); */
enum { EM_MAX_CARRY = 96 };
typedef struct em_loop {
    em_val i;
    em_val lo, hi, step;
    LLVMBasicBlockRef before, body, after;
    int n_carry;
    em_val *var[EM_MAX_CARRY], carry[EM_MAX_CARRY], init[EM_MAX_CARRY];
} em_loop;

em_loop em_for(em *e, em_val lo, em_val hi, em_val step);
void em_carries(em *e, em_loop *l, em_val *v, int n);
void em_end(em *e, em_loop *l);
/* An integer (i64) whose origin LLVM does not know; no instruction is emitted. */
em_val em_opaque(em *e, em_val v);
/* What follows does not start before the n vectors, 2 to 32, are there; no instruction is emitted (AArch64). */
void em_in_order(em *e, em_val *v, int n);

/* An instruction of SVE, by LLVM's name of its intrinsic, for targets with sve_bytes: vectors as long as its
 * registers, the result has the type of args[0]. overloaded: the intrinsic has variants of that type. */
em_val em_sve(em *e, const char *name, bool overloaded, const em_val *args, int n);
/* A vector of type t that repeats the 16 bytes at p. */
em_val em_load_quads(em *e, em_type t, em_val p);

/* Copies of one computation, written one after another, whose instructions then take turns:
 *
 *     em_copies c = em_begin_copies(e);
 *     for (int k = 0; k < 4; k++) { ... em_end_copy(e, &c); }
 *     em_interleave(e, &c);
 *
 * A copy may use what an earlier one has computed, not what it has stored. Nothing happens if they
 * contain branches. */
enum { EM_COPIES = 4 };

typedef struct em_copies {
    LLVMBasicBlockRef block;
    em_val last[1 + EM_COPIES]; /* before the first copy, of each */
    int n;
} em_copies;

em_copies em_begin_copies(em *e);
void em_end_copy(em *e, em_copies *c);
void em_interleave(em *e, const em_copies *c);

/* if (cond) { ... } em_else { ... } em_endif; em_join after em_endif is the phi of two values. */
typedef struct em_branch {
    LLVMBasicBlockRef from, yes, no, after, yes_end, no_end;
    bool has_else;
} em_branch;

em_branch em_if(em *e, em_val cond);
void em_else(em *e, em_branch *br);
void em_endif(em *e, em_branch *br);
em_val em_join(em *e, const em_branch *br, em_val if_yes, em_val if_no);

/* A variable with the initial value `init`; the optimiser turns it into a register. */
typedef struct em_var {
    em_val slot;
    em_type type;
} em_var;
em_var em_let(em *e, em_val init);
em_val em_get(em *e, em_var v);
void em_set(em *e, em_var v, em_val x);

/* --- integers for tiling ---------------------------------------------------------------------- */
em_val em_imin(em *e, em_val a, em_val b); /* signed integers of one type */
em_val em_imax(em *e, em_val a, em_val b);
em_val em_ceil_div(em *e, em_val a, int64_t b);   /* a >= 0, b > 0 */
em_val em_round_down(em *e, em_val a, int64_t b); /* a >= 0 to a multiple of b */
/* This thread's share [lo, hi) of n work items, determined by (n, tid, nthreads). */
void em_share(em *e, em_val n, em_val *lo, em_val *hi);

/* --- C integers as operands ------------------------------------------------------------------- */
static inline em_val em_same(em *e, em_val v) {
    (void)e;
    return v;
}

em_val em_use_em_f(em *e, double x); /* not defined: a C float is not an integer */
/* clang-format off */
#define EM_INT(e, x) _Generic((x), em_val: em_same, float: em_use_em_f, double: em_use_em_f, default: em_i64)(e, x)
/* clang-format on */
#define EM_INTS(f, e, a, b) f(e, EM_INT(e, a), EM_INT(e, b))
#define em_add(e, a, b) EM_INTS((em_add), e, a, b)
#define em_sub(e, a, b) EM_INTS((em_sub), e, a, b)
#define em_mul(e, a, b) EM_INTS((em_mul), e, a, b)
#define em_div(e, a, b) EM_INTS((em_div), e, a, b)
#define em_rem(e, a, b) EM_INTS((em_rem), e, a, b)
#define em_and(e, a, b) EM_INTS((em_and), e, a, b)
#define em_shl(e, a, b) EM_INTS((em_shl), e, a, b)
#define em_lshr(e, a, b) EM_INTS((em_lshr), e, a, b)
#define em_imin(e, a, b) EM_INTS((em_imin), e, a, b)
#define em_imax(e, a, b) EM_INTS((em_imax), e, a, b)
#define em_cmp(e, op, a, b) (em_cmp)(e, op, EM_INT(e, a), EM_INT(e, b))
#define em_select(e, c, a, b) (em_select)(e, c, EM_INT(e, a), EM_INT(e, b))
#define em_splat(e, scalar, n) (em_splat)(e, EM_INT(e, scalar), n)
#define em_tail_mask(e, n, lanes) (em_tail_mask)(e, EM_INT(e, n), lanes)
#define em_store(e, t, p, v) (em_store)(e, t, p, EM_INT(e, v))
#define em_store_raw(e, v, p, align) (em_store_raw)(e, EM_INT(e, v), p, align)
#define em_let(e, init) (em_let)(e, EM_INT(e, init))
#define em_fetch_add(e, p, n) (em_fetch_add)(e, p, EM_INT(e, n))
#define em_gep(e, base, t, index) (em_gep)(e, base, t, EM_INT(e, index))
#define em_gep_bytes(e, base, offset) (em_gep_bytes)(e, base, EM_INT(e, offset))
#define em_for(e, lo, hi, step) (em_for)(e, EM_INT(e, lo), EM_INT(e, hi), EM_INT(e, step))

#endif
