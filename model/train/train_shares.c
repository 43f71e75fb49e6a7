/* train_shares.c: parameters and states that are divided among the ranks of a group (the mesh axis
 * "tensor"), or further with ZeRO, as whole tensors and their rows: a checkpoint belongs to no
 * number of ranks. */
#include "model/train/train_ranks.h"

#include <stdlib.h>
#include <string.h>

static bool fail_memory(size_t bytes, const train_tensor *x, sn_error *err) {
    return sn_fail(err, SN_ERR_MEMORY, "out of memory: %zu bytes for '%s'", bytes, x->whole.name);
}

sn_comm *train_share_comm(const train_ranks *r, const train_tensor *x) {
    return x->nested ? r->comm : r->tensor;
}

bool train_share_collect(train_ranks *r, const train_tensor *x, void **whole, sn_error *err) {
    sn_comm *c = train_share_comm(r, x);
    bool leads = c->rank == 0;
    size_t *size = calloc((size_t)c->size, sizeof *size);
    void *all = NULL;
    *whole = leads ? malloc(x->whole.bytes + 1) : NULL;
    bool ok = (size && (*whole || !leads)) || fail_memory(x->whole.bytes, x, err);
    ok = sn_comm_agree(c, ok, err) &&
         sn_comm_collect(c, x->memory, train_tensor_bytes(x), &all, size, err);
    if (ok && leads) train_share_join(x, all, c->size, 0, sn_weight_elements(&x->whole), *whole);
    free(size);
    free(all);
    if (ok) return true;
    free(*whole);
    *whole = NULL;
    return false;
}

/* The ranks that write the checkpoint: the first group, or if groups divide what they have, all. */
static sn_comm *writers(const train_ranks *r) {
    return r->zero ? r->comm : r->tensor;
}

/* The first rank writes what is one row. */
static void rows_of(const train_ranks *r, train_tensor *x) {
    const sn_comm *c = writers(r);
    int64_t part = x->rows > 1 ? (x->rows + c->size - 1) / c->size : x->rows;
    x->first = c->rank * part < x->rows ? c->rank * part : x->rows;
    x->last = x->first + part < x->rows ? x->first + part : x->rows;
}

/* x's memory becomes these rows. */
static bool gather(train_ranks *r, train_tensor *x, sn_error *err) {
    bool shared = x->share.ranks > 0;
    sn_comm *c = shared ? train_share_comm(r, x) : r->data;
    int64_t row = (int64_t)(x->row_bytes / sn_dtype_size(x->whole.dtype));
    size_t part = ((size_t)x->rows + (size_t)c->size - 1) / (size_t)c->size * x->row_bytes,
           each = shared ? train_tensor_bytes(x) : part, bytes = each * (size_t)c->size;
    train_tensor out = *x;
    rows_of(r, &out);
    size_t skip = (size_t)out.first * x->row_bytes,
           kept = (size_t)(out.last - out.first) * x->row_bytes;
    char *all = malloc(bytes + 1), *rows = malloc(kept + 1);
    bool ok = sn_comm_agree(writers(r), (all && rows) || fail_memory(bytes, x, err), err);
    if (ok) memcpy(all + (size_t)c->rank * each, x->memory, train_tensor_bytes(x));
    ok = ok && sn_comm_gather(c, all, each, err);
    if (ok && !shared) memcpy(rows, all + skip, kept);
    if (ok && shared)
        train_share_join(x, all, c->size, out.first * row, (out.last - out.first) * row, rows);
    free(all);
    out.memory = rows;
    out.share = (sn_share){0};
    *x = out;
    return ok;
}

/* *out: the tensors with the rows that this rank writes of those that ranks share. */
static bool gather_all(train_ranks *r, const train_tensors *t, train_tensors *out, sn_error *err) {
    *out = (train_tensors){calloc(t->count + 1, sizeof *out->tensor), 0};
    if (!sn_comm_agree(writers(r), out->tensor || sn_fail(err, SN_ERR_MEMORY, "out of memory"),
                       err))
        return false;
    bool ok = true;
    while (ok && out->count < t->count) {
        train_tensor *x = &out->tensor[out->count];
        *x = t->tensor[out->count++];
        ok = !x->divided || gather(r, x, err);
    }
    return ok;
}

static void free_all(const train_tensors *t, train_tensors *gathered) {
    for (size_t i = 0; i < gathered->count; i++)
        if (t->tensor[i].divided) free(gathered->tensor[i].memory);
    train_tensors_close(gathered);
}

/* ---- files ---- */

/* The ranks of one group write it; with ZeRO, those of all groups. */
bool train_ranks_save(train_ranks *r, const train_tensors *t, const train_state *state,
                      const train_identity *id, const char *folder, sn_error *err) {
    train_tensors rows = *t;
    const sn_comm *c = writers(r);
    bool leads = train_ranks_leads(r), ok = true, writes = r->zero || !r->tensor || !r->data->rank;
    int files = c ? c->size : 1;
    if (!train_ranks_settle(r, err) || !train_check_tensors(r, t, err)) return false;
    if (writes && r->tensor) ok = gather_all(r, t, &rows, err);
    if (ok && writes && files > 1)
        ok = checkpoint_save_part(folder, &rows, state->step, c->rank, files, err);
    ok = train_ranks_agree(r, ok, err);
    if (ok && leads) ok = checkpoint_save(folder, &rows, state, id, files, err);
    if (writes && r->tensor) free_all(t, &rows);
    return train_ranks_agree(r, ok, err);
}
