/* inside.h: files that become a part of a program: assembler text that holds them, for the compiler that links it. */
#ifndef SN_INSIDE_H
#define SN_INSIDE_H

#include "runtime/base.h"

enum { INSIDE_FILES = 32 };

typedef struct inside {
    const char *dir; /* which has the folder NAME.tokenizer, and may have NAME.source.tokenizer */
    const char *name;
    bool windows;
    char *text; /* DIR/inside.s, allocated */
    char *file[INSIDE_FILES];
    int n_file;
} inside;

/* Writes DIR/inside.s: sn_program_files (model/deploy/program.h), with all files of these folders. Fails if
 * one cannot be listed. inside_free afterwards, also if it failed. */
bool inside_write(inside *s, sn_error *err);
void inside_free(inside *s); /* the names; files stay */

#endif
