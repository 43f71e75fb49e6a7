/* lookups.h: tables, and the indices at which an entry reads or writes them. */
#ifndef SN_LOOKUPS_H
#define SN_LOOKUPS_H

#include "ir/ir.h"

typedef struct sn_lookup {
    sn_node *index;
    sn_dim size;    /* of the table: indices lie in 0 .. size - 1 */
    const char *op; /* what uses it, and where */
    sn_loc loc;
} sn_lookup;

/* Those of an entry; those inside attention's regions are those of its decomposition, for every pair of
 * a query and a key. Returns their number; *list: arena memory. */
int sn_lookups_find(sn_module *m, const sn_entry *e, sn_lookup **list);

/* The integers of `input` may be 0 .. the result - 1, so that no index that is computed from them leaves
 * its table at these sizes; other inputs count as 0. 0: no index depends on it, as far as is known. */
int64_t sn_input_limit(sn_module *m, const sn_entry *e, const sn_node *input,
                       const int64_t *symbol_values);

#endif
