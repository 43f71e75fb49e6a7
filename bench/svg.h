/* svg.h: shared by the pictures of benches. */
#ifndef SN_BENCH_SVG_H
#define SN_BENCH_SVG_H

#include "bench/measure.h"

/* Prints text with the characters escaped that mean something in XML. */
void sn_bench_svg_text(FILE *f, const char *s);

/* Shades of blue by fusion level, orange for other systems, green for the machine's limits. */
const char *sn_bench_svg_colour(const sn_bench_record *x);
extern const char *const sn_bench_svg_level_colours[5];
extern const char sn_bench_svg_peer_colour[];

/* plot_times.c: bars of time from y on, and their height. old: an earlier run, or NULL. */
void sn_bench_draw_times(FILE *f, const sn_bench_report *r, const sn_bench_report *old, int y);
int sn_bench_times_height(const sn_bench_report *r, const sn_bench_report *old);

#endif
