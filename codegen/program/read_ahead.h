/* read_ahead.h: reads what preparations need from the disk while earlier ones run. */
#ifndef SN_READ_AHEAD_H
#define SN_READ_AHEAD_H

#include "runtime/weights.h"

typedef struct sn_extent { /* data of a tensor in the file */
    const void *data;
    size_t bytes;
    const void *read; /* where it was read to; NULL: use the mapped data */
} sn_extent;

typedef struct sn_read_group { /* what one preparation needs */
    sn_extent *extent;
    int n;
} sn_read_group;

/* Bytes of memory that a group takes while it is needed. */
size_t sn_read_group_room(const sn_read_group *g);

typedef struct sn_read_ahead sn_read_ahead;

/* Starts to read the groups in their order, one group ahead of the one in use. The groups stay the
 * caller's; `w` and they stay as they are until sn_read_ahead_stop. NULL: out of memory or threads,
 * nothing is read. */
sn_read_ahead *sn_read_ahead_start(const sn_weights *w, const sn_read_group *group, int n);
/* Ends the use of the groups before group i and waits until that is read. */
void sn_read_ahead_wait(sn_read_ahead *r, int i);
void sn_read_ahead_stop(sn_read_ahead *r); /* NULL is allowed */

#endif
