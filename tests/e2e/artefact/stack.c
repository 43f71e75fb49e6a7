/* Runs a prompt and single tokens on a thread with a stack of 64 KiB, and touches no heap meanwhile. */
#include "story.h"
#include <malloc.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

static story m;
static void *state, *workspace;
static int32_t tokens[64];
static float logits[STORY_VOCAB];
static int code;

static void *run(void *unused) {
    (void)unused;
    code = story_state_init(&m, state);
    if (!code) code = story_prefill(&m, state, workspace, 64, 0, tokens, logits);
    for (int64_t k = 64; !code && k < 100; k++)
        code = story_decode(&m, state, workspace, k, tokens, logits);
    return NULL;
}

int main(void) {
    enum { STACK = 65536 };
    pthread_attr_t small;
    pthread_t thread;
    if (story_open(&m, "story.weights")) return 1;
    int64_t bytes = story_prefill_workspace(&m, 64, 0), other = story_decode_workspace(&m, 100);
    if (other > bytes) bytes = other;
    state = aligned_alloc(64, STORY_STATE_BYTES);
    workspace = aligned_alloc(64, (size_t)(bytes + 63) / 64 * 64);
    if (!state || !workspace || pthread_attr_init(&small) ||
        pthread_attr_setstacksize(&small, STACK))
        return 1;
    struct mallinfo2 before = mallinfo2();
    run(NULL);
    struct mallinfo2 after = mallinfo2();
    if (before.uordblks != after.uordblks || before.hblkhd != after.hblkhd) code = -1;
    if (!code && (pthread_create(&thread, &small, run, NULL) || pthread_join(thread, NULL)))
        code = -2;
    if (code)
        printf("code %d: %s\n", code,
               code > 0 ? story_message(code) : "the heap changed, or no thread");
    return code != 0;
}
