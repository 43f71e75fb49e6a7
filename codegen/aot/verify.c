/* verify.c: the functions of an artefact that compare its weights with their checksums (file.h). */
#include "codegen/aot/aot.h"

static em_val load_word(em *e, em_val p, em_val offset) {
    return em_load_raw(e, e->i64, em_gep_bytes(e, p, offset), 8);
}

static em_val stir(em *e, em_val h, em_val w) {
    em_val prime = em_i64(e, (int64_t)SN_AOT_PRIME);
    return em_mul(e, em_xor(e, h, w), prime);
}

/* i64 checksum(const void *data, i64 bytes) */
#define AOT_SUM_PARAMS(P) P(ptr, data) P(i64, bytes)
SN_AOT_SIGNATURE(i64, aot_sum, AOT_SUM_PARAMS)
static em_val emit_checksum(em *e, const sn_aot *a) {
    aot_sum_args q = aot_sum_begin(e, a, "checksum", false);
    em_val fn = e->fn, h[4], sum = em_zero(e->i64);
    em_loop l = em_for(e, 0, q.bytes, 32);
    for (int i = 0; i < 4; i++) h[i] = em_i64(e, i);
    em_carries(e, &l, h, 4);
    em_val p = em_gep_bytes(e, q.data, l.i);
    for (int i = 0; i < 4; i++) h[i] = stir(e, h[i], load_word(e, p, em_i64(e, 8 * i)));
    em_end(e, &l);
    for (int i = 0; i < 4; i++) sum = stir(e, sum, h[i]);
    em_ret(e, sum);
    return fn;
}

static em_val sum_of(em *e, em_val sum, em_val data, int64_t offset, em_val bytes) {
    return aot_sum_call(e, sum,
                        (aot_sum_args){.data = em_gep_bytes(e, data, offset), .bytes = bytes});
}

/* Whether the first page and the blocks' checksums have the checksum in the header. */
static em_val is_rooted(em *e, const sn_aot *a, em_val sum, em_val w) {
    em_val sums = em_stack(e, SN_I64, 4);
    const int64_t begin = (int64_t)(SN_AOT_PAGE + a->tensor_bytes),
                  bytes = (int64_t)sn_aot_sums_bytes(a->tensor_bytes);
    const em_val part[4] = {
        sum_of(e, sum, w, SN_AOT_CHECKED, em_i64(e, SN_AOT_PAGE - (int64_t)SN_AOT_CHECKED)),
        sum_of(e, sum, w, begin, em_i64(e, bytes)), em_zero(e->i64), em_zero(e->i64)};
    for (int i = 0; i < 4; i++) em_store_raw(e, part[i], em_gep_bytes(e, sums, 8 * i), 8);
    em_val stored = load_word(e, w, em_i64(e, offsetof(sn_aot_header, checksum)));
    return em_cmp(e, EM_EQ, sum_of(e, sum, sums, 0, em_i64(e, 32)), stored);
}

/* int NAME_weights_verify(const NAME *m, int64_t offset, int64_t bytes) */
#define AOT_VERIFY_PARAMS(P) P(ptr, m) P(i64, offset) P(i64, bytes)
SN_AOT_SIGNATURE(i32, aot_verify, AOT_VERIFY_PARAMS)
static em_val emit_part(em *e, sn_aot *a, em_val sum) {
    aot_verify_args q = aot_verify_begin(e, a, "weights_verify", true);
    em_val fn = e->fn;
    em_var status = em_let(e, em_i32(e, 0));
    const int64_t file = (int64_t)a->weight_bytes, tensors = (int64_t)a->tensor_bytes;
    sn_aot_check_pointer(e, a, status, q.m, false, "weights_verify", "m");
    sn_aot_check_open(e, a, q.m, status);
    em_val end = em_add(e, q.offset, q.bytes);
    em_val outside = em_or(e, em_cmp(e, EM_LT, q.offset, 0),
                           em_or(e, em_cmp(e, EM_LT, q.bytes, 0),
                                 em_or(e, em_cmp(e, EM_GT, q.offset, file),
                                       em_cmp(e, EM_GT, q.bytes, em_sub(e, file, q.offset)))));
    sn_aot_fail_if(e, status, outside,
                   sn_aot_code(a, SN_AOT_RANGE,
                               "weights_verify: offset and bytes reach beyond the %zu bytes of the "
                               "weights",
                               a->weight_bytes));
    em_branch open = em_if(e, sn_aot_is_ok(e, status));
    em_val w = sn_aot_get(e, q.m, e->ptr, SN_AOT_WEIGHTS);
    sn_aot_fail_if(e, status, em_not(e, is_rooted(e, a, sum, w)), SN_AOT_DAMAGED);
    em_val low = em_imax(e, em_sub(e, q.offset, SN_AOT_PAGE), 0);
    em_val high = em_imin(e, em_sub(e, end, SN_AOT_PAGE), tensors);
    em_val first = em_sub(e, low, em_and(e, low, SN_AOT_BLOCK - 1));
    em_loop l = em_for(e, first, high, SN_AOT_BLOCK);
    em_branch good = em_if(e, sn_aot_is_ok(e, status)); /* one is enough */
    em_val rest = em_imin(e, em_sub(e, tensors, l.i), SN_AOT_BLOCK);
    em_val block = em_gep_bytes(e, w, em_add(e, l.i, SN_AOT_PAGE));
    em_val at = em_add(e, em_ashr(e, l.i, em_i64(e, 13)),
                       SN_AOT_PAGE + tensors); /* 8 of SN_AOT_BLOCK bytes */
    em_val bad = em_cmp(e, EM_NE, sum_of(e, sum, block, 0, rest), load_word(e, w, at));
    sn_aot_fail_if(e, status, bad, SN_AOT_DAMAGED);
    em_endif(e, &good);
    em_end(e, &l);
    em_endif(e, &open);
    em_ret(e, em_get(e, status));
    return fn;
}

/* int NAME_verify(const NAME *m) */
#define AOT_WHOLE_PARAMS(P) P(ptr, m)
SN_AOT_SIGNATURE(i32, aot_whole, AOT_WHOLE_PARAMS)
void sn_aot_emit_verify(em *e, sn_aot *a) {
    em_val part = emit_part(e, a, emit_checksum(e, a));
    em_val m = aot_whole_begin(e, a, "verify", true).m;
    em_ret(e, aot_verify_call(e, part,
                              (aot_verify_args){.m = m,
                                                .offset = em_zero(e->i64),
                                                .bytes = em_i64(e, (int64_t)a->weight_bytes)}));
}
