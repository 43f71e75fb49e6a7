/* train.c: trains with a step compiled ahead of time, then predicts with what was trained, without Sinter.
 *
 *   sinter compile --train examples/train/shakespeare.json --entries forward --name training -o out
 *   cc train.c -Iout out/training.o -lgomp -lm -o train
 *   ./train out/training.weights 20
 *
 * The text is a cycle of the tokens 1, 5, 9, … 37; after some steps the model continues it. */
#include <stdio.h>
#include <stdlib.h>

#include "training.h"

enum { ROWS = 4, LENGTH = 32, CYCLE = 10 };

static int32_t text_at(int64_t i) {
    return (int32_t)(1 + 4 * (i % CYCLE));
}

static int fail(const char *what, int code) {
    fprintf(stderr, "%s: %s\n", what, training_message(code));
    return 1;
}

static void *allocate(int64_t bytes) {
    return aligned_alloc(TRAINING_ALIGN,
                         (size_t)(bytes + TRAINING_ALIGN) / TRAINING_ALIGN * TRAINING_ALIGN);
}

static int train(const training *m, void *state, void *workspace, int64_t steps) {
    static int32_t tokens[ROWS * LENGTH], targets[ROWS * LENGTH];
    for (int64_t step = 0; step < steps; step++) {
        float loss, norm, rate;
        for (int64_t i = 0; i < ROWS * LENGTH; i++) {
            tokens[i] = text_at(step + i);
            targets[i] = text_at(step + i + 1);
        }
        int code = training_train_step(m, state, workspace, LENGTH, ROWS, tokens, targets, &loss,
                                       &norm, &rate);
        if (code) return code;
        printf("step %lld: loss %.4f\n", (long long)step + 1, loss);
    }
    return 0;
}

/* The most likely token after the first ten of the text. */
static int predict(const training *m, const void *state, void *workspace, int32_t *next) {
    static float logits[CYCLE * TRAINING_VOCAB];
    int32_t tokens[CYCLE];
    for (int i = 0; i < CYCLE; i++) tokens[i] = text_at(i);
    int code = training_forward(m, state, workspace, CYCLE, 1, tokens, logits);
    const float *last = logits + (CYCLE - 1) * TRAINING_VOCAB;
    *next = 0;
    for (int32_t i = 1; i < TRAINING_VOCAB; i++)
        if (last[i] > last[*next]) *next = i;
    return code;
}

int main(int argc, char **argv) {
    training m;
    int32_t next;
    if (argc != 3) return fprintf(stderr, "usage: train WEIGHTS STEPS\n"), 2;
    int code = training_open(&m, argv[1]);
    if (code) return fail(argv[1], code);
    int64_t bytes = training_train_step_workspace(&m, LENGTH, ROWS),
            more = training_forward_workspace(&m, CYCLE, 1);
    void *state = allocate(TRAINING_STATE_BYTES),
         *workspace = allocate(bytes > more ? bytes : more);
    code = training_state_init(&m, state);
    if (!code) code = train(&m, state, workspace, atoll(argv[2]));
    if (!code) code = predict(&m, state, workspace, &next);
    if (!code) printf("next token: %d\n", (int)next);

    /* Parameters by their names, to read and to write: only token 2 has an embedding, and it is met. */
    float *table = training_param(state, "wte.weight", &bytes);
    float *bias = training_param(state, "ln_f.bias", &more);
    if (!code && table && bias) {
        int64_t n = bytes / 4, width = more / 4;
        printf("wte.weight: %lld numbers, the first is %.5f\n", (long long)n, table[0]);
        for (int64_t i = 0; i < n; i++) table[i] = i / width == 2;
        for (int64_t i = 0; i < width; i++) bias[i] = 1;
        code = predict(&m, state, workspace, &next);
        if (!code) printf("after the change: %d\n", (int)next);
    }
    free(state);
    free(workspace);
    training_close(&m);
    return code ? fail("train", code) : 0;
}
