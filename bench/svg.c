/* svg.c: shared by the pictures of benches. */
#include "bench/svg.h"

#include <string.h>

const char *const sn_bench_svg_level_colours[5] = {"#9e9e9e", "#90caf9", "#42a5f5", "#1976d2",
                                                   "#0d47a1"};
const char sn_bench_svg_peer_colour[] = "#e65100";
static const char probe_colour[] = "#2e7d32";

const char *sn_bench_svg_colour(const sn_bench_record *x) {
    if (x->level >= 0) return sn_bench_svg_level_colours[x->level];
    return strcmp(x->kind, "roofline") ? sn_bench_svg_peer_colour : probe_colour;
}

void sn_bench_svg_text(FILE *f, const char *s) {
    for (; *s; s++) {
        if (*s == '<')
            fputs("&lt;", f);
        else if (*s == '&')
            fputs("&amp;", f);
        else
            fputc(*s, f);
    }
}
