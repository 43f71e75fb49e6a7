/* summary.h: a tensor in a line: shape, mean, deviation, least and greatest element. */
#ifndef SN_INSPECT_SUMMARY_H
#define SN_INSPECT_SUMMARY_H

#include "runtime/base.h"

/* Prints it to stdout, or the keys name, shape, mean, deviation, min, max as JSON if the user wants
 * that. */
void inspect_summarise(const char *name, sn_dtype t, int rank, const int64_t *shape,
                       const void *data);

#endif
