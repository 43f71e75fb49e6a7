/* jit.c: an ORC session that loads objects. Their symbols are in a separate library, which is not
 * linked against the process. */
#include "codegen/jit/jit.h"

#include "codegen/emit/llvm_compat.h"
#include "runtime/clock.h"

#include <elf.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

struct sn_jit {
    LLVMOrcLLJITRef lljit;
    LLVMOrcExecutionSessionRef session;
    LLVMOrcJITDylibRef library;
    sn_codegen *codegen;
    double load_seconds;
    int64_t objects;
    FILE *perf_map;
    sn_error reported; /* what ORC reports in addition to the result of a call */
};

/* Converts an LLVM error to an sn_error; consumes it. LLVM's errors carry the text of errno, so the
 * text tells a failed mmap from a fault. */
static bool fail_llvm(sn_error *err, const char *what, LLVMErrorRef e) {
    char *message = LLVMGetErrorMessage(e);
    bool no_memory = strstr(message, strerror(ENOMEM));
    sn_fail(err, no_memory ? SN_ERR_MEMORY : SN_ERR_INTERNAL, "%s: %s", what, message);
    LLVMDisposeErrorMessage(message);
    return false;
}

static void on_session_error(void *jit, LLVMErrorRef e) {
    fail_llvm(&((sn_jit *)jit)->reported, "loading code", e);
}

static bool define_symbols(sn_jit *jit, const sn_jit_options *o, sn_error *err) {
    if (!o->n_symbols) return true;
    LLVMOrcCSymbolMapPair *map = calloc(o->n_symbols, sizeof *map);
    if (!map) return sn_fail(err, SN_ERR_MEMORY, "out of memory for the symbols of a session");
    for (size_t i = 0; i < o->n_symbols; i++) {
        map[i].Name = LLVMOrcLLJITMangleAndIntern(jit->lljit, o->symbols[i].name);
        map[i].Sym.Address = (uint64_t)(uintptr_t)o->symbols[i].address;
        map[i].Sym.Flags.GenericFlags =
            LLVMJITSymbolGenericFlagsExported | LLVMJITSymbolGenericFlagsCallable;
    }
    LLVMOrcMaterializationUnitRef unit = LLVMOrcAbsoluteSymbols(map, o->n_symbols);
    free(map);
    LLVMErrorRef e = LLVMOrcJITDylibDefine(jit->library, unit);
    if (!e) return true;
    LLVMOrcDisposeMaterializationUnit(unit);
    return fail_llvm(err, "host symbols of a session", e);
}

/* perf defines the name, so others can guess it: refuses a link or a file of another user. */
static FILE *open_perf_map(const char *path) {
    struct stat st;
    int fd = open(path, O_WRONLY | O_APPEND | O_CREAT | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC, 0600);
    bool safe = fd >= 0 && fstat(fd, &st) == 0 && S_ISREG(st.st_mode) && st.st_nlink == 1 &&
                st.st_uid == geteuid();
    FILE *f = safe ? fdopen(fd, "a") : NULL;
    if (fd >= 0 && !f) close(fd);
    return f;
}

static bool open_session(sn_jit *jit, const sn_target *t, const sn_jit_options *o, sn_error *err) {
    if (!sn_target_runs_here(t))
        return sn_fail(err, SN_ERR_TARGET,
                       "this machine cannot run code for %s; compile ahead of time, or choose "
                       "another target",
                       t->name);
    jit->codegen = sn_codegen_create(t, &o->codegen, err);
    if (!jit->codegen) return false;
    LLVMTargetMachineRef tm = sn_target_machine(t, true, err);
    if (!tm) return false;
    LLVMOrcLLJITBuilderRef builder = LLVMOrcCreateLLJITBuilder();
    LLVMOrcLLJITBuilderSetJITTargetMachineBuilder(
        builder, LLVMOrcJITTargetMachineBuilderCreateFromTargetMachine(tm));
    LLVMErrorRef e = LLVMOrcCreateLLJIT(&jit->lljit, builder);
    if (e) return fail_llvm(err, "starting a JIT session", e);
    jit->session = LLVMOrcLLJITGetExecutionSession(jit->lljit);
    LLVMOrcExecutionSessionSetErrorReporter(jit->session, on_session_error, jit);
    jit->library = LLVMOrcExecutionSessionCreateBareJITDylib(jit->session, "sinter");
    if (o->gdb && (e = LLVMOrcLLJITEnableDebugSupport(jit->lljit)))
        return fail_llvm(err, "registering code with gdb", e);
    if (o->perf_map) {
        char path[64];
        snprintf(path, sizeof path, "/tmp/perf-%ld.map", (long)getpid());
        jit->perf_map = open_perf_map(path);
        if (!jit->perf_map)
            return sn_fail(err, SN_ERR_FILE,
                           "cannot write %s: it must be a regular file of this user, or not exist",
                           path);
    }
    return define_symbols(jit, o, err);
}

void sn_jit_memory(sn_jit_symbol out[SN_JIT_MEMORY]) {
    void *(*copy)(void *, const void *, size_t) = memcpy,
                                        *(*move)(void *, const void *, size_t) = memmove;
    void *(*set)(void *, int, size_t) = memset;
    out[0].name = "memcpy", out[1].name = "memmove", out[2].name = "memset";
    memcpy(&out[0].address, &copy, sizeof copy);
    memcpy(&out[1].address, &move, sizeof move);
    memcpy(&out[2].address, &set, sizeof set);
}

sn_jit *sn_jit_create(const sn_target *t, const sn_jit_options *options, sn_error *err) {
    sn_jit *jit = calloc(1, sizeof *jit);
    if (!jit) {
        sn_fail(err, SN_ERR_MEMORY, "out of memory for a JIT session");
        return NULL;
    }
    if (open_session(jit, t, options ? options : &(sn_jit_options){0}, err)) return jit;
    sn_jit_destroy(jit);
    return NULL;
}

void sn_jit_destroy(sn_jit *jit) {
    if (!jit) return;
    if (jit->perf_map) fclose(jit->perf_map);
    LLVMErrorRef e = jit->lljit ? LLVMOrcDisposeLLJIT(jit->lljit) : NULL;
    if (e) LLVMConsumeError(e); /* nobody can handle it any more */
    sn_codegen_destroy(jit->codegen);
    free(jit);
}

/* --- lookup ----------------------------------------------------------------------------------- */

/* ORC calls this with the result, on any thread. */
typedef struct lookup_result {
    pthread_mutex_t lock;
    pthread_cond_t ready;
    bool done;
    void *address;
    sn_error err;
} lookup_result;

static void on_lookup(LLVMErrorRef e, LLVMOrcCSymbolMapPairs pairs, size_t n, void *ctx) {
    lookup_result *r = ctx;
    pthread_mutex_lock(&r->lock);
    if (e) {
        fail_llvm(&r->err, "looking up a symbol", e);
    } else if (n) {
        r->address = (void *)(uintptr_t)pairs[0].Sym.Address;
    }
    r->done = true;
    pthread_cond_signal(&r->ready);
    pthread_mutex_unlock(&r->lock);
}

void *sn_jit_lookup(sn_jit *jit, const char *name, sn_error *err) {
    double t0 = sn_clock();
    lookup_result r = {.lock = PTHREAD_MUTEX_INITIALIZER, .ready = PTHREAD_COND_INITIALIZER};
    LLVMOrcCJITDylibSearchOrderElement order = {jit->library,
                                                LLVMOrcJITDylibLookupFlagsMatchExportedSymbolsOnly};
    LLVMOrcCLookupSetElement want = {LLVMOrcLLJITMangleAndIntern(jit->lljit, name),
                                     LLVMOrcSymbolLookupFlagsRequiredSymbol};
    LLVMOrcExecutionSessionLookup(jit->session, LLVMOrcLookupKindStatic, &order, 1, &want, 1,
                                  on_lookup, &r);
    pthread_mutex_lock(&r.lock);
    while (!r.done) pthread_cond_wait(&r.ready, &r.lock);
    pthread_mutex_unlock(&r.lock);
    jit->load_seconds += sn_clock() - t0;
    if (r.address) return r.address;
    /* the session's report names the cause (a symbol that is missing), the result only
     * the effect */
    const sn_error *cause = jit->reported.code ? &jit->reported : &r.err;
    sn_fail(err, cause->code ? cause->code : SN_ERR_INTERNAL, "compiled symbol '%s': %s", name,
            cause->message);
    jit->reported = (sn_error){0};
    return NULL;
}

/* --- perf map --------------------------------------------------------------------------------- */

/* Section k of a well-formed ELF64 file; NULL if it does not lie inside. */
static const Elf64_Shdr *find_section(const sn_object *o, size_t k) {
    const Elf64_Ehdr *h = (const Elf64_Ehdr *)o->data;
    if (k >= h->e_shnum || h->e_shoff > o->size ||
        (k + 1) * sizeof(Elf64_Shdr) > o->size - h->e_shoff)
        return NULL;
    const Elf64_Shdr *s = (const Elf64_Shdr *)(o->data + h->e_shoff) + k;
    if (s->sh_type != SHT_NOBITS && (s->sh_offset > o->size || s->sh_size > o->size - s->sh_offset))
        return NULL;
    return s;
}

/* Writes "address size name" for each function: a global one is looked up, a local one lies at a
 * known distance from a global one of its section. */
static void write_perf_map(sn_jit *jit, const sn_object *o) {
    const Elf64_Ehdr *h = (const Elf64_Ehdr *)o->data;
    for (size_t k = 0; k < h->e_shnum; k++) {
        const Elf64_Shdr *s = find_section(o, k), *strings = s ? find_section(o, s->sh_link) : NULL;
        if (!s || s->sh_type != SHT_SYMTAB || !strings) continue;
        const Elf64_Sym *sym = (const Elf64_Sym *)(o->data + s->sh_offset);
        const char *names = (const char *)o->data + strings->sh_offset;
        uint64_t base[64] = {0}; /* address of each section, once known */
        for (int pass = 0; pass < 2; pass++)
            for (size_t i = 0; i < s->sh_size / sizeof *sym; i++) {
                bool global = ELF64_ST_BIND(sym[i].st_info) == STB_GLOBAL;
                if (ELF64_ST_TYPE(sym[i].st_info) != STT_FUNC || sym[i].st_shndx >= 64 ||
                    sym[i].st_name >= strings->sh_size || global != !pass)
                    continue;
                sn_error ignored = {0};
                uint64_t *start = &base[sym[i].st_shndx];
                if (global) {
                    void *p = sn_jit_lookup(jit, names + sym[i].st_name, &ignored);
                    *start = p ? (uint64_t)(uintptr_t)p - sym[i].st_value : 0;
                }
                if (*start)
                    fprintf(jit->perf_map, "%llx %llx %s\n",
                            (unsigned long long)(*start + sym[i].st_value),
                            (unsigned long long)sym[i].st_size, names + sym[i].st_name);
            }
    }
    fflush(jit->perf_map);
}

/* --- objects ---------------------------------------------------------------------------------- */

bool sn_jit_add_object(sn_jit *jit, const sn_object *o, sn_error *err) {
    double t0 = sn_clock();
    if (o->size < sizeof(Elf64_Ehdr) || memcmp(o->data, ELFMAG, SELFMAG))
        return sn_fail(err, SN_ERR_FILE, "loading code: not an ELF object");
    LLVMMemoryBufferRef copy =
        LLVMCreateMemoryBufferWithMemoryRangeCopy((const char *)o->data, o->size, "sinter");
    if (!copy) return sn_fail(err, SN_ERR_MEMORY, "loading code: out of memory");
    LLVMErrorRef e = LLVMOrcLLJITAddObjectFile(jit->lljit, jit->library, copy);
    jit->load_seconds += sn_clock() - t0;
    if (e) return fail_llvm(err, "loading an object", e);
    jit->objects++;
    if (jit->perf_map) write_perf_map(jit, o);
    return true;
}

bool sn_jit_compile(sn_jit *jit, LLVMModuleRef mod, sn_object *keep, sn_error *err) {
    sn_object o;
    if (!sn_codegen_object(jit->codegen, mod, &o, err)) return false;
    bool ok = sn_jit_add_object(jit, &o, err);
    if (ok && keep)
        *keep = o;
    else
        sn_object_free(&o);
    return ok;
}

sn_codegen_stats sn_jit_stats(const sn_jit *jit) {
    sn_codegen_stats s = *sn_codegen_get_stats(jit->codegen);
    s.load = jit->load_seconds;
    s.objects = jit->objects;
    return s;
}
