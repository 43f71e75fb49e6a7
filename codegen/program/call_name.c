/* call_name.c: names a kernel call by the parameters that it reads. */
#include "codegen/program/calls.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_NAMES = 32, MAX_TEXT = 400 };

typedef struct names {
    const char *path[MAX_NAMES]; /* of modules: parameters without their last component */
    int n;
} names;

/* "h.0.ln_1.weight" is a parameter of h.0.ln_1, in whatever storage it is read. */
static void add_path(sn_module *m, names *l, const char *param) {
    sn_weight_part part;
    const char *tensor = sn_block_param_tensor(param, &part);
    param = tensor ? tensor : sn_stored_param_tensor(param);
    const char *dot = strrchr(param, '.');
    const char *path =
        dot ? sn_arena_printf(m, "%.*s", (int)(dot - param), param) : sn_arena_str(m, param);
    for (int i = 0; i < l->n; i++)
        if (!strcmp(l->path[i], path)) return;
    if (l->n < MAX_NAMES) l->path[l->n++] = path;
}

/* The parameters from which an entry prepared this one. */
static void add_prepared(const sn_program *p, names *l, const char *name) {
    for (int e = 0; e < p->n_entry; e++) {
        const sn_entry *entry = p->entry[e].code.plan->entry;
        for (int o = 0; o < entry->n_output; o++) {
            if (strcmp(entry->output[o].name, name) != 0) continue;
            sn_order order = sn_topo(p->m, 1, &entry->output[o].node);
            for (int i = 0; i < order.n; i++)
                if (order.node[i]->op == SN_OP_param)
                    add_path(p->m, l, sn_attr_str(order.node[i], SN_A_name, ""));
        }
    }
}

static void add_operand(const sn_program *p, const sn_plan *plan, const sn_view *v, names *l) {
    const sn_buffer *b = &plan->buffer[v->buffer];
    bool trained = b->name && sn_program_trained(p, b->name);
    if (!b->name || (b->kind != SN_BUF_PARAM && !trained)) return;
    if (!strncmp(b->name, SN_PREPARED, sizeof SN_PREPARED - 1))
        add_prepared(p, l, b->name);
    else
        add_path(p->m, l, b->name);
}

/* Length of what all paths share, up to and with a dot. */
static size_t shared_prefix(const names *l) {
    size_t n = 0;
    for (size_t k = 0; l->path[0][k]; k++) {
        for (int i = 1; i < l->n; i++)
            if (l->path[i][k] != l->path[0][k]) return n;
        if (l->path[0][k] == '.') n = k + 1;
    }
    return n;
}

static const char *join(sn_module *m, const names *l) {
    enum { SHOWN = 4 };
    char text[MAX_TEXT];
    if (!l->n) return "";
    size_t prefix = l->n > 1 ? shared_prefix(l) : 0, used = 0;
    for (int i = 0; i < l->n && i < SHOWN && used < sizeof text; i++)
        used += (size_t)snprintf(text + used, sizeof text - used, "%s%s", i ? "+" : "",
                                 l->path[i] + (i ? prefix : 0));
    if (l->n > SHOWN && used < sizeof text)
        snprintf(text + used, sizeof text - used, "+%d more", l->n - SHOWN);
    return sn_arena_str(m, text);
}

/* "h.0.attn.c_attn" lies in layer "h.0", "layer0.qkv" in "layer0": up to the first component that ends
 * with a number, but not the last; "": none. */
static const char *layer_of(sn_module *m, const char *path) {
    for (const char *s = path; *s; s++)
        if (isdigit((unsigned char)*s) && s[1] == '.')
            return sn_arena_printf(m, "%.*s", (int)(s + 1 - path), path);
    return "";
}

static const char *by_parameters(const sn_program *p, const sn_compiled_entry *c, int i) {
    const sn_step *s = c->code.plan->call[i];
    names l = {.n = 0};
    bool product = c->code.kernel[i].traits->contraction;
    for (int k = product ? 1 : 0; k < s->n_in && !(product && k > 1 && l.n); k++)
        add_operand(p, c->code.plan, &s->in[k], &l);
    if (!l.n && product) add_operand(p, c->code.plan, &s->in[0], &l);
    for (int k = 0; k < s->n_out && !l.n; k++) add_operand(p, c->code.plan, &s->out[k], &l);
    return join(p->m, &l);
}

const char *sn_call_name(const sn_program *p, const sn_compiled_entry *c, int i) {
    const char *title = c->code.kernel[i].traits->title;
    if (!title) return by_parameters(p, c, i);
    for (int k = i - 1; k >= 0; k--) {
        const char *layer = layer_of(p->m, by_parameters(p, c, k));
        if (*layer) return sn_arena_printf(p->m, "%s.%s", layer, title);
    }
    return title;
}

/* Length of the number or "*" at s; 0: none begins there. */
static size_t number(const char *s) {
    return *s == '*' ? 1 : strspn(s, "0123456789");
}

bool sn_call_similar_names(const char *a, const char *b) {
    while (*a && *b) {
        size_t n = number(a), m = number(b);
        if (!n != !m || (!n && *a != *b)) return false;
        a += n ? n : 1;
        b += m ? m : 1;
    }
    return !*a && !*b;
}

char *sn_call_common_name(const char *a, const char *b) {
    if (!sn_call_similar_names(a, b)) return strdup(a);
    char *out = malloc(strlen(a) + 1), *d = out;
    while (out && *a) {
        size_t n = number(a), m = number(b), kept = n ? n : 1;
        bool differ = n && (n != m || memcmp(a, b, n) != 0);
        if (differ)
            *d++ = '*';
        else
            d = (char *)memcpy(d, a, kept) + kept;
        a += kept;
        b += m ? m : 1;
    }
    if (out) *d = 0;
    return out;
}
