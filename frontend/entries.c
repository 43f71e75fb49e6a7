/* entries.c: the entries that all decoders, all encoders and all encoder-decoders share, and the
 * forward context that the architectures get. */
#include "frontend/decoder.h"
#include "frontend/front.h"

#include <stdlib.h>

/* ---- entries of a decoder ---- */

static sn_forward_ctx make_step(sn_module *m, sn_dim B, sn_dim T, sn_dim past, int64_t capacity) {
    sn_forward_ctx s = {.m = m, .B = B, .T = T, .past = past, .capacity = capacity};
    s.tokens = sn_input(m, "tokens", SN_I32, B, T);
    s.pos = sn_add(sn_arange(m, SN_I32, T), past);
    return s;
}

bool sn_rows_zigzag(int64_t tokens, int64_t ranks) {
    return ranks > 1 && tokens > 0 && tokens % (2 * ranks) == 0;
}

/* Without caches: T positions of each sequence, or of this rank's part of its `tokens`. */
static sn_forward_ctx make_part(sn_module *m, sn_dim B, sn_dim T, int64_t tokens) {
    sn_forward_ctx s = make_step(m, B, T, 0, 0);
    s.ranks = sn_mesh_size(m, FRONT_CONTEXT);
    s.zigzag = sn_rows_zigzag(tokens, s.ranks);
    if (s.ranks > 1) s.pos = sn_mesh_positions(m, T, s.zigzag, FRONT_CONTEXT, s.ranks);
    return s;
}

static sn_tensor all_logits(const sn_decoder *d, sn_module *m, sn_dim B, sn_dim T) {
    sn_forward_ctx s = make_step(m, B, T, 0, 0);
    return d->unembed(d->config, d->layers(d->config, &s));
}

static sn_tensor last_logits(const sn_decoder *d, const sn_forward_ctx *s) {
    sn_tensor x = d->layers(d->config, s);
    sn_tensor last = sn_slice(x, 1, sn_dim_sub(s->m, s->T, 1), 1);
    return sn_squeeze(d->unembed(d->config, last), 1);
}

/* The last token's logits [batch, V]; advances the caches by T. */
static sn_tensor next_logits(const sn_decoder *d, sn_module *m, sn_dim B, sn_dim T, sn_dim past) {
    sn_forward_ctx s = make_step(m, B, T, past, d->context);
    return last_logits(d, &s);
}

/* The logits that each layer's hidden state would give [layers + 1, B, T, V]. */
static sn_tensor lens_logits(const sn_decoder *d, sn_module *m, sn_dim B, sn_dim T) {
    sn_tensor *hidden = calloc((size_t)d->n_layers + 2, sizeof *hidden);
    if (!hidden) return sn_module_fail(m, SN_ERR_MEMORY, "out of memory");
    sn_forward_ctx s = make_step(m, B, T, 0, 0);
    s.hidden = hidden;
    d->layers(d->config, &s);
    sn_tensor all = sn_stack_at(SN_HERE, 0, hidden); /* [layers + 1, B, T, d], as one batch */
    sn_tensor x = sn_reshape(all, sn_dim_mul(m, d->n_layers + 1, B), T, sn_dim_of(all, 3));
    all = sn_reshape(d->unembed(d->config, x), d->n_layers + 1, B, T, SN_REST);
    free(hidden);
    return all;
}

/* ---- caches of several sequences ---- */

static sn_forward_ctx make_row_step(const sn_decoder *d, sn_module *m, int64_t rows, sn_dim P) {
    sn_forward_ctx s = make_step(m, 1, sn_symbol(m, "T", 1, d->context), P, d->context);
    s.rows = rows;
    s.row = sn_symbol(m, "R", 0, rows - 1);
    return s;
}

static sn_forward_ctx make_steps(const sn_decoder *d, sn_module *m, int64_t rows, sn_dim P) {
    sn_forward_ctx s = make_step(m, sn_symbol(m, "B", 1, rows), 1, P, d->context);
    s.rows = rows;
    s.each = front_input(m, "past", SN_I32, SN_DIMS(s.B), 0, P);
    s.pos = sn_expand(s.each, 1);
    return s;
}

/* Rows of tokens, or carries, which move whole. */
void decoder_reorder(sn_module *m, int64_t rows) {
    const sn_symbol *past = sn_symbol_at(m, sn_symbol_find(m, "P"));
    sn_dim B = sn_symbol(m, "B", 1, rows), R = sn_symbol(m, "R", 0, rows - 1),
           P = sn_symbol(m, "P", past->lo, past->hi);
    const sn_entry *decode = sn_entry_get(m, "decode");
    sn_entry_begin(m, "reorder");
    sn_tensor parents = sn_input(m, "parents", SN_I32, B);
    for (int i = 0; decode && i < decode->n_assign; i++) {
        sn_tensor state = decode->assign[i].node->in[0], next = decode->assign[i].node->in[1];
        sn_dim start[SN_MAX_RANK + 1] = {R};
        start[sn_rank_of(state)] = SN_END;
        sn_tensor moved = state;
        if (next->op == SN_OP_update_rows)
            moved = sn_slice(state, (int)sn_attr_int(next, SN_A_axis, 0), 0, P);
        sn_assign(state, sn_update_at(SN_HERE, state, sn_gather(moved, 0, parents), start));
    }
    sn_output("parents", parents);
}

static void add_sequences(const sn_decoder *d, sn_module *m, int64_t rows) {
    sn_dim P = sn_symbol(m, "P", 0, d->context - 1);
    sn_entry_begin(m, "prefill");
    sn_forward_ctx s = make_row_step(d, m, rows, P);
    sn_output("logits", last_logits(d, &s));
    sn_entry_begin(m, "decode");
    s = make_steps(d, m, rows, P);
    sn_output("logits", last_logits(d, &s));
    if (sn_module_ok(m, NULL)) decoder_reorder(m, rows);
}

/* y ~ p^(1/temperature) [PH22 A14 line 4] by the Gumbel-max trick: the largest logit + temperature
 * g with g = -ln(-ln u), u uniform. */
static sn_tensor choose_token(sn_tensor logits) {
    sn_module *m = sn_module_of(logits);
    sn_tensor t = front_input(m, "temperature", SN_F32, SN_DIMS(SN_SCALAR), 0, SN_END),
              rng = sn_input(m, "rng", SN_I64, 2);
    sn_tensor u = sn_uniform(rng, sn_dim_of(logits, 0), sn_dim_of(logits, 1));
    sn_tensor g = sn_neg(sn_log(sn_neg(sn_log(sn_max(u, 1e-30)))));
    return sn_argmax(sn_add(logits, sn_mul(g, t)), 1);
}

void decoder_entries(sn_module *m, const sn_decoder *decoder, const sn_model_options *o,
                     decoder_report *report) {
    sn_decoder copy = *decoder, *d = &copy;
    if (o->context > d->context)
        sn_module_fail(m, SN_ERR_USAGE, "the requested context of %lld exceeds the model's, %lld",
                       (long long)o->context, (long long)d->context);
    else if (o->context)
        copy.context = o->context;
    sn_dim T = sn_symbol(m, "T", 1, d->context);
    sn_dim part = o->tokens ? sn_dim_const(m, o->tokens / sn_mesh_size(m, FRONT_CONTEXT)) : T;
    if (o->entries & SN_FORWARD) {
        sn_entry_begin(m, "forward");
        sn_output("logits", all_logits(d, m, sn_symbol(m, "B", 1, o->max_batch), T));
    }
    if (o->entries & SN_LOSS) { /* A13 line 5 */
        sn_dim B = sn_symbol(m, "B", 1, o->max_batch);
        sn_entry_begin(m, "loss");
        sn_forward_ctx s =
            make_part(m, B, part, o->tokens); /* its inputs come before the targets */
        sn_tensor logits = d->unembed(d->config, d->layers(d->config, &s));
        sn_tensor targets = sn_input(m, "targets", SN_I32, B, part);
        sn_tensor loss = sn_cross_entropy(logits, targets);
        sn_output("loss", loss);
        if (report) report(d->config, loss, targets);
    }
    if (o->entries & SN_TRAIN) { /* A13 */
        sn_dim B = sn_symbol(m, "B", 1, o->max_batch);
        sn_training_begin(m, o->training);
        sn_forward_ctx s = make_part(m, B, part, o->tokens);
        s.training = o->training;
        s.documents = sn_training_documents(m, o->training, B, part);
        sn_training_end(d->unembed(d->config, d->layers(d->config, &s)), o->training);
    }
    if (o->entries & SN_CACHED && o->sequences) {
        add_sequences(d, m, o->sequences);
    } else if (o->entries & SN_CACHED) { /* A14 line 3, without recomputing the prompt */
        sn_dim P = sn_symbol(m, "P", 0, d->context - 1);
        sn_entry_begin(m, "prefill");
        sn_output("logits", next_logits(d, m, o->batch, T, P));
        sn_entry_begin(m, "decode");
        sn_output("logits", next_logits(d, m, o->batch, 1, P));
    }
    if (o->entries & SN_STEP) {
        sn_dim P = sn_symbol(m, "P", 0, d->context - 1);
        sn_entry_begin(m, "step");
        sn_output("next", choose_token(next_logits(d, m, o->batch, 1, P)));
    }
    if (o->entries & SN_LENS) {
        sn_entry_begin(m, "lens");
        sn_output("logits", lens_logits(d, m, sn_symbol(m, "B", 1, o->max_batch), T));
    }
}

void sn_decoder_entries(sn_module *m, const sn_decoder *d, const sn_model_options *o) {
    decoder_entries(m, d, o, NULL);
}

/* ---- entries of an encoder ---- */

/* -ln P of the targets, one for each row of logits. */
static void output_loss(sn_tensor logits) {
    sn_module *m = sn_module_of(logits);
    sn_dim shape[SN_MAX_RANK + 1] = {SN_END};
    for (int a = 0; a < sn_rank_of(logits) - 1; a++)
        shape[a] = sn_dim_of(logits, a), shape[a + 1] = SN_END;
    sn_tensor targets = sn_input_at(SN_HERE, m, "targets", SN_I32, shape);
    sn_output("loss", sn_cross_entropy(logits, targets));
}

void sn_encoder_entries(sn_module *m, const sn_encoder *e, const sn_model_options *o) {
    sn_forward_ctx s = {.m = m, .B = sn_symbol(m, "B", 1, o->max_batch)};
    if (e->context) s.T = sn_symbol(m, "T", 1, o->context ? o->context : e->context);
    if (o->entries & SN_ENCODE) {
        sn_entry_begin(m, "encode");
        sn_output("hidden", e->encode(e->config, &s));
    }
    const int embeds = SN_EMBED | (e->classifies ? 0 : SN_SENTENCES);
    if (o->entries & embeds && e->embeds) {
        sn_entry_begin(m, "embed");
        sn_tensor lengths = sn_input(m, "lengths", SN_I32, s.B);
        sn_tensor hidden = e->encode(e->config, &s);
        sn_output("embedding", e->embed ? e->embed(e->config, hidden, lengths)
                                        : sn_sentence_embedding(hidden, lengths));
    }
    if (!e->logits) return;
    if (o->entries & (SN_FORWARD | e->classifies)) {
        sn_entry_begin(m, "forward");
        sn_output("logits", e->logits(e->config, &s));
    }
    if (o->entries & SN_LOSS) {
        sn_entry_begin(m, "loss");
        output_loss(e->logits(e->config, &s));
    }
    if (o->entries & SN_TRAIN) {
        s.training = o->training;
        sn_training_begin(m, o->training);
        sn_training_end(e->logits(e->config, &s), o->training);
    }
}

sn_tensor sn_token_mean(sn_tensor hidden, sn_tensor lengths) {
    sn_module *m = sn_module_of(hidden);
    sn_dim B = sn_dim_of(hidden, 0), T = sn_dim_of(hidden, 1);
    sn_tensor inside = sn_lt(sn_arange(m, SN_I32, T), sn_expand(lengths, 1)); /* [B, T] */
    sn_tensor x = sn_where(sn_reshape(inside, B, T, 1), hidden, 0.0);
    return sn_div(sn_sum(x, 1), sn_cast(sn_expand(lengths, 1), SN_F32));
}

sn_tensor sn_sentence_embedding(sn_tensor hidden, sn_tensor lengths) {
    return sn_unit_norm(sn_token_mean(hidden, lengths));
}

sn_tensor sn_unit_norm(sn_tensor x) {
    return sn_div(x, sn_max(sn_sqrt(sn_sum_keep(sn_square(x), -1)), 1e-12));
}

static sn_tensor inside_length(const sn_score_ctx *c) {
    return sn_lt(c->k, sn_at(c->captured[0], c->b));
}

sn_tensor sn_padded_attention_at(sn_loc at, const sn_training *t, const sn_attention_args *a,
                                 sn_tensor lengths) {
    sn_attention_args args = *a;
    args.mask = inside_length;
    args.captured[0] = lengths;
    return sn_model_attention_at(at, t, &args);
}

/* ---- entries of an encoder-decoder ---- */

/* Keys and values of a decoder layer, as states of the scope. */
static sn_tensor kv_state(const sn_encoder_decoder *d, sn_module *m, const char *name, int64_t rows,
                          int64_t capacity) {
    return sn_state(m, name, SN_F32, rows, d->heads, capacity, d->d_head);
}

sn_tensor sn_cached_source(const sn_encoder_decoder *d, sn_module *m, const char *name,
                           const sn_source *y) {
    return sn_slice(kv_state(d, m, name, y->batch, y->source_capacity), 2, 0, y->S);
}

/* Row i of the decoder's caches becomes row parents[i]. */
static void reorder_caches(const sn_encoder_decoder *d, sn_tensor parents, int64_t rows,
                           int64_t capacity) {
    static const char *const names[] = {"k_cache", "v_cache"};
    sn_module *m = sn_module_of(parents);
    for (int l = 0; l < d->layers; l++) {
        sn_scope_push(m, "%s.%d.%s", d->layer_scope, l, d->self_scope);
        for (int i = 0; i < 2; i++) {
            sn_tensor state = kv_state(d, m, names[i], rows, capacity);
            sn_assign(state, sn_gather(state, 0, parents));
        }
        sn_scope_pop(m);
    }
}

/* The source of B rows: S tokens, or sound. */
static sn_tensor make_source(const sn_encoder_decoder *d, sn_module *m, sn_dim B, sn_dim S) {
    return d->mel ? sn_input(m, "features", SN_F32, B, d->mel, 2 * d->length)
                  : sn_input(m, "source", SN_I32, B, S);
}

/* A15: the encoder once, then token by token. */
static void add_cached(const sn_encoder_decoder *d, sn_module *m, const sn_model_options *o,
                       int64_t capacity) {
    int64_t rows = o->batch * o->beams;
    int64_t room = d->mel ? d->length : capacity;
    sn_dim S = d->mel ? room : sn_symbol(m, "S", 1, capacity),
           P = sn_symbol(m, "P", 0, capacity - 1);
    sn_entry_begin(m, "prefill");
    sn_tensor source = make_source(d, m, o->batch, S),
              lengths = sn_input(m, "lengths", SN_I32, o->batch);
    sn_tensor z = d->encode(d->config, NULL, source, lengths);
    d->cache_source(d->config, z, room);
    sn_output("hidden", z);
    sn_entry_begin(m, "decode");
    sn_source y = {.lengths = lengths,
                   .S = S,
                   .past = P,
                   .batch = o->batch,
                   .capacity = capacity,
                   .source_capacity = room};
    sn_tensor tokens = sn_input(m, "tokens", SN_I32, rows, 1);
    sn_output("logits", sn_squeeze(d->decode(d->config, NULL, tokens, &y), 1));
    sn_entry_begin(m, "reorder");
    sn_tensor parents = sn_input(m, "parents", SN_I32, rows);
    reorder_caches(d, parents, rows, capacity);
    sn_output("parents", parents);
}

/* `encode` and `logits` of an sn_encoder whose config is the encoder-decoder. */
static sn_tensor encode_source(const void *config, const sn_forward_ctx *s) {
    const sn_encoder_decoder *d = config;
    sn_dim S = d->mel ? d->length : sn_symbol(s->m, "S", 1, sn_dim_hi(s->m, s->T));
    sn_tensor source = make_source(d, s->m, s->B, S),
              lengths = sn_input(s->m, "lengths", SN_I32, s->B);
    return d->encode(d->config, s->training, source, lengths);
}

static sn_tensor translate(const void *config, const sn_forward_ctx *s) {
    const sn_encoder_decoder *d = config;
    sn_source y = {.z = encode_source(config, s)};
    y.lengths = sn_input(s->m, "lengths", SN_I32, s->B);
    sn_tensor tokens = sn_input(s->m, "tokens", SN_I32, s->B, s->T);
    return d->decode(d->config, s->training, tokens, &y);
}

void sn_encoder_decoder_entries(sn_module *m, const sn_encoder_decoder *d,
                                const sn_model_options *o) {
    sn_encoder e = {
        .config = d, .encode = encode_source, .logits = translate, .context = d->context};
    sn_encoder_entries(m, &e, o);
    if (o->entries & SN_CACHED) add_cached(d, m, o, o->context ? o->context : d->context);
}

/* ---- the forward context ---- */

void sn_record_hidden(const sn_forward_ctx *s, int64_t layers, sn_tensor x) {
    if (s->hidden) s->hidden[layers] = x;
}

/* The weights are attention applied to unit vectors. */
sn_tensor sn_model_attention_at(sn_loc at, const sn_training *t, const sn_attention_args *a) {
    sn_module *m = sn_module_of(a->q);
    sn_attention_args unit = *a, args = *a;
    if (!sn_module_ok(m, NULL)) return sn_attention_at(at, a);
    if (t && t->dropout > 0) {
        args.dropout = t->dropout;
        args.rng = sn_input_at(at, m, "rng", SN_I64, SN_DIMS(2));
    }
    sn_dim n = sn_dim_of_at(at, a->k, 2);
    sn_tensor row = sn_iota_at(at, m, SN_I32, 0, SN_DIMS(n, n)),
              column = sn_iota_at(at, m, SN_I32, 1, SN_DIMS(n, n));
    unit.v = sn_broadcast_at(at, sn_cast_at(at, sn_eq(row, column), sn_dtype_of(a->v)),
                             SN_DIMS(sn_dim_of(a->v, 0), sn_dim_of(a->v, 1), n, n));
    sn_name(sn_attention_at(at, &unit), "attention");
    return sn_attention_at(at, &args);
}

/* x [1 or B, .., T, d], appended to a row of the cache, or to its first rows. */
static sn_tensor append_to_row(sn_loc loc, const sn_forward_ctx *s, sn_tensor x, const char *name) {
    sn_module *m = s->m;
    int rank = sn_rank_of(x), axis = rank - 2;
    sn_dim shape[SN_MAX_RANK + 1], start[SN_MAX_RANK + 1] = {s->row};
    if (!sn_module_ok(m, NULL)) return x;
    for (int a = 0; a < rank; a++) shape[a] = sn_dim_of_at(loc, x, a);
    shape[0] = s->rows, shape[axis] = s->capacity;
    shape[rank] = start[rank] = SN_END;
    start[axis] = s->past;
    sn_tensor state = sn_state_at(loc, m, name, sn_dtype_of(x), shape);
    sn_tensor next = s->each ? sn_update_rows_at(loc, state, axis, x, s->each)
                             : sn_update_at(loc, state, x, start);
    sn_assign_at(loc, state, next);
    next = sn_slice_at(loc, next, 0, s->each ? 0 : s->row, sn_dim_of_at(loc, x, 0), 1);
    return sn_slice_at(loc, next, axis, 0, sn_dim_add(m, s->past, s->T), 1);
}

sn_tensor sn_append_kv_at(sn_loc loc, const sn_forward_ctx *s, sn_tensor x, const char *name) {
    if (!s->capacity) return x;
    return s->rows ? append_to_row(loc, s, x, name)
                   : sn_kv_cache_at(loc, x, name, s->past, s->capacity);
}

sn_tensor sn_forward_dropout(const sn_forward_ctx *s, sn_tensor x) {
    return sn_training_dropout(x, s->training);
}

/* k <= pos, and pos - k < window [B, 1, T, Tk] */
static sn_tensor row_mask(const sn_forward_ctx *s, sn_dim Tk, int64_t window) {
    sn_tensor q = sn_expand(sn_expand(s->pos, 1), 3); /* [B, 1, T, 1] */
    sn_tensor k = sn_arange(s->m, SN_I32, Tk);
    sn_tensor seen = sn_le(k, q);
    return window > 0 ? sn_and(seen, sn_lt(sn_sub(q, k), (double)window)) : seen;
}

sn_tensor sn_forward_mask(const sn_forward_ctx *s, sn_dim Tk, int64_t window) {
    if (s->ranks > 1)
        return sn_module_fail(s->m, SN_ERR_USAGE,
                              "sn_forward_mask: the ranks of the mesh axis \"" FRONT_CONTEXT
                              "\" divide the sequences, which needs sn_forward_attention");
    if (s->each) return row_mask(s, Tk, window);
    sn_tensor causal = sn_window_mask(s->m, s->T, Tk, window);
    return s->documents ? sn_and(causal, sn_document_mask(s->documents)) : causal;
}

/* The documents are the last captured tensor; those beyond it are NULL. */
static sn_tensor same_document(const sn_score_ctx *c) {
    int last = 0;
    while (last < SN_MAX_CAPTURED - 1 && c->captured[last + 1]) last++;
    sn_tensor ids = c->captured[last];
    return sn_eq(sn_at(ids, c->b, c->q), sn_at(ids, c->b, c->k));
}

sn_tensor sn_forward_attention_at(sn_loc at, const sn_forward_ctx *s, const sn_attention_args *a) {
    sn_attention_args args = *a;
    args.past = s->each;
    if (s->ranks > 1 && s->documents)
        return sn_module_fail(s->m, SN_ERR_USAGE,
                              "ranks of the mesh axis \"" FRONT_CONTEXT
                              "\" divide sequences that are one document each");
    if (s->ranks > 1) args.mesh = FRONT_CONTEXT, args.ranks = s->ranks, args.zigzag = s->zigzag;
    if (!s->documents) return sn_model_attention_at(at, s->training, &args);
    int n = 0;
    while (n < SN_MAX_CAPTURED - 1 && args.captured[n]) n++;
    args.captured[n] = s->documents;
    args.mask = same_document;
    return sn_model_attention_at(at, s->training, &args);
}
