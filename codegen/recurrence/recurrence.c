/* recurrence.c: a linear recurrence in chunks of 8 elements [Yang et al. 2024, "Gated linear attention",
 * "Parallelizing linear transformers with the delta rule"; Dao & Gu 2024, "Transformers are SSMs"]. A
 * unit of work is one state, or a block of its columns; it stays in L1 or L2 for the whole sequence.
 * With S the state at the chunk's beginning and D_t the product of the decays up to t:
 *
 *     y_t = (q_t D_t) S + sum over j <= t of (q_t . k_j D_t / D_j) v_j        inter- and intra-chunk
 *     S'  = D S + sum over j of (k_j D / D_j)^T v_j
 *
 *     for each chunk of a unit
 *         load q, k, v and the decays                                         rows.c, prologue.c
 *         weights_y = [intra-chunk weights | q D],  key = k D / D_j           weights.c
 *         y = weights_y values_and_state,  where that is [v; S]               products.c, words.c
 *         S = D S + key^T v
 *         store y
 *
 * Quotients are not computed: k_j is multiplied by the decay of each later element, and read in between.
 * So any decay is exact, 0 too, and so is one above 1. With a delta rule u_t = a_t S_t is a product of
 * weights_u with values_and_state, in which the u_j of the chunk's earlier elements are substituted
 * forward (the WY form). The last elements, if at most three, are computed one by one (steps.c). Gradients:
 * gradient.c, transposed_read.c.
 *
 * Threads share the units. Bits do not depend on the number of threads. */
#include "codegen/recurrence/impl.h"

static sn_dim scratch(const sn_kernel *k, const sn_target *t) {
    rec_plan p;
    rec_space space = {{0}, {NULL}, NULL, NULL};
    if (sn_recurrence_of(k->step->node).gradient) return rec_gradient_scratch(k, t);
    rec_plan_forward(&p, &space, k, t);
    int64_t n = space.used[REC_SHARED] + p.group * space.used[REC_PER_UNIT];
    return sn_dim_const(k->m, n * (int64_t)sn_dtype_size(p.t));
}

static void emit_chunk(em *e, const rec_plan *p, const rec_unit *u) {
    rec_prefetch ahead;
    const int vectors = (int)(p->cols / p->lanes);
    rec_load_elements(e, p, u);
    if (p->decays == REC_ONE) rec_exp_decays(e, p);
    rec_emit_weights(e, p);
    rec_join_values(e, p);
    rec_prefetch_begin(e, p, u, rec_n_views(p), rec_work(p), &ahead);
    for (int v = 0, n; v < vectors; v += n) { /* these columns of the state stay in L1 */
        n = rec_vectors_at(e, p, v);
        rec_emit_u(e, p, u, &ahead, v, n);
        rec_emit_y(e, p, u, &ahead, v, n);
    }
    rec_store_elements(e, p, u);
}

static void emit_few_or_chunk(em *e, const rec_plan *p, const rec_unit *u) {
    em_val left = em_sub(e, u->T, u->chunk);
    em_branch few = em_if(e, em_cmp(e, EM_LE, left, REC_FEW));
    rec_emit_steps(e, p, u, left);
    em_else(e, &few);
    emit_chunk(e, p, u);
    em_endif(e, &few);
}

/* The state before element t in the states that the gradient starts from. */
static void save(em *e, const rec_plan *p, const rec_unit *u, int i, em_val t) {
    em_branch first = em_if(e, em_cmp(e, EM_EQ, em_rem(e, t, SN_REC_BLOCK), 0));
    rec_save(e, p, u, i, t, p->state);
    em_endif(e, &first);
}

/* Items lo to hi in groups whose states stay in L2. A thread computes a block of each unit of the group, then
 * the next block, so that whole rows of memory are read within a short time, and few pages are in use. */
static void emit(em *e, const sn_kernel *k) {
    rec_plan p;
    rec_space space = {{0}, {NULL}, NULL, NULL};
    rec_unit u = {.columns = NULL};
    em_val lo, hi, items;
    if (sn_recurrence_of(k->step->node).gradient) {
        rec_emit_gradient(e, k);
        return;
    }
    rec_plan_forward(&p, &space, k, e->target);
    const int states = sn_recurrence_states(&p.r);
    em_kernel(e, k->name);
    space.base[REC_SHARED] = e->scratch;
    space.units = em_gep(e, e->scratch, p.t, space.used[REC_SHARED]);
    space.unit_bytes = em_i64(e, space.used[REC_PER_UNIT] * (int64_t)sn_dtype_size(p.t));
    items = em_i64(e, p.n_block);
    for (int a = 0; a < p.r.n_lead; a++)
        items = em_mul(e, items, sn_kernel_dim(e, k, k->step->in[SN_REC_START].shape[a]));
    em_share(e, items, &lo, &hi);
    u.T = sn_kernel_dim(e, k, k->step->out[0].shape[0]);
    em_loop group = em_for(e, lo, hi, p.group);
    em_val n = em_imin(e, em_sub(e, hi, group.i), p.group);
    em_loop each = rec_for_units(e, &p, &u, group.i, n);
    rec_load_state(e, &p, &u, SN_REC_START, p.state);
    rec_join_state(e, &p);
    em_end(e, &each);
    em_loop block = em_for(e, 0, u.T, REC_BLOCK);
    each = rec_for_units(e, &p, &u, group.i, n);
    rec_find_next(e, &p, &u, group.i, each.i, n, false);
    if (p.result[states] >= 0) save(e, &p, &u, k->step->n_in + states, block.i);
    em_val end = em_imin(e, em_add(e, block.i, REC_BLOCK), u.T);
    em_loop chunk = em_for(e, block.i, end, REC_CHUNK);
    u.chunk = chunk.i;
    u.last = em_cmp(e, EM_GE, em_add(e, chunk.i, REC_CHUNK), end);
    if (p.by_element)
        rec_emit_steps(e, &p, &u, em_imin(e, em_sub(e, end, chunk.i), REC_CHUNK));
    else
        emit_few_or_chunk(e, &p, &u);
    em_end(e, &chunk);
    em_end(e, &each);
    em_end(e, &block);
    each = rec_for_units(e, &p, &u, group.i, n);
    rec_store_state(e, &p, &u);
    em_end(e, &each);
    em_end(e, &group);
    em_end_kernel(e);
}

const sn_family sn_family_recurrence = {.emit = emit, .scratch = scratch};
