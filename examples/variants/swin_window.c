/* swin_window.c: pictures in windows of WINDOW x WINDOW pixels, which see only each other, with a learned
 * number per head and offset in rows and columns; the windows of every second attention are shifted by half
 * of one. Rows of SIDE pixels lie one after another. Liu et al. 2021, "Swin transformer".
 * formula: softmax over the window's keys of (q k / √d + bias[h, rows between i and j, columns
 * between]) v */
#include "classifier.h"

enum { SIDE = 16, WINDOW = 4, OFFSETS = 2 * WINDOW - 1 };

typedef struct pixel {
    sn_tensor row, column;
} pixel;

/* Of position p, from the first corner of the windows on. */
static pixel pixel_of(const sn_score_ctx *c, sn_tensor p) {
    int shift = *(const int *)c->user;
    return (pixel){sn_add(sn_div(p, SIDE), shift), sn_add(sn_mod(p, SIDE), shift)};
}

static sn_tensor same_window(const sn_score_ctx *c) {
    pixel q = pixel_of(c, c->q), k = pixel_of(c, c->k);
    return sn_and(sn_eq(sn_div(q.row, WINDOW), sn_div(k.row, WINDOW)),
                  sn_eq(sn_div(q.column, WINDOW), sn_div(k.column, WINDOW)));
}

/* The difference of places within their windows, from 0 on. */
static sn_tensor offset(sn_tensor q, sn_tensor k) {
    return sn_add(sn_sub(sn_mod(q, WINDOW), sn_mod(k, WINDOW)), WINDOW - 1);
}

static sn_tensor add_offset(const sn_score_ctx *c) {
    pixel q = pixel_of(c, c->q), k = pixel_of(c, c->k);
    sn_tensor down = offset(q.row, k.row), right = offset(q.column, k.column);
    sn_tensor at = sn_add(sn_mul(down, OFFSETS), right);
    return sn_add(c->score, sn_at(c->captured[0], c->h, at));
}

static sn_tensor layer(const sn_forward_ctx *s, sn_tensor x) {
    static const int shift[2] = {0, WINDOW / 2};
    for (int i = 0; i < 2; i++) {
        sn_scope_push(s->m, "windows%d", i);
        qkv p = project(sn_nn_layer_norm(x, "norm1", 1e-5));
        sn_tensor table = sn_param(s->m, "offsets", SN_F32, HEADS, OFFSETS * OFFSETS);
        sn_tensor y = sn_attention(p.q, p.k, p.v, .score = add_offset, .mask = same_window,
                                   .captured = {table}, .user = &shift[i]);
        x = add_part(s, x, join(y));
        x = add_part(s, x, feed_forward(s, sn_nn_layer_norm(x, "norm2", 1e-5)));
        sn_scope_pop(s->m);
    }
    return x;
}

SN_MODEL(m, o) {
    classifier(m, o, layer);
}
