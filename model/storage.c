/* storage.c: estimates the memory of a model's parameters in each storage of weights, and of its
 * states. */
#include "model/storage.h"
#include "ir/ir.h"

#include <stdio.h>
#include <string.h>

/* Bytes of an element of a matrix or table (passes/quantise.c). */
static const struct {
    const char *name;
    double bytes;
} kinds[] = {{"f32", 4}, {"bf16", 2}, {"int8", 1}, {"int4", 0.5625}};
enum { F32, BF16, KINDS = sizeof kinds / sizeof *kinds };

typedef struct sizes {
    double matrices, others, largest; /* elements; tables are matrices */
    bool is_bf16;                     /* all matrices of the file */
} sizes;

static sizes measure(sn_module *m, const sn_weights *w) {
    sizes s = {.is_bf16 = w != NULL};
    for (uint32_t i = 0; i < sn_module_node_count(m); i++) {
        const sn_node *n = sn_module_node(m, i);
        const char *name = sn_attr_str(n, SN_A_name, "");
        if (n->op != SN_OP_param || *name == '@') continue;
        double count = 1;
        for (int a = 0; a < n->rank; a++) count *= (double)n->shape[a];
        if (count > s.largest) s.largest = count;
        *(n->rank < 2 ? &s.others : &s.matrices) += count;
        const sn_weight *t = sn_weights_find(w, name);
        s.is_bf16 &= n->rank < 2 || (t && t->dtype == SN_BF16);
    }
    return s;
}

/* While a matrix is prepared, it is there as f32, too. */
static double peak_of(const sizes *s, int kind) {
    double largest = kind == F32 ? 0 : 4 * s->largest;
    return kinds[kind].bytes * s->matrices + 4 * s->others + largest;
}

const char *storage_choose(sn_module *m, const sn_weights *w, size_t available, char *note,
                           size_t size) {
    const sizes s = measure(m, w);
    int first = s.is_bf16 ? BF16 : F32, kind = first;
    while (kind + 1 < KINDS && peak_of(&s, kind) > 0.9 * (double)available) kind++;
    *note = 0;
    if (kind != first)
        snprintf(note, size,
                 "weights are stored as %s: %s needs %.2f GB of memory, %.2f GB are "
                 "available",
                 kinds[kind].name, kinds[first].name, peak_of(&s, first) / 1e9,
                 (double)available / 1e9);
    return kinds[kind].name;
}

double storage_of_states(sn_module *m) {
    double bytes = 0;
    for (uint32_t i = 0; i < sn_module_node_count(m); i++) {
        const sn_node *n = sn_module_node(m, i);
        if (n->op != SN_OP_state) continue;
        double count = (double)sn_dtype_size((sn_dtype)n->dtype);
        for (int a = 0; a < n->rank; a++) count *= (double)n->shape[a];
        bytes += count;
    }
    return bytes;
}
