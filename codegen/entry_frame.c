/* entry_frame.c: the functions of entry_frame.h. */
#include "codegen/entry_frame.h"

int sn_frame_arguments(const sn_entry_code *u, bool bufs) {
    int max_n = 1;
    for (int i = 0; i < u->plan->n_call; i++) {
        const sn_step *s = u->plan->call[i];
        int n = bufs ? s->n_in + s->n_out + 1 : u->kernel[i].n_dim;
        if (n > max_n) max_n = n;
    }
    return max_n;
}

em_val sn_frame_at(em *e, em_val frame, int i) {
    return em_gep(e, frame, SN_I64, i);
}

em_val sn_frame_word(em *e, em_val frame, int i) {
    return em_load_raw(e, i < SN_FRAME_TID ? e->ptr : e->i64, sn_frame_at(e, frame, i), 8);
}

em_val sn_frame_dims(em *e, const sn_entry_code *u, em_val frame) {
    return sn_frame_at(e, frame, SN_FRAME_BUFS + sn_frame_arguments(u, true));
}

static void call_pointer(em *e, em_val fn, const em_type *types, const em_val *args, int n) {
    LLVMBuildCall2(e->b, LLVMFunctionType(e->tvoid, (em_type *)(uintptr_t)types, (unsigned)n, 0),
                   fn, (em_val *)(uintptr_t)args, (unsigned)n, "");
}

/* Waits for all threads. */
static em_val emit_wait(em *e, const char *name) {
    em_val fn = entry_wait_function(e, name);
    em_no_inline(e, fn);
    em_val frame = entry_wait_params(e).frame;
    call_pointer(e, sn_frame_word(e, frame, SN_FRAME_BARRIER), (em_type[]){e->ptr, e->i64},
                 (em_val[]){sn_frame_word(e, frame, SN_FRAME_THREADS),
                            sn_frame_word(e, frame, SN_FRAME_TID)},
                 2);
    em_ret(e, NULL);
    return fn;
}

/* Marks that a step begins or ends on a thread, if there is a profile. */
static em_val emit_mark(em *e, const char *name) {
    em_val fn = entry_mark_function(e, name);
    em_no_inline(e, fn);
    entry_mark_args q = entry_mark_params(e);
    em_val profile = sn_frame_word(e, q.frame, SN_FRAME_PROFILE);
    em_branch br = em_if(e, LLVMBuildIsNotNull(e->b, profile, ""));
    em_val mark = em_load_raw(e, e->ptr, em_gep_bytes(e, profile, offsetof(sn_profile, mark)), 8);
    call_pointer(e, mark, (em_type[]){e->ptr, e->i64, e->i64, e->i64},
                 (em_val[]){profile, q.step, sn_frame_word(e, q.frame, SN_FRAME_TID), q.end}, 4);
    em_endif(e, &br);
    em_ret(e, NULL);
    return fn;
}

static void mark(em *e, const sn_frame_calls *h, const entry_run_args *q, bool end) {
    entry_mark_call(e, h->mark,
                    (entry_mark_args){.frame = q->frame, .step = q->step, .end = em_i64(e, end)});
}

/* Calls a kernel and, if it has a second half, that one after a barrier. */
static em_val emit_run(em *e, const sn_entry_code *u, const sn_frame_calls *h, const char *name) {
    em_val fn = entry_run_function(e, name);
    em_no_inline(e, fn);
    entry_run_args q = entry_run_params(e);
    em_type types[] = {e->ptr, e->ptr, e->ptr, e->i64, e->i64};
    em_val args[] = {sn_frame_at(e, q.frame, SN_FRAME_BUFS), sn_frame_dims(e, u, q.frame),
                     sn_frame_word(e, q.frame, SN_FRAME_SCRATCH),
                     sn_frame_word(e, q.frame, SN_FRAME_TID),
                     sn_frame_word(e, q.frame, SN_FRAME_N_THREADS)};
    mark(e, h, &q, false);
    call_pointer(e, q.kernel, types, args, 5);
    em_branch br = em_if(e, LLVMBuildIsNotNull(e->b, q.finish, ""));
    entry_wait_call(e, h->wait, (entry_wait_args){.frame = q.frame});
    call_pointer(e, q.finish, types, args, 5);
    em_endif(e, &br);
    mark(e, h, &q, true);
    em_ret(e, NULL);
    return fn;
}

sn_frame_calls sn_frame_calls_emit(em *e, const sn_entry_code *u) {
    char name[96];
    sn_frame_calls h;
    snprintf(name, sizeof name, "%s_wait", u->symbol);
    h.wait = emit_wait(e, name);
    snprintf(name, sizeof name, "%s_mark", u->symbol);
    h.mark = emit_mark(e, name);
    snprintf(name, sizeof name, "%s_run", u->symbol);
    h.run = emit_run(e, u, &h, name);
    return h;
}
