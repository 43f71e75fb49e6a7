/* optim.h: optimizers, schedules of the learning rate; a part of sinter.h, which includes it. [PH22 A11, A13] */
#ifndef SN_OPTIM_H
#define SN_OPTIM_H

#include "ir/compile.h" /* sn_tensor */

#ifdef __cplusplus
extern "C" {
#endif

/* ---- optimizers: a step is part of the entry's graph ---- */

typedef enum sn_optimizer_kind {
    SN_SGD,     /* v <- momentum v + g; p <- p - rate v (nesterov: rate (g + momentum v)) */
    SN_RMSPROP, /* v <- beta2 v + (1 - beta2) g^2; p <- p - rate g / (sqrt v + eps) */
    SN_ADAGRAD, /* v <- v + g^2; p <- p - rate g / (sqrt v + eps) */
    SN_ADAM,    /* Kingma & Ba 2015, algorithm 1 */
    /* Loshchilov & Hutter 2019, algorithm 2, with decay term rate decay p instead of lambda p */
    SN_ADAMW,
    SN_LION, /* Chen et al. 2023, algorithm 2 */
    /* Jordan 2024, for matrices only: 5 iterations of Newton and Schulz make the momentum nearly
     * orthogonal. Scaled by 0.2 sqrt(max(rows, columns)), so that AdamW's rates fit [Liu et al. 2025];
     * decay as in AdamW. */
    SN_MUON,
    SN_NORMUON,   /* Li et al. 2025: Muon whose rows (outputs of a linear map) get equal sizes */
    SN_ADAFACTOR, /* Shazeer & Stern 2018, as torch.optim.Adafactor: a row and a column per matrix */
    /* For matrices only, with the running means L of G G^T and R of G^T G; a side that is at least twice as
     * long as the other has none. Gupta et al. 2018: L^(-1/4) M R^(-1/4) of Muon's momentum M, or the inverse
     * root of one side, scaled to Muon's step. */
    SN_SHAMPOO,
    SN_SOAP /* Vyas et al. 2024: AdamW in the eigenbases of L and R, which a step of products follows */
} sn_optimizer_kind;

/* What an update makes of one parameter. */
typedef struct sn_update {
    sn_module *m;
    sn_tensor param;      /* its value before the step */
    sn_tensor gradient;   /* after clipping; has the parameter's type and shape */
    sn_tensor rate, step; /* scalars of its type; the step counts from 1 */
    double decay;         /* weight decay; 0 if the parameter does not decay */
    const struct sn_optimizer *o;
} sn_update;
/* Returns the parameter's new value, with its type and shape. Called once for each parameter, when the
 * graph is built. May use any operation, and states: sn_update_state, then sn_assign of its next value. */
typedef sn_tensor (*sn_update_fn)(const sn_update *u);
/* The state "optimizer.WHAT.NAME" of parameter NAME, with its type and shape; zero before the first step.
 * what: without a dot. */
#define sn_update_state(u, what) sn_update_state_at(SN_HERE, u, what)
/* The same for a matrix, as a vector along one of its axes, 0 or 1; not if by_rows. */
#define sn_update_axis_state(u, what, axis) sn_update_axis_state_at(SN_HERE, u, what, axis)
sn_tensor sn_update_state_at(sn_loc, const sn_update *u, const char *what),
    sn_update_axis_state_at(sn_loc, const sn_update *u, const char *what, int axis);

typedef struct sn_optimizer {
    sn_optimizer_kind kind;
    /* An optimizer of your own, instead of `kind`; it finds settings in u->o. by_rows: a row of the new
     * values depends on the same row of gradient, parameter and states only, as in elementwise updates;
     * ranks may then divide the rows (sn_training.zero). */
    sn_update_fn update;
    bool by_rows;
    double momentum; /* SGD and Muon; 0: none */
    bool nesterov;
    bool polar; /* Muon: the coefficients of Polar Express [Amsel et al. 2025], not Jordan's */
    double beta1, beta2, eps;
    double
        decay; /* weight decay; added to the gradient as decay p up to Adam, p as rate decay p since AdamW */
    /* Whether the parameter decays. NULL: parameters with two or more axes do. */
    bool (*decays)(const char *name, int rank, const void *user);
    const void *user; /* for `decays` and `update` */
    /* maximum global gradient norm: larger gradients are scaled down; 0: no clipping */
    double max_norm;
    /* Keeps a running mean a of each parameter's new values p, too [Polyak & Juditsky 1992], in the state
     * "optimizer.average.NAME": a <- a + max(1 - average, 1 / step) (p - a). Below 1; 0: none */
    double average;
    /* Other optimizers for some parameters: the first group that a parameter is in decides. */
    const struct sn_optimizer_group *group;
    int groups; /* their number */
} sn_optimizer;

typedef struct sn_optimizer_group {
    const char *match;      /* pattern of names, as of fnmatch(3): "*.w"; NULL: every name */
    int axes;               /* number of axes of the parameter; 0: any */
    double rate;            /* factor of the learning rate; 0: 1 */
    sn_optimizer optimizer; /* without max_norm, average and groups, which are of all parameters */
} sn_optimizer_group;
/* PyTorch's defaults: no momentum; betas 0.9 and 0.999 (RMSProp 0.99), eps 1e-8 (AdaGrad 1e-10);
 * decay 0, AdamW 0.01, Muon 0.1; Muon with momentum 0.95 (nesterov), eps 1e-7; Lion as published: betas
 * 0.9 and 0.99; SOAP as published: betas 0.95, decay 0.01; Shampoo as Muon, beta2 0.95, eps 1e-5; no max_norm. */
sn_optimizer sn_optimizer_of(sn_optimizer_kind kind);
/* Their names in files and options, such as "adamw", by kind; NULL ends them. */
const char *const *sn_optimizer_names(void);
/* Whether it updates matrices only, as Muon. */
bool sn_optimizer_of_matrices(sn_optimizer_kind kind);
/* Fills groups so that `matrices` (as SN_MUON) updates matrices except embeddings and heads, found by
 * their names, and `rest` all else. Returns `rest` with these groups. */
enum { SN_HIDDEN_GROUPS = 7 };
sn_optimizer sn_optimizer_hidden(const sn_optimizer *matrices, const sn_optimizer *rest,
                                 sn_optimizer_group group[SN_HIDDEN_GROUPS]);

/* Adds one optimizer step to the current entry: gradients of the scalar loss, then sn_assign of
 * param[i], i < n (f32 or f64 parameters or states), of the optimizer's states "optimizer.m.NAME"
 * and "optimizer.v.NAME", and of the step counter. rate: float scalar. The loss and all other
 * results of the entry use the values before the step. Returns the global gradient norm before
 * clipping (f32 scalar); output it if you need it. */
#define sn_optimize(loss, rate, n, param, o) sn_optimize_at(SN_HERE, loss, rate, n, param, o)
/* The same with gradients that you provide: gradient[i] has param[i]'s type and shape. */
#define sn_apply_gradients(rate, n, param, gradient, o)                                            \
    sn_apply_gradients_at(SN_HERE, rate, n, param, gradient, o)
/* The number of completed steps, an i64 scalar: the state "optimizer.step". */
#define sn_train_step(m) sn_train_step_at(SN_HERE, m)

typedef enum sn_schedule_kind {
    SN_CONSTANT,
    SN_LINEAR,
    SN_COSINE,
    SN_INVERSE_SQRT
} sn_schedule_kind;
typedef struct sn_schedule {
    sn_schedule_kind kind;
    double peak;  /* the learning rate at the end of the warm-up */
    double final; /* linear and cosine: the learning rate from step `total` on */
    /* number of steps; the rate of step t = 1, 2, … is multiplied by min(1, t / warmup) */
    int64_t warmup;
    int64_t total; /* linear and cosine: total number of steps, greater than warmup */
} sn_schedule;
/* The learning rate of the next step, an f32 scalar. With t = step + 1 and u = (t - warmup) /
 * (total - warmup) clamped to [0, 1]:
 *   constant: peak
 *   linear: peak - u (peak - final)
 *   cosine: final + (peak - final) (1 + cos pi u) / 2
 *   inverse square root [Vaswani 2017]: peak sqrt(warmup / t) after the warm-up
 * Example: sn_learning_rate(sn_train_step(m), .kind = SN_COSINE, .peak = 1e-3, .warmup = 100, .total =
 * 2000) */
#define sn_learning_rate(step, ...)                                                                \
    sn_learning_rate_at(SN_HERE, step, &(const sn_schedule){__VA_ARGS__})
sn_tensor sn_optimize_at(sn_loc, sn_tensor loss, sn_tensor rate, int n, const sn_tensor *param,
                         const sn_optimizer *o),
    sn_apply_gradients_at(sn_loc, sn_tensor rate, int n, const sn_tensor *param,
                          const sn_tensor *gradient, const sn_optimizer *o),
    sn_train_step_at(sn_loc, sn_module *m),
    sn_learning_rate_at(sn_loc, sn_tensor step, const sn_schedule *s);

#ifdef __cplusplus
}
#endif
#endif
