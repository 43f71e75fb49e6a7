/* roles.h: ONNX files as models with the entries of models.h. Internal. */
#ifndef SN_ONNX_ROLES_H
#define SN_ONNX_ROLES_H

#include "frontend/models.h"

/* Builds into out->module what sn_model_build_onnx describes. False: err. */
bool onnx_build_model(const char *path, sn_config *config, const sn_model_options *o, sn_model *out,
                      sn_weights **weights, sn_error *err);
#endif
