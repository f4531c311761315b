/* replay_net.c - computes the losses and gradients of a recorded training run of a small network. */
#include "replay_net.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MAX_PRODUCTS 100000000ll /* most multiplications to compute the network's outputs for a batch */

enum { MOST_LAYERS = 32 };

typedef struct layer {
    int number;          /* the number K in the names of the layer's parameters, layers.K.weight and layers.K.bias */
    size_t weight, bias; /* indices of the layer's weight and bias in the list of the trace's parameters */
    int64_t in, out;
    double *value, *delta; /* of shape (batch, out): the layer's output, and the derivative of the loss by the output */
} layer;

struct pd_replay_net {
    layer layer[MOST_LAYERS];
    int n;
    int64_t examples, batch, steps;
    double *x, *y, *index, *loss;
    double *input; /* the examples of the present step, of shape (batch, inputs) */
};

bool pd_replay_net_wanted(const pd_trace *trace)
{
    pd_shape shape;

    return pd_trace_tensor(trace, "loss", &shape) && shape.rank == 1 && shape.dim[0] >= trace->steps &&
           !pd_trace_has(trace, "grad/");
}

/* Returns the number of a layer from the name of its parameter, such as "layers.2.weight", where `what` is "weight"
 * or "bias". -1: the name is not of this form. */
static int number_of(const char *name, const char *what)
{
    char wanted[64];
    int number = -1;

    if (sscanf(name, "layers.%d.", &number) != 1 || number < 0) return -1;
    snprintf(wanted, sizeof wanted, "layers.%d.%s", number, what);
    return strcmp(name, wanted) == 0 ? number : -1;
}

static int by_number(const void *a, const void *b)
{
    return ((const layer *)a)->number - ((const layer *)b)->number;
}

static bool take_weight(pd_replay_net *net, const pd_trace_param *param, size_t i)
{
    int number = number_of(param->name, "weight");

    if (number < 0 || net->n == MOST_LAYERS || param->shape.rank != 2 || param->elements == 0) return false;
    net->layer[net->n++] =
        (layer){ .number = number, .weight = i, .out = param->shape.dim[0], .in = param->shape.dim[1] };
    return true;
}

static bool take_bias(pd_replay_net *net, const pd_trace_param *param, size_t i)
{
    int number = number_of(param->name, "bias");

    for (int l = 0; number >= 0 && l < net->n; l++) {
        if (net->layer[l].number != number) continue;
        net->layer[l].bias = i;
        return param->shape.rank == 1 && param->shape.dim[0] == net->layer[l].out;
    }
    return false;
}

/* Finds the network's layers in the trace. Each layer must have a weight and a bias, and as many inputs as the layer
 * before it has outputs. */
static int find_layers(pd_replay_net *net, const pd_trace *trace, pd_error *err)
{
    const pd_trace_param *params = trace->params;
    size_t n = trace->n;
    size_t biases = 0;
    bool fits = true;

    for (size_t i = 0; i < n; i++) (void)take_weight(net, &params[i], i);
    qsort(net->layer, (size_t)net->n, sizeof *net->layer, by_number);
    for (size_t i = 0; i < n; i++) biases += take_bias(net, &params[i], i);
    for (int l = 1; l < net->n; l++)
        fits = fits && net->layer[l].in == net->layer[l - 1].out && net->layer[l].number > net->layer[l - 1].number;
    if (fits && net->n > 0 && biases == (size_t)net->n && 2 * (size_t)net->n == n) return PD_OK;
    return pd_fail(
        err, PD_UNIMPLEMENTED,
        "records no gradients, and its parameters are not layers.K.weight and layers.K.bias of dense layers");
}

/* Reads a recorded tensor that must have `rank` dimensions (1 or 2), and its sizes. The caller frees *at. */
static int read_tensor(const pd_trace *data, const char *name, int rank, double **at, int64_t size[2], pd_error *err)
{
    pd_shape shape;
    int64_t n = 0;

    if (!pd_trace_tensor(data, name, &shape) || shape.rank != rank || pd_shape_elements(&shape, &n) != PD_OK || n == 0)
        return pd_fail(err, PD_INVALID_ARGUMENT, "%s of the data beside the trace: expected numbers in %d dimensions",
                       name, rank);
    if ((*at = calloc((size_t)n, sizeof **at)) == NULL) return pd_fail(err, PD_NO_MEMORY, "out of memory");
    for (int d = 0; d < rank; d++) size[d] = shape.dim[d];
    pd_trace_values(data, name, *at);
    return PD_OK;
}

/* Checks that n recorded numbers are whole numbers, at least 0 and below `limit`. */
static int check_numbers(const char *name, const double *at, int64_t n, int64_t limit, pd_error *err)
{
    for (int64_t i = 0; i < n; i++)
        if (!(at[i] >= 0 && at[i] < (double)limit) || at[i] != floor(at[i]))
            return pd_fail(err, PD_INVALID_ARGUMENT,
                           "%s of the data beside the trace: expected whole numbers below %lld, got %g", name,
                           (long long)limit, at[i]);
    return PD_OK;
}

static int read_data(pd_replay_net *net, const pd_trace *data, pd_error *err)
{
    int64_t x[2] = { 0 }, y[2] = { 0 }, index[2] = { 0 };
    int rc = read_tensor(data, "x", 2, &net->x, x, err);

    if (rc == PD_OK) rc = read_tensor(data, "y", 1, &net->y, y, err);
    if (rc == PD_OK) rc = read_tensor(data, "batch_index", 2, &net->index, index, err);
    if (rc != PD_OK) return rc;
    net->examples = x[0];
    net->batch = index[1];
    if (x[1] != net->layer[0].in || y[0] != x[0] || index[0] < net->steps)
        return pd_fail(err, PD_INVALID_ARGUMENT,
                       "the data beside the trace: expected examples of %lld numbers, each with a label, and batches "
                       "for %lld steps",
                       (long long)net->layer[0].in, (long long)net->steps);
    rc = check_numbers("y", net->y, y[0], net->layer[net->n - 1].out, err);
    return rc == PD_OK ? check_numbers("batch_index", net->index, index[0] * index[1], x[0], err) : rc;
}

static int open_data(pd_replay_net *net, const pd_trace *trace, pd_error *err)
{
    const char *seed = pd_trace_meta(trace, "batch_seed"), *path = trace->path, *slash = strrchr(path, '/');
    char name[1200];
    pd_trace *data;
    pd_error why;
    int rc;

    if (seed == NULL || strlen(seed) > 20 || strspn(seed, "0123456789") != strlen(seed))
        return pd_fail(err, PD_UNIMPLEMENTED, "records neither gradients nor a batch_seed to compute them");
    if (snprintf(name, sizeof name, "%.*sdigits_batches_seed%s.safetensors",
                 slash != NULL ? (int)(slash + 1 - path) : 0, path, seed) >= (int)sizeof name)
        return pd_fail(err, PD_INVALID_ARGUMENT, "%.200s...: the name is too long", path);
    if ((rc = pd_trace_open(&data, name, &why)) == PD_NOT_FOUND)
        return pd_fail(err, PD_UNIMPLEMENTED, "records no gradients, and there is no data to compute them: %.300s",
                       why.text);
    if (rc != PD_OK) return pd_fail(err, rc, "%s", why.text);
    rc = read_data(net, data, err);
    pd_trace_close(data);
    return rc;
}

static int allocate(pd_replay_net *net, const pd_trace *trace, pd_error *err)
{
    int64_t weights = 0;
    pd_shape shape;
    int64_t n = 0;

    for (int l = 0; l < net->n; l++) weights += net->layer[l].in * net->layer[l].out;
    if (net->batch > MAX_PRODUCTS / weights)
        return pd_fail(err, PD_INVALID_ARGUMENT,
                       "a batch of %lld examples for %lld weights is too much work for a replay", (long long)net->batch,
                       (long long)weights);
    (void)pd_trace_tensor(trace, "loss", &shape);
    (void)pd_shape_elements(&shape, &n);
    net->loss = calloc((size_t)n + 1, sizeof *net->loss);
    net->input = calloc((size_t)(net->batch * net->layer[0].in), sizeof *net->input);
    if (net->loss == NULL || net->input == NULL) return pd_fail(err, PD_NO_MEMORY, "out of memory");
    pd_trace_values(trace, "loss", net->loss);
    for (int l = 0; l < net->n; l++) {
        size_t values = (size_t)(net->batch * net->layer[l].out);
        net->layer[l].value = calloc(values, sizeof(double));
        net->layer[l].delta = calloc(values, sizeof(double));
        if (net->layer[l].value == NULL || net->layer[l].delta == NULL)
            return pd_fail(err, PD_NO_MEMORY, "out of memory");
    }
    return PD_OK;
}

int pd_replay_net_open(pd_replay_net **out, const pd_trace *trace, pd_error *err)
{
    pd_replay_net *net = calloc(1, sizeof *net);
    int rc;

    if (net == NULL) return pd_fail(err, PD_NO_MEMORY, "out of memory");
    net->steps = trace->steps;
    rc = find_layers(net, trace, err);
    if (rc == PD_OK) rc = open_data(net, trace, err);
    if (rc == PD_OK) rc = allocate(net, trace, err);
    if (rc == PD_OK)
        *out = net;
    else
        pd_replay_net_close(net);
    return rc;
}

void pd_replay_net_close(pd_replay_net *net)
{
    if (net == NULL) return;
    for (int l = 0; l < net->n; l++) {
        free(net->layer[l].value);
        free(net->layer[l].delta);
    }
    free(net->x);
    free(net->y);
    free(net->index);
    free(net->loss);
    free(net->input);
    free(net);
}

double pd_replay_net_error(const pd_replay_net *net, int64_t step, double loss)
{
    double recorded = net->loss[step - 1];

    return fabs(loss - recorded) / (recorded != 0 ? fabs(recorded) : 1);
}

static void take_batch(pd_replay_net *net, int64_t step)
{
    size_t bytes = (size_t)net->layer[0].in * sizeof(double);

    for (int64_t b = 0; b < net->batch; b++) {
        int64_t example = (int64_t)net->index[(step - 1) * net->batch + b];
        memcpy(net->input + b * net->layer[0].in, net->x + example * net->layer[0].in, bytes);
    }
}

static const double *input_of(const pd_replay_net *net, int l)
{
    return l == 0 ? net->input : net->layer[l - 1].value;
}

static void forward(pd_replay_net *net, int l, const float *weight, const float *bias)
{
    const layer *at = &net->layer[l];
    const double *input = input_of(net, l);

    for (int64_t b = 0; b < net->batch; b++) {
        for (int64_t o = 0; o < at->out; o++) {
            double sum = (double)bias[o];
            for (int64_t i = 0; i < at->in; i++) sum += (double)weight[o * at->in + i] * input[b * at->in + i];
            at->value[b * at->out + o] = l < net->n - 1 && sum < 0 ? 0 : sum;
        }
    }
}

/* Returns the mean cross entropy of the batch. Sets the delta (derivative of the loss) of the last layer to
 * (softmax - one-hot label) / batch size. */
static double cross_entropy(pd_replay_net *net, int64_t step)
{
    const layer *last = &net->layer[net->n - 1];
    double loss = 0;

    for (int64_t b = 0; b < net->batch; b++) {
        const double *score = last->value + b * last->out;
        double *delta = last->delta + b * last->out, top = score[0], sum = 0;
        int64_t label = (int64_t)net->y[(int64_t)net->index[(step - 1) * net->batch + b]];
        for (int64_t o = 1; o < last->out; o++) top = fmax(top, score[o]);
        for (int64_t o = 0; o < last->out; o++) sum += exp(score[o] - top);
        for (int64_t o = 0; o < last->out; o++)
            delta[o] = (exp(score[o] - top) / sum - (o == label)) / (double)net->batch;
        loss += top + log(sum) - score[label];
    }
    return loss / (double)net->batch;
}

/* Sets `weight` and `bias` to the derivatives of the loss by the weight and the bias of layer l. */
static void derive(const pd_replay_net *net, int l, float *weight, float *bias)
{
    const layer *at = &net->layer[l];
    const double *input = input_of(net, l);

    for (int64_t o = 0; o < at->out; o++) {
        double sum = 0;
        for (int64_t b = 0; b < net->batch; b++) sum += at->delta[b * at->out + o];
        bias[o] = (float)sum;
        for (int64_t i = 0; i < at->in; i++) {
            sum = 0;
            for (int64_t b = 0; b < net->batch; b++) sum += at->delta[b * at->out + o] * input[b * at->in + i];
            weight[o * at->in + i] = (float)sum;
        }
    }
}

/* Computes the delta of layer l - 1: the derivatives of the loss by its outputs. A derivative is 0 where ReLU made the
 * output 0. */
static void backward(pd_replay_net *net, int l, const float *weight)
{
    const layer *at = &net->layer[l], *before = &net->layer[l - 1];

    for (int64_t b = 0; b < net->batch; b++) {
        for (int64_t i = 0; i < at->in; i++) {
            double sum = 0;
            for (int64_t o = 0; o < at->out; o++) sum += at->delta[b * at->out + o] * (double)weight[o * at->in + i];
            before->delta[b * at->in + i] = before->value[b * at->in + i] > 0 ? sum : 0;
        }
    }
}

double pd_replay_net_differentiate(pd_replay_net *net, int64_t step, float *const *weights, float *const *gradient)
{
    double loss;

    take_batch(net, step);
    for (int l = 0; l < net->n; l++) forward(net, l, weights[net->layer[l].weight], weights[net->layer[l].bias]);
    loss = cross_entropy(net, step);
    for (int l = net->n - 1; l >= 0; l--) {
        derive(net, l, gradient[net->layer[l].weight], gradient[net->layer[l].bias]);
        if (l > 0) backward(net, l, weights[net->layer[l].weight]);
    }
    return loss;
}
