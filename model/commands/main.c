/* main.c: the program `sinter` with the library of models: their commands, and what they add to
 * `sinter compile`: what NAME.h says of tokens, pictures and class names; tokenizers beside a
 * program; training steps. */
#include "model/commands/commands.h"
#include "model/encoder.h"
#include "model/train/train.h"
#include "runtime/file.h"
#include "runtime/files/gguf.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

/* ---- tokenizers beside a program ---- */

/* Copies from/name, if it exists, into the folder; *copied (or NULL) is set if so. */
static bool copy_file(const char *folder, const char *from, const char *name, bool *copied,
                      sn_error *err) {
    if (!sn_folder_has(from, name)) return true;
    char *source = sn_path_join(from, name), *target = sn_path_join(folder, name);
    bool ok = source && target ? sn_file_copy(from, source, target, err)
                               : sn_fail(err, SN_ERR_MEMORY, "out of memory");
    if (copied) *copied = true;
    free(source);
    free(target);
    return ok;
}

/* The files of a tokenizer: one of `kinds` and, of a SentencePiece model, what is beside it. */
static bool copy_files(const char *folder, const char *from, const char *only, bool *copied,
                       sn_error *err) {
    static const char *const kinds[] = {"tokenizer.tables", "tokenizer.json",
                                        "tokenizer.model",  "sentencepiece.bpe.model",
                                        "spiece.model",     "spm.model",
                                        "source.spm",       "target.spm"},
                             *const beside[] = {"vocab.json", "target_vocab.json",
                                                "added_tokens.json", "special_tokens_map.json",
                                                "config.json"};
    size_t kind = 0, n = sizeof kinds / sizeof *kinds;
    bool ok = true;
    for (; ok && kind < n && !*copied; kind++)
        if (!only || !strcmp(only, kinds[kind]))
            ok = copy_file(folder, from, kinds[kind], copied, err);
    bool pieces = *copied && kind > 2;
    for (size_t i = 0; ok && pieces && i < sizeof beside / sizeof *beside; i++)
        ok = copy_file(folder, from, beside[i], NULL, err);
    return ok && (!*copied || copy_file(folder, from, "tokenizer_config.json", NULL, err));
}

/* The chat template of a GGUF file, if it has one, as chat_template.jinja. */
static bool save_template(const char *folder, const char *gguf, sn_error *err) {
    const char *text = NULL;
    size_t at = 0, size;
    sn_gguf *g = sn_gguf_open(gguf, err);
    bool has = g && sn_gguf_string(sn_gguf_find(g, "tokenizer.chat_template"), &at, &text, &size);
    char *path = has ? sn_path_join(folder, "chat_template.jinja") : NULL;
    bool ok = path ? sn_file_save(path, text, size, err) : g && !has;
    if (has && !path) sn_fail(err, SN_ERR_MEMORY, "out of memory");
    free(path);
    sn_gguf_close(g);
    return ok;
}

/* Tables, and beside them the chat template: of the GGUF file `from`, or what lies in `parent`. */
static bool save_tables(const char *folder, const sn_tokenizer *t, const char *from,
                        const char *parent, sn_error *err) {
    if (!sn_tokenizer_save_tables(t, folder, err)) return false;
    if (sn_gguf_is_file(from)) return save_template(folder, from, err);
    return copy_file(folder, parent, "tokenizer_config.json", NULL, err) &&
           copy_file(folder, parent, "chat_template.jinja", NULL, err);
}

/* Copies of the files that t was loaded from, or new ones. */
static bool save_copies(const char *folder, const sn_tokenizer *t, const char *from,
                        const char *parent, const char *only, sn_error *err) {
    bool copied = false, ok = copy_files(folder, parent, only, &copied, err);
    if (!ok || copied) return ok;
    if (!sn_gguf_is_file(from)) return sn_tokenizer_save(t, folder, err);
    char *to = sn_path_join(folder, "tokenizer.gguf");
    ok = to ? sn_gguf_save_keys(from, to, err) : sn_fail(err, SN_ERR_MEMORY, "out of memory");
    free(to);
    return ok;
}

/* Makes a folder from which sn_tokenizer_load reads t: tables, or copies of the files that it was
 * loaded from (`from`: a folder, a file or a GGUF file), or new ones. Load prefers old tables. */
static bool save_files(const char *folder, const sn_tokenizer *t, const char *from, bool tables,
                       sn_error *err) {
    struct stat st;
    const char *slash = strrchr(from, '/');
    bool is_folder = stat(from, &st) == 0 && S_ISDIR(st.st_mode);
    char *parent = is_folder ? strdup(from)
                   : slash   ? strndup(from, (size_t)(slash - from))
                             : strdup("."),
         *old = sn_path_join(folder, "tokenizer.tables");
    bool ok = (parent && old) || sn_fail(err, SN_ERR_MEMORY, "out of memory");
    ok = ok && sn_folder_make(folder, err);
    if (ok && !tables) remove(old);
    const char *name = is_folder ? NULL : slash ? slash + 1 : from;
    ok = ok && (tables ? save_tables(folder, t, from, parent, err)
                       : save_copies(folder, t, from, parent, name, err));
    free(parent);
    free(old);
    return ok;
}

/* The folder NAME.ending next to the program, with the tokenizer and what says how to use it. */
static bool save_tokenizer(const open_model *m, const sn_tokenizer *t, const char *from,
                           const char *dir, const char *name, const char *ending, bool tables,
                           sn_error *err) {
    char part[96];
    const char *model = m->folder;
    snprintf(part, sizeof part, "%s%s", name, ending);
    char *folder = t ? sn_path_join(dir, part) : NULL;
    if (!folder) return !t || sn_fail(err, SN_ERR_MEMORY, "out of memory");
    static const char *const settings[] = {
        "generation_config.json", "config_sentence_transformers.json", "sentence_bert_config.json"};
    bool ok = save_files(folder, t, from, tables, err);
    for (size_t i = 0; ok && model && i < sizeof settings / sizeof *settings; i++)
        ok = copy_file(folder, model, settings[i], NULL, err);
    if (ok && model && m->model.source_vocab)
        ok = copy_file(folder, model, "config.json", NULL, err);
    free(folder);
    return ok;
}

static bool artefact_save(const open_model *m, const char *dir, const char *name, bool tables,
                          sn_error *err) {
    const model_io *io = m->io;
    return save_tokenizer(m, io->tokenizer, io->tokenizer_path, dir, name, ".tokenizer", tables,
                          err) &&
           save_tokenizer(m, io->source, io->source_path, dir, name, ".source.tokenizer", tables,
                          err);
}

/* ---- descriptions ---- */

/* Whether a program can do something with the entries. */
static bool check_program(const open_model *m, sn_error *err) {
    static const char *const called[] = {"decode", "embed", "encode"};
    if (m->model.image || m->model.mel)
        return sn_fail(err, SN_ERR_USAGE,
                       "--exe: programs read text, but %s models take %s; link NAME.o with "
                       "your own main",
                       m->model.type, m->model.mel ? "sound" : "images");
    const sn_entry *forward = sn_entry_get(m->model.module, "forward");
    bool any = forward && forward->output[forward->n_output - 1].node->rank == 2; /* of classes */
    for (size_t i = 0; i < sizeof called / sizeof *called; i++)
        any |= sn_entry_get(m->model.module, called[i]) != NULL;
    return any || sn_fail(err, SN_ERR_USAGE,
                          "--exe: a program calls the entries cached, embed or encode, or forward "
                          "of a classifier: name one of them with --entries, or none");
}

static void describe_pixels(const open_model *m, cmd_artefact *a, sn_emit_options *eo) {
    picture_rules r;
    if (!m->model.image || !encoder_picture_rules(m, &r)) return;
    a->pixels = (sn_emit_pixels){.side = m->model.image,
                                 .channels = m->model.channels,
                                 .factor = r.factor,
                                 .resize = a->resize,
                                 .normalises = m->model.normalises};
    memcpy(a->pixels.mean, r.mean, sizeof a->pixels.mean);
    memcpy(a->pixels.std, r.std, sizeof a->pixels.std);
    picture_rules_print(&r, a->resize, sizeof a->resize);
    eo->pixels = &a->pixels;
}

static bool artefact_describe(open_model *m, sn_emit_options *eo, cmd_artefact *a, sn_error *err) {
    model_io *io = m->io;
    if (eo->program && !check_program(m, err)) return false;
    describe_pixels(m, a, eo);
    eo->n_label = io->labels ? (int)m->model.labels : 0;
    eo->label = a->label = calloc((size_t)eo->n_label + 1, sizeof *a->label);
    if (!a->label) return sn_fail(err, SN_ERR_MEMORY, "out of memory");
    for (int i = 0; i < eo->n_label; i++) a->label[i] = lm_label(m, i);
    a->tokenizer = io->tokenizer;
    a->source = io->source;
    for (int i = 0; i < 2; i++) {
        const sn_tokenizer *t = i ? io->source : io->tokenizer;
        a->unicode |= t && sn_tokenizer_needs_unicode(t);
        a->regex |= t && sn_tokenizer_needs_regex(t);
    }
    eo->no_bos = !lm_begins_with_bos(m);
    eo->bos = lm_bos(m);
    eo->eos = io->eos;
    eo->n_eos = m->model.source_vocab ? 1 : io->n_eos; /* a translation ends with a single token */
    return !m->model.source_vocab || translate_ends(m, &eo->bos, &io->eos[0], err);
}

/* A rule is printed as translate.js applies it: `never` are rows whose last token does not follow the others. */
static void artefact_rules(const open_model *m, json_out *j) {
    static const char *const stops[] = {[SN_BEAM_STOP_SURE] = "sure",
                                        [SN_BEAM_STOP_LIKELY] = "likely",
                                        [SN_BEAM_STOP_FULL] = "full"};
    if (!m || !m->model.source_vocab) return;
    const sn_token_rules *r = &m->io->rules;
    sn_json_object(j, "rules");
    sn_json_bool(j, "changes", sn_token_rules_apply_to(r));
    sn_json_text(j, "stop", stops[r->stop]);
    sn_json_number(j, "penalty", r->length_penalty);
    sn_json_integer(j, "most", r->max_tokens);
    sn_json_integer(j, "least", r->min_tokens);
    sn_json_integer(j, "first", r->first);
    sn_json_integer(j, "last", r->last);
    sn_json_integer(j, "noRepeat", r->no_repeat);
    sn_json_number(j, "repetition", r->repetition_penalty);
    sn_json_ids(j, "neverFirst", r->never_first.data, (int64_t)r->never_first.count);
    sn_json_list(j, "never");
    for (size_t i = 0; i < r->never.count; i++) sn_json_ids(j, NULL, &r->never.data[i], 1);
    const int32_t *row = r->never_rows.data, *end = row + r->never_rows.count;
    for (; row < end; row += 1 + *row) sn_json_ids(j, NULL, row + 1, *row);
    sn_json_close(j);
    sn_json_close(j);
}

static bool artefact_train(const char *config, int entries, int64_t slices, bool rate,
                           sn_emit_options *eo, sn_error *err) {
    train_settings s = {0};
    if (!train_settings_read(config, NULL, &s, err)) return false;
    if (slices) s.slices = slices;
    s.training.takes_rate = rate;
    bool ok = train_emit(&s, entries, eo, err);
    train_settings_free(&s);
    return ok;
}

/* ---- the program ---- */

int main(int argc, char **argv) {
    static const cmd_row rows[] = {
        {"generate", "continue a text with a language model", cmd_generate, true,
         "continue a text or token ids"},
        {"translate", "translate lines of text with an encoder-decoder model", cmd_translate, true,
         "translate lines of text, for encoder-decoders"},
        {"transcribe", "write down what is said in a sound file", cmd_transcribe, true, NULL},
        {"embed", "sentence embeddings; rank sentences by similarity", cmd_embed, true,
         "embed sentences, if it has an entry embed"},
        {"fill", "predict the most likely tokens for the masks in a text", cmd_fill, true,
         "predict masked tokens, for masked language models"},
        {"classify", "classify images, texts, or the words of texts", cmd_classify, true,
         "classify texts or images, for classifiers"},
        {"answer", "find the answer to a question in a text", cmd_answer, true, NULL},
        {"eval", "evaluate loss and perplexity on a text", cmd_eval, true,
         "evaluate its loss on a text"},
        {"train", "train a model on a text", cmd_train, true,
         "train it on a text: sinter run MODEL.c train --text FILE -o DIR"},
        {"plan", "predict memory, communication and speed of training on many ranks", cmd_plan,
         true, NULL},
        {"tokenizer", "train a vocabulary; convert text to token ids and back", cmd_tokenizer,
         false, NULL},
        {"import", "convert a model of another format to a model folder", cmd_import, false, NULL},
        {"quantize", "make a model folder for 8- and 4-bit weights", cmd_quantize, false, NULL},
        {"inspect", "describe a model folder, and look inside a model while it reads a text",
         cmd_inspect, true, "show its tensors by name, their values, attention maps"},
        {"models", "list the architectures of model folders", cmd_models_list, false, NULL},
        {0}};
    static const cmd_library models = {.rows = rows,
                                       .open = &lm_hooks,
                                       .describe = artefact_describe,
                                       .rules = artefact_rules,
                                       .save = artefact_save,
                                       .train = artefact_train};
    return cmd_main(argc, argv, &models);
}
