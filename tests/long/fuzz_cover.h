/* fuzz_cover.h: cases that reach code which no case before reached, to be changed again. It needs the
 * target fuzz_files of a build with -DSN_COVER=ON; without, no case is kept. */
#ifndef SN_TESTS_FUZZ_COVER_H
#define SN_TESTS_FUZZ_COVER_H

#include "runtime/file.h"

/* A case begins: whether it reaches new code is asked after it. */
void fuzz_cover_begin(void);
/* Keeps a copy of the case that ended if it reached new code and is at most 64 KiB. */
void fuzz_cover_end(const void *data, size_t size);
/* One of the cases kept, by a random number; NULL: there is none. */
const sn_mapping *fuzz_cover_kept(uint64_t random);
/* Forgets the cases and what they reached: those of another format follow. */
void fuzz_cover_clear(void);
/* How many pairs of blocks of code that follow each other were reached. */
long fuzz_cover_reached(void);

#endif
