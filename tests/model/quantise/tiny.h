/* tiny.h: a model of each kind that `sinter quantize` takes, so small that it compiles at once. Include after
 * cmocka.h and scratch.h. */
#ifndef SN_TEST_TINY_H
#define SN_TEST_TINY_H

#include "model/quantise/subject.h"
#include "tests/support/model_case.h"

typedef enum kind { LLAMA, GPT2, PHI3, BERT, EDT, KINDS } kind;

typedef struct tiny {
    model_case model;
    subject s;
    subject_progress progress; /* notes: */
    char lines[4096];          /* what was reported */
    bool stop;                 /* the work ends at the next step */
} tiny;

/* Makes a folder "llama", "gpt2", "phi3", "bert" or "edt" in `root` with random weights, which are those of c; element 5 of
 * every vector and row 7 of every matrix are larger than the others. */
void tiny_make(const char *root, kind k, model_case *c);
/* The folder; a text of 9 sequences for measuring and calibrating; one thread. */
subject_options tiny_options(const char *root, kind k);
void tiny_open(tiny *t, const char *root, kind k); /* both */
void tiny_close(tiny *t);

/* -1 to 1 */
float tiny_noise(uint32_t i);
void expect_close(double got, double want, double part, const char *what);

#endif
