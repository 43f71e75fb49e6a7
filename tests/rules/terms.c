/* terms.c: see terms.h. */
#include "tests/rules/terms.h"

#include "ir/fraction.h"

#include <float.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    SLOTS = 2 * TERMS_MAX,
    MAX_DEGREE = 14,
    MAX_PRODUCTS = 400,
    MAX_PAIRS = 1 << 14,
    ROOM = 1 << 25
};

typedef struct product { /* factor times atoms, which are in order */
    rational factor;
    int n, atom[MAX_DEGREE];
} product;

typedef struct sum {
    int n;
    product p[];
} sum;

static term node[TERMS_MAX];
static struct {
    const sum *normal; /* NULL: not computed, or too long */
    bool has_normal;
    int canonical; /* -1: not computed */
    bool has_fraction;
    fraction f;
} memo[TERMS_MAX];
static int n_node, slot[SLOTS], place[TERMS_MAX]; /* slot of each */
static bool free_terms;
static const char *failure;
static term_pair pair[MAX_PAIRS];
static int n_pair;
static char room[ROOM];
static size_t used;

static void *take(size_t bytes) {
    used = (used + 15) / 16 * 16;
    if (used + bytes > ROOM) {
        fprintf(stderr, "terms take more than %d bytes\n", (int)ROOM);
        abort();
    }
    void *p = room + used;
    used += bytes;
    return p;
}

/* ---- nodes ---- */

static uint64_t hash_of(const term *t) {
    uint64_t h = (uint64_t)t->kind, bits;
    memcpy(&bits, &t->real, sizeof bits);
    const uint64_t part[] = {(uint64_t)t->a, (uint64_t)t->b, (uint64_t)t->c, (uint64_t)t->op, bits};
    for (int i = 0; i < 5; i++) h = (h ^ part[i]) * 0x9e3779b97f4a7c15u, h ^= h >> 29;
    for (const char *c = t->name; c && *c; c++) h = (h ^ (uint8_t)*c) * 0x9e3779b97f4a7c15u;
    return h ^ h >> 31;
}

static bool is_same(const term *x, const term *y) {
    if (x->kind != y->kind || x->a != y->a || x->b != y->b || x->c != y->c || x->op != y->op)
        return false;
    if (x->kind == T_NUMBER)
        return !memcmp(&x->real, &y->real, sizeof x->real) && x->value.p == y->value.p &&
               x->value.q == y->value.q;
    return x->kind != T_LEAF || !strcmp(x->name, y->name);
}

static int make(term t) {
    uint64_t at = hash_of(&t) % SLOTS;
    for (; slot[at]; at = (at + 1) % SLOTS)
        if (is_same(&node[slot[at] - 1], &t)) return slot[at] - 1;
    if (n_node == TERMS_MAX) {
        failure = "too many terms";
        return T_ZERO;
    }
    if (t.name) t.name = strcpy(take(strlen(t.name) + 1), t.name);
    node[n_node] = t;
    memset(&memo[n_node], 0, sizeof *memo);
    memo[n_node].canonical = -1;
    place[n_node] = (int)at;
    slot[at] = n_node + 1;
    return n_node++;
}

static int of_kind(term_kind kind, int a, int b, int c) {
    return make((term){.kind = kind, .a = a, .b = b, .c = c, .of_root = -1});
}

/* x + y, x y or 1 / x; y -1: none. */
static int arithmetic(term_kind kind, int x, int y) {
    term t = {.kind = kind, .a = x < y || y < 0 ? x : y, .b = x < y || y < 0 ? y : x, .c = -1};
    const double a = node[x].real, b = y < 0 ? 0 : node[y].real;
    t.of_root = -1;
    t.known = node[x].known && (y < 0 || node[y].known);
    if (t.known) t.real = kind == T_ADD ? a + b : kind == T_MUL ? a * b : 1 / a;
    return make(t);
}

void terms_begin(bool free) {
    static const double fixed[T_FIXED] = {0, 1, INFINITY, -INFINITY, NAN};
    for (int i = 0; i < n_node; i++) slot[place[i]] = 0;
    n_node = n_pair = 0;
    used = 0;
    failure = NULL;
    free_terms = free;
    for (int i = 0; i < T_FIXED; i++)
        make((term){.known = true,
                    .real = fixed[i],
                    .a = -1,
                    .b = -1,
                    .c = -1,
                    .of_root = -1,
                    .value = {i == T_ONE, i <= T_ONE}});
}

const term *term_at(int t) {
    return &node[t];
}

int terms_count(void) {
    return n_node;
}

const char *terms_failed(void) {
    return failure;
}

static bool is_number(int t) {
    return node[t].kind == T_NUMBER;
}

static bool is_special(int t) {
    return t >= T_INF && t < T_FIXED;
}

bool term_is_positive(int t) {
    const term *x = &node[t];
    if (x->kind == T_ADD || x->kind == T_MUL)
        return term_is_positive(x->a) && term_is_positive(x->b);
    if (x->kind == T_RECIP) return term_is_positive(x->a);
    return x->kind == T_EXP || (x->kind == T_NUMBER && x->real > 0);
}

/* ---- rational numbers ---- */

__extension__ typedef __int128 wide;

static wide common_divisor(wide a, wide b) {
    while (b) {
        const wide r = a % b;
        a = b, b = r;
    }
    return a < 0 ? -a : a;
}

static rational reduced(wide p, wide q) {
    const wide d = common_divisor(p, q);
    if (d) p /= d, q /= d;
    if (q < 0) p = -p, q = -q;
    const wide most = (wide)1 << 53;
    return p > most || p < -most || q > most ? (rational){0, 0}
                                             : (rational){(int64_t)p, (int64_t)q};
}

static rational times(rational x, rational y) {
    return reduced((wide)x.p * y.p, (wide)x.q * y.q);
}

static rational plus(rational x, rational y) {
    return reduced((wide)x.p * y.q + (wide)y.p * x.q, (wide)x.q * y.q);
}

static double real_of(rational x) {
    return (double)x.p / (double)x.q;
}

/* x > 0 as a simple fraction; as it is, if it is a multiple of 2^-8; q is 0 if it is neither. */
static rational fraction_near(double x) {
    uint64_t p, q;
    if (x < 0x1p40 && x * 256 == floor(x * 256)) return reduced((wide)(x * 256), 256);
    if (!sn_is_fraction(x, SN_FRACTION_LIMIT, &p, &q)) return (rational){0, 0};
    return (rational){(int64_t)p, (int64_t)q};
}

static int of_rational(rational r) {
    if (!r.p) return T_ZERO;
    return make((term){
        .a = -1, .b = -1, .c = -1, .known = true, .real = real_of(r), .value = r, .of_root = -1});
}

/* A term without leaves near x that came before, or the opposite of one; -1: none. */
static int known_near(double x) {
    for (int i = T_ONE; i < n_node; i++) {
        if (!node[i].known || is_special(i)) continue;
        if (fabs(node[i].real - x) <= fabs(x) * 0x1p-18) return i;
        if (fabs(node[i].real + x) <= fabs(x) * 0x1p-18) return term_minus(i);
    }
    return -1;
}

/* The root of p / q as a multiple of the root of a number without square factors. */
static int root_of(rational square) {
    int64_t rest = square.p * square.q, k = 1;
    for (int64_t d = 2; d * d <= rest; d++)
        while (rest % (d * d) == 0) rest /= d * d, k *= d;
    const int radicand = of_rational((rational){rest, 1});
    const int r = make((term){
        .a = -1, .b = -1, .c = -1, .known = true, .real = sqrt((double)rest), .of_root = radicand});
    return term_mul(of_rational(reduced(k, square.q)), rest == 1 ? T_ONE : r);
}

/* A constant x > 0 that is not a simple fraction: near one that came before, the root of a simple one, or new. */
static int irrational(double x) {
    const rational square = fraction_near(x * x);
    if (square.q && square.p && square.p < INT32_MAX && square.q < INT32_MAX)
        return root_of(square);
    const int near = known_near(x);
    if (near >= 0) return near;
    return make((term){.a = -1, .b = -1, .c = -1, .known = true, .real = x, .of_root = -1});
}

int term_number(double x, bool exact) {
    const double size = fabs(x);
    if (isnan(x)) return T_NAN;
    if (isinf(x)) return x > 0 ? T_INF : T_MINUS_INF;
    if (x == 1) return T_ONE;
    if (free_terms)
        return make((term){.a = -1, .b = -1, .c = -1, .known = true, .real = x, .of_root = -1});
    if (size <= (double)FLT_MIN) return T_ZERO;
    rational r = fraction_near(size);
    if (exact && r.q && (real_of(r) < size || real_of(r) > size)) r.q = 0;
    if (r.q) return of_rational(x < 0 ? (rational){-r.p, r.q} : r);
    const int c = irrational(size);
    return x < 0 ? term_minus(c) : c;
}

/* ---- sums and products ---- */

/* Of two numbers; -1: it is none. */
static int both_numbers(sn_op op, int x, int y) {
    const rational a = node[x].value, b = node[y].value;
    if (is_special(x) || is_special(y) || (!a.q && !b.q && op == SN_OP_mul))
        return term_number(sn_elem_ref(op, false, node[x].real, node[y].real, 0), false);
    if (!a.q || !b.q) return -1;
    const rational r = op == SN_OP_add ? plus(a, b) : times(a, b);
    return r.q ? of_rational(r) : -1;
}

int term_add(int x, int y) {
    if (is_special(x) && !is_number(y)) return x;
    if (is_special(y) && !is_number(x)) return y;
    if (x == T_ZERO) return y;
    if (y == T_ZERO) return x;
    const int z = is_number(x) && is_number(y) ? both_numbers(SN_OP_add, x, y) : -1;
    return z >= 0 ? z : arithmetic(T_ADD, x, y);
}

/* Infinity times a term: its sign is that of what cannot be below 0. */
static int special_product(int special, int t) {
    if (node[t].kind == T_EXP) return special;
    failure = "infinity times a number of unknown sign";
    return T_NAN;
}

int term_mul(int x, int y) {
    const bool special = is_special(x) || is_special(y);
    if (special && node[x].known && node[y].known)
        return term_number(node[x].real * node[y].real, false);
    if (is_special(x)) return special_product(x, y);
    if (is_special(y)) return special_product(y, x);
    if (x == T_ZERO || y == T_ZERO) return T_ZERO;
    if (x == T_ONE) return y;
    if (y == T_ONE) return x;
    const int z = is_number(x) && is_number(y) ? both_numbers(SN_OP_mul, x, y) : -1;
    return z >= 0 ? z : arithmetic(T_MUL, x, y);
}

int term_minus(int x) {
    return term_mul(of_rational((rational){-1, 1}), x);
}

/* ---- normal forms ---- */

static int compare_atoms(const product *x, const product *y) {
    if (x->n != y->n) return x->n - y->n;
    return memcmp(x->atom, y->atom, sizeof *x->atom * (size_t)x->n);
}

static int by_atoms(const void *x, const void *y) {
    return compare_atoms(x, y);
}

/* Adds up equal products; NULL: a factor is too long. */
static const sum *gathered(sum *s) {
    int n = 0;
    qsort(s->p, (size_t)s->n, sizeof *s->p, by_atoms);
    for (int i = 0; i < s->n; i++) {
        if (n && !compare_atoms(&s->p[n - 1], &s->p[i])) {
            s->p[n - 1].factor = plus(s->p[n - 1].factor, s->p[i].factor);
            if (!s->p[n - 1].factor.q) return NULL;
            if (!s->p[n - 1].factor.p) n--;
        } else {
            s->p[n++] = s->p[i];
        }
    }
    s->n = n;
    return s;
}

static sum *new_sum(int n) {
    sum *s = take(sizeof *s + sizeof *s->p * (size_t)n);
    s->n = n;
    return s;
}

/* x y; false: too long. x / x is 1. */
static bool multiply(const product *x, const product *y, product *to) {
    *to = (product){.factor = times(x->factor, y->factor)};
    int i = 0, j = 0;
    if (!to->factor.q || x->n + y->n > MAX_DEGREE) return false;
    while (i < x->n || j < y->n)
        to->atom[to->n++] =
            j == y->n || (i < x->n && x->atom[i] < y->atom[j]) ? x->atom[i++] : y->atom[j++];
    for (int k = to->n - 2; k >= 0; k--) { /* a root of a number, twice */
        const term *r = &node[to->atom[k]];
        if (k + 1 >= to->n || to->atom[k] != to->atom[k + 1] || r->of_root < 0) continue;
        to->factor = times(to->factor, node[r->of_root].value);
        memmove(to->atom + k, to->atom + k + 2, sizeof *to->atom * (size_t)(to->n - k - 2));
        to->n -= 2;
    }
    for (int k = to->n - 1; k >= 0; k--) {
        if (k >= to->n || node[to->atom[k]].kind != T_RECIP) continue;
        for (int l = 0; l < to->n; l++) {
            if (to->atom[l] != node[to->atom[k]].a) continue;
            const int hi = k > l ? k : l, lo = k > l ? l : k;
            memmove(to->atom + hi, to->atom + hi + 1, sizeof *to->atom * (size_t)(to->n - hi - 1));
            memmove(to->atom + lo, to->atom + lo + 1, sizeof *to->atom * (size_t)(to->n - lo - 2));
            to->n -= 2;
            break;
        }
    }
    return to->factor.q != 0;
}

static const sum *sum_of(int t);

static const sum *sum_of_both(const term *t) {
    const sum *x = sum_of(t->a), *y = x ? sum_of(t->b) : NULL;
    if (!y) return NULL;
    const int n = t->kind == T_ADD ? x->n + y->n : x->n * y->n;
    if (n > MAX_PRODUCTS) return NULL;
    sum *s = new_sum(n);
    if (t->kind == T_ADD) {
        memcpy(s->p, x->p, sizeof *x->p * (size_t)x->n);
        memcpy(s->p + x->n, y->p, sizeof *y->p * (size_t)y->n);
        return gathered(s);
    }
    for (int i = 0; i < x->n; i++)
        for (int j = 0; j < y->n; j++)
            if (!multiply(&x->p[i], &y->p[j], &s->p[i * y->n + j])) return NULL;
    return gathered(s);
}

static const sum *computed_sum(int t) {
    const term *x = &node[t];
    if (is_special(t)) return NULL;
    if (x->kind == T_ADD || x->kind == T_MUL) return sum_of_both(x);
    sum *s = new_sum(t != T_ZERO);
    if (s->n && is_number(t) && x->value.q)
        s->p[0] = (product){.factor = x->value};
    else if (s->n)
        s->p[0] = (product){.factor = {1, 1}, .n = 1, .atom = {t}};
    return s;
}

/* NULL: too long. */
static const sum *sum_of(int t) {
    if (!memo[t].has_normal) {
        const sum *s = computed_sum(t);
        memo[t].normal = s;
        memo[t].has_normal = true;
    }
    return memo[t].normal;
}

static int of_product(const product *p, rational factor) {
    int y = of_rational(factor);
    for (int i = 0; i < p->n; i++) y = term_mul(y, p->atom[i]);
    return y;
}

int term_normal(int t) {
    const sum *s = sum_of(t);
    if (!s) return t;
    if (memo[t].canonical >= 0) return memo[t].canonical;
    int y = T_ZERO;
    for (int i = 0; i < s->n; i++) y = term_add(y, of_product(&s->p[i], s->p[i].factor));
    memo[t].canonical = y;
    if (y != t && n_pair < MAX_PAIRS) pair[n_pair++] = (term_pair){t, y};
    if (n_pair == MAX_PAIRS) failure = "too many normal forms";
    return y;
}

int terms_pairs(const term_pair **pairs) {
    *pairs = pair;
    return n_pair;
}

bool term_has_log(int t) {
    const sum *s = sum_of(t);
    for (int i = 0; s && i < s->n; i++)
        for (int k = 0; k < s->p[i].n; k++)
            if (node[s->p[i].atom[k]].kind == T_LOG) return true;
    return false;
}

/* ---- fractions ---- */

/* The factors of x that y lacks, times t. */
static int times_missing(int t, fraction x, fraction y) {
    bool taken[TERM_MAX_FACTORS] = {false};
    for (int i = 0; i < x.n; i++) {
        int k = 0;
        while (k < y.n && (taken[k] || y.den[k] != x.den[i])) k++;
        if (k < y.n)
            taken[k] = true;
        else
            t = term_mul(t, x.den[i]);
    }
    return t;
}

/* A denominator of both: all factors of x, and those of y that x lacks; of a product all factors. */
static fraction joined(int num, fraction x, fraction y, bool product) {
    int *den = take(sizeof *den * (size_t)(x.n + y.n)), n = x.n;
    bool taken[TERM_MAX_FACTORS] = {false};
    if (x.n + y.n > TERM_MAX_FACTORS) failure = "a long denominator";
    if (failure) return (fraction){.num = num};
    if (x.n) memcpy(den, x.den, sizeof *den * (size_t)x.n);
    for (int i = 0; i < y.n; i++) {
        int k = 0;
        while (k < x.n && (taken[k] || x.den[k] != y.den[i])) k++;
        if (k < x.n && !product)
            taken[k] = true;
        else
            den[n++] = y.den[i];
    }
    return (fraction){num, n, den};
}

static fraction computed_fraction(int t) {
    const term x = node[t];
    if (x.kind == T_RECIP) {
        int *den = take(sizeof *den);
        *den = x.a;
        return (fraction){T_ONE, 1, den};
    }
    if (x.kind != T_ADD && x.kind != T_MUL) return (fraction){.num = t};
    const fraction a = term_fraction(x.a), b = term_fraction(x.b);
    if (x.kind == T_MUL) return joined(term_mul(a.num, b.num), a, b, true);
    return joined(term_add(times_missing(a.num, b, a), times_missing(b.num, a, b)), a, b, false);
}

fraction term_fraction(int t) {
    if (!memo[t].has_fraction) {
        const fraction f = computed_fraction(t);
        memo[t].f = f;
        memo[t].has_fraction = true;
    }
    return memo[t].f;
}

/* ---- functions ---- */

static int recip_of_known(int x) {
    const rational r = node[x].value;
    if (r.q) return of_rational(reduced(r.q, r.p));
    if (node[x].kind == T_MUL)
        return term_mul(recip_of_known(node[x].a), recip_of_known(node[x].b));
    return term_number(1 / node[x].real, false);
}

static int recip_of_factor(int x) {
    if (node[x].known) return recip_of_known(x);
    if (node[x].kind == T_MUL)
        return term_mul(recip_of_factor(node[x].a), recip_of_factor(node[x].b));
    x = term_normal(x);
    if (node[x].known) return recip_of_known(x);
    if (node[x].kind == T_MUL)
        return term_mul(recip_of_factor(node[x].a), recip_of_factor(node[x].b));
    return node[x].kind == T_RECIP ? node[x].a : of_kind(T_RECIP, x, -1, -1);
}

static int recip(int x) {
    if (is_special(x)) return x == T_NAN ? x : T_ZERO;
    if (x == T_ZERO) return T_INF;
    const fraction f = term_fraction(x);
    int y = recip_of_factor(f.num);
    for (int i = 0; i < f.n; i++) y = term_mul(y, f.den[i]);
    return y;
}

/* e^ of a product, or its inverse. */
static int exp_of(const product *p) {
    const rational size = {p->factor.p < 0 ? -p->factor.p : p->factor.p, p->factor.q};
    if (!p->n) return term_number(exp(real_of(p->factor)), false);
    const bool log = p->n == 1 && size.p == 1 && size.q == 1 && node[*p->atom].kind == T_LOG;
    const int y = log ? node[*p->atom].a : of_kind(T_EXP, of_product(p, size), -1, -1);
    return p->factor.p < 0 ? recip(y) : y;
}

int term_exp(int x) {
    if (node[x].known) return term_number(exp(node[x].real), false);
    const sum *s = sum_of(x);
    if (!s) return of_kind(T_EXP, x, -1, -1);
    term_normal(x);
    int y = T_ONE;
    for (int i = 0; i < s->n; i++) y = term_mul(y, exp_of(&s->p[i]));
    return y;
}

static int logarithm(int x) {
    if (node[x].known) return term_number(log(node[x].real), false);
    return node[x].kind == T_EXP ? node[x].a : of_kind(T_LOG, term_normal(x), -1, -1);
}

/* The root of x, whose first factor is taken out. */
static int root(int x) {
    if (node[x].known) return term_number(sqrt(node[x].real), false);
    x = term_normal(x);
    const sum *s = sum_of(x);
    if (!s || !s->n || s->p[0].factor.p <= 0) return of_kind(T_ROOT, x, -1, -1);
    const rational f = s->p[0].factor;
    const int part = term_normal(term_mul(of_rational(reduced(f.q, f.p)), x));
    return term_mul(term_number(sqrt(real_of(f)), false), of_kind(T_ROOT, part, -1, -1));
}

static int call(sn_op op, int x, int y) {
    x = term_normal(x);
    y = y < 0 ? y : term_normal(y);
    if (y >= 0 && (sn_ops[op].flags & SN_OPF_COMM) && y < x) {
        const int swap = x;
        x = y, y = swap;
    }
    return make((term){.kind = T_CALL, .a = x, .b = y, .c = -1, .op = op, .of_root = -1});
}

static int extremum(sn_op op, int x, int y) {
    const int last = op == SN_OP_max ? T_MINUS_INF : T_INF,
              first = op == SN_OP_max ? T_INF : T_MINUS_INF;
    if (x == T_NAN || y == T_NAN) return T_NAN;
    if (x == last || x == y) return y;
    if (y == last) return x;
    return x == first || y == first ? first : call(op, x, y);
}

static int sigmoid(int x) {
    return recip(term_add(term_exp(term_minus(x)), T_ONE));
}

static int gelu(int x) {
    const int e = call(SN_OP_erf, term_mul(x, term_number(M_SQRT1_2, false)), -1);
    return term_mul(term_mul(x, term_number(0.5, false)), term_add(e, T_ONE));
}

static int gelu_tanh(int x) {
    const int cube = term_mul(term_mul(term_mul(x, x), x), term_number(0.044715, false));
    const int t =
        call(SN_OP_tanh, term_mul(term_add(x, cube), term_number(sqrt(2 / M_PI), false)), -1);
    return term_mul(term_mul(x, term_number(0.5, false)), term_add(t, T_ONE));
}

/* ---- bools ---- */

static int negated(int x) {
    if (x <= T_ONE) return !x;
    return node[x].kind == T_NOT ? node[x].a : of_kind(T_NOT, x, -1, -1);
}

static int both(int x, int y) {
    if (x <= T_ONE) return x ? y : x;
    return y <= T_ONE ? (y ? x : y) : of_kind(T_AND, x, y, -1);
}

/* A term is finite, and what is made of e^ alone is above 0. */
static int compared(sn_op op, int x, int y) {
    if ((node[x].known || is_special(y)) && (node[y].known || is_special(x)))
        return sn_elem_ref(op, false, node[x].known ? node[x].real : 0,
                           node[y].known ? node[y].real : 0, 0) != 0;
    if ((y == T_ZERO && term_is_positive(x)) || (x == T_ZERO && term_is_positive(y)))
        return sn_elem_ref(op, false, x != T_ZERO, y != T_ZERO, 0) != 0;
    x = term_normal(x), y = term_normal(y);
    const term_kind kind = op == SN_OP_lt ? T_LESS : op == SN_OP_le ? T_LESS_EQUAL : T_EQUAL;
    const int z = of_kind(kind, x, y, -1);
    return op == SN_OP_ne ? negated(z) : z;
}

static int chosen(int c, int x, int y) {
    if (c <= T_ONE) return c ? x : y;
    if (is_special(x) || is_special(y)) failure = "a choice between a number and infinity";
    return x == y ? x : of_kind(T_IF, c, x, y);
}

static int of_bools(sn_op op, int x, int y) {
    switch (op) {
    case SN_OP_not:
        return negated(x);
    case SN_OP_and:
        return both(x, y);
    case SN_OP_or:
        return negated(both(negated(x), negated(y)));
    case SN_OP_ne:
    case SN_OP_xor:
        return negated(both(negated(both(x, negated(y))), negated(both(negated(x), y))));
    default:
        failure = sn_ops[op].name;
        return T_ZERO;
    }
}

/* ---- the numbers ---- */

static int of_one(sn_op op, int x) {
    switch (op) {
    case SN_OP_stop_gradient:
    case SN_OP_cast:
        return x;
    case SN_OP_neg:
        return term_minus(x);
    case SN_OP_recip:
        return recip(x);
    case SN_OP_exp:
        return term_exp(x);
    case SN_OP_expm1:
        return term_add(term_exp(x), term_minus(T_ONE));
    case SN_OP_log:
        return logarithm(x);
    case SN_OP_log1p:
        return logarithm(term_add(x, T_ONE));
    case SN_OP_sqrt:
        return root(x);
    case SN_OP_rsqrt:
        return recip(root(x));
    case SN_OP_sigmoid:
        return sigmoid(x);
    case SN_OP_gelu:
        return gelu(x);
    case SN_OP_gelu_tanh:
        return gelu_tanh(x);
    default:
        return call(op, x, -1);
    }
}

static int of_two(sn_op op, int x, int y) {
    switch (op) {
    case SN_OP_add:
        return term_add(x, y);
    case SN_OP_sub:
        return term_add(x, term_minus(y));
    case SN_OP_mul:
        return term_mul(x, y);
    case SN_OP_div:
        return term_mul(x, recip(y));
    case SN_OP_max:
    case SN_OP_min:
        return extremum(op, x, y);
    case SN_OP_lt:
    case SN_OP_le:
    case SN_OP_eq:
    case SN_OP_ne:
        return compared(op, x, y);
    default:
        return call(op, x, y);
    }
}

static bool is_constant(int n, int x, int y) {
    return node[x].known && (n < 2 || node[y].known);
}

static double free_elem(sn_op op, sn_dtype in, sn_dtype out, int x, int y, int z) {
    const int n = sn_ops[op].max_in;
    if (op == SN_OP_select && x <= T_ONE && in == SN_BOOL) return x ? y : z;
    if (op != SN_OP_select && is_constant(n, x, y)) {
        const bool of_float = sn_dtype_is_float(in);
        const double r =
            sn_elem_ref(op, !of_float, of_float ? node[x].real : x, of_float ? node[y].real : y, 0);
        return sn_dtype_is_float(out) ? term_number(sn_round_to(out, r), true) : r;
    }
    return make((term){.kind = T_CALL,
                       .a = x,
                       .b = n > 1 ? y : -1,
                       .c = n > 2 ? z : -1,
                       .op = 16 * (int)op + (int)out,
                       .of_root = -1});
}

static double elem(void *of, sn_op op, sn_dtype in, sn_dtype out, double x, double y, double z) {
    const int a = (int)x, b = (int)y, c = (int)z;
    const bool known = (op == SN_OP_select || in != SN_BOOL) || (a <= T_ONE && b <= T_ONE);
    (void)of;
    if (op != SN_OP_select && !sn_dtype_is_float(in) && known) {
        const double r = sn_elem_ref(op, true, x, y, z);
        return sn_dtype_is_float(out) ? term_number(r, true) : out == SN_BOOL ? r != 0 : r;
    }
    if (op == SN_OP_select && in == SN_BOOL && a <= T_ONE) return a ? y : z;
    if (free_terms) return free_elem(op, in, out, a, b, c);
    if (op == SN_OP_select && sn_dtype_is_float(out)) return chosen(a, b, c);
    if (in == SN_BOOL) {
        if (op == SN_OP_cast && out == SN_BOOL) return x;
        if (op == SN_OP_cast && sn_dtype_is_float(out)) return chosen(a, T_ONE, T_ZERO);
        return of_bools(op, a, b);
    }
    const int n = sn_ops[op].max_in;
    const bool exact = op == SN_OP_add || op == SN_OP_mul || op == SN_OP_sub || op == SN_OP_neg;
    if (sn_dtype_is_float(in) && op == SN_OP_cast && !sn_dtype_is_float(out)) {
        if (!node[a].known) failure = "a cast to integers";
        return out == SN_BOOL ? a != T_ZERO : node[a].real;
    }
    if (is_constant(n, a, b) && sn_dtype_is_float(out) && !exact && op != SN_OP_recip &&
        op != SN_OP_div)
        return term_number(sn_elem_ref(op, false, node[a].real, node[b].real, 0), false);
    return n == 1 ? of_one(op, a) : of_two(op, a, b);
}

static double number(void *of, double x, bool exact) {
    (void)of;
    return term_number(x, exact);
}

static void leaf(void *of, const char *name, int64_t n, double *out) {
    (void)of;
    for (int64_t i = 0; i < n; i++)
        out[i] = make(
            (term){.kind = T_LEAF, .name = name, .a = -1, .b = (int)i, .c = -1, .of_root = -1});
}

static double dot(void *of, const double *x, const double *y, int64_t n) {
    double s = T_ZERO;
    for (int64_t k = 0; k < n; k++)
        s = elem(of, SN_OP_add, SN_F32, SN_F32, s,
                 elem(of, SN_OP_mul, SN_F32, SN_F32, x[k], y[k], T_ZERO), T_ZERO);
    return s;
}

static double to_bool(void *of, double x) {
    (void)of;
    return x;
}

static bool failed(const void *of) {
    (void)of;
    return failure != NULL;
}

const sn_numbers term_numbers = {number, leaf, elem, dot, to_bool, failed};
