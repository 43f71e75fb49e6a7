/* embedded.h: files that the build puts into the program (embed.cmake): the page of reports, the
 * scripts of modules, and the
 * sources of the architectures. */
#ifndef SN_EMBEDDED_H
#define SN_EMBEDDED_H

/* The text of a file, "frontend/gpt2.c"; NULL: it is not embedded. */
const char *embedded_text(const char *name);

#endif
