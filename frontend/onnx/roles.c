/* roles.c: graphs whose inputs and outputs have the names that Hugging Face's Optimum gives them, as the entries of
 * models.h, which the commands run: token by token with caches, embeddings, classes. */
#include "frontend/onnx/roles.h"
#include "frontend/decoder.h"
#include "frontend/onnx/pairs.h"
#include "frontend/onnx/rows.h"
#include "frontend/sentence.h"

#include <stdio.h>
#include <string.h>

#define PAST ONNX_PAST

/* ---- inputs ---- */

/* i32 [rows, tokens] of the entry */
static sn_tensor whole_numbers(const onnx_asked *g, const char *name) {
    onnx_call *c = g->c;
    if (!onnx_agrees(g, SN_DIMS(g->rows, g->tokens))) return NULL;
    return sn_cast(sn_input(c->m, name, SN_I32, g->rows, g->tokens), g->type);
}

static sn_tensor make_tokens(const onnx_asked *g) {
    onnx_call *c = g->c;
    const onnx_part part = c->im->role->part;
    if (part != ONNX_BEGIN) return whole_numbers(g, part == ONNX_SOURCE ? "source" : "tokens");
    if (!onnx_agrees(g, SN_DIMS(g->rows, g->tokens))) return NULL;
    return sn_full(c->m, g->type, 0, g->rows, g->tokens); /* what follows from it is not wanted */
}

static sn_tensor make_types(const onnx_asked *g) {
    onnx_call *c = g->c;
    if (!c->im->role->state && !c->im->role->pair) return whole_numbers(g, "types");
    if (!onnx_agrees(g, SN_DIMS(g->rows, g->tokens))) return NULL;
    return sn_full(c->m, g->type, 0, g->rows, g->tokens);
}

/* After past tokens all are seen; of several sequences, those from the first of each on; of a batch of texts, those before
 * the end of each. */
static sn_tensor make_mask(const onnx_asked *g) {
    onnx_call *c = g->c;
    const sn_dim all = sn_dim_add(c->m, g->past, g->tokens);
    if (!onnx_agrees(g, SN_DIMS(g->rows, all))) return NULL;
    if (c->im->role->state && !onnx_row_tokens(c)) return sn_full(c->m, g->type, 1, g->rows, all);
    if (c->im->role->state) return sn_cast(sn_ge(onnx_row_positions(c, all), 0), g->type);
    sn_tensor lengths = sn_input(c->m, "lengths", SN_I32, g->rows);
    return sn_cast(sn_lt(sn_arange(c->m, SN_I32, all), sn_expand(lengths, 1)), g->type);
}

static sn_tensor make_positions(const onnx_asked *g) {
    onnx_call *c = g->c;
    const bool flat = g->shape[0] != SN_END && g->shape[1] == SN_END; /* cache_position */
    if (!onnx_agrees(g, flat ? SN_DIMS(g->tokens) : SN_DIMS(g->rows, g->tokens))) return NULL;
    sn_tensor at = sn_add(sn_arange(c->m, SN_I32, g->tokens), g->past), each = onnx_row_tokens(c);
    if (each && !flat) return sn_cast(sn_expand(each, 1), g->type);
    return sn_cast(flat ? at : sn_broadcast(at, g->rows, g->tokens), g->type);
}

static bool has_past(const onnx_call *c) {
    return c->im->role->part != ONNX_BEGIN;
}

static sn_tensor make_branch(const onnx_asked *g) {
    onnx_call *c = g->c;
    return onnx_agrees(g, SN_DIMS(1)) ? sn_full(c->m, g->type, has_past(c), 1) : NULL;
}

/* What a state [1, .., context, ..] holds so far. */
static sn_tensor make_past(const onnx_asked *g) {
    onnx_call *c = g->c;
    sn_dim shape[SN_MAX_RANK + 1];
    if (!has_past(c)) return onnx_make_unused(g);
    if (c->im->role->pair && strstr(g->name, ".encoder.")) return onnx_make_source_past(g);
    const int axis = onnx_free_axis(g, shape);
    if (axis < 0) {
        onnx_fail(c,
                  "of the input '%s', the axis of past tokens must be the only one behind the "
                  "first without a number as its size",
                  g->name);
        return NULL;
    }
    shape[0] = g->rows, shape[axis] = g->past;
    return onnx_agrees(g, shape) ? onnx_past_new(g, shape, axis) : NULL;
}

static sn_tensor make_pixels(const onnx_asked *g) {
    onnx_call *c = g->c;
    const onnx_role *r = c->im->role;
    sn_dim dims[5] = {g->rows, r->channels, r->image, r->image, SN_END};
    for (int i = 1; i < 4 && g->shape[i - 1] != SN_END; i++)
        if (!dims[i] || sn_dim_is_const(c->m, g->shape[i], NULL)) dims[i] = g->shape[i];
    if (!onnx_agrees(g, dims)) return NULL;
    return sn_cast(sn_input(c->m, "pixels", SN_F32, dims[0], dims[1], dims[2], dims[3]), g->type);
}

static const struct {
    const char *name;
    bool begins, pairs; /* with the name; of encoder-decoders only */
    sn_tensor (*make)(const onnx_asked *g);
} inputs[] = {{"input_ids", false, false, make_tokens},
              {"attention_mask", false, false, make_mask},
              {"token_type_ids", false, false, make_types},
              {"position_ids", false, false, make_positions},
              {"cache_position", false, false, make_positions},
              {"use_cache_branch", false, false, make_branch},
              {PAST ".", true, false, make_past},
              {"pixel_values", false, false, make_pixels},
              {"input_features", false, true, onnx_make_features},
              {"input_values", false, true, onnx_make_samples},
              {"decoder_attention_mask", false, true, make_mask},
              {"encoder_attention_mask", false, true, onnx_make_source_mask},
              {"encoder_hidden_states", false, true, onnx_make_hidden}};
enum { INPUTS = sizeof inputs / sizeof *inputs };

/* INPUTS: nothing gives the input its values. */
static int row_of(const onnx_role *r, const char *name) {
    int i = 0;
    while (i < INPUTS && ((inputs[i].pairs && !r->pair) ||
                          (inputs[i].begins ? strncmp(name, inputs[i].name, strlen(inputs[i].name))
                                            : strcmp(name, inputs[i].name))))
        i++;
    return i;
}

/* The sizes of the entry: of texts, tokens of each and past ones. */
static sn_dim rows_of(const onnx_call *c) {
    const onnx_role *r = c->im->role;
    if (r->pair) return r->pair->sources * (r->part == ONNX_NEXT ? r->pair->beams : 1);
    if (r->state && r->sequences && r->one) return onnx_symbol_in(c->im, "B", 1, r->sequences);
    return r->state ? 1 : onnx_symbol_in(c->im, "B", 1, 1024);
}

static sn_dim tokens_of(const onnx_call *c) {
    const onnx_role *r = c->im->role;
    if (r->part == ONNX_SOURCE) return onnx_source_length(c);
    return r->one ? 1 : onnx_symbol_in(c->im, "T", 1, r->context);
}

static sn_dim past_of(const onnx_call *c) {
    const onnx_role *r = c->im->role;
    return r->state && has_past(c) ? onnx_symbol_in(c->im, "P", 0, r->context - 1) : 0;
}

static onnx_value *take_input(onnx_call *c, const char *name, sn_dtype type, const sn_dim *shape) {
    const int row = row_of(c->im->role, name);
    char shown[80];
    if (row == INPUTS) {
        sn_fail(
            c->im->err, SN_ERR_USAGE,
            "%s: the entry '%s' cannot be made, because nothing gives the input '%s' its values",
            c->im->path, c->im->role->entry, sn_printable(shown, sizeof shown, name));
        return NULL;
    }
    const onnx_asked g = {c, name, type, shape, rows_of(c), tokens_of(c), past_of(c)};
    sn_tensor x = inputs[row].make(&g);
    onnx_value *v = x ? onnx_tensor_value(c->im, name, x) : NULL;
    if (v && inputs[row].make == make_branch) { /* known, so that `If` takes one branch */
        onnx_elem *one = sn_arena_alloc(c->im->arena, sizeof *one);
        *one = onnx_elem_number(type, has_past(c));
        v->known = one;
    }
    return v;
}

/* ---- caches ---- */

/* `present` is past tokens and the new ones. Where the graph did not simply append these, they are written here. */
static bool keep_present(onnx_call *c, const char *name, sn_tensor present) {
    const char *dot = strchr(name, '.');
    char past[160];
    snprintf(past, sizeof past, PAST "%.120s", dot ? dot : "");
    onnx_past *p = onnx_past_named(c->im, past);
    if (!p || sn_rank_of(present) != sn_rank_of(p->state))
        return onnx_fail(c, "the output '%s' does not belong to an input '%s'", name, past);
    if (p->filled)
        return present == p->filled ||
               onnx_fail(c, "the output '%s' is not the input '%s' and the rows of new tokens",
                         name, past);
    const sn_dim rows = sn_dim_sub(c->m, sn_dim_of(present, p->axis), past_of(c));
    onnx_past_append(c, p, sn_slice_at(c->at, present, p->axis, past_of(c), rows, 1));
    return true;
}

/* ---- outputs ---- */

static sn_tensor numbers(onnx_call *c, onnx_value *v) {
    return sn_cast(onnx_tensor_of(c, v), SN_F32);
}

/* Of the last token. */
static bool give_next(onnx_call *c, const char *name, onnx_value *v) {
    if (c->im->role->pair && strstr(name, ".encoder.")) return true; /* it stays as it is */
    if (!strncmp(name, "present", 7)) return keep_present(c, name, onnx_tensor_of(c, v));
    if (strcmp(name, c->im->role->result)) return true;
    sn_tensor x = numbers(c, v);
    if (sn_rank_of(x) != 3) return onnx_fail(c, "the output '%s' is not [batch, tokens, n]", name);
    const sn_dim last = sn_dim_sub(c->m, sn_dim_of(x, 1), 1);
    sn_output("logits", sn_squeeze(sn_slice(x, 1, last, 1), 1));
    return true;
}

/* Rows of a number of columns, or such rows of each token: what the commands take memory for. */
static bool has_rows(const onnx_call *c, sn_tensor x, bool each) {
    const int rank = sn_rank_of(x);
    return rank == 2 + each && onnx_same_dim(c, sn_dim_of(x, 0), rows_of(c)) &&
           (!each || onnx_same_dim(c, sn_dim_of(x, 1), tokens_of(c))) &&
           sn_dim_is_const(c->m, sn_dim_of(x, rank - 1), NULL);
}

static bool refuse_shape(onnx_call *c, const char *name, sn_tensor x, const char *want) {
    char a[SN_NODE_TEXT];
    return onnx_fail(c, "the output '%s' is %s, not %s with a number as n", name,
                     sn_node_text(x, a), want);
}

static bool give_classes(onnx_call *c, const char *name, onnx_value *v) {
    if (strcmp(name, c->im->role->result)) return true;
    sn_tensor x = numbers(c, v);
    if (!has_rows(c, x, false) && !has_rows(c, x, true))
        return refuse_shape(c, name, x, "[batch, n] or [batch, tokens, n]");
    sn_output("logits", x);
    return true;
}

static bool pool(onnx_call *c, sn_tensor *x) {
    sn_config *config = c->im->role->config;
    sentence_head h = {0};
    int64_t width = 0;
    sn_dim_is_const(c->m, sn_dim_of(*x, 2), &width);
    if (config) sentence_read(config, width, &h);
    if (config && !sn_config_check(config, c->im->err)) return false;
    *x = sentence_embed(&h, *x, sn_input(c->m, "lengths", SN_I32, sn_dim_of(*x, 0)));
    return true;
}

/* Hidden states become one vector; what already is one stays. */
static bool give_embedding(onnx_call *c, const char *name, onnx_value *v) {
    if (strcmp(name, c->im->role->result)) return true;
    sn_tensor x = numbers(c, v);
    const bool hidden = has_rows(c, x, true);
    if (!hidden && !has_rows(c, x, false))
        return refuse_shape(c, name, x, "[batch, n] or [batch, tokens, n]");
    if (hidden && !pool(c, &x)) return false;
    sn_output("embedding", x);
    return true;
}

static bool give_picture(onnx_call *c, const char *name, onnx_value *v) {
    if (strcmp(name, c->im->role->result)) return true;
    sn_tensor x = numbers(c, v);
    sn_tensor one = sn_rank_of(x) == 3 ? sn_index(x, 1, 0) : x;
    if (!has_rows(c, one, false))
        return refuse_shape(c, name, x, "[batch, n] or [batch, patches, n]");
    sn_output("embedding", sn_unit_norm(one));
    return true;
}

/* ---- which entries ---- */

/* What `entries` of the options asks for: the one with caches is taken where the graph as it is, the entry
 * "forward", is not wanted; the others where nothing else is. */
static const struct kind {
    int entries;
    const char *needs; /* an input */
    bool caches;       /* and inputs of past tokens */
    const char *results[5];
    const char *entry[2]; /* the second one of one token */
    bool (*output)(onnx_call *c, const char *name, onnx_value *v);
} kinds[] = {
    {SN_CACHED, "input_ids", true, {"logits"}, {"prefill", "decode"}, give_next},
    {SN_FORWARD | SN_CLASSIFY, "input_ids", false, {"logits"}, {"forward"}, give_classes},
    {SN_FORWARD | SN_CLASSIFY, "pixel_values", false, {"logits"}, {"forward"}, give_classes},
    {SN_EMBED,
     "input_ids",
     false,
     {"sentence_embedding", "text_embeds", "last_hidden_state", "token_embeddings"},
     {"embed"},
     give_embedding},
    {SN_EMBED,
     "pixel_values",
     false,
     {"image_embeds", "last_hidden_state"},
     {"embed_image"},
     give_picture}};

static bool has(const onnx_list *values, const char *name) {
    for (int i = 0; i < values->n; i++) {
        const char *of = ONNX_AT(*values, onnx_value_info, i).name;
        if (of && !strncmp(of, name, strlen(name)) &&
            (!of[strlen(name)] || name[strlen(name) - 1] == '.'))
            return true;
    }
    return false;
}

typedef struct request {
    const char *path;
    sn_config *config; /* or NULL */
    const sn_model_options *o;
    sn_model *out;
    const struct kind *kind; /* that was found */
    onnx_seq2seq pair;       /* if it is one */
} request;

/* The graph as it is, and prefill and decode if it has caches. */
static bool wants_all(const request *q) {
    return (q->o->entries & SN_ALL_ENTRIES) == SN_ALL_ENTRIES;
}

static bool is_kind(const struct kind *k, const request *q, const onnx_graph *g,
                    const char **result) {
    *result = NULL;
    for (int i = 0; k->results[i] && !*result; i++)
        if (has(&g->output, k->results[i])) *result = k->results[i];
    const int entries = q->o->entries;
    const bool wanted = k->caches ? entries & SN_CACHED && (!(entries & SN_FORWARD) || wants_all(q))
                                  : k->entries == entries;
    return wanted && *result && has(&g->input, k->needs) &&
           (!k->caches ||
            (has(&g->input, PAST ".") && (!wants_all(q) || has(&g->output, "present."))));
}

/* The first of the keys that the config has; 0: none. */
static int64_t first_key(sn_config *c, const char *const *key) {
    int64_t n = 0;
    for (; c && *key && !n; key++) n = sn_config_int_or(c, *key, 0, 0, 1 << 24);
    return n;
}

/* Rows of different lengths need positions and a mask that say so. */
static bool check_rows(const request *q, const onnx_graph *g, sn_error *err) {
    static const char *const needs[] = {"attention_mask", "position_ids"};
    for (int i = 0; q->o->sequences && i < 2; i++)
        if (!has(&g->input, needs[i]))
            return sn_fail(err, SN_ERR_USAGE,
                           "%s runs one sequence at a time: it has no input '%s', which would say "
                           "what each of several sequences sees",
                           q->path, needs[i]);
    return true;
}

static bool set_sizes(const request *q, onnx_role *r, sn_error *err) {
    static const char *const contexts[] = {"max_position_embeddings",
                                           "n_positions",
                                           "n_ctx",
                                           "max_target_positions",
                                           "max_seq_len",
                                           "seq_length",
                                           NULL};
    enum { CONTEXT = 2048 }; /* where nothing says it */
    sn_config *c = q->config;
    const int64_t limit = first_key(c, contexts);
    r->context = q->o->context ? q->o->context : limit ? limit : CONTEXT;
    if (limit && r->context > limit)
        return sn_fail(err, SN_ERR_USAGE,
                       "%s: the requested context of %lld exceeds the model's, %lld", q->path,
                       (long long)r->context, (long long)limit);
    r->image = q->o->image ? q->o->image : first_key(c, (const char *const[]){"image_size", NULL});
    r->channels = first_key(c, (const char *const[]){"num_channels", NULL});
    return !c || sn_config_check(c, err);
}

/* The encoder and the decoder's first step in one entry, the decoder's later steps in another. */
static int choose_pair(request *q, const onnx_graph *g, onnx_role *roles, sn_error *err) {
    onnx_seq2seq *p = &q->pair;
    p->sources = q->o->batch ? q->o->batch : 1;
    p->beams = q->o->beams ? q->o->beams : 1;
    p->mel = first_key(q->config, (const char *const[]){"num_mel_bins", NULL});
    p->frames = 2 * first_key(q->config, (const char *const[]){"max_source_positions", NULL});
    if (!onnx_pair_files(p, q->path, has(&g->input, "use_cache_branch"), err)) return 0;
    onnx_role r = roles[0];
    r.pair = p;
    r.one = true;
    r.sequences = 0;
    roles[0] = roles[1] = roles[2] = r;
    roles[0].part = ONNX_SOURCE, roles[0].state = false;
    roles[0].path = p->encoder, roles[0].output = onnx_give_hidden;
    roles[1].part = ONNX_BEGIN, roles[1].joins = roles[1].renames = true;
    roles[1].path = p->first, roles[1].output = onnx_give_source;
    roles[2].part = ONNX_NEXT, roles[2].entry = q->kind->entry[1];
    return 3;
}

/* The roles of the kind. */
static int choose_kind(request *q, const onnx_graph *g, const char *result, bool extra,
                       onnx_role *roles, sn_error *err) {
    const struct kind *k = q->kind;
    int n = 0;
    for (; n < 2 && k->entry[n]; n++) {
        onnx_role *r = &roles[n];
        *r = (onnx_role){.entry = k->entry[n],
                         .input = take_input,
                         .output = k->output,
                         .result = result,
                         .config = q->config,
                         .state = k->caches,
                         .one = n == 1,
                         .sequences = k->caches ? q->o->sequences : 0,
                         .extra = extra,
                         .renames = extra};
        if (!set_sizes(q, r, err)) return 0;
    }
    if (k->caches && onnx_is_pair(g)) return choose_pair(q, g, roles, err);
    return !k->caches || check_rows(q, g, err) ? n : 0;
}

static int choose(void *ctx, const onnx_graph *g, onnx_role *roles, sn_error *err) {
    request *q = ctx;
    const size_t n_kinds = sizeof kinds / sizeof *kinds;
    const bool all = wants_all(q);
    const char *result = NULL;
    size_t k = 0;
    while (k < n_kinds && !is_kind(&kinds[k], q, g, &result)) k++;
    if (k < n_kinds) q->kind = &kinds[k];
    if (k < n_kinds && !all) return choose_kind(q, g, result, false, roles, err);
    roles[0] =
        (onnx_role){.entry = "forward", .input = onnx_plain_input, .output = onnx_plain_output};
    if (k == n_kinds) return 1;
    sn_error unused = {0};
    const int n = choose_kind(q, g, result, true, roles + 1, &unused);
    if (n)
        roles[0].context = roles[1].context; /* so that no dim of the file has a name of theirs */
    return 1 + n;
}

/* ---- the model ---- */

/* Whether the entry gives the state its next value: of an encoder-decoder, "prefill" those of the source. */
static bool writes(const request *q, const sn_entry *e, const char *state) {
    const bool first = !strcmp(e->name, q->kind->entry[0]);
    return !q->pair.sources || first == (strstr(state, ".encoder.") != NULL);
}

/* Every state has a new value after each run. */
static bool check_states(const request *q, sn_error *err) {
    sn_module *m = q->out->module;
    for (int k = 0; q->kind->caches && k < sn_entry_count(m); k++) {
        const sn_entry *e = sn_entry_at(m, k);
        if (!strcmp(e->name, "forward")) continue;
        for (uint32_t i = 0; i < sn_module_node_count(m); i++) {
            const sn_node *n = sn_module_node(m, i);
            const char *name = sn_attr_str(n, SN_A_name, "");
            int at = 0;
            if (n->op != SN_OP_state || strncmp(name, PAST, strlen(PAST)) != 0 ||
                !writes(q, e, name))
                continue;
            while (at < e->n_assign && strcmp(e->assign[at].name, name)) at++;
            if (at == e->n_assign)
                return sn_fail(err, SN_ERR_FILE,
                               "%s: no output 'present%s' gives the input '%s' its next value",
                               q->path, name + strlen(PAST), name);
        }
    }
    return true;
}

static const sn_node *input_of(sn_module *m, const char *name) {
    for (uint32_t i = 0; i < sn_module_node_count(m); i++) {
        const sn_node *n = sn_module_node(m, i);
        if (n->op == SN_OP_input && !strcmp(sn_attr_str(n, SN_A_name, ""), name)) return n;
    }
    return NULL;
}

/* How many samples the entry "prefill" takes. */
static bool read_samples(const request *q, sn_error *err) {
    sn_model *out = q->out;
    sn_module *m = out->module;
    const sn_dim n = input_of(m, "samples")->shape[1];
    const int at = sn_symbol_find(m, "S");
    int64_t value[SN_MAX_SYMBOLS] = {0};
    if (at < 0)
        return sn_fail(err, SN_ERR_FILE,
                       "%s: its encoder takes a fixed number of samples: export it with a dynamic "
                       "axis of samples",
                       q->path);
    const sn_symbol *s = sn_symbol_at(m, at);
    const sn_dim S = sn_symbol_add(m, s->name, s->lo, s->hi);
    out->least = s->lo;
    out->lead = sn_dim_eval(m, n, value);
    value[at] = 1;
    out->hop = sn_dim_eval(m, n, value) - out->lead;
    out->mel = 1, out->frames = sn_dim_hi(m, n);
    return (out->hop > 0 && out->hop * s->lo + out->lead > 0 && out->frames <= INT32_MAX &&
            sn_dim_add(m, sn_dim_mul(m, S, out->hop), out->lead) == n) ||
           sn_fail(err, SN_ERR_FILE,
                   "%s: its encoder takes %lld samples at most, not a fixed number "
                   "for each position, which with 1500 positions fits 31 bits",
                   q->path, (long long)out->frames);
}

/* The context and the sizes of sources. */
static bool read_pair(const request *q, sn_error *err) {
    sn_model *out = q->out;
    const sn_binding *logits = &sn_entry_get(out->module, q->kind->entry[1])->output[0];
    const int past = sn_symbol_find(out->module, "P");
    if (logits->node->rank != 2 ||
        !sn_dim_is_const(out->module, logits->node->shape[1], &out->source_vocab))
        return sn_fail(err, SN_ERR_FILE, "%s: the output 'logits' has no number of tokens",
                       q->path);
    if (past >= 0) out->context = sn_symbol_at(out->module, past)->hi + 1;
    out->batch = q->pair.sources;
    const int64_t vocab = first_key(q->config, (const char *const[]){"vocab_size", NULL});
    if (vocab) out->source_vocab = vocab;
    if (!q->pair.sound) return true;
    out->source_vocab = 0, out->mel = q->pair.mel, out->frames = q->pair.frames;
    return !q->pair.samples || read_samples(q, err);
}

/* What classifiers and encoders of images say about themselves. */
static bool read_sizes(const request *q, sn_error *err) {
    sn_model *out = q->out;
    sn_module *m = out->module;
    const sn_entry *e = sn_entry_at(m, 0);
    const sn_node *pixels = input_of(m, "pixels"), *tokens = input_of(m, "tokens");
    if (q->pair.sources) return read_pair(q, err);
    if (tokens) out->context = sn_dim_hi(m, tokens->shape[1]);
    if (tokens && q->o->context > out->context)
        return sn_fail(err, SN_ERR_USAGE,
                       "%s: the requested context of %lld exceeds what the graph has tables for, "
                       "%lld",
                       q->path, (long long)q->o->context, (long long)out->context);
    if (q->kind->output == give_classes) {
        const sn_node *y = e->output[0].node;
        out->per_token = y->rank == 3;
        out->labels = y->shape[y->rank - 1];
    }
    if (!pixels) return true;
    return (sn_dim_is_const(m, pixels->shape[1], &out->channels) &&
            sn_dim_is_const(m, pixels->shape[2], &out->image) && pixels->shape[3] == out->image) ||
           sn_fail(err, SN_ERR_FILE,
                   "%s: the config must say the size of pictures, \"image_size\" and "
                   "\"num_channels\": the file does not",
                   q->path);
}

bool onnx_build_model(const char *path, sn_config *config, const sn_model_options *o, sn_model *out,
                      sn_weights **weights, sn_error *err) {
    static const sn_model_options plain = {.entries = SN_FORWARD};
    request q = {.path = path, .config = config, .o = o ? o : &plain, .out = out};
    *weights = onnx_load_with(out->module, path, 65536, choose, &q, err);
    const bool made = *weights && q.kind && sn_entry_get(out->module, q.kind->entry[0]);
    bool ok = *weights && (!made || (check_states(&q, err) && read_sizes(&q, err)));
    if (ok && made && q.pair.sources)
        onnx_pair_finish(out->module, path);
    else if (ok && made && q.kind->caches && q.o->sequences)
        decoder_reorder(out->module, q.o->sequences);
    onnx_pair_free(&q.pair);
    if (ok) return true;
    sn_weights_close(*weights);
    return false;
}
