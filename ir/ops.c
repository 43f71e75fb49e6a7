/* ops.c: the tables of operations and attributes, made from ops.def and attrs.def. */
#include "ir/ir.h"

#include <string.h>

enum { /* the short names of the flags column */
#define FLAG(name, bit, doc) name = SN_OPF_##name,
#include "ir/ops.def"
};

const sn_op_info sn_ops[SN_OP_COUNT] = {
#define ELEM(name, n, rule, flags, doc, expr)                                                      \
    [SN_OP_##name] = {#name, doc, SN_ELEM, n, n, flags, #rule},
#define PRIM(name, n, rule, flags, doc)                                                            \
    [SN_OP_##name] = {#name, doc, SN_PRIM, (n) < 0 ? 1 : n, n, flags, #rule},
#define COMP(name, lo, hi, flags, api, doc)                                                        \
    [SN_OP_##name] = {#name, doc, SN_COMP, lo, hi, flags, ""},
#define FUSED(name, flags, doc) [SN_OP_##name] = {#name, doc, SN_FUSED, 0, -1, flags, ""},
#include "ir/ops.def"
};

const struct sn_attr_info sn_attr_table[SN_ATTR_COUNT] = {
#define ATTR(name, kind, doc) [SN_A_##name] = {#name, doc, SN_AK_##kind},
#include "ir/attrs.def"
#undef ATTR
};

bool sn_op_parse(const char *name, sn_op *out) {
    for (int i = 0; i < SN_OP_COUNT; i++)
        if (!strcmp(name, sn_ops[i].name)) {
            *out = (sn_op)i;
            return true;
        }
    return false;
}
