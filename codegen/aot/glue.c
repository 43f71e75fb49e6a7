/* glue.c: the public functions of an artefact other than its entries: open and check the weights,
 * choose a target for the CPU, error messages, initial state. */
#include "codegen/aot/aot.h"
#include "runtime/file.h"

#include <stdlib.h>
#include <string.h>

/* ---- small parts ---- */

static em_val field(em *e, em_val base, em_type t, int64_t offset) {
    return em_load_raw(e, t, em_gep_bytes(e, base, offset), 1);
}

static void set_max_threads(em *e, em_val m, em_val n) {
    em_store_raw(e, n, em_gep_bytes(e, m, SN_AOT_MAX_THREADS), 2);
}

static em_val is_null(em *e, em_val p) {
    return LLVMBuildIsNull(e->b, p, "");
}

static em_val address(em *e, em_val p) {
    return LLVMBuildPtrToInt(e->b, p, e->i64, "");
}

/* ---- which target ---- */

/* {eax, ebx, ecx, edx} of a leaf. */
static em_val cpuid(em *e, uint32_t leaf, uint32_t sub) {
    em_type regs[] = {e->i32, e->i32, e->i32, e->i32}, args[] = {e->i32, e->i32};
    em_type type = LLVMFunctionType(LLVMStructTypeInContext(e->ctx, regs, 4, 0), args, 2, 0);
    const char *code = "cpuid",
               *bind = "={ax},={bx},={cx},={dx},{ax},{cx},~{dirflag},~{fpsr},~{flags}";
    em_val cpuid = LLVMGetInlineAsm(type, code, strlen(code), bind, strlen(bind), 1, 0,
                                    LLVMInlineAsmDialectATT, 0);
    em_val in[] = {em_i32(e, (int32_t)leaf), em_i32(e, (int32_t)sub)};
    return LLVMBuildCall2(e->b, type, cpuid, in, 2, "");
}

static em_val xgetbv(em *e) {
    em_type regs[] = {e->i32, e->i32}, args[] = {e->i32};
    em_type type = LLVMFunctionType(LLVMStructTypeInContext(e->ctx, regs, 2, 0), args, 1, 0);
    const char *code = "xgetbv", *bind = "={ax},={dx},{cx},~{dirflag},~{fpsr},~{flags}";
    em_val get = LLVMGetInlineAsm(type, code, strlen(code), bind, strlen(bind), 1, 0,
                                  LLVMInlineAsmDialectATT, 0);
    em_val zero = em_i32(e, 0);
    return LLVMBuildExtractValue(e->b, LLVMBuildCall2(e->b, type, get, &zero, 1, ""), 0, "");
}

static em_val has_bits(em *e, em_val word, uint64_t mask) {
    em_val m = LLVMConstInt(LLVMTypeOf(word), mask, 0);
    return em_cmp(e, EM_EQ, em_and(e, word, m), m);
}

/* Whether the CPU has the bits of a test; false if it does not have the leaf. */
static em_val x86_test(em *e, const sn_cpu_test *t) {
    em_val last = LLVMBuildExtractValue(e->b, cpuid(e, t->leaf & 0x80000000u, 0), 0, "");
    em_val known = LLVMBuildICmp(e->b, LLVMIntUGE, last, em_i32(e, (int32_t)t->leaf), "");
    em_val have = em_i1(e, false);
    em_branch br = em_if(e, known);
    em_val yes = has_bits(
        e, LLVMBuildExtractValue(e->b, cpuid(e, t->leaf, t->sub), (unsigned)t->reg, ""), t->mask);
    if (t->sub) { /* eax of sub-leaf 0 is the number of the last one */
        em_val max_leaf = LLVMBuildExtractValue(e->b, cpuid(e, t->leaf, 0), 0, "");
        em_val there = LLVMBuildICmp(e->b, LLVMIntUGE, max_leaf, em_i32(e, (int32_t)t->sub), "");
        yes = em_and(e, yes, there);
    }
    em_endif(e, &br);
    return em_join(e, &br, yes, have);
}

static em_val linux_test(em *e, const sn_cpu_test *t) {
    em_val what = em_i64(e, t->leaf);
    return has_bits(e, em_call(e, em_extern(e, "getauxval", e->i64, &e->i64, 1), &what, 1),
                    t->mask);
}

/* Bytes of SVE's registers, of a CPU that has them: rdvl x0, #1, as a number because the code around is for
 * CPUs without. */
static em_val sve_bytes(em *e) {
    static const char code[] = ".inst 0x04bf5020", bind[] = "={x0}";
    em_type type = LLVMFunctionType(e->i64, NULL, 0, 0);
    em_val read = LLVMGetInlineAsm(type, code, sizeof code - 1, bind, sizeof bind - 1, 1, 0,
                                   LLVMInlineAsmDialectATT, 0);
    return LLVMBuildCall2(e->b, type, read, NULL, 0, "");
}

static em_val variant_runs(em *e, const sn_target *t) {
    sn_cpu_test test[SN_AOT_TESTS];
    uint64_t xcr0;
    /* every Arm CPU of macOS has all that add_target lets pass */
    if (t->system == SN_MACOS && t->arch == SN_ARCH_AARCH64) return em_i1(e, true);
    int n = sn_target_floor(t, test, &xcr0);
    em_val ok = em_i1(e, true);
    for (int i = 0; i < n; i++)
        ok = em_and(e, ok,
                    t->arch == SN_ARCH_X86_64 ? x86_test(e, &test[i]) : linux_test(e, &test[i]));
    if (!xcr0 && !t->sve_bytes) return ok;
    em_branch br = em_if(e, ok); /* AVX requires OSXSAVE, so XGETBV exists */
    em_val fits =
        t->sve_bytes ? em_cmp(e, EM_EQ, sve_bytes(e), t->sve_bytes) : has_bits(e, xgetbv(e), xcr0);
    em_endif(e, &br);
    return em_join(e, &br, fits, em_i1(e, false));
}

/* 1 if this machine can run variant 1, 2, ... */
#define AOT_RUNS_PARAMS(P) P(i32, variant)
SN_AOT_SIGNATURE(i32, aot_runs, AOT_RUNS_PARAMS)
static em_val emit_runs(em *e, const sn_aot *a) {
    em_val which = aot_runs_begin(e, a, "runs", false).variant, fn = e->fn;
    em_var result = em_let(e, em_i32(e, 0));
    for (int v = 0; v < a->n_variant; v++) {
        em_branch br = em_if(e, em_cmp(e, EM_EQ, which, em_i32(e, v + 1)));
        em_set(e, result,
               em_int_cast(e,
                           LLVMBuildZExt(e->b, variant_runs(e, &a->variant[v].target), e->i32, ""),
                           e->i32));
        em_endif(e, &br);
    }
    em_ret(e, em_get(e, result));
    return fn;
}

/* int NAME_choose(NAME *m, int target) */
#define AOT_CHOOSE_PARAMS(P) P(ptr, m) P(i32, target)
SN_AOT_SIGNATURE(i32, aot_choose, AOT_CHOOSE_PARAMS)
static void emit_choose(em *e, sn_aot *a, em_val runs) {
    aot_choose_args q = aot_choose_begin(e, a, "choose", true);
    em_val m = q.m, which = q.target;
    em_var status = em_let(e, em_i32(e, 0));
    sn_aot_check_pointer(e, a, status, m, false, "choose", "m");
    sn_aot_check_open(e, a, m, status);
    em_val known = em_ult(e, em_sub(e, which, em_i32(e, 1)), em_i32(e, a->n_variant));
    sn_aot_fail_if(e, status, em_not(e, known),
                   sn_aot_code(a, SN_AOT_CPU,
                               "choose: the artefact has no such target: the numbers in its list "
                               "of CPU targets are 1..%d",
                               a->n_variant));
    em_branch br = em_if(e, sn_aot_is_ok(e, status));
    em_val can = aot_runs_call(e, runs, (aot_runs_args){.variant = which});
    sn_aot_fail_if(e, status, em_cmp(e, EM_EQ, can, em_i32(e, 0)),
                   sn_aot_code(a, SN_AOT_CPU,
                               "choose: this CPU, or its operating system, does not "
                               "meet the requirements of that target"));
    em_branch set = em_if(e, sn_aot_is_ok(e, status));
    sn_aot_put(e, m, SN_AOT_VARIANT, which);
    em_endif(e, &set);
    em_endif(e, &br);
    em_ret(e, em_get(e, status));
}

/* ---- weights ---- */

/* Whether these are the weights that belong to the code: an error code. */
#define AOT_CHECK_PARAMS(P) P(ptr, weights) P(i64, bytes)
SN_AOT_SIGNATURE(i32, aot_check, AOT_CHECK_PARAMS)
static em_val emit_check(em *e, sn_aot *a) {
    aot_check_args q = aot_check_begin(e, a, "check", false);
    em_val fn = e->fn, w = q.weights, bytes = q.bytes;
    em_var status = em_let(e, em_i32(e, 0));
    sn_aot_header h;
    sn_aot_fill_header(a, &h);
    uint64_t magic, version;
    memcpy(&magic, h.magic, 8);
    memcpy(&version, &h.version, 8);
    sn_aot_check_pointer(e, a, status, w, true, "init", "weights");
    sn_aot_fail_if(e, status, em_cmp(e, EM_LT, bytes, SN_AOT_PAGE), SN_AOT_SIZE);
    em_branch br = em_if(e, sn_aot_is_ok(e, status));
    static const int64_t at[] = {offsetof(sn_aot_header, magic), offsetof(sn_aot_header, version),
                                 offsetof(sn_aot_header, hash), offsetof(sn_aot_header, bytes)};
    const uint64_t want[] = {magic, version, h.hash, h.bytes};
    static const int code[] = {SN_AOT_FORMAT, SN_AOT_FORMAT, SN_AOT_MODEL, SN_AOT_SIZE};
    for (int i = 0; i < 4; i++)
        sn_aot_fail_if(e, status, em_cmp(e, EM_NE, field(e, w, e->i64, at[i]), (int64_t)want[i]),
                       code[i]);
    sn_aot_fail_if(e, status, em_cmp(e, EM_NE, bytes, (int64_t)h.bytes), SN_AOT_SIZE);
    em_endif(e, &br);
    em_ret(e, em_get(e, status));
    return fn;
}

/* The signature of functions of a model alone. */
#define AOT_MODEL_PARAMS(P) P(ptr, m)
SN_AOT_SIGNATURE(i32, aot_model, AOT_MODEL_PARAMS)

/* int begin(NAME *m): clears it, chooses the most capable target and the number of threads. */
static em_val emit_begin(em *e, sn_aot *a, em_val runs) {
    em_val m = aot_model_begin(e, a, "begin", false).m, fn = e->fn;
    em_var status = em_let(e, em_i32(e, 0)), best = em_let(e, em_i32(e, 0));
    sn_aot_check_pointer(e, a, status, m, false, "open", "m");
    em_branch br = em_if(e, sn_aot_is_ok(e, status));
    for (int64_t i = 0; i < sn_aot_struct_bytes(a); i += 8) sn_aot_put(e, m, i, 0);
    for (int v = 1; v <= a->n_variant; v++) {
        em_branch open = em_if(e, em_cmp(e, EM_EQ, em_get(e, best), em_i32(e, 0)));
        em_val which = em_i32(e, v);
        em_val can = aot_runs_call(e, runs, (aot_runs_args){.variant = which});
        can = em_cmp(e, EM_NE, can, em_i32(e, 0));
        em_set(e, best, em_select(e, can, which, em_i32(e, 0)));
        em_endif(e, &open);
    }
    sn_aot_fail_if(e, status, em_cmp(e, EM_EQ, em_get(e, best), em_i32(e, 0)), SN_AOT_CPU);
    em_endif(e, &br);
    em_branch ok = em_if(e, sn_aot_is_ok(e, status));
    sn_aot_put(e, m, SN_AOT_VARIANT, em_get(e, best));
    set_max_threads(e, m, sn_aot_default_threads(e, a));
    if (a->workers) sn_aot_take_pool(e, m);
    em_endif(e, &ok);
    em_ret(e, em_get(e, status));
    return fn;
}

/* int NAME_set_threads(NAME *m, int64_t n) */
#define AOT_SET_THREADS_PARAMS(P) P(ptr, m) P(i64, n)
SN_AOT_SIGNATURE(i32, aot_set_threads, AOT_SET_THREADS_PARAMS)
static void emit_set_threads(em *e, sn_aot *a) {
    aot_set_threads_args q = aot_set_threads_begin(e, a, "set_threads", true);
    em_var status = em_let(e, em_i32(e, 0));
    sn_aot_check_pointer(e, a, status, q.m, false, "set_threads", "m");
    sn_aot_check_open(e, a, q.m, status);
    em_val known = em_ult(e, q.n, em_i64(e, SN_MAX_THREADS + 1));
    sn_aot_fail_if(e, status, em_not(e, known),
                   sn_aot_code(a, SN_AOT_ARGUMENT,
                               "set_threads: the number of threads is outside 0..%d",
                               SN_MAX_THREADS));
    em_branch br = em_if(e, sn_aot_is_ok(e, status));
    em_val usual = em_cmp(e, EM_EQ, q.n, 0), n = em_int_cast(e, q.n, e->i16);
    set_max_threads(e, q.m, em_select(e, usual, sn_aot_default_threads(e, a), n));
    sn_aot_put(e, q.m, SN_AOT_THREADS, 0);
    em_endif(e, &br);
    em_ret(e, em_get(e, status));
}

/* Checks the weights and stores their address, or closes the model. */
static void take_weights(em *e, em_val check, em_val m, em_val w, em_val bytes, em_var status) {
    em_set(e, status, aot_check_call(e, check, (aot_check_args){.weights = w, .bytes = bytes}));
    em_branch br = em_if(e, sn_aot_is_ok(e, status));
    sn_aot_put(e, m, SN_AOT_WEIGHTS, w);
    sn_aot_put(e, m, SN_AOT_BYTES, bytes);
    em_else(e, &br);
    sn_aot_put(e, m, SN_AOT_VARIANT, em_i32(e, 0));
    em_endif(e, &br);
}

static em_val embedded(em *e, const sn_aot *a) {
    char name[96];
    snprintf(name, sizeof name, "%s_weights_image", a->name);
    em_val g = LLVMGetNamedGlobal(e->mod, name);
    if (g) return g;
    g = LLVMAddGlobal(e->mod, e->i8, name);
    LLVMSetVisibility(
        g, LLVMHiddenVisibility); /* defined in this object: not accessed through the GOT */
    return g;
}

/* int NAME_init(NAME *m, const void *weights, int64_t bytes) */
#define AOT_INIT_PARAMS(P) P(ptr, m) P(ptr, weights) P(i64, bytes)
SN_AOT_SIGNATURE(i32, aot_init, AOT_INIT_PARAMS)
static void emit_init(em *e, const sn_aot *a, em_val begin, em_val check) {
    aot_init_args q = aot_init_begin(e, a, "init", true);
    em_var status = em_let(e, aot_model_call(e, begin, (aot_model_args){.m = q.m}));
    em_branch br = em_if(e, sn_aot_is_ok(e, status));
    if (a->o->embed_weights) {
        em_val none = is_null(e, q.weights);
        q.weights = em_select(e, none, embedded(e, a), q.weights);
        q.bytes = em_select(e, none, em_i64(e, (int64_t)a->weight_bytes), q.bytes);
    }
    take_weights(e, check, q.m, q.weights, q.bytes, status);
    em_endif(e, &br);
    em_ret(e, em_get(e, status));
}

/* Calls a function of the system. types: p pointer, i i32, l i64; the first is the result's. */
static em_val system_call(em *e, const char *name, const char *types, const em_val *args) {
    em_type t[8];
    int n = (int)strlen(types);
    for (int i = 0; i < n; i++) t[i] = types[i] == 'p' ? e->ptr : types[i] == 'i' ? e->i32 : e->i64;
    return em_call(e, em_extern(e, name, t[0], t + 1, n - 1), args, n - 1);
}

static em_val minus_one(em *e) {
    return LLVMBuildIntToPtr(e->b, em_i64(e, -1), e->ptr, "");
}

static void check_opened(em *e, sn_aot *a, em_var status, em_val failed, em_val bytes,
                         em_val unmapped) {
    sn_aot_fail_if(e, status, failed,
                   sn_aot_code(a, SN_AOT_FILE, "the weights file cannot be opened; %s",
                               sn_aot_is(a, SN_WINDOWS)
                                   ? "GetLastError says why"
                                   : "errno says why (ENOENT: there is none, EACCES: it may not be "
                                     "read)"));
    sn_aot_fail_if(e, status, em_cmp(e, EM_EQ, bytes, 0),
                   sn_aot_code(a, SN_AOT_FILE, "the weights file is empty: it cannot be mapped"));
    sn_aot_fail_if(e, status, unmapped,
                   sn_aot_code(a, SN_AOT_FILE,
                               "the weights file cannot be opened or mapped: it is a folder or a "
                               "device, or memory is short; %s says which",
                               sn_aot_is(a, SN_WINDOWS) ? "GetLastError" : "errno"));
}

/* Constants of Linux on all supported architectures, and of macOS. O_CLOEXEC and O_NONBLOCK: otherwise
 * opening a FIFO would wait for its writer; so it is refused by lseek. */
enum {
    OPEN_LINUX = 02004000,
    OPEN_MACOS = 0x1000004,
    SEEK_LAST = 2,
    READABLE = 1,
    PRIVATE = 2,
    LARGE_PAGES = 14,
    POPULATE_READ = 22
};

static em_val map_posix(em *e, sn_aot *a, em_val path, em_var size, em_var status) {
    const bool on_linux = sn_aot_is(a, SN_LINUX);
    em_type params[] = {e->ptr, e->i32};
    em_type type = LLVMFunctionType(e->i32, params, 2, 1); /* open(path, flags, ...) */
    em_val open = LLVMAddFunction(e->mod, "open", type);
    em_val flags = em_i32(e, on_linux ? OPEN_LINUX : OPEN_MACOS);
    em_val fd = LLVMBuildCall2(e->b, type, open, (em_val[]){path, flags}, 2, "");
    em_val opened = em_cmp(e, EM_GE, fd, em_i32(e, 0));
    em_branch br = em_if(e, opened);
    em_val end =
        system_call(e, "lseek", "lili", (em_val[]){fd, em_i64(e, 0), em_i32(e, SEEK_LAST)});
    em_set(e, size, end);
    em_val map[] = {LLVMConstNull(e->ptr), end, em_i32(e, READABLE),
                    em_i32(e, PRIVATE),    fd,  em_i64(e, 0)};
    em_val p = system_call(e, "mmap", "ppliiil", map);
    system_call(e, "close", "ii", &fd);
    em_endif(e, &br);
    p = em_join(e, &br, p, minus_one(e));
    em_val unmapped = em_cmp(e, EM_EQ, address(e, p), -1);
    check_opened(e, a, status, em_not(e, opened), em_get(e, size), unmapped);
    if (!on_linux) return p;
    /* where the file system can, what is read from the disk by way of this mapping comes in large
     * pages; where not, nothing is lost */
    em_branch mapped = em_if(e, em_not(e, unmapped));
    system_call(e, "madvise", "ipli", (em_val[]){p, em_get(e, size), em_i32(e, LARGE_PAGES)});
    em_endif(e, &mapped);
    return p;
}

/* Constants of the Windows SDK. */
enum {
    GENERIC_READ = INT32_MIN,
    SHARE_READ_DELETE = 5,
    OPEN_EXISTING = 3,
    ATTRIBUTE_NORMAL = 128,
    PAGE_READONLY = 2,
    MAP_READ = 4
};

static em_val map_windows(em *e, sn_aot *a, em_val path, em_var size, em_var status) {
    em_val null = LLVMConstNull(e->ptr), zero = em_i32(e, 0), length = em_stack(e, SN_I64, 1);
    em_val none = em_zero(e->i64); /* bytes: of a view, all of the file */
    em_val open[] = {path, em_i32(e, GENERIC_READ),  em_i32(e, SHARE_READ_DELETE),
                     null, em_i32(e, OPEN_EXISTING), em_i32(e, ATTRIBUTE_NORMAL),
                     null};
    em_val file = system_call(e, "CreateFileA", "ppiipiip", open);
    em_val failed = em_cmp(e, EM_EQ, address(e, file), -1);
    em_var view = em_let(e, null);
    em_branch br = em_if(e, em_not(e, failed));
    em_store_raw(e, none, length, 8);
    system_call(e, "GetFileSizeEx", "ipp", (em_val[]){file, length});
    em_set(e, size, em_load_raw(e, e->i64, length, 8));
    em_val make[] = {file, null, em_i32(e, PAGE_READONLY), zero, zero, null};
    em_val map = system_call(e, "CreateFileMappingA", "pppiiip", make);
    em_branch made = em_if(e, em_not(e, is_null(e, map)));
    em_val see[] = {map, em_i32(e, MAP_READ), zero, zero, none};
    em_set(e, view, system_call(e, "MapViewOfFile", "ppiiil", see));
    system_call(e, "CloseHandle", "ip", &map);
    em_endif(e, &made);
    system_call(e, "CloseHandle", "ip", &file);
    em_endif(e, &br);
    check_opened(e, a, status, failed, em_get(e, size), is_null(e, em_get(e, view)));
    return em_get(e, view);
}

/* The mapped file; else status says what failed, and the system's error number why. */
static em_val map_file(em *e, sn_aot *a, em_val path, em_var size, em_var status) {
    return sn_aot_is(a, SN_WINDOWS) ? map_windows(e, a, path, size, status)
                                    : map_posix(e, a, path, size, status);
}

static void unmap(em *e, const sn_aot *a, em_val p, em_val bytes) {
    if (sn_aot_is(a, SN_WINDOWS))
        system_call(e, "UnmapViewOfFile", "ip", &p);
    else
        system_call(e, "munmap", "ipl", (em_val[]){p, bytes});
}

/* int NAME_open(NAME *m, const char *path) */
#define AOT_OPEN_PARAMS(P) P(ptr, m) P(ptr, path)
SN_AOT_SIGNATURE(i32, aot_open, AOT_OPEN_PARAMS)
static void emit_open(em *e, sn_aot *a, em_val begin, em_val check) {
    aot_open_args q = aot_open_begin(e, a, "open", true);
    em_val m = q.m, path = q.path;
    em_var status = em_let(e, aot_model_call(e, begin, (aot_model_args){.m = m})),
           size = em_let(e, 0);
    em_val none = is_null(e, path);
    if (!a->o->embed_weights) sn_aot_check_pointer(e, a, status, path, false, "open", "path");
    em_branch br = em_if(e, sn_aot_is_ok(e, status));
    em_branch inside = {0};
    if (a->o->embed_weights) {
        inside = em_if(e, none);
        take_weights(e, check, m, embedded(e, a), em_i64(e, (int64_t)a->weight_bytes), status);
        em_else(e, &inside);
    }
    em_val p = map_file(e, a, path, size, status);
    em_branch mapped = em_if(e, sn_aot_is_ok(e, status));
    take_weights(e, check, m, p, em_get(e, size), status);
    em_branch good = em_if(e, sn_aot_is_ok(e, status));
    em_store_raw(e, LLVMConstInt(e->i16, 1, 0), em_gep_bytes(e, m, SN_AOT_MAPPED), 2);
    em_else(e, &good);
    unmap(e, a, p, em_get(e, size));
    em_endif(e, &good);
    em_else(e, &mapped);
    sn_aot_put(e, m, SN_AOT_VARIANT, em_i32(e, 0));
    em_endif(e, &mapped);
    if (a->o->embed_weights) em_endif(e, &inside);
    em_endif(e, &br);
    em_ret(e, em_get(e, status));
}

/* void NAME_close(NAME *m) */
SN_AOT_SIGNATURE(tvoid, aot_close, AOT_MODEL_PARAMS)
static void emit_close(em *e, const sn_aot *a) {
    em_val m = aot_close_begin(e, a, "close", true).m;
    em_branch br = em_if(e, LLVMBuildIsNotNull(e->b, m, ""));
    em_val none = LLVMConstInt(e->i16, 0, 0);
    em_branch mapped = em_if(e, em_cmp(e, EM_NE, field(e, m, e->i16, SN_AOT_MAPPED), none));
    unmap(e, a, field(e, m, e->ptr, SN_AOT_WEIGHTS), field(e, m, e->i64, SN_AOT_BYTES));
    em_endif(e, &mapped);
    for (int64_t i = 0; i < sn_aot_struct_bytes(a); i += 8) sn_aot_put(e, m, i, 0);
    em_endif(e, &br);
    em_ret(e, NULL);
}

/* void NAME_populate(const NAME *m) */
SN_AOT_SIGNATURE(tvoid, aot_populate, AOT_MODEL_PARAMS)
static void emit_populate(em *e, const sn_aot *a) {
    em_val m = aot_populate_begin(e, a, "populate", true).m, none = LLVMConstInt(e->i16, 0, 0);
    if (sn_aot_is(a, SN_LINUX)) {
        em_branch br = em_if(e, LLVMBuildIsNotNull(e->b, m, ""));
        em_branch mapped = em_if(e, em_cmp(e, EM_NE, field(e, m, e->i16, SN_AOT_MAPPED), none));
        em_val range[] = {field(e, m, e->ptr, SN_AOT_WEIGHTS), field(e, m, e->i64, SN_AOT_BYTES),
                          em_i32(e, POPULATE_READ)};
        system_call(e, "madvise", "ipli", range); /* older systems refuse it: nothing is lost */
        em_endif(e, &mapped);
        em_endif(e, &br);
    }
    em_ret(e, NULL);
}

/* int NAME_abi_version(void) */
static void emit_abi(em *e, const sn_aot *a) {
    sn_aot_function(e, a, "abi_version", e->i32, NULL, 0, true);
    em_ret(e, em_i32(e, SN_AOT_ABI));
}

/* ---- state and texts ---- */

/* int NAME_state_init(const NAME *m, void *state) */
#define AOT_STATE_PARAMS(P) P(ptr, m) P(ptr, state)
SN_AOT_SIGNATURE(i32, aot_state, AOT_STATE_PARAMS)
static void emit_state_init(em *e, sn_aot *a) {
    aot_state_args q = aot_state_begin(e, a, "state_init", true);
    em_val m = q.m, state = q.state;
    em_var status = em_let(e, em_i32(e, 0));
    sn_aot_check_pointer(e, a, status, m, false, "state_init", "m");
    sn_aot_check_pointer(e, a, status, state, true, "state_init", "state");
    sn_aot_check_open(e, a, m, status);
    em_branch open = em_if(e, sn_aot_is_ok(e, status));
    LLVMBuildMemSet(e->b, state, LLVMConstInt(e->i8, 0, 0), em_i64(e, (int64_t)a->state_bytes), 64);
    em_val w = field(e, m, e->ptr, SN_AOT_WEIGHTS);
    for (int i = 0; i < a->n_state; i++) {
        const sn_aot_place *p = &a->state[i];
        if (!p->data) continue;
        LLVMBuildMemCpy(e->b, em_gep_bytes(e, state, (int64_t)p->offset), 64,
                        em_gep_bytes(e, w, (int64_t)p->from), 64, em_i64(e, (int64_t)p->bytes));
    }
    sn_aot_put(e, state, 0, em_i64(e, (int64_t)a->hash));
    em_endif(e, &open);
    em_ret(e, em_get(e, status));
}

static const char *const kind_text[] = {
#define X(name, text) text,
    SN_AOT_ERRORS(X)
#undef X
};

/* const char *NAME_message(int code). One string holds all texts; a table, where each begins. */
#define AOT_MESSAGE_PARAMS(P) P(i32, code)
SN_AOT_SIGNATURE(ptr, aot_message, AOT_MESSAGE_PARAMS)
static void emit_message(em *e, const sn_aot *a) {
    int n = SN_AOT_ERROR_COUNT + a->n_message + 1;
    em_val *offset = sn_arena_alloc(a->m, sizeof *offset * (size_t)n);
    char *text = NULL;
    size_t size = 0;
    FILE *f = open_memstream(&text, &size);
    if (!f) {
        sn_fail(&e->err, SN_ERR_MEMORY, "out of memory");
        return;
    }
    long at = 0;
    for (int i = 0; i < n; i++) {
        const char *s = i < SN_AOT_ERROR_COUNT ? kind_text[i]
                        : i < n - 1            ? a->message[i - SN_AOT_ERROR_COUNT].text
                                               : "unknown error code";
        offset[i] = em_i32(e, (int32_t)at);
        at += fprintf(f, "%s%c", s, 0);
    }
    fclose(f);
    em_val texts =
        sn_aot_constant(e, "texts", LLVMConstStringInContext(e->ctx, text, (unsigned)size, 1));
    em_val offsets = sn_aot_constant(e, "offsets", LLVMConstArray2(e->i32, offset, (uint64_t)n));
    free(text);
    em_val code = aot_message_begin(e, a, "message", true).code;
    em_val detail = em_ashr(e, code, em_i32(e, 8)), kind = em_and(e, code, em_i32(e, 255));
    em_val plain = em_cmp(e, EM_EQ, detail, em_i32(e, 0));
    em_val index = em_sub(e, detail, em_i32(e, 1));
    em_val k = em_select(e, plain, kind, em_add(e, index, em_i32(e, SN_AOT_ERROR_COUNT)));
    em_val known = em_select(e, plain, em_ult(e, kind, em_i32(e, SN_AOT_ERROR_COUNT)),
                             em_ult(e, index, em_i32(e, a->n_message)));
    k = em_select(e, known, k, em_i32(e, n - 1));
    em_val where = em_load_raw(e, e->i32, em_gep(e, offsets, SN_I32, em_idx(e, k)), 4);
    em_ret(e, em_gep_bytes(e, texts, em_idx(e, where)));
}

static em_val manifest(em *e, const sn_aot *a) {
    const char *s = a->manifest;
    em_val g = LLVMGetNamedGlobal(e->mod, "manifest");
    return g ? g
             : sn_aot_constant(e, "manifest",
                               LLVMConstStringInContext(e->ctx, s, (unsigned)strlen(s), 0));
}

/* const char *NAME_manifest(void). `sinter inspect` finds it in the file by its first line. */
static void emit_manifest(em *e, const sn_aot *a) {
    em_val g = manifest(e, a);
    sn_aot_function(e, a, "manifest", e->ptr, NULL, 0, true);
    em_ret(e, g);
}

/* const NAME_parameter *NAME_parameters(void): offsets of the trained parameters in the state, as
 * rows of sn_weight_place (runtime/weights.h). */
static void emit_parameters(em *e, const sn_aot *a) {
    em_val *row = sn_arena_alloc(a->m, sizeof *row * (size_t)(a->n_trained + 1));
    int n = 0;
    for (int i = 0; i < a->n_state; i++) {
        const sn_aot_place *p = &a->state[i];
        if (!p->trained) continue;
        em_val dim[SN_MAX_RANK], cell[6];
        for (int d = 0; d < SN_MAX_RANK; d++) {
            int64_t size = 0;
            if (d < p->trained->rank) sn_dim_is_const(a->m, p->trained->shape[d], &size);
            dim[d] = em_i64(e, size);
        }
        char name[48];
        snprintf(name, sizeof name, "name_of_parameter_%d", n);
        em_val text = LLVMConstStringInContext(e->ctx, p->name, (unsigned)strlen(p->name), 0);
        cell[0] = sn_aot_constant(e, name, text);
        cell[1] = em_i32(e, (int)p->dtype), cell[2] = em_i32(e, p->trained->rank);
        cell[3] = LLVMConstArray2(e->i64, dim, SN_MAX_RANK);
        cell[4] = em_i64(e, (int64_t)p->offset), cell[5] = em_i64(e, (int64_t)p->bytes);
        row[n++] = LLVMConstStructInContext(e->ctx, cell, 6, 0);
    }
    em_val table =
        sn_aot_constant(e, "parameters", LLVMConstArray2(LLVMTypeOf(row[0]), row, (uint64_t)n));
    sn_aot_function(e, a, "parameters", e->ptr, NULL, 0, true);
    em_ret(e, table);
}

/* const NAME_file *NAME_files(void): rows of sn_file_inside (runtime/file.h), then an empty one. Each file has a section, so
 * that linkers drop those of programs that do not ask. */
static em_val emit_files(em *e, const sn_aot *a) {
    const int n = a->o->n_file;
    em_val *row = sn_arena_alloc(a->m, sizeof *row * (size_t)(n + 1)), none = LLVMConstNull(e->ptr);
    for (int i = 0; i <= n; i++) {
        em_val cell[] = {none, none, LLVMConstNull(e->i64)};
        for (int k = 0; k < 2 && i < n; k++) {
            const sn_file_inside *f = &a->o->file[i];
            const char *data = k ? (const char *)f->data : f->path;
            const size_t bytes = k ? f->size : strlen(f->path);
            const char *name = sn_arena_printf(a->m, k ? "file_%d" : "name_of_file_%d", i);
            cell[k] = sn_aot_constant(
                e, name, LLVMConstStringInContext2(e->ctx, data, bytes, k /* no NUL */));
            LLVMSetAlignment(cell[k], 64); /* as tables of tokenizers need it */
            if (!a->bitcode)
                LLVMSetSection(cell[k], sn_arena_printf(a->m, ".rodata.%s_%s", a->name, name));
            cell[2] = em_i64(e, (int64_t)bytes);
        }
        row[i] = LLVMConstStructInContext(e->ctx, cell, 3, 0);
    }
    em_val table =
        sn_aot_constant(e, "files", LLVMConstArray2(LLVMTypeOf(row[0]), row, (uint64_t)n + 1));
    if (!a->bitcode) LLVMSetSection(table, sn_arena_printf(a->m, ".data.rel.ro.%s_files", a->name));
    sn_aot_function(e, a, "files", e->ptr, NULL, 0, true);
    em_ret(e, table);
    return table;
}

/* ---- for a program's main ---- */

static em_val public_function(em *e, const sn_aot *a, const char *name, const char *ending) {
    char full[160];
    snprintf(full, sizeof full, "%s_%s%s", a->name, name, ending);
    return LLVMGetNamedFunction(e->mod, full);
}

/* An entry, called with its parameters in lists (runtime/deployed.h). */
#define AOT_LISTED_PARAMS(P) P(ptr, m) P(ptr, state) P(ptr, workspace) P(ptr, dims) P(ptr, args)
SN_AOT_SIGNATURE(i32, aot_listed, AOT_LISTED_PARAMS)
static em_val emit_listed(em *e, const sn_aot *a, const sn_aot_entry *t) {
    char name[160];
    snprintf(name, sizeof name, "%s_listed", t->name);
    aot_listed_args q = aot_listed_begin(e, a, name, false);
    em_val fn = e->fn;
    int n = 0, n_arg = t->n_input + t->n_output;
    em_val *arg = sn_arena_alloc(a->m, sizeof *arg * (size_t)(3 + t->n_symbol + n_arg));
    arg[n++] = q.m;
    if (t->has_state) arg[n++] = q.state;
    arg[n++] = q.workspace;
    for (int i = 0; i < t->n_symbol; i++) arg[n++] = field(e, q.dims, e->i64, 8 * (int64_t)i);
    for (int i = 0; i < n_arg; i++) arg[n++] = field(e, q.args, e->ptr, 8 * (int64_t)i);
    em_ret(e, em_call(e, public_function(e, a, t->name, ""), arg, n));
    return fn;
}

/* The same for ENTRY_workspace. */
#define AOT_LISTED_WORKSPACE_PARAMS(P) P(ptr, m) P(ptr, dims)
SN_AOT_SIGNATURE(i64, aot_listed_workspace, AOT_LISTED_WORKSPACE_PARAMS)
static em_val emit_listed_workspace(em *e, const sn_aot *a, const sn_aot_entry *t) {
    char name[160];
    snprintf(name, sizeof name, "%s_listed_workspace", t->name);
    aot_listed_workspace_args q = aot_listed_workspace_begin(e, a, name, false);
    em_val fn = e->fn;
    em_val *arg = sn_arena_alloc(a->m, sizeof *arg * (size_t)(1 + t->n_symbol));
    arg[0] = q.m;
    for (int i = 0; i < t->n_symbol; i++) arg[1 + i] = field(e, q.dims, e->i64, 8 * (int64_t)i);
    em_val callee = public_function(e, a, t->name, "_workspace");
    em_ret(e, em_call(e, callee, arg, 1 + t->n_symbol));
    return fn;
}

static void emit_table(em *e, const sn_aot *a, em_val files) {
    static const char *const names[] = {"open",   "init",        "close",      "verify",
                                        "choose", "set_threads", "state_init", "message"};
    enum { N = sizeof names / sizeof *names };
    em_val cell[N + 4], *entry = sn_arena_alloc(a->m, sizeof *entry * (size_t)(3 * a->n_entry + 1));
    int n = 0, n_cell = 0;
    for (int i = 0; i < N; i++) cell[n++] = public_function(e, a, names[i], "");
    cell[n++] = manifest(e, a);
    cell[n++] = em_i64(e, a->n_entry);
    for (int i = 0; i < a->n_entry; i++) {
        const char *s = a->entry[i].name;
        char name[96];
        snprintf(name, sizeof name, "name_of_%d", i);
        em_val text = LLVMConstStringInContext(e->ctx, s, (unsigned)strlen(s), 0);
        entry[n_cell++] = sn_aot_constant(e, name, text);
        entry[n_cell++] = emit_listed(e, a, &a->entry[i]);
        entry[n_cell++] = emit_listed_workspace(e, a, &a->entry[i]);
    }
    cell[n++] =
        sn_aot_constant(e, "entries", LLVMConstStructInContext(e->ctx, entry, (unsigned)n_cell, 0));
    cell[n++] = files;
    em_val init = LLVMConstStructInContext(e->ctx, cell, (unsigned)n, 0);
    em_val table = LLVMAddGlobal(e->mod, LLVMTypeOf(init), "sn_deployed_artefact");
    LLVMSetInitializer(table, init);
    LLVMSetGlobalConstant(table, 1);
}

/* The functions that NAME.js calls, under names that do not depend on the artefact's. */
static void export_functions(em *e, const sn_aot *a) {
    static const char *const names[] = {"init", "verify", "state_init", "message", "manifest"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        em_export(e, public_function(e, a, names[i], ""), names[i]);
    for (int i = 0; i < a->n_entry; i++) {
        const char *s = a->entry[i].name;
        em_export(e, emit_listed(e, a, &a->entry[i]), sn_arena_printf(a->m, "run_%s", s));
        em_export(e, emit_listed_workspace(e, a, &a->entry[i]),
                  sn_arena_printf(a->m, "workspace_%s", s));
    }
}

static void emit_all(em *e, sn_aot *a) {
    bool wasm = sn_aot_is(a, SN_BROWSER);
    em_val runs = emit_runs(e, a), check = emit_check(e, a), begin = emit_begin(e, a, runs);
    emit_choose(e, a, runs);
    emit_init(e, a, begin, check);
    if (!wasm) emit_open(e, a, begin, check); /* a module gets its weights in memory */
    if (!wasm) emit_close(e, a);
    if (!wasm) emit_populate(e, a);
    emit_set_threads(e, a);
    sn_aot_emit_verify(e, a);
    emit_abi(e, a);
    emit_state_init(e, a);
    if (a->openmp || a->workers) sn_aot_emit_threads(e, a);
    for (int i = 0; i < a->n_entry; i++) sn_aot_emit_entry(e, a, i);
    emit_message(e, a);
    emit_manifest(e, a);
    if (a->n_trained) emit_parameters(e, a);
    em_val files = a->o->n_file ? emit_files(e, a) : LLVMConstNull(e->ptr);
    if (a->o->program) emit_table(e, a, files);
    if (wasm) export_functions(e, a);
}

/* A section for each function, so that linkers drop what is not used; bitcode.c does it for its modules. */
static void separate(const sn_aot *a, LLVMModuleRef mod) {
    char section[300];
    for (em_val f = LLVMGetFirstFunction(mod); f && !a->bitcode; f = LLVMGetNextFunction(f)) {
        size_t n;
        if (LLVMIsDeclaration(f)) continue;
        snprintf(section, sizeof section, ".text.%s", LLVMGetValueName2(f, &n));
        LLVMSetSection(f, section);
    }
}

bool sn_aot_emit_glue(sn_aot *a, sn_object *out) {
    em e;
    sn_target base;
    *out = (sn_object){0};
    bool ok = sn_target_init(&base, sn_target_base(a->m, &a->variant[0].target), a->err) &&
              em_init(&e, &base, a->name, SN_F32, a->err);
    if (!ok) return false;
    base.bitcode = a->bitcode != NULL;
    if (a->workers) strcat(base.features, ",+atomics"); /* all of the module gets it */
    emit_all(&e, a);
    LLVMModuleRef mod = em_finish(&e, a->err);
    if (mod) separate(a, mod);
    sn_codegen *g = mod ? sn_codegen_create(&base, NULL, a->err) : NULL;
    ok = g && sn_codegen_object(g, mod, out, a->err);
    sn_codegen_destroy(g);
    em_free(&e);
    return ok;
}
