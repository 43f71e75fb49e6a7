/* fused_scan.h: how one kernel computes a scan whose body is elementwise but for reductions over two
 * axes: which axis of the carry lies along vectors, which other one is reduced, and which are apart. */
#ifndef SN_FUSED_SCAN_H
#define SN_FUSED_SCAN_H

#include "passes/axes.h"

enum {
    SN_LANES_ALONE = 16,  /* elements of the reduced axis, at most, if nothing lies along vectors */
    SN_LANES_INNER = 256, /* elements of the reduced axis, at most */
    SN_LANES_WIDEST = 16, /* f32 in a vector */
    SN_LANES_WHOLE = 128, /* elements of an axis that a kernel holds as one vector, at most */
    SN_LANES_BYTES = 1 << 15,      /* of what is carried and captured by the widest vector */
    SN_LANES_WHOLE_BYTES = 1 << 19 /* the same if it is the whole axis */
};

/* Classes of axes; size 1 is none. Each node has at most one axis of each. */
typedef struct sn_lanes {
    sn_scan s;
    sn_axes axes;
    const sn_axes_body *body;
    int lane; /* along vectors; -1: none, all are scalars */
    sn_dim n_lane;
    bool whole; /* operations reduce the lanes, or results lack them: one vector holds them all */
    int inner;  /* reduced, or missing in results, of n_inner elements; -1: none */
    int64_t n_inner;
    int unit[SN_MAX_RANK]; /* computed apart: nothing reduces them, and every result has them */
    sn_dim n[SN_MAX_RANK];
    int n_unit;
} sn_lanes;

/* Reads a `scan` or `fused_scan`. NULL: it can be one kernel; else the reason, in arena memory; *at: the
 * node in its body that is in the way, or NULL. */
const char *sn_lanes_read(sn_lanes *l, const sn_node *n, const sn_node **at);
/* The axis of a node of the body; -1: it has none. */
int sn_lanes_axis(sn_lanes *l, const sn_node *n, int class);
/* Whether each number of the scan's carry is combined with that of its only sequence by one operation
 * that is known to be associative: a running sum, product, maximum or minimum. */
bool sn_scan_is_running_result(const sn_node *n);
/* Whether a scan is the loop of a gradient: it reads what another of the same line has kept, in the other
 * direction. */
bool sn_scan_is_gradient(const sn_node *n);
/* Whether n reduces or contracts the class. */
bool sn_lanes_reduces(sn_lanes *l, const sn_node *n, int class);
/* By place in the body: whether the value depends on the element of the sequence. */
const bool *sn_lanes_moving(sn_lanes *l);

/* Who reads what of the module's scans. */
typedef struct sn_scan_uses {
    sn_module *m;
    int *reader; /* [n_node] */
    uint32_t n_node;
    const sn_region **body; /* [n_body] bodies of scans */
    uint32_t *read;         /* [n_body] bits of results that are read */
    int n_body, cap, n_scan;
    const sn_node *last; /* the scan that was looked at last */
    bool fused;          /* it became another with these results */
    sn_node *result[SN_MAX_RESULTS];
} sn_scan_uses;

void sn_scan_uses_count(sn_scan_uses *u, sn_module *m);
/* Rules (sn_rule) with sn_scan_uses as context: gradients of scans become fused_scan (fused_scan_grad.c);
 * results of scans that nobody reads disappear. */
sn_node *sn_fuse_scan_grad(void *uses, sn_node *n);
sn_node *sn_drop_scan_results(void *uses, sn_node *n);

#endif
