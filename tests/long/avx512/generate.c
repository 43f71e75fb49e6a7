/* generate.c: logits of a prompt, then the likeliest tokens, by an artefact `story`. CALLER_PAST: the caller counts
 * the tokens; otherwise the state does, as in models in C. */
#include "bare.h"
#include "story.h"

#ifdef CALLER_PAST
#define PAST(x) x,
#define ALSO(x) , x
#else
#define PAST(x)
#define ALSO(x)
#endif

int run(void) {
    static const int32_t tokens[] = {1,  40, 7, 26, 37, 43, 38, 28, 26, 37, 29,
                                     31, 42, 1, 40, 30, 17, 25, 9,  51, 3};
    enum { N = sizeof tokens / sizeof *tokens, MORE = 12 };
    story m;
    int code = story_open(&m, NULL);
    if (code) return put(story_message(code)), put("\n"), code;
    int64_t bytes = story_prefill_workspace(&m, N ALSO(0)), step = story_step_workspace(&m ALSO(0));
    if (bytes < step) bytes = step;
    void *state = take(STORY_STATE_BYTES), *work = take((size_t)bytes);
    static float logits[STORY_PREFILL_LOGITS];
    code = story_state_init(&m, state);
    if (!code) code = story_prefill(&m, state, work, N - 1, PAST(0) tokens, logits);
    for (int i = 0; !code && i < STORY_VOCAB; i++) put_number((long)(logits[i] * 1e6f)), put(" ");
    put("\n");
    const float temperature = 0;
    int32_t next = tokens[N - 1];
    for (int64_t made = 0; !code && made < MORE; made++) {
        const int64_t rng[2] = {0, made};
        const int32_t last = next;
        code = story_step(&m, state, work, PAST(N - 1 + made) & last, &temperature, rng, &next);
        if (!code) put_number(next), put(" ");
    }
    put("\n");
    return code;
}
