/* memory.c: assigns temporaries to slots, and places barriers.
 *
 * Slots are coloured at compile time. A slot's size is the maximum over its tenants once the
 * symbolic dims are known, so any tenants can share one. The assignment uses the sizes at the dims'
 * upper bounds: best fit, so that tenants have similar sizes. */
#include "passes/plan/memory.h"
#include "passes/plan/row_blocks.h"
#include "passes/plan/scan.h"

#include <stdlib.h>
#include <string.h>

/* Numbers the calls of steps from `at` on, and returns the number after the last; lists them, if there is a list. */
static int number_calls(sn_plan *p, sn_step *s, int n, const sn_step *around, int at) {
    for (int i = 0; i < n; i++) {
        s[i].around = around;
        s[i].first = at;
        if (s[i].kind != SN_STEP_CALL)
            at = number_calls(p, s[i].inner, s[i].n_inner, &s[i], at);
        else if (p->call)
            p->call[at++] = &s[i];
        else
            at++;
        s[i].last = at;
    }
    return at;
}

/* The step uses the buffer: in a loop from its first to its last call, because the next iteration does, too. */
static void touch(sn_buffer *b, const sn_step *s) {
    if (b->first < 0 || b->first > s->first) b->first = s->first;
    if (b->last < s->last - 1) b->last = s->last - 1;
}

static void touch_all(sn_plan *p, const sn_step *s) {
    for (int i = 0; i < s->n_in + s->n_out; i++) touch(&p->buffer[sn_view_of(s, i)->buffer], s);
    for (int i = 0; s->scan && i < s->scan->n_window; i++)
        if (s->scan->window[i].operand < 0) touch(&p->buffer[s->scan->window[i].local], s);
    for (int i = 0; s->kind != SN_STEP_ROWS && i < s->n_inner; i++) touch_all(p, &s->inner[i]);
}

static void find_lifetimes(sn_plan *p) {
    p->n_call = number_calls(p, p->step, p->n_step, NULL, 0);
    for (int i = 0; i < p->n_buffer; i++) p->buffer[i].first = p->buffer[i].last = -1;
    for (int i = 0; i < p->n_step; i++) touch_all(p, &p->step[i]);
}

/* ---- sizes ---- */

int64_t sn_buffer_elements(sn_module *m, const sn_buffer *b, const int64_t *symbol) {
    int64_t n = sn_dim_eval(m, b->count, symbol), max_count = sn_dim_eval(m, b->max_count, symbol);
    if (b->rows && sn_dim_eval(m, b->rows, symbol) <= b->row_limit) return 0;
    if (b->segments) n *= sn_scan_segment(sn_dim_eval(m, b->segments, symbol));
    return b->max_count && max_count < n ? max_count : n;
}

int64_t sn_buffer_bytes(sn_module *m, const sn_buffer *b, const int64_t *symbol) {
    return sn_buffer_elements(m, b, symbol) * (int64_t)sn_dtype_size(b->dtype);
}

void sn_plan_offsets(const sn_plan *p, const int64_t *symbol, int64_t *offset) {
    memset(offset, 0, sizeof *offset * (size_t)(p->n_slot + 1));
    for (int i = 0; i < p->n_buffer; i++) {
        const sn_buffer *b = &p->buffer[i];
        if (b->kind != SN_BUF_TEMP || b->first < 0) continue;
        int64_t need = sn_buffer_bytes(p->m, b, symbol), *size = &offset[b->slot + 1];
        if (need > *size) *size = need;
    }
    for (int i = 0; i < p->n_slot; i++)
        offset[i + 1] = offset[i] + ((offset[i + 1] + 63) & ~(int64_t)63) + SN_SLOT_GAP;
}

/* ---- slots ---- */

typedef struct slot {
    int64_t size; /* size of the largest tenant at the upper bounds, in bytes */
    int busy_until;
} slot;

static int64_t max_bytes(const sn_plan *p, const sn_buffer *b) {
    int64_t n = sn_dim_hi(p->m, b->count), size = (int64_t)sn_dtype_size(b->dtype);
    if (b->max_count && sn_dim_hi(p->m, b->max_count) < n) n = sn_dim_hi(p->m, b->max_count);
    if (b->segments) size *= sn_scan_segment(sn_dim_hi(p->m, b->segments));
    return n > INT64_MAX / size ? INT64_MAX : n * size;
}

static int pick_slot(const slot *s, int n, int64_t need, int step) {
    int best = -1;
    for (int i = 0; i < n; i++) {
        if (s[i].busy_until >= step) continue;
        if (best < 0) {
            best = i;
            continue;
        }
        bool fits = s[i].size >= need, best_fits = s[best].size >= need;
        if (fits != best_fits ? fits : (fits ? s[i].size < s[best].size : s[i].size > s[best].size))
            best = i;
    }
    return best;
}

/* By time: a slot is reused as soon as it is free, while it is in the cache. */
static void assign_by_time(sn_plan *p, sn_buffer_kind kind, int *n_slot) {
    slot *s = sn_arena_alloc(p->m, sizeof *s * (size_t)(p->n_buffer + 1));
    for (int step = 0; step < p->n_call; step++)
        for (int i = 0; i < p->n_buffer; i++) {
            sn_buffer *b = &p->buffer[i];
            if (b->kind != kind || b->first != step) continue;
            int64_t need = max_bytes(p, b);
            int k = pick_slot(s, *n_slot, need, step);
            if (k < 0) {
                k = (*n_slot)++;
                s[k] = (slot){0, -1};
            }
            if (s[k].size < need) s[k].size = need;
            s[k].busy_until = b->last;
            b->slot = k;
        }
}

/* ---- by size ---- */

typedef struct tenant {
    int buffer, slot;
    int64_t size;
} tenant;

static int by_size(const void *a, const void *b) {
    const tenant *x = a, *y = b;
    if (x->size != y->size) return x->size > y->size ? -1 : 1;
    return x->buffer - y->buffer;
}

static bool overlap(const sn_buffer *a, const sn_buffer *b) {
    return a->first <= b->last && b->first <= a->last;
}

/* Largest first, so that a slot never grows: less memory in total [Pisarchyk & Lee 2020, "greedy by
 * size for shared objects"]. */
static void assign_by_size(sn_plan *p) {
    tenant *t = sn_arena_alloc(p->m, sizeof *t * (size_t)(p->n_buffer + 1));
    int n = 0;
    for (int i = 0; i < p->n_buffer; i++)
        if (p->buffer[i].kind == SN_BUF_TEMP && p->buffer[i].first >= 0)
            t[n++] =
                (tenant){i, -1,
                         p->planned_sizes ? sn_buffer_bytes(p->m, &p->buffer[i], p->planned_sizes)
                                          : max_bytes(p, &p->buffer[i])};
    if (n) qsort(t, (size_t)n, sizeof *t, by_size);
    uint8_t *taken = sn_arena_alloc(p->m, (size_t)n + 1);
    for (int i = 0; i < n; i++) {
        memset(taken, 0, (size_t)p->n_slot + 1);
        for (int k = 0; k < i; k++)
            taken[t[k].slot] |= overlap(&p->buffer[t[k].buffer], &p->buffer[t[i].buffer]);
        int slot = p->n_slot; /* the smallest free one: the last */
        while (slot > 0 && taken[slot - 1]) slot--;
        t[i].slot = slot ? slot - 1 : p->n_slot++;
        p->buffer[t[i].buffer].slot = t[i].slot;
    }
}

static void assign_slots(sn_plan *p) {
    p->n_slot = p->n_local = 0;
    if (p->pack_slots)
        assign_by_size(p);
    else
        assign_by_time(p, SN_BUF_TEMP, &p->n_slot);
    assign_by_time(p, SN_BUF_LOCAL, &p->n_local);
}

int64_t sn_plan_arena(sn_plan *p, const int64_t *symbol) {
    find_lifetimes(p);
    assign_slots(p);
    int64_t *offset = sn_arena_alloc(p->m, sizeof *offset * (size_t)(p->n_slot + 1));
    sn_plan_offsets(p, symbol, offset);
    return offset[p->n_slot];
}

/* ---- barriers ---- */

/* The memory that a view touches as a number: slots first, then buffers that are not
 * temporaries. */
static int place_of(const sn_plan *p, const sn_view *v) {
    const sn_buffer *b = &p->buffer[v->buffer];
    return b->kind == SN_BUF_TEMP ? b->slot : p->n_slot + v->buffer;
}

/* By place: what steps since the last barrier do to it. */
enum { READ = 1, WRITTEN = 2 };
typedef struct accesses {
    size_t n;
    uint8_t *what;
} accesses;

static void place_barriers(sn_plan *p, sn_step *step, int n, accesses *since) {
    for (sn_step *s = step; s < step + n; s++) {
        if (s->kind == SN_STEP_ROWS) { /* twice: an iteration waits for the one before it */
            for (int again = 0; again < 2; again++) place_barriers(p, s->inner, s->n_inner, since);
            continue;
        }
        sn_step *first = p->call[s->first];
        for (int i = 0; i < s->n_in + s->n_out; i++)
            first->barrier |=
                since->what[place_of(p, sn_view_of(s, i))] >= (i < s->n_in ? WRITTEN : READ);
        if (first->barrier) memset(since->what, 0, since->n);
        for (int i = 0; i < s->n_in + s->n_out; i++)
            since->what[place_of(p, sn_view_of(s, i))] |= i < s->n_in ? READ : WRITTEN;
    }
}

void sn_plan_memory(sn_plan *p) {
    for (int i = 0; i < p->n_step; i++)
        if (p->step[i].kind == SN_STEP_ROWS) sn_row_blocks_bind(&p->step[i]);
    find_lifetimes(p);
    p->call = sn_arena_alloc(p->m, sizeof(sn_step *) * (size_t)(p->n_call + 1));
    number_calls(p, p->step, p->n_step, NULL, 0);
    assign_slots(p);
    size_t n = (size_t)(p->n_slot + p->n_buffer);
    accesses since = {n, sn_arena_alloc(p->m, n + 1)};
    place_barriers(p, p->step, p->n_step, &since);
}

const sn_step *sn_step_within(const sn_step *s, sn_step_kind loop) {
    for (s = s->around; s && s->kind != loop;) s = s->around;
    return s;
}

/* ---- printing ---- */

static void print_view(FILE *f, const sn_plan *p, const sn_view *v) {
    static const char *const kinds[] = {"input", "output", "param", "state",
                                        "slot",  "local",  "window"};
    const sn_buffer *b = &p->buffer[v->buffer];
    if (b->kind == SN_BUF_TEMP || b->kind == SN_BUF_LOCAL)
        fprintf(f, "%s%d", kinds[b->kind], b->slot);
    else
        fprintf(f, "%s %d", kinds[b->kind], v->buffer);
    fprintf(f, " %s", sn_dtype_name(v->dtype));
    sn_print_dims(f, p->m, v->rank, v->shape);
    fputs(" strides ", f);
    sn_print_dims(f, p->m, v->rank, v->stride);
    if (v->offset) {
        fputs(" at ", f);
        sn_print_dim(f, p->m, v->offset);
    }
    if (v->row_stride) {
        fputs(" row by ", f);
        sn_print_dim(f, p->m, v->row_stride);
    }
}

static void print_scan(FILE *f, const sn_plan *p, const sn_step *s, int indent) {
    const sn_scan_loop *l = s->scan;
    fprintf(f, ", %d parts ", l->n_tile);
    sn_print_dims(f, p->m, l->n_tile, l->parts);
    fputs(" of ", f);
    sn_print_dim(f, p->m, l->length);
    fprintf(f, " elements%s%s", l->reverse ? " from the last one on" : "",
            l->recomputes ? ", with carries computed again" : "");
    for (int i = 0; i < l->n_window; i++) {
        static const char *const index[SN_INDEX_COUNT] = {"part",  "element", "segment",
                                                          "place", "parity",  "next parity"};
        const sn_window *w = &l->window[i];
        fprintf(f, "\n%*swindow %d by ", indent, "", w->buffer);
        sn_print_dim(f, p->m, w->step);
        fprintf(f, " for each %s, parts by ", index[w->index]);
        sn_print_dims(f, p->m, l->n_tile, w->tile_step);
        if (w->operand < 0)
            fprintf(f, " of local%d", p->buffer[w->local].slot);
        else
            fprintf(f, " of operand %d", w->operand);
    }
}

const char *sn_when_text(sn_when when) {
    static const char *const text[] = {[SN_ALWAYS] = "",
                                       [SN_IF_SEGMENT_BEGINS] = ", if a segment begins",
                                       [SN_IF_SEGMENT_ENDS] = ", if a segment ends",
                                       [SN_IF_SEGMENT_GOES_ON] = ", if the segment goes on",
                                       [SN_IF_FIRST] = ", first iteration",
                                       [SN_IF_LATER] = ", later iterations",
                                       [SN_IF_SINGLE] = ", if there was one iteration",
                                       [SN_IF_SEVERAL] = ", if there were several iterations"};
    return text[when];
}

/* Everything that the code depends on. */
static void print_step(FILE *f, const sn_plan *p, const sn_step *s, int depth) {
    static const char *const kind[] = {
        "", "for rows: ", "for parts: ", "for elements: ", "for a segment: "};
    const int indent = 2 * depth + 7;
    if (s->kind == SN_STEP_CALL)
        fprintf(f, "%s%*d ", s->barrier ? "---- barrier\n" : "", indent - 3, s->first);
    else
        fprintf(f, "%*s", indent - 2, "");
    fprintf(f, "%s%s%s", kind[s->kind], sn_ops[s->node->op].name, sn_when_text(s->when));
    if (s->rows) {
        fprintf(f, ", iterations of %lld of ", (long long)s->block_rows);
        sn_print_dim(f, p->m, s->rows);
    }
    if (s->scan) print_scan(f, p, s, indent);
    for (int i = 0; i < s->n_in + s->n_out; i++) {
        fprintf(f, "\n%*s%s ", indent, "", i < s->n_in ? "in " : "out");
        print_view(f, p, sn_view_of(s, i));
    }
    fputc('\n', f);
    for (int i = 0; i < s->n_inner; i++) print_step(f, p, &s->inner[i], depth + 1);
}

void sn_plan_print(FILE *f, const sn_plan *p) {
    fprintf(f, "%d calls, %d slots\n", p->n_call, p->n_slot);
    for (int i = 0; i < p->n_step; i++) print_step(f, p, &p->step[i], 0);
}
