/* selective_scan.c: see selective_scan.h. */
#include "bench/selective_scan.h"

static void step(sn_scan_step *s) { /* x: x and dt of the channels, B and C */
    const sn_tensor *a = s->user;
    sn_tensor dt = sn_expand(s->x[1], -1), x = sn_expand(s->x[0], -1);
    sn_tensor in = sn_mul(sn_mul(dt, x), sn_expand(s->x[2], -2));
    s->next[0] = sn_add(sn_mul(sn_exp(sn_mul(dt, *a)), s->carry[0]), in);
    s->y[0] = sn_sum(sn_mul(s->next[0], sn_expand(s->x[3], -2)), -1);
}

sn_tensor sn_bench_selective_scan(bool backward, sn_module *m, sn_dim R, int64_t C) {
    enum { N_IN = 7 };
    static const char *const names[N_IN] = {"x", "dt", "B", "C", "A", "h", "skip"};
    sn_tensor in[N_IN], d[N_IN];
    for (int i = 0; i < 4; i++)
        in[i] = sn_input(m, names[i], SN_F32, 1, R, i < 2 ? C : (int64_t)SN_BENCH_STATES);
    in[4] = sn_input(m, names[4], SN_F32, C, SN_BENCH_STATES);
    in[5] = sn_input(m, names[5], SN_F32, 1, C, SN_BENCH_STATES);
    in[6] = sn_input(m, names[6], SN_F32, C);
    sn_tensor a = sn_neg(sn_square(in[4])), dt = sn_square(in[1]); /* the signs of a layer's */
    sn_scanned r = sn_scan(.carry = {in[5]}, .axis = 1, .body = step, .user = &a,
                           .x = {in[0], dt, in[2], in[3]});
    sn_tensor y = sn_add(r.y[0], sn_mul(in[0], in[6]));
    if (!backward) return y;
    sn_grad(sn_sum_all(sn_square(y)), N_IN, in, d);
    for (int i = 1; i < N_IN; i++) sn_output(names[i], d[i]);
    return d[0];
}
