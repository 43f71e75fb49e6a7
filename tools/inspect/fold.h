/* fold.h: finds what repeats in a list: the layers of a model. */
#ifndef SN_INSPECT_FOLD_H
#define SN_INSPECT_FOLD_H

#include <stdbool.h>

/* `times` runs of `period` items, alike except for the number of the layer. */
typedef struct inspect_fold {
    int first, period, times;
} inspect_fold;

/* Finds disjoint folds in a list of n items, in order; fold has room for n. alike: whether items i
 * and j are the same but for the layer. Returns their number. */
int inspect_folds_find(int n, int max_period, bool (*alike)(const void *ctx, int i, int j),
                       const void *ctx, inspect_fold *fold);

#endif
