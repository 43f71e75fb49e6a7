/* fuzz_change.h: good files, changed. */
#ifndef SN_TESTS_FUZZ_CHANGE_H
#define SN_TESTS_FUZZ_CHANGE_H

#include <stddef.h>
#include <stdint.h>

/* Changes `size` bytes in place or shortens them: bits, bytes, numbers at the limits, copies of other pieces, cuts. Most
 * edits fall into the first 4 KiB, where headers are. Returns the size. */
size_t fuzz_change_bytes(unsigned char *d, size_t size, uint64_t *s);
/* Changes values and members of a JSON text, which remains one unless a change of bytes follows: by one in four cases it
 * does. `room`: how many bytes the text may grow to. Returns the size. */
size_t fuzz_change_json(unsigned char *d, size_t size, size_t room, uint64_t *s);
/* Writes right checksums into the chunks of a PNG file; in others it changes nothing. */
void fuzz_mend_png(unsigned char *d, size_t size);

#endif
