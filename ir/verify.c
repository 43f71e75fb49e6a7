/* verify.c: re-derives every node of a module and compares; used between passes and by tests. On
 * failure the message shows the ten nodes around the bad one. */
#include "ir/module_impl.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

/* size of the neighbourhood, and how much of a line it shows */
enum { BEFORE = 5, AFTER = 4, LINE = 72 };

static bool possible_type(const sn_node *n) {
    return n->dtype < SN_DTYPE_COUNT && n->rank <= SN_MAX_RANK;
}

/* What is wrong with the node apart from its type; NULL: nothing, so it can be printed. */
static const char *find_fault(const sn_module *m, uint32_t id) {
    const sn_node *n = m->node[id];
    if (!n || n->m != m || n->id != id) return "is not a node of this module";
    if (n->op >= SN_OP_COUNT) return "has an unknown op";
    const sn_op_info *op = &sn_ops[n->op];
    if (n->n_in < op->min_in || (op->max_in >= 0 && n->n_in > op->max_in))
        return "has the wrong number of operands";
    for (int i = 0; i < n->n_in; i++) {
        const sn_node *x = n->in[i];
        if (!x || x->m != m || x->id >= m->n_node || m->node[x->id] != x)
            return "has an operand that is not a node of this module";
        if (x->id >= id) return "has an operand with a larger id";
        if (x->n_result > 1 && n->op != SN_OP_result) return "has an operand with several results";
    }
    for (int i = 0; i < n->n_attr; i++) {
        if (n->attr[i].key >= SN_ATTR_COUNT) return "has an unknown attribute";
        if (i && n->attr[i].key <= n->attr[i - 1].key)
            return "has attributes that are out of order or duplicate";
        if (sn_attr_table[n->attr[i].key].kind == SN_AK_REGION && !n->attr[i].r)
            return "has an empty region";
    }
    if (!possible_type(n)) return "has an invalid type";
    if (n->n_result < 1 || n->n_result > SN_MAX_RESULTS || (n->n_result > 1) != !!n->result_type)
        return "has the wrong number of results";
    for (int i = 0; n->n_result > 1 && i < n->n_result; i++)
        if (!n->result_type[i] || !possible_type(n->result_type[i]))
            return "has a result of an invalid type";
    if ((op->kind == SN_COMP) != (n->decomposition != NULL))
        return "has no decomposition, or one that it should not have";
    return NULL;
}

static void print_around(FILE *f, const sn_module *m, uint32_t bad) {
    uint32_t from = bad > BEFORE ? bad - BEFORE : 0;
    for (uint32_t id = from; id < m->n_node && id <= bad + AFTER; id++) {
        char *line = NULL;
        size_t size = 0;
        FILE *g = find_fault(m, id) ? NULL : open_memstream(&line, &size);
        if (g) {
            sn_print_node(g, m->node[id]);
            fclose(g);
        }
        int n = line ? (int)strcspn(line, "\n") : 0;
        fprintf(f, "\n%c ", id == bad ? '>' : ' ');
        if (n)
            fprintf(f, "%.*s%s", n < LINE ? n : LINE, line, n < LINE ? "" : "...");
        else
            fprintf(f, "%%%" PRIu32 ": malformed", id);
        free(line);
    }
}

/* Replaces the module's error, if inference set one, by one that shows the neighbourhood. */
static bool report(sn_module *m, uint32_t bad, const char *what) {
    char why[128], *around = NULL;
    size_t size = 0;
    snprintf(why, sizeof why, "%s", what);
    m->error.code = SN_OK;
    FILE *f = open_memstream(&around, &size);
    if (f) {
        print_around(f, m, bad);
        fclose(f);
    }
    sn_loc loc = m->loc;
    m->loc = m->node[bad] ? m->node[bad]->loc : loc;
    sn_module_fail(m, SN_ERR_INTERNAL, "verify: %%%" PRIu32 " %s%s", bad, why,
                   around ? around : "");
    m->loc = loc;
    free(around);
    return false;
}

static bool same_type(const sn_node *n, sn_dtype dtype, int rank, const sn_dim *shape) {
    return n->dtype == dtype && n->rank == rank &&
           (!rank || !memcmp(n->shape, shape, (size_t)rank * sizeof *shape));
}

static bool report_type(sn_module *m, const sn_node *n, int result, sn_dtype t, int rank,
                        const sn_dim *shape) {
    char should[64], why[128];
    sn_shape_print(m, rank, shape, should, sizeof should);
    snprintf(why, sizeof why, "should have type %s%s (result %d)", sn_dtype_name(t), should,
             result);
    return report(m, n->id, why);
}

static const sn_node *result_of(const sn_node *n, int i) {
    return n->n_result > 1 ? n->result_type[i] : n;
}

/* ELEM and PRIM by inference, COMP and FUSED by their decomposition. */
static bool check_type(sn_module *m, const sn_node *n) {
    int n_result = 0;
    sn_op op = (sn_op)n->op;
    if (sn_ops[op].kind == SN_ELEM || sn_ops[op].kind == SN_PRIM) {
        sn_type t[SN_MAX_RESULTS];
        if (!sn_infer(m, op, n->n_in, n->in, n->n_attr, n->attr, &n_result, t))
            return report(m, n->id, m->error.message);
        if (n->n_result != n_result) return report(m, n->id, "has the wrong number of results");
        for (int i = 0; i < n_result; i++)
            if (!same_type(result_of(n, i), t[i].dtype, t[i].rank, t[i].shape))
                return report_type(m, n, i, t[i].dtype, t[i].rank, t[i].shape);
        return true;
    }
    sn_node *r[SN_MAX_RESULTS];
    if (!sn_decompose(m, op, n->n_in, n->in, n->n_attr, n->attr, &n_result, r) || m->error.code)
        return report(m, n->id, m->error.message);
    if (n->n_result != n_result) return report(m, n->id, "has the wrong number of results");
    for (int i = 0; i < n_result; i++)
        if (!same_type(result_of(n, i), (sn_dtype)r[i]->dtype, r[i]->rank, r[i]->shape))
            return report_type(m, n, i, (sn_dtype)r[i]->dtype, r[i]->rank, r[i]->shape);
    return true;
}

static bool is_node(const sn_module *m, const sn_node *n) {
    return n && n->m == m && n->id < m->n_node && m->node[n->id] == n;
}

/* What is wrong with a region; NULL: nothing. */
static const char *find_region_fault(sn_module *m, const sn_region *r) {
    if (r->n_out < 1) return "has a region without results";
    for (int i = 0; i < r->n_arg; i++)
        if (!is_node(m, r->arg[i]) || r->arg[i]->op != SN_OP_arg ||
            sn_attr_int(r->arg[i], SN_A_index, -1) != i)
            return "has a region whose arguments are not numbered from 0";
    for (int i = 0; i < r->n_out; i++)
        if (!is_node(m, r->out[i])) return "has a region with a result of another module";
    sn_order order = sn_region_topo(m, r);
    for (int i = 0; i < order.n; i++) {
        const sn_node *n = order.node[i];
        bool ok = n->n_in || n->op == SN_OP_const || n->op == SN_OP_iota ||
                  n->op == SN_OP_dim_value || sn_ops[n->op].kind == SN_FUSED;
        if (n->op == SN_OP_arg) {
            int64_t k = sn_attr_int(n, SN_A_index, -1);
            ok = k >= 0 && k < r->n_arg && r->arg[k] == n;
        }
        if (!ok) return "has a region that is not closed";
    }
    return NULL;
}

static bool check_regions(sn_module *m, const sn_node *n) {
    for (int i = 0; i < n->n_attr; i++) {
        if (sn_attr_table[n->attr[i].key].kind != SN_AK_REGION) continue;
        const char *fault = find_region_fault(m, n->attr[i].r);
        if (fault) return report(m, n->id, fault);
    }
    return true;
}

static bool check_bindings(sn_module *m, const sn_entry *e, const char *what, int n,
                           const sn_binding *b) {
    for (int i = 0; i < n; i++) {
        if (!is_node(m, b[i].node)) {
            sn_module_fail(m, SN_ERR_INTERNAL,
                           "verify: entry %s: %s \"%s\" is not a node of this module", e->name,
                           what, b[i].name);
            return false;
        }
        if (b[i].node->n_result > 1)
            return report(m, b[i].node->id, "has several results but is used as one tensor");
    }
    return true;
}

/* A value assigned to a state that the entry reads has the state's type. */
static bool check_assigned(sn_module *m, const sn_node *state) {
    const char *name = sn_attr_str(state, SN_A_name, "");
    for (int i = 0; i < m->n_entry; i++)
        for (int k = 0; k < m->entry[i]->n_assign; k++) {
            const sn_binding *b = &m->entry[i]->assign[k];
            if (!strcmp(b->name, name) &&
                !same_type(b->node, (sn_dtype)state->dtype, state->rank, state->shape))
                return report(m, b->node->id, "is assigned to a state of another type");
        }
    return true;
}

bool sn_verify_new(sn_module *m, uint32_t *checked) {
    if (m->error.code) return false;
    /* decompositions may add nodes, which are checked when they are created */
    uint32_t n = m->n_node;
    for (uint32_t id = *checked; id < n; id++) {
        const char *fault = find_fault(m, id);
        if (fault) return report(m, id, fault);
        if (!check_regions(m, m->node[id]) || !check_type(m, m->node[id])) return false;
    }
    for (int i = 0; i < m->n_entry; i++) {
        const sn_entry *e = m->entry[i];
        if (!check_bindings(m, e, "output", e->n_output, e->output) ||
            !check_bindings(m, e, "assignment", e->n_assign, e->assign) ||
            !check_bindings(m, e, "tap", e->n_tap, e->tap))
            return false;
    }
    for (int i = 0; i < m->n_entry; i++) { /* a pass may have replaced a state: live ones only */
        sn_order order = sn_entry_topo(m, m->entry[i]);
        for (int k = 0; k < order.n; k++)
            if (order.node[k]->op == SN_OP_state && !check_assigned(m, order.node[k])) return false;
    }
    *checked = m->n_node;
    return true;
}

bool sn_verify(sn_module *m) {
    return sn_verify_new(m, &(uint32_t){0});
}
