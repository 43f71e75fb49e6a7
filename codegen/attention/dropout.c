/* dropout.c: the dropout mask of the weights, computed where it is used and never stored. The 64
 * keys of a tile are 64 consecutive random numbers of a query. These are the four words of 16
 * Philox blocks (runtime/rng.h), so one vector computation gives a tile's row as 64 bits. */
#include "codegen/attention/impl.h"
#include "codegen/emit/philox.h"

#include <math.h>

enum { BLOCKS = 16, WORDS = 4 };

/* Bit i is 1 if element 64 group + i is kept. */
#define KEEP_GROUP_PARAMS(P) P(i64, key) P(i64, step) P(i64, group)
EM_SIGNATURE_RETURNING(i64, keep_group, KEEP_GROUP_PARAMS)

static em_val emit_group(em *e, const att_plan *p) {
    em_val fn = keep_group_function(e, "keep.group");
    keep_group_args q = keep_group_params(e);
    em_val block = em_shl(e, q.group, 4);
    em_val first = em_splat(e, em_int_cast(e, block, e->i32), BLOCKS);
    em_val high = em_int_cast(e, em_lshr(e, block, 32), e->i32);
    em_val c[WORDS] = {em_or(e, first, em_iota(e, e->i32, BLOCKS)), em_splat(e, high, BLOCKS),
                       em_splat(e, em_i32(e, (int32_t)p->a->stream), BLOCKS),
                       em_splat(e, em_int_cast(e, q.step, e->i32), BLOCKS)};
    sn_emit_philox(e, c, q.key);
    /* the number is (bits >> 8) 2^-24; an element is dropped if it is below the rate as f32 */
    em_val bound = em_i32(e, (int32_t)ceil((double)(float)p->a->rate * 0x1p24));
    em_val kept = em_i64(e, 0);
    for (int w = 0; w < WORDS; w++) {
        em_val u = em_lshr(e, c[w], em_like(e, c[w], 8));
        em_val bits = em_bitcast(e, em_cmp(e, EM_GE, u, bound), e->i16);
        bits = LLVMBuildZExt(e->b, bits, e->i64, "");
        kept = em_or(e, kept, em_shl(e, bits, (int64_t)BLOCKS * w));
    }
    em_ret(e, kept);
    return fn;
}

em_val att_emit_keep_word(em *e, const att_plan *p) {
    if (!att_drops(p)) return NULL;
    em_val group = emit_group(e, p), fn = att_keep_word_function(e, "keep.word");
    att_keep_word_args q = att_keep_word_params(e);
    em_val shift = em_and(e, q.element, 63);
    keep_group_args args = {.key = q.key, .step = q.step};
    args.group = em_lshr(e, q.element, 6);
    em_val low = keep_group_call(e, group, args);
    em_var kept = em_let(e, low);
    em_branch two_groups = em_if(e, em_cmp(e, EM_NE, shift, 0));
    args.group = em_add(e, args.group, 1);
    em_val high = keep_group_call(e, group, args);
    em_val rest = em_shl(e, high, em_sub(e, 64, shift));
    em_set(e, kept, em_or(e, em_lshr(e, low, shift), rest));
    em_endif(e, &two_groups);
    em_ret(e, em_get(e, kept));
    return fn;
}

em_val att_keep_row(em *e, const att_plan *p, em_val batch, em_val head, em_val q, em_val k0) {
    const sn_attention *a = p->a;
    em_val seed = em_buf(e, a->seed_buf);
    em_val step = em_load(e, SN_I64, em_gep(e, seed, SN_I64, em_size_value(e, a->seed_stride)), 1);
    em_val at = em_add(e, em_mul(e, batch, a->heads), head);
    at = em_add(e, em_mul(e, at, em_size_value(e, a->tq)), q);
    at = em_add(e, em_mul(e, at, em_size_value(e, a->tk)), k0);
    em_val key = em_load(e, SN_I64, seed, 1);
    return att_keep_word_call(e, p->keep_word,
                              (att_keep_word_args){.key = key, .step = step, .element = at});
}

em_val att_emit_keep(em *e, const att_plan *p) {
    if (!att_drops(p)) return NULL;
    att_keep_args q = att_keep_begin(e, p, p->gathered ? "keep_gathered" : "keep");
    att_use_context(e, q.buf, q.dim, q.scratch);
    em_val first = em_mul(e, q.v, p->lanes);
    em_loop l = em_for(e, first, em_add(e, first, p->lanes), 1);
    em_val lane = l.i;
    if (p->gathered) {
        em_val index = em_gep(e, att_scratch(e, p->index_offset), SN_I32, l.i);
        lane = em_idx(e, em_load(e, SN_I32, index, 1));
    }
    em_val kept = att_keep_row(e, p, q.batch, q.head, em_add(e, q.q0, lane), q.k0);
    em_store(e, SN_I64, em_gep(e, att_scratch(e, p->keep_offset), SN_I64, l.i), kept);
    em_end(e, &l);
    return att_end(e);
}

em_val att_keep_vector(em *e, const att_plan *p, em_val v) {
    em_val at = em_mul(e, v, p->lanes);
    return em_load(e, SN_I64, em_gep(e, att_scratch(e, p->keep_offset), SN_I64, at), p->lanes);
}

em_val att_keep_bit(em *e, em_val words, em_val k) {
    em_val bit =
        em_and(e, em_lshr(e, words, em_splat(e, k, em_lanes_of(words))), em_like(e, words, 1));
    return em_cmp(e, EM_NE, bit, em_like(e, words, 0));
}

em_val att_keep_lanes(em *e, em_val word, em_val k, int lanes) {
    em_type bits = LLVMIntTypeInContext(e->ctx, (unsigned)lanes);
    em_val some = LLVMBuildTrunc(e->b, em_lshr(e, word, k), bits, "");
    return em_bitcast(e, some, em_vec(e->i1, lanes));
}
