/* team.c: processes of one program that meet at points of their work, through shared memory. */
#include "model/plan/plan.h"

#include "runtime/cli/screen.h"

#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

struct shared {
    atomic_bool raised;
    atomic_int failed;    /* 1: a member has written its reason */
    sn_error why;         /* of the first that failed */
    atomic_int meeting[]; /* [size] meetings that each has come to */
};

struct plan_team {
    struct shared *shared;
    size_t bytes;
    int size, rank;
    pid_t parent, *child; /* [size]; 0: none, or it has ended */
};

static void pause_briefly(void) {
    nanosleep(&(struct timespec){0, 200000}, NULL);
}

static void free_team(plan_team *t) {
    if (t->shared) munmap(t->shared, t->bytes);
    free(t->child);
    free(t);
}

static void end_children(plan_team *t) {
    for (int i = 1; i < t->size; i++) {
        if (!t->child[i]) continue;
        kill(t->child[i], SIGKILL);
        waitpid(t->child[i], NULL, 0);
        t->child[i] = 0;
    }
}

/* What a new member does first. */
static void begin_member(plan_team *t, int rank) {
    t->rank = rank;
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != t->parent) _exit(EXIT_FAILURE);
    sn_screen()->quiet = true;
}

plan_team *plan_team_start(int size, sn_error *err) {
    plan_team *t = calloc(1, sizeof *t);
    if (t) {
        t->bytes = sizeof *t->shared + (size_t)size * sizeof(atomic_int);
        t->child = calloc((size_t)size, sizeof *t->child);
        void *p = mmap(NULL, t->bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
        t->shared = p == MAP_FAILED ? NULL : p; /* zero */
        t->size = size, t->parent = getpid();
    }
    if (!t || !t->child || !t->shared) {
        if (t) free_team(t);
        sn_fail(err, SN_ERR_MEMORY, "out of memory");
        return NULL;
    }
    for (int i = 1; i < size; i++) {
        pid_t id = fork();
        if (id == 0) {
            begin_member(t, i);
            return t;
        }
        if (id < 0) {
            end_children(t);
            free_team(t);
            sn_fail(err, SN_ERR_MEMORY, "cannot start a process to measure with %d ranks", size);
            return NULL;
        }
        t->child[i] = id;
    }
    return t;
}

int plan_team_rank(const plan_team *t) {
    return t->rank;
}

/* Whether all others are still there. */
static bool all_alive(plan_team *t, sn_error *err) {
    bool ended = atomic_load(&t->shared->failed) != 0;
    for (int i = 1; t->rank == 0 && i < t->size; i++)
        ended |= waitpid(t->child[i], NULL, WNOHANG) == t->child[i] && !(t->child[i] = 0);
    if (!ended) return true;
    sn_error why = t->shared->why;
    return sn_fail(err, why.code ? why.code : SN_ERR_INTERNAL, "%s",
                   why.code ? why.message : "a process that measured has ended");
}

bool plan_team_meet(plan_team *t, sn_error *err) {
    int mine = atomic_fetch_add(&t->shared->meeting[t->rank], 1) + 1;
    for (int i = 0; i < t->size; i++)
        while (atomic_load(&t->shared->meeting[i]) < mine) {
            if (!all_alive(t, err)) return false;
            pause_briefly();
        }
    return true;
}

void plan_team_raise(plan_team *t, bool up) {
    atomic_store(&t->shared->raised, up);
}

bool plan_team_raised(const plan_team *t) {
    return atomic_load(&t->shared->raised);
}

void plan_team_end(plan_team *t, const sn_error *err) {
    if (t->rank) {
        if (err->code) {
            t->shared->why = *err;
            atomic_store(&t->shared->failed, 1);
        }
        _exit(err->code ? EXIT_FAILURE : EXIT_SUCCESS);
    }
    end_children(t);
    free_team(t);
}
