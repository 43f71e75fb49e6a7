/* describe.c: what the arguments of the entries of ready-made architectures mean, in words. */
#include "frontend/models.h"

#include <string.h>

/* The first row that fits; entry "": every entry. */
static const struct {
    const char *entry, *argument, *text;
} rows[] = {
    {"forward", "T", "tokens of each sequence, padding included"},
    {"encode", "T", "tokens of each sequence, padding included"},
    {"embed", "T", "tokens of each sequence, padding included"},
    {"", "T", "tokens of this call"},
    {"", "P", "tokens that are in the state already; 0 begins a new sequence"},
    {"", "B", "sequences, or images"},
    {"", "S", "tokens of the source, padding included"},
    {"", "source", "token ids of the text to translate"},
    {"decode", "tokens", "the last token of each row"},
    {"step", "tokens", "the last token of each sequence"},
    {"", "tokens", "token ids"},
    {"", "targets", "the right answer for each: a token id or a class; others are left out"},
    {"", "types", "segment of each token: 0, or 1 behind the first [SEP]"},
    {"", "lengths", "tokens of each sequence; what follows them is padding"},
    {"", "pixels", "0 to 1: images, channels, rows, columns"},
    {"", "documents", "number of each token's document; tokens see their own only"},
    {"", "temperature", "0: the most likely token; 1: drawn as the model says"},
    {"", "rng", "{seed, number of the step}: the same pair draws the same"},
    {"reorder", "parents", "row i goes on where row parents[i] was"},
    {"lens", "logits", "of the next token, after the embedding and after each layer"},
    {"prefill", "logits", "of the token that follows the last one; larger is more likely"},
    {"decode", "logits", "of the token that follows; larger is more likely"},
    {"", "logits", "of each class, or of each token of the vocabulary; larger is more likely"},
    {"", "next", "the token that follows"},
    {"", "hidden", "a vector for each token"},
    {"", "embedding", "a vector of length 1 for each text; products of two are similarities"},
    {"train_step", "loss", "mean -ln P of the targets, before the step"},
    {"", "loss", "-ln P of each target"},
    {"", "norm", "length of the gradient, before it is clipped"},
    {"", "rate", "learning rate of this step"},
};

const char *sn_model_describe(const char *entry, const char *argument) {
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        if (!strcmp(rows[i].argument, argument) &&
            (!*rows[i].entry || !strcmp(rows[i].entry, entry)))
            return rows[i].text;
    return NULL;
}
