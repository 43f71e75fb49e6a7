/* tune.c: what is remembered of measured choices, and who asks for it: the passes (native code or a
 * primitive, one kernel or its parts) and the kernels (tiles).
 *
 * A choice is a text in the disk cache. Its key holds the structure, the CPU, the sizes in powers
 * of two and the version of the generator; the number of threads only where the bits do not depend
 * on the choice, so that a program gives the same bits for any number of them. */
#include "codegen/program/tune.h"
#include "codegen/backend.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- keys ---- */

void sn_read_cpu(char *cpu, size_t size) {
    FILE *f = fopen("/proc/cpuinfo", "r");
    char line[200];
    snprintf(cpu, size, "unknown");
    while (f && fgets(line, sizeof line, f))
        if (sscanf(line, "model name : %79[^\n]", cpu) == 1) break;
    if (f) fclose(f);
}

static const char *bucket_text(const sn_tuner *t, const bool *used) {
    const char *text = "";
    for (int s = 0; s < sn_symbol_count(t->m); s++) {
        if (!used[s]) continue;
        sn_bucket b = sn_tune_bucket(t->symbol[s]);
        text = sn_arena_printf(t->m, "%s %s=%lld..%lld", text, sn_symbol_at(t->m, s)->name,
                               (long long)b.from, (long long)b.to);
    }
    return text;
}

static const char *operands_text(const sn_node *n) {
    const char *text = sn_ops[n->op].name;
    for (int i = 0; i < n->n_in; i++) {
        char shape[128];
        sn_shape_print(n->m, n->in[i]->rank, n->in[i]->shape, shape, sizeof shape);
        text =
            sn_arena_printf(n->m, "%s %s%s", text, sn_dtype_name((sn_dtype)n->in[i]->dtype), shape);
    }
    return text;
}

/* The first line is for people; all of it is the key. */
static const char *choice_text(const sn_tuner *t, const sn_choice *q) {
    bool *used = sn_arena_alloc(t->m, (size_t)sn_symbol_count(t->m) + 1);
    for (int i = 0; i < q->node->n_in; i++)
        for (int a = 0; a < q->node->in[i]->rank; a++)
            sn_dim_symbols(t->m, q->node->in[i]->shape[a], used);
    return sn_arena_printf(t->m, "%s%s, level %d, backend %s\n%s\nlibrary %s\nstructure %016llx\n",
                           operands_text(q->node), bucket_text(t, used), t->level, t->backend,
                           t->cpu, sn_backend_library_version(), (unsigned long long)q->node->hash);
}

static const char *tile_text(const sn_tuner *t, const sn_kernel *k) {
    bool *used = sn_arena_alloc(t->m, (size_t)sn_symbol_count(t->m) + 1);
    for (int i = 0; i < k->n_dim; i++) sn_dim_symbols(t->m, k->dim[i], used);
    return sn_arena_printf(t->m, "tile of %s%s, %d threads\n%s\n%s\n", k->name,
                           bucket_text(t, used), t->threads, t->cpu, k->text);
}

/* ---- what is known ---- */

static const sn_known *remember(sn_tuner *t, const char *text, int candidate, const char *why) {
    t->known = sn_arena_grow(t->m, t->known, sizeof *t->known, t->n_known, &t->cap_known);
    t->known[t->n_known] = (sn_known){.text = text, .candidate = candidate, .why = why};
    return &t->known[t->n_known++];
}

/* A choice in the cache: "answer N of M: WHY", then the text that it is about. */
static const sn_known *read_choice(sn_tuner *t, const char *text, int n) {
    sn_object o;
    sn_cache_key key = sn_cache_make_key(t->target, text, strlen(text));
    if (!sn_cache_get(t->cache, SN_CACHE_CHOICE, key, &o)) return NULL;
    int candidate, of, begin = 0;
    char *data = sn_arena_alloc(t->m, o.size + 1);
    memcpy(data, o.data, o.size);
    sn_object_free(&o);
    char *end = strchr(data, '\n');
    bool ok = end && sscanf(data, "answer %d of %d: %n", &candidate, &of, &begin) == 2 && begin &&
              of == n && candidate >= 0 && candidate < n && !strcmp(end + 1, text);
    if (!ok) return NULL; /* of another version, which a key should not let happen */
    *end = 0;
    return remember(t, text, candidate, data + begin);
}

static const sn_known *look_up(sn_tuner *t, const char *text, int n) {
    for (int i = 0; i < t->n_known; i++)
        if (!strcmp(t->known[i].text, text)) return &t->known[i];
    return read_choice(t, text, n);
}

static void note_change(sn_tuner *t, const sn_known *k, bool changed) {
    t->known[k - t->known].changed = changed;
    t->stats->tuned = t->n_known;
    t->stats->changed = 0;
    for (int i = 0; i < t->n_known; i++) t->stats->changed += t->known[i].changed;
}

static const sn_known *store(sn_tuner *t, const char *text, int n, int candidate, const char *why) {
    const char *all = sn_arena_printf(t->m, "answer %d of %d: %s\n%s", candidate, n, why, text);
    sn_object o = {(uint8_t *)(uintptr_t)all, strlen(all)};
    sn_cache_put(t->cache, SN_CACHE_CHOICE, sn_cache_make_key(t->target, text, strlen(text)), &o);
    t->stats->measured++;
    const sn_known *k = remember(t, text, candidate, why);
    note_change(t, k, false); /* the one who takes it knows better */
    return k;
}

/* "tuned: 12 % faster than fused": a trial's outcome, for reports. */
static const char *verdict(sn_tuner *t, const sn_trial *c, const char *first) {
    if (c->winner)
        return sn_arena_printf(t->m, "tuned: %.0f %% faster than %s", 100 * (c->gain - 1), first);
    if (c->runner_up > 0)
        return sn_arena_printf(t->m, "tuned: the next best takes %.2f of its time",
                               1 / c->runner_up);
    return "tuned: all others are much slower";
}

/* ---- choices of the passes ---- */

static int candidates_of(const sn_choice *q, sn_candidate candidate[3]) {
    int n = 0;
    candidate[n++] = q->model;
    for (int a = 0; a < 3; a++)
        if (q->candidates >> a & 1 && a != (int)q->model) candidate[n++] = (sn_candidate)a;
    return n;
}

static void apply_known(void *ctx, sn_choice *q) {
    sn_tuner *t = ctx;
    const sn_known *k = look_up(t, choice_text(t, q), 3);
    if (!k || !(q->candidates >> k->candidate & 1)) return;
    q->chosen = (sn_candidate)k->candidate;
    q->why = k->why;
    note_change(t, k, q->chosen != q->model);
}

static void show(const sn_tuner *t, const char *what) {
    if (!t->o->progress) return;
    char line[200];
    snprintf(line, sizeof line, "tune: %d measured, now %.*s", t->stats->measured,
             (int)strcspn(what, "\n"), what);
    t->o->progress(t->o->progress_ctx, line);
}

/* Rows of the result's matrix, batches included: what the weights are read for. */
static bool has_rows(const sn_tuner *t, const sn_node *n) {
    int64_t rows = 1;
    for (int a = 0; a < n->in[0]->rank - 1; a++)
        if (n->op != SN_OP_attention || a == 2)
            rows *= sn_dim_eval(t->m, n->in[0]->shape[a], t->symbol);
    return rows >= SN_TUNE_ROWS;
}

bool sn_tuner_measure(sn_tuner *t, const sn_passes *p, bool *again) {
    *again = false;
    for (int i = 0; i < p->n_choice; i++) {
        sn_choice *q = p->choice[i];
        sn_candidate candidate[3];
        int n = candidates_of(q, candidate);
        const char *text = choice_text(t, q);
        if (n < 2 || !q->n_out || look_up(t, text, 3) || !has_rows(t, q->node)) continue;
        sn_trial c = {.n = n};
        show(t, text);
        if (!sn_tune_choice(t, q, candidate, &c)) return false;
        q->why =
            store(t, text, 3, candidate[c.winner], verdict(t, &c, sn_candidate_names[candidate[0]]))
                ->why;
        *again |= c.winner != 0;
    }
    return true;
}

/* ---- tiles ---- */

static bool tile_has_rows(const sn_tuner *t, const sn_kernel *k) {
    const sn_view *y = &k->step->out[0];
    int64_t rows = y->rank < 2 ? 1 : sn_dim_eval(t->m, y->shape[y->rank - 2], t->symbol);
    return rows >= SN_TUNE_ROWS;
}

bool sn_tuner_tile(sn_tuner *t, sn_kernel *k) {
    sn_trial c = {.n = k->family->tiles ? k->family->tiles(k) : 1};
    if (c.n < 2) return true;
    const char *text = tile_text(t, k);
    const sn_known *known = look_up(t, text, c.n);
    if (!known && t->o->tune && tile_has_rows(t, k)) {
        show(t, text);
        if (!sn_tune_kernel(t, k, &c)) return false;
        known = store(t, text, c.n, c.winner,
                      sn_arena_printf(t->m, "%s, %s", k->family->tile_name(c.winner),
                                      verdict(t, &c, k->family->tile_name(0))));
    }
    if (!known) return true;
    note_change(t, known, known->candidate != 0);
    k->tuned = sn_arena_printf(t->m, "  tile %s", known->why);
    if (known->candidate) sn_kernel_set_tile(k, known->candidate);
    return true;
}

void sn_tuner_init(sn_tuner *t) {
    sn_threads threads;
    t->chooser = (sn_chooser){apply_known, t};
    t->threads = t->o->threads;
    if (t->threads < 1 && sn_threads_init(&threads, 0, NULL)) {
        t->threads = (int)threads.n;
        sn_threads_free(&threads);
    }
    sn_read_cpu(t->cpu, sizeof t->cpu);
}
