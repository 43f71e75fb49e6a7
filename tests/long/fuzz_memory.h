/* fuzz_memory.h: the file of a case in memory. fuzz_files is linked so that calls of sn_file_map come here:
 * a case costs few system calls, so a run has ten times as many cases, and a read far behind the end faults. */
#ifndef SN_TESTS_FUZZ_MEMORY_H
#define SN_TESTS_FUZZ_MEMORY_H

#include "runtime/file.h"

/* From now on `path` has a copy of these bytes. false: out of memory, or more than 64 MiB. */
bool fuzz_memory_file(const char *path, const void *data, size_t size);
/* What `path` holds stays in memory, too, and its JSON as a tree, until fuzz_memory_alone. false: 16 files are there,
 * or it cannot be read. */
bool fuzz_memory_beside(const char *path);
void fuzz_memory_alone(void);
/* The copy of the case. */
const sn_mapping *fuzz_memory_held(void);

#endif
