/* cmd_models.c: `sinter models`: the architectures that model folders can have, as the page
 * docs/models.md. */
#include "model/commands/commands.h"
#include "frontend/models.h"
#include "runtime/files/gguf_model.h"

#include <stdio.h>
#include <string.h>

#define NAME "sinter models"

static const arg table[] = {{0}};

static const arg_key keys[] = {
    {"model_type", "text?", "of config.json"},
    {"models", "text?", "published models that have it"},
    {"use", "text?", "what the model is for"},
    {"compared_with", "text?", "what its results were compared with"},
    {"gguf_architecture", "text?", "general.architecture of a GGUF file, on a line of its own"},
    {0}};

static const arg_command command = {
    NAME,
    "list the architectures of model folders",
    "Prints the values of \"model_type\" that config.json may have, as a table in Markdown: what\n"
    "has that architecture, what it is for, and what its results were compared with.\n",
    table,
    .examples = "sinter models\nsinter models --json\n",
    .json = keys};

static const char page[] =
    "# Models\n\n"
    "This page is what `sinter models` prints. A model folder has one of these architectures; its "
    "`config.json` names it\n"
    "in `model_type`. Config keys and names of tensors are Hugging Face's, except in `edt`, "
    "`gopher`, `gato` and the TSE\n"
    "models; a `vit` may also have those of examples/models/mnist-vit. Any other architecture can "
    "be written in C\n"
    "([tutorial](tutorial.md)). *NumPy* and *PyTorch* stand for small programs in `tests/data` "
    "that compute a tiny\n"
    "model with random weights from the published formulas. Logits agree within 1e-4 of the "
    "largest, at fusion levels 0\n"
    "and 4, with and without caches.\n\n"
    "| `model_type` | models | use | compared with |\n|---|---|---|---|\n";

static int print_json(void) {
    const sn_model_family *f;
    for (int i = 0; (f = sn_model_family_at(i)); i++) {
        json_out j = sn_json_begin(stdout);
        sn_json_text(&j, "model_type", f->type);
        sn_json_text(&j, "models", f->what);
        sn_json_text(&j, "use", f->heads);
        sn_json_text(&j, "compared_with", f->checked);
        sn_json_end(&j);
    }
    const char *name, *last = "";
    for (int i = 0; (name = sn_gguf_architecture(i)); last = name, i++) {
        if (!strcmp(name, last)) continue;
        json_out j = sn_json_begin(stdout);
        sn_json_text(&j, "gguf_architecture", name);
        sn_json_end(&j);
    }
    return cmd_finish(NAME);
}

enum { WIDTH = 121 }; /* of lines of lists */

int cmd_models_list(int argc, char **argv) {
    char none;
    int code = sn_args_parse(&command, argc, argv, &none);
    if (code != ARGS_RUN) return code;
    const sn_model_family *f;
    const char *name;
    if (sn_screen()->json) return print_json();
    fputs(page, stdout);
    for (int i = 0; (f = sn_model_family_at(i)); i++)
        if (!f->text_only)
            printf("| `%s` | %s | %s | %s |\n", f->type, f->what, f->heads, f->checked);
    printf(
        "\nOf models of pictures and texts the text model (`text_config`) is read, and tensors of "
        "pictures are skipped:");
    const char *last = "\n";
    for (int i = 0; (f = sn_model_family_at(i)); i++)
        if (f->text_only) printf("%s`%s`", last, f->type), last = ", ";
    printf(".\n");
    last = "";
    printf("\nIn GGUF files (`general.architecture`):\n");
    for (int i = 0, at = 0; (name = sn_gguf_architecture(i)); last = name, i++) {
        const int more = (int)strlen(name) + 4;
        if (!strcmp(name, last)) continue;
        printf("%s`%s`", i == 0 ? "" : at + more < WIDTH ? ", " : ",\n", name);
        at = at + more < WIDTH ? at + more : more;
    }
    printf(".\nLogits of tiny files, quantised: a program in Python without packages, "
           "`tests/data/gguf`; from `phi2` on: NumPy.\n");
    return cmd_finish(NAME);
}
