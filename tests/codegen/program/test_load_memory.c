/* test_load_memory.c: what opening a session costs: the weights in the form in which kernels read
 * them, and not much more while they are made; tables that are stored once; refusals. */
#include "codegen/jit/cache.h"
#include "codegen/program/program.h"
#include "frontend/sinter.h"
#include "runtime/file.h"
#include "runtime/weights.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include <fcntl.h>
#include <math.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>
#define XXH_INLINE_ALL
#include <xxhash.h>
#include "tests/support/scratch.h"

enum { LAYERS = 16, WIDTH = 1024, COUNT = WIDTH * WIDTH, VOCAB = 1000, D = 96, MB = 1 << 20 };

static void need(bool ok, const sn_error *err) {
    if (!ok) fail_msg("%s", err->message);
}

/* ---- peak ---- */

static size_t anonymous(void) {
    size_t kilobytes = 0;
    char line[256];
    FILE *f = fopen("/proc/self/status", "r");
    while (f && fgets(line, sizeof line, f))
        if (!strncmp(line, "RssAnon:", 8)) kilobytes = strtoul(line + 8, NULL, 10);
    if (f) fclose(f);
    return kilobytes * 1024;
}

typedef struct sampler {
    atomic_bool stop;
    size_t most;
} sampler;

static void *sample(void *arg) {
    sampler *s = arg;
    while (!atomic_load(&s->stop)) {
        size_t now = anonymous();
        if (now > s->most) s->most = now;
        nanosleep(&(struct timespec){.tv_nsec = 200000}, NULL);
    }
    return NULL;
}

static char layer[LAYERS][16];

static const char *write_layers(void) {
    static uint16_t numbers[COUNT + LAYERS];
    sn_weight w[LAYERS];
    sn_error err = {0};
    for (int i = 0; i < COUNT + LAYERS; i++) numbers[i] = (uint16_t)(0x3c00 + i % 77);
    for (int i = 0; i < LAYERS; i++) {
        snprintf(layer[i], sizeof layer[i], "w%d", i);
        w[i] = (sn_weight){.name = layer[i],
                           .dtype = SN_BF16,
                           .rank = 2,
                           .shape = {WIDTH, WIDTH},
                           .data = numbers + i,
                           .bytes = 2 * COUNT};
    }
    const char *path = scratch_path("layers.safetensors");
    need(sn_weights_save(path, w, LAYERS, NULL, 0, &err), &err);
    return path;
}

/* The same file with a header that is longer by a byte, so that no tensor is aligned. */
static void shift_tensors(const char *path) {
    sn_mapping old;
    sn_error err = {0};
    uint64_t n, more;
    need(sn_file_map(path, &old, &err), &err);
    memcpy(&n, old.data, sizeof n);
    more = n + 1;
    sn_file *f = sn_file_create(path, &err);
    need(f && sn_file_write(f, &more, sizeof more, &err) &&
             sn_file_write(f, old.data + sizeof n, n, &err) && sn_file_write(f, " ", 1, &err) &&
             sn_file_write(f, old.data + sizeof n + n, old.size - sizeof n - n, &err) &&
             sn_file_commit(f, &err),
         &err);
    sn_file_unmap(&old);
}

static sn_program *compile_for(sn_module *m, const char *weights, const sn_weights *source,
                               int level) {
    sn_error err = {0};
    sn_options o = sn_options_default();
    o.weights = weights;
    o.source = source;
    o.level = level;
    o.threads = 1;
    o.cache_dir = scratch_path("cache"); /* cases share kernels */
    o.weights_cache = -1;
    sn_program *p = sn_compile(m, &o, &err);
    need(p != NULL, &err);
    return p;
}

static sn_program *compile(sn_module *m, const char *weights) {
    return compile_for(m, weights, NULL, 4);
}

static sn_module *chain(int layers, int64_t width) {
    sn_module *m = sn_module_new("chain");
    sn_entry_begin(m, "run");
    sn_tensor x = sn_input(m, "x", SN_F32, 1, width);
    for (int i = 0; i < layers; i++)
        x = sn_linear(x, sn_param(m, layer[i], SN_F32, width, width), (sn_tensor){0});
    sn_output("y", x);
    return m;
}

static size_t prepared_bytes(const sn_session *s) {
    size_t sum = 0, bytes;
    for (int i = 0; sn_session_prepared(s, i, &bytes); i++) sum += bytes;
    return sum;
}

/* In a separate process, because earlier tests leave memory that is reused. Exit codes: 0 success,
 * 1 too much memory, 2 an error. known: the program knows the file, so that no tensor becomes f32. */
static void open_in_child(const char *path, const char *weights, bool known) {
    enum { TENSOR = 4 * COUNT, CONSTANT = 12 * MB };
    sn_error err = {0};
    sampler s = {.most = 0};
    pthread_t thread;
    size_t closed = anonymous();
    sn_weights *w = sn_weights_open(path, &err);
    if (anonymous() > closed + MB) _exit(1);
    sn_module *m = chain(LAYERS, WIDTH);
    sn_program *p = compile_for(m, weights, known ? w : NULL, 4);
    if (!w || pthread_create(&thread, NULL, sample, &s) != 0) _exit(2);
    size_t before = anonymous();
    sn_session *session = sn_session_new(p, w, &err);
    size_t after = anonymous();
    atomic_store(&s.stop, true);
    pthread_join(thread, NULL);
    if (!session) _exit(2);
    size_t stays = prepared_bytes(session);
    fprintf(stderr, "%s: %zu MB stay, peak %zu, then %zu\n", weights, stays / MB,
            (s.most - before) / MB, (after - before) / MB);
    bool direct = known && (!strcmp(weights, "f32") || !strcmp(weights, "bf16"));
    size_t most = stays + (direct ? 3 * MB : CONSTANT + TENSOR);
#ifdef __SANITIZE_ADDRESS__
    most += most / 8; /* the shadow of that memory */
#endif
    _exit(s.most - before > most || after - before > stays + CONSTANT);
}

static int child_status(pid_t child) {
    int status = -1;
    assert_true(child > 0 && waitpid(child, &status, 0) == child);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

static void peak_is_what_stays(void **state) {
    (void)state;
    static const char *const kinds[] = {"f32", "bf16", "int8", "int4"};
    const char *path = write_layers();
    for (int i = 0; i < 12; i++) {
        if (i == 8) shift_tensors(path);
        pid_t child = fork();
        if (!child) open_in_child(path, kinds[i / 2 % 4], i % 2);
        assert_int_equal(child_status(child), 0);
    }
}

/* ---- the disk cache ---- */

static int packed_files(void) {
    sn_error err = {0};
    int64_t bytes;
    sn_cache *c = sn_cache_open(scratch_path("cache"), 0, &err);
    int n = (int)sn_cache_count_weights(c, &bytes);
    sn_cache_close(c);
    return n;
}

/* Opens and frees a session; returns whether its weights were mapped, and a hash of them. */
static bool is_mapped(const char *path, int64_t limit, uint64_t *hash) {
    sn_error err = {0};
    sn_options o = sn_options_default();
    o.threads = 2;
    o.cache_dir = scratch_path("cache");
    o.weights_cache = limit;
    sn_module *m = chain(LAYERS, WIDTH);
    sn_program *p = sn_compile(m, &o, &err);
    sn_weights *w = sn_weights_open(path, &err);
    need(p && w, &err);
    size_t before = anonymous(), bytes;
    sn_session *s = sn_session_new(p, w, &err);
    need(s != NULL, &err);
    bool mapped = anonymous() < before + 16 * MB;
    const void *data;
    *hash = 0;
    for (int i = 0; (data = sn_session_prepared(s, i, &bytes)); i++)
        *hash = XXH3_64bits_withSeed(data, bytes, *hash);
    sn_session_free(s);
    sn_program_free(p);
    sn_module_free(m);
    sn_weights_close(w);
    return mapped;
}

static void change_byte(const char *path, long at) {
    FILE *f = fopen(path, "r+b");
    assert_non_null(f);
    fseek(f, at, SEEK_SET);
    int c = fgetc(f);
    fseek(f, at, SEEK_SET);
    fputc(c ^ 1, f);
    fclose(f);
}

/* The only file with packed weights. */
static const char *packed_path(void) {
    const char *dir = scratch_path("cache");
    DIR *d = opendir(dir);
    static char path[600];
    for (struct dirent *e; (e = readdir(d));)
        if (strstr(e->d_name, ".snw")) snprintf(path, sizeof path, "%s/%s", dir, e->d_name);
    closedir(d);
    return path;
}

/* The second session maps what the first one packed; damaged files, other source files and a smaller
 * limit lead to packing. In a separate process, as above. */
static void open_cached(const char *layers) {
    uint64_t first, hash;
    char path[512];
    snprintf(path, sizeof path, "%s", layers); /* scratch_path uses its memory again */
    bool ok = !is_mapped(path, -1, &first) && packed_files() == 0;
    ok = ok && !is_mapped(path, 32 * MB, &hash) && packed_files() == 0;
    ok = ok && !is_mapped(path, 0, &hash) && hash == first && packed_files() == 1;
    ok = ok && is_mapped(path, 0, &hash) && hash == first;
    change_byte(packed_path(), 50 * MB);
    ok = ok && !is_mapped(path, 0, &hash) && hash == first && packed_files() == 1;
    ok = ok && is_mapped(path, 0, &hash) && hash == first;
    for (int i = 0; i < 2; i++) { /* room for two files of 64 MB */
        change_byte(path, (20 + i) * MB);
        ok = ok && !is_mapped(path, 65 * MB, &hash) && hash != first && packed_files() == 2;
    }
    _exit(!ok);
}

static void packed_weights_are_kept(void **state) {
    (void)state;
    const char *path = write_layers();
    pid_t child = fork();
    if (!child) open_cached(path);
    assert_int_equal(child_status(child), 0);
}

/* ---- reading past the page cache ---- */

/* Removes a file from the page cache. */
static void forget(const char *path) {
    int fd = open(path, O_RDONLY);
    assert_true(fd >= 0 && fsync(fd) == 0);
    posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED);
    close(fd);
}

/* Whether layer i, which is not in the page cache, can be read past it; checks what was read. */
static bool reads_layer(const sn_weights *w, int i) {
    const sn_weight *t = sn_weights_find(w, layer[i]);
    void *room = NULL;
    assert_int_equal(posix_memalign(&room, 4096, sn_weights_read_room(t->bytes)), 0);
    const char *data = sn_weights_read(w, t->data, t->bytes, room);
    for (int k = 0; data && k < COUNT; k++) {
        uint16_t number; /* at any byte */
        memcpy(&number, data + 2 * k, sizeof number);
        assert_int_equal(number, 0x3c00 + (i + k) % 77);
    }
    if (data) assert_int_equal((uintptr_t)data % 64, (uintptr_t)t->data % 64);
    free(room);
    return data;
}

static uint64_t hash_of(const sn_weights *w, const sn_weights *source, int64_t cache) {
    sn_error err = {0};
    sn_options o = sn_options_default();
    o.source = source;
    o.cache_dir = scratch_path("cache");
    o.weights_cache = cache;
    sn_module *m = chain(LAYERS, WIDTH);
    sn_program *p = sn_compile(m, &o, &err);
    need(p != NULL, &err);
    sn_session *s = sn_session_new(p, w, &err);
    need(s != NULL, &err);
    uint64_t hash = 0;
    size_t bytes;
    const void *data;
    for (int i = 0; (data = sn_session_prepared(s, i, &bytes)); i++)
        hash = XXH3_64bits_withSeed(data, bytes, hash);
    sn_session_free(s);
    sn_program_free(p);
    sn_module_free(m);
    return hash;
}

/* If the packed weights will be kept, the file is read once, not through the page cache: with the
 * same results, and it is not there afterwards. */
static void files_are_read_past_the_cache(void **state) {
    (void)state;
    sn_error err = {0};
    char path[512];
    snprintf(path, sizeof path, "%s", write_layers());
    for (int shifted = 0; shifted < 2; shifted++) {
        if (shifted) shift_tensors(path);
        sn_weights *w = sn_weights_open(path, &err);
        need(w != NULL, &err);
        const sn_weights *source = shifted ? NULL : w; /* without it f32 copies are made */
        uint64_t want = hash_of(w, source, -1);
        assert_false(reads_layer(w, 3)); /* it is in the page cache */
        sn_weights_close(w);             /* mapped pages stay there */
        forget(path);
        need((w = sn_weights_open(path, &err)) != NULL, &err);
        if (!reads_layer(w, 0)) {
            sn_weights_close(w);
            skip(); /* a file system that cannot */
        }
        assert_int_equal(hash_of(w, shifted ? NULL : w, 0), want);
        assert_true(reads_layer(w, LAYERS - 1));
        change_byte(path, 20 * MB); /* a file that was written is not read in that way */
        forget(path);
        assert_false(reads_layer(w, 1));
        sn_weights_close(w);
        snprintf(path, sizeof path, "%s", write_layers());
    }
}

/* ---- types of the file ---- */

enum { ROWS = 200, ACROSS = 64, TOKENS = 3 };

/* A table that is also a matrix, products that are merged, a transposed matrix. */
static sn_module *narrow_model(void) {
    sn_module *m = sn_module_new("narrow");
    sn_entry_begin(m, "run");
    sn_tensor table = sn_param(m, "table", SN_F32, ROWS, ACROSS);
    sn_tensor x = sn_embedding(table, sn_input(m, "ids", SN_I32, TOKENS));
    sn_tensor a = sn_linear(x, sn_param(m, "a", SN_F32, ACROSS, ACROSS), NULL),
              b = sn_linear(x, sn_param(m, "b", SN_F32, ACROSS, ACROSS), NULL);
    x = sn_mul(sn_add(a, sn_gelu(b)), sn_param(m, "v", SN_F32, ACROSS));
    x = sn_matmul(x, sn_param(m, "c", SN_F32, ACROSS, ACROSS));
    sn_output("y", sn_linear(x, table, NULL));
    return m;
}

static const char *write_narrow(sn_dtype type) {
    static const char *const names[] = {"a", "b", "c", "table", "v"};
    static uint16_t data[5][ROWS * ACROSS];
    sn_weight w[5];
    sn_error err = {0};
    for (int i = 0; i < 5; i++) {
        int64_t rows = i == 3 ? ROWS : ACROSS, count = i == 4 ? ACROSS : rows * ACROSS;
        for (int64_t k = 0; k < count; k++) {
            uint16_t bits = (uint16_t)((k * 7919 + i * 131) % 1021);
            data[i][k] =
                (uint16_t)((k % 3 ? 0x8000 : 0) + (type == SN_BF16 ? 0x3c00 : 0x2400) + bits / 8);
        }
        w[i] = (sn_weight){.name = names[i],
                           .dtype = type,
                           .rank = i == 4 ? 1 : 2,
                           .shape = {i == 4 ? ACROSS : rows, ACROSS},
                           .data = data[i],
                           .bytes = (size_t)count * 2};
    }
    const char *path = scratch_path("types.safetensors");
    need(sn_weights_save(path, w, 5, NULL, 0, &err), &err);
    return path;
}

static void run_narrow(const sn_weights *w, const char *kind, int level, bool known, float *y) {
    static const int32_t ids[TOKENS] = {0, 117, ROWS - 1};
    sn_error err = {0};
    sn_module *m = narrow_model();
    sn_program *p = compile_for(m, kind, known ? w : NULL, level);
    sn_session *s = sn_session_new(p, w, &err);
    need(s != NULL, &err);
    sn_arg_binding in = SN_BIND("ids", SN_I32, (void *)(uintptr_t)ids, TOKENS),
                   out = SN_BIND("y", SN_F32, y, TOKENS, ROWS);
    need(sn_run(s, "run", &in, 1, &out, 1, &err), &err);
    sn_session_free(s);
    sn_program_free(p);
    sn_module_free(m);
}

/* Whether the program knows the types of the file, and whether its tensors are aligned, makes no
 * difference in the results. */
static void known_types_change_nothing(void **state) {
    (void)state;
    static const struct {
        const char *kind;
        sn_dtype type;
        int level;
    } cases[] = {{"f32", SN_F16, 4},  {"bf16", SN_BF16, 4}, {"bf16", SN_F16, 0},
                 {"int8", SN_F16, 4}, {"int4", SN_BF16, 0}, {"int4", SN_BF16, 4}};
    static float want[TOKENS * ROWS], y[TOKENS * ROWS];
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        sn_error err = {0};
        const char *path = write_narrow(cases[i].type);
        sn_weights *w = sn_weights_open(path, &err);
        need(w != NULL, &err);
        run_narrow(w, cases[i].kind, cases[i].level, false, want);
        run_narrow(w, cases[i].kind, cases[i].level, true, y);
        assert_memory_equal(y, want, sizeof y);
        sn_weights_close(w);
        shift_tensors(path);
        need((w = sn_weights_open(path, &err)) != NULL, &err);
        run_narrow(w, cases[i].kind, cases[i].level, true, y);
        assert_memory_equal(y, want, sizeof y);
        sn_weights_close(w);
    }
}

/* ---- refusals ---- */

/* A file of 1 TB with a hole where its only tensor is. */
static const char *write_hole(int64_t width) {
    static const char form[] = "{\"w0\":{\"dtype\":\"F32\",\"shape\":[%lld,%lld],\"data_offsets\":"
                               "[0,%lld]}}";
    const char *path = scratch_path("hole.safetensors");
    char header[256];
    uint64_t n = (uint64_t)snprintf(header, sizeof header, form, (long long)width, (long long)width,
                                    (long long)(4 * width * width));
    for (; n % 8; n++) header[n] = ' '; /* numbers at their alignment */
    FILE *f = fopen(path, "wb");
    assert_non_null(f);
    assert_true(fwrite(&n, sizeof n, 1, f) == 1 && fwrite(header, n, 1, f) == 1);
    fflush(f);
    bool ok = ftruncate(fileno(f), (off_t)(sizeof n + n) + 4 * width * width) == 0;
    fclose(f);
    return ok ? path : NULL;
}

static void too_large_is_refused(void **state) {
    (void)state;
    enum { HUGE_WIDTH = 1 << 19 };
    sn_error err = {0};
    snprintf(layer[0], sizeof layer[0], "w0");
    const char *path = write_hole(HUGE_WIDTH);
    if (!path) skip(); /* the file system has no holes */
    sn_weights *w = sn_weights_open(path, &err);
    need(w != NULL, &err);
    sn_module *m = chain(1, HUGE_WIDTH);
    sn_program *p = compile(m, NULL);
    size_t before = anonymous();
    assert_null(sn_session_new(p, w, &err));
    assert_true(anonymous() < before + MB);
    assert_int_equal(err.code, SN_ERR_MEMORY);
    assert_non_null(strstr(err.message, "GB are available"));
    assert_non_null(strstr(err.message, "int8"));
    sn_program_free(p);
    sn_module_free(m);
    sn_weights_close(w);
}

/* ---- tables ---- */

static float table[VOCAB * D], row[3 * D], logits[3 * VOCAB];

static float narrow(float x) { /* bf16; no NaN */
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    bits = (bits + 0x7fff + (bits >> 16 & 1)) & 0xffff0000u;
    memcpy(&x, &bits, sizeof bits);
    return x;
}

/* Element i of the table as it is stored. */
static float rounded(const char *weights, int i) {
    const float *of_row = table + i / D * D, *of_group = of_row + i % D / 32 * 32;
    float most = 0, extreme;
    if (!weights) return table[i];
    if (!strcmp(weights, "bf16")) return narrow(table[i]);
    if (!strcmp(weights, "int8")) {
        for (int k = 0; k < D; k++) most = fmaxf(most, fabsf(of_row[k]));
        return rintf(table[i] / (most * (float)(1 / 127.0))) * (most * (float)(1 / 127.0));
    }
    float high = of_group[0], low = of_group[0];
    for (int k = 1; k < 32; k++) high = fmaxf(high, of_group[k]), low = fminf(low, of_group[k]);
    extreme = high < -low ? low : high;
    float scale = narrow(extreme * -0.125f);
    return fmaxf(fminf(rintf(table[i] / scale), 7), -8) * scale;
}

/* A look-up of three rows of t and, if tied, a product with it. */
static sn_session *open_table(const char *weights, bool tied, int level) {
    sn_error err = {0};
    sn_module *m = sn_module_new("tied");
    sn_entry_begin(m, "look");
    sn_dim T = sn_symbol(m, "T", 1, 3);
    sn_tensor t = sn_param(m, "t", SN_F32, VOCAB, D);
    sn_tensor x = sn_embedding(t, sn_input(m, "ids", SN_I32, T));
    sn_output("x", x);
    if (tied) sn_output("y", sn_linear(x, t, (sn_tensor){0}));
    sn_program *p = compile_for(m, weights, NULL, level);
    sn_arg_binding param = SN_BIND("t", SN_F32, table, VOCAB, D);
    sn_session *s = sn_session_new_arrays(p, &param, 1, &err);
    need(s != NULL, &err);
    sn_program_free(p);
    sn_module_free(m);
    return s;
}

/* Rows are looked up as they are stored; the memory of all is at most `bytes`. */
static void check_table(const char *weights, bool tied, int level, size_t bytes) {
    static const int32_t ids[3] = {0, 517, VOCAB - 1};
    sn_error err = {0};
    sn_session *s = open_table(weights, tied, level);
    sn_arg_binding in = SN_BIND("ids", SN_I32, (void *)(uintptr_t)ids, 3),
                   out[] = {SN_BIND("x", SN_F32, row, 3, D),
                            SN_BIND("y", SN_F32, logits, 3, VOCAB)};
    need(sn_run(s, "look", &in, 1, out, tied ? 2 : 1, &err), &err);
    for (int i = 0; i < 3 * D; i++) {
        float want = rounded(weights, ids[i / D] * D + i % D);
        if (row[i] != want) fail_msg("%s: %g, not %g", weights, (double)row[i], (double)want);
    }
    for (int i = 0; tied && i < 3 * VOCAB; i++) {
        double sum = 0, size = 0;
        for (int k = 0; k < D; k++) {
            double a = row[i / VOCAB * D + k], b = rounded(weights, i % VOCAB * D + k);
            sum += a * b, size += fabs(a * b);
        }
        if (!(fabs(logits[i] - sum) <= 1e-5 * size))
            fail_msg("%s: logit %d is %g, not %g", weights, i, (double)logits[i], sum);
    }
    if (bytes) assert_in_range(prepared_bytes(s), 1, bytes);
    sn_emit_options eo = sn_emit_options_default();
    eo.dir = scratch_dir;
    eo.name = "tied";
    eo.compile.weights = weights;
    eo.compile.level = level;
    eo.compile.cache_dir = scratch_path("cache");
    need(sn_emit(s, &eo, &err), &err);
    struct stat file;
    assert_int_equal(stat(scratch_path("tied.weights"), &file), 0);
    assert_true((size_t)file.st_size <= prepared_bytes(s) + 3 * 4096);
    sn_session_free(s);
}

/* Also in fewer bits: panels with their scales, nothing else. */
static void tables_are_stored_once(void **state) {
    (void)state;
    enum { PADDED = (VOCAB + 31) / 32 * 32, COUNT_ALL = PADDED * D };
    for (int i = 0; i < VOCAB * D; i++) table[i] = (float)(i * 7919 % 10007) * 1e-3f - 5;
    check_table(NULL, true, 4, COUNT_ALL * sizeof(float));
    check_table("bf16", true, 4, COUNT_ALL * 2);
    check_table("int8", true, 4, COUNT_ALL + VOCAB * sizeof(float));
    check_table("int4", true, 4, COUNT_ALL / 2 + COUNT_ALL / 32 * 2);
    check_table("int4", false, 4, COUNT_ALL / 2 + COUNT_ALL / 32 * 2);
    check_table("int4", true, 0, 0);
}

/* ---- states, narrow parameters ---- */

/* A large state costs nothing until it is written; a reset gives its memory back. */
static void states_are_fresh(void **state) {
    (void)state;
    enum { SIZE = 64 * MB };
    sn_error err = {0};
    sn_module *m = sn_module_new("states");
    sn_entry_begin(m, "run");
    sn_tensor cache = sn_state(m, "cache", SN_F32, SIZE);
    sn_assign(cache, sn_add(cache, sn_input(m, "x", SN_F32, 1)));
    sn_program *p = compile(m, NULL);
    size_t before = anonymous();
    sn_session *s = sn_session_new_arrays(p, NULL, 0, &err);
    need(s != NULL, &err);
    sn_session_reset(s);
    assert_true(anonymous() < before + 8 * MB);
    float one = 1;
    sn_arg_binding in = SN_BIND("x", SN_F32, &one, 1);
    need(sn_run(s, "run", &in, 1, NULL, 0, &err), &err);
    assert_true(anonymous() > before + SIZE);
    sn_session_reset(s);
    assert_true(anonymous() < before + 8 * MB);
    sn_session_free(s);
    sn_program_free(p);
    sn_module_free(m);
}

/* Two tensors of three bf16 numbers each: the second starts at an address that is not a multiple of
 * 4. */
static void narrow_parameters_at_any_address(void **state) {
    (void)state;
    static const uint16_t numbers[3] = {0x3f80, 0x4000, 0x4040}; /* 1, 2, 3 */
    const sn_weight w[2] = {
        {.name = "a", .dtype = SN_BF16, .rank = 1, .shape = {3}, .data = numbers, .bytes = 6},
        {.name = "b", .dtype = SN_BF16, .rank = 1, .shape = {3}, .data = numbers, .bytes = 6}};
    sn_error err = {0};
    const char *path = scratch_path("narrow.safetensors");
    need(sn_weights_save(path, w, 2, NULL, 0, &err), &err);
    sn_weights *file = sn_weights_open(path, &err);
    need(file != NULL, &err);
    sn_module *m = sn_module_new("narrow");
    sn_entry_begin(m, "run");
    sn_tensor x = sn_input(m, "x", SN_F32, 3);
    for (int i = 0; i < 2; i++)
        x = sn_mul(x, sn_cast(sn_param(m, i ? "b" : "a", SN_BF16, 3), SN_F32));
    sn_output("y", x);
    sn_program *p = compile(m, NULL);
    sn_session *s = sn_session_new(p, file, &err);
    need(s != NULL, &err);
    float in[3] = {1, 1, 1}, out[3];
    sn_arg_binding xi = SN_BIND("x", SN_F32, in, 3), yo = SN_BIND("y", SN_F32, out, 3);
    need(sn_run(s, "run", &xi, 1, &yo, 1, &err), &err);
    assert_true(out[0] == 1 && out[1] == 4 && out[2] == 9);
    sn_session_free(s);
    sn_program_free(p);
    sn_module_free(m);
    sn_weights_close(file);
}

/* Panels of f64 have another width in memory. */
static void tied_tables_of_f64(void **state) {
    enum { ROWS = 100, COLUMNS = 24, PLACES = 3 };
    (void)state;
    sn_error err = {0};
    static double table[ROWS * COLUMNS], rows[PLACES * COLUMNS], y[PLACES * ROWS];
    for (int i = 0; i < ROWS * COLUMNS; i++) table[i] = i;
    sn_module *m = sn_module_new("tied_f64");
    sn_entry_begin(m, "run");
    sn_tensor w = sn_param(m, "w", SN_F64, ROWS, COLUMNS);
    sn_tensor x = sn_embedding(w, sn_input(m, "ids", SN_I32, PLACES));
    sn_output("rows", x);
    sn_output("y", sn_linear(x, w, NULL));
    sn_program *p = compile(m, NULL);
    sn_arg_binding param = SN_BIND("w", SN_F64, table, ROWS, COLUMNS);
    sn_session *s = sn_session_new_arrays(p, &param, 1, &err);
    need(s != NULL, &err);
    int32_t ids[PLACES] = {1, 17, 99};
    sn_arg_binding in = SN_BIND("ids", SN_I32, ids, PLACES);
    sn_arg_binding out[] = {SN_BIND("rows", SN_F64, rows, PLACES, COLUMNS),
                            SN_BIND("y", SN_F64, y, PLACES, ROWS)};
    need(sn_run(s, "run", &in, 1, out, 2, &err), &err);
    for (int i = 0; i < PLACES; i++)
        assert_memory_equal(rows + i * COLUMNS, table + ids[i] * COLUMNS, sizeof *rows * COLUMNS);
    sn_session_free(s);
    sn_program_free(p);
    sn_module_free(m);
}

/* What was read is released when the session is open. */
static void preparations_run_once(void **state) {
    (void)state;
    sn_error err = {0};
    sn_weights *w = sn_weights_open(write_layers(), &err);
    need(w != NULL, &err);
    sn_module *m = chain(1, WIDTH);
    sn_program *p = compile(m, "int8");
    sn_session *s = sn_session_new(p, w, &err);
    need(s != NULL, &err);
    assert_non_null(sn_program_entry(p, "@prepare.0"));
    assert_false(sn_run(s, "@prepare.0", NULL, 0, NULL, 0, &err));
    assert_non_null(strstr(err.message, "has no entry '@prepare.0'"));
    sn_session_free(s);
    sn_program_free(p);
    sn_module_free(m);
    sn_weights_close(w);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(tied_tables_of_f64),
        cmocka_unit_test(preparations_run_once),
        cmocka_unit_test(peak_is_what_stays),
        cmocka_unit_test(packed_weights_are_kept),
        cmocka_unit_test(files_are_read_past_the_cache),
        cmocka_unit_test(known_types_change_nothing),
        cmocka_unit_test(too_large_is_refused),
        cmocka_unit_test(tables_are_stored_once),
        cmocka_unit_test(states_are_fresh),
        cmocka_unit_test(narrow_parameters_at_any_address),
    };
    return cmocka_run_group_tests(tests, scratch_make, scratch_end);
}
