/* recurrence.c: loops as recurrent layers write them: 64 x 64 numbers a head, or 16 a channel. */
#include "bench/recurrence.h"

enum { HEAD = 64, STATE = 16 };

static void mamba(sn_scan_step *s) { /* x: x and Δ of the channels, B and C */
    const sn_tensor *a = s->user;
    sn_tensor dt = col(s->x[1]), in = sn_mul(sn_mul(dt, col(s->x[0])), row(s->x[2]));
    s->next[0] = sn_add(sn_mul(sn_exp(sn_mul(dt, *a)), s->carry[0]), in);
    s->y[0] = sn_sum(sn_mul(s->next[0], row(s->x[3])), -1);
}

/* ---- graphs ---- */

static const struct loop {
    sn_scan_fn body;
    bool vector; /* a decay for each row of the carry */
    bool share;  /* a fifth sequence: the share of a delta rule, of the decays' shape */
} loops[] = {[SN_BENCH_GLA] = {gla, true, false},
             [SN_BENCH_MAMBA2] = {mamba2, false, false},
             [SN_BENCH_GATED_DELTANET] = {gated_deltanet, false, true},
             [SN_BENCH_RWKV7] = {rwkv7, true, true},
             [SN_BENCH_MAMBA] = {mamba, false, false}};

static sn_tensor unit(sn_tensor x) {
    return sn_div(x, sn_sqrt(sn_add(sn_sum_keep(sn_square(x), -1), 1e-6)));
}

/* Heads of HEAD channels, or one. */
static int64_t heads_of(int64_t C) {
    return C % HEAD ? 1 : C / HEAD;
}

/* A vector of each head, as layers make them, or a number. */
static sn_tensor of_heads(sn_tensor x, bool vector, int64_t C) {
    return vector ? sn_split_heads(x, heads_of(C)) : sn_swap(x, 1, 2);
}

static sn_tensor channels(sn_module *m, sn_dim R, int64_t C, sn_tensor *in) {
    sn_tensor h = sn_full(m, SN_F32, 0, 1, C, STATE), a = sn_neg(sn_exp(in[4]));
    sn_scanned r = sn_scan(.carry = {h}, .axis = 1, .body = mamba, .user = &a,
                           .x = {in[0], sn_softplus(in[1]), in[2], in[3]});
    (void)R;
    return r.y[0];
}

sn_tensor sn_bench_recurrence(sn_bench_loop kind, bool backward, sn_module *m, sn_dim R,
                              int64_t C) {
    static const char *const names[] = {"q", "k", "v", "g", "share"};
    const struct loop *l = &loops[kind];
    sn_tensor in[5] = {NULL}, d[5], y;
    int n = 4 + l->share;
    if (kind == SN_BENCH_MAMBA) {
        for (int i = 0; i < 4; i++)
            in[i] = sn_input(m, names[i], SN_F32, 1, R, i < 2 ? C : (int64_t)STATE);
        in[n++] = sn_input(m, names[4], SN_F32, C, STATE);
        y = channels(m, R, C, in);
    } else {
        sn_tensor x[5];
        for (int i = 0; i < n; i++) {
            bool vector = i < 3 || l->vector;
            in[i] = sn_input(m, names[i], SN_F32, 1, R, vector ? C : heads_of(C));
            x[i] = of_heads(in[i], vector, C);
        }
        int64_t heads = heads_of(C), each = C / heads;
        sn_tensor S = sn_full(m, SN_F32, 0, 1, heads, each, each), k = x[1];
        sn_tensor decay = sn_exp(sn_mul(sn_sigmoid(x[3]), -0.5));
        sn_scan_args a = {.carry = {S}, .axis = 2, .body = l->body};
        if (l->share) k = unit(k), a.x[4] = sn_sigmoid(x[4]);
        if (l->share && l->vector) a.x[4] = sn_mul(a.x[4], k);
        a.x[0] = x[0], a.x[1] = k, a.x[2] = x[2], a.x[3] = decay;
        y = sn_merge_heads(sn_scan_at(SN_HERE, &a).y[0]);
    }
    if (!backward) return y;
    sn_grad(sn_sum_all(sn_square(y)), n, in, d);
    for (int i = 1; i < n; i++) sn_output(names[i], d[i]);
    return d[0];
}
