/* Ids of a text by the tokenizer in the object of the artefact `ends`. */
#include "ends.h"

#include <sinter/file.h>
#include <sinter/tokenizer.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int main(int n, char **arg) {
    sn_error err = {0};
    sn_ids ids = {0};
    sn_file_take_inside((const sn_file_inside *)ends_files());
    sn_tokenizer *t = sn_tokenizer_load("program:ends.tokenizer/tokenizer.tables", &err);
    if (n < 2 || !t || !sn_tokenizer_encode(t, arg[1], strlen(arg[1]), 0, &ids, &err)) {
        fprintf(stderr, "%s\n", err.message);
        return 1;
    }
    for (size_t i = 0; i < ids.count; i++) printf(i ? " %d" : "%d", (int)ids.data[i]);
    puts("");
    free(ids.data);
    sn_tokenizer_free(t);
    return 0;
}
