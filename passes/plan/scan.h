/* scan.h: the steps of a scan:
 *
 *     scan: for each part
 *         copies of the carries to where they begin
 *         elements: for each element
 *             segment, if one ends: for its elements      scan_recompute.c
 *                 the first carry, if it begins; stores the carry; computes the next one, if it goes on
 *             stores a carry, if a segment begins         scan_recompute.c
 *             the calls of the body
 *         copies of the carries to the results */
#ifndef SN_PLAN_SCAN_H
#define SN_PLAN_SCAN_H

#include "passes/plan/plan.h"

/* The elements of a segment of a loop of this length, which has at most as many segments: about its
 * square root. Other parts of the code compute the same (codegen/entry.c). */
int64_t sn_scan_segment(int64_t length);
/* The loop over elements of a scan. */
const sn_step *sn_scan_elements(const sn_step *scan);
/* How often a step runs. *segments: the length of a loop whose segments count instead, each once, 0: none;
 * without it (NULL) their elements do. */
sn_dim sn_scan_iterations(sn_module *m, const sn_step *s, sn_dim *segments);

#endif
