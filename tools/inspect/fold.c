/* fold.c: finds what repeats in a list, see fold.h. */
#include "tools/inspect/fold.h"

int inspect_folds_find(int n, int max_period, bool (*alike)(const void *ctx, int i, int j),
                       const void *ctx, inspect_fold *fold) {
    enum { LEAST_SAVED = 3 };
    int n_fold = 0;
    for (int i = 0; i < n;) {
        inspect_fold best = {i, 1, 1};
        for (int period = 1; period <= max_period && i + 2 * period <= n; period++) {
            int k = 0; /* items that are like those one period earlier */
            while (i + period + k < n && alike(ctx, i + k, i + period + k)) k++;
            int times = k / period + 1;
            if ((times - 1) * period > (best.times - 1) * best.period)
                best = (inspect_fold){i, period, times};
        }
        if ((best.times - 1) * best.period < LEAST_SAVED) {
            i++;
            continue;
        }
        fold[n_fold++] = best;
        i += best.period * best.times;
    }
    return n_fold;
}
