/* regex.c: implements regex.h with PCRE2. Validates UTF-8 once; PCRE2 would validate the remaining
 * text at every match. */
#define PCRE2_CODE_UNIT_WIDTH 8
#include "model/tokenizer/regex.h"

#include <pcre2.h>
#include <stdlib.h>
#include <string.h>

#include "model/tokenizer/utf8.h"

struct sn_regex {
    pcre2_code *code;
    size_t size;
    char pattern[];
};

sn_regex *sn_regex_new(const char *pattern, size_t size, sn_error *err) {
    sn_regex *r = calloc(1, sizeof *r + size + 1);
    if (!r) {
        sn_fail(err, SN_ERR_MEMORY, "regex: out of memory");
        return NULL;
    }
    memcpy(r->pattern, pattern, r->size = size);
    int code = 0;
    PCRE2_SIZE where = 0;
    /* \C could stop inside a character, which is not allowed when matching without UTF-8 checks */
    uint32_t options = PCRE2_UTF | PCRE2_UCP | PCRE2_NEVER_BACKSLASH_C;
    r->code = pcre2_compile((PCRE2_SPTR)pattern, size, options, &code, &where, NULL);
    if (!r->code) {
        PCRE2_UCHAR why[128];
        pcre2_get_error_message(code, why, sizeof why);
        sn_fail(err, SN_ERR_FILE, "pattern \"%.*s\": %s at character %zu",
                (int)(size < 200 ? size : 200), pattern, (char *)why, (size_t)where);
        free(r);
        return NULL;
    }
    /* without JIT support, matching is interpreted */
    pcre2_jit_compile(r->code, PCRE2_JIT_COMPLETE);
    return r;
}

void sn_regex_free(sn_regex *r) {
    if (!r) return;
    pcre2_code_free(r->code);
    free(r);
}

const char *sn_regex_pattern(const sn_regex *r, size_t *size) {
    *size = r->size;
    return r->pattern;
}

typedef struct splitting {
    const sn_regex *regex;
    pcre2_match_data *match;
    pcre2_match_context *limits;
    sn_regex_piece fn;
    void *ctx;
    sn_error *err;
} splitting;

static bool emit_piece(splitting *s, const char *text, size_t size, bool matched) {
    return size == 0 || s->fn(s->ctx, text, size, matched);
}

/* Splits text that is valid UTF-8. */
static bool split_valid(splitting *s, const char *text, size_t size) {
    size_t at = 0, done = 0;
    while (at < size) {
        int n = pcre2_match(s->regex->code, (PCRE2_SPTR)text, size, at, PCRE2_NO_UTF_CHECK,
                            s->match, s->limits);
        if (n == PCRE2_ERROR_NOMATCH) break;
        if (n < 0) {
            PCRE2_UCHAR why[128];
            pcre2_get_error_message(n, why, sizeof why);
            return sn_fail(s->err, SN_ERR_RANGE, "tokenizer pattern: %s", (char *)why);
        }
        const PCRE2_SIZE *range = pcre2_get_ovector_pointer(s->match);
        /* an empty match (\K can even make it negative) */
        if (range[1] <= range[0] || range[0] < at) {
            uint32_t cp;
            at += sn_utf8_next(text + at, size - at, &cp);
            continue;
        }
        if (!emit_piece(s, text + done, range[0] - done, false) ||
            !emit_piece(s, text + range[0], range[1] - range[0], true))
            return false;
        at = done = range[1];
    }
    return emit_piece(s, text + done, size - done, false);
}

/* Backtracking may visit each character of a long run once per alternative, so the limit grows with
 * the text. */
static void set_limit(splitting *s, size_t size) {
    /* PCRE2's default, and more for long texts */
    const uint64_t limit = 10000000 + 16 * (uint64_t)size;
    pcre2_set_match_limit(s->limits, limit < UINT32_MAX ? (uint32_t)limit : UINT32_MAX);
}

bool sn_regex_split(const sn_regex *r, const char *text, size_t size, sn_regex_piece fn, void *ctx,
                    sn_error *err) {
    splitting s = {r,
                   pcre2_match_data_create_from_pattern(r->code, NULL),
                   pcre2_match_context_create(NULL),
                   fn,
                   ctx,
                   err};
    bool ok = (s.match && s.limits) || sn_fail(err, SN_ERR_MEMORY, "regex: out of memory");
    if (ok) set_limit(&s, size);
    for (size_t at = 0; ok && at < size;) {
        size_t end = at;
        uint32_t cp = 0;
        while (end < size) {
            size_t len = sn_utf8_next(text + end, size - end, &cp);
            if (cp == SN_UTF8_INVALID) break;
            end += len;
        }
        ok = split_valid(&s, text + at, end - at);
        for (at = end; end < size; end++) { /* a run of bytes that are not UTF-8 */
            sn_utf8_next(text + end, size - end, &cp);
            if (cp != SN_UTF8_INVALID) break;
        }
        ok = ok && emit_piece(&s, text + at, end - at, false);
        at = end;
    }
    pcre2_match_data_free(s.match);
    pcre2_match_context_free(s.limits);
    return ok;
}
