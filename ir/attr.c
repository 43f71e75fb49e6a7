/* attr.c: attributes of nodes: hashes, comparison, reading. */
#include "ir/module_impl.h"

#include <string.h>

uint64_t sn_attr_hash(const sn_module *m, const sn_attr *a, uint64_t h) {
    h = XXH3_64bits_withSeed(&a->key, sizeof a->key, h);
    switch (sn_attr_table[a->key].kind) {
    case SN_AK_STR:
        return XXH3_64bits_withSeed(a->s, strlen(a->s), h);
    case SN_AK_INTS:
        return XXH3_64bits_withSeed(a->v, (size_t)a->n * sizeof *a->v, h);
    case SN_AK_DIMS:
        for (int i = 0; i < a->n; i++) h = sn_hash_word(sn_dim_hash(m, a->v[i]), h);
        return h;
    case SN_AK_DIM:
        return sn_hash_word(sn_dim_hash(m, a->i), h);
    case SN_AK_REGION:
        return sn_hash_word(sn_region_hash(a->r), h);
    default:
        return XXH3_64bits_withSeed(&a->i, sizeof a->i, h); /* bits */
    }
}

bool sn_attr_same(const sn_attr *a, const sn_attr *b) {
    if (a->key != b->key) return false;
    switch (sn_attr_table[a->key].kind) {
    case SN_AK_STR:
        return !strcmp(a->s, b->s);
    case SN_AK_INTS:
    case SN_AK_DIMS:
        return a->n == b->n && (!a->n || !memcmp(a->v, b->v, (size_t)a->n * sizeof *a->v));
    default:
        return a->i == b->i;
    }
}

void sn_attrs_sort(sn_attr *dst, int n, const sn_attr *src) {
    for (int i = 0; i < n; i++) {
        int j = i;
        for (; j > 0 && dst[j - 1].key > src[i].key; j--) dst[j] = dst[j - 1];
        dst[j] = src[i];
    }
}

void sn_attrs_keep(sn_module *m, sn_attr *a, int n) {
    for (int i = 0; i < n; i++) switch (sn_attr_table[a[i].key].kind) {
        case SN_AK_STR:
            a[i].s = sn_arena_str(m, a[i].s);
            break;
        case SN_AK_INTS:
        case SN_AK_DIMS:
            a[i].v = sn_arena_copy(m, a[i].v, (size_t)a[i].n * sizeof *a[i].v);
            break;
        default:
            break;
        }
}

const sn_attr *sn_attr_find(int n, const sn_attr *attr, sn_attr_key key) {
    for (int i = 0; i < n; i++)
        if (attr[i].key == key) return &attr[i];
    return NULL;
}

const sn_attr *sn_attr_get(const sn_node *n, sn_attr_key key) {
    return sn_attr_find(n->n_attr, n->attr, key);
}

int64_t sn_attr_int(const sn_node *n, sn_attr_key key, int64_t otherwise) {
    const sn_attr *a = sn_attr_get(n, key);
    return a ? a->i : otherwise;
}

double sn_attr_flt(const sn_node *n, sn_attr_key key, double otherwise) {
    const sn_attr *a = sn_attr_get(n, key);
    return a ? a->f : otherwise;
}

const char *sn_attr_str(const sn_node *n, sn_attr_key key, const char *otherwise) {
    const sn_attr *a = sn_attr_get(n, key);
    return a ? a->s : otherwise;
}

const sn_region *sn_attr_region(const sn_node *n, sn_attr_key key) {
    const sn_attr *a = sn_attr_get(n, key);
    return a ? a->r : NULL;
}
