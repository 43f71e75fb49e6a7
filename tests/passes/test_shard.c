/* test_shard.c: models whose tensors are divided among ranks: each rank's graph by the evaluator over
 * simulated ranks against the whole model's, and where the collectives are. */
#include "codegen/program/share.h"
#include "frontend/models.h"
#include "ir/ir.h"
#include "passes/passes.h"
#include "runtime/comm/comm.h"
#include "runtime/str.h"
#include "tests/support/effort.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include <cjson/cJSON.h>
#include <dirent.h>
#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_RANKS = 4, BATCH = 2, LENGTH = 5, MAX_OUT = 6 };

static void need(bool ok, const sn_error *err) {
    if (!ok) fail_msg("%s", err->message);
}

/* ---- models ---- */

#define COMMON "\"vocab_size\": 29, \"max_position_embeddings\": 16, "
#define LLAMA_SIZES                                                                                \
    "\"hidden_size\": 16, \"intermediate_size\": 24, \"num_hidden_layers\": 2, "                   \
    "\"num_attention_heads\": 4, "

typedef struct subject {
    const char *name, *config;
    int entries;
    const char *entry;    /* that is evaluated */
    int reduces, gathers; /* collectives of it: all_reduce, all_gather */
    double dropout;       /* in training */
} subject;

static const char gpt2[] = "{\"model_type\": \"gpt2\", \"vocab_size\": 29, \"n_positions\": 16, "
                           "\"n_embd\": 16, \"n_layer\": 2, \"n_head\": 4}";
static const char llama[] = "{\"model_type\": \"llama\", " COMMON LLAMA_SIZES
                            "\"num_key_value_heads\": 2, \"tie_word_embeddings\": false}";
static const char bert[] =
    "{\"model_type\": \"bert\", " COMMON LLAMA_SIZES "\"type_vocab_size\": 2}";
static const char edt[] =
    "{\"model_type\": \"edt\", \"vocab_size\": 29, \"max_position_embeddings\": 16, \"d_model\": "
    "16, "
    "\"ffn_dim\": 24, \"encoder_layers\": 2, \"decoder_layers\": 2, \"attention_heads\": 4}";

/* Two sums a layer (three of a decoder's with a source), one of the embeddings; the logits are gathered. */
static const subject subjects[] = {
    {"gpt2", gpt2, SN_FORWARD, "forward", 5, 1, 0},
    {"llama", llama, SN_FORWARD, "forward", 5, 1, 0},
    {"bert", bert, SN_FORWARD, "forward", 5, 1, 0},
    {"edt", edt, SN_FORWARD, "forward", 12, 1, 0},
    {"gpt2 loss", gpt2, SN_LOSS, "loss", 7, 1, 0},
    {"gpt2 training", gpt2, SN_TRAIN, "train_step", -1, -1, 0},
    {"gpt2 dropout", gpt2, SN_TRAIN, "train_step", -1, -1, 0.1},
    {"llama training", llama, SN_TRAIN, "train_step", -1, -1, 0},
    {"bert training", bert, SN_TRAIN, "train_step", -1, -1, 0},
    {"edt training", edt, SN_TRAIN, "train_step", -1, -1, 0},
};
enum { SUBJECTS = sizeof subjects / sizeof *subjects };

static sn_module *build(const char *config, int entries, double dropout, const sn_mesh_axis *mesh,
                        sn_error *err) {
    sn_config *c = sn_config_parse("test", config, strlen(config), err);
    sn_training t = sn_training_default();
    t.dropout = dropout;
    t.optimizer.max_norm = 0.01;
    sn_model model = {0};
    bool ok = c && sn_model_build(
                       c, &(sn_model_options){.entries = entries, .training = &t, .mesh = mesh},
                       &model, err);
    sn_config_free(c);
    return ok ? model.module : NULL;
}

static bool divide(sn_module *m) {
    sn_passes p;
    const sn_pass_options o = {
        .level = SN_LEVEL_HIGHEST, .backend = "native", .only = "replace,shard", .verify = true};
    return sn_passes_run(&p, m, &o);
}

static int count_op(sn_module *m, const char *entry, sn_op op) {
    sn_order order = sn_entry_topo(m, sn_entry_get(m, entry));
    int n = 0;
    for (int i = 0; i < order.n; i++) n += order.node[i]->op == op;
    return n;
}

/* ---- evaluation ---- */

static double value_of(const char *name, int64_t i) {
    double phase = 0;
    for (const char *c = name; *c; c++) phase += (double)*c * 0.37;
    return sin(phase + 1.3 * (double)i) * 0.4;
}

/* Elements of a leaf as this rank holds them. */
static void fill(const sn_node *n, double *out, int64_t count, int64_t first_size) {
    const char *name = sn_attr_str(n, SN_A_name, "");
    sn_share s = sn_share_of(n);
    bool is_input = n->op == SN_OP_input;
    bool tokens = is_input && strcmp(name, "lengths") != 0 && n->dtype == SN_I32;
    for (int64_t i = 0; i < count; i++)
        out[i] = tokens     ? strcmp(name, "types") != 0 ? (double)((i * 7 + name[0]) % 13) : 0
                 : is_input ? (n->dtype == SN_I32 ? (double)(first_size - i) : (double)(i + 3))
                 : strstr(name, "optimizer.") ? 0
                                              : value_of(name, i);
    for (int64_t i = 0; s.ranks && i < sn_share_runs(&s); i++) {
        sn_elements r = sn_share_run(&s, i);
        for (int64_t k = 0; k < r.count; k++)
            out[r.to + k] = strstr(name, "optimizer.") ? 0 : value_of(name, r.from + k);
        for (int64_t k = 0; k < r.missing; k++) out[r.to + r.count + k] = 0;
    }
}

typedef struct result {
    int n;
    char name[MAX_OUT][24];
    int64_t size[MAX_OUT];
    double *data[MAX_OUT];
} result;

/* All outputs of the entry; false: an error of the module. */
static bool evaluate(sn_module *m, const char *entry, sn_comm *c, result *out) {
    int64_t symbol[16] = {0};
    for (int i = 0; i < sn_symbol_count(m); i++)
        symbol[i] = strcmp(sn_symbol_at(m, i)->name, "B") ? LENGTH : BATCH;
    sn_module_place(m, symbol, NULL);
    sn_eval *ev = sn_eval_new(m, symbol);
    sn_eval_set_comm(ev, NULL, c);
    const sn_entry *e = sn_entry_get(m, entry);
    sn_order order = sn_entry_topo(m, e);
    for (int i = 0; i < order.n; i++) {
        const sn_node *n = order.node[i];
        if (n->op != SN_OP_input && n->op != SN_OP_param && n->op != SN_OP_state) continue;
        int64_t count = 1;
        for (int a = 0; a < n->rank; a++) count *= sn_dim_eval(m, n->shape[a], symbol);
        double *x = malloc((size_t)count * sizeof *x);
        fill(n, x, count, LENGTH);
        sn_eval_bind_f64(ev, sn_attr_str(n, SN_A_name, ""), x, count);
        free(x);
    }
    *out = (result){.n = e->n_output};
    for (int i = 0; i < e->n_output; i++) {
        const sn_value *v = sn_eval_node(ev, e->output[i].node);
        if (!v) break;
        snprintf(out->name[i], sizeof out->name[i], "%s", e->output[i].name);
        out->size[i] = v->n;
        out->data[i] = malloc((size_t)v->n * sizeof(double) + 1);
        memcpy(out->data[i], v->data, (size_t)v->n * sizeof(double));
    }
    sn_eval_free(ev);
    return !sn_module_error(m)->code;
}

static void free_result(result *r) {
    for (int i = 0; i < r->n; i++) free(r->data[i]);
}

typedef struct job {
    const subject *s;
    sn_comm *comm;
    result out;
    sn_error err;
    bool ok;
    int reduces, gathers;
} job;

static void *run_rank(void *arg) {
    job *j = arg;
    const sn_mesh_axis mesh[] = {{"tensor", j->comm->size, j->comm->rank}, {0}};
    sn_module *m = build(j->s->config, j->s->entries, j->s->dropout, mesh, &j->err);
    j->ok = m && divide(m) && evaluate(m, j->s->entry, j->comm, &j->out);
    if (m && !j->ok) sn_module_ok(m, &j->err);
    if (!j->ok) { /* the others would wait */
        fprintf(stderr, "%s, rank %d: %s\n", j->s->name, j->comm->rank, j->err.message);
        _Exit(1);
    }
    if (j->ok) j->reduces = count_op(m, j->s->entry, SN_OP_all_reduce);
    if (j->ok) j->gathers = count_op(m, j->s->entry, SN_OP_all_gather);
    sn_module_free(m);
    sn_comm_close(j->comm);
    return NULL;
}

static void compare(const subject *s, int ranks, const result *want, const result *got) {
    assert_int_equal(want->n, got->n);
    for (int i = 0; i < want->n; i++) {
        assert_int_equal(want->size[i], got->size[i]);
        for (int64_t k = 0; k < want->size[i]; k++)
            if (!(fabs(want->data[i][k] - got->data[i][k]) <= 1e-9 * (1 + fabs(want->data[i][k]))))
                fail_msg("%s on %d ranks: %s[%lld] is %.12g, not %.12g", s->name, ranks,
                         want->name[i], (long long)k, got->data[i][k], want->data[i][k]);
    }
}

static void check(const subject *s, int ranks) {
    job j[MAX_RANKS] = {0};
    sn_comm *comm[MAX_RANKS];
    pthread_t thread[MAX_RANKS];
    sn_error err = {0};
    result whole;
    sn_module *m = build(s->config, s->entries, s->dropout, NULL, &err);
    need(m != NULL, &err);
    if (!evaluate(m, s->entry, NULL, &whole))
        fail_msg("%s: %s", s->name, sn_module_error(m)->message);
    assert_true(sn_comm_simulate(ranks, comm, NULL));
    for (int r = 0; r < ranks; r++) {
        j[r].s = s, j[r].comm = comm[r];
        assert_int_equal(pthread_create(&thread[r], NULL, run_rank, &j[r]), 0);
    }
    for (int r = 0; r < ranks; r++) pthread_join(thread[r], NULL);
    for (int r = 0; r < ranks; r++) {
        need(j[r].ok, &j[r].err);
        compare(s, ranks, &whole, &j[r].out);
        free_result(&j[r].out);
    }
    if (s->reduces >= 0 && (j[0].reduces != s->reduces || j[0].gathers != s->gathers))
        fail_msg("%s: %d sums and %d gathers, expected %d and %d", s->name, j[0].reduces,
                 j[0].gathers, s->reduces, s->gathers);
    free_result(&whole);
    sn_module_free(m);
}

static void equal_values(void **state) {
    (void)state;
    const char *only = getenv("SUBJECT");
    for (int i = 0; i < SUBJECTS; i++)
        for (int ranks = 2; ranks <= MAX_RANKS; ranks += 2)
            if ((!only || !strcmp(only, subjects[i].name)) &&
                effort_takes((size_t)i + (size_t)ranks / 2, 2))
                check(&subjects[i], ranks);
}

/* ---- shares that are not full ---- */

/* A factor, that of another head. */
static sn_tensor mirrored(const sn_score_ctx *c) {
    return sn_mul(c->score, sn_at(c->captured[0], sn_sub(3, c->h)));
}

/* Sums and extremes of elements that the ranks cannot divide equally; heads that read each other's numbers; two heads of
 * keys, each taken by one rank or two. */
static sn_module *statistics(int ranks, int rank) {
    sn_module *m = sn_module_new("statistics");
    if (ranks > 1) sn_mesh(m, "tensor", ranks);
    sn_mesh_place(m, rank);
    sn_tensor w = sn_shard(sn_param(m, "w", SN_F64, 13), 0, "tensor"), square = sn_mul(w, w);
    sn_entry_begin(m, "run");
    sn_output("sum", sn_sum_all(square));
    sn_output("least", sn_amin(square, 0));
    sn_output("most", sn_amax(sn_neg(square), 0));
    sn_output("plain", sn_sub(sn_amax(sn_sub(w, 9), 0), sn_amin(sn_add(w, 9), 0)));
    sn_tensor q = sn_shard(sn_param(m, "q", SN_F64, 1, 4, 3, 2), 1, "tensor");
    sn_tensor bias = sn_shard(sn_param(m, "bias", SN_F64, 4, 3), 0, "tensor");
    bias = sn_sum(sn_mul(bias, 9), 1);
    sn_tensor y = sn_attention(q, q, q, .score = mirrored, .captured = {bias});
    sn_output("attended", sn_sum_all(sn_square(y)));
    sn_tensor k = sn_param(m, "k", SN_F64, 1, 2, 3, 2), by_k;
    sn_grad(sn_sum_all(sn_square(sn_attention(q, k, k))), 1, &k, &by_k);
    sn_output("by_k", by_k);
    return m;
}

static void *run_statistics(void *arg) {
    job *j = arg;
    sn_module *m = statistics(j->comm->size, j->comm->rank);
    if (!divide(m) || !evaluate(m, "run", j->comm, &j->out)) _Exit(1); /* the others would wait */
    sn_module_free(m);
    sn_comm_close(j->comm);
    return NULL;
}

static void shares_with_padding(void **state) {
    (void)state;
    static const subject of_elements = {.name = "statistics"};
    for (int ranks = 2; ranks <= MAX_RANKS; ranks += 2) {
        job j[MAX_RANKS] = {0};
        sn_comm *comm[MAX_RANKS];
        pthread_t thread[MAX_RANKS];
        result whole;
        sn_module *m = statistics(1, 0);
        assert_true(evaluate(m, "run", NULL, &whole));
        assert_true(sn_comm_simulate(ranks, comm, NULL));
        for (int r = 0; r < ranks; r++) {
            j[r].comm = comm[r];
            assert_int_equal(pthread_create(&thread[r], NULL, run_statistics, &j[r]), 0);
        }
        for (int r = 0; r < ranks; r++) {
            pthread_join(thread[r], NULL);
            compare(&of_elements, ranks, &whole, &j[r].out);
            free_result(&j[r].out);
        }
        free_result(&whole);
        sn_module_free(m);
    }
}

/* ---- every architecture ---- */

static char *read_text(const char *path) {
    FILE *f = fopen(path, "rb");
    long n = 0;
    char *text = NULL;
    if (f && !fseek(f, 0, SEEK_END) && (n = ftell(f)) > 0 && !fseek(f, 0, SEEK_SET))
        text = calloc((size_t)n + 1, 1);
    if (text && fread(text, 1, (size_t)n, f) != (size_t)n) text[0] = 0;
    if (f) fclose(f);
    return text;
}

/* The first entry that evaluates without caches. */
static const char *entry_of(sn_module *m) {
    static const char *const names[] = {"forward", "encode"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (sn_entry_get(m, names[i])) return names[i];
    return NULL;
}

/* The model of a reference file on two ranks; false: it cannot be divided. */
static bool check_family(const char *name, const char *path) {
    char *text = read_text(path);
    cJSON *json = text ? cJSON_Parse(text) : NULL;
    char *config = cJSON_PrintUnformatted(cJSON_GetObjectItem(json, "config"));
    const sn_mesh_axis two[] = {{"tensor", 2, 0}, {0}};
    sn_error err = {0};
    sn_module *m = config ? build(config, SN_FORWARD | SN_ENCODE, 0, two, &err) : NULL;
    const char *entry = m ? entry_of(m) : NULL;
    if (!m && !strstr(err.message, "cannot be divided among 2 ranks"))
        fail_msg("%s: %s", name, err.message);
    const subject s = {name, config, SN_FORWARD | SN_ENCODE, entry, -1, -1, 0};
    if (entry) check(&s, 2);
    sn_module_free(m);
    cJSON_free(config);
    cJSON_Delete(json);
    free(text);
    return entry;
}

static void families(void **state) {
    (void)state;
    DIR *d = opendir(SN_SOURCE_DIR "/tests/data/families");
    assert_non_null(d);
    size_t n = 0, divided = 0;
    for (struct dirent *e; (e = readdir(d));) {
        char path[1024];
        if (!sn_ends_with(e->d_name, ".json")) continue;
        snprintf(path, sizeof path, SN_SOURCE_DIR "/tests/data/families/%s", e->d_name);
        if (effort_takes(n++, 8)) divided += check_family(e->d_name, path);
    }
    closedir(d);
    assert_true(divided >= 5);
}

/* Two sums a layer and one of the embeddings, of each published size. */
static void presets(void **state) {
    (void)state;
    const sn_mesh_axis two[] = {{"tensor", 2, 0}, {0}};
    const char *name;
    for (int i = 0; (name = sn_model_preset_name(i)); i++) {
        const char *text = sn_model_preset(name);
        sn_error err = {0};
        sn_config *c = sn_config_parse(name, text, strlen(text), &err);
        sn_model model = {0};
        const sn_model_options o = {.entries = SN_CACHED, .mesh = two};
        bool ok = c && sn_model_build(c, &o, &model, &err);
        sn_config_free(c);
        if (!ok) { /* an odd number of heads */
            assert_non_null(strstr(err.message, "heads cannot be divided among 2 ranks"));
            continue;
        }
        assert_true(divide(model.module));
        for (int k = 0; k < 2; k++) {
            const char *entry = k ? "decode" : "prefill";
            if (!sn_entry_get(model.module, entry)) continue; /* an encoder */
            int sums = count_op(model.module, entry, SN_OP_all_reduce);
            bool pair = model.source_vocab; /* prefill encodes; decode has a third sublayer */
            int64_t want = !pair ? 2 * model.layers : k ? 3 * model.layers / 2 : model.layers;
            if (sums != want + 1) fail_msg("%s, %s: %d sums", name, entry, sums);
            assert_int_equal(count_op(model.module, entry, SN_OP_all_gather), !pair || k);
        }
        sn_module_free(model.module);
    }
}

/* ---- the DSL ---- */

static void mistakes(void **state) {
    (void)state;
    static const struct {
        int64_t size;
        int axis;
        sn_dim parts[4];
        const char *message; /* NULL: none */
    } list[] = {{12, 0, {SN_END}, NULL},
                {13, -1, {SN_END}, NULL},
                {12, 0, {4, 8, SN_END}, NULL},
                {3, 0, {SN_END}, "3 elements cannot be divided among 4 ranks"},
                {12, 0, {6, 6, SN_END}, "a part of 6 elements cannot be divided among 4 ranks"},
                {12, 0, {4, 4, SN_END}, "the parts have 8 elements, the axis 12"},
                {12, 1, {SN_END}, "axis 1 is outside"}};
    for (size_t i = 0; i < sizeof list / sizeof *list; i++) {
        sn_module *m = sn_module_new("shard");
        sn_mesh(m, "data", 2, "tensor", 4);
        sn_mesh_place(m, 5);
        assert_int_equal(sn_module_mesh_axis(m, "data").rank, 1);
        assert_int_equal(sn_module_mesh_axis(m, "tensor").rank, 1);
        sn_tensor w = sn_param(m, "w", SN_F32, list[i].size);
        assert_ptr_equal(sn_shard(w, 0, "context"), w); /* no such axis: one rank */
        sn_shard_at(SN_HERE, w, list[i].axis, "tensor", list[i].parts);
        const char *got = sn_module_error(m)->message;
        if (list[i].message ? !strstr(got, list[i].message) : *got != 0)
            fail_msg("%zu: %s", i, got);
        sn_module_free(m);
    }
    sn_module *m = sn_module_new("mesh");
    sn_mesh(m, "tensor", 2);
    sn_mesh(m, "tensor", 3);
    assert_non_null(strstr(sn_module_error(m)->message, "'tensor' has 2 ranks already, not 3"));
    sn_module_free(m);
    m = sn_module_new("place");
    sn_mesh(m, "tensor", 2);
    sn_mesh_place(m, 2);
    assert_non_null(strstr(sn_module_error(m)->message, "ranks 0 to 1, not 2"));
    sn_module_free(m);
}

/* A parameter that is used in two ways, and one divided in two ways. */
static void two_ways(void **state) {
    (void)state;
    for (int same = 0; same < 2; same++) {
        sn_module *m = sn_module_new("ways");
        sn_mesh(m, "tensor", 2);
        sn_entry_begin(m, "run");
        sn_tensor x = sn_input(m, "x", SN_F32, 3, 4), w = sn_param(m, "w", SN_F32, 4, 4);
        sn_tensor y = sn_linear(x, sn_shard(w, 0, "tensor"), NULL);
        sn_output("y", sn_linear(y, sn_shard(w, same ? 0 : 1, "tensor"), NULL));
        assert_int_equal(divide(m), same);
        if (!same)
            assert_non_null(strstr(sn_module_error(m)->message, "'w' is divided in two ways"));
        sn_module_free(m);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(equal_values), cmocka_unit_test(families),
        cmocka_unit_test(presets),      cmocka_unit_test(mistakes),
        cmocka_unit_test(two_ways),     cmocka_unit_test(shares_with_padding),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
