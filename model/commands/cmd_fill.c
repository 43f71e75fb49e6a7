/* cmd_fill.c: `sinter fill`: predicts the most likely tokens for every mask in a text [PH22 A9,
 * A12]. */
#include "model/commands/commands.h"
#include "model/sample.h"
#include "model/encoder.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define NAME "sinter fill"

typedef struct options {
    cmd_model model;
    cmd_compile compile;
    const char *text;
    int64_t top, mask;
} options;

#define AT(field) offsetof(options, field)
static const arg table[] = {
    CMD_MODEL_ARGS(options),
    {"prompt", 'p', ARG_TEXT, AT(text), "TEXT", NULL, 0, 0,
     "a text with masks: \"the [MASK] sat\""},
    {"top", 'n', ARG_INT, AT(top), "N", "5", 1, 1 << 20, "number of tokens per mask"},
    {"mask", 0, ARG_INT, AT(mask), "ID", "auto", 0, INT32_MAX,
     "id of the mask token; auto: the tokenizer's"},
    CMD_COMPILE_ARGS(options),
    CMD_CHECK_NAN_ARG(options),
    {0},
};

static const arg_key keys[] = {
    {"position", "integer", "of the mask: number of its token, from 0"},
    {"tokens", "list", "the likeliest first"},
    {"tokens[].id", "integer", "token id"},
    {"tokens[].text", "text", "its text; empty for models without a tokenizer"},
    {"tokens[].p", "number", "its probability"},
    {0}};

static const arg_command command = {
    NAME,
    "predict the most likely tokens for the masks in a text",
    "For BERT models with a masked-language-model head. Prints a paragraph per mask, with a line\n"
    "for each token and its probability.\n",
    table,
    .examples = "sinter fill MODEL -p \"Paris is the [MASK] of France.\"\n",
    .json = keys};

static bool find_mask(const open_model *m, const options *o, int32_t *mask, sn_error *err) {
    *mask = o->mask >= 0       ? (int32_t)o->mask
            : m->io->tokenizer ? sn_tokenizer_special(m->io->tokenizer, SN_TOKEN_MASK)
                               : -1;
    return *mask >= 0 ||
           sn_fail(err, SN_ERR_USAGE,
                   m->io->tokenizer ? "the vocabulary has no mask token: there is nothing to fill"
                                    : "a model without a tokenizer needs --mask ID");
}

static void print_top(const open_model *m, size_t position, float *p, int64_t vocab, int64_t top) {
    const bool json = sn_screen()->json;
    json_out j;
    sn_sample_softmax(p, vocab);
    if (json) {
        j = sn_json_begin(stdout);
        sn_json_integer(&j, "position", (int64_t)position);
        sn_json_list(&j, "tokens");
    }
    for (int64_t i = 0; i < top && i < vocab; i++) {
        size_t best = sn_sample_largest(p, (size_t)vocab), size;
        const char *text =
            m->io->tokenizer ? sn_tokenizer_text(m->io->tokenizer, (int32_t)best, &size) : NULL;
        if (json) {
            sn_json_object(&j, NULL);
            sn_json_integer(&j, "id", (int64_t)best);
            sn_json_text(&j, "text", text ? text : "");
            sn_json_number(&j, "p", p[best]);
            sn_json_close(&j);
        } else
            printf("%.5f  %d  %s\n", p[best], (int)best, text ? text : "");
        p[best] = -1;
    }
    if (json) sn_json_end(&j);
}

static bool fill(open_model *m, const options *o, sn_error *err) {
    int32_t mask;
    sn_ids ids = {0};
    float *logits = NULL;
    int64_t each, masks = 0;
    if (!o->text) return sn_fail(err, SN_ERR_USAGE, "no text: give it with --prompt");
    if (m->model.labels)
        return sn_fail(err, SN_ERR_USAGE, "this model is a classifier: use sinter classify");
    bool ok = find_mask(m, o, &mask, err) && encoder_read(m, o->text, strlen(o->text), &ids, err) &&
              encoder_run(m, "forward", "logits", &ids, NULL, 1, &logits, &each, NULL, err);
    for (size_t i = 0; ok && i < ids.count; i++) {
        if (ids.data[i] != mask) continue;
        if (masks++ && !sn_screen()->json) putchar('\n');
        print_top(m, i, logits + (int64_t)i * m->model.vocab, m->model.vocab, o->top);
    }
    if (ok && !masks)
        ok = sn_fail(err, SN_ERR_USAGE, "the text contains no mask token (id %d)", (int)mask);
    sn_ids_free(&ids);
    free(logits);
    return ok;
}

int cmd_fill(int argc, char **argv) {
    options o = {0};
    int code = sn_args_parse(&command, argc, argv, &o);
    if (code != ARGS_RUN) return code;
    sn_error err = {0};
    open_model *m = cmd_open(NAME, &o.model, &o.compile, CMD_ENCODER(SN_FORWARD, "forward"), &code);
    if (!m) return code;
    code = fill(m, &o, &err) ? cmd_finish(NAME) : cmd_fail(NAME, &err);
    model_close(m);
    return code;
}
