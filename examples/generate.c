/* generate.c: continues a text with a language model: a folder as Hugging Face publishes them, or a GGUF file.
 *   cc examples/generate.c $(pkg-config --cflags --libs sinter) -o generate
 *   ./generate MODEL "Once upon a time" */
#include <sinter/lm.h>
#include <stdio.h>

int main(int argc, char **argv) {
    sn_error err = {0};
    sn_lm *m = sn_lm_open(argc > 1 ? argv[1] : "model", &(sn_lm_options){.threads = 2}, &err);
    sn_lm_request what = {.prompt = argc > 2 ? argv[2] : "", .tokens = 50, .greedy = true};
    sn_lm_sequence *s = sn_lm_begin(m, &what, &err);
    for (const char *text; (text = sn_lm_next(s, &err));) fputs(text, stdout);
    if (err.code) fprintf(stderr, "%s\n", err.message);
    sn_lm_close(m);
    return err.code != SN_OK;
}
