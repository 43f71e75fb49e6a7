/* fraction.h: what a constant in floating point is meant as. */
#ifndef SN_FRACTION_H
#define SN_FRACTION_H

#include <stdbool.h>
#include <stdint.h>

typedef enum sn_form {
    SN_FORM_FRACTION, /* a / b */
    SN_FORM_ROOT,     /* its root */
    SN_FORM_LOG,      /* ln (a / b) */
    SN_FORM_LN2,      /* a / b ln 2 */
    SN_FORM_OVER_LN2, /* a / (b ln 2), so that 2^x of it is a power of e */
    SN_FORM_NONE
} sn_form;

/* The form of x > 0, up to rounding in f32: the first that fits, but a root instead of a fraction if its a b is less
 * by a factor of 8. */
sn_form sn_form_of(double x, uint64_t *a, uint64_t *b);
/* Whether x > 0 is a fraction a / b with a b <= limit, up to rounding in f32. Of numbers at random, one in 25 is with
 * SN_FRACTION_LIMIT. */
enum { SN_FRACTION_LIMIT = 1 << 17 };
bool sn_is_fraction(double x, uint64_t limit, uint64_t *a, uint64_t *b);
/* The largest number whose square divides n > 0. */
uint64_t sn_square_part(uint64_t n);

#endif
