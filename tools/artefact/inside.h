/* inside.h: files that become a part of a program: assembler text that holds them, for the compiler that links it. */
#ifndef SN_INSIDE_H
#define SN_INSIDE_H

#include "runtime/base.h"

enum { INSIDE_FILES = 32 };

typedef struct inside {
    const char *
        dir; /* a folder of this process, which has the folders NAME.tokenizer and NAME.source.tokenizer */
    const char *name;
    bool windows;
    char *text; /* DIR/inside.s, allocated */
    char *file[INSIDE_FILES], *folder[2];
    int n_file, n_folder;
} inside;

/* Writes DIR/inside.s: sn_program_files (model/deploy/program.h), with all files of these folders. */
bool inside_write(inside *s, sn_error *err);
/* Removes the folders and their files, and frees the names. */
void inside_remove(inside *s);

#endif
