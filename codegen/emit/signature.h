/* signature.h: emitted functions with named parameters.
 * A list of P(type, name) declares the parameters once. `type` is a type of the emission context:
 * ptr, i64, ...
 *
 *     #define AXPY_PARAMS(P) P(i64, n) P(ptr, x) P(ptr, y)
 *     EM_SIGNATURE(axpy, AXPY_PARAMS)
 *
 * defines the type axpy_args, which has one em_val for each parameter, and three functions:
 *
 *     em_val fn = axpy_function(e, "axpy");      begins a void function; see em_function
 *     axpy_args p = axpy_params(e);              its parameters, in its body: p.n, p.x, p.y
 *     axpy_call(e, fn, (axpy_args){.n = n, .x = x, .y = y});
 *
 * EM_SIGNATURE_RETURNING(i64, count, COUNT_PARAMS) is the same for a function with a result, which
 * count_call returns.
 *
 * Emission fails, with the name of the parameter, if an argument of a call is missing or has
 * another type, or if the function was declared with another list. */
#ifndef SN_SIGNATURE_H
#define SN_SIGNATURE_H

#include "codegen/emit/emit.h"

/* Calls fn, after checking that its parameters have these names; see above. */
em_val em_call_named(em *e, em_val fn, const char *const *names, const em_val *args, int n);
/* Gives the parameters of fn names. */
void em_name_params(em_val fn, const char *const *names, int n);
/* em_function with names for the parameters. */
em_val em_function_named(em *e, const char *name, em_type result, const em_type *types,
                         const char *const *names, int n);

#define EM_SIGNATURE_FIELD(type, name) em_val name;
#define EM_SIGNATURE_TYPE(type, name) e->type,
#define EM_SIGNATURE_NAME(type, name) #name,
#define EM_SIGNATURE_COUNT(type, name) +1

#define EM_SIGNATURE(fn, LIST) EM_SIGNATURE_RETURNING(tvoid, fn, LIST)
#define EM_SIGNATURE_RETURNING(result, fn, LIST)                                                   \
    enum { fn##_n_params = 0 LIST(EM_SIGNATURE_COUNT) };                                           \
    typedef union fn##_args {                                                                      \
        struct {                                                                                   \
            LIST(EM_SIGNATURE_FIELD)                                                               \
        };                                                                                         \
        em_val arg[fn##_n_params];                                                                 \
    } fn##_args;                                                                                   \
    static inline em_val fn##_function(em *e, const char *name) {                                  \
        const em_type types[] = {LIST(EM_SIGNATURE_TYPE)};                                         \
        static const char *const names[] = {LIST(EM_SIGNATURE_NAME)};                              \
        return em_function_named(e, name, e->result, types, names, fn##_n_params);                 \
    }                                                                                              \
    static inline fn##_args fn##_params(em *e) {                                                   \
        fn##_args p;                                                                               \
        for (int i = 0; i < fn##_n_params; i++) p.arg[i] = em_param(e, i);                         \
        return p;                                                                                  \
    }                                                                                              \
    static inline em_val fn##_call(em *e, em_val callee, fn##_args a) {                            \
        static const char *const names[] = {LIST(EM_SIGNATURE_NAME)};                              \
        return em_call_named(e, callee, names, a.arg, fn##_n_params);                              \
    }

#endif
