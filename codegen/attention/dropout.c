/* dropout.c: which weights dropout keeps, drawn where they are needed: 64 keys of a query
 * are 64 numbers in a row, which are the four words of 16 Philox blocks (runtime/rng.h), so that
 * one vector computation gives a tile's row as the bits of a word. The mask is never stored. */
#include "codegen/attention/impl.h"
#include "codegen/emit/philox.h"

#include <math.h>

enum { BLOCKS = 16, WORDS = 4 };

/* i64 group(key, step, g): bit i is 1 if element 64 g + i is kept. */
static em_val emit_group(em *e, const att_plan *p) {
    const em_type params[] = {e->i64, e->i64, e->i64};
    em_val fn = em_function(e, "keep.group", e->i64, params, 3);
    em_val block = em_shl(e, em_param(e, 2), em_i64(e, 4));
    em_val first = em_splat(e, em_int_cast(e, block, e->i32), BLOCKS);
    em_val high = em_int_cast(e, em_lshr(e, block, em_i64(e, 32)), e->i32);
    em_val c[WORDS] = {em_or(e, first, em_iota(e, e->i32, BLOCKS)), em_splat(e, high, BLOCKS),
                       em_splat(e, em_i32(e, (int32_t)p->a->stream), BLOCKS),
                       em_splat(e, em_int_cast(e, em_param(e, 1), e->i32), BLOCKS)};
    sn_emit_philox(e, c, em_param(e, 0));
    /* the draw is (bits >> 8) 2^-24; it drops if it is below the rate as f32 */
    em_val bound = em_i32(e, (int32_t)ceil((double)(float)p->a->rate * 0x1p24));
    em_val kept = em_i64(e, 0);
    for (int w = 0; w < WORDS; w++) {
        em_val u = em_lshr(e, c[w], em_like(e, c[w], 8));
        em_val bits = em_bitcast(e, em_cmp(e, EM_GE, u, bound), e->i16);
        bits = LLVMBuildZExt(e->b, bits, e->i64, "");
        kept = em_or(e, kept, em_shl(e, bits, em_i64(e, (int64_t)BLOCKS * w)));
    }
    em_ret(e, kept);
    return fn;
}

em_val att_emit_keep_word(em *e, const att_plan *p) {
    if (!att_drops(p)) return NULL;
    em_val group = emit_group(e, p);
    const em_type params[] = {e->i64, e->i64, e->i64};
    em_val fn = em_function(e, "keep.word", e->i64, params, 3);
    em_val at = em_param(e, 2), shift = em_and(e, at, em_i64(e, 63));
    em_val g = em_lshr(e, at, em_i64(e, 6));
    em_val args[] = {em_param(e, 0), em_param(e, 1), g};
    em_val low = em_call(e, group, args, 3);
    em_var kept = em_let(e, low);
    em_branch apart = em_if(e, em_cmp(e, EM_NE, shift, em_i64(e, 0)));
    args[2] = em_add(e, g, em_i64(e, 1));
    em_val rest = em_shl(e, em_call(e, group, args, 3), em_sub(e, em_i64(e, 64), shift));
    em_set(e, kept, em_or(e, em_lshr(e, low, shift), rest));
    em_endif(e, &apart);
    em_ret(e, em_get(e, kept));
    return fn;
}

em_val att_keep_word(em *e, const att_plan *p, em_val word, em_val batch, em_val head, em_val q,
                     em_val k0) {
    const sn_attention *a = p->a;
    em_val seed = em_buf(e, a->seed_buf);
    em_val step = em_load(e, SN_I64, em_gep(e, seed, SN_I64, att_size(e, a->seed_stride)), 1);
    em_val at = em_add(e, em_mul(e, batch, em_i64(e, a->heads)), head);
    at = em_add(e, em_mul(e, at, att_size(e, a->tq)), q);
    at = em_add(e, em_mul(e, at, att_size(e, a->tk)), k0);
    em_val args[] = {em_load(e, SN_I64, seed, 1), step, at};
    return em_call(e, word, args, 3);
}

/* void keep(buf, dim, scratch, vector, k0, q0, batch, head): words of the vector's queries */
em_val att_emit_keep(em *e, const att_plan *p, em_val word) {
    if (!att_drops(p)) return NULL;
    const em_type params[] = {e->ptr, e->ptr, e->ptr, e->i64, e->i64, e->i64, e->i64, e->i64};
    em_val fn = att_function(e, p, "keep", params, 8);
    em saved = *e;
    e->buf = em_param(e, 0), e->dim = em_param(e, 1), e->scratch = em_param(e, 2);
    em_val first = em_mul(e, em_param(e, 3), em_i64(e, p->lanes));
    em_loop l = em_for(e, first, em_add(e, first, em_i64(e, p->lanes)), em_i64(e, 1));
    em_val q = em_add(e, em_param(e, 5), l.i);
    em_val kept = att_keep_word(e, p, word, em_param(e, 6), em_param(e, 7), q, em_param(e, 4));
    em_store(e, SN_I64, em_gep(e, att_scratch(e, p->keep_at), SN_I64, l.i), kept);
    em_end(e, &l);
    em_ret(e, NULL);
    e->buf = saved.buf, e->dim = saved.dim, e->scratch = saved.scratch;
    return fn;
}

em_val att_keep_vector(em *e, const att_plan *p, em_val v) {
    em_val at = em_mul(e, v, em_i64(e, p->lanes));
    return em_load(e, SN_I64, em_gep(e, att_scratch(e, p->keep_at), SN_I64, at), p->lanes);
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
