/* lines.c: line information for debuggers and profilers. A kernel has no source of its own: its functions
 * are at the line of the model's source whose operation it computes, and so are calls of it. Of several
 * lines with the same kernel the first one counts. */
#include "codegen/aot/lines.h"

#include <stdbool.h>
#include <string.h>

typedef struct lines {
    const sn_source_line *line;
    int n;
    LLVMContextRef ctx;
    LLVMDIBuilderRef builder;
} lines;

/* The kernel whose name is a part of a function's; NULL: none. */
static const sn_source_line *find(const lines *l, LLVMValueRef function) {
    size_t n;
    const char *name = LLVMGetValueName2(function, &n);
    for (int i = 0; i < l->n; i++)
        if (strstr(name, l->line[i].kernel)) return &l->line[i];
    return NULL;
}

/* The kernel that an instruction calls, or gives to the function that it calls; NULL: none. */
static const sn_source_line *find_called(const lines *l, LLVMValueRef instruction) {
    const sn_source_line *at = NULL;
    if (!LLVMIsACallInst(instruction)) return NULL;
    for (int i = 0; i < LLVMGetNumOperands(instruction) && !at; i++) {
        LLVMValueRef f = LLVMGetOperand(instruction, (unsigned)i);
        if (LLVMIsAFunction(f)) at = find(l, f);
    }
    return at;
}

/* That of the first call. */
static const sn_source_line *find_first(const lines *l, LLVMValueRef function) {
    const sn_source_line *at = find(l, function);
    for (LLVMBasicBlockRef b = LLVMGetFirstBasicBlock(function); b && !at;
         b = LLVMGetNextBasicBlock(b))
        for (LLVMValueRef i = LLVMGetFirstInstruction(b); i && !at; i = LLVMGetNextInstruction(i))
            at = find_called(l, i);
    return at;
}

static LLVMMetadataRef file_of(const lines *l, const sn_source_line *at) {
    return LLVMDIBuilderCreateFile(l->builder, at->file, strlen(at->file), "", 0);
}

/* Each instruction is at the line of the last call before it. */
static void place(const lines *l, LLVMValueRef function) {
    const sn_source_line *first = find_first(l, function), *at = first, *called;
    if (!first) return;
    size_t n;
    const char *name = LLVMGetValueName2(function, &n);
    const bool whole = find(l, function) != NULL;
    LLVMMetadataRef type =
        LLVMDIBuilderCreateSubroutineType(l->builder, file_of(l, at), NULL, 0, 0);
    LLVMMetadataRef program = LLVMDIBuilderCreateFunction(
        l->builder, file_of(l, at), name, n, "", 0, file_of(l, at), (unsigned)at->line, type,
        LLVMGetLinkage(function) == LLVMInternalLinkage, 1, (unsigned)at->line, 0, 1);
    LLVMSetSubprogram(function, program);
    for (LLVMBasicBlockRef b = LLVMGetFirstBasicBlock(function); b; b = LLVMGetNextBasicBlock(b))
        for (LLVMValueRef i = LLVMGetFirstInstruction(b); i; i = LLVMGetNextInstruction(i)) {
            if (!whole && (called = find_called(l, i))) at = called;
            LLVMMetadataRef scope = program;
            if (strcmp(at->file, first->file))
                scope = LLVMDIBuilderCreateLexicalBlockFile(l->builder, program, file_of(l, at), 0);
            LLVMInstructionSetDebugLoc(
                i, LLVMDIBuilderCreateDebugLocation(l->ctx, (unsigned)at->line, 0, scope, NULL));
        }
}

static void add_flag(LLVMModuleRef mod, const char *key, unsigned value) {
    LLVMTypeRef i32 = LLVMInt32TypeInContext(LLVMGetModuleContext(mod));
    LLVMAddModuleFlag(mod, LLVMModuleFlagBehaviorWarning, key, strlen(key),
                      LLVMValueAsMetadata(LLVMConstInt(i32, value, 0)));
}

void sn_lines_add(LLVMModuleRef mod, const sn_source_line *line, int n) {
    static const char producer[] = "Sinter " SN_VERSION;
    if (!n) return;
    lines l = {line, n, LLVMGetModuleContext(mod), LLVMCreateDIBuilder(mod)};
    LLVMDIBuilderCreateCompileUnit(l.builder, LLVMDWARFSourceLanguageC11, file_of(&l, line),
                                   producer, sizeof producer - 1, 1, "", 0, 0, "", 0,
                                   LLVMDWARFEmissionFull, 0, 0, 0, "", 0, "", 0);
    for (LLVMValueRef f = LLVMGetFirstFunction(mod); f; f = LLVMGetNextFunction(f))
        if (!LLVMIsDeclaration(f)) place(&l, f);
    add_flag(mod, "Debug Info Version", LLVMDebugMetadataVersion());
    add_flag(mod, "Dwarf Version", 4); /* binutils confuses the files of version 5 */
    LLVMDIBuilderFinalize(l.builder);
    LLVMDisposeDIBuilder(l.builder);
}
