/* svg.h: shared by the pictures of benches. */
#ifndef SN_BENCH_SVG_H
#define SN_BENCH_SVG_H

#include "bench/measure.h"

/* Prints text with the characters escaped that mean something in XML. */
void sn_bench_svg_text(FILE *f, const char *s);

/* Shades of blue by fusion level, orange for other systems, green for the machine's limits. */
const char *sn_bench_svg_colour(const sn_bench_record *x);

#endif
