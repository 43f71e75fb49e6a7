/* train_tensors.c: what training changes: the parameters and the optimizer's states, where they lie in
 * the session, and which rows of them this rank has. */
#include "tools/train/train.h"

#include "codegen/program/program.h"
#include "ir/ir.h"
#include "runtime/model_dir.h"

#include <stdlib.h>
#include <string.h>

static bool listed(const train_tensors *t, const char *name) {
    for (size_t i = 0; i < t->count; i++)
        if (!strcmp(t->tensor[i].whole.name, name)) return true;
    return false;
}

/* The parameter that the tensor is, or is a state of; NULL: neither. */
static const sn_weight *parameter_of(const sn_parameters *p, const char *name) {
    static const char prefix[] = "optimizer.";
    if (!strncmp(name, prefix, strlen(prefix))) {
        name = strchr(name + strlen(prefix), '.'); /* behind "m" or "v" */
        if (!name++) return NULL;
    }
    for (size_t i = 0; i < p->count; i++)
        if (!strcmp(p->weight[i].name, name)) return &p->weight[i];
    return NULL;
}

static bool same_shape(const sn_weight *a, const sn_weight *b) {
    bool same = a->rank == b->rank;
    for (int i = 0; same && i < a->rank; i++) same = a->shape[i] == b->shape[i];
    return same;
}

static bool describe(const char *name, const sn_node *n, const sn_parameters *p, int rank,
                     train_tensor *x, sn_error *err) {
    sn_weight w = {.name = name, .dtype = (sn_dtype)n->dtype, .rank = n->rank};
    for (int a = 0; a < n->rank; a++)
        if (!sn_dim_is_const(n->m, n->shape[a], &w.shape[a]))
            return sn_fail(err, SN_ERR_SHAPE, "'%s' has a symbolic shape", name);
    const sn_weight *of = parameter_of(p, name);
    bool part = of && !same_shape(of, &w);
    int64_t own = w.shape[0];
    if (part) {
        w.rank = of->rank;
        memcpy(w.shape, of->shape, sizeof w.shape);
    }
    int64_t elements = sn_weight_elements(&w), row = w.rank > 1 ? w.shape[w.rank - 1] : elements;
    w.bytes = (size_t)elements * sn_dtype_size(w.dtype);
    *x = (train_tensor){.whole = w,
                        .rows = row ? elements / row : 0,
                        .row_bytes = (size_t)row * sn_dtype_size(w.dtype),
                        .divided = part};
    x->last = x->rows;
    if (!part) return true;
    x->first = rank * own < x->rows ? rank * own : x->rows;
    x->last = x->first + own < x->rows ? x->first + own : x->rows;
    return true;
}

/* Accumulated gradients are zero between steps. */
static bool is_kept(const char *name) {
    return strncmp(name, "gradient.", 9) != 0;
}

bool train_tensors_open(sn_module *m, const sn_session *s, const sn_parameters *p, int rank,
                        train_tensors *out, sn_error *err) {
    *out = (train_tensors){0};
    const sn_entry *e = sn_entry_get(m, "train_step");
    if (!e) return sn_fail(err, SN_ERR_USAGE, "the model has no entry \"train_step\"");
    out->tensor = calloc((size_t)e->n_assign + 1, sizeof *out->tensor);
    if (!out->tensor) return sn_fail(err, SN_ERR_MEMORY, "out of memory");
    for (int i = 0; i < e->n_assign; i++) {
        const char *name = e->assign[i].name;
        train_tensor *x = &out->tensor[out->count];
        if (!is_kept(name) || listed(out, name)) continue;
        if (!describe(name, e->assign[i].node, p, rank, x, err)) return false;
        x->memory = (void *)(uintptr_t)sn_session_memory(s, name);
        if (!x->memory) return sn_fail(err, SN_ERR_INTERNAL, "the session has no '%s'", name);
        out->count++;
    }
    return true;
}

void train_tensors_close(train_tensors *t) {
    free(t->tensor);
    *t = (train_tensors){0};
}

const train_tensor *train_tensors_find(const train_tensors *t, const char *name) {
    for (size_t i = 0; i < t->count; i++)
        if (!strcmp(t->tensor[i].whole.name, name)) return &t->tensor[i];
    return NULL;
}

size_t train_tensor_bytes(const train_tensor *x) {
    return (size_t)(x->last - x->first) * x->row_bytes;
}

void train_tensors_free_start(sn_parameters *p, const sn_program *program) {
    for (size_t i = 0; i < p->count; i++) {
        sn_weight *w = &p->weight[i];
        if (!sn_program_trained(program, w->name)) continue;
        free((void *)(uintptr_t)w->data);
        w->data = NULL;
    }
}

bool train_tensors_save(const train_tensors *t, const sn_parameters *p, const char *folder,
                        sn_config *config, sn_error *err) {
    sn_weight *list = calloc(p->count + 1, sizeof *list);
    for (size_t i = 0; list && i < p->count; i++) {
        const train_tensor *x = train_tensors_find(t, p->weight[i].name);
        list[i] = p->weight[i];
        if (x) list[i].data = x->memory;
    }
    bool ok = list ? sn_model_dir_save(folder, config, list, p->count, err)
                   : sn_fail(err, SN_ERR_MEMORY, "out of memory");
    free(list);
    return ok;
}
