/* scan.h: the kernel calls of a scan: first one step of the plan (so that rematerialisation and
 * reordering treat it as a whole), at the end a loop. */
#ifndef SN_PLAN_SCAN_H
#define SN_PLAN_SCAN_H

#include "passes/plan/plan.h"

/* The elements of a segment of a loop of this length, which has at most as many segments: about its
 * square root. Other parts of the code compute the same (codegen/entry.c). */
int64_t sn_scan_segment(int64_t length);
/* Steps that the step becomes, itself included, and loops. */
void sn_scan_count(const sn_step *s, int *steps, int *scans);
/* Writes the steps of `whole` to `to`, whose first will be p->step[at], and adds its
 * loops to p->scan, which has room; parent: -1, or the loop around it. Returns the number of
 * steps. */
int sn_scan_unfold(sn_plan *p, const sn_step *whole, sn_step *to, int at, int parent);
/* The outermost scan that step i is in; NULL: none. */
const sn_scan_loop *sn_scan_around(const sn_plan *p, int i);
/* How often step i runs. *segments: the length of a loop whose segments count instead, each once, 0: none;
 * without it (NULL) their elements do. */
sn_dim sn_scan_iterations(const sn_plan *p, int i, sn_dim *segments);

#endif
