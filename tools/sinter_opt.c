/* sinter_opt.c: sinter-opt [--passes=simplify,raise] [FILE.sn]: runs passes on a graph in text form
 * and prints what they made of it. Reads the standard input where no file is given. */
#include "passes/opt.h"

#include <stdlib.h>
#include <string.h>

static char *read_all(FILE *f) {
    size_t size = 0, cap = 1 << 16;
    char *text = malloc(cap);
    while (text) {
        size += fread(text + size, 1, cap - size - 1, f);
        if (size + 1 < cap) break;
        char *grown = realloc(text, cap *= 2);
        if (!grown) free(text);
        text = grown;
    }
    if (text) text[size] = 0;
    return text;
}

static int usage(FILE *f) {
    fputs("usage: sinter-opt [--passes=NAME,NAME...] [FILE.sn]\n"
          "Runs passes on a graph in text form and prints the result.\n",
          f);
    return f == stderr ? 2 : 0;
}

int main(int argc, char **argv) {
    const char *passes = NULL, *file = NULL;
    for (int i = 1; i < argc; i++) {
        if (!strcmp(argv[i], "--help")) return usage(stdout);
        if (!strncmp(argv[i], "--passes=", 9))
            passes = argv[i] + 9;
        else if (argv[i][0] == '-' && argv[i][1])
            return usage(stderr);
        else
            file = argv[i];
    }
    bool standard = !file || !strcmp(file, "-");
    FILE *f = standard ? stdin : fopen(file, "rb");
    if (!f) {
        fprintf(stderr, "sinter-opt: cannot open %s\n", file);
        return 1;
    }
    char *text = read_all(f);
    if (!standard) fclose(f);
    sn_error err = {0};
    bool ok = text && sn_opt(text, standard ? "<stdin>" : file, passes, stdout, &err);
    if (!ok) fprintf(stderr, "sinter-opt: %s\n", text ? err.message : "out of memory");
    free(text);
    return ok ? 0 : 1;
}
