/* gradient.h: the gradient of a loss as users ask for it. */
#ifndef SN_PASSES_GRADIENT_H
#define SN_PASSES_GRADIENT_H

#include "ir/ir.h"

/* Checks the request (a float scalar loss; float tensors of its module) and makes out[i] the gradient
 * of the loss with respect to wrt[i]. If all of wrt are leaves, attention written in plain operations
 * is raised first (sn_raise_loss): its gradient is one kernel, which the gradients of its parts could
 * not be fused to afterwards. Returns the number of gradients that are zero because the loss does not
 * depend on the tensor. After an error, which is the module's, every out[i] is its error node. */
int sn_loss_gradient(sn_node *loss, int n, sn_node *const *wrt, sn_node **out);

#endif
