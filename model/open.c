/* open.c: what a published model has beside its graph: tokenizers, pictures, class names; texts and tokens to run it on. */
#include "model/open.h"
#include "driver/storage.h"
#include "driver/temporary.h"
#include "ir/ir.h"
#include "model/import/import.h"
#include "model/text/generation_impl.h"
#include "runtime/files/weights_impl.h"
#include "runtime/memory.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- files of a model ---- */

static bool has_tokenizer(const char *folder) {
    for (size_t i = 0; sn_tokenizer_file(i); i++)
        if (sn_folder_has(folder, sn_tokenizer_file(i))) return true;
    return false;
}

static bool open_tokenizer(open_model *m, const char *path, sn_error *err) {
    m->io->tokenizer_path = strdup(path);
    if (!m->io->tokenizer_path) return sn_fail(err, SN_ERR_MEMORY, "out of memory");
    m->io->tokenizer = sn_tokenizer_load(path, err);
    return m->io->tokenizer != NULL;
}

/* Loads the two vocabularies of an encoder-decoder: Sinter's or Marian's. *found: the files
 * exist. */
static bool open_vocabularies(open_model *m, bool *found, sn_error *err) {
    static const char *const names[][2] = {{"source_vocabulary.json", "target_vocabulary.json"},
                                           {"source.spm", "target.spm"}};
    const char *path = m->folder, *const *pair = NULL;
    for (size_t i = 0; i < sizeof names / sizeof *names && !pair; i++)
        if (sn_folder_has(path, names[i][0]) && sn_folder_has(path, names[i][1])) pair = names[i];
    *found = pair;
    if (!pair) return true;
    m->io->source_path = sn_path_join(path, pair[0]);
    char *target = sn_path_join(path, pair[1]);
    bool ok = (m->io->source_path && target) || sn_fail(err, SN_ERR_MEMORY, "out of memory");
    if (ok) m->io->source = sn_tokenizer_load(m->io->source_path, err);
    ok = m->io->source && open_tokenizer(m, target, err);
    free(target);
    return ok;
}

/* Reads how pictures become pixels, if the folder says it. */
static bool open_pictures(open_model *m, const char *folder, sn_error *err) {
    if (!sn_folder_has(folder, "preprocessor_config.json")) return true;
    char *path = sn_path_join(folder, "preprocessor_config.json");
    if (!path) return sn_fail(err, SN_ERR_MEMORY, "out of memory");
    sn_config *c = sn_config_open(path, err);
    free(path);
    if (!c) return false;
    m->io->has_pictures = picture_rules_in(c);
    if (m->io->has_pictures) m->io->pictures = picture_rules_read(c);
    bool ok = sn_config_check(c, err);
    sn_config_free(c);
    return ok;
}

/* Imports a file of another format into a temporary folder, which is deleted as soon as it is
 * mapped. */
static bool open_foreign(open_model *m, const open_options *o, sn_error *err) {
    temporary t;
    if (!temporary_make(&t, err)) return false;
    import_request r = {.input = o->path, .output = t.path, .tokenizer = NULL};
    bool ok = import_model(&r, NULL, err) && model_open_folder(m, t.path, o, err);
    if (ok) m->io->imported = true;
    temporary_remove(&t);
    return ok;
}

static bool open_files(open_model *m, const open_options *o, const char *folder, sn_error *err) {
    model_io *io = m->io = calloc(1, sizeof *m->io);
    if (!io) return sn_fail(err, SN_ERR_MEMORY, "out of memory");
    io->rules = (sn_token_rules)SN_TOKEN_RULES_NONE;
    io->sequences = o->sequences;
    if (!quantised_read(m->config, &io->recorded, err)) return false;
    bool two = false, has = folder && has_tokenizer(folder);
    if (folder && m->config) {
        if (sn_config_bool_or(m->config, "is_encoder_decoder", false) &&
            !sn_token_rules_read(&io->rules, folder, err))
            return false;
        if (!o->beams && io->rules.beams) m->beams = io->rules.beams;
        if (!open_pictures(m, folder, err)) return false;
        if (io->has_pictures) m->image = picture_rules_side(&io->pictures);
        if (!o->tokenizer && !open_vocabularies(m, &two, err)) return false;
        const sn_gguf *gguf = m->dir ? sn_weights_gguf(m->dir->weights) : NULL;
        if (gguf) has = sn_gguf_has_vocabulary(gguf);
    }
    if (two || (!o->tokenizer && !has)) return true;
    return open_tokenizer(m, o->tokenizer ? o->tokenizer : folder, err);
}

/* ---- opening ---- */

static bool check_vocabulary(const sn_tokenizer *t, int64_t vocab, sn_error *err) {
    if (!t || !vocab || sn_tokenizer_vocab_size(t) <= vocab) return true;
    return sn_fail(
        err, SN_ERR_SHAPE,
        "the tokenizer (%s) has %d tokens but the model's vocabulary only %lld: they do not match",
        sn_tokenizer_kind(t), (int)sn_tokenizer_vocab_size(t), (long long)vocab);
}

/* Whether the entry exists and has no inputs other than tokens (and targets). */
static bool reads_tokens(sn_module *m, sn_entry *e) {
    if (!e) return false;
    sn_order order = sn_entry_topo(m, e);
    bool ok = true;
    for (int i = 0; i < order.n; i++) {
        const char *name = sn_attr_str(order.node[i], SN_A_name, "");
        if (order.node[i]->op == SN_OP_input)
            ok &= !strcmp(name, "tokens") || !strcmp(name, "targets") || !strcmp(name, "past");
    }
    return ok;
}

/* Encoders have no caches; the loss of encoders and encoder-decoders needs more inputs than
 * tokens. */
static bool check_kind(const open_model *m, const open_options *o, sn_error *err) {
    sn_module *mod = m->model.module;
    int entries = o->entries;
    bool lacks = o->needs && !sn_entry_get(mod, o->needs);
    if (lacks && !strcmp(o->needs, "embed_image"))
        return sn_fail(err, SN_ERR_USAGE, "%s models do not take images", m->model.type);
    if (lacks && !strcmp(o->needs, "decode"))
        return sn_fail(err, SN_ERR_USAGE, "%s models do not transcribe sound: use a whisper",
                       m->model.type);
    if (lacks && m->model.image && !strcmp(o->needs, "embed"))
        return sn_fail(err, SN_ERR_USAGE, "%s models read images: give one with --image",
                       m->model.type);
    if (lacks)
        return sn_fail(err, SN_ERR_USAGE,
                       "the weights of this %s model have no head for '%s': use an encoder that "
                       "was trained for it, such as a bert with a %s",
                       m->model.type, o->needs,
                       strcmp(o->needs, "classify") ? "masked-language-model head or a pooler"
                                                    : "classifier");
    if (o->any_model) return true;
    if (m->model.mel && entries & (SN_CACHED | SN_LOSS))
        return sn_fail(err, SN_ERR_USAGE, "%s models transcribe sound: use sinter transcribe",
                       m->model.type);
    if (o->translates && !m->model.source_vocab && m->code.onnx)
        return sn_fail(
            err, SN_ERR_USAGE,
            "%s: this is not the decoder of an encoder-decoder: translate takes "
            "decoder_model_merged.onnx, or decoder_with_past_model.onnx with decoder_model.onnx "
            "beside it, and encoder_model.onnx beside them",
            m->code.onnx);
    if (o->translates && !m->model.source_vocab)
        return sn_fail(
            err, SN_ERR_USAGE,
            "%s models are not encoder-decoders: translate needs one, such as bart, t5 or marian",
            m->model.type);
    if (o->translates) return true;
    if (m->model.source_vocab && entries & (SN_CACHED | SN_LOSS))
        return sn_fail(err, SN_ERR_USAGE,
                       "%s models predict a result from a source: use sinter translate",
                       m->model.type);
    bool ok = (!(entries & SN_CACHED) || reads_tokens(mod, sn_entry_get(mod, "decode"))) &&
              (!(entries & SN_LOSS) || reads_tokens(mod, sn_entry_get(mod, "loss")));
    if (!ok && m->code.library)
        return sn_fail(err, SN_ERR_USAGE,
                       "the model '%s' has no entries that predict the next token: "
                       "sn_decoder_entries makes them",
                       m->model.type);
    if (!ok && m->code.onnx)
        return sn_fail(
            err, SN_ERR_USAGE,
            "%s: this is not a graph of a decoder with caches, which has the inputs input_ids and "
            "past_key_values.* and the output logits; sinter call runs it",
            m->code.onnx);
    return ok || sn_fail(err, SN_ERR_USAGE,
                         "%s models do not predict the next token: generate and eval need a "
                         "decoder, such as gpt2 or llama",
                         m->model.type);
}

/* Reads "id2label" of Hugging Face's configs: {"0": "negative", ...} */
static bool open_labels(open_model *m, sn_error *err) {
    if (!m->model.labels || !m->config || !sn_config_has(m->config, "id2label")) return true;
    m->io->labels = sn_config_section(m->config, "id2label");
    for (int64_t i = 0; m->io->labels && i < m->model.labels; i++) lm_label(m, i);
    if (!sn_config_check(m->io->labels ? m->io->labels : m->config, err)) return false;
    return m->io->labels || sn_fail(err, SN_ERR_MEMORY, "out of memory");
}

bool lm_check_room(const open_model *m, int64_t rows, int64_t past, int64_t end, sn_error *err) {
    double part = m->io->sequences ? (double)rows / (double)m->io->sequences : 1;
    double each = part * m->io->state_bytes / (double)m->model.context,
           room = (double)sn_memory_available();
    if (!m->session) room = fmin(room, (double)sn_memory_space()); /* then it has its own already */
    if (each * (double)(end - past) <= room) return true;
    return sn_fail(
        err, SN_ERR_MEMORY,
        "a context of %lld tokens needs %.2f GB of memory for keys and values (%.0f KB "
        "each), but %.2f GB are available: use at most %lld tokens (--context, a shorter "
        "prompt), or caches of fewer bits (--cache)",
        (long long)end, each * (double)end / 1e9, each / 1e3, (room + each * (double)past) / 1e9,
        (long long)(past + (int64_t)(room / each)));
}

/* What the folder records holds for options that are not given, where those that are given allow it. */
static void take_recorded(const open_model *m, sn_options *compile) {
    const quantised *q = &m->io->recorded;
    bool library = compile->backend && !strcmp(compile->backend, "onednn"); /* f32 only */
    const char *given = quantised_is_open(compile->weights) ? NULL : compile->weights;
    bool wide = given && (!strcmp(given, "f32") || !strcmp(given, "bf16"));
    bool open = !compile->compute || !strcmp(compile->compute, "auto");
    if (open && q->compute && !library && !wide) compile->compute = q->compute;
    if (q->weights && !given && !library) compile->weights = q->weights;
    compile->keep = q->keep;
    compile->n_keep = q->n_keep;
}

static bool check_built(open_model *m, const open_options *o, sn_error *err) {
    return check_vocabulary(m->io->tokenizer, m->model.vocab, err) &&
           check_vocabulary(m->io->source, m->model.source_vocab, err) && open_labels(m, err) &&
           lm_open_ends(m, m->folder ? m->folder : o->checkpoint, err) &&
           (o->build_only || o->compile_only || check_kind(m, o, err));
}

static bool adapt(open_model *m, const open_options *o, sn_options *compile, sn_error *err) {
    m->io->state_bytes = storage_of_states(m->model.module, compile->cache);
    take_recorded(m, compile);
    if (m->io->imported) compile->weights_cache = -1; /* the next import makes other files */
    return !o->context || o->compile_only || lm_check_room(m, m->io->sequences, 0, o->context, err);
}

static bool open_runs(open_model *m, const open_options *o, sn_error *err) {
    m->io->logits = malloc(sizeof *m->io->logits * (size_t)m->model.vocab);
    if (!m->io->logits) return sn_fail(err, SN_ERR_MEMORY, "out of memory");
    return !o->context || lm_check_room(m, m->io->sequences, 0, o->context, err);
}

static void close_io(open_model *m) {
    model_io *io = m->io;
    if (!io) return;
    sn_tokenizer_free(io->tokenizer);
    free(io->tokenizer_path);
    sn_tokenizer_free(io->source);
    free(io->source_path);
    sn_token_rules_free(&io->rules);
    sn_config_free(io->labels);
    quantised_free(&io->recorded);
    free(io->logits);
    free(io);
}

const open_hooks lm_hooks = {.knows = import_knows,
                             .import = open_foreign,
                             .found = open_files,
                             .built = check_built,
                             .compile = adapt,
                             .opened = open_runs,
                             .close = close_io};

open_model *lm_open(const open_options *o, sn_error *err) {
    open_options with = *o;
    with.hooks = &lm_hooks;
    return model_open(&with, err);
}

bool lm_has_input(sn_module *m, const char *name) {
    for (uint32_t i = 0; i < sn_module_node_count(m); i++) {
        const sn_node *n = sn_module_node(m, i);
        if (n->op == SN_OP_input && !strcmp(sn_attr_str(n, SN_A_name, ""), name)) return true;
    }
    return false;
}

const char *lm_label(const open_model *m, int64_t i) {
    char key[24];
    snprintf(key, sizeof key, "%lld", (long long)i);
    return m->io->labels ? sn_config_string_or(m->io->labels, key, NULL) : NULL;
}

/* ---- running ---- */

static bool check_tokens(const open_model *m, const int32_t *ids, int64_t n, sn_error *err) {
    for (int64_t i = 0; i < n; i++)
        if (ids[i] < 0 || ids[i] >= m->model.vocab)
            return sn_fail(err, SN_ERR_RANGE,
                           "token %d (number %lld) is outside the vocabulary 0..%lld", (int)ids[i],
                           (long long)i, (long long)m->model.vocab - 1);
    return true;
}

bool lm_append(open_model *m, int64_t past, const int32_t *ids, int64_t n, float *logits,
               sn_error *err) {
    if (n < 1) return sn_fail(err, SN_ERR_USAGE, "no tokens to run");
    if (past + n > m->model.context)
        return sn_fail(err, SN_ERR_RANGE,
                       "the sequence has %lld tokens, but the context holds only %lld",
                       (long long)(past + n), (long long)m->model.context);
    if (!check_tokens(m, ids, n, err)) return false;
    if (n > 1 && !lm_check_room(m, 1, past, past + n, err)) return false;
    sn_arg_binding in[] = {SN_BIND("tokens", SN_I32, (void *)(uintptr_t)ids, 1, n),
                           SN_BIND_DIM("P", past)};
    sn_arg_binding out = SN_BIND("logits", SN_F32, logits, 1, m->model.vocab);
    if (!sn_run(m->session, n == 1 ? "decode" : "prefill", in, 2, &out, 1, err)) return false;
    m->io->past = past + n;
    return true;
}

bool lm_feed(open_model *m, const int32_t *ids, int64_t n, sn_error *err) {
    return lm_append(m, m->io->past, ids, n, m->io->logits, err);
}

void lm_reset(open_model *m) {
    sn_session_reset(m->session);
    m->io->past = 0;
}

bool lm_loss(open_model *m, const int32_t *tokens, const int32_t *targets, int64_t n, float *loss,
             sn_error *err) {
    if (!check_tokens(m, tokens, n, err) || !check_tokens(m, targets, n, err)) return false;
    sn_arg_binding in[] = {SN_BIND("tokens", SN_I32, (void *)(uintptr_t)tokens, 1, n),
                           SN_BIND("targets", SN_I32, (void *)(uintptr_t)targets, 1, n)};
    sn_arg_binding out = SN_BIND("loss", SN_F32, loss, 1, n);
    return sn_run(m->session, "loss", in, 2, &out, 1, err) && lm_check_output("loss", loss, n, err);
}

bool lm_check_output(const char *output, const float *x, int64_t n, sn_error *err) {
    int64_t i = 0;
    while (i < n && !isnan(x[i])) i++;
    return i == n ||
           sn_fail(err, SN_ERR_RANGE,
                   "element %lld of '%s' is NaN (--check-nan, or check_nan of sn_options, "
                   "names the operation)",
                   (long long)i, output);
}

/* ---- text ---- */

bool lm_begins_with_bos(const open_model *m) {
    bool unless = !m->io->tokenizer || sn_tokenizer_adds_bos(m->io->tokenizer, true);
    return m->config ? sn_config_bool_or(m->config, "add_bos_token", unless) : unless;
}

bool lm_encode(const open_model *m, const char *text, size_t size, bool bos, sn_ids *out,
               sn_error *err) {
    if (size && !lm_begins_with_bos(m)) bos = false;
    return sn_lm_encode_text(m->io->tokenizer, text, size, bos, out, err);
}

bool lm_encode_source(const open_model *m, const char *text, size_t size, sn_ids *out,
                      sn_error *err) {
    if (!m->io->source) return lm_encode(m, text, size, false, out, err);
    return sn_tokenizer_encode(m->io->source, text, size, SN_TOK_SPECIAL, out, err);
}
