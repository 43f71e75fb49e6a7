/* tokenizer_folder.h: the folder of tokenizer files next to a deployed program. */
#ifndef SN_TOKENIZER_FOLDER_H
#define SN_TOKENIZER_FOLDER_H

#include "model/tokenizer.h"

/* Makes a folder from which sn_tokenizer_load reads t: copies of the files that it was loaded from
 * (`from`: a folder, a file or a GGUF file), or new ones. */
bool tokenizer_folder_save(const char *folder, const sn_tokenizer *t, const char *from,
                           sn_error *err);

/* Copies from/name, if it exists, into the folder; *copied (or NULL) is set if so. */
bool tokenizer_folder_copy(const char *folder, const char *from, const char *name, bool *copied,
                           sn_error *err);

#endif
