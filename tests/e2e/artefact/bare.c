/* bare.c: predicts a token with nothing of a C library or a system, from weights in the object. */
#include "story.h"
void *memset(void *p, int c, size_t n) {
    for (unsigned char *to = p; n--;) *to++ = (unsigned char)c;
    return p;
}
void *memcpy(void *p, const void *q, size_t n) {
    for (unsigned char *to = p; n--;)
        *to++ = *(const unsigned char *)q, q = (const unsigned char *)q + 1;
    return p;
}
static char state[STORY_STATE_BYTES] __attribute__((aligned(64))),
    work[1 << 22] __attribute__((aligned(64)));
int main(void) {
    static story m;
    static float y[STORY_VOCAB];
    int32_t t[] = {1, 403, 407}, best = 0;
    if (story_init(&m, NULL, 0) || story_prefill_workspace(&m, 3, 0) > (int64_t)sizeof work ||
        story_prefill(&m, state, work, 3, 0, t, y))
        return 1;
    for (int i = 1; i < STORY_VOCAB; i++) best = y[i] > y[best] ? i : best;
    return best != 261;
}
