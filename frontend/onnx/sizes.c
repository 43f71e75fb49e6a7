/* sizes.c: the symbolic dims of a graph: names and expressions in the file, and what is learnt about them while
 * the graph is imported: which are equal, and their bounds. */
#include "frontend/onnx/load.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The fact of the name; a new one has these bounds. NULL: there are too many. */
static onnx_fact *fact_within(onnx_import *im, const char *name, int64_t lo, int64_t hi) {
    for (int i = 0; i < im->n_fact; i++)
        if (!strcmp(im->fact[i].name, name)) return &im->fact[i];
    if (im->n_fact == ONNX_FACTS) return NULL;
    onnx_fact *f = &im->fact[im->n_fact++];
    *f = (onnx_fact){sn_arena_str(im->arena, name), NULL, lo, hi};
    return f;
}

static onnx_fact *fact_of(onnx_import *im, const char *name) {
    /* caches may be empty before the first token */
    return fact_within(im, name, strstr(name, "past") ? 0 : 1, im->size_max);
}

/* A name as symbolic dims have it. */
static const char *plain_name(const char *text, char *out, size_t size) {
    size_t n = 0;
    if (isdigit((unsigned char)*text) || !*text) out[n++] = '_';
    for (; *text && n + 1 < size; text++)
        out[n++] = isalnum((unsigned char)*text) && *text > 0 ? *text : '_';
    out[n] = 0;
    return out;
}

sn_dim onnx_symbol(onnx_import *im, const char *name, bool may_be_empty) {
    char plain[64];
    bool ok = true;
    onnx_fact *f = fact_of(im, plain_name(name, plain, sizeof plain));
    if (f && f->is) return onnx_parse_dim(im, f->is, &ok);
    if (f && may_be_empty) f->lo = 0;
    return sn_symbol_add(im->m, plain, f ? f->lo : 0, f ? f->hi : im->size_max);
}

sn_dim onnx_symbol_in(onnx_import *im, const char *name, int64_t lo, int64_t hi) {
    onnx_fact *f = fact_within(im, name, lo, hi);
    if (f && f->lo < lo) f->lo = lo;
    if (f && f->hi > hi) f->hi = hi;
    return onnx_symbol(im, name, false);
}

typedef struct text_reader {
    onnx_import *im;
    const char *p;
    bool ok;
} text_reader;

static void skip_blank(text_reader *r) {
    while (*r->p == ' ') r->p++;
}

/* atom {* atom}; an atom is a number or a name */
static sn_dim parse_product(text_reader *r) {
    sn_dim d = 1;
    for (;;) {
        skip_blank(r);
        char name[64];
        size_t n = 0;
        sn_dim factor = 0;
        if (isdigit((unsigned char)*r->p)) {
            char *end;
            factor = strtoll(r->p, &end, 10);
            r->p = end;
            r->ok &= factor < (int64_t)1 << 40;
        } else {
            for (; isalnum((unsigned char)*r->p) || *r->p == '_'; r->p++)
                if (n + 1 < sizeof name) name[n++] = *r->p;
            name[n] = 0;
            r->ok &= n > 0;
            if (r->ok) factor = onnx_symbol(r->im, name, false);
        }
        if (!r->ok) return 1;
        d = sn_dim_mul(r->im->m, d, factor);
        skip_blank(r);
        if (*r->p != '*') return d;
        r->p++;
    }
}

sn_dim onnx_parse_dim(onnx_import *im, const char *text, bool *ok) {
    text_reader r = {im, text, true};
    sn_dim sum = 0;
    skip_blank(&r);
    bool minus = *r.p == '-';
    r.p += minus;
    for (;;) {
        const sn_dim d = parse_product(&r);
        sum = minus ? sn_dim_sub(im->m, sum, d) : sn_dim_add(im->m, sum, d);
        skip_blank(&r);
        if (!r.ok || (*r.p != '+' && *r.p != '-')) break;
        minus = *r.p++ == '-';
    }
    *ok = r.ok && !*r.p;
    return sum;
}

/* "T", "T_", .. become "T_", "T__", .., so that no two names become one; "n" of a graph that renames them, "n_2". */
sn_dim onnx_file_dim(onnx_import *im, const char *text) {
    char plain[256];
    size_t n = 0;
    bool ok = false;
    for (const char *p = text; *p && n + 3 < sizeof plain;) {
        size_t size = 0;
        while (isalnum((unsigned char)p[size]) || p[size] == '_') size++;
        const bool taken =
            im->role->context && size && strchr("BPRST", *p) && strspn(p + 1, "_") == size - 1;
        const bool renames = im->role->renames && size && !isdigit((unsigned char)*p);
        if (!size) size = 1;
        if (size > sizeof plain - 3 - n) size = sizeof plain - 3 - n;
        memcpy(plain + n, p, size);
        n += size, p += size;
        if (taken || renames) plain[n++] = '_';
        if (renames) plain[n++] = '2';
    }
    plain[n] = 0;
    const sn_dim d = onnx_parse_dim(im, plain, &ok);
    return ok ? d : onnx_symbol(im, plain, false);
}

/* The symbol that d is, or NULL. */
static const sn_symbol *symbol_of(sn_module *m, sn_dim d) {
    const uint8_t *exponent;
    const sn_symbol *found = NULL;
    if (sn_dim_is_const(m, d, NULL) || sn_dim_terms(m, d) != 1 ||
        sn_dim_term(m, d, 0, &exponent) != 1)
        return NULL;
    for (int i = 0; i < sn_symbol_count(m); i++) {
        if (exponent[i] > 1 || (exponent[i] && found)) return NULL;
        if (exponent[i]) found = sn_symbol_at(m, i);
    }
    return found;
}

static bool contains(sn_module *m, sn_dim d, const sn_symbol *s) {
    const uint8_t *exponent;
    for (int i = 0; !sn_dim_is_const(m, d, NULL) && i < sn_dim_terms(m, d); i++) {
        sn_dim_term(m, d, i, &exponent);
        for (int k = 0; k < sn_symbol_count(m); k++)
            if (exponent[k] && sn_symbol_at(m, k) == s) return true;
    }
    return false;
}

/* The sizes of an entry of models.h keep their names. */
static bool is_named_by_role(const onnx_import *im, const char *name) {
    return im->role->context && *name && strchr("BPRST", *name) && !name[1];
}

static bool learn_equal(onnx_import *im, sn_dim a, sn_dim b) {
    sn_module *m = im->m;
    const sn_symbol *s = symbol_of(m, a);
    if (s && is_named_by_role(im, s->name) && !sn_dim_is_const(m, b, NULL)) return false;
    onnx_fact *f = s && !contains(m, b, s) ? fact_of(im, s->name) : NULL;
    char text[512];
    if (!f || sn_dim_print(m, b, text, sizeof text) >= (int)sizeof text) return false;
    f->is = sn_arena_str(im->arena, text);
    im->again = true;
    return true;
}

bool onnx_equal(onnx_call *c, sn_dim a, sn_dim b) {
    if (a == b) return true;
    /* a + 1 = T + 1 */
    const sn_dim d = sn_dim_sub(c->m, a, b);
    if (d == 0) return true;
    if (!learn_equal(c->im, a, b) && !learn_equal(c->im, b, a)) {
        /* p + T = p + S: the one of the symbols that only one side has */
        for (int i = 0; i < sn_symbol_count(c->m); i++) {
            char name[64];
            snprintf(name, sizeof name, "%s", sn_symbol_at(c->m, i)->name);
            const sn_dim s = onnx_symbol(c->im, name, false);
            if (learn_equal(c->im, s, sn_dim_sub(c->m, s, d)) ||
                learn_equal(c->im, s, sn_dim_add(c->m, s, d)))
                break;
        }
    }
    return false;
}

bool onnx_again(const onnx_call *c) {
    return c->im->again;
}

void onnx_divides(onnx_call *c, sn_dim d, int64_t times) {
    const uint8_t *exponent;
    for (int i = 0; i < sn_symbol_count(c->m); i++) {
        const sn_symbol *s = sn_symbol_at(c->m, i);
        bool odd = false;
        for (int t = 0; t < sn_dim_terms(c->m, d); t++)
            odd |= sn_dim_term(c->m, d, t, &exponent) % times && exponent[i];
        onnx_fact *f = odd ? fact_of(c->im, s->name) : NULL;
        if (!f || strlen(s->name) > 40) continue;
        char text[96];
        snprintf(text, sizeof text, "%lld*%s_%lld", (long long)times, s->name, (long long)times);
        f->is = sn_arena_str(c->im->arena, text);
        c->im->again = true;
        return;
    }
}

/* A symbol with the lower bounds of the rest. */
void onnx_at_most(onnx_call *c, sn_dim a, sn_dim n) {
    int64_t limit;
    if (!sn_dim_is_const(c->m, n, &limit) || sn_dim_is_const(c->m, a, NULL)) return;
    for (int i = 0; i < sn_symbol_count(c->m); i++) {
        const sn_symbol *s = sn_symbol_at(c->m, i);
        const sn_dim rest = sn_dim_sub(c->m, a, sn_symbol_add(c->m, s->name, s->lo, s->hi));
        const int64_t others = sn_dim_lo(c->m, rest);
        if (contains(c->m, rest, s) || others < 0 || others > limit) continue;
        const int64_t bound = limit - others;
        if (bound < s->lo || bound < 1 || s->hi <= bound) continue;
        onnx_fact *f = fact_of(c->im, s->name);
        if (!f || f->hi <= bound) continue;
        f->hi = bound;
        c->im->again = true;
    }
}

/* The first symbol that makes it so with the lower bounds of the rest. */
void onnx_at_least(onnx_call *c, sn_dim a, int64_t n) {
    const uint8_t *exponent;
    for (int t = 0; !sn_dim_is_const(c->m, a, NULL) && t < sn_dim_terms(c->m, a); t++) {
        const int64_t times = sn_dim_term(c->m, a, t, &exponent);
        for (int i = 0; i < sn_symbol_count(c->m); i++) {
            if (exponent[i] != 1 || times < 1) continue;
            const sn_symbol *s = sn_symbol_at(c->m, i);
            const sn_dim one = sn_symbol_add(c->m, s->name, s->lo, s->hi);
            const sn_dim rest = sn_dim_sub(c->m, a, sn_dim_mul(c->m, one, times));
            const int64_t others = sn_dim_lo(c->m, rest);
            if (contains(c->m, rest, s) || others < INT32_MIN) continue;
            const int64_t lack = n - others;
            const int64_t bound = lack > 0 ? (lack + times - 1) / times : 0;
            onnx_fact *f = bound > s->lo && bound <= s->hi ? fact_of(c->im, s->name) : NULL;
            if (!f || f->lo >= bound) continue;
            f->lo = bound;
            c->im->again = true;
            return;
        }
    }
}
