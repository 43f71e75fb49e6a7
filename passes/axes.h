/* axes.h: which axes of the nodes in the body of a scan go along: an elementwise operation joins those
 * of its operands and its result, and so on. Axes that go along are a class (union-find). */
#ifndef SN_AXES_H
#define SN_AXES_H

#include "ir/ir.h"

/* What happens to an axis of the class somewhere, in bits. */
enum { SN_AXIS_REDUCED = 1 /* by a reduction, or contracted */, SN_AXIS_CUT = 2 /* the rest */ };

/* A region's nodes. */
typedef struct sn_axes_body {
    const sn_region *region;
    sn_order order;
    int *index; /* by node id */
    int first;
    struct sn_axes_body **inner; /* by index: the body of a nested scan */
} sn_axes_body;

typedef struct sn_axes {
    sn_module *m;
    int *up; /* by number of an axis */
    uint8_t *fate;
    int n, cap, cap_fate;
} sn_axes;

/* Reads a region. Memory is the module's. */
sn_axes_body *sn_axes_read(sn_axes *t, const sn_region *r);
/* What leaves the body of s as a carry enters it again. */
void sn_axes_join_carries(sn_axes *t, const sn_axes_body *p, const sn_scan *s);
/* The same for its region `again`, whose nodes are those of q. */
void sn_axes_join_again(sn_axes *t, const sn_axes_body *p, const sn_axes_body *q, const sn_scan *s);
/* The number of axis a of a node of the region; the class of an axis by number. */
int sn_axes_number(const sn_axes_body *p, const sn_node *n, int a);
int sn_axes_class(sn_axes *t, int number);
/* The axis of n in the class; -1: none, -2: several. */
int sn_axes_in_class(sn_axes *t, const sn_axes_body *p, const sn_node *n, int class);

#endif
