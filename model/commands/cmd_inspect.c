/* cmd_inspect.c: `sinter inspect`: describes a model folder, and shows what happens inside the
 * model while it reads a text (inspect.h). */
#include "tools/artefact/inspect_artefact.h"
#include "model/commands/commands.h"
#include "model/inspect/inspect.h"
#include "runtime/files/weights_impl.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define NAME "sinter inspect"

typedef struct options {
    /* first, because the rows of the model and the compiler belong to this member */
    inspect_options look;
    bool tensors;
} options;

#define AT(field) offsetof(inspect_options, field)
static const arg table[] = {
    CMD_MODEL_ARGS(inspect_options),
    {"tensors", 0, ARG_FLAG, offsetof(options, tensors), NULL, NULL, 0, 0,
     "list the tensors of the weights: name, type, shape, bytes; of a GGUF file also its keys"},
    {"taps", 0, ARG_FLAG, AT(taps), NULL, NULL, 0, 0,
     "list the named tensors that the model computes"},
    {"prompt", 'p', ARG_TEXT, AT(text), "TEXT", NULL, 0, 0, "the text that the model reads"},
    {"result", 0, ARG_TEXT, AT(result), "TEXT", NULL, 0, 0,
     "encoder-decoders: the result that follows the prompt"},
    {"tap", 0, ARG_TEXT, AT(tap), "NAME", NULL, 0, 0,
     "print a named tensor; with -o FILE.npy write it"},
    {"attention", 0, ARG_TEXT, AT(attention), "LAYER[:HEAD]|all", NULL, 0, 0,
     "draw attention maps; -o FILE.svg or FILE.png"},
    {"logit-lens", 0, ARG_FLAG, AT(lens), NULL, NULL, 0, 0,
     "the next token predicted from each layer"},
    {"position", 0, ARG_INT, AT(position), "I", "auto", 0, INT32_MAX,
     "position for the lens; auto: the last token"},
    {"near", 0, ARG_TEXT, AT(near), "WORD", NULL, 0, 0,
     "nearest neighbours in the embedding table"},
    {"analogy", 0, ARG_TEXT, AT(analogy), "\"A B C\"", NULL, 0, 0,
     "A is to B as C is to these: the neighbours of B - A + C"},
    {"top", 0, ARG_INT, AT(top), "N", "8", 1, 1000, "length of lists"},
    {"output", 'o', ARG_TEXT, AT(output), "FILE", NULL, 0, 0,
     "output file of a picture or an array; default: attention.svg, the terminal"},
    CMD_COMPILE_ARGS(inspect_options),
    CMD_CHECK_NAN_ARG(inspect_options),
    {0},
};

static const arg_key keys[] = {
    {"model", "object?",
     "type, layers, heads, width, context, vocabulary; or source, of a model in C"},
    {"problem", "text?", "why the model cannot run"},
    {"quantised", "object?", "by sinter quantize: weights, compute, number of matrices kept wider"},
    {"tokenizer", "object?", "kind (null: none), tokens"},
    {"weights", "object?", "number of tensors and elements, bytes, types"},
    {"tensors", "list?", "with --tensors"},
    {"tensors[].name", "text", "name"},
    {"tensors[].type", "text", "f32, bf16, …"},
    {"tensors[].shape", "list", "sizes"},
    {"tensors[].bytes", "integer", "its size"},
    {"entry", "text?", "--taps: a line per tensor: the entry that computes it"},
    {"name", "text?", "--tap, --taps: name of the tensor; of a model in C or an artefact its own"},
    {"type", "text?", "--taps: type"},
    {"shape", "text|list?", "--taps: with the names of sizes; --tap: sizes"},
    {"mean", "number?", "--tap"},
    {"deviation", "number?", "--tap"},
    {"min", "number?", "--tap"},
    {"max", "number?", "--tap"},
    {"layer", "integer?", "--logit-lens: a line per layer; -1: the embedding"},
    {"tokens", "list?", "--logit-lens: the likeliest"},
    {"tokens[].id", "integer", "token id"},
    {"tokens[].text", "text", "its text"},
    {"tokens[].p", "number", "its probability"},
    {"id", "integer?", "--near, --analogy: a line per neighbour: token id"},
    {"text", "text?", "its text"},
    {"score", "number?", "its cosine"},
    {"output", "text?", "--attention: the picture"},
    {"layers", "integer?", "--attention: layers in it"},
    {"version", "text?", "artefacts: of Sinter"},
    {"threads", "text?", "artefacts: thread runtime"},
    {"weight_bytes", "integer?", "artefacts"},
    {"state_bytes", "integer?", "artefacts: of a sequence"},
    {"layout", "text?", "artefacts: hash that ties code and weights"},
    {"embedded", "boolean?", "artefacts: are the weights in the object?"},
    {"checksum", "boolean?", "files of weights: is the checksum right?"},
    {"targets", "list?", "artefacts"},
    {"targets[].name", "text", "CPU"},
    {"targets[].triple", "text", "system"},
    {"targets[].code_bytes", "integer?",
     "size; not of objects made by --emit or for other systems than Linux"},
    {"targets[].needs", "text", "CPU features"},
    {"functions", "list?",
     "artefacts: kernels and other functions of an ELF object, the largest first"},
    {"functions[].name", "text", "symbol"},
    {"functions[].bytes", "integer", "code, with helpers"},
    {"parameters", "integer?", "models in C: number of parameters"},
    {"entries", "list?", "models in C, artefacts"},
    {"entries[].name", "text", "name"},
    {"entries[].state", "boolean", "does it read or write states?"},
    {"entries[].inputs", "list", "name, type, shape"},
    {"entries[].inputs[].name", "text", "name"},
    {"entries[].inputs[].type", "text", "type"},
    {"entries[].inputs[].shape", "text", "with the names of sizes"},
    {"entries[].inputs[].about", "text?", "what it means"},
    {"entries[].outputs", "list", "likewise"},
    {"entries[].outputs[].name", "text", "name"},
    {"entries[].outputs[].type", "text", "type"},
    {"entries[].outputs[].shape", "text", "likewise"},
    {"entries[].outputs[].about", "text?", "likewise"},
    {"sizes", "list?", "models in C, artefacts: named sizes"},
    {"sizes[].name", "text", "name"},
    {"sizes[].min", "integer", "least"},
    {"sizes[].max", "integer", "greatest"},
    {0}};

static const arg_command command = {
    NAME,
    "describe a model folder, and look inside a model while it reads a text",
    "Takes one query at a time; without one, prints a summary of the folder.\n",
    table,
    .examples = "sinter inspect MODEL --tensors\n"
                "sinter inspect MODEL -p \"The cat sat on the mat\" --attention 3:1 -o map.svg\n"
                "sinter inspect MODEL -p \"The capital of France is\" --logit-lens\n"
                "sinter inspect MODEL --near Monday\n",
    .json = keys};

/* A row per query: whether it was requested, and its function. */
static bool (*const queries[])(const inspect_options *, sn_error *) = {
    inspect_taps, inspect_tap, inspect_attention, inspect_lens, inspect_near, inspect_analogy};
enum { N_QUERIES = sizeof queries / sizeof *queries };

/* The requested query; QUESTIONS: none; -1: several. */
static int find_query(const inspect_options *o) {
    const bool requested[N_QUERIES] = {o->taps, o->tap, o->attention, o->lens, o->near, o->analogy};
    int found = N_QUERIES;
    for (int i = 0; i < N_QUERIES; i++)
        if (requested[i]) found = found == N_QUERIES ? i : -1;
    return found;
}

static const char *type_name(const sn_weight *w) {
    return w->block ? w->block->name : sn_dtype_name(w->dtype);
}

static void print_tensor(json_out *j, const sn_weight *w) {
    char name[200];
    if (j) {
        sn_json_object(j, NULL);
        sn_json_text(j, "name", w->name);
        sn_json_text(j, "type", type_name(w));
        sn_json_list(j, "shape");
        for (int i = 0; i < w->rank; i++) sn_json_integer(j, NULL, w->shape[i]);
        sn_json_close(j);
        sn_json_integer(j, "bytes", (int64_t)w->bytes);
        sn_json_close(j);
        return;
    }
    printf("  %-48s %-5s [", sn_printable(name, sizeof name, w->name), type_name(w));
    for (int i = 0; i < w->rank; i++) printf("%s%lld", i ? "," : "", (long long)w->shape[i]);
    printf("] %zu\n", w->bytes);
}

static void print_weights(json_out *j, const sn_weights *w, bool each) {
    enum { TYPES = 32 };
    const char *type[TYPES];
    size_t bytes = 0, types = 0;
    double elements = 0;
    for (size_t i = 0; i < sn_weights_count(w); i++) {
        const sn_weight *t = sn_weights_at(w, i);
        bytes += t->bytes;
        elements += (double)sn_weight_elements(t);
        size_t k = 0;
        while (k < types && strcmp(type[k], type_name(t)) != 0) k++;
        if (k == types && types < TYPES) type[types++] = type_name(t);
    }
    if (j) {
        sn_json_object(j, "weights");
        sn_json_integer(j, "tensors", (int64_t)sn_weights_count(w));
        sn_json_number(j, "elements", elements);
        sn_json_integer(j, "bytes", (int64_t)bytes);
        sn_json_list(j, "types");
        for (size_t k = 0; k < types; k++) sn_json_text(j, NULL, type[k]);
        sn_json_close(j);
        sn_json_close(j);
        if (each) sn_json_list(j, "tensors");
        for (size_t i = 0; each && i < sn_weights_count(w); i++)
            print_tensor(j, sn_weights_at(w, i));
        if (each) sn_json_close(j);
        return;
    }
    printf("weights     %zu tensors, %.0f elements, %zu bytes (", sn_weights_count(w), elements,
           bytes);
    for (size_t k = 0; k < types; k++) printf("%s%s", k ? ", " : "", type[k]);
    printf(")\n");
    for (size_t i = 0; each && i < sn_weights_count(w); i++)
        print_tensor(NULL, sn_weights_at(w, i));
}

static void print_model(json_out *j, const sn_model *m) {
    sn_json_object(j, "model");
    sn_json_text(j, "type", m->type);
    sn_json_integer(j, "layers", m->layers);
    sn_json_integer(j, "heads", m->heads);
    sn_json_integer(j, "width", m->d_model);
    sn_json_integer(j, "context", m->context);
    sn_json_integer(j, "vocabulary", m->vocab);
    sn_json_close(j);
}

static void print_config(json_out *j, sn_config *c, const sn_weights *w) {
    sn_error err = {0};
    sn_model model;
    const char *source = sn_config_string_or(c, "source", NULL);
    char shown[300];
    if (j && source) {
        sn_json_object(j, "model");
        sn_json_text(j, "source", source);
        sn_json_close(j);
        return;
    }
    if (source) {
        printf("model       in C: %s (commands run the folder by graph.sn, without its code; or "
               "pass it with "
               "--checkpoint)\n",
               sn_printable(shown, sizeof shown, source));
        return;
    }
    if (!sn_model_build(c, &(sn_model_options){.weights = w}, &model, &err)) {
        if (j) sn_json_text(j, "problem", err.message);
        if (j) return;
        printf("model       not a generative one: %s\n", err.message);
        return;
    }
    if (j)
        print_model(j, &model);
    else
        printf(
            "model       %s: %lld layers, %lld heads, width %lld, context %lld, vocabulary %lld\n",
            model.type, (long long)model.layers, (long long)model.heads, (long long)model.d_model,
            (long long)model.context, (long long)model.vocab);
    sn_module_free(model.module);
}

/* What `sinter quantize` recorded. */
static bool print_quantised(json_out *j, sn_config *c, bool each, sn_error *err) {
    quantised q;
    char name[200];
    bool ok = quantised_read(c, &q, err);
    if (ok && q.weights && j) {
        sn_json_object(j, "quantised");
        sn_json_text(j, "weights", q.weights);
        sn_json_text(j, "compute", q.compute);
        sn_json_integer(j, "kept", q.n_keep);
        sn_json_close(j);
    } else if (ok && q.weights)
        printf("quantised   weights %s%s%s, %d matrices with more bits\n", q.weights,
               q.compute ? ", compute " : "", q.compute ? q.compute : "", q.n_keep);
    for (int i = 0; ok && each && !j && i < q.n_keep; i++)
        printf("  %-48s %s%s\n", sn_printable(name, sizeof name, q.keep[i].param),
               q.keep[i].weights ? q.keep[i].weights : "",
               q.keep[i].products ? q.keep[i].weights ? ", products in f32" : "products in f32"
                                  : "");
    quantised_free(&q);
    return ok;
}

/* A number or a string; the length of an array and its first elements. */
static void print_value(const sn_gguf_key *k) {
    enum { SHOWN = 6 };
    const char *text;
    char raw[120], shown[400];
    size_t at = 0, size, i = 0;
    if (k->array) printf("[%zu] ", k->count);
    for (; i < k->count && i < SHOWN; i++) {
        if (i) printf(", ");
        if (sn_gguf_string(k, &at, &text, &size)) {
            snprintf(raw, sizeof raw, "%.*s", (int)(size < 100 ? size : 100), text);
            printf("\"%s\"%s", sn_printable(shown, sizeof shown, raw), size > 100 ? "…" : "");
        } else if (k->type == SN_GGUF_BOOL)
            printf("%s", sn_gguf_number(k, i) != 0 ? "true" : "false");
        else
            printf("%.9g", sn_gguf_number(k, i));
    }
    printf("%s\n", i < k->count ? ", …" : "");
}

static void print_keys(const sn_gguf *g, bool each) {
    char name[200];
    printf("GGUF        version %u, %zu keys\n", g->version, g->key_count);
    for (size_t i = 0; each && i < g->key_count; i++) {
        printf("  %-48s ", sn_printable(name, sizeof name, g->key[i].name));
        print_value(&g->key[i]);
    }
}

/* A GGUF file of an architecture that cannot run is still described. */
static bool inspect_gguf(const char *path, bool tensors, sn_error *why) {
    sn_error err = {0};
    sn_weights *w = sn_gguf_is_file(path) ? sn_weights_open(path, &err) : NULL;
    if (!w) return false;
    json_out lines, *j = sn_screen()->json ? &lines : NULL;
    if (j) {
        lines = sn_json_begin(stdout);
        sn_json_text(j, "problem", why->message);
    } else {
        printf("model       cannot run: %s\n", why->message);
        print_keys(sn_weights_gguf(w), tensors);
    }
    print_weights(j, w, tensors);
    if (j) sn_json_end(j);
    sn_weights_close(w);
    return true;
}

static int inspect_folder(const char *path, bool tensors) {
    sn_error err = {0};
    bool artefact = false;
    if (!inspect_artefact(path, &artefact, &err)) return cmd_fail(NAME, &err);
    if (artefact) return cmd_finish(NAME);
    if (model_source_is(path)) return cmd_describe_source(NAME, path);
    sn_model_dir *dir = sn_model_dir_open(path, &err);
    if (!dir) return inspect_gguf(path, tensors, &err) ? cmd_finish(NAME) : cmd_fail(NAME, &err);
    json_out lines, *j = sn_screen()->json ? &lines : NULL;
    if (j) lines = sn_json_begin(stdout);
    print_config(j, dir->config, dir->weights);
    if (!print_quantised(j, dir->config, tensors, &err)) {
        sn_model_dir_close(dir);
        return cmd_fail(NAME, &err);
    }
    sn_tokenizer *t = sn_tokenizer_load(path, &err);
    if (j) {
        sn_json_object(j, "tokenizer");
        sn_json_text(j, "kind", t ? sn_tokenizer_kind(t) : NULL);
        sn_json_integer(j, "tokens", t ? sn_tokenizer_vocab_size(t) : 0);
        sn_json_close(j);
    } else if (t)
        printf("tokenizer   %s, %d tokens\n", sn_tokenizer_kind(t),
               (int)sn_tokenizer_vocab_size(t));
    else
        printf("tokenizer   none: %s\n", err.message);
    const sn_gguf *gguf = sn_weights_gguf(dir->weights);
    if (gguf && !j) print_keys(gguf, tensors);
    print_weights(j, dir->weights, tensors);
    if (j) sn_json_end(j);
    sn_tokenizer_free(t);
    sn_model_dir_close(dir);
    return cmd_finish(NAME);
}

int cmd_inspect(int argc, char **argv) {
    options o = {0};
    int code = sn_args_parse(&command, argc, argv, &o);
    if (code != ARGS_RUN) return code;
    sn_error err = {0};
    int query = find_query(&o.look);
    if (query < 0)
        sn_fail(&err, SN_ERR_USAGE,
                "only one query at a time: --taps, --tap, --attention, --logit-lens, --near or "
                "--analogy");
    else if (query < N_QUERIES)
        queries[query](&o.look, &err);
    else if (!o.look.model.path)
        sn_fail(&err, SN_ERR_USAGE,
                "give a model folder or an artefact (%s --help lists all options)", NAME);
    else
        return inspect_folder(o.look.model.path, o.tensors);
    return err.code ? cmd_fail(NAME, &err) : cmd_finish(NAME);
}
