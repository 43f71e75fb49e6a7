/* generate.c: continues token ids greedily with a model compiled ahead of time.
 *
 *   sinter compile MODEL --name story -o out
 *   cc generate.c -Iout out/story.o -lgomp -lm -o generate
 *   ./generate out/story.weights 20 1 403 407 */
#include <stdio.h>
#include <stdlib.h>

#include "story.h"

#ifdef _WIN32
#include <malloc.h>
#define aligned_alloc(align, bytes) _aligned_malloc(bytes, align)
#define free _aligned_free
#endif

static int fail(const char *what, int code) {
    fprintf(stderr, "%s: %s\n", what, story_message(code));
    return 1;
}

int main(int argc, char **argv) {
    if (argc < 4) return fprintf(stderr, "usage: generate WEIGHTS COUNT TOKEN...\n"), 2;
    story m;
    int code = story_open(&m, argv[1]);
    if (code) return fail(argv[1], code);
    int32_t tokens[1024], next;
    int64_t n = argc - 3 < 1024 ? argc - 3 : 1024, made = 0, count = atoll(argv[2]);
    for (int64_t i = 0; i < n; i++) tokens[i] = (int32_t)atoi(argv[3 + i]);

    /* the caller owns the memory: one state per sequence, one workspace per calling thread */
    int64_t bytes = story_prefill_workspace(&m, n, 0), step = story_step_workspace(&m, 0);
    if (bytes < 0) return fail("prompt", (int)-bytes);
    bytes = (bytes > step ? bytes : step) + STORY_ALIGN;
    void *state = aligned_alloc(STORY_ALIGN, STORY_STATE_BYTES);
    void *workspace = aligned_alloc(STORY_ALIGN, (size_t)(bytes / STORY_ALIGN * STORY_ALIGN));
    code = story_state_init(&m, state);

    /* the prompt except for its last token in one call, then token by token */
    static float logits[STORY_PREFILL_LOGITS];
    const float temperature = 0;
    if (!code && n > 1) code = story_prefill(&m, state, workspace, n - 1, 0, tokens, logits);
    next = tokens[n - 1];
    for (int64_t past = n - 1; !code && made < count; past++) {
        const int64_t rng[2] = {0, made++};
        const int32_t last = next;
        code = story_step(&m, state, workspace, past, &last, &temperature, rng, &next);
        if (!code) printf("%d\n", (int)next);
    }
    free(state);
    free(workspace);
    story_close(&m);
    return code ? fail("generate", code) : 0;
}
