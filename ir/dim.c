/* dim.c: dimensions as integer polynomials of symbolic dims, interned so that equal polynomials are
 * equal numbers. Bounds are computed once, when a polynomial is created. */
#include "ir/dims_impl.h"

#include <ctype.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

/* Handles are far from 0, so small negative numbers are plain numbers and cannot be mistaken for
 * handles. */
#define FIRST_HANDLE ((sn_dim)1 << 40)

static bool is_plain(sn_dim d) {
    return d > -FIRST_HANDLE;
}

/* A polynomial under construction, sorted like sn_dim_poly. */
typedef struct poly {
    int n;
    sn_dim_monomial t[SN_MAX_TERMS];
} poly;

typedef enum status { FINE, OVERFLOWS, TOO_LONG } status;

typedef struct interval {
    int64_t lo, hi;
} interval;

static const sn_dim_monomial no_term; /* exponents of a constant */

/* ---- monomials ---- */

static int degree(const uint8_t *e) {
    int sum = 0;
    for (int i = 0; i < SN_MAX_FACTORS; i++) sum += e[i];
    return sum;
}

/* Graded lexicographic order: compatible with multiplication, as exact division requires. */
static int compare_monomials(const sn_dim_monomial *a, const sn_dim_monomial *b) {
    int da = degree(a->exponent), db = degree(b->exponent);
    return da != db ? da - db : memcmp(a->exponent, b->exponent, SN_MAX_FACTORS);
}

static status mul_monomials(sn_dim_monomial *out, const sn_dim_monomial *a,
                            const sn_dim_monomial *b) {
    if (__builtin_mul_overflow(a->coef, b->coef, &out->coef) || out->coef == INT64_MIN)
        return OVERFLOWS;
    for (int i = 0; i < SN_MAX_FACTORS; i++) {
        int e = a->exponent[i] + b->exponent[i];
        if (e > UINT8_MAX) return OVERFLOWS;
        out->exponent[i] = (uint8_t)e;
    }
    return FINE;
}

static bool div_monomials(sn_dim_monomial *out, const sn_dim_monomial *a,
                          const sn_dim_monomial *b) {
    if (a->coef % b->coef) return false;
    out->coef = a->coef / b->coef;
    for (int i = 0; i < SN_MAX_FACTORS; i++) {
        if (a->exponent[i] < b->exponent[i]) return false;
        out->exponent[i] = (uint8_t)(a->exponent[i] - b->exponent[i]);
    }
    return true;
}

/* acc += factor * p: a merge, since multiplying by a monomial keeps the order. */
static status add_scaled(poly *acc, const poly *p, const sn_dim_monomial *factor) {
    poly old;
    old.n = acc->n;
    memcpy(old.t, acc->t, (size_t)acc->n * sizeof *acc->t);
    acc->n = 0;
    for (int i = 0, j = 0; i < old.n || j < p->n;) {
        sn_dim_monomial t;
        if (j < p->n) {
            status s = mul_monomials(&t, &p->t[j], factor);
            if (s != FINE) return s;
        }
        int c = i == old.n ? -1 : j == p->n ? 1 : compare_monomials(&old.t[i], &t);
        if (c > 0) t = old.t[i];
        if (c == 0 &&
            (__builtin_add_overflow(t.coef, old.t[i].coef, &t.coef) || t.coef == INT64_MIN))
            return OVERFLOWS;
        i += c >= 0;
        j += c <= 0;
        if (!t.coef) continue;
        if (acc->n == SN_MAX_TERMS) return TOO_LONG;
        acc->t[acc->n++] = t;
    }
    return FINE;
}

/* ---- bounds ---- */

static sn_dim_poly *poly_at(const struct sn_dims *d, int64_t i) {
    int k = 63 - __builtin_clzll((unsigned long long)i / 32 + 1);
    return &d->block[k][i + 32 - (32 << k)];
}

/* Saturating arithmetic: INT64_MAX means +infinity in an upper bound, INT64_MIN -infinity in a
 * lower one; sums with them stay infinite. */
static int64_t mul_sat(int64_t a, int64_t b) {
    int64_t r;
    if (!a || !b) return 0;
    bool infinite = a == INT64_MAX || a == INT64_MIN || b == INT64_MAX || b == INT64_MIN;
    if (!infinite && !__builtin_mul_overflow(a, b, &r)) return r;
    return (a < 0) == (b < 0) ? INT64_MAX : INT64_MIN;
}

static int64_t add_sat(int64_t a, int64_t b, int64_t infinity) {
    int64_t r;
    if (a == infinity || b == infinity) return infinity;
    if (!__builtin_add_overflow(a, b, &r)) return r;
    return a > 0 ? INT64_MAX : INT64_MIN;
}

/* Interval arithmetic per term; symbols are never negative, so monomials are monotone. */
static interval bound_terms(int n, const sn_dim_monomial *t, const interval *range) {
    interval sum = {0, 0};
    for (int i = 0; i < n; i++) {
        int64_t lo = 1, hi = 1;
        for (int k = 0; k < SN_MAX_FACTORS; k++)
            for (int e = 0; e < t[i].exponent[k]; e++) {
                lo = mul_sat(lo, range[k].lo);
                hi = mul_sat(hi, range[k].hi);
            }
        int64_t c = t[i].coef;
        sum.lo = add_sat(sum.lo, mul_sat(c, c > 0 ? lo : hi), INT64_MIN);
        sum.hi = add_sat(sum.hi, mul_sat(c, c > 0 ? hi : lo), INT64_MAX);
    }
    return sum;
}

/* a / by rounded up; infinite bounds stay so. */
static int64_t div_up(int64_t a, int64_t by) {
    if (a == INT64_MAX || a == INT64_MIN) return a;
    return a / by + (a % by > 0);
}

/* The ranges of quotients follow from those of the symbols. */
static void bound_quots(const struct sn_dims *d, interval *range) {
    for (int i = 0; i < d->n_quot; i++) {
        const sn_dim_poly *p = poly_at(d, -FIRST_HANDLE - d->quot[i].of);
        interval of = bound_terms(p->n, p->term, range);
        int64_t by = d->quot[i].by;
        range[SN_MAX_SYMBOLS + i] = (interval){div_up(of.lo, by), div_up(of.hi, by)};
    }
}

/* Marks what is in quotient i if that is a factor of the terms, or marked. */
static void mark_divided(const struct sn_dims *d, int i, int n, const sn_dim_monomial *t,
                         bool *marked) {
    bool used = marked[SN_MAX_SYMBOLS + i];
    const sn_dim_poly *of = poly_at(d, -FIRST_HANDLE - d->quot[i].of);
    for (int j = 0; j < n; j++) used |= t[j].exponent[SN_MAX_SYMBOLS + i] != 0;
    for (int j = 0; used && j < of->n; j++)
        for (int k = 0; k < SN_MAX_FACTORS; k++) marked[k] |= of->term[j].exponent[k] != 0;
}

/* A polynomial that is linear in a symbol attains its extremes at the ends of the symbol's range:
 * try all combinations for up to 6 such symbols, intervals for the rest. */
static interval bound_corners(const struct sn_dims *d, int n, const sn_dim_monomial *t) {
    interval range[SN_MAX_FACTORS] = {{0, 0}};
    bool curved[SN_MAX_FACTORS] = {false};
    for (int i = d->n_quot - 1; i >= 0; i--) mark_divided(d, i, n, t, curved);
    int linear[6], n_linear = 0;
    for (int k = 0; k < d->n_symbol; k++) {
        range[k] = (interval){d->symbol[k].lo, d->symbol[k].hi};
        int top = 0;
        for (int i = 0; i < n; i++)
            if (t[i].exponent[k] > top) top = t[i].exponent[k];
        if (top == 1 && !curved[k] && n_linear < 6 && d->symbol[k].hi != INT64_MAX)
            linear[n_linear++] = k;
    }
    interval all = {INT64_MAX, INT64_MIN};
    for (int corner = 0; corner < 1 << n_linear; corner++) {
        for (int j = 0; j < n_linear; j++) {
            const sn_symbol *s = &d->symbol[linear[j]];
            int64_t end = corner >> j & 1 ? s->hi : s->lo;
            range[linear[j]] = (interval){end, end};
        }
        bound_quots(d, range);
        interval b = bound_terms(n, t, range);
        if (b.lo < all.lo) all.lo = b.lo;
        if (b.hi > all.hi) all.hi = b.hi;
    }
    return all;
}

/* The factor, if t is it times a number; -1: it is not. */
static int lone_factor(const sn_dim_monomial *t) {
    int k = 0;
    while (k < SN_MAX_FACTORS && !t->exponent[k]) k++;
    return k < SN_MAX_FACTORS && degree(t->exponent) == 1 ? k : -1;
}

/* by q is what q divides, plus 0 to by - 1: so by q - T is not negative. */
static interval bound_poly(const struct sn_dims *d, int n, const sn_dim_monomial *t) {
    interval best = bound_corners(d, n, t);
    for (int i = 0; d->n_quot && i < n; i++) {
        int k = lone_factor(&t[i]) - SN_MAX_SYMBOLS;
        if (k < 0 || t[i].coef % d->quot[k].by) continue;
        const sn_dim_poly *whole = poly_at(d, -FIRST_HANDLE - d->quot[k].of);
        sn_dim_monomial times = no_term;
        times.coef = t[i].coef / d->quot[k].by;
        poly rest = {.n = n - 1}, of = {.n = whole->n};
        memcpy(rest.t, t, (size_t)i * sizeof *t);
        memcpy(rest.t + i, t + i + 1, (size_t)(n - 1 - i) * sizeof *t);
        memcpy(of.t, whole->term, (size_t)whole->n * sizeof *t);
        if (add_scaled(&rest, &of, &times) != FINE) continue;
        interval b = bound_poly(d, rest.n, rest.t);
        int64_t more = mul_sat(times.coef, d->quot[k].by - 1);
        b.lo = add_sat(b.lo, more < 0 ? more : 0, INT64_MIN);
        b.hi = add_sat(b.hi, more > 0 ? more : 0, INT64_MAX);
        if (b.lo > best.lo) best.lo = b.lo;
        if (b.hi < best.hi) best.hi = b.hi;
    }
    return best;
}

/* ---- interning ---- */

static uint32_t hash_terms(int n, const sn_dim_monomial *t) {
    return (uint32_t)XXH3_64bits(t, (size_t)n * sizeof *t);
}

static uint32_t *find_slot(const struct sn_dims *d, int n, const sn_dim_monomial *t) {
    for (uint32_t i = hash_terms(n, t);; i++) {
        uint32_t *slot = &d->slot[i & (d->n_slot - 1)];
        const sn_dim_poly *p = *slot ? poly_at(d, (int64_t)*slot - 1) : NULL;
        if (!p || (p->n == n && !memcmp(p->term, t, (size_t)n * sizeof *t))) return slot;
    }
}

/* Makes room for one more. */
static void reserve_poly(sn_module *m, struct sn_dims *d) {
    int n = d->n_poly, k = 31 - __builtin_clz((unsigned)n / 32 + 1);
    if (d->block[k]) return;
    d->block[k] = sn_arena_alloc(m, ((size_t)32 << k) * sizeof *d->block[k]);
    d->n_slot = 128u << k;
    d->slot = sn_arena_alloc(m, d->n_slot * sizeof *d->slot);
    for (int i = 0; i < n; i++) {
        const sn_dim_poly *p = poly_at(d, i);
        *find_slot(d, p->n, p->term) = (uint32_t)i + 1;
    }
}

/* Returned by every constructor after an error, which the module holds. */
static sn_dim fail_dim(sn_module *m, status s) {
    if (s == OVERFLOWS)
        sn_module_fail(m, SN_ERR_SHAPE,
                       "a dimension overflows 64 bits (or an exponent exceeds 255): use smaller "
                       "sizes");
    else
        sn_module_fail(m, SN_ERR_SHAPE,
                       "a dimension has more than %d terms: introduce a symbolic dim for a part "
                       "of it",
                       SN_MAX_TERMS);
    return 1;
}

static uint64_t hash_structure(const struct sn_dims *d, int n, const sn_dim_monomial *t) {
    uint64_t sum = 0;
    for (int i = 0; i < n; i++) {
        uint64_t term = (uint64_t)t[i].coef;
        for (int k = 0; k < d->n_symbol; k++)
            if (t[i].exponent[k])
                term += XXH3_64bits_withSeed(d->symbol[k].name, strlen(d->symbol[k].name),
                                             t[i].exponent[k]);
        for (int k = 0; k < d->n_quot; k++)
            if (t[i].exponent[SN_MAX_SYMBOLS + k]) {
                uint64_t of =
                    poly_at(d, -FIRST_HANDLE - d->quot[k].of)->hash + (uint64_t)d->quot[k].by;
                term += XXH3_64bits_withSeed(&of, sizeof of, t[i].exponent[SN_MAX_SYMBOLS + k]);
            }
        sum += XXH3_64bits(&term, sizeof term);
    }
    return sum;
}

static sn_dim intern_poly(sn_module *m, const poly *p) {
    if (!p->n) return 0;
    if (p->n == 1 && !degree(p->t[0].exponent) && is_plain(p->t[0].coef)) return p->t[0].coef;
    struct sn_dims *d = sn_module_dims(m);
    reserve_poly(m, d);
    uint32_t *slot = find_slot(d, p->n, p->t);
    if (!*slot) {
        sn_dim_monomial *t = sn_arena_alloc(m, (size_t)p->n * sizeof *t);
        memcpy(t, p->t, (size_t)p->n * sizeof *t);
        interval b = bound_poly(d, p->n, t);
        *poly_at(d, d->n_poly) = (sn_dim_poly){
            .n = p->n, .hash = hash_structure(d, p->n, t), .lo = b.lo, .hi = b.hi, .term = t};
        *slot = (uint32_t)++d->n_poly;
    }
    return -FIRST_HANDLE - (sn_dim)(*slot - 1);
}

bool sn_dim_valid(const sn_module *m, sn_dim d) {
    return is_plain(d) || d > -FIRST_HANDLE - sn_module_dims(m)->n_poly;
}

/* The polynomial of a handle; 1 for a handle of another module, which load_poly reports. */
static const sn_dim_poly *stored(const sn_module *m, sn_dim d) {
    static const sn_dim_monomial one = {.coef = 1};
    static const sn_dim_poly stranger = {.n = 1, .lo = 1, .hi = 1, .term = &one};
    return sn_dim_valid(m, d) ? poly_at(sn_module_dims(m), -FIRST_HANDLE - d) : &stranger;
}

static void load_poly(sn_module *m, sn_dim d, poly *p) {
    p->n = 0;
    if (!sn_dim_valid(m, d))
        sn_module_fail(m, SN_ERR_USAGE,
                       "a dimension belongs to another module, or is not a dimension");
    if (d && is_plain(d)) {
        p->t[0] = no_term;
        p->t[0].coef = d;
        p->n = 1;
    } else if (d) {
        p->n = stored(m, d)->n;
        memcpy(p->t, stored(m, d)->term, (size_t)p->n * sizeof *p->t);
    }
}

/* ---- symbols ---- */

static bool is_name_char(char c, bool first) {
    return isalpha((unsigned char)c) || c == '_' || (!first && isdigit((unsigned char)c));
}

static bool is_name(const char *s) {
    if (!s) return false;
    if (!is_name_char(*s, true)) return false;
    while (is_name_char(*s, false)) s++;
    return !*s;
}

static int find_symbol(const struct sn_dims *d, const char *name, size_t length) {
    for (int i = 0; i < d->n_symbol; i++)
        if (strlen(d->symbol[i].name) == length && !memcmp(d->symbol[i].name, name, length))
            return i;
    return -1;
}

static sn_dim factor_dim(sn_module *m, int i) {
    poly p = {.n = 1};
    p.t[0].coef = 1;
    p.t[0].exponent[i] = 1;
    return intern_poly(m, &p);
}

/* Names are C identifiers; 0 <= lo <= hi, INT64_MAX: no upper bound. At most SN_MAX_SYMBOLS per
 * module. */
sn_dim sn_symbol_add(sn_module *m, const char *name, int64_t lo, int64_t hi) {
    struct sn_dims *d = sn_module_dims(m);
    if (!is_name(name)) {
        sn_module_fail(m, SN_ERR_USAGE,
                       "symbolic dim \"%s\" is not a valid name; use letters, digits, _",
                       name ? name : "NULL");
        return 1;
    }
    if (lo < 0 || lo > hi) {
        sn_module_fail(m, SN_ERR_USAGE,
                       "symbolic dim %s: range [%" PRId64 ", %" PRId64
                       "] must ascend, from 0 at least",
                       name, lo, hi);
        return 1;
    }
    int i = find_symbol(d, name, strlen(name));
    if (i >= 0 && (d->symbol[i].lo != lo || d->symbol[i].hi != hi)) {
        sn_module_fail(m, SN_ERR_SHAPE,
                       "symbolic dim %s: range [%" PRId64 ", %" PRId64 "], but [%" PRId64
                       ", %" PRId64 "] before: use the same range each time",
                       name, lo, hi, d->symbol[i].lo, d->symbol[i].hi);
        return 1;
    }
    if (i < 0 && d->n_symbol == SN_MAX_SYMBOLS) {
        sn_module_fail(m, SN_ERR_USAGE, "symbolic dim %s: a module has at most %d", name,
                       SN_MAX_SYMBOLS);
        return 1;
    }
    if (i < 0) {
        i = d->n_symbol;
        d->symbol[i] = (sn_symbol){sn_arena_str(m, name), lo, hi};
        d->n_symbol++; /* last: other threads may be looking up symbols */
    }
    return factor_dim(m, i);
}

int sn_symbol_count(const sn_module *m) {
    return sn_module_dims(m)->n_symbol;
}

const sn_symbol *sn_symbol_at(const sn_module *m, int i) {
    return &sn_module_dims(m)->symbol[i];
}

int sn_symbol_find(const sn_module *m, const char *name) {
    return find_symbol(sn_module_dims(m), name, strlen(name));
}

/* ---- arithmetic ---- */

sn_dim sn_dim_const(sn_module *m, int64_t v) {
    if (is_plain(v)) return v;
    if (v == INT64_MIN) return fail_dim(m, OVERFLOWS);
    poly p = {.n = 1};
    p.t[0].coef = v;
    return intern_poly(m, &p);
}

/* out = a + sign * b */
static status combine(sn_module *m, sn_dim a, sn_dim b, int sign, poly *out) {
    poly pb;
    sn_dim_monomial factor = no_term;
    factor.coef = sign;
    load_poly(m, a, out);
    load_poly(m, b, &pb);
    return add_scaled(out, &pb, &factor);
}

static sn_dim combine_interned(sn_module *m, sn_dim a, sn_dim b, int sign) {
    poly sum;
    status s = combine(m, a, b, sign, &sum);
    return s == FINE ? intern_poly(m, &sum) : fail_dim(m, s);
}

sn_dim sn_dim_add(sn_module *m, sn_dim a, sn_dim b) {
    if (a >= 0 && b >= 0 && a <= INT64_MAX - b) return a + b;
    return combine_interned(m, a, b, 1);
}

sn_dim sn_dim_sub(sn_module *m, sn_dim a, sn_dim b) {
    if (a >= b && b >= 0) return a - b;
    return combine_interned(m, a, b, -1);
}

sn_dim sn_dim_mul(sn_module *m, sn_dim a, sn_dim b) {
    if (a == 1) return b;
    if (b == 1) return a;
    int64_t product;
    if (a >= 0 && b >= 0 && !__builtin_mul_overflow(a, b, &product)) return product;
    poly pa, pb, sum;
    sum.n = 0;
    load_poly(m, a, &pa);
    load_poly(m, b, &pb);
    for (int i = 0; i < pa.n; i++) {
        status s = add_scaled(&sum, &pb, &pa.t[i]);
        if (s != FINE) return fail_dim(m, s);
    }
    return intern_poly(m, &sum);
}

/* Division by leading terms, which finds the quotient if there is one [Cox, Little, O'Shea, Ideals,
 * Varieties, and Algorithms, section 2.3]. Divisor zero: false. */
bool sn_dim_div(sn_module *m, sn_dim a, sn_dim b, sn_dim *quotient) {
    poly rest, by, q;
    q.n = 0;
    load_poly(m, a, &rest);
    load_poly(m, b, &by);
    if (!by.n) return false;
    while (rest.n) {
        sn_dim_monomial t;
        if (q.n == SN_MAX_TERMS || !div_monomials(&t, &rest.t[0], &by.t[0])) return false;
        q.t[q.n++] = t; /* leading terms descend, so q stays sorted */
        t.coef = -t.coef;
        if (add_scaled(&rest, &by, &t) != FINE) return false;
    }
    *quotient = intern_poly(m, &q);
    return true;
}

sn_dim sn_dim_div_up(sn_module *m, sn_dim a, int64_t by) {
    struct sn_dims *d = sn_module_dims(m);
    sn_dim q;
    int64_t value;
    int i = 0;
    if (by < 1 || sn_dim_lo(m, a) <= -by) {
        char text[64];
        sn_dim_print(m, a, text, sizeof text);
        sn_module_fail(m, SN_ERR_SHAPE, "the quotient of %s and %" PRId64 " may be negative", text,
                       by);
        return 1;
    }
    if (sn_dim_is_const(m, a, &value)) return sn_dim_const(m, div_up(value, by));
    if (sn_dim_div(m, a, by, &q)) return q;
    while (i < d->n_quot && (d->quot[i].of != a || d->quot[i].by != by)) i++;
    if (i == SN_MAX_QUOTS) {
        sn_module_fail(m, SN_ERR_USAGE, "a module has at most %d quotients that are rounded up", i);
        return 1;
    }
    if (i == d->n_quot) {
        d->quot[i] = (sn_quot){a, by};
        d->n_quot++;
    }
    return factor_dim(m, SN_MAX_SYMBOLS + i);
}

sn_dim sn_dim_product(sn_module *m, int n, const sn_dim *d) {
    sn_dim p = 1;
    for (int i = 0; i < n; i++) p = sn_dim_mul(m, p, d[i]);
    return p;
}

/* ---- queries ---- */

bool sn_dim_is_const(const sn_module *m, sn_dim d, int64_t *value) {
    int64_t v = d;
    if (!is_plain(d)) {
        const sn_dim_poly *p = stored(m, d);
        if (p->n != 1 || degree(p->term[0].exponent)) return false;
        v = p->term[0].coef;
    }
    if (value) *value = v;
    return true;
}

int64_t sn_dim_lo(const sn_module *m, sn_dim d) {
    return is_plain(d) ? d : stored(m, d)->lo;
}

int64_t sn_dim_hi(const sn_module *m, sn_dim d) {
    return is_plain(d) ? d : stored(m, d)->hi;
}

uint64_t sn_dim_hash(const sn_module *m, sn_dim d) {
    return is_plain(d) ? (uint64_t)d : stored(m, d)->hash;
}

bool sn_dim_le(sn_module *m, sn_dim a, sn_dim b) {
    if (a >= 0 && b >= 0) return a <= b;
    poly diff;
    return combine(m, b, a, -1, &diff) == FINE &&
           bound_poly(sn_module_dims(m), diff.n, diff.t).lo >= 0;
}

/* symbol_values: [sn_symbol_count]. Saturates on overflow. */
int64_t sn_dim_eval(const sn_module *m, sn_dim d, const int64_t *symbol_values) {
    if (is_plain(d)) return d;
    const sn_dim_poly *p = stored(m, d);
    interval at[SN_MAX_FACTORS] = {{0, 0}};
    for (int k = 0; k < sn_symbol_count(m); k++)
        at[k] = (interval){symbol_values[k], symbol_values[k]};
    bound_quots(sn_module_dims(m), at);
    return bound_terms(p->n, p->term, at).hi;
}

int sn_quot_count(const sn_module *m) {
    return sn_module_dims(m)->n_quot;
}

sn_quot sn_quot_at(const sn_module *m, int i) {
    return sn_module_dims(m)->quot[i];
}

void sn_dim_symbols(const sn_module *m, sn_dim d, bool *used) {
    for (int t = 0; t < sn_dim_terms(m, d); t++) {
        const uint8_t *e;
        sn_dim_term(m, d, t, &e);
        for (int s = 0; s < sn_symbol_count(m); s++) used[s] |= e[s] != 0;
        for (int i = 0; i < sn_quot_count(m); i++)
            if (e[SN_MAX_SYMBOLS + i]) sn_dim_symbols(m, sn_quot_at(m, i).of, used);
    }
}

/* A constant is one term without symbols; 0 has no term. */
int sn_dim_terms(const sn_module *m, sn_dim d) {
    return is_plain(d) ? d != 0 : stored(m, d)->n;
}

int64_t sn_dim_term(const sn_module *m, sn_dim d, int i, const uint8_t **exponent) {
    const sn_dim_monomial *t = is_plain(d) ? &no_term : &stored(m, d)->term[i];
    if (exponent) *exponent = t->exponent;
    return is_plain(d) ? d : t->coef;
}

/* ---- text ---- */

/* snprintf appending to buf; also counts what does not fit. */
static void __attribute__((format(printf, 4, 5)))
append(char *buf, size_t size, int *at, const char *fmt, ...) {
    va_list ap;
    va_start(ap, fmt);
    bool room = (size_t)*at < size;
    *at += vsnprintf(room ? buf + *at : NULL, room ? size - (size_t)*at : 0, fmt, ap);
    va_end(ap);
}

int sn_dim_print(const sn_module *m, sn_dim d, char *buf, size_t size) {
    int at = 0;
    if (is_plain(d)) append(buf, size, &at, "%" PRId64, d);
    for (int i = 0; !is_plain(d) && i < sn_dim_terms(m, d); i++) {
        const uint8_t *e;
        int64_t c = sn_dim_term(m, d, i, &e);
        append(buf, size, &at, "%s", c < 0 ? "-" : i ? "+" : "");
        c = c < 0 ? -c : c;
        const char *times = "";
        if (c != 1 || !degree(e)) append(buf, size, &at, "%" PRId64, c), times = "*";
        for (int k = 0; k < sn_symbol_count(m); k++)
            for (int j = 0; j < e[k]; j++, times = "*")
                append(buf, size, &at, "%s%s", times, sn_symbol_at(m, k)->name);
        for (int k = 0; k < sn_quot_count(m); k++)
            for (int j = 0; j < e[SN_MAX_SYMBOLS + k]; j++, times = "*") {
                sn_quot q = sn_quot_at(m, k);
                bool sum = sn_dim_terms(m, q.of) > 1;
                append(buf, size, &at, sum ? "%sceil((" : "%sceil(", times);
                bool room = (size_t)at < size;
                at += sn_dim_print(m, q.of, room ? buf + at : NULL, room ? size - (size_t)at : 0);
                append(buf, size, &at, sum ? ")/%" PRId64 ")" : "/%" PRId64 ")", q.by);
            }
    }
    return at;
}

int sn_shape_print(const sn_module *m, int rank, const sn_dim *shape, char *buf, size_t size) {
    int at = 0;
    append(buf, size, &at, "[");
    for (int i = 0; i < rank; i++) {
        if (i) append(buf, size, &at, ",");
        bool room = (size_t)at < size;
        at += sn_dim_print(m, shape[i], room ? buf + at : NULL, room ? size - (size_t)at : 0);
    }
    append(buf, size, &at, "]");
    return at;
}

typedef struct reader {
    sn_module *m;
    const char *p;
    int depth;
} reader;

static bool parse_sum(reader *r, sn_dim *out);

static char peek(reader *r) {
    while (*r->p == ' ' || *r->p == '\t') r->p++;
    return *r->p;
}

static bool parse_number(reader *r, sn_dim *out) {
    int64_t v = 0;
    const char *p = r->p;
    for (; isdigit((unsigned char)*p); p++)
        if (__builtin_mul_overflow(v, 10, &v) || __builtin_add_overflow(v, *p - '0', &v))
            return false;
    r->p = p;
    *out = v;
    return true;
}

/* The rest of "ceil(sum/number)". */
static bool parse_quot(reader *r, sn_dim *out) {
    sn_dim of, by;
    if (r->depth == 64) return false;
    r->depth++;
    r->p++;
    if (!parse_sum(r, &of) || peek(r) != '/') return false;
    r->p++;
    peek(r);
    if (!parse_number(r, &by) || peek(r) != ')') return false;
    r->depth--;
    r->p++;
    *out = sn_dim_div_up(r->m, of, by);
    return true;
}

static bool parse_atom(reader *r, sn_dim *out) {
    char c = peek(r);
    if (isdigit((unsigned char)c)) return parse_number(r, out);
    if (c == '(') {
        if (r->depth == 64) return false;
        r->depth++;
        r->p++;
        if (!parse_sum(r, out) || peek(r) != ')') return false;
        r->depth--;
        r->p++;
        return true;
    }
    if (!is_name_char(c, true)) return false;
    const char *end = r->p;
    while (is_name_char(*end, false)) end++;
    int i = find_symbol(sn_module_dims(r->m), r->p, (size_t)(end - r->p));
    bool quot = *end == '(' && end - r->p == 4 && !memcmp(r->p, "ceil", 4);
    if (i < 0 && !quot) return false;
    r->p = end;
    if (quot) return parse_quot(r, out);
    *out = factor_dim(r->m, i);
    return true;
}

static bool parse_product(reader *r, sn_dim *out) {
    sn_dim b;
    if (!parse_atom(r, out)) return false;
    while (peek(r) == '*') {
        r->p++;
        if (!parse_atom(r, &b)) return false;
        *out = sn_dim_mul(r->m, *out, b);
    }
    return !sn_module_error(r->m)->code;
}

static bool parse_sum(reader *r, sn_dim *out) {
    sn_dim b;
    *out = 0;
    char sign = peek(r) == '-' ? '-' : '+';
    if (peek(r) == '-') r->p++;
    do {
        if (!parse_product(r, &b)) return false;
        *out = sign == '-' ? sn_dim_sub(r->m, *out, b) : sn_dim_add(r->m, *out, b);
        sign = peek(r);
        if (sign == '+' || sign == '-') r->p++;
    } while (sign == '+' || sign == '-');
    return !sn_module_error(r->m)->code;
}

/* sum = [-] product {(+|-) product}; product = atom {* atom}; atom = number | symbol | ( sum ) |
 * ceil(sum / number).
 * false: *text points to the error; the module has an error only if a number overflowed. */
bool sn_dim_parse(sn_module *m, const char **text, sn_dim *out) {
    reader r = {m, *text, 0};
    bool ok = parse_sum(&r, out);
    *text = r.p;
    return ok;
}
