/* tiny.c: models of each kind that `sinter quantize` takes. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include "tests/support/scratch.h"
#include "tests/model/quantise/tiny.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---- tiny models of each kind ---- */

#define LETTERS                                                                                    \
    "{\"model\": {\"type\": \"BPE\", \"vocab\": {\"a\": 0, \"b\": 1, \"c\": 2, \"d\": 3, "         \
    "\"e\": 4, \"f\": 5, \"g\": 6, \"h\": 7, \"i\": 8, \"j\": 9}, \"merges\": []}}"

static const struct {
    const char *name, *config, *tokenizer, *tokens, *text, *target;
} kinds[KINDS] = {
    [LLAMA] =
        {"llama",
         "{\"model_type\": \"llama\", \"vocab_size\": 40, \"max_position_embeddings\": 32, "
         "\"hidden_size\": 32, \"intermediate_size\": 64, \"num_hidden_layers\": 1, "
         "\"num_attention_heads\": 2, \"num_key_value_heads\": 1, \"head_dim\": 32}",
         "tokenizer.json", LETTERS,
         "abcdefghijabacadaeafagahaiajbabcbdbebfbgbhbibjcacbcdcecfcgchcicjdadbdcdedfdgdhdidjea"
         "ebeceedfe"},
    [GPT2] = {"gpt2",
              "{\"model_type\": \"gpt2\", \"vocab_size\": 40, \"n_positions\": 32, "
              "\"n_embd\": 32, \"n_layer\": 1, \"n_head\": 2}",
              "tokenizer.json", LETTERS, "abcdefghijabacadaeafagahaiajbabcbdbebfbgbhbib"},
    [PHI3] = {"phi3",
              "{\"model_type\": \"phi3\", \"vocab_size\": 40, \"max_position_embeddings\": 32, "
              "\"hidden_size\": 32, \"intermediate_size\": 64, \"num_hidden_layers\": 1, "
              "\"num_attention_heads\": 4, \"num_key_value_heads\": 4}",
              "tokenizer.json", LETTERS, "abcdefghijabacadaeafagahaiajbabcbdbebfbgbhbib"},
    [BERT] = {"bert",
              "{\"model_type\": \"bert\", \"vocab_size\": 40, \"max_position_embeddings\": 32, "
              "\"hidden_size\": 32, \"intermediate_size\": 64, \"num_hidden_layers\": 1, "
              "\"num_attention_heads\": 2}",
              "vocab.txt", "[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\na\nb\nc\nd\n",
              "a b c d\n\nb c d\r\nc\nd a\r\n\r\na b a b\nd c b\nb b\na c\na a a\n"
              "a b c d a b c d a b c d a b c d a b c d a b c d a b c d a b c d a b c d\nc d d\nb"},
    [EDT] = {"edt",
             "{\"model_type\": \"edt\", \"vocab_size\": 40, \"max_position_embeddings\": 12, "
             "\"d_model\": 32, \"ffn_dim\": 64, \"encoder_layers\": 1, \"decoder_layers\": 1, "
             "\"attention_heads\": 2, \"eos_token_id\": 9, \"decoder_start_token_id\": 8}",
             "tokenizer.json", LETTERS,
             "abc\nbc\n\nde\nabcdefghabcdefgh\na\r\nefab\nghab\nc\nd\nfg\nha\n",
             "cd\ne\nf\n\nabcdefgh\nbcj\ncde\nabcdefghabcdefgh\nhgf\nga\nabcdef\nb"}};

static bool note_show(void *ctx, const char *what, double done) {
    tiny *t = ctx;
    assert_true(*what && done >= 0 && done <= 1);
    return !t->stop;
}

static void note_line(void *ctx, const char *text) {
    tiny *t = ctx;
    size_t n = strlen(t->lines);
    assert_true(n + strlen(text) + 2 < sizeof t->lines);
    sprintf(t->lines + n, "%s\n", text);
}

subject_options tiny_options(const char *root, kind k) {
    static char path[KINDS][512];
    snprintf(path[k], sizeof path[k], "%s/%s", root, kinds[k].name);
    subject_options o = {.command = "test",
                         .path = path[k],
                         .text = {"text", kinds[k].text, strlen(kinds[k].text)},
                         .tokens = 1 << 20,
                         .window = 8,
                         .compile = sn_options_default()};
    if (kinds[k].target)
        o.target = (subject_file){"target", kinds[k].target, strlen(kinds[k].target)};
    o.compile.threads = 1;
    o.compile.weights = "f32";
    return o;
}

void tiny_make(const char *root, kind k, model_case *c) {
    sn_error err = {0};
    sn_weight w[CASE_PARAM];
    char file[600];
    const char *folder = tiny_options(root, k).path;
    case_open(c, kinds[k].config, 0);
    for (int i = 0; i < c->n_param; i++) {
        const sn_arg_binding *p = &c->param[i];
        const bool vector = p->rank == 1;
        w[i] = (sn_weight){
            .name = p->name, .dtype = SN_F32, .rank = p->rank, .data = p->data, .bytes = 4};
        for (int a = 0; a < p->rank; a++) {
            w[i].shape[a] = p->shape[a];
            w[i].bytes *= (size_t)p->shape[a];
        }
        float *x = (float *)p->data + (vector ? 5 : 7 % p->shape[0] * p->shape[1]);
        for (int64_t j = 0; j < (vector ? 1 : p->shape[1]); j++) x[j] *= 8;
    }
    sn_config *config = sn_config_parse("config", kinds[k].config, strlen(kinds[k].config), &err);
    need(config && sn_model_dir_save(folder, config, w, (size_t)c->n_param, &err), &err);
    sn_config_free(config);
    snprintf(file, sizeof file, "%s/%s", folder, kinds[k].tokenizer);
    assert_true(scratch_write(file, kinds[k].tokens, strlen(kinds[k].tokens)));
}

void tiny_open(tiny *t, const char *root, kind k) {
    sn_error err = {0};
    memset(t, 0, sizeof *t);
    t->progress = (subject_progress){note_show, note_line, t};
    tiny_make(root, k, &t->model);
    const subject_options o = tiny_options(root, k);
    need(subject_open(&t->s, &o, &err), &err);
}

void tiny_close(tiny *t) {
    subject_close(&t->s);
    case_close(&t->model);
}

float tiny_noise(uint32_t i) {
    i = i * 2654435761u + 12345u;
    i ^= i >> 15;
    i *= 2246822519u;
    return (float)(i >> 8) * 0x1p-23f - 1;
}

void expect_close(double got, double want, double part, const char *what) {
    if (!(fabs(got - want) <= part * fabs(want))) fail_msg("%s: %.9g, not %.9g", what, got, want);
}
