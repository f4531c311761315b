/* mlp.h - a classifier of three dense layers: what a worker computes between two exchanges with paramd.
 *
 *     h1 = relu(x W0' + b0)     h2 = relu(h1 W1' + b1)     scores = h2 W2' + b2     loss = mean cross entropy of softmax(scores)
 *
 * Weights have PyTorch's layout, (out, in). An object belongs to one thread. */
#ifndef MLP_H
#define MLP_H

#include <stdint.h>

#include "paramd/tensor.h"

enum { MLP_LAYERS = 3, MLP_TENSORS = 2 * MLP_LAYERS };

typedef struct mlp {
    int    width[MLP_LAYERS + 1];       /* inputs, two hidden layers, classes */
    int    batch;                       /* most examples per call */
    float *tensor[MLP_TENSORS];         /* weight and bias of layer 0, of layer 1, of layer 2 */
    float *gradient[MLP_TENSORS];       /* derivative of the loss by each of them, same shapes */
    float *out[MLP_LAYERS];             /* (batch, width[l + 1]): what layer l gives */
    float *delta[MLP_LAYERS];           /* same shapes: derivative of the loss by it, before the relu */
    float *ones;                        /* (batch) */
} mlp;

/* All memory, zeroed. PD_NO_MEMORY: nothing to free. */
int  mlp_new(mlp *net, const int width[MLP_LAYERS + 1], int batch);
void mlp_free(mlp *net);                                /* accepts a zeroed one */

/* "layers.0.weight" and (256, 784), for tensor 0 to MLP_TENSORS - 1. */
const char *mlp_name(int tensor);
pd_shape    mlp_shape(const mlp *net, int tensor);

/* He initialisation: weights uniform within sqrt(6 / in), biases 0. */
void mlp_init(mlp *net, uint64_t seed);

/* Loss and number of correct answers over n <= batch examples: x (n, inputs), label (n). */
double mlp_evaluate(mlp *net, const float *x, const uint8_t *label, int n, int *correct);
/* Loss over n <= batch examples; leaves its derivatives in net->gradient. n >= 1. */
double mlp_differentiate(mlp *net, const float *x, const uint8_t *label, int n);

#endif
