/* inspect.c: runs a model on a text with selected taps as outputs. */
#include "model/inspect/inspect.h"
#include "ir/ir.h"
#include "model/translate.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- selecting entry and taps ---- */

static sn_entry *pick_entry(sn_module *m) {
    static const char *const names[] = {"lens", "forward", "encode"};
    sn_entry *e = NULL;
    for (size_t i = 0; !e && i < sizeof names / sizeof *names; i++) e = sn_entry_get(m, names[i]);
    return e;
}

typedef struct choice {
    look *l;
    const inspect_options *o;
    inspect_wants *wants;
    const char *output;
    const char **names; /* [l->n]: the taps' names, for the compiler */
} choice;

static bool add_tensor(look *l, const sn_binding *b, sn_error *err) {
    if (b->node->dtype != SN_F32)
        return sn_fail(err, SN_ERR_USAGE, "'%s' has type %s; only f32 tensors can be shown",
                       b->name, sn_dtype_name((sn_dtype)b->node->dtype));
    l->list[l->n++] = (inspect_tensor){.name = b->name};
    return true;
}

static bool choose_taps(void *user, const sn_model *model, sn_options *compile, sn_error *err) {
    choice *c = user;
    look *l = c->l;
    sn_entry *e = pick_entry(model->module);
    if (!e)
        return sn_fail(err, SN_ERR_USAGE, "a %s model cannot be inspected this way", model->type);
    l->entry = e->name;
    l->list = calloc((size_t)(e->n_tap + e->n_output) + 1, sizeof *l->list);
    c->names = calloc((size_t)e->n_tap + 1, sizeof *c->names);
    if (!l->list || !c->names) return sn_fail(err, SN_ERR_MEMORY, "out of memory");
    for (int i = 0; i < e->n_tap; i++) {
        if (!c->wants || !c->wants(c->o, e->tap[i].name)) continue;
        c->names[l->n] = e->tap[i].name;
        if (!add_tensor(l, &e->tap[i], err)) return false;
    }
    compile->taps = c->names;
    compile->n_taps = l->n;
    for (int i = 0; c->output && i < e->n_output; i++)
        if (!strcmp(e->output[i].name, c->output) && !add_tensor(l, &e->output[i], err))
            return false;
    return true;
}

/* ---- running ---- */

enum { N_KNOWN = 4 };

/* Copies to `in` those of `known` that the entry reads; returns their number, or -1 if one is
 * missing. */
static int pick_inputs(const look *l, const sn_arg_binding *known, sn_arg_binding *in,
                       sn_error *err) {
    sn_module *mod = l->m->model.module;
    sn_order order = sn_entry_topo(mod, sn_entry_get(mod, l->entry));
    int n = 0;
    for (int i = 0; i < order.n; i++) {
        if (order.node[i]->op != SN_OP_input) continue;
        const char *name = sn_attr_str(order.node[i], SN_A_name, "");
        int k = 0;
        while (k < N_KNOWN && strcmp(known[k].name, name)) k++;
        if (k == N_KNOWN || n == N_KNOWN) {
            sn_fail(err, SN_ERR_USAGE,
                    "entry '%s' of a %s model reads '%s', which cannot be derived from a text",
                    l->entry, l->m->model.type, name);
            return -1;
        }
        in[n++] = known[k];
    }
    return n;
}

/* Allocates every tensor, then runs once. */
static bool run_entry(look *l, sn_error *err) {
    int64_t T = (int64_t)l->tokens.count, S = (int64_t)l->source.count;
    int32_t length = (int32_t)(S ? S : T), *zeros = calloc((size_t)T + 1, sizeof *zeros);
    sn_arg_binding in[N_KNOWN], *out = calloc((size_t)l->n + 1, sizeof *out);
    const sn_arg_binding known[N_KNOWN] = {
        SN_BIND("tokens", SN_I32, l->tokens.data, 1, T), SN_BIND("types", SN_I32, zeros, 1, T),
        SN_BIND("source", SN_I32, l->source.data, 1, S), SN_BIND("lengths", SN_I32, &length, 1)};
    bool ok = (zeros && out) || sn_fail(err, SN_ERR_MEMORY, "out of memory");
    int n_in = ok ? pick_inputs(l, known, in, err) : -1;
    ok = n_in >= 0;
    for (int i = 0; ok && i < l->n; i++) {
        inspect_tensor *t = &l->list[i];
        t->rank = sn_output_shape(l->m->program, l->entry, in, n_in, t->name, t->shape, err);
        if (!(ok = t->rank >= 0)) break;
        t->count = 1;
        for (int a = 0; a < t->rank; a++) t->count *= t->shape[a];
        t->data = malloc((size_t)t->count * sizeof *t->data + 1);
        ok = t->data || sn_fail(err, SN_ERR_MEMORY, "out of memory for '%s'", t->name);
        out[i] = (sn_arg_binding){t->name, SN_F32, t->rank, t->shape, t->data};
    }
    ok = ok && sn_run(l->m->session, l->entry, in, n_in, out, l->n, err);
    free(zeros);
    free(out);
    return ok;
}

/* The source for the encoder; the begin token and the result so far for the decoder. */
static bool read_pair(look *l, const inspect_options *o, sn_error *err) {
    int32_t bos, eos;
    sn_ids result = {0};
    const char *text = o->result ? o->result : "";
    bool ok = lm_encode_source(l->m, o->text, strlen(o->text), &l->source, err) &&
              translate_ends(l->m, &bos, &eos, err) &&
              lm_encode(l->m, text, strlen(text), false, &result, err);
    l->tokens.data = ok ? malloc((result.count + 1) * sizeof *l->tokens.data) : NULL;
    if (ok && !l->tokens.data) ok = sn_fail(err, SN_ERR_MEMORY, "out of memory");
    if (ok) {
        l->tokens.data[0] = bos;
        for (size_t i = 0; i < result.count; i++) l->tokens.data[i + 1] = result.data[i];
        l->tokens.count = l->tokens.capacity = result.count + 1;
    }
    sn_ids_free(&result);
    if (ok && !l->source.count) ok = sn_fail(err, SN_ERR_USAGE, "the text is empty");
    return ok;
}

/* A decoder reads a text as a beginning, an encoder as a whole: [CLS] text [SEP]. */
static bool read_text(look *l, const inspect_options *o, sn_error *err) {
    if (!o->text) return sn_fail(err, SN_ERR_USAGE, "no text to read: give --prompt TEXT");
    if (l->m->model.source_vocab) return read_pair(l, o, err);
    if (o->result)
        return sn_fail(err, SN_ERR_USAGE, "--result is for encoder-decoders; this is a %s model",
                       l->m->model.type);
    sn_module *mod = l->m->model.module;
    bool encoder = sn_entry_get(mod, "encode") != NULL;
    if (encoder && l->m->io->tokenizer)
        return sn_tokenizer_encode(l->m->io->tokenizer, o->text, strlen(o->text),
                                   SN_TOK_SPECIAL | SN_TOK_TEMPLATE, &l->tokens, err);
    return lm_encode(l->m, o->text, strlen(o->text), true, &l->tokens, err);
}

bool inspect_run(look *l, const inspect_options *o, int entries, inspect_wants *wants,
                 const char *output, sn_error *err) {
    choice c = {.l = l, .o = o, .wants = wants, .output = output};
    open_options lo = {.entries = entries,
                       .compile = cmd_options(&o->compile),
                       .prepare = choose_taps,
                       .user = &c};
    l->m = cmd_open_model("sinter inspect", &o->model, lo, err);
    free(c.names);
    if (!l->m || !read_text(l, o, err)) return false;
    if (!l->tokens.count) return sn_fail(err, SN_ERR_USAGE, "the text is empty: nothing to read");
    return run_entry(l, err);
}

void inspect_close(look *l) {
    for (int i = 0; i < l->n; i++) free(l->list[i].data);
    free(l->list);
    sn_ids_free(&l->tokens);
    sn_ids_free(&l->source);
    model_close(l->m);
}

const char *inspect_token(const sn_tokenizer *t, int32_t id, char buffer[64]) {
    size_t size = 0, n = 0;
    const char *text = t ? sn_tokenizer_text(t, id, &size) : NULL;
    if (!text) {
        snprintf(buffer, 64, "#%d", (int)id);
        return buffer;
    }
    for (size_t i = 0; i < size && n < 56; i++) {
        unsigned char ch = (unsigned char)text[i];
        n += (size_t)snprintf(buffer + n, 64 - n, ch < 32 || ch == 127 ? "\\x%02x" : "%c", ch);
    }
    buffer[n] = 0;
    return buffer;
}
