/* spec_models.c: the architectures as rows of the specification, each in its smallest form; with
 * their training [PH22 A11 to A13] and their decoding [A14, A15]. */
#include "tests/e2e/spec_rows.h"

#define SIZES "\"num_hidden_layers\": 1, \"num_attention_heads\": 2, \"hidden_size\": 16"
#define DECODER(type, more)                                                                        \
    "{\"model_type\": \"" type "\", \"vocab_size\": 11, \"n_positions\": 32, \"n_embd\": 16, "     \
    "\"n_head\": 2" more "}"
#define TSE(type, more)                                                                            \
    "{\"model_type\": \"" type "\", \"n_vocab\": 11, \"n_ctx\": 32, \"n_layers\": 1, "             \
    "\"n_heads\": 2, \"d_model\": 16" more "}"
#define BERT(more)                                                                                 \
    "{\"model_type\": \"bert\", \"vocab_size\": 11, \"max_position_embeddings\": 32, "             \
    "\"intermediate_size\": 32, " SIZES more "}"

#define ROW(name, file, config, kernels, goal)                                                     \
    { name, "frontend/" file, NULL, config, kernels, NULL, goal, 400, 0 }
const spec_row spec_models[] = {
    ROW("A8 A11 A15 EDT", "families/edt.c",
        "{\"model_type\": \"edt\", \"vocab_size\": 11, \"max_position_embeddings\": 32, "
        "\"d_model\": 16, \"ffn_dim\": 32, \"encoder_layers\": 1, \"decoder_layers\": 1, "
        "\"attention_heads\": 2}",
        "9 map_reduce, 12 gemm, 3 flash", 0.1),
    ROW("A9 A12 BERT", "bert.c", BERT(""), "5 map_reduce, 6 gemm, 1 flash", 0.1),
    ROW("classification", "bert.c", BERT(", \"num_labels\": 5"), "4 map_reduce, 6 gemm, 1 flash",
        0.1),
    ROW("A10 A13 A14 GPT-2", "gpt2.c", DECODER("gpt2", ", \"n_layer\": 1"),
        "4 map_reduce, 5 gemm, 1 flash", 0.1),
    ROW("GPT-3", "gpt3.c", DECODER("gpt3", ", \"n_layer\": 2, \"window_size\": 4"),
        "6 map_reduce, 9 gemm, 2 flash", 0.1),
    ROW("Gopher", "gopher.c", DECODER("gopher", ", \"n_layer\": 1"),
        "10 map_reduce, 7 gemm, 1 flash", 0.1),
    ROW("Llama", "families/llama.c",
        "{\"model_type\": \"llama\", \"vocab_size\": 11, \"max_position_embeddings\": 32, "
        "\"intermediate_size\": 32, \"num_key_value_heads\": 1, " SIZES "}",
        "10 map_reduce, 5 gemm, 1 flash", 0.1),
    ROW("TSE-GPT", "tse_gpt.c", TSE("tse_gpt", ""), "1 map_reduce, 6 gemm, 2 flash", 0.6),
    ROW("TSE-alt, factored", "tse_alt.c", TSE("tse_alt", ""), "3 map_reduce, 6 gemm, 2 flash", 0.6),
    ROW("TSE-alt, full", "tse_alt.c", TSE("tse_alt", ", \"circuits\": \"full\""),
        "3 map_reduce, 4 gemm, 2 flash", 0.6),
    ROW("ViT", "families/vit.c",
        "{\"model_type\": \"vit\", \"image_size\": 8, \"patch_size\": 4, \"num_channels\": 3, "
        "\"num_labels\": 5, \"intermediate_size\": 20, " SIZES "}",
        "7 map_reduce, 6 gemm, 1 flash", 0.1),
    {.name = "Gato",
     .file = "frontend/gato.c",
     .config = "{\"model_type\": \"gato\", \"vocab_size\": 7, \"n_positions\": 32, \"n_embd\": 16, "
               "\"n_head\": 2, \"n_layer\": 1, \"discrete_values\": 5, \"continuous_bins\": 6, "
               "\"image_size\": 8, \"patch_size\": 4, \"num_channels\": 2, \"resnet_filters\": 4, "
               "\"resnet_groups\": 2}",
     .kernels = "39 map_reduce, 9 gemm, 1 flash",
     .goal = 0.2,
     .steps = 400,
     .tokens = 5},
    {0}};
