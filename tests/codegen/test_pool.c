/* test_pool.c: modules compiled on several threads: the same objects as on one, errors of the module
 * that has them, nothing left behind when a pool ends early; programs with the same code for any number
 * of threads. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>
#include "codegen/jit/pool.h"
#include "frontend/sinter.h"
#include "tests/support/scratch.h"

#include <dirent.h>
#include <llvm-c/Core.h>

enum { KERNELS = 24 };

static sn_target host;

/* Kernel i: some work that differs from kernel to kernel. */
static em emit(int i) {
    sn_error err = {0};
    char name[32];
    em e;
    snprintf(name, sizeof name, "kernel%d", i);
    assert_true(em_init(&e, &host, name, SN_F32, &err));
    em_kernel(&e, name);
    em_loop l = em_for(&e, em_i64(&e, 0), em_i64(&e, 8 + i), em_i64(&e, 1));
    for (int k = 0; k <= i; k++) {
        em_val p = em_gep(&e, em_buf(&e, 0), SN_F32, em_add(&e, l.i, 64 * k));
        em_store(&e, SN_F32, p, em_fma(&e, em_load(&e, SN_F32, p, 1), em_f(&e, k), em_f(&e, i)));
    }
    em_end(&e, &l);
    em_end_kernel(&e);
    if (!em_finish(&e, &err)) fail_msg("%s", err.message);
    return e;
}

static void compile_all(int threads, sn_object object[KERNELS], bool backwards) {
    sn_error err = {0};
    sn_pool *p = sn_pool_create(&host, NULL, threads, &err);
    assert_non_null(p);
    for (int i = 0; i < KERNELS; i++) {
        em e = emit(i);
        assert_int_equal(sn_pool_add(p, &e, &err), i);
        assert_null(e.mod);
    }
    for (int i = 0; i < KERNELS; i++) {
        int k = backwards ? KERNELS - 1 - i : i;
        if (!sn_pool_take(p, k, &object[k], &err)) fail_msg("%s", err.message);
    }
    assert_int_equal(sn_pool_stats(p).modules, KERNELS);
    sn_pool_destroy(p);
}

static void same_objects(void **state) {
    (void)state;
    sn_object alone[KERNELS], shared[KERNELS];
    compile_all(1, alone, false);
    for (int threads = 2; threads < 6; threads++) {
        compile_all(threads, shared, threads % 2);
        for (int i = 0; i < KERNELS; i++) {
            assert_int_equal(shared[i].size, alone[i].size);
            assert_memory_equal(shared[i].data, alone[i].data, alone[i].size);
            sn_object_free(&shared[i]);
        }
    }
    for (int i = 0; i < KERNELS; i++) sn_object_free(&alone[i]);
}

static void ends_early(void **state) {
    (void)state;
    sn_error err = {0};
    for (int taken = 0; taken < 3; taken++) {
        sn_pool *p = sn_pool_create(&host, NULL, 3, &err);
        assert_non_null(p);
        for (int i = 0; i < KERNELS; i++) {
            em e = emit(i);
            assert_int_equal(sn_pool_add(p, &e, &err), i);
        }
        for (int i = 0; i < taken; i++) {
            sn_object o;
            assert_true(sn_pool_take(p, 5 * i, &o, &err));
            sn_object_free(&o);
        }
        sn_pool_destroy(p);
    }
    sn_pool_destroy(NULL);
}

/* LLVM ends the process on assembly that does not exist, if nobody catches that. */
static void reports_errors(void **state) {
    (void)state;
    enum { BAD = 7 };
    for (int threads = 1; threads < 4; threads++) {
        sn_error err = {0};
        sn_pool *p = sn_pool_create(&host, NULL, threads, &err);
        assert_non_null(p);
        for (int i = 0; i < KERNELS; i++) {
            em e = emit(i);
            if (i == BAD) LLVMSetModuleInlineAsm2(e.mod, ".no_such_directive\n", 19);
            assert_int_equal(sn_pool_add(p, &e, &err), i);
        }
        for (int i = 0; i < KERNELS; i++) {
            sn_object o;
            err = (sn_error){0};
            assert_int_equal(sn_pool_take(p, i, &o, &err), i != BAD);
            if (i == BAD) assert_non_null(strstr(err.message, "no_such_directive"));
            sn_object_free(&o);
        }
        sn_pool_destroy(p);
    }
}

static sn_module *two_layers(void) {
    sn_module *m = sn_module_new("layers");
    sn_entry_begin(m, "main");
    sn_tensor x = sn_input(m, "x", SN_F32, 3, 64), loss, w[2], g[2];
    for (int i = 0; i < 2; i++) {
        w[i] = sn_param(m, i ? "b" : "a", SN_F32, 64, 64);
        x = sn_softmax(sn_gelu(sn_linear(x, w[i], NULL)), -1);
    }
    loss = sn_sum_all(sn_mul(x, x));
    sn_grad(loss, 2, w, g);
    sn_output("ga", g[0]);
    sn_output("gb", g[1]);
    return m;
}

static int count_files(const char *dir, const char *other) {
    int n = 0;
    DIR *d = opendir(dir);
    assert_non_null(d);
    for (struct dirent *f; (f = readdir(d));) {
        char path[2][512];
        void *data[2];
        size_t size[2];
        if (!strstr(f->d_name, ".sno")) continue;
        for (int i = 0; i < 2; i++) {
            snprintf(path[i], sizeof path[i], "%s/%s", i ? other : dir, f->d_name);
            FILE *in = fopen(path[i], "rb");
            if (!in) fail_msg("%s is missing", path[i]);
            data[i] = malloc(1 << 20);
            size[i] = fread(data[i], 1, 1 << 20, in);
            fclose(in);
        }
        assert_int_equal(size[0], size[1]);
        assert_memory_equal(data[0], data[1], size[0]);
        free(data[0]);
        free(data[1]);
        n++;
    }
    closedir(d);
    return n;
}

/* A program's objects, as the cache holds them. */
static void same_programs(void **state) {
    (void)state;
    char dir[2][128];
    int compiled[2];
    for (int i = 0; i < 2; i++) {
        sn_error err = {0};
        snprintf(dir[i], sizeof dir[i], "%s/%d", scratch_dir, i);
        sn_module *m = two_layers();
        sn_options o = {.level = 4, .threads = i ? 4 : 1, .cache_dir = dir[i]};
        sn_program *p = sn_compile(m, &o, &err);
        if (!p) fail_msg("%s", err.message);
        compiled[i] = (int)sn_program_stats(p).compiled;
        sn_program_free(p);
        p = sn_compile(m, &o, &err); /* from the cache */
        if (!p) fail_msg("%s", err.message);
        assert_int_equal(sn_program_stats(p).compiled, 0);
        assert_int_equal(sn_program_stats(p).cached, compiled[i]);
        sn_program_free(p);
        sn_module_free(m);
    }
    assert_true(compiled[0] > 3);
    assert_int_equal(compiled[0], compiled[1]);
    assert_int_equal(count_files(dir[0], dir[1]), compiled[0]);
    assert_int_equal(count_files(dir[1], dir[0]), compiled[0]);
}

static int begin(void **state) {
    sn_error err = {0};
    return sn_target_init(&host, NULL, &err) ? scratch_make(state) : -1;
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(same_objects), cmocka_unit_test(ends_early),
                                       cmocka_unit_test(reports_errors),
                                       cmocka_unit_test(same_programs)};
    return cmocka_run_group_tests(tests, begin, scratch_end);
}
