/* interleave.c: copies of one computation, instruction by instruction in turns. A core looks only so
 * far ahead: if vectors follow each other, it has no more than two in flight whose every element takes
 * an exponential, which is a chain of 20 instructions. */
#include "codegen/emit/emit.h"

#include <llvm-c/Core.h>

em_copies em_begin_copies(em *e) {
    em_copies c = {.block = LLVMGetInsertBlock(e->b)};
    c.last[0] = LLVMGetLastInstruction(c.block);
    return c;
}

void em_end_copy(em *e, em_copies *c) {
    c->last[++c->n] = LLVMGetLastInstruction(LLVMGetInsertBlock(e->b));
}

/* The instruction after `before` in the block; NULL: the first. */
static em_val after(const em_copies *c, em_val before) {
    return before ? LLVMGetNextInstruction(before) : LLVMGetFirstInstruction(c->block);
}

/* Whether all operands have their places. */
static bool is_ready(em_val instruction) {
    for (int i = 0; i < LLVMGetNumOperands(instruction); i++) {
        em_val x = LLVMIsAInstruction(LLVMGetOperand(instruction, (unsigned)i));
        if (x && !LLVMGetInstructionParent(x)) return false;
    }
    return true;
}

void em_interleave(em *e, const em_copies *c) {
    enum { MAX_VALUES = 1024 };
    em_val list[MAX_VALUES];
    int next[EM_COPIES], end[EM_COPIES], n = 0;
    if (LLVMGetInsertBlock(e->b) != c->block) return; /* there are branches */
    em_val at = after(c, c->last[0]);
    for (int i = 0; i < c->n; i++) {
        next[i] = n;
        for (bool more = c->last[i] != c->last[i + 1]; more; at = LLVMGetNextInstruction(at)) {
            if (n == MAX_VALUES) return;
            more = at != c->last[i + 1];
            list[n++] = at;
        }
        end[i] = n;
    }
    for (int i = 0; i < n; i++) LLVMInstructionRemoveFromParent(list[i]);
    while (n > 0)
        for (int i = 0; i < c->n; i++) {
            if (next[i] == end[i] || !is_ready(list[next[i]])) continue;
            LLVMInsertIntoBuilder(e->b, list[next[i]++]);
            n--;
        }
}
