/* raise_check.h: spellings of one thing: each must come out of the passes as the same text, with
 * the values it had before. */
#ifndef SN_TESTS_RAISE_CHECK_H
#define SN_TESTS_RAISE_CHECK_H

#include "frontend/sinter.h"

typedef struct raise_spelling {
    const char *name;
    sn_tensor (*build)(sn_module *m);
} raise_spelling;

/* The first spelling is the reference, which `must_hold` (text) in its result; the others must give
 * the reference's text. Fails the test otherwise. */
void raise_check(const raise_spelling *spelling, int n, const char *must_hold);
/* The text of build's graph after simplify and raise, its values checked; free it. */
char *raise_text(const raise_spelling *spelling);

/* A test function of spellings S(function), and one spelling. */
#define CHECK(test, must_hold, ...)                                                                \
    static void test(void **state) {                                                               \
        (void)state;                                                                               \
        static const raise_spelling list[] = {__VA_ARGS__};                                        \
        raise_check(list, sizeof list / sizeof *list, must_hold);                                  \
    }
#define S(f)                                                                                       \
    { #f, f }

#endif
