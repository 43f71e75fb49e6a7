/* subject_find.c: finds the linear maps and tables of a model that quantising concerns. */
#include "model/quantise/subject_impl.h"
#include "model/quantise/folder_tensors.h"

#include <stdlib.h>
#include <string.h>

static int param_index(const subject *s, const sn_node *n) {
    for (int i = 0; i < s->n_param; i++)
        if (s->param[i].node == n) return i;
    return -1;
}

static bool add_param(subject *s, const sn_node *n, sn_error *err) {
    if (n->op != SN_OP_param) return true;
    subject_param *more = realloc(s->param, sizeof *more * (size_t)(s->n_param + 1));
    if (!more) return sn_fail(err, SN_ERR_MEMORY, "out of memory");
    s->param = more;
    subject_param *p = &more[s->n_param++];
    *p = (subject_param){.node = n, .name = sn_attr_str(n, SN_A_name, ""), .count = 1};
    for (int a = 0; a < n->rank; a++) p->count *= n->shape[a];
    const sn_weight *w = sn_weights_find(model_weights(s->m), p->name);
    if (n->dtype != SN_F32 || !w || sn_weight_elements(w) != p->count)
        return sn_fail(err, SN_ERR_SHAPE, "%s: parameter '%s' is not an f32 array of the weights",
                       s->m->model.type, p->name);
    p->data = p->original = malloc(sizeof(float) * (size_t)p->count + 1);
    if (!p->data) return sn_fail(err, SN_ERR_MEMORY, "out of memory");
    return sn_weight_to_f32(w, p->data) ||
           sn_fail(err, SN_ERR_FILE, "parameter '%s' has a type that is not a float type", p->name);
}

/* The parameter below a weight: itself, or transposed. */
static const sn_node *param_of(const sn_node *w, bool *swapped) {
    *swapped = w->op == SN_OP_transpose && w->rank == 2;
    if (*swapped) w = w->in[0];
    return w->op == SN_OP_param && w->rank == 2 ? w : NULL;
}

static subject_matrix *matrix_of(subject *s, int param) {
    for (int i = 0; i < s->n_matrix; i++)
        if (s->matrix[i].param == param) return &s->matrix[i];
    return NULL;
}

static subject_matrix *add_matrix(subject *s, int param, bool swapped) {
    subject_matrix *more = realloc(s->matrix, sizeof *more * (size_t)(s->n_matrix + 1));
    if (!more) return NULL;
    s->matrix = more;
    const sn_node *n = s->param[param].node;
    more[s->n_matrix] = (subject_matrix){.param = param,
                                         .n = n->shape[swapped],
                                         .k = n->shape[!swapped],
                                         .swapped = swapped,
                                         .product = -1};
    return &more[s->n_matrix++];
}

/* Whether passes/quantise.c looks at a matrix of this size. */
static bool is_large(const sn_node *n) {
    enum { LEAST = 1024 };
    return n->shape[0] * n->shape[1] >= LEAST;
}

static subject_product *product_of(subject *s, sn_node *input, sn_error *err) {
    for (int i = 0; i < s->n_product; i++)
        if (s->product[i].input == input) return &s->product[i];
    subject_product *more = realloc(s->product, sizeof *more * (size_t)(s->n_product + 1));
    if (!more) {
        sn_fail(err, SN_ERR_MEMORY, "out of memory");
        return NULL;
    }
    s->product = more;
    more[s->n_product] = (subject_product){.input = input, .k = input->shape[input->rank - 1]};
    return &more[s->n_product++];
}

/* "q_proj" of "layers.0.q_proj.weight"; *n: its length; the text before it is *before bytes. */
static const char *last_part(const char *name, size_t *n, size_t *before) {
    size_t end = strlen(name);
    if (end > 7 && !strcmp(name + end - 7, ".weight")) end -= 7;
    size_t start = end;
    while (start && name[start - 1] != '.') start--;
    *n = end - start;
    *before = start;
    return name + start;
}

static void extend_label(subject_product *p, const char *name) {
    size_t n, before, at = strlen(p->label), room = sizeof p->label - 1;
    const char *last = last_part(name, &n, &before);
    bool first = !at;
    const char *text = first ? name : last;
    size_t length = first ? before + n : n;
    if (at + length + 1 > room) return;
    if (!first) p->label[at++] = '+';
    memcpy(p->label + at, text, length);
    p->label[at + length] = 0;
}

static bool add_map(subject *s, sn_node *n, sn_error *err) {
    bool swapped;
    const sn_node *w = param_of(n->in[1], &swapped);
    int param = w && is_large(w) ? param_index(s, w) : -1;
    if (param < 0 || n->dtype != SN_F32 || folder_tensor_is_apart(s, s->param[param].name))
        return true;
    subject_matrix *x = matrix_of(s, param);
    if (x && x->map) return true; /* used twice: its first input decides */
    if (x && swapped) return true;
    if (!x) x = add_matrix(s, param, swapped);
    if (!x) return sn_fail(err, SN_ERR_MEMORY, "out of memory");
    subject_product *p = product_of(s, n->in[0], err);
    int *more = p ? realloc(p->matrix, sizeof *more * (size_t)(p->n_matrix + 1)) : NULL;
    if (!more) return err->code ? false : sn_fail(err, SN_ERR_MEMORY, "out of memory");
    p->matrix = more;
    more[p->n_matrix++] = (int)(x - s->matrix);
    x->map = n;
    x->product = (int)(p - s->product);
    extend_label(p, s->param[param].name);
    return true;
}

static bool add_table(subject *s, const sn_node *n, sn_error *err) {
    const sn_node *w = n->in[0];
    int param = w->op == SN_OP_param && w->rank == 2 && is_large(w) ? param_index(s, w) : -1;
    if (param < 0) return true;
    subject_matrix *x = matrix_of(s, param);
    if (!x) x = add_matrix(s, param, false);
    if (!x) return sn_fail(err, SN_ERR_MEMORY, "out of memory");
    x->table = true;
    return true;
}

bool subject_find(subject *s, sn_error *err) {
    sn_order order = sn_topo(s->module, 1, &s->measured);
    bool ok = true;
    for (int i = 0; ok && i < order.n; i++) ok = add_param(s, order.node[i], err);
    for (int i = 0; ok && i < order.n; i++) {
        sn_node *n = order.node[i];
        if (n->op == SN_OP_embedding) ok = add_table(s, n, err);
        if (n->op == SN_OP_linear) ok = add_map(s, n, err);
    }
    return ok && (s->n_product || sn_fail(err, SN_ERR_USAGE,
                                          "%s models have no linear maps of parameters to quantise",
                                          s->m->model.type));
}
