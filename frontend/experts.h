/* experts.h: the MLP of a layer as a mixture of experts; each token uses a few of them: the router
 * of the families that have one [Shazeer et al. 2017; Fedus et al. 2021; DeepSeek-AI 2024]. Fields of
 * causal_lm. Not public. */
#ifndef SN_EXPERTS_H
#define SN_EXPERTS_H

#include "frontend/sinter.h"
#include "runtime/config.h"

enum { MAX_DENSE_LAYERS = 256 };

/* Zero is the usual value of everything. Names as in causal_names, within the layer's scope. */
typedef struct expert_mlp {
    const char *router;                 /* the linear map to a score for each expert */
    const char *experts;                /* the scope of expert e is EXPERTS.e */
    const char *gate, *up, *down;       /* of an expert, and of the shared one, */
    const char *shared_gate_up_down[3]; /* unless that has names of its own */
    const char *gate_up,
        *all_down; /* parameters of all experts [experts, 2 d or d, ..], or NULL: each
                    * expert has its matrices */
    const char *gate_up_bias, *down_bias; /* of these, [experts, 2 d or d]; NULL: none */
    bool in_out;                          /* these are [experts, .., 2 d or d] */
    bool paired; /* rows of gate and up alternate, else those of gate come first */
    bool biases; /* each expert that has its matrices has a bias beside each */
    bool router_bias;
    double limit,
        slope;          /* act(g) u is g sigmoid(slope g) (u + 1), where g is at most `limit`, and u
                          * within it on both sides; limit 0: it is not */
    bool plain_too;     /* the layer's MLP is added, as it is without experts */
    const char *shared; /* the scope of an MLP that every token uses; NULL: none */
    const char *shared_gate;         /* the linear map to its factor, a sigmoid; NULL: 1 */
    const char *bias;                /* of the scores, for the choice only; NULL: none */
    int64_t count, per_token;        /* count 0: no layer has experts */
    int64_t d, d_shared;             /* hidden units of an expert, of the shared one */
    bool sigmoid;                    /* scores are sigmoids, else a softmax over all experts */
    bool normed;                     /* the factors of the selected add up to 1 */
    double scale;                    /* of the factors; 0: 1 */
    int64_t groups, groups_chosen;   /* only experts of the best groups are selected; 0: of all */
    bool two_of_group;               /* a group's score is the sum of its best two, else the best */
    int64_t first, every;            /* layers `first`, `first + every`, ...; 0: every layer */
    int64_t dense[MAX_DENSE_LAYERS]; /* layers without experts */
    size_t n_dense;
} expert_mlp;

/* Reads how many experts, as one MLP, all tokens use, and checks that each layer from the first on has
 * experts. */
void expert_read_shared(sn_config *c, expert_mlp *e, const char *key);
/* Checks what belongs together. Mistakes are recorded in c. */
void expert_check(sn_config *c, const expert_mlp *e);
/* Has this layer experts? */
bool expert_layer(const expert_mlp *e, int64_t layer);
/* x [B, T, d] -> [B, T, d]; act: the activation. */
sn_tensor expert_apply(const expert_mlp *e, sn_tensor x, sn_tensor (*act)(sn_loc, sn_tensor));

#endif
