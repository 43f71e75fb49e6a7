/* pairs.h: encoder-decoders of several ONNX files. Internal. */
#ifndef SN_ONNX_PAIRS_H
#define SN_ONNX_PAIRS_H

#include "frontend/onnx/asked.h"

/* What the graphs of an encoder-decoder have in common. */
typedef struct onnx_seq2seq {
    int64_t sources, beams; /* rows of the caches: beams of each source */
    int64_t length, width;  /* of an encoded source; length 0: as many positions as tokens */
    int64_t mel, frames;    /* of a spectrogram; 0: not known */
    bool sound;             /* the source is such a one, or samples, not tokens */
    sn_dim samples; /* how many samples, as a polynomial of S; 0: the source is not samples */
    char *encoder;  /* its path */
    char *first;    /* path of the decoder without past tokens; NULL: the decoder of all tokens */
} onnx_seq2seq;

/* Whether the graph is a decoder's with keys and values of a source. */
bool onnx_is_pair(const onnx_graph *g);
/* Finds the files beside that of the decoder, by the names that Optimum gives them. merged: the decoder's also is the one
 * without past tokens. False: err. */
bool onnx_pair_files(onnx_seq2seq *p, const char *path, bool merged, sn_error *err);
void onnx_pair_free(onnx_seq2seq *p);
/* Adds the entry "reorder" to the entries prefill and decode, and leaves out the states that no entry reads. */
void onnx_pair_finish(sn_module *m, const char *path);

/* Positions of an encoded source. */
sn_dim onnx_source_length(const onnx_call *c);
/* Makers of inputs, and takers of outputs, as in roles.c. */
sn_tensor onnx_make_source_mask(const onnx_asked *g);
sn_tensor onnx_make_hidden(const onnx_asked *g);
sn_tensor onnx_make_features(const onnx_asked *g);
sn_tensor onnx_make_samples(const onnx_asked *g);
/* Past tokens, or a source's keys and values, where no operator needs them. */
sn_tensor onnx_make_unused(const onnx_asked *g);
sn_tensor onnx_make_source_past(const onnx_asked *g);
bool onnx_give_hidden(onnx_call *c, const char *name, onnx_value *v);
bool onnx_give_source(onnx_call *c, const char *name, onnx_value *v);
#endif
