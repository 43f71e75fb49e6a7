/* null_op.c: operations whose operands are all NULL. They belong to no module that could hold their
 * error, so the first one since the thread began an entry is remembered for that entry's module. */
#include "ir/module_impl.h"

/* `m` is only compared: the module may have been freed. A new one with its address is not `entered`. */
static _Thread_local struct {
    const sn_module *m;
    const char *op; /* NULL: none */
    sn_loc at;
} last;

void sn_null_op_begin(sn_module *m) {
    if (m) m->entered = true;
    last.m = m;
    last.op = NULL;
}

void sn_null_op(const char *op, sn_loc at) {
    if (!last.op) last.op = op, last.at = at;
}

void sn_null_op_report(sn_module *m) {
    if (last.m != m || !m->entered || !last.op || sn_module_error(m)->code) return;
    sn_module_set_loc(m, last.at);
    sn_module_fail(m, SN_ERR_USAGE, "%s: operand 1 is NULL", last.op);
}
