/* layer.h: what the variants of this folder share: entries around layer x [B, T, D] -> y [B, T, D], states,
 * token shifts. Entries: forward; loss, the sum of y g; step, its gradients; decode, one token. */
#include <sinter/models.h>
#include <math.h>
#ifndef D
#define D 64
#endif
#ifndef CAP
#define CAP 512
#endif
#ifndef TMAX
#define TMAX 32768
#endif
enum { H = 4, N = D / H };
typedef struct ctx {
    sn_module *m;
    sn_dim B, T, P; /* P tokens were run before; cap: of caches, 0: none */
    int64_t cap;
} ctx;
static sn_tensor layer(const ctx *s, sn_tensor x); /* the variant: [B, T, D] -> [B, T, D] */
/* What a scan begins with: a state while decoding, zeros otherwise. */
#define CARRY(s, name, ...)                                                                        \
    ((s)->cap ? sn_state((s)->m, name, SN_F32, (s)->B, __VA_ARGS__)                                \
              : sn_full((s)->m, SN_F32, 0, (s)->B, __VA_ARGS__))
#define KEEP(s, state, x)                                                                          \
    do {                                                                                           \
        if ((s)->cap) sn_assign(state, x);                                                         \
    } while (0)
/* x [B, T, w] after the n rows before it */
static inline sn_tensor with_past(const ctx *s, sn_tensor x, const char *name, int64_t n) {
    sn_tensor past = CARRY(s, name, n, sn_dim_of(x, 2)), all = sn_concat(1, past, x);
    KEEP(s, past, sn_slice(all, 1, s->T, n));
    return all;
}
static inline sn_tensor keys(const ctx *s, sn_tensor x, const char *name) {
    return s->cap ? sn_kv_cache(x, name, s->P, s->cap) : x;
}
static inline sn_tensor heads(sn_tensor x, int64_t h) {
    return sn_split_heads(x, h);
}
static inline sn_tensor out(sn_tensor y) {
    return sn_nn_linear(sn_merge_heads(y), "out", D, 0);
}
SN_MODEL(m, o) {
    (void)o;
#ifdef CHUNKED /* T is a multiple of it */
    sn_dim B = sn_symbol(m, "B", 1, 8),
           T = sn_dim_mul(m, sn_symbol(m, "C", 1, TMAX / CHUNKED), CHUNKED);
#else
    sn_dim B = sn_symbol(m, "B", 1, 8), T = sn_symbol(m, "T", 1, TMAX);
#endif
    ctx all = {m, B, T, 0, 0};
    sn_entry_begin(m, "forward");
    sn_tensor x = sn_input(m, "x", SN_F32, B, T, D), y = layer(&all, x);
    sn_output("y", y);
    sn_entry_begin(m, "loss");
    y = layer(&all, sn_input(m, "x", SN_F32, B, T, D));
    sn_tensor loss = sn_sum_all(sn_mul(y, sn_input(m, "g", SN_F32, B, T, D)));
    sn_output("y", y);
    sn_output("loss", loss);
    sn_entry_begin(m, "step");
    sn_tensor p[64], g[64];
    int n = sn_params_of(loss, 63, p);
    p[n++] = x;
    sn_grad(loss, n, p, g);
    for (int i = 0; i < n; i++) sn_output(sn_name_of(p[i]), g[i]);
#ifndef NODECODE
    sn_dim P = sn_symbol(m, "P", 0, CAP - 1);
    ctx one = {m, 1, 1, P, CAP};
    sn_entry_begin(m, "decode");
    sn_output("y", layer(&one, sn_input(m, "x", SN_F32, 1, 1, D)));
#endif
}
