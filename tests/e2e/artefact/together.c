/* Two artefacts in one program: story, one sequence a state, and other, 3 sequences of different lengths in a state.
 * Sessions in several threads at once fork a prefix, go back and continue. All logits have the bits of the same calls
 * alone, and a row has those of its text in story. */
#include "other.h"
#include "story.h"
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

enum { VOCAB = STORY_VOCAB, ROWS = 3, TEXTS = 2 * ROWS, PREFIX = 12, STEPS = 6, ROUNDS = 3 };

static story s;
static other o;
static void *prefix; /* a state that holds PREFIX tokens; threads copy it while others decode */
static float story_alone[TEXTS][2 + STEPS][VOCAB], other_alone[TEXTS / ROWS][STEPS][ROWS][VOCAB];
static int failed;

static void *memory(int64_t bytes) {
    void *p = bytes < 0 ? NULL : aligned_alloc(64, ((size_t)bytes + 63) / 64 * 64);
    if (!p) abort();
    return p;
}
static int32_t token(int text, int i) {
    return 3 + (text * 131 + i * 29 + i * i) % (VOCAB - 3);
}
static int length(int text) { /* of what follows the prefix */
    return 1 + text * 5 % 7;
}
static int32_t largest(const float *x) {
    int32_t best = 0;
    for (int32_t i = 1; i < VOCAB; i++)
        if (x[i] > x[best]) best = i;
    return best;
}
static void need(int code, const char *what, const char *message) {
    if (!code) return;
    printf("FAILED: %s: %s\n", what, message);
    exit(1);
}
static void story_read(void *state, void *work, int P, int n, int text, float *logits) {
    int32_t ids[64];
    for (int i = 0; i < n; i++) ids[i] = token(P ? text : 0, P ? i : 100 + i);
    int code = story_prefill(&s, state, work, n, P, ids, logits);
    need(code, "prefill", story_message(code));
}

/* A fork of the prefix reads a text, goes back, reads its text again and decodes. */
static void story_session(int text, float (*out)[VOCAB]) {
    void *state = memory(STORY_STATE_BYTES),
         *work = memory(story_prefill_workspace(&s, 64, 512 - 64)),
         *step = memory(story_decode_workspace(&s, 511));
    memcpy(state, prefix, STORY_STATE_BYTES);
    story_read(state, work, PREFIX, 20, text + 50, out[0]);
    story_read(state, work, PREFIX, length(text), text, out[1]);
    for (int i = 0; i < STEPS; i++) {
        int32_t next = largest(out[1 + i]);
        int code = story_decode(&s, state, step, PREFIX + length(text) + i, &next, out[2 + i]);
        need(code, "decode", story_message(code));
    }
    free(step);
    free(work);
    free(state);
}

/* ROWS texts at once: the prefix is read once and copied to the other rows. */
static void other_session(int first, float (*out)[ROWS][VOCAB]) {
    void *state = memory(OTHER_STATE_BYTES),
         *work = memory(other_prefill_workspace(&o, 64, 512 - 64, ROWS - 1)),
         *step = memory(other_decode_workspace(&o, 511, ROWS)),
         *copy = memory(other_reorder_workspace(&o, 0, ROWS));
    int32_t ids[64], past[ROWS], next[ROWS], parents[ROWS] = {0};
    float logits[VOCAB];
    need(other_state_init(&o, state), "state_init", "");
    for (int i = 0; i < PREFIX; i++) ids[i] = token(0, 100 + i);
    int code = other_prefill(&o, state, work, PREFIX, 0, 0, ids, logits);
    if (!code) code = other_reorder(&o, state, copy, 0, ROWS, parents, past);
    for (int r = 0; r < ROWS && !code; r++) {
        int n = length(first + r);
        for (int i = 0; i < n; i++) ids[i] = token(first + r, i);
        code = other_prefill(&o, state, work, n, PREFIX, r, ids, logits);
        past[r] = PREFIX + n;
        next[r] = largest(logits);
    }
    for (int i = 0; i < STEPS && !code; i++) {
        int P = 0;
        for (int r = 0; r < ROWS; r++) P = past[r] > P ? past[r] : P;
        code = other_decode(&o, state, step, P, ROWS, next, past, out[i][0]);
        for (int r = 0; r < ROWS; r++) next[r] = largest(out[i][r]), past[r]++;
    }
    need(code, "rows", other_message(code));
    free(copy);
    free(step);
    free(work);
    free(state);
}

static void *thread(void *arg) {
    int k = *(int *)arg, of_story = k < TEXTS;
    size_t bytes = of_story ? sizeof *story_alone : sizeof *other_alone;
    void *got = memory((int64_t)bytes),
         *want = of_story ? (void *)story_alone[k] : (void *)other_alone[k - TEXTS];
    for (int i = 0; i < ROUNDS; i++) {
        if (of_story)
            story_session(k, got);
        else
            other_session((k - TEXTS) * ROWS, got);
        if (memcmp(got, want, bytes)) *(int *)arg = -1;
    }
    free(got);
    return NULL;
}

int main(void) {
    enum { THREADS = TEXTS + TEXTS / ROWS };
    pthread_t id[THREADS];
    int job[THREADS];
    need(story_open(&s, "out/story.weights"), "story", "open");
    need(other_open(&o, "out/other.weights"), "other", "open");
    prefix = memory(STORY_STATE_BYTES);
    void *work = memory(story_prefill_workspace(&s, 64, 512 - 64));
    need(story_state_init(&s, prefix), "state_init", "");
    story_read(prefix, work, 0, PREFIX, 0, story_alone[0][0]);
    for (int t = 0; t < TEXTS; t++) story_session(t, story_alone[t]);
    for (int t = 0; t < TEXTS; t += ROWS) other_session(t, other_alone[t / ROWS]);
    for (int t = 0; t < TEXTS; t++)
        for (int i = 0; i < STEPS; i++)
            if (memcmp(other_alone[t / ROWS][i][t % ROWS], story_alone[t][2 + i],
                       sizeof *story_alone[t]))
                failed = 1;
    if (failed) printf("FAILED: a row differs from its text alone\n");
    for (int k = 0; k < THREADS; k++) {
        job[k] = k;
        if (pthread_create(&id[k], NULL, thread, &job[k])) abort();
    }
    for (int k = 0; k < THREADS; k++) {
        pthread_join(id[k], NULL);
        if (job[k] < 0) printf("FAILED: session %d differs from the one alone\n", k), failed = 1;
    }
    if (!memcmp(story_alone[0][1], story_alone[1][1], sizeof *story_alone[0]))
        failed = 1, printf("FAILED: texts agree\n");
    printf("%d %s\n", STORY_ERROR_KIND(story_open(&s, "none")), other_message(0));
    free(work);
    free(prefix);
    return failed;
}
