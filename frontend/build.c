/* build.c: the frontend's state in a module: scopes, names, leaves, entries; and the checks that
 * every op begins with. */
#define XXH_INLINE_ALL
#include "frontend/front.h"

#include <stdarg.h>
#include <string.h>
#include <xxhash.h>

enum { MAX_PATH = 4096 };

typedef struct scope {
    struct scope *up;
    const char *path; /* "h.0.", including the final dot */
    sn_loc at;
} scope;

/* An input, parameter or state. Inputs of different entries may have the same name. */
typedef struct leaf {
    sn_node *node;
    const sn_entry *entry; /* entry of an input; NULL for the others */
} leaf;

/* What may become a result later. */
typedef struct described {
    const sn_node *x;
    const char *text;
} described;

typedef struct front {
    scope *top;         /* NULL: no scope */
    const char *params; /* prefix of parameters */
    sn_entry *entry;    /* the current entry; NULL: none */
    leaf *leaf;         /* [n_leaf] */
    int *leaf_slot;     /* [2 cap_leaf] hash table: index in leaf plus 1, or 0 */
    int n_leaf, cap_leaf;
    int64_t stream;
    sn_tensor added_loss;
    described *described; /* [n_described] */
    int n_described, cap_described;
} front;

static front *state_of(sn_module *m) {
    void **slot = sn_module_frontend(m);
    if (!*slot) {
        front *f = *slot = sn_arena_alloc(m, sizeof *f);
        f->params = "";
    }
    return *slot;
}

/* ---- entering an op ---- */

bool front_enter_module(sn_loc at, sn_module *m) {
    if (!m) return false;
    sn_module_set_loc(m, at);
    return !sn_module_error(m)->code;
}

/* Explains a NULL operand inside a callback, which the user did not create. */
static void fail_null(sn_module *m, const char *op, int i) {
    const char *callback = sn_module_callback(m);
    if (callback && !strcmp(callback, "body"))
        sn_module_fail(
            m, SN_ERR_USAGE,
            "%s: operand %d is NULL, in the body of a scan. Hint: s->next[i] and s->y[i] are "
            "NULL until the body sets them; s->carry[i] and s->x[i] are NULL unless .carry "
            "and .x have a tensor at i",
            op, i);
    else if (callback)
        sn_module_fail(
            m, SN_ERR_USAGE,
            "%s: operand %d is NULL, in the %s callback of attention. Hint: c->captured[i] is NULL "
            "unless .captured has a tensor at i; c->score exists in score callbacks only",
            op, i, callback);
    else
        sn_module_fail(m, SN_ERR_USAGE, "%s: operand %d is NULL", op, i);
}

bool front_enter(sn_loc at, const char *op, int n, int required, const sn_tensor *x,
                 sn_tensor *bad) {
    sn_module *m = NULL;
    for (int i = 0; i < n && !m; i++) m = x[i] ? x[i]->m : NULL;
    if (!m && required) sn_null_op(op, at);
    *bad = m ? sn_module_error_node(m) : NULL;
    if (!front_enter_module(at, m)) return false;
    for (int i = 0; i < n; i++) {
        if (!x[i] && i < required) {
            fail_null(m, op, i + 1);
            return false;
        }
        if (x[i] && x[i]->m != m) {
            sn_module_fail(
                m, SN_ERR_USAGE,
                "%s: operands belong to different modules, '%s' and '%s'; create both in one", op,
                sn_module_name(m), sn_module_name(x[i]->m));
            return false;
        }
    }
    return true;
}

int front_axis(sn_module *m, const char *op, sn_tensor x, int axis, int rank) {
    int a = axis < 0 ? axis + rank : axis;
    if (a >= 0 && a < rank) return a;
    char t[SN_NODE_TEXT] = "a shape";
    if (x) sn_node_text(x, t);
    sn_module_fail(m, SN_ERR_SHAPE, "%s: axis %d is outside %d..%d for %s", op, axis, -rank,
                   rank - 1, t);
    return -1;
}

int front_dims(sn_module *m, const char *op, const sn_dim *list) {
    int n = 0;
    if (!list) sn_module_fail(m, SN_ERR_USAGE, "%s: the list of sizes is NULL", op);
    for (; list && n <= SN_MAX_RANK && list[n] != SN_END; n++) {
        if (sn_dim_valid(m, list[n]) && sn_dim_hi(m, list[n]) >= 0) continue;
        char t[64];
        sn_dim_print(m, list[n], t, sizeof t);
        sn_module_fail(m, SN_ERR_SHAPE, "%s: axis %d: %s", op, n,
                       sn_dim_valid(m, list[n]) ? "a size cannot be negative"
                                                : "a dimension of another module");
        return -1;
    }
    if (list && n <= SN_MAX_RANK) return n;
    sn_module_fail(m, SN_ERR_SHAPE, "%s: more than %d axes", op, SN_MAX_RANK);
    return -1;
}

int front_axes(sn_module *m, const char *op, const int *list) {
    int n = 0;
    if (!list) sn_module_fail(m, SN_ERR_USAGE, "%s: the list of axes is NULL", op);
    while (list && n <= SN_MAX_RANK && list[n] != INT_MIN) n++;
    if (list && n <= SN_MAX_RANK) return n;
    sn_module_fail(m, SN_ERR_SHAPE, "%s: more than %d axes", op, SN_MAX_RANK);
    return -1;
}

int front_tensors(const sn_tensor *list) {
    int n = 0;
    while (list && list[n]) n++;
    return n;
}

bool front_is_integer(sn_tensor x) {
    return !sn_dtype_is_float((sn_dtype)x->dtype) && x->dtype != SN_BOOL;
}

bool front_same_shape(sn_tensor x, sn_tensor y) {
    return x->rank == y->rank &&
           (!x->rank || !memcmp(x->shape, y->shape, sizeof(sn_dim) * x->rank));
}

int64_t front_stream(sn_module *m) {
    return state_of(m)->stream++;
}

bool front_name(sn_module *m, const char *what, const char *name) {
    bool plain = name && *name && *name != '@';
    for (const char *c = name; plain && *c; c++) plain = (unsigned char)*c >= ' ' && *c != 127;
    if (plain) return true;
    if (!name || !*name)
        sn_module_fail(m, SN_ERR_USAGE, "%s: it needs a name", what);
    else
        sn_module_fail(m, SN_ERR_USAGE,
                       *name == '@' ? "%s: names that begin with '@' are reserved"
                                    : "%s: a name must not have control characters",
                       what);
    return false;
}

bool front_list(sn_module *m, const char *op, int n, const sn_tensor *list) {
    for (int i = 0; i < n; i++)
        if (!list || !list[i]) {
            if (list)
                sn_module_fail(m, SN_ERR_USAGE, "%s: operand %d is NULL", op, i + 1);
            else
                sn_module_fail(m, SN_ERR_USAGE, "%s: the list of tensors is NULL", op);
            return false;
        }
    return true;
}

/* ---- dimensions ---- */

sn_dim sn_new_symbol_at(sn_loc at, sn_module *m, const char *name, int64_t lo, int64_t hi) {
    if (!front_enter_module(at, m)) return 1;
    return sn_symbol_add(m, name, lo, hi);
}

sn_dim sn_dim_quot_at(sn_loc at, sn_module *m, sn_dim a, sn_dim b) {
    sn_dim q;
    if (!front_enter_module(at, m)) return 1;
    if (sn_dim_div(m, a, b, &q)) return q;
    char s[64], t[64];
    sn_dim_print(m, a, s, sizeof s);
    sn_dim_print(m, b, t, sizeof t);
    sn_module_fail(m, SN_ERR_SHAPE, "sn_dim_quot: %s is not a multiple of %s for every size", s, t);
    return 1;
}

sn_dim sn_dim_quot_up_at(sn_loc at, sn_module *m, sn_dim a, int64_t by) {
    return front_enter_module(at, m) ? sn_dim_div_up(m, a, by) : 1;
}

sn_tensor sn_dim_tensor_at(sn_loc at, sn_module *m, sn_dtype t, sn_dim d) {
    if (!front_enter_module(at, m)) return m ? sn_module_error_node(m) : NULL;
    return sn_b_dim(m, t, d);
}

sn_dim sn_dim_of_at(sn_loc at, sn_tensor x, int axis) {
    if (!x) return 1;
    int a = axis < 0 ? axis + x->rank : axis;
    if (a >= 0 && a < x->rank) return x->shape[a];
    if (front_enter_module(at, x->m)) {
        char t[SN_NODE_TEXT];
        sn_module_fail(x->m, SN_ERR_SHAPE, "sn_dim_of: there is no axis %d in %s", axis,
                       sn_node_text(x, t));
    }
    return 1;
}

const char *sn_name_of(sn_tensor x) {
    return x ? sn_attr_str(x, SN_A_name, NULL) : NULL;
}

int sn_rank_of(sn_tensor x) {
    return x ? x->rank : 0;
}

sn_dtype sn_dtype_of(sn_tensor x) {
    return x ? (sn_dtype)x->dtype : SN_F32;
}

sn_module *sn_module_of(sn_tensor x) {
    return x ? x->m : NULL;
}

/* ---- scopes and leaves ---- */

static const char *path_of(const front *f) {
    return f->top ? f->top->path : "";
}

void sn_scope_push_at(sn_loc at, sn_module *m, const char *fmt, ...) {
    if (!front_enter_module(at, m)) return;
    front *f = state_of(m);
    char name[256];
    va_list ap;
    va_start(ap, fmt);
    int n = vsnprintf(name, sizeof name, fmt, ap);
    va_end(ap);
    if (n <= 0 || n >= (int)sizeof name) {
        sn_module_fail(m, SN_ERR_USAGE,
                       "sn_scope_push: the name of a scope must have 1 to 255 bytes");
        return;
    }
    if (!front_name(m, "sn_scope_push", name)) return;
    if (strlen(path_of(f)) + (size_t)n > MAX_PATH) {
        sn_module_fail(m, SN_ERR_USAGE,
                       "sn_scope_push: the names of all open scopes exceed %d bytes; is a "
                       "sn_scope_pop missing?",
                       MAX_PATH);
        return;
    }
    scope *s = sn_arena_alloc(m, sizeof *s);
    s->up = f->top, s->at = at;
    s->path = sn_arena_printf(m, "%s%s.", path_of(f), name);
    f->top = s;
}

void sn_scope_pop_at(sn_loc at, sn_module *m) {
    if (!front_enter_module(at, m)) return;
    front *f = state_of(m);
    if (f->top)
        f->top = f->top->up;
    else
        sn_module_fail(m, SN_ERR_USAGE,
                       "sn_scope_pop: no scope is open; call it once for each push");
}

void front_end_scopes(sn_module *m) {
    const scope *open = state_of(m)->top;
    if (!open || sn_module_error(m)->code) return;
    sn_module_set_loc(m, open->at);
    sn_module_fail(m, SN_ERR_USAGE,
                   "sn_scope_push: the scope '%.*s' is still open at the end of the model; call "
                   "sn_scope_pop once for each push",
                   (int)strlen(open->path) - 1, open->path);
}

void sn_scope_params(sn_module *m, const char *prefix) {
    if (m) state_of(m)->params = prefix ? sn_arena_str(m, prefix) : "";
}

static const char *name_of(const leaf *l) {
    return sn_attr_str(l->node, SN_A_name, "");
}

/* The slot of a leaf with this name in this entry, or the free slot where it would be inserted. */
static int *find_leaf(const front *f, const leaf *l) {
    const char *name = name_of(l);
    size_t mask = 2 * (size_t)f->cap_leaf - 1, at = XXH3_64bits(name, strlen(name)) & mask;
    for (; f->leaf_slot[at]; at = (at + 1) & mask) {
        const leaf *old = &f->leaf[f->leaf_slot[at] - 1];
        if (old->entry == l->entry && !strcmp(name_of(old), name)) break;
    }
    return &f->leaf_slot[at];
}

static void grow_leaves(sn_module *m, front *f) {
    f->cap_leaf = f->cap_leaf ? 2 * f->cap_leaf : 64;
    leaf *more = sn_arena_alloc(m, sizeof *more * (size_t)f->cap_leaf);
    if (f->n_leaf) memcpy(more, f->leaf, sizeof *more * (size_t)f->n_leaf);
    f->leaf = more;
    f->leaf_slot = sn_arena_alloc(m, sizeof *f->leaf_slot * 2 * (size_t)f->cap_leaf);
    for (int i = 0; i < f->n_leaf; i++) *find_leaf(f, &f->leaf[i]) = i + 1;
}

static sn_tensor remember_leaf(sn_module *m, sn_node *n) {
    front *f = state_of(m);
    leaf new = {n, n->op == SN_OP_input ? f->entry : NULL};
    if (f->n_leaf == f->cap_leaf) grow_leaves(m, f);
    int *place = find_leaf(f, &new);
    if (!*place) {
        f->leaf[f->n_leaf++] = new;
        *place = f->n_leaf;
        return n;
    }
    const leaf *old = &f->leaf[*place - 1];
    if (old->node == n) return n;
    char a[SN_NODE_TEXT], b[SN_NODE_TEXT];
    return sn_module_fail(m, SN_ERR_SHAPE,
                          "%s %s: the name is already used by the %s %s declared at %s:%d; use "
                          "another name, or the same shape and type",
                          sn_ops[n->op].name, sn_node_text(n, a), sn_ops[old->node->op].name,
                          sn_node_text(old->node, b), old->node->loc.file, old->node->loc.line);
}

/* bounds: of an input's elements, {least} or {least, greatest}; NULL: none. */
static sn_tensor make_leaf(sn_loc at, sn_module *m, sn_op op, const char *prefix, const char *scope,
                           const char *name, sn_dtype t, const sn_dim *shape,
                           const sn_attr *bounds) {
    const char *what = sn_ops[op].name;
    int rank = front_dims(m, what, shape);
    if (rank < 0) return sn_module_error_node(m);
    if (!front_name(m, what, name)) return sn_module_error_node(m);
    name = sn_arena_printf(m, "%s%s%s", prefix, scope, name);
    sn_module_set_loc(m, at);
    sn_attr list[] = {SN_STR(name, name), SN_INT(dtype, (int64_t)t), SN_LIST(shape, rank, shape),
                      bounds ? *bounds : (sn_attr){0}};
    sn_node *n = sn_node_new(m, op, 0, NULL, bounds ? 4 : 3, list);
    return n == sn_module_error_node(m) ? n : remember_leaf(m, n);
}

sn_tensor sn_input_at(sn_loc at, sn_module *m, const char *name, sn_dtype t, const sn_dim *shape) {
    if (!front_enter_module(at, m)) return m ? sn_module_error_node(m) : NULL;
    return make_leaf(at, m, SN_OP_input, "", "", name, t, shape, NULL);
}

sn_tensor front_input(sn_module *m, const char *name, sn_dtype t, const sn_dim *shape, sn_dim least,
                      sn_dim greatest) {
    sn_dim list[] = {least, greatest};
    sn_attr bounds = SN_LIST(bounds, greatest == SN_END ? 1 : 2, list);
    if (!front_enter_module(SN_HERE, m)) return m ? sn_module_error_node(m) : NULL;
    return make_leaf(SN_HERE, m, SN_OP_input, "", "", name, t, shape, &bounds);
}

sn_tensor sn_param_at(sn_loc at, sn_module *m, const char *name, sn_dtype t, const sn_dim *shape) {
    if (!front_enter_module(at, m)) return m ? sn_module_error_node(m) : NULL;
    const front *f = state_of(m);
    return make_leaf(at, m, SN_OP_param, f->params, path_of(f), name, t, shape, NULL);
}

sn_tensor sn_state_at(sn_loc at, sn_module *m, const char *name, sn_dtype t, const sn_dim *shape) {
    if (!front_enter_module(at, m)) return m ? sn_module_error_node(m) : NULL;
    return make_leaf(at, m, SN_OP_state, "", path_of(state_of(m)), name, t, shape, NULL);
}

sn_tensor front_state(sn_loc at, sn_module *m, const char *name, sn_dtype t, int rank,
                      const sn_dim *shape) {
    sn_dim list[SN_MAX_RANK + 1];
    if (rank) memcpy(list, shape, sizeof *list * (size_t)rank);
    list[rank] = SN_END;
    return make_leaf(at, m, SN_OP_state, "", "", name, t, list, NULL);
}

sn_tensor sn_full_at(sn_loc at, sn_module *m, sn_dtype t, double value, const sn_dim *shape) {
    if (!front_enter_module(at, m)) return m ? sn_module_error_node(m) : NULL;
    int rank = front_dims(m, "sn_full", shape);
    if (rank < 0) return sn_module_error_node(m);
    sn_node *c = sn_b_const(m, t, value);
    return rank ? sn_b_broadcast(c, rank, shape) : c;
}

sn_tensor sn_iota_at(sn_loc at, sn_module *m, sn_dtype t, int axis, const sn_dim *shape) {
    if (!front_enter_module(at, m)) return m ? sn_module_error_node(m) : NULL;
    int rank = front_dims(m, "iota", shape);
    if (rank < 0 || (axis = front_axis(m, "iota", NULL, axis, rank)) < 0)
        return sn_module_error_node(m);
    return sn_b_iota(m, t, rank, shape, axis);
}

sn_tensor sn_uniform_at(sn_loc at, sn_tensor rng, const sn_dim *shape) {
    FRONT_ENTER("random", rng);
    int rank = front_dims(rng->m, "random", shape);
    if (rank < 0) return sn_module_error_node(rng->m);
    return SN_NODE(rng->m, random,
                   SN_ATTRS(SN_LIST(shape, rank, shape), SN_INT(stream, front_stream(rng->m))),
                   rng);
}

/* ---- entries ---- */

static sn_entry *current_entry(sn_module *m, const char *what) {
    sn_entry *e = state_of(m)->entry;
    if (!e)
        sn_module_fail(m, SN_ERR_USAGE, "%s: no entry is open; call sn_entry_begin first", what);
    return e;
}

void sn_entry_begin_at(sn_loc at, sn_module *m, const char *name) {
    sn_null_op_begin(m);
    if (!front_enter_module(at, m)) return;
    if (front_name(m, "sn_entry_begin", name)) state_of(m)->entry = sn_entry_add(m, name);
}

/* Whether the name is new in the list, or names the same node. */
static bool free_name(sn_module *m, const sn_binding *list, int n, const char *name, sn_node *x,
                      const char *what) {
    for (int i = 0; i < n; i++)
        if (!strcmp(list[i].name, name) && list[i].node != x) {
            sn_module_fail(m, SN_ERR_USAGE,
                           "%s: '%s' is already the name of another tensor of this entry", what,
                           name);
            return false;
        }
    return true;
}

void sn_output_at(sn_loc at, const char *name, sn_tensor x) {
    sn_tensor bad;
    if (!front_enter(at, "sn_output", 1, 1, &x, &bad)) return;
    sn_entry *e = current_entry(x->m, "sn_output");
    if (!e) return;
    if (front_name(x->m, "sn_output", name) &&
        free_name(x->m, e->output, e->n_output, name, x, "sn_output")) {
        sn_entry_output(x->m, e, name, x);
        const front *f = state_of(x->m);
        for (int i = 0; i < f->n_described; i++)
            if (f->described[i].x == x)
                sn_module_describe(x->m, SN_TEXT_OUTPUT, e->name, name, f->described[i].text);
    }
}

static bool text_fits(sn_module *m, const char *what, const char *text) {
    const char *why = sn_text_problem(m, text);
    if (why) sn_module_fail(m, SN_ERR_USAGE, "%s: the text %s", what, why);
    return !why;
}

/* The entry that an input was declared in, of several the current one; NULL: before the first. */
static const sn_entry *entry_of(const front *f, const sn_node *input) {
    const leaf *found = NULL;
    for (int i = 0; i < f->n_leaf; i++)
        if (f->leaf[i].node == input && (!found || f->leaf[i].entry == f->entry))
            found = &f->leaf[i];
    return found ? found->entry : f->entry;
}

sn_tensor sn_describe_at(sn_loc at, sn_tensor x, const char *text) {
    FRONT_ENTER("sn_describe", x);
    sn_module *m = x->m;
    if (!text_fits(m, "sn_describe", text)) return sn_module_error_node(m);
    front *f = state_of(m);
    const bool input = x->op == SN_OP_input;
    const sn_entry *e = f->entry, *of = input ? entry_of(f, x) : NULL;
    if (input || x->op == SN_OP_param || x->op == SN_OP_state)
        sn_module_describe(m, input ? SN_TEXT_INPUT : SN_TEXT_LEAF, of ? of->name : NULL,
                           sn_attr_str(x, SN_A_name, ""), text);
    for (int i = 0; e && i < e->n_output; i++)
        if (e->output[i].node == x)
            sn_module_describe(m, SN_TEXT_OUTPUT, e->name, e->output[i].name, text);
    f->described =
        sn_arena_grow(m, f->described, sizeof *f->described, f->n_described, &f->cap_described);
    f->described[f->n_described++] = (described){x, sn_arena_str(m, text)};
    return x;
}

sn_dim sn_describe_dim_at(sn_loc at, sn_module *m, sn_dim d, const char *text) {
    if (!front_enter_module(at, m) || !text_fits(m, "sn_describe_dim", text)) return d;
    char name[256] = "a dimension of another module";
    if (sn_dim_valid(m, d)) sn_dim_print(m, d, name, sizeof name);
    int i = 0;
    while (i < sn_symbol_count(m) && strcmp(sn_symbol_at(m, i)->name, name)) i++;
    const sn_entry *e = state_of(m)->entry;
    if (i < sn_symbol_count(m))
        sn_module_describe(m, SN_TEXT_DIM, e ? e->name : NULL, name, text);
    else
        sn_module_fail(m, SN_ERR_USAGE, "sn_describe_dim: %s is not a symbol", name);
    return d;
}

void sn_assign_at(sn_loc at, sn_tensor state, sn_tensor x) {
    sn_tensor bad;
    if (!front_enter(at, "sn_assign", 2, 2, (sn_tensor[]){state, x}, &bad)) return;
    sn_entry *e = current_entry(x->m, "sn_assign");
    if (!e) return;
    char a[SN_NODE_TEXT], b[SN_NODE_TEXT];
    if (state->op != SN_OP_state && state->op != SN_OP_param)
        sn_module_fail(x->m, SN_ERR_USAGE,
                       "sn_assign: %s is not a state; declare it with sn_state or sn_param",
                       sn_node_text(state, a));
    else if (state->dtype != x->dtype || !front_same_shape(state, x))
        sn_module_fail(x->m, SN_ERR_SHAPE,
                       "sn_assign: the state is %s, but the value %s; type and shape must be equal",
                       sn_node_text(state, a), sn_node_text(x, b));
    else if (front_assigned(state))
        sn_module_fail(x->m, SN_ERR_USAGE,
                       "sn_assign: %s is assigned twice in this entry; assign only the final value",
                       sn_node_text(state, a));
    else
        sn_entry_assign(x->m, e, sn_attr_str(state, SN_A_name, ""), x);
}

sn_tensor *front_added_loss(sn_module *m) {
    return &state_of(m)->added_loss;
}

bool front_assigned(sn_tensor state) {
    const sn_entry *e = state_of(state->m)->entry;
    for (int i = 0; e && i < e->n_assign; i++)
        if (!strcmp(e->assign[i].name, sn_attr_str(state, SN_A_name, ""))) return true;
    return false;
}

sn_tensor sn_accept_unfused_at(sn_loc at, sn_tensor x) {
    FRONT_ENTER("sn_accept_unfused", x);
    sn_module_accept(x->m, x, at);
    return x;
}

sn_tensor sn_name_at(sn_loc at, sn_tensor x, const char *fmt, ...) {
    FRONT_ENTER("sn_name", x);
    sn_entry *e = current_entry(x->m, "sn_name");
    char name[256];
    va_list ap;
    va_start(ap, fmt);
    int n = vsnprintf(name, sizeof name, fmt, ap);
    va_end(ap);
    if (!e) return bad_;
    if (n <= 0 || n >= (int)sizeof name)
        return sn_module_fail(x->m, SN_ERR_USAGE, "sn_name: a name must have 1 to 255 bytes");
    if (!front_name(x->m, "sn_name", name)) return bad_;
    const char *path = sn_arena_printf(x->m, "%s%s", path_of(state_of(x->m)), name);
    if (!free_name(x->m, e->tap, e->n_tap, path, x, "sn_name")) return bad_;
    sn_entry_tap(x->m, e, path, x);
    return x;
}
