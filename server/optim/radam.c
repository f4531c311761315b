/* radam - Adam that takes plain momentum steps at first, while the average of the squared gradient has seen too few
 * steps, and rectified adaptive steps later, as in torch.optim.RAdam. w are the weights, g is the gradient, count the
 * number of the step; rho measures over how many steps v averages. The words at the right of m and v name the slots:
 *
 *     g <- -g if maximize
 *     g <- g + weight_decay w,  or, decoupled:  w <- w - lr weight_decay w
 *     m <- beta1 m + (1 - beta1) g                              exp_avg
 *     v <- beta2 v + (1 - beta2) g g                            exp_avg_sq
 *     rho_inf = 2 / (1 - beta2) - 1,   rho = rho_inf - 2 count beta2^count / (1 - beta2^count)
 *     s = lr m / (1 - beta1^count)
 *     w <- w - s                                                                           while rho is at most 5, else
 *     w <- w - s sqrt(1 - beta2^count) / (sqrt(v) + eps) sqrt((rho - 4) (rho - 2) rho_inf / ((rho_inf - 4) (rho_inf -
 *         2) rho)) */
#include "first_order.h"

enum { LR, BETA1, BETA2, EPS, WEIGHT_DECAY, DECOUPLED, MAXIMIZE };
enum { EXP_AVG, EXP_AVG_SQ };

static const pd_hyper radam_hypers[] = {
    [LR] = PD_HYPER_LR(1e-3),
    [BETA1] = PD_HYPER_BETA(0, 0.9, "the gradient's average"),
    [BETA2] = PD_HYPER_BETA(1, 0.999, "the squared gradient's average"),
    [EPS] = PD_HYPER_EPS(1e-8),
    [WEIGHT_DECAY] =
        PD_HYPER_DECAY(0, "factor of the weights added to the gradient, or, decoupled, of lr by which they shrink"),
    [DECOUPLED] = PD_HYPER_DECOUPLED(0),
    [MAXIMIZE] = PD_HYPER_MAXIMIZE,
    { .name = NULL },
};

static int radam_plan(const pd_declaration *declaration, const double *stats, pd_plan *plan, pd_error *err)
{
    (void)declaration, (void)stats, (void)err;
    return pd_plan_slots(plan, (const char *const[]){ "exp_avg", "exp_avg_sq", NULL });
}

/* The constants of one step of radam. `root` and `rectified` are used only if the step is adaptive (not a plain
 * momentum step). */
typedef struct factors {
    pd_pull pull;
    float beta1, gain1, beta2, gain2, eps, bias, lr, root, rectified;
    bool adaptive;
} factors;

PD_CLONES(void, pass, (const pd_unit *unit, factors f), (unit, f))
{
    const pd_run r = pd_run_of(unit);
    float *m = pd_run_slot(unit, EXP_AVG), *v = pd_run_slot(unit, EXP_AVG_SQ);

/* The new weights `after` and the old ones `before` are the same memory or do not overlap, so the compiler may
 * vectorize the loop. */
#pragma GCC ivdep
    for (int64_t i = 0; i < r.n; i++) {
        float w = r.before[i], g = pd_pulled(f.pull, r.gradient[i], w);
        float average = f.beta1 * m[i] + f.gain1 * g, square = f.beta2 * v[i] + f.gain2 * g * g;
        float plain = average / f.bias * f.lr, adapted = plain * (f.root / (sqrtf(square) + f.eps)) * f.rectified;
        m[i] = average;
        v[i] = square;
        r.after[i] = f.pull.keep * w - (f.adaptive ? adapted : plain);
    }
}

static void update(const pd_unit *unit)
{
    const double *h = unit->hyper, bias2 = pd_bias(h[BETA2], unit->count), most = 2 / (1 - h[BETA2]) - 1;
    const double rho = most - 2 * (double)unit->count * pow(h[BETA2], (double)unit->count) / bias2;
    const bool adaptive = rho > 5;

    pass(unit,
         (factors){
             .pull = pd_pull_of(h[LR], h[WEIGHT_DECAY], h[DECOUPLED] != 0, h[MAXIMIZE] != 0),
             .beta1 = (float)h[BETA1],
             .gain1 = (float)(1 - h[BETA1]),
             .beta2 = (float)h[BETA2],
             .gain2 = (float)(1 - h[BETA2]),
             .eps = (float)h[EPS],
             .bias = (float)pd_bias(h[BETA1], unit->count),
             .lr = (float)h[LR],
             .root = (float)sqrt(bias2),
             .rectified = adaptive ? (float)sqrt((rho - 4) * (rho - 2) * most / ((most - 4) * (most - 2) * rho)) : 1.0f,
             .adaptive = adaptive,
         });
}

const pd_optimizer_ops pd_radam = {
    .name = "radam",
    .about = "rectified Adam (torch.optim.RAdam)",
    .hypers = radam_hypers,
    .plan = radam_plan,
    .gradient_most = PD_SQUARE_MOST,
    .phases = { { .name = "update", .kind = PD_RANGES, .run = update } },
    .grain = pd_grain_of_elements,
};
