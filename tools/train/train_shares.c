/* train_shares.c: parameters and states of which each rank of a group has a share (the mesh axis
 * "tensor"), as whole tensors and their rows: a checkpoint belongs to no number of ranks. */
#include "tools/train/train_ranks.h"

#include <stdlib.h>
#include <string.h>

static bool fail_memory(size_t bytes, const train_tensor *x, sn_error *err) {
    return sn_fail(err, SN_ERR_MEMORY, "out of memory: %zu bytes for '%s'", bytes, x->whole.name);
}

bool train_share_collect(train_ranks *r, const train_tensor *x, void **whole, sn_error *err) {
    bool leads = r->tensor->rank == 0;
    size_t *size = calloc((size_t)r->tensor->size, sizeof *size);
    void *all = NULL;
    *whole = leads ? malloc(x->whole.bytes + 1) : NULL;
    bool ok = (size && (*whole || !leads)) || fail_memory(x->whole.bytes, x, err);
    ok = sn_comm_agree(r->tensor, ok, err) &&
         sn_comm_collect(r->tensor, x->memory, train_tensor_bytes(x), &all, size, err);
    if (ok && leads) train_share_join(x, all, 0, sn_weight_elements(&x->whole), *whole);
    free(size);
    free(all);
    if (ok) return true;
    free(*whole);
    *whole = NULL;
    return false;
}

/* The first rank writes what is one row. */
static void rows_of(const train_ranks *r, train_tensor *x) {
    int64_t part = x->rows > 1 ? (x->rows + r->tensor->size - 1) / r->tensor->size : x->rows;
    x->first = r->tensor->rank * part < x->rows ? r->tensor->rank * part : x->rows;
    x->last = x->first + part < x->rows ? x->first + part : x->rows;
}

/* x's memory becomes these rows. */
static bool gather(train_ranks *r, train_tensor *x, sn_error *err) {
    int64_t row = (int64_t)(x->row_bytes / sn_dtype_size(x->whole.dtype));
    size_t each = train_tensor_bytes(x), bytes = each * (size_t)x->share.ranks;
    char *all = malloc(bytes + 1), *rows;
    rows_of(r, x);
    rows = malloc((size_t)(x->last - x->first) * x->row_bytes + 1);
    bool ok = sn_comm_agree(r->tensor, (all && rows) || fail_memory(bytes, x, err), err);
    if (ok) memcpy(all + (size_t)r->tensor->rank * each, x->memory, each);
    ok = ok && sn_comm_gather(r->tensor, all, each, err);
    if (ok) train_share_join(x, all, x->first * row, (x->last - x->first) * row, rows);
    free(all);
    x->memory = rows;
    x->share = (sn_share){0};
    return ok;
}

/* *out: the tensors with the rows that this rank writes of those that ranks share. */
static bool gather_all(train_ranks *r, const train_tensors *t, train_tensors *out, sn_error *err) {
    *out = (train_tensors){calloc(t->count + 1, sizeof *out->tensor), 0};
    if (!sn_comm_agree(r->tensor, out->tensor || sn_fail(err, SN_ERR_MEMORY, "out of memory"), err))
        return false;
    bool ok = true;
    while (ok && out->count < t->count) {
        train_tensor *x = &out->tensor[out->count];
        *x = t->tensor[out->count++];
        ok = !x->share.ranks || gather(r, x, err);
    }
    return ok;
}

static void free_all(const train_tensors *t, train_tensors *gathered) {
    for (size_t i = 0; i < gathered->count; i++)
        if (t->tensor[i].share.ranks) free(gathered->tensor[i].memory);
    train_tensors_close(gathered);
}

/* ---- files ---- */

static bool save_parts(const train_ranks *r, const train_tensors *t, int64_t step,
                       const char *folder, sn_error *err) {
    const sn_comm *c = r->tensor ? r->tensor : r->comm;
    return checkpoint_save_part(folder, t, step, c->rank, c->size, err);
}

/* The first group of ranks that share the model writes it. */
bool train_ranks_save(train_ranks *r, const train_tensors *t, const train_state *state,
                      const train_identity *id, const char *folder, sn_error *err) {
    train_tensors rows = *t;
    bool leads = train_ranks_leads(r), writes = !r->tensor || r->data->rank == 0, ok = true;
    int files = r->tensor ? r->tensor->size : r->zero > 0 ? r->comm->size : 1;
    if (!train_ranks_settle(r, err) || !train_check_tensors(r, t, err)) return false;
    if (writes && r->tensor) ok = gather_all(r, t, &rows, err);
    if (ok && writes && files > 1) ok = save_parts(r, &rows, state->step, folder, err);
    ok = train_ranks_agree(r, ok, err);
    if (ok && leads) ok = checkpoint_save(folder, &rows, state, id, files, err);
    if (writes && r->tensor) free_all(t, &rows);
    return train_ranks_agree(r, ok, err);
}
