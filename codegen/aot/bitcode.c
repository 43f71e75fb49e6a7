/* bitcode.c: merges modules with LLVM's linker and generates the code of all of them. Functions keep
 * the CPU and the features that they were emitted for. */
#include "codegen/aot/bitcode.h"

#include "codegen/emit/llvm_compat.h"

#include <stdlib.h>
#include <string.h>

struct sn_bitcode {
    LLVMContextRef ctx;
    LLVMModuleRef mod; /* NULL: nothing was added */
    sn_error diagnosed;
    bool lost; /* LLVM ran out of memory: nothing may be freed */
};

/* Frames of more than a page touch each of their pages in order, as Windows requires: rax has the size
 * of the frame and is kept, like all registers but the flags. A function of ours, because the one of
 * MinGW's library has another name than MSVC's. */
#define PROBE "sn_stack_probe"
static const char probe[] =
    ".text\n.def " PROBE "; .scl 3; .type 32; .endef\n" PROBE ":\n"
    "pushq %rcx\npushq %rax\ncmpq $4096, %rax\nleaq 24(%rsp), %rcx\njb 2f\n"
    "1: subq $4096, %rcx\ntestq %rcx, (%rcx)\nsubq $4096, %rax\ncmpq $4096, %rax\nja 1b\n"
    "2: subq %rax, %rcx\ntestq %rcx, (%rcx)\npopq %rax\npopq %rcx\nretq\n";

/* A call of LLVM, which may run out of memory. */
typedef struct job {
    sn_bitcode *b;
    const sn_target *target;
    const char *name;
    const void *data; /* bytes, or lines */
    size_t bytes, align;
    sn_form form;
    sn_object *out;
    bool ok;
} job;

static bool run(sn_bitcode *b, void (*fn)(void *ctx), job *j, sn_error *err) {
    j->b = b;
    if (!sn_llvm_try(fn, j, err)) {
        b->lost = true;
        return false;
    }
    if (b->diagnosed.code) return sn_fail(err, b->diagnosed.code, "%s", b->diagnosed.message);
    return j->ok || sn_fail(err, SN_ERR_INTERNAL, "LLVM cannot read or link a kernel's bitcode");
}

sn_bitcode *sn_bitcode_new(sn_error *err) {
    sn_bitcode *b = calloc(1, sizeof *b);
    if (b) b->ctx = LLVMContextCreate();
    if (b) LLVMContextSetDiagnosticHandler(b->ctx, sn_llvm_diagnostic, &b->diagnosed);
    if (!b) sn_fail(err, SN_ERR_MEMORY, "out of memory for an object file");
    return b;
}

void sn_bitcode_free(sn_bitcode *b) {
    if (b && !b->lost) {
        if (b->mod) LLVMDisposeModule(b->mod);
        LLVMContextDispose(b->ctx);
    }
    free(b);
}

static void rename_value(LLVMValueRef v, const char *prefix) {
    char name[256];
    size_t n;
    const char *old = LLVMGetValueName2(v, &n);
    if (LLVMGetLinkage(v) == LLVMInternalLinkage || strncmp(old, "sn_", 3)) return;
    int length = snprintf(name, sizeof name, "%s%s", prefix, old + 3);
    LLVMSetValueName2(v, name, (size_t)length);
    LLVMSetVisibility(v, LLVMHiddenVisibility);
}

static void add(void *ctx) {
    job *j = ctx;
    sn_bitcode *b = j->b;
    LLVMModuleRef mod;
    LLVMMemoryBufferRef text = LLVMCreateMemoryBufferWithMemoryRangeCopy(j->data, j->bytes, "");
    j->ok = !LLVMParseBitcodeInContext2(b->ctx, text, &mod);
    LLVMDisposeMemoryBuffer(text);
    if (!j->ok) return;
    for (LLVMValueRef f = LLVMGetFirstFunction(mod); f && j->name; f = LLVMGetNextFunction(f))
        rename_value(f, j->name);
    for (LLVMValueRef g = LLVMGetFirstGlobal(mod); g && j->name; g = LLVMGetNextGlobal(g))
        rename_value(g, j->name);
    if (b->mod)
        j->ok = !LLVMLinkModules2(b->mod, mod);
    else
        b->mod = mod;
}

bool sn_bitcode_add(sn_bitcode *b, const char *prefix, const sn_object *o, sn_error *err) {
    return run(b, add, &(job){.name = prefix, .data = o->data, .bytes = o->size}, err);
}

static void add_data(void *ctx) {
    job *j = ctx;
    LLVMValueRef data = LLVMConstStringInContext2(j->b->ctx, j->data, j->bytes, 1),
                 old = LLVMGetNamedGlobal(j->b->mod, j->name),
                 g = LLVMAddGlobal(j->b->mod, LLVMTypeOf(data), "");
    LLVMSetInitializer(g, data);
    LLVMSetGlobalConstant(g, 1);
    LLVMSetLinkage(g, LLVMInternalLinkage);
    LLVMSetAlignment(g, (unsigned)j->align);
    if (old) {
        LLVMReplaceAllUsesWith(old, g);
        LLVMDeleteGlobal(old);
    }
    LLVMSetValueName2(g, j->name, strlen(j->name));
    j->ok = true;
}

bool sn_bitcode_add_data(sn_bitcode *b, const char *name, const void *data, size_t bytes,
                         size_t align, sn_error *err) {
    return run(b, add_data, &(job){.name = name, .data = data, .bytes = bytes, .align = align},
               err);
}

static void add_lines(void *ctx) {
    job *j = ctx;
    sn_lines_add(j->b->mod, j->data, (int)j->bytes);
    j->ok = true;
}

bool sn_bitcode_add_lines(sn_bitcode *b, const sn_source_line *line, int n, sn_error *err) {
    return run(b, add_lines, &(job){.data = line, .bytes = (size_t)n}, err);
}

/* ELF and COFF: a section for each function, so that linkers drop what is not used (Mach-O and
 * WebAssembly need none for that). Windows: the probe. */
static void settle_function(LLVMModuleRef mod, const sn_target *t, LLVMValueRef f,
                            const char *name) {
    static const char key[] = "probe-stack";
    static const char *const sections[] = {
        [SN_LINUX] = ".text.", [SN_WINDOWS] = ".text$", [SN_BROWSER] = NULL};
    if (t->system == SN_WINDOWS)
        LLVMAddAttributeAtIndex(f, LLVMAttributeFunctionIndex,
                                LLVMCreateStringAttribute(LLVMGetModuleContext(mod), key,
                                                          sizeof key - 1, PROBE, sizeof PROBE - 1));
    if (!sections[t->system]) return;
    char section[300];
    snprintf(section, sizeof section, "%s%s", sections[t->system], name);
    LLVMSetSection(f, section);
}

/* Makes hidden definitions local. Lists the others in `names`. */
static bool settle(sn_bitcode *b, const sn_target *t, FILE *names) {
    for (LLVMValueRef f = LLVMGetFirstFunction(b->mod); f; f = LLVMGetNextFunction(f)) {
        size_t n;
        const char *name = LLVMGetValueName2(f, &n);
        if (LLVMIsDeclaration(f)) continue;
        if (LLVMGetVisibility(f) == LLVMHiddenVisibility) {
            LLVMSetVisibility(f, LLVMDefaultVisibility);
            LLVMSetLinkage(f, LLVMInternalLinkage);
        }
        settle_function(b->mod, t, f, name);
        if (LLVMGetLinkage(f) == LLVMExternalLinkage) fprintf(names, "%s%c", name, 0);
    }
    if (t->system == SN_WINDOWS) LLVMAppendModuleInlineAsm(b->mod, probe, sizeof probe - 1);
    return !ferror(names);
}

static void finish(void *ctx) {
    job *j = ctx;
    char *list = NULL;
    size_t size = 0;
    FILE *names = open_memstream(&list, &size);
    j->ok = names && settle(j->b, j->target, names);
    if (names && fclose(names)) j->ok = false;
    *j->out = (sn_object){(uint8_t *)list, size};
}

bool sn_bitcode_finish(sn_bitcode *b, const sn_target *t, sn_object *names, sn_error *err) {
    *names = (sn_object){0};
    return run(b, finish, &(job){.target = t, .out = names}, err);
}

static void take_text(job *j, const char *text, size_t size) {
    *j->out = (sn_object){malloc(size + 1), size};
    if (j->out->data)
        memcpy(j->out->data, text, size);
    else
        sn_fail(&j->b->diagnosed, SN_ERR_MEMORY, "out of memory for an object");
    j->ok = j->out->data != NULL;
}

static void write_ir(job *j) {
    char *text = LLVMPrintModuleToString(j->b->mod);
    take_text(j, text, strlen(text));
    LLVMDisposeMessage(text);
}

/* Code generation changes the module, so it gets a copy. */
static void write_code(job *j) {
    char *message = NULL;
    LLVMMemoryBufferRef buffer = NULL;
    LLVMTargetMachineRef tm = sn_target_machine(j->target, true, &j->b->diagnosed);
    if (!tm) return;
    LLVMModuleRef copy = LLVMCloneModule(j->b->mod);
    LLVMCodeGenFileType type = j->form == SN_FORM_OBJECT ? LLVMObjectFile : LLVMAssemblyFile;
    if (LLVMTargetMachineEmitToMemoryBuffer(tm, copy, type, &message, &buffer)) {
        sn_fail(&j->b->diagnosed, SN_ERR_INTERNAL, "LLVM code generation: %s", message);
        LLVMDisposeMessage(message);
    }
    LLVMDisposeModule(copy);
    LLVMDisposeTargetMachine(tm);
    if (!buffer) return;
    take_text(j, LLVMGetBufferStart(buffer), LLVMGetBufferSize(buffer));
    LLVMDisposeMemoryBuffer(buffer);
}

static void write_form(void *ctx) {
    job *j = ctx;
    if (j->form == SN_FORM_IR)
        write_ir(j);
    else
        write_code(j);
}

bool sn_bitcode_write(sn_bitcode *b, const sn_target *t, sn_form form, sn_object *out,
                      sn_error *err) {
    *out = (sn_object){0};
    return run(b, write_form, &(job){.target = t, .form = form, .out = out}, err);
}
