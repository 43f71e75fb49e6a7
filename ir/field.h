/* field.h: the numbers of the exact evaluator: elements of finite fields instead of doubles, so that two
 * programs are equal, or differ with near certainty, without tolerance (Schwartz and Zippel, 1980).
 *
 * An element has a residue in each of SN_FIELD_RINGS prime fields p_0 < p_1 < ..., p_i+1 = 2 p_i + 1; the last
 * has 61.9 bits. Sums, products and quotients are those of the residues. Since p_i divides p_i+1 - 1,
 * e^x is g^(x mod p_i) in the next field: e^(a + b) = e^a e^b holds, and each e^ costs the lowest field.
 * ln x is the way back: every residue but 0 is g^l or -g^l, and l is the logarithm in the field below, so that
 * ln(a b) = ln a + ln b and e^(ln x) = x; each ln costs the highest field. An element remembers in which fields e^
 * of it is negative. Sums keep that, and products with whole numbers; of another multiple the sign is not known.
 * Square roots are powers, which keep products: sqrt(a b) = sqrt(a) sqrt(b). What has no exact meaning is a
 * keyed hash of its operands: equal where these are. An order of keyed residues, symmetric about zero, stands
 * for the order of numbers.
 *
 * What follows from constants and indices alone is also known as a real number, which comparisons and functions
 * use. A constant near a simple fraction, its root, its product with ln 2 or 1 / ln 2, or the logarithm of a
 * simpler one is that. Other constants that differ by less than 2^-18 are equal, and so are those between them.
 * FLT_MIN and what is below it is zero. Rules fold constants with rounding, which these three rules cover.
 *
 * An element is a handle, a double, so that whatever moves numbers moves elements; 0 is zero. Integers and
 * bools stay what they are. */
#ifndef SN_FIELD_H
#define SN_FIELD_H

#include "ir/ir.h"

enum { SN_FIELD_RINGS = 10 };

/* Operations by which a law of real numbers is lost, as bits: what they give may differ between programs that
 * are equal. */
enum {
    /* e^ of a multiple of a logarithm, but by a whole constant: known but for its sign */
    SN_FIELD_SIGN = 1,
    /* more e^ inside each other, or more ln, than there are fields, or a hash of an element that lacks the field of
     * hashes, the last but one */
    SN_FIELD_DEEP = 2,
};

typedef struct sn_field sn_field;

/* The key of hashes, leaves and generators. NULL: out of memory. */
sn_field *sn_field_new(uint64_t key);
void sn_field_free(sn_field *f);
/* Whether memory ran out, or its limit of 4 GiB was reached: elements since then mean nothing. */
bool sn_field_failed(const sn_field *f);
/* A real number; `exact`: its value as it is, not the simple fraction nearby. */
double sn_field_number(sn_field *f, double x, bool exact);
/* The n elements of a tensor of this name, at random. */
void sn_field_leaf(sn_field *f, const char *name, int64_t n, double *out);
/* What a row of kind ELEM gives: operands of type `in` (the first one's), the result of type `out`. Missing
 * operands are repeated. */
double sn_field_elem(sn_field *f, sn_op op, sn_dtype in, sn_dtype out, double x, double y,
                     double z);
/* The sum of n products. */
double sn_field_dot(sn_field *f, const double *x, const double *y, int64_t n);
/* Whether they are equal. NaN equals NaN. */
bool sn_field_same(const sn_field *f, double x, double y);
/* The laws that were lost on the way to x. */
unsigned sn_field_lost(const sn_field *f, double x);
/* The laws that were lost on the way to what was compared so far, or cast to integers. */
unsigned sn_field_lost_order(const sn_field *f);

#endif
