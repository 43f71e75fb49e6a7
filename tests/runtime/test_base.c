/* Element types: every f16 and bf16 value survives a round trip; rounding is to nearest even. */
#include "runtime/base.h"
#include "runtime/problems.h"

#include <setjmp.h>
#include <stdarg.h>
#include <string.h>
#include <cmocka.h>
#include <math.h>

static void half_round_trip(void **state) {
    (void)state;
    for (uint32_t h = 0; h < 65536; h++) {
        float f = sn_f16_to_f32((uint16_t)h), b = sn_bf16_to_f32((uint16_t)h);
        if (isnan(f))
            assert_true(isnan(sn_f16_to_f32(sn_f32_to_f16(f))));
        else
            assert_int_equal(sn_f32_to_f16(f), h);
        if (isnan(b))
            assert_true(isnan(sn_bf16_to_f32(sn_f32_to_bf16(b))));
        else
            assert_int_equal(sn_f32_to_bf16(b), h);
    }
}

static void half_rounding(void **state) {
    (void)state;
    for (uint32_t h = 0; h + 1 < 0x7c00;
         h++) { /* the midpoint of two halves goes to the even one */
        float lo = sn_f16_to_f32((uint16_t)h), hi = sn_f16_to_f32((uint16_t)(h + 1));
        float mid = (lo + hi) / 2;
        assert_int_equal(sn_f32_to_f16(mid), h & 1 ? h + 1 : h);
        assert_int_equal(sn_f32_to_f16(nextafterf(mid, INFINITY)), h + 1);
        assert_int_equal(sn_f32_to_f16(nextafterf(mid, 0)), h);
    }
    assert_int_equal(sn_f32_to_f16(65519.99f), 0x7bff);
    assert_int_equal(sn_f32_to_f16(65520.0f), 0x7c00);
}

static void first_error_sticks(void **state) {
    (void)state;
    sn_error e = {0};
    assert_false(sn_fail(&e, SN_ERR_FILE, "first %d", 1));
    assert_false(sn_fail(&e, SN_ERR_RANGE, "second"));
    assert_int_equal(e.code, SN_ERR_FILE);
    assert_string_equal(e.message, "first 1");
}

/* Control characters in a file's names are masked before they reach the terminal. */
static void errors_hide_controls(void **state) {
    (void)state;
    sn_error e = {0};
    assert_false(sn_fail(&e, SN_ERR_FILE, "a \"%s\"\n\tb", "x\033[2Jy\x7f\xc2\x9b\xc3\xa4\r"));
    assert_string_equal(e.message, "a \"x?[2Jy???\xc3\xa4?\"\n\tb");
    char name[8];
    assert_string_equal(sn_printable(name, sizeof name, "a\nb\x1b"), "a?b?");
    assert_string_equal(sn_printable(name, sizeof name, "abcd\nfgh"), "abcd...");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(half_round_trip), cmocka_unit_test(half_rounding),
        cmocka_unit_test(first_error_sticks), cmocka_unit_test(errors_hide_controls)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
