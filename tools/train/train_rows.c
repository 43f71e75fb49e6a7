/* train_rows.c: rows whose tokens several ranks divide (the mesh axis "context"): the r-th of equal parts of
 * each row is rank r's. */
#include "tools/train/train_ranks.h"

#include "ir/ir.h"

#include <stdlib.h>
#include <string.h>

bool train_rows_of(const train_ranks *r, sn_batch *b, train_rows *part, sn_error *err) {
    if (!r->context) return true;
    int32_t **const list[] = {&b->tokens, &b->targets};
    enum { LISTS = sizeof list / sizeof *list };
    int64_t T = b->T / r->context->size, first = r->context->rank * T;
    size_t n = (size_t)(b->B * T);
    if (b->T % r->context->size)
        return sn_fail(err, SN_ERR_USAGE, "%d ranks cannot divide rows of %lld tokens",
                       r->context->size, (long long)b->T);
    if (LISTS * n > part->room) {
        int32_t *grown = realloc(part->ids, LISTS * n * sizeof *grown);
        if (!grown) return sn_fail(err, SN_ERR_MEMORY, "out of memory");
        part->ids = grown, part->room = LISTS * n;
    }
    for (int i = 0; i < LISTS; i++) {
        int32_t *to = part->ids + (size_t)i * n;
        for (int64_t row = 0; row < b->B; row++)
            memcpy(to + row * T, *list[i] + row * b->T + first, (size_t)T * sizeof *to);
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
