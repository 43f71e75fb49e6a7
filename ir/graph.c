/* graph.c: the module: an arena of interned nodes with its entries. Only this file creates nodes.
 * The arena is a list of chunks that never move; out of memory is an error of the module. */
#include "ir/module_impl.h"

#include <stdarg.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <xxhash.h>

#define MAX_ATTR 16

enum { /* the short names of the flags column */
#define FLAG(name, bit, doc) name = SN_OPF_##name,
#include "ir/ops.def"
};

const sn_op_info sn_ops[SN_OP_COUNT] = {
#define ELEM(name, n, rule, flags, doc, expr)                                                      \
    [SN_OP_##name] = {#name, doc, SN_ELEM, n, n, flags, #rule},
#define PRIM(name, n, rule, flags, doc)                                                            \
    [SN_OP_##name] = {#name, doc, SN_PRIM, (n) < 0 ? 1 : n, n, flags, #rule},
#define COMP(name, lo, hi, flags, api, doc)                                                        \
    [SN_OP_##name] = {#name, doc, SN_COMP, lo, hi, flags, ""},
#define FUSED(name, flags, doc) [SN_OP_##name] = {#name, doc, SN_FUSED, 0, -1, flags, ""},
#include "ir/ops.def"
};

const struct sn_attr_info sn_attr_table[SN_ATTR_COUNT] = {
#define ATTR(name, kind, doc) [SN_A_##name] = {#name, doc, SN_AK_##kind},
#include "ir/attrs.def"
#undef ATTR
};

bool sn_op_parse(const char *name, sn_op *out) {
    for (int i = 0; i < SN_OP_COUNT; i++)
        if (!strcmp(name, sn_ops[i].name)) {
            *out = (sn_op)i;
            return true;
        }
    return false;
}

/* ---- arena ---- */

static const size_t first_chunk = (size_t)1 << 20, largest_chunk = (size_t)64 << 20,
                    limit = (size_t)16 << 30, /* maximum per module */
    /* address space that uses no memory until it is touched */
    reserve_chunk = (size_t)256 << 10;

/* False: out of memory. */
static bool add_chunk(sn_chunk **list, size_t size) {
    sn_chunk *c = mmap(NULL, size, PROT_READ | PROT_WRITE,
                       MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (c == MAP_FAILED) return false;
    *c = (sn_chunk){*list, size, sizeof *c};
    *list = c;
    return true;
}

/* Makes room for `bytes`: a chunk twice as large as the last one, or as large as needed. */
static void make_room(sn_module *m, size_t bytes) {
    size_t page = (size_t)1 << 16, size = 2 * m->chunk->size;
    size_t need = (bytes + sizeof(sn_chunk) + 16 + page - 1) & ~(page - 1);
    if (size > largest_chunk) size = largest_chunk;
    if (size < need) size = need;
    bool over = bytes > limit || m->mapped + need > limit;
    if (!over && (add_chunk(&m->chunk, size) || add_chunk(&m->chunk, need))) {
        m->mapped += m->chunk->size;
        return;
    }
    sn_module_fail(m, SN_ERR_MEMORY,
                   over ? "a module may use at most %zu MiB, but this graph needs more"
                        : "out of memory: the graph has %zu MiB and needs more",
                   (over ? limit : m->mapped) >> 20);
    if (m->guard) longjmp(*m->guard, 1);
    /* A user's call outside of sn_module_try: the reserve has room, and no other call follows. */
    if (!m->reserve || bytes > m->reserve->size - sizeof(sn_chunk) - 16) abort();
    m->reserve->next = m->chunk;
    m->chunk = m->reserve;
    m->reserve = NULL;
}

void *sn_arena_alloc(sn_module *m, size_t bytes) {
    size_t at = (m->chunk->used + 15) & ~(size_t)15;
    if (bytes > m->chunk->size - at || at > m->chunk->size) {
        make_room(m, bytes);
        at = (m->chunk->used + 15) & ~(size_t)15;
    }
    m->chunk->used = at + bytes;
    return (char *)m->chunk + at; /* fresh pages are zero */
}

bool sn_module_try(sn_module *m, void (*fn)(void *ctx), void *ctx) {
    jmp_buf here, *const outer = m->guard;
    m->guard = &here;
    if (setjmp(here)) {
        m->guard = outer;
        m->composite = NULL; /* it was on the stack */
        return false;
    }
    fn(ctx);
    m->guard = outer;
    return true;
}

static void *copy_to_arena(sn_module *m, const void *p, size_t bytes) {
    void *q = sn_arena_alloc(m, bytes);
    if (bytes) memcpy(q, p, bytes);
    return q;
}

/* Doubles an arena array when it is full. */
static void *grow(sn_module *m, void *old, size_t used, size_t capacity, size_t item) {
    void *p = sn_arena_alloc(m, capacity * item);
    if (used) memcpy(p, old, used * item);
    return p;
}

void *sn_arena_grow(sn_module *m, void *list, size_t item, int n, int *cap) {
    if (n < *cap) return list;
    *cap = *cap ? 2 * *cap : 16;
    return grow(m, list, (size_t)n, (size_t)*cap, item);
}

/* ---- hash tables: same() compares a stored item with the lookup key ---- */

typedef bool (*same_fn)(const void *item, const void *key);
typedef uint64_t (*hash_fn)(const void *item);

static void **table_find(sn_table *t, uint64_t hash, same_fn same, const void *key) {
    for (uint32_t i = (uint32_t)hash & (t->size - 1);; i = (i + 1) & (t->size - 1))
        if (!t->slot[i] || same(t->slot[i], key)) return &t->slot[i];
}

static void table_reserve(sn_module *m, sn_table *t, hash_fn hash_of) {
    if (t->size && t->used * 2 < t->size) return;
    sn_table old = *t;
    t->size = old.size ? old.size * 2 : 256;
    t->slot = sn_arena_alloc(m, t->size * sizeof *t->slot);
    for (uint32_t i = 0; i < old.size; i++) {
        if (!old.slot[i]) continue;
        uint32_t j = (uint32_t)hash_of(old.slot[i]) & (t->size - 1);
        while (t->slot[j]) j = (j + 1) & (t->size - 1);
        t->slot[j] = old.slot[i];
    }
}

static uint64_t hash_str(const void *s) {
    return XXH3_64bits(s, strlen(s));
}

static bool same_str(const void *item, const void *key) {
    return !strcmp(item, key);
}

const char *sn_arena_str(sn_module *m, const char *s) {
    table_reserve(m, &m->strings, hash_str);
    void **slot = table_find(&m->strings, hash_str(s), same_str, s);
    if (!*slot) {
        *slot = copy_to_arena(m, s, strlen(s) + 1);
        m->strings.used++;
    }
    return *slot;
}

const char *sn_arena_printf(sn_module *m, const char *fmt, ...) {
    va_list ap;
    va_start(ap, fmt);
    int n = vsnprintf(NULL, 0, fmt, ap);
    va_end(ap);
    char *s = sn_arena_alloc(m, (size_t)n + 1);
    va_start(ap, fmt);
    vsnprintf(s, (size_t)n + 1, fmt, ap);
    va_end(ap);
    return s;
}

/* ---- the module ---- */

sn_module *sn_module_new(const char *name) {
    sn_chunk *c = NULL, *reserve = NULL;
    if (!add_chunk(&c, first_chunk) || !add_chunk(&reserve, reserve_chunk)) {
        if (c) munmap(c, c->size);
        return NULL;
    }
    sn_module *m = (sn_module *)(c + 1);
    m->reserve = reserve;
    c->used += sizeof *m;
    m->chunk = c;
    m->mapped = c->size;
    atomic_init(&m->owners, 1);
    m->name = sn_arena_str(m, name ? name : "module");
    m->error_node = sn_arena_alloc(m, sizeof *m->error_node);
    *m->error_node = (sn_node){.m = m, .op = SN_OP_const, .n_result = 1, .id = UINT32_MAX};
    return m;
}

void sn_module_free(sn_module *m) {
    if (!m || atomic_fetch_sub(&m->owners, 1) > 1) return;
    if (m->reserve) munmap(m->reserve, m->reserve->size);
    for (sn_chunk *c = m->chunk, *next; c; c = next) {
        next = c->next;
        munmap(c, c->size);
    }
}

sn_module *sn_module_retain(sn_module *m) {
    atomic_fetch_add(&m->owners, 1);
    return m;
}

const char *sn_module_name(const sn_module *m) {
    return m->name;
}

sn_error *sn_module_error(sn_module *m) {
    static _Thread_local sn_error none;
    if (m) return &m->error;
    none = (sn_error){SN_ERR_USAGE, "the module is NULL"};
    return &none;
}

bool sn_module_ok(sn_module *m, sn_error *err) {
    if (!m) return sn_fail(err, SN_ERR_MEMORY, "the module is NULL: sn_module_new failed");
    const sn_error *e = sn_module_error(m);
    return !e->code || sn_fail(err, e->code, "%s", e->message);
}

sn_node *sn_module_error_node(sn_module *m) {
    return m->error_node;
}

struct sn_dims *sn_module_dims(const sn_module *m) {
    return (struct sn_dims *)&m->dims;
}

void sn_module_set_loc(sn_module *m, sn_loc loc) {
    m->loc = loc;
}

void sn_module_set_exact_division(sn_module *m, bool exact) {
    m->exact_division = exact;
}

bool sn_module_exact_division(const sn_module *m) {
    return m->exact_division;
}

void sn_module_set_callback(sn_module *m, const char *name) {
    m->callback = name;
}

const char *sn_module_callback(const sn_module *m) {
    return m->callback;
}

sn_loc sn_module_loc(const sn_module *m) {
    return m->loc;
}

void **sn_module_frontend(sn_module *m) {
    return &m->frontend;
}

void sn_module_set_raw(sn_module *m, bool raw) {
    m->raw = raw;
}

void sn_module_note(sn_module *m, const sn_node *about, const char *fmt, ...) {
    char text[400];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    for (int i = 0; i < m->n_note; i++)
        if (m->note[i].about == about && !strcmp(m->note[i].text, text)) return;
    if ((m->n_note & (m->n_note - 1)) == 0) /* full at every power of two */
        m->note = grow(m, m->note, (size_t)m->n_note, m->n_note ? 2 * (size_t)m->n_note : 1,
                       sizeof *m->note);
    m->note[m->n_note++] = (sn_note){about, sn_arena_str(m, text)};
}

int sn_module_notes(const sn_module *m, const sn_note **list) {
    *list = m->note;
    return m->n_note;
}

sn_node *sn_module_fail(sn_module *m, sn_code code, const char *fmt, ...) {
    if (m->error.code) return m->error_node;
    char text[sizeof m->error.message];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    if (m->loc.file)
        sn_fail(&m->error, code, "%s:%d: %.900s", m->loc.file, m->loc.line, text);
    else
        sn_fail(&m->error, code, "%s", text);
    return m->error_node;
}

/* ---- nodes ---- */

static uint64_t hash_word(uint64_t word, uint64_t h) {
    return XXH3_64bits_withSeed(&word, sizeof word, h);
}

static uint64_t hash_region(const void *p);

/* Hashes depend on structure only, not on addresses or ids. So the order of commutative operands,
 * and with it text and kernel keys, are the same in every module. */
static uint64_t hash_attr(const sn_module *m, const sn_attr *a, uint64_t h) {
    h = XXH3_64bits_withSeed(&a->key, sizeof a->key, h);
    switch (sn_attr_table[a->key].kind) {
    case SN_AK_STR:
        return XXH3_64bits_withSeed(a->s, strlen(a->s), h);
    case SN_AK_INTS:
        return XXH3_64bits_withSeed(a->v, (size_t)a->n * sizeof *a->v, h);
    case SN_AK_DIMS:
        for (int i = 0; i < a->n; i++) h = hash_word(sn_dim_hash(m, a->v[i]), h);
        return h;
    case SN_AK_DIM:
        return hash_word(sn_dim_hash(m, a->i), h);
    case SN_AK_REGION:
        return hash_word(hash_region(a->r), h);
    default:
        return XXH3_64bits_withSeed(&a->i, sizeof a->i, h); /* bits */
    }
}

static bool same_attr(const sn_attr *a, const sn_attr *b) {
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

static uint64_t hash_node(const void *p) {
    return ((const sn_node *)p)->hash;
}

static bool same_node(const void *item, const void *key) {
    const sn_node *a = item, *b = key;
    if (a->hash != b->hash || a->op != b->op || a->n_in != b->n_in || a->n_attr != b->n_attr)
        return false;
    for (int i = 0; i < a->n_in; i++)
        if (a->in[i] != b->in[i]) return false;
    for (int i = 0; i < a->n_attr; i++)
        if (!same_attr(&a->attr[i], &b->attr[i])) return false;
    return true;
}

/* Sorted copy of an attribute list; if the node is kept, strings and lists move to the arena. */
static int sort_attrs(sn_attr *dst, int n, const sn_attr *src) {
    for (int i = 0; i < n; i++) {
        int j = i;
        for (; j > 0 && dst[j - 1].key > src[i].key; j--) dst[j] = dst[j - 1];
        dst[j] = src[i];
    }
    return n;
}

static void keep_attrs(sn_module *m, sn_attr *a, int n) {
    for (int i = 0; i < n; i++) switch (sn_attr_table[a[i].key].kind) {
        case SN_AK_STR:
            a[i].s = sn_arena_str(m, a[i].s);
            break;
        case SN_AK_INTS:
        case SN_AK_DIMS:
            a[i].v = copy_to_arena(m, a[i].v, (size_t)a[i].n * sizeof *a[i].v);
            break;
        default:
            break;
        }
}

static uint64_t hash_of(const sn_node *key) {
    uint64_t h = key->op;
    for (int i = 0; i < key->n_in; i++) h = hash_word(key->in[i]->hash, h);
    for (int i = 0; i < key->n_attr; i++) h = hash_attr(key->m, &key->attr[i], h);
    return h;
}

static const sn_node *constant_of(const sn_node *n) {
    while (n->op == SN_OP_broadcast || n->op == SN_OP_reshape || n->op == SN_OP_cast) n = n->in[0];
    return n->op == SN_OP_const ? n : NULL;
}

static double scale_of(const sn_node *x) { /* |c| of x c; else 0 */
    const sn_node *c = x->op == SN_OP_mul ? constant_of(x->in[1]) : NULL;
    return c ? fabs(sn_attr_flt(c, SN_A_value, 0)) : 0;
}
/* The order of commutative operands: constants last, deeper ones first (x + bias), larger factors first
 * (a multiply-add rounds the same product whatever the shapes), by hash, by the order of creation. */
static bool comes_before(const sn_node *a, const sn_node *b) {
    bool ca = constant_of(a), cb = constant_of(b);
    if (ca != cb) return cb;
    if (a->depth != b->depth) return a->depth > b->depth;
    double x = scale_of(a), y = scale_of(b);
    return x != y ? x > y : a->hash != b->hash ? a->hash < b->hash : a->id < b->id;
}

static sn_node *check_operands(sn_module *m, sn_op op, int n_in, sn_node *const *in, int n_attr) {
    const sn_op_info *info = &sn_ops[op];
    if (m->error.code) return m->error_node;
    if (n_in < info->min_in || (info->max_in >= 0 && n_in > info->max_in) || n_attr > MAX_ATTR)
        return sn_module_fail(
            m, SN_ERR_USAGE, "%s: %d operands given, expected %s%d", info->name, n_in,
            info->max_in < 0 || info->max_in > info->min_in ? "at least " : "", info->min_in);
    if (n_in > UINT16_MAX)
        return sn_module_fail(m, SN_ERR_USAGE, "%s: %d operands given, expected at most %d",
                              info->name, n_in, UINT16_MAX);
    for (int i = 0; i < n_in; i++) {
        if (!in[i]) return sn_module_fail(m, SN_ERR_USAGE, "%s: operand %d is NULL", info->name, i);
        if (in[i]->m != m)
            return sn_module_fail(m, SN_ERR_USAGE, "%s: operand %d belongs to another module",
                                  info->name, i);
        if (in[i] == m->error_node) return m->error_node;
        if (in[i]->n_result > 1 && op != SN_OP_result)
            return sn_module_fail(m, SN_ERR_USAGE,
                                  "%s: operand %d (%s) has several results; select one with result",
                                  info->name, i, sn_ops[in[i]->op].name);
    }
    return NULL;
}

/* COMP and FUSED: the decomposition determines the types. Messages name the outermost composite. */
static bool expand(sn_module *m, const sn_node *key, int *n_result, sn_node **results) {
    const sn_node *outer = m->composite;
    if (!outer) m->composite = key;
    bool ok = sn_decompose(m, (sn_op)key->op, key->n_in, key->in, key->n_attr, key->attr, n_result,
                           results);
    m->composite = outer;
    return ok && !m->error.code;
}

static void register_node(sn_module *m, sn_node *n) {
    if (m->n_node == m->cap_node) {
        m->cap_node = m->cap_node ? m->cap_node * 2 : 256;
        m->node = grow(m, m->node, m->n_node, m->cap_node, sizeof *m->node);
        m->stamp = grow(m, m->stamp, m->n_node, m->cap_node, sizeof *m->stamp);
    }
    for (int i = 0; i < n->n_in; i++) {
        if (n->in[i]->depth >= n->depth) n->depth = n->in[i]->depth + 1;
        n->leaves |= n->in[i]->leaves;
        if (sn_ops[n->op].flags & SN_OPF_COLLECTIVE) n->leaves |= SN_LEAF_OTHER;
    }
    if (!n->n_in && n->op != SN_OP_const)
        n->leaves = n->op == SN_OP_param ? SN_LEAF_PARAM : SN_LEAF_OTHER;
    n->id = m->n_node;
    m->node[m->n_node++] = n;
}

static sn_node *make_node(sn_module *m, sn_op op, int n_in, sn_node *const *in, int n_attr,
                          const sn_attr *attr) {
    sn_node *bad = check_operands(m, op, n_in, in, n_attr);
    if (bad) return bad;
    sn_attr sorted[MAX_ATTR];
    sort_attrs(sorted, n_attr, attr);
    sn_node *swapped[2];
    if ((sn_ops[op].flags & SN_OPF_COMM) && !m->raw && comes_before(in[1], in[0])) {
        swapped[0] = in[1];
        swapped[1] = in[0];
        in = swapped;
    }
    sn_node key = {.m = m,
                   .op = (uint16_t)op,
                   .n_in = (uint16_t)n_in,
                   .n_attr = (uint16_t)n_attr,
                   .in = in,
                   .attr = sorted};
    key.hash = hash_of(&key);
    table_reserve(m, &m->nodes, hash_node);
    void **slot = table_find(&m->nodes, key.hash, same_node, &key);
    if (*slot) return *slot;

    int n_result = 1;
    sn_type type[SN_MAX_RESULTS];
    sn_node *decomposition[SN_MAX_RESULTS];
    sn_op_kind kind = sn_ops[op].kind;
    if (kind == SN_COMP || kind == SN_FUSED) {
        if (!expand(m, &key, &n_result, decomposition)) return m->error_node;
        for (int i = 0; i < n_result; i++) {
            type[i] = (sn_type){.dtype = decomposition[i]->dtype, .rank = decomposition[i]->rank};
            if (type[i].rank)
                memcpy(type[i].shape, decomposition[i]->shape,
                       sizeof(sn_dim) * (size_t)type[i].rank);
        }
    } else {
        if (!sn_infer(m, op, n_in, in, n_attr, sorted, &n_result, type)) return m->error_node;
        for (int i = 0; n_result > 1 && i < n_result; i++)
            decomposition[i] = sn_arg(m, i, type[i].dtype, type[i].rank, type[i].shape);
        sn_node *folded =
            m->raw || n_result > 1 ? NULL : sn_fold(m, op, n_in, in, n_attr, sorted, &type[0]);
        if (folded) return folded;
    }
    sn_node *n = sn_arena_alloc(m, sizeof *n);
    *n = key;
    n->in = copy_to_arena(m, in, (size_t)n_in * sizeof *in);
    keep_attrs(m, sorted, n_attr);
    n->attr = copy_to_arena(m, sorted, (size_t)n_attr * sizeof *sorted);
    n->dtype = (uint8_t)type[0].dtype;
    n->rank = (uint8_t)type[0].rank;
    n->shape = copy_to_arena(m, type[0].shape, sizeof(sn_dim) * (size_t)type[0].rank);
    n->n_result = (uint8_t)n_result;
    n->loc = m->loc;
    if (kind == SN_COMP) n->decomposition = decomposition[0];
    if (n_result > 1)
        n->result_type = copy_to_arena(m, decomposition, sizeof *decomposition * (size_t)n_result);
    register_node(m, n);
    table_reserve(m, &m->nodes, hash_node); /* expansion or folding may have added nodes */
    *table_find(&m->nodes, n->hash, same_node, n) = n;
    m->nodes.used++;
    return n;
}

typedef struct birth {
    sn_module *m;
    sn_op op;
    int n_in, n_attr;
    sn_node *const *in;
    const sn_attr *attr;
    sn_node *node;
} birth;

static void make_born(void *ctx) {
    birth *b = ctx;
    b->node = make_node(b->m, b->op, b->n_in, b->in, b->n_attr, b->attr);
}

sn_node *sn_node_new(sn_module *m, sn_op op, int n_in, sn_node *const *in, int n_attr,
                     const sn_attr *attr) {
    if (m->guard) return make_node(m, op, n_in, in, n_attr, attr);
    birth b = {m, op, n_in, n_attr, in, attr, m->error_node};
    sn_module_try(m, make_born, &b);
    return b.node;
}

sn_node *sn_node_with(const sn_node *n, sn_node *const *in) {
    bool same = true;
    for (int i = 0; i < n->n_in; i++) same &= in[i] == n->in[i];
    if (same) return (sn_node *)n;
    sn_loc loc = n->m->loc;
    n->m->loc = n->loc;
    sn_node *r = sn_node_new(n->m, (sn_op)n->op, n->n_in, in, n->n_attr, n->attr);
    n->m->loc = loc;
    return r;
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

uint32_t sn_module_node_count(const sn_module *m) {
    return m->n_node;
}

sn_node *sn_module_node(const sn_module *m, uint32_t id) {
    return id < m->n_node ? m->node[id] : NULL;
}

/* ---- entries ---- */

sn_entry *sn_entry_get(sn_module *m, const char *name) {
    for (int i = 0; i < m->n_entry; i++)
        if (!strcmp(m->entry[i]->name, name)) return m->entry[i];
    return NULL;
}

sn_entry *sn_entry_add(sn_module *m, const char *name) {
    sn_entry *e = sn_entry_get(m, name);
    if (e) return e;
    if (m->n_entry == m->cap_entry) {
        m->cap_entry = m->cap_entry ? m->cap_entry * 2 : 4;
        m->entry = grow(m, m->entry, (size_t)m->n_entry, (size_t)m->cap_entry, sizeof *m->entry);
    }
    e = m->entry[m->n_entry++] = sn_arena_alloc(m, sizeof *e);
    e->name = sn_arena_str(m, name);
    return e;
}

int sn_entry_count(const sn_module *m) {
    return m->n_entry;
}

sn_entry *sn_entry_at(const sn_module *m, int i) {
    return m->entry[i];
}

/* Adds or replaces by name; the array doubles at powers of two. */
static void bind(sn_module *m, sn_binding **list, int *n, const char *name, sn_node *node) {
    for (int i = 0; i < *n; i++)
        if (!strcmp((*list)[i].name, name)) {
            (*list)[i].node = node;
            return;
        }
    if ((*n & (*n - 1)) == 0)
        *list = grow(m, *list, (size_t)*n, *n ? 2 * (size_t)*n : 1, sizeof **list);
    (*list)[(*n)++] = (sn_binding){sn_arena_str(m, name), node};
}

void sn_entry_output(sn_module *m, sn_entry *e, const char *name, sn_node *n) {
    bind(m, &e->output, &e->n_output, name, n);
}

void sn_entry_assign(sn_module *m, sn_entry *e, const char *state, sn_node *value) {
    bind(m, &e->assign, &e->n_assign, state, value);
}

void sn_entry_tap(sn_module *m, sn_entry *e, const char *name, sn_node *n) {
    bind(m, &e->tap, &e->n_tap, name, n);
}

static sn_binding *copy_bindings(sn_module *m, const sn_binding *list, int n) {
    size_t cap = 1;
    while (cap < (size_t)n) cap *= 2; /* as bind() grows it */
    return n ? grow(m, (void *)(uintptr_t)list, (size_t)n, cap, sizeof *list) : NULL;
}

/* Includes the capacity that sn_replace relies on. */
static sn_node **copy_replaced(sn_module *m) {
    size_t cap = 1, size = 2 * sizeof *m->replaced;
    while (cap < (size_t)m->n_replaced) cap *= 2;
    return m->n_replaced ? grow(m, m->replaced, (size_t)m->n_replaced, cap, size) : NULL;
}

sn_entries *sn_entries_save(sn_module *m) {
    sn_entries *s = sn_arena_alloc(m, sizeof *s);
    s->n = m->n_entry;
    s->entry = sn_arena_alloc(m, sizeof *s->entry * (size_t)(m->n_entry + 1));
    for (int i = 0; i < m->n_entry; i++) {
        sn_entry *e = s->entry[i] = sn_arena_alloc(m, sizeof *e);
        *e = *m->entry[i];
        e->output = copy_bindings(m, e->output, e->n_output);
        e->assign = copy_bindings(m, e->assign, e->n_assign);
        e->tap = copy_bindings(m, e->tap, e->n_tap);
    }
    s->n_replaced = m->n_replaced;
    s->replaced = copy_replaced(m);
    return s;
}

void sn_entries_restore(sn_module *m, sn_entries *saved) {
    m->entry = saved->entry;
    m->n_entry = saved->n;
    m->cap_entry = saved->n; /* the next addition allocates a new array */
    m->replaced = saved->replaced;
    m->n_replaced = saved->n_replaced;
}

void sn_entries_clear(sn_module *m) {
    m->n_entry = m->cap_entry = 0; /* the next addition allocates a new array */
}

/* ---- walks ---- */

static int by_id(const void *a, const void *b) {
    uint32_t x = (*(sn_node *const *)a)->id, y = (*(sn_node *const *)b)->id;
    return (x > y) - (x < y);
}

sn_order sn_topo(sn_module *m, int n_root, sn_node *const *root) {
    uint32_t epoch = ++m->epoch, low = UINT32_MAX, high = 0;
    size_t n = 0, done = 0, cap = 64 + (size_t)n_root;
    sn_node **out = sn_arena_alloc(m, sizeof *out * cap);
    for (int i = 0; i < n_root; i++) {
        /* the error node is not part of any order */
        if (!root[i] || root[i]->id >= m->n_node || m->stamp[root[i]->id] == epoch) continue;
        m->stamp[root[i]->id] = epoch;
        out[n++] = root[i];
    }
    while (done < n) { /* the list is also the queue */
        const sn_node *k = out[done++];
        if (k->id < low) low = k->id;
        if (k->id > high) high = k->id;
        if (n + k->n_in > cap) {
            cap = 2 * cap + k->n_in;
            sn_node **grown = sn_arena_alloc(m, sizeof *out * cap);
            memcpy(grown, out, sizeof *out * n);
            out = grown;
        }
        for (int i = 0; i < k->n_in; i++) {
            if (m->stamp[k->in[i]->id] == epoch) continue;
            m->stamp[k->in[i]->id] = epoch;
            out[n++] = k->in[i];
        }
    }
    /* Operands have smaller ids. A few nodes of many are sorted; many are collected by scanning
     * ids. */
    if (n < (high - low) / 16) {
        qsort(out, n, sizeof *out, by_id);
    } else if (n) {
        n = 0;
        for (uint32_t id = low; id <= high; id++)
            if (m->stamp[id] == epoch) out[n++] = m->node[id];
    }
    return (sn_order){out, (int)n};
}

sn_order sn_entry_topo(sn_module *m, const sn_entry *e) {
    int n = e->n_output + e->n_assign;
    sn_node **root = sn_arena_alloc(m, sizeof *root * (size_t)(n + 1));
    for (int i = 0; i < e->n_output; i++) root[i] = e->output[i].node;
    for (int i = 0; i < e->n_assign; i++) root[e->n_output + i] = e->assign[i].node;
    return sn_topo(m, n, root);
}

sn_order sn_region_topo(sn_module *m, const sn_region *r) {
    return sn_topo(m, r->n_out, r->out);
}

/* ---- regions ---- */

static uint64_t hash_region(const void *p) {
    const sn_region *r = p;
    uint64_t h = (uint64_t)r->n_arg;
    for (int i = 0; i < r->n_arg; i++) h = hash_word(r->arg[i]->hash, h);
    for (int i = 0; i < r->n_out; i++) h = hash_word(r->out[i]->hash, h);
    return h;
}

static bool same_region(const void *item, const void *key) {
    const sn_region *a = item, *b = key;
    return a->n_arg == b->n_arg && a->n_out == b->n_out &&
           (!a->n_arg || !memcmp(a->arg, b->arg, sizeof *a->arg * (size_t)a->n_arg)) &&
           !memcmp(a->out, b->out, sizeof *a->out * (size_t)a->n_out);
}

/* What a region may contain besides its arguments: nodes that depend on nothing outside. */
static bool closed_leaf(const sn_node *n) {
    return n->op == SN_OP_const || n->op == SN_OP_iota || n->op == SN_OP_dim_value || n->n_in > 0 ||
           sn_ops[n->op].kind == SN_FUSED; /* a kernel that writes constants */
}

sn_region *sn_region_new(sn_module *m, int n_arg, sn_node *const *arg, int n_out,
                         sn_node *const *out) {
    static const sn_region none;
    if (m->error.code || n_out < 1) return (sn_region *)&none;
    sn_region key = {n_arg, n_out, arg, out};
    sn_order order = sn_region_topo(m, &key);
    for (int i = 0; i < order.n; i++) {
        const sn_node *k = order.node[i];
        bool ok = closed_leaf(k);
        for (int j = 0; j < n_arg && !ok; j++) ok = arg[j] == k;
        if (!ok) {
            const char *name = sn_attr_str(k, SN_A_name, NULL);
            sn_module_fail(
                m, SN_ERR_USAGE,
                "a region may only use its arguments, not %s%s%s%s; pass the tensor as captured",
                sn_ops[k->op].name, name ? " \"" : "", name ? name : "", name ? "\"" : "");
            return (sn_region *)&none;
        }
    }
    table_reserve(m, &m->regions, hash_region);
    void **slot = table_find(&m->regions, hash_region(&key), same_region, &key);
    if (!*slot) {
        sn_region *r = sn_arena_alloc(m, sizeof *r);
        *r = (sn_region){n_arg, n_out, copy_to_arena(m, arg, sizeof *arg * (size_t)n_arg),
                         copy_to_arena(m, out, sizeof *out * (size_t)n_out)};
        *slot = r;
        m->regions.used++;
    }
    return *slot;
}
