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

static void touch(sn_buffer *b, int step) {
    if (b->first < 0) b->first = step;
    b->last = step;
}

/* The same in any order of steps. */
static void touch_between(sn_plan *p, int buffer, int step) {
    sn_buffer *b = &p->buffer[buffer];
    if (b->first < 0 || b->first > step) b->first = step;
    if (b->last < step) b->last = step;
}

static void find_lifetimes(sn_plan *p) {
    for (int i = 0; i < p->n_buffer; i++) p->buffer[i].first = p->buffer[i].last = -1;
    for (int s = 0; s < p->n_step; s++) {
        for (int i = 0; i < p->step[s].n_in; i++) touch(&p->buffer[p->step[s].in[i].buffer], s);
        for (int i = 0; i < p->step[s].n_out; i++) touch(&p->buffer[p->step[s].out[i].buffer], s);
    }
    for (int k = 0; k < p->n_scan; k++) { /* through windows, in every iteration */
        const sn_scan_loop *l = &p->scan[k];
        for (int end = 0; end < 2; end++) {
            int step = end ? l->last - 1 : l->first;
            for (int i = 0; i < l->n_in; i++) touch_between(p, l->in[i].buffer, step);
            for (int i = 0; i < l->n_out; i++) touch_between(p, l->out[i].buffer, step);
            for (int i = 0; i < 2 * l->n_carry; i++)
                touch_between(p, l->carry[i / 2].local[i % 2], step);
            for (int i = 0; l->recompute && i < l->recompute->n; i++) {
                touch_between(p, l->recompute->carry[i].local[0], step);
                touch_between(p, l->recompute->carry[i].local[1], step);
                touch_between(p, l->recompute->past[i].home, step);
            }
        }
    }
    for (int k = 0; k < p->n_loop; k++) /* the next iteration needs them again */
        for (int i = 0; i < p->n_buffer; i++) {
            sn_buffer *b = &p->buffer[i];
            int first = p->loop[k].first, last = p->loop[k].last - 1;
            if (b->first > last || b->last < first || b->first < 0) continue;
            if (b->first > first) b->first = first;
            if (b->last < last) b->last = last;
        }
}

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
    for (int step = 0; step < p->n_step; step++)
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
            t[n++] = (tenant){i, -1,
                              p->planned_sizes
                                  ? sn_buffer_elements(p->m, &p->buffer[i], p->planned_sizes) *
                                        (int64_t)sn_dtype_size(p->buffer[i].dtype)
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
    int64_t *size = sn_arena_alloc(p->m, sizeof *size * (size_t)(p->n_slot + 1)), sum = 0;
    for (int i = 0; i < p->n_buffer; i++) {
        const sn_buffer *b = &p->buffer[i];
        if (b->kind != SN_BUF_TEMP || b->first < 0) continue;
        int64_t need = sn_buffer_elements(p->m, b, symbol) * (int64_t)sn_dtype_size(b->dtype);
        if (need > size[b->slot]) size[b->slot] = need;
    }
    for (int i = 0; i < p->n_slot; i++) sum += ((size[i] + 63) & ~(int64_t)63) + SN_SLOT_GAP;
    return sum;
}

/* The memory that a view touches as a number: slots first, then buffers that are not
 * temporaries. */
static int place_of(const sn_plan *p, const sn_view *v) {
    const sn_buffer *b = &p->buffer[v->buffer];
    return b->kind == SN_BUF_TEMP ? b->slot : p->n_slot + v->buffer;
}

static void place_barriers(sn_plan *p) {
    size_t n = (size_t)(p->n_slot + p->n_buffer);
    uint8_t *read = sn_arena_alloc(p->m, n + 1), *written = sn_arena_alloc(p->m, n + 1);
    /* number of loops that have been walked twice, since an iteration waits for the previous one */
    int again = 0;
    for (int s = 0; s < p->n_step; s++) {
        sn_step *t = &p->step[s];
        const sn_scan_loop *scan = sn_scan_around(p, s); /* as a whole, before its first step */
        const sn_view *in = scan ? scan->in : t->in, *out = scan ? scan->out : t->out;
        int n_in = scan ? scan->n_in : t->n_in, n_out = scan ? scan->n_out : t->n_out;
        for (int i = 0; i < n_in; i++) t->barrier |= written[place_of(p, &in[i])];
        for (int i = 0; i < n_out; i++) {
            int k = place_of(p, &out[i]);
            t->barrier |= read[k] | written[k];
        }
        if (t->barrier) {
            memset(read, 0, n);
            memset(written, 0, n);
        }
        for (int i = 0; i < n_in; i++) read[place_of(p, &in[i])] = 1;
        for (int i = 0; i < n_out; i++) written[place_of(p, &out[i])] = 1;
        if (scan) s = scan->last - 1;
        const sn_row_loop *loop = sn_row_blocks_loop(p, s);
        if (loop && s + 1 == loop->last && again <= loop - p->loop) {
            again++;
            s = loop->first - 1;
        }
    }
}

void sn_plan_memory(sn_plan *p) {
    find_lifetimes(p);
    assign_slots(p);
    place_barriers(p);
}

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

static void print_carries(FILE *f, const sn_plan *p, const sn_scan_carry *c, int n) {
    for (int i = 0; i < n; i++)
        fprintf(f, "       carry windows %d %d of locals %d %d\n", c[i].now, c[i].next,
                p->buffer[c[i].local[0]].slot, p->buffer[c[i].local[1]].slot);
}

static void print_places(FILE *f, const sn_plan *p, const sn_scan_place *q, int n) {
    for (int i = 0; i < n; i++) {
        const sn_buffer *home = &p->buffer[q[i].home];
        fprintf(f, "       window %d by ", q[i].at);
        sn_print_dim(f, p->m, q[i].step);
        fprintf(f, " from %s %d\n", home->kind == SN_BUF_LOCAL ? "local" : "window",
                home->kind == SN_BUF_LOCAL ? home->slot : q[i].home);
    }
}

static void print_recompute(FILE *f, const sn_plan *p, const sn_recompute *a) {
    fprintf(f, "       recompute: to step %d, to %d, to %d\n", a->restore_end - 1, a->store_end - 1,
            a->step_end - 1);
    print_carries(f, p, a->carry, a->n);
    print_places(f, p, a->first, a->n);
    print_places(f, p, a->past, a->n);
    print_places(f, p, a->sequence, a->n_sequence);
}

/* Everything that the code depends on. */
static void print_scan(FILE *f, const sn_plan *p, int k) {
    const sn_scan_loop *l = &p->scan[k];
    fprintf(f, "scan %d in %d: steps %d to %d, hoisted %d, body %d to %d, for each of ", k,
            l->parent, l->first, l->last - 1, l->hoisted_end - l->begin, l->begin, l->end - 1);
    sn_print_dim(f, p->m, l->length);
    fprintf(f, " elements%s, parts ", l->reverse ? " from the last one on" : "");
    sn_print_dims(f, p->m, l->n_tile, l->parts);
    fputc('\n', f);
    for (int i = 0; i < l->n_window; i++) {
        const sn_window *w = &l->window[i];
        const sn_view *base =
            w->operand < l->n_in ? &l->in[w->operand] : &l->out[w->operand - l->n_in];
        fprintf(f, "       window %d%s by ", w->buffer, w->per_segment ? " of segments" : "");
        sn_print_dim(f, p->m, w->step);
        fputs(" parts by ", f);
        sn_print_dims(f, p->m, l->n_tile, w->tile_step);
        fputs(" of ", f);
        print_view(f, p, base);
        fputc('\n', f);
    }
    print_carries(f, p, l->carry, l->n_carry);
    if (l->recompute) print_recompute(f, p, l->recompute);
}

void sn_plan_print(FILE *f, const sn_plan *p) {
    fprintf(f, "%d steps, %d slots\n", p->n_step, p->n_slot);
    for (int k = 0; k < p->n_loop; k++) {
        fprintf(f, "steps %d to %d: for %lld of ", p->loop[k].first, p->loop[k].last - 1,
                (long long)p->loop[k].block_rows);
        sn_print_dim(f, p->m, p->loop[k].rows);
        fputs(" rows at a time\n", f);
    }
    for (int k = 0; k < p->n_scan; k++) print_scan(f, p, k);
    for (int s = 0; s < p->n_step; s++) {
        const sn_step *t = &p->step[s];
        fprintf(f, "%s%4d %s%s", t->barrier ? "---- barrier\n" : "", s, sn_ops[t->node->op].name,
                sn_row_blocks_iteration(t->iteration));
        if (t->rows) {
            fprintf(f, ", iterations of %lld of ", (long long)t->block_rows);
            sn_print_dim(f, p->m, t->rows);
        }
        fputc('\n', f);
        for (int i = 0; i < t->n_in; i++) {
            fprintf(f, "       in  ");
            print_view(f, p, &t->in[i]);
            fputc('\n', f);
        }
        for (int i = 0; i < t->n_out; i++) {
            fprintf(f, "       out ");
            print_view(f, p, &t->out[i]);
            fputc('\n', f);
        }
    }
}
