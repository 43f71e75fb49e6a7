/* host.h: steps of an entry that run outside the generated code: oneDNN's primitives, one function
 * a primitive. */
#ifndef SN_HOST_H
#define SN_HOST_H

#include "codegen/kernel.h"
#include "codegen/onednn/onednn.h"

/* One call: buf and dim are what the step's kernel would get (kernel.h). */
typedef struct sn_host_call {
    const sn_kernel *kernel;
    void *const *buf;
    const int64_t *dim;
    bool constant_right; /* a product's right factor never changes: it may be packed once */
} sn_host_call;

/* Runs the step. Nothing is computed where there are no elements. False: err says why. */
bool sn_host_run(sn_dnnl *d, const sn_host_call *c, sn_error *err);

/* The composite in the body of a `primitive` node. */
const sn_node *sn_host_composite(const sn_node *n);

#endif
