/* image_tower.c: embeds images for a tower: an image is a sequence of patches in raster order, with
 * learned positions and, for some families, tokens of its own before them. */
#include "frontend/tower.h"

int64_t tower_first(const tower *g) {
    return !!g->names->first[0] + !!g->names->first[1];
}

int64_t tower_tokens(const tower *g) {
    int64_t side = g->image / g->patch;
    return side * side + tower_first(g);
}

/* ---- positions of images of another size ---- */

/* Weights of bicubic interpolation [to, from] with edges clamped: a row has those of one new
 * position (Keys 1981, with a = -0.75 as in PyTorch's upsample_bicubic2d; no corners aligned). */
static sn_tensor bicubic(sn_module *m, int64_t from, int64_t to) {
    const double a = -0.75;
    sn_tensor i = sn_cast(sn_iota(m, SN_I32, 0, to, from), SN_F32),
              j = sn_cast(sn_iota(m, SN_I32, 1, to, from), SN_F32);
    sn_tensor at = sn_sub(sn_mul(sn_add(i, 0.5), (double)from / (double)to), 0.5);
    sn_tensor first = sn_floor(at), part = sn_sub(at, first), sum = NULL;
    for (int tap = -1; tap <= 2; tap++) {
        sn_tensor far = sn_abs(sn_sub(part, (double)tap)), w;
        if (tap == 0 || tap == 1) /* ((a + 2) x - (a + 3)) x^2 + 1 */
            w = sn_add(sn_mul(sn_sub(sn_mul(far, a + 2), a + 3), sn_square(far)), 1);
        else /* ((a x - 5 a) x + 8 a) x - 4 a */
            w = sn_sub(sn_mul(sn_add(sn_mul(sn_sub(sn_mul(far, a), 5 * a), far), 8 * a), far),
                       4 * a);
        sn_tensor source = sn_min(sn_max(sn_add(first, (double)tap), 0), (double)from - 1);
        w = sn_where(sn_eq(source, j), w, 0.0);
        sum = sum ? sn_add(sum, w) : w;
    }
    return sum;
}

/* Positions [from^2, d] of a square of patches -> [to^2, d]. */
static sn_tensor interpolate(sn_tensor table, int64_t from, int64_t to, int64_t d) {
    sn_tensor w = bicubic(sn_module_of(table), from, to);
    sn_tensor x = sn_einsum("ij,jk->ik", w, sn_reshape(table, from, from * d));
    x = sn_transpose(sn_reshape(x, to, from, d), 1, 0, 2); /* [column, row, d] */
    x = sn_einsum("ij,jk->ik", w, sn_reshape(x, from, to * d));
    return sn_reshape(sn_transpose(sn_reshape(x, to, to, d), 1, 0, 2), to * to, d);
}

static sn_tensor positions(const tower *g, sn_module *m) {
    int64_t first = tower_first(g), to = g->image / g->patch, rows = g->table * g->table + first;
    sn_tensor all =
        g->flat_positions
            ? sn_param(m, g->names->positions, SN_F32, rows, g->d)
            : sn_reshape(sn_param(m, g->names->positions, SN_F32, 1, rows, g->d), rows, g->d);
    if (to == g->table) return all;
    sn_tensor patches = interpolate(sn_slice(all, 0, first, rows - first), g->table, to, g->d);
    return first ? sn_concat(0, sn_slice(all, 0, 0, first), patches) : patches;
}

/* ---- patches ---- */

/* What lies beyond the last whole patch is dropped, as by a convolution. */
static sn_tensor embed_patches(const tower *g, const sn_forward_ctx *s) {
    sn_module *m = s->m;
    int64_t side = g->image / g->patch, size = side * g->patch,
            pixels = g->channels * g->patch * g->patch;
    sn_tensor x = sn_input(m, "pixels", SN_F32, s->B, g->channels, g->image, g->image);
    if (g->std > 0) x = sn_div(sn_sub(x, g->mean), g->std);
    if (size < g->image) x = sn_slice(sn_slice(x, 2, 0, size), 3, 0, size);
    x = sn_reshape(sn_image_patches(x, g->patch), s->B, side * side, pixels);
    sn_scope_push(m, "%s", g->names->patch);
    sn_tensor w =
        g->flat_patch
            ? sn_param(m, "weight", SN_F32, g->d, pixels)
            : sn_reshape(sn_param(m, "weight", SN_F32, g->d, g->channels, g->patch, g->patch), g->d,
                         pixels);
    sn_tensor b = g->no_patch_bias ? NULL : sn_param(m, "bias", SN_F32, g->d);
    sn_scope_pop(m);
    return sn_linear(x, w, b);
}

sn_tensor tower_encode_image(const tower *g, const sn_forward_ctx *s) {
    const tower_names *n = g->names;
    sn_module *m = s->m;
    sn_scope_params(m, g->prefix);
    sn_tensor x = embed_patches(g, s);
    for (int i = 1; i >= 0; i--) {
        if (!n->first[i]) continue;
        sn_tensor token = g->vector_first ? sn_param(m, n->first[i], SN_F32, g->d)
                                          : sn_param(m, n->first[i], SN_F32, 1, 1, g->d);
        x = sn_concat(1, sn_broadcast(token, s->B, 1, g->d), x);
    }
    x = sn_forward_dropout(s, sn_add(x, positions(g, m)));
    if (n->start_norm) x = sn_nn_layer_norm(x, n->start_norm, g->eps);
    return tower_layers(g, s, x);
}
