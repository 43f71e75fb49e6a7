/* answers.h: answers to a question, found in a text. */
#ifndef SN_ANSWERS_H
#define SN_ANSWERS_H

#include "model/encoder.h"

/* Bytes [begin, end) of the text; whole words. */
typedef struct text_answer {
    float p;
    size_t begin, end;
} text_answer;

/* The `top` most likely answers of at most `longest` tokens, in descending order: out[*n], *n <= top.
 * The probability of an answer is that of its begin times that of its end, among the tokens of the
 * text and the case that there is none. A text that is too long for the model is read in parts that
 * overlap. The model must have been opened with SN_FORWARD, and needs a tokenizer. */
bool encoder_answers(open_model *m, const char *question, const char *text, size_t size,
                     int64_t longest, int64_t top, text_answer *out, int64_t *n, sn_error *err);

#endif
