/* field.c: see field.h. */
#include "ir/field_log.h"
#include "ir/fraction.h"

#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum {
    RINGS = SN_FIELD_RINGS,
    TOP = RINGS - 1,
    CHUNK = 1 << 14, /* elements */
    WINDOWS = 16,    /* of 4 bits: powers of a fixed base */
    DOT_SUM = 16,    /* products of 124 bits that 128 bits hold */
    COMMON = TOP - 1 /* the ring of hashes and of the order, which one logarithm keeps */
};

#define prime sn_field_prime

typedef struct element {
    uint64_t r[RINGS]; /* residues, from `low` to `high` */
    double real;       /* the number, if known */
    uint8_t low, high;
    uint16_t minus;       /* bit i: e^ of it is below 0 in ring i + 1 */
    bool vague;           /* ... is unknown: it is a multiple of such a number */
    bool known, infinite; /* infinite: or NaN; it is known, and has no residues */
    bool positive;        /* a number that is not below 0, like a square */
    uint8_t lost;
    uint32_t log, exp; /* x of this ln x or e^x; 0: it is neither */
} element;

enum { ZERO, ONE, INF, MINUS_INF, NOT_A_NUMBER, N_FIXED };

struct sn_field {
    uint64_t key;
    element **chunk;
    size_t n, n_chunk;
    bool failed;
    unsigned lost;                         /* by comparisons and casts to integers */
    uint64_t power[2][RINGS][WINDOWS][16]; /* of e and of 2 */
    uint64_t log2_e[RINGS];                /* e is 2^this in ring i */
    struct constant {
        double real, handle;
        bool power; /* e^ of another constant */
    } * constant;   /* [n_constant] in order */
    size_t n_constant, cap_constant;
    struct leaf { /* whose elements exist, one after another */
        char *name;
        int64_t n;
        double first;
    } * leaf;
    size_t n_leaf;
};

static const size_t max_bytes = (size_t)4 << 30;

/* ---- residues ---- */

static uint64_t mul(uint64_t x, uint64_t y, int i) {
    return sn_residue_mul(x, y, prime[i]);
}

static uint64_t plus(uint64_t x, uint64_t y, int i) {
    uint64_t s = x + y;
    return s >= prime[i] ? s - prime[i] : s;
}

static uint64_t power(uint64_t x, uint64_t n, int i) {
    return sn_residue_power(x, n, prime[i]);
}

static uint64_t inverse(uint64_t x, int i) {
    return sn_residue_inverse(x, prime[i]);
}

static uint64_t mix(uint64_t x, uint64_t y) { /* splitmix64 of both */
    uint64_t z = (x ^ (y * 0x9e3779b97f4a7c15u)) + 0x9e3779b97f4a7c15u;
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
    z = (z ^ z >> 27) * 0x94d049bb133111ebu;
    return z ^ z >> 31;
}

static uint64_t fixed_power(const sn_field *f, int base, uint64_t n, int i) {
    uint64_t y = 1;
    for (int w = 0; n; w++, n >>= 4)
        if (n & 15) y = mul(y, f->power[base][i][w][n & 15], i);
    return y;
}

static void make_powers(sn_field *f) {
    for (int base = 0; base < 2; base++)
        for (int i = 1; i < RINGS; i++) {
            f->log2_e[i] = mix(f->key, (uint64_t)i) % (prime[i - 1] - 2) + 2;
            uint64_t g = base ? 2 : power(2, f->log2_e[i], i);
            for (int w = 0; w < WINDOWS; w++) {
                f->power[base][i][w][0] = 1;
                for (int k = 1; k < 16; k++)
                    f->power[base][i][w][k] = mul(f->power[base][i][w][k - 1], g, i);
                g = mul(f->power[base][i][w][15], g, i);
            }
        }
}

/* ---- elements ---- */

static const element *at(const sn_field *f, double handle) {
    size_t i = (size_t)handle;
    return &f->chunk[i / CHUNK][i % CHUNK];
}

/* Room for more elements. */
static void grow(sn_field *f) {
    element **list = realloc(f->chunk, (f->n_chunk + 1) * sizeof *list);
    if (list) f->chunk = list;
    element *c = list && (f->n_chunk + 1) * CHUNK * sizeof *c <= max_bytes
                     ? malloc(CHUNK * sizeof *c)
                     : NULL;
    if (c) f->chunk[f->n_chunk++] = c;
    f->failed = !c;
}

/* A new element, zero; after a failure one that is overwritten. */
static element *make(sn_field *f, double *handle) {
    if (f->n == f->n_chunk * CHUNK && !f->failed) grow(f);
    size_t i = f->failed ? N_FIXED : f->n++;
    element *e = &f->chunk[i / CHUNK][i % CHUNK];
    *e = (element){.high = TOP};
    *handle = (double)i;
    return e;
}

static bool is_zero(const element *x) {
    return !x->infinite && !x->r[x->high];
}

static int common_ring(const element *x) {
    return x->low > COMMON ? x->low : x->high < COMMON ? x->high : COMMON;
}

/* The laws that a hash or the order of x loses: an equal element can have other rings. */
static unsigned lost_by(const element *x) {
    return x->lost | (!x->known && common_ring(x) != COMMON ? SN_FIELD_DEEP : 0u);
}

/* The residue that stands for x in hashes. */
static uint64_t digest(const element *x) {
    return x->r[common_ring(x)];
}

static bool is_same(const element *x, const element *y) {
    const int i = x->high < y->high ? x->high : y->high;
    return i >= x->low && i >= y->low && x->r[i] == y->r[i];
}

/* A root of x or of -x. An odd power, so that the roots of x and of -x differ. */
static uint64_t root_of(uint64_t x, int i) {
    uint64_t n = (prime[i] + 1) / 4;
    return power(x, n % 2 ? n : n + (prime[i] - 1) / 2, i);
}

static double special(double x) {
    return isnan(x) ? NOT_A_NUMBER : x > 0 ? INF : MINUS_INF;
}

/* A number that stands for x beside one that is not finite. */
static double stand_in(const element *x) {
    return x->known ? x->real : is_zero(x) ? 0 : x->positive || digest(x) & 1 ? 1 : -1;
}

/* a / b times 2^shift. */
static double fraction(sn_field *f, double sign, uint64_t a, uint64_t b, int shift, double real) {
    double handle;
    element *e = make(f, &handle);
    for (int i = 0; i < RINGS; i++) {
        uint64_t two = power(shift < 0 ? inverse(2, i) : 2, (uint64_t)abs(shift), i);
        uint64_t r = mul(mul(a % prime[i], inverse(b, i), i), two, i);
        e->r[i] = sign < 0 && r ? prime[i] - r : r;
    }
    e->known = true;
    e->real = real;
    e->positive = sign > 0;
    return handle;
}

/* The root of n in ring i: that of a square is the positive one. */
static uint64_t whole_root(uint64_t n, int i) {
    const uint64_t s = sn_square_part(n);
    return mul(s, root_of(n / (s * s), i), i);
}

/* The root of a / b. */
static double root_of_fraction(sn_field *f, uint64_t a, uint64_t b) {
    double handle;
    element *e = make(f, &handle);
    for (int i = 0; i < RINGS; i++)
        e->r[i] = mul(whole_root(a, i), inverse(whole_root(b, i), i), i);
    e->known = e->positive = true;
    e->real = sqrt((double)a / (double)b);
    return handle;
}

/* The number of constants below x > 0. */
static size_t below(const sn_field *f, double x) {
    size_t lo = 0, hi = f->n_constant;
    while (lo < hi) {
        size_t mid = (lo + hi) / 2;
        if (f->constant[mid].real < x)
            lo = mid + 1;
        else
            hi = mid;
    }
    return lo;
}

static double add_constant(sn_field *f, double x, double handle, bool power) {
    const size_t place = below(f, x);
    if (f->n_constant == f->cap_constant) {
        size_t cap = f->cap_constant ? 2 * f->cap_constant : 64;
        struct constant *list = realloc(f->constant, cap * sizeof *list);
        if (!list) {
            f->failed = true;
            return handle;
        }
        f->constant = list;
        f->cap_constant = cap;
    }
    struct constant *c = f->constant + place;
    memmove(c + 1, c, (f->n_constant++ - place) * sizeof *c);
    *c = (struct constant){x, handle, power};
    return handle;
}

static double dyadic(sn_field *f, double x) {
    int shift;
    double m = frexp(fabs(x), &shift);
    return fraction(f, x, (uint64_t)ldexp(m, 53), 1, shift - 53, x);
}

/* ln x in the rings below those of x, for x that is not 0. */
static double logarithm(sn_field *f, double a) {
    const element *x = at(f, a);
    double handle;
    element *e = make(f, &handle);
    e->low = x->low ? x->low - 1 : 0;
    e->high = x->high - 1;
    e->lost = x->lost;
    e->known = x->known;
    e->real = log(x->real);
    e->log = (uint32_t)a;
    for (int i = e->low + 1; i <= x->high; i++) {
        const uint64_t l = x->r[i] ? sn_field_log2(x->r[i], i) : 0;
        e->r[i - 1] = mul(l, inverse(f->log2_e[i], i - 1), i - 1);
        if (fixed_power(f, 1, l, i) != x->r[i]) e->minus |= (uint16_t)(1 << (i - 1));
    }
    return handle;
}

static double f_recip(sn_field *f, double a);
static double f_mul(sn_field *f, double a, double b);

/* A number of this form (fraction.h). */
static double of_form(sn_field *f, double x, sn_form form, uint64_t a, uint64_t b) {
    if (form == SN_FORM_NONE) return dyadic(f, x);
    if (form == SN_FORM_ROOT) return root_of_fraction(f, a, b);
    const double y = fraction(f, 1, a, b, 0, (double)a / (double)b);
    if (form == SN_FORM_FRACTION) return y;
    if (form == SN_FORM_LOG) return logarithm(f, y);
    const double ln2 = logarithm(f, dyadic(f, 2));
    return f_mul(f, y, form == SN_FORM_LN2 ? ln2 : f_recip(f, ln2));
}

/* A constant near x > 0 that came before; NULL: none. */
static const struct constant *near(const sn_field *f, double x) {
    const size_t place = below(f, x);
    const struct constant *c = f->constant + place; /* the first that is not below */
    if (place < f->n_constant && c->real - x <= x * 0x1p-18) return c;
    return place && x - c[-1].real <= x * 0x1p-18 ? c - 1 : NULL;
}

/* x > 0, or a constant nearby that came before; those that come later change nothing. */
static double constant_of(sn_field *f, double x) {
    uint64_t a, b;
    const struct constant *c = near(f, x), *inverse = near(f, 1 / x);
    if (inverse && inverse->power) return f_recip(f, inverse->handle);
    if (c && (c->power || !(c->real < x || c->real > x))) return c->handle;
    const sn_form form = sn_form_of(x, &a, &b);
    const bool found = form <= SN_FORM_ROOT || !c;
    return add_constant(f, x, found ? of_form(f, x, form, a, b) : c->handle, false);
}

double sn_field_number(sn_field *f, double x, bool exact) {
    double size = fabs(x);
    if (!isfinite(x)) return special(x);
    if (size <= (double)FLT_MIN) return ZERO; /* what keeps a sum of positive numbers from 0 */
    if (x == 1) return ONE;
    if (exact || (size < 0x1p40 && size * 256 == floor(size * 256))) return dyadic(f, x);
    double handle = constant_of(f, size);
    return x < 0 ? sn_field_elem(f, SN_OP_neg, SN_F64, SN_F64, handle, 0, 0) : handle;
}

sn_field *sn_field_new(uint64_t key) {
    static const double fixed[N_FIXED] = {0, 1, INFINITY, -INFINITY, NAN};
    sn_field *f = calloc(1, sizeof *f);
    double handle;
    if (!f) return NULL;
    f->key = mix(key, 1);
    make_powers(f);
    grow(f);
    for (int i = 0; i <= N_FIXED && !f->failed; i++) { /* and one to overwrite */
        element *e = make(f, &handle);
        double x = i < N_FIXED ? fixed[i] : 0;
        e->known = true, e->real = x, e->positive = x >= 0, e->infinite = !isfinite(x);
        for (int k = 0; k < RINGS; k++) e->r[k] = x == 1;
    }
    if (!f->failed) return f;
    sn_field_free(f);
    return NULL;
}

void sn_field_free(sn_field *f) {
    if (!f) return;
    for (size_t i = 0; i < f->n_chunk; i++) free(f->chunk[i]);
    free(f->chunk);
    for (size_t i = 0; i < f->n_leaf; i++) free(f->leaf[i].name);
    free(f->leaf);
    free(f->constant);
    free(f);
}

bool sn_field_failed(const sn_field *f) {
    return f->failed;
}

/* Residues at random for a hash. */
static double random_element(sn_field *f, uint64_t hash, unsigned lost) {
    double handle;
    element *e = make(f, &handle);
    for (int i = 0; i < RINGS; i++) e->r[i] = mix(hash, (uint64_t)i + 100) % prime[i];
    e->lost = (uint8_t)lost;
    return handle;
}

void sn_field_leaf(sn_field *f, const char *name, int64_t n, double *out) {
    struct leaf *l = f->leaf;
    while (l < f->leaf + f->n_leaf && (l->n != n || strcmp(l->name, name) != 0)) l++;
    if (l < f->leaf + f->n_leaf) {
        for (int64_t i = 0; i < n; i++) out[i] = l->first + (double)i;
        return;
    }
    uint64_t h = f->key;
    for (const char *c = name; *c; c++) h = mix(h, (uint8_t)*c);
    for (int64_t i = 0; i < n; i++) out[i] = random_element(f, mix(h, (uint64_t)i + 1000), 0);
    l = realloc(f->leaf, sizeof *l * (f->n_leaf + 1));
    char *copy = strdup(name);
    if (l) f->leaf = l;
    if (l && copy && n)
        l[f->n_leaf++] = (struct leaf){copy, n, *out};
    else
        free(copy);
}

bool sn_field_same(const sn_field *f, double x, double y) {
    const element *a = at(f, x), *b = at(f, y);
    if (a->infinite || b->infinite)
        return a->infinite && b->infinite &&
               (a->real == b->real || (isnan(a->real) && isnan(b->real)));
    return is_same(a, b);
}

unsigned sn_field_lost(const sn_field *f, double x) {
    return at(f, x)->lost;
}

unsigned sn_field_lost_order(const sn_field *f) {
    return f->lost;
}

/* ---- the ring operations ---- */

/* Whether x y is a multiple of a logarithm whose sign in e^(x y) is unknown; else *minus. */
static bool product_sign(const element *x, const element *y, uint16_t *minus) {
    const element *l = x->minus ? x : y, *by = x->minus ? y : x;
    *minus = 0;
    if (!x->minus && !y->minus) return x->vague || y->vague;
    if (by->minus || x->vague || y->vague || !by->known || by->real != floor(by->real)) return true;
    *minus = fmod(by->real, 2) != 0 ? l->minus : 0;
    return false;
}

/* The common part of a result of x and y, in the rings that both have; NULL, and a hash, if there are none. */
static element *result_of(sn_field *f, sn_op op, const element *x, const element *y,
                          double *handle) {
    const uint8_t low = x->low > y->low ? x->low : y->low;
    const uint8_t high = x->high < y->high ? x->high : y->high;
    const unsigned lost = x->lost | y->lost;
    if (low > high) {
        const uint64_t hash = mix(mix(f->key, (uint64_t)op + 900), digest(x));
        *handle = random_element(f, mix(hash, digest(y)), lost | SN_FIELD_DEEP);
        return NULL;
    }
    element *e = make(f, handle);
    e->low = low;
    e->high = high;
    e->known = x->known && y->known;
    e->lost = (uint8_t)lost;
    e->vague = x->vague || y->vague;
    e->minus = x->minus ^ (y == x ? 0 : y->minus);
    return e;
}

static double f_add(sn_field *f, double a, double b) {
    const element *x = at(f, a), *y = at(f, b);
    double handle;
    if (x->infinite || y->infinite)
        return special((x->infinite ? x->real : 0) + (y->infinite ? y->real : 0));
    if (is_zero(x)) return b;
    if (is_zero(y)) return a;
    element *e = result_of(f, SN_OP_add, x, y, &handle);
    if (!e) return handle;
    if (x == y) e->minus = 0;
    for (int i = e->low; i <= e->high; i++) e->r[i] = plus(x->r[i], y->r[i], i);
    if (is_zero(e)) return ZERO;
    e->real = x->real + y->real;
    e->positive = x->positive && y->positive;
    return handle;
}

static double f_neg(sn_field *f, double a) {
    const element *x = at(f, a);
    double handle;
    if (x->infinite) return special(-x->real);
    if (is_zero(x)) return a;
    element *e = result_of(f, SN_OP_neg, x, x, &handle);
    for (int i = e->low; i <= e->high; i++) e->r[i] = x->r[i] ? prime[i] - x->r[i] : 0;
    e->real = -x->real;
    return handle;
}

static double f_sub(sn_field *f, double a, double b) {
    return f_add(f, a, f_neg(f, b));
}

static double f_mul(sn_field *f, double a, double b) {
    const element *x = at(f, a), *y = at(f, b);
    double handle;
    if (x->infinite || y->infinite) return special(stand_in(x) * stand_in(y));
    if (is_zero(x) || is_zero(y)) return ZERO;
    if (a == ONE) return b;
    if (b == ONE) return a;
    element *e = result_of(f, SN_OP_mul, x, y, &handle);
    if (!e) return handle;
    e->vague = product_sign(x, y, &e->minus);
    for (int i = e->low; i <= e->high; i++) e->r[i] = mul(x->r[i], y->r[i], i);
    e->real = x->real * y->real;
    e->positive = (x->positive && y->positive) || is_same(x, y);
    return handle;
}

static double f_recip(sn_field *f, double a) {
    const element *x = at(f, a);
    double handle;
    if (x->infinite) return isnan(x->real) ? NOT_A_NUMBER : ZERO;
    if (is_zero(x)) return INF;
    if (a == ONE) return a;
    element *e = result_of(f, SN_OP_recip, x, x, &handle);
    e->vague = x->vague || x->minus;
    e->minus = 0;
    for (int i = e->low; i <= e->high; i++) e->r[i] = inverse(x->r[i], i);
    e->real = 1 / x->real;
    e->positive = x->positive;
    return handle;
}

static double f_div(sn_field *f, double a, double b) {
    return f_mul(f, a, f_recip(f, b));
}
#define f_ieee_div f_div

static double f_sqrt(sn_field *f, double a) {
    const element *x = at(f, a);
    double handle;
    if (x->infinite) return x->real > 0 ? INF : NOT_A_NUMBER;
    if (x->known && x->real < 0) return NOT_A_NUMBER;
    if (is_zero(x)) return ZERO;
    uint64_t p, q;
    if (x->known && sn_form_of(x->real, &p, &q) == SN_FORM_FRACTION &&
        mul(q, x->r[x->high], x->high) == p)
        return root_of_fraction(f, p, q);
    element *e = result_of(f, SN_OP_sqrt, x, x, &handle);
    e->vague = x->vague || x->minus, e->minus = 0;
    for (int i = e->low; i <= e->high; i++) e->r[i] = root_of(x->r[i], i);
    e->real = sqrt(x->real);
    e->positive = true;
    return handle;
}

/* base 0: e, 1: 2 */
static double exponential(sn_field *f, double a, int base) {
    const element *x = at(f, a);
    double handle;
    if (x->infinite) return x->real < 0 ? ZERO : special(x->real);
    if (is_zero(x)) return ONE;
    if (!base && x->log) return x->log;
    const double real = x->known ? (base ? exp2(x->real) : exp(x->real)) : 0;
    const bool is_constant = real > (double)FLT_MIN && real < 0x1p40;
    const struct constant *c = is_constant ? near(f, real) : NULL;
    if (c) return c->handle;
    if (is_constant && (c = near(f, 1 / real))) return f_recip(f, c->handle);
    if (x->low == TOP)
        return random_element(f, mix(mix(f->key, digest(x)), (uint64_t)base + 7),
                              x->lost | SN_FIELD_DEEP);
    element *e = make(f, &handle);
    e->low = x->low + 1;
    e->high = x->high < TOP ? x->high + 1 : TOP;
    e->known = x->known;
    e->lost = x->lost | (x->vague ? SN_FIELD_SIGN : 0);
    for (int i = e->low; i <= e->high; i++) {
        const uint64_t r = fixed_power(f, base, x->r[i - 1], i);
        e->r[i] = !base && x->minus >> (i - 1) & 1 ? prime[i] - r : r;
    }
    e->real = real;
    e->positive = true;
    e->exp = base ? 0 : (uint32_t)a;
    return is_constant ? add_constant(f, real, handle, true) : handle;
}

static double f_exp(sn_field *f, double a) {
    return exponential(f, a, 0);
}

static double f_exp2(sn_field *f, double a) {
    return exponential(f, a, 1);
}

double sn_field_dot(sn_field *f, const double *x, const double *y, int64_t n) {
    sn_wide sum[RINGS] = {0};
    element e = {.known = true, .positive = true, .high = TOP};
    bool plain = true;
    int held = 0;
    double handle;
    for (int64_t k = 0; k < n; k++) {
        const element *a = at(f, x[k]), *b = at(f, y[k]);
        plain &= !a->infinite && !b->infinite;
        if (is_zero(a) || is_zero(b)) continue;
        e.low = a->low > e.low ? a->low : e.low;
        e.low = b->low > e.low ? b->low : e.low;
        e.high = a->high < e.high ? a->high : e.high;
        e.high = b->high < e.high ? b->high : e.high;
        uint16_t minus;
        e.vague |= product_sign(a, b, &minus);
        e.minus ^= minus;
        e.known &= a->known && b->known;
        e.positive &= (a->positive && b->positive) || is_same(a, b);
        e.lost |= a->lost | b->lost;
    }
    if (!plain || e.low > e.high) {
        handle = ZERO;
        for (int64_t k = 0; k < n; k++) handle = f_add(f, handle, f_mul(f, x[k], y[k]));
        return handle;
    }
    for (int64_t k = 0; k < n; k++) {
        const element *a = at(f, x[k]), *b = at(f, y[k]);
        if (is_zero(a) || is_zero(b)) continue;
        for (int i = e.low; i <= e.high; i++) sum[i] += (sn_wide)a->r[i] * b->r[i];
        e.real += a->real * b->real;
        if (++held == DOT_SUM - 1) {
            for (int i = e.low; i <= e.high; i++) sum[i] %= prime[i];
            held = 0;
        }
    }
    for (int i = e.low; i <= e.high; i++) e.r[i] = (uint64_t)(sum[i] % prime[i]);
    if (is_zero(&e)) return ZERO;
    *make(f, &handle) = e;
    return handle;
}

/* ---- order ---- */

/* A residue of the key's order, from -p / 2 to p / 2; that of -x is the opposite. */
static int64_t rank_of(const sn_field *f, const element *x) {
    const int i = common_ring(x);
    uint64_t r = mul(x->r[i], f->key % (prime[i] - 1) + 1, i);
    return r > prime[i] / 2 ? (int64_t)r - (int64_t)prime[i] : (int64_t)r;
}

static bool is_nan(const element *x) {
    return x->infinite && isnan(x->real);
}

static bool less(sn_field *f, double a, double b) {
    const element *x = at(f, a), *y = at(f, b);
    if (x->known && y->known) return x->real < y->real;
    if (x->infinite || y->infinite)
        return (x->infinite ? x->real : 0) < (y->infinite ? y->real : 0);
    if (is_zero(y) && x->positive) return false;
    if (is_zero(x) && y->positive) return true;
    f->lost |= (is_zero(x) ? 0 : lost_by(x)) | (is_zero(y) ? 0 : lost_by(y));
    return rank_of(f, x) < rank_of(f, y);
}

static double f_lt(sn_field *f, double a, double b) {
    return less(f, a, b);
}

static double f_eq(sn_field *f, double a, double b) {
    f->lost |= at(f, a)->lost | at(f, b)->lost;
    return !is_nan(at(f, a)) && sn_field_same(f, a, b);
}

static double f_ne(sn_field *f, double a, double b) {
    return !(f_eq(f, a, b) != 0);
}

static double f_le(sn_field *f, double a, double b) {
    return less(f, a, b) || f_eq(f, a, b) != 0;
}

static double f_max(sn_field *f, double a, double b) {
    if (is_nan(at(f, a)) || is_nan(at(f, b))) return NOT_A_NUMBER;
    return less(f, a, b) ? b : a;
}

static double f_min(sn_field *f, double a, double b) {
    if (is_nan(at(f, a)) || is_nan(at(f, b))) return NOT_A_NUMBER;
    return less(f, b, a) ? b : a;
}

static double f_abs(sn_field *f, double a) {
    double handle;
    if (at(f, a)->positive || is_nan(at(f, a))) return a;
    double y = less(f, a, ZERO) ? f_neg(f, a) : a;
    if (at(f, y)->infinite) return y;
    element *e = make(f, &handle);
    *e = *at(f, y);
    e->positive = true;
    return handle;
}

static double f_sign(sn_field *f, double a) {
    if (is_nan(at(f, a)) || is_zero(at(f, a))) return ZERO;
    return less(f, a, ZERO) ? f_neg(f, ONE) : ONE;
}

/* ---- functions that are hashes ---- */

/* A number at 0, 1 and beyond all numbers; elsewhere a hash, whose number is known if those of a and b are. */
static double hash_of(sn_field *f, sn_op op, double a, double b) {
    const element *x = at(f, a), *y = at(f, b);
    bool known = x->known && y->known, fixed = known && a < N_FIXED && b < N_FIXED;
    double real = sn_elem_ref(op, false, stand_in(x), stand_in(y), 0);
    if (fixed || x->infinite || y->infinite || (known && (!isfinite(real) || real == 0)))
        return sn_field_number(f, real, false);
    double handle = random_element(
        f, mix(mix(mix(f->key, (uint64_t)op + 50), digest(x)), digest(y)), lost_by(x) | lost_by(y));
    element *e = &f->chunk[(size_t)handle / CHUNK][(size_t)handle % CHUNK];
    e->known = known, e->real = real;
    return handle;
}

/* The number of what is known, a hash of the rest. */
static double number_of(sn_field *f, sn_op op, double a, double b) {
    const element *x = at(f, a), *y = at(f, b);
    if (!x->known || !y->known) return hash_of(f, op, a, b);
    return sn_field_number(f, sn_elem_ref(op, false, x->real, y->real, 0), false);
}

#define WHOLE(name)                                                                                \
    static double f_##name(sn_field *f, double x) {                                                \
        return number_of(f, SN_OP_##name, x, x);                                                   \
    }
#define ODD(name)                                                                                  \
    static double f_##name(sn_field *f, double x) {                                                \
        bool is_below = less(f, x, ZERO);                                                          \
        double y = f_abs(f, x);                                                                    \
        y = hash_of(f, SN_OP_##name, y, y);                                                        \
        return is_below ? f_neg(f, y) : y;                                                         \
    }
#define EVEN(name)                                                                                 \
    static double f_##name(sn_field *f, double x) {                                                \
        double y = f_abs(f, x);                                                                    \
        return hash_of(f, SN_OP_##name, y, y);                                                     \
    }
#include "ir/field.def"

static double f_log(sn_field *f, double a) {
    const element *x = at(f, a);
    if (is_zero(x)) return MINUS_INF;
    if (x->exp) return x->exp;
    if (x->known) return number_of(f, SN_OP_log, a, a);
    if (x->high) return logarithm(f, a);
    return random_element(f, mix(f->key + 9, digest(x)), x->lost | SN_FIELD_DEEP);
}

/* ---- functions that follow from others ---- */

static double number(sn_field *f, double x) {
    return sn_field_number(f, x, false);
}

static double f_expm1(sn_field *f, double x) {
    return f_sub(f, f_exp(f, x), ONE);
}

static double f_log1p(sn_field *f, double x) {
    return f_log(f, f_add(f, x, ONE));
}

static double f_rsqrt(sn_field *f, double x) {
    return f_recip(f, f_sqrt(f, x));
}

static double f_sigmoid(sn_field *f, double x) {
    return f_recip(f, f_add(f, f_exp(f, f_neg(f, x)), ONE));
}

/* 2 / (1 + e^-2x) - 1 */
static double f_tanh(sn_field *f, double x) {
    double s = f_sigmoid(f, f_add(f, x, x));
    return f_sub(f, f_add(f, s, s), ONE);
}

static double f_gelu(sn_field *f, double x) {
    double half = number(f, 0.5);
    double e = f_erf(f, f_mul(f, x, number(f, M_SQRT1_2)));
    return f_mul(f, f_mul(f, x, half), f_add(f, e, ONE));
}

static double f_gelu_tanh(sn_field *f, double x) {
    double cube = f_mul(f, f_mul(f, f_mul(f, x, x), x), number(f, 0.044715));
    double t = f_tanh(f, f_mul(f, f_add(f, x, cube), number(f, sqrt(2 / M_PI))));
    return f_mul(f, f_mul(f, x, number(f, 0.5)), f_add(f, t, ONE));
}

static double f_mod(sn_field *f, double x, double y) {
    return f_sub(f, x, f_mul(f, y, f_floor(f, f_div(f, x, y))));
}

/* Whole and half exponents are products and roots. */
static double f_pow(sn_field *f, double x, double y) {
    enum { MAX_EXPONENT = 32 };
    const element *e = at(f, y);
    double twice = 2 * e->real, base = x, result = ONE;
    if (!e->known || fabs(twice) > 2 * MAX_EXPONENT || twice != floor(twice) || at(f, x)->infinite)
        return number_of(f, SN_OP_pow, x, y);
    int n = abs((int)twice);
    if (n & 1 && at(f, x)->known) return number_of(f, SN_OP_pow, x, y);
    if (n & 1) base = f_sqrt(f, x);
    for (n /= n & 1 ? 1 : 2; n; n--) result = f_mul(f, result, base);
    return e->real < 0 ? f_recip(f, result) : result;
}

static double f_stop_gradient(sn_field *f, double x) {
    (void)f;
    return x;
}

/* Float to integer: the number if it is known. */
static double cast(sn_field *f, sn_dtype out, double x) {
    const element *e = at(f, x);
    if (sn_dtype_is_float(out)) return x;
    f->lost |= e->known ? 0 : out == SN_BOOL ? e->lost : lost_by(e);
    if (out == SN_BOOL) return !is_zero(e);
    return e->known ? e->real : (double)(mix(f->key, digest(e)) & 127);
}

/* ---- the table ---- */

/* What an op means, by the number of its operands. */
typedef struct field_row {
    double (*one)(sn_field *f, double x);
    double (*two)(sn_field *f, double x, double y);
} field_row;

static const field_row table[SN_OP_COUNT] = {
#define ONE(name) [SN_OP_##name] = {.one = f_##name},
#define TWO(name) [SN_OP_##name] = {.two = f_##name},
#include "ir/field.def"
};

/* A row of kind ELEM that field.def lacks does not compile. */
enum {
#define ONE(name) ROW_##name,
#define TWO(name) ROW_##name,
#define PLAIN(name) ROW_##name,
#include "ir/field.def"
};
#define ELEM(name, ...) _Static_assert(ROW_##name >= 0, #name);
#include "ir/ops.def"

double sn_field_elem(sn_field *f, sn_op op, sn_dtype in, sn_dtype out, double x, double y,
                     double z) {
    const field_row *m = &table[op];
    bool of_float = sn_dtype_is_float(in);
    if (op == SN_OP_cast && of_float) return cast(f, out, x);
    double r = of_float && m->one   ? m->one(f, x)
               : of_float && m->two ? m->two(f, x, y)
                                    : sn_elem_ref(op, !of_float, x, y, z);
    return op == SN_OP_cast && sn_dtype_is_float(out) ? number(f, r) : r;
}
