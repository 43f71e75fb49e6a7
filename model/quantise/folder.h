/* folder.h: the folder that `sinter quantize` writes. It appears as a whole at the end, or not at all. */
#ifndef SN_QUANTISE_FOLDER_H
#define SN_QUANTISE_FOLDER_H

#include "model/quantise/subject.h"
#include "runtime/problems.h"

typedef struct quantise_folder {
    char *path, *staging; /* staging: PATH.tmp, where files are written first */
    int lock;
    sn_problems left_out; /* what was not copied */
} quantise_folder;

/* Before any work: checks that `path` can be written, and makes and locks the folder PATH.tmp. An
 * existing `path` must be empty or, with `force`, a folder that `sinter quantize` wrote. Closed in any
 * case. */
bool quantise_folder_open(quantise_folder *f, const char *path, bool force, sn_error *err);
/* Writes the model of the subject with its parameters as they are now and, in config.json, q. Other
 * files of its folder are copied, except weights of other formats; links only if they lead to a file
 * that the folder owns. Then the folder takes its name. */
bool quantise_folder_save(quantise_folder *f, const subject *s, const quantised *q, sn_error *err);
/* Removes what is staged. */
void quantise_folder_close(quantise_folder *f);

#endif
