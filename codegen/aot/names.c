/* names.c: converts names of the model to C identifiers that are not keywords of C or C++, not
 * macros of headers that every program includes, and unique in a parameter list. */
#include "codegen/aot/aot.h"

#include <ctype.h>
#include <string.h>

/* Words of C99 to C23 and C++98 to C++23, macros, and the types that NAME.h uses. */
static const char reserved[] =
    " alignas alignof and and_eq asm assert atomic_cancel atomic_commit atomic_noexcept auto "
    "bitand "
    "bitor bool break case catch char char16_t char32_t char8_t class co_await co_return co_yield "
    "compl complex concept const const_cast consteval constexpr constinit continue decltype "
    "default "
    "delete do double dynamic_cast else enum errno explicit export extern false float for fortran "
    "friend goto i386 if imaginary inline int int16_t int32_t int64_t int8_t linux long main "
    "mutable "
    "namespace new noexcept noreturn not not_eq nullptr offsetof operator or or_eq private "
    "protected "
    "ptrdiff_t public reflexpr register reinterpret_cast requires restrict return short signed "
    "size_t "
    "sizeof static static_assert static_cast stderr stdin stdout struct switch synchronized "
    "template "
    "this thread_local throw true try typedef typeid typename typeof typeof_unqual uint16_t "
    "uint32_t "
    "uint64_t uint8_t union unix unsigned using virtual void volatile wchar_t while xor xor_eq "
    "EOF I NULL ";

bool sn_aot_is_reserved(const char *name) {
    const size_t n = strlen(name);
    for (const char *p = reserved; n && (p = strstr(p, name)); p++)
        if (p > reserved && p[-1] == ' ' && p[n] == ' ') return true;
    return name[0] == '_' && (name[1] == '_' || isupper((unsigned char)name[1]));
}

static bool is_word(char c) {
    return isalnum((unsigned char)c) || c == '_';
}

const char *sn_aot_identifier(const sn_aot *a, const char *name) {
    char *s = sn_arena_alloc(a->m, strlen(name) + 2), *p = s;
    if (isdigit((unsigned char)*name)) *p++ = '_';
    for (; *name; name++) *p++ = is_word(*name) ? *name : '_';
    return s;
}

const char *sn_aot_word(const sn_aot *a, const char *name) {
    char *s = sn_arena_alloc(a->m, strlen(name) + 1);
    for (size_t i = 0; name[i]; i++)
        s[i] = (unsigned char)name[i] <= ' ' || name[i] == 127 || name[i] == '*' ? '_' : name[i];
    return s;
}

const char *sn_aot_unique(const sn_aot *a, sn_aot_names *used, const char *name,
                          const char *suffix) {
    const char *base = name;
    for (int k = 1;; k++) {
        bool taken = sn_aot_is_reserved(name);
        for (int i = 0; i < used->n; i++) taken |= !strcmp(used->name[i], name);
        if (!taken) break;
        name = k == 1 && suffix ? sn_arena_printf(a->m, "%s%s", base, suffix)
                                : sn_arena_printf(a->m, "x%s_%d", base, k);
    }
    if (used->n == used->capacity) {
        int capacity = 2 * used->capacity + 64;
        const char **more = sn_arena_alloc(a->m, sizeof *more * (size_t)capacity);
        if (used->n) memcpy(more, used->name, sizeof *more * (size_t)used->n);
        used->name = more;
        used->capacity = capacity;
    }
    return used->name[used->n++] = name;
}

/* The first parameters have fixed names. Dims, inputs and outputs keep their names where possible;
 * an output with the name of an input gets the suffix "_out". */
static void name_parameters(const sn_aot *a, sn_aot_entry *t) {
    sn_aot_names used = {0};
    sn_aot_unique(a, &used, "m", NULL);
    sn_aot_unique(a, &used, "state", NULL);
    sn_aot_unique(a, &used, "workspace", NULL);
    int n = t->n_symbol + t->n_input + t->n_output;
    t->dim_name = sn_arena_alloc(a->m, sizeof *t->dim_name * (size_t)(n + 1));
    t->input_name = t->dim_name + t->n_symbol;
    t->output_name = t->input_name + t->n_input;
    for (int i = 0; i < n; i++) {
        bool dim = i < t->n_symbol, out = i >= t->n_symbol + t->n_input;
        const char *name = dim   ? sn_symbol_at(a->m, t->symbol[i])->name
                           : out ? t->output[i - t->n_symbol - t->n_input].name
                                 : t->input[i - t->n_symbol].name;
        t->dim_name[i] = sn_aot_unique(a, &used, sn_aot_identifier(a, name),
                                       out   ? "_out"
                                       : dim ? "_"
                                             : "_in");
    }
}

static bool check_entry(const sn_aot *a, const char *name) {
    bool ok = strlen(name) <= 64 && strcmp(name, "threads") && strcmp(name, "parameter") &&
              strcmp(name, "param") && strcmp(name, "weights_image") &&
              !(a->o->n_label && !strcmp(name, "label"));
    for (const char *p = name; *p; p++) ok &= is_word(*p);
    return ok ||
           sn_fail(a->err, SN_ERR_USAGE,
                   "entry '%.80s' would be the C function %s_%.80s: rename it (at most 64 letters, "
                   "digits and _; not threads, param, parameter, weights_image or, of a "
                   "classifier, label)",
                   name, a->name, name);
}

bool sn_aot_name_entries(sn_aot *a) {
    for (int i = 0; i < a->n_entry; i++) {
        if (!check_entry(a, a->entry[i].name)) return false;
        name_parameters(a, &a->entry[i]);
    }
    return true;
}
