/* embedded.h: files that the build puts into the program (embed.cmake): the page of reports, and the
 * sources of the architectures. */
#ifndef SN_INSPECT_EMBEDDED_H
#define SN_INSPECT_EMBEDDED_H

/* The text of a file, "frontend/gpt2.c"; NULL: it is not embedded. */
const char *inspect_embedded(const char *name);

#endif
