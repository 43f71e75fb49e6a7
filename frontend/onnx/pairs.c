/* pairs.c: encoder-decoders that Optimum writes to several files, as the entries prefill, decode and reorder of models.h.
 * Prefill is the encoder and, of the decoder's first step, the keys and values of the source; both stay in states. */
#include "frontend/onnx/pairs.h"
#include "runtime/file.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define HIDDEN "encoder_hidden_states"

/* ---- files ---- */

bool onnx_is_pair(const onnx_graph *g) {
    for (int i = 0; i < g->input.n; i++) {
        const char *name = ONNX_AT(g->input, onnx_value_info, i).name;
        if (name && !strncmp(name, ONNX_PAST ".", strlen(ONNX_PAST) + 1) &&
            strstr(name, ".encoder."))
            return true;
    }
    return false;
}

/* The file whose name begins so, and ends as that of the path. */
static char *beside(const char *path, size_t folder, const char *begin, const char *end,
                    sn_error *err) {
    const size_t size = folder + strlen(begin) + strlen(end) + 1;
    char *out = malloc(size);
    if (!out)
        sn_fail(err, SN_ERR_MEMORY, "%s: out of memory", path);
    else
        snprintf(out, size, "%.*s%s%s", (int)folder, path, begin, end);
    if (!out || sn_file_exists(out)) return out;
    sn_fail(err, SN_ERR_FILE, "%s: this decoder of an encoder-decoder needs %s, which is not there",
            path, out);
    free(out);
    return NULL;
}

bool onnx_pair_files(onnx_seq2seq *p, const char *path, bool merged, sn_error *err) {
    static const char *const names[] = {"decoder_model_merged", "decoder_with_past_model"};
    const char *slash = strrchr(path, '/'), *name = slash ? slash + 1 : path, *end = NULL;
    const size_t folder = (size_t)(name - path);
    for (int i = 0; i < 2; i++)
        if (!strncmp(name, names[i], strlen(names[i]))) end = name + strlen(names[i]);
    if (!end)
        return sn_fail(
            err, SN_ERR_USAGE,
            "%s: the decoder of an encoder-decoder must be called %s.onnx or %s.onnx, so "
            "that its encoder is found",
            path, names[0], names[1]);
    p->encoder = beside(path, folder, "encoder_model", end, err);
    if (p->encoder && !merged) p->first = beside(path, folder, "decoder_model", end, err);
    return p->encoder && (merged || p->first);
}

void onnx_pair_free(onnx_seq2seq *p) {
    free(p->encoder);
    free(p->first);
    p->encoder = p->first = NULL;
}

/* ---- inputs ---- */

/* Room for positions of a source in a state. */
static int64_t room_of(const onnx_call *c) {
    enum { SOUND = 1500 }; /* 30 s of 50 positions, as in Whisper */
    const onnx_role *r = c->im->role;
    return r->pair->length ? r->pair->length : r->pair->samples ? SOUND : r->context;
}

sn_dim onnx_source_length(const onnx_call *c) {
    const int64_t length = c->im->role->pair->length;
    return length ? length : onnx_symbol_in(c->im, "S", 1, room_of(c));
}

/* [sources, ..] -> [rows, ..]: each source for each of its beams. */
static sn_tensor for_rows(const onnx_asked *g, sn_tensor x) {
    onnx_call *c = g->c;
    const onnx_seq2seq *p = c->im->role->pair;
    const int rank = sn_rank_of(x);
    sn_dim shape[SN_MAX_RANK + 2] = {p->sources, p->beams}, rows[SN_MAX_RANK + 1] = {g->rows};
    if (sn_dim_of(x, 0) == g->rows) return x;
    for (int i = 1; i < rank; i++) shape[i + 1] = rows[i] = sn_dim_of(x, i);
    shape[rank + 1] = rows[rank] = SN_END;
    if (p->sources == 1) return sn_broadcast_at(c->at, x, rows);
    return sn_reshape_at(c->at, sn_broadcast_at(c->at, sn_expand(x, 1), shape), rows);
}

sn_tensor onnx_make_source_mask(const onnx_asked *g) {
    onnx_call *c = g->c;
    const onnx_seq2seq *p = c->im->role->pair;
    const sn_dim n = onnx_source_length(c);
    if (!onnx_agrees(g, SN_DIMS(g->rows, n))) return NULL;
    if (p->sound) return sn_full(c->m, g->type, 1, g->rows, n);
    sn_tensor lengths = sn_input(c->m, "lengths", SN_I32, p->sources);
    sn_tensor valid = sn_cast(sn_lt(sn_arange(c->m, SN_I32, n), sn_expand(lengths, 1)), g->type);
    return for_rows(g, valid);
}

/* A state of the shape, whose axis has room for positions of a source; axis < 0: none has. */
static sn_tensor source_state(onnx_call *c, const char *name, sn_dtype type, const sn_dim *shape,
                              int axis) {
    sn_dim of[SN_MAX_RANK + 1];
    int n = 0;
    for (; shape[n] != SN_END; n++) of[n] = n == axis ? room_of(c) : shape[n];
    of[n] = SN_END;
    of[0] = c->im->role->pair->sources;
    return sn_state_at(c->at, c->m, name, type, of);
}

static void keep(onnx_call *c, const char *name, sn_tensor x, int axis) {
    sn_dim shape[SN_MAX_RANK + 1], start[SN_MAX_RANK + 1] = {0};
    const int rank = sn_rank_of(x);
    for (int i = 0; i < rank; i++) shape[i] = sn_dim_of(x, i);
    shape[rank] = start[rank] = SN_END;
    sn_tensor state = source_state(c, name, sn_dtype_of(x), shape, axis);
    sn_assign_at(c->at, state, sn_update_at(c->at, state, x, start));
}

/* What the encoder gave: to the decoder of the same entry, or to a later one. */
sn_tensor onnx_make_hidden(const onnx_asked *g) {
    onnx_call *c = g->c;
    const onnx_seq2seq *p = c->im->role->pair;
    const sn_dim n = onnx_source_length(c), shape[] = {g->rows, n, p->width, SN_END};
    if (!onnx_agrees(g, shape)) return NULL;
    if (c->im->between) return sn_cast(c->im->between, g->type);
    return for_rows(g, sn_slice_at(c->at, source_state(c, HIDDEN, g->type, shape, 1), 1, 0, n, 1));
}

sn_tensor onnx_make_features(const onnx_asked *g) {
    onnx_call *c = g->c;
    onnx_seq2seq *p = c->im->role->pair;
    const sn_dim rows = g->rows;
    int64_t *const size[] = {&p->mel, &p->frames};
    for (int i = 0; i < 2 && g->shape[i] != SN_END; i++)
        if (g->shape[i + 1] != SN_END) sn_dim_is_const(c->m, g->shape[i + 1], size[i]);
    if (!p->mel || !p->frames) {
        onnx_fail(c,
                  "the config must say the size of spectrograms, \"num_mel_bins\" and "
                  "\"max_source_positions\": the input '%s' does not",
                  g->name);
        return NULL;
    }
    p->sound = true;
    if (!onnx_agrees(g, SN_DIMS(rows, p->mel, p->frames))) return NULL;
    return sn_cast(sn_input(c->m, "features", SN_F32, rows, p->mel, p->frames), g->type);
}

/* As many as the graph takes for S positions, which onnx_give_hidden finds out. */
sn_tensor onnx_make_samples(const onnx_asked *g) {
    onnx_call *c = g->c;
    onnx_seq2seq *p = c->im->role->pair;
    p->sound = true;
    p->samples = g->shape[0] != SN_END ? g->shape[1] : SN_END;
    if (!onnx_agrees(g, SN_DIMS(g->rows, p->samples))) return NULL;
    return sn_cast(sn_input(c->m, "samples", SN_F32, g->rows, p->samples), g->type);
}

sn_tensor onnx_make_unused(const onnx_asked *g) {
    onnx_call *c = g->c;
    sn_dim shape[SN_MAX_RANK + 1];
    int n = 0;
    for (; g->shape[n] != SN_END; n++)
        shape[n] = sn_dim_is_const(c->m, g->shape[n], NULL) ? g->shape[n] : n ? 1 : g->rows;
    shape[n] = SN_END;
    return onnx_agrees(g, shape) ? sn_full_at(c->at, c->m, g->type, 0, shape) : NULL;
}

sn_tensor onnx_make_source_past(const onnx_asked *g) {
    onnx_call *c = g->c;
    sn_dim shape[SN_MAX_RANK + 1];
    const int axis = onnx_free_axis(g, shape);
    if (axis == -2 || (axis < 0 && !c->im->role->pair->length)) {
        onnx_fail(c,
                  "of the input '%s', the axis of the source's tokens must be the only one behind "
                  "the first without a number as its size",
                  g->name);
        return NULL;
    }
    shape[0] = g->rows;
    if (axis > 0) shape[axis] = onnx_source_length(c);
    if (!onnx_agrees(g, shape)) return NULL;
    sn_tensor state = source_state(c, g->name, g->type, shape, axis);
    return for_rows(g, axis < 0 ? state
                                : sn_slice_at(c->at, state, axis, 0, onnx_source_length(c), 1));
}

/* ---- outputs ---- */

bool onnx_give_hidden(onnx_call *c, const char *name, onnx_value *v) {
    onnx_seq2seq *p = c->im->role->pair;
    if (strcmp(name, "last_hidden_state") != 0) return true;
    sn_tensor x = onnx_tensor_of(c, v);
    if (sn_rank_of(x) != 3 || !onnx_same_dim(c, sn_dim_of(x, 0), p->sources) ||
        !sn_dim_is_const(c->m, sn_dim_of(x, 2), &p->width))
        return onnx_fail(c, "the output '%s' is not [batch, positions, n] with a number as n",
                         name);
    if (sn_dim_is_const(c->m, sn_dim_of(x, 1), NULL))
        sn_dim_is_const(c->m, sn_dim_of(x, 1), &p->length);
    else if (!onnx_equal(c, sn_dim_of(x, 1), onnx_source_length(c)))
        return onnx_fail(c, "the output '%s' has not as many positions as there are tokens", name);
    c->im->between = x;
    sn_output("hidden", sn_cast(x, SN_F32));
    keep(c, HIDDEN, x, 1);
    return true;
}

/* Keys and values of the source, which the decoder's first step computes, into states. */
bool onnx_give_source(onnx_call *c, const char *name, onnx_value *v) {
    const char *dot = strchr(name, '.');
    char state[160];
    if (strncmp(name, "present", 7) != 0 || !dot || !strstr(dot, ".encoder.")) return true;
    sn_tensor x = onnx_tensor_of(c, v);
    int axis = sn_rank_of(x) - 1;
    while (axis > 0 && sn_dim_is_const(c->m, sn_dim_of(x, axis), NULL)) axis--;
    if (axis > 0 && !onnx_same_dim(c, sn_dim_of(x, axis), onnx_source_length(c)))
        return onnx_fail(c, "the output '%s' has not as many rows as the source has tokens", name);
    snprintf(state, sizeof state, ONNX_PAST "%.120s", dot);
    keep(c, state, x, axis > 0 ? axis : -1);
    return true;
}

/* ---- the entries ---- */

static bool reads(sn_module *m, sn_entry *e, const char *state) {
    sn_order order = sn_entry_topo(m, e);
    for (int i = 0; i < order.n; i++)
        if (order.node[i]->op == SN_OP_state &&
            !strcmp(sn_attr_str(order.node[i], SN_A_name, ""), state))
            return true;
    return false;
}

/* Row i of the decoder's caches becomes row parents[i]. */
static void add_reorder(sn_module *m, const sn_entry *decode, sn_loc at) {
    sn_entry_begin_at(at, m, "reorder");
    sn_tensor parents = NULL;
    for (int i = 0; i < decode->n_assign; i++) {
        sn_node *state = NULL;
        for (uint32_t k = 0; !state && k < sn_module_node_count(m); k++) {
            sn_node *n = sn_module_node(m, k);
            if (n->op == SN_OP_state &&
                !strcmp(sn_attr_str(n, SN_A_name, ""), decode->assign[i].name))
                state = n;
        }
        if (!parents)
            parents = sn_input_at(at, m, "parents", SN_I32, SN_DIMS(sn_dim_of_at(at, state, 0)));
        sn_assign_at(at, state, sn_gather_at(at, state, 0, parents));
    }
    sn_output_at(at, "parents", parents);
}

void onnx_pair_finish(sn_module *m, const char *path) {
    sn_entry *prefill = sn_entry_get(m, "prefill"), *decode = sn_entry_get(m, "decode");
    int n = 0;
    for (int i = 0; i < prefill->n_assign; i++)
        if (reads(m, decode, prefill->assign[i].name)) prefill->assign[n++] = prefill->assign[i];
    prefill->n_assign = n;
    add_reorder(m, decode, (sn_loc){sn_arena_str(m, path), 0});
}
