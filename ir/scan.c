/* scan.c: which operands and results of a scan are what. */
#include "ir/ir.h"

bool sn_scan_is_sequence(const sn_scan *s, int operand) {
    return operand >= s->n_carry && operand < s->n_carry + s->n_sequence;
}

int sn_scan_result(const sn_scan *s, int i) {
    if (i < s->n_carry - s->n_again) return i;
    return i < s->n_carry ? -1 : i - s->n_again;
}

int sn_scan_tile(const sn_scan *s, int i, int k) {
    return s->n_tile ? (int)s->tile[i * s->n_tile + k] : -1;
}
