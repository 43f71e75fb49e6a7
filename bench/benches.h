/* benches.h: what `sinter bench` can measure: one function a kind; each adds its records. */
#ifndef SN_BENCHES_H
#define SN_BENCHES_H

#include "frontend/models.h"
#include "bench/measure.h"

/* f32, f64, bf16 and int8 multiply-add peaks, on one thread and on all; read and copy bandwidth
 * from L2, L3 and memory. */
bool sn_bench_roofline(const sn_bench_options *o, sn_bench_report *out, sn_error *err);

/* Kernels by name (NULL: all of kernels.def). Other sizes: "ROWSxWIDTH" or NULL. */
bool sn_bench_kernels(const sn_bench_options *o, const char *names, const char *shape,
                      sn_bench_report *out, sn_error *err);
const char *sn_bench_kernel_name(int i); /* NULL after the last */

/* y [M, N] = x [M, K] w [N, K]^T through the DSL, next to oneDNN with packed weights. shapes:
 * "M,N,K M,N,K …", NULL: the usual ones. Up to 16 rows the weights are rotated over 1 GiB. */
bool sn_bench_gemms(const sn_bench_options *o, const char *shapes, sn_bench_report *out,
                    sn_error *err);

/* Attention through the DSL. masks: full, causal, window:N, prefix:N, alibi, softcap, documents,
 * dilated:N, blocks:N, neighbours:N, bias, biases (one a head), decode (one query, T keys) with
 * commas between; shapes: "B,H,T,D B,H,T,D …" (B,H,HK,T,D with fewer key heads); NULL: the usual.
 * backward: with the gradients of q, k and v; 3.5 times the operations are counted. */
bool sn_bench_masks(const sn_bench_options *o, const char *masks, const char *shapes, bool backward,
                    sn_bench_report *out, sn_error *err);

/* Every mask from 16 to 4096 tokens, fused against its own unfused form; notes say which
 * is slower. */
bool sn_bench_sweep(const sn_bench_options *o, sn_bench_report *out, sn_error *err);

/* A whole model: all logits of `tokens` tokens ("64,256,1024"), decode steps after so many cached
 * tokens, or steps of training (forward, backward, AdamW) on so many. */
typedef enum sn_bench_mode { SN_BENCH_FORWARD, SN_BENCH_DECODE, SN_BENCH_TRAIN } sn_bench_mode;
typedef struct sn_bench_model {
    const char *model; /* a preset, or a folder with a config.json (its sizes are taken, weights are
                        * random), or the name of what `define` defines */
    sn_model_fn *define; /* NULL: model is not in C */
    const char *tokens;  /* NULL: the usual ones */
    int64_t batch;
    sn_bench_mode mode;
    double clip; /* training: longest gradient of all parameters together; 0: not clipped */
} sn_bench_model;
bool sn_bench_models(const sn_bench_options *o, const sn_bench_model *b, sn_bench_report *out,
                     sn_error *err);

/* The same work by the kernel generators alone (o->direct): one record each. mask: a name of
 * sn_bench_attention_mask; shape: B, H, HK, T, D. */
bool sn_bench_gemm_direct(const sn_bench_options *o, int64_t m, int64_t n, int64_t k,
                          sn_bench_report *out, sn_error *err);
bool sn_bench_attention_direct(const sn_bench_options *o, const char *mask, const int64_t shape[5],
                               const char *name, const char *shape_text, sn_bench_report *out,
                               sn_error *err);

#endif
