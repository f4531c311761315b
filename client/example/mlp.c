#include "mlp.h"

#include <assert.h>
#include <cblas.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "counter.h"

static float *weight(const mlp *net, int layer) { return net->tensor[2 * layer]; }
static float *bias(const mlp *net, int layer) { return net->tensor[2 * layer + 1]; }

static size_t elements(const mlp *net, int tensor)
{
    size_t in = (size_t)net->width[tensor / 2], out = (size_t)net->width[tensor / 2 + 1];
    return tensor % 2 == 0 ? out * in : out;
}

int mlp_new(mlp *net, const int width[MLP_LAYERS + 1], int batch)
{
    bool whole = true;

    memset(net, 0, sizeof *net);
    memcpy(net->width, width, sizeof net->width);
    net->batch = batch;
    for (int t = 0; t < MLP_TENSORS; t++) {
        whole &= (net->tensor[t] = calloc(elements(net, t), sizeof(float))) != NULL;
        whole &= (net->gradient[t] = calloc(elements(net, t), sizeof(float))) != NULL;
    }
    for (int l = 0; l < MLP_LAYERS; l++) {
        size_t n = (size_t)batch * (size_t)width[l + 1];
        whole &= (net->out[l] = calloc(n, sizeof(float))) != NULL;
        whole &= (net->delta[l] = calloc(n, sizeof(float))) != NULL;
    }
    whole &= (net->ones = calloc((size_t)batch, sizeof(float))) != NULL;
    if (!whole) {
        mlp_free(net);
        return PD_NO_MEMORY;
    }
    for (int i = 0; i < batch; i++) net->ones[i] = 1.0f;
    return PD_OK;
}

void mlp_free(mlp *net)
{
    for (int t = 0; t < MLP_TENSORS; t++) {
        free(net->tensor[t]);
        free(net->gradient[t]);
    }
    for (int l = 0; l < MLP_LAYERS; l++) {
        free(net->out[l]);
        free(net->delta[l]);
    }
    free(net->ones);
    memset(net, 0, sizeof *net);
}

const char *mlp_name(int tensor)
{
    static const char *const names[MLP_TENSORS] = { "layers.0.weight", "layers.0.bias", "layers.1.weight",
                                                    "layers.1.bias",   "layers.2.weight", "layers.2.bias" };
    return names[tensor];
}

pd_shape mlp_shape(const mlp *net, int tensor)
{
    int in = net->width[tensor / 2], out = net->width[tensor / 2 + 1];
    return tensor % 2 == 0 ? (pd_shape){ .rank = 2, .dim = { out, in } } : (pd_shape){ .rank = 1, .dim = { out } };
}

void mlp_init(mlp *net, uint64_t seed)
{
    for (int l = 0; l < MLP_LAYERS; l++) {
        float bound = sqrtf(6.0f / (float)net->width[l]);
        for (size_t i = 0; i < elements(net, 2 * l); i++)
            weight(net, l)[i] = bound * counter_symmetric(seed, (uint64_t)l, i);
        memset(bias(net, l), 0, elements(net, 2 * l + 1) * sizeof(float));
    }
}

/* out (n, width[l + 1]) = in W' + b, then the relu between layers. */
static void forward_layer(mlp *net, int l, const float *in, int n)
{
    int   rows = net->width[l + 1], cols = net->width[l];
    float *out = net->out[l];

    for (int i = 0; i < n; i++) memcpy(out + (size_t)i * (size_t)rows, bias(net, l), (size_t)rows * sizeof(float));
    cblas_sgemm(CblasRowMajor, CblasNoTrans, CblasTrans, n, rows, cols, 1.0f, in, cols, weight(net, l), cols, 1.0f, out, rows);
    if (l + 1 == MLP_LAYERS) return;
    for (size_t i = 0; i < (size_t)n * (size_t)rows; i++) out[i] = out[i] > 0.0f ? out[i] : 0.0f;
}

/* Cross entropy of one row of scores, which becomes softmax(scores). */
static double softmax_loss(float *score, int classes, uint8_t label)
{
    float  most = score[0], truth = score[label];
    double sum = 0.0;

    assert(label < classes);
    for (int c = 1; c < classes; c++) most = fmaxf(most, score[c]);
    for (int c = 0; c < classes; c++) sum += (double)(score[c] = expf(score[c] - most));
    for (int c = 0; c < classes; c++) score[c] = (float)((double)score[c] / sum);
    return log(sum) + (double)most - (double)truth;
}

static int likeliest(const float *score, int classes)
{
    int best = 0;
    for (int c = 1; c < classes; c++) if (score[c] > score[best]) best = c;
    return best;
}

/* The last layer's out becomes the classes' probabilities. */
double mlp_evaluate(mlp *net, const float *x, const uint8_t *label, int n, int *correct)
{
    int    classes = net->width[MLP_LAYERS];
    double loss = 0.0;

    for (int l = 0; l < MLP_LAYERS; l++) forward_layer(net, l, l == 0 ? x : net->out[l - 1], n);
    *correct = 0;
    for (int i = 0; i < n; i++) {
        float *score = net->out[MLP_LAYERS - 1] + (size_t)i * (size_t)classes;
        *correct += likeliest(score, classes) == label[i];
        loss += softmax_loss(score, classes, label[i]);
    }
    return loss / n;
}

/* From delta of layer l: the gradients of its weight and bias, and delta of the layer below. */
static void backward_layer(mlp *net, int l, const float *in, int n)
{
    int          rows = net->width[l + 1], cols = net->width[l];
    const float *delta = net->delta[l];

    cblas_sgemm(CblasRowMajor, CblasTrans, CblasNoTrans, rows, cols, n, 1.0f, delta, rows, in, cols, 0.0f, net->gradient[2 * l], cols);
    cblas_sgemv(CblasRowMajor, CblasTrans, n, rows, 1.0f, delta, rows, net->ones, 1, 0.0f, net->gradient[2 * l + 1], 1);
    if (l == 0) return;
    cblas_sgemm(CblasRowMajor, CblasNoTrans, CblasNoTrans, n, cols, rows, 1.0f, delta, rows, weight(net, l), cols, 0.0f, net->delta[l - 1], cols);
    for (size_t i = 0; i < (size_t)n * (size_t)cols; i++)
        if (in[i] <= 0.0f) net->delta[l - 1][i] = 0.0f;                 /* the relu's derivative */
}

double mlp_differentiate(mlp *net, const float *x, const uint8_t *label, int n)
{
    int    classes = net->width[MLP_LAYERS], correct;
    double loss = mlp_evaluate(net, x, label, n, &correct);
    float *probability = net->out[MLP_LAYERS - 1], *delta = net->delta[MLP_LAYERS - 1];

    for (int i = 0; i < n; i++)
        for (int c = 0; c < classes; c++)
            delta[i * classes + c] = (probability[i * classes + c] - (c == label[i] ? 1.0f : 0.0f)) / (float)n;
    for (int l = MLP_LAYERS - 1; l >= 0; l--) backward_layer(net, l, l == 0 ? x : net->out[l - 1], n);
    return loss;
}
