/* view.h: strided views: the algebra of transpose, slice, broadcast and reshape on strides. */
#ifndef SN_VIEW_H
#define SN_VIEW_H

#include "ir/ir.h"

typedef struct sn_view {
    int buffer;
    sn_dtype dtype;
    int rank;
    sn_dim offset; /* elements */
    sn_dim shape[SN_MAX_RANK], stride[SN_MAX_RANK];
    sn_dim row_stride; /* in a loop over rows: elements to the next row; 0: the same for all rows */
} sn_view;

/* Row-major, the whole of a buffer. order: storage order of the axes, outermost first (NULL: 0, 1,
 * ...). */
sn_view sn_view_whole(sn_module *m, int buffer, sn_dtype t, int rank, const sn_dim *shape,
                      const int64_t *order);
/* Row-major and contiguous; axes of size 1 are ignored. */
bool sn_view_contiguous(sn_module *m, const sn_view *v);
/* The same elements at the same offsets of a buffer, possibly another one. */
bool sn_view_matches(const sn_view *a, const sn_view *b);
sn_view sn_view_transpose(const sn_view *v, const int64_t *perm);
sn_view sn_view_slice(sn_module *m, const sn_view *v, const sn_dim *start, const sn_dim *size,
                      const int64_t *step);
sn_view sn_view_broadcast(const sn_view *v, int rank, const sn_dim *shape);
/* False: no strides describe that order of elements; a copy is needed. */
bool sn_view_reshape(sn_module *m, const sn_view *v, int rank, const sn_dim *shape, sn_view *out);
/* n as a view of `base`, which is below its transposes, slices, broadcasts and reshapes and lies row
 * after row; NULL: of the first tensor below them. False: no strides express it. */
bool sn_view_over(const sn_node *n, const sn_node *base, sn_view *out);

#endif
