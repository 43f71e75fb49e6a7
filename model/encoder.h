/* encoder.h: runs encoders: pads a batch of texts and runs one entry, embeds images, compares an
 * image with texts. Used by embed, fill and classify. */
#ifndef SN_ENCODER_H
#define SN_ENCODER_H

#include "model/open.h"

/* Encodes a text for BERT, [CLS] text [SEP]; without a tokenizer the text is a list of ids. Errors:
 * an empty text, or one longer than the context. */
bool encoder_read(const open_model *m, const char *text, size_t size, sn_ids *out, sn_error *err);

/* Runs the entry on n texts as one batch. *out: the output, row-major, *each elements per text,
 * including padded positions; the caller frees it. *length (may be NULL): the padded length. types:
 * the token types of each text, or NULL: all 0. */
bool encoder_run(open_model *m, const char *entry, const char *output, const sn_ids *text,
                 const sn_ids *types, int64_t n, float **out, int64_t *each, int64_t *length,
                 sn_error *err);

/* A text as ids, and where they are in it: ids[first + i] is at place[i], of n; the other ids are
 * special tokens. */
typedef struct encoder_text {
    sn_ids ids;
    sn_place *place;
    size_t first, n;
} encoder_text;

/* encoder_read with places, for models with a tokenizer. Freed by encoder_text_free, in any case. */
bool encoder_read_places(const open_model *m, const char *text, size_t size, encoder_text *out,
                         sn_error *err);
void encoder_text_free(encoder_text *t);

/* Encodes two texts as one sequence ([CLS] a [SEP] b [SEP]); types may be given to encoder_run. */
bool encoder_read_pair(const open_model *m, const char *a, size_t a_size, const char *b,
                       size_t b_size, sn_ids *out, sn_ids *types, sn_error *err);

/* Reads a PNG or JPEG file into pixels [channels, image, image], which the caller frees. NULL on
 * error. */
float *encoder_pixels(const open_model *m, const char *path, sn_error *err);
/* What encoder_pixels does with pictures; false: the folder does not say. */
bool encoder_picture_rules(const open_model *m, picture_rules *out);
/* A byte of channel c as the model takes it. */
float encoder_pixel(const open_model *m, int c, unsigned char byte);

/* Runs the entry `embed_image`: *out [*width], which the caller frees. */
bool encoder_embed_image(open_model *m, const char *path, float **out, int64_t *width,
                         sn_error *err);

/* Probabilities out[n], which the caller frees, that each text fits the image: of clip, among these
 * texts, of siglip each by itself. Needs SN_FORWARD. */
bool encoder_compare(open_model *m, const char *path, const sn_ids *text, int64_t n, float **out,
                     sn_error *err);

#endif
