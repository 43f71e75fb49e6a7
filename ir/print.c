/* print.c: modules, entries, nodes and regions as text that parse.c reads back to the same graph:
 *
 *   module gpt2
 *   dim T in [1, 1024]
 *   region @r0 (%0: f32[], %1: i64[]) {     a region, before the first entry or region that uses it
 *     %2: ...
 *     yield %2
 *   }
 *   entry forward {
 *     %0: i32[T] = input {name="tokens"}
 *     %1: f32[50257,768] = param {name="wte.weight"}
 *     %2: f32[T,768] = embedding %1, %0
 *     %5: (f32[T,64], f32[T,1]) = flash %2, %3, %4 {scale=0.125, score=@r0}
 *     %6: f32[T,1] = result %5 {index=1}
 *     output "logits" = %2                  then assign, tap
 *   }
 *
 * Nodes are numbered in the order of a depth-first walk from outputs, assignments and taps, so the
 * text does not depend on ids. */
#include "ir/ir.h"
#include "ir/text_impl.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

const uint8_t sn_text_in_type[SN_OP_COUNT] = {
#define DTYPE SN_TYPE_HAS_DTYPE
#define SHAPE SN_TYPE_HAS_SHAPE
    [SN_OP_input] = DTYPE | SHAPE,  [SN_OP_param] = DTYPE | SHAPE, [SN_OP_state] = DTYPE | SHAPE,
    [SN_OP_arg] = DTYPE | SHAPE,    [SN_OP_iota] = DTYPE | SHAPE,  [SN_OP_const] = DTYPE,
    [SN_OP_dim_value] = DTYPE,      [SN_OP_cast] = DTYPE,          [SN_OP_random] = SHAPE,
    [SN_OP_broadcast] = SHAPE,      [SN_OP_reshape] = SHAPE,       [SN_OP_scatter_add] = SHAPE,
    [SN_OP_scatter_nd_add] = SHAPE,
#undef DTYPE
#undef SHAPE
};

static bool is_in_type(int op, sn_attr_key key) {
    return (key == SN_A_dtype && sn_text_in_type[op] & SN_TYPE_HAS_DTYPE) ||
           (key == SN_A_shape && sn_text_in_type[op] & SN_TYPE_HAS_SHAPE);
}

typedef struct printer {
    FILE *f;
    sn_module *m;
    /* [node count] number in this scope + 1; NULL: prints ids as numbers */
    uint32_t *number;
    const sn_region **known; /* regions printed so far, by number */
    int n_known;
    bool declared; /* inputs are in the order of their declaration */
} printer;

/* The contents of a pair of braces, in printing order. */
typedef struct scope {
    sn_node **node;
    int n;
} scope;

void sn_print_dim(FILE *f, const sn_module *m, sn_dim d) {
    char small[256], *big = NULL;
    int n = sn_dim_print(m, d, small, sizeof small);
    if ((size_t)n >= sizeof small && (big = malloc((size_t)n + 1)))
        sn_dim_print(m, d, big, (size_t)n + 1);
    fputs(big ? big : small, f);
    free(big);
}

void sn_print_dims(FILE *f, const sn_module *m, int n, const sn_dim *d) {
    fputc('[', f);
    for (int i = 0; i < n; i++) {
        if (i) fputc(',', f);
        sn_print_dim(f, m, d[i]);
    }
    fputc(']', f);
}

static void print_type(FILE *f, const sn_node *n) {
    fputs(sn_dtype_name((sn_dtype)n->dtype), f);
    sn_print_dims(f, n->m, n->rank, n->shape);
}

static void print_quoted(FILE *f, const char *s) {
    fputc('"', f);
    for (; *s; s++) {
        unsigned char c = (unsigned char)*s;
        if (c == '"' || c == '\\')
            fprintf(f, "\\%c", c);
        else if (c < 0x20 || c == 0x7f)
            fprintf(f, "\\x%02x", c);
        else
            fputc(c, f);
    }
    fputc('"', f);
}

/* Unquoted if the parser can read it back, otherwise quoted. */
static void print_name(FILE *f, const char *s) {
    bool bare = *s && !isdigit((unsigned char)*s);
    for (const char *p = s; *p; p++) bare &= sn_text_name_char(*p);
    if (bare)
        fputs(s, f);
    else
        print_quoted(f, s);
}

/* The shorter of 9 and 17 digits that reads back to the same bits; a NaN with unusual bits is
 * printed as bits. */
static void print_double(FILE *f, double x) {
    uint64_t bits, plain;
    double nan = NAN;
    memcpy(&bits, &x, sizeof bits);
    memcpy(&plain, &nan, sizeof plain);
    if (isnan(x) && bits != plain)
        fprintf(f, "nan:0x%" PRIx64, bits);
    else if (isnan(x))
        fputs("nan", f);
    else {
        char s[40];
        sn_number_print(s, sizeof s, 9, x);
        if (sn_number_read(s, NULL) != x) sn_number_print(s, sizeof s, 17, x);
        fputs(s, f);
    }
}

static void print_region_name(const printer *p, const sn_region *r) {
    for (int i = 0; i < p->n_known; i++)
        if (p->known[i] == r) {
            fprintf(p->f, "@r%d", i);
            return;
        }
    fputs("@region", p->f); /* a single node: its regions are not numbered */
}

static void print_attr(const printer *p, const sn_attr *a) {
    fprintf(p->f, "%s=", sn_attr_table[a->key].name);
    switch (sn_attr_table[a->key].kind) {
    case SN_AK_INT:
        fprintf(p->f, "%" PRId64, a->i);
        break;
    case SN_AK_FLT:
        print_double(p->f, a->f);
        break;
    case SN_AK_STR:
        print_quoted(p->f, a->s);
        break;
    case SN_AK_DTYPE:
        fputs(sn_dtype_name((sn_dtype)a->i), p->f);
        break;
    case SN_AK_DIM:
        sn_print_dim(p->f, p->m, a->i);
        break;
    case SN_AK_DIMS:
        sn_print_dims(p->f, p->m, a->n, a->v);
        break;
    case SN_AK_INTS:
        fputc('[', p->f);
        for (int i = 0; i < a->n; i++) fprintf(p->f, "%s%" PRId64, i ? "," : "", a->v[i]);
        fputc(']', p->f);
        break;
    case SN_AK_REGION:
        print_region_name(p, a->r);
        break;
    }
}

static uint32_t number_of(const printer *p, const sn_node *n) {
    return p->number ? p->number[n->id] - 1 : n->id;
}

static void print_line(const printer *p, const sn_node *n) {
    FILE *f = p->f;
    fprintf(f, "%%%" PRIu32 ": ", number_of(p, n));
    if (n->n_result > 1) fputc('(', f);
    for (int i = 0; i < n->n_result; i++) {
        if (i) fputs(", ", f);
        print_type(f, n->n_result > 1 ? n->result_type[i] : n);
    }
    fprintf(f, "%s = %s", n->n_result > 1 ? ")" : "", sn_ops[n->op].name);
    for (int i = 0; i < n->n_in; i++)
        fprintf(f, "%s%%%" PRIu32, i ? ", " : " ", number_of(p, n->in[i]));
    const char *before = " {";
    for (int i = 0; i < n->n_attr; i++) {
        if (is_in_type(n->op, n->attr[i].key)) continue;
        fputs(before, f);
        print_attr(p, &n->attr[i]);
        before = ", ";
    }
    fputs(*before == ',' ? "}\n" : "\n", f);
}

const char *sn_node_text(const sn_node *x, char buf[SN_NODE_TEXT]) {
    char shape[80];
    sn_shape_print(x->m, x->rank, x->shape, shape, sizeof shape);
    const char *name = sn_attr_str(x, SN_A_name, NULL);
    const char *type = sn_dtype_name((sn_dtype)x->dtype);
    if (name) {
        int n = (int)strcspn(name, "@"); /* a number that makes it unique follows */
        snprintf(buf, SN_NODE_TEXT, "%s%s '%.*s'", type, shape, n > 0 && n < 60 ? n : 60, name);
    } else if (x->loc.file) {
        const char *slash = strrchr(x->loc.file, '/');
        snprintf(buf, SN_NODE_TEXT, "%s%s (%s, %.40s:%d)", type, shape, sn_ops[x->op].name,
                 slash ? slash + 1 : x->loc.file, x->loc.line);
    } else {
        snprintf(buf, SN_NODE_TEXT, "%s%s (%s)", type, shape, sn_ops[x->op].name);
    }
    return buf;
}

/* ---- scopes ---- */

/* Appends the nodes that root reaches to the scope, operands first; marks them in p->number. */
static bool visit(printer *p, scope *s, sn_node *root) {
    struct frame {
        sn_node *n;
        int next;
    } *stack = NULL;
    if (root->id >= sn_module_node_count(p->m) || p->number[root->id]) return true;
    int top = 0, cap = 0;
    sn_node *enter = root;
    for (;;) {
        if (enter) {
            if (top == cap) {
                cap = cap ? 2 * cap : 64;
                void *grown = realloc(stack, (size_t)cap * sizeof *stack);
                if (!grown) {
                    free(stack);
                    return false;
                }
                stack = grown;
            }
            stack[top++] = (struct frame){enter, 0};
            enter = NULL;
        }
        if (!top) break;
        struct frame *t = &stack[top - 1];
        while (t->next < t->n->n_in && p->number[t->n->in[t->next]->id]) t->next++;
        if (t->next < t->n->n_in) {
            enter = t->n->in[t->next];
            continue;
        }
        s->node[s->n++] = t->n;
        p->number[t->n->id] = (uint32_t)s->n;
        top--;
    }
    free(stack);
    return true;
}

static void renumber(printer *p, const scope *s, bool set) {
    for (int i = 0; i < s->n; i++) p->number[s->node[i]->id] = set ? (uint32_t)i + 1 : 0;
}

static bool begin_scope(printer *p, scope *s, int n_root, sn_node *const *root) {
    for (int i = 0; i < n_root; i++)
        if (!visit(p, s, root[i])) return false;
    return true;
}

static bool new_scope(const printer *p, scope *s) {
    *s = (scope){malloc(((size_t)sn_module_node_count(p->m) + 1) * sizeof *s->node), 0};
    return s->node != NULL;
}

static bool define_region(printer *p, const sn_region *r, bool named);

static bool define_regions(printer *p, const scope *s) {
    for (int i = 0; i < s->n; i++)
        for (int a = 0; a < s->node[i]->n_attr; a++) {
            const sn_attr *at = &s->node[i]->attr[a];
            if (sn_attr_table[at->key].kind == SN_AK_REGION && !define_region(p, at->r, true))
                return false;
        }
    return true;
}

static bool is_known(const printer *p, const sn_region *r) {
    for (int i = 0; i < p->n_known; i++)
        if (p->known[i] == r) return true;
    return false;
}

/* Prints "region @r0 (%0: f32[]) { ... yield %1 }", after the regions that it uses; only once. */
static bool define_region(printer *p, const sn_region *r, bool named) {
    scope s;
    if (is_known(p, r)) return true;
    if (!new_scope(p, &s)) return false;
    bool ok = begin_scope(p, &s, r->n_arg, r->arg) && begin_scope(p, &s, r->n_out, r->out);
    renumber(p, &s, false);
    const sn_region **known = NULL;
    ok = ok && define_regions(p, &s) &&
         (known = realloc(p->known, ((size_t)p->n_known + 1) * sizeof *known));
    if (ok) {
        p->known = known;
        p->known[p->n_known++] = r;
        renumber(p, &s, true);
        if (named) fprintf(p->f, "region @r%d ", p->n_known - 1);
        fputc('(', p->f);
        for (int i = 0; i < r->n_arg; i++) {
            fprintf(p->f, "%s%%%d: ", i ? ", " : "", i);
            print_type(p->f, r->arg[i]);
        }
        fputs(") {\n", p->f);
        for (int i = r->n_arg; i < s.n; i++) {
            fputs("  ", p->f);
            print_line(p, s.node[i]);
        }
        for (int i = 0; i < r->n_out; i++)
            fprintf(p->f, "%s%%%" PRIu32, i ? ", " : "  yield ", number_of(p, r->out[i]));
        fputs("\n}\n", p->f);
        renumber(p, &s, false);
    }
    free(s.node);
    return ok;
}

static void print_bindings(const printer *p, const char *word, int n, const sn_binding *b) {
    for (int i = 0; i < n; i++) {
        fprintf(p->f, "  %s ", word);
        print_quoted(p->f, b[i].name);
        if (b[i].node->id < sn_module_node_count(p->m))
            fprintf(p->f, " = %%%" PRIu32 "\n", number_of(p, b[i].node));
        else
            fputs(" = %error\n", p->f);
    }
}

/* Functions of an artefact take inputs in the order of their numbers (passes/plan). If the order of their uses is
 * another one, the inputs come first, so that the module that is read from the text has the order of this one. */
static void order_inputs(scope *s) {
    int n = 0;
    bool ordered = true;
    uint32_t last = 0;
    for (int i = 0; i < s->n; i++) {
        if (s->node[i]->op != SN_OP_input) continue;
        ordered &= s->node[i]->id >= last;
        last = s->node[i]->id;
    }
    for (int i = 0; !ordered && i < s->n; i++) {
        sn_node *x = s->node[i];
        if (x->op != SN_OP_input) continue;
        int to = n++;
        while (to > 0 && s->node[to - 1]->id > x->id) to--;
        memmove(&s->node[to + 1], &s->node[to], (size_t)(i - to) * sizeof *s->node);
        s->node[to] = x;
    }
}

static bool print_entry(printer *p, const sn_entry *e) {
    const sn_binding *list[] = {e->output, e->assign, e->tap};
    int size[] = {e->n_output, e->n_assign, e->n_tap};
    scope s;
    if (!new_scope(p, &s)) return false;
    bool ok = true;
    for (int l = 0; l < 3; l++)
        for (int i = 0; i < size[l]; i++) ok = ok && visit(p, &s, list[l][i].node);
    if (p->declared) order_inputs(&s);
    renumber(p, &s, false);
    ok = ok && define_regions(p, &s);
    if (ok) {
        renumber(p, &s, true);
        fputs("entry ", p->f);
        print_name(p->f, e->name);
        fputs(" {\n", p->f);
        for (int i = 0; i < s.n; i++) {
            fputs("  ", p->f);
            print_line(p, s.node[i]);
        }
        print_bindings(p, "output", e->n_output, e->output);
        print_bindings(p, "assign", e->n_assign, e->assign);
        print_bindings(p, "tap", e->n_tap, e->tap);
        fputs("}\n", p->f);
        renumber(p, &s, false);
    }
    free(s.node);
    return ok;
}

static printer printer_new(FILE *f, sn_module *m) {
    return (printer){
        .f = f, .m = m, .number = calloc((size_t)sn_module_node_count(m) + 1, sizeof(uint32_t))};
}

static bool printer_end(printer *p, bool ok) {
    if (!ok) fputs("// out of memory\n", p->f);
    free(p->number);
    free(p->known);
    return ok;
}

const char *const sn_text_kinds[SN_TEXT_KINDS] = {"leaf", "input", "output", "dim"};

static void print_texts(FILE *f, const sn_module *m) {
    const sn_text *t;
    for (int n = sn_module_texts(m, &t); n--; t++) {
        fprintf(f, "describe %s ", sn_text_kinds[t->kind]);
        print_quoted(f, t->entry ? t->entry : "");
        fputc(' ', f);
        print_quoted(f, t->name);
        fputc(' ', f);
        print_quoted(f, t->text);
        fputc('\n', f);
    }
}

static bool print_module(FILE *f, sn_module *m, bool declared) {
    printer p = printer_new(f, m);
    p.declared = declared;
    bool ok = p.number != NULL;
    fputs("module ", f);
    print_name(f, sn_module_name(m));
    fputc('\n', f);
    for (int i = 0; i < sn_symbol_count(m); i++) {
        const sn_symbol *s = sn_symbol_at(m, i);
        fprintf(f, "dim %s in [%" PRId64 ", ", s->name, s->lo);
        if (s->hi == INT64_MAX)
            fputs("inf]\n", f);
        else
            fprintf(f, "%" PRId64 "]\n", s->hi);
    }
    for (int i = 0; ok && i < sn_entry_count(m); i++) ok = print_entry(&p, sn_entry_at(m, i));
    print_texts(f, m);
    return printer_end(&p, ok);
}

bool sn_print_module(FILE *f, sn_module *m) {
    return print_module(f, m, false);
}

bool sn_print_module_declared(FILE *f, sn_module *m) {
    return print_module(f, m, true);
}

void sn_print_entry(FILE *f, sn_module *m, const sn_entry *e) {
    printer p = printer_new(f, m);
    printer_end(&p, p.number && print_entry(&p, e));
}

void sn_print_node(FILE *f, const sn_node *n) {
    print_line(&(printer){.f = f, .m = n->m}, n);
}

/* Prints the regions that it uses first, by number. On error: the empty string, and the module has
 * the error. */
char *sn_region_text(sn_module *m, const sn_region *r) {
    char *text = NULL, *kept;
    size_t size = 0;
    FILE *f = open_memstream(&text, &size);
    bool ok = false;
    if (f) {
        printer p = printer_new(f, m);
        ok = p.number && define_region(&p, r, false);
        printer_end(&p, ok);
        ok = !fclose(f) && ok;
    }
    if (!ok) {
        sn_module_fail(m, SN_ERR_MEMORY, "out of memory for the text of a region");
        size = 0;
    }
    kept = sn_arena_alloc(m, size + 1);
    if (size) memcpy(kept, text, size);
    free(text);
    return kept;
}
