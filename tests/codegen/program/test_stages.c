/* The table of stages (passes/stages.def) against what runs: SINTER_DEBUG=time prints every stage that ends. */
#include "frontend/sinter.h"
#include "passes/stages.h"

#include <setjmp.h>
#include <stdarg.h>
#include <cmocka.h>

#include "tests/support/scratch.h"

#include <sys/stat.h>

typedef struct trace {
    int stage[400], n; /* in the order in which they ended */
} trace;

static int stage_named(const char *name) {
    for (int i = 0; i < SN_STAGE_COUNT; i++)
        if (!strcmp(sn_stages[i].name, name)) return i;
    fail_msg("'%s' ran and is not in the table", name);
    return -1;
}

/* Compiles a training step of one linear map; what ran goes to t. */
static void compile(int level, bool tune, trace *t) {
    fflush(stderr);
    int before = dup(STDERR_FILENO);
    FILE *log = fopen(scratch_path("log"), "w+");
    assert_non_null(log);
    dup2(fileno(log), STDERR_FILENO);
    sn_module *m = sn_module_new("stages");
    sn_tensor x = sn_input(m, "x", SN_F32, 4, 8), w = sn_param(m, "w", SN_F32, 8, 8), g;
    sn_entry_begin(m, "main");
    sn_tensor loss = sn_mean_all(sn_square(sn_linear(x, w, NULL)));
    sn_grad(loss, 1, &w, &g);
    sn_output("loss", loss);
    sn_output("g", g);
    sn_options o = sn_options_default();
    sn_error err = {0};
    o.level = level;
    o.tune = tune;
    o.cache_dir = scratch_dir;
    sn_program *p = sn_compile(m, &o, &err);
    dup2(before, STDERR_FILENO);
    close(before);
    if (!p) fail_msg("%s", err.message);
    sn_program_free(p);
    sn_module_free(m);
    rewind(log);
    char line[200], name[40];
    *t = (trace){0};
    while (fgets(line, sizeof line, log))
        if (sscanf(line, "sinter: stage %39s", name) == 1 && t->n < 400)
            t->stage[t->n++] = stage_named(name);
    fclose(log);
}

static bool ran(const trace *t, int stage) {
    for (int i = 0; i < t->n; i++)
        if (t->stage[i] == stage) return true;
    return false;
}

static void test_all_run(void **state) {
    (void)state;
    trace t;
    compile(-1, true, &t);
    for (int i = 0; i < SN_STAGE_COUNT; i++)
        if (!ran(&t, i)) fail_msg("'%s' is in the table and did not run", sn_stages[i].name);
}

static void test_levels(void **state) {
    (void)state;
    trace t;
    for (int level = 0; level < SN_LEVEL_COUNT; level++) {
        compile(level, false, &t);
        for (int i = 0; i < SN_STAGE_COUNT; i++)
            if (ran(&t, i) != ((int)sn_stages[i].level <= level && i != SN_STAGE_tuner))
                fail_msg("'%s' of level %d %s at level %d", sn_stages[i].name, sn_stages[i].level,
                         ran(&t, i) ? "ran" : "did not run", level);
    }
}

/* Stages of one kind end in the order of the table, those of a plan for each entry. */
static void test_order(void **state) {
    (void)state;
    trace t;
    compile(-1, false, &t);
    for (int kind = 0; kind <= SN_STAGE_PLAN; kind++) {
        int last = -1;
        for (int i = 0; i < t.n; i++) {
            int s = t.stage[i];
            if ((int)sn_stages[s].kind != kind || kind == SN_STAGE_PART) continue;
            if (s <= last && s != SN_STAGE_order)
                fail_msg("'%s' ran after '%s'", sn_stages[s].name, sn_stages[last].name);
            last = s;
        }
    }
}

/* The files define the functions that the table names. */
static void test_functions(void **state) {
    (void)state;
    for (int i = 0; i < SN_STAGE_COUNT; i++) {
        const sn_stage *s = &sn_stages[i];
        char path[400], line[400], head[100];
        snprintf(path, sizeof path, "%s/%s", SN_SOURCE_DIR, s->file);
        snprintf(head, sizeof head, "%s(", s->function);
        FILE *f = fopen(path, "r");
        if (!f) fail_msg("%s: there is no %s", s->name, s->file);
        bool found = false;
        while (fgets(line, sizeof line, f))
            found |= *line != ' ' && *line != '/' && strstr(line, head) && !strchr(line, ';');
        fclose(f);
        if (!found) fail_msg("%s: %s does not define %s", s->name, s->file, s->function);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_all_run),
        cmocka_unit_test(test_levels),
        cmocka_unit_test(test_order),
        cmocka_unit_test(test_functions),
    };
    setenv("SINTER_DEBUG", "time", 1); /* before anything reads it */
    return cmocka_run_group_tests(tests, scratch_make, scratch_end);
}
