/* Objects and the JIT session: symbols between objects and from the host, what is kept out, many
 * small objects, the perf map, and every failure as an error message. */
#include "codegen/emit/emit.h"
#include "codegen/jit/jit.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>
#include <sys/wait.h>
#include <unistd.h>

static sn_target host;

static sn_jit *session(const sn_jit_options *o) {
    sn_error err = {0};
    sn_jit *jit = sn_jit_create(&host, o, &err);
    if (!jit) fail_msg("%s", err.message);
    return jit;
}

/* Kernel `name`: buf[0][0] += add, then a call of `callee` (may be NULL) with the same
 * arguments. */
static void emit_kernel(em *e, const char *name, int add, const char *callee) {
    sn_error err = {0};
    assert_true(em_init(e, &host, name, SN_F32, &err));
    em_kernel(e, name);
    em_val p = em_buf(e, 0);
    em_store(e, SN_I32, p, em_add(e, em_load(e, SN_I32, p, 1), em_i32(e, add)));
    if (callee) {
        em_type params[] = {e->ptr, e->ptr, e->ptr, e->i64, e->i64};
        em_val args[] = {e->buf, e->dim, e->scratch, e->tid, e->nthreads};
        em_call(e, em_extern(e, callee, e->tvoid, params, 5), args, 5);
    }
    em_end_kernel(e);
    assert_non_null(em_finish(e, &err));
}

static void add_kernel(sn_jit *jit, const char *name, int add, const char *callee) {
    sn_error err = {0};
    em e;
    emit_kernel(&e, name, add, callee);
    if (!sn_jit_compile(jit, e.mod, NULL, &err)) fail_msg("%s", err.message);
    em_free(&e);
}

static int call(sn_jit *jit, const char *name) {
    sn_error err = {0};
    int32_t x = 0;
    void *p = sn_jit_lookup(jit, name, &err);
    if (!p) fail_msg("%s", err.message);
    sn_kernel_fn *f;
    memcpy(&f, &p, sizeof f);
    f((void *[]){&x}, NULL, NULL, 0, 1);
    return x;
}

static void host_add_1000(void *const *buf, const int64_t *dim, void *scratch, int64_t tid,
                          int64_t nthreads) {
    (void)dim, (void)scratch, (void)tid, (void)nthreads;
    *(int32_t *)buf[0] += 1000;
}

static void symbols(void **state) {
    (void)state;
    sn_kernel_fn *f = host_add_1000;
    sn_jit_symbol table[] = {{"host_add", NULL}};
    memcpy(&table[0].address, &f, sizeof f);
    sn_jit *jit = session(&(sn_jit_options){.symbols = table, .n_symbols = 1});
    add_kernel(jit, "outer", 1, "inner"); /* defined later */
    add_kernel(jit, "inner", 10, "host_add");
    assert_int_equal(call(jit, "inner"), 1010);
    assert_int_equal(call(jit, "outer"), 1011);
    sn_jit_destroy(jit);
}

/* A symbol of the process that is not in the table is not found, and the message names it. */
static void missing_symbols(void **state) {
    (void)state;
    sn_error err = {0};
    sn_jit *jit = session(NULL);
    add_kernel(jit, "calls_malloc", 1, "malloc");
    assert_null(sn_jit_lookup(jit, "calls_malloc", &err));
    assert_non_null(strstr(err.message, "malloc"));
    err = (sn_error){0};
    assert_null(sn_jit_lookup(jit, "nobody", &err));
    assert_non_null(strstr(err.message, "nobody"));
    add_kernel(jit, "fine", 7, NULL); /* the session can still be used */
    assert_int_equal(call(jit, "fine"), 7);
    sn_jit_destroy(jit);
}

static void bad_objects(void **state) {
    (void)state;
    sn_error err = {0};
    sn_jit *jit = session(NULL);
    uint8_t junk[200] = "no object";
    assert_false(sn_jit_add_object(jit, &(sn_object){junk, sizeof junk}, &err));
    assert_int_equal(err.code, SN_ERR_FILE);
    add_kernel(jit, "twice", 1, NULL);
    em e;
    emit_kernel(&e, "twice", 2, NULL);
    sn_object o;
    err = (sn_error){0};
    assert_false(sn_jit_compile(jit, e.mod, &o, &err));
    assert_non_null(strstr(err.message, "twice"));
    em_free(&e);
    assert_int_equal(call(jit, "twice"), 1);
    sn_jit_destroy(jit);
}

/* The object is what a file would hold: made once, loaded into another session. */
static void object_reload(void **state) {
    (void)state;
    sn_error err = {0};
    sn_object o;
    em e;
    sn_jit *a = session(NULL), *b = session(NULL);
    emit_kernel(&e, "k", 5, NULL);
    assert_true(sn_jit_compile(a, e.mod, &o, &err));
    em_free(&e);
    assert_true(sn_jit_add_object(b, &o, &err));
    sn_object_free(&o);
    assert_int_equal(call(a, "k"), 5);
    sn_jit_destroy(a);
    assert_int_equal(call(b, "k"), 5);
    sn_codegen_stats s = sn_jit_stats(b);
    assert_int_equal(s.modules, 0);
    assert_int_equal(s.objects, 1);
    sn_jit_destroy(b);
}

static void many_objects(void **state) {
    (void)state;
    sn_jit *jit = session(NULL);
    char name[16];
    for (int i = 0; i < 60; i++) {
        snprintf(name, sizeof name, "k%d", i);
        add_kernel(jit, name, i, NULL);
    }
    for (int i = 0; i < 60; i++) {
        snprintf(name, sizeof name, "k%d", i);
        assert_int_equal(call(jit, name), i);
    }
    sn_codegen_stats s = sn_jit_stats(jit);
    assert_int_equal(s.modules, 60);
    assert_int_equal(s.objects, 60);
    assert_true(s.codegen > 0 && s.optimise > 0 && s.load > 0 && s.bytes > 0);
    sn_jit_destroy(jit);
}

static void perf_map(void **state) {
    (void)state;
    char path[64], line[256];
    snprintf(path, sizeof path, "/tmp/perf-%ld.map", (long)getpid());
    sn_jit *jit = session(&(sn_jit_options){.perf_map = true});
    add_kernel(jit, "mapped", 3, NULL);
    sn_error err = {0};
    void *p = sn_jit_lookup(jit, "mapped", &err);
    sn_jit_destroy(jit);
    FILE *f = fopen(path, "r");
    assert_non_null(f);
    unsigned long long at = 0, size = 0;
    char name[64] = "";
    assert_non_null(fgets(line, sizeof line, f));
    assert_int_equal(sscanf(line, "%llx %llx %63s", &at, &size, name), 3);
    fclose(f);
    unlink(path);
    assert_string_equal(name, "mapped");
    assert_int_equal(at, (uintptr_t)p);
    assert_true(size > 4 && size < 4096);
}

/* An intrinsic that the target does not have makes LLVM give up; here that is an error. The child
 * process keeps what LLVM leaks on that way out of a leak checker's sight. */
static void fatal_error(void **state) {
    (void)state;
    pid_t child = fork();
    if (child == 0) {
        sn_error err = {0};
        sn_target t;
        em e;
        sn_object o;
        bool ok = sn_target_init(&t, "x86-64-v2", &err) && em_init(&e, &t, "m", SN_F32, &err);
        em_kernel(&e, "k");
        em_val x = em_load(&e, SN_F32, em_buf(&e, 0), 16), mask = LLVMConstAllOnes(e.i16);
        em_val args[] = {x, x, x, mask, em_i32(&e, 4)};
        em_store(&e, SN_F32, em_buf(&e, 0),
                 em_intrinsic(&e, "llvm.x86.avx512.mask.scalef.ps.512", NULL, 0, args, 5));
        em_end_kernel(&e);
        sn_codegen *g = sn_codegen_create(&t, NULL, &err);
        ok = ok && g && em_finish(&e, &err) && !sn_codegen_object(g, e.mod, &o, &err) &&
             strstr(err.message, "x86-64-v2") && !o.data;
        em_free(&e);
        err = (sn_error){0};
        sn_jit *jit = sn_jit_create(&host, NULL, &err); /* this process continues */
        if (ok && jit) {
            add_kernel(jit, "after", 1, NULL);
            ok = call(jit, "after") == 1;
        }
        _exit(ok && jit ? 0 : 1);
    }
    int status = 0;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), 0);
}

static void pipeline_errors(void **state) {
    (void)state;
    sn_error err = {0};
    sn_object o;
    em e;
    sn_codegen *g = sn_codegen_create(&host, &(sn_codegen_options){.passes = "no-such-pass"}, &err);
    assert_non_null(g);
    emit_kernel(&e, "k", 1, NULL);
    assert_false(sn_codegen_object(g, e.mod, &o, &err));
    assert_non_null(strstr(err.message, "no-such-pass"));
    em_free(&e);
    sn_codegen_destroy(g);
}

/* Code for a machine that this one is not: objects can be made, not run. */
static void foreign_target(void **state) {
    (void)state;
    sn_error err = {0};
    sn_target t;
    em e;
    sn_object o;
    assert_true(sn_target_init(&t, host.arch == SN_ARCH_X86_64 ? "aarch64" : "x86-64-v3", &err));
    assert_null(sn_jit_create(&t, NULL, &err));
    assert_int_equal(err.code, SN_ERR_TARGET);
    err = (sn_error){0};
    assert_true(em_init(&e, &t, "m", SN_F32, &err));
    em_kernel(&e, "k");
    em_val n = em_dim(&e, 0), x = em_load_tail(&e, SN_F16, em_buf(&e, 0), e.lanes, n);
    em_store_tail(&e, SN_BF16, em_buf(&e, 1), em_sqrt(&e, em_fma(&e, x, x, x)), n);
    em_end_kernel(&e);
    sn_codegen *g = sn_codegen_create(&t, NULL, &err);
    assert_true(em_finish(&e, &err) && sn_codegen_object(g, e.mod, &o, &err));
    assert_true(o.size > 64 && !memcmp(o.data, "\177ELF", 4));
    sn_object_free(&o);
    em_free(&e);
    sn_codegen_destroy(g);
}

static void dumps(void **state) {
    (void)state;
    char *ir = NULL, *assembly = NULL;
    size_t n_ir = 0, n_asm = 0;
    FILE *f = open_memstream(&ir, &n_ir), *g = open_memstream(&assembly, &n_asm);
    sn_jit *jit = session(&(sn_jit_options){.codegen = {.dump_optimised = f, .dump_asm = g}});
    add_kernel(jit, "dumped", 1, NULL);
    assert_int_equal(call(jit, "dumped"), 1);
    fclose(f);
    fclose(g);
    assert_non_null(strstr(ir, "define void @dumped"));
    assert_non_null(strstr(assembly, "dumped:"));
    free(ir);
    free(assembly);
    sn_jit_destroy(jit);
}

static int setup(void **state) {
    (void)state;
    sn_error err = {0};
    return !sn_target_init(&host, NULL, &err);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(symbols),      cmocka_unit_test(missing_symbols),
        cmocka_unit_test(bad_objects),  cmocka_unit_test(object_reload),
        cmocka_unit_test(many_objects), cmocka_unit_test(perf_map),
        cmocka_unit_test(fatal_error),  cmocka_unit_test(pipeline_errors),
        cmocka_unit_test(dumps),        cmocka_unit_test(foreign_target)};
    return cmocka_run_group_tests(tests, setup, NULL);
}
