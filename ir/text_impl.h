/* text_impl.h: shared by the printer and the parser of the text form. */
#ifndef SN_IR_TEXT_IMPL_H
#define SN_IR_TEXT_IMPL_H

#include "ir/ir.h"

#include <ctype.h>

/* Attributes that repeat the printed type: not printed, and derived from the type when parsed. */
enum { SN_TYPE_HAS_DTYPE = 1, SN_TYPE_HAS_SHAPE = 2 };
extern const uint8_t sn_text_in_type[SN_OP_COUNT];     /* print.c */
extern const char *const sn_text_kinds[SN_TEXT_KINDS]; /* print.c */

static inline bool sn_text_name_char(char c) {
    return isalnum((unsigned char)c) || c == '_' || c == '.';
}

#endif
