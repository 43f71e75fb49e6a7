/* backend.h: the back ends that this build has, and how a step of a library is run. */
#ifndef SN_CODEGEN_BACKEND_H
#define SN_CODEGEN_BACKEND_H

#include "codegen/kernel.h"
#include "passes/backend.h"

const sn_backend *sn_backend_find(const char *name); /* NULL: this build has no such back end */
const sn_backend *sn_backend_library(void);          /* the one besides the native; NULL: none */
const char *sn_backend_library_version(void);        /* "none" without one */

/* One call: buf and dim are what the step's kernel would get (kernel.h). */
typedef struct sn_step_call {
    const sn_kernel *kernel;
    void *const *buf;
    const int64_t *dim;
    bool constant_right; /* a product's right factor never changes: it may be packed once */
} sn_step_call;

/* C[b,i,j] = sum over k of A[b,i,k] B[b,k,j] + bias[j]. Strides in elements; a batch stride of 0
 * repeats the operand. */
enum { SN_MATMUL_BATCH = 3 };
typedef struct sn_matmul {
    int64_t n_batch, batch[SN_MATMUL_BATCH];
    int64_t m, n, k;
    int64_t a_batch[SN_MATMUL_BATCH], b_batch[SN_MATMUL_BATCH], c_batch[SN_MATMUL_BATCH];
    int64_t a_row, a_col, b_row, b_col, c_row, c_col;
    int64_t packed;  /* 1: b is in the layout that `pack` makes for the same description */
    int64_t bias;    /* 1: there is one */
    int64_t factors; /* an sn_dtype: of a and b; the sums of i8 are converted to f32 */
} sn_matmul;

/* A library's products with results of f32, for `bench`. state: of sn_backend.open. */
typedef struct sn_backend_gemm {
    int64_t (*packed_bytes)(void *state, const sn_matmul *s, sn_error *err); /* -1: failed */
    bool (*pack)(void *state, const sn_matmul *s, const void *b, void *packed, sn_error *err);
    bool (*run)(void *state, const sn_matmul *s, const void *a, const void *b, const float *bias,
                float *c, sn_error *err);
    /* The library's name of its code for a product, such as brgemm:avx512_core; "": none */
    const char *(*code)(void *state, const sn_matmul *s);
} sn_backend_gemm;

#endif
