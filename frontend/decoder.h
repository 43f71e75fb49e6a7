/* decoder.h: [PH22 A10], DTransformer, with replaceable lines: section 6 of the paper defines other
 * models by the lines that they change (GPT-3 line 6, Gopher lines 2 and 5 to 7, Gato line 2).
 * gpt2.c has the frame and GPT-2's lines; gpt3.c, gopher.c and gato.c replace some. Not public. */
#ifndef SN_DECODER_H
#define SN_DECODER_H

#include "frontend/models.h"

/* Adds outputs to the entry `loss`; loss and targets are [B, T]. */
typedef void decoder_report(const void *config, sn_tensor loss, sn_tensor targets);
/* sn_decoder_entries with such outputs; report may be NULL. */
void decoder_entries(sn_module *m, const sn_decoder *d, const sn_model_options *o,
                     decoder_report *report);

/* The entry `reorder` of caches of several sequences, the states that `decode` assigns. */
void decoder_reorder(sn_module *m, int64_t rows);

typedef struct decoder decoder;
struct decoder {
    int64_t vocab, context, layers, heads, d, d_mlp;
    double eps;
    sn_tensor (*act)(sn_loc, sn_tensor);
    bool tied;              /* W_u is W_e */
    int linear;             /* flags of linear layers: bias, and how the weights are stored */
    const char *prefix;     /* of all parameters but lm_head */
    int64_t window;         /* number of keys that gpt2_attend sees; 0: all */
    const void *variant;    /* configuration of the lines that replace GPT-2's */
    decoder_report *report; /* or NULL */

    sn_tensor (*embed)(const decoder *g, const sn_forward_ctx *s);      /* lines 2, 3: [B, T, d] */
    sn_tensor (*norm)(const decoder *g, sn_tensor x, const char *name); /* lines 5, 7, 10 */
    sn_tensor (*attend)(const decoder *g, const sn_forward_ctx *s,
                        sn_tensor x, /* line 6, from layer's */
                        int layer);  /* normed X to the update */
};

/* Reads GPT-2's config keys; the lines are GPT-2's. Errors are recorded in c. */
decoder decoder_read(sn_config *c, const sn_model_options *o);
/* Stores the sizes in out and builds the entries of a decoder, unless c has errors. */
void decoder_build(const decoder *g, sn_config *c, const sn_model_options *o, sn_model *out);

/* Queries, keys and values side by side [B, T, 3 d]: "attn.c_attn". */
sn_tensor decoder_qkv(const decoder *g, sn_tensor x);
/* GPT-2's lines. */
sn_tensor gpt2_embed(const decoder *g, const sn_forward_ctx *s);
sn_tensor gpt2_norm(const decoder *g, sn_tensor x, const char *name);
sn_tensor gpt2_attend(const decoder *g, const sn_forward_ctx *s, sn_tensor x, int layer);
/* The two functions of sn_decoder; `config` is a decoder. */
sn_tensor decoder_layers(const void *config, const sn_forward_ctx *s);
sn_tensor decoder_unembed(const void *config, sn_tensor x);

#endif
