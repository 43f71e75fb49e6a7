/* tile_map.c: which KV tiles an attention kernel visits, see tile_map.h. */
#include "codegen/program/tile_map.h"
#include "codegen/program/visible.h"

#include <stdlib.h>
#include <string.h>

typedef struct mapper {
    const sn_program *p;
    const sn_kernel *k;
    sn_mask_inputs of;
    sn_eval *eval;
    void **buf; /* [n_in + n_out + 1 of the step] */
    int64_t dim[SN_KERNEL_DIMS];
    sn_tile_map *out;
    sn_error *err;
    bool ok;
} mapper;

static int64_t eval_dim(const mapper *q, sn_dim d) {
    return sn_dim_eval(q->of.m, d, q->of.symbol);
}

static bool refuse(const mapper *q, const char *why) {
    snprintf(q->out->why, sizeof q->out->why, "%s", why);
    return false;
}

/* ---- the tensors that the mask reads ---- */

/* The value in the layout of the view, whose offset kernels do not see. */
static bool store_view(mapper *q, int i, const sn_value *v) {
    const sn_view *w = &q->k->step->in[i];
    int64_t extent = 1, index[SN_MAX_RANK] = {0}, at = 0;
    for (int a = 0; a < w->rank; a++)
        extent += (eval_dim(q, w->shape[a]) - 1) * eval_dim(q, w->stride[a]);
    size_t bytes = ((size_t)(extent > 0 ? extent : 1) * sn_dtype_size(w->dtype) + 127) / 64 * 64;
    q->buf[i] = aligned_alloc(64, bytes);
    if (!q->buf[i]) return sn_fail(q->err, SN_ERR_MEMORY, "out of memory for a tile map");
    memset(q->buf[i], 0, bytes);
    if (v->rank != w->rank) return refuse(q, "the mask reads a tensor in another layout");
    for (int64_t e = 0; e < v->n; e++) {
        sn_dtype_store(w->dtype, q->buf[i], at, v->data[e]);
        for (int a = w->rank - 1; a >= 0; a--) { /* the next element, row-major */
            int64_t stride = eval_dim(q, w->stride[a]);
            at += stride;
            if (++index[a] < v->shape[a]) break;
            at -= stride * index[a];
            index[a] = 0;
        }
    }
    return true;
}

static bool bind_captured(mapper *q) {
    const sn_step *s = q->k->step;
    const sn_region *mask = sn_attr_region(s->node, SN_A_mask);
    for (int i = SN_FLASH_CAPTURED; mask && i < s->n_in; i++) {
        if (!sn_mask_reads(q->of.m, mask, SN_MASK_POSITIONS + i - SN_FLASH_CAPTURED)) continue;
        if (sn_dtype_is_float(s->in[i].dtype) && s->in[i].dtype != SN_F32 &&
            s->in[i].dtype != SN_F64)
            continue; /* intervals follow integers only */
        const char *why = sn_mask_bind(&q->of, q->eval, s->node->in[i]);
        if (why) return refuse(q, why);
        const sn_value *v = sn_eval_node(q->eval, s->node->in[i]);
        if (!v) return refuse(q, "the evaluator cannot compute a tensor that the mask reads");
        if (!store_view(q, i, v)) return false;
    }
    return true;
}

/* ---- the kernel ---- */

static bool run_kernel(mapper *q) {
    const sn_step *s = q->k->step;
    em e;
    LLVMModuleRef mod = NULL;
    sn_jit_options options = {0};
    sn_jit *jit = sn_jit_create(&q->p->target, &options, q->err);
    if (!jit) return false;
    if (em_init(&e, &q->p->target, q->k->name, q->k->compute, q->err)) {
        q->k->family->emit_tile_map(&e, q->k);
        mod = em_finish(&e, q->err);
    }
    bool ok = mod && sn_jit_compile(jit, mod, NULL, q->err);
    em_free(&e);
    void *address = ok ? sn_jit_lookup(jit, q->k->name, q->err) : NULL;
    sn_kernel_fn *fn;
    memcpy(&fn, &address, sizeof fn);
    for (int i = 0; i < q->k->n_dim; i++) q->dim[i] = eval_dim(q, q->k->dim[i]);
    q->buf[s->n_in + s->n_out] = q->out->kind;
    if (address) fn(q->buf, q->dim, NULL, 0, 1);
    q->buf[s->n_in + s->n_out] = NULL;
    sn_jit_destroy(jit);
    return address;
}

static bool make(mapper *q) {
    enum { DECODES = 6 }; /* so few queries are not cut into blocks */
    const sn_step *s = q->k->step;
    sn_tile_map *o = q->out;
    q->k->family->tile_size(q->k, &q->p->target, &o->queries, &o->keys);
    o->batch = eval_dim(q, s->in[SN_FLASH_Q].shape[0]);
    o->heads = eval_dim(q, s->in[SN_FLASH_Q].shape[1]);
    o->tq = eval_dim(q, s->in[SN_FLASH_Q].shape[2]);
    o->tk = eval_dim(q, s->in[SN_FLASH_K].shape[2]);
    if (!o->queries) return refuse(q, "this attention has no tiles");
    if (o->tq <= DECODES) return refuse(q, "so few queries are not cut into blocks");
    o->blocks = (o->tq + o->queries - 1) / o->queries;
    o->tiles = (o->tk + o->keys - 1) / o->keys;
    size_t n = (size_t)(o->batch * o->heads * o->blocks * o->tiles);
    o->kind = calloc(n + 1, sizeof *o->kind);
    q->buf = calloc((size_t)(s->n_in + s->n_out) + 1, sizeof *q->buf);
    q->eval = sn_eval_new(q->of.m, q->of.symbol);
    if (!o->kind || !q->buf || !q->eval)
        return sn_fail(q->err, SN_ERR_MEMORY, "out of memory for a tile map");
    return bind_captured(q) && run_kernel(q);
}

static void make_plain(void *ctx) {
    mapper *q = ctx;
    q->ok = make(q);
}

static void make_guarded(void *ctx) {
    mapper *q = ctx;
    sn_llvm_try(make_plain, q, q->err);
}

bool sn_tile_map_make(const sn_program *p, const sn_session *s, const char *entry, int call,
                      const sn_arg_binding *in, int n_in, const int64_t *symbol, sn_tile_map *out,
                      sn_error *err) {
    const sn_compiled_entry *c = sn_program_entry(p, entry);
    *out = (sn_tile_map){.kind = NULL};
    if (!c || call < 0 || call >= c->code.plan->n_call)
        return sn_fail(err, SN_ERR_USAGE, "there is no call %d of entry '%s'", call, entry);
    const sn_kernel *k = &c->code.kernel[call];
    if (!k->family->emit_tile_map) return false;
    sn_error local = {0};
    mapper q = {.p = p, .k = k, .of = {p->m, s, in, n_in, symbol}, .out = out, .err = &local};
    const void *mark = sn_llvm_mark();
    if (!sn_module_try(p->m, make_guarded, &q))
        sn_fail(&local, SN_ERR_MEMORY, "out of memory for a tile map");
    sn_llvm_reset(mark);
    for (int i = 0; q.buf && i < k->step->n_in; i++) free(q.buf[i]);
    free(q.buf);
    sn_eval_free(q.eval);
    out->known = q.ok && !local.code;
    if (!out->known) {
        free(out->kind);
        out->kind = NULL;
    }
    if (local.code) sn_fail(err, local.code, "%s", local.message);
    return !local.code;
}
