/* Steps elements whose gradients, or the squares of these, leave the range of float32, and compares each weight with
 * that of torch.optim. The values are torch 2.13's for lr 0.1, of three steps of weights that begin with 1. */
#include "test.h"
#include "vectors.h"

/* N: whole SIMD vectors of every instruction set, and a rest */
enum { GRADIENTS = 16, N = 3 * GRADIENTS - 1, STEPS = 3 };
#define ANY (-7) /* torch's own implementations differ: here only finite numbers are expected */

static const float gradients[GRADIENTS] = { 0,     1e-42F, -1e-38F, 1e-30F,   1e-23F, -1e-19F, 1e-10F, 1,
                                            -1e5F, 1e10F,  1e19F,   -1.9e19F, 1e20F,  1e25F,   1e30F,  -3e38F };

static const struct {
    const char *row;
    const char *const *options;
    double weights[GRADIENTS];
} cases[] = {
    { "sgd",
      OPTIONS("lr", "0.1"),
      { 1, 1, 1, 1, 1, 1, 1, 0.849999964, 15001, -1.5e+09, -1.49999994e+18, 2.85000011e+18, -1.49999994e+19,
        -1.49999988e+24, -1.50000002e+29, 4.50000041e+37 } },
    { "sgd",
      OPTIONS("lr", "0.1", "momentum", "0.9"),
      { 1, 1, 1, 1, 1, 1, 1, 0.588999987, 41101, -4.10999987e+09, -4.11000003e+18, 7.80900041e+18, -4.11000041e+19,
        -4.10999972e+24, -4.11000022e+29, INFINITY } },
    { "sgd",
      OPTIONS("lr", "0.1", "momentum", "0.9", "nesterov", "yes"),
      { 1, 1, 1, 1, 1, 1, 1, 0.480099976, 51991, -5.19900058e+09, -5.19900005e+18, 9.87810042e+18, -5.19900027e+19,
        -5.1989998e+24, -5.19900022e+29, INFINITY } },
    { "adam",
      OPTIONS("lr", "0.1"),
      { 1, 1, 1, 1, 1, 1, 0.997577131, 0.748434663, 1.25156534, 0.748434603, 0.748434603, 1.25156534, 0.748434663, 1, 1,
        1 } },
    { "adam",
      OPTIONS("lr", "0.1", "amsgrad", "yes"),
      { 1, 1, 1, 1, 1, 1, 0.997577131, 0.748434663, 1.25156534, 0.748434603, 0.748434603, 1.25156534, 0.748434663, 1, 1,
        1 } },
    { "adamw",
      OPTIONS("lr", "0.1"),
      { 0.997003078, 0.997003078, 0.997003078, 0.997003078, 0.997003078, 0.997003078, 0.99458313, 0.745737553,
        1.24826837, 0.745737493, 0.745737493, 1.24826837, 0.745737553, 0.997003078, 0.997003078, 0.997003078 } },
    { "nadam",
      OPTIONS("lr", "0.1"),
      { 1, 1, 1, 1, 1, 1, 0.998421609, 0.844357669, 1.15564239, 0.844357669, 0.844357669, ANY, ANY, 1, 1, 1 } },
    { "radam",
      OPTIONS("lr", "0.1"),
      { 1, 1, 1, 1, 1, 1, 1, 0.75535053, 24465.9453, -2.44649446e+09, -2.44649446e+18, 4.64833989e+18, -2.44649452e+19,
        -2.44649424e+24, -2.44649449e+29, 7.3394835e+37 } },
    { "adamax",
      OPTIONS("lr", "0.1"),
      { 1, 1, 1, 1, 1, 1, 0.99757731, 0.755305827, 1.24469423, 0.755305827, 0.755305827, 1.24469423, 0.755305827,
        0.755305827, 0.755305827, 1.24469423 } },
    { "adagrad",
      OPTIONS("lr", "0.1"),
      { 1, 1, 1, 1, 1, 1, 0.928578615, 0.862622678, 1.13737738, 0.862622619, 0.862622678, 1, 1, 1, 1, 1 } },
    { "rmsprop",
      OPTIONS("lr", "0.1"),
      { 1, 1, 1, 1, 1, 1, 0.998501658, -0.373310655, 2.37331057, -0.373310715, -0.373310745, 2.37331057, -0.373310775,
        1, 1, 1 } },
    { "rmsprop",
      OPTIONS("lr", "0.1", "momentum", "0.5"),
      { 1, 1, 1, 1, 1, 1, 0.99725312, -1.47775114, 3.47775126, -1.47775137, -1.47775137, 3.47775126, -1.47775137, 1, 1,
        1 } },
    { "rmsprop",
      OPTIONS("lr", "0.1", "centered", "yes"),
      { 1, 1, 1, 1, 1, 1, 0.998501599, -0.383863598, 2.38386345, -0.383863598, -0.383863598, 2.38386345, -0.383863628,
        1, 1, 1 } },
    { "rmsprop",
      OPTIONS("lr", "0.1", "centered", "yes", "momentum", "0.5"),
      { 1, 1, 1, 1, 1, 1, 0.99725306, -1.49566269, 3.49566293, -1.49566281, -1.49566281, 3.49566293, -1.49566293, 1, 1,
        1 } },
    { "adadelta",
      OPTIONS("lr", "0.1"),
      { 1, 1, 1, 1, 1, 1, 1, 0.999553442, 1.00044668, 0.999553442, 0.999553442, 1.00044668, 1, 1, 1, 1 } },
    { "rprop",
      OPTIONS("lr", "0.1"),
      { 1, 0.899999976, 1.10000002, 0.899999976, 0.899999976, 1.22000003, 0.779999971, 0.779999971, 1.22000003,
        0.779999971, 0.779999971, 1.22000003, 0.779999971, 0.779999971, 0.779999971, 1.22000003 } },
    { "asgd",
      OPTIONS("lr", "0.1"),
      { 0.999969959, 0.999969959, 0.999969959, 0.999969959, 0.999969959, 0.999969959, 0.999969959, 0.849972963,
        15000.6982, -1.49997005e+09, -1.49996984e+18, 2.84994321e+18, -1.49996993e+19, -1.49996976e+24, -1.49996999e+29,
        4.49991016e+37 } },
};

TEST(weights_go_where_torch_puts_them)
{
    static const float factors[STEPS] = { 1, 1, -0.5F };
    static const int64_t n = N;

    for (size_t k = 0; k < sizeof cases / sizeof cases[0]; k++) {
        pd_hypers hypers = vectors_hypers(cases[k].row, cases[k].options);
        pd_model *model = vectors_model(&hypers, &n, 1, 1);
        float w[N], gradient[N];
        for (int i = 0; i < N; i++) w[i] = 1;
        for (int s = 0; s < STEPS; s++) {
            for (int i = 0; i < N; i++) gradient[i] = gradients[i % GRADIENTS] * factors[s];
            vectors_step(model, gradient, w, w, NULL);
        }
        for (int i = 0; i < N; i++) {
            const double right = cases[k].weights[i % GRADIENTS], got = (double)w[i];
            const bool same = right == ANY ? isfinite(got) : got == right || fabs(got - right) <= 2e-6 * fabs(right);
            if (!same)
                fail_msg("case %zu (%s), gradient %g: weight %.9g, torch has %.9g", k, cases[k].row,
                         (double)gradients[i % GRADIENTS], got, right);
        }
        pd_model_free(model);
    }
}
