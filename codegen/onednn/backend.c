/* backend.c: oneDNN's row of the table of back ends. */
#include "codegen/onednn/onednn.h"

static void *open_state(sn_error *err) {
    return sn_dnnl_create(err);
}

static void close_state(void *state) {
    sn_dnnl_destroy(state);
}

static int64_t packed_bytes(void *state, const sn_matmul *s, sn_error *err) {
    return sn_dnnl_packed_bytes(state, s, err);
}

static bool pack(void *state, const sn_matmul *s, const void *b, void *packed, sn_error *err) {
    return sn_dnnl_pack(state, s, b, packed, err);
}

static bool run_gemm(void *state, const sn_matmul *s, const void *a, const void *b,
                     const float *bias, float *c, sn_error *err) {
    return sn_dnnl_run_matmul(state, s, a, b, bias, c, err);
}

static const char *code_of(void *state, const sn_matmul *s) {
    return sn_dnnl_code(state, s);
}

static const sn_backend_gemm gemm = {packed_bytes, pack, run_gemm, code_of};

extern const sn_backend sn_backend_onednn;
const sn_backend sn_backend_onednn = {.name = "onednn",
                                      .title = "oneDNN",
                                      .version = sn_dnnl_version,
                                      .supports = onednn_supports,
                                      .epilogue = onednn_epilogue,
                                      .cost = onednn_cost,
                                      .open = open_state,
                                      .close = close_state,
                                      .run = onednn_run,
                                      .gemm = &gemm};
