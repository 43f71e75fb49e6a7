/* selective_scan.c: see selective_scan.h. */
#include "bench/selective_scan.h"

/* All in the body, so that it is one kernel; squares have the signs of a layer's values. */
static void step(sn_scan_step *s) { /* x: x and dt of the channels, B and C; captured: A, skip */
    const sn_tensor *captured = s->user;
    sn_tensor x = s->x[0], dt = sn_square(s->x[1]), a = sn_neg(sn_square(captured[0]));
    sn_tensor in = sn_mul(sn_expand(sn_mul(dt, x), -1), sn_expand(s->x[2], -2));
    s->next[0] = sn_add(sn_mul(sn_exp(sn_mul(sn_expand(dt, -1), a)), s->carry[0]), in);
    sn_tensor y = sn_sum(sn_mul(s->next[0], sn_expand(s->x[3], -2)), -1);
    s->y[0] = sn_add(y, sn_mul(x, captured[1]));
}

/* A sum of as many exponentials of each element. */
sn_tensor sn_bench_exponentials(sn_tensor x) {
    sn_tensor y = NULL;
    for (int i = 0; i < SN_BENCH_STATES; i++) {
        sn_tensor e = sn_exp(sn_mul(x, -0.05 * (i + 1)));
        y = y ? sn_add(y, e) : e;
    }
    return y;
}

sn_tensor sn_bench_selective_scan(bool backward, sn_module *m, sn_dim R, int64_t C) {
    enum { N_IN = 7 };
    static const char *const names[N_IN] = {"x", "dt", "B", "C", "A", "skip", "h"};
    sn_tensor in[N_IN], d[N_IN];
    for (int i = 0; i < 4; i++)
        in[i] = sn_input(m, names[i], SN_F32, 1, R, i < 2 ? C : (int64_t)SN_BENCH_STATES);
    in[4] = sn_input(m, names[4], SN_F32, C, SN_BENCH_STATES);
    in[5] = sn_input(m, names[5], SN_F32, C);
    in[6] = sn_input(m, names[6], SN_F32, 1, C, SN_BENCH_STATES);
    sn_tensor y = sn_scan(.carry = {in[6]}, .axis = 1, .body = step, .user = &in[4],
                          .x = {in[0], in[1], in[2], in[3]})
                      .y[0];
    if (!backward) return y;
    sn_grad(sn_sum_all(sn_square(y)), N_IN, in, d);
    for (int i = 1; i < N_IN; i++) sn_output(names[i], d[i]);
    return d[0];
}
