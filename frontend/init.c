/* init.c: initial weights of the architectures, one table of rules. Samples come from the stream
 * SN_STREAM_INIT, at an index derived from the parameter's name. */
#include "frontend/train.h"
#include "ir/ir.h"
#include "runtime/memory.h"
#include "runtime/str.h"
#include "runtime/threads.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

typedef struct filler {
    double scale;
    int64_t layers, n, fan_in, fan_out;
    sn_rng rng;
} filler;

static void fill_constant(const filler *f, float *out) {
    for (int64_t i = 0; i < f->n; i++) out[i] = (float)f->scale;
}

static void fill_normal(const filler *f, float *out) {
    sn_threads_fill(&f->rng, sn_rng_fill_normal, 0, (float)f->scale, out, f->n);
}

/* Projections into the residual stream, two per layer (GPT-2 paper, 2.3). */
static void fill_residual(const filler *f, float *out) {
    double layers = f->layers > 0 ? (double)f->layers : 1;
    double scale = f->scale / sqrt(2 * layers);
    sn_threads_fill(&f->rng, sn_rng_fill_normal, 0, (float)scale, out, f->n);
}

/* Glorot & Bengio 2010, (16): uniform within sqrt(6 / (in + out)) */
static void fill_xavier(const filler *f, float *out) {
    double width = f->scale * sqrt(6 / (double)(f->fan_in + f->fan_out));
    sn_threads_fill(&f->rng, sn_rng_fill_uniform, (float)-width, (float)width, out, f->n);
}

/* Standard deviation scale / sqrt(in) */
static void fill_fan_in(const filler *f, float *out) {
    double scale = f->scale / sqrt((double)f->fan_in);
    sn_threads_fill(&f->rng, sn_rng_fill_normal, 0, (float)scale, out, f->n);
}

/* The first row that matches the type and a part of the name. Vectors are handled before: gains 1,
 * biases 0. */
static const struct {
    const char *type, *part;
    void (*fill)(const filler *, float *);
    double scale;
} rules[] = {
    {"gpt2", "c_proj.weight", fill_residual, 0.02},
    {"llama", "o_proj.weight", fill_residual, 0.02},
    {"llama", "down_proj.weight", fill_residual, 0.02},
    {"edt", "embed", fill_normal, 0.02}, /* also W_u: small initial logits */
    {"edt", "", fill_xavier, 1},         /* Vaswani et al., as in tensor2tensor and PyTorch */
    {"tse_gpt", "W_O", fill_residual, 0.02},
    {"tse_gpt", "mlps.write", fill_residual, 0.02},
    {"tse_gpt", "embedding", fill_fan_in, 1},
    {NULL, "", fill_normal, 0.02}, /* GPT-2, BERT, Llama */
};

static void initialise(const char *type, const sn_weight *w, filler *f, float *out) {
    const char *name = w->name;
    if (w->rank < 2) {
        f->scale = sn_ends_with(name, "weight") || sn_ends_with(name, "lambda1") ||
                   sn_ends_with(name, "gain") || sn_ends_with(name, "running_var");
        fill_constant(f, out);
        return;
    }
    size_t i = 0;
    while (rules[i].type && (strcmp(rules[i].type, type) != 0 || !strstr(name, rules[i].part))) i++;
    f->scale = rules[i].scale;
    f->fan_out = w->shape[0], f->fan_in = f->n / (f->fan_out > 0 ? f->fan_out : 1);
    rules[i].fill(f, out);
}

/* FNV-1a: the parameter's index in the stream */
static uint32_t hash_name(const char *s) {
    uint32_t h = 2166136261u;
    for (; *s; s++) h = (h ^ (unsigned char)*s) * 16777619u;
    return h;
}

static bool add_parameter(const sn_node *n, sn_parameters *out, sn_error *err) {
    const char *name = sn_attr_str(n, SN_A_name, "");
    for (size_t i = 0; i < out->count; i++)
        if (!strcmp(out->weight[i].name, name)) return true;
    if (n->dtype != SN_F32)
        return sn_fail(err, SN_ERR_SHAPE,
                       "parameter '%s' is %s; only f32 parameters can be trained", name,
                       sn_dtype_name((sn_dtype)n->dtype));
    sn_weight *grown = realloc(out->weight, sizeof *grown * (out->count + 1));
    if (!grown) return sn_fail(err, SN_ERR_MEMORY, "out of memory");
    out->weight = grown;
    sn_weight w = {.name = name, .dtype = SN_F32, .rank = n->rank};
    for (int a = 0; a < n->rank; a++) {
        if (!sn_dim_is_const(n->m, n->shape[a], &w.shape[a]))
            return sn_fail(err, SN_ERR_SHAPE, "parameter '%s' has a symbolic shape", name);
    }
    int64_t elements = sn_weight_elements(&w);
    w.bytes = (size_t)elements * sizeof(float);
    out->weight[out->count++] = w;
    out->elements += elements;
    return true;
}

bool sn_parameters_list(sn_module *m, sn_parameters *out, sn_error *err) {
    *out = (sn_parameters){0};
    bool ok = sn_module_ok(m, err);
    for (int i = 0; ok && i < sn_entry_count(m); i++) {
        sn_order order = sn_entry_topo(m, sn_entry_at(m, i));
        for (int j = 0; ok && j < order.n; j++)
            if (order.node[j]->op == SN_OP_param) ok = add_parameter(order.node[j], out, err);
    }
    if (!ok) sn_parameters_free(out);
    return ok;
}

void sn_parameter_draw(const sn_weight *w, const char *type, int64_t layers, uint64_t seed,
                       float *out) {
    filler f = {.layers = layers,
                .n = sn_weight_elements(w),
                .rng = {.seed = seed, .stream = SN_STREAM_INIT, .step = hash_name(w->name)}};
    initialise(type, w, &f, out);
}

bool sn_parameters_draw(sn_module *m, const char *type, int64_t layers, uint64_t seed,
                        sn_parameters *out, sn_error *err) {
    bool ok = sn_parameters_list(m, out, err);
    for (size_t i = 0; ok && i < out->count; i++) {
        sn_weight *w = &out->weight[i];
        w->data = sn_memory_alloc(w->bytes);
        ok = w->data ||
             sn_fail(err, SN_ERR_MEMORY, "out of memory: %zu bytes for '%s'", w->bytes, w->name);
        if (!ok) break;
        sn_parameter_draw(w, type, layers, seed, (float *)(uintptr_t)w->data);
    }
    if (!ok) sn_parameters_free(out);
    return ok;
}

void sn_parameters_free(sn_parameters *p) {
    for (size_t i = 0; i < p->count; i++) free((void *)(uintptr_t)p->weight[i].data);
    free(p->weight);
    *p = (sn_parameters){0};
}
