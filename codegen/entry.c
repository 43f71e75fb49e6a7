/* entry.c: the generated function of an entry, the plan's steps as code.
 *
 *   SYMBOL(call)       for each run of native kernels: threads->run(threads, SYMBOL_part_N, call);
 *                      between runs: host primitives
 *   SYMBOL_part_N      every thread: sizes from the symbolic dims, slots of the workspace, then
 *                      kernel, barrier, kernel, ...
 *   SYMBOL_workspace   bytes for given symbolic dims and threads: the same expressions
 *
 * The workspace consists of slots, memory that the two halves of a kernel share, work counters of
 * steps with a dynamic schedule (one each, because a thread may be a step ahead), and scratch of
 * each thread: a kernel's, and for scans their locals and what the halves of their kernels share.
 *
 * In a scan a thread takes a part of the independent axes and calls the kernels of the body for each
 * element of the sequence, as the only thread. Pointers to what an iteration sees are variables.
 *
 * These functions run once a call, so LLVM does not optimise them: that would take a fifth of the
 * time of all code. What many calls use is in variables on the stack, because register allocation
 * takes long for values that live across many calls. */
#include "codegen/entry.h"
#include "codegen/entry_frame.h"
#include "codegen/emit/dims.h"
#include "passes/plan/collectives.h"
#include "passes/plan/product.h"
#include "passes/plan/scan.h"

#include <string.h>
#include <xxhash.h>

enum { ALIGN = 64, ROW_UNIT = 16 /* rows of an iteration; divides every limit of a loop */ };

bool sn_step_is_extern(const sn_step *s) {
    return sn_attr_get(s->node, SN_A_backend) || sn_step_is_collective(s);
}

bool sn_entry_code_make(sn_module *m, const sn_entry *e, const sn_budget *budget,
                        sn_entry_code *u) {
    *u = (sn_entry_code){.plan = sn_plan_make(m, e, budget)};
    if (!u->plan) return false;
    u->kernel = sn_arena_alloc(m, sizeof *u->kernel * (size_t)(u->plan->n_call + 1));
    for (int i = 0; i < u->plan->n_call; i++) {
        const sn_step *s = u->plan->call[i];
        if (!sn_kernel_describe(m, s, &u->kernel[i])) return false;
        u->n_barrier += s->barrier;
        /* the first iteration's stands for all */
        if (s->when == SN_IF_LATER || s->when == SN_IF_SINGLE || s->wait) continue;
        const sn_kernel_traits *kernel = u->kernel[i].traits;
        sn_dim n = sn_scan_iterations(m, s, NULL);
        u->work = sn_dim_add(m, u->work, sn_dim_mul(m, n, kernel->flops(m, s)));
        if (kernel->macs)
            u->products = sn_dim_add(m, u->products, sn_dim_mul(m, n, kernel->macs(m, s)));
    }
    u->table = sn_arena_alloc(m, sizeof *u->table * (size_t)(u->plan->n_buffer + 1));
    for (int i = 0; i < u->plan->n_buffer; i++)
        u->table[i] = u->plan->buffer[i].kind >= SN_BUF_TEMP ? -1 : u->n_table++;
    return true;
}

int64_t sn_entry_work_for_threads(const sn_entry_code *u) {
    return SN_FLOPS_PER_START + (int64_t)u->n_barrier * SN_FLOPS_PER_BARRIER;
}

/* ---- sizes ---- */

/* Bytes of the kernel of a call: for both halves, and of a thread; the number of work counters of calls before it.
 * They follow from its plan, so they are asked once, not in each part. */
typedef struct kernel_memory {
    int64_t shared;
    sn_dim scratch; /* 0: none */
    int counters;
} kernel_memory;

/* Where a thread is in a scan. */
typedef struct scan {
    const sn_step *step;
    em_val part[SN_SCAN_TILES]; /* number of the part on each independent axis */
    em_val length, segment;     /* elements; of a segment, NULL: there are none */
    em_val at, place;           /* the element's number (sn_index), and in its segment */
    em_val until;               /* in a loop over a segment: the number of the last element */
} scan;

typedef struct part {
    em *e;
    const sn_entry_code *u;
    const kernel_memory *memory; /* of each call; after them the number of all counters */
    sn_module *m;
    em_val symbols; /* pointer to the symbolic dims' values */
    sn_dim *known;  /* dims evaluated so far in this function */
    em_var *value;
    int n_known, cap_known;
    em_var *slot; /* pointers to the slots of the workspace */
    em_var shared_at, counters_at;
    em_val slots_end, scratch_bytes;
    em_var *local;         /* offsets of slots of locals in a thread's scratch */
    em_var local_shared;   /* ... and of what the halves of a scan's kernels share */
    em_var thread;         /* pointer to this thread's scratch */
    em_var *window, *base; /* by buffer: pointers of windows; and for index 0 */
    scan *scan;            /* NULL: outside */
    em_val row;            /* in a loop over rows: the first one of this iteration; NULL: outside */
} part;

static void know(part *p, sn_dim d, em_val v) {
    if (p->n_known == p->cap_known) {
        int cap = p->cap_known ? 2 * p->cap_known : 64;
        sn_dim *k = sn_arena_alloc(p->m, sizeof *k * (size_t)cap);
        em_var *list = sn_arena_alloc(p->m, sizeof *list * (size_t)cap);
        if (p->n_known) {
            memcpy(k, p->known, sizeof *k * (size_t)p->n_known);
            memcpy(list, p->value, sizeof *list * (size_t)p->n_known);
        }
        p->known = k;
        p->value = list;
        p->cap_known = cap;
    }
    p->known[p->n_known] = d;
    p->value[p->n_known++] = em_let(p->e, v);
}

static em_val dim_value(part *p, sn_dim d) {
    em *e = p->e;
    int64_t c;
    if (sn_dim_is_const(p->m, d, &c)) return em_i64(e, c);
    for (int i = p->n_known - 1; i >= 0; i--) /* the latest value: see begin_rows */
        if (p->known[i] == d) return em_get(e, p->value[i]);
    em_val v = sn_dim_emit(e, p->m, d, p->symbols, NULL);
    know(p, d, v);
    return v;
}

static em_val round_up(em *e, em_val n) {
    return em_and(e, em_add(e, n, ALIGN - 1), -(int64_t)ALIGN);
}

static em_val is_more(part *p, sn_dim rows, int64_t than) {
    return em_cmp(p->e, EM_GT, dim_value(p, rows), than);
}

/* sn_scan_segment */
static em_val segment_of(part *p, sn_dim length) {
    em *e = p->e;
    em_val root = em_sqrt(e, em_convert(e, dim_value(p, length), SN_I64, SN_F64));
    return em_add(e, em_convert(e, root, SN_F64, SN_I64), 1);
}

static bool same_size(const sn_buffer *a, const sn_buffer *b) {
    return a->count == b->count && a->segments == b->segments && a->max_count == b->max_count &&
           a->rows == b->rows && a->row_limit == b->row_limit &&
           sn_dtype_size(a->dtype) == sn_dtype_size(b->dtype);
}

/* Whether an earlier buffer in the slot of buffer i is as large: equal layers have equal buffers. */
static bool is_counted(const sn_plan *plan, int i) {
    for (int j = 0; j < i; j++) {
        const sn_buffer *b = &plan->buffer[j];
        if (b->kind == plan->buffer[i].kind && b->slot == plan->buffer[i].slot &&
            same_size(b, &plan->buffer[i]))
            return true;
    }
    return false;
}

static em_val slot_bytes(part *p, sn_buffer_kind kind, int slot) {
    em *e = p->e;
    const sn_plan *plan = p->u->plan;
    em_val size = em_i64(e, 0);
    for (int i = 0; i < plan->n_buffer; i++) {
        const sn_buffer *b = &plan->buffer[i];
        if (b->kind != kind || b->slot != slot || is_counted(plan, i)) continue;
        em_val n = dim_value(p, b->count);
        if (b->segments) n = em_mul(e, n, segment_of(p, b->segments));
        if (b->max_count) n = em_imin(e, n, dim_value(p, b->max_count));
        if (b->rows) n = em_select(e, is_more(p, b->rows, b->row_limit), n, 0);
        size = em_imax(e, size, em_mul(e, n, (int64_t)sn_dtype_size(b->dtype)));
    }
    return size;
}

/* Calls in a loop have no work counter, because it would have to be cleared in each iteration. */
static kernel_memory *memory_of_kernels(em *e, const sn_entry_code *u) {
    int n = u->plan->n_call;
    kernel_memory *list = sn_arena_alloc(u->plan->m, sizeof *list * (size_t)(n + 1));
    for (int i = 0; i < n; i++) {
        const sn_kernel *k = &u->kernel[i];
        list[i + 1].counters = list[i].counters;
        if (sn_step_is_extern(k->step)) continue;
        list[i + 1].counters += k->family->dynamic && !k->step->around;
        list[i].shared = sn_kernel_shared(k, e->target);
        if (k->family->scratch) list[i].scratch = k->family->scratch(k, e->target);
    }
    return list;
}

/* Bytes of a thread's scratch. */
static em_val scratch_bytes(part *p) {
    em *e = p->e;
    const sn_plan *plan = p->u->plan;
    sn_dim *seen = sn_arena_alloc(p->m, sizeof *seen * (size_t)(plan->n_call + 1));
    em_val most = em_i64(e, 0);
    for (int i = 0, n = 0; i < plan->n_call; i++) {
        sn_dim bytes = p->memory[i].scratch;
        int j = 0;
        if (!bytes) continue;
        while (j < n && seen[j] != bytes) j++;
        if (j < n) continue;
        seen[n++] = bytes;
        most = em_imax(e, most, dim_value(p, bytes));
    }
    return most;
}

static em_var place(em *e, em_val workspace, em_val offset) {
    return workspace ? em_let(e, em_gep_bytes(e, workspace, offset)) : (em_var){0};
}

/* Computes pointers to slots (a slot is as large as its largest tenant) and the size of a thread's
 * scratch. workspace: NULL for the sizes alone. */
static void lay_out_workspace(part *p, em_val workspace) {
    em *e = p->e;
    const sn_plan *plan = p->u->plan;
    p->slot = sn_arena_alloc(p->m, sizeof *p->slot * (size_t)(plan->n_slot + 1));
    em_val end = em_i64(e, 0);
    for (int s = 0; s < plan->n_slot; s++) {
        p->slot[s] = place(e, workspace, end);
        end = em_add(e, em_add(e, end, round_up(e, slot_bytes(p, SN_BUF_TEMP, s))), SN_SLOT_GAP);
    }
    int64_t shared[2] = {0, 0}; /* outside of scans, and in them */
    for (int i = 0; i < plan->n_call; i++) {
        int64_t bytes = p->memory[i].shared;
        bool in_scan = sn_step_within(plan->call[i], SN_STEP_SCAN) != NULL;
        shared[in_scan] = bytes > shared[in_scan] ? bytes : shared[in_scan];
    }
    p->shared_at = place(e, workspace, end);
    end = em_add(e, end, round_up(e, em_i64(e, shared[0])));
    p->counters_at = place(e, workspace, end);
    p->slots_end = em_add(e, end, p->memory[plan->n_call].counters * ALIGN);
    /* threads never share a line */
    em_val own = em_add(e, round_up(e, scratch_bytes(p)), ALIGN);
    p->local_shared = em_let(e, own);
    own = em_add(e, own, round_up(e, em_i64(e, shared[1])));
    p->local = sn_arena_alloc(p->m, sizeof *p->local * (size_t)(plan->n_local + 1));
    for (int s = 0; s < plan->n_local; s++) {
        p->local[s] = em_let(e, own);
        own = em_add(e, own, round_up(e, slot_bytes(p, SN_BUF_LOCAL, s)));
    }
    p->scratch_bytes = own;
}

/* ---- calls ---- */

static em_val field(part *p, em_val call, size_t offset) {
    return em_load_raw(p->e, p->e->ptr, em_gep_bytes(p->e, call, (int64_t)offset), 8);
}

static em_val pointer_of(part *p, const sn_view *v, em_val table) {
    em *e = p->e;
    const sn_buffer *b = &p->u->plan->buffer[v->buffer];
    em_val base;
    if (b->kind == SN_BUF_WINDOW)
        base = em_get(e, p->window[v->buffer]);
    else if (b->kind == SN_BUF_LOCAL)
        base = em_gep_bytes(e, em_get(e, p->thread), em_get(e, p->local[b->slot]));
    else if (b->kind == SN_BUF_TEMP)
        base = em_get(e, p->slot[b->slot]);
    else
        base = em_load_raw(e, e->ptr, em_gep(e, table, SN_I64, p->u->table[v->buffer]), 8);
    if (v->offset) base = em_gep(e, base, v->dtype, dim_value(p, v->offset));
    if (!p->row || !v->row_stride) return base;
    return em_gep(e, base, v->dtype, em_mul(e, p->row, dim_value(p, v->row_stride)));
}

/* The work counter of call i, or NULL. */
static em_val work_counter(part *p, int i) {
    em *e = p->e;
    int before = p->memory[i].counters;
    if (p->memory[i + 1].counters == before) return LLVMConstNull(e->ptr);
    return em_gep_bytes(e, em_get(e, p->counters_at), (int64_t)before * ALIGN);
}

/* Fills the argument arrays of call i on the stack. */
static void set_arguments(part *p, int i, em_val table, em_val bufs, em_val dims) {
    em *e = p->e;
    const sn_kernel *k = &p->u->kernel[i];
    const sn_step *s = k->step;
    for (int j = 0; j < s->n_in + s->n_out; j++) {
        const sn_view *v = sn_view_of(s, j);
        em_store_raw(e, pointer_of(p, v, table), em_gep(e, bufs, SN_I64, j), 8);
    }
    em_val more = p->scan ? em_gep_bytes(e, em_get(e, p->thread), em_get(e, p->local_shared))
                          : em_get(e, p->shared_at);
    if (k->family->dynamic) more = work_counter(p, i);
    em_store_raw(e, more, em_gep(e, bufs, SN_I64, s->n_in + s->n_out), 8);
    for (int j = 0; j < k->n_dim; j++)
        em_store_raw(e, dim_value(p, k->dim[j]), em_gep(e, dims, SN_I64, j), 8);
}

static void begin(part *p, em *e, const sn_entry_code *u, const kernel_memory *memory) {
    *p = (part){.e = e, .u = u, .memory = memory, .m = u->plan->m};
}

/* Values that a thread needs for its kernel calls. */
typedef struct walk {
    part p;
    const sn_frame_calls *h;
    em_var table;
    em_val frame, bufs, dims; /* on the stack */
    em_val all_rows;          /* of the loop; the dim is the number of rows of an iteration */
    bool shared_read;         /* the shared memory of kernels was read since the last barrier */
    bool begun;               /* a call may have run */
} walk;

static void wait_for_all(walk *w) {
    entry_wait_call(w->p.e, w->h->wait, (entry_wait_args){.frame = w->frame});
}

static void mark(walk *w, int step, int end) {
    em *e = w->p.e;
    entry_mark_call(
        e, w->h->mark,
        (entry_mark_args){.frame = w->frame, .step = em_i64(e, step), .end = em_i64(e, end)});
}

static em_val kernel_function(em *e, const char *name, const char *half) {
    char symbol[160];
    if (snprintf(symbol, sizeof symbol, "%s%s", name, half) >= (int)sizeof symbol)
        sn_fail(&e->err, SN_ERR_INTERNAL, "the name of kernel %s is too long", name);
    return em_extern(e, symbol, e->tvoid, (em_type[]){e->ptr, e->ptr, e->ptr, e->i64, e->i64}, 5);
}

static void call_kernel(walk *w, const sn_step *s) {
    em *e = w->p.e;
    const int i = s->first;
    const sn_kernel *k = &w->p.u->kernel[i];
    bool halves = w->p.memory[i].shared > 0;
    em_val kernel = kernel_function(e, k->name, "");
    em_val finish = halves ? kernel_function(e, k->name, "_finish") : LLVMConstNull(e->ptr);
    set_arguments(&w->p, i, em_get(e, w->table), w->bufs, w->dims);
    if (w->p.scan) { /* as the only thread */
        em_val args[] = {w->bufs, w->dims, em_get(e, w->p.thread), em_i64(e, 0), em_i64(e, 1)};
        em_call(e, kernel, args, 5);
        if (halves) em_call(e, finish, args, 5);
        return;
    }
    entry_run_call(
        e, w->h->run,
        (entry_run_args){
            .frame = w->frame, .step = em_i64(e, i), .kernel = kernel, .finish = finish});
    w->shared_read |= halves;
}

static void walk_steps(walk *w, const sn_step *loop);

/* Begins a loop over rows, in as few iterations as possible, of about equal length. Inside, the dim
 * is the number of rows of an iteration. */
static em_loop begin_rows(walk *w, const sn_step *l) {
    em *e = w->p.e;
    em_val all = dim_value(&w->p, l->rows);
    em_val least = em_imax(e, all, 1), iterations = em_ceil_div(e, least, l->block_rows);
    em_val each = em_div(e, em_add(e, least, em_sub(e, iterations, 1)), iterations);
    each = em_mul(e, em_ceil_div(e, each, ROW_UNIT), ROW_UNIT);
    em_loop loop = em_for(e, 0, least, each);
    w->p.row = loop.i;
    w->all_rows = all;
    know(&w->p, l->rows, em_imin(e, em_sub(e, all, loop.i), each));
    return loop;
}

static void walk_rows(walk *w, const sn_step *l) {
    int known = w->p.n_known;
    em_loop rows = begin_rows(w, l);
    w->begun = w->shared_read = true; /* possibly by the iteration before */
    walk_steps(w, l);
    em_end(w->p.e, &rows);
    w->p.row = NULL;
    w->p.n_known = known;
}

/* ---- scans ---- */

/* Number i of the elements, counted from the last one if `backwards`. */
static em_val counted(const walk *w, bool backwards, em_val i) {
    em *e = w->p.e;
    return backwards ? em_sub(e, em_sub(e, w->p.scan->length, 1), i) : i;
}

/* Points the windows at what element number `at` (sn_index) reads and writes. */
static void go_to(walk *w, em_val at) {
    em *e = w->p.e;
    scan *c = w->p.scan;
    const sn_scan_loop *l = c->step->scan;
    em_val odd = em_and(e, counted(w, l->recomputes, at), 1);
    c->at = at;
    c->place = c->segment ? em_rem(e, at, c->segment) : NULL;
    const em_val index[SN_INDEX_COUNT] = {
        [SN_BY_ELEMENT] = counted(w, l->reverse != l->recomputes, at),
        [SN_BY_SEGMENT] = c->segment ? em_div(e, at, c->segment) : NULL,
        [SN_BY_PLACE] = c->place,
        [SN_BY_PARITY] = odd,
        [SN_BY_NEXT_PARITY] = em_sub(e, 1, odd)};
    for (int i = 0; i < l->n_window; i++) {
        const sn_window *v = &l->window[i];
        if (v->index == SN_BY_PART) continue;
        em_val by = em_mul(e, index[v->index], dim_value(&w->p, v->step));
        em_set(
            e, w->p.window[v->buffer],
            em_gep(e, em_get(e, w->p.base[v->buffer]), w->p.u->plan->buffer[v->buffer].dtype, by));
    }
}

/* Points the windows at where they are in the thread's part: those of carries at where these begin. */
static void open_windows(walk *w) {
    em *e = w->p.e;
    const scan *c = w->p.scan;
    const sn_step *s = c->step;
    for (int i = 0; i < s->scan->n_window; i++) {
        const sn_window *v = &s->scan->window[i];
        sn_dtype type = w->p.u->plan->buffer[v->buffer].dtype;
        const sn_view local = {.buffer = v->local, .dtype = type};
        const sn_view *of = v->operand < 0 ? &local : sn_view_of(s, v->operand);
        em_val at = pointer_of(&w->p, of, em_get(e, w->table));
        for (int k = 0; k < s->scan->n_tile; k++)
            if (v->tile_step[k])
                at = em_gep(e, at, type, em_mul(e, c->part[k], dim_value(&w->p, v->tile_step[k])));
        em_set(e, w->p.base[v->buffer], at);
        em_set(e, w->p.window[v->buffer], at);
    }
}

/* This thread's parts; a scan in another one has one. */
static void walk_scan(walk *w, const sn_step *s) {
    em *e = w->p.e;
    scan c = {.step = s}, *outer = w->p.scan;
    const sn_scan_loop *l = s->scan;
    int known, first = sn_scan_elements(s)->first;
    em_val parts = em_i64(e, 1), begin = em_zero(e->i64);
    for (int k = 0; k < l->n_tile; k++) parts = em_mul(e, parts, dim_value(&w->p, l->parts[k]));
    known = w->p.n_known;
    if (!outer) mark(w, first, 0);
    w->p.scan = &c;
    em_loop part = em_for(e, outer ? begin : sn_frame_word(e, w->frame, SN_FRAME_TID), parts,
                          outer ? parts : sn_frame_word(e, w->frame, SN_FRAME_N_THREADS));
    em_val rest = part.i;
    for (int k = l->n_tile - 1; k >= 0; k--) {
        em_val n = dim_value(&w->p, l->parts[k]);
        c.part[k] = em_rem(e, rest, n);
        rest = em_div(e, rest, n);
    }
    c.length = dim_value(&w->p, l->length);
    c.segment = l->segments ? segment_of(&w->p, l->length) : NULL;
    open_windows(w);
    walk_steps(w, s);
    em_end(e, &part);
    w->p.scan = outer;
    if (!outer) mark(w, first, 1);
    w->p.n_known = known;
}

static void walk_elements(walk *w, const sn_step *s) {
    em *e = w->p.e;
    int known = w->p.n_known; /* values computed in the loop are known only there */
    const scan *c = w->p.scan;
    em_loop i = em_for(e, 0, c->length, 1);
    go_to(w, counted(w, c->step->scan->recomputes, i.i));
    walk_steps(w, s);
    em_end(e, &i);
    w->p.n_known = known;
}

/* Ends where it is: at element `at`. */
static void walk_segment(walk *w, const sn_step *s) {
    em *e = w->p.e;
    scan *c = w->p.scan, here = *c;
    int known = w->p.n_known;
    c->until = here.at;
    em_loop i = em_for(e, em_sub(e, here.at, here.place), em_add(e, here.at, 1), 1);
    go_to(w, i.i);
    walk_steps(w, s);
    em_end(e, &i);
    *c = here;
    w->p.n_known = known;
}

/* ---- steps ---- */

/* Whether step s runs; outside of a loop, or in this iteration. */
static em_val runs_now(walk *w, const sn_step *s) {
    em *e = w->p.e;
    const scan *c = w->p.scan;
    switch (s->when) {
    case SN_IF_SEGMENT_BEGINS:
        return em_cmp(e, EM_EQ, c->place, 0);
    case SN_IF_SEGMENT_ENDS:
        return em_or(e, em_cmp(e, EM_EQ, c->place, em_sub(e, c->segment, 1)),
                     em_cmp(e, EM_EQ, c->at, em_sub(e, c->length, 1)));
    case SN_IF_SEGMENT_GOES_ON:
        return em_cmp(e, EM_LT, c->at, c->until);
    case SN_IF_SEVERAL:
        return is_more(&w->p, s->rows, s->block_rows);
    case SN_IF_SINGLE:
        return em_not(e, is_more(&w->p, s->rows, s->block_rows));
    default:;
        em_val now = em_cmp(e, s->when == SN_IF_FIRST ? EM_EQ : EM_NE, w->p.row, 0);
        return s->rows ? em_and(e, now, em_cmp(e, EM_GT, w->all_rows, s->block_rows)) : now;
    }
}

/* Waits for all threads, if what the step begins with must. */
static void wait_before(walk *w, const sn_step *s) {
    if (w->p.scan || s->kind == SN_STEP_ROWS) return; /* in a scan a thread works alone */
    bool shared = s->kind == SN_STEP_CALL && w->p.memory[s->first].shared > 0;
    if ((w->p.u->plan->call[s->first]->barrier && w->begun) || (shared && w->shared_read)) {
        wait_for_all(w);
        w->shared_read = false;
    }
    w->begun = true;
}

static void walk_step(walk *w, const sn_step *s) {
    static void (*const of_kind[])(walk *, const sn_step *) = {
        [SN_STEP_CALL] = call_kernel,     [SN_STEP_ROWS] = walk_rows,
        [SN_STEP_SCAN] = walk_scan,       [SN_STEP_ELEMENTS] = walk_elements,
        [SN_STEP_SEGMENT] = walk_segment,
    };
    wait_before(w, s);
    if (s->when == SN_ALWAYS) {
        of_kind[s->kind](w, s);
        return;
    }
    em_val now = runs_now(w, s);
    int known = w->p.n_known; /* values computed in the branch are known only there */
    em_branch br = em_if(w->p.e, now);
    of_kind[s->kind](w, s);
    em_endif(w->p.e, &br);
    w->p.n_known = known;
}

static void walk_steps(walk *w, const sn_step *loop) {
    for (int i = 0; i < loop->n_inner; i++) walk_step(w, &loop->inner[i]);
}

/* ---- functions ---- */

static void make_windows(part *p) {
    const sn_plan *plan = p->u->plan;
    p->window = sn_arena_alloc(p->m, sizeof *p->window * 2 * (size_t)(plan->n_buffer + 1));
    p->base = p->window + plan->n_buffer;
    for (int i = 0; i < plan->n_buffer; i++)
        if (plan->buffer[i].kind == SN_BUF_WINDOW) {
            p->window[i] = em_let(p->e, LLVMConstNull(p->e->ptr));
            p->base[i] = em_let(p->e, LLVMConstNull(p->e->ptr));
        }
}

/* The functions of this file, as runtime/threads.h calls them. */
#define PART_PARAMS(P) P(ptr, call) P(i64, tid) P(i64, n_threads)
EM_SIGNATURE(entry_part, PART_PARAMS)
#define ENTRY_PARAMS(P) P(ptr, call)
EM_SIGNATURE_RETURNING(i32, entry_call, ENTRY_PARAMS)
#define WORKSPACE_PARAMS(P) P(ptr, symbols) P(i64, n_threads)
EM_SIGNATURE_RETURNING(i64, entry_workspace, WORKSPACE_PARAMS)

static em_val make_frame(part *p, em_val call, em_val tid, em_val n_threads) {
    em *e = p->e;
    em_val threads = field(p, call, offsetof(sn_call, threads));
    em_val words[] = {[SN_FRAME_THREADS] = threads,
                      [SN_FRAME_BARRIER] = field(p, threads, offsetof(sn_threads, barrier)),
                      [SN_FRAME_PROFILE] = field(p, call, offsetof(sn_call, profile)),
                      [SN_FRAME_SCRATCH] = em_get(e, p->thread),
                      [SN_FRAME_TID] = tid,
                      [SN_FRAME_N_THREADS] = n_threads};
    em_val frame =
        em_stack(e, SN_I64,
                 SN_FRAME_BUFS + sn_frame_arguments(p->u, true) + sn_frame_arguments(p->u, false));
    for (int i = 0; i < SN_FRAME_BUFS; i++) em_store_raw(e, words[i], sn_frame_at(e, frame, i), 8);
    return frame;
}

/* The function with which each thread executes steps [first, last). */
static em_val emit_part(em *e, const sn_entry_code *u, const kernel_memory *memory,
                        const sn_frame_calls *h, int first, int last) {
    char name[96];
    snprintf(name, sizeof name, "%s_part_%d", u->symbol, u->plan->step[first].first);
    em_val fn = entry_part_function(e, name);
    em_no_optimise(e, fn);
    entry_part_args q = entry_part_params(e);
    walk w = {.h = h};
    begin(&w.p, e, u, memory);
    w.p.symbols = field(&w.p, q.call, offsetof(sn_call, symbol));
    em_val workspace = field(&w.p, q.call, offsetof(sn_call, workspace));
    lay_out_workspace(&w.p, workspace);
    em_val fp = em_fp_enter(e);
    em_val scratch = em_add(e, w.p.slots_end, em_mul(e, q.tid, w.p.scratch_bytes));
    w.table = em_let(e, field(&w.p, q.call, offsetof(sn_call, buffer)));
    w.p.thread = em_let(e, em_gep_bytes(e, workspace, scratch));
    make_windows(&w.p);
    w.frame = make_frame(&w.p, q.call, q.tid, q.n_threads);
    w.bufs = sn_frame_at(e, w.frame, SN_FRAME_BUFS);
    w.dims = sn_frame_dims(e, u, w.frame);
    for (int i = first; i < last; i++) walk_step(&w, &u->plan->step[i]);
    em_fp_leave(e, fp);
    em_ret(e, NULL);
    return fn;
}

static void emit_workspace(em *e, const sn_entry_code *u, const kernel_memory *memory) {
    char name[96];
    snprintf(name, sizeof name, "%s_workspace", u->symbol);
    em_val fn = entry_workspace_function(e, name);
    LLVMSetLinkage(fn, LLVMExternalLinkage);
    em_no_optimise(e, fn);
    entry_workspace_args q = entry_workspace_params(e);
    part p;
    begin(&p, e, u, memory);
    p.symbols = q.symbols;
    lay_out_workspace(&p, NULL);
    em_ret(e, em_add(e, p.slots_end, em_mul(e, q.n_threads, p.scratch_bytes)));
}

/* Calls the host for extern step `number`, with the arguments that the kernel of call i would
 * get. */
static em_val emit_extern(part *p, int i, int number, em_val call, em_val bufs, em_val dims) {
    em *e = p->e;
    em_type params[] = {e->ptr, e->i64, e->ptr, e->ptr};
    em_val fn = field(p, call, offsetof(sn_call, step));
    em_val table = field(p, call, offsetof(sn_call, buffer));
    set_arguments(p, i, table, bufs, dims);
    em_val host = field(p, call, offsetof(sn_call, host));
    return LLVMBuildCall2(e->b, LLVMFunctionType(e->i32, params, 4, 0), fn,
                          (em_val[]){host, em_i64(e, number), bufs, dims}, 4, "");
}

/* Returns at once if a collective has failed: what follows needs its result. */
static void leave_if_failed(em *e, em_val status) {
    LLVMBasicBlockRef out = LLVMAppendBasicBlockInContext(e->ctx, e->fn, "failed"),
                      on = LLVMAppendBasicBlockInContext(e->ctx, e->fn, "on");
    LLVMBuildCondBr(e->b, em_cmp(e, EM_NE, status, em_i32(e, 0)), out, on);
    LLVMPositionBuilderAtEnd(e->b, out);
    LLVMBuildRet(e->b, status);
    LLVMPositionBuilderAtEnd(e->b, on);
}

static void clear_work_counters(part *p, int n) {
    em *e = p->e;
    em_val at = em_get(e, p->counters_at);
    em_loop l = em_for(e, 0, (int64_t)n * ALIGN, ALIGN);
    for (int half = 0; half < 2; half++)
        em_store_raw(e, 0, em_gep_bytes(e, at, em_add(e, l.i, 8 * half)), 8);
    em_end(e, &l);
}

void sn_entry_code_emit(em *e, const sn_entry_code *u) {
    int n = u->plan->n_step;
    em_val *part_fn = sn_arena_alloc(u->plan->m, sizeof *part_fn * (size_t)(n + 1));
    sn_frame_calls h = sn_frame_calls_emit(e, u);
    const kernel_memory *memory = memory_of_kernels(e, u);
    for (int i = 0; i < n;) { /* runs of native kernels */
        int last = i, end = u->checked ? i + 1 : n;
        while (last < end && !sn_step_is_extern(&u->plan->step[last])) last++;
        if (last > i) part_fn[i] = emit_part(e, u, memory, &h, i, last);
        i = last > i ? last : i + 1;
    }
    emit_workspace(e, u, memory);
    em_val fn = entry_call_function(e, u->symbol);
    LLVMSetLinkage(fn, LLVMExternalLinkage);
    em_no_optimise(e, fn);
    part p;
    begin(&p, e, u, memory);
    em_val call = entry_call_params(e).call;
    p.symbols = field(&p, call, offsetof(sn_call, symbol));
    em_val threads = field(&p, call, offsetof(sn_call, threads));
    em_val run = field(&p, threads, offsetof(sn_threads, run));
    em_type run_params[] = {e->ptr, e->ptr, e->ptr};
    LLVMTypeRef run_type = LLVMFunctionType(e->tvoid, run_params, 3, 0);
    bool any_extern = u->checked;
    for (int i = 0; i < n; i++) any_extern |= sn_step_is_extern(&u->plan->step[i]);
    int n_counters = memory[u->plan->n_call].counters;
    if (any_extern || n_counters)
        lay_out_workspace(&p, field(&p, call, offsetof(sn_call, workspace)));
    if (n_counters) clear_work_counters(&p, n_counters);
    em_val bufs = any_extern ? em_stack(e, SN_I64, sn_frame_arguments(u, true)) : NULL,
           dims = any_extern ? em_stack(e, SN_I64, sn_frame_arguments(u, false)) : NULL;
    em_val status = em_i32(e, 0);
    for (int i = 0; i < n; i++) {
        const sn_step *s = &u->plan->step[i];
        const int number = s->first, check = number + u->plan->n_call;
        if (part_fn[i])
            LLVMBuildCall2(e->b, run_type, run, (em_val[]){threads, part_fn[i], call}, 3, "");
        else if (sn_step_is_extern(s))
            status = em_or(e, status, emit_extern(&p, number, number, call, bufs, dims));
        if (sn_step_is_collective(s)) leave_if_failed(e, status);
        if (u->checked && s->kind == SN_STEP_CALL)
            status = em_or(e, status, emit_extern(&p, number, check, call, bufs, dims));
    }
    em_ret(e, status);
}
