/* check_decode.c: decoding against forward: what `prefill` and `decode` give for a sequence, step by step,
 * is what `forward` gives for all of it. Entries are matched by the names of their inputs and outputs: an
 * axis of forward that depends on T is one token in decode, or is absent from its outputs. Unless sizes are
 * given, the sequence is longer than every window, block and ring of rows in the graph, as far as the context
 * goes. */
#include "tools/run/check.h"
#include "codegen/program/program.h"
#include "codegen/program/sizes.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { LEAST = 256, BEYOND = 64, PROMPT = 5, MAX_LIST = 64 };

typedef struct decoding {
    const check_options *o;
    sn_session *s;
    sn_module *m;
    const sn_entry *forward, *prefill, *decode;
    const sn_binding *whole, *one; /* the output that both have */
    inspect_inputs in;             /* of forward, for all tokens */
    run_results all;
    int axis; /* of `whole` that is T */
    double error, largest;
    int64_t at, first; /* tokens: of the largest error; the first that differs, -1: none */
    sn_error *err;
} decoding;

/* The axis whose size is T alone; -1: none. */
static int tokens_axis(const sn_node *n) {
    for (int a = 0; a < n->rank; a++) {
        char dim[32];
        sn_dim_print(n->m, n->shape[a], dim, sizeof dim);
        if (!strcmp(dim, "T")) return a;
    }
    return -1;
}

static const sn_node *input_of(sn_module *m, const sn_entry *e, const char *name) {
    sn_order order = sn_entry_topo(m, e);
    for (int i = 0; i < order.n; i++)
        if (order.node[i]->op == SN_OP_input &&
            !strcmp(sn_attr_str(order.node[i], SN_A_name, ""), name))
            return order.node[i];
    return NULL;
}

/* ---- the length ---- */

typedef struct positions {
    sn_module *m;
    bool *is;        /* [nodes] made of positions and constants only */
    int64_t largest; /* constant that is compared with a position, or divides it, … */
} positions;

static const sn_node *behind_views(const sn_node *n) {
    while (n->n_in == 1 && (sn_ops[n->op].flags & SN_OPF_VIEW || n->op == SN_OP_cast)) n = n->in[0];
    return n;
}

static bool is_bound(sn_op op) {
    static const sn_op with[] = {SN_OP_lt,  SN_OP_le,  SN_OP_eq,  SN_OP_ne,  SN_OP_add,
                                 SN_OP_sub, SN_OP_div, SN_OP_mod, SN_OP_min, SN_OP_max};
    for (size_t i = 0; i < sizeof with / sizeof *with; i++)
        if (op == with[i]) return true;
    return op == SN_OP_shift_right;
}

static void find_bounds(positions *p, sn_order order) {
    for (int i = 0; i < order.n; i++) {
        const sn_node *n = order.node[i];
        bool named = n->op == SN_OP_input && !strcmp(sn_attr_str(n, SN_A_name, ""), "past");
        bool is = n->op == SN_OP_iota || n->op == SN_OP_dim_value || named ||
                  (n->op == SN_OP_arg && !sn_is_float(n));
        int of = 0, constants = 0;
        for (int k = 0; k < n->n_in; k++) {
            of += p->is[n->in[k]->id];
            constants += behind_views(n->in[k])->op == SN_OP_const;
        }
        bool plain = sn_is_elementwise(n) || sn_ops[n->op].flags & SN_OPF_VIEW;
        p->is[n->id] = is || (plain && of && of + constants == n->n_in);
        for (int k = 0; of && is_bound((sn_op)n->op) && k < n->n_in; k++) {
            const sn_node *c = behind_views(n->in[k]);
            double v = c->op == SN_OP_const ? fabs(sn_attr_flt(c, SN_A_value, 0)) : 0;
            if (n->op == SN_OP_shift_right) v = v < 32 ? ldexp(1, (int)v) : 0;
            if (v < INT32_MAX && v > (double)p->largest) p->largest = (int64_t)v;
        }
        for (int k = 0; k < n->n_attr; k++)
            if (sn_attr_table[n->attr[k].key].kind == SN_AK_REGION)
                find_bounds(p, sn_region_topo(p->m, n->attr[k].r));
    }
}

/* Past every window that the entries have; at least LEAST tokens, at most the context. */
static bool length_of(decoding *d, int64_t *out) {
    const sn_entry *e[] = {d->forward, d->decode};
    positions p = {.m = d->m, .is = calloc(sn_module_node_count(d->m) + 1, sizeof *p.is)};
    if (!p.is) return sn_fail(d->err, SN_ERR_MEMORY, "out of memory");
    int64_t context = sn_symbol_at(d->m, sn_symbol_find(d->m, "T"))->hi;
    int past = sn_symbol_find(d->m, "P");
    if (past >= 0 && sn_symbol_at(d->m, past)->hi < context)
        context = sn_symbol_at(d->m, past)->hi + 1;
    for (int i = 0; i < 2; i++) find_bounds(&p, sn_entry_topo(d->m, e[i]));
    free(p.is);
    *out = p.largest < context && p.largest + BEYOND > LEAST ? p.largest + BEYOND : LEAST;
    if (*out > context) *out = context;
    return true;
}

/* The tokens that --sizes asks for: T, or P and one more. */
static bool sizes_of(decoding *d, char *sizes, size_t size) {
    int64_t length = 0, symbol[LOOK_SYMBOLS];
    int t = sn_symbol_find(d->m, "T"), past = sn_symbol_find(d->m, "P");
    if (!length_of(d, &length)) return false;
    memset(symbol, 0, sizeof symbol);
    if (d->o->sizes && !sn_sizes_read(d->m, "sizes", d->o->sizes, symbol, d->err)) return false;
    if (symbol[t]) length = symbol[t];
    if (past >= 0 && symbol[past] >= length) length = symbol[past] + 1;
    return run_sizes(d->m, d->forward, d->o->given, length, 1, false, NULL, sizes, size, d->err);
}

/* An output of both, which forward has for every token. */
static bool match_outputs(decoding *d) {
    for (int i = 0; i < d->decode->n_output; i++)
        for (int k = 0; k < d->forward->n_output; k++) {
            const sn_binding *one = &d->decode->output[i], *whole = &d->forward->output[k];
            int axis = tokens_axis(whole->node), less = whole->node->rank - one->node->rank;
            if (strcmp(one->name, whole->name) != 0 || axis < 0 || less < 0 || less > 1) continue;
            d->one = one, d->whole = whole, d->axis = axis;
            return true;
        }
    return false;
}

typedef struct binding { /* inputs of a step */
    sn_arg_binding list[MAX_LIST + 2];
    int64_t shape[MAX_LIST][SN_MAX_RANK], past, tokens;
    void *own[MAX_LIST];
    int n;
} binding;

/* Tokens from .. from + n - 1 of an input of forward. */
static void *part_of(const sn_arg_binding *a, int axis, int64_t from, int64_t n) {
    size_t inner = sn_dtype_size(a->dtype), outer = 1;
    for (int i = 0; i < a->rank; i++)
        *(i < axis ? &outer : i > axis ? &inner : &outer) *= i == axis ? 1 : (size_t)a->shape[i];
    char *out = malloc(outer * inner * (size_t)n + 1);
    for (size_t i = 0; out && i < outer; i++)
        memcpy(out + i * inner * (size_t)n,
               (const char *)a->data + (i * (size_t)a->shape[axis] + (size_t)from) * inner,
               inner * (size_t)n);
    return out;
}

/* Returns the number of inputs that have a token axis; -1: an input that cannot be derived. */
static int bind_step(const decoding *d, const sn_entry *e, int64_t from, int64_t n, binding *b) {
    sn_order order = sn_entry_topo(d->m, e);
    int with_tokens = 0;
    *b = (binding){.past = from, .tokens = n};
    for (int i = 0; i < order.n; i++) {
        const sn_node *x = order.node[i];
        if (x->op != SN_OP_input) continue;
        const char *name = sn_attr_str(x, SN_A_name, "");
        const sn_node *same = input_of(d->m, d->forward, name);
        const sn_arg_binding *a = NULL;
        for (int k = 0; k < d->in.n_data; k++)
            if (!strcmp(d->in.arg[k].name, name)) a = &d->in.arg[k];
        if (!same || !a || x->rank != same->rank || b->n == MAX_LIST) return -1;
        int axis = tokens_axis(same);
        for (int k = 0; k < x->rank; k++) b->shape[b->n][k] = k == axis ? n : a->shape[k];
        b->list[b->n] = (sn_arg_binding){name, a->dtype, x->rank, b->shape[b->n], a->data};
        if (axis >= 0) b->list[b->n].data = b->own[b->n] = part_of(a, axis, from, n);
        with_tokens += axis >= 0;
        b->n++;
    }
    return with_tokens;
}

static bool run_step(decoding *d, const sn_entry *e, binding *b, double *out, int64_t n) {
    sn_arg_binding result = {.name = d->one->name, .dtype = (sn_dtype)d->one->node->dtype};
    int64_t shape[SN_MAX_RANK];
    const sn_binding *has = NULL;
    for (int i = 0; i < e->n_output; i++)
        if (!strcmp(e->output[i].name, d->one->name)) has = &e->output[i];
    int symbols = sn_symbol_count(d->m);
    sn_arg_binding *in = calloc((size_t)(b->n + symbols) + 1, sizeof *in);
    int64_t *value = calloc((size_t)symbols + 1, sizeof *value);
    float *data = malloc(sizeof *data * (size_t)n + 8);
    bool ok = (in && value && data) || sn_fail(d->err, SN_ERR_MEMORY, "out of memory");
    int used = b->n;
    if (ok) memcpy(in, b->list, sizeof *in * (size_t)b->n);
    for (int i = 0; ok && i < symbols; i++) { /* P: past tokens; T: these; others as in forward */
        const char *name = sn_symbol_at(d->m, i)->name;
        value[i] = !strcmp(name, "P") ? b->past : !strcmp(name, "T") ? b->tokens : d->in.symbol[i];
        in[used++] = (sn_arg_binding){.name = name, .dtype = SN_I64, .data = &value[i]};
    }
    bool wanted = ok && out && has && has->node->rank == d->one->node->rank;
    if (wanted) {
        for (int a = 0; a < has->node->rank; a++)
            shape[a] = sn_dim_eval(d->m, has->node->shape[a], value);
        result.rank = has->node->rank, result.shape = shape, result.data = data;
    }
    ok = ok && sn_run(d->s, e->name, in, used, &result, wanted, d->err);
    for (int64_t i = 0; ok && wanted && i < n; i++) out[i] = (double)data[i];
    free(data);
    free(value);
    free(in);
    for (int i = 0; i < b->n; i++) free(b->own[i]);
    return ok;
}

static void compare_token(decoding *d, const double *one, int64_t token, int64_t n) {
    const run_tensor *w = NULL;
    for (int i = 0; i < d->all.n; i++)
        if (!strcmp(d->all.list[i].name, d->whole->name)) w = &d->all.list[i];
    int64_t inner = 1;
    for (int a = d->axis + 1; a < w->node->rank; a++) inner *= w->shape[a];
    for (int64_t i = 0; i < n; i++) {
        int64_t at = (i / inner * w->shape[d->axis] + token) * inner + i % inner;
        double want = sn_dtype_load((sn_dtype)w->node->dtype, w->data, at);
        double far = check_distance(d->o, one[i], want);
        if (isfinite(want)) d->largest = fmax(d->largest, fabs(want));
        if (far > 0 && d->first < 0) d->first = token;
        if (far > d->error) d->error = far, d->at = token;
    }
}

static bool is_given(const run_given *g, const char *name) {
    for (int i = 0; g && i < g->n; i++)
        if (!strcmp(g->item[i].name, name)) return true;
    return false;
}

/* The inputs of forward that decode does not have are zero unless they are given: every token is of one
 * document, of no prefix. */
static void clear_others(decoding *d) {
    for (int i = 0; i < d->in.n_data; i++) {
        sn_arg_binding *a = &d->in.arg[i];
        size_t bytes = sn_dtype_size(a->dtype);
        for (int k = 0; k < a->rank; k++) bytes *= (size_t)a->shape[k];
        if (!is_given(d->o->given, a->name) && !input_of(d->m, d->decode, a->name) &&
            !(d->prefill && input_of(d->m, d->prefill, a->name)))
            memset(a->data, 0, bytes);
    }
}

static bool walk(decoding *d, int64_t vocab, int64_t *compared) {
    char sizes[512];
    bool ok = sizes_of(d, sizes, sizeof sizes) &&
              run_inputs_make(&d->in, sn_session_program(d->s), d->forward->name, sizes,
                              d->o->given, vocab, d->err);
    if (!ok) return false;
    int t = sn_symbol_find(d->m, "T");
    int64_t tokens = d->in.symbol[t], n = 1, from = 0;
    *compared = tokens;
    clear_others(d);
    ok = run_entry(d->s, d->m, d->forward, &d->in, false, &d->all, d->err);
    const run_tensor *w = d->all.list;
    for (int i = 0; ok && i < d->all.n; i++)
        if (!strcmp(d->all.list[i].name, d->whole->name)) w = &d->all.list[i];
    for (int a = 0; ok && a < w->node->rank; a++) n *= a == d->axis ? 1 : w->shape[a];
    double *one = ok ? calloc((size_t)n + 1, sizeof *one) : NULL;
    ok = ok && (one || sn_fail(d->err, SN_ERR_MEMORY, "out of memory"));
    sn_session_reset(d->s);
    if (ok && d->prefill && tokens > PROMPT) {
        binding b;
        int with_tokens = bind_step(d, d->prefill, 0, PROMPT, &b);
        one[0] = NAN;
        if (with_tokens < 0)
            ok = sn_fail(d->err, SN_ERR_USAGE, "prefill has inputs that forward has not");
        ok = ok && run_step(d, d->prefill, &b, one, n);
        from = with_tokens > 0 ? PROMPT : 0; /* 0: it reads a source, and no tokens */
        if (ok && from && !isnan(one[0])) compare_token(d, one, from - 1, n);
    }
    for (; ok && from < tokens; from++) {
        binding b;
        if (bind_step(d, d->decode, from, 1, &b) < 1)
            ok = sn_fail(d->err, SN_ERR_USAGE, "decode has inputs that forward has not");
        ok = ok && run_step(d, d->decode, &b, one, n);
        if (ok) compare_token(d, one, from, n);
    }
    free(one);
    return ok;
}

/* Whether decode has an input of forward's. The graph of an ONNX file has other ones than the entries made from it. */
static bool is_related(const decoding *d) {
    sn_order order = sn_entry_topo(d->m, d->decode);
    for (int i = 0; i < order.n; i++)
        if (order.node[i]->op == SN_OP_input &&
            input_of(d->m, d->forward, sn_attr_str(order.node[i], SN_A_name, "")))
            return true;
    return false;
}

bool check_decoding(const check_options *o, sn_session *s, int64_t vocab, check_report *r,
                    sn_error *err) {
    sn_module *m = sn_session_program(s)->m;
    sn_error own = {0};
    decoding d = {.o = o,
                  .s = s,
                  .m = m,
                  .forward = sn_entry_get(m, "forward"),
                  .prefill = sn_entry_get(m, "prefill"),
                  .decode = sn_entry_get(m, "decode"),
                  .first = -1,
                  .err = &own};
    bool chosen = !o->entry || !strcmp(o->entry, "decode");
    if (!chosen || !d.forward || !d.decode || !is_related(&d)) return true;
    check_cell *cell = check_add(r, "decode", "results", "forward");
    if (!cell) return sn_fail(err, SN_ERR_MEMORY, "out of memory");
    if (!match_outputs(&d))
        sn_fail(&own, SN_ERR_USAGE, "no output of decode is one of forward for each of T tokens");
    else if (walk(&d, vocab, &cell->tokens)) {
        cell->error = d.largest > 0 ? d.error / d.largest : d.error;
        cell->limit = fmax(check_tolerance(o), 1e-4);
        cell->holds = cell->error <= cell->limit;
        cell->first = d.first;
        if (!cell->holds)
            snprintf(cell->detail, sizeof cell->detail,
                     "'%s' of token %lld of %lld differs by %.3g", d.whole->name, (long long)d.at,
                     (long long)cell->tokens, d.error);
    }
    if (own.code) {
        cell->holds = false;
        snprintf(cell->detail, sizeof cell->detail, "%.380s", own.message);
    }
    inspect_inputs_free(&d.in);
    run_results_free(&d.all);
    return true;
}
