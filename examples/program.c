/* program.c: builds, compiles, explains and runs a model in your own program, for two sequence
 * lengths, with weights from arrays. Its attention combines ALiBi's penalty on distance (Press et
 * al. 2021) with soft-capping. */
#include <sinter/sinter.h>

#include <stdio.h>

enum { H = 4, D = 32, WIDTH = H * D };

/* 20 tanh((score - slope[h] (q - k)) / 20) */
static sn_tensor capped_alibi(const sn_score_ctx *c) {
    sn_tensor distance = sn_cast(sn_query_key_distance(c), SN_F32);
    sn_tensor penalty = sn_mul(sn_at(c->captured[0], c->h), distance);
    return sn_mul(sn_tanh(sn_div(sn_sub(c->score, penalty), 20.0)), 20.0);
}

static sn_module *build(void) {
    sn_module *m = sn_module_new("program");
    sn_dim T = sn_symbol(m, "T", 1, 4096); /* a size known at run time */
    sn_entry_begin(m, "forward");
    sn_tensor x = sn_input(m, "x", SN_F32, 1, T, WIDTH), part[3];
    sn_split(sn_nn_linear(x, "qkv", 3 * WIDTH, SN_BIAS), 2, 3, part);
    sn_tensor y = sn_attention(sn_split_heads(part[0], H), sn_split_heads(part[1], H),
                               sn_split_heads(part[2], H), .causal = true, .score = capped_alibi,
                               .captured = {sn_param(m, "slopes", SN_F32, H)});
    sn_output("y", sn_nn_linear(sn_merge_heads(y), "out", WIDTH, SN_BIAS));
    return m;
}

static float qkv[3 * WIDTH * WIDTH], qkv_bias[3 * WIDTH], out[WIDTH * WIDTH], out_bias[WIDTH],
    slopes[H] = {0.25f, 0.0625f, 0.015625f, 0.00390625f};

static bool run(sn_session *s, int64_t T, sn_error *err) {
    static float x[64 * WIDTH], y[64 * WIDTH];
    for (int i = 0; i < 64 * WIDTH; i++) x[i] = (float)(i % 13) / 13 - 0.5f;
    sn_arg_binding in = SN_BIND("x", SN_F32, x, 1, T, WIDTH);
    sn_arg_binding result = SN_BIND("y", SN_F32, y, 1, T, WIDTH);
    if (!sn_run(s, "forward", &in, 1, &result, 1, err)) return false;
    printf("T = %lld: y[last, 0] = %.6f\n", (long long)T, y[(T - 1) * WIDTH]);
    return true;
}

int main(void) {
    for (int i = 0; i < 3 * WIDTH * WIDTH; i++) qkv[i] = (float)(i % 17) / 85 - 0.1f;
    for (int i = 0; i < WIDTH * WIDTH; i++) out[i] = (float)(i % 11) / 55 - 0.1f;
    const sn_arg_binding weights[] = {SN_BIND("qkv.weight", SN_F32, qkv, 3 * WIDTH, WIDTH),
                                      SN_BIND("qkv.bias", SN_F32, qkv_bias, 3 * WIDTH),
                                      SN_BIND("out.weight", SN_F32, out, WIDTH, WIDTH),
                                      SN_BIND("out.bias", SN_F32, out_bias, WIDTH),
                                      SN_BIND("slopes", SN_F32, slopes, H)};
    sn_error err = {0};
    sn_module *m = build();
    sn_program *p = sn_compile(m, NULL, &err); /* reports the first error in the model */
    if (p) sn_program_explain(p, "forward", stdout);
    sn_session *s = p ? sn_session_new_arrays(p, weights, 5, &err) : NULL;
    bool ok = s && run(s, 64, &err) && run(s, 7, &err); /* another length: no recompilation */
    if (!ok) fprintf(stderr, "%s\n", err.message);
    sn_session_free(s);
    sn_program_free(p);
    sn_module_free(m);
    return ok ? 0 : 1;
}
