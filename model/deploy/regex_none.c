/* regex_none.c: stands for model/tokenizer/regex.c and PCRE2 in a program whose tokenizer matches no
 * regular expressions. */
#include "model/tokenizer/regex.h"

sn_regex *sn_regex_new(const char *pattern, size_t size, sn_error *err) {
    (void)pattern, (void)size;
    sn_fail(err, SN_ERR_USAGE,
            "this tokenizer matches regular expressions, and the one that the program was compiled "
            "with does not: compile the program with this tokenizer");
    return NULL;
}

void sn_regex_free(sn_regex *r) {
    (void)r;
}

const char *sn_regex_pattern(const sn_regex *r, size_t *size) {
    (void)r;
    *size = 0;
    return "";
}

bool sn_regex_split(const sn_regex *r, const char *text, size_t size, sn_regex_piece fn, void *ctx,
                    sn_error *err) {
    (void)r, (void)err;
    return fn(ctx, text, size, false);
}
