/* gguf_architectures.h: what each architecture is called in GGUF files: keys and their names in
 * config.json, tensors and their names in model.safetensors. Internal. */
#ifndef SN_GGUF_ARCHITECTURES_H
#define SN_GGUF_ARCHITECTURES_H

#include "runtime/files/gguf.h"

typedef struct pair {
    const char *gguf, *ours; /* ours NULL (keys): read in gguf_model.c, or without effect */
} pair;

/* What is read besides keys and tensors of the tables (gguf_model.c). */
typedef enum gguf_trait {
    GGUF_LATENTS = 1,     /* latent attention */
    GGUF_LISTS_HEADS = 2, /* a number of heads of keys for each layer, 0: it does not attend */
    GGUF_KDA = 4,         /* layers of Kimi Delta Attention */
    GGUF_EXPAND = 8,      /* the width of states is a multiple of the model's, as configs have it */
    GGUF_PERIODS = 16,    /* Jamba: layers of a kind are at equal distances */
    GGUF_TYPES = 32,      /* Granite: layers of a kind are listed */
    GGUF_SWITCHES_ROPE = 64 /* rope.scaling.finetuned says whether positions rotate */
} gguf_trait;

typedef struct architecture {
    const char *name, *model_type;
    const pair *keys;    /* without "NAME." */
    const pair *tensors; /* stems: without ".weight", ".bias"; ours "NAME.": it has neither */
    const pair *layers;  /* stems behind "blk.N." */
    const char *layer;   /* "h." */
    const char *config;  /* keys that all models of this kind have, as JSON */
    const char *partial; /* key for the rotated part of heads; NULL: all of it is rotated */
    unsigned traits;
    int scalar_layers; /* Gemma: number of layers whose scores are scaled by embedding / heads */
    /* Of several with one name, adjacent in the table, the first that fits: the file has a tensor, or
     * the value of a key is above a number. NULL: every file fits. */
    const char *marker, *marker_key;
    double marker_above;
} architecture;

/* The architecture of a file opened as weights; NULL: it is not known. */
const architecture *sn_gguf_architecture_of(const sn_weights *w);

/* The value of the key NAME.key of the architecture; NULL: absent. */
const sn_gguf_key *sn_gguf_architecture_key(const architecture *a, const sn_gguf *g,
                                            const char *key);

/* The name here of a key or stem; *found: the table has it. */
const char *sn_gguf_find_pair(const pair *p, const char *gguf, bool *found);

#endif
