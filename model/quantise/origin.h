/* origin.h: which parameters scale the inputs of a product, channel by channel. */
#ifndef SN_ORIGIN_H
#define SN_ORIGIN_H

#include "model/quantise/subject.h"

/* What makes the channels of a product's inputs, if every channel can be scaled there and nothing else
 * changes: the gain and bias of a norm, or rows of a linear map and of its bias, whose result is
 * multiplied by a gate, or is the value that attention takes means of. */
typedef struct origin {
    int vector[2]; /* parameters of rank 1 with an element per channel; -1: none */
    int matrix;    /* a parameter whose rows (columns, if swapped) are channels; -1: none */
    bool swapped;
    int64_t first; /* the element or row of channel 0 */
    int64_t count; /* channels that can be scaled: of a group of heads that share values, one */
    int64_t
        size; /* of a head; the product's channel c is the origin's (c / size / share) size + c % size */
    int64_t share;
} origin;

/* False: the product's inputs cannot be scaled. users: [number of nodes] how many operands each node
 * is, by id (origin_users). */
bool origin_find(const subject *s, int product, const int *users, origin *out);
/* The caller frees the list. NULL: out of memory. */
int *origin_users(const subject *s);

static inline int64_t origin_channel(const origin *o, int64_t c) {
    return c / o->size / o->share * o->size + c % o->size;
}

#endif
