/* storage.c: estimates the memory of a model's parameters in each storage of weights, and of its
 * states. */
#include "driver/storage.h"
#include "ir/ir.h"
#include "passes/cache.h"

#include <stdio.h>
#include <string.h>

/* Bytes of an element of a matrix or table (passes/quantise.c). */
static const struct {
    const char *name;
    double bytes;
} kinds[] = {{"stored", 0}, {"f32", 4}, {"bf16", 2}, {"int8", 1}, {"int4", 0.5625}};
enum { STORED, F32, KINDS = sizeof kinds / sizeof *kinds };

typedef struct sizes {
    double matrices, others, largest; /* elements; tables are matrices */
    double stored;                    /* bytes of the matrices in the types of the file */
} sizes;

/* Bytes of an element of a matrix as stored (passes/file_blocks.c). */
static double stored_bytes(const sn_weight *t) {
    const sn_block_format *f = t ? t->block : NULL;
    if (!f) return t ? (double)sn_dtype_size(t->dtype) : 4;
    double sum = 0;
    for (sn_weight_part part = 0; part < SN_PARTS; part++) {
        sn_dtype dtype;
        int count = sn_block_part(f, part, &dtype);
        bool four_bits = part == SN_PART_INTEGERS && f->nibble < SN_NIBBLES;
        sum += count * (four_bits ? 0.5 : (double)sn_dtype_size(dtype));
    }
    return sum / f->elements;
}

static sizes measure(sn_module *m, const sn_weights *w) {
    sizes s = {0};
    for (uint32_t i = 0; i < sn_module_node_count(m); i++) {
        const sn_node *n = sn_module_node(m, i);
        const char *name = sn_attr_str(n, SN_A_name, "");
        if (n->op != SN_OP_param || *name == '@') continue;
        double count = 1;
        for (int a = 0; a < n->rank; a++) count *= (double)n->shape[a];
        if (count > s.largest) s.largest = count;
        *(n->rank < 2 ? &s.others : &s.matrices) += count;
        if (n->rank >= 2) s.stored += count * stored_bytes(sn_weights_find(w, name));
    }
    return s;
}

static double bytes_of(const sizes *s, int kind) {
    return kind == STORED ? s->stored : kinds[kind].bytes * s->matrices;
}

/* While a matrix is converted, it is there as f32, too. */
static double peak_of(const sizes *s, int kind) {
    double largest = kind <= F32 ? 0 : 4 * s->largest;
    return bytes_of(s, kind) + 4 * s->others + largest;
}

const char *storage_choose(sn_module *m, const sn_weights *w, size_t available, char *note,
                           size_t size) {
    const sizes s = measure(m, w);
    int kind = STORED;
    while (peak_of(&s, kind) > 0.9 * (double)available) {
        int next = kind + 1;
        while (next < KINDS && bytes_of(&s, next) >= bytes_of(&s, kind)) next++;
        if (next == KINDS) break;
        kind = next;
    }
    *note = 0;
    if (kind != STORED)
        snprintf(note, size,
                 "weights are stored as %s: as in the file they need %.2f GB of memory, %.2f GB "
                 "are available",
                 kinds[kind].name, peak_of(&s, STORED) / 1e9, (double)available / 1e9);
    return kinds[kind].name;
}

double storage_of_states(sn_module *m, const char *cache) {
    double bytes = 0;
    int n;
    const sn_node *const *caches = sn_cache_states(m, &n);
    for (uint32_t i = 0; i < sn_module_node_count(m); i++) {
        const sn_node *s = sn_module_node(m, i);
        double count = (double)sn_dtype_size((sn_dtype)s->dtype);
        for (int a = 0; a < s->rank; a++) count *= (double)s->shape[a];
        for (int k = 0; k < n; k++)
            if (caches[k] == s) count = sn_cache_bytes(s, cache);
        if (s->op == SN_OP_state) bytes += count;
    }
    return bytes;
}
