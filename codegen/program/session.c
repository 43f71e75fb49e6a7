/* session.c: the life of a session: opening, states, freeing. */
#include "codegen/program/session.h"

#include <stdlib.h>
#include <string.h>

static sn_session *open_session(sn_program *p, origin *o, sn_error *err) {
    if (!p) {
        sn_fail(err, SN_ERR_USAGE, "the program is NULL: did sn_compile fail?");
        return NULL;
    }
    if (!p->jit) {
        sn_fail(err, SN_ERR_USAGE, "the program has no code: it was compiled with plan_only");
        return NULL;
    }
    if (!o->weights && !sn_bindings_check(o->array, o->n_array, "parameter", true, err))
        return NULL;
    sn_session *s = calloc(1, sizeof *s);
    sn_error local = {0};
    if (!s) {
        sn_fail(err, SN_ERR_MEMORY, "out of memory");
        return NULL;
    }
    atomic_init(&s->owners, 1);
    s->p = sn_program_retain(p);
    if (sn_threads_init(&s->threads, p->threads, &local) && sn_session_bind(s, o, &local)) return s;
    sn_fail(err, local.code, "%s", local.message);
    sn_session_free(s);
    return NULL;
}

sn_session *sn_session_new(sn_program *p, const sn_weights *w, sn_error *err) {
    origin o = {.weights = w};
    return open_session(p, &o, err);
}

sn_session *sn_session_new_arrays(sn_program *p, const sn_arg_binding *param, int n,
                                  sn_error *err) {
    origin o = {.array = param, .n_array = n};
    return open_session(p, &o, err);
}

sn_session *sn_session_new_like(sn_program *p, const sn_session *like, sn_error *err) {
    origin o = {.like = like};
    return open_session(p, &o, err);
}

void sn_session_free(sn_session *s) {
    if (!s || atomic_fetch_sub(&s->owners, 1) > 1) return;
    sn_packed_close(s);
    free(s->param);
    free(s->state);
    sn_memory_unmap(s->memory.data, s->memory.size);
    sn_memory_unmap(s->states.data, s->states.size);
    for (int i = 0; s->fixed && i < s->p->n_entry; i++) free(s->fixed[i]);
    free(s->fixed);
    free(s->workspace.data);
    free(s->spare.data);
    if (s->library_state) sn_backend_library()->close(s->library_state);
    sn_threads_free(&s->threads);
    sn_program_free(s->p);
    free(s);
}

sn_session *sn_session_retain(sn_session *s) {
    atomic_fetch_add(&s->owners, 1);
    return s;
}

const sn_weights *sn_session_weights(const sn_session *s) {
    return s->weights;
}

const sn_program *sn_session_program(const sn_session *s) {
    return s->p;
}

static const bound *find_bound(const sn_session *s, const char *name) {
    const bound *b = sn_session_find(s->param, s->n_param, name);
    return b ? b : sn_session_find(s->state, s->n_state, name);
}

const void *sn_session_memory(const sn_session *s, const char *name) {
    const bound *b = find_bound(s, name);
    return b ? b->data : NULL;
}

size_t sn_session_bytes(const sn_session *s, const char *name) {
    const bound *b = find_bound(s, name);
    return b ? b->bytes : 0;
}

bool sn_session_parameter(const sn_session *s, const char *name, float *out, int64_t n) {
    const bound *b = sn_session_find(s->param, s->n_param, name);
    if (!b || !b->from.data) b = sn_session_find(s->state, s->n_state, name);
    if (!b || !b->from.data || b->from.split) return false;
    if (b->bytes != (size_t)n * sn_dtype_size(b->dtype)) return false;
    size_t bytes = (size_t)n * sn_dtype_size(b->from.dtype); /* of an array */
    sn_weight w = {.name = name,
                   .dtype = b->from.dtype,
                   .rank = 1,
                   .shape = {n},
                   .data = b->from.data,
                   .bytes = b->from.block ? b->from.bytes : bytes,
                   .block = b->from.block,
                   .scales = b->from.scales};
    return sn_weight_to_f32(&w, out);
}

const void *sn_session_prepared(const sn_session *s, int i, size_t *bytes) {
    for (int k = 0; k < s->n_param; k++) {
        const bound *b = &s->param[k];
        if (!sn_session_is_prepared(b->name) || i-- > 0) continue;
        *bytes = b->bytes;
        return b->data;
    }
    return NULL;
}

void sn_session_set_collectives(sn_session *s, sn_collectives *c) {
    s->collectives = c;
}

size_t sn_session_workspace(const sn_session *s) {
    return s->workspace.size;
}

const sn_compiled_entry *sn_session_running(const sn_session *s) {
    return s->running;
}

sn_profile *sn_session_profile(const sn_session *s) {
    return s->profile;
}

void sn_session_set_profile(sn_session *s, sn_profile *profile) {
    s->profile = profile;
}

void sn_session_reset(sn_session *s) {
    if (!s) return;
    for (int i = 0; i < s->n_state; i++)
        if (!sn_program_trained(s->p, s->state[i].name))
            sn_memory_zero(s->state[i].data, s->state[i].bytes);
}

static bound *need_state(const sn_session *s, const char *name, const void *data, size_t bytes,
                         sn_error *err) {
    if (!sn_given(s, "sn_state_read or sn_state_write", "the session", err) ||
        !sn_given(name, "sn_state_read or sn_state_write", "the state's name", err) ||
        !sn_given(data, "sn_state_read or sn_state_write", "the data", err))
        return NULL;
    bound *b = sn_session_find(s->state, s->n_state, name);
    if (!b)
        sn_fail(err, SN_ERR_USAGE, "there is no state '%s'", name);
    else if (b->bytes != bytes) {
        sn_fail(err, SN_ERR_SHAPE, "state '%s' has %zu bytes, not %zu", name, b->bytes, bytes);
        b = NULL;
    }
    return b;
}

bool sn_state_read(const sn_session *s, const char *name, void *data, size_t bytes, sn_error *err) {
    bound *b = need_state(s, name, data, bytes, err);
    if (b) memcpy(data, b->data, bytes);
    return b != NULL;
}

bool sn_state_write(sn_session *s, const char *name, const void *data, size_t bytes,
                    sn_error *err) {
    bound *b = need_state(s, name, data, bytes, err);
    if (b) memcpy(b->data, data, bytes);
    return b != NULL;
}

sn_share sn_session_share(const sn_session *s, const char *name) {
    for (int i = 0; i < s->p->n_leaf; i++)
        if (!strcmp(s->p->leaf[i].name, name)) return sn_share_of(s->p->leaf[i].node);
    return (sn_share){0};
}
