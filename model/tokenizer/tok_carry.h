/* tok_carry.h: a tokenizer's fields on the way to or from tokenizer.tables, the file that is used in
 * place. One function lists the fields of a struct for both directions. Internal. */
#ifndef SN_TOK_CARRY_H
#define SN_TOK_CARRY_H

#include "model/tokenizer/tok.h"

enum { SN_TABLE_ALIGN = 64 }; /* of lists in the file */

typedef struct sn_carrier {
    bool reads;
    sn_bytes fields, lists; /* written; of a file that is read, size and data without capacity */
    size_t at;              /* what was read of the fields */
    sn_error *err;
} sn_carrier;

/* Plain data without pointers and bools; and a bool. False: out of memory, or the file is malformed,
 * with err set. All functions below fail likewise. */
bool sn_carry(sn_carrier *c, void *field, size_t size);
bool sn_carry_bool(sn_carrier *c, bool *field);
/* A number, when read at most `limit`. */
bool sn_carry_count(sn_carrier *c, size_t *count, size_t limit);
/* *data: an array of *count elements. One that is read lies in the file. */
bool sn_carry_list(sn_carrier *c, void *data, size_t *count, size_t size);
/* The same for bytes with a NUL behind them. */
bool sn_carry_bytes(sn_carrier *c, sn_bytes *bytes);
bool sn_carry_vocab(sn_carrier *c, sn_vocab *v);
/* Says that the file is malformed; returns false. */
bool sn_carry_fail(sn_carrier *c, const char *what);

#endif
