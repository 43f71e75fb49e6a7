/* bare.h: what the programs of this folder use, on a machine without an operating system and on one with. */
#ifndef BARE_H
#define BARE_H

#include <stddef.h>

/* The program; its result is printed at the end. */
int run(void);

void put(const char *text);
void put_number(long v);
/* Memory from a page's beginning on, never given back; zeros. */
void *take(size_t bytes);

#endif
