/* folder_tensors.c: collects the tensors of a quantised model. */
#include "model/quantise/folder_tensors.h"
#include "runtime/file.h"

#include <stdlib.h>
#include <string.h>

bool folder_tensor_is_apart(const subject *s, const char *name) {
    char part[80];
    size_t n = strcspn(name, ".");
    if (!s->m->dir || n >= sizeof part) return false;
    memcpy(part, name, n);
    part[n] = 0;
    return sn_folder_has(s->m->dir->path, "modules.json") && sn_folder_has(s->m->dir->path, part);
}

static const subject_param *param_called(const subject *s, const char *name) {
    for (int i = 0; i < s->n_param; i++)
        if (!strcmp(s->param[i].name, name)) return &s->param[i];
    return NULL;
}

/* The changed parameter whose tensor of the file has the same bytes as w. */
static const subject_param *twin_of(const subject *s, const sn_weight *w) {
    for (int i = 0; i < s->n_param; i++) {
        const subject_param *p = &s->param[i];
        const sn_weight *t = p->changed ? sn_weights_find(model_weights(s->m), p->name) : NULL;
        if (t && t->bytes == w->bytes && t->dtype == w->dtype && t->block == w->block &&
            !memcmp(t->data, w->data, w->bytes))
            return p;
    }
    return NULL;
}

static bool same_bits(float a, float b) {
    return !memcmp(&a, &b, sizeof a);
}

/* x in 16 bits if they hold it exactly: bf16 or f16, *dtype; NULL: they do not, or no memory. */
static uint16_t *narrow(const float *x, int64_t n, sn_dtype *dtype) {
    static const sn_dtype types[] = {SN_BF16, SN_F16};
    uint16_t *out = malloc(sizeof *out * (size_t)n + 1);
    for (int t = 0; out && t < 2; t++) {
        bool exact = true;
        for (int64_t i = 0; exact && i < n; i++) {
            out[i] = t ? sn_f32_to_f16(x[i]) : sn_f32_to_bf16(x[i]);
            exact = same_bits(t ? sn_f16_to_f32(out[i]) : sn_bf16_to_f32(out[i]), x[i]);
        }
        *dtype = types[t];
        if (exact) return out;
    }
    free(out);
    return NULL;
}

/* The tensor w with the parameter's values. */
static void take_param(folder_tensors *t, size_t i, const subject_param *p) {
    sn_weight *w = &t->list[i];
    sn_dtype dtype = SN_F32;
    t->owned[i] = narrow(p->data, p->count, &dtype);
    w->block = NULL;
    w->dtype = t->owned[i] ? dtype : SN_F32;
    w->data = t->owned[i] ? t->owned[i] : p->data;
    w->bytes = (size_t)p->count * sn_dtype_size(w->dtype);
}

/* A tensor in blocks as f32. */
static bool widen(folder_tensors *t, size_t i, sn_error *err) {
    sn_weight *w = &t->list[i];
    int64_t n = sn_weight_elements(w);
    float *data = t->owned[i] = malloc(sizeof *data * (size_t)n + 1);
    if (!data) return sn_fail(err, SN_ERR_MEMORY, "out of memory for '%s'", w->name);
    if (!sn_weight_to_f32(w, data))
        return sn_fail(err, SN_ERR_FILE, "tensor '%s' cannot be converted", w->name);
    w->block = NULL;
    w->dtype = SN_F32;
    w->data = (void *)data;
    w->bytes = (size_t)n * sizeof *data;
    return true;
}

bool folder_tensors_make(const subject *s, folder_tensors *t, sn_error *err) {
    const sn_weights *from = model_weights(s->m);
    size_t n = sn_weights_count(from);
    t->list = calloc(n + 1, sizeof *t->list);
    t->owned = calloc(n + 1, sizeof *t->owned);
    if (!t->list || !t->owned) return sn_fail(err, SN_ERR_MEMORY, "out of memory");
    for (size_t i = 0; i < n; i++) {
        const sn_weight *w = sn_weights_at(from, i);
        if (folder_tensor_is_apart(s, w->name)) continue;
        const subject_param *p = param_called(s, w->name);
        if (!p) p = twin_of(s, w);
        size_t at = t->count++;
        t->list[at] = *w;
        if (p && p->changed)
            take_param(t, at, p);
        else if (w->block && !widen(t, at, err))
            return false;
    }
    return true;
}

void folder_tensors_free(folder_tensors *t) {
    for (size_t i = 0; t->owned && i < t->count; i++) free(t->owned[i]);
    free(t->list);
    free(t->owned);
    *t = (folder_tensors){0};
}
