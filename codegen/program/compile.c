/* compile.c: sn_compile: passes, plans, kernels (each distinct one once, from the disk cache if it
 * is there), entries. */
#include "codegen/program/program.h"
#include "codegen/jit/cache.h"
#include "passes/plan/collectives.h"
#include "codegen/jit/pool.h"
#include "codegen/program/check.h"
#include "codegen/program/sizes.h"
#include "codegen/program/tune.h"
#include "runtime/clock.h"

#include <omp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

typedef struct leaves { /* parameters and states */
    sn_leaf *list;
    int n, cap;
} leaves;

typedef struct source { /* something to compile: a kernel or an entry */
    const char *name, *text;
    sn_dtype compute;
    const sn_kernel *kernel;
    const sn_entry_code *code;
} source;

/* Code on its way: from the disk cache, or being compiled by the pool. */
typedef struct part {
    source s;
    sn_cache_key key;
    sn_object cached; /* empty: it is compiled */
    int job;
} part;

typedef struct compiler {
    sn_program *p;
    sn_module *m;
    const sn_options *o;
    sn_cache *cache;
    FILE *asm_dump;             /* SINTER_DEBUG=dump: assembly of every kernel */
    const sn_object_sink *sink; /* NULL: code is loaded into this process */
    sn_pool *pool;              /* what makes it */
    part *part;                 /* [n_part] in order; arena memory */
    int n_part, cap_part;
    sn_error *err;
    int n_described;   /* entries of the user and their companions */
    const char **done; /* names of kernels that are loaded */
    int n_done, cap_done;
    sn_budget budget;         /* bytes 0: none */
    const sn_chooser *forced; /* choices are made already; NULL: by the tuner */
    sn_tuner tuner;
    sn_pass_options passes;
    leaves user_states;
    int n_user;     /* entries of the user */
    bool plan_only; /* no code is made */
    bool loading;   /* code, into the JIT session */
    bool ok;
} compiler;

/* ---- options ---- */

static bool module_failed(compiler *c) {
    const sn_error *e = sn_module_error(c->m);
    if (c->err->code) return false; /* an option that cannot be met: no fault of the module */
    sn_fail(c->err, e->code ? e->code : SN_ERR_INTERNAL, "%s",
            e->code ? e->message : "compilation failed");
    return false;
}

static bool checks_values(const compiler *c) {
    return !c->sink && (c->o->check_nan || sn_debug_get()->check_nan);
}

static int64_t packed_limit(const sn_options *o) {
    const int64_t usual = INT64_C(4) << 30;
    if (sn_cache_is_off(o->cache_dir) || o->weights_cache < 0) return 0;
    return o->weights_cache ? o->weights_cache : usual;
}

/* oneDNN's products. */
static bool takes_f32_only(const sn_options *o) {
    return o->backend && !strcmp(o->backend, "onednn");
}

static bool pass_options(compiler *c) {
    sn_pass_options *po = &c->passes;
    const sn_options *o = c->o;
    if (!sn_options_check(o, c->err)) return false;
    const char *weights = o->weights && strcmp(o->weights, "f32") ? o->weights : NULL;
    if (weights && !strcmp(weights, "stored") && (!o->source || takes_f32_only(o))) weights = NULL;
    bool int8 = sn_computes_int8(o);
    if (int8 && !weights) weights = "int8";
    const char *precision = o->precision && strcmp(o->precision, "f32") ? o->precision : NULL;
    const char *cache = o->cache && strcmp(o->cache, "f32") ? o->cache : NULL;
    const int invariant = sn_options_invariant(o);
    const char *backend = o->backend ? o->backend : "auto";
    *po = (sn_pass_options){.level = sn_level_or_highest(o->level),
                            .backend = invariant ? sn_backend_native.name : backend,
                            .invariant = invariant,
                            .library = sn_backend_library(),
                            .weights = weights,
                            .keep = o->keep,
                            .n_keep = o->n_keep,
                            .int8_compute = int8,
                            .bf16_compute = sn_computes_bf16(o),
                            .precision = precision,
                            .cache = cache,
                            .source = o->source,
                            .accept = o->strict_fusion ? o->accept : NULL,
                            .history = o->keep_stages,
                            .constant_params = true};
    if (o->passes) { /* "-name,-name" */
        char *list = sn_arena_alloc(c->m, strlen(o->passes) + 1);
        const char *s = o->passes;
        for (char *d = list; *s; s++)
            if (*s != '-' && *s != ' ') *d++ = *s;
        po->off = list;
    }
    if (checks_values(c)) /* looks through whole tensors */
        po->off = po->off ? sn_arena_printf(c->m, "%s,row_block", po->off) : "row_block";
    return true;
}

static bool budget_option(compiler *c) {
    int64_t *symbol = sn_arena_alloc(c->m, sizeof *symbol * (size_t)(sn_symbol_count(c->m) + 1));
    for (int i = 0; i < sn_symbol_count(c->m); i++) symbol[i] = sn_symbol_at(c->m, i)->hi;
    c->budget = (sn_budget){c->o->memory_budget, symbol, &c->p->passes, c->err};
    return sn_sizes_read(c->m, "budget sizes", c->o->budget_sizes, symbol, c->err);
}

/* ---- tuning ---- */

static void open_cache(compiler *c) {
    if (!sn_cache_is_off(c->o->cache_dir)) c->cache = sn_cache_open(c->o->cache_dir, 0, c->err);
}

/* What is remembered is taken by everybody but the parts that tuning itself compiles. */
static bool open_tuner(compiler *c) {
    sn_pass_options *po = &c->passes;
    int64_t *symbol = sn_arena_alloc(c->m, sizeof *symbol * (size_t)(sn_symbol_count(c->m) + 1));
    po->chooser = c->forced;
    if (c->forced) return true;
    sn_sizes_middle(c->m, symbol);
    c->tuner = (sn_tuner){.m = c->m,
                          .o = c->o,
                          .target = &c->p->target,
                          .cache = c->cache,
                          .symbol = symbol,
                          .entry = c->p->entry,
                          .n_entry = c->n_user,
                          .level = po->level,
                          .backend = po->backend,
                          .stats = &c->p->stats,
                          .compile = sn_program_make,
                          .err = c->err};
    sn_tuner_init(&c->tuner);
    po->chooser = &c->tuner.chooser;
    if (!sn_sizes_read(c->m, "tune sizes", c->o->tune_sizes, symbol, c->err)) return false;
    return !c->o->tune || sn_tuner_may_run(&c->tuner, symbol, c->err);
}

/* The passes; where tuning finds that the model was wrong, once more with what it found. */
static bool run_passes(compiler *c) {
    for (bool again = true; again;) {
        sn_entries *before = sn_entries_save(c->m);
        if (!sn_passes_run(&c->p->passes, c->m, &c->passes)) return module_failed(c);
        if (!c->o->tune || c->sink || c->forced) return true;
        double begin = sn_stage_begin();
        if (!sn_tuner_measure(&c->tuner, &c->p->passes, &again)) return false;
        sn_stage_end(SN_STAGE_tuner, begin, -1);
        if (again) sn_entries_restore(c->m, before);
    }
    return true;
}

static bool stage_passes(compiler *c) {
    double start = sn_clock();
    open_cache(c);
    if (!open_tuner(c) || !run_passes(c)) return false;
    c->p->stats.passes = sn_clock() - start;
    return true;
}

static bool stage_strict(compiler *c) {
    const sn_passes *p = &c->p->passes;
    for (int i = 0; c->o->strict_fusion && i < p->n_remark; i++) {
        const sn_remark *r = &p->remark[i];
        if (r->missed && !sn_remark_is_accepted(p, r))
            return sn_fail(c->err, SN_ERR_UNFUSED,
                           "%s:%d: not fused (strict): %s. To accept it: --accept FILE:LINE, or "
                           "sn_accept_unfused of the line's result",
                           r->node->loc.file ? r->node->loc.file : "?", r->node->loc.line, r->text);
    }
    return true;
}

/* ---- taps ---- */

static bool wanted(const sn_options *o, const char *name) {
    for (int i = 0; i < o->n_taps; i++)
        if (!strcmp(o->taps[i], name) || !strcmp(o->taps[i], "*")) return true;
    return false;
}

static bool stage_taps(compiler *c) {
    for (int i = 0; i < c->o->n_taps; i++) {
        bool found = !strcmp(c->o->taps[i], "*");
        for (int e = 0; e < sn_entry_count(c->m); e++) {
            sn_entry *entry = sn_entry_at(c->m, e);
            for (int t = 0; t < entry->n_tap; t++)
                found |= !strcmp(entry->tap[t].name, c->o->taps[i]);
        }
        if (!found)
            return sn_fail(c->err, SN_ERR_USAGE, "no tensor is named '%s' in module %s",
                           c->o->taps[i], sn_module_name(c->m));
    }
    for (int e = 0; e < sn_entry_count(c->m); e++) {
        sn_entry *entry = sn_entry_at(c->m, e);
        for (int t = 0; t < entry->n_tap; t++)
            if (wanted(c->o, entry->tap[t].name))
                sn_entry_output(c->m, entry, entry->tap[t].name, entry->tap[t].node);
        entry->n_tap = 0;
    }
    return true;
}

/* ---- parameters that change ---- */

/* To passes and plans a parameter that an entry assigns is a state, so that nothing of it is
 * computed ahead and its memory is written in place; the session gives it its first value. */
static sn_node *as_state(void *ctx, sn_node *n) {
    const char *name = sn_attr_str(n, SN_A_name, "");
    if (n->op != SN_OP_param || !sn_program_trained(ctx, name)) return n;
    return sn_node_new(n->m, SN_OP_state, 0, NULL, n->n_attr, n->attr);
}

static bool stage_trained(compiler *c) {
    sn_program *p = c->p;
    int n = 0;
    for (int e = 0; e < sn_entry_count(c->m); e++) n += sn_entry_at(c->m, e)->n_assign;
    p->trained = sn_arena_alloc(c->m, sizeof *p->trained * (size_t)(n + 1));
    for (uint32_t id = 0; n && id < sn_module_node_count(c->m); id++) {
        const sn_node *k = sn_module_node(c->m, id);
        bool assigned = false;
        for (int e = 0; k->op == SN_OP_param && e < sn_entry_count(c->m); e++)
            for (int a = 0; a < sn_entry_at(c->m, e)->n_assign; a++)
                assigned |=
                    !strcmp(sn_entry_at(c->m, e)->assign[a].name, sn_attr_str(k, SN_A_name, ""));
        if (assigned && p->n_trained < n) p->trained[p->n_trained++] = k;
    }
    if (p->n_trained) sn_rewrite_module(c->m, as_state, p);
    return true;
}

/* ---- parameters and states of sessions ---- */

static void add_leaf(compiler *c, leaves *l, const char *name, const sn_node *n, bool state,
                     bool stays) {
    for (int i = 0; i < l->n; i++)
        if (l->list[i].state == state && !strcmp(l->list[i].name, name)) return;
    l->list = sn_arena_grow(c->m, l->list, sizeof *l->list, l->n, &l->cap);
    l->list[l->n++] = (sn_leaf){name, n, state, stays};
}

static void add_leaves(compiler *c, leaves *l, const sn_entry *e, sn_op op, bool stays) {
    sn_order order = sn_entry_topo(c->m, e);
    for (int i = 0; i < order.n; i++)
        if (order.node[i]->op == op)
            add_leaf(c, l, sn_attr_str(order.node[i], SN_A_name, ""), order.node[i],
                     op == SN_OP_state, stays);
}

/* The states of the user's entries. No kernel may read one: because it is only written, or because
 * the passes found that its value does not matter. The user may set and read it all the same. */
static bool stage_states(compiler *c) {
    for (int i = 0; i < sn_entry_count(c->m); i++)
        add_leaves(c, &c->user_states, sn_entry_at(c->m, i), SN_OP_state, true);
    return true;
}

/* After compilation: what the compiled entries read and assign, then the user's other states. */
static bool stage_leaves(compiler *c) {
    const leaves *user = &c->user_states;
    sn_program *p = c->p;
    leaves l = {0};
    for (int op = 0; op < 2; op++)
        for (int i = 0; i < p->n_entry; i++)
            add_leaves(c, &l, p->entry[i].code.plan->entry, op ? SN_OP_state : SN_OP_param,
                       !sn_compiled_prepares(&p->entry[i]));
    for (int i = 0; i < user->n; i++)
        add_leaf(c, &l, user->list[i].name, user->list[i].node, true, true);
    for (int i = 0; i < p->n_entry; i++) {
        const sn_entry *e = p->entry[i].code.plan->entry;
        for (int k = 0; k < e->n_assign; k++)
            add_leaf(c, &l, e->assign[k].name, e->assign[k].node, true, true);
    }
    p->leaf = l.list;
    p->n_leaf = l.n;
    return true;
}

/* ---- what elements of inputs must be ---- */

static const sn_node *input_below(const sn_node *n) {
    while (n->n_in == 1 && ((sn_ops[n->op].flags & SN_OPF_VIEW) || n->op == SN_OP_cast))
        n = n->in[0];
    return n->op == SN_OP_input ? n : NULL;
}

static void find_limits(compiler *c, const sn_entry *e, sn_compiled_entry *out) {
    sn_order order = sn_entry_topo(c->m, e);
    out->limit = sn_arena_alloc(c->m, sizeof *out->limit * (size_t)(order.n + 1));
    for (int i = 0; i < order.n; i++) {
        const sn_node *n = order.node[i];
        const sn_attr *bounds = n->op == SN_OP_input ? sn_attr_get(n, SN_A_bounds) : NULL;
        if (bounds)
            out->limit[out->n_limit++] =
                (sn_element_limit){sn_attr_str(n, SN_A_name, ""), bounds->v[0],
                                   bounds->n > 1 ? bounds->v[1] : 0, bounds->n < 2};
        if (n->op != SN_OP_embedding && n->op != SN_OP_gather) continue;
        const sn_node *in = input_below(n->in[1]);
        int64_t rows;
        if (!in || !sn_dim_is_const(c->m, n->in[0]->shape[sn_attr_int(n, SN_A_axis, 0)], &rows))
            continue;
        out->limit[out->n_limit++] =
            (sn_element_limit){.input = sn_attr_str(in, SN_A_name, ""), .high = rows - 1};
    }
}

static bool stage_limits(compiler *c) {
    c->n_user = sn_entry_count(c->m);
    c->p->entry = sn_arena_alloc(c->m, sizeof *c->p->entry * (size_t)(2 * c->n_user + 1));
    for (int i = 0; i < c->n_user; i++) find_limits(c, sn_entry_at(c->m, i), &c->p->entry[i]);
    return true;
}

static bool stage_ranges(compiler *c) {
    for (int i = 0; i < c->n_user; i++) {
        sn_compiled_entry *out = &c->p->entry[i];
        out->n_range = sn_ranges_find(c->m, sn_entry_at(c->m, i), &out->range);
    }
    return true; /* a bound that overflows is an error of the module */
}

/* ---- checked mode ---- */

/* Companions of the user's entries follow them all. */
static bool stage_companions(compiler *c) {
    bool wanted_here = c->o->check_index || sn_debug_get()->check_index;
    for (int i = 0; wanted_here && !c->sink && i < c->n_user; i++) {
        sn_compiled_entry *out = &c->p->entry[i];
        int next = sn_entry_count(c->m);
        out->n_lookup = sn_check_index_add(c->m, sn_entry_at(c->m, i), &out->lookup);
        if (out->n_lookup) out->companion = next;
    }
    c->n_described = sn_entry_count(c->m);
    return true;
}

/* ---- code ---- */

static bool is_done(const compiler *c, const char *name) {
    for (int i = 0; i < c->n_done; i++)
        if (!strcmp(c->done[i], name)) return true;
    return false;
}

static void mark_done(compiler *c, const char *name) {
    c->done = sn_arena_grow(c->m, c->done, sizeof *c->done, c->n_done, &c->cap_done);
    c->done[c->n_done++] = name;
}

static FILE *dump_file(const char *name, const char *ending) {
    const sn_debug *dbg = sn_debug_get();
    if (!dbg->dump) return NULL;
    char path[700];
    snprintf(path, sizeof path, "%s/%s.%s", dbg->dump, name, ending);
    return fopen(path, "w");
}

/* Emits the code and hands it to the pool. Returns the job's number, -1: err. */
static int begin_object(compiler *c, const source *s) {
    em e;
    if (!em_init(&e, &c->p->target, s->name, s->compute, c->err)) {
        em_free(&e);
        return -1;
    }
    if (s->kernel)
        sn_kernel_emit(&e, s->kernel);
    else
        sn_entry_code_emit(&e, s->code);
    LLVMModuleRef mod = em_finish(&e, c->err);
    FILE *ir = mod ? dump_file(s->name, "ll") : NULL;
    if (ir) {
        fprintf(ir, "; %s\n", s->name);
        em_dump(&e, ir);
        fclose(ir);
    }
    if (mod) return sn_pool_add(c->pool, &e, c->err);
    em_free(&e);
    return -1;
}

/* False: there is none, or it cannot be used and is no longer there. */
static bool get_cached(compiler *c, part *p) {
    if (sn_debug_get()->dump) return false; /* what is dumped must be compiled */
    if (!sn_cache_get(c->cache, SN_CACHE_OBJECT, p->key, &p->cached)) return false;
    if (sn_object_check(&p->cached, !c->p->target.bitcode, p->s.name)) return true;
    sn_cache_drop(c->cache, SN_CACHE_OBJECT, p->key);
    sn_object_free(&p->cached);
    return false;
}

static bool add_source(compiler *c, const source *s) {
    if (is_done(c, s->name)) return true;
    mark_done(c, s->name);
    if (c->plan_only) return true;
    part p = {.s = *s, .key = sn_cache_make_key(&c->p->target, s->text, strlen(s->text))};
    bool cached = get_cached(c, &p);
    if (!cached && (p.job = begin_object(c, s)) < 0) return false;
    c->part = sn_arena_grow(c->m, c->part, sizeof *c->part, c->n_part, &c->cap_part);
    c->part[c->n_part++] = p;
    return true;
}

static bool load(compiler *c, const sn_object *o, sn_error *err) {
    return c->sink ? c->sink->add(c->sink->ctx, o, err) : sn_jit_add_object(c->p->jit, o, err);
}

static bool load_cached(compiler *c, part *p) {
    sn_error unloadable = {0};
    if (load(c, &p->cached, c->sink ? c->err : &unloadable)) {
        c->p->stats.cached++;
        c->p->stats.code_bytes += p->cached.size;
        return true;
    }
    if (c->sink) return false;
    sn_cache_drop(c->cache, SN_CACHE_OBJECT, p->key);
    sn_object_free(&p->cached);
    p->job = begin_object(c, &p->s);
    return p->job >= 0;
}

static bool load_compiled(compiler *c, const part *p) {
    sn_object o;
    if (!sn_pool_take(c->pool, p->job, &o, c->err)) return false;
    bool ok = load(c, &o, c->err);
    if (ok) {
        c->p->stats.compiled++;
        c->p->stats.code_bytes += o.size;
        sn_cache_put(c->cache, SN_CACHE_OBJECT, p->key, &o);
    }
    sn_object_free(&o);
    return ok;
}

/* Loads all parts in the order in which they were added, as if one thread had compiled them. */
static bool load_parts(compiler *c) {
    for (int i = 0; i < c->n_part; i++) {
        part *p = &c->part[i];
        if (p->cached.data && !load_cached(c, p)) return false;
        bool loaded = p->cached.data != NULL;
        sn_object_free(&p->cached);
        if (!loaded && !load_compiled(c, p)) return false;
    }
    return true;
}

/* All that the code of u depends on, but its symbol. */
static const char *entry_code_text(sn_module *m, const sn_entry_code *u) {
    char *data = NULL;
    size_t size = 0;
    FILE *f = open_memstream(&data, &size);
    if (!f) return NULL;
    fprintf(f, "entry%s\n", u->checked ? " checked" : "");
    for (int i = 0; i < sn_symbol_count(m); i++) fprintf(f, "%s ", sn_symbol_at(m, i)->name);
    sn_plan_print(f, u->plan);
    for (int i = 0; i < u->plan->n_call; i++) fprintf(f, "%s\n", u->kernel[i].name);
    for (int i = 0; i < u->plan->n_buffer; i++) {
        const sn_buffer *b = &u->plan->buffer[i];
        fprintf(f, "%d %d %d %lld ", b->kind, b->slot, u->table[i], (long long)b->row_limit);
        sn_print_dims(f, m, 4, (const sn_dim[]){b->count, b->max_count, b->rows, b->segments});
        fputc('\n', f);
    }
    bool ok = fclose(f) == 0;
    const char *text = ok ? sn_arena_printf(m, "%s", data) : NULL;
    free(data);
    return text;
}

/* Preparations of like weights, of equal layers, are the same code: its name is its hash. */
static bool name_entry_code(compiler *c, int i, sn_compiled_entry *out) {
    sn_entry_code *u = &out->code;
    const char *text = entry_code_text(c->m, u);
    if (!text) return false;
    if (sn_compiled_prepares(out)) {
        XXH128_hash_t h = XXH3_128bits(text, strlen(text));
        snprintf(u->symbol, sizeof u->symbol, "sn_prepare_%016llx%016llx",
                 (unsigned long long)h.high64, (unsigned long long)h.low64);
    } else {
        snprintf(u->symbol, sizeof u->symbol, "sn_entry_%d", i);
    }
    u->text = sn_arena_printf(c->m, "%s %s", u->symbol, text);
    return true;
}

static void advance(const compiler *c, double done) {
    if (c->o->advance && !c->forced) c->o->advance(c->o->advance_ctx, "compile", done);
}

static bool compile_entry(compiler *c, int i, sn_compiled_entry *out) {
    sn_entry *e = sn_entry_at(c->m, i);
    const char *symbol = out->code.symbol;
    if (!sn_entry_code_make(c->m, e, c->budget.bytes ? &c->budget : NULL, &out->code))
        return module_failed(c);
    out->code.checked = checks_values(c);
    if (out->code.checked) out->code.check = sn_value_checks(c->m, out->code.plan);
    bool needed = !c->sink || !sn_compiled_prepares(out); /* an artefact's weights are prepared */
    for (int k = 0; k < out->code.plan->n_call; k++) {
        sn_kernel *kernel = &out->code.kernel[k];
        advance(c, (i + (double)k / out->code.plan->n_call) / sn_entry_count(c->m));
        if (sn_step_is_extern(kernel->step)) {
            c->p->stats.onednn += !sn_step_is_collective(kernel->step);
            continue;
        }
        if (!needed) continue;
        if (!c->forced && !sn_tuner_tile(&c->tuner, kernel)) return false;
        bool known = is_done(c, kernel->name);
        if (!add_source(c, &(source){.name = kernel->name,
                                     .text = kernel->text,
                                     .compute = kernel->compute,
                                     .kernel = kernel}))
            return false;
        if (!known) c->p->stats.kernels++;
    }
    if (!name_entry_code(c, i, out)) return sn_fail(c->err, SN_ERR_MEMORY, "out of memory");
    return !needed || add_source(c, &(source){.name = sn_arena_str(c->m, symbol),
                                              .text = out->code.text,
                                              .compute = SN_F32,
                                              .code = &out->code});
}

/* The addresses of an entry whose code is loaded. */
static bool link_entry(compiler *c, sn_compiled_entry *out) {
    const char *symbol = out->code.symbol;
    char name[96];
    snprintf(name, sizeof name, "%s_workspace", symbol);
    /* data pointers to function pointers: POSIX, by way of memcpy for ISO C */
    void *run = sn_jit_lookup(c->p->jit, symbol, c->err),
         *size = sn_jit_lookup(c->p->jit, name, c->err);
    if (!run || !size) return false;
    memcpy(&out->run, &run, sizeof run);
    memcpy(&out->workspace, &size, sizeof size);
    return true;
}

/* The user's entries and their companions are described already; passes have added preparations. */
static bool compile_entries(compiler *c) {
    int n = sn_entry_count(c->m);
    sn_compiled_entry *all = sn_arena_alloc(c->m, sizeof *all * (size_t)(n + 1));
    memcpy(all, c->p->entry, sizeof *all * (size_t)c->n_described);
    c->p->entry = all;
    for (int i = 0; i < n; i++) {
        if (!compile_entry(c, i, &all[i])) return false;
        c->p->n_entry++;
    }
    c->loading = true;
    if (!load_parts(c)) return false;
    for (int i = 0; i < n && c->p->jit; i++)
        if (!link_entry(c, &all[i])) return false;
    return true;
}

/* What is dumped has the order of compilation, and nothing compiles while candidates are measured. */
static bool open_pool(compiler *c) {
    sn_codegen_options options = {0};
    c->asm_dump = dump_file("kernels", "s");
    options.dump_asm = c->asm_dump;
    bool alone = c->asm_dump || c->o->tune;
    int threads = alone ? 1 : c->o->threads > 0 ? c->o->threads : omp_get_max_threads();
    c->pool = sn_pool_create(&c->p->target, &options, threads, c->err);
    return c->pool != NULL;
}

static bool open_jit(compiler *c) {
    sn_jit_symbol symbols[SN_JIT_MEMORY];
    sn_jit_memory(symbols);
    sn_jit_options jo = {.symbols = symbols, .n_symbols = SN_JIT_MEMORY};
    const sn_debug *dbg = sn_debug_get();
    jo.perf_map = dbg->perf;
    jo.gdb = dbg->gdb;
    c->p->jit = sn_jit_create(&c->p->target, &jo, c->err);
    return c->p->jit != NULL;
}

static bool stage_entries(compiler *c) {
    if (c->plan_only) return compile_entries(c);
    return (c->sink || open_jit(c)) && open_pool(c) && compile_entries(c);
}

/* ---- the stages ---- */

typedef struct program_stage {
    sn_stage_id id;
    bool (*run)(compiler *c);
} program_stage;

static const program_stage stages[] = {
#define STAGE_MODEL(name)
#define STAGE_PROGRAM(name) {SN_STAGE_##name, stage_##name},
#define STAGE_PASS(name)
#define STAGE_PLAN(name)
#define STAGE(kind, name, ...) STAGE_##kind(name)
#define PASS(...)
#define PART(...)
#include "passes/stages.def"
};

static bool compile(compiler *c) {
    sn_program *p = c->p;
    if (sn_module_error(c->m)->code) return module_failed(c);
    if (!pass_options(c) || !budget_option(c)) return false;
    p->packed_limit = packed_limit(c->o);
    c->plan_only = c->o->plan_only && !sn_debug_get()->dump; /* the dump is of code */
    p->advance = c->o->advance;
    p->advance_ctx = c->o->advance_ctx;
    advance(c, 0);
    p->cache_dir = c->o->cache_dir ? sn_arena_str(c->m, c->o->cache_dir) : NULL;
    if (!sn_target_init(&p->target, c->o->target, c->err)) return false;
    if (!c->sink && sn_computes_unordered(c->o)) sn_target_take_amx(&p->target);
    p->target.bitcode |= c->sink && c->sink->bitcode;
    if (!c->sink && !sn_target_runs_here(&p->target))
        return sn_fail(
            c->err, SN_ERR_TARGET,
            "this CPU cannot run code for target '%s'; compile for it with sinter compile",
            p->target.name);
    for (size_t i = 0; i < sizeof stages / sizeof *stages; i++) {
        double begin = sn_stage_begin();
        if (!stages[i].run(c)) return false;
        if (sn_module_error(c->m)->code) return module_failed(c); /* such as a lack of memory */
        sn_stage_end(stages[i].id, begin, -1);
    }
    if (p->stats.measured && c->o->progress) c->o->progress(c->o->progress_ctx, "");
    advance(c, 1);
    const char *note = sn_cache_note(c->cache);
    if (note) p->stats.note = sn_arena_printf(c->m, "%s", note);
    if (c->pool) {
        sn_codegen_stats made = sn_pool_stats(c->pool);
        p->stats.codegen = made.optimise + made.codegen;
    }
    if (p->jit) p->stats.load = sn_jit_stats(p->jit).load;
    return true;
}

static void compile_plain(void *ctx) {
    compiler *c = ctx;
    c->ok = compile(c);
}

static void compile_guarded(void *ctx) {
    compiler *c = ctx;
    sn_llvm_try(compile_plain, c, c->err);
}

sn_program *sn_program_make(sn_module *m, const sn_options *o, const sn_object_sink *sink,
                            const sn_chooser *forced, sn_error *err) {
    static const sn_options defaults = {.level = -1};
    sn_error local = {0};
    if (!m) {
        sn_fail(err, SN_ERR_USAGE, "sn_compile: the module is NULL");
        return NULL;
    }
    sn_program *p = calloc(1, sizeof *p);
    if (!p) {
        sn_fail(err, SN_ERR_MEMORY, "out of memory");
        return NULL;
    }
    double start = sn_clock();
    compiler c = {
        .p = p, .m = m, .o = o ? o : &defaults, .sink = sink, .forced = forced, .err = &local};
    atomic_init(&p->owners, 1);
    p->m = sn_module_retain(m);
    p->threads = c.o->threads;
    /* with an error the module takes no more memory */
    sn_entries *saved = sn_module_error(m)->code ? NULL : sn_entries_save(m);
    const void *mark = sn_llvm_mark();
    bool ok = sn_module_try(m, compile_guarded, &c) ? c.ok : module_failed(&c);
    sn_llvm_reset(mark);
    sn_pool_destroy(c.pool);
    for (int i = 0; i < c.n_part; i++) sn_object_free(&c.part[i].cached);
    if (!ok && c.loading && local.code == SN_ERR_MEMORY) /* LLVM may be in the middle: lost */
        p->jit = NULL;
    if (saved) sn_entries_restore(m, saved);
    sn_cache_close(c.cache);
    if (c.asm_dump) fclose(c.asm_dump);
    p->stats.seconds = sn_clock() - start;
    if (ok) return p;
    sn_fail(err, local.code, "%s", local.message);
    sn_program_free(p);
    return NULL;
}

sn_program *sn_compile(sn_module *m, const sn_options *o, sn_error *err) {
    if (m) sn_null_op_report(m);
    return sn_program_make(m, o, NULL, NULL, err);
}
