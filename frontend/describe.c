/* describe.c: descriptions of the arguments of the ready-made architectures' entries. */
#include "frontend/models.h"

#include <string.h>

/* The first matching row applies; entry "": every entry. */
static const struct {
    const char *entry, *argument, *text;
} rows[] = {
    {"forward", "T", "tokens per sequence, padding included"},
    {"encode", "T", "tokens per sequence, padding included"},
    {"embed", "T", "tokens per sequence, padding included"},
    {"", "T", "tokens of this call"},
    {"reorder", "P", "tokens of the copied rows"},
    {"", "R", "row of the caches that is written, the first of several"},
    {"", "past", "tokens that each row holds, at most P"},
    {"decode", "B", "number of sequences: rows 0 to B - 1"},
    {"reorder", "B", "number of rows"},
    {"", "P", "tokens that are already in the state; 0 starts a new sequence"},
    {"", "N", "number of texts; of a gato: of images"},
    {"", "B", "number of sequences or images"},
    {"", "S", "tokens (of sound: encoded positions) of the source, padding included"},
    {"", "source", "token ids of the text to translate"},
    {"decode", "tokens", "the last token of each row"},
    {"step", "tokens", "the last token of each sequence"},
    {"", "tokens", "token ids"},
    {"", "targets", "the target of each: a token id or a class; other values are ignored"},
    {"", "types", "segment of each token: 0, or 1 after the first [SEP]"},
    {"", "lengths", "tokens per sequence; the rest is padding"},
    {"", "features", "log-mel spectrograms: rows, bins, frames"},
    {"", "samples", "sound of 16 kHz, -1 to 1: rows, samples"},
    {"", "pixels", "images, channels, rows, columns; scaled and normalised as in training"},
    {"", "documents", "document of each token; tokens attend within it only"},
    {"", "temperature", "0: the most likely token; 1: sampled from the model's distribution"},
    {"", "rng", "{seed, step}: the same pair gives the same samples"},
    {"reorder", "parents", "row i (of R and the following) continues row parents[i]"},
    {"lens", "logits", "of the next token, after the embedding and after each layer"},
    {"prefill", "logits", "of the token after the last one; larger is more likely"},
    {"decode", "logits", "of the next token; larger is more likely"},
    {"", "logits",
     "of each class or token of the vocabulary, of CLIP of each image and text; larger is more "
     "likely"},
    {"", "next", "the next token"},
    {"", "hidden", "a vector for each token"},
    {"embed_image", "embedding",
     "a vector of norm 1 for each image; dot products are similarities"},
    {"", "embedding", "a vector of norm 1 for each text; dot products are similarities"},
    {"train_step", "loss", "mean -ln P of the targets, before the step"},
    {"accumulate", "loss", "mean -ln P of the targets of these rows"},
    {"", "loss", "-ln P of each target"},
    {"", "weight", "of these rows in the step: their share of the batch's targets"},
    {"", "learning_rate", "of this step: the schedule of the config does not count"},
    {"", "norm", "gradient norm before clipping"},
    {"", "rate", "learning rate of this step"},
};

const char *sn_model_describe(const char *entry, const char *argument) {
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        if (!strcmp(rows[i].argument, argument) &&
            (!*rows[i].entry || !strcmp(rows[i].entry, entry)))
            return rows[i].text;
    return NULL;
}
