/* dims_impl.h: a module's symbolic dimensions. Embedded in struct sn_module (module_impl.h), used by
 * dim.c only. */
#ifndef SN_IR_DIMS_IMPL_H
#define SN_IR_DIMS_IMPL_H

#include "ir/ir.h"

#include <stdatomic.h>

#define SN_MAX_QUOTS 8 /* of a module */
#define SN_MAX_FACTORS (SN_MAX_SYMBOLS + SN_MAX_QUOTS)
#define SN_DIM_BLOCKS 24
#define SN_MAX_TERMS 256 /* maximum per polynomial */

/* coef * prod symbol[i]^exponent[i] * prod quot[i]^exponent[SN_MAX_SYMBOLS + i]. Terms of a polynomial are sorted by descending degree, then by
 * descending exponents of the first symbols; no coefficient is 0 or INT64_MIN. */
typedef struct sn_dim_monomial {
    int64_t coef;
    uint8_t exponent[SN_MAX_FACTORS];
} sn_dim_monomial;

typedef struct sn_dim_poly {
    int n;
    /* of the structure: independent of the order in which symbols and polynomials were created */
    uint64_t hash;
    int64_t lo, hi; /* bounds; INT64_MIN and INT64_MAX: none */
    const sn_dim_monomial *term;
} sn_dim_poly;

struct sn_dims {
    sn_symbol symbol[SN_MAX_SYMBOLS];
    atomic_int n_symbol;
    sn_quot quot[SN_MAX_QUOTS]; /* of dimensions that have only earlier ones */
    atomic_int n_quot;
    /* By handle, see dim.c: block k has 32 << k of them and never moves, so that sessions may
     * evaluate dimensions while another thread compiles the module again. */
    sn_dim_poly *block[SN_DIM_BLOCKS];
    atomic_int n_poly;
    uint32_t *slot; /* open addressing: 1 + index into poly; 0: free */
    uint32_t n_slot;
};

struct sn_dims *sn_module_dims(const sn_module *m); /* module.c; initially zero, in the arena */

#endif
