/* hostile.h: files that attack the program that opens them, as tables. A row says what the file is, who
 * published the attack, and what the error says. */
#ifndef SN_TEST_HOSTILE_H
#define SN_TEST_HOSTILE_H

#include "runtime/base.h"
#include "model/tokenizer.h"

typedef struct hostile_row {
    const char *source; /* an advisory, an issue as OWNER/NAME#NUMBER, or a few words */
    /* GGUF: "key NAME" or "tensor NAME", what is replaced in a good file; "file": the words are all of it.
     * Others: NULL. */
    const char *edit;
    const char *text; /* words of assemble, or the file's text */
    const char *
        says; /* part of the error, or parts between '|', one of them; NULL: the file is accepted, which shows that the good one is */
    bool listed; /* `sinter inspect` lists the file; other commands refuse it */
} hostile_row;

enum { HOSTILE_COMMANDS = 5 };

typedef struct hostile_format {
    const char *name;
    const char *file; /* name of the file, in a folder with a good model */
    void (*make)(const hostile_row *r, sn_bytes *out);
    bool (*open)(const char *path, sn_error *err); /* by the library */
    const char *command[HOSTILE_COMMANDS]; /* "@": the file, "%": its folder, "^": a new path */
    const hostile_row *row;                /* the last one has no text */
} hostile_format;

extern const hostile_format hostile_gguf, hostile_safetensors, hostile_npz, hostile_artefact,
    hostile_config, hostile_onnx, hostile_tokenizer, hostile_pieces, hostile_template,
    hostile_graph;

/* Appends what words, with spaces between, stand for:
 *   'TEXT    the text                        s:TEXT  its size in 8 bytes, then the text
 *   A/B      the number A in B bytes         *N      N zeros         ^N  zeros up to a multiple of N
 * and fields of a protobuf message:
 *   F=A  a number    F:TEXT  a text    F*N  N zeros    F~A  four bytes    F<A  only the size A
 *   F{ WORDS }  a message */
void hostile_assemble(const char *words, sn_bytes *out);
/* The same as `make`. */
void hostile_words(const hostile_row *r, sn_bytes *out);
/* The text of the row as it is. */
void hostile_plain(const hostile_row *r, sn_bytes *out);
void hostile_put(sn_bytes *out, const void *data, size_t size);

#endif
