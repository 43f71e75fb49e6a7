/* pool.c: a queue of modules, worked off by threads that live as long as the pool and by its owner;
 * large ones first, so that the threads end at about the same time. */
#include "codegen/jit/pool.h"

#include "codegen/emit/llvm_compat.h"

#include <pthread.h>
#include <signal.h>
#include <stdlib.h>

enum {
    MAX_THREADS = 64,
    WAITING_PER_THREAD = 16, /* modules; with more, the owner compiles before it adds another */
    QUICK_SHARE = 10,        /* code that LLVM does not optimise takes a tenth of the time */
    STACK_BYTES = 8 << 20,   /* of a thread: LLVM recurses */
};

typedef enum job_state { WAITING, RUNNING, DONE } job_state;

typedef struct job {
    em e;
    int64_t work; /* instructions, roughly */
    sn_object object;
    sn_error err;
    job_state state;
} job;

/* Whoever compiles; number 0 is the owner. */
typedef struct worker {
    sn_pool *pool;
    pthread_t thread;
    sn_codegen *codegen; /* of this thread; NULL: none yet */
    job *job;            /* being compiled */
} worker;

struct sn_pool {
    sn_target target;
    sn_codegen_options options;
    pthread_mutex_t lock;
    pthread_cond_t changed; /* a job was added or is done, or the pool ends */
    job **job;              /* [n] in the order of sn_pool_add */
    int n, cap;
    int n_waiting, n_worker;
    bool ends;
    sn_codegen_stats lost; /* of code generators that exist no longer */
    worker worker[MAX_THREADS];
};

static void add_stats(sn_codegen_stats *sum, const sn_codegen_stats *s) {
    sum->optimise += s->optimise;
    sum->codegen += s->codegen;
    sum->modules += s->modules;
    sum->bytes += s->bytes;
}

/* Called by way of sn_llvm_try. */
static void compile_job(void *ctx) {
    worker *w = ctx;
    job *j = w->job;
    if (!w->codegen) w->codegen = sn_codegen_create(&w->pool->target, &w->pool->options, &j->err);
    if (w->codegen) sn_codegen_object(w->codegen, j->e.mod, &j->object, &j->err);
    em_free(&j->e);
}

static int64_t work_of(LLVMModuleRef mod) {
    unsigned optnone = LLVMGetEnumAttributeKindForName("optnone", 7);
    int64_t quick = 0, rest = 0;
    for (LLVMValueRef f = LLVMGetFirstFunction(mod); f; f = LLVMGetNextFunction(f)) {
        int64_t n = 0;
        for (LLVMBasicBlockRef b = LLVMGetFirstBasicBlock(f); b; b = LLVMGetNextBasicBlock(b))
            for (LLVMValueRef v = LLVMGetFirstInstruction(b); v; v = LLVMGetNextInstruction(v)) n++;
        *(LLVMGetEnumAttributeAtIndex(f, LLVMAttributeFunctionIndex, optnone) ? &quick : &rest) +=
            n;
    }
    return rest + quick / QUICK_SHARE;
}

/* The largest job that waits, which is RUNNING then; NULL: none. Needs the lock. */
static job *next_job(sn_pool *p) {
    job *most = NULL;
    for (int i = 0; i < p->n; i++) {
        job *j = p->job[i];
        if (j->state == WAITING && (!most || j->work > most->work)) most = j;
    }
    if (!most) return NULL;
    most->state = RUNNING;
    p->n_waiting--;
    return most;
}

/* Compiles a job that is RUNNING for this worker, without the lock, which the caller has. LLVM may
 * have left a module or a code generator that ran out of memory in the middle of something: they
 * are leaked on purpose. */
static void run_unlocked(worker *w, job *j) {
    sn_pool *p = w->pool;
    sn_error left = {0};
    pthread_mutex_unlock(&p->lock);
    w->job = j;
    if (!sn_llvm_try(compile_job, w, &left)) {
        if (!j->err.code) j->err = left;
        j->e = (em){0};
    }
    pthread_mutex_lock(&p->lock);
    if (j->err.code == SN_ERR_MEMORY && w->codegen) {
        add_stats(&p->lost, sn_codegen_get_stats(w->codegen));
        w->codegen = NULL;
    }
    j->state = DONE;
    pthread_cond_broadcast(&p->changed);
}

static void *work(void *ctx) {
    worker *w = ctx;
    sn_pool *p = w->pool;
    pthread_mutex_lock(&p->lock);
    while (!p->ends) {
        job *j = next_job(p);
        if (j)
            run_unlocked(w, j);
        else
            pthread_cond_wait(&p->changed, &p->lock);
    }
    pthread_mutex_unlock(&p->lock);
    return NULL;
}

/* Signals are for the program's own threads. */
static void start_workers(sn_pool *p, int threads) {
    sigset_t all, before;
    pthread_attr_t attr;
    if (threads <= 1 || pthread_attr_init(&attr)) return;
    pthread_attr_setstacksize(&attr, STACK_BYTES);
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    while (p->n_worker < threads &&
           !pthread_create(&p->worker[p->n_worker].thread, &attr, work, &p->worker[p->n_worker]))
        p->n_worker++;
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    pthread_attr_destroy(&attr);
}

sn_pool *sn_pool_create(const sn_target *t, const sn_codegen_options *o, int threads,
                        sn_error *err) {
    sn_pool *p = calloc(1, sizeof *p);
    if (!p) {
        sn_fail(err, SN_ERR_MEMORY, "out of memory for the code generators");
        return NULL;
    }
    p->target = *t;
    if (o) p->options = *o;
    pthread_mutex_init(&p->lock, NULL);
    pthread_cond_init(&p->changed, NULL);
    for (int i = 0; i < MAX_THREADS; i++) p->worker[i].pool = p;
    p->n_worker = 1;
    p->worker[0].codegen = sn_codegen_create(t, o, err);
    if (p->worker[0].codegen) {
        start_workers(p, threads < MAX_THREADS ? threads : MAX_THREADS);
        return p;
    }
    sn_pool_destroy(p);
    return NULL;
}

static void free_job(job *j) {
    if (!j) return;
    em_free(&j->e);
    sn_object_free(&j->object);
    free(j);
}

void sn_pool_destroy(sn_pool *p) {
    if (!p) return;
    pthread_mutex_lock(&p->lock);
    p->ends = true;
    pthread_cond_broadcast(&p->changed);
    pthread_mutex_unlock(&p->lock);
    for (int i = 1; i < p->n_worker; i++) pthread_join(p->worker[i].thread, NULL);
    for (int i = 0; i < p->n_worker; i++) sn_codegen_destroy(p->worker[i].codegen);
    for (int i = 0; i < p->n; i++) free_job(p->job[i]);
    free(p->job);
    pthread_cond_destroy(&p->changed);
    pthread_mutex_destroy(&p->lock);
    free(p);
}

/* Room for one more job; needs the lock. */
static bool reserve(sn_pool *p) {
    if (p->n < p->cap) return true;
    int cap = p->cap ? 2 * p->cap : 32;
    job **list = realloc(p->job, sizeof *list * (size_t)cap);
    if (!list) return false;
    p->job = list;
    p->cap = cap;
    return true;
}

int sn_pool_add(sn_pool *p, em *e, sn_error *err) {
    job *j = calloc(1, sizeof *j);
    int64_t work = work_of(e->mod);
    pthread_mutex_lock(&p->lock);
    int at = j && reserve(p) ? p->n : -1;
    if (at >= 0) {
        j->e = *e;
        *e = (em){0};
        j->work = work;
        p->job[p->n++] = j;
        p->n_waiting++;
        pthread_cond_broadcast(&p->changed);
    }
    int most = p->n_worker > 1 ? WAITING_PER_THREAD * p->n_worker : 0;
    for (job *other; p->n_waiting > most && (other = next_job(p));)
        run_unlocked(&p->worker[0], other);
    pthread_mutex_unlock(&p->lock);
    if (at >= 0) return at;
    free(j);
    em_free(e);
    sn_fail(err, SN_ERR_MEMORY, "out of memory for a kernel's code");
    return -1;
}

bool sn_pool_take(sn_pool *p, int number, sn_object *out, sn_error *err) {
    pthread_mutex_lock(&p->lock);
    job *j = p->job[number];
    while (j->state != DONE) {
        job *other = next_job(p);
        if (other)
            run_unlocked(&p->worker[0], other);
        else
            pthread_cond_wait(&p->changed, &p->lock);
    }
    pthread_mutex_unlock(&p->lock);
    *out = j->object;
    j->object = (sn_object){0};
    return !j->err.code || sn_fail(err, j->err.code, "%s", j->err.message);
}

sn_codegen_stats sn_pool_stats(const sn_pool *p) {
    sn_codegen_stats sum = p->lost;
    for (int i = 0; i < p->n_worker; i++)
        if (p->worker[i].codegen) add_stats(&sum, sn_codegen_get_stats(p->worker[i].codegen));
    return sum;
}
