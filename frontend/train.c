/* train.c: training entries, built from a model's logits [PH22 A11 to A13]; their inputs for
 * dropout and packed documents. */
#include "frontend/train.h"
#include "frontend/front.h"
#include "frontend/zero.h"

#include <string.h>

sn_training sn_training_default(void) {
    return (sn_training){.optimizer = sn_optimizer_of(SN_ADAMW),
                         .schedule = {.kind = SN_CONSTANT, .peak = 1e-3}};
}

bool sn_decays_all(const char *name, int rank, const void *user) {
    (void)name, (void)rank, (void)user;
    return true;
}

bool sn_decays_no_embedding(const char *name, int rank, const void *user) {
    static const char *const tables[] = {"wte.", "wpe.", "embed"};
    (void)user;
    for (size_t i = 0; i < sizeof tables / sizeof *tables; i++)
        if (strstr(name, tables[i])) return false;
    return rank > 1;
}

sn_tensor sn_training_dropout_at(sn_loc at, sn_tensor x, const sn_training *t) {
    if (!x || !t || t->dropout == 0) return x;
    FRONT_ENTER("sn_training_dropout", x);
    if (!(t->dropout > 0 && t->dropout < 1))
        return sn_module_fail(x->m, SN_ERR_USAGE,
                              "dropout %g: the fraction must lie between 0 and 1", t->dropout);
    return sn_dropout_at(at, x, sn_input_at(at, x->m, "rng", SN_I64, SN_DIMS(2)), t->dropout);
}

sn_tensor sn_training_documents(sn_module *m, const sn_training *t, sn_dim B, sn_dim T) {
    return t && t->documents ? sn_input(m, "documents", SN_I32, B, T) : NULL;
}

/* The mean over the targets that are tokens. */
static sn_tensor mean_loss(sn_loc at, sn_tensor logits) {
    sn_module *m = logits->m;
    sn_dim shape[SN_MAX_RANK + 1];
    for (int a = 0; a < logits->rank - 1; a++) shape[a] = logits->shape[a];
    shape[logits->rank - 1] = SN_END;
    sn_tensor target = sn_input_at(at, m, "targets", SN_I32, shape);
    sn_tensor counts = sn_and(sn_ge(target, 0), sn_lt(target, sn_dim_of(logits, logits->rank - 1)));
    sn_tensor sum = sn_sum_all(sn_cross_entropy_at(at, logits, target));
    return sn_div(sum, sn_max(sn_sum_all(sn_cast(counts, SN_F32)), 1.0));
}

typedef struct step {
    sn_loc at;
    const sn_training *t;
    sn_tensor loss, rate, *param, *gradient;
    int n;
} step;

static void add_step(const step *s) {
    sn_output_at(s->at, "loss", s->loss);
    sn_output_at(s->at, "norm",
                 sn_optimize_at(s->at, s->loss, s->rate, s->n, s->param, &s->t->optimizer));
    sn_output_at(s->at, "rate", s->rate);
}

/* Whether each slice's gradients are summed over the ranks as soon as they exist, so that no rank
 * keeps whole ones. */
static bool sums_slices(const sn_training *t) {
    return t->zero > 1 && t->ranks > 1 && t->accumulate <= 1;
}

/* Whether a step takes several runs. */
static bool accumulates(const sn_training *t) {
    if (sums_slices(t)) return t->slices > t->ranks;
    return t->accumulate > 1 || t->slices > 1;
}

static bool is_divided(const step *s, int i) {
    return s->t->zero > 0 && front_divides_rows(&s->t->optimizer, s->param[i]) &&
           zero_divides(s->param[i], s->t->ranks);
}

/* The state that gradient i is accumulated in. */
static sn_tensor gradient_state(const step *s, int i) {
    const sn_node *p = s->param[i];
    const char *name = sn_arena_printf(p->m, "gradient.%s", sn_attr_str(p, SN_A_name, ""));
    sn_dim part[2];
    if (!sums_slices(s->t) || !is_divided(s, i))
        return front_state(s->at, p->m, name, (sn_dtype)p->dtype, p->rank, p->shape);
    zero_part_shape(p, s->t->ranks, part);
    return front_state(s->at, p->m, name, (sn_dtype)p->dtype, 2, part);
}

/* The gradient of this batch or slice, times its share of the step. */
static sn_tensor share(const step *s, sn_tensor weight, int i) {
    sn_dtype type = (sn_dtype)s->param[i]->dtype;
    return weight ? sn_mul(s->gradient[i], sn_cast(weight, type))
                  : sn_mul(s->gradient[i], 1 / (double)s->t->accumulate);
}

/* The sum over all slices of a batch, or the own part of it. */
static sn_tensor over_slices(const step *s, int i, sn_tensor x) {
    int64_t terms = s->t->zero > 0 ? s->t->ranks : s->t->slices;
    const char *name = sn_attr_str(s->param[i], SN_A_name, "");
    if (is_divided(s, i)) return zero_sum_part(x, s->param[i], s->t->ranks);
    return sn_node_new(x->m, SN_OP_all_reduce, 1, &x,
                       SN_ATTRS(SN_STR(name, name), SN_STR(mesh, ZERO_MESH), SN_INT(ranks, terms)));
}

static void end_step(const step *s, const sn_tensor *sum) {
    sn_output_at(s->at, "norm",
                 sn_apply_gradients_at(s->at, s->rate, s->n, s->param, sum, &s->t->optimizer));
    sn_output_at(s->at, "rate", s->rate);
}

/* Every slice's gradients are summed over the ranks; who runs the entries adds the sums. */
static void add_summed_slices(const step *s) {
    sn_module *m = s->loss->m;
    sn_output_at(s->at, "loss", s->loss);
    sn_grad_at(s->at, s->loss, s->n, s->param, s->gradient);
    sn_tensor weight = sn_input_at(s->at, m, "weight", SN_F32, &(sn_dim){SN_END});
    sn_tensor *sum = sn_arena_alloc(m, sizeof *sum * (size_t)s->n);
    for (int i = 0; i < s->n; i++) sum[i] = over_slices(s, i, share(s, weight, i));
    if (accumulates(s->t)) {
        for (int i = 0; i < s->n; i++) sn_assign_at(s->at, gradient_state(s, i), sum[i]);
        sn_entry_begin_at(s->at, m, "train_step");
        sn_output_at(s->at, "loss", s->loss);
    }
    end_step(s, sum);
}

static void add_accumulation(const step *s) {
    sn_module *m = s->loss->m;
    bool sliced = s->t->slices > 1;
    sn_output_at(s->at, "loss", s->loss);
    sn_grad_at(s->at, s->loss, s->n, s->param, s->gradient);
    sn_tensor weight = sliced ? sn_input_at(s->at, m, "weight", SN_F32, &(sn_dim){SN_END}) : NULL;
    sn_tensor *state = sn_arena_alloc(m, sizeof *state * (size_t)s->n);
    sn_tensor *sum = sn_arena_alloc(m, sizeof *sum * (size_t)s->n);
    for (int i = 0; i < s->n; i++) {
        state[i] = gradient_state(s, i);
        sum[i] = sn_add(state[i], share(s, weight, i));
        sn_assign_at(s->at, state[i], sum[i]);
    }
    sn_entry_begin_at(s->at, m, "train_step");
    if (sliced) sn_output_at(s->at, "loss", s->loss);
    for (int i = 0; i < s->n; i++) sum[i] = sliced ? over_slices(s, i, sum[i]) : state[i];
    end_step(s, sum);
    for (int i = 0; i < s->n; i++) {
        const sn_node *p = state[i];
        sn_tensor zero = sn_scalar(m, (sn_dtype)p->dtype, 0);
        sn_assign_at(s->at, state[i], p->rank ? sn_b_broadcast(zero, p->rank, p->shape) : zero);
    }
}

void sn_training_begin_at(sn_loc at, sn_module *m, const sn_training *t) {
    sn_entry_begin_at(at, m, accumulates(t) ? "accumulate" : "train_step");
    if (m) *front_added_loss(m) = NULL;
}

void sn_training_add_at(sn_loc at, sn_tensor x, const sn_training *t) {
    sn_tensor bad;
    char text[SN_NODE_TEXT];
    if (!t || !front_enter(at, "sn_training_add", 1, 1, &x, &bad)) return;
    sn_tensor *sum = front_added_loss(x->m);
    if (x->rank != 0 || x->dtype != SN_F32)
        sn_module_fail(x->m, SN_ERR_SHAPE, "sn_training_add: %s is not an f32 scalar",
                       sn_node_text(x, text));
    else
        *sum = *sum ? sn_add(*sum, x) : x;
}

void sn_training_end_at(sn_loc at, sn_tensor logits, const sn_training *t) {
    sn_tensor bad;
    char text[SN_NODE_TEXT];
    if (!front_enter(at, "sn_training_end", 1, 1, &logits, &bad)) return;
    sn_module *m = logits->m;
    if (logits->rank < 1 || logits->dtype != SN_F32) {
        sn_module_fail(m, SN_ERR_SHAPE, "sn_training_end: the logits are %s, not f32 [.., V]",
                       sn_node_text(logits, text));
        return;
    }
    if (t->accumulate < 0) {
        sn_module_fail(m, SN_ERR_USAGE, "sn_training_end: accumulate is %lld batches per step",
                       (long long)t->accumulate);
        return;
    }
    if (t->zero < 0 || t->zero > 3 || (t->zero && (t->ranks < 1 || t->slices < t->ranks))) {
        sn_module_fail(m, SN_ERR_USAGE,
                       "sn_training_end: zero = %d with %lld ranks and %lld slices: it is 0 to 3, "
                       "and each rank needs a slice",
                       t->zero, (long long)t->ranks, (long long)t->slices);
        return;
    }
    step s = {.at = at, .t = t, .n = sn_params_of(logits, 0, NULL)};
    s.param = sn_arena_alloc(m, sizeof *s.param * (size_t)(s.n + 1));
    s.gradient = sn_arena_alloc(m, sizeof *s.gradient * (size_t)(s.n + 1));
    sn_params_of(logits, s.n, s.param);
    s.loss = mean_loss(at, logits);
    sn_tensor added = *front_added_loss(m);
    if (added) s.loss = sn_add(s.loss, added);
    s.rate = t->takes_rate ? front_input(m, "learning_rate", SN_F32, SN_DIMS(SN_SCALAR), 0, SN_END)
                           : sn_learning_rate_at(at, sn_train_step_at(at, m), &t->schedule);
    if (sums_slices(t))
        add_summed_slices(&s);
    else if (accumulates(t))
        add_accumulation(&s);
    else
        add_step(&s);
}
