/* cmd_tokenizer.c: `sinter tokenizer`: trains a vocabulary; converts text to ids and back. */
#include "model/commands/commands.h"

#include "runtime/file.h"
#include "model/text/generation_impl.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define NAME "sinter tokenizer"

typedef struct options {
    const char *action, *input, *output, *kind;
    int64_t vocab, min_count;
    bool unk, special, bos, eos;
} options;

#define AT(field) offsetof(options, field)
static const arg table[] = {
    {"ACTION", 0, ARG_PLACE, AT(action), "train|encode|decode", NULL, 0, 0,
     "train, encode or decode"},
    {"INPUT", 0, ARG_PLACE, AT(input), NULL, NULL, 0, 0,
     "train: text file, -: standard input; otherwise the tokenizer's folder or file"},
    {"output", 'o', ARG_TEXT, AT(output), "DIR", NULL, 0, 0, "train: output folder"},
    {"kind", 0, ARG_CHOICE, AT(kind), "bpe|word|char", "bpe", 0, 0, "train: kind of token"},
    {"vocab", 0, ARG_INT, AT(vocab), "N", "0", 0, 1 << 24,
     "train: maximum number of tokens; 0: 50257 for bpe, otherwise unlimited"},
    {"min-count", 0, ARG_INT, AT(min_count), "N", "0", 0, INT32_MAX,
     "train: minimum count of words or merges; 0: 1 for words, 2 for merges"},
    {"unk", 0, ARG_FLAG, AT(unk), NULL, NULL, 0, 0,
     "train: word and char: add a token for unknown text"},
    {"special", 0, ARG_FLAG, AT(special), NULL, NULL, 0, 0,
     "encode: recognise <|eos|> and the like as tokens; decode: print them"},
    {"bos", 0, ARG_FLAG, AT(bos), NULL, NULL, 0, 0, "encode: prepend the beginning-of-text token"},
    {"eos", 0, ARG_FLAG, AT(eos), NULL, NULL, 0, 0, "encode: append the end-of-text token"},
    {0},
};

static const arg_key keys[] = {{"kind", "text?", "train: kind of tokenizer"},
                               {"vocabulary", "integer?", "train: number of tokens in it"},
                               {"tokens", "integer?", "train: tokens of the text"},
                               {"bytes", "integer?", "train: bytes of the text"},
                               {"output", "text?", "train: the folder"},
                               {"ids", "list?", "encode: token ids"},
                               {"text", "text?", "decode: the text"},
                               {0}};

static const arg_command command = {
    NAME,
    "train a vocabulary; convert text to token ids and back",
    "train learns a vocabulary (byte-pair merges, words or characters) and writes the tokenizer\n"
    "files of a model folder. encode reads text from standard input and prints ids, decode does\n"
    "the reverse.\n",
    table,
    .examples = "sinter tokenizer train --kind bpe --vocab 4096 text.txt -o DIR\n"
                "echo 'To be or not to be' | sinter tokenizer encode DIR\n"
                "echo '12 7 301' | sinter tokenizer decode DIR\n",
    .json = keys};

static bool train(const options *o, sn_error *err) {
    static const char *const kinds[] = {"bpe", "word", "char"}; /* as sn_train_kind */
    if (!o->output) return sn_fail(err, SN_ERR_USAGE, "no output folder: give -o DIR");
    sn_train_options how = {
        .vocab_size = (int32_t)o->vocab, .min_count = (int32_t)o->min_count, .unk = o->unk};
    while (strcmp(kinds[how.kind], o->kind) != 0) how.kind++;
    size_t size = 0;
    char *text = sn_text_read(o->input, &size, err);
    if (!text) return false;
    bool ok = size > 0 || sn_fail(err, SN_ERR_FILE, "%s: the text is empty", o->input);
    sn_tokenizer *t = ok ? sn_tokenizer_train(&how, text, size, err) : NULL;
    sn_ids ids = {0};
    ok = t && sn_folder_make(o->output, err) && sn_tokenizer_save(t, o->output, err) &&
         sn_tokenizer_encode(t, text, size, 0, &ids, err);
    if (ok && sn_screen()->json) {
        json_out j = sn_json_begin(stdout);
        sn_json_text(&j, "kind", sn_tokenizer_kind(t));
        sn_json_integer(&j, "vocabulary", sn_tokenizer_vocab_size(t));
        sn_json_integer(&j, "tokens", (int64_t)ids.count);
        sn_json_integer(&j, "bytes", (int64_t)size);
        sn_json_text(&j, "output", o->output);
        sn_json_end(&j);
    } else if (ok)
        printf("kind             %s\nvocabulary       %d\ntokens           %zu\n"
               "bytes_per_token  %.3f\n",
               sn_tokenizer_kind(t), (int)sn_tokenizer_vocab_size(t), ids.count,
               ids.count ? (double)size / (double)ids.count : 0.0);
    if (ok && sn_tokenizer_vocab_size(t) < o->vocab)
        sn_screen_note(
            NAME,
            "%d tokens, fewer than --vocab %lld: the text has no more words or pairs that "
            "occur --min-count times",
            (int)sn_tokenizer_vocab_size(t), (long long)o->vocab);
    if (ok && how.kind != SN_TRAIN_BPE && !o->unk)
        sn_screen_note(
            NAME, "characters or words that are not in this text cannot be encoded; --unk adds "
                  "a token for them");
    if (ok) sn_screen_wrote(NAME, o->output);
    sn_ids_free(&ids);
    sn_tokenizer_free(t);
    free(text);
    return ok;
}

static bool encode(const options *o, sn_error *err) {
    size_t size = 0;
    sn_tokenizer *t = sn_tokenizer_load(o->input, err);
    char *text = t ? sn_text_read("-", &size, err) : NULL;
    sn_ids ids = {0};
    unsigned flags =
        (o->special ? SN_TOK_SPECIAL : 0) | (o->bos ? SN_TOK_BOS : 0) | (o->eos ? SN_TOK_EOS : 0);
    bool ok = text && sn_tokenizer_encode(t, text, size, flags, &ids, err);
    if (ok && sn_screen()->json) {
        json_out j = sn_json_begin(stdout);
        sn_json_ids(&j, "ids", ids.data, (int64_t)ids.count);
        sn_json_end(&j);
    }
    for (size_t i = 0; ok && i < ids.count && !sn_screen()->json; i++)
        printf(i ? " %d" : "%d", (int)ids.data[i]);
    if (ok && !sn_screen()->json) putchar('\n');
    sn_ids_free(&ids);
    free(text);
    sn_tokenizer_free(t);
    return ok;
}

static bool decode(const options *o, sn_error *err) {
    size_t size = 0;
    sn_tokenizer *t = sn_tokenizer_load(o->input, err);
    char *text = t ? sn_text_read("-", &size, err) : NULL;
    sn_ids ids = {0};
    sn_bytes out = {0};
    bool ok =
        text && sn_lm_read_ids(text, size, &ids, err) &&
        sn_tokenizer_decode(t, ids.data, ids.count, o->special ? SN_TOK_SPECIAL : 0, &out, err);
    if (ok && sn_screen()->json) {
        json_out j = sn_json_begin(stdout);
        sn_json_bytes(&j, "text", out.data ? out.data : "", out.size);
        sn_json_end(&j);
    } else if (ok)
        fwrite(out.data, 1, out.size, stdout);
    sn_bytes_free(&out);
    sn_ids_free(&ids);
    free(text);
    sn_tokenizer_free(t);
    return ok;
}

int cmd_tokenizer(int argc, char **argv) {
    static const struct {
        const char *name;
        bool (*run)(const options *, sn_error *);
    } actions[] = {{"train", train}, {"encode", encode}, {"decode", decode}, {NULL, NULL}};
    options o;
    int code = sn_args_parse(&command, argc, argv, &o);
    if (code != ARGS_RUN) return code;
    sn_error err = {0};
    int i = 0;
    while (actions[i].name && strcmp(actions[i].name, o.action) != 0) i++;
    if (!actions[i].name) {
        sn_fail(&err, SN_ERR_USAGE, "'%s': expected train, encode or decode", o.action);
        return cmd_fail(NAME, &err);
    }
    return actions[i].run(&o, &err) ? cmd_finish(NAME) : cmd_fail(NAME, &err);
}
