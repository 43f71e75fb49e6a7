/* engram.c: a memory that is looked up, not computed: the last two and the last three tokens are hashed,
 * and each hash takes a row of a table; a gate by the similarity of a row's key with the hidden state says
 * how much of its value is added. DeepSeek-AI 2026, "Engram: conditional memory by scalable lookup".
 * formula: row = (t m₀ xor t₋₁ m₁ …) mod p, x + g V e + SiLU(conv(norm(g V e))), g = σ(±√|K e · x|) */
#include "recurrent.h"

enum { GRAMS = 2, TABLES = 2, SLOTS = 16, EVERY = 3 }; /* n-grams of 2 and of 3 tokens */

static const int64_t primes[GRAMS][TABLES] = {{509, 521}, {1009, 1013}};
static const int64_t factors[GRAMS][GRAMS + 1] = {{25214903917, 11400714819, 0},
                                                  {6364136223, 14426950411, 27182818285}};

/* Rows of all tables [B, T, GRAMS * TABLES * SLOTS]. */
static sn_tensor look_up(const sn_forward_ctx *s) {
    sn_tensor now = sn_cast(s->tokens, SN_I64), e[GRAMS * TABLES + 1] = {NULL};
    sn_tensor past = s->capacity ? sn_state(s->m, "past_tokens", SN_I64, s->B, GRAMS)
                                 : sn_full(s->m, SN_I64, 0, s->B, GRAMS);
    sn_tensor all = sn_concat(1, past, now);
    if (s->capacity) sn_assign(past, sn_slice(all, 1, s->T, GRAMS));
    for (int g = 0; g < GRAMS; g++) {
        sn_tensor hash = sn_mul(now, factors[g][0]);
        for (int n = 1; n <= g + 1; n++)
            hash = sn_xor(hash, sn_mul(sn_slice(all, 1, GRAMS - n, s->T), factors[g][n]));
        for (int t = 0; t < TABLES; t++) {
            sn_scope_push(s->m, "table%d", g * TABLES + t);
            sn_tensor slot = sn_mod(hash, primes[g][t]);
            e[g * TABLES + t] = sn_nn_embedding(slot, "rows", primes[g][t], SLOTS);
            sn_scope_pop(s->m);
        }
    }
    return sn_concat_at(SN_HERE, 2, e);
}

static sn_tensor remembered(const sn_forward_ctx *s, sn_tensor x) {
    sn_tensor e = look_up(s);
    sn_tensor key = sn_nn_rms_norm(sn_nn_linear(e, "key", WIDTH, 0), "key_norm", 1e-5);
    sn_tensor likeness = sn_sum_keep(sn_mul(key, sn_nn_rms_norm(x, "query_norm", 1e-5)), -1);
    likeness = sn_mul(likeness, 1 / sqrt(WIDTH));
    sn_tensor root = sn_sqrt(sn_max(sn_abs(likeness), 1e-6));
    sn_tensor gate = sn_sigmoid(sn_mul(sn_sign(likeness), root));
    sn_tensor y = sn_mul(gate, sn_nn_linear(e, "value", WIDTH, 0));
    return sn_add(y, convolution(s, sn_nn_rms_norm(y, "norm", 1e-5), "conv", EVERY));
}

static sn_tensor attend(const sn_forward_ctx *s, sn_tensor x) {
    sn_tensor known = sn_add(x, remembered(s, x));
    return sn_add(causal_attention(s, known), sn_sub(known, x));
}

SN_MODEL(m, o) {
    small_model(m, o, &(small){.attend = attend, .positions = true});
}
