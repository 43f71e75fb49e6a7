/* tok_serial.h: writes and reads a tokenizer's fields: tokenizer.tables, the file that is used in
 * place. One function lists the fields of a struct for both directions. Internal. */
#ifndef SN_TOK_SERIAL_H
#define SN_TOK_SERIAL_H

#include "model/tokenizer/tok.h"

enum { SN_TABLE_ALIGN = 64 }; /* of lists in the file */

typedef struct sn_serial {
    bool reads;
    sn_bytes fields, lists; /* written; of a file that is read, size and data without capacity */
    size_t at;              /* what was read of the fields */
    sn_error *err;
} sn_serial;

/* Plain data without pointers and bools; and a bool. False: out of memory, or the file is malformed,
 * with err set. All functions below fail likewise. */
bool sn_serial_field(sn_serial *c, void *field, size_t size);
#define SN_SERIAL(c, field) sn_serial_field(c, &(field), sizeof(field))
bool sn_serial_bool(sn_serial *c, bool *field);
/* A number, when read at most `limit`. */
bool sn_serial_count(sn_serial *c, size_t *count, size_t limit);
/* *data: an array of *count elements. One that is read lies in the file. */
bool sn_serial_list(sn_serial *c, void *data, size_t *count, size_t size);
/* The same for bytes with a NUL behind them. */
bool sn_serial_bytes(sn_serial *c, sn_bytes *bytes);
/* Where texts that begin with each byte are in a sorted list of `count`. */
bool sn_serial_index(sn_serial *c, uint32_t first[257], size_t count);
bool sn_serial_vocab(sn_serial *c, sn_vocab *v);
/* Says that the file is malformed; returns false. */
bool sn_serial_fail(sn_serial *c, const char *what);

#endif
