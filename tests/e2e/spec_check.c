/* spec_check.c: see spec_check.h. Everything is driven by names: inputs get values by what they are
 * called, parameters numbers that follow from theirs. */
#include "tests/e2e/spec_check.h"
#include "passes/passes.h"
#include "runtime/rng.h"
#include "runtime/str.h"
#include "tests/support/effort.h"
#include "tests/support/jit_run.h"
#include "tests/support/text.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_WRT = 60, ENTRIES = 16 };

typedef struct check {
    const spec_row *row;
    unsigned parts;
    const char *cache_dir;
    spec_result *r;
    int64_t vocab, labels;
    const sn_training *training;
} check;

static bool fail(check *c, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
static bool fail(check *c, const char *fmt, ...) {
    if (c->r->why[0]) return false;
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(c->r->why, sizeof c->r->why, fmt, ap);
    va_end(ap);
    return false;
}

/* ---- data ---- */

static float draw(const char *name, size_t i) {
    uint32_t stream = 7;
    for (const char *p = name; *p; p++) stream = stream * 31 + (unsigned char)*p;
    sn_rng r = {.seed = 5, .stream = SN_STREAM_DATA, .step = stream, .index = 4 * i};
    return (float)sn_rng_normal(&r);
}

static float parameter(const char *name, int rank, const int64_t *shape, size_t i) {
    bool gain = rank == 1 && (sn_ends_with(name, ".weight") || sn_ends_with(name, "_var"));
    if (gain) return 1 + 0.1f * draw(name, i);
    if (rank < 2) return 0.1f * draw(name, i);
    return draw(name, i) * (float)(0.7 / sqrt((double)shape[rank - 1]));
}

/* Integer inputs: element i of a row; all values are less than the length of the row. */
static int32_t integer(const check *c, const char *name, size_t i, size_t row) {
    if (!strcmp(name, "lengths") || !strcmp(name, "prefix")) return 5 - (int32_t)i % 2;
    if (!strcmp(name, "kinds") || !strcmp(name, "adapters")) return (int32_t)(i % 4);
    if (!strcmp(name, "types")) return (int32_t)(i % 2);
    if (!strcmp(name, "documents")) return (int32_t)((i % row) / 3);
    int64_t bound = c->labels && !strcmp(name, "targets") ? c->labels : c->vocab;
    if (c->row->tokens && !strcmp(name, "tokens")) bound = c->row->tokens;
    /* targets: the token before, within its document */
    bool shifted = !strcmp(name, "targets") && i % row % 3;
    size_t k = shifted ? i - 1 : i;
    return (int32_t)((k * k * 7 + k * 3 + i / row) % (size_t)bound);
}

static void *leaf_data(void *ctx, const sn_node *leaf, const int64_t *symbol, size_t *bytes) {
    const char *name = sn_attr_str(leaf, SN_A_name, "");
    int64_t shape[SN_MAX_RANK] = {1};
    size_t n = 1, row = 1;
    for (int a = 0; a < leaf->rank; a++) {
        shape[a] = sn_dim_eval(leaf->m, leaf->shape[a], symbol);
        n *= (size_t)shape[a];
    }
    if (leaf->rank) row = (size_t)shape[leaf->rank - 1];
    *bytes = n * sn_dtype_size((sn_dtype)leaf->dtype);
    char *data = calloc(*bytes + 1, 1);
    for (size_t i = 0; data && i < n && leaf->op != SN_OP_state; i++) {
        if (leaf->dtype == SN_F32)
            ((float *)data)[i] =
                leaf->op == SN_OP_param ? parameter(name, leaf->rank, shape, i) : draw(name, i);
        else if (leaf->dtype == SN_I32)
            ((int32_t *)data)[i] = integer(ctx, name, i, row);
        else if (leaf->dtype == SN_I64)
            ((int64_t *)data)[i] = (int64_t)i + 1;
    }
    return data;
}

/* ---- models ---- */

static sn_module *make(check *c, int entries) {
    sn_error err = {0};
    sn_model model;
    sn_model_options o = {.entries = entries, .training = c->training};
    bool ok;
    if (c->row->define) {
        ok = sn_model_build_with(c->row->define, c->row->name, &o, &model, &err);
    } else {
        const char *text = c->row->config;
        sn_config *config = sn_config_parse(c->row->name, text, strlen(text), &err);
        ok = config && sn_model_build(config, &o, &model, &err);
        sn_config_free(config);
    }
    if (ok) {
        if (!c->vocab) c->vocab = model.vocab;
        c->labels = model.labels;
        return model.module;
    }
    fail(c, "%s", err.message);
    return NULL;
}

static sn_options options_at(const check *c, int level) {
    return (sn_options){
        .level = level, .threads = 2, .backend = "native", .cache_dir = c->cache_dir};
}

/* Values of the symbolic dims: `batch` for B, 0 for P, `length` for all others. */
static void set_symbols(sn_module *m, int64_t batch, int64_t length, int64_t *symbol) {
    for (int i = 0; i < sn_symbol_count(m) && i < ENTRIES; i++) {
        const char *name = sn_symbol_at(m, i)->name;
        symbol[i] = !strcmp(name, "B") ? batch : !strcmp(name, "P") ? 0 : length;
    }
}

static bool close_all(check *c, jit_run *run, sn_module *m, bool ok) {
    if (!ok) fail(c, "%s", run->why);
    jit_close(run);
    sn_module_free(m);
    return ok;
}

/* ---- decoding ---- */

/* The inputs of an entry for these sizes; returns their number. Free the data. */
static int bind_inputs(check *c, sn_module *m, const char *entry, const int64_t *symbol,
                       sn_arg_binding *in, int64_t (*shape)[SN_MAX_RANK]) {
    sn_order order = sn_entry_topo(m, sn_entry_get(m, entry));
    int n = 0;
    for (int i = 0; i < order.n && n < ENTRIES; i++) {
        const sn_node *leaf = order.node[i];
        if (leaf->op != SN_OP_input) continue;
        size_t bytes;
        for (int a = 0; a < leaf->rank; a++) shape[n][a] = sn_dim_eval(m, leaf->shape[a], symbol);
        in[n] = (sn_arg_binding){sn_attr_str(leaf, SN_A_name, ""), (sn_dtype)leaf->dtype,
                                 leaf->rank, shape[n], leaf_data(c, leaf, symbol, &bytes)};
        n++;
    }
    return n;
}

typedef struct decoding {
    sn_session *s;
    int64_t vocab;
    int32_t tokens[8];
} decoding;

static bool feed(const decoding *d, int64_t from, int64_t n, float *logits, sn_error *err) {
    sn_arg_binding in[] = {SN_BIND("tokens", SN_I32, (void *)(uintptr_t)(d->tokens + from), 1, n),
                           SN_BIND_DIM("P", from)};
    sn_arg_binding out = SN_BIND("logits", SN_F32, logits, 1, d->vocab);
    return sn_run(d->s, n == 1 ? "decode" : "prefill", in, 2, &out, 1, err);
}

/* Logits of one token, decoded and as `forward` gave them. */
static void note_difference(check *c, const float *one, const float *all) {
    for (int64_t v = 0; v < c->vocab; v++) {
        double d = fabs((double)(one[v] - all[v]));
        if (!(d <= c->r->cached)) c->r->cached = d; /* NaN stays */
    }
}

static bool judge_decoding(check *c, bool ok, const sn_error *err) {
    if (!ok) return fail(c, "decoding: %s", err->message);
    return c->r->cached < 1e-4 || fail(c, "decoding differs from forward by %g", c->r->cached);
}

/* One text of eight tokens with its source, token by token [PH22 A15], against `forward`. */
static bool check_translation(check *c, jit_run *run) {
    enum { ALL = 8 };
    float *all = calloc((size_t)(ALL * c->vocab), sizeof *all);
    float *one = calloc((size_t)c->vocab, sizeof *one);
    int64_t symbol[ENTRIES] = {0}, shape[ENTRIES][SN_MAX_RANK];
    set_symbols(run->m, 1, ALL, symbol);
    sn_arg_binding in[ENTRIES], source[2], out = SN_BIND("logits", SN_F32, all, 1, ALL, c->vocab);
    sn_error err = {0};
    int n = bind_inputs(c, run->m, "forward", symbol, in, shape), n_source = 0;
    const int32_t *tokens = NULL;
    bool ok = all && one && sn_run(run->s, "forward", in, n, &out, 1, &err);
    for (int i = 0; i < n; i++)
        if (!strcmp(in[i].name, "tokens"))
            tokens = in[i].data;
        else if (n_source < 2)
            source[n_source++] = in[i];
    ok =
        ok && tokens && n_source == 2 && sn_run(run->s, "prefill", source, n_source, NULL, 0, &err);
    const sn_arg_binding *lengths = strcmp(source[0].name, "lengths") ? &source[1] : &source[0];
    c->r->cached = 0;
    for (int64_t t = 0; ok && t < ALL; t++) {
        sn_arg_binding step[] = {SN_BIND("tokens", SN_I32, (void *)(uintptr_t)(tokens + t), 1, 1),
                                 *lengths, SN_BIND_DIM("P", t), SN_BIND_DIM("S", ALL)};
        sn_arg_binding result = SN_BIND("logits", SN_F32, one, 1, c->vocab);
        ok = sn_run(run->s, "decode", step, 4, &result, 1, &err);
        note_difference(c, one, all + t * c->vocab);
    }
    for (int i = 0; i < n; i++) free(in[i].data);
    free(all);
    free(one);
    return judge_decoding(c, ok, &err);
}

/* A prompt of five tokens at once, then two alone: the logits are those of `forward` over all seven
 * (whose prefix is five long too, and which are one document). */
static bool check_cached(check *c, jit_run *run) {
    enum { PROMPT = 5, ALL = 7 };
    decoding d = {.s = run->s, .vocab = c->vocab};
    float *all = calloc((size_t)(ALL * c->vocab), sizeof *all);
    float *one = calloc((size_t)c->vocab, sizeof *one);
    for (size_t t = 0; t < ALL; t++) d.tokens[t] = integer(c, "tokens", t, ALL);
    int64_t symbol[ENTRIES] = {0}, shape[ENTRIES][SN_MAX_RANK];
    set_symbols(run->m, 1, ALL, symbol);
    sn_arg_binding in[ENTRIES], out = SN_BIND("logits", SN_F32, all, 1, ALL, c->vocab);
    sn_error err = {0};
    int n = bind_inputs(c, run->m, "forward", symbol, in, shape);
    for (int i = 0; i < n; i++)
        if (!strcmp(in[i].name, "documents")) memset(in[i].data, 0, sizeof(int32_t) * ALL);
    bool ok = all && one && sn_run(run->s, "forward", in, n, &out, 1, &err);
    c->r->cached = 0;
    for (int64_t t = PROMPT - 1; ok && t < ALL; t++) {
        ok = t == PROMPT - 1 ? feed(&d, 0, PROMPT, one, &err) : feed(&d, t, 1, one, &err);
        note_difference(c, one, all + t * c->vocab);
    }
    for (int i = 0; i < n; i++) free(in[i].data);
    free(all);
    free(one);
    return judge_decoding(c, ok, &err);
}

/* ---- forward ---- */

static int64_t count_parameters(sn_module *m) {
    int64_t total = 0;
    for (uint32_t i = 0; i < sn_module_node_count(m); i++) {
        const sn_node *n = sn_module_node(m, i);
        int64_t count = n->op == SN_OP_param;
        for (int a = 0; a < n->rank && count; a++) count *= n->shape[a];
        total += count;
    }
    return total;
}

/* The number for a family in a list such as "9 gemm, 2 flash". */
static int listed(const char *list, const char *family) {
    char name[16];
    for (int n, used; sscanf(list, "%d %15[a-z_]%n", &n, name, &used) == 2; list += used) {
        if (!strcmp(name, family)) return n;
        if (list[used] == ',') used++;
    }
    return 0;
}

static bool count_kernels(check *c, sn_program *p) {
    char *text = explain_text(p, "forward"), *out = c->r->kernels;
    size_t used = 0;
    char family[16][16];
    int count[16] = {0}, n = 0, step;
    for (char *line = text; line && *line; line = strchr(line, '\n'), line += line != NULL) {
        char name[16];
        if (sscanf(line, "%d %15s", &step, name) != 2) continue;
        int i = 0;
        while (i < n && strcmp(family[i], name) != 0) i++;
        if (i == n && n < 16) strcpy(family[n++], name);
        count[i]++;
    }
    for (int i = 0; i < n; i++)
        used += (size_t)snprintf(out + used, sizeof c->r->kernels - used, "%s%d %s", i ? ", " : "",
                                 count[i], family[i]);
    bool ok = (!c->row->holds || strstr(text, c->row->holds)) && !strstr(text, "not fused, raise");
    for (int k = 0; k < n; k++) ok &= count[k] <= listed(c->row->kernels, family[k]);
    ok &= listed(out, "flash") == listed(c->row->kernels, "flash");
    if (!ok)
        fail(c, "kernels are %s, wanted %s with '%s':\n%s", out, c->row->kernels,
             c->row->holds ? c->row->holds : "", text);
    free(text);
    return ok;
}

/* The entry at two sizes, nothing is compiled for the second. */
static bool check_forward(check *c, jit_run *run) {
    static const int64_t sizes[][2] = {{2, 7}, {1, 13}}; /* batch, length */
    int64_t symbol[ENTRIES] = {0};
    bool ok = true;
    for (int i = 0; ok && i < 2; i++) {
        set_symbols(run->m, sizes[i][0], sizes[i][1], symbol);
        ok = jit_check(run, "forward", symbol, 1e-4, 0);
    }
    c->r->error = fmax(c->r->error, run->worst);
    return ok && !sn_program_stats(run->p).recompilations;
}

/* Whether there is an entry decode whose only input is tokens (plus those of an
 * encoder-decoder). */
static bool decodes_tokens(sn_module *m) {
    static const char *const known[] = {"tokens", "lengths"};
    const sn_entry *e = sn_entry_get(m, "decode");
    sn_order order = e ? sn_entry_topo(m, e) : (sn_order){0};
    bool ok = e != NULL;
    for (int i = 0; i < order.n; i++) {
        const char *name = sn_attr_str(order.node[i], SN_A_name, "");
        if (order.node[i]->op == SN_OP_input)
            ok &= !strcmp(name, known[0]) || !strcmp(name, known[1]);
    }
    return ok;
}

static bool check_level(check *c, int level) {
    sn_module *m =
        make(c, level == 4 && c->parts & SPEC_DECODE ? SN_FORWARD | SN_CACHED : SN_FORWARD);
    if (!m) return false;
    jit_run run;
    sn_options o = options_at(c, level);
    bool ok = jit_open(&run, m, &o, leaf_data, c) && check_forward(c, &run);
    if (ok && level == 4) {
        c->r->parameters = count_parameters(m);
        c->r->kernels_ok = count_kernels(c, run.p);
        bool decodes = decodes_tokens(m), translates = sn_entry_get(m, "reorder");
        c->r->cached_ok = !decodes || (translates ? check_translation : check_cached)(c, &run);
    }
    return close_all(c, &run, m, ok);
}

static bool check_plan(check *c) {
    sn_module *m = make(c, SN_FORWARD);
    sn_error err = {0};
    sn_options o = options_at(c, 4);
    o.plan_only = true;
    sn_program *p = m ? sn_compile(m, &o, &err) : NULL;
    if (m) c->r->parameters = count_parameters(m);
    bool ok = p ? count_kernels(c, p) : m && fail(c, "%s", err.message);
    sn_program_free(p);
    sn_module_free(m);
    return ok;
}

/* ---- gradients ---- */

/* The scalar that is trained: the mean of the entry's losses. */
static sn_tensor mean_loss(sn_module *m) {
    return sn_mean_all(sn_entry_get(m, "loss")->output[0].node);
}

static bool check_gradient(check *c) {
    sn_module *m = make(c, SN_LOSS);
    if (!m) return false;
    sn_error err = {0};
    sn_tensor loss = mean_loss(m), wrt[MAX_WRT];
    int n = sn_params_of(loss, MAX_WRT, wrt), n_value = 0;
    int64_t symbol[ENTRIES] = {0}, shape[MAX_WRT + 8][SN_MAX_RANK];
    set_symbols(m, 2, 5, symbol);
    sn_arg_binding value[MAX_WRT + 8 + ENTRIES];
    bool ok = n <= MAX_WRT;
    for (uint32_t i = 0; ok && i < sn_module_node_count(m); i++) {
        const sn_node *leaf = sn_module_node(m, i);
        if (leaf->op != SN_OP_input && leaf->op != SN_OP_param) continue;
        size_t bytes;
        int64_t *s = shape[n_value];
        for (int a = 0; a < leaf->rank; a++) s[a] = sn_dim_eval(m, leaf->shape[a], symbol);
        value[n_value++] = (sn_arg_binding){sn_attr_str(leaf, SN_A_name, ""), (sn_dtype)leaf->dtype,
                                            leaf->rank, s, leaf_data(c, leaf, symbol, &bytes)};
        ok = n_value < MAX_WRT + 8;
    }
    if (!ok) fail(c, "more parameters than the check can hold");
    sn_grad_error worst = {0};
    if (ok && !sn_check_grad(loss, n, wrt, value, n_value, &worst, &err))
        ok = fail(c, "%s", err.message);
    c->r->gradient = worst.error;
    /* where the loss does not depend on a tensor (a bias of keys) its rounding alone makes 1e-4 */
    if (ok && !(worst.error < 1e-3))
        ok = fail(c, "the gradient of '%s' is wrong: slope %g, difference %g",
                  sn_attr_str(wrt[worst.index], SN_A_name, "?"), worst.slope, worst.difference);
    for (int i = 0; i < n_value; i++) free(value[i].data);
    sn_module_free(m);
    return ok;
}

/* ---- training ---- */

/* Adam on one batch, until the loss is below the goal or the steps are done. */
static bool train(check *c, jit_run *run) {
    int64_t symbol[ENTRIES] = {0}, shape[ENTRIES][SN_MAX_RANK];
    set_symbols(run->m, 4, 8, symbol);
    sn_arg_binding in[ENTRIES];
    sn_error err = {0};
    float value = 0;
    sn_arg_binding out = {.name = "loss", .dtype = SN_F32, .data = &value};
    int n_in = bind_inputs(c, run->m, "train_step", symbol, in, shape);
    bool ok = true;
    for (int i = 0; ok && i < c->row->steps; i++) {
        ok = sn_run(run->s, "train_step", in, n_in, &out, 1, &err);
        if (!i) c->r->before = (double)value;
        c->r->after = (double)value;
        if ((double)value < c->row->goal) break;
    }
    for (int i = 0; i < n_in; i++) free(in[i].data);
    if (!ok) return fail(c, "train: %s", err.message);
    return c->r->after < c->row->goal ||
           fail(c, "training: the loss is %g after %d steps, not below %g", c->r->after,
                c->row->steps, c->row->goal);
}

/* For models without their own training entry. */
static void add_train_step(sn_module *m, const sn_training *t) {
    sn_tensor loss = mean_loss(m), param[MAX_WRT];
    int n = sn_params_of(loss, MAX_WRT, param);
    sn_entry_begin(m, "train_step");
    sn_output("loss", loss);
    sn_optimize(loss, sn_scalar(m, SN_F32, t->schedule.peak), n, param, &t->optimizer);
}

static bool check_training(check *c) {
    sn_training t = {.optimizer = sn_optimizer_of(SN_ADAM),
                     .schedule = {.kind = SN_CONSTANT, .peak = 1e-2}};
    c->training = &t;
    sn_module *m = make(c, SN_LOSS | SN_TRAIN);
    if (!m) return false;
    if (!sn_entry_get(m, "train_step")) add_train_step(m, &t);
    jit_run run;
    sn_options o = options_at(c, 4);
    bool ok = jit_open(&run, m, &o, leaf_data, c);
    c->r->trained_ok = ok && train(c, &run);
    return close_all(c, &run, m, ok);
}

/* ---- exact ---- */

/* An entry at each level in `levels`. */
static bool check_exact_entry(check *c, sn_module *m, const char *entry, unsigned levels) {
    int64_t symbol[ENTRIES] = {0};
    char why[JIT_WHY];
    set_symbols(m, 2, 7, symbol);
    return exact_check(m, entry, symbol, levels, leaf_data, c, &c->r->exact, why, sizeof why) ||
           fail(c, "%s", why);
}

static bool check_exact(check *c) {
    enum { ALL_LEVELS = 31, HIGHEST = 16 };
    unsigned levels = effort_is_long() ? ALL_LEVELS : HIGHEST;
    sn_module *m = make(c, SN_ALL_ENTRIES);
    bool ok = m != NULL;
    char *name[ENTRIES];
    int n = 0;
    for (; ok && n < sn_entry_count(m) && n < ENTRIES; n++)
        ok = (name[n] = strdup(sn_entry_at(m, n)->name));
    for (int i = 0; i < n; i++) {
        ok = ok && check_exact_entry(c, m, name[i], levels);
        free(name[i]);
    }
    sn_module_free(m);
    if (!ok || !(m = make(c, SN_LOSS))) return false;
    sn_tensor loss = mean_loss(m), wrt[MAX_WRT], d[MAX_WRT];
    n = sn_params_of(loss, MAX_WRT, wrt);
    ok = n <= MAX_WRT || fail(c, "more parameters than the check can hold");
    if (ok) {
        sn_entry_begin(m, "gradient");
        sn_grad(loss, n, wrt, d);
        for (int i = 0; i < n; i++) sn_output(sn_arena_printf(m, "%d", i), d[i]);
        ok = check_exact_entry(c, m, "gradient", levels);
    }
    sn_module_free(m);
    return ok;
}

unsigned spec_sample(size_t i, size_t step) {
    static const unsigned besides[] = {SPEC_DECODE, SPEC_GRADIENT, SPEC_TRAINING, SPEC_LEVELS};
    if (effort_is_long()) return SPEC_ALL;
    return effort_takes(i, step) ? SPEC_FORWARD | besides[i / step % 4] : SPEC_KERNELS;
}

bool spec_check(const spec_row *row, unsigned parts, const char *cache_dir, spec_result *r) {
    *r = (spec_result){.cached = -1,
                       .forward_ok = true,
                       .gradient_ok = true,
                       .cached_ok = true,
                       .trained_ok = true,
                       .kernels_ok = true,
                       .exact_ok = true};
    check c = {.row = row, .parts = parts, .cache_dir = cache_dir, .r = r};
    size_t row_number =
        strlen(row->name) + (unsigned char)row->name[0]; /* spreads levels 1 to 3 over the rows */
    for (int level = 0; level <= 4; level++) {
        bool takes = effort_takes(row_number + (size_t)level, level ? 6 : 2);
        if (level < 4 ? parts & SPEC_LEVELS && takes : parts & SPEC_FORWARD)
            r->forward_ok &= check_level(&c, level);
    }
    if (parts & SPEC_KERNELS) r->kernels_ok = check_plan(&c);
    if (parts & SPEC_GRADIENT) r->gradient_ok = check_gradient(&c);
    if (parts & SPEC_TRAINING) r->trained_ok = check_training(&c);
    if (parts & SPEC_EXACT) r->exact_ok = check_exact(&c);
    return r->forward_ok && r->kernels_ok && r->gradient_ok && r->cached_ok && r->trained_ok &&
           r->exact_ok;
}
