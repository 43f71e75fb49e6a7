/* cmd_inspect.c: `sinter inspect`: config, tensors and tokenizer of a model folder. */
#include "tools/cmd.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define NAME "sinter inspect"

typedef struct options {
    const char *path;
    bool tensors;
} options;

static const arg table[] = {
    {"MODEL", 0, ARG_PLACE, offsetof(options, path), NULL, NULL, 0, 0, "model folder"},
    {"tensors", 0, ARG_FLAG, offsetof(options, tensors), NULL, NULL, 0, 0,
     "a line for every tensor: name, type, shape, bytes"},
    {0},
};

static const arg_command command = {NAME, "what is in a model folder",
                                    "\n  sinter inspect MODEL --tensors\n" + 1, table};

static void print_tensor(const sn_weight *w) {
    printf("  %-48s %-5s [", w->name, sn_dtype_name(w->dtype));
    for (int i = 0; i < w->rank; i++) printf("%s%lld", i ? "," : "", (long long)w->shape[i]);
    printf("] %zu\n", w->bytes);
}

static void print_weights(const sn_weights *w, bool each) {
    size_t bytes = 0, per_type[SN_DTYPE_COUNT] = {0};
    double elements = 0;
    for (size_t i = 0; i < sn_weights_count(w); i++) {
        const sn_weight *t = sn_weights_at(w, i);
        bytes += t->bytes;
        elements += (double)sn_weight_elements(t);
        per_type[t->dtype]++;
    }
    printf("weights     %zu tensors, %.0f elements, %zu bytes (", sn_weights_count(w), elements,
           bytes);
    bool any = false;
    for (int t = 0; t < SN_DTYPE_COUNT; t++)
        if (per_type[t]) {
            printf("%s%s", any ? ", " : "", sn_dtype_name((sn_dtype)t));
            any = true;
        }
    printf(")\n");
    for (size_t i = 0; each && i < sn_weights_count(w); i++) print_tensor(sn_weights_at(w, i));
}

static void print_config(sn_config *c, const sn_weights *w) {
    sn_error err = {0};
    sn_model model;
    if (!sn_model_build(c, &(sn_model_options){.weights = w}, &model, &err)) {
        printf("model       not one that generates: %s\n", err.message);
        return;
    }
    printf("model       %s: %lld layers, %lld heads, width %lld, context %lld, vocabulary %lld\n",
           model.type, (long long)model.layers, (long long)model.heads, (long long)model.d_model,
           (long long)model.context, (long long)model.vocab);
    sn_module_free(model.module);
}

int cmd_inspect(int argc, char **argv) {
    options o;
    int code = args_parse(&command, argc, argv, &o);
    if (code != ARGS_RUN) return code;
    sn_error err = {0};
    sn_model_dir *dir = sn_model_dir_open(o.path, &err);
    if (!dir) return cmd_fail(NAME, &err);
    print_config(dir->config, dir->weights);
    sn_tokenizer *t = sn_tokenizer_load(o.path, &err);
    if (t)
        printf("tokenizer   %s, %d tokens\n", sn_tokenizer_kind(t),
               (int)sn_tokenizer_vocab_size(t));
    else
        printf("tokenizer   none: %s\n", err.message);
    print_weights(dir->weights, o.tensors);
    sn_tokenizer_free(t);
    sn_model_dir_close(dir);
    return cmd_finish(NAME);
}
