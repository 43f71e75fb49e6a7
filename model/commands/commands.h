/* commands.h: the subcommands of the library of models. */
#ifndef SN_MODEL_COMMANDS_H
#define SN_MODEL_COMMANDS_H

#include "model/open.h"
#include "tools/cmd.h"

cmd_fn cmd_answer, cmd_classify, cmd_embed, cmd_eval, cmd_fill, cmd_generate, cmd_import,
    cmd_inspect, cmd_models_list, cmd_plan, cmd_quantize, cmd_tokenizer, cmd_train, cmd_transcribe,
    cmd_translate;

/* For cmd_open: an encoder with these entries, which must include one of this name. */
#define CMD_ENCODER(flags, name)                                                                   \
    ((open_options){.entries = (flags), .needs = (name), .any_model = true})

#endif
