/* field_log.c: see field_log.h. Modulo p, x is a quotient of two numbers near the root of p, in many ways. Where both have small
 * prime factors only, the logarithm of x follows from those of the factors, which are found the same way: from powers of 2,
 * whose logarithms are known, as linear equations. */
#include "ir/field_log.h"

#include <math.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

enum {
    SMALL = 256,    /* primes, from the largest to 2 */
    WINDOW = 1024,  /* quotients that are sieved together */
    WINDOWS = 8,    /* of one x; then of x times a power of 2 */
    SLACK = 18 * 16 /* bits / 16 of small powers that the sieve leaves out, and of its roundings */
};

/* A Cunningham chain: each is twice the one before, plus 1. All are 3 modulo 4, and from the second on 7 modulo 8,
 * so that 2 is a square. */
const uint64_t sn_field_prime[SN_FIELD_RINGS] = {
    8181864863026139,    16363729726052279,  32727459452104559,  65454918904209119,
    130909837808418239,  261819675616836479, 523639351233672959, 1047278702467345919,
    2094557404934691839, 4189114809869383679};

static uint32_t small[SMALL];
static uint8_t bits[SMALL];                    /* 16 log2 of it */
static uint64_t log_of[SN_FIELD_RINGS][SMALL]; /* of small primes */
static pthread_once_t once = PTHREAD_ONCE_INIT;

/* a = a[0] v + a[1] u and b likewise: a / b = x modulo p for all u and v, but for the sign. */
typedef struct fractions {
    int64_t a[2], b[2];
} fractions;

/* Two short ones: Euclid's algorithm, stopped half way (Gauss). */
static fractions fractions_of(uint64_t x, uint64_t p) {
    fractions f = {{(int64_t)p, (int64_t)x}, {0, 1}};
    while (f.a[1] > (int64_t)1 << 31) {
        const int64_t q = f.a[0] / f.a[1], a = f.a[0] - q * f.a[1], b = f.b[0] - q * f.b[1];
        f.a[0] = f.a[1], f.a[1] = a;
        f.b[0] = f.b[1], f.b[1] = b;
    }
    return f;
}

static uint32_t residue(int64_t x, uint32_t q) {
    const int64_t r = x % (int64_t)q;
    return (uint32_t)(r < 0 ? r + (int64_t)q : r);
}

/* For each small prime q: -n[0] / n[1] modulo q, at which n[0] + n[1] u is a multiple; q: nowhere. */
static void find_roots(const int64_t n[2], uint32_t root[SMALL]) {
    for (int k = 0; k < SMALL; k++) {
        const uint32_t q = small[k], i = (uint32_t)sn_residue_inverse(residue(n[1], q), q);
        root[k] = i ? (uint32_t)((uint64_t)(q - residue(n[0], q)) * i % q) : q;
    }
}

/* Adds 16 log2 q where q divides n[0] v + n[1] u, for u from -WINDOW / 2. */
static void sieve(const uint32_t root[SMALL], uint32_t v, uint16_t score[WINDOW]) {
    for (int k = 0; k < SMALL - 2; k++) {
        const uint32_t q = small[k];
        if (root[k] == q) continue;
        uint32_t u = (uint32_t)(((uint64_t)root[k] * v + WINDOW / 2) % q);
        for (; u < WINDOW; u += q) score[u] = (uint16_t)(score[u] + bits[k]);
    }
}

/* 16 log2 of the largest |n[0] v + n[1] u|, rounded up. */
static int bits_of(const int64_t n[2], int v) {
    int k = 0;
    for (int64_t rest = llabs(n[0]) * v + llabs(n[1]) * (WINDOW / 2); rest; rest >>= 1) k++;
    return 16 * k;
}

/* Adds `sign` times the exponents of the small primes in n. Whether there are no others. */
static bool factor(int64_t n, int sign, int exponent[SMALL]) {
    uint64_t rest = (uint64_t)llabs(n);
    for (int k = 0; rest > 1 && k < SMALL; k++)
        for (; rest % small[k] == 0; rest /= small[k]) exponent[k] += sign;
    return rest == 1;
}

/* x or -x as a product of small primes modulo p. Whether one was found. */
static bool product_of(uint64_t x, uint64_t p, int exponent[SMALL]) {
    const fractions f = fractions_of(x, p);
    uint32_t root[2][SMALL];
    if (f.a[0] >> 48 || llabs(f.b[1]) >> 48) return false; /* one of them is long */
    find_roots(f.a, root[0]);
    find_roots(f.b, root[1]);
    for (int v = 1; v <= WINDOWS; v++) {
        uint16_t score[WINDOW] = {0};
        sieve(root[0], (uint32_t)v, score);
        sieve(root[1], (uint32_t)v, score);
        const int enough = bits_of(f.a, v) + bits_of(f.b, v) - SLACK;
        for (int k = 0; k < WINDOW; k++) {
            if (score[k] < enough) continue;
            const int64_t u = k - WINDOW / 2;
            const int64_t a = f.a[0] * v + f.a[1] * u, b = f.b[0] * v + f.b[1] * u;
            memset(exponent, 0, sizeof *exponent * SMALL);
            if (a && b && factor(a, 1, exponent) && factor(b, -1, exponent)) return true;
        }
    }
    return false;
}

/* The same of x 2^n for a small n, which is the result: it is found for some. */
static uint64_t product_near(uint64_t x, uint64_t p, int exponent[SMALL]) {
    uint64_t n = 0;
    while (!product_of(sn_residue_mul(x, sn_residue_power(2, n, p), p), p, exponent))
        n = n * 5 + 61;
    return n;
}

/* ---- tables ---- */

/* Equations of the logarithms of small primes modulo n, in echelon form: the first coefficient of row k that is not 0
 * is that of prime k, and is 1. */
typedef struct equations {
    uint64_t row[SMALL][SMALL + 1], n;
    bool has[SMALL];
} equations;

static uint64_t minus(uint64_t x, uint64_t y, uint64_t n) {
    return x < y ? x + n - y : x - y;
}

/* Whether the equation says something new. */
static bool add_equation(equations *e, uint64_t row[SMALL + 1]) {
    for (int k = 0; k < SMALL; k++) {
        if (!row[k]) continue;
        const uint64_t by = e->has[k] ? row[k] : sn_residue_power(row[k], e->n - 2, e->n);
        for (int j = k; j <= SMALL; j++)
            if (!e->has[k])
                e->row[k][j] = row[j] ? sn_residue_mul(by, row[j], e->n) : 0;
            else if (e->row[k][j])
                row[j] = minus(row[j], sn_residue_mul(by, e->row[k][j], e->n), e->n);
        if (e->has[k]) continue;
        return e->has[k] = true;
    }
    return false;
}

static void make_table(int i) {
    static equations e;
    uint64_t p = sn_field_prime[i], x = 2, known = 1, row[SMALL + 1] = {0};
    e = (equations){.n = sn_field_prime[i - 1]};
    row[SMALL - 1] = row[SMALL] = 1; /* log2 2 */
    for (int n = add_equation(&e, row); n < SMALL;) {
        int exponent[SMALL];
        x = sn_residue_power(x, 1000003, p); /* 2^known */
        known = sn_residue_mul(known, 1000003, e.n);
        const uint64_t more = product_near(x, p, exponent);
        for (int k = 0; k < SMALL; k++)
            row[k] = exponent[k] < 0 ? e.n - (uint64_t)-exponent[k] : (uint64_t)exponent[k];
        row[SMALL] = (known + more % e.n) % e.n;
        n += add_equation(&e, row);
    }
    for (int k = SMALL - 1; k >= 0; k--) {
        uint64_t l = e.row[k][SMALL];
        for (int j = k + 1; j < SMALL; j++)
            l = minus(l, sn_residue_mul(e.row[k][j], log_of[i][j], e.n), e.n);
        log_of[i][k] = l;
    }
}

static void make_tables(void) {
    uint32_t q = 2;
    for (int n = SMALL; n > 0; q++) {
        bool is_prime = true;
        for (int k = n; k < SMALL; k++) is_prime &= q % small[k] != 0;
        if (!is_prime) continue;
        small[--n] = q;
        bits[n] = (uint8_t)(16 * log2(q));
    }
    for (int i = 1; i < SN_FIELD_RINGS; i++) make_table(i);
}

uint64_t sn_field_log2(uint64_t x, int i) {
    int exponent[SMALL];
    const uint64_t n = sn_field_prime[i - 1];
    pthread_once(&once, make_tables);
    uint64_t l = n - product_near(x, sn_field_prime[i], exponent) % n;
    for (int k = 0; k < SMALL; k++) {
        const uint64_t e = (uint64_t)abs(exponent[k]), part = sn_residue_mul(e, log_of[i][k], n);
        l = exponent[k] < 0 ? minus(l % n, part, n) : (l % n + part) % n;
    }
    return l % n;
}
