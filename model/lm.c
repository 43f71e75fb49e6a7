/* lm.c: runs language models with the JIT. */
#include "model/lm_impl.h"

#include <stdlib.h>
#include <string.h>

static bool feed(void *model, int64_t row, int64_t past, const int32_t *ids, int64_t n,
                 float *logits, sn_error *err) {
    open_model *m = model;
    (void)row;
    if (!past && m->io->past && (*m->code.name || m->graph || m->model.recurrent))
        lm_reset(m); /* caches are read up to `past` only */
    return lm_append(m, past, ids, n, logits, err);
}

/* ---- several sequences ---- */

static bool feed_row(void *model, int64_t row, int64_t past, const int32_t *ids, int64_t n,
                     float *logits, sn_error *err) {
    open_model *m = model;
    sn_arg_binding in[] = {SN_BIND("tokens", SN_I32, (void *)(uintptr_t)ids, 1, n),
                           SN_BIND_DIM("P", past), SN_BIND_DIM("R", row)};
    sn_arg_binding out = SN_BIND("logits", SN_F32, logits, 1, m->model.vocab);
    return (n == 1 || lm_check_room(m, 1, past, past + n, err)) &&
           sn_run(m->session, "prefill", in, 3, &out, 1, err);
}

static bool step(void *model, int64_t n, const int32_t *ids, const int32_t *past, float *logits,
                 sn_error *err) {
    open_model *m = model;
    int64_t longest = 0;
    for (int64_t i = 0; i < n; i++) longest = past[i] > longest ? past[i] : longest;
    sn_arg_binding in[] = {SN_BIND("tokens", SN_I32, (void *)(uintptr_t)ids, n, 1),
                           SN_BIND("past", SN_I32, (void *)(uintptr_t)past, n),
                           SN_BIND_DIM("P", longest)};
    sn_arg_binding out = SN_BIND("logits", SN_F32, logits, n, m->model.vocab);
    return sn_run(m->session, "decode", in, 3, &out, 1, err);
}

/* The last position of a full context is never read again. */
static bool reorder(void *model, int64_t first, int64_t n, const int32_t *parents, int64_t past,
                    sn_error *err) {
    open_model *m = model;
    int64_t count = past < m->model.context ? past : m->model.context - 1;
    sn_arg_binding in[] = {SN_BIND("parents", SN_I32, (void *)(uintptr_t)parents, n),
                           SN_BIND_DIM("P", count), SN_BIND_DIM("R", first)};
    return sn_run(m->session, "reorder", in, 3, NULL, 0, err);
}

static void close_model(void *model) {
    model_close(model);
}

sn_lm_engine lm_engine(open_model *m) {
    return (sn_lm_engine){.model = m,
                          .rows = m->io->sequences ? m->io->sequences : 1,
                          .vocab = m->model.vocab,
                          .context = m->model.context,
                          .feed = m->io->sequences ? feed_row : feed,
                          .step = m->io->sequences ? step : NULL,
                          .reorder = m->io->sequences ? reorder : NULL,
                          .close = close_model};
}

sn_lm *lm_new(open_model *m, sn_error *err) {
    sn_lm_engine engine = lm_engine(m);
    return lm_new_with(m, &engine, err);
}

sn_lm *lm_new_with(const open_model *m, const sn_lm_engine *engine, sn_error *err) {
    const sn_lm_parts parts = {.engine = *engine,
                               .tokenizer = m->io->tokenizer,
                               .eos = m->io->eos,
                               .n_eos = m->io->n_eos,
                               .no_bos = !lm_begins_with_bos(m),
                               .folder = m->folder};
    return sn_lm_new(&parts, err);
}

open_options lm_options_of(const char *path, const sn_lm_options *o) {
    static const sn_lm_options usual = {0};
    if (!o) o = &usual;
    open_options lo = {.path = path,
                       .tokenizer = o->tokenizer,
                       .context = o->context,
                       .compile = o->compile ? *o->compile : sn_options_default()};
    if (o->threads) lo.compile.threads = o->threads;
    if (o->weights) lo.compile.weights = o->weights;
    if (!lo.compile.weights) lo.compile.weights = "stored"; /* as in the commands */
    return lo;
}

sn_lm *sn_lm_open(const char *path, const sn_lm_options *o, sn_error *err) {
    if (!sn_given(path, "sn_lm_open", "the path", err)) return NULL;
    open_options lo = lm_options_of(path, o);
    lo.entries = SN_CACHED;
    lo.checkpoint = o ? o->checkpoint : NULL;
    lo.sequences = o && o->sequences > 1 ? o->sequences : 0;
    open_model *m = lm_open(&lo, err);
    sn_lm *out = m ? lm_new(m, err) : NULL;
    if (m && !out) model_close(m);
    return out;
}

/* clang-format off */
#define STRUCTS(_)                                                                                 \
    _(error) _(options) _(lm_options) _(lm_request) _(lm_search) _(ids) _(bytes) _(model)          \
    _(weight) _(operand) _(score_ctx) _(attention_args) _(scan_step) _(scan_args) _(scanned)       \
    _(arg_binding) _(triangular_options) _(conv2d_options) _(rope_options) _(optimizer)            \
    _(schedule) _(training) _(model_options) _(forward_ctx) _(decoder) _(emit_options)
/* clang-format on */

size_t sn_struct_bytes(const char *name) {
    static const struct {
        const char *name;
        size_t bytes;
    } structs[] = {
#define ROW(type) {"sn_" #type, sizeof(sn_##type)},
        STRUCTS(ROW)
#undef ROW
    };
    for (size_t i = 0; name && i < sizeof structs / sizeof *structs; i++)
        if (!strcmp(name, structs[i].name)) return structs[i].bytes;
    return 0;
}
