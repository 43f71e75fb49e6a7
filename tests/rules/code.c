/* code.c: one line for each kind of instruction. */
#include "tests/rules/code.h"
#include "tests/rules/smt.h"

#include <llvm-c/Core.h>
#include <stdio.h>
#include <string.h>

enum { MAX_VALUES = 512, BUF = 0, DIM = 1 };

typedef struct translation {
    em_val kernel, value[MAX_VALUES];
    int n;
    code *to;
} translation;

static int width(em_val v) {
    const LLVMTypeRef t = LLVMTypeOf(v);
    return LLVMGetTypeKind(t) == LLVMIntegerTypeKind ? (int)LLVMGetIntTypeWidth(t) : 0;
}

static const char *refuse(translation *t, em_val v) {
    char *text = LLVMPrintValueToString(v);
    if (!t->to->why) t->to->why = smt_text("%s", text);
    LLVMDisposeMessage(text);
    return "?";
}

/* k of p[k], for a pointer to elements of 8 bytes from parameter `from`; -1: something else. */
static int64_t element(em_val p, em_val from) {
    if (p == from) return 0;
    if (!LLVMIsAGetElementPtrInst(p) || LLVMGetOperand(p, 0) != from) return -1;
    const em_val at = LLVMGetOperand(p, 1);
    const LLVMTypeRef t = LLVMGetGEPSourceElementType(p);
    if (!LLVMIsAConstantInt(at)) return -1;
    const bool bytes = LLVMGetTypeKind(t) == LLVMIntegerTypeKind && LLVMGetIntTypeWidth(t) == 8;
    return LLVMConstIntGetSExtValue(at) / (bytes ? 8 : 1);
}

static const char *value(translation *t, em_val v);

static const char *number(em_val v) {
    const int n = width(v);
    const unsigned long long bits = LLVMConstIntGetZExtValue(v);
    return n == 1 ? smt_text("#b%d", (int)bits) : smt_text("#x%0*llx", n / 4, bits);
}

static const char *as_bit(const char *condition) {
    return smt_text("(ite %s #b1 #b0)", condition);
}

static const char *comparison(translation *t, em_val v) {
    static const char *const name[] = {
        [LLVMIntEQ] = "=",      [LLVMIntNE] = "distinct", [LLVMIntUGT] = "bvugt",
        [LLVMIntUGE] = "bvuge", [LLVMIntULT] = "bvult",   [LLVMIntULE] = "bvule",
        [LLVMIntSGT] = "bvsgt", [LLVMIntSGE] = "bvsge",   [LLVMIntSLT] = "bvslt",
        [LLVMIntSLE] = "bvsle"};
    return as_bit(smt_text("(%s %s %s)", name[LLVMGetICmpPredicate(v)],
                           value(t, LLVMGetOperand(v, 0)), value(t, LLVMGetOperand(v, 1))));
}

static const char *resized(translation *t, em_val v, const char *how) {
    const em_val x = LLVMGetOperand(v, 0);
    if (!how) return smt_text("((_ extract %d 0) %s)", width(v) - 1, value(t, x));
    return smt_text("((_ %s %d) %s)", how, width(v) - width(x), value(t, x));
}

static const char *call(translation *t, em_val v) {
    static const struct {
        const char *name, *chooses;
    } known[] = {{"llvm.smin.", "bvslt"},
                 {"llvm.smax.", "bvsgt"},
                 {"llvm.umin.", "bvult"},
                 {"llvm.umax.", "bvugt"}};
    size_t n;
    const char *name = LLVMGetValueName2(LLVMGetCalledValue(v), &n), *x;
    for (size_t i = 0; i < sizeof known / sizeof *known; i++) {
        if (strncmp(name, known[i].name, strlen(known[i].name))) continue;
        x = value(t, LLVMGetOperand(v, 0));
        const char *y = value(t, LLVMGetOperand(v, 1));
        return smt_text("(ite (%s %s %s) %s %s)", known[i].chooses, x, y, x, y);
    }
    if (strncmp(name, "llvm.abs.", 9)) return refuse(t, v);
    x = value(t, LLVMGetOperand(v, 0));
    return smt_text("(ite (bvslt %s (bvneg %s)) (bvneg %s) %s)", x, x, x, x);
}

static const char *instruction(translation *t, em_val v) {
    static const char *const binary[] = {
        [LLVMAdd] = "bvadd",   [LLVMSub] = "bvsub", [LLVMMul] = "bvmul",   [LLVMSDiv] = "bvsdiv",
        [LLVMSRem] = "bvsrem", [LLVMShl] = "bvshl", [LLVMLShr] = "bvlshr", [LLVMAShr] = "bvashr",
        [LLVMAnd] = "bvand",   [LLVMOr] = "bvor",   [LLVMXor] = "bvxor"};
    const LLVMOpcode op = LLVMGetInstructionOpcode(v);
    if (op < sizeof binary / sizeof *binary && binary[op])
        return smt_text("(%s %s %s)", binary[op], value(t, LLVMGetOperand(v, 0)),
                        value(t, LLVMGetOperand(v, 1)));
    switch (op) {
    case LLVMICmp:
        return comparison(t, v);
    case LLVMSelect:
        return smt_text("(ite (= %s #b1) %s %s)", value(t, LLVMGetOperand(v, 0)),
                        value(t, LLVMGetOperand(v, 1)), value(t, LLVMGetOperand(v, 2)));
    case LLVMSExt:
        return resized(t, v, "sign_extend");
    case LLVMZExt:
        return resized(t, v, "zero_extend");
    case LLVMTrunc:
        return resized(t, v, NULL);
    case LLVMCall:
        return call(t, v);
    default:
        return refuse(t, v);
    }
}

/* The term of a value; defines it and what it needs. */
static const char *value(translation *t, em_val v) {
    if (LLVMIsAConstantInt(v)) return number(v);
    if (!LLVMIsAInstruction(v) || !width(v)) return refuse(t, v);
    if (LLVMGetInstructionOpcode(v) == LLVMLoad) {
        const int64_t k = element(LLVMGetOperand(v, 0), LLVMGetParam(t->kernel, DIM));
        return k < 0 ? refuse(t, v) : smt_text("d%d", (int)k);
    }
    for (int i = 0; i < t->n; i++)
        if (t->value[i] == v) return smt_text("v%d", i);
    const char *term = instruction(t, v);
    if (t->n == MAX_VALUES) return refuse(t, v);
    t->value[t->n] = v;
    t->to->definitions = smt_text("%s(define-fun v%d () (_ BitVec %d) %s)\n", t->to->definitions,
                                  t->n, width(v), term);
    return smt_text("v%d", t->n++);
}

code code_smt(em_val kernel) {
    code c = {.definitions = ""};
    translation t = {.kernel = kernel, .to = &c};
    if (LLVMCountBasicBlocks(kernel) != 2) c.why = "a branch"; /* entry and body */
    for (em_val v = LLVMGetFirstInstruction(LLVMGetLastBasicBlock(kernel)); v && !c.why;
         v = LLVMGetNextInstruction(v)) {
        if (LLVMGetInstructionOpcode(v) != LLVMStore) continue;
        const em_val p = LLVMGetOperand(v, 1);
        const int64_t k =
            LLVMIsALoadInst(p) ? element(LLVMGetOperand(p, 0), LLVMGetParam(kernel, BUF)) : -1;
        if (k < 0 || k >= CODE_MAX_RESULTS)
            refuse(&t, v);
        else
            c.result[k] = value(&t, LLVMGetOperand(v, 0));
    }
    return c;
}
