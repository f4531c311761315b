/* classifier.h - loads the data and computes the model of the example: Fashion-MNIST images, and a network of three
 * dense layers. */
#pragma once
#include <cblas.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <zlib.h>
#include "paramd/tensor.h"

enum { PIXELS = 28 * 28, CLASSES = 10, MOST_IMAGES = 60000, MOST_BATCH = 8192, LAYERS = 3, TENSORS = 2 * LAYERS };

typedef struct images {
    int n, order[MOST_IMAGES]; /* order[i]: index of the image that is used at position i of an epoch */
    uint8_t pixels[MOST_IMAGES][PIXELS], label[MOST_IMAGES];
} images;

/* Reads the images and labels of one part of the data set, "train" or "t10k", from files such as
 * FOLDER/train-images-idx3-ubyte.gz. */
static inline int images_load(images *set, const char *folder, const char *part, pd_error *err)
{
    int bytes[2];
    for (int k = 0; k < 2; k++) {
        char path[4096];
        snprintf(path, sizeof path, "%s/%s-%s-ubyte.gz", folder, part, k == 0 ? "labels-idx1" : "images-idx3");
        gzFile file = gzopen(path, "rb");
        gzseek(file, 8 + 8 * k, SEEK_SET); /* skips the header */
        bytes[k] = gzread(file, k == 0 ? set->label : set->pixels[0], k == 0 ? MOST_IMAGES : MOST_IMAGES * PIXELS);
        gzclose(file);
    }
    set->n = bytes[0];
    for (int i = 0; i < set->n; set->order[i] = i, i++)
        if (set->label[i] >= CLASSES) bytes[1] = -1;
    if (set->n >= MOST_BATCH && bytes[1] == set->n * PIXELS) return PD_OK;
    return pd_fail(err, PD_NOT_FOUND, "%s/%s-*: no images; try: apt install dataset-fashion-mnist", folder, part);
}

/* Shuffles the images (Fisher and Yates). The order depends on seed and epoch alone. */
static inline void images_shuffle(images *set, int seed, int epoch)
{
    unsigned short state[3] = { (unsigned short)epoch, (unsigned short)seed, (unsigned short)(seed >> 16) };
    for (int i = 0; i < set->n; i++) {
        int other = (int)(erand48(state) * (i + 1));
        set->order[i] = set->order[other];
        set->order[other] = i;
    }
}

/* Copies images and their labels. Takes the images at positions first, first + stride, first + 2 stride and so on,
 * below `end`. Pixels are normalised to mean 0 and variance 1 over the data set. Returns the number of images. */
static inline int images_take(const images *set, int first, int end, int stride, float *x, uint8_t *label)
{
    int n = 0;
    for (int at = first; at < end; at += stride) {
        for (int p = 0; p < PIXELS; p++) *x++ = ((float)set->pixels[set->order[at]][p] / 255.0f - 0.2860f) / 0.3530f;
        label[n++] = set->label[set->order[at]];
    }
    return n;
}

/* Each layer has a weight of shape (outputs, inputs) and a bias, as PyTorch's Linear. tensor_at[t] is the index of
 * the first value of tensor t in `value` and `gradient`. */
static const int width[LAYERS + 1] = { PIXELS, 256, 128, CLASSES };
static const char *const tensor_name[TENSORS] = { "layers.0.weight", "layers.0.bias",   "layers.1.weight",
                                                  "layers.1.bias",   "layers.2.weight", "layers.2.bias" };
static const int tensor_at[TENSORS + 1] = { 0, 200704, 200960, 233728, 233856, 235136, 235146 };

typedef struct mlp {
    float value[235146], gradient[235146];        /* weights and gradients of all tensors, one after another */
    float out[LAYERS + 1][MOST_BATCH * PIXELS];   /* out[0]: the input images; out[l + 1]: output of layer l */
    float delta[LAYERS + 1][MOST_BATCH * PIXELS]; /* derivatives of the loss by the outputs of each layer before ReLU */
    uint8_t label[MOST_BATCH];                    /* classes of the images in out[0] */
    int correct;                                  /* number of images that mlp_loss classified correctly */
} mlp;

/* Draws initial weights from He's uniform distribution. Biases are 0. */
static inline void mlp_init(mlp *net, int seed)
{
    unsigned short state[3] = { 0, (unsigned short)seed, (unsigned short)(seed >> 16) };
    memset(net->value, 0, sizeof net->value);
    for (int l = 0; l < LAYERS; l++)
        for (int i = tensor_at[2 * l]; i < tensor_at[2 * l + 1]; i++)
            net->value[i] = (float)(sqrt(6.0 / width[l]) * (2.0 * erand48(state) - 1.0));
}

/* Runs the network on the first n images and returns their mean cross entropy. Sets `correct` and the delta of the
 * last layer. */
static inline double mlp_loss(mlp *net, int n)
{
    double loss = 0.0;
    for (int l = 0; l < LAYERS; l++) {
        int in = width[l], out = width[l + 1];
        float *to = net->out[l + 1], *weight = net->value + tensor_at[2 * l], *bias = weight + out * in;
        for (int i = 0; i < n; i++) memcpy(to + i * out, bias, (size_t)out * sizeof *to);
        cblas_sgemm(CblasRowMajor, CblasNoTrans, CblasTrans, n, out, in, 1, net->out[l], in, weight, in, 1, to, out);
        for (int i = 0; l + 1 < LAYERS && i < n * out; i++) to[i] = to[i] > 0.0f ? to[i] : 0.0f;
    }
    net->correct = 0;
    for (int i = 0; i < n; i++) {
        float *score = net->out[LAYERS] + i * CLASSES, *delta = net->delta[LAYERS] + i * CLASSES;
        float most = score[0], sum = 0.0f;
        for (int c = 1; c < CLASSES; c++) most = fmaxf(most, score[c]);
        for (int c = 0; c < CLASSES; c++) sum += delta[c] = expf(score[c] - most);
        for (int c = 0; c < CLASSES; c++) delta[c] = (delta[c] / sum - (c == net->label[i])) / (float)n;
        loss += logf(sum) + most - score[net->label[i]];
        net->correct += score[net->label[i]] == most;
    }
    return loss / n;
}

/* Returns the mean loss of the first n images, and sets net->gradient to the derivative of the loss with respect to the
 * weights. */
static inline double mlp_differentiate(mlp *net, int n)
{
    double loss = mlp_loss(net, n);
    for (int l = LAYERS - 1; l >= 0; l--) {
        int in = width[l], out = width[l + 1];
        float *delta = net->delta[l + 1], *below = net->delta[l], *weight = net->value + tensor_at[2 * l];
        float *gradient = net->gradient + tensor_at[2 * l], *bias = gradient + out * in, *x = net->out[l];
        cblas_sgemm(CblasRowMajor, CblasTrans, CblasNoTrans, out, in, n, 1, delta, out, x, in, 0, gradient, in);
        memset(bias, 0, (size_t)out * sizeof *bias);
        for (int i = 0; i < n; i++) cblas_saxpy(out, 1, delta + i * out, 1, bias, 1);
        if (l == 0) break;
        cblas_sgemm(CblasRowMajor, CblasNoTrans, CblasNoTrans, n, in, out, 1, delta, out, weight, in, 0, below, in);
        for (int i = 0; i < n * in; i++) below[i] = x[i] > 0.0f ? below[i] : 0.0f;
    }
    return loss;
}

/* Returns the mean loss over all images of `set`. Sets *accuracy to the fraction that is classified correctly. */
static inline double mlp_test(mlp *net, const images *set, double *accuracy)
{
    double loss = 0.0, correct = 0.0;
    for (int first = 0, n; first < set->n; first += n, correct += net->correct) {
        n = images_take(set, first, first + 500 < set->n ? first + 500 : set->n, 1, net->out[0], net->label);
        loss += n * mlp_loss(net, n);
    }
    *accuracy = correct / set->n;
    return loss / set->n;
}
