/* fraction.c: see fraction.h. */
#include "ir/fraction.h"

#include <math.h>

enum { PLAIN = SN_FRACTION_LIMIT, OF_LOG = 1 << 12 };

/* A convergent of its continued fraction. */
bool sn_is_fraction(double x, uint64_t limit, uint64_t *a, uint64_t *b) {
    uint64_t p0 = 0, q0 = 1, p1 = 1, q1 = 0;
    double rest = x;
    for (int k = 0; k < 20; k++) {
        double whole = floor(rest);
        if (whole > 0x1p18) return false;
        uint64_t p = (uint64_t)whole * p1 + p0, q = (uint64_t)whole * q1 + q0;
        p0 = p1, q0 = q1, p1 = p, q1 = q;
        if (p > limit || q > limit || p * q > limit) return false;
        *a = p, *b = q;
        if (p && fabs((double)p / (double)q - x) <= x * 0x1p-21) return true;
        if (rest - whole <= 0) return false;
        rest = 1 / (rest - whole);
    }
    return false;
}

static bool is_log(double x, uint64_t *a, uint64_t *b) {
    return x < log(OF_LOG + 0.5) && sn_is_fraction(exp(x), OF_LOG, a, b) &&
           fabs(log((double)*a / (double)*b) - x) <= x * 0x1p-21;
}

sn_form sn_form_of(double x, uint64_t *a, uint64_t *b) {
    uint64_t p, q;
    const bool simple = sn_is_fraction(x, PLAIN, a, b);
    if (sn_is_fraction(x * x, PLAIN, &p, &q) && (!simple || *a * *b >= 8 * p * q)) {
        *a = p, *b = q;
        return SN_FORM_ROOT;
    }
    return simple                                   ? SN_FORM_FRACTION
           : is_log(x, a, b)                        ? SN_FORM_LOG
           : sn_is_fraction(x / M_LN2, PLAIN, a, b) ? SN_FORM_LN2
           : sn_is_fraction(x * M_LN2, PLAIN, a, b) ? SN_FORM_OVER_LN2
                                                    : SN_FORM_NONE;
}

uint64_t sn_square_part(uint64_t n) {
    uint64_t s = (uint64_t)sqrt((double)n);
    while (n % (s * s)) s--;
    return s;
}
