/* problems.c: collects problems and reports them as one error message. */
#include "runtime/problems.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

void sn_problem(sn_problems *p, const char *fmt, ...) {
    char line[400];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(line, sizeof line, fmt, ap);
    va_end(ap);
    p->count++;
    size_t n = strlen(line), sep = p->shown ? 2 : 0;
    if (p->shown + 1 < p->count || p->len + sep + n + 1 > sizeof p->text) return;
    memcpy(p->text + p->len, "; ", sep);
    memcpy(p->text + p->len + sep, line, n + 1);
    p->len += sep + n;
    p->shown++;
}

bool sn_problems_check(const sn_problems *p, const char *head, sn_code code, sn_error *err) {
    if (!p->count) return true;
    char more[32] = "";
    if (p->shown < p->count) snprintf(more, sizeof more, "; … and %d more", p->count - p->shown);
    return sn_fail(err, code, "%.250s: %s%s", head, p->text, more);
}

const char *sn_printable(char *buf, size_t size, const char *s) {
    size_t n = 0;
    for (; s[n] && n + 4 < size; n++) buf[n] = s[n];
    buf[n] = 0;
    sn_mask_controls(buf, "");
    strcpy(buf + n, s[n] ? "..." : "");
    return buf;
}

/* ---- the nearest name ---- */

enum { MAX_WORD = 64 };

/* Edit distance with insertions, deletions, substitutions and swaps of adjacent characters (optimal
 * string alignment); a large number for long words. */
static int distance_between(const char *a, const char *b) {
    int n = (int)strlen(a), m = (int)strlen(b), d[MAX_WORD + 1][MAX_WORD + 1];
    if (n > MAX_WORD || m > MAX_WORD) return MAX_WORD;
    for (int i = 0; i <= n; i++) d[i][0] = i;
    for (int j = 0; j <= m; j++) d[0][j] = j;
    for (int i = 1; i <= n; i++)
        for (int j = 1; j <= m; j++) {
            int best = d[i - 1][j - 1] + (a[i - 1] != b[j - 1]);
            if (d[i - 1][j] + 1 < best) best = d[i - 1][j] + 1;
            if (d[i][j - 1] + 1 < best) best = d[i][j - 1] + 1;
            bool swapped = i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1];
            if (swapped && d[i - 2][j - 2] + 1 < best) best = d[i - 2][j - 2] + 1;
            d[i][j] = best;
        }
    return d[n][m];
}

const char *sn_nearest_name(const char *word, const char *const *list) {
    int n = (int)strlen(word), limit = n < 4 ? 2 : (n + 1) / 3 + 1,
        best = limit; /* of typing errors */
    const char *found = NULL;
    for (; *list; list++) {
        bool begins = n > 1 && !strncmp(word, *list, (size_t)n);
        int common = 0;
        while (word[common] && word[common] == (*list)[common]) common++;
        bool stem = common > 3 && common >= n - 1; /* "entry" and "entries" */
        int d = begins ? 1 : distance_between(word, *list);
        if (stem && d >= limit) d = limit - 1;
        if (d >= best) continue;
        best = d;
        found = *list;
    }
    return found;
}
