/* spec_variants.c: one row a file of examples/variants: the kernels that one layer of it must come
 * out as, and what one of them must have taken in. The functions are those that SN_MODEL defines,
 * renamed by CMakeLists.txt. */
#include "tests/e2e/spec_rows.h"

/* clang-format off */
#define VARIANTS(_) \
    _(alibi, "3 map_reduce, 5 gemm, 1 flash", "score: exp2, cast x2, add, sub x2, mul x2  mask: le") \
    _(attention_residuals, "4 map_reduce, 5 gemm, 1 flash", "f32[B,T,16]  body: exp") \
    _(attention_sinks, "4 map_reduce, 5 gemm, 1 flash", "flash      layer0.attention  f32[B,2,T,8]  mask: le") \
    _(batch_norm, "2 map_reduce, 5 gemm, 1 flash", "epilogue: add x3, sub, mul x2") \
    _(block_top_k, "13 map_reduce, 6 gemm, 1 flash, 1 argsort, 2 column", "mask: div, le, and, gather_nd") \
    _(comba, "11 map_reduce, 6 gemm, 1 recurrence", "recurrence layer0.recurrence  f32[T,B,2,8]") \
    _(compressed_sparse_attention, "75 map_reduce, 7 gemm, 7 column, 1 argsort, 2 flash", "f32[T*B,1,2,8]") \
    _(deepnorm, "4 map_reduce, 5 gemm, 1 flash", "flash      layer0.attention  f32[B,2,T,8]  mask: le") \
    _(deepseek_experts, "8 map_reduce, 7 gemm, 1 flash, 1 grouped, 1 column", "blocks for each row") \
    _(delta_product, "11 map_reduce, 6 gemm, 1 recurrence", "recurrence layer0.recurrence") \
    _(deltanet, "7 map_reduce, 6 gemm, 1 recurrence", "recurrence layer0.recurrence  f32[T,B,2,8]") \
    _(differential_attention, "5 map_reduce, 5 gemm, 2 flash", "body: rsqrt, add, sub, mul x5, div, reduce_sum") \
    _(engram, "15 map_reduce, 6 gemm, 1 flash", "mod") \
    _(expert_choice, "11 map_reduce, 6 gemm, 1 flash, 1 argsort, 1 scatter, 1 column", "argsort") \
    _(forgetting_transformer, "5 map_reduce, 5 gemm, 1 cumulate, 1 flash", "gather_nd x2  mask: le") \
    _(gated_deltanet, "9 map_reduce, 6 gemm, 1 recurrence", "recurrence layer0.recurrence  f32[T,B,2,8]") \
    _(gated_deltanet2, "6 map_reduce, 6 gemm, 1 recurrence", "recurrence layer0.recurrence  f32[T,B,2,8]") \
    _(gated_linear_attention, "5 map_reduce, 7 gemm, 1 recurrence", "recurrence layer0.recurrence  f32[T,B,2,8]") \
    _(gated_mlp, "6 map_reduce, 9 gemm, 2 flash", "epilogue: sigmoid, mul x2, gate of 2 x") \
    _(heavily_compressed_attention, "31 map_reduce, 6 gemm, 3 column, 1 flash", "a sink in the divisor") \
    _(hgrn2, "5 map_reduce, 6 gemm, 1 recurrence", "recurrence layer0.recurrence  f32[T,B,2,8]") \
    _(hyper_connections, "22 map_reduce, 9 gemm, 3 column, 1 flash", "body: add x56, div x48") \
    _(kimi_delta_attention, "7 map_reduce, 7 gemm, 1 recurrence", "recurrence layer0.recurrence  f32[T,B,2,8]") \
    _(latent_attention, "14 map_reduce, 7 gemm, 1 flash", "flash      layer0.attention  f32[B,2,T,4]  mask: le") \
    _(linear_attention, "9 map_reduce, 5 gemm, 1 recurrence", "recurrence layer0.recurrence  f32[T,B,2,9]") \
    _(log_linear_attention, "5 map_reduce, 5 gemm, 1 flash", "xor, gather_nd  mask: le") \
    _(lora_adapters, "5 map_reduce, 6 gemm, 1 flash, 3 grouped", "1 of 4 blocks for each row") \
    _(mamba, "7 map_reduce, 8 gemm, 1 fused_scan", "fused_scan layer0.scan  f32[B,32,16]") \
    _(mamba2, "8 map_reduce, 6 gemm, 1 recurrence", "recurrence layer0.recurrence  f32[T,B,2,8]") \
    _(mamba3, "20 map_reduce, 6 gemm, 1 cumulate, 1 recurrence", "recurrence layer0.recurrence  f32[T,B,2,8]") \
    _(mamba3_mimo, "30 map_reduce, 5 gemm, 1 cumulate, 1 recurrence, 2 flash, 1 column", "recurrence layer0.recurrence") \
    _(mesanet, "26 map_reduce, 8 gemm, 1 recurrence", "recurrence layer0.recurrence") \
    _(mlstm, "16 map_reduce, 6 gemm, 2 cumulate, 1 recurrence", "recurrence layer0.recurrence  f32[T,B,2,9]") \
    _(mixture_of_depths, "9 map_reduce, 6 gemm, 1 flash, 1 argsort, 1 scatter, 1 column", "argsort") \
    _(mixture_of_experts, "6 map_reduce, 5 gemm, 1 flash, 1 argsort, 1 grouped, 1 column", "f32[B,T,2,32]  epilogue: gelu, 1 of 4 blocks for each row") \
    _(native_sparse_attention, "18 map_reduce, 6 gemm, 3 column, 1 argsort, 3 flash", "mask: div, le, and, gather_nd") \
    _(packed_documents, "9 map_reduce, 5 gemm, 1 flash", "mask: le, eq, and, gather_nd x2") \
    _(parallax, "9 map_reduce, 6 gemm, 2 flash", "score: exp, sub, mul") \
    _(parallel_block, "6 map_reduce, 5 gemm, 1 flash", "gemm       layer0.qkv  f32[B,T,6,8]  epilogue: add x2, mul x2, lt, xor, select, iota x2, gather") \
    _(path_attention, "10 map_reduce, 9 gemm, 1 cumulate, 1 solve, 1 flash", "solve") \
    _(perceiver, "7 map_reduce, 8 gemm, 2 flash, 1 column", "flash      attention  f32[B,2,8,8]  mask: lt, gather_nd") \
    _(prefix_lm, "4 map_reduce, 5 gemm, 1 flash", "mask: lt, le, or, gather_nd") \
    _(qk_norm, "6 map_reduce, 5 gemm, 1 flash", "flash      layer0.attention  f32[B,2,T,8]  mask: le") \
    _(relu2_attention, "4 map_reduce, 5 gemm, 1 flash", "score: cast, add, mul, div, max") \
    _(retention, "8 map_reduce, 6 gemm, 1 flash", "flash      layer0.attention  f32[B,2,T,8]  score: ") \
    _(retnet, "14 map_reduce, 6 gemm, 1 recurrence", "recurrence layer0.recurrence  f32[T,B,2,8]") \
    _(rwkv6, "7 map_reduce, 17 gemm, 1 recurrence", "recurrence layer0.recurrence  f32[T,B,2,8]") \
    _(rwkv7, "7 map_reduce, 10 gemm, 1 recurrence", "recurrence layer0.recurrence  f32[T,B,2,8]") \
    _(sandwich_norm, "4 map_reduce, 5 gemm, 1 flash", "flash      layer0.attention  f32[B,2,T,8]  mask: le") \
    _(shared_layers, "6 map_reduce, 9 gemm, 2 flash", "flash      attention  f32[B,2,T,8]  mask: le") \
    _(sigmoid_attention, "4 map_reduce, 5 gemm, 1 flash", "score: log, sigmoid, cast") \
    _(soft_capping, "4 map_reduce, 5 gemm, 1 flash", "score: tanh, mul  mask: le") \
    _(softmax_plus_one, "5 map_reduce, 5 gemm, 1 flash", "flash      layer0.attention  f32[B,2,T,8]  mask: le") \
    _(swin_window, "8 map_reduce, 9 gemm, 2 flash, 1 column", "mask: div x6, mod x2, eq x2, and") \
    _(t5_buckets, "3 map_reduce, 5 gemm, 1 flash", "score: log, cast x2, add x2, sub, mul x2, max x2, min, lt, select, gather_nd  mask: le") \
    _(talking_heads, "4 map_reduce, 5 gemm, 1 flash_mixed", "flash_mixed layer0.attention with mixed heads  f32[B,2,T,8]  mask: le") \
    _(titans, "14 map_reduce, 6 gemm, 1 fused_scan", "fused_scan layer0.scan") \
    _(wall_attention, "6 map_reduce, 5 gemm, 1 cumulate, 1 flash", "f32[B,2,T,T,1]  body: exp, sub, mul x2") \
    _(window_sinks, "9 map_reduce, 5 gemm, 1 flash", "mask: add, lt, le x2, and, or")
/* clang-format on */

#define DECLARE(name, kernels, holds) void variant_##name(sn_module *, const sn_model_options *);
VARIANTS(DECLARE)

#define ROW(name, kernels, holds)                                                                  \
    {#name, "examples/variants/" #name ".c", variant_##name, NULL, kernels, holds, 0.05, 300, 0},
const spec_row spec_variants[] = {VARIANTS(ROW){0}};
