/* inside.c: writes files as assembler text, by .incbin. */
#include "tools/artefact/inside.h"
#include "runtime/file.h"

#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static bool no_memory(sn_error *err) {
    return sn_fail(err, SN_ERR_MEMORY, "out of memory");
}

static int not_hidden(const struct dirent *e) {
    return *e->d_name != '.';
}

/* The files of NAME.ending, which may only be missing if it is optional. */
static bool list_folder(inside *s, const char *ending, bool optional, sn_error *err) {
    char part[160];
    struct dirent **entry = NULL;
    snprintf(part, sizeof part, "%s%s", s->name, ending);
    char *folder = sn_path_join(s->dir, part);
    if (!folder) return no_memory(err);
    int n = scandir(folder, &entry, not_hidden, alphasort);
    bool ok =
        n >= 0 || (optional && errno == ENOENT) ||
        sn_fail(err, SN_ERR_FILE, "%s: its files cannot be listed: %s", folder, strerror(errno));
    for (int i = 0; i < n; i++) {
        if (ok && s->n_file == INSIDE_FILES)
            ok = sn_fail(err, SN_ERR_FILE, "%s: more than %d files", folder, INSIDE_FILES);
        if (ok && !(s->file[s->n_file++] = sn_path_join(folder, entry[i]->d_name)))
            ok = no_memory(err);
        free(entry[i]);
    }
    free(entry);
    free(folder);
    return ok;
}

static void print_quoted(const char *before, const char *text, FILE *f) {
    fprintf(f, "    %s \"", before);
    for (; *text; text++) fprintf(f, strchr("\"\\", *text) ? "\\%c" : "%c", *text);
    fputs("\"\n", f);
}

/* A table of name, data and bytes of each file; data are aligned as tables of tokenizers need. */
static void print_files(const inside *s, FILE *f) {
    fputs(s->windows ? "    .section .rdata,\"dr\"\n" : "    .section .data.rel.ro,\"aw\"\n", f);
    fputs("    .balign 8\n    .globl sn_program_files\nsn_program_files:\n", f);
    for (int i = 0; i < s->n_file; i++)
        fprintf(f, "    .quad .Lname%d, .Ldata%d, .Lend%d - .Ldata%d\n", i, i, i, i);
    fputs("    .quad 0, 0, 0\n", f);
    if (!s->windows) fputs("    .section .rodata\n", f);
    for (int i = 0; i < s->n_file; i++) {
        fprintf(f, ".Lname%d:\n", i);
        print_quoted(".asciz", s->file[i] + strlen(s->dir) + 1, f);
        fprintf(f, "    .balign 64\n.Ldata%d:\n", i);
        print_quoted(".incbin", s->file[i], f);
        fprintf(f, ".Lend%d:\n    .byte 0\n", i);
    }
    if (!s->windows) fputs("    .section .note.GNU-stack,\"\",%progbits\n", f);
}

bool inside_write(inside *s, sn_error *err) {
    if (!list_folder(s, ".tokenizer", false, err) ||
        !list_folder(s, ".source.tokenizer", true, err))
        return false;
    s->text = sn_path_join(s->dir, "inside.s");
    FILE *f = s->text ? fopen(s->text, "w") : NULL;
    if (!f) return sn_fail(err, SN_ERR_FILE, "%s: cannot write the tokenizer's files", s->dir);
    print_files(s, f);
    bool written = !ferror(f);
    return (fclose(f) == 0 && written) || sn_fail(err, SN_ERR_FILE, "%s: cannot write it", s->text);
}

void inside_free(inside *s) {
    for (int i = 0; i < s->n_file; i++) free(s->file[i]);
    free(s->text);
}
