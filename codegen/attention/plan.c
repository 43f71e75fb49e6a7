/* plan.c: the plan of an attention kernel: checks the spec, chooses the block size, allocates
 * scratch. */
#include "codegen/attention/impl.h"

#include <math.h>

static bool check_region(const sn_attention *a, const sn_region *r, int n_fixed, const char *what,
                         bool is_mask, sn_error *err) {
    if (!r) return true;
    if (r->n_out != 1 || r->n_arg > n_fixed + a->n_captured)
        return sn_fail(err, SN_ERR_INTERNAL,
                       "attention: %s has %d arguments and %d results, not %d "
                       "and 1",
                       what, r->n_arg, r->n_out, n_fixed + a->n_captured);
    if (r->out[0]->rank != 0 || (r->out[0]->dtype == SN_BOOL) != is_mask)
        return sn_fail(err, SN_ERR_INTERNAL, "attention: the result of %s must be one %s", what,
                       is_mask ? "bool" : "number");
    for (int i = !is_mask; i < n_fixed && i < r->n_arg; i++)
        if (sn_dtype_is_float((sn_dtype)r->arg[i]->dtype) || r->arg[i]->dtype == SN_BOOL)
            return sn_fail(
                err, SN_ERR_INTERNAL,
                "attention: argument %d of %s is a position, but %s is not an integer type", i,
                what, sn_dtype_name((sn_dtype)r->arg[i]->dtype));
    return true;
}

static bool check_spec(const sn_attention *a, sn_error *err) {
    if (a->d < 1 || a->dv < 1 || a->d > 4096 || a->dv > 4096)
        return sn_fail(err, SN_ERR_INTERNAL, "attention: head sizes %d and %d", a->d, a->dv);
    if (a->heads < 1 || a->gqa_ratio < 1 || a->heads % a->gqa_ratio)
        return sn_fail(err, SN_ERR_INTERNAL,
                       "attention: %d query heads are not a multiple of the GQA ratio %d", a->heads,
                       a->gqa_ratio);
    const sn_attention_operand *o[] = {&a->q, &a->k, &a->v, &a->out};
    for (int i = 0; i < 4; i++) {
        bool integers = a->row_scales && (i == 1 || i == 2);
        if (integers ? o[i]->dtype != SN_I8 : !sn_dtype_is_float(o[i]->dtype))
            return sn_fail(err, SN_ERR_INTERNAL, "attention: operand %d is %s, not %s", i,
                           sn_dtype_name(o[i]->dtype), integers ? "i8" : "a float type");
    }
    return check_region(a, a->score, 5, "the score region", false, err) &&
           check_region(a, a->mask, 4, "the mask region", true, err);
}

static bool is_static(em_size s, int64_t v) {
    return s.slot < 0 && s.value == v;
}

int64_t att_place(int64_t *at, int64_t bytes) {
    int64_t here = *at;
    *at += (bytes + 63) / 64 * 64;
    return here;
}

/* Tilings; the first is usually the fastest. The last two matter only where rows of K and V are not
 * contiguous. */
static const struct att_tiling {
    int nv, pack_queries;
    const char *name;
} att_tiles[] = {{ATT_NV, ATT_PACK_QUERIES, "blocks of 3 vectors of queries"},
                 {2, ATT_PACK_QUERIES, "blocks of 2 vectors of queries"},
                 {1, ATT_PACK_QUERIES, "blocks of 1 vector of queries"},
                 {ATT_NV, 0, "K and V always packed"},
                 {ATT_NV, -1, "K and V never packed"}};

/* Contiguous rows need no packing; rows far apart share cache sets and pages. */
static bool is_compact(const sn_attention *a) {
    return is_static(a->k.row, a->d) && is_static(a->v.row, a->dv);
}

int sn_attention_tiles(const sn_attention *a, sn_dtype compute) {
    bool decodes = att_decodes_only(a);
    bool may_pack = !is_compact(a) && a->k.dtype == compute && a->v.dtype == compute && !a->bf16;
    return decodes ? 1 : may_pack ? 5 : 3;
}

const char *sn_attention_tile_name(int i) {
    return att_tiles[i].name;
}

/* --- the additive bias ------------------------------------------------------------------------ */

/* The nodes that depend on the score argument, by id less the lowest id. */
static const bool *mark_score(const sn_region *r, uint32_t *lowest) {
    sn_order order = sn_region_topo(r->out[0]->m, r);
    uint32_t lo = UINT32_MAX, hi = 0;
    for (int i = 0; i < order.n; i++) {
        lo = order.node[i]->id < lo ? order.node[i]->id : lo;
        hi = order.node[i]->id > hi ? order.node[i]->id : hi;
    }
    *lowest = lo;
    bool *on = sn_arena_alloc(r->out[0]->m, hi - lo + 1);
    for (int i = 0; i < order.n; i++) {
        const sn_node *n = order.node[i];
        bool *mine = &on[n->id - lo];
        *mine = n->op == SN_OP_arg && !sn_attr_int(n, SN_A_index, -1);
        for (int j = 0; j < n->n_in; j++) *mine = *mine || on[n->in[j]->id - lo];
    }
    return on;
}

static att_additive_bias find_additive_bias(const sn_region *r, sn_dtype compute) {
    uint32_t lowest;
    const bool *on = mark_score(r, &lowest);
    att_additive_bias a = {.n = 0};
    sn_node *n = r->out[0];
    if (!on[n->id - lowest]) return a; /* independent of qk */
    while (n->op != SN_OP_arg) {       /* n depends on qk */
        bool first = on[n->in[0]->id - lowest];
        int other = first, minus = n->op == SN_OP_sub;
        bool fits = n->op == SN_OP_add || (minus && first);
        if (!fits || n->dtype != compute || on[n->in[other]->id - lowest] || a.n == ATT_BIAS_TERMS)
            return (att_additive_bias){.n = 0};
        a.negated[a.n] = minus;
        a.term[a.n++] = n->in[other];
        n = n->in[!other];
        if (!on[n->id - lowest]) return (att_additive_bias){.n = 0};
    }
    return a;
}

/* Decoding: most splits of the keys. */
static int max_splits(const sn_attention *a) {
    bool fixed = a->batch.slot < 0;
    int64_t heads = (fixed && a->batch.value > 1 ? a->batch.value : 1) * (a->heads / a->gqa_ratio);
    bool many_queries = a->tq.slot < 0 && a->tq.value > ATT_DECODE_QUERIES;
    bool few_keys = a->tk.slot < 0 && a->tk.value < 2 * ATT_SPLIT_TILES * ATT_TILE_KEYS;
    return a->unsplit || heads > ATT_MAX_SPLITS / 2 || many_queries || few_keys
               ? 1
               : (int)(ATT_MAX_SPLITS / heads);
}

/* Scores are computed from q times the scale. Where that would round q in bf16 a second time, they are
 * scaled instead. */
static void plan_factors(att_plan *p) {
    const sn_attention *a = p->a;
    int exponent;
    bool exact = !a->bf16 || fabs(frexp(a->scale, &exponent)) == 0.5;
    p->factor = a->bf16 ? SN_BF16 : p->t;
    p->word = a->bf16 ? 2 : 1;
    p->q_scale = exact ? a->scale : 1;
    p->s_scale = exact ? 1 : a->scale;
    p->copies = 1u << ATT_K_ROWS | 1u << att_copy_for_sums(p, true);
}

bool att_plan_make(att_plan *p, const sn_attention *a, const char *name, const sn_target *t,
                   sn_dtype compute, sn_error *err) {
    if (!check_spec(a, err)) return false;
    *p = (att_plan){.a = a, .name = name, .t = compute, .esize = (int)sn_dtype_size(compute)};
    p->lanes = sn_target_lanes(t, compute);
    p->l2_bytes = t->caches.l2;
    p->qb = ATT_NV * p->lanes;
    p->piece = 16 / p->esize;
    int regs = t->vector_regs;
    for (int nv = 1; nv <= ATT_NV; nv++) {
        p->key_rows[nv] = regs >= 32 ? (nv == 1 ? 16 : 8) : (nv == 1 ? 8 : 4);
        p->out_rows[nv] = (regs - nv - 1) / nv < 24 ? (regs - nv - 1) / nv : 24;
    }
    p->nv = att_tiles[a->tile].nv;
    p->pack_queries = att_tiles[a->tile].pack_queries;
    plan_factors(p);
    p->convert = a->k.dtype != compute || a->v.dtype != compute || a->bf16;
    p->pack = !att_decodes_only(a) && (!is_compact(a) || p->convert);
    p->scan_v = a->score || a->mask || a->rate > 0;
    if (a->score) p->bias = find_additive_bias(a->score, compute);
    int64_t at = 0, column = p->qb * p->esize;
    p->q_offset = att_place(&at, a->d * column);
    p->acc_offset = att_place(&at, a->dv * column);
    p->m_offset = att_place(&at, column);
    p->l_offset = att_place(&at, column);
    p->state_bytes = at;
    p->current_state_offset = att_place(&at, 8);
    p->s_offset = att_place(&at, (ATT_TILE_KEYS + 16) * column);
    p->qk_max_offset = att_place(&at, column);
    p->seg_offset = att_place(&at, ATT_SEGMENTS * 4 * 8);
    p->visible_offset = att_place(&at, ATT_NV * 3 * 8);
    p->relative_state_offset = att_place(&at, 3 * 8);
    p->bias_tile_offset = att_place(&at, ATT_BIAS_TILES * ATT_BIAS_TILE_KEYS * p->lanes * p->esize);
    p->keep_offset = att_place(&at, a->rate > 0 ? p->qb * 8 : 0);
    p->key_offset = att_place(&at, 16);
    p->dummy_offset = att_place(&at, (a->dv + 64) * 8);
    int64_t rows = (int64_t)ATT_DECODE_QUERIES * a->gqa_ratio;
    p->decode_q_offset = att_place(&at, rows * att_padded(p, a->d) * p->esize);
    p->decode_state_offset = att_place(&at, rows * att_row_state_size(p) * p->esize);
    p->max_splits = a->splits_buf > 0 ? max_splits(a) : 1;
    p->tail_offset = at;
    att_relative_find(p);
    return true;
}

/* Keys of a KV block: its K and V take a quarter of L2, so that they stay there. */
int64_t att_kv_block_keys(const att_plan *p) {
    int64_t keys =
        p->l2_bytes / 4 / ((p->a->d + p->a->dv) * p->esize) / ATT_TILE_KEYS * ATT_TILE_KEYS;
    return keys > ATT_TILE_KEYS ? keys : ATT_TILE_KEYS;
}

void att_plan_states(att_plan *p) {
    const sn_attention *a = p->a;
    bool decodes = att_decodes_only(a);
    bool once = a->tk.slot < 0 && a->tk.value <= 2 * att_kv_block_keys(p);
    p->states_offset = p->tail_offset;
    if (!decodes && !once) p->tail_offset += (ATT_STATES - 1) * p->state_bytes;
    att_gather_find(p, att_padded(p, a->dv), 0);
}

int64_t att_scratch_bytes(const att_plan *p, int64_t tq, int64_t tk, int64_t row) {
    int64_t flags = ((tk + ATT_TILE_KEYS - 1) / ATT_TILE_KEYS + 63) / 64 * 64;
    for (int c = 0; c < ATT_COPIES && p->pack; c++)
        if (p->copies >> c & 1) row += att_words(p, att_copy_of_v(c) ? p->a->dv : p->a->d);
    tk += p->word - 1;
    return p->tail_offset + att_relative_bytes(p, tq, tk) + flags + (tk * row + 64) * p->esize + 64;
}

int64_t sn_attention_scratch(const sn_attention *a, const sn_target *t, sn_dtype compute,
                             int64_t tq, int64_t tk) {
    att_plan p;
    if (!att_plan_make(&p, a, "", t, compute, NULL)) return 0;
    att_plan_states(&p);
    return att_scratch_bytes(&p, tq, tk, att_gather_key_elements(&p));
}

int64_t att_split_size(const att_plan *p) {
    const sn_attention *a = p->a;
    int64_t tq = a->tq.slot < 0 ? a->tq.value : ATT_DECODE_QUERIES;
    return tq * a->gqa_ratio * att_row_state_size(p);
}

int64_t sn_attention_split_bytes(const sn_attention *a, const sn_target *t, sn_dtype compute) {
    att_plan p;
    if (!att_plan_make(&p, a, "", t, compute, NULL) || max_splits(a) == 1) return 0;
    return ATT_MAX_SPLITS * att_split_size(&p) * p.esize;
}
