/* raise_check.h: spellings of one computation: each must give the same text after the passes, and
 * the same values as before. */
#ifndef SN_TESTS_RAISE_CHECK_H
#define SN_TESTS_RAISE_CHECK_H

#include "frontend/sinter.h"

typedef struct raise_spelling {
    const char *name;
    sn_tensor (*build)(sn_module *m);
} raise_spelling;

/* The first spelling is the reference, whose result must contain `must_hold`; the others must give
 * the reference's text. Fails the test otherwise. */
void raise_check(const raise_spelling *spelling, int n, const char *must_hold);
/* The text of build's graph after simplify and raise, after checking its values; the caller frees
 * it. */
char *raise_text(const raise_spelling *spelling);

/* A test function for the spellings S(function), and one spelling. */
#define CHECK(test, must_hold, ...)                                                                \
    static void test(void **state) {                                                               \
        (void)state;                                                                               \
        static const raise_spelling list[] = {__VA_ARGS__};                                        \
        raise_check(list, sizeof list / sizeof *list, must_hold);                                  \
    }
#define S(f)                                                                                       \
    { #f, f }

#endif
