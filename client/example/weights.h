/* weights.h - the trained model as a safetensors file, which PyTorch, JAX and others read. */
#ifndef WEIGHTS_H
#define WEIGHTS_H

#include "mlp.h"

/* Writes `path`, by way of `path`.part, so that there is never half a file of that name. PD_UNAVAILABLE: cannot write. PD_NO_MEMORY. */
int weights_write(const mlp *net, const char *path, pd_error *err);

#endif
