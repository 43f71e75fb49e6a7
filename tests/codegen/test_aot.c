/* test_aot.c: artefacts, linked by the C compiler and loaded as a shared library: results
 * bit-identical to the process that compiled them, every error code, user-defined threads, files
 * that do not match. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include "codegen/aot/aot.h"
#include "codegen/aot/elf_merge.h"
#include "codegen/emit/target.h"
#include "runtime/memory.h"
#include "tests/support/artefact.h"
#include "tests/support/effort.h"
#include "tests/support/model_case.h"

#include <dlfcn.h>
#include <math.h>
#include <sys/stat.h>

#define TINY                                                                                       \
    "{\"model_type\": \"llama\", \"vocab_size\": 61, \"max_position_embeddings\": 24, "            \
    "\"hidden_size\": 40, \"intermediate_size\": 27, \"num_hidden_layers\": 1, "                   \
    "\"num_attention_heads\": 5, \"num_key_value_heads\": 5, \"rms_norm_eps\": 1e-5}"
enum { VOCAB = 61, CONTEXT = 24 };

/* What NAME.h declares, for any NAME. */
typedef struct pool pool;
struct pool {
    int64_t n;
    void (*run)(pool *self, void (*fn)(void *arg, int64_t t, int64_t n), void *arg);
    void (*barrier)(pool *self, int64_t t);
    void *state;
};
typedef struct model {
    const void *weights;
    int64_t bytes, threads;
    pool *pool;
    int32_t target, mapped;
} model;

enum { ARGUMENT = 1, CLOSED, RANGE, INDEX, CPU, NO_FILE, FORMAT, SIZE, MODEL, DAMAGED };

typedef struct artefact {
    void *lib;
    model m;
    int (*open)(model *, const char *);
    int (*init)(model *, const void *, int64_t);
    void (*close)(model *);
    int (*verify)(const model *);
    int (*choose)(model *, int);
    const char *(*message)(int);
    int (*state_init)(const model *, void *);
    int64_t (*prefill_workspace)(const model *, int64_t, int64_t);
    int (*prefill)(const model *, void *, void *, int64_t, int64_t, const int32_t *, float *);
    int (*decode)(const model *, void *, void *, int64_t, const int32_t *, float *);
    int (*step)(const model *, void *, void *, int64_t, const int32_t *, const int64_t *,
                const float *, int32_t *);
} artefact;

static void *symbol(void *lib, const char *name, const char *what) {
    char full[96];
    snprintf(full, sizeof full, "%s_%s", name, what);
    void *p = dlsym(lib, full);
    if (!p) fail_msg("no symbol %s", full);
    return p;
}

static artefact load(const char *dir, const char *name, const char *libs) {
    char command[1024], lib[300];
    snprintf(lib, sizeof lib, "%s/%s.so", dir, name);
    snprintf(command, sizeof command, "%s -shared -Wl,-z,defs -o %s %s/%s.o %s -lm -lc", SN_CC, lib,
             dir, name, libs);
    assert_int_equal(system(command), 0);
    artefact_check_header(name);
    artefact a = {.lib = dlopen(lib, RTLD_NOW | RTLD_LOCAL)};
    if (!a.lib) fail_msg("%s", dlerror());
#define FIND(what)                                                                                 \
    { (void *)&a.what, #what }
    const struct {
        void *to;
        const char *name;
    } names[] = {
        FIND(open),    FIND(init),   FIND(close),   FIND(verify),     FIND(choose),
        FIND(message), FIND(decode), FIND(prefill), FIND(state_init), FIND(prefill_workspace),
        FIND(step)};
#undef FIND
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        void *p = symbol(a.lib, name, names[i].name);
        memcpy(names[i].to, &p, sizeof p);
    }
    return a;
}

/* One model with its session, compiled for all tests. */
typedef struct fixture {
    model_case c;
    sn_program *p;
    sn_session *s;
} fixture;
static fixture the;
static char cache[96]; /* kernels are compiled once for all tests */

static void make_fixture(void) {
    case_open(&the.c, TINY, SN_CACHED | SN_STEP);
    the.s = case_compile(&the.c, 4, NULL, &the.p);
}

static sn_emit_options options(const char *name, const char *targets) {
    sn_emit_options o = sn_emit_options_default();
    o.name = name;
    o.dir = scratch_dir;
    o.targets = targets;
    o.compile.cache_dir = cache;
    return o;
}

static void emit(const sn_emit_options *o) {
    sn_error err = {0};
    need(sn_emit(the.s, o, &err), &err);
}

/* ---- the same bits ---- */

enum { PROMPT = 7, STEPS = 5 };

/* Logits after the prompt and after each of some more tokens. */
static void run_session(const char *target, const char *compute, float out[1 + STEPS][VOCAB]) {
    sn_error err = {0};
    sn_options o = sn_options_default();
    o.target = target;
    o.compute = compute;
    o.backend = "native";
    o.cache_dir = cache;
    sn_program *p = sn_compile(the.c.model.module, &o, &err);
    need(p != NULL, &err);
    sn_session *s = sn_session_new_arrays(p, the.c.param, the.c.n_param, &err);
    need(s != NULL, &err);
    int32_t tokens[PROMPT + STEPS];
    fill_tokens(tokens, PROMPT + STEPS, VOCAB);
    for (int k = 0; k <= STEPS; k++) {
        int64_t past = k ? PROMPT + k - 1 : 0, n = k ? 1 : PROMPT;
        sn_arg_binding in[] = {SN_BIND("tokens", SN_I32, tokens + past, 1, n),
                               SN_BIND_DIM("P", past)};
        sn_arg_binding logits = SN_BIND("logits", SN_F32, out[k], 1, VOCAB);
        need(sn_run(s, k ? "decode" : "prefill", in, 2, &logits, 1, &err), &err);
    }
    sn_session_free(s);
    sn_program_free(p);
}

typedef struct memory {
    void *state, *workspace;
} memory;

static memory make_memory(const artefact *a) {
    memory m = {aligned_alloc(64, 1 << 20), NULL};
    int64_t bytes = a->prefill_workspace(&a->m, CONTEXT, 0);
    assert_true(bytes > 0);
    m.workspace = aligned_alloc(64, (size_t)(bytes + 63) / 64 * 64);
    assert_true(m.state && m.workspace);
    memset(m.state, 0xff, 1 << 20);
    memset(m.workspace, 0xff, (size_t)bytes);
    assert_int_equal(a->state_init(&a->m, m.state), 0);
    return m;
}

static void free_memory(memory m) {
    free(m.state);
    free(m.workspace);
}

static void run_artefact(const artefact *a, float out[1 + STEPS][VOCAB]) {
    int32_t tokens[PROMPT + STEPS];
    fill_tokens(tokens, PROMPT + STEPS, VOCAB);
    memory m = make_memory(a);
    assert_int_equal(a->prefill(&a->m, m.state, m.workspace, PROMPT, 0, tokens, out[0]), 0);
    for (int k = 1; k <= STEPS; k++)
        assert_int_equal(
            a->decode(&a->m, m.state, m.workspace, PROMPT + k - 1, tokens + PROMPT + k - 1, out[k]),
            0);
    free_memory(m);
}

static float want[1 + STEPS][VOCAB], got[1 + STEPS][VOCAB];

static void run_pool(pool *self, void (*fn)(void *, int64_t, int64_t), void *arg) {
    ++*(int *)self->state;
    fn(arg, 0, 1);
}

static void wait_pool(pool *self, int64_t t) {
    (void)self;
    (void)t;
}

static void expect_code(const artefact *a, int code, int kind, const char *text) {
    if ((code & 255) != kind || !strstr(a->message(code), text))
        fail_msg("wanted kind %d with \"%s\", got %d: %s", kind, text, code & 255,
                 a->message(code));
}

/* A state is its bytes: a copy goes on after each token with another of the n targets. want: the
 * logits of one target. */
static void move_state(artefact *a, int n) {
    int32_t tokens[PROMPT + STEPS];
    fill_tokens(tokens, PROMPT + STEPS, VOCAB);
    memory m = make_memory(a), copy = make_memory(a);
    assert_int_equal(a->prefill(&a->m, m.state, m.workspace, PROMPT, 0, tokens, got[0]), 0);
    for (int k = 1; k <= STEPS; k++) {
        memory other = k & 1 ? copy : m, before = k & 1 ? m : copy;
        memcpy(other.state, before.state, 1 << 20);
        memset(before.state, 0xff, 1 << 20);
        assert_int_equal(a->choose(&a->m, 1 + k % n), 0);
        int64_t past = PROMPT + k - 1;
        assert_int_equal(
            a->decode(&a->m, other.state, other.workspace, past, tokens + past, got[k]), 0);
    }
    for (int k = 0; k <= STEPS; k++)
        for (int i = 0; i < VOCAB; i++)
            assert_true(fabsf(got[k][i] - want[k][i]) <= 1e-4f * (1 + fabsf(want[k][i])));
    free_memory(m);
    free_memory(copy);
}

static void same_bits(void **state) {
    (void)state;
    static const char *const targets[] = {"native", "x86-64-v2", "x86-64-v3", "x86-64-v4"};
    static const char *const compute[] = {"bf16", NULL, NULL, NULL};
    char list[128] = "";
    int n = 0;
    for (size_t i = 0; i < sizeof targets / sizeof *targets; i++) {
        sn_target t;
        sn_error err = {0};
        if (!sn_target_init(&t, targets[i], &err) || !sn_target_runs_here(&t)) continue;
        sn_emit_options o = options("tiny", targets[i]);
        o.compile.compute = compute[i];
        emit(&o);
        artefact a = load(scratch_dir, "tiny", "-lgomp");
        assert_int_equal(a.open(&a.m, scratch_path("tiny.weights")), 0);
        assert_int_equal(a.verify(&a.m), 0);
        run_session(targets[i], compute[i], want);
        for (a.m.threads = 0; a.m.threads < 3; a.m.threads++) {
            memset(got, 0, sizeof got);
            run_artefact(&a, got);
            assert_memory_equal(got, want, sizeof got);
        }
        int calls = 0;
        pool mine = {1, run_pool, wait_pool, &calls};
        a.m.pool = &mine;
        run_artefact(&a, got);
        assert_memory_equal(got, want, sizeof got);
        assert_true(calls > STEPS);
        a.close(&a.m);
        dlclose(a.lib);
        if (i)
            snprintf(list + strlen(list), sizeof list - strlen(list), "%s%s", n++ ? "," : "",
                     targets[i]);
    }
    if (n < 2) return; /* a machine that runs one of them at most */
    sn_emit_options o = options("tiny", list);
    emit(&o);
    artefact a = load(scratch_dir, "tiny", "-lgomp");
    assert_int_equal(a.open(&a.m, scratch_path("tiny.weights")), 0);
    for (int v = 1; v <= n; v++) { /* the last of the list is the most capable */
        assert_int_equal(a.choose(&a.m, v), 0);
        run_session(targets[n + 1 - v], NULL, want);
        run_artefact(&a, got);
        assert_memory_equal(got, want, sizeof got);
    }
    move_state(&a, n);
    char numbers[16];
    snprintf(numbers, sizeof numbers, "1..%d", n);
    expect_code(&a, a.choose(&a.m, n + 1), CPU, numbers);
    a.close(&a.m);
    dlclose(a.lib);
}

/* The generation step chooses as the logits say; without temperature the likeliest. */
static void generation_step(void **state) {
    (void)state;
    sn_emit_options o = options("tiny", "native");
    o.threads = "none";
    o.embed_weights = true;
    emit(&o);
    artefact a = load(scratch_dir, "tiny", "");
    int code = a.open(&a.m, NULL);
    if (code) fail_msg("%s", a.message(code));
    assert_int_equal(a.verify(&a.m), 0);
    memory m = make_memory(&a), m2 = make_memory(&a);
    int32_t token = 5, next = -1, again = -1;
    float logits[VOCAB];
    const float cold = 0, hot = 1e6f;
    int drawn[VOCAB] = {0}, kinds = 0;
    for (int64_t p = 0; p < CONTEXT; p++) {
        const int64_t rng[] = {1, p};
        assert_int_equal(a.step(&a.m, m.state, m.workspace, p, &token, rng, &cold, &next), 0);
        assert_int_equal(a.decode(&a.m, m2.state, m2.workspace, p, &token, logits), 0);
        int best = 0;
        for (int i = 1; i < VOCAB; i++)
            if (logits[i] > logits[best]) best = i;
        assert_int_equal(next, best);
        assert_int_equal(a.step(&a.m, m2.state, m2.workspace, p, &token, rng, &hot, &again), 0);
        assert_true(again >= 0 && again < VOCAB);
        kinds += !drawn[again]++;
        token = next;
    }
    assert_true(kinds > CONTEXT / 3); /* nearly uniform over 61 tokens */
    free_memory(m);
    free_memory(m2);
    a.close(&a.m);
    dlclose(a.lib);
}

/* ---- errors ---- */

static void calls_out_of_range(void **state) {
    (void)state;
    sn_emit_options o = options("tiny", "native");
    o.context = CONTEXT;
    emit(&o);
    artefact a = load(scratch_dir, "tiny", "-lgomp");
    int32_t tokens[CONTEXT] = {0};
    float logits[VOCAB];
    char room[4096];
    void *odd = (void *)(((uintptr_t)room + 63) / 64 * 64 + 4);
    assert_int_equal(a.decode(&a.m, odd, odd, 0, tokens, logits) & 255, ARGUMENT);
    expect_code(&a, (int)-a.prefill_workspace(&a.m, 1, 0), CLOSED, "not open");
    assert_int_equal(a.open(&a.m, scratch_path("tiny.weights")), 0);
    memory m = make_memory(&a);
#define PREFILL(t, p) a.prefill(&a.m, m.state, m.workspace, t, p, tokens, logits)
    expect_code(&a, PREFILL(0, 0), RANGE, "T is outside its range 1..24");
    expect_code(&a, PREFILL(CONTEXT + 1, 0), RANGE, "T is outside its range 1..24");
    expect_code(&a, PREFILL(1, -1), RANGE, "P is outside its range 0..23");
    expect_code(&a, PREFILL(INT64_MAX, INT64_MAX), RANGE, "outside its range");
    expect_code(&a, PREFILL(CONTEXT, 1), RANGE, "T+P exceeds 24: the context holds 24 tokens");
    expect_code(&a, (int)-a.prefill_workspace(&a.m, CONTEXT, 1), RANGE, "exceeds");
    tokens[3] = VOCAB;
    assert_int_equal(PREFILL(3, 0), 0); /* not read */
    expect_code(&a, PREFILL(4, 0), INDEX, "'tokens' is outside 0..60");
    tokens[3] = -1;
    expect_code(&a, PREFILL(4, 0), INDEX, "'tokens' is outside 0..60");
    expect_code(&a, a.prefill(&a.m, m.state, m.workspace, 1, 0, NULL, logits), ARGUMENT, "NULL");
    expect_code(&a, a.prefill(&a.m, NULL, m.workspace, 1, 0, tokens, logits), ARGUMENT, "NULL");
    expect_code(&a, a.prefill(NULL, m.state, m.workspace, 1, 0, tokens, logits), ARGUMENT, "NULL");
    expect_code(&a, a.prefill(&a.m, m.state, odd, 1, 0, tokens, logits), ARGUMENT, "aligned");
    expect_code(&a, a.choose(&a.m, 0), CPU, "CPU");
    a.close(&a.m);
    a.close(NULL);
    expect_code(&a, PREFILL(1, 0), CLOSED, "not open");
    expect_code(&a, a.verify(&a.m), CLOSED, "not open");
    expect_code(&a, a.state_init(&a.m, m.state), CLOSED, "not open");
    assert_string_equal(a.message(0), "no error");
    assert_string_equal(a.message(200), "unknown error code");
    assert_string_equal(a.message(-1), "unknown error code");
    assert_string_equal(a.message(1 << 30 | RANGE), "unknown error code");
    free_memory(m);
    dlclose(a.lib);
}

static char *read_file(const char *path, size_t *size) {
    FILE *f = fopen(path, "rb");
    assert_non_null(f);
    assert_int_equal(fseek(f, 0, SEEK_END), 0);
    *size = (size_t)ftell(f);
    rewind(f);
    char *data = aligned_alloc(4096, (*size + 4095) / 4096 * 4096);
    assert_non_null(data);
    assert_int_equal(fread(data, 1, *size, f), *size);
    fclose(f);
    return data;
}

static void weights_that_do_not_fit(void **state) {
    (void)state;
    sn_emit_options o = options("tiny", "native"), other = options("other", "native");
    emit(&o);
    other.compile.weights = "int8";
    emit(&other);
    artefact a = load(scratch_dir, "tiny", "-lgomp"), b = load(scratch_dir, "other", "-lgomp");
    expect_code(&a, a.open(&a.m, scratch_path("none.weights")), NO_FILE, "cannot be opened");
    expect_code(&a, a.open(&a.m, NULL), ARGUMENT, "NULL");
    expect_code(&a, a.open(NULL, "x"), ARGUMENT, "NULL");
    expect_code(&a, a.open(&a.m, scratch_dir), NO_FILE, "cannot be opened or mapped");
    assert_int_equal(mkfifo(scratch_path("pipe.weights"), 0600), 0); /* must not be waited for */
    expect_code(&a, a.open(&a.m, scratch_path("pipe.weights")), NO_FILE, "cannot be opened");
    unlink(scratch_path("pipe.weights"));
    expect_code(&a, a.open(&a.m, scratch_path("other.weights")), MODEL, "another model");
    expect_code(&a, a.open(&a.m, scratch_path("tiny.h")), FORMAT, "not a weights file");
    assert_int_equal(a.m.target, 0);
    size_t size;
    char *data = read_file(scratch_path("tiny.weights"), &size);
    assert_true(scratch_write(scratch_path("cut"), data, size / 2));
    expect_code(&a, a.open(&a.m, scratch_path("cut")), SIZE, "truncated");
    assert_true(scratch_write(scratch_path("cut"), data, 100));
    expect_code(&a, a.open(&a.m, scratch_path("cut")), SIZE, "truncated");
    assert_true(scratch_write(scratch_path("cut"), data, 0));
    expect_code(&a, a.open(&a.m, scratch_path("cut")), NO_FILE, "mapped");
    expect_code(&a, a.init(&a.m, data, (int64_t)size - 1), SIZE, "truncated");
    expect_code(&a, a.init(&a.m, data + 8, (int64_t)size - 8), ARGUMENT, "aligned");
    expect_code(&a, a.init(&a.m, NULL, 0), ARGUMENT, "NULL");
    const size_t places[] = {0, 8, 16, 24, 32, 40, 100, 4095, 4096, size / 2, size - 1};
    for (size_t i = 0; i < sizeof places / sizeof *places; i++) { /* whichever byte changes */
        data[places[i]] ^= 1;
        int code = a.init(&a.m, data, (int64_t)size);
        if (places[i] >= 40) assert_int_equal(code, 0);
        if (!code) expect_code(&a, a.verify(&a.m), DAMAGED, "corrupted");
        data[places[i]] ^= 1;
    }
    assert_int_equal(a.init(&a.m, data, (int64_t)size), 0);
    assert_int_equal(a.verify(&a.m), 0);
    /* two artefacts in one program are independent */
    assert_int_equal(b.open(&b.m, scratch_path("other.weights")), 0);
    run_artefact(&b, got);
    run_artefact(&a, want);
    assert_memory_not_equal(got, want, sizeof got);
    a.close(&a.m);
    b.close(&b.m);
    free(data);
    dlclose(a.lib);
    dlclose(b.lib);
}

static void expect_refusal(const sn_emit_options *o, sn_code code, const char *text) {
    sn_error err = {0};
    if (sn_emit(the.s, o, &err)) fail_msg("accepted, should say: %s", text);
    expect_error(&err, code, "", text);
}

/* Code and header of two artefacts are never left side by side: the header goes before the first
 * file is replaced, and comes last. */
static void mixed_files(void **state) {
    (void)state;
    sn_emit_options o = options("mixed", "native");
    emit(&o);
    assert_int_equal(access(scratch_path("mixed.h"), F_OK), 0);
    assert_int_equal(unlink(scratch_path("mixed.o")), 0);
    assert_int_equal(mkdir(scratch_path("mixed.o"), 0700), 0); /* the process ends here */
    expect_refusal(&o, SN_ERR_FILE, "mixed.o");
    assert_int_equal(access(scratch_path("mixed.h"), F_OK), -1);
    assert_int_equal(rmdir(scratch_path("mixed.o")), 0);
    emit(&o);
    assert_int_equal(access(scratch_path("mixed.h"), F_OK), 0);
}

static void wrong_options(void **state) {
    (void)state;
    sn_emit_options o = options("2models", "native");
    expect_refusal(&o, SN_ERR_USAGE, "C identifier");
    o.name = "with space";
    expect_refusal(&o, SN_ERR_USAGE, "C identifier");
    o.name = "";
    expect_refusal(&o, SN_ERR_USAGE, "C identifier");
    static const char *const words[] = {"int",  "class", "linux",  "_Bool",
                                        "NULL", "main",  "int32_t"};
    for (size_t i = 0; i < sizeof words / sizeof *words; i++) {
        o.name = words[i];
        expect_refusal(&o, SN_ERR_USAGE, "word or macro of C");
    }
    o.name = "tiny";
    const int32_t many[17] = {0};
    o.eos = many;
    o.n_eos = 17;
    expect_refusal(&o, SN_ERR_USAGE, "at most 16");
    o.n_eos = 0;
    o.threads = "pthreads";
    expect_refusal(&o, SN_ERR_USAGE, "openmp or none");
    o.threads = NULL;
    o.targets = "x86-64-v5";
    expect_refusal(&o, SN_ERR_TARGET, "nearest are x86-64-v");
    o.targets = "x86-64-v3,aarch64";
    expect_refusal(&o, SN_ERR_TARGET, "different architectures");
    o.targets = "x86-64-v3,+avxvnni,x86-64-v3,+avxvnni";
    expect_refusal(&o, SN_ERR_TARGET, "given twice");
    o.targets = "x86-64-v3,+avxvni";
    expect_refusal(&o, SN_ERR_TARGET, "avxvnni");
    o.targets = "x86-64-v2";
    o.dir = scratch_path("file");
    assert_true(scratch_write(o.dir, "x", 1));
    expect_refusal(&o, SN_ERR_FILE, "file");
    if (geteuid() == 0) return; /* root writes everywhere */
    o.dir = scratch_path("closed");
    assert_int_equal(mkdir(o.dir, 0500), 0);
    expect_refusal(&o, SN_ERR_FILE, "closed");
}

/* Code for other machines comes out as objects of theirs; running it is test_deploy.sh's. */
static void other_machines(void **state) {
    (void)state;
    static const struct {
        const char *target;
        int machine;
    } rows[] = {{"aarch64", 183},
                {"riscv64", 243},
                {"x86-64-v2", 62},
                {"haswell,+avx512f", 62},
                {"x86-64-v3,+avx512vl,+avx512bw,+avx512dq", 62}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        if ((i == 2 || i == 4) && !effort_is_long()) continue; /* on x86, same_bits has the first */
        size_t size;
        sn_emit_options o = options("tiny", rows[i].target);
        o.kinds = SN_EMIT_OBJECT | SN_EMIT_ARCHIVE;
        emit(&o);
        char *data = read_file(scratch_path("tiny.o"), &size);
        assert_memory_equal(data, "\177ELF\2\1", 6);
        assert_int_equal(data[18], (char)rows[i].machine);
        free(data);
        data = read_file(scratch_path("tiny.a"), &size);
        assert_memory_equal(data, "!<arch>\n", 8);
        free(data);
    }
}

/* Code for AArch64 needs what kernels use of a CPU, not all that it has. */
static void needs_of_names(void **state) {
    (void)state;
    static const struct {
        const char *name, *needs;
    } cpus[] = {{"aarch64", "neon"},
                {"aarch64,+dotprod", "neon dotprod"},
                {"cortex-a76", "neon fullfp16 dotprod"},
                {"apple-m1", "neon fullfp16 dotprod"},
                {"neoverse-v1", "neon fullfp16 dotprod i8mm"},
                {"neoverse-v2,-i8mm", "neon fullfp16 dotprod"},
                {"neoverse-v2,+sve", "neon fullfp16 dotprod sve i8mm"},
                {"neoverse-v1,sve=256", "neon fullfp16 dotprod sve i8mm sve=256"},
                {"aarch64,sve=512,-sve", "neon fullfp16"}};
    for (size_t i = 0; i < sizeof cpus / sizeof *cpus; i++) {
        sn_error err = {0};
        sn_target t;
        char needs[SN_AOT_NEEDS];
        need(sn_target_init(&t, cpus[i].name, &err), &err);
        assert_string_equal(sn_target_needs(&t, needs, sizeof needs), cpus[i].needs);
        assert_string_equal(t.cpu, "generic");
    }
}

static void objects_that_do_not_merge(void **state) {
    (void)state;
    sn_error err = {0};
    sn_elf *e = sn_elf_new();
    assert_non_null(e);
    uint8_t junk[80] = "no object";
    assert_false(sn_elf_add(e, 0, "x_", &(sn_object){junk, sizeof junk}, &err));
    expect_error(&err, SN_ERR_INTERNAL, "", "not a 64-bit ELF");
    sn_elf_free(e);
    sn_elf_free(NULL);
}

/* The parts of the register file that the system must save for a target: XCR0 bits 1 and 2 for AVX,
 * 5, 6 and 7 for AVX-512 (Intel SDM volume 1, 13.1). */
static void saved_registers(void **state) {
    (void)state;
    static const struct {
        const char *target;
        uint64_t xcr0;
    } cases[] = {{"x86-64-v2", 0}, {"x86-64-v3", 0x6}, {"x86-64-v4", 0xe6}, {"aarch64", 0}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        sn_error err = {0};
        sn_target t;
        sn_cpu_test test[SN_AOT_TESTS];
        uint64_t xcr0 = ~UINT64_C(0);
        need(sn_target_init(&t, cases[i].target, &err), &err);
        assert_true(sn_target_floor(&t, test, &xcr0) > 0 || i == 3);
        assert_int_equal(xcr0, cases[i].xcr0);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(same_bits),
                                       cmocka_unit_test(saved_registers),
                                       cmocka_unit_test(generation_step),
                                       cmocka_unit_test(calls_out_of_range),
                                       cmocka_unit_test(weights_that_do_not_fit),
                                       cmocka_unit_test(mixed_files),
                                       cmocka_unit_test(wrong_options),
                                       cmocka_unit_test(other_machines),
                                       cmocka_unit_test(needs_of_names),
                                       cmocka_unit_test(objects_that_do_not_merge)};
    if (scratch_make(NULL)) return 1;
    snprintf(cache, sizeof cache, "%s/cache", scratch_dir);
    make_fixture();
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    sn_session_free(the.s);
    sn_program_free(the.p);
    case_close(&the.c);
    scratch_end(NULL);
    return failed;
}
