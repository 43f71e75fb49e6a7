/* benches.h: what `sinter bench` can measure, one function each; every function appends its records
 * to the report. */
#ifndef SN_BENCHES_H
#define SN_BENCHES_H

#include "frontend/models.h"
#include "bench/measure.h"

/* f32, f64, bf16, fp16 and int8 multiply-add peaks, on one thread and on all; read and copy bandwidth
 * from L2, L3 and memory. */
bool sn_bench_roofline(const sn_bench_options *o, sn_bench_report *out, sn_error *err);

/* Kernels by name (NULL: all of kernels.def). shape: "ROWSxWIDTH" or NULL for the sizes of the
 * table. */
bool sn_bench_kernels(const sn_bench_options *o, const char *names, const char *shape,
                      sn_bench_report *out, sn_error *err);

/* y [M, N] = x [M, K] w [N, K]^T through the DSL, beside oneDNN with packed weights. shapes: "M,N,K
 * M,N,K …", NULL: the default. Up to 16 rows, copies of the weights that fill 1 GiB are used in
 * turn. */
bool sn_bench_gemms(const sn_bench_options *o, const char *shapes, sn_bench_report *out,
                    sn_error *err);

/* Attention through the DSL. masks, comma-separated: full, causal, window:N, prefix:N, alibi,
 * softcap, documents, dilated:N, blocks:N, neighbours:N, bias, biases (one per head), swin:N, decode
 * (one query, T keys). shapes: "B,H,T,D B,H,T,D …" (B,H,HK,T,D with fewer K/V heads); NULL: the default.
 * backward: with the gradients of q, k and v, which counts 3.5 times the operations. */
bool sn_bench_masks(const sn_bench_options *o, const char *masks, const char *shapes, bool backward,
                    sn_bench_report *out, sn_error *err);

/* The masks, one that takes a size as "window:"; valid until the next call. NULL after the last. */
const char *sn_bench_mask_name(int i);

/* Every mask from 16 to 4096 tokens, fused and unfused; notes name the cases where fusion is
 * slower. */
bool sn_bench_sweep(const sn_bench_options *o, sn_bench_report *out, sn_error *err);

/* A whole model: all logits of `tokens` tokens ("64,256,1024"), decode steps after this many cached
 * tokens, or training steps (forward, backward, AdamW) on this many. */
typedef enum sn_bench_mode { SN_BENCH_FORWARD, SN_BENCH_DECODE, SN_BENCH_TRAIN } sn_bench_mode;
typedef struct sn_bench_model {
    /* a preset, a folder with a config.json (weights are random), or the name of what `build`
     * builds */
    const char *model;
    /* Builds a model in C, or of a file; NULL: the model is a preset or a folder */
    bool (*build)(void *source, const sn_model_options *o, sn_model *out, sn_error *err);
    void *source;
    const char *file;   /* ONNX: peers run this file, too; NULL: none */
    const char *tokens; /* NULL: the default */
    /* "B=1,N=64": sizes of dimensions of any name, once; NULL: models without an input `tokens` have
     * the batch size in B and in batch…, and each number of tokens in all others */
    const char *sizes;
    const char *entry; /* NULL: forward, decode, or train_step */
    bool gradient;     /* times the gradients of the entry's float outputs, summed, instead */
    int64_t batch;
    sn_bench_mode mode;
    double clip; /* training: maximum global gradient norm; 0: no clipping */
    /* training: one of sn_optimizer_names, NULL: AdamW. Some, as Muon, update matrices only; AdamW updates
     * embeddings, heads and vectors. */
    const char *optimizer;
} sn_bench_model;
bool sn_bench_models(const sn_bench_options *o, const sn_bench_model *b, sn_bench_report *out,
                     sn_error *err);

#endif
