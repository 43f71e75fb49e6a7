/* Hugging Face's encoder-decoders as published: folders with config.json and safetensors, compared
 * with NumPy (tests/data/families/make_seq2seq_refs.py): hidden states and logits of two sources,
 * one of them padded, greedy tokens with caches, of two beams, and searches. Every graph by the evaluator,
 * and compiled (in the default run a sample, at level 4) at levels 4 and 0. */
#include "frontend/models.h"
#include "runtime/file.h"
#include "runtime/model_dir.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include "tests/e2e/family_folder.h"
#include "tests/support/compile_case.h"
#include "tests/support/effort.h"
#include "tests/support/model_case.h"
#include "tests/support/scratch.h"
#include "tests/support/text.h"
#include "model/translate.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char *const names[] = {"bart", "mbart",    "m2m_100", "marian", "marian_apart",
                                    "t5",   "t5_gated", "mt5",     "umt5",   "pegasus"};
enum { CASES = sizeof names / sizeof *names, BATCH = 2, MAX_TOKENS = 16, MAX_VOCAB = 32 };

typedef struct pair_case {
    const char *name;
    family_folder folder;
    int32_t source[BATCH * MAX_TOKENS], lengths[BATCH], tokens[BATCH * MAX_TOKENS];
    int32_t greedy[2 * MAX_TOKENS];
    int64_t S, T, n_greedy; /* greedy: the tokens, then what is added to them */
    sn_model model;
    int level;
} pair_case;

static int64_t read_list(const family_folder *f, const char *key, int32_t *out) {
    int64_t n = 0;
    const cJSON *item;
    cJSON_ArrayForEach(item, cJSON_GetObjectItem(f->json, key)) out[n++] = item->valueint;
    return n;
}

static void read_case(const char *name, sn_dtype t, pair_case *c) {
    *c = (pair_case){.name = name};
    family_read("seq2seq", name, t, &c->folder);
    c->S = read_list(&c->folder, "source", c->source);
    c->T = read_list(&c->folder, "tokens", c->tokens);
    assert_int_equal(read_list(&c->folder, "lengths", c->lengths), BATCH);
    memcpy(c->source + c->S, c->source, sizeof *c->source * (size_t)c->S);
    memcpy(c->tokens + c->T, c->tokens, sizeof *c->tokens * (size_t)c->T);
    memcpy(c->greedy, c->tokens, sizeof *c->tokens * (size_t)c->T);
    c->n_greedy = c->T + read_list(&c->folder, "greedy", c->greedy + c->T);
}

/* The outputs of both sources: by the session, or without one by the evaluator. */
static void check_both(pair_case *c, sn_session *session, model_case *evaluated) {
    const struct {
        const char *entry, *output;
        int64_t rows, width;
    } outputs[] = {{"forward", "logits", c->T, c->model.vocab},
                   {"encode", "hidden", c->S, c->model.d_model}};
    sn_arg_binding in[] = {SN_BIND("source", SN_I32, c->source, BATCH, c->S),
                           SN_BIND("lengths", SN_I32, c->lengths, BATCH),
                           SN_BIND("tokens", SN_I32, c->tokens, BATCH, c->T)};
    for (int k = 0; k < 2; k++) {
        int64_t rows = outputs[k].rows, width = outputs[k].width, n = BATCH * rows * width;
        const char *entry = outputs[k].entry, *output = outputs[k].output;
        float *got = malloc(sizeof *got * (size_t)n);
        double *exact = malloc(sizeof *exact * (size_t)n);
        assert_non_null(got);
        assert_non_null(exact);
        sn_arg_binding out = SN_BIND(output, SN_F32, got, BATCH, rows, width);
        sn_error err = {0};
        if (session)
            need(sn_run(session, entry, in, k ? 2 : 3, &out, 1, &err), &err);
        else
            case_evaluate(evaluated, entry, output, in, k ? 2 : 3, exact, n);
        for (int64_t i = 0; i < n && !session; i++) got[i] = (float)exact[i];
        for (int64_t i = 0; i < BATCH * rows; i++)
            if (!k || i % rows < c->lengths[i / rows]) {
                char where[100];
                snprintf(where, sizeof where, "%s, level %d, %s", c->name, c->level, entry);
                family_compare(&c->folder, output, i * width, width, got + i * width, where);
            }
        free(got);
        free(exact);
    }
}

/* -ln P of each target by the reference's logits; in the long run also its gradient. */
static void check_loss(pair_case *c, model_case *evaluated) {
    const int64_t T = c->T, V = c->model.vocab;
    int32_t targets[BATCH * MAX_TOKENS];
    double loss[BATCH * MAX_TOKENS];
    for (int64_t i = 0; i < BATCH * T; i++) targets[i] = (int32_t)((3 * i + 1) % V);
    sn_arg_binding in[] = {SN_BIND("source", SN_I32, c->source, BATCH, c->S),
                           SN_BIND("lengths", SN_I32, c->lengths, BATCH),
                           SN_BIND("tokens", SN_I32, c->tokens, BATCH, T),
                           SN_BIND("targets", SN_I32, targets, BATCH, T)};
    case_evaluate(evaluated, "loss", "loss", in, 4, loss, BATCH * T);
    const cJSON *item = cJSON_GetObjectItem(c->folder.json, "logits")->child;
    for (int64_t i = 0; i < BATCH * T; i++) {
        double sum = 0, of_target = 0;
        for (int64_t v = 0; v < V; v++, item = item->next) {
            sum += exp(item->valuedouble);
            if (v == targets[i]) of_target = item->valuedouble;
        }
        assert_true(fabs(loss[i] - (log(sum) - of_target)) < 1e-4);
    }
    if (!strcmp(c->name, "t5") && effort_is_long())
        case_check_grad(evaluated, "loss", "loss", in, 4);
}

static int best_of(const float *logits, int64_t n) {
    int best = 0;
    for (int i = 1; i < n; i++)
        if (logits[i] > logits[best]) best = i;
    return best;
}

/* Two beams of the first source: the given tokens, then greedy ones; the beams change places. */
static void check_cached(pair_case *c, sn_session *session) {
    const int64_t V = c->model.vocab;
    int32_t length = (int32_t)c->S, parents[BATCH] = {1, 0};
    float logits[BATCH * MAX_VOCAB];
    sn_error err = {0};
    assert_true(V <= MAX_VOCAB);
    sn_arg_binding in[] = {SN_BIND("source", SN_I32, c->source, 1, c->S),
                           SN_BIND("lengths", SN_I32, &length, 1)},
                   from = SN_BIND("parents", SN_I32, parents, BATCH),
                   out = SN_BIND("logits", SN_F32, logits, BATCH, V);
    need(sn_run(session, "prefill", in, 2, NULL, 0, &err), &err);
    for (int64_t past = 0; past < c->n_greedy - 1; past++) {
        int32_t other = past < 2 ? 3 : c->greedy[past]; /* the second beam begins differently */
        int32_t tokens[BATCH] = {c->greedy[past], other};
        bool changed = past > c->T / 2;
        if (changed) tokens[0] = other, tokens[1] = c->greedy[past];
        sn_arg_binding args[] = {SN_BIND("tokens", SN_I32, tokens, BATCH, 1),
                                 SN_BIND("lengths", SN_I32, &length, 1), SN_BIND_DIM("P", past),
                                 SN_BIND_DIM("S", c->S)};
        need(sn_run(session, "decode", args, 4, &out, 1, &err), &err);
        const float *row = logits + (changed ? V : 0);
        if (past < c->T) family_compare(&c->folder, "logits", past * V, V, row, c->name);
        if (past >= c->T - 1) assert_int_equal(best_of(row, V), c->greedy[past + 1]);
        if (past == c->T / 2) need(sn_run(session, "reorder", &from, 1, NULL, 0, &err), &err);
    }
}

/* The graph's own value: what it means, whatever it is compiled to. */
static void check_graph(pair_case *c, const sn_model_dir *dir) {
    sn_error err = {0};
    const sn_model_options o = {.entries = SN_FORWARD | SN_ENCODE | SN_LOSS,
                                .weights = dir->weights};
    need(sn_model_build(dir->config, &o, &c->model, &err), &err);
    model_case evaluated = {.model = c->model};
    for (size_t i = 0; i < c->folder.n_tensor; i++) {
        const sn_weight *w = &c->folder.tensor[i];
        evaluated.param[evaluated.n_param++] =
            (sn_arg_binding){w->name, SN_F32, w->rank, w->shape, c->folder.value[i]};
    }
    case_size(&evaluated, "B", BATCH);
    case_size(&evaluated, "S", c->S);
    case_size(&evaluated, "T", c->T);
    c->level = -1;
    check_both(c, NULL, &evaluated);
    check_loss(c, &evaluated);
    sn_module_free(c->model.module);
}

static void check_level(pair_case *c, const sn_model_dir *dir, int level, bool compiled) {
    sn_error err = {0};
    sn_model_options o = {
        .entries = SN_FORWARD | SN_ENCODE | SN_CACHED, .weights = dir->weights, .beams = BATCH};
    if (!sn_model_build(dir->config, &o, &c->model, &err) ||
        !sn_model_takes_all(&c->model, dir->weights, &err))
        fail_msg("%s: %s", c->name, err.message);
    const char *unknown = sn_model_unknown_key(dir->config, 0);
    if (unknown) fail_msg("%s: the key \"%s\" is not read", c->name, unknown);
    c->level = level;
    if (compiled) {
        sn_options how = {.level = level, .threads = 1};
        sn_program *p = sn_compile(c->model.module, &how, &err);
        need(p, &err);
        sn_session *session = sn_session_new(p, dir->weights, &err);
        need(session, &err);
        check_both(c, session, NULL);
        check_cached(c, session);
        sn_session_free(session);
        sn_program_free(p);
    }
    sn_module_free(c->model.module);
}

typedef struct family_case {
    const char *name;
    bool compiled, unfused;
    size_t number;
} family_case;

static void run_case(void **state) {
    static const sn_dtype dtypes[] = {SN_F32, SN_BF16, SN_F16};
    const family_case *f = *state;
    pair_case c;
    sn_error err = {0};
    assert_int_equal(scratch_make(NULL), 0);
    read_case(f->name, dtypes[f->number % 3], &c);
    family_write(scratch_dir, &c.folder, f->number % 2);
    sn_model_dir *dir = sn_model_dir_open(scratch_dir, &err);
    need(dir, &err);
    check_graph(&c, dir);
    check_level(&c, dir, 4, f->compiled);
    if (f->unfused) check_level(&c, dir, 0, true);
    sn_model_dir_close(dir);
    family_free(&c.folder);
    scratch_end(NULL);
}

/* ---- searches by generation_config.json ---- */

static void check_search(const pair_case *c, const cJSON *item) {
    sn_error err = {0};
    char *text = cJSON_Print(cJSON_GetObjectItem(item, "generation"));
    family_write_file(scratch_dir, "generation_config.json", text);
    open_options o = {.path = scratch_dir, .entries = SN_CACHED, .translates = true};
    o.compile = (sn_options){.level = 4, .threads = 1};
    open_model *m = lm_open(&o, &err);
    need(m, &err);
    sn_ids got = {0};
    const seq2seq_options how = {.length_penalty = NAN};
    need(translate(m, c->source, c->S, &how, &got, NULL, &err), &err);
    const cJSON *want = cJSON_GetObjectItem(item, "result");
    bool same = (int)got.count == cJSON_GetArraySize(want);
    for (size_t i = 0; same && i < got.count; i++)
        same = cJSON_GetArrayItem(want, (int)i)->valueint == got.data[i];
    for (size_t i = 0; !same && i < got.count; i++) print_error("%d ", got.data[i]);
    if (!same) fail_msg("%s: not the tokens of %s", c->name, text);
    sn_ids_free(&got);
    model_close(m);
    cJSON_free(text);
}

static void searches(void **state) {
    (void)state;
    pair_case c;
    assert_int_equal(scratch_make(NULL), 0);
    read_case("bart", SN_F32, &c);
    family_write(scratch_dir, &c.folder, false);
    const cJSON *item, *list = cJSON_GetObjectItem(c.folder.json, "searches");
    assert_true(cJSON_GetArraySize(list) >= 5);
    cJSON_ArrayForEach(item, list) check_search(&c, item);
    family_free(&c.folder);
    scratch_end(NULL);
}

/* Values of generation_config.json: in its range or out of it; rules that are not supported, unless they have no
 * effect. */
static void rules(void **state) {
    (void)state;
    static const struct {
        const char *key, *taken[4], *wrong[6];
    } rows[] = {
        {"num_beams", {"0", "4", "null"}, {"\"4\"", "-1", "1.5"}},
        {"max_length", {"20"}, {"-1", "[]"}},
        {"min_length", {"0"}, {"true"}},
        {"max_new_tokens", {"1"}, {"1e10"}},
        {"min_new_tokens", {"1"}, {"{}"}},
        {"length_penalty", {"0", "100", "1.5"}, {"-2", "100.5", "\"1\""}},
        {"early_stopping", {"true", "false", "\"never\""}, {"3", "\"always\""}},
        {"decoder_start_token_id", {"2", "[2, 3]"}, {"-1", "\"2\"", "2.5"}},
        {"eos_token_id", {"2", "[2]", "null"}, {"-2", "[-2]"}},
        {"forced_bos_token_id", {"0"}, {"-1"}},
        {"forced_eos_token_id", {"0"}, {"-1"}},
        {"no_repeat_ngram_size", {"3"}, {"-3"}},
        {"repetition_penalty", {"0.01", "2"}, {"0", "101"}},
        {"suppress_tokens", {"[]", "[1, 2]"}, {"3", "[1, -1]", "[\"a\"]", "[1.5]"}},
        {"begin_suppress_tokens", {"[1]"}, {"{}", "[1, 1e10]"}},
        {"bad_words_ids", {"[[1], [1, 2]]", "[]"}, {"[3]", "[[]]", "[[1, -1]]", "[[1], [\"a\"]]"}},
        {"encoder_no_repeat_ngram_size", {"0", "null"}, {"1", "\"0\"", "false"}},
        {"encoder_repetition_penalty", {"1", "1.0"}, {"0", "2"}},
        {"num_beam_groups", {"1"}, {"2", "0"}},
        {"diversity_penalty", {"0.0"}, {"0.5"}},
        {"exponential_decay_length_penalty", {"null"}, {"[5, 1.1]", "0", "1"}},
        {"force_words_ids", {"null"}, {"[[3]]", "[]"}},
        {"sequence_bias", {"null"}, {"[]", "0"}},
        {"guidance_scale", {"1", "null"}, {"1.5", "0"}}};
    assert_int_equal(scratch_make(NULL), 0);
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        for (int k = 0; k < 10; k++) {
            const char *value = k < 4 ? rows[i].taken[k] : rows[i].wrong[k - 4];
            char text[200], named[80];
            sn_token_rules r;
            sn_error err = {0};
            if (!value) continue;
            snprintf(text, sizeof text, "{\"%s\": %s}", rows[i].key, value);
            snprintf(named, sizeof named, "generation_config.json: \"%s\" is not ", rows[i].key);
            family_write_file(scratch_dir, "generation_config.json", text);
            if (sn_token_rules_read(&r, scratch_dir, &err) != (k < 4)) fail_msg("%s", text);
            if (k >= 4 && !strstr(err.message, named)) fail_msg("%s: %s", text, err.message);
            if (k < 4) sn_token_rules_free(&r);
        }
    scratch_end(NULL);
}

/* ---- what does not fit ---- */

/* The message of what does not fit, or of the first unread key. */
static void open_changed(const pair_case *c, sn_error *err) {
    *err = (sn_error){0};
    assert_int_equal(scratch_make(NULL), 0);
    family_write(scratch_dir, &c->folder, false);
    sn_model_dir *dir = sn_model_dir_open(scratch_dir, err);
    need(dir, err);
    sn_model model = {0};
    sn_model_options o = {.entries = SN_FORWARD, .weights = dir->weights};
    if (sn_model_build(dir->config, &o, &model, err) &&
        sn_model_takes_all(&model, dir->weights, err)) {
        const char *unread = sn_model_unknown_key(dir->config, 0);
        sn_options how = {.level = 4, .threads = 1};
        sn_program *p = unread ? NULL : sn_compile(model.module, &how, err);
        sn_session *session = p ? sn_session_new(p, dir->weights, err) : NULL;
        if (unread) sn_fail(err, SN_ERR_FILE, "not read: %s", unread);
        sn_session_free(session);
        sn_program_free(p);
    }
    sn_module_free(model.module);
    sn_model_dir_close(dir);
    scratch_end(NULL);
}

static void wrong_configs(void **state) {
    (void)state;
    static const struct {
        const char *name, *key, *json, *why;
    } rows[] = {
        {"bart", "model_type", "\"bort\"", "the nearest is bart"},
        {"bart", "model_type", "\"mbart\"", "layer_norm"},
        {"mbart", "model_type", "\"bart\"", "normalize_before"},
        {"pegasus", "model_type", "\"marian\"", "normalize_before"},
        {"bart", "static_position_embeddings", "true", "static_position_embeddings"},
        {"bart", "activation_function", "\"tanh\"", "activation_function"},
        {"bart", "encoder_attention_heads", "3", "does not divide"},
        {"bart", "add_bias_logits", "true", "add_bias_logits"},
        {"bart", "new_key", "1", "not read: new_key"},
        {"bart", "decoder_ffn_dim", "25", "decoder.layers.0.fc1"},
        {"marian", "decoder_vocab_size", "19", "decoder_vocab_size"},
        {"marian_apart", "share_encoder_decoder_embeddings", "true", "decoder_vocab_size"},
        {"m2m_100", "model_type", "\"marian\"", "layer_norm"},
        {"t5", "feed_forward_proj", "\"gated-gelu\"", "no parameters"},
        {"t5", "feed_forward_proj", "\"tanh\"", "feed_forward_proj"},
        {"t5", "relative_attention_num_buckets", "6", "buckets"},
        {"t5", "relative_attention_max_distance", "4", "buckets"},
        {"umt5", "model_type", "\"t5\"", "relative_attention_bias"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        pair_case c;
        sn_error err;
        read_case(rows[i].name, SN_F32, &c);
        family_set_key(&c.folder, rows[i].key, rows[i].json);
        open_changed(&c, &err);
        if (!strstr(err.message, rows[i].why))
            fail_msg("%s, %s: wanted '%s' in: %s", rows[i].name, rows[i].key, rows[i].why,
                     err.message);
        family_free(&c.folder);
    }
}

/* Missing, renamed and misshapen tensors are errors; copies of the token table are not. */
static void wrong_tensors(void **state) {
    (void)state;
    pair_case c;
    sn_error err;
    read_case("t5", SN_F32, &c);
    sn_weight *w = c.folder.tensor, *last = &w[c.folder.n_tensor - 1];
    const char *name = w[3].name;
    c.folder.n_tensor--; /* one is missing */
    open_changed(&c, &err);
    assert_non_null(strstr(err.message, last->name));
    c.folder.n_tensor++;
    w[3].name = "encoder.block.0.layer.0.SelfAttention.z.weight";
    open_changed(&c, &err); /* one has another name */
    assert_non_null(strstr(err.message, "SelfAttention.z"));
    w[3].name = name;
    w[c.folder.n_tensor] = w[0]; /* the table twice, as some programs save it */
    w[c.folder.n_tensor++].name = "decoder.embed_tokens.weight";
    open_changed(&c, &err);
    assert_string_equal(err.message, "");
    w[c.folder.n_tensor - 1].data = last->data; /* another table */
    w[c.folder.n_tensor - 1].shape[0] = 1;
    w[c.folder.n_tensor - 1].bytes = (size_t)w[0].shape[1] * 4;
    open_changed(&c, &err);
    assert_non_null(strstr(err.message, "decoder.embed_tokens.weight"));
    c.folder.n_tensor--;
    family_free(&c.folder);
}

/* Writes a model and the files of its tokenizers (tests/data/tokenizers/classes.json). */
static int write_folder(const char *name, const char *class, const char *dir) {
    static const char generation[] =
        "{\"num_beams\": 2, \"max_length\": 9, \"no_repeat_ngram_size\": 2, "
        "\"decoder_start_token_id\": 1, \"eos_token_id\": 0}";
    family_folder f;
    family_read("seq2seq", name, SN_F32, &f);
    family_write(dir, &f, false);
    family_free(&f);
    family_write_file(dir, "generation_config.json", generation);
    char path[600], *text = file_text(SN_SOURCE_DIR "/tests/data/tokenizers/classes.json");
    cJSON *all = cJSON_Parse(text);
    free(text);
    const cJSON *c;
    cJSON_ArrayForEach(c, all) {
        if (strcmp(cJSON_GetObjectItem(c, "class")->valuestring, class) != 0) continue;
        sn_mapping map;
        snprintf(path, sizeof path, SN_SOURCE_DIR "/tests/data/tokenizers/pieces/%s.model",
                 cJSON_GetObjectItem(c, "model")->valuestring);
        assert_true(sn_file_map(path, &map, NULL));
        snprintf(path, sizeof path, "%s/%s", dir, cJSON_GetObjectItem(c, "file")->valuestring);
        assert_true(sn_file_save(path, map.data, map.size, NULL));
        sn_file_unmap(&map);
        text = cJSON_Print(cJSON_GetObjectItem(c, "vocab"));
        family_write_file(dir, "vocab.json", text);
        cJSON_free(text);
    }
    cJSON_Delete(all);
    return 0;
}

/* [NAME]: only this case, compiled too; write NAME CLASS DIR: only makes a model folder. */
int main(int argc, char **argv) {
    if (argc == 5) return write_folder(argv[2], argv[3], argv[4]);
    static struct CMUnitTest tests[CASES + 4];
    static family_case cases[CASES];
    size_t tested = 0;
    for (size_t i = 0; i < CASES; i++) {
        bool one = argc > 1;
        cases[i] = (family_case){names[i], one || effort_takes(i, 5), one || effort_is_long(), i};
        if (argc > 1 && strcmp(argv[1], names[i]) != 0) continue;
        tests[tested++] = (struct CMUnitTest){names[i], run_case, NULL, NULL, &cases[i]};
    }
    if (argc < 2) {
        tests[tested++] = (struct CMUnitTest)cmocka_unit_test(searches);
        tests[tested++] = (struct CMUnitTest)cmocka_unit_test(rules);
        tests[tested++] = (struct CMUnitTest)cmocka_unit_test(wrong_configs);
        tests[tested++] = (struct CMUnitTest)cmocka_unit_test(wrong_tensors);
    }
    return tested ? _cmocka_run_group_tests("seq2seq", tests, tested, cc_begin, cc_end) : 1;
}
