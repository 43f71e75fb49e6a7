/* entry.c: the entries of an artefact, and the thread hook over OpenMP or a module's workers.
 *
 *   int NAME_ENTRY(const NAME *m, [void *state,] void *workspace, dims…, inputs…, outputs…)
 *   int64_t NAME_ENTRY_workspace(const NAME *m, dims…)
 *
 * Both check their arguments, then call an inner function for the target that the model has chosen.
 * It fills the buffer table that the generated code reads (kernel.h, runtime/threads.h). */
#include "codegen/aot/aot.h"
#include "codegen/emit/dims.h"

#include <float.h>
#include <string.h>

/* ---- OpenMP: libgomp's entry points, which other OpenMP libraries have as well ---- */

/* Fields that a thread team shares, by offset. */
enum { TEAM_FN, TEAM_ARG = 8, TEAM_THREADS = 16, TEAM_GOT = 24, TEAM_SIZE = 32 };
/* Fields of the barrier of a call, on its stack, as in runtime/threads.c: a cache line each, and an i32 for each thread,
 * the number of the CPU where it was when it last came. */
enum { BARRIER_WAITING, BARRIER_ROUND = 64, BARRIER_CPU = 128 };
/* What a waiting thread does: after some spins, about 50 microseconds, it yields. */
static const struct {
    int spins;
    const char *yield, *cpu; /* NULL: the system does not say */
} calls[] = {[SN_LINUX] = {1000, "sched_yield", "sched_getcpu"},
             [SN_WINDOWS] = {1000, "SwitchToThread", "GetCurrentProcessorNumber"},
             [SN_MACOS] = {1000, "sched_yield", NULL},
             [SN_BROWSER] = {20000, NULL, NULL}}; /* it has no instruction for pauses */
/* Fields of the pool of a module's workers: sn_threads, what they run, whether the first thread may
 * sleep (an i32; a page's must not), whether a thread has failed (an i32), a barrier. */
enum {
    POOL_FN = 32,
    POOL_ARG = 40,
    POOL_SLEEPS = 48,
    POOL_FAILED = 52,
    POOL_BARRIER = 64,
    POOL_SIZE = 192
};
_Static_assert(sizeof(sn_threads) <= POOL_FN, "fields do not overlap");

static void call_work(em *e, em_val fn, em_val arg, em_val tid, em_val n) {
    em_type params[] = {e->ptr, e->i64, e->i64};
    LLVMBuildCall2(e->b, LLVMFunctionType(e->tvoid, params, 3, 0), fn, (em_val[]){arg, tid, n}, 3,
                   "");
}

static void call_alone(em *e, em_val fn, em_val arg) {
    call_work(e, fn, arg, em_i64(e, 0), em_i64(e, 1));
}

static em_val thread_number(em *e, const char *name) {
    return em_idx(e, em_call(e, em_extern(e, name, e->i32, NULL, 0), NULL, 0));
}

static em_val pool(em *e) {
    em_val g = LLVMGetNamedGlobal(e->mod, "pool");
    if (g) return g;
    em_type t = LLVMArrayType2(e->i8, POOL_SIZE);
    g = LLVMAddGlobal(e->mod, t, "pool");
    LLVMSetInitializer(g, LLVMConstNull(t));
    LLVMSetLinkage(g, LLVMInternalLinkage);
    LLVMSetAlignment(g, SN_AOT_ALIGN);
    return g;
}

void sn_aot_take_pool(em *e, em_val m) {
    em_val many = em_cmp(e, EM_GT, sn_aot_get(e, pool(e), e->i64, offsetof(sn_threads, n)), 1);
    sn_aot_put(e, m, SN_AOT_POOL, em_select(e, many, pool(e), LLVMConstNull(e->ptr)));
}

em_val sn_aot_default_threads(em *e, const sn_aot *a) {
    em_val n = LLVMConstNull(e->i64);
    if (a->openmp) n = thread_number(e, "omp_get_max_threads");
    if (a->workers) n = sn_aot_get(e, pool(e), e->i64, offsetof(sn_threads, n));
    n = em_imin(e, em_imax(e, n, 1), SN_MAX_THREADS);
    return em_int_cast(e, n, e->i16);
}

/* As in sn_threads; team: the struct above. */
#define AOT_RUN_PARAMS(P) P(ptr, threads) P(ptr, fn) P(ptr, fn_arg)
SN_AOT_SIGNATURE(tvoid, aot_run, AOT_RUN_PARAMS)
#define AOT_BARRIER_PARAMS(P) P(ptr, threads) P(i64, tid)
SN_AOT_SIGNATURE(tvoid, aot_barrier, AOT_BARRIER_PARAMS)
#define AOT_TEAM_PARAMS(P) P(ptr, team)
SN_AOT_SIGNATURE(tvoid, aot_team, AOT_TEAM_PARAMS)

/* A thread of the team. It works only if the team has as many threads as the barrier expects. It
 * waits for the others here, because OpenMP's barrier at the end of the region spins for
 * milliseconds without yielding. */
static em_val emit_team(em *e, const sn_aot *a, em_val barrier) {
    em_val t = aot_team_begin(e, a, "team", false).team, fn = e->fn;
    em_val got = thread_number(e, "omp_get_num_threads"),
           tid = thread_number(e, "omp_get_thread_num");
    em_branch master = em_if(e, em_cmp(e, EM_EQ, tid, 0));
    sn_aot_put(e, t, TEAM_GOT, got);
    em_endif(e, &master);
    em_val self = sn_aot_get(e, t, e->ptr, TEAM_THREADS),
           n = sn_aot_get(e, self, e->i64, offsetof(sn_threads, n));
    em_branch all = em_if(e, em_cmp(e, EM_EQ, got, n));
    call_work(e, sn_aot_get(e, t, e->ptr, TEAM_FN), sn_aot_get(e, t, e->ptr, TEAM_ARG), tid, n);
    aot_barrier_call(e, barrier, (aot_barrier_args){.threads = self, .tid = tid});
    em_endif(e, &all);
    em_ret(e, NULL);
    return fn;
}

static void emit_run(em *e, const sn_aot *a, em_val team) {
    aot_run_args q = aot_run_begin(e, a, "run", false);
    em_val self = q.threads, n = sn_aot_get(e, self, e->i64, offsetof(sn_threads, n));
    em_val t = em_stack(e, SN_I8, TEAM_SIZE);
    em_branch alone = em_if(e, em_cmp(e, EM_LE, n, 1));
    sn_aot_put(e, t, TEAM_GOT, 0);
    em_else(e, &alone);
    sn_aot_put(e, t, TEAM_FN, q.fn);
    sn_aot_put(e, t, TEAM_ARG, q.fn_arg);
    sn_aot_put(e, t, TEAM_THREADS, self);
    em_type start_params[] = {e->ptr, e->ptr, e->i32, e->i32};
    em_val start = em_extern(e, "GOMP_parallel", e->tvoid, start_params, 4);
    em_call(e, start, (em_val[]){team, t, em_int_cast(e, n, e->i32), em_i32(e, 0)}, 4);
    em_endif(e, &alone);
    /* one thread, or fewer than requested: nested parallel region, or a limit */
    em_branch few = em_if(e, em_cmp(e, EM_NE, sn_aot_get(e, t, e->i64, TEAM_GOT), n));
    sn_aot_put(e, self, offsetof(sn_threads, n), 1);
    call_alone(e, q.fn, q.fn_arg);
    sn_aot_put(e, self, offsetof(sn_threads, n), n);
    em_endif(e, &few);
    em_ret(e, NULL);
}

static em_val load_atomic(em *e, em_type t, em_val p, LLVMAtomicOrdering order) {
    em_val v = em_load_raw(e, t, p, t == e->i64 ? 8 : 4);
    LLVMSetOrdering(v, order);
    return v;
}

static void store_atomic(em *e, em_val v, em_val p, LLVMAtomicOrdering order) {
    em_val s = LLVMBuildStore(e->b, v, p);
    LLVMSetAlignment(s, LLVMTypeOf(v) == e->i64 ? 8 : 4);
    LLVMSetOrdering(s, order);
}

/* The value before. */
static em_val increment(em *e, em_val place) {
    return LLVMBuildAtomicRMW(e->b, LLVMAtomicRMWBinOpAdd, place, em_i64(e, 1),
                              LLVMAtomicOrderingAcquireRelease, 0);
}

static em_val cpu_place(em *e, em_val barrier, em_val tid) {
    return em_gep_bytes(e, barrier, em_add(e, em_mul(e, tid, 4), BARRIER_CPU));
}

/* Spins left for a thread that waits: none if another one was last seen on its CPU. */
static em_var emit_spins(em *e, em_val barrier, em_val tid, em_val n, em_val cpu) {
    em_var spins = em_let(e, em_i32(e, calls[e->target->system].spins));
    if (!cpu) return spins;
    em_loop l = em_for(e, 0, n, 1);
    em_val at = load_atomic(e, e->i32, cpu_place(e, barrier, l.i), LLVMAtomicOrderingMonotonic);
    em_val shared = em_and(e, em_cmp(e, EM_EQ, at, cpu), em_cmp(e, EM_NE, l.i, tid));
    em_set(e, spins, em_select(e, shared, em_i32(e, 0), em_get(e, spins)));
    em_end(e, &l);
    return spins;
}

/* In a module a thread sleeps until the round changes, but the first one only where it may. */
static void emit_yield(em *e, em_val place, em_val round, em_val tid) {
    const char *yield = calls[e->target->system].yield;
    if (yield) {
        em_call(e, em_extern(e, yield, e->i32, NULL, 0), NULL, 0);
        return;
    }
    em_val sleeps = sn_aot_get(e, pool(e), e->i32, POOL_SLEEPS), for_ever = em_i64(e, -1);
    em_branch may =
        em_if(e, em_or(e, em_cmp(e, EM_NE, tid, 0), em_cmp(e, EM_NE, sleeps, em_i32(e, 0))));
    em_intrinsic(e, "llvm.wasm.memory.atomic.wait64", NULL, 0, (em_val[]){place, round, for_ever},
                 3);
    em_endif(e, &may);
}

static em_val has_failed(em *e) {
    em_val place = em_gep_bytes(e, pool(e), POOL_FAILED);
    return em_cmp(e, EM_NE, load_atomic(e, e->i32, place, LLVMAtomicOrderingAcquire), em_i32(e, 0));
}

/* Waits until the round changes: spins first, then yields the processor. If a thread of a module has failed, the others
 * trap here, because it comes no more. */
static void emit_waiting(em *e, const sn_aot *a, em_val place, em_val round, em_val tid,
                         em_var spins) {
    LLVMBasicBlockRef again = LLVMAppendBasicBlockInContext(e->ctx, e->fn, "again"),
                      out = LLVMAppendBasicBlockInContext(e->ctx, e->fn, "out");
    LLVMBuildBr(e->b, again);
    LLVMPositionBuilderAtEnd(e->b, again);
    em_val left = em_get(e, spins);
    em_branch patient = em_if(e, em_cmp(e, EM_EQ, left, em_i32(e, 0)));
    emit_yield(e, place, round, tid);
    em_else(e, &patient);
    em_set(e, spins, em_sub(e, left, em_i32(e, 1)));
    if (e->target->arch == SN_ARCH_X86_64) em_intrinsic(e, "llvm.x86.sse2.pause", NULL, 0, NULL, 0);
    em_endif(e, &patient);
    em_val now = load_atomic(e, e->i64, place, LLVMAtomicOrderingAcquire);
    em_val waits = em_cmp(e, EM_EQ, now, round), failed = a->workers ? has_failed(e) : NULL;
    if (failed) waits = em_and(e, waits, em_not(e, failed));
    LLVMBuildCondBr(e->b, waits, again, out);
    LLVMPositionBuilderAtEnd(e->b, out);
    if (!failed) return;
    em_branch br = em_if(e, failed);
    em_intrinsic(e, "llvm.trap", NULL, 0, NULL, 0);
    em_endif(e, &br);
}

static void emit_notify(em *e, em_val place) {
    em_intrinsic(e, "llvm.wasm.memory.atomic.notify", NULL, 0,
                 (em_val[]){place, em_i32(e, SN_MAX_THREADS)}, 2);
}

static em_val emit_barrier(em *e, const sn_aot *a) {
    aot_barrier_args q = aot_barrier_begin(e, a, "barrier", false);
    em_val self = q.threads, fn = e->fn, n = sn_aot_get(e, self, e->i64, offsetof(sn_threads, n));
    em_branch many = em_if(e, em_cmp(e, EM_GT, n, 1));
    em_val b = sn_aot_get(e, self, e->ptr, offsetof(sn_threads, state)), cpu = NULL;
    const char *where = calls[e->target->system].cpu;
    if (where) {
        cpu = em_call(e, em_extern(e, where, e->i32, NULL, 0), NULL, 0);
        store_atomic(e, cpu, cpu_place(e, b, q.tid), LLVMAtomicOrderingMonotonic);
    }
    em_val waiting = em_gep_bytes(e, b, BARRIER_WAITING), place = em_gep_bytes(e, b, BARRIER_ROUND);
    em_val round = load_atomic(e, e->i64, place, LLVMAtomicOrderingAcquire);
    em_val before = increment(e, waiting);
    em_branch last = em_if(e, em_cmp(e, EM_EQ, em_add(e, before, 1), n));
    store_atomic(e, em_i64(e, 0), waiting, LLVMAtomicOrderingMonotonic);
    store_atomic(e, em_add(e, round, 1), place, LLVMAtomicOrderingRelease);
    if (a->workers) emit_notify(e, place);
    em_else(e, &last);
    emit_waiting(e, a, place, round, q.tid, emit_spins(e, b, q.tid, n, cpu));
    em_endif(e, &last);
    em_endif(e, &many);
    em_ret(e, NULL);
    return fn;
}

/* The barrier of a call, on its stack. */
static em_val new_barrier(em *e, em_val n) {
    em_val b = em_stack(e, SN_I8, BARRIER_CPU + 4 * SN_MAX_THREADS);
    sn_aot_put(e, b, BARRIER_WAITING, 0);
    sn_aot_put(e, b, BARRIER_ROUND, 0);
    em_loop l = em_for(e, 0, n, 1);
    em_store_raw(e, em_i32(e, -1), cpu_place(e, b, l.i), 4);
    em_end(e, &l);
    return b;
}

/* ---- workers of a module ---- */

/* void team(int n, int sleeps), before init: n threads are to work. All but the first call `work`. */
#define AOT_SIZE_PARAMS(P) P(i32, n) P(i32, sleeps)
SN_AOT_SIGNATURE(tvoid, aot_size, AOT_SIZE_PARAMS)
static void emit_size(em *e, const sn_aot *a, em_val run, em_val barrier) {
    aot_size_args q = aot_size_begin(e, a, "team", true);
    em_val fn = e->fn;
    sn_aot_put(e, pool(e), offsetof(sn_threads, n), em_idx(e, q.n));
    sn_aot_put(e, pool(e), offsetof(sn_threads, run), run);
    sn_aot_put(e, pool(e), offsetof(sn_threads, barrier), barrier);
    sn_aot_put(e, pool(e), offsetof(sn_threads, state), em_gep_bytes(e, pool(e), POOL_BARRIER));
    sn_aot_put(e, pool(e), POOL_SLEEPS, q.sleeps);
    em_ret(e, NULL);
    em_export(e, fn, "team");
}

/* void leave(NAME *m): what m does from now on, the caller's thread does alone. The pool stays as it is, because a
 * worker may be on its way from the last barrier of a run to the first one of the next. */
#define AOT_LEAVE_PARAMS(P) P(ptr, m)
SN_AOT_SIGNATURE(tvoid, aot_leave, AOT_LEAVE_PARAMS)
static void emit_leave(em *e, const sn_aot *a) {
    aot_leave_args q = aot_leave_begin(e, a, "leave", true);
    sn_aot_put(e, q.m, SN_AOT_POOL, LLVMConstNull(e->ptr));
    em_export(e, e->fn, "leave");
    em_ret(e, NULL);
}

/* void fail(int tid): thread tid does not work any more. The round changes, so that a thread which is about to sleep
 * does not. */
#define AOT_WORK_PARAMS(P) P(i32, tid)
SN_AOT_SIGNATURE(tvoid, aot_work, AOT_WORK_PARAMS)
static void emit_fail(em *e, const sn_aot *a) {
    aot_work_begin(e, a, "fail", true);
    em_export(e, e->fn, "fail");
    em_val round = em_gep_bytes(e, pool(e), POOL_BARRIER + BARRIER_ROUND);
    store_atomic(e, em_i32(e, 1), em_gep_bytes(e, pool(e), POOL_FAILED), LLVMAtomicOrderingRelease);
    increment(e, round);
    emit_notify(e, round);
    em_ret(e, NULL);
}

/* The part of thread tid in one run: between two barriers, so that no thread is in a run when the next one begins. */
static void emit_part(em *e, em_val barrier, em_val tid) {
    em_val p = pool(e), n = sn_aot_get(e, p, e->i64, offsetof(sn_threads, n));
    aot_barrier_call(e, barrier, (aot_barrier_args){.threads = p, .tid = tid});
    call_work(e, sn_aot_get(e, p, e->ptr, POOL_FN), sn_aot_get(e, p, e->ptr, POOL_ARG), tid, n);
    aot_barrier_call(e, barrier, (aot_barrier_args){.threads = p, .tid = tid});
}

/* void work(int tid) does not return. */
static void emit_workers(em *e, const sn_aot *a, em_val barrier) {
    aot_work_args w = aot_work_begin(e, a, "work", true);
    em_export(e, e->fn, "work");
    em_val tid = em_idx(e, w.tid);
    LLVMBasicBlockRef again = LLVMAppendBasicBlockInContext(e->ctx, e->fn, "again");
    LLVMBuildBr(e->b, again);
    LLVMPositionBuilderAtEnd(e->b, again);
    emit_part(e, barrier, tid);
    LLVMBuildBr(e->b, again);
    aot_run_args q = aot_run_begin(e, a, "run", false);
    em_val run = e->fn, n = sn_aot_get(e, q.threads, e->i64, offsetof(sn_threads, n));
    em_branch many = em_if(e, em_cmp(e, EM_GT, n, 1));
    sn_aot_put(e, pool(e), POOL_FN, q.fn);
    sn_aot_put(e, pool(e), POOL_ARG, q.fn_arg);
    emit_part(e, barrier, em_zero(e->i64));
    em_else(e, &many);
    call_alone(e, q.fn, q.fn_arg);
    em_endif(e, &many);
    em_ret(e, NULL);
    emit_size(e, a, run, barrier);
    emit_leave(e, a);
    emit_fail(e, a);
}

void sn_aot_emit_threads(em *e, const sn_aot *a) {
    em_val barrier = emit_barrier(e, a);
    if (a->workers)
        emit_workers(e, a, barrier);
    else
        emit_run(e, a, emit_team(e, a, barrier));
}

/* Without OpenMP: run calls the function once; the barrier does nothing. */
static void emit_single(em *e, const sn_aot *a) {
    aot_run_args q = aot_run_begin(e, a, "run", false);
    call_alone(e, q.fn, q.fn_arg);
    em_ret(e, NULL);
    aot_barrier_begin(e, a, "barrier", false);
    em_ret(e, NULL);
}

static em_val named(em *e, const sn_aot *a, const char *name) {
    char full[160];
    snprintf(full, sizeof full, "%s_%s", a->name, name);
    return LLVMGetNamedFunction(e->mod, full);
}

/* ---- one target ---- */

typedef struct job {
    em *e;
    sn_aot *a;
    const sn_aot_entry *entry;
    const sn_compiled_entry *c; /* of a target */
    int v;
    em_val symbols; /* i64 [symbols of the module] */
} job;

static em_val dim_value(job *j, sn_dim d) {
    return sn_dim_emit(j->e, j->a->m, d, j->symbols, NULL);
}

static const sn_aot_place *find_place(const sn_aot_place *list, int n, const char *name) {
    for (int i = 0; i < n; i++)
        if (!strcmp(list[i].name, name)) return &list[i];
    return NULL;
}

static int find_binding(const sn_binding *list, int n, const char *name) {
    for (int i = 0; i < n; i++)
        if (!strcmp(list[i].name, name)) return i;
    return -1;
}

/* Where a buffer is: the number of a base address in the lowest BASE_BITS, the bytes from there in the bits above. The
 * bases are weights, state and the arguments of the call. */
enum { BASE_WEIGHTS, BASE_STATE, BASE_ARGS, BASE_BITS = 16 };

static em_val buffer_place(job *j, const sn_buffer *b) {
    em *e = j->e;
    const sn_aot *a = j->a;
    const sn_aot_place *p = NULL;
    int k = -1;
    if (b->kind == SN_BUF_PARAM) p = find_place(a->weight, a->n_weight, b->name);
    if (b->kind == SN_BUF_STATE) p = find_place(a->state, a->n_state, b->name);
    const int base = b->kind == SN_BUF_PARAM ? BASE_WEIGHTS : BASE_STATE;
    if (p && p->offset >> (63 - BASE_BITS))
        sn_fail(&e->err, SN_ERR_INTERNAL, "'%s' is too far into the weights", b->name);
    if (p) return em_i64(e, (int64_t)((uint64_t)p->offset << BASE_BITS | (unsigned)base));
    if (b->kind == SN_BUF_INPUT) k = find_binding(j->entry->input, j->entry->n_input, b->name);
    if (b->kind == SN_BUF_OUTPUT) {
        k = find_binding(j->entry->output, j->entry->n_output, b->name);
        if (k >= 0) k += j->entry->n_input;
    }
    if (k < 0 || BASE_ARGS + k >= 1 << BASE_BITS) {
        k = 0;
        sn_fail(&e->err, SN_ERR_INTERNAL, "%s: the targets disagree about '%s'", j->entry->name,
                b->name ? b->name : "?");
    }
    return em_i64(e, BASE_ARGS + k);
}

/* The addresses of the buffers: few bytes of data for each, because a model has hundreds.
 * args: pointers of the inputs, then of the outputs. */
static em_val buffer_table(job *j, em_val weights, em_val state, em_val args) {
    em *e = j->e;
    const sn_entry_code *u = &j->c->code;
    int n = 0, n_args = j->entry->n_input + j->entry->n_output;
    em_val *place = sn_arena_alloc(j->a->m, sizeof *place * (size_t)(u->n_table + 1)),
           table = em_stack(e, SN_I64, u->n_table + 1),
           bases = em_stack(e, SN_I64, BASE_ARGS + n_args);
    for (int i = 0; i < u->plan->n_buffer; i++)
        if (u->table[i] >= 0) place[n++] = buffer_place(j, &u->plan->buffer[i]);
    sn_aot_put(e, bases, 8 * BASE_WEIGHTS, weights);
    sn_aot_put(e, bases, 8 * BASE_STATE, state);
    for (int i = 0; i < n_args; i++)
        sn_aot_put(e, bases, 8 * (BASE_ARGS + i), sn_aot_get(e, args, e->ptr, 8 * i));
    em_val places = sn_aot_numbers(e, "places", place, n);
    em_loop l = em_for(e, 0, n, 1);
    em_val at = em_load_raw(e, e->i64, em_gep(e, places, SN_I64, l.i), 8);
    em_val base = em_gep(e, bases, SN_I64, em_and(e, at, (1 << BASE_BITS) - 1));
    em_val p =
        em_gep_bytes(e, em_load_raw(e, e->ptr, base, 8), em_ashr(e, at, em_i64(e, BASE_BITS)));
    em_store_raw(e, p, em_gep(e, table, SN_I64, l.i), 8);
    em_end(e, &l);
    return table;
}

/* n threads if the work pays for them, else 1, as in run.c. */
static em_val worthwhile(job *j, em_val n) {
    em *e = j->e;
    em_val least = em_i64(e, sn_entry_work_for_threads(&j->c->code));
    em_val little = em_cmp(e, EM_LT, dim_value(j, j->c->code.work), least);
    return em_select(e, little, 1, n);
}

static em_val call_entry(job *j, const char *suffix, em_type ret, const em_type *params,
                         const em_val *args, int n) {
    char name[160], prefix[96];
    snprintf(name, sizeof name, "%s%s%s", sn_aot_prefix(j->a, j->v, prefix), j->c->code.symbol + 3,
             suffix);
    return em_call(j->e, em_extern(j->e, name, ret, params, n), args, n);
}

/* ENTRY_on_V: an entry on target V, after its checks. symbols: values of the symbolic dims; args:
 * pointers of the inputs, then of the outputs. Returns an error code. */
/* clang-format off */
#define AOT_VARIANT_PARAMS(P) \
    P(ptr, m) P(ptr, state) P(ptr, workspace) P(ptr, symbols) P(ptr, args) P(i64, threads)
/* clang-format on */
SN_AOT_SIGNATURE(i32, aot_variant, AOT_VARIANT_PARAMS)
static em_val emit_variant(job *j) {
    em *e = j->e;
    em_val sums = sn_aot_emit_sums(e, j->a, j->c, j->v);
    char name[160];
    snprintf(name, sizeof name, "%s_on_%d", j->entry->name, j->v);
    aot_variant_args q = aot_variant_begin(e, j->a, name, false);
    em_val fn = e->fn;
    j->symbols = q.symbols;
    em_val weights = sn_aot_get(e, q.m, e->ptr, SN_AOT_WEIGHTS);
    em_val table = buffer_table(j, weights, q.state, q.args);
    em_val own = em_stack(e, SN_I8, sizeof(sn_threads)), n = worthwhile(j, q.threads),
           call = em_stack(e, SN_I8, sizeof(sn_call));
    em_val barrier = j->a->openmp ? new_barrier(e, n) : LLVMConstNull(e->ptr);
    sn_aot_put(e, own, offsetof(sn_threads, n), n);
    sn_aot_put(e, own, offsetof(sn_threads, run), named(e, j->a, "run"));
    sn_aot_put(e, own, offsetof(sn_threads, barrier), named(e, j->a, "barrier"));
    sn_aot_put(e, own, offsetof(sn_threads, state), barrier);
    /* the caller's pool works with all of its threads, or not at all; it gets its own pointer */
    em_val pool = sn_aot_get(e, q.m, e->ptr, SN_AOT_POOL);
    em_val pooled = em_and(e, LLVMBuildIsNotNull(e->b, pool, ""), em_cmp(e, EM_EQ, n, q.threads));
    em_val threads = em_select(e, pooled, pool, own);
    sn_aot_put(e, call, offsetof(sn_call, buffer), table);
    sn_aot_put(e, call, offsetof(sn_call, symbol), j->symbols);
    sn_aot_put(e, call, offsetof(sn_call, workspace), q.workspace);
    sn_aot_put(e, call, offsetof(sn_call, threads), threads);
    sn_aot_put(e, call, offsetof(sn_call, profile), LLVMConstNull(e->ptr));
    em_val none = LLVMConstNull(e->ptr);
    sn_aot_put(e, call, offsetof(sn_call, step), sums ? sums : none);
    sn_aot_put(e, call, offsetof(sn_call, host),
               sums ? sn_aot_get(e, q.m, e->ptr, SN_AOT_COMM) : none);
    em_ret(e, call_entry(j, "", e->i32, &e->ptr, &call, 1));
    return fn;
}

/* ---- the public functions of an entry ---- */

enum { PARAM_M, PARAM_STATE }; /* the number of the other parameters depends on the entry */

/* What is wrong if k does not hold. The bound of a model's caches is its context. */
static void print_range(const job *j, const sn_range_check *k, char *text, size_t size) {
    int64_t most = 0;
    if (k->kind != SN_RANGE_END || !j->a->o->context || !sn_dim_is_const(j->a->m, k->high, &most) ||
        most != j->a->o->context) {
        sn_range_print(k, NULL, text, size);
        return;
    }
    int n = sn_dim_print(j->a->m, k->low, text, size);
    if (n > 0 && (size_t)n < size)
        snprintf(text + n, size - (size_t)n, " exceeds %lld: the context holds %lld tokens",
                 (long long)most, (long long)most);
}

/* Stores the values of the module's symbolic dims: the entry's parameters from `first` on, 1 for the
 * others. Checks their bounds. */
static void take_dims(job *j, int first, em_var status) {
    em *e = j->e;
    sn_module *m = j->a->m;
    char text[SN_TEXT_IN];
    j->symbols = em_stack(e, SN_I64, sn_symbol_count(m) + 1);
    for (int s = 0; s < sn_symbol_count(m); s++) sn_aot_put(e, j->symbols, 8 * (int64_t)s, 1);
    for (int i = 0; i < j->entry->n_symbol; i++) {
        int s = j->entry->symbol[i];
        const sn_symbol *sym = sn_symbol_at(m, s);
        em_val v = em_param(e, first + i);
        sn_aot_put(e, j->symbols, 8 * (int64_t)s, v);
        em_val out = em_or(e, em_cmp(e, EM_LT, v, sym->lo), em_cmp(e, EM_GT, v, sym->hi));
        sn_aot_fail_if(
            e, status, out,
            sn_aot_code(j->a, SN_AOT_RANGE, "%s: %s%s is outside its range %lld..%lld",
                        j->entry->name, sym->name,
                        sn_module_text_in(m, SN_TEXT_DIM, j->entry->name, sym->name, text),
                        (long long)sym->lo, (long long)sym->hi));
    }
    const sn_compiled_entry *c = j->c;
    for (int i = 0; i < c->n_range; i++) {
        char text[240];
        const sn_range_check *k = &c->range[i];
        print_range(j, k, text, sizeof text);
        sn_aot_fail_if(e, status, sn_range_emit(e, k, j->symbols),
                       sn_aot_code(j->a, k->kind == SN_RANGE_COUNT ? SN_AOT_MEMORY : SN_AOT_RANGE,
                                   "%s: %s", j->entry->name, text));
    }
}

/* i1: the element v is outside of what l allows. */
static em_val is_outside(job *j, const sn_element_limit *l, sn_dtype t, em_val v) {
    em *e = j->e;
    em_val low = dim_value(j, l->low);
    if (t == SN_F32) {
        em_val most = em_const(e->f32, (double)FLT_MAX);
        return em_not(e, em_and(e, em_cmp(e, EM_GE, v, em_convert(e, low, SN_I64, t)),
                                em_cmp(e, EM_LE, v, most)));
    }
    em_val wide = em_idx(e, v), below = em_cmp(e, EM_LT, wide, low);
    return l->open ? below : em_or(e, below, em_cmp(e, EM_GT, wide, dim_value(j, l->high)));
}

static int outside_code(job *j, const sn_element_limit *l, bool number) {
    char low[128], high[128], text[SN_TEXT_IN];
    sn_dim_print(j->a->m, l->low, low, sizeof low);
    sn_dim_print(j->a->m, l->high, high, sizeof high);
    sn_module_text_in(j->a->m, SN_TEXT_INPUT, j->entry->name, l->input, text);
    return number
               ? sn_aot_code(j->a, SN_AOT_INDEX, "%s: '%s'%s is not a finite number of at least %s",
                             j->entry->name, l->input, text, low)
               : sn_aot_code(j->a, SN_AOT_INDEX, "%s: an element of '%s'%s is outside %s..%s",
                             j->entry->name, l->input, text, low, l->open ? "" : high);
}

/* Checks the elements of inputs that have limits. */
static void check_elements(job *j, int first_input, em_var status) {
    em *e = j->e;
    for (int i = 0; i < j->c->n_limit; i++) {
        const sn_element_limit *l = &j->c->limit[i];
        int k = find_binding(j->entry->input, j->entry->n_input, l->input);
        if (k < 0) continue;
        const sn_node *n = j->entry->input[k].node;
        sn_dtype t = (sn_dtype)n->dtype;
        if (t != SN_I32 && t != SN_I64 && (t != SN_F32 || n->rank)) continue;
        em_branch br = em_if(e, sn_aot_is_ok(e, status));
        em_val count = dim_value(j, sn_dim_product(j->a->m, n->rank, n->shape));
        em_var bad = em_let(e, em_i1(e, false));
        em_loop loop = em_for(e, 0, count, 1);
        em_val v = em_load(e, t, em_gep(e, em_param(e, first_input + k), t, loop.i), 1);
        em_set(e, bad, em_or(e, em_get(e, bad), is_outside(j, l, t, v)));
        em_end(e, &loop);
        sn_aot_fail_if(e, status, em_get(e, bad), outside_code(j, l, t == SN_F32));
        em_endif(e, &br);
    }
}

/* The most threads of a call, for which every workspace has room. */
static em_val max_threads(em *e, em_val m) {
    em_val n = em_load_raw(e, e->i16, em_gep_bytes(e, m, SN_AOT_MAX_THREADS), 2);
    return em_imax(e, LLVMBuildZExt(e->b, n, e->i64, ""), 1);
}

/* The number of threads of a call: of the pool, or the model's setting. */
static em_val thread_count(job *j, em_val m, em_var status) {
    em *e = j->e;
    em_var n = em_let(e, 1);
    em_branch ok = em_if(e, sn_aot_is_ok(e, status));
    em_val most = max_threads(e, m), pool = sn_aot_get(e, m, e->ptr, SN_AOT_POOL);
    em_branch br = em_if(e, LLVMBuildIsNotNull(e->b, pool, ""));
    em_val of_pool = sn_aot_get(e, pool, e->i64, offsetof(sn_threads, n));
    em_val bad = em_or(e, em_cmp(e, EM_LE, of_pool, 0), em_cmp(e, EM_GT, of_pool, most));
    sn_aot_fail_if(e, status, bad,
                   sn_aot_code(j->a, SN_AOT_ARGUMENT,
                               "m->pool has less than 1 thread, or more than %s_set_threads was "
                               "told: call it first, then ask for the workspace",
                               j->a->name));
    em_set(e, n, of_pool);
    em_else(e, &br);
    em_val want = sn_aot_get(e, m, e->i64, SN_AOT_THREADS);
    sn_aot_fail_if(e, status, em_cmp(e, EM_LT, want, 0),
                   sn_aot_code(j->a, SN_AOT_ARGUMENT, "m->threads is negative"));
    want = em_select(e, em_cmp(e, EM_EQ, want, 0), most, em_imin(e, want, most));
    em_set(e, n, j->a->openmp ? want : em_i64(e, 1));
    em_endif(e, &br);
    em_endif(e, &ok);
    return em_get(e, n);
}

static const sn_compiled_entry *compiled(const job *j, int v) {
    return sn_program_entry(j->a->variant[v].program, j->entry->name);
}

/* int64_t ENTRY_workspace(m, dims…): bytes, at least 64; or minus an error code. Enough for every
 * target and for up to max_threads threads, so that only the lengths must be those of the run. */
static void emit_workspace(job *j) {
    em *e = j->e;
    char name[160];
    em_type params[1 + SN_AOT_SYMBOLS] = {e->ptr};
    for (int i = 0; i < j->entry->n_symbol; i++) params[1 + i] = e->i64;
    snprintf(name, sizeof name, "%s_workspace", j->entry->name);
    sn_aot_function(e, j->a, name, e->i64, params, 1 + j->entry->n_symbol, true);
    em_val m = em_param(e, PARAM_M);
    em_var status = em_let(e, em_i32(e, 0)), bytes = em_let(e, em_i64(e, SN_AOT_ALIGN));
    sn_aot_check_pointer(e, j->a, status, m, false, name, "m");
    sn_aot_check_open(e, j->a, m, status);
    j->c = compiled(j, 0);
    take_dims(j, 1, status);
    thread_count(j, m, status);
    em_branch br = em_if(e, sn_aot_is_ok(e, status));
    em_val n = max_threads(e, m);
    for (j->v = 0; j->v < j->a->n_variant; j->v++) {
        j->c = compiled(j, j->v);
        em_type types[] = {e->ptr, e->i64};
        em_val args[] = {j->symbols, worthwhile(j, n)};
        em_val need = call_entry(j, "_workspace", e->i64, types, args, 2);
        em_set(e, bytes, em_imax(e, em_get(e, bytes), need));
    }
    em_else(e, &br);
    em_set(e, bytes, em_sub(e, 0, em_idx(e, em_get(e, status))));
    em_endif(e, &br);
    em_ret(e, em_get(e, bytes));
}

static const char *pointer_name(const sn_aot_entry *t, int i, int n_fixed, int first_arg) {
    static const char *const fixed[] = {"m", "state", "workspace"};
    int k = i - first_arg;
    if (i < n_fixed) return fixed[i + (i && !t->has_state)];
    return k < t->n_input ? t->input_name[k] : t->output_name[k - t->n_input];
}

/* A state is zeroed memory, which is new unless states have first values, or was written by this
 * artefact. */
static void check_state(job *j, em_val state, em_var status) {
    em *e = j->e;
    sn_aot *a = j->a;
    bool values = false;
    for (int i = 0; i < a->n_state; i++) values |= a->state[i].data != NULL;
    em_branch br = em_if(e, sn_aot_is_ok(e, status));
    em_val id = sn_aot_get(e, state, e->i64, 0), zeros = em_cmp(e, EM_EQ, id, 0),
           ours = em_cmp(e, EM_EQ, id, em_i64(e, (int64_t)a->hash));
    if (values)
        sn_aot_fail_if(e, status, zeros,
                       sn_aot_code(a, SN_AOT_STATE,
                                   "%s: the state was not initialised: call %s_state_init first",
                                   j->entry->name, a->name));
    sn_aot_fail_if(e, status, em_not(e, em_or(e, zeros, ours)),
                   sn_aot_code(a, SN_AOT_STATE,
                               "%s: the state belongs to another artefact, or its memory was not "
                               "initialised",
                               j->entry->name));
    em_endif(e, &br);
}

static void emit_entry(job *j, const em_val *variant) {
    em *e = j->e;
    const sn_aot_entry *t = j->entry;
    int n_fixed = 2 + t->has_state, first_arg = n_fixed + t->n_symbol,
        n_arg = t->n_input + t->n_output, n = first_arg + n_arg;
    em_type *params = sn_arena_alloc(j->a->m, sizeof *params * (size_t)n);
    for (int i = 0; i < n; i++) params[i] = i >= n_fixed && i < first_arg ? e->i64 : e->ptr;
    sn_aot_function(e, j->a, t->name, e->i32, params, n, true);
    em_val m = em_param(e, PARAM_M), workspace = em_param(e, n_fixed - 1),
           state = t->has_state ? em_param(e, PARAM_STATE) : LLVMConstNull(e->ptr);
    em_var status = em_let(e, em_i32(e, 0));
    for (int i = 0; i < n; i++)
        if (params[i] == e->ptr)
            sn_aot_check_pointer(e, j->a, status, em_param(e, i), i > 0 && i < n_fixed, t->name,
                                 pointer_name(t, i, n_fixed, first_arg));
    sn_aot_check_open(e, j->a, m, status);
    j->c = compiled(j, 0);
    take_dims(j, n_fixed, status);
    if (t->has_state) check_state(j, state, status);
    check_elements(j, first_arg, status);
    em_val threads = thread_count(j, m, status);
    em_branch br = em_if(e, sn_aot_is_ok(e, status));
    if (t->writes_state) sn_aot_put(e, state, 0, em_i64(e, (int64_t)j->a->hash));
    em_val args = em_stack(e, SN_I64, n_arg + 1);
    for (int i = 0; i < n_arg; i++) sn_aot_put(e, args, 8 * (int64_t)i, em_param(e, first_arg + i));
    em_val which = sn_aot_get(e, m, e->i32, SN_AOT_VARIANT);
    for (int v = 0; v < j->a->n_variant; v++) {
        em_branch mine = em_if(e, em_cmp(e, EM_EQ, which, em_i32(e, v + 1)));
        aot_variant_args pass = {.m = m,
                                 .state = state,
                                 .workspace = workspace,
                                 .symbols = j->symbols,
                                 .args = args,
                                 .threads = threads};
        em_set(e, status, aot_variant_call(e, variant[v], pass));
        em_endif(e, &mine);
    }
    em_endif(e, &br);
    em_ret(e, em_get(e, status));
}

void sn_aot_emit_entry(em *e, sn_aot *a, int i) {
    job j = {.e = e, .a = a, .entry = &a->entry[i]};
    em_val variant[SN_AOT_TARGETS];
    if (!named(e, a, "run")) emit_single(e, a);
    for (j.v = 0; j.v < a->n_variant; j.v++) {
        j.c = compiled(&j, j.v);
        variant[j.v] = emit_variant(&j);
    }
    emit_workspace(&j);
    emit_entry(&j, variant);
}
