/* keep.c: the list sn_options.keep: matrices that need more bits than the option `weights` says, and
 * products that stay f32. A matrix that is made of several parameters (merged projections) gets the
 * widest storage that one of them needs. */
#include "passes/keep.h"

#include <string.h>

/* From the fewest bits to the most. */
static const char *const widths[] = {"int4", "int8", "bf16", "f32"};
enum { WIDTHS = sizeof widths / sizeof *widths, MAX_DEPTH = 16 };

static int width_of(const char *weights) {
    for (int i = 0; weights && i < WIDTHS; i++)
        if (!strcmp(weights, widths[i])) return i;
    return -1;
}

bool sn_keep_knows(const char *weights) {
    return width_of(weights) >= 0;
}

typedef struct need {
    int width; /* -1: any */
    bool products;
} need;

/* What the parameters below w need. Weights are few operations away from their parameters. */
static void find_need(const sn_passes *p, const sn_node *w, int depth, need *out) {
    const char *name = w->op == SN_OP_param ? sn_attr_str(w, SN_A_name, "") : NULL;
    for (int i = 0; name && i < p->o.n_keep; i++) {
        const sn_keep *k = &p->o.keep[i];
        if (strcmp(k->param, name) != 0) continue;
        int width = width_of(k->weights);
        if (width > out->width) out->width = width;
        out->products |= k->products;
    }
    for (int i = 0; depth < MAX_DEPTH && i < w->n_in; i++) find_need(p, w->in[i], depth + 1, out);
}

const char *sn_keep_weights(const sn_passes *p, const sn_node *w) {
    need n = {.width = -1};
    if (p->o.n_keep) find_need(p, w, 0, &n);
    int given = width_of(p->o.weights);
    return given >= 0 && n.width > given ? widths[n.width] : p->o.weights;
}

bool sn_keep_products(const sn_passes *p, const sn_node *w) {
    need n = {.width = -1};
    if (p->o.n_keep) find_need(p, w, 0, &n);
    return n.products;
}
