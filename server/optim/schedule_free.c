/* schedule_free, schedule_free_sgd, gpa - optimizers that evaluate an average of the weights instead of lowering the
 * rate: Schedule-Free AdamW and SGD (arXiv:2405.15682, facebookresearch/schedule_free), and GPA-AdamW
 * (arXiv:2512.17131, facebookresearch/optimizers). Names, defaults and order of operations are those of these
 * programs.
 *
 * There are three kinds of weights: z takes the steps, x is the average of z, and y = beta x + (1 - beta) z is where
 * gradients are taken. The job's weights are y. x are the weights to evaluate and to save (`readout`). The slot
 * z_minus_y has d = z - y, which begins with 0, so that no slot begins as a copy of the weights. For each weight and
 * its gradient g, with the name of the stored state on the right (count: number of the step, from 1):
 *
 *     v <- beta2 v + (1 - beta2) g g                            stored as exp_avg_sq
 *     m <- mu m + (1 - mu) g                                    only with momentum mu, as exp_avg; else m is g
 *     u = m / (1 - mu^count) / (sqrt(v / (1 - beta2^count)) + eps);   for schedule_free_sgd u = g
 *     u <- u + weight_decay y                                   with gpa y or z shrinks by rate weight_decay before
 *     y <- y + c d + rate (beta (1 - c) - 1) u
 *     d <- (1 - c) d - rate beta (1 - c) u                      stored as z_minus_y
 *     x = y + (1 - 1 / beta) d
 *
 * c is the share of the new z in the average. With gpa it is constant. Otherwise the step has the weight
 * w = count^r (largest rate so far)^weight_lr_power, and c = w / (sum of all weights). The sum, the largest rate and
 * the step that they belong to are float64 slots of one number: weight_sum, lr_max and k. rate is lr, which warms up.
 *
 * Parameters of a group count their steps together, as in these programs. A parameter that has missed steps adds their
 * weights before its next one, with the rate that it has then. */
#include "first_order.h"

/* Indices of slots; -1: the parameter does not have the slot. */
typedef struct slots {
    int d, m, v, sum; /* sum: weight_sum, which lr_max and k follow */
} slots;

/* The hyperparameters of a step, whatever the optimizer calls them. */
typedef struct settings {
    double lr, warmup, r, power;      /* rate, and what the weights of an average follow from */
    double beta, share;               /* share: c, if it is constant; negative: it is not */
    double mu, beta2, eps;            /* of the moments */
    double decay, shrink_y, shrink_z; /* shares of the weights that are added to u, or taken from y or z */
} settings;

#define HYPER_Z(name, preset, per_step)                                                                                \
    {                                                                                                                  \
        name, PD_REAL, preset, 1e-6, 1 - 0x1p-53, NULL,                                                                \
            "share of the averaged weights in those at which gradients are taken; stays as declared", per_step, false  \
    }
#define HYPER_POWER(name, preset, help)                                                                                \
    {                                                                                                                  \
        name, PD_REAL, preset, 0, INFINITY, NULL, help, true, false                                                    \
    }
#define HYPER_WARMUP                                                                                                   \
    {                                                                                                                  \
        "warmup_steps", PD_INT, 0, 0, 0x1p53, NULL, "number of steps in which the rate rises evenly to lr", true,      \
            false                                                                                                      \
    }
#define HYPER_R HYPER_POWER("r", 0, "steps have weights in the average that grow as their number to this power")
#define HYPER_LR_POWER                                                                                                 \
    HYPER_POWER("weight_lr_power", 2, "steps have weights in the average that grow as the rate to this power")
#define HELP_DECAY "factor of the weights added to the direction"

enum { LR, BETA1, BETA2, EPS, WEIGHT_DECAY, WARMUP, R, LR_POWER, INNER, MU_DTYPE };

static const pd_hyper adamw_hypers[] = {
    [LR] = PD_HYPER_LR(2.5e-3),
    [BETA1] = HYPER_Z("betas[0]", 0.9, true),
    [BETA2] = PD_HYPER_BETA(1, 0.999, "the squared gradient's average"),
    [EPS] = PD_HYPER_EPS(1e-8),
    [WEIGHT_DECAY] = PD_HYPER_DECAY(0, HELP_DECAY),
    [WARMUP] = HYPER_WARMUP,
    [R] = HYPER_R,
    [LR_POWER] = HYPER_LR_POWER,
    [INNER] = { "inner_momentum", PD_REAL, 0, 0, 1 - 0x1p-53, NULL,
                "decay of the gradient's average; 0: the gradient itself, and no slot", true, false },
    [MU_DTYPE] = PD_HYPER_STORED("mu_dtype", "exp_avg, with inner_momentum"),
    { .name = NULL },
};

enum { SGD_LR, SGD_MOMENTUM, SGD_WEIGHT_DECAY, SGD_WARMUP, SGD_R, SGD_LR_POWER };

static const pd_hyper sgd_hypers[] = {
    [SGD_LR] = PD_HYPER_LR(1),
    [SGD_MOMENTUM] = HYPER_Z("momentum", 0.9, false),
    [SGD_WEIGHT_DECAY] = PD_HYPER_DECAY(0, HELP_DECAY),
    [SGD_WARMUP] = HYPER_WARMUP,
    [SGD_R] = HYPER_R,
    [SGD_LR_POWER] = HYPER_LR_POWER,
    { .name = NULL },
};

enum {
    GPA_LR,
    GPA_EPS,
    GPA_BETA1,
    GPA_BETA2,
    GPA_DECAY,
    GPA_ON_Y,
    GPA_TYPE,
    GPA_TRAIN,
    GPA_EVAL,
    GPA_R,
    GPA_LR_POWER,
    GPA_MU_DTYPE
};

static const pd_hyper gpa_hypers[] = {
    [GPA_LR] = PD_HYPER_LR(1),
    [GPA_EPS] = PD_HYPER_EPS(1e-8),
    [GPA_BETA1] = { "beta1", PD_REAL, 0.9, 0, 1 - 0x1p-53, NULL, "decay of the gradient's average", true, false },
    [GPA_BETA2] = { "beta2", PD_REAL, 0.999, 0, 1 - 0x1p-53, NULL, "decay of the squared gradient's average", true,
                    false },
    [GPA_DECAY] = PD_HYPER_DECAY(0, "share of lr by which weights shrink in a step: z, or with use_wd_on_y y"),
    [GPA_ON_Y] = { "use_wd_on_y", PD_FLAG, 0, 0, 1, NULL, "y shrinks and not z", true, false },
    [GPA_TYPE] = { "iterate_averaging_type", PD_CHOICE, 0, 0, 0, "gpa|schedule_free",
                   "average with a constant share, or over all steps", false, false },
    [GPA_TRAIN] = HYPER_Z("train_interp_coeff", 0.7, false),
    [GPA_EVAL] = { "eval_interp_coeff", PD_REAL, 0.9967, 0, 1, NULL, "decay of the averaged weights, for type gpa",
                   true, false },
    [GPA_R] = HYPER_POWER("weight_pow_coeff", 0, "for type schedule_free: r of schedule_free"),
    [GPA_LR_POWER] = HYPER_POWER("weight_lr_power", 2, "for type schedule_free: weight_lr_power of schedule_free"),
    [GPA_MU_DTYPE] = PD_HYPER_STORED("mu_dtype", "exp_avg"),
    { .name = NULL },
};

static settings adamw_settings(const double *h)
{
    return (settings){ .lr = h[LR],
                       .warmup = h[WARMUP],
                       .r = h[R],
                       .power = h[LR_POWER],
                       .beta = h[BETA1],
                       .share = -1,
                       .mu = h[INNER],
                       .beta2 = h[BETA2],
                       .eps = h[EPS],
                       .decay = h[WEIGHT_DECAY] };
}

static settings sgd_settings(const double *h)
{
    return (settings){ .lr = h[SGD_LR],
                       .warmup = h[SGD_WARMUP],
                       .r = h[SGD_R],
                       .power = h[SGD_LR_POWER],
                       .beta = h[SGD_MOMENTUM],
                       .share = -1,
                       .decay = h[SGD_WEIGHT_DECAY] };
}

static settings gpa_settings(const double *h)
{
    const double shrink = h[GPA_LR] * h[GPA_DECAY];

    return (settings){ .lr = h[GPA_LR],
                       .r = h[GPA_R],
                       .power = h[GPA_LR_POWER],
                       .beta = h[GPA_TRAIN],
                       .share = h[GPA_TYPE] != 0 ? -1 : 1 - h[GPA_EVAL],
                       .mu = h[GPA_BETA1],
                       .beta2 = h[GPA_BETA2],
                       .eps = h[GPA_EPS],
                       .shrink_y = h[GPA_ON_Y] != 0 ? shrink : 0,
                       .shrink_z = h[GPA_ON_Y] != 0 ? 0 : shrink };
}

/* Checks what the state depends on. (betas[0] may come with a push, as betas[1] does, but must not change.) */
static int adamw_check(const pd_hypers *declared, const pd_hypers *now, pd_error *err)
{
    const double *was = declared->value, *is = now->value;

    if (was[BETA1] != is[BETA1])
        return pd_fail(err, PD_INVALID_ARGUMENT,
                       "schedule_free: betas[0] cannot change from %g to %g while the job runs", was[BETA1], is[BETA1]);
    if ((was[INNER] == 0) == (is[INNER] == 0)) return PD_OK;
    return pd_fail(err, PD_INVALID_ARGUMENT,
                   "schedule_free: inner_momentum cannot change from %g to %g while the job runs: only between values "
                   "above 0",
                   was[INNER], is[INNER]);
}

/* Adds the three numbers from which c follows. They are float64: a weight may be a millionth of the sum. k begins with
 * the number of steps before the job's first one, or a little more where float32 lacks it: these are not missed. */
static int add_numbers(pd_plan *plan, int64_t start, int *first)
{
    float k = (float)start;
    int rc;

    if ((double)k < (double)start) k = nextafterf(k, INFINITY);
    *first = (int)plan->n_slots;
    rc = pd_plan_number(plan, "weight_sum", 0);
    if (rc == PD_OK) rc = pd_plan_number(plan, "lr_max", 0);
    if (rc == PD_OK) rc = pd_plan_number(plan, "k", k);
    for (size_t i = (size_t)*first; rc == PD_OK && i < plan->n_slots; i++) plan->slots[i].storage = PD_STORE_F64;
    return rc;
}

/* Plans the slots of a parameter. `sum`: the numbers from which c follows. m_as: the storage of exp_avg; negative: the
 * optimizer has none. */
static int plan_slots(const pd_declaration *declaration, pd_plan *plan, double m_as, bool v, bool sum)
{
    slots *at = plan->own;
    const bool m = m_as >= 0;
    int rc =
        pd_plan_slots(plan, (const char *const[]){ "z_minus_y", v ? "exp_avg_sq" : NULL, m ? "exp_avg" : NULL, NULL });

    *at = (slots){ 0, m ? 2 : -1, v ? 1 : -1, -1 };
    if (rc == PD_OK && m) plan->slots[at->m].storage = pd_stored_as(m_as);
    return rc == PD_OK && sum ? add_numbers(plan, declaration->start_step, &at->sum) : rc;
}

static int adamw_plan(const pd_declaration *declaration, const double *stats, pd_plan *plan, pd_error *err)
{
    const double *h = declaration->hypers.value;

    (void)stats, (void)err;
    return plan_slots(declaration, plan, h[INNER] != 0 ? h[MU_DTYPE] : -1, true, true);
}

static int sgd_plan(const pd_declaration *declaration, const double *stats, pd_plan *plan, pd_error *err)
{
    (void)stats, (void)err;
    return plan_slots(declaration, plan, -1, false, true);
}

static int gpa_plan(const pd_declaration *declaration, const double *stats, pd_plan *plan, pd_error *err)
{
    const double *h = declaration->hypers.value;

    (void)stats, (void)err;
    return plan_slots(declaration, plan, h[GPA_MU_DTYPE], true, h[GPA_TYPE] != 0);
}

static double *number(const pd_unit *unit, int i)
{
    return (double *)(void *)unit->slot[((const slots *)unit->plan->own)->sum + i];
}

static double rate_at(const settings *s, int64_t count)
{
    return (double)count < s->warmup ? s->lr * (double)count / s->warmup : s->lr;
}

static double weight_at(const settings *s, int64_t count, double lr_max)
{
    return pow((double)count, s->r) * pow(lr_max, s->power);
}

/* Adds the weights of `n` steps after the step `from`. They count as n times the one in their middle. */
static void add_weights(const pd_unit *unit, const settings *s, int64_t from, int64_t n)
{
    const int64_t middle = from + (n + 1) / 2;
    double *sum = number(unit, 0), *lr_max = number(unit, 1);

    *lr_max = fmax(*lr_max, rate_at(s, middle));
    *sum += (double)n * weight_at(s, middle, *lr_max);
}

/* Brings the sum of weights to the present step. Steps that the parameter has missed are added in at most MOST parts,
 * so that no number of them takes long. */
static void weigh(const pd_unit *unit, settings s)
{
    enum { MOST = 4096 };
    double *k = number(unit, 2);
    const int64_t last = unit->count - 1;
    int64_t from = (int64_t)*k, part = (last - from + MOST - 1) / MOST;

    for (; from < last; from += part) add_weights(unit, &s, from, last - from < part ? last - from : part);
    add_weights(unit, &s, last, 1);
    *k = (double)unit->count;
}

static void adamw_weigh(const pd_unit *unit)
{
    weigh(unit, adamw_settings(unit->hyper));
}
static void sgd_weigh(const pd_unit *unit)
{
    weigh(unit, sgd_settings(unit->hyper));
}
static void gpa_weigh(const pd_unit *unit)
{
    weigh(unit, gpa_settings(unit->hyper));
}

static bool has_no_sum(const pd_plan *plan, const double *hyper, int64_t count)
{
    (void)hyper, (void)count;
    return ((const slots *)plan->own)->sum < 0;
}

typedef struct factors {
    float mu, gain1, bias1, beta2, gain2, bias2, eps, decay, shrink_y, keep_y, shrink_z;
    float share, keep, y_rate, d_rate; /* c, 1 - c, and factors of u in y and d */
} factors;

static factors factors_of(const pd_unit *unit, settings s)
{
    const double rate = rate_at(&s, unit->count), sum = s.share < 0 ? *number(unit, 0) : 0,
                 weight = s.share < 0 ? weight_at(&s, unit->count, *number(unit, 1)) : 0,
                 share = s.share >= 0 ? s.share
                         : sum > 0    ? weight / sum
                                      : 0;

    return (factors){
        .mu = (float)s.mu,
        .gain1 = (float)(1 - s.mu),
        .bias1 = (float)pd_bias(s.mu, unit->count),
        .beta2 = (float)s.beta2,
        .gain2 = (float)(1 - s.beta2),
        .bias2 = (float)pd_bias(s.beta2, unit->count),
        .eps = (float)s.eps,
        .decay = (float)s.decay,
        .shrink_y = (float)s.shrink_y,
        .keep_y = (float)(1 - s.shrink_y),
        .shrink_z = (float)s.shrink_z,
        .share = (float)share,
        .keep = (float)(1 - share),
        .y_rate = (float)(rate * (s.beta * (1 - share) - 1)),
        .d_rate = (float)(-rate * s.beta * (1 - share)),
    };
}

/* Computes the new weights and the state of a range of elements, in one pass over memory. The callers pass the flags,
 * which say what state there is, as constants, so the loop has no branches. */
PD_INLINE void pass(const pd_unit *unit, factors f, bool has_m, bool has_v)
{
    const slots at = *(const slots *)unit->plan->own;
    const pd_run r = pd_run_of(unit);
    float *d = pd_run_slot(unit, at.d), *m = has_m ? pd_run_slot(unit, at.m) : NULL,
          *v = has_v ? pd_run_slot(unit, at.v) : NULL;

#pragma GCC ivdep /* the arrays of old and new weights are identical or disjoint, so the loop may be vectorized */
    for (int64_t i = 0; i < r.n; i++) {
        float before = r.before[i], g = r.gradient[i], u = g, y = f.keep_y * before,
              apart = d[i] + f.shrink_y * before - f.shrink_z * (before + d[i]);
        if (has_m) {
            m[i] = f.mu * m[i] + f.gain1 * g;
            u = m[i] / f.bias1;
        }
        if (has_v) {
            v[i] = f.beta2 * v[i] + f.gain2 * g * g;
            u = u / (sqrtf(v[i] / f.bias2) + f.eps);
        }
        u = f.decay != 0 ? u + f.decay * y : u;
        r.after[i] = y + f.share * apart + f.y_rate * u;
        d[i] = f.keep * apart + f.d_rate * u;
    }
}

PD_CLONES(void, both_moments, (const pd_unit *unit, factors f), (unit, f))
{
    pass(unit, f, true, true);
}
PD_CLONES(void, second_moment, (const pd_unit *unit, factors f), (unit, f))
{
    pass(unit, f, false, true);
}
PD_CLONES(void, no_moments, (const pd_unit *unit, factors f), (unit, f))
{
    pass(unit, f, false, false);
}

static void adamw_update(const pd_unit *unit)
{
    (((const slots *)unit->plan->own)->m >= 0 ? both_moments
                                              : second_moment)(unit, factors_of(unit, adamw_settings(unit->hyper)));
}
static void sgd_update(const pd_unit *unit)
{
    no_moments(unit, factors_of(unit, sgd_settings(unit->hyper)));
}
static void gpa_update(const pd_unit *unit)
{
    both_moments(unit, factors_of(unit, gpa_settings(unit->hyper)));
}

PD_CLONES(void, average, (float *x, const float *y, const float *d, int64_t n, float factor), (x, y, d, n, factor))
{
    for (int64_t i = 0; i < n; i++) x[i] = y[i] + factor * d[i];
}

static void adamw_readout(const pd_readout *r)
{
    average(r->out, r->weights, r->slot[0] + r->first, r->n, (float)(1 - 1 / r->hyper[BETA1]));
}
static void sgd_readout(const pd_readout *r)
{
    average(r->out, r->weights, r->slot[0] + r->first, r->n, (float)(1 - 1 / r->hyper[SGD_MOMENTUM]));
}
static void gpa_readout(const pd_readout *r)
{
    average(r->out, r->weights, r->slot[0] + r->first, r->n, (float)(1 - 1 / r->hyper[GPA_TRAIN]));
}

#define OPS(optimizer)                                                                                                 \
    .hypers = optimizer##_hypers, .plan = optimizer##_plan, .own_bytes = sizeof(slots), .counts_by_group = true,       \
    .gradient_most = PD_SQUARE_MOST, .grain = pd_grain_of_elements, .readout = optimizer##_readout,                    \
    .phases = { { .name = "weigh", .kind = PD_WHOLE, .run = optimizer##_weigh, .skip = has_no_sum },                   \
                { .name = "update", .kind = PD_RANGES, .run = optimizer##_update } }

const pd_optimizer_ops pd_schedule_free_adamw = {
    .name = "schedule_free",
    .about = "AdamW that evaluates averaged weights, without a schedule (arXiv:2405.15682)",
    .check = adamw_check,
    OPS(adamw),
};

const pd_optimizer_ops pd_schedule_free_sgd = {
    .name = "schedule_free_sgd",
    .about = "SGD that evaluates averaged weights, without a schedule (arXiv:2405.15682)",
    OPS(sgd),
};

const pd_optimizer_ops pd_gpa = {
    .name = "gpa",
    .about = "AdamW that evaluates an exponential average of its weights (GPA, arXiv:2512.17131)",
    OPS(gpa),
};
