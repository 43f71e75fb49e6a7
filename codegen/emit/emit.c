/* emit.c: the context of emission, functions, constants and control flow.
 * Arithmetic and lanes are in ops.c, loads and stores in mem.c. */
#include "codegen/emit/emit.h"
#include "codegen/emit/signature.h"

#include <string.h>

/* --- context ---------------------------------------------------------------------------------- */

bool em_init(em *e, const sn_target *t, const char *name, sn_dtype compute, sn_error *err) {
    *e = (em){.target = t, .compute = compute, .fmf = LLVMFastMathAllowContract};
    if (compute != SN_F32 && compute != SN_F64)
        return sn_fail(err, SN_ERR_INTERNAL, "kernel '%s': compute type %s is neither f32 nor f64",
                       name, sn_dtype_name(compute));
    LLVMTargetMachineRef tm = sn_target_machine(t, true, err);
    if (!tm) return false;
    LLVMContextRef c = e->ctx = LLVMContextCreate();
    e->mod = LLVMModuleCreateWithNameInContext(name, c);
    LLVMTargetDataRef layout = LLVMCreateTargetDataLayout(tm);
    LLVMSetModuleDataLayout(e->mod, layout);
    LLVMSetTarget(e->mod, t->triple);
    if (sn_target_abi(t)) {
        const char *abi = sn_target_abi(t);
        LLVMAddModuleFlag(e->mod, LLVMModuleFlagBehaviorError, "target-abi", 10,
                          LLVMMDStringInContext2(c, abi, strlen(abi)));
    }
    LLVMDisposeTargetData(layout);
    LLVMDisposeTargetMachine(tm);
    e->b = LLVMCreateBuilderInContext(c);
    e->tvoid = LLVMVoidTypeInContext(c);
    e->ptr = LLVMPointerTypeInContext(c, 0);
    e->i1 = LLVMInt1TypeInContext(c);
    e->i8 = LLVMInt8TypeInContext(c);
    e->i16 = LLVMInt16TypeInContext(c);
    e->i32 = LLVMInt32TypeInContext(c);
    e->i64 = LLVMInt64TypeInContext(c);
    e->f32 = LLVMFloatTypeInContext(c);
    e->f64 = LLVMDoubleTypeInContext(c);
    e->ft = compute == SN_F32 ? e->f32 : e->f64;
    e->lanes = sn_target_lanes(t, compute);
    e->vt = em_vec(e->ft, e->lanes);
    return true;
}

static const char abandoned[] = "sinter.abandoned";

void em_abandon(LLVMModuleRef mod) {
    LLVMGetOrInsertNamedMetadata(mod, abandoned, sizeof abandoned - 1);
}

void em_free(em *e) {
    if (e->mod && LLVMGetNamedMetadata(e->mod, abandoned, sizeof abandoned - 1)) *e = (em){0};
    if (e->b) LLVMDisposeBuilder(e->b);
    if (e->mod) LLVMDisposeModule(e->mod);
    if (e->ctx) LLVMContextDispose(e->ctx);
    *e = (em){0};
}

LLVMModuleRef em_finish(em *e, sn_error *err) {
    if (e->err.code) {
        sn_fail(err, e->err.code, "%s", e->err.message);
        return NULL;
    }
    char *message = NULL;
    bool bad = LLVMVerifyModule(e->mod, LLVMReturnStatusAction, &message);
    if (bad) sn_fail(err, SN_ERR_INTERNAL, "emitted code does not verify: %s", message);
    LLVMDisposeMessage(message);
    return bad ? NULL : e->mod;
}

void em_dump(const em *e, FILE *out) {
    char *text = LLVMPrintModuleToString(e->mod);
    fputs(text, out);
    LLVMDisposeMessage(text);
}

/* --- functions -------------------------------------------------------------------------------- */

static void add_flag(em *e, em_val fn, unsigned place, const char *name) {
    unsigned kind = LLVMGetEnumAttributeKindForName(name, strlen(name));
    LLVMAddAttributeAtIndex(fn, place, LLVMCreateEnumAttribute(e->ctx, kind, 0));
}

static void add_text(em *e, em_val fn, const char *key, const char *value) {
    LLVMAddAttributeAtIndex(fn, LLVMAttributeFunctionIndex,
                            LLVMCreateStringAttribute(e->ctx, key, (unsigned)strlen(key), value,
                                                      (unsigned)strlen(value)));
}

/* SVE's registers have this length: then LLVM uses them for vectors of it. */
static void add_sve_length(em *e, em_val fn) {
    const uint64_t parts = (uint64_t)e->target->sve_bytes / 16; /* the least and the most */
    unsigned kind = LLVMGetEnumAttributeKindForName("vscale_range", 12);
    LLVMAddAttributeAtIndex(fn, LLVMAttributeFunctionIndex,
                            LLVMCreateEnumAttribute(e->ctx, kind, parts << 32 | parts));
}

/* Begins a function with the attributes of all generated code. Its entry block holds only stack
 * slots and ends with a jump to the body. */
static em_val open_function(em *e, const char *name, em_type ret, const em_type *params, int n) {
    em_type type = LLVMFunctionType(ret, (em_type *)params, (unsigned)n, 0);
    if (LLVMGetNamedFunction(e->mod, name))
        sn_fail(&e->err, SN_ERR_INTERNAL, "function '%s' is emitted twice", name);
    em_val fn = LLVMAddFunction(e->mod, name, type);
    add_flag(e, fn, LLVMAttributeFunctionIndex, "nounwind");
    add_text(e, fn, "target-cpu", e->target->cpu);
    if (*e->target->tune) add_text(e, fn, "tune-cpu", e->target->tune);
    add_text(e, fn, "target-features", e->target->features);
    add_text(e, fn, "no-builtins", "");
    add_text(e, fn, "no-trapping-math", "true");
    char bits[16];
    snprintf(bits, sizeof bits, "%d", e->target->vector_bytes * 8);
    add_text(e, fn, "prefer-vector-width", bits);
    if (e->target->sve_bytes) add_sve_length(e, fn);
    for (int i = 0; i < n; i++)
        if (params[i] == e->ptr) {
            add_flag(e, fn, (unsigned)i + 1, "noalias");
            add_flag(e, fn, (unsigned)i + 1, "noundef");
            add_flag(e, fn, (unsigned)i + 1, SN_LLVM_NOCAPTURE);
        }
    LLVMBasicBlockRef entry = LLVMAppendBasicBlockInContext(e->ctx, fn, "entry");
    LLVMBasicBlockRef body = LLVMAppendBasicBlockInContext(e->ctx, fn, "body");
    LLVMPositionBuilderAtEnd(e->b, entry);
    LLVMBuildBr(e->b, body);
    LLVMPositionBuilderAtEnd(e->b, body);
    e->fn = fn;
    return fn;
}

void em_kernel(em *e, const char *name) {
    const em_type params[] = {e->ptr, e->ptr, e->ptr, e->i64, e->i64};
    em_val fn = open_function(e, name, e->tvoid, params, 5);
    add_flag(e, fn, 1, "readonly");
    add_flag(e, fn, 2, "readonly");
    LLVMAddAttributeAtIndex(
        fn, 3, LLVMCreateEnumAttribute(e->ctx, LLVMGetEnumAttributeKindForName("align", 5), 64));
    e->buf = LLVMGetParam(fn, 0);
    e->dim = LLVMGetParam(fn, 1);
    e->scratch = LLVMGetParam(fn, 2);
    e->tid = LLVMGetParam(fn, 3);
    e->nthreads = LLVMGetParam(fn, 4);
    static const char *const names[] = {"buf", "dim", "scratch", "tid", "nthreads"};
    for (unsigned i = 0; i < 5; i++)
        LLVMSetValueName2(LLVMGetParam(fn, i), names[i], strlen(names[i]));
}

void em_end_kernel(em *e) {
    em_ret(e, NULL);
    e->buf = e->dim = e->scratch = e->tid = e->nthreads = NULL;
}

em_val em_function(em *e, const char *name, em_type ret, const em_type *params, int n) {
    em_val fn = open_function(e, name, ret, params, n);
    LLVMSetLinkage(fn, LLVMInternalLinkage);
    return fn;
}

em_val em_param(em *e, int k) {
    return LLVMGetParam(e->fn, (unsigned)k);
}

void em_ret(em *e, em_val v) {
    if (v)
        LLVMBuildRet(e->b, v);
    else
        LLVMBuildRetVoid(e->b);
    e->fn = NULL;
}

em_val em_call(em *e, em_val fn, const em_val *args, int n) {
    return LLVMBuildCall2(e->b, LLVMGlobalGetValueType(fn), fn, (em_val *)args, (unsigned)n, "");
}

void em_name_params(em_val fn, const char *const *names, int n) {
    for (int i = 0; i < n; i++)
        LLVMSetValueName2(LLVMGetParam(fn, (unsigned)i), names[i], strlen(names[i]));
}

em_val em_function_named(em *e, const char *name, em_type result, const em_type *types,
                         const char *const *names, int n) {
    em_val fn = em_function(e, name, result, types, n);
    em_name_params(fn, names, n);
    return fn;
}

/* A value of fn's result type, after an error. */
static em_val no_result(em *e, em_val fn) {
    em_type t = LLVMGetReturnType(LLVMGlobalGetValueType(fn));
    return t == e->tvoid ? NULL : LLVMConstNull(t);
}

em_val em_call_named(em *e, em_val fn, const char *const *names, const em_val *args, int n) {
    size_t length;
    const char *callee = LLVMGetValueName2(fn, &length);
    bool ok = LLVMCountParams(fn) == (unsigned)n;
    for (int i = 0; i < n && ok; i++)
        ok = !strcmp(LLVMGetValueName2(LLVMGetParam(fn, (unsigned)i), &length), names[i]);
    if (!ok) {
        sn_fail(&e->err, SN_ERR_INTERNAL, "call of '%s' by the signature of another function",
                callee);
        return no_result(e, fn);
    }
    for (int i = 0; i < n; i++) {
        if (args[i] && LLVMTypeOf(args[i]) == LLVMTypeOf(LLVMGetParam(fn, (unsigned)i))) continue;
        sn_fail(&e->err, SN_ERR_INTERNAL, "call of '%s': argument '%s' %s", callee, names[i],
                args[i] ? "has the wrong type" : "is missing");
        return no_result(e, fn);
    }
    return em_call(e, fn, args, n);
}

void em_no_inline(em *e, em_val fn) {
    add_flag(e, fn, LLVMAttributeFunctionIndex, "noinline");
}

void em_no_optimise(em *e, em_val fn) {
    em_no_inline(e, fn); /* LLVM requires it */
    add_flag(e, fn, LLVMAttributeFunctionIndex, "optnone");
}

static const char outer[] = "sinter-outer";

void em_outer(em *e) {
    em_no_inline(e, e->fn); /* optnone requires it */
    add_text(e, e->fn, outer, "");
}

void em_settle_outer(LLVMModuleRef mod) {
    unsigned optnone = LLVMGetEnumAttributeKindForName("optnone", 7);
    LLVMAttributeRef quick = LLVMCreateEnumAttribute(LLVMGetModuleContext(mod), optnone, 0);
    for (LLVMValueRef f = LLVMGetFirstFunction(mod); f; f = LLVMGetNextFunction(f))
        if (LLVMGetStringAttributeAtIndex(f, LLVMAttributeFunctionIndex, outer,
                                          (unsigned)strlen(outer)))
            LLVMAddAttributeAtIndex(f, LLVMAttributeFunctionIndex, quick);
}

void em_export(em *e, em_val fn, const char *name) {
    LLVMSetLinkage(fn, LLVMExternalLinkage);
    add_text(e, fn, "wasm-export-name", name);
}

em_val em_extern(em *e, const char *name, em_type ret, const em_type *params, int n) {
    em_val fn = LLVMGetNamedFunction(e->mod, name);
    if (fn) return fn;
    fn = LLVMAddFunction(e->mod, name, LLVMFunctionType(ret, (em_type *)params, (unsigned)n, 0));
    add_flag(e, fn, LLVMAttributeFunctionIndex, "nounwind");
    return fn;
}

em_val em_intrinsic(em *e, const char *name, const em_type *over, int n_over, const em_val *args,
                    int n) {
    unsigned id = LLVMLookupIntrinsicID(name, strlen(name));
    if (!id) {
        sn_fail(&e->err, SN_ERR_INTERNAL, "this LLVM has no intrinsic %s", name);
        return n ? args[0] : em_i64(e, 0);
    }
    em_val fn = LLVMGetIntrinsicDeclaration(e->mod, id, (em_type *)over, (size_t)n_over);
    em_val v = em_call(e, fn, args, n);
    if (LLVMCanValueUseFastMathFlags(v)) LLVMSetFastMathFlags(v, e->fmf);
    return v;
}

em_val em_unary_intrinsic(em *e, const char *name, em_val x) {
    em_type t = LLVMTypeOf(x);
    return em_intrinsic(e, name, &t, 1, &x, 1);
}

/* A slot in the entry block, before its jump, whatever is being written now. */
static em_val alloca_at_entry(em *e, em_type t, int64_t n, unsigned align) {
    LLVMBasicBlockRef here = LLVMGetInsertBlock(e->b), entry = LLVMGetEntryBasicBlock(e->fn);
    LLVMPositionBuilderBefore(e->b, LLVMGetBasicBlockTerminator(entry));
    em_val slot = LLVMBuildArrayAlloca(e->b, t, em_i64(e, n), "");
    if (align) LLVMSetAlignment(slot, align);
    LLVMPositionBuilderAtEnd(e->b, here);
    return slot;
}

em_val em_stack(em *e, sn_dtype t, int64_t n) {
    return alloca_at_entry(e, em_mem_type(e, t), n, 64);
}

em_var(em_let)(em *e, em_val init) {
    em_var v = {.type = LLVMTypeOf(init)};
    v.slot = alloca_at_entry(e, v.type, 1, 0);
    em_set(e, v, init);
    return v;
}

em_val em_get(em *e, em_var v) {
    return LLVMBuildLoad2(e->b, v.type, v.slot, "");
}

void em_set(em *e, em_var v, em_val x) {
    if (LLVMTypeOf(x) != v.type)
        sn_fail(&e->err, SN_ERR_INTERNAL, "em_set: value and variable differ in type");
    LLVMBuildStore(e->b, x, v.slot);
}

/* --- types and constants ---------------------------------------------------------------------- */

em_type em_mem_type(em *e, sn_dtype t) {
    const em_type types[SN_DTYPE_COUNT] = {
        [SN_F32] = e->f32,  [SN_F64] = e->f64,
        [SN_BF16] = e->i16, [SN_F16] = e->target->has_f16c ? LLVMHalfTypeInContext(e->ctx) : e->i16,
        [SN_I32] = e->i32,  [SN_I64] = e->i64,
        [SN_I8] = e->i8,    [SN_U8] = e->i8,
        [SN_BOOL] = e->i8,
    };
    return types[t];
}

em_type em_vec(em_type t, int n) {
    return n == 1 ? t : LLVMVectorType(t, (unsigned)n);
}

static bool is_vector(em_type t) {
    return LLVMGetTypeKind(t) == LLVMVectorTypeKind;
}

static em_type elem_of(em_type t) {
    return is_vector(t) ? LLVMGetElementType(t) : t;
}

int em_lanes_of(em_val v) {
    em_type t = LLVMTypeOf(v);
    return is_vector(t) ? (int)LLVMGetVectorSize(t) : 1;
}

em_type em_elem_type(em_val v) {
    return elem_of(LLVMTypeOf(v));
}

static bool is_float_type(em_type t) {
    LLVMTypeKind k = LLVMGetTypeKind(elem_of(t));
    return k == LLVMFloatTypeKind || k == LLVMDoubleTypeKind || k == LLVMHalfTypeKind;
}

bool em_is_float(em_val v) {
    return is_float_type(LLVMTypeOf(v));
}

em_val em_i64(em *e, int64_t v) {
    return LLVMConstInt(e->i64, (unsigned long long)v, 1);
}

em_val em_i32(em *e, int32_t v) {
    return LLVMConstInt(e->i32, (unsigned long long)v, 1);
}

em_val em_i1(em *e, bool v) {
    return LLVMConstInt(e->i1, v, 0);
}

em_val em_const(em_type t, double v) {
    return is_float_type(t) ? LLVMConstReal(t, v)
                            : LLVMConstInt(t, (unsigned long long)(long long)v, 1);
}

em_val em_f(em *e, double v) {
    return em_const(e->ft, v);
}

em_val em_zero(em_type t) {
    return LLVMConstNull(t);
}

em_val em_iota(em *e, em_type elem, int n) {
    em_val lane[256];
    if (n > 256) {
        sn_fail(&e->err, SN_ERR_INTERNAL, "em_iota: %d lanes are more than 256", n);
        n = 256;
    }
    for (int i = 0; i < n; i++) lane[i] = em_const(elem, i);
    return n == 1 ? lane[0] : LLVMConstVector(lane, (unsigned)n);
}

/* --- control ---------------------------------------------------------------------------------- */

static LLVMBasicBlockRef new_block(em *e, const char *name) {
    return LLVMAppendBasicBlockInContext(e->ctx, e->fn, name);
}

/* Loops are emitted in rotated form: a test before the loop guards it, a test at the end repeats
 * it. */
em_loop(em_for)(em *e, em_val lo, em_val hi, em_val step) {
    em_loop l = {.lo = lo, .hi = hi, .step = step};
    l.before = LLVMGetInsertBlock(e->b);
    l.body = new_block(e, "loop");
    l.after = new_block(e, "done");
    LLVMBuildCondBr(e->b, LLVMBuildICmp(e->b, LLVMIntSLT, lo, hi, ""), l.body, l.after);
    LLVMPositionBuilderAtEnd(e->b, l.body);
    l.i = LLVMBuildPhi(e->b, e->i64, "i");
    LLVMAddIncoming(l.i, &lo, &l.before, 1);
    return l;
}

/* A phi after those that the loop has. */
static em_val carry(em *e, em_loop *l, em_val init) {
    em_val first = LLVMGetFirstInstruction(l->body);
    while (LLVMIsAPHINode(first) && LLVMGetNextInstruction(first))
        first = LLVMGetNextInstruction(first);
    LLVMBasicBlockRef here = LLVMGetInsertBlock(e->b);
    if (LLVMIsAPHINode(first))
        LLVMPositionBuilderAtEnd(e->b, l->body);
    else
        LLVMPositionBuilderBefore(e->b, first);
    em_val phi = LLVMBuildPhi(e->b, LLVMTypeOf(init), "");
    LLVMPositionBuilderAtEnd(e->b, here);
    LLVMAddIncoming(phi, &init, &l->before, 1);
    return phi;
}

void em_carries(em *e, em_loop *l, em_val *v, int n) {
    for (int i = 0; i < n; i++) {
        if (!v[i]) continue;
        if (l->n_carry == EM_MAX_CARRY) {
            sn_fail(&e->err, SN_ERR_INTERNAL, "a loop carries more than %d values", EM_MAX_CARRY);
            return;
        }
        int k = l->n_carry++;
        l->init[k] = v[i];
        l->var[k] = &v[i];
        l->carry[k] = v[i] = carry(e, l, v[i]);
    }
}

em_val em_opaque(em *e, em_val v) {
    LLVMTypeRef type = LLVMFunctionType(e->i64, &e->i64, 1, false);
    em_val code =
        LLVMGetInlineAsm(type, "", 0, "=r,0", 4, false, false, LLVMInlineAsmDialectATT, false);
    return LLVMBuildCall2(e->b, type, code, &v, 1, "");
}

/* Strength reduction in LLVM's code generator would rewrite the addresses of every loop whose index
 * it recognises. That takes a third of the time of code generation and gains nothing that can be
 * measured, since the arithmetic of addresses runs beside that of vectors. Loops that end after one
 * round are left as they are: LLVM removes them. Loops up to 0 need no comparison after the addition,
 * if its own result is not hidden. */
static em_val next_index(em *e, const em_loop *l) {
    bool known =
        LLVMIsAConstantInt(l->lo) && LLVMIsAConstantInt(l->step) && LLVMIsAConstantInt(l->hi);
    if (known && LLVMConstIntGetSExtValue(l->lo) + LLVMConstIntGetSExtValue(l->step) >=
                     LLVMConstIntGetSExtValue(l->hi))
        return LLVMBuildNSWAdd(e->b, l->i, l->step, "");
    if (LLVMIsAConstantInt(l->hi) && LLVMConstIntGetSExtValue(l->hi) == 0)
        return LLVMBuildNSWAdd(e->b, em_opaque(e, l->i), l->step, "");
    return em_opaque(e, LLVMBuildNSWAdd(e->b, l->i, l->step, ""));
}

void em_end(em *e, em_loop *l) {
    em_val i = next_index(e, l);
    LLVMBasicBlockRef latch = LLVMGetInsertBlock(e->b);
    LLVMBuildCondBr(e->b, LLVMBuildICmp(e->b, LLVMIntSLT, i, l->hi, ""), l->body, l->after);
    LLVMAddIncoming(l->i, &i, &latch, 1);
    LLVMPositionBuilderAtEnd(e->b, l->after);
    for (int k = 0; k < l->n_carry; k++) {
        em_val *v = l->var[k], last = LLVMBuildPhi(e->b, LLVMTypeOf(l->init[k]), "");
        LLVMAddIncoming(l->carry[k], v, &latch, 1);
        LLVMAddIncoming(last, &l->init[k], &l->before, 1);
        LLVMAddIncoming(last, v, &latch, 1);
        *v = last;
    }
}

em_branch em_if(em *e, em_val cond) {
    em_branch br = {.from = LLVMGetInsertBlock(e->b)};
    br.yes = new_block(e, "then");
    br.no = new_block(e, "else");
    br.after = new_block(e, "fi");
    LLVMBuildCondBr(e->b, cond, br.yes, br.no);
    LLVMPositionBuilderAtEnd(e->b, br.yes);
    return br;
}

void em_else(em *e, em_branch *br) {
    br->yes_end = LLVMGetInsertBlock(e->b);
    br->has_else = true;
    LLVMBuildBr(e->b, br->after);
    LLVMPositionBuilderAtEnd(e->b, br->no);
}

void em_endif(em *e, em_branch *br) {
    if (!br->has_else) em_else(e, br);
    br->no_end = LLVMGetInsertBlock(e->b);
    LLVMBuildBr(e->b, br->after);
    LLVMPositionBuilderAtEnd(e->b, br->after);
}

em_val em_join(em *e, const em_branch *br, em_val if_yes, em_val if_no) {
    em_val phi = LLVMBuildPhi(e->b, LLVMTypeOf(if_yes), "");
    em_val v[] = {if_yes, if_no};
    LLVMBasicBlockRef from[] = {br->yes_end, br->no_end};
    LLVMAddIncoming(phi, v, from, 2);
    return phi;
}
