/* train.c: some steps of an artefact `story` made by sinter compile --train: losses and norms of gradients. */
#include "bare.h"
#include "story.h"

int run(void) {
    enum { ROWS = 2, LENGTH = 21, STEPS = 3 };
    static int32_t tokens[ROWS * LENGTH], targets[ROWS * LENGTH];
    story m;
    int code = story_open(&m, NULL);
    if (code) return put(story_message(code)), put("\n"), code;
    void *state = take(STORY_STATE_BYTES),
         *work = take((size_t)story_train_step_workspace(&m, LENGTH, ROWS));
    code = story_state_init(&m, state);
    for (int step = 0; !code && step < STEPS; step++) {
        float loss, norm, rate;
        for (int i = 0; i < ROWS * LENGTH; i++) {
            tokens[i] = 1 + 4 * ((step + i) % 10);
            targets[i] = 1 + 4 * ((step + i + 1) % 10);
        }
        code =
            story_train_step(&m, state, work, LENGTH, ROWS, tokens, targets, &loss, &norm, &rate);
        if (!code)
            put_number((long)(loss * 1e6f)), put(" "), put_number((long)(norm * 1e6f)), put("\n");
    }
    return code;
}
