/* train_rows.c: rows whose tokens several ranks divide (the mesh axis "context"): the r-th of equal parts of
 * each row is rank r's, or its r-th half part from the start and the r-th from the end. */
#include "model/train/train_ranks.h"

#include "frontend/models.h"
#include "ir/ir.h"

#include <stdlib.h>
#include <string.h>

bool train_rows_of(const train_ranks *r, sn_batch *b, train_rows *part, sn_error *err) {
    if (!r->context) return true;
    int32_t **const list[] = {&b->tokens, &b->targets};
    enum { LISTS = sizeof list / sizeof *list };
    int64_t ranks = r->context->size, rank = r->context->rank, T = b->T / ranks;
    int64_t halves = sn_rows_zigzag(b->T, ranks) ? 2 : 1, half = T / halves;
    int64_t first[2] = {rank * half, (2 * ranks - 1 - rank) * half};
    size_t n = (size_t)(b->B * T);
    if (b->T % ranks)
        return sn_fail(err, SN_ERR_USAGE, "%lld ranks cannot divide rows of %lld tokens",
                       (long long)ranks, (long long)b->T);
    if (LISTS * n > part->room) {
        int32_t *grown = realloc(part->ids, LISTS * n * sizeof *grown);
        if (!grown) return sn_fail(err, SN_ERR_MEMORY, "out of memory");
        part->ids = grown, part->room = LISTS * n;
    }
    for (int i = 0; i < LISTS; i++) {
        int32_t *to = part->ids + (size_t)i * n;
        for (int64_t k = 0; k < b->B * halves; k++)
            memcpy(to + k * half, *list[i] + k / halves * b->T + first[k % halves],
                   (size_t)half * sizeof *to);
        *list[i] = to;
    }
    b->T = T;
    return true;
}

void train_rows_free(train_rows *part) {
    free(part->ids);
    *part = (train_rows){0};
}

bool train_divides_rows(sn_module *m) {
    for (uint32_t i = 0; i < sn_module_node_count(m); i++)
        if (sn_module_node(m, i)->op == SN_OP_ring_attention) return true;
    return false;
}
