/* The architectures against references, through the reference evaluator: GPT-2 on nano-gpt-sort
 * with every intermediate tensor, Llama on stories260K, TSE-GPT against loops written as its text
 * writes them; cached decoding against the full forward; wrong configs. */
#include "frontend/models.h"
#include "ir/ir.h"
#include "runtime/npy.h"
#include "model/import/import.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include "tests/support/scratch.h"
#include "tests/support/text.h"

#include <math.h>

#define MODELS SN_SOURCE_DIR "/examples/models/"
#define REFERENCE SN_SOURCE_DIR "/tests/data/reference/"

/* ---- helpers ---- */

static void need(bool ok, const sn_error *err) {
    if (!ok) fail_msg("%s", err->message);
}

/* An imported model: folder, graph. */
typedef struct loaded {
    sn_model_dir *dir;
    sn_model model;
} loaded;

static loaded load(const char *file, const char *name, const sn_model_options *options) {
    sn_error err = {0};
    loaded l;
    const char *folder = scratch_path(name);
    import_request r = {.input = file, .output = folder};
    need(import_model(&r, NULL, &err), &err);
    l.dir = sn_model_dir_open(folder, &err);
    need(l.dir != NULL, &err);
    sn_model_options o = options ? *options : (sn_model_options){0};
    o.weights = l.dir->weights;
    need(sn_model_build(l.dir->config, &o, &l.model, &err), &err);
    return l;
}

static void unload(loaded *l) {
    sn_module_free(l->model.module);
    sn_model_dir_close(l->dir);
}

/* An evaluator with the symbols' values by name and all weights bound. */
static sn_eval *new_eval(const loaded *l, int64_t B, int64_t T, int64_t P) {
    sn_module *m = l->model.module;
    int64_t value[8] = {0};
    for (int i = 0; i < sn_symbol_count(m); i++) {
        char c = sn_symbol_at(m, i)->name[0];
        value[i] = c == 'B' ? B : c == 'T' ? T : P;
    }
    sn_eval *ev = sn_eval_new(m, value);
    assert_non_null(ev);
    for (size_t i = 0; l->dir && i < sn_weights_count(l->dir->weights); i++) {
        const sn_weight *w = sn_weights_at(l->dir->weights, i);
        assert_true(sn_eval_bind(ev, w->name, w->data, w->bytes));
    }
    return ev;
}

static sn_node *find_binding(const sn_binding *list, int n, const char *name) {
    for (int i = 0; i < n; i++)
        if (!strcmp(list[i].name, name)) return list[i].node;
    fail_msg("there is no '%s'", name);
    return NULL;
}

static sn_node *output(const sn_model *model, const char *entry, const char *name) {
    const sn_entry *e = sn_entry_get(model->module, entry);
    assert_non_null(e);
    return find_binding(e->output, e->n_output, name);
}

static const sn_value *value_of(sn_eval *ev, sn_node *n) {
    const sn_value *v = sn_eval_node(ev, n);
    if (!v) fail_msg("%s", sn_module_error(n->m)->message);
    return v;
}

/* Largest difference; -inf equals -inf. */
static double distance(const sn_value *v, const float *want, int64_t n) {
    double worst = 0;
    assert_int_equal(v->n, n);
    for (int64_t i = 0; i < n; i++) {
        if (v->data[i] == want[i]) continue;
        double d = fabs(v->data[i] - want[i]);
        worst = d <= worst ? worst : d; /* NaN is taken */
    }
    return worst;
}

/* Checks cached decoding: a prompt in two pieces, then single tokens, against `forward`. */
static void check_cached(const loaded *l, const int32_t *tokens, int n, double tolerance) {
    const sn_model *model = &l->model;
    sn_module *m = model->module;
    sn_eval *full = new_eval(l, 1, n, 0);
    sn_eval_bind(full, "tokens", tokens, sizeof *tokens * (size_t)n);
    const sn_value *want = value_of(full, output(model, "forward", "logits"));
    void *state[64] = {NULL};
    for (int at = 0, piece = 2; at < n; at += piece) {
        if (at >= 5) piece = 1;
        if (at + piece > n) piece = n - at;
        const char *entry = piece == 1 ? "decode" : "prefill";
        const sn_entry *e = sn_entry_get(m, entry);
        sn_eval *ev = new_eval(l, 1, piece, at);
        sn_eval_bind(ev, "tokens", tokens + at, sizeof *tokens * (size_t)piece);
        assert_true(e->n_assign > 0 && e->n_assign <= 64);
        for (int i = 0; i < e->n_assign; i++) {
            const sn_node *k = e->assign[i].node;
            size_t count = 1;
            for (int a = 0; a < k->rank; a++) count *= (size_t)k->shape[a];
            if (!state[i]) state[i] = calloc(count, sizeof(float));
            sn_eval_bind(ev, e->assign[i].name, state[i], count * sizeof(float));
        }
        const sn_value *got = value_of(ev, output(model, entry, "logits"));
        assert_int_equal(got->rank, 2);
        assert_int_equal(got->n, model->vocab);
        for (int64_t i = 0; i < model->vocab; i++)
            assert_true(fabs(got->data[i] - want->data[(at + piece - 1) * model->vocab + i]) <
                        tolerance);
        for (int i = 0; i < e->n_assign; i++) {
            const sn_value *v = value_of(ev, e->assign[i].node);
            for (int64_t j = 0; j < v->n; j++) ((float *)state[i])[j] = (float)v->data[j];
        }
        sn_eval_free(ev);
    }
    for (int i = 0; i < 64; i++) free(state[i]);
    sn_eval_free(full);
}

/* ---- GPT-2 ---- */

static const char *const nano = MODELS "nano-gpt-sort/gpt-nano-sort-model.json";

static void gpt2_every_tensor(void **state) {
    (void)state;
    /* names of the reference run, and ours where a scope stands before them */
    static const char *const in_layer[] = {"ln1", "q",     "k",    "v",     "qkv",
                                           "att", "attSm", "y",    "yProj", "attnResid",
                                           "ln2", "fc",    "gelu", "mlp",   "mlpResid"};
    static const char *const outside[] = {"tok_emb", "pos_emb", "x",       "block0", "block1",
                                          "block2",  "ln_f",    "lm_head", "probs"};
    sn_error err = {0};
    import_list ref;
    need(json_tensors_read(REFERENCE "nano-gpt-sort/gpt-nano-sort-t0-partials.json", &ref, NULL,
                           &err),
         &err);
    loaded l = load(nano, "taps", NULL);
    const sn_entry *e = sn_entry_get(l.model.module, "forward");
    const float *idx = import_find(&ref, "idx")->data;
    int32_t tokens[33];
    for (int i = 0; i < 33; i++) tokens[i] = (int32_t)idx[i];
    sn_eval *ev = new_eval(&l, 3, 11, 0);
    sn_eval_bind(ev, "tokens", tokens, sizeof tokens);
    int n_in = sizeof in_layer / sizeof *in_layer, n_out = sizeof outside / sizeof *outside;
    assert_int_equal(ref.count, n_in + n_out + 1); /* and idx: none is left out */
    for (int i = 0; i < n_in + n_out; i++) {
        char name[64];
        const char *theirs = i < n_in ? in_layer[i] : outside[i - n_in];
        snprintf(name, sizeof name, "%s%s", i < n_in ? "h.0." : "", theirs);
        const sn_weight *want = import_find(&ref, theirs);
        assert_non_null(want);
        const sn_value *got = value_of(ev, find_binding(e->tap, e->n_tap, name));
        assert_int_equal(got->rank, want->rank);
        for (int a = 0; a < want->rank; a++) assert_int_equal(got->shape[a], want->shape[a]);
        double d = distance(got, want->data, sn_weight_elements(want));
        if (!(d < 1e-5)) fail_msg("%s is off by %g", name, d);
    }
    sn_eval_free(ev);
    unload(&l);
    import_list_free(&ref);
}

static void gpt2_cached(void **state) {
    (void)state;
    loaded l = load(nano, "cached", NULL);
    assert_int_equal(l.model.context, 11);
    assert_string_equal(l.model.type, "gpt2");
    check_cached(&l, (int32_t[]){0, 2, 1, 1, 0, 2, 0, 0, 1}, 9, 1e-5);
    unload(&l);
}

static void gpt2_loss(void **state) {
    (void)state;
    loaded l = load(nano, "loss", &(sn_model_options){.entries = SN_FORWARD | SN_LOSS});
    assert_int_equal(sn_entry_count(l.model.module), 2);
    int32_t tokens[6] = {0, 2, 1, 1, 0, 2}, targets[6] = {2, 1, 1, 0, 2, 0};
    sn_eval *ev = new_eval(&l, 2, 3, 0);
    sn_eval_bind(ev, "tokens", tokens, sizeof tokens);
    sn_eval_bind(ev, "targets", targets, sizeof targets);
    const sn_value *loss = value_of(ev, output(&l.model, "loss", "loss"));
    const sn_value *logits = value_of(ev, output(&l.model, "forward", "logits"));
    assert_int_equal(loss->rank, 2);
    for (int i = 0; i < 6; i++) {
        double sum = 0;
        for (int v = 0; v < 3; v++) sum += exp(logits->data[3 * i + v]);
        assert_true(fabs(loss->data[i] - (log(sum) - logits->data[3 * i + targets[i]])) < 1e-6);
    }
    sn_eval_free(ev);
    unload(&l);
}

/* SPEC property 1: the logits at t depend on tokens 0 … t only. */
static void gpt2_is_causal(void **state) {
    (void)state;
    loaded l = load(nano, "causal", NULL);
    int32_t a[5] = {0, 2, 1, 1, 0}, b[5] = {0, 2, 1, 2, 1};
    sn_node *logits = output(&l.model, "forward", "logits");
    sn_eval *ea = new_eval(&l, 1, 5, 0), *eb = new_eval(&l, 1, 5, 0);
    sn_eval_bind(ea, "tokens", a, sizeof a);
    sn_eval_bind(eb, "tokens", b, sizeof b);
    const sn_value *va = value_of(ea, logits), *vb = value_of(eb, logits);
    for (int i = 0; i < 9; i++) assert_true(va->data[i] == vb->data[i]);
    bool differs = false;
    for (int i = 9; i < 15; i++) differs |= va->data[i] != vb->data[i];
    assert_true(differs);
    sn_eval_free(ea);
    sn_eval_free(eb);
    unload(&l);
}

/* ---- Llama ---- */

static void llama_logits(void **state) {
    (void)state;
    enum { T = 6 };
    sn_error err = {0};
    sn_npy ids, want;
    need(sn_npy_open(REFERENCE "stories260K/greedy_ids.npy", &ids, &err), &err);
    need(sn_npy_open(REFERENCE "stories260K/logits_first_64.npy", &want, &err), &err);
    loaded l = load(MODELS "stories260K/stories260K.bin", "llama", NULL);
    int32_t tokens[T];
    for (int i = 0; i < T; i++)
        tokens[i] =
            ids.dtype == SN_I64 ? (int32_t)((int64_t *)ids.data)[i] : ((int32_t *)ids.data)[i];
    sn_eval *ev = new_eval(&l, 1, T, 0);
    sn_eval_bind(ev, "tokens", tokens, sizeof tokens);
    const sn_value *got = value_of(ev, output(&l.model, "forward", "logits"));
    double d = distance(got, want.data, T * l.model.vocab);
    if (!(d < 1e-4)) fail_msg("logits are off by %g", d);
    sn_eval_free(ev);
    unload(&l);
    sn_npy_free(&ids);
    sn_npy_free(&want);
}

static void llama_cached(void **state) {
    (void)state;
    sn_model_options o = {.entries = SN_FORWARD | SN_CACHED, .context = 8};
    loaded l = load(MODELS "stories260K/stories260K.bin", "llama_cached", &o);
    assert_int_equal(l.model.context, 8);
    check_cached(&l, (int32_t[]){1, 403, 407, 261, 378, 450}, 6, 1e-4);
    unload(&l);
}

/* ---- TSE-GPT ---- */

enum { V = 5, D = 6, H = 2, DH = 3, M = 4, LEN = 4 };

typedef struct tse_weights {
    float embedding[V][D], unembedding[V][D], q[H][DH][D], k[H][DH][D], v[H][DH][D], o[H][D][DH],
        read[M][D], write[M][D];
} tse_weights;

static double dot(const double *x, const float *w, int n) {
    double s = 0;
    for (int i = 0; i < n; i++) s += x[i] * w[i];
    return s;
}

/* One layer as [TSE] writes it: loops over heads, positions and neurons. */
static void tse_by_hand(const tse_weights *w, const int32_t *tokens, double logits[LEN][V]) {
    double s[LEN][D], out[LEN][D];
    for (int t = 0; t < LEN; t++)
        for (int i = 0; i < D; i++) out[t][i] = s[t][i] = w->embedding[tokens[t]][i];
    for (int h = 0; h < H; h++) {
        double q[LEN][DH], k[LEN][DH], v[LEN][DH];
        for (int t = 0; t < LEN; t++)
            for (int j = 0; j < DH; j++) {
                q[t][j] = dot(s[t], w->q[h][j], D);
                k[t][j] = dot(s[t], w->k[h][j], D);
                v[t][j] = dot(s[t], w->v[h][j], D);
            }
        for (int t = 0; t < LEN; t++) {
            double weight[LEN], sum = 0, value[DH] = {0};
            for (int i = 0; i <= t; i++) {
                double score = 0;
                for (int j = 0; j < DH; j++) score += q[t][j] * k[i][j];
                sum += weight[i] = exp(score);
            }
            for (int i = 0; i <= t; i++)
                for (int j = 0; j < DH; j++) value[j] += weight[i] / sum * v[i][j];
            for (int i = 0; i < D; i++) out[t][i] += dot(value, w->o[h][i], DH);
        }
    }
    for (int t = 0; t < LEN; t++) {
        double after[D];
        memcpy(after, out[t], sizeof after);
        for (int n = 0; n < M; n++) {
            double act = dot(after, w->read[n], D);
            for (int i = 0; act > 0 && i < D; i++) out[t][i] += act * w->write[n][i];
        }
        for (int v = 0; v < V; v++) logits[t][v] = dot(out[t], w->unembedding[v], D);
    }
}

static void bind_tse(sn_eval *ev, const tse_weights *w) {
    sn_eval_bind(ev, "embedding.weight", w->embedding, sizeof w->embedding);
    sn_eval_bind(ev, "unembedding.weight", w->unembedding, sizeof w->unembedding);
    sn_eval_bind(ev, "layers.0.mlps.read", w->read, sizeof w->read);
    sn_eval_bind(ev, "layers.0.mlps.write", w->write, sizeof w->write);
    for (int h = 0; h < H; h++) {
        const struct {
            const char *name;
            const void *data;
        } map[4] = {{"W_Q", w->q[h]}, {"W_K", w->k[h]}, {"W_V", w->v[h]}, {"W_O", w->o[h]}};
        for (int i = 0; i < 4; i++) {
            char name[64];
            snprintf(name, sizeof name, "layers.0.attn.heads.%d.%s.weight", h, map[i].name);
            sn_eval_bind(ev, name, map[i].data, sizeof w->q[h]);
        }
    }
}

static void tse_equals_its_text(void **state) {
    (void)state;
    static const char text[] = "{\"model_type\": \"tse_gpt\", \"n_vocab\": 5, \"n_ctx\": 4, "
                               "\"n_layers\": 1, \"n_heads\": 2, \"d_model\": 6, \"d_mlp\": 4}";
    sn_error err = {0};
    tse_weights w;
    uint64_t seed = 7;
    for (size_t i = 0; i < sizeof w / sizeof(float); i++)
        ((float *)&w)[i] = (float)(next_random(&seed) >> 40) / (float)(1 << 23) - 1;
    sn_config *c = sn_config_parse("config.json", text, strlen(text), &err);
    loaded l = {0};
    need(sn_model_build(c, NULL, &l.model, &err), &err);
    int32_t tokens[LEN] = {3, 0, 4, 3};
    double want[LEN][V];
    tse_by_hand(&w, tokens, want);
    sn_eval *ev = new_eval(&l, 1, LEN, 0);
    bind_tse(ev, &w);
    sn_eval_bind(ev, "tokens", tokens, sizeof tokens);
    const sn_value *got = value_of(ev, output(&l.model, "forward", "logits"));
    for (int i = 0; i < LEN * V; i++) assert_true(fabs(got->data[i] - (&want[0][0])[i]) < 1e-9);
    sn_eval_free(ev);
    sn_module_free(l.model.module);
    sn_config_free(c);
}

/* ---- configs ---- */

static void refuse(const char *text, const char *why) {
    sn_error err = {0};
    sn_model model;
    sn_config *c = sn_config_parse("config.json", text, strlen(text), &err);
    assert_non_null(c);
    assert_false(sn_model_build(c, NULL, &model, &err));
    if (!strstr(err.message, why)) fail_msg("wanted '%s' in: %s", why, err.message);
    assert_null(model.module);
    sn_config_free(c);
}

static void wrong_configs(void **state) {
    (void)state;
    refuse("{}", "model_type");
    refuse("{\"model_type\": \"gpt5\"}", "gpt2");
    refuse("{\"model_type\": \"gpt2\", \"vocab_size\": 3, \"n_positions\": 4, \"n_embd\": 10, "
           "\"n_head\": 3, \"n_layer\": 1}",
           "\"n_head\" = 3 does not divide");
    refuse("{\"model_type\": \"gpt2\", \"vocab_size\": -3, \"n_positions\": 4, \"n_embd\": 10, "
           "\"n_head\": 2}",
           "n_layer");
    refuse("{\"model_type\": \"llama\", \"vocab_size\": 8, \"max_position_embeddings\": 8, "
           "\"num_hidden_layers\": 1, \"num_attention_heads\": 4, \"num_key_value_heads\": 3, "
           "\"hidden_size\": 16, \"intermediate_size\": 8, \"rope_scaling\": {\"factor\": 2}}",
           "rope_scaling");
    refuse("{\"model_type\": \"tse_gpt\", \"n_vocab\": 5, \"n_ctx\": 4, \"n_layers\": 1, "
           "\"n_heads\": 0, \"d_model\": 6}",
           "n_heads");
}

static void context_over_the_models(void **state) {
    (void)state;
    sn_error err = {0};
    sn_model model;
    const char *text = sn_model_preset("gpt2");
    sn_config *c = sn_config_parse("gpt2", text, strlen(text), &err);
    assert_false(sn_model_build(c, &(sn_model_options){.context = 2000}, &model, &err));
    assert_non_null(strstr(err.message, "2000"));
    sn_config_free(c);
}

/* Every architecture's graph verifies, prints, and parses back to the same text. */
static void graphs_survive_text(void **state) {
    (void)state;
    static const char *const texts[] = {
        "{\"model_type\": \"gpt2\", \"vocab_size\": 11, \"n_positions\": 8, \"n_embd\": 12, "
        "\"n_head\": 3, \"n_layer\": 2, \"activation_function\": \"gelu\"}",
        "{\"model_type\": \"llama\", \"vocab_size\": 11, \"max_position_embeddings\": 8, "
        "\"num_hidden_layers\": 2, \"num_attention_heads\": 4, \"num_key_value_heads\": 2, "
        "\"hidden_size\": 16, \"intermediate_size\": 20}",
        "{\"model_type\": \"tse_gpt\", \"n_vocab\": 11, \"n_ctx\": 8, \"n_layers\": 2, "
        "\"n_heads\": 2, \"d_model\": 6, \"nonlinear\": \"gelu\"}"};
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        sn_error err = {0};
        sn_model model;
        sn_config *c = sn_config_parse("config.json", texts[i], strlen(texts[i]), &err);
        need(sn_model_build(c, &(sn_model_options){.batch = 2}, &model, &err), &err);
        if (!sn_verify(model.module)) fail_msg("%s", sn_module_error(model.module)->message);
        char *text = module_text(model.module);
        sn_module *copy = sn_parse(text, model.type, false, &err);
        need(copy != NULL, &err);
        char *again = module_text(copy);
        assert_string_equal(text, again);
        free(text);
        free(again);
        sn_module_free(copy);
        sn_module_free(model.module);
        sn_config_free(c);
    }
}

/* The presets build; GPT-2 small has the published number of parameters. */
static void presets_build(void **state) {
    (void)state;
    int n = 0;
    for (; sn_model_preset_name(n); n++) {
        sn_error err = {0};
        sn_model model;
        const char *name = sn_model_preset_name(n), *text = sn_model_preset(name);
        sn_config *c = sn_config_parse(name, text, strlen(text), &err);
        need(sn_model_build(c, NULL, &model, &err), &err);
        assert_true(sn_entry_get(model.module, "forward") && sn_entry_get(model.module, "loss"));
        bool whole = strstr(name, "bert") || strstr(name, "vit"); /* no next token to decode */
        assert_true(whole == !sn_entry_get(model.module, "decode"));
        int64_t elements = 0;
        for (uint32_t i = 0; i < sn_module_node_count(model.module); i++) {
            const sn_node *k = sn_module_node(model.module, i);
            if (k->op != SN_OP_param) continue;
            int64_t size = 1;
            for (int a = 0; a < k->rank; a++) size *= k->shape[a];
            elements += size;
        }
        if (!strcmp(name, "gpt2")) assert_int_equal(elements, 124439808);
        sn_module_free(model.module);
        sn_config_free(c);
    }
    assert_true(n >= 4);
    assert_null(sn_model_preset("none"));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(gpt2_every_tensor),
        cmocka_unit_test(gpt2_cached),
        cmocka_unit_test(gpt2_loss),
        cmocka_unit_test(gpt2_is_causal),
        cmocka_unit_test(llama_logits),
        cmocka_unit_test(llama_cached),
        cmocka_unit_test(tse_equals_its_text),
        cmocka_unit_test(wrong_configs),
        cmocka_unit_test(context_over_the_models),
        cmocka_unit_test(presets_build),
        cmocka_unit_test(graphs_survive_text),
    };
    return cmocka_run_group_tests(tests, scratch_make, scratch_end);
}
