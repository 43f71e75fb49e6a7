/* object.c: optimisation pipeline, code generation to memory, conversion of LLVM's errors. */
#include "codegen/jit/object.h"

#include "codegen/emit/emit.h"
#include "codegen/emit/llvm_compat.h"
#include "ir/ir.h"
#include "codegen_revision.h" /* made by cmake/revision.cmake */
#include "runtime/clock.h"

#include <dlfcn.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdlib.h>
#include <string.h>

#define QUICK_PIPELINE "always-inline,function(sroa)" /* SINTER_DEBUG=quick */

/* The emitted IR needs cleaning up only: variables to registers, address arithmetic out of loops,
 * common subexpressions of unrolled tiles. No vectoriser, no unroller, and no inliner except for
 * functions that a kernel marks. Scalars come first, so that later passes see less code. The builder
 * has folded constants, and the code generator combines instructions itself: with instcombine the
 * objects have the same size, and this pipeline takes twice the time. */
#define PIPELINE                                                                                   \
    "always-inline,function(sroa,early-cse<memssa>,simplifycfg,"                                   \
    "loop-mssa(licm),early-cse<memssa>,simplifycfg,adce)"

struct sn_codegen {
    sn_target target;
    sn_codegen_options options;
    LLVMTargetMachineRef machine, plain; /* plain: for code that is not worth optimising */
    LLVMPassBuilderOptionsRef passes;
    sn_codegen_stats stats;
};

const char *sn_codegen_version(void) {
#define VERSION "sinter-0.1." CODEGEN_REVISION " llvm-" LLVM_VERSION_STRING " "
    return sn_debug_get()->quick ? VERSION QUICK_PIPELINE : VERSION PIPELINE;
}

void sn_object_free(sn_object *o) {
    free(o->data);
    *o = (sn_object){0};
}

/* --- errors of LLVM --------------------------------------------------------------------------- */

/* On a fatal error LLVM calls a process-wide handler and exits. While this thread is inside LLVM the
 * handler jumps back here instead. The jump skips LLVM's destructors: the objects that LLVM was
 * working on are leaked and never used again. */
typedef struct fatal_guard {
    jmp_buf env;
    char message[512];
    sn_code code;
} fatal_guard;

static _Thread_local fatal_guard *active_guard;

static void on_fatal_error(const char *reason) {
    if (!active_guard) {
        fprintf(stderr, "sinter: fatal error in LLVM: %s\n", reason);
        return;
    }
    snprintf(active_guard->message, sizeof active_guard->message, "%s", reason);
    active_guard->code = SN_ERR_INTERNAL;
    longjmp(active_guard->env, 1);
}

typedef void new_handler(void);
static new_handler *(*set_new_handler)(new_handler *); /* std::set_new_handler; NULL: not found */
static new_handler *usual_handler;

/* operator new is out of memory. Inside sn_llvm_try this thread leaves LLVM; otherwise the handler
 * that was installed before is called, or std::bad_alloc is thrown. */
static void on_no_memory(void) {
    if (!active_guard) {
        set_new_handler(usual_handler);
        return;
    }
    strcpy(active_guard->message, "out of memory");
    active_guard->code = SN_ERR_MEMORY;
    longjmp(active_guard->env, 1);
}

static void on_bad_alloc(void *ctx, const char *reason, bool diagnose) {
    (void)ctx, (void)diagnose;
    if (active_guard) on_no_memory();
    on_fatal_error(reason);
}

/* Functions that LLVM's C API lacks are looked up by their C++ names. */
static void install_handler(void) {
    void (*install)(void (*)(void *, const char *, bool), void *) = NULL;
    void *set = dlsym(RTLD_DEFAULT, "_ZSt15set_new_handlerPFvvE"),
         *bad = dlsym(RTLD_DEFAULT, "_ZN4llvm31install_bad_alloc_error_handlerEPFvPvPKcbES0_");
    memcpy(&set_new_handler, &set, sizeof set);
    memcpy(&install, &bad, sizeof bad);
    LLVMInstallFatalErrorHandler(on_fatal_error);
    if (install) install(on_bad_alloc, NULL);
}

static void use_handlers(void) {
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, install_handler);
    if (!set_new_handler) return;
    new_handler *before = set_new_handler(on_no_memory);
    if (before != on_no_memory) usual_handler = before;
}

const void *sn_llvm_mark(void) {
    return active_guard;
}

void sn_llvm_reset(const void *mark) {
    active_guard = (fatal_guard *)(uintptr_t)mark;
}

bool sn_llvm_try(void (*fn)(void *ctx), void *ctx, sn_error *err) {
    fatal_guard guard, *const outer = active_guard;
    if (!sn_llvm_start(err)) return false;
    use_handlers();
    active_guard = &guard;
    if (setjmp(guard.env)) {
        active_guard = outer;
        return sn_fail(err, guard.code, "LLVM: %s", guard.message);
    }
    fn(ctx);
    active_guard = outer;
    return true;
}

void sn_llvm_diagnostic(LLVMDiagnosticInfoRef info, void *err) {
    if (LLVMGetDiagInfoSeverity(info) != LLVMDSError) return;
    char *text = LLVMGetDiagInfoDescription(info);
    sn_fail(err, SN_ERR_INTERNAL, "LLVM: %s", text);
    LLVMDisposeMessage(text);
}

/* --- the code generator ----------------------------------------------------------------------- */

sn_codegen *sn_codegen_create(const sn_target *t, const sn_codegen_options *options,
                              sn_error *err) {
    use_handlers();
    sn_codegen *g = calloc(1, sizeof *g);
    if (!g) {
        sn_fail(err, SN_ERR_MEMORY, "out of memory for the code generator");
        return NULL;
    }
    g->target = *t;
    if (options) g->options = *options;
    if (!g->options.passes) g->options.passes = sn_debug_get()->quick ? QUICK_PIPELINE : PIPELINE;
    g->machine = sn_target_machine(t, true, err);
    g->plain = g->machine ? sn_target_machine(t, false, err) : NULL;
    if (!g->plain) {
        if (g->machine) LLVMDisposeTargetMachine(g->machine);
        free(g);
        return NULL;
    }
    g->passes = LLVMCreatePassBuilderOptions();
    LLVMPassBuilderOptionsSetVerifyEach(g->passes, g->options.verify);
    LLVMPassBuilderOptionsSetLoopVectorization(g->passes, 0);
    LLVMPassBuilderOptionsSetSLPVectorization(g->passes, 0);
    return g;
}

void sn_codegen_destroy(sn_codegen *g) {
    if (!g) return;
    LLVMDisposePassBuilderOptions(g->passes);
    LLVMDisposeTargetMachine(g->machine);
    LLVMDisposeTargetMachine(g->plain);
    free(g);
}

const sn_codegen_stats *sn_codegen_get_stats(const sn_codegen *g) {
    return &g->stats;
}

static void dump_module(LLVMModuleRef mod, FILE *out) {
    if (!out) return;
    char *text = LLVMPrintModuleToString(mod);
    fputs(text, out);
    LLVMDisposeMessage(text);
}

static bool run_passes(sn_codegen *g, LLVMModuleRef mod, sn_error *err) {
    if (!g->options.passes[0]) return true;
    LLVMErrorRef failed = LLVMRunPasses(mod, g->options.passes, g->machine, g->passes);
    if (!failed) return true;
    char *message = LLVMGetErrorMessage(failed);
    sn_fail(err, SN_ERR_INTERNAL, "LLVM pass pipeline: %s", message);
    LLVMDisposeErrorMessage(message);
    return false;
}

/* Debuggers, profilers and exceptions need tables to unwind, of each instruction. */
static void add_tables(const sn_codegen *g, LLVMModuleRef mod) {
    static const char name[] = "uwtable";
    LLVMAttributeRef tables = LLVMCreateEnumAttribute(
        LLVMGetModuleContext(mod), LLVMGetEnumAttributeKindForName(name, sizeof name - 1), 2);
    for (LLVMValueRef f = LLVMGetFirstFunction(mod); f; f = LLVMGetNextFunction(f))
        if (!LLVMIsDeclaration(f) && g->target.system != SN_BROWSER)
            LLVMAddAttributeAtIndex(f, LLVMAttributeFunctionIndex, tables);
}

/* The machine for a module: plain if all functions say optnone (em_no_optimise). */
static LLVMTargetMachineRef choose_machine(const sn_codegen *g, LLVMModuleRef mod) {
    unsigned optnone = LLVMGetEnumAttributeKindForName("optnone", 7);
    for (LLVMValueRef f = LLVMGetFirstFunction(mod); f; f = LLVMGetNextFunction(f))
        if (!LLVMIsDeclaration(f) &&
            !LLVMGetEnumAttributeAtIndex(f, LLVMAttributeFunctionIndex, optnone))
            return g->machine;
    return g->plain;
}

/* Assembly or object code as a memory buffer; NULL and `err` on failure. */
static LLVMMemoryBufferRef emit_code(LLVMTargetMachineRef machine, LLVMModuleRef mod,
                                     LLVMCodeGenFileType kind, sn_error *err) {
    LLVMMemoryBufferRef buffer = NULL;
    char *message = NULL;
    if (LLVMTargetMachineEmitToMemoryBuffer(machine, mod, kind, &message, &buffer)) {
        sn_fail(err, SN_ERR_INTERNAL, "LLVM code generation: %s", message);
        LLVMDisposeMessage(message);
        return NULL;
    }
    return buffer;
}

/* Code generation consumes the module, so assembly is generated from a copy. */
static void dump_assembly(LLVMTargetMachineRef machine, LLVMModuleRef mod, FILE *out,
                          sn_error *err) {
    if (!out) return;
    LLVMModuleRef copy = LLVMCloneModule(mod);
    LLVMMemoryBufferRef text = emit_code(machine, copy, LLVMAssemblyFile, err);
    if (text) {
        fwrite(LLVMGetBufferStart(text), 1, LLVMGetBufferSize(text), out);
        LLVMDisposeMemoryBuffer(text);
    }
    LLVMDisposeModule(copy);
}

static bool make_object(sn_codegen *g, LLVMModuleRef mod, sn_object *out, sn_error *err) {
    double t0 = sn_clock();
    dump_module(mod, g->options.dump_ir);
    bool ok = run_passes(g, mod, err);
    double t1 = sn_clock();
    g->stats.optimise += t1 - t0;
    if (!ok) return false;
    LLVMTargetMachineRef machine = choose_machine(g, mod);
    em_settle_outer(mod);
    add_tables(g, mod);
    dump_module(mod, g->options.dump_optimised);
    dump_assembly(machine, mod, g->options.dump_asm, err);
    LLVMMemoryBufferRef buffer = g->target.bitcode ? LLVMWriteBitcodeToMemoryBuffer(mod)
                                                   : emit_code(machine, mod, LLVMObjectFile, err);
    g->stats.codegen += sn_clock() - t1;
    if (!buffer) return false;
    out->size = LLVMGetBufferSize(buffer);
    out->data = malloc(out->size);
    if (out->data) memcpy(out->data, LLVMGetBufferStart(buffer), out->size);
    LLVMDisposeMemoryBuffer(buffer);
    if (!out->data) return sn_fail(err, SN_ERR_MEMORY, "out of memory for an object");
    g->stats.modules++;
    g->stats.bytes += (int64_t)out->size;
    return true;
}

bool sn_codegen_object(sn_codegen *g, LLVMModuleRef mod, sn_object *out, sn_error *err) {
    sn_error diagnosed = {0};
    fatal_guard guard, *outer = active_guard;
    *out = (sn_object){0};
    LLVMContextRef ctx = LLVMGetModuleContext(mod);
    LLVMContextSetDiagnosticHandler(ctx, sn_llvm_diagnostic, &diagnosed);
    active_guard = &guard;
    if (setjmp(guard.env)) {
        active_guard = outer;
        em_abandon(mod);
        return sn_fail(err, guard.code, "LLVM cannot compile a kernel for %s: %s", g->target.name,
                       guard.message);
    }
    bool ok = make_object(g, mod, out, &diagnosed);
    active_guard = outer;
    LLVMContextSetDiagnosticHandler(ctx, NULL, NULL);
    if (ok && !diagnosed.code) return true;
    sn_object_free(out);
    return sn_fail(err, diagnosed.code, "%s", diagnosed.message);
}
