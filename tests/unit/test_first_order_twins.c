/* Tests the element-wise optimizers against their definitions, written in double, one element at a time.
 * tests/golden/test_torch_optim.c and tests/e2e/torch_optim.py compare them with PyTorch. */
#include "test.h"
#include "vectors.h"

enum { N = 2501, STEPS = 9 }; /* N: several of the tiles over which lamb sums squares, and a remainder */

static double of(const pd_hypers *h, const char *name)
{
    return vectors_value(h, name);
}

typedef struct twin {
    double w[N], a[N], b[N], c[N]; /* a, b, c: the optimizer's state, in the order of its slots */
    double product, eta, mu;
    int count;
} twin;

static double pulled(const pd_hypers *h, twin *t, int i, float gradient)
{
    double g = of(h, "maximize") != 0 ? -(double)gradient : (double)gradient, decay = of(h, "weight_decay");

    if (of(h, "decoupled_weight_decay") == 0 && h->row != pd_optim_find("lion")) return g + decay * t->w[i];
    t->w[i] -= of(h, "lr") * decay * t->w[i];
    return g;
}

static double sign(double x)
{
    return x > 0 ? 1 : x < 0 ? -1 : 0;
}

/* Updates the two moving averages of element i: of the gradient, and of its square. */
static void average(const pd_hypers *h, twin *t, int i, double g)
{
    const double b1 = of(h, "betas[0]"), b2 = of(h, "betas[1]");

    t->a[i] = b1 * t->a[i] + (1 - b1) * g;
    t->b[i] = b2 * t->b[i] + (1 - b2) * g * g;
}

static void adam_twin(const pd_hypers *h, twin *t, const float *gradient)
{
    const double c1 = 1 - pow(of(h, "betas[0]"), t->count), c2 = 1 - pow(of(h, "betas[1]"), t->count);

    for (int i = 0; i < N; i++) {
        average(h, t, i, pulled(h, t, i, gradient[i]));
        t->c[i] = fmax(of(h, "amsgrad") != 0 ? t->c[i] : 0, t->b[i]);
        t->w[i] -= of(h, "lr") * (t->a[i] / c1) / (sqrt(t->c[i] / c2) + of(h, "eps"));
    }
}

static void nadam_twin(const pd_hypers *h, twin *t, const float *gradient)
{
    const double b1 = of(h, "betas[0]"), c2 = 1 - pow(of(h, "betas[1]"), t->count), psi = of(h, "momentum_decay");
    const double mu = b1 * (1 - pow(0.96, t->count * psi) / 2), next = b1 * (1 - pow(0.96, (t->count + 1) * psi) / 2);

    t->product = (t->count == 1 ? 1 : t->product) * mu;
    for (int i = 0; i < N; i++) {
        double g = pulled(h, t, i, gradient[i]), below;
        average(h, t, i, g);
        below = sqrt(t->b[i] / c2) + of(h, "eps");
        t->w[i] -= of(h, "lr") * ((1 - mu) * g / (1 - t->product) + next * t->a[i] / (1 - t->product * next)) / below;
    }
}

static void radam_twin(const pd_hypers *h, twin *t, const float *gradient)
{
    const double b2 = of(h, "betas[1]"), c1 = 1 - pow(of(h, "betas[0]"), t->count), c2 = 1 - pow(b2, t->count);
    const double most = 2 / (1 - b2) - 1, rho = most - 2 * t->count * pow(b2, t->count) / c2;

    for (int i = 0; i < N; i++) {
        double s;
        average(h, t, i, pulled(h, t, i, gradient[i]));
        s = of(h, "lr") * t->a[i] / c1;
        if (rho > 5)
            s *= sqrt((rho - 4) * (rho - 2) * most / ((most - 4) * (most - 2) * rho)) * sqrt(c2) /
                 (sqrt(t->b[i]) + of(h, "eps"));
        t->w[i] -= s;
    }
}

static void adamax_twin(const pd_hypers *h, twin *t, const float *gradient)
{
    const double b1 = of(h, "betas[0]");

    for (int i = 0; i < N; i++) {
        double g = pulled(h, t, i, gradient[i]);
        t->a[i] = b1 * t->a[i] + (1 - b1) * g;
        t->b[i] = fmax(of(h, "betas[1]") * t->b[i], fabs(g) + of(h, "eps"));
        t->w[i] -= of(h, "lr") / (1 - pow(b1, t->count)) * t->a[i] / t->b[i];
    }
}

static void adagrad_twin(const pd_hypers *h, twin *t, const float *gradient)
{
    for (int i = 0; i < N; i++) {
        double g = pulled(h, t, i, gradient[i]);
        t->a[i] = (t->count == 1 ? of(h, "initial_accumulator_value") : t->a[i]) + g * g;
        t->w[i] -= of(h, "lr") / (1 + (t->count - 1) * of(h, "lr_decay")) * g / (sqrt(t->a[i]) + of(h, "eps"));
    }
}

static void rmsprop_twin(const pd_hypers *h, twin *t, const float *gradient)
{
    const double alpha = of(h, "alpha");

    for (int i = 0; i < N; i++) {
        double g = pulled(h, t, i, gradient[i]), below;
        t->a[i] = alpha * t->a[i] + (1 - alpha) * g * g;
        t->c[i] = of(h, "centered") != 0 ? alpha * t->c[i] + (1 - alpha) * g : 0;
        below = sqrt(t->a[i] - t->c[i] * t->c[i]) + of(h, "eps");
        t->b[i] = of(h, "momentum") * t->b[i] + g / below;
        t->w[i] -= of(h, "lr") * t->b[i];
    }
}

static void adadelta_twin(const pd_hypers *h, twin *t, const float *gradient)
{
    const double rho = of(h, "rho"), eps = of(h, "eps");

    for (int i = 0; i < N; i++) {
        double g = pulled(h, t, i, gradient[i]), d;
        t->a[i] = rho * t->a[i] + (1 - rho) * g * g;
        d = sqrt(t->b[i] + eps) / sqrt(t->a[i] + eps) * g;
        t->b[i] = rho * t->b[i] + (1 - rho) * d * d;
        t->w[i] -= of(h, "lr") * d;
    }
}

static void rprop_twin(const pd_hypers *h, twin *t, const float *gradient)
{
    for (int i = 0; i < N; i++) {
        double g = pulled(h, t, i, gradient[i]), p = g * t->a[i], z = t->count == 1 ? of(h, "lr") : t->b[i];
        z *= p > 0 ? of(h, "etas[1]") : p < 0 ? of(h, "etas[0]") : 1;
        t->b[i] = fmin(fmax(z, of(h, "step_sizes[0]")), of(h, "step_sizes[1]"));
        t->a[i] = p < 0 ? 0 : g;
        t->w[i] -= sign(t->a[i]) * t->b[i];
    }
}

static void asgd_twin(const pd_hypers *h, twin *t, const float *gradient)
{
    const double lr = of(h, "lr"), lambd = of(h, "lambd");

    if (t->count == 1) t->eta = lr, t->mu = 1;
    for (int i = 0; i < N; i++) {
        double g = pulled(h, t, i, gradient[i]);
        t->w[i] -= lambd * t->eta * t->w[i] + t->eta * g;
        t->a[i] += t->mu * (t->w[i] - t->a[i]);
    }
    t->eta = lr / pow(1 + lambd * lr * t->count, of(h, "alpha"));
    t->mu = 1 / fmax(1, t->count - of(h, "t0"));
}

static void lamb_twin(const pd_hypers *h, twin *t, const float *gradient)
{
    const bool corrected = of(h, "bias_correction") != 0;
    const double b1 = of(h, "betas[0]"), b2 = of(h, "betas[1]"), decay = of(h, "weight_decay");
    const double c1 = corrected ? 1 - pow(b1, t->count) : 1, c2 = corrected ? 1 - pow(b2, t->count) : 1;
    double weights = 0, update = 0, ratio = 1;

    for (int i = 0; i < N; i++) {
        t->a[i] = b1 * t->a[i] + (of(h, "grad_averaging") != 0 ? 1 - b1 : 1) * (double)gradient[i];
        t->b[i] = b2 * t->b[i] + (1 - b2) * (double)gradient[i] * (double)gradient[i];
        t->c[i] = t->a[i] / c1 / (sqrt(t->b[i] / c2) + of(h, "eps")) + decay * t->w[i];
        weights += t->w[i] * t->w[i];
        update += t->c[i] * t->c[i];
    }
    if (decay != 0 || of(h, "always_adapt") != 0) ratio = sqrt(weights / update);
    if (of(h, "trust_clip") != 0) ratio = fmin(ratio, 1);
    for (int i = 0; i < N; i++) t->w[i] -= of(h, "lr") * ratio * t->c[i];
}

static void lion_twin(const pd_hypers *h, twin *t, const float *gradient)
{
    const double b1 = of(h, "betas[0]"), b2 = of(h, "betas[1]");

    for (int i = 0; i < N; i++) {
        double g = pulled(h, t, i, gradient[i]);
        t->w[i] -= of(h, "lr") * sign(b1 * t->a[i] + (1 - b1) * g);
        t->a[i] = b2 * t->a[i] + (1 - b2) * g;
    }
}

static void delayed_nesterov_twin(const pd_hypers *h, twin *t, const float *gradient)
{
    const double mu = of(h, "momentum"), n = of(h, "period"), c = of(h, "spread");
    const bool last = t->count % (int)n == 0;

    for (int i = 0; i < N; i++) {
        double g = pulled(h, t, i, gradient[i]);
        t->a[i] += g;
        if (last) t->b[i] = mu * t->b[i] + t->a[i] / n, t->a[i] = 0;
        t->w[i] -= of(h, "lr") * ((last ? 1 - c * n + c : c) * mu * t->b[i] + g / n);
    }
}

/* Returns a moving average's half-life less one step. */
static double half_life(double beta)
{
    return log(0.5) / log(beta + 1e-8) - 1;
}

static void ademamix_twin(const pd_hypers *h, twin *t, const float *gradient)
{
    const double b1 = of(h, "betas[0]"), b2 = of(h, "betas[1]"), c1 = 1 - pow(b1, t->count), c2 = 1 - pow(b2, t->count);
    const double part = fmin(1, t->count / of(h, "beta3_warmup")), b3 = of(h, "betas[2]"),
                 life = part * half_life(b3) + (1 - part) * half_life(b1),
                 slow = part < 1 ? pow(0.5, 1 / (life + 1)) : b3,
                 alpha = of(h, "alpha") * fmin(1, t->count / of(h, "alpha_warmup"));

    for (int i = 0; i < N; i++) {
        const double g = (double)gradient[i];
        t->a[i] = slow * t->a[i] + (1 - slow) * g;
        t->b[i] = b2 * t->b[i] + (1 - b2) * g * g;
        t->c[i] = b1 * t->c[i] + (1 - b1) * g;
        t->w[i] -= of(h, "lr") * ((t->c[i] / c1 + alpha * t->a[i]) / (sqrt(t->b[i] / c2) + of(h, "eps")) +
                                  of(h, "weight_decay") * t->w[i]);
    }
}

/* Moves z and x by a step of size `rate` along u, where x takes the share c of the new z. Computes y. a is z - y. */
static void average_steps(twin *t, int i, double beta, double c, double rate, double u)
{
    const double z = t->w[i] + t->a[i], x = (t->w[i] - (1 - beta) * z) / beta, z_now = z - rate * u,
                 x_now = (1 - c) * x + c * z_now;

    t->w[i] = beta * x_now + (1 - beta) * z_now;
    t->a[i] = z_now - t->w[i];
}

/* Returns the share of the step's z in the average over all steps. */
static double share_of_step(twin *t, double rate, double r, double power)
{
    double weight;

    t->eta = t->count == 1 ? rate : fmax(t->eta, rate);
    weight = pow(t->count, r) * pow(t->eta, power);
    t->product = (t->count == 1 ? 0 : t->product) + weight;
    return weight / t->product;
}

static void schedule_free_twin(const pd_hypers *h, twin *t, const float *gradient)
{
    const bool sgd = h->row == pd_optim_find("schedule_free_sgd");
    const double b2 = of(h, "betas[1]"), mu = of(h, "inner_momentum"), warmup = of(h, "warmup_steps"),
                 rate = of(h, "lr") * (warmup > 0 ? fmin(1, t->count / warmup) : 1),
                 c = share_of_step(t, rate, of(h, "r"), of(h, "weight_lr_power"));

    for (int i = 0; i < N; i++) {
        double g = (double)gradient[i], u = g;
        t->b[i] = b2 * t->b[i] + (1 - b2) * g * g;
        t->c[i] = mu * t->c[i] + (1 - mu) * g;
        if (!sgd) u = t->c[i] / (1 - pow(mu, t->count)) / (sqrt(t->b[i] / (1 - pow(b2, t->count))) + of(h, "eps"));
        average_steps(t, i, of(h, sgd ? "momentum" : "betas[0]"), c, rate, u + of(h, "weight_decay") * t->w[i]);
    }
}

static void gpa_twin(const pd_hypers *h, twin *t, const float *gradient)
{
    const double b1 = of(h, "beta1"), b2 = of(h, "beta2"), lr = of(h, "lr"), shrink = lr * of(h, "weight_decay"),
                 over_all = share_of_step(t, lr, of(h, "weight_pow_coeff"), of(h, "weight_lr_power")),
                 c = of(h, "iterate_averaging_type") != 0 ? over_all : 1 - of(h, "eval_interp_coeff");

    for (int i = 0; i < N; i++) {
        double g = (double)gradient[i], z = t->w[i] + t->a[i];
        t->b[i] = b2 * t->b[i] + (1 - b2) * g * g;
        t->c[i] = b1 * t->c[i] + (1 - b1) * g;
        if (of(h, "use_wd_on_y") != 0)
            t->w[i] *= 1 - shrink;
        else
            z *= 1 - shrink;
        t->a[i] = z - t->w[i];
        average_steps(t, i, of(h, "train_interp_coeff"), c, lr,
                      t->c[i] / (1 - pow(b1, t->count)) / (sqrt(t->b[i] / (1 - pow(b2, t->count))) + of(h, "eps")));
    }
}

typedef void twin_step(const pd_hypers *h, twin *t, const float *gradient);
static twin_step *const twins[VECTORS_ROWS] = {
    adam_twin,          adam_twin,   adagrad_twin,          rmsprop_twin,  nadam_twin,
    radam_twin,         adamax_twin, adadelta_twin,         rprop_twin,    asgd_twin,
    lamb_twin,          lion_twin,   delayed_nesterov_twin, ademamix_twin, schedule_free_twin,
    schedule_free_twin, gpa_twin
};

/* Checks that the optimizer's weights equal the definition's after each step, to a few bits of float32. In the
 * second half of the steps, the options are `later`. */
static void follows_the_definition(const char *row, const char *const *options, const char *const *later)
{
    pd_hypers declared = vectors_hypers(row, options), now = declared;
    static const int64_t n = N;
    pd_model *model = vectors_model(&declared, &n, 1, 2);
    twin *t = calloc(1, sizeof *t);
    float w[N], gradient[N];
    int k = 0;

    while (strcmp(vectors_rows[k], row) != 0) k++;
    vectors_fill(w, N, 0);
    for (int i = 0; i < N; i++) t->w[i] = (double)w[i];
    for (int s = 1; s <= STEPS; s++) {
        double off = 0, norm = 0;
        vectors_fill(gradient, N, s);
        if (s == STEPS / 2)
            for (const char *const *o = later; o[0] != NULL; o += 2)
                assert_int_equal(pd_hypers_set(&now, o[0], o[1], NULL), PD_OK);
        t->count = s;
        twins[k](&now, t, gradient);
        vectors_step(model, gradient, w, w, &now);
        for (int i = 0; i < N; i++) {
            off += ((double)w[i] - t->w[i]) * ((double)w[i] - t->w[i]);
            norm += t->w[i] * t->w[i];
        }
        if (!(sqrt(off / norm) < 3e-6)) fail_msg("%s: off by %.3g after step %d", row, sqrt(off / norm), s);
    }
    pd_model_free(model);
    free(t);
}

TEST(every_row_follows_its_definition_by_default)
{
    for (int k = 0; k < VECTORS_ROWS; k++)
        follows_the_definition(vectors_rows[k], OPTIONS("lr", "0.01"), OPTIONS("lr", "0.03"));
}

TEST(decay_and_maximize_follow_the_definitions)
{
    for (int k = 0; k < VECTORS_ROWS; k++)
        if (vectors_has(vectors_rows[k], "weight_decay") && vectors_has(vectors_rows[k], "maximize"))
            follows_the_definition(vectors_rows[k], OPTIONS("lr", "0.01", "weight_decay", "0.2", "maximize", "yes"),
                                   OPTIONS("weight_decay", "0.1"));
}

TEST(decoupled_decay_follows_the_definitions)
{
    for (int k = 0; k < VECTORS_ROWS; k++)
        if (vectors_has(vectors_rows[k], "decoupled_weight_decay"))
            follows_the_definition(vectors_rows[k],
                                   OPTIONS("lr", "0.01", "weight_decay", "0.2", "decoupled_weight_decay", "yes"),
                                   OPTIONS("lr", "0.05"));
}

TEST(changed_betas_follow_the_definitions)
{
    for (int k = 0; k < VECTORS_ROWS; k++)
        if (vectors_has(vectors_rows[k], "betas[0]") && !vectors_has(vectors_rows[k], "betas[2]") &&
            strcmp(vectors_rows[k], "schedule_free") != 0)
            follows_the_definition(vectors_rows[k], OPTIONS("betas", "0.8,0.9"), OPTIONS("betas", "0.5,0.95"));
}

TEST(each_option_follows_the_definition)
{
    follows_the_definition("adam", OPTIONS("amsgrad", "yes", "betas", "0.9,0.6", "eps", "0.01"), OPTIONS("lr", "0.01"));
    follows_the_definition("adagrad", OPTIONS("lr_decay", "0.3", "initial_accumulator_value", "0.5", "eps", "0.1"),
                           OPTIONS("lr_decay", "0.1"));
    follows_the_definition("rmsprop", OPTIONS("alpha", "0.9", "eps", "0.01", "centered", "yes"),
                           OPTIONS("alpha", "0.8"));
    follows_the_definition("rmsprop", OPTIONS("alpha", "0.9", "eps", "0.01", "momentum", "0.9"),
                           OPTIONS("momentum", "0.5"));
    follows_the_definition("rmsprop", OPTIONS("eps", "0.01", "momentum", "0.9", "centered", "yes"),
                           OPTIONS("lr", "0.02"));
    follows_the_definition("nadam", OPTIONS("momentum_decay", "0.5"), OPTIONS("momentum_decay", "0.1"));
    follows_the_definition("radam", OPTIONS("betas", "0.9,0.7", "eps", "0.01"), OPTIONS("lr", "0.1"));
    follows_the_definition("adamax", OPTIONS("eps", "0.1"), OPTIONS("eps", "0.2"));
    follows_the_definition("adadelta", OPTIONS("rho", "0.5", "eps", "0.01"), OPTIONS("rho", "0.9"));
    follows_the_definition("rprop", OPTIONS("etas", "0.3,2", "step_sizes", "0.004,0.05"), OPTIONS("etas[1]", "1.1"));
    follows_the_definition("asgd", OPTIONS("lambd", "0.1", "alpha", "0.5", "t0", "2"), OPTIONS("lr", "0.2"));
    follows_the_definition("lamb", OPTIONS("weight_decay", "0", "bias_correction", "no"),
                           OPTIONS("always_adapt", "yes"));
    follows_the_definition("lamb", OPTIONS("grad_averaging", "no", "trust_clip", "yes", "eps", "0.1"),
                           OPTIONS("trust_clip", "no"));
    follows_the_definition("delayed_nesterov", OPTIONS("period", "3", "spread", "0.2"),
                           OPTIONS("momentum", "0.5", "spread", "0.1"));
    follows_the_definition("ademamix", OPTIONS("betas", "0.8,0.9,0.99", "eps", "0.01", "weight_decay", "0.2"),
                           OPTIONS("betas", "0.5,0.95,0.9", "alpha", "0.5"));
    follows_the_definition("ademamix", OPTIONS("beta3_warmup", "6", "alpha_warmup", "7", "alpha", "8"),
                           OPTIONS("beta3_warmup", "20", "alpha_warmup", "30"));
    follows_the_definition("ademamix", OPTIONS("betas[0]", "0", "beta3_warmup", "20"), OPTIONS("alpha", "1"));
    follows_the_definition("schedule_free", OPTIONS("betas", "0.8,0.9", "warmup_steps", "6", "weight_decay", "0.2"),
                           OPTIONS("betas[1]", "0.95", "warmup_steps", "8"));
    follows_the_definition("schedule_free",
                           OPTIONS("inner_momentum", "0.8", "r", "1.5", "weight_lr_power", "1", "eps", "0.01"),
                           OPTIONS("lr", "0.1", "inner_momentum", "0.9"));
    follows_the_definition("schedule_free_sgd",
                           OPTIONS("momentum", "0.6", "warmup_steps", "5", "weight_decay", "0.1", "r", "1"),
                           OPTIONS("lr", "0.05", "r", "2", "weight_lr_power", "0"));
    follows_the_definition("gpa", OPTIONS("lr", "0.1", "weight_decay", "0.5", "eval_interp_coeff", "0.8"),
                           OPTIONS("beta1", "0.5", "eval_interp_coeff", "0.9", "use_wd_on_y", "yes"));
    follows_the_definition("gpa",
                           OPTIONS("lr", "0.1", "iterate_averaging_type", "schedule_free", "weight_pow_coeff", "1",
                                   "train_interp_coeff", "0.9"),
                           OPTIONS("lr", "0.2", "weight_lr_power", "1"));
}
