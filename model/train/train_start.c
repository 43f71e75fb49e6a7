/* train_start.c: the initial values of the parameters, drawn or from a model folder. If the ranks divide
 * the parameters, each keeps its part; no more than one of them is whole at a time. */
#include "model/train/train.h"

#include "codegen/program/program.h"
#include "runtime/memory.h"

#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

/* The own part, zero behind the last row of the whole; frees the whole. */
static const float *cut(float *whole, const sn_weight *w, const sn_weight *own, int rank) {
    size_t at = (size_t)rank * own->bytes;
    float *part = sn_memory_alloc(own->bytes);
    if (part) {
        size_t stored = at >= w->bytes               ? 0
                        : w->bytes - at < own->bytes ? w->bytes - at
                                                     : own->bytes;
        if (stored) memcpy(part, (const char *)whole + at, stored);
        memset((char *)part + stored, 0, own->bytes - stored);
    }
    free(whole);
    return part;
}

static void read_folder(const sn_model_dir *dir, const sn_weight *w, float *out, sn_problems *p) {
    const sn_weight *have = sn_weights_need(dir->weights, w->name, w->rank, w->shape, p);
    if (have && !sn_weight_to_f32(have, out))
        sn_problem(p, "'%s' is %s, not a float type", w->name, sn_dtype_name(have->dtype));
}

/* The initial values of w, malloc'ed; NULL on error. */
static float *make(const sn_model *model, const train_settings *s, const sn_model_dir *dir,
                   const sn_weight *w, sn_problems *p, sn_error *err) {
    float *whole = sn_memory_alloc(w->bytes);
    if (!whole)
        sn_fail(err, SN_ERR_MEMORY, "out of memory: %zu bytes for '%s'", w->bytes, w->name);
    else if (dir)
        read_folder(dir, w, whole, p);
    else
        sn_parameter_draw(w, model->type, model->layers, s->seed, whole);
    return whole;
}

/* Fills own->data; w: the whole. */
static bool fill(const sn_model *model, const train_settings *s, const sn_model_dir *dir, int rank,
                 const sn_weight *w, train_start *start, sn_weight *own, sn_problems *p,
                 sn_error *err) {
    float *whole = make(model, s, dir, w, p, err);
    if (!whole) return false;
    start->hash = XXH3_64bits_withSeed(w->name, strlen(w->name), start->hash);
    start->hash = XXH3_64bits_withSeed(whole, w->bytes, start->hash);
    if (own->bytes == w->bytes) {
        own->data = whole;
    } else if (s->tensor > 1) {
        free(whole); /* the session knows what this rank has of it: train_start_place */
        own->data = calloc(1, own->bytes);
    } else {
        own->data = cut(whole, w, own, rank);
    }
    return own->data ||
           sn_fail(err, SN_ERR_MEMORY, "out of memory: %zu bytes for '%s'", own->bytes, w->name);
}

bool train_start_place(const sn_model *model, const train_settings *s, const train_start *start,
                       const train_tensors *t, sn_error *err) {
    if (s->tensor < 2 || s->training.zero < 3) return true;
    sn_problems p = {0};
    sn_model_dir *dir = s->start ? sn_model_dir_open(s->start, err) : NULL;
    bool ok = dir || !s->start;
    for (size_t i = 0; ok && i < start->whole.count; i++) {
        const sn_weight *w = &start->whole.weight[i];
        const train_tensor *x = train_tensors_find(t, w->name);
        if (!x || train_start_own(start, w->name)->bytes == w->bytes) continue;
        float *whole = make(model, s, dir, w, &p, err);
        ok = whole != NULL;
        if (ok && x->share.ranks) train_share_take(x, whole, 0, sn_weight_elements(w));
        if (ok && !x->share.ranks)
            memcpy(x->memory, (char *)whole + (size_t)x->first * x->row_bytes,
                   train_tensor_bytes(x));
        free(whole);
    }
    sn_model_dir_close(dir);
    return sn_problems_check(&p, s->start ? s->start : "", SN_ERR_SHAPE, ok ? err : NULL) && ok;
}

bool train_start_open(train_start *start, const sn_model *model, const train_settings *s,
                      const sn_model_dir *dir, int rank, bool values, sn_error *err) {
    sn_problems p = {0};
    bool ok = sn_parameters_list(model->module, &start->whole, err);
    if (ok) sn_training_divide(model->module, &s->training);
    ok = ok && sn_parameters_list(model->module, &start->own, err);
    for (size_t i = 0; ok && values && i < start->own.count; i++) {
        sn_weight *own = &start->own.weight[i];
        ok = fill(model, s, dir, rank, train_start_whole(start, own->name), start, own, &p, err);
    }
    ok = sn_problems_check(&p, dir ? sn_weights_path(dir->weights) : "", SN_ERR_SHAPE,
                           ok ? err : NULL) &&
         ok;
    return ok;
}

static const sn_weight *find(const sn_parameters *p, const char *name) {
    for (size_t i = 0; i < p->count; i++)
        if (!strcmp(p->weight[i].name, name)) return &p->weight[i];
    return NULL;
}

const sn_weight *train_start_whole(const train_start *start, const char *name) {
    return find(&start->whole, name);
}

const sn_weight *train_start_own(const train_start *start, const char *name) {
    return find(&start->own, name);
}

double train_start_flops(const train_start *start, const sn_model *model, int64_t block) {
    static const char *const tables[] = {"wpe.",  "position_embeddings", "token_type", "wte.",
                                         "embed", "embedding."};
    enum { POSITIONS = 3, ALL = 6 };
    bool separate_head = false;
    for (size_t i = 0; i < start->whole.count; i++)
        separate_head |= strstr(start->whole.weight[i].name, "lm_head") ||
                         strstr(start->whole.weight[i].name, "unembedding");
    double weights = 0;
    for (size_t i = 0; i < start->whole.count; i++) {
        const sn_weight *w = &start->whole.weight[i];
        bool table = false;
        for (int k = 0; k < (separate_head ? ALL : POSITIONS); k++)
            table |= strstr(w->name, tables[k]) && !strstr(w->name, "unembedding");
        if (w->rank > 1 && !table) weights += (double)sn_weight_elements(w);
    }
    return 6 * weights + 12 * (double)model->layers * (double)model->d_model * (double)block;
}

void train_start_free_copied(train_start *start, const sn_program *program) {
    for (size_t i = 0; i < start->own.count; i++) {
        sn_weight *w = &start->own.weight[i];
        if (!sn_program_trained(program, w->name)) continue;
        free((void *)(uintptr_t)w->data);
        w->data = NULL;
    }
}

void train_start_close(train_start *start) {
    sn_parameters_free(&start->own);
    sn_parameters_free(&start->whole);
}
