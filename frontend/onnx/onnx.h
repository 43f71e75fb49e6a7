/* onnx.h: models in the ONNX format. */
#ifndef SN_ONNX_H
#define SN_ONNX_H

#include "frontend/sinter.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct sn_onnx_options {
    const char *entry; /* its name; NULL: "forward" */
    int64_t size_max;  /* upper bound of sizes that the file leaves open; 0: 65536 */
} sn_onnx_options;

/* Adds an entry to m that computes the graph of an ONNX file: its inputs are the graph's inputs that the
 * outputs depend on, with their names, types and shapes, and so are the outputs. Sizes with a name
 * (dim_param) become symbolic dims of that name, others NAME_AXIS of the input; sizes that the graph
 * requires to be equal become one. Shapes that the graph computes are evaluated while it is imported.
 * Initialisers become parameters of their names, single numbers and shapes constants.
 *
 * The returned weights hold the parameters, for sn_session_new: views of the mapped file, or of its files
 * of external data, which must lie in the same folder. Close them after the last session that was made of
 * them. Options may be NULL. NULL: err says what is wrong with the file, or lists all operators that are
 * not supported, with node, domain and version; then m has an error, too, or is unchanged. */
sn_weights *sn_onnx_load(sn_module *m, const char *path, const sn_onnx_options *o, sn_error *err);

/* The operators that are supported, by domain ("": ai.onnx) and name, with the versions of the domain that
 * change them: `until` 0: also the latest. False: there is no i-th. */
typedef struct sn_onnx_operator {
    const char *name, *domain;
    int since, until;
} sn_onnx_operator;
bool sn_onnx_operator_at(int i, sn_onnx_operator *out);

#ifdef __cplusplus
}
#endif
#endif
