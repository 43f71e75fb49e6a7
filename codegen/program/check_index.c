/* check_index.c: sn_options.check_index: each entry with lookups gets a companion that computes the
 * least and the greatest index of every one, from the same inputs. A run executes it first and
 * stops at an index outside its table, before anything is written. */
#include "codegen/program/program.h"

/* The least (reduce_min) or greatest index as an i64 scalar; where there are no indices the least
 * is above the greatest. */
static sn_node *extreme(sn_op op, sn_node *index) {
    static const int64_t axes[SN_MAX_RANK] = {0, 1, 2, 3, 4, 5, 6, 7};
    sn_node *x = index->rank ? sn_b_reduce(op, index, index->rank, axes) : index;
    return sn_b_cast(sn_b_reshape(x, 0, NULL), SN_I64);
}

int sn_check_index_add(sn_module *m, sn_entry *e, sn_index_lookup **lookup) {
    sn_lookup *found;
    int n = sn_lookups_find(m, e, &found);
    if (!n) return 0;
    *lookup = sn_arena_alloc(m, sizeof **lookup * (size_t)n);
    sn_entry *companion = sn_entry_add(m, sn_arena_printf(m, "@check_index.%s", e->name));
    for (int i = 0; i < n; i++) {
        sn_index_lookup *l = &(*lookup)[i];
        l->of = found[i];
        l->least = sn_arena_printf(m, "least.%d", i);
        l->greatest = sn_arena_printf(m, "greatest.%d", i);
        sn_entry_output(m, companion, l->least, extreme(SN_OP_reduce_min, l->of.index));
        sn_entry_output(m, companion, l->greatest, extreme(SN_OP_reduce_max, l->of.index));
    }
    return n;
}

bool sn_check_index_report(const sn_module *m, const char *entry, const sn_index_lookup *l,
                           const int64_t *symbol, const int64_t extremes[2], sn_error *err) {
    int64_t size = sn_dim_eval(m, l->of.size, symbol), least = extremes[0], greatest = extremes[1];
    if (least > greatest || (least >= 0 && greatest < size)) return true;
    return sn_fail(err, SN_ERR_RANGE,
                   "check-index: entry %s: %s at %s:%d: index %lld is outside 0..%lld, the table "
                   "has %lld",
                   entry, l->of.op, l->of.loc.file ? l->of.loc.file : "?", l->of.loc.line,
                   (long long)(least < 0 ? least : greatest), (long long)size - 1, (long long)size);
}
