/* Samples the stack while kernels run: every sample must reach main. */
#include "story.h"
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/time.h>
#include <unwind.h>

int main(void);
static volatile int samples, whole;

static _Unwind_Reason_Code see(struct _Unwind_Context *c, void *found) {
    if (_Unwind_FindEnclosingFunction((void *)_Unwind_GetIP(c)) == (void *)main) *(int *)found = 1;
    return _URC_NO_REASON;
}
static void sample(int signal) {
    int found = 0;
    (void)signal;
    _Unwind_Backtrace(see, &found);
    samples++;
    whole += found;
}
int main(void) {
    static const int32_t tokens[256];
    static float logits[512];
    struct itimerval often = {{0, 1000}, {0, 1000}};
    story m;
    if (story_open(&m, "story.weights")) return 1;
    void *state = aligned_alloc(64, STORY_STATE_BYTES),
         *workspace = aligned_alloc(64, (story_prefill_workspace(&m, 256, 0) + 63) / 64 * 64);
    story_state_init(&m, state);
    signal(SIGPROF, sample);
    setitimer(ITIMER_PROF, &often, NULL);
    while (samples < 40)
        if (story_prefill(&m, state, workspace, 256, 0, tokens, logits)) return 1;
    printf("%d of %d\n", whole, samples);
    return whole < samples;
}
