/* ranks.c: sums over ranks in an artefact: the caller gives the functions that carry them, and the
 * generated step starts each as soon as its operand exists and waits for it before it is used. */
#include "codegen/aot/aot.h"
#include "passes/plan/collectives.h"

#include <string.h>

/* Fields of the caller's struct, by offset. */
enum { COMM_START = 0, COMM_WAIT = 8 };

const char sn_aot_comm_type[] =
    "#define $N_SUMS $r /* of a step over ranks, at most */\n"
    "/* Ranks that train together, each with a state of its own. A step calls `start` for the "
    "gradients\n"
    " * of one or more parameters as soon as they exist: from then on data[n] belongs to you, and "
    "is the\n"
    " * sum over all ranks when `wait` for the same number, from 0 to $N_SUMS - 1, returns. "
    "Several sums\n"
    " * are under way at once. The thread that called the step makes these calls, in the same "
    "order on\n"
    " * every rank; each sum is waited for before the step ends. They return 0, or another number "
    "if they\n"
    " * fail: then the step returns $N_ERROR_RANKS at once, and the state must be restored. */\n"
    "typedef struct $n_comm {\n"
    "    int (*start)(struct $n_comm *self, int64_t sum, float *data, int64_t n);\n"
    "    int (*wait)(struct $n_comm *self, int64_t sum);\n"
    "    void *state;\n"
    "} $n_comm;\n\n";

static bool is_sum(const sn_step *s) {
    return s->node->op == SN_OP_all_reduce && s->node->dtype == SN_F32;
}

bool sn_aot_count_sums(sn_aot *a) {
    for (int v = 0; v < a->n_variant; v++) {
        const sn_program *p = a->variant[v].program;
        for (int e = 0; e < p->n_entry; e++) {
            const sn_plan *plan = p->entry[e].code.plan;
            int n = 0;
            for (int i = 0; i < plan->n_call; i++) {
                const sn_step *s = plan->call[i];
                int64_t elements;
                sn_dim count = sn_dim_product(a->m, s->in[0].rank, s->in[0].shape);
                if (!sn_step_is_collective(s)) continue;
                if (!is_sum(s) || !sn_dim_is_const(a->m, count, &elements))
                    return sn_fail(a->err, SN_ERR_TARGET,
                                   "entry '%s' has the operation %s over ranks; an artefact can "
                                   "only sum tensors of f32 and of constant size",
                                   plan->entry->name, sn_ops[s->node->op].name);
                n += !s->wait;
            }
            if (n > a->n_sum) a->n_sum = n;
        }
    }
    return true;
}

/* Of each step of a plan: the number of its sum and its elements; minus them: it waits. */
typedef struct sum_table {
    em_val *number, *elements; /* constants [n_call] */
    int n;
} sum_table;

static sum_table make_table(em *e, sn_module *m, const sn_plan *plan) {
    size_t n = (size_t)plan->n_call + 1;
    sum_table t = {sn_arena_alloc(m, sizeof *t.number * n),
                   sn_arena_alloc(m, sizeof *t.elements * n), plan->n_call};
    int *number = sn_arena_alloc(m, sizeof *number * n), sums = 0;
    for (int i = 0; i < plan->n_call; i++) {
        const sn_step *s = plan->call[i];
        int64_t elements = 0;
        if (sn_step_is_collective(s)) {
            sn_dim_is_const(m, sn_dim_product(m, s->in[0].rank, s->in[0].shape), &elements);
            if (!s->wait) number[sn_plan_wait_of(plan, i)] = number[i] = sums++;
        }
        t.number[i] = em_i64(e, number[i]);
        t.elements[i] = em_i64(e, s->wait ? -elements : elements);
    }
    return t;
}

static em_val load(em *e, em_val base, em_type t, em_val index) {
    return em_load_raw(e, t, em_gep(e, base, SN_I64, index), 8);
}

#define AOT_SUMS_PARAMS(P) P(ptr, comm) P(i64, step) P(ptr, bufs) P(ptr, dims)
SN_AOT_SIGNATURE(i32, aot_sums, AOT_SUMS_PARAMS)

/* Calls the caller's function at `offset` of comm; start also gets the data. */
static em_val call_comm(em *e, em_val comm, int64_t offset, const em_val *arg, int n) {
    em_type types[] = {e->ptr, e->i64, e->ptr, e->i64};
    em_val fn = sn_aot_get(e, comm, e->ptr, offset);
    return LLVMBuildCall2(e->b, LLVMFunctionType(e->i32, types, (unsigned)n, 0), fn,
                          (em_val *)(uintptr_t)arg, (unsigned)n, "");
}

em_val sn_aot_emit_sums(em *e, const sn_aot *a, const sn_compiled_entry *c, int v) {
    const sn_plan *plan = c->code.plan;
    bool any = false;
    char name[160];
    for (int i = 0; i < plan->n_call; i++) any |= sn_step_is_collective(plan->call[i]);
    if (!any) return NULL;
    sum_table t = make_table(e, a->m, plan);
    em_val numbers = sn_aot_numbers(e, "sums", t.number, t.n),
           sizes = sn_aot_numbers(e, "sums", t.elements, t.n);
    snprintf(name, sizeof name, "%s_sums_%d", plan->entry->name, v);
    aot_sums_args q = aot_sums_begin(e, a, name, false);
    em_val fn = e->fn;
    em_var status = em_let(e, em_i32(e, 0));
    em_val n = load(e, sizes, e->i64, q.step), number = load(e, numbers, e->i64, q.step);
    em_val from = sn_aot_get(e, q.bufs, e->ptr, 0), to = sn_aot_get(e, q.bufs, e->ptr, 8);
    em_branch starts = em_if(e, em_cmp(e, EM_GT, n, 0));
    em_branch moves = em_if(e, em_cmp(e, EM_NE, LLVMBuildPtrToInt(e->b, from, e->i64, ""),
                                      LLVMBuildPtrToInt(e->b, to, e->i64, "")));
    LLVMBuildMemCpy(e->b, to, 4, from, 4, em_mul(e, n, 4));
    em_endif(e, &moves);
    em_endif(e, &starts);
    em_branch ranks = em_if(e, LLVMBuildIsNotNull(e->b, q.comm, ""));
    em_branch which = em_if(e, em_cmp(e, EM_GT, n, 0));
    em_set(e, status, call_comm(e, q.comm, COMM_START, (em_val[]){q.comm, number, to, n}, 4));
    em_else(e, &which);
    em_set(e, status, call_comm(e, q.comm, COMM_WAIT, (em_val[]){q.comm, number}, 2));
    em_endif(e, &which);
    em_endif(e, &ranks);
    em_val failed = em_cmp(e, EM_NE, em_get(e, status), em_i32(e, 0));
    em_ret(e, em_select(e, failed, em_i32(e, SN_AOT_RANKS), em_i32(e, 0)));
    return fn;
}
