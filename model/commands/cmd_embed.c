/* cmd_embed.c: `sinter embed`: embeddings of sentences and images, and their similarity. */
#include "model/commands/commands.h"
#include "ir/ir.h"
#include "model/sentence_batch.h"
#include "model/cli/embed.h"

#define NAME "sinter embed"

typedef struct options {
    cmd_model model;
    cmd_compile compile;
    embed_options embed;
    int64_t batch;
} options;

#define AT(field) offsetof(options, field)
static const arg table[] = {
    CMD_MODEL_ARGS(options),
    EMBED_ARGS(options),
    {"image", 'i', ARG_TEXTS, AT(embed.images), "FILE", NULL, 0, 0,
     "a picture (PNG, JPEG), for a model that takes images; may be repeated; with --file: rank its "
     "lines by similarity to it"},
    {"batch", 'b', ARG_INT, AT(batch), "N", "32", 1, 1024,
     "the most sentences computed at a time; the results are the same for any"},
    CMD_COMPILE_ARGS(options),
    CMD_CHECK_NAN_ARG(options),
    {0},
};

static const arg_command command = {
    NAME,
    "embeddings of sentences and images; rank sentences by similarity",
    "An embedding is the mean of an encoder's last hidden states over the sentence's tokens, "
    "scaled\n"
    "to norm 1, or what the folder's modules.json says; of an image, what its model makes of it "
    "(the\n"
    "class token, or CLIP's projection). Prints a line of numbers per input, unless similarities\n"
    "(cosines) are requested. If sentences are ranked and the model has prompts called query, and\n"
    "document or passage, these precede the sentence and the lines.\n",
    table,
    .examples = "sinter embed MODEL -f sentences.txt --json\n"
                "sinter embed MODEL -p \"a rider on a horse\" -f sentences.txt\n"
                "sinter embed CLIP -i photo.jpg -f captions.txt\n",
    .json = sn_embed_keys};

typedef struct opened {
    open_model *m;
    int64_t batch;
} opened;

static bool embed_texts(void *model, const sn_ids *text, int64_t n, sentence_advance *advance,
                        void *ctx, float **out, int64_t *width, int64_t *done, sn_error *err) {
    const opened *e = model;
    return sentence_embed_texts(e->m, text, n, e->batch, advance, ctx, out, width, done, err);
}

static bool embed_image(void *model, const char *path, float **out, int64_t *width, sn_error *err) {
    return encoder_embed_image(((const opened *)model)->m, path, out, width, err);
}

static bool embed_all(opened *e, embed_job *j, sn_error *err) {
    sentence_settings s = {0};
    if (j->texts && !sn_entry_get(e->m->model.module, "embed"))
        return sn_fail(err, SN_ERR_USAGE, "%s models do not read texts", e->m->model.type);
    bool ok = sentence_settings_of(e->m, &s, err) &&
              sn_embed_run(j, &(embed_model){e, &s, embed_texts, embed_image}, err);
    sn_sentence_close(&s);
    return ok;
}

int cmd_embed(int argc, char **argv) {
    options o = {0};
    int code = sn_args_parse(&command, argc, argv, &o);
    if (code != ARGS_RUN) return code;
    sn_error err = {0};
    embed_job j;
    opened e = {.batch = o.batch};
    bool ok = sn_embed_begin(&j, &o.embed, &err);
    const char *needs = o.embed.images.n ? "embed_image" : "embed";
    if (ok) e.m = cmd_open(NAME, &o.model, &o.compile, CMD_ENCODER(SN_EMBED, needs), &code);
    if (!ok) code = cmd_fail(NAME, &err);
    if (e.m) code = embed_all(&e, &j, &err) ? cmd_finish(NAME) : cmd_fail(NAME, &err);
    sn_embed_end(&j);
    model_close(e.m);
    return code;
}
