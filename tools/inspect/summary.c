/* summary.c: see summary.h. */
#include "tools/inspect/summary.h"
#include "runtime/cli/json_out.h"
#include "runtime/cli/screen.h"

#include <math.h>
#include <stdio.h>

void inspect_summarise(const char *name, sn_dtype t, int rank, const int64_t *shape,
                       const void *data) {
    double sum = 0, square = 0, lo = INFINITY, hi = -INFINITY;
    int64_t count = 1;
    bool nan = false;
    for (int i = 0; i < rank; i++) count *= shape[i];
    for (int64_t i = 0; i < count; i++) {
        double x = sn_dtype_load(t, data, i);
        sum += x, square += x * x;
        lo = fmin(lo, x), hi = fmax(hi, x); /* which leave NaN out */
        nan |= isnan(x);
    }
    if (nan) sum = square = lo = hi = NAN; /* without a sign, which printf would show */
    double n = (double)count, mean = sum / n, variance = square / n - mean * mean,
           deviation = nan ? NAN : sqrt(fmax(variance, 0));
    if (sn_screen()->json) {
        json_out j = sn_json_begin(stdout);
        sn_json_text(&j, "name", name);
        sn_json_list(&j, "shape");
        for (int i = 0; i < rank; i++) sn_json_integer(&j, NULL, shape[i]);
        sn_json_close(&j);
        sn_json_number(&j, "mean", mean);
        sn_json_number(&j, "deviation", deviation);
        sn_json_number(&j, "min", lo);
        sn_json_number(&j, "max", hi);
        sn_json_end(&j);
        return;
    }
    printf("%s [", name);
    for (int i = 0; i < rank; i++) printf("%s%lld", i ? "," : "", (long long)shape[i]);
    printf("] mean %.6g, deviation %.6g, min %.6g, max %.6g\n", mean, deviation, lo, hi);
}
