/* front.h: shared by the files of frontend/: starting an op, checking and describing operands. Not
 * public. */
#ifndef SN_FRONT_H
#define SN_FRONT_H

#include "frontend/sinter.h"
#include "ir/ir.h"

/* Starts the op `op` at source location `at`: records the location and checks that the operands are
 * valid tensors of one module. Operands from `required` on may be NULL. False: return *bad. */
bool front_enter(sn_loc at, const char *op, int n, int required, const sn_tensor *x,
                 sn_tensor *bad);
#define FRONT_ENTER(op, ...)                                                                       \
    sn_tensor bad_;                                                                                \
    const sn_tensor operands_[] = {__VA_ARGS__};                                                   \
    const int n_operands_ = (int)(sizeof operands_ / sizeof *operands_);                           \
    if (!front_enter(at, op, n_operands_, n_operands_, operands_, &bad_)) return bad_

/* The same for leaves: false if there is no module or it already has an error. */
bool front_enter_module(sn_loc at, sn_module *m);

/* An axis counted from the front, of `rank` axes; -1: an error was recorded. */
int front_axis(sn_module *m, const char *op, sn_tensor x, int axis, int rank);

/* False, with an error in the module, if the list or one of its n members is NULL. */
bool front_list(sn_module *m, const char *op, int n, const sn_tensor *list);

/* Checks a name given by the user: not empty, no control characters, does not begin with '@'.
 * False, with an error in the module. */
bool front_name(sn_module *m, const char *what, const char *name);
/* An error if a scope is open: the model is complete. */
void front_end_scopes(sn_module *m);

/* Length of a list terminated by SN_END, INT_MIN or NULL; -1: too long, an error was recorded. */
int front_dims(sn_module *m, const char *op, const sn_dim *list);
int front_axes(sn_module *m, const char *op, const int *list);
int front_tensors(const sn_tensor *list);

bool front_is_integer(sn_tensor x);
bool front_same_shape(sn_tensor x, sn_tensor y);

/* sn_expert_linear with the weights as a matrix [experts out, in], and a bias [experts, out] or NULL. */
sn_tensor front_expert_linear(sn_loc at, sn_tensor x, sn_tensor w, sn_tensor bias, int64_t experts,
                              sn_tensor index);

/* An input whose elements a run checks: from least to greatest; SN_END: any finite number from
 * least. */
sn_tensor front_input(sn_module *m, const char *name, sn_dtype t, const sn_dim *shape, sn_dim least,
                      sn_dim greatest);

/* A state by its full name, without scopes. */
sn_tensor front_state(sn_loc at, sn_module *m, const char *name, sn_dtype t, int rank,
                      const sn_dim *shape);

/* The mesh axes that divide heads, columns of MLPs and vocabularies; sequences. */
#define FRONT_TENSOR "tensor"
#define FRONT_CONTEXT "context"
/* Whether its ranks can divide n `what` ("heads"); if not, the module has an error. */
bool front_divides(sn_module *m, const char *what, int64_t n);

/* sn_nn_linear, whose outputs consist of n parts; with SN_COLUMNS each is divided among the ranks. */
enum { FRONT_MAX_PARTS = 3 };
sn_tensor front_linear(sn_loc at, sn_tensor x, const char *name, int flags, int n,
                       const int64_t *parts);
/* sn_nn_embedding of tokens, whose table is divided among the ranks of "tensor". */
sn_tensor front_vocabulary(sn_loc at, sn_tensor ids, const char *name, int64_t n, int64_t d);

/* sn_scan_at; associative: the body combines its only carry with its only sequence so. */
sn_scanned front_scan(sn_loc at, const sn_scan_args *a, bool associative);

/* Whether ranks may divide the rows of a parameter, as far as the optimizer is concerned. */
bool front_divides_rows(const sn_optimizer *o, const sn_node *p);

/* Whether the current entry already assigns the state. */
bool front_assigned(sn_tensor state);

/* The sum of sn_training_add since the training entry began; NULL: none. */
sn_tensor *front_added_loss(sn_module *m);

/* Returns an unused random stream of the module. */
int64_t front_stream(sn_module *m);

/* Records a problem for every key that no getter has read and that changes what a model with this
 * context computes. */
struct sn_config;
void front_check_keys(struct sn_config *c, int64_t context);

#endif
