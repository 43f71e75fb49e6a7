/* Choices by measurement: they are measured, cached and reused without measuring; another size,
 * level or CPU is another choice; corrupted or foreign entries are ignored; every choice gives the
 * same values, and bit-identical results for any number of threads. */
#include "codegen/jit/cache.h"
#include "codegen/program/tune.h"
#include "frontend/sinter.h"
#include "runtime/str.h"

#include <setjmp.h>
#include <stdarg.h>
#include <cmocka.h>

#include "tests/support/effort.h"
#include "tests/support/scratch.h"

#include <math.h>
#include <sys/stat.h>

enum { T_MAX = 64, WIDTH = 96, HEADS = 6, ROWS = 40 };

/* Two products of T rows with attention between them, each with more than one way to be
 * computed. */
static sn_module *make_module(void) {
    sn_module *m = sn_module_new("tuned");
    sn_dim T = sn_symbol(m, "T", 1, T_MAX);
    sn_tensor x = sn_input(m, "x", SN_F32, 1, T, WIDTH), part[3];
    sn_entry_begin(m, "main");
    sn_tensor h = sn_linear(x, sn_param(m, "w", SN_F32, 3 * WIDTH, WIDTH),
                            sn_param(m, "b", SN_F32, 3 * WIDTH));
    for (int i = 0; i < 3; i++) part[i] = sn_split_heads(sn_slice(h, 2, i * WIDTH, WIDTH), HEADS);
    h = sn_merge_heads(sn_attention(part[0], part[1], part[2], .causal = true));
    sn_output("y", sn_add(sn_gelu(sn_linear(h, sn_param(m, "v", SN_F32, WIDTH, WIDTH), NULL)), x));
    return m;
}

typedef struct outcome {
    sn_stats stats;
    char *explained;
    float y[ROWS * WIDTH];
} outcome;

static void random_floats(float *x, size_t n, uint64_t seed) {
    for (size_t i = 0; i < n; i++) x[i] = (float)(int64_t)(next_random(&seed) % 2001) / 1000 - 1;
}

static void run(sn_program *p, outcome *r) {
    static float w[3 * WIDTH * WIDTH], b[3 * WIDTH], v[WIDTH * WIDTH], x[ROWS * WIDTH];
    random_floats(w, sizeof w / sizeof *w, 1);
    random_floats(b, sizeof b / sizeof *b, 2);
    random_floats(v, sizeof v / sizeof *v, 3);
    random_floats(x, sizeof x / sizeof *x, 4);
    const sn_arg_binding param[] = {SN_BIND("w", SN_F32, w, 3 * WIDTH, WIDTH),
                                    SN_BIND("b", SN_F32, b, 3 * WIDTH),
                                    SN_BIND("v", SN_F32, v, WIDTH, WIDTH)},
                         in = SN_BIND("x", SN_F32, x, 1, ROWS, WIDTH),
                         out = SN_BIND("y", SN_F32, r->y, 1, ROWS, WIDTH);
    sn_error err = {0};
    sn_session *s = sn_session_new_arrays(p, param, 3, &err);
    if (!s || !sn_run(s, "main", &in, 1, &out, 1, &err)) fail_msg("%s", err.message);
    sn_session_free(s);
}

/* Compiles and runs; stats.note is only whether there is one. */
static outcome compile_with(sn_options o) {
    outcome r = {0};
    sn_error err = {0};
    sn_module *m = make_module();
    if (!o.cache_dir) o.cache_dir = scratch_dir;
    if (!o.threads) o.threads = 1;
    sn_program *p = sn_compile(m, &o, &err);
    if (!p) fail_msg("%s", err.message);
    r.stats = sn_program_stats(p);
    if (r.stats.note) r.stats.note = "a note";
    size_t size;
    FILE *f = open_memstream(&r.explained, &size);
    sn_program_explain(p, "main", f);
    fclose(f);
    run(p, &r);
    sn_program_free(p);
    sn_module_free(m);
    return r;
}

static void drop(outcome *r) {
    free(r->explained);
}

static bool near(const outcome *a, const outcome *b) {
    double error = 0, square = 0;
    for (int i = 0; i < ROWS * WIDTH; i++) {
        error += pow((double)a->y[i] - b->y[i], 2);
        square += pow(a->y[i], 2);
    }
    return error <= 1e-12 * square;
}

static int choices(void) {
    sn_error err = {0};
    sn_cache *c = sn_cache_open(scratch_dir, 0, &err);
    int n = (int)sn_cache_each(c, SN_CACHE_CHOICE, NULL, NULL);
    sn_cache_close(c);
    return n;
}

static int clear(void **state) {
    (void)state;
    sn_error err = {0};
    sn_cache *c = sn_cache_open(scratch_dir, 0, &err);
    sn_cache_clear(c, SN_CACHE_CHOICE);
    sn_cache_close(c);
    return 0;
}

static const sn_options TUNE = {.level = 4, .tune = true, .tune_sizes = "T=40"},
                        AFTER = {.level = 4, .tune_sizes = "T=40"};

static int lines, ended;
static void count_line(void *ctx, const char *line) {
    assert_ptr_equal(ctx, &lines);
    assert_int_equal(ended, 0);
    assert_true(!*line || (!strncmp(line, "tune: ", 6) && !strchr(line, '\n')));
    lines += *line != 0;
    ended += !*line;
}

static void measured_once(void **state) {
    (void)state;
    outcome plain = compile_with(AFTER);
    assert_int_equal(plain.stats.measured, 0);
    assert_int_equal(plain.stats.tuned, 0);
    assert_non_null(strstr(plain.explained, "native kernel (cost model: "));
    assert_null(strstr(plain.explained, "tuned: "));
    sn_options o = TUNE;
    o.progress = count_line;
    o.progress_ctx = &lines;
    lines = 0;
    outcome first = compile_with(o);
    assert_true(first.stats.measured >= 3); /* two products, attention; tiles of what won */
    assert_int_equal(lines, first.stats.measured);
    assert_int_equal(ended, 1);
    assert_int_equal(first.stats.tuned, first.stats.measured);
    assert_int_equal(choices(), first.stats.measured);
    assert_non_null(strstr(first.explained, "tuned: "));
    assert_true(near(&plain, &first));
    outcome later = compile_with(AFTER), again = compile_with(TUNE);
    assert_int_equal(later.stats.measured + again.stats.measured, 0);
    assert_int_equal(later.stats.tuned, first.stats.tuned);
    assert_int_equal(again.stats.tuned, first.stats.tuned);
    assert_int_equal(later.stats.changed, first.stats.changed);
    assert_string_equal(later.explained, first.explained);
    assert_memory_equal(later.y, first.y, sizeof first.y);
    outcome *all[] = {&plain, &first, &later, &again};
    for (int i = 0; i < 4; i++) drop(all[i]);
}

/* Other sizes, levels and back ends do not see it; sizes of the same power of two do. */
static void other_keys(void **state) {
    (void)state;
    outcome first = compile_with(TUNE);
    static const struct {
        sn_options o;
        bool same;
    } rows[] = {
        {{.level = 4, .tune_sizes = "T=63"}, true},
        {{.level = 4, .tune_sizes = "T=64"}, false},
        {{.level = 4, .tune_sizes = "T=31"}, false},
        {{.level = 4}, false}, /* the middle: 8 */
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        outcome r = compile_with(rows[i].o);
        assert_int_equal(r.stats.tuned, rows[i].same ? first.stats.tuned : 0);
        drop(&r);
    }
    /* the key of a tile has the number of threads, that of a question the level and the back end */
    outcome paired = compile_with((sn_options){.level = 4, .threads = 2, .tune_sizes = "T=40"});
    outcome own = compile_with((sn_options){.level = 4, .backend = "native", .tune_sizes = "T=40"});
    outcome low = compile_with((sn_options){.level = 0, .tune_sizes = "T=40"});
    assert_in_range(paired.stats.tuned, 1, first.stats.tuned);
    assert_in_range(own.stats.tuned, 0, first.stats.tuned - 1);
    assert_in_range(low.stats.tuned, 0, first.stats.tuned - 1);
    assert_null(strstr(paired.explained, "  tile "));
    assert_null(strstr(own.explained, "(tuned: "));
    assert_null(strstr(low.explained, "(tuned: "));
    drop(&first), drop(&paired), drop(&own), drop(&low);
}

/* ---- choices written by somebody else ---- */

typedef struct rewriting {
    sn_cache *cache;
    sn_target target;
    const char *kind; /* first word of what is rewritten */
    int answer, of;   /* of -1: as it was */
    int done;
} rewriting;

static void rewrite(void *ctx, const sn_object *o) {
    rewriting *w = ctx;
    char *text = strndup((const char *)o->data, o->size), *about = strchr(text, '\n') + 1;
    int answer, of;
    assert_int_equal(sscanf(text, "answer %d of %d:", &answer, &of), 2);
    if (!strncmp(about, w->kind, strlen(w->kind))) {
        char *made = NULL;
        size_t size;
        FILE *f = open_memstream(&made, &size);
        fprintf(f, "answer %d of %d: tuned: by this test\n%s", w->answer, w->of < 0 ? of : w->of,
                about);
        fclose(f);
        sn_object n = {(uint8_t *)made, size};
        sn_cache_put(w->cache, SN_CACHE_CHOICE, sn_cache_make_key(&w->target, about, strlen(about)),
                     &n);
        free(made);
        w->done++;
    }
    free(text);
}

static int rewrite_all(const char *kind, int answer, int of) {
    sn_error err = {0};
    rewriting w = {
        .cache = sn_cache_open(scratch_dir, 0, &err), .kind = kind, .answer = answer, .of = of};
    assert_true(sn_target_init(&w.target, NULL, &err));
    sn_cache_each(w.cache, SN_CACHE_CHOICE, rewrite, &w);
    sn_cache_close(w.cache);
    return w.done;
}

/* Every tile gives the same bits; every other answer the same values, and the same bits for any
 * number of threads. */
static void other_answers(void **state) {
    (void)state;
    outcome plain = compile_with((sn_options){.level = 4, .cache_dir = ""});
    rewrite_all("dot", SN_CHOOSE_FUSED, -1);
    rewrite_all("attention", SN_CHOOSE_FUSED, -1);
    outcome tuned = compile_with(TUNE); /* tiles of these, if others had won */
    int tiles = rewrite_all("tile", 0, -1);
    assert_true(tiles >= 3);
    outcome base = compile_with(AFTER);
    assert_int_equal(base.stats.changed, 0);
    assert_memory_equal(base.y, plain.y, sizeof plain.y);
    for (int tile = 1; tile < 5; tile++) {
        if (!effort_takes((size_t)tile, 2)) continue;
        rewrite_all("tile", tile, -1);
        outcome r = compile_with(AFTER);
        assert_in_range(r.stats.changed, 1, tiles);
        assert_string_not_equal(r.explained, base.explained); /* other code */
        assert_memory_equal(r.y, plain.y, sizeof plain.y);
        drop(&r);
    }
    rewrite_all("tile", 0, -1);
    static const struct {
        const char *kind;
        sn_candidate answer;
    } rows[] = {
        {"dot", SN_CHOOSE_UNFUSED}, {"attention", SN_CHOOSE_UNFUSED}, {"dot", SN_CHOOSE_LIBRARY}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        int n = rewrite_all(rows[i].kind, rows[i].answer, -1);
        outcome one = compile_with(AFTER);
        bool there = rows[i].answer != SN_CHOOSE_LIBRARY || one.stats.onednn;
        assert_true(n > 0);
        if (there) { /* a build may have no oneDNN */
            assert_in_range(one.stats.changed, 1, n);
            assert_non_null(strstr(one.explained, "tuned: by this test"));
        }
        assert_true(near(&plain, &one));
        for (int threads = 2; threads <= 3; threads++) {
            sn_options o = AFTER;
            o.threads = threads;
            outcome r = compile_with(o);
            assert_memory_equal(r.y, one.y, sizeof one.y);
            drop(&r);
        }
        drop(&one);
        rewrite_all(rows[i].kind, SN_CHOOSE_FUSED, -1);
    }
    drop(&plain), drop(&tuned), drop(&base);
}

/* An answer that there is not, or to as many as there are not. */
static void foreign_answers(void **state) {
    (void)state;
    outcome first = compile_with(TUNE);
    const int rows[][2] = {{7, -1}, {-1, -1}, {1, 2}, {0, 99}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        rewrite_all("", rows[i][0], rows[i][1]);
        outcome r = compile_with(AFTER);
        assert_int_equal(r.stats.tuned, 0);
        drop(&r);
    }
    drop(&first);
}

static int spoil_all(uint64_t *seed) {
    int n = 0;
    DIR *d = opendir(scratch_dir);
    for (struct dirent *f; (f = readdir(d));) {
        if (!sn_ends_with(f->d_name, ".snc")) continue;
        const char *path = scratch_path(f->d_name);
        FILE *file = fopen(path, "r+b");
        fseek(file, 0, SEEK_END);
        long size = ftell(file), at = (long)(next_random(seed) % (uint64_t)(size + 1));
        fseek(file, at, SEEK_SET);
        int c = fgetc(file);
        fseek(file, at, SEEK_SET);
        fputc(c ^ (1 + (int)(next_random(seed) % 254)), file); /* at the end: one byte more */
        fclose(file);
        if (n % 3 == 1) assert_int_equal(truncate(path, at), 0);
        n++;
    }
    closedir(d);
    return n;
}

static void spoilt_files(void **state) {
    (void)state;
    uint64_t seed = 9;
    outcome first = compile_with(TUNE);
    outcome plain = compile_with((sn_options){.level = 4, .cache_dir = ""});
    for (int i = 0; i < 8; i++) {
        if (!effort_takes((size_t)i, 3)) continue;
        assert_true(spoil_all(&seed) >= first.stats.tuned);
        outcome r = compile_with(AFTER);
        assert_int_equal(r.stats.tuned, 0);
        assert_memory_equal(r.y, plain.y, sizeof plain.y);
        drop(&r);
    }
    assert_int_equal(choices(), 0);
    drop(&first), drop(&plain);
}

/* Choices hold for this compilation, and a note says that they are not kept. */
static void unusable_folder(void **state) {
    (void)state;
    const char *file = scratch_path("file");
    assert_true(scratch_write(file, "x", 1));
    sn_options o = TUNE;
    o.cache_dir = file;
    outcome r = compile_with(o);
    assert_true(r.stats.measured > 0 && r.stats.tuned == r.stats.measured);
    assert_non_null(r.stats.note);
    drop(&r);
}

static void contradictions(void **state) {
    (void)state;
    static const struct {
        sn_options o;
        const char *name, *what;
    } rows[] = {
        {{.level = 4, .tune = true, .cache_dir = ""},
         "tune without a disk cache",
         "use a cache folder"},
        {{.level = 4, .tune = true, .cache_dir = "none"},
         "tune without a disk cache",
         "use a cache"},
        {{.level = 4, .tune = true, .backend = "onednn"}, "tune with backend", "nothing to choose"},
        {{.level = 0, .strict_fusion = true}, "strict fusion at level 0", "use level 1 to 4"},
        {{.level = 4, .weights = "int8", .backend = "onednn"}, "int8", "choose backend native"},
        {{.level = 4, .tune_sizes = "T"}, "tune sizes 'T'", "write them as"},
        {{.level = 4, .tune_sizes = "T=0"}, "tune sizes: T = 0", "outside 1..64"},
        {{.level = 4, .tune_sizes = "T=8,U=2"}, "module tuned", "no dimension 'U'"},
        {{.level = 4, .passes = "-raise,-fuse"}, "passes '-raise,-fuse'", "there are no kernels"},
        {{.level = 4, .n_taps = 1}, "1 taps without", "give a list"},
        {{.level = 4, .n_taps = -1}, "-1 taps", "its length"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        sn_module *m = make_module();
        sn_error err = {0};
        assert_null(sn_compile(m, &rows[i].o, &err));
        bool no_onednn = err.code == SN_ERR_TARGET && strstr(err.message, "has no oneDNN");
        if (!no_onednn &&
            (!strstr(err.message, rows[i].name) || !strstr(err.message, rows[i].what)))
            fail_msg("row %zu: %s", i, err.message);
        assert_null(strstr(err.message, "%"));
        sn_module_free(m);
    }
    sn_options fine = {.level = 4, .tune = true, .backend = "native", .tune_sizes = "T=1"};
    outcome r = compile_with(fine); /* one row: nothing to measure */
    assert_int_equal(r.stats.measured, 0);
    drop(&r);
}

static void contradictions_ahead(void **state) {
    (void)state;
    static const struct {
        sn_options o;
        const char *name;
    } rows[] = {
        {{.level = 4, .tune = true}, "tune ahead of time"},
        {{.level = 4, .plan_only = true}, "plan_only ahead of time"},
        {{.level = 4, .backend = "onednn"}, "ahead of time"},
        {{.level = 4, .check_nan = true}, "check_nan or check_index ahead of time"},
        {{.level = 4, .check_index = true}, "check_nan or check_index ahead of time"},
    };
    sn_module *m = make_module();
    sn_error err = {0};
    static float w[3 * WIDTH * WIDTH], b[3 * WIDTH];
    const sn_arg_binding param[] = {SN_BIND("w", SN_F32, w, 3 * WIDTH, WIDTH),
                                    SN_BIND("b", SN_F32, b, 3 * WIDTH),
                                    SN_BIND("v", SN_F32, w, WIDTH, WIDTH)};
    sn_options o = AFTER;
    o.cache_dir = scratch_dir;
    sn_program *p = sn_compile(m, &o, &err);
    sn_session *s = sn_session_new_arrays(p, param, 3, &err);
    assert_non_null(s);
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        sn_emit_options e = sn_emit_options_default();
        err = (sn_error){0};
        e.dir = scratch_dir;
        e.compile = rows[i].o;
        assert_false(sn_emit(s, &e, &err));
        if (!strstr(err.message, "has no oneDNN"))
            expect_error(&err, SN_ERR_USAGE, rows[i].name, "");
    }
    sn_session_free(s);
    sn_program_free(p);
    sn_module_free(m);
}

/* T >= 8 is not a range of T, but a condition of the slice. */
static void sizes_that_cannot_run(void **state) {
    (void)state;
    sn_module *m = sn_module_new("short");
    sn_error err = {0};
    sn_dim T = sn_symbol(m, "T", 1, 16);
    sn_entry_begin(m, "f");
    sn_tensor x = sn_input(m, "x", SN_F32, T, 16);
    sn_output("y", sn_softmax(sn_slice(x, 0, 0, sn_dim_sub(m, T, 8)), 1));
    sn_options o = TUNE;
    o.tune_sizes = NULL;
    sn_program *p = sn_compile(m, &o, &err); /* sqrt(1 16) = 4 */
    assert_null(p);
    assert_int_equal(err.code, SN_ERR_RANGE);
    assert_non_null(strstr(err.message, "tune sizes: slice (test_tune.c:"));
    assert_non_null(strstr(err.message, "the size T-8 = -4"));
    o.tune_sizes = "T=9";
    p = sn_compile(m, &o, &(sn_error){0});
    assert_non_null(p);
    sn_program_free(p);
    sn_module_free(m);
}

/* Sizes without an upper bound are tuned for at most INT64_MAX. */
static void buckets(void **state) {
    (void)state;
    const int64_t top = (int64_t)1 << 62;
    const int64_t row[][3] = {{0, 0, 0},
                              {1, 1, 1},
                              {5, 4, 7},
                              {top - 1, top / 2, top - 1},
                              {top, top, INT64_MAX},
                              {INT64_MAX, top, INT64_MAX}};
    for (size_t i = 0; i < sizeof row / sizeof *row; i++) {
        sn_bucket b = sn_tune_bucket(row[i][0]);
        assert_true(b.from == row[i][1] && b.to == row[i][2]);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(measured_once, clear),
        cmocka_unit_test(buckets),
        cmocka_unit_test(sizes_that_cannot_run),
        cmocka_unit_test(other_keys),
        cmocka_unit_test(other_answers),
        cmocka_unit_test(foreign_answers),
        cmocka_unit_test(spoilt_files),
        cmocka_unit_test(unusable_folder),
        cmocka_unit_test(contradictions),
        cmocka_unit_test(contradictions_ahead),
    };
    return cmocka_run_group_tests(tests, scratch_make, scratch_end);
}
