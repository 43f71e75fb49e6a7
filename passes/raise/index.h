/* index.h: elements of tensors as scalar expressions of their indices: from a graph of tensors to
 * the scalar region that computes one element of it.
 *
 * An index is a number in mixed radix: digits, the most significant first, each a part of a scalar
 * i32 node: (src / low) mod size, where src < total. So reshapes regroup digits exactly, and
 * arithmetic is generated only for what remains split. No digit: 0. */
#ifndef SN_INDEX_H
#define SN_INDEX_H

#include "ir/ir.h"

enum { SN_MAX_DIGITS = 8 };

typedef struct sn_digit {
    sn_node *src; /* a scalar of an integer type */
    sn_dim low, size, total;
} sn_digit;

typedef struct sn_index {
    int n;
    sn_digit d[SN_MAX_DIGITS];
} sn_index;

/* The whole of src, which is in [0, size). */
sn_index sn_index_whole(sn_node *src, sn_dim size);
bool sn_index_equal(const sn_index *a, const sn_index *b);
/* Whether it is the whole of src. */
bool sn_index_is(const sn_index *a, const sn_node *src);
/* b after a, as one number. False: too many digits. */
bool sn_index_append(sn_module *m, sn_index *a, const sn_index *b);
/* The number as a scalar node of type i32 (of src's type where it is the whole of one). */
sn_node *sn_index_value(sn_module *m, const sn_index *a);
/* Converts indices of a tensor to indices of its reshape to the shape `to`. False: the shapes share
 * too little. */
bool sn_index_reshape(sn_module *m, int rank, const sn_index *ix, int to_rank, const sn_dim *to,
                      sn_index *out);
/* The index of n's element for an index of operand 0: for elementwise ops, views without
 * repetition, dropout. False: another op, or the shapes share too little. */
bool sn_index_push(const sn_node *n, const sn_index *ix, sn_index *out);

/* State for building the scalar expression of one element. */
typedef struct sn_element sn_element;
sn_element *sn_element_new(sn_module *m);
/* n[ix...] as a scalar node. Follows elementwise ops, views, look-ups, iotas and constants; other
 * tensors are read by gather_nd (a scalar is used directly). */
sn_node *sn_element_of(sn_element *e, sn_node *n, const sn_index *ix);
/* The decomposition of a composite with the flag INLINE (relu ...), otherwise NULL. */
sn_node *sn_element_opened(sn_node *n);

#endif
