/* fuzz_graph [seed [count [compiled | bf16 | open | exact]]]: random graphs against each other's forms. For every
 * graph: it verifies; text parses back to the same text; folding at birth, decomposition of
 * composites, and its region in one kernel change no value of the evaluator; compiled: machine code
 * computes the same; bf16: the same with products of bf16, of graphs with products of f32; open: it also refuses the same sizes; exact:
 * all passes keep it, over finite fields. A graph that fails is made smaller by
 * deleting nodes and printed as text. */
#include "passes/passes.h"
#include "tests/support/exact_check.h"
#include "tests/support/fuzz/fuzz.h"
#include "tests/support/text.h"

#include <math.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_OUT = 4 };

/* What went wrong: the stage stays the same while the graph shrinks. */
typedef struct verdict {
    const char *stage; /* NULL: nothing */
    char why[1400];
} verdict;

static bool fail(verdict *v, const char *stage, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));
static bool fail(verdict *v, const char *stage, const char *fmt, ...) {
    va_list ap;
    va_start(ap, fmt);
    v->stage = stage;
    vsnprintf(v->why, sizeof v->why, fmt, ap);
    va_end(ap);
    return false;
}

/* ---- text ---- */

/* A module with these dims and the one entry, as text. */
static char *print_alone(sn_module *m, const sn_entry *e) {
    text_stream s;
    text_open(&s);
    fputs("module fuzz\n", s.f);
    for (int i = 0; i < sn_symbol_count(m); i++) {
        const sn_symbol *y = sn_symbol_at(m, i);
        fprintf(s.f, "dim %s in [%lld, %lld]\n", y->name, (long long)y->lo, (long long)y->hi);
    }
    sn_print_entry(s.f, m, e);
    return text_close(&s);
}

static bool check_text(verdict *v, const char *stage, sn_module *m, bool raw) {
    sn_error err = {0};
    if (!sn_verify(m)) return fail(v, stage, "%s", sn_module_error(m)->message);
    char *text = module_text(m);
    sn_module *again = sn_parse(text, "text", raw, &err);
    char *text2 = again ? module_text(again) : NULL;
    if (!again)
        fail(v, stage, "%s", err.message);
    else if (strcmp(text, text2))
        fail(v, stage, "text changes when it is parsed:\n%.600s\n%.600s", text, text2);
    free(text);
    free(text2);
    sn_module_free(again);
    return !v->stage;
}

/* ---- values ---- */

typedef struct values {
    int n;
    sn_value out[MAX_OUT];
} values;

static void free_values(values *x) {
    for (int i = 0; i < x->n; i++) free(x->out[i].data);
    x->n = 0;
}

/* The entry's leaves bound, the nodes evaluated, each rounded to its type. */
static bool evaluate(verdict *v, const char *stage, sn_module *m, const sn_entry *e, int n,
                     sn_node *const *node, values *result) {
    int64_t symbols[64];
    fuzz_symbol_values(m, symbols);
    result->n = 0;
    sn_eval *ev = sn_eval_new(m, symbols);
    bool ok = ev && fuzz_bind(ev, m, e, symbols);
    if (ok) sn_eval_set_exact(ev, false);
    for (int i = 0; ok && i < n; i++) {
        const sn_value *x = sn_eval_node(ev, node[i]);
        if (!(ok = x != NULL)) break;
        sn_value *copy = &result->out[result->n++];
        *copy = *x;
        copy->data = malloc((size_t)x->n * sizeof *x->data + 1);
        if (!copy->data) abort();
        memcpy(copy->data, x->data, (size_t)x->n * sizeof *x->data);
    }
    sn_eval_free(ev);
    return ok || fail(v, stage, "%s", sn_module_error(m)->message);
}

/* Equal but for the sign of zeros, or within tolerance * (1 + |x|). */
static bool compare(verdict *v, const char *stage, const values *a, const values *b,
                    double tolerance) {
    for (int i = 0; i < a->n; i++) {
        const sn_value *x = &a->out[i], *y = &b->out[i];
        if (x->dtype != y->dtype || x->rank != y->rank || x->n != y->n ||
            memcmp(x->shape, y->shape, sizeof *x->shape * (size_t)x->rank))
            return fail(v, stage, "output %d has another type", i);
        for (int64_t k = 0; k < x->n; k++)
            if (x->data[k] != y->data[k] && !(isnan(x->data[k]) && isnan(y->data[k])) &&
                !(fabs(x->data[k] - y->data[k]) <= tolerance * (1 + fabs(x->data[k]))))
                return fail(v, stage, "output %d, element %lld: %.17g, but %.17g", i, (long long)k,
                            x->data[k], y->data[k]);
    }
    return true;
}

static int list_outputs(const sn_entry *e, sn_node **node) {
    int n = e->n_output < MAX_OUT ? e->n_output : MAX_OUT;
    for (int i = 0; i < n; i++) node[i] = e->output[i].node;
    return n;
}

static bool evaluate_entry(verdict *v, const char *stage, sn_module *m, values *result) {
    sn_node *node[MAX_OUT];
    sn_entry *e = sn_entry_get(m, "f");
    if (!e) return fail(v, stage, "no entry f");
    int n = list_outputs(e, node);
    return evaluate(v, stage, m, e, n, node, result);
}

/* ---- checks ---- */

static sn_node *open_composite(void *ctx, sn_node *n) {
    (void)ctx;
    return sn_ops[n->op].kind == SN_COMP ? n->decomposition : n;
}

/* Every composite replaced by its decomposition. */
static bool check_decomposed(verdict *v, const char *text, const values *want) {
    values got = {0};
    sn_module *m = sn_parse(text, "text", false, NULL);
    for (int i = 0; m && i < 20 && sn_rewrite_module(m, open_composite, NULL); i++) continue;
    bool ok = m && check_text(v, "text of decompositions", m, false) &&
              evaluate_entry(v, "evaluation of decompositions", m, &got) &&
              compare(v, "value of decompositions", want, &got, 0);
    free_values(&got);
    sn_module_free(m);
    return ok;
}

/* The outputs as results of one `map_reduce` node whose body is the whole graph. */
static bool check_region(verdict *v, const char *text, const values *want) {
    values got = {0};
    sn_module *m = sn_parse(text, "text", false, NULL);
    if (!m) return fail(v, "region", "no module");
    sn_entry *e = sn_entry_get(m, "f");
    sn_node *out[MAX_OUT], *result[MAX_OUT];
    int n = list_outputs(e, out), n_cut = 0;
    sn_order order = sn_entry_topo(m, e);
    sn_node **cut = sn_arena_alloc(m, ((size_t)order.n + 1) * sizeof *cut);
    for (int i = 0; i < order.n; i++) {
        sn_node *x = order.node[i];
        if (sn_ops[x->op].flags & SN_OPF_EXTERNAL) cut[n_cut++] = x;
    }
    sn_region *r = sn_region_extract(m, n_cut, cut, n, out);
    sn_node *loops =
        sn_node_new(m, SN_OP_map_reduce, n_cut, cut, 1, &(sn_attr){.key = SN_A_body, .r = r});
    for (int i = 0; i < n; i++) {
        char name[16];
        snprintf(name, sizeof name, "r%d", i);
        result[i] = n > 1 ? sn_b_result(loops, i) : loops;
        sn_entry_output(m, e, name, result[i]);
    }
    bool ok = (!sn_module_error(m)->code || fail(v, "region", "%s", sn_module_error(m)->message)) &&
              check_text(v, "text of a region", m, false) &&
              evaluate(v, "evaluation of a region", m, e, n, result, &got) &&
              compare(v, "value of a region", want, &got, 0);
    free_values(&got);
    sn_module_free(m);
    return ok;
}

/* What the contract leaves undefined may differ, for example integers beyond 2^53 in a sum in another
 * order. */
static bool forgive(verdict *v, const char *text) {
    int64_t symbols[64];
    sn_module *m = sn_parse(text, "text", false, NULL);
    if (m) fuzz_symbol_values(m, symbols);
    bool defined = !m || fuzz_is_defined(text, symbols);
    sn_module_free(m);
    if (!defined) v->stage = NULL;
    return !defined;
}

/* Passes that only group nodes and choose kernels, on every level. They may split a sum over
 * several axes, which rounds otherwise. */
static bool check_kernels(verdict *v, const char *text, const values *want) {
    double tolerance = strstr(text, "f16") ? 0.03 : strstr(text, "f32") ? 1e-4 : 1e-9;
    bool ok = true;
    for (int level = 0; ok && level <= 4; level++) {
        values got = {0};
        sn_passes p;
        sn_pass_options o = {
            .level = level, .backend = "native", .only = "expand,fuse,choose", .verify = true};
        sn_module *m = sn_parse(text, "text", false, NULL);
        ok = m && (sn_passes_run(&p, m, &o) ||
                   fail(v, "passes", "level %d: %s", level, sn_module_error(m)->message));
        ok = ok && check_text(v, "text of kernels", m, false) &&
             evaluate_entry(v, "evaluation of kernels", m, &got) &&
             (compare(v, "value of kernels", want, &got, tolerance) || forgive(v, text));
        free_values(&got);
        sn_module_free(m);
    }
    return ok;
}

static const char *kernels; /* folder of compiled kernels; NULL: graphs are not compiled */
static const char *compute; /* of those; NULL: f32 */
static bool open_sizes;     /* graphs whose sizes a run may refuse, at all sizes */

static bool exact; /* passes are compared over finite fields */
static exact_counts counts;

static void *exact_leaf(void *ctx, const sn_node *leaf, const int64_t *symbols, size_t *bytes) {
    (void)ctx;
    return fuzz_leaf_data(leaf, symbols, bytes);
}

static bool check_exact(verdict *v, const char *text) {
    enum { LEVELS = 1 << 0 | 1 << 4 };
    int64_t symbols[64];
    sn_error err = {0};
    sn_module *m = sn_parse(text, "text", false, &err);
    if (!m) return fail(v, "exact", "%s", err.message);
    fuzz_symbol_values(m, symbols);
    v->stage = "exact";
    bool ok =
        exact_check(m, "f", symbols, LEVELS, exact_leaf, NULL, &counts, v->why, sizeof v->why);
    sn_module_free(m);
    return ok;
}

/* All checks of one graph; what fails first. */
static bool check(const char *text, verdict *v) {
    if (exact) {
        v->stage = NULL;
        return check_exact(v, text);
    }
    if (kernels) {
        v->stage = NULL;
        bool ok = open_sizes ? fuzz_check_open(text, kernels, v->why, sizeof v->why)
                             : fuzz_check_compiled(text, compute, kernels, v->why, sizeof v->why);
        return ok || (v->stage = "compiled", false);
    }
    sn_error err = {0};
    values raw_values = {0}, folded_values = {0};
    v->stage = NULL;
    sn_module *raw = sn_parse(text, "text", true, &err);
    sn_module *folded = raw ? sn_parse(text, "text", false, &err) : NULL;
    if (!folded)
        fail(v, raw ? "folding" : "parsing", "%s", err.message);
    else if (check_text(v, "text", raw, true) &&
             check_text(v, "text of folded graph", folded, false) &&
             evaluate_entry(v, "evaluation", raw, &raw_values) &&
             evaluate_entry(v, "evaluation of folded graph", folded, &folded_values) &&
             compare(v, "value of folded graph", &raw_values, &folded_values, 0) &&
             check_decomposed(v, text, &raw_values) && check_region(v, text, &raw_values))
        check_kernels(v, text, &raw_values);
    free_values(&raw_values);
    free_values(&folded_values);
    sn_module_free(raw);
    sn_module_free(folded);
    return !v->stage;
}

/* ---- shrinking ---- */

typedef struct replacement {
    const sn_node *target;
    sn_node *by;
} replacement;

static sn_node *replace_node(void *ctx, sn_node *n) {
    const replacement *r = ctx;
    return n == r->target ? r->by : n;
}

/* The text of the module with n replaced; NULL: another type. */
static char *replaced(sn_module *m, const sn_entry *e, sn_node *n, sn_node *by) {
    if (n == by || by->n_result != 1 || n->n_result != 1 || by->dtype != n->dtype ||
        by->rank != n->rank || (n->rank && memcmp(by->shape, n->shape, sizeof *n->shape * n->rank)))
        return NULL;
    sn_node *root[MAX_OUT];
    sn_binding output[MAX_OUT];
    int n_out = list_outputs(e, root);
    sn_rewrite(m, n_out, root, replace_node, &(replacement){n, by});
    for (int i = 0; i < n_out; i++) output[i] = (sn_binding){e->output[i].name, root[i]};
    return print_alone(m, &(sn_entry){.name = e->name, .output = output, .n_output = n_out});
}

/* The text with `n` as the only output. */
static char *only_output(sn_module *m, sn_node *n) {
    sn_binding output = {"y0", n};
    if (n->n_result > 1) return NULL;
    return print_alone(m, &(sn_entry){.name = "f", .output = &output, .n_output = 1});
}

/* The k-th smaller graph; NULL: none here, *end: no more. */
static char *smaller(const char *text, int k, bool *end) {
    char *candidate = NULL, name[32];
    sn_module *m = sn_parse(text, "text", true, NULL);
    sn_entry *e = m ? sn_entry_get(m, "f") : NULL;
    *end = true;
    if (e) {
        sn_order order = sn_entry_topo(m, e);
        int way = k % 6, i = k / 6;
        *end = i >= order.n;
        sn_node *n = *end ? NULL : order.node[way ? order.n - 1 - i : i];
        if (n && way == 0) candidate = only_output(m, n);
        if (n && way >= 1 && way <= 4 && way <= n->n_in)
            candidate = replaced(m, e, n, n->in[way - 1]);
        if (n && way == 5 && n->n_in) { /* replaced by a leaf */
            snprintf(name, sizeof name, "leaf%u", n->id);
            candidate = replaced(m, e, n,
                                 sn_node_new(m, SN_OP_input, 0, NULL,
                                             SN_ATTRS(SN_STR(name, name), SN_INT(dtype, n->dtype),
                                                      SN_LIST(shape, n->rank, n->shape))));
        }
    }
    if (candidate && (sn_module_error(m)->code || !strcmp(candidate, text))) {
        free(candidate);
        candidate = NULL;
    }
    sn_module_free(m);
    return candidate;
}

/* Takes every smaller graph that fails at the same stage. Ends: each has fewer nodes or leaves that
 * depend on nothing; 2000 steps at most. */
static char *shrink(char *text, verdict *v) {
    const char *stage = v->stage;
    bool end = false;
    for (int k = 0, steps = 0; !end && steps < 2000; k++, steps++) {
        verdict now;
        char *candidate = smaller(text, k, &end);
        if (!candidate) continue;
        if (!check(candidate, &now) && !strcmp(now.stage, stage)) {
            free(text);
            text = candidate;
            *v = now;
            k = -1;
        } else
            free(candidate);
    }
    return text;
}

static bool run_seed(uint64_t seed) {
    verdict v = {0};
    sn_module *m = fuzz_graph(seed, open_sizes ? FUZZ_OPEN : compute ? FUZZ_PRODUCTS : FUZZ_ANY);
    if (!m || sn_module_error(m)->code) {
        fprintf(stderr, "seed %llu: generator: %s\n", (unsigned long long)seed,
                m ? sn_module_error(m)->message : "out of memory");
        sn_module_free(m);
        return false;
    }
    char *text = module_text(m);
    sn_module_free(m);
    bool ok = check(text, &v);
    if (!ok) {
        text = shrink(text, &v);
        fprintf(stderr, "seed %llu: %s: %s\n%s\n", (unsigned long long)seed, v.stage, v.why, text);
    }
    free(text);
    return ok;
}

int main(int argc, char **argv) {
    char folder[] = "/tmp/sn_fuzz_XXXXXX";
    exact = argc > 3 && !strcmp(argv[3], "exact");
    if (argc > 3 && !exact && !(kernels = mkdtemp(folder))) return 1;
    open_sizes = argc > 3 && !strcmp(argv[3], "open");
    if (argc > 3 && !strcmp(argv[3], "bf16")) compute = "bf16";
    uint64_t seed = fuzz_seed(argc > 1 ? argv[1] : NULL);
    long count = argc > 2 ? strtol(argv[2], NULL, 0) : 1000, failures = 0;
    for (long i = 0; i < count && failures < 10; i++) failures += !run_seed(seed + (uint64_t)i);
    if (kernels) fuzz_remove_kernels(kernels);
    printf("%ld graphs, %ld failed%s\n", count, failures, exact_told(&counts));
    return failures != 0 || !exact_decides(&counts);
}
