/* kron - the optimizer PSGD Kron as distributed_kron 1.0.0 computes it (arXiv:1512.04202, arXiv:2211.04422).
 *
 * A parameter is cut into blocks. For each dimension i of a block there is a factor Q_i, a triangular or diagonal
 * matrix. The momentum is multiplied by the factors to give the update of the weights (preconditioning). In step t,
 * counted from 1, with the gradient G, the weights W and a block V of random numbers (the probe):
 *
 *     mu <- (1 - b1) G + b1 mu;   X = mu / (1 - b1^t)                 merged, cut into blocks and padded (kron_plan.c)
 *     every 1/p steps, counted in the same way for every parameter (p: preconditioner_update_probability):
 *         with probability 0.01: Q_i <- c_i Q_i, so that all Q_i have the same largest element
 *         H = X + sqrt(2^-23) mean|X| V, V ~ N(0, 1)
 *         A = Q_i along every dimension of H;   B = Q_i^-T along every dimension of V
 *         T1, T2 = A and B contracted with themselves over all dimensions but i
 *         Q_i <- (I - preconditioner_lr / bound(T1 + T2) triu(T1 - T2)) Q_i  for each block; for a diagonal factor,
 *             with the diagonals of T1 and T2 alone
 *     U = Q_i' Q_i along every dimension of X                               Q_i': the transpose of Q_i
 *     U <- U / max(1, rms(U) / 1.1)                                         over the whole parameter
 *     W <- W - learning_rate (U + weight_decay W)
 *
 * bound estimates the largest eigenvalue, triu is the upper triangle, c_i a number, rms the root mean square. A task on
 * the preconditioner pool computes the multiplier in parentheses (for a diagonal factor without the I), not the new
 * factor. With root_delay the multiplier arrives some steps later. It then multiplies the factor of that later step, so
 * no update undoes another one. Factors may be balanced (made equal in size by the c_i) in the meantime: balancing does
 * not change A and B.
 *
 * Other values of dQ update factors as psgd_torch does (kron_fit.c). Its frame differs in places. The momentum is an
 * average of all gradients until it has as many terms as b1 gives it; factors are fitted to H = G + (damping + 2^-23
 * |G|) V, element by element, and balanced after their update; an update of the weights is clipped by its root mean
 * square, and then element by element. A task computes the factors themselves: with a root_delay they are adopted
 * before the next update begins, so none is lost. A delay of 1 is psgd_torch's update_preconditioner_first=False.
 *
 * Keep two properties of distributed_kron. The zeros of the padding take part in the arithmetic. rms(U) becomes
 * infinite if its sum of squares exceeds float32; the update is then 0. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "cpu.h"
#include "convert.h"
#include "kernels.h"
#include "kron_plan.h"
#include "pages.h"
#include "schedule.h"

#define DAMPING 3.4526698e-4f /* sqrt(2^-23) */
/* probability that a step which updates the factors also makes their largest elements equal */
#define BALANCED 0.01
#define MOST_RMS 1.1f
/* Value of preconditioner_update_probability that selects the original implementation's default schedule, "anneal". 0
 * cannot select it, because a user's own schedule may fall to 0, to stop the updates of the factors. */
#define ANNEAL (-1.0)

/* end of the help of hyperparameters that newer updates of the factors alone have */
#define NEWER " (dQ other than EQ)"

/* values of mu_rounding */
enum { ROUNDED_EAGERLY, ROUNDED_UNDER_JIT };

static const pd_hyper kron_hypers[] = {
    [LEARNING_RATE] = { "learning_rate", PD_REAL, 0.0003, -INFINITY, INFINITY, NULL,
                        "learning rate, about a third of Adam's", true },
    [B1] = { "b1", PD_REAL, 0.9, 0, 1, NULL, "decay of the momentum, below 1; 0: no momentum and no memory for it",
             true },
    [WEIGHT_DECAY] = { "weight_decay", PD_REAL, 0, 0, INFINITY, NULL,
                       "decoupled weight decay, multiplied by the learning rate", true },
    [DECAY_MIN_NDIM] = { "weight_decay_min_ndim", PD_INT, 0, 0, 2147483647, NULL,
                         "parameters with fewer dimensions do not decay (upstream: weight_decay_mask)", false },
    [PROBABILITY] = { "preconditioner_update_probability", PD_REAL, ANNEAL, ANNEAL, 1, "anneal",
                      "p, above 0: factors are updated every ceil(1/p) steps; anneal: precond_update_prob_schedule(), "
                      "upstream's default",
                      true },
    [MAX_SIZE] = { "max_size_triangular", PD_INT, 8192, 0, 2147483647, NULL, "larger dimensions get a diagonal factor",
                   false },
    [MIN_NDIM] = { "min_ndim_triangular", PD_INT, 2, 0, 2147483647, NULL,
                   "parameters with fewer dimensions get only diagonal factors", false },
    [SAVE_MODE] = { "memory_save_mode", PD_CHOICE, KRON_SAVE_NONE, 0, 0, "none|one_diag|all_diag",
                    "dimensions that always get a diagonal factor: none, the largest one, or all", false },
    [FACTOR_RATE] = { "preconditioner_lr", PD_REAL, 0.1, 0, INFINITY, NULL,
                      "step size of the factors; 0.01 to 0.5 is reasonable", true },
    [INIT_SCALE] = { "preconditioner_init_scale", PD_REAL, 1, PD_KRON_AUTO, 1e30, "auto",
                     "initial scale of the preconditioner, the product of its factors, above 0; auto: from the "
                     "parameter's first gradient",
                     false },
    [MU_DTYPE] = { "mu_dtype", PD_CHOICE, 0, 0, 0, "float32|bfloat16", "storage type of the momentum", false },
    [MU_ROUNDING] = { "mu_rounding", PD_CHOICE, ROUNDED_EAGERLY, 0, 0, "eager|jit",
                      "how b1 times a bfloat16 momentum is rounded: eager: to bfloat16, as JAX does operation by "
                      "operation; jit: to float32, as under jax.jit",
                      false },
    [PRECOND_DTYPE] = { "precond_dtype", PD_CHOICE, 0, 0, 0, "float32|bfloat16", "storage type of the factors", false },
    [UPDATE_PRECISION] = { "precond_update_precision", PD_CHOICE, 1, 0, 0,
                           "bfloat16|tensorfloat32|float32|default|high|highest",
                           "accepted and ignored: products in an update of the factors are float32", false },
    [GRADS_PRECISION] = { "precond_grads_precision", PD_CHOICE, 2, 0, 0,
                          "bfloat16|tensorfloat32|float32|default|high|highest",
                          "accepted and ignored: products with the momentum are float32", false },
    [LAX_MAP] = { "lax_map_scanned_layers", PD_FLAG, 0, 0, 1, NULL,
                  "update the factors of scanned layers within the step, one block per thread at a time: less memory, "
                  "but no root_delay",
                  false },
    [LAX_MAP_BATCH] = { "lax_map_batch_size", PD_INT, 8, 1, 2147483647, NULL,
                        "accepted and ignored: with lax_map_scanned_layers each thread updates one block at a time",
                        false },
    [MERGE] = { "merge_small_dims", PD_FLAG, 1, 0, 1, NULL, "merge small dimensions", false },
    [MERGED_SIZE] = { "target_merged_dim_size", PD_INT, 4096, 1, 2147483647, NULL, "target size of merged dimensions",
                      false },
    [PARTITION] = { "partition_grads_into_blocks", PD_FLAG, 1, 0, 1, NULL,
                    "cut dimensions with triangular factors into blocks", false },
    [BLOCK_SIZE] = { "block_size", PD_INT, 256, 1, 2147483647, NULL, "side of a block", false },
    [SCANNED_AXES] = { "scanned_axes", PD_TEXT, 0, 0, 0, NULL,
                       "names of leading axes that count independent layers (upstream: scanned_layers); "
                       "\"layers,stack\" by default; none: no axis",
                       false },
    [SCALE_ONLY] = { "scale_by_kron_only", PD_FLAG, 0, 0, 1, NULL,
                     "subtract the preconditioned momentum from the weights, without learning rate and weight decay "
                     "(upstream's inner transformation adds it)",
                     false },
    [ROOT_DELAY] = { "root_delay", PD_INT, 0, -1, 1 << 30, "ready",
                     "steps from a momentum to the use of the factors updated with it, at most the steps between two "
                     "updates; ready: as soon as they are done, so results depend on timing",
                     false },
    [PAD_BLOCKS] = { "pad_blocks", PD_FLAG, 1, 0, 1, NULL,
                     "pad blocks with zeros to multiples of block_size, as upstream does; no: blocks keep their sizes",
                     false },
    [SKIP_ZERO] = { "skip_zero_updates", PD_FLAG, 0, 0, 1, NULL,
                    "do not update factors while the momentum is all zeros (upstream updates them, and they grow)",
                    true },
    [UPDATE_RULE] = { "dQ", PD_CHOICE, PD_KRON_EQ, 0, 0, "EQ|QUAD|QUAD4P|Q0.5EQ1.5|PRO4P|QEP|QEQ|EQ_psgd",
                      "how factors are updated; EQ: triangular factors, as distributed_kron; others (Q0.5EQ1.5 is PRO) "
                      "as psgd_torch, with its momentum, damping and clips; EQ_psgd: what it calls EQ",
                      false },
    [BETA_L] = { "betaL", PD_REAL, 0.9, 0, 1, NULL,
                 "decay of the smoothness number by which the step of a factor is divided" NEWER, true },
    [NOISE] = { "damping", PD_REAL, 1e-9, 0, INFINITY, NULL, "size of the noise to which factors are fitted" NEWER,
                true },
    [MAX_SKEW] = { "preconditioner_max_skew", PD_REAL, 1, 0, INFINITY, NULL,
                   "a dimension of n elements gets a diagonal factor if n * n is more than this times those of the "
                   "parameter" NEWER,
                   false },
    [WHITEN_GRAD] = { "whiten_grad", PD_FLAG, 1, 0, 1, NULL,
                      "fit the factors to the gradient; no: to the momentum" NEWER, false },
    [CLIP_RMS] = { "grad_clip_max_amps[0]", PD_REAL, 2, 0x1p-126, INFINITY, NULL,
                   "largest root mean square of an update" NEWER, true },
    [CLIP_ELEMENT] = { "grad_clip_max_amps[1]", PD_REAL, 10, 0x1p-126, INFINITY, NULL,
                       "largest magnitude of an element of an update" NEWER, true },
    { .name = NULL },
};

static double probability(const double *h, int64_t count)
{
    return h[PROBABILITY] == ANNEAL ? pd_schedule_anneal(count - 1) : h[PROBABILITY];
}

/* Returns the number of steps from one update of the factors to the next, if preconditioner_update_probability is p.
 * For the schedule "anneal" it returns the least such number, 1. */
static double interval_of(double p)
{
    return p == ANNEAL ? 1 : fmin(ceil((double)(1 / (float)p)), 0x1p53);
}

static bool is_probability(double p, bool scheduled)
{
    return p == ANNEAL || (p > 0 && p <= 1) || (p == 0 && scheduled);
}

static int kron_check(const pd_hypers *declared, const pd_hypers *now, pd_error *err)
{
    const double *h = now->value;

    if (h[B1] >= 1)
        return pd_fail(err, PD_INVALID_ARGUMENT, "b1 of kron must be at least 0 and below 1, got %g", h[B1]);
    if ((declared->value[B1] != 0) != (h[B1] != 0))
        return pd_fail(err, PD_INVALID_ARGUMENT,
                       "b1 of kron cannot change from %g to %g while the job runs: only between values above 0",
                       declared->value[B1], h[B1]);
    if (h[INIT_SCALE] <= 0 && h[INIT_SCALE] != PD_KRON_AUTO)
        return pd_fail(err, PD_INVALID_ARGUMENT, "preconditioner_init_scale of kron must be above 0, or auto, got %g",
                       h[INIT_SCALE]);
    if (!is_probability(h[PROBABILITY], (now->scheduled >> PROBABILITY & 1) != 0))
        return pd_fail(err, PD_INVALID_ARGUMENT,
                       "preconditioner_update_probability of kron must be above 0 and at most 1, or anneal, got %g",
                       h[PROBABILITY]);
    if (pd_kron_rule_fits_p((pd_kron_rule)h[UPDATE_RULE]) && h[PRECOND_DTYPE] != 0)
        return pd_fail(err, PD_INVALID_ARGUMENT,
                       "dQ=QUAD4P and PRO4P of kron need factors in float32: set precond_dtype=float32, or dQ=QUAD");
    if (h[ROOT_DELAY] > interval_of(h[PROBABILITY]))
        return pd_fail(err, PD_INVALID_ARGUMENT,
                       "root_delay of kron: expected at most %.0f, the steps between two updates of the factors "
                       "(preconditioner_update_probability), got %.0f",
                       interval_of(h[PROBABILITY]), h[ROOT_DELAY]);
    return PD_OK;
}

static const char *kron_warning(const pd_hypers *declared)
{
    return declared->value[SKIP_ZERO] != 0
               ? "skip_zero_updates: factors rest while a momentum is all zeros, unlike those of distributed_kron"
               : NULL;
}

enum { PHASE_MOMENTUM, PHASE_DECIDE, PHASE_PREPARE, PHASE_FACTORS, PHASE_PRECONDITION, PHASE_UPDATE };

/* The arguments of the functions that update the momentum of n elements. */
typedef struct momentum {
    /* X receives the momentum, corrected for its bias. mu is the momentum, which is updated in place; NULL: there is no
     * momentum, and X receives the gradient. */
    float *X, *mu;
    const float *gradient;
    int64_t n;
    float keep, gain, divisor; /* the momentum's constants b1, 1 - b1 and 1 - b1^t in step t */
    bool rounds_product;       /* whether the product of `keep` and mu is rounded to bfloat16 */
} momentum;

PD_CLONES(double, sum_of_sizes, (const float *x, int64_t n), (x, n))
{
    double lane[16] = { 0 }, sum = 0;
    int64_t i = 0;

    for (; i + 16 <= n; i += 16)
        for (int k = 0; k < 16; k++) lane[k] += (double)fabsf(x[i + k]);
    for (int k = 0; i < n; i++, k++) lane[k] += (double)fabsf(x[i]);
    for (int k = 0; k < 16; k++) sum += lane[k];
    return sum;
}

PD_CLONES(double, sum_of_fourth_powers, (const float *x, int64_t n), (x, n))
{
    double lane[16] = { 0 }, sum = 0;
    int64_t i = 0;

    for (; i + 16 <= n; i += 16)
        for (int k = 0; k < 16; k++) {
            double square = (double)x[i + k] * (double)x[i + k];
            lane[k] += square * square;
        }
    for (int k = 0; i < n; i++, k++) {
        double square = (double)x[i] * (double)x[i];
        lane[k] += square * square;
    }
    for (int k = 0; k < 16; k++) sum += lane[k];
    return sum;
}

/* Updates the momentum of n elements. Each caller passes `rounds` (the product with the old momentum is rounded to
 * bfloat16) as a constant, so the compiler makes a loop for each value. */
PD_INLINE void follow(const momentum *m, bool rounds)
{
    const float keep = m->keep, gain = m->gain, divisor = m->divisor;
    const float *restrict gradient = m->gradient;
    float *restrict X = m->X, *restrict mu = m->mu;

    for (int64_t i = 0; i < m->n; i++) {
        float kept = keep * mu[i];
        if (rounds) kept = pd_f32_from_bf16(pd_bf16_from_f32(kept));
        mu[i] = gain * gradient[i] + kept;
        X[i] = mu[i] / divisor;
    }
}

PD_CLONES(void, follow_plainly, (const momentum *m), (m))
{
    follow(m, false);
}
PD_CLONES(void, follow_rounded, (const momentum *m), (m))
{
    follow(m, true);
}

/* Updates the momentum, and fills X with the momentum corrected for its bias. Returns the sum of |X|. */
static double update_momentum(const momentum *m)
{
    if (m->mu == NULL)
        for (int64_t i = 0; i < m->n; i++) m->X[i] = m->gradient[i];
    else if (m->rounds_product)
        follow_rounded(m);
    else
        follow_plainly(m);
    return sum_of_sizes(m->X, m->n);
}

/* Returns how much of the old momentum stays in this step. The newer rules average all gradients evenly until that is
 * b1 of the old momentum, and need no correction. */
static double kept_of(const pd_unit *unit)
{
    const pd_kron_own *own = unit->plan->own;
    double b1 = unit->hyper[B1], before = (double)(unit->count - 1);

    return own->rule == PD_KRON_EQ ? b1 : fmin(before / (before + 1), b1);
}

static void follow_gradient(const pd_unit *unit)
{
    const pd_kron_own *own = unit->plan->own;
    const double b1 = kept_of(unit);
    float *mu = own->mu < 0 ? NULL : unit->slot[own->mu];
    bool bfloat16 = unit->hyper[MU_DTYPE] != 0;
    momentum m = {
        .X = unit->slot[own->x] + unit->first,
        .mu = mu == NULL ? NULL : mu + unit->first,
        .gradient = unit->gradient + unit->first,
        .n = unit->n,
        .keep = bfloat16 ? pd_f32_from_bf16(pd_bf16_from_f32((float)b1)) : (float)b1,
        .gain = (float)(1 - b1),
        .divisor = own->rule == PD_KRON_EQ ? (float)(1 - pow(b1, (double)unit->count)) : 1,
        .rounds_product = bfloat16 && unit->hyper[MU_ROUNDING] == ROUNDED_EAGERLY,
    };

    unit->partial[0] = update_momentum(&m);
    unit->partial[1] = unit->hyper[INIT_SCALE] == PD_KRON_AUTO ? sum_of_fourth_powers(m.gradient, m.n) : 0;
    if (own->fitted != own->x)
        memcpy(unit->slot[own->fitted] + unit->first, m.gradient, (size_t)unit->n * sizeof(float));
}

/* Returns a random number from 0 to 1 for this step, the same for all parameters of the job. It decides whether the
 * factors are balanced (their largest elements made equal). */
static double drawn(const pd_unit *unit)
{
    float uniform;

    if (unit->draws != NULL) return unit->draws->uniform;
    pd_random_uniform(unit->random_of_all, (uint64_t)unit->count, 0, &uniform, 1);
    return (double)uniform;
}

/* Returns the number of elements of all blocks of a parameter, including the zeros that pad the blocks. */
static double elements_of_blocks(const pd_plan *plan)
{
    const pd_kron_own *own = plan->own;

    return !own->pads ? (double)plan->elements : (double)plan->n_blocks * (double)own->probe;
}

static void decide(const pd_unit *unit)
{
    const pd_kron_own *own = unit->plan->own;
    float *decision = unit->slot[own->decision];
    double sum = unit->total[PHASE_MOMENTUM][0];
    bool update = pd_kron_counts(unit->slot[own->counter], probability(unit->hyper, unit->count));

    if (unit->hyper[SKIP_ZERO] != 0 && sum == 0) update = false;
    decision[DECIDED_UPDATE] = update;
    decision[DECIDED_BALANCE] = update && drawn(unit) <= BALANCED;
    decision[DECIDED_MEAN] = unit->plan->n_blocks == 0 ? 0 : (float)(sum / elements_of_blocks(unit->plan));
}

static bool kron_due(const pd_plan *plan, const double *h, int64_t count, float *const *slot)
{
    const pd_kron_own *own = plan->own;

    if (slot != NULL) return slot[own->decision][DECIDED_UPDATE] != 0;
    return count % (int64_t)interval_of(probability(h, count)) == 0;
}

static void find_factors(const pd_plan *plan, int64_t block, float *const *slot, float **Q)
{
    const pd_kron_own *own = plan->own;

    for (int d = 0; d < own->rank; d++) {
        int at = own->q + d;
        Q[d] = slot[at] + block * pd_slot_item_elements(&plan->slots[at]);
    }
}

/* Finds the smoothness numbers of a block's factors. EQ has none. */
static void find_numbers(const pd_plan *plan, int64_t block, float *const *slot, float **L)
{
    const pd_kron_own *own = plan->own;

    for (int d = 0; d < own->rank && own->rule != PD_KRON_EQ; d++) L[d] = slot[own->l + d] + block;
}

static bool is_bfloat16(const pd_plan *plan)
{
    const pd_kron_own *own = plan->own;

    return plan->slots[own->q].storage == PD_STORE_BF16;
}

/* Returns with which scale a parameter begins that has preconditioner_init_scale=auto: that of psgd_torch, which takes
 * the largest gradient of all parameters. Its eighth root of fourth powers is about 1 over the root of the gradient's
 * size, so that updates come to about 1. */
static double scale_of(const pd_unit *unit)
{
    double mean = unit->total[PHASE_MOMENTUM][1] / (double)unit->plan->elements;

    return pow(mean + pow(unit->hyper[NOISE], 4), -0.125);
}

/* Makes multiples of the identity of factors that are zero: no gradient but this one has reached them. A scale that is
 * not finite leaves them to the next gradient. */
static void begin_factors(const pd_unit *unit, const pd_kron_block *block, float *const *Q)
{
    const pd_kron_own *own = unit->plan->own;
    float fill = (float)pd_kron_fill(own->rule, scale_of(unit), block->rank);

    for (int d = 0; d < block->rank && isfinite(fill); d++) {
        int64_t step = block->diagonal[d] ? 1 : block->side[d] + 1;
        if (Q[d][0] != 0) continue;
        for (int64_t i = 0; i < block->side[d]; i++) Q[d][i * step] = fill;
    }
}

static void prepare_factors(const pd_unit *unit)
{
    const pd_kron_own *own = unit->plan->own;
    pd_kron_block block = pd_kron_block_of(unit->plan, unit->index);
    float *Q[PD_MAX_RANK];

    find_factors(unit->plan, unit->index, unit->slot, Q);
    if (unit->hyper[INIT_SCALE] == PD_KRON_AUTO) begin_factors(unit, &block, Q);
    if (unit->slot[own->decision][DECIDED_BALANCE] != 0 && own->rule == PD_KRON_EQ)
        pd_kron_balance(&block, Q, is_bfloat16(unit->plan));
}

/* The inputs from which an update of one block's factors is computed. */
typedef struct factor_update {
    const pd_plan *plan;
    const double *hyper;
    pd_random random;
    const pd_draws *draws;
    int64_t count, index;  /* number of the step, and index of the block */
    const float *decision; /* what the step has decided: an array indexed by DECIDED_... */
} factor_update;

static int64_t product(const int64_t *size, int rank)
{
    int64_t n = 1;

    for (int d = 0; d < rank; d++) n *= size[d];
    return n;
}

/* Draws V, the probe of one block: n normally distributed random numbers for the update of its factors. The number of
 * an element in the random stream is its place in the stacked array of all blocks' numbers. So the numbers do not
 * depend on the thread that draws them. */
static void draw_probe(const factor_update *u, float *V, int64_t n)
{
    const pd_kron_own *own = u->plan->own;
    int64_t first = u->index * own->normals;

    if (u->draws == NULL || u->draws->normal == NULL)
        pd_random_normal(u->random, (uint64_t)u->count, (uint64_t)first, V, n);
    else
        for (int64_t i = 0; i < n; i++) V[i] = u->draws->normal[first + i];
}

/* Returns H, the momentum of a block in its padded size. If the block has no padding, H is x, the momentum itself.
 * Otherwise x is copied into H, and zeros fill the rest. */
static float *spread(float *H, float *x, const pd_kron_block *block, int64_t n)
{
    pd_shape whole = { .rank = block->rank };
    pd_block box = { .start = { 0 } };

    if (product(block->size, block->rank) == n) return x;
    for (int64_t i = 0; i < n; i++) H[i] = 0;
    for (int d = 0; d < block->rank; d++) {
        whole.dim[d] = block->full[d];
        box.size[d] = block->size[d];
    }
    pd_block_scatter(H, x, &whole, &box);
    return H;
}

PD_CLONES(void, add_noise, (float *restrict H, const float *restrict V, float size, int64_t n), (H, V, size, n))
{
    for (int64_t i = 0; i < n; i++) H[i] += size * V[i];
}

/* Computes M, the multipliers by which an update changes the factors Q of a block. x is the block's momentum in
 * contiguous memory; it is overwritten. `memory` is scratch memory. */
static void find_multipliers(const factor_update *u, float *x, float *const *Q, float *const *M, float *memory)
{
    pd_kron_block block = pd_kron_block_of(u->plan, u->index);
    int64_t n = product(block.full, block.rank);
    float *V = memory, *H = spread(memory + pd_floats_padded(n), x, &block, n);

    draw_probe(u, V, n);
    add_noise(H, V, DAMPING * u->decision[DECIDED_MEAN], n);
    pd_kron_multipliers(&block, H, V, Q, (float)u->hyper[FACTOR_RATE], M, memory + 2 * pd_floats_padded(n));
}

PD_CLONES(void, add_damping, (float *restrict H, const float *restrict V, float size, int64_t n), (H, V, size, n))
{
    for (int64_t i = 0; i < n; i++) H[i] += (size + 0x1p-23f * fabsf(H[i])) * V[i];
}

/* Computes the new factors to[d] of a block and their smoothness numbers to_L[d]. H is what the factors are fitted to,
 * in contiguous memory; it is overwritten. `memory` is scratch memory. */
static void fit_factors(const factor_update *u, float *H, float *const *Q, float *const *L, float *const *to,
                        float *const *to_L, float *memory)
{
    const pd_kron_own *own = u->plan->own;
    pd_kron_block block = pd_kron_block_of(u->plan, u->index);
    int64_t n = product(block.size, block.rank), normals = pd_kron_fit_normals(&block, own->rule);
    pd_kron_fit fit = { .rule = own->rule,
                        .rate = (float)u->hyper[FACTOR_RATE],
                        .beta = (float)u->hyper[BETA_L],
                        .balances = u->decision[DECIDED_BALANCE] != 0,
                        .bfloat16 = u->hyper[PRECOND_DTYPE] != 0 };

    draw_probe(u, memory, normals);
    add_damping(H, memory, (float)u->hyper[NOISE], n);
    pd_kron_fit_factors(&block, &fit, H, memory, Q, L, to, to_L, memory + pd_floats_padded(normals));
}

/* Computes the update of a block's factors: multipliers, or, with a rule other than PD_KRON_EQ, new factors and then
 * new smoothness numbers. x is overwritten. */
static void compute_update(const factor_update *u, float *x, float *const *Q, float *const *L, float *const *to,
                           float *memory)
{
    const pd_kron_own *own = u->plan->own;

    if (own->rule == PD_KRON_EQ)
        find_multipliers(u, x, Q, to, memory);
    else
        fit_factors(u, x, Q, L, to, to + own->rank, memory);
}

/* Stores an update that compute_update has computed in the factors, and in the smoothness numbers. */
static void store_update(const pd_plan *plan, int64_t index, float *const *slot, float *const *from)
{
    const pd_kron_own *own = plan->own;
    pd_kron_block block = pd_kron_block_of(plan, index);
    float *Q[PD_MAX_RANK], *L[PD_MAX_RANK];

    find_factors(plan, index, slot, Q);
    find_numbers(plan, index, slot, L);
    if (own->rule == PD_KRON_EQ) {
        pd_kron_multiply(&block, Q, from, is_bfloat16(plan));
        return;
    }
    for (int d = 0; d < block.rank; d++) {
        memcpy(Q[d], from[d], (size_t)pd_kron_factor_floats(&block, d) * sizeof *Q[d]);
        *L[d] = *from[block.rank + d];
    }
}

static int kron_task(pd_task_view *task)
{
    const pd_kron_own *own = task->plan->own;
    pd_kron_block block = pd_kron_block_of(task->plan, task->spec->block);
    factor_update u = { .plan = task->plan,
                        .hyper = task->hyper,
                        .random = task->random,
                        .draws = task->draws,
                        .count = task->count,
                        .index = task->spec->block,
                        .decision = task->input[1] };
    float *memory = pd_pages_new((size_t)pd_kron_task_floats(own, &block) * sizeof *memory);

    if (memory == NULL) return PD_NO_MEMORY;
    compute_update(&u, task->input[0], task->input + 2, task->input + 2 + block.rank, task->output, memory);
    free(memory);
    return PD_OK;
}

static void kron_adopt(const pd_task_view *task, float *const *slot)
{
    store_update(task->plan, task->spec->block, slot, task->output);
}

/* Returns the size of result number i of an update: of a factor, or of a smoothness number. */
static int64_t result_floats(const pd_kron_block *block, int i)
{
    return i < block->rank ? pd_kron_factor_floats(block, i) : 1;
}

static void update_factors(const pd_unit *unit)
{
    const pd_kron_own *own = unit->plan->own;
    const pd_plan *plan = unit->plan;
    pd_kron_block block = pd_kron_block_of(plan, unit->index);
    factor_update u = { .plan = plan,
                        .hyper = unit->hyper,
                        .random = unit->random,
                        .draws = unit->draws,
                        .count = unit->count,
                        .index = unit->index,
                        .decision = unit->slot[own->decision] };
    float *Q[PD_MAX_RANK], *L[PD_MAX_RANK], *M[2 * PD_MAX_RANK],
        *x = unit->scratch, *at = x + pd_floats_padded(product(block.size, block.rank));
    int results = own->rule == PD_KRON_EQ ? block.rank : 2 * block.rank;
    bool finite = true;

    if (!kron_due(plan, unit->hyper, unit->count, unit->slot)) return;
    for (int i = 0; i < results; at += pd_floats_padded(result_floats(&block, i++))) M[i] = at;
    find_factors(plan, unit->index, unit->slot, Q);
    find_numbers(plan, unit->index, unit->slot, L);
    pd_block_gather(x, unit->slot[own->fitted], &plan->shape, unit->block);
    compute_update(&u, x, Q, L, M, at);
    for (int i = 0; i < results; i++) finite = finite && pd_all_finite(M[i], PD_F32, result_floats(&block, i));
    if (finite) store_update(plan, unit->index, unit->slot, M);
}

static bool updates_by_tasks(const pd_plan *plan, const double *h, int64_t count)
{
    const pd_kron_own *own = plan->own;

    (void)h, (void)count;
    return !own->in_step;
}

static void precondition(const pd_unit *unit)
{
    const pd_kron_own *own = unit->plan->own;
    pd_kron_block block = pd_kron_block_of(unit->plan, unit->index);
    pd_kron_place place = pd_kron_place_of(unit->plan, unit->index);
    float *layer = unit->slot[own->x] + place.first, *Q[PD_MAX_RANK];
    pd_block_view view = pd_block_look(layer, &place.shape, &place.box, unit->scratch);
    float *other =
        own->other < 0 || view.at == unit->scratch ? NULL : unit->slot[own->other] + (view.at - unit->slot[own->x]);

    find_factors(unit->plan, unit->index, unit->slot, Q);
    if (own->rule == PD_KRON_EQ)
        pd_kron_precondition(&block, &view, Q, other);
    else
        pd_kron_whiten(&block, own->rule, &view, Q, unit->scratch + pd_block_view_scratch(&place.shape, &place.box));
    unit->partial[0] = pd_block_view_sum(&view, pd_sum_squares);
    if (view.at == unit->scratch) pd_block_scatter(layer, view.at, &place.shape, &place.box);
}

/* Returns the number by which the update of the weights is divided, so that its root mean square is at most `most`. The
 * number is at least 1. It is infinite if the sum of squares exceeds float32, as in the original implementation. */
static float clip_of(const pd_unit *unit, float most)
{
    float excess = sqrtf((float)unit->total[PHASE_PRECONDITION][0] / (float)unit->plan->elements) / most;

    /* `excess` is the root mean square divided by its limit. If it is NaN, the result is NaN and not 1. */
    return excess < 1 ? 1 : excess;
}

/* The arrays and constants with which a step moves n weights: after = before + rate (u / clip + decay before), where u
 * is the update, `clip` the number of clip_of, `decay` the factor of weight decay, and `rate` minus the learning rate
 * (-1 with scale_by_kron_only). u / clip is at most `most` in magnitude. `after` may be the same memory as `before` or
 * `u`. `update`, unless NULL, receives after - before. */
typedef struct weight_update {
    float *after, *update;
    const float *before, *u;
    int64_t n;
    float clip, most, decay, rate;
} weight_update;

/* Computes new weights from the update. Each caller passes `updates` (whether the change of the weights is stored as
 * well) as a constant, so the compiler makes a loop for each value. */
PD_INLINE void update_pass(const weight_update *s, bool updates)
{
    const float clip = s->clip, most = s->most, decay = s->decay, rate = s->rate;
    const float *before = s->before, *u = s->u;
    float *after = s->after, *update = s->update;

#pragma GCC ivdep /* `after` (new weights) is `before`, `u`, or disjoint from both, so the loop may be vectorized */
    for (int64_t i = 0; i < s->n; i++) {
        float w = before[i], v = u[i] / clip,
              kept = v > most    ? most
                     : v < -most ? -most
                                 : v,
              change = rate * (kept + decay * w);
        if (updates) update[i] = change;
        after[i] = w + change;
    }
}

PD_CLONES(void, update_alone, (const weight_update *s), (s))
{
    update_pass(s, false);
}
PD_CLONES(void, update_and_report, (const weight_update *s), (s))
{
    update_pass(s, true);
}

static void update_elements(const weight_update *s)
{
    if (s->update != NULL)
        update_and_report(s);
    else
        update_alone(s);
}

static void update_weights(const pd_unit *unit)
{
    const pd_kron_own *own = unit->plan->own;
    const double *h = unit->hyper;
    bool scales_only = h[SCALE_ONLY] != 0, eq = own->rule == PD_KRON_EQ;
    weight_update u = {
        .after = unit->after + unit->first,
        .update = unit->update == NULL ? NULL : unit->update + unit->first,
        .before = unit->before + unit->first,
        .u = unit->slot[own->x] + unit->first,
        .n = unit->n,
        .clip = clip_of(unit, eq ? MOST_RMS : (float)h[CLIP_RMS]),
        .most = eq ? INFINITY : (float)h[CLIP_ELEMENT],
        .decay = scales_only || !own->decays ? 0 : (float)h[WEIGHT_DECAY],
        .rate = scales_only ? -1 : -(float)h[LEARNING_RATE],
    };

    update_elements(&u);
}

static int64_t kron_normals(const pd_plan *plan)
{
    const pd_kron_own *own = plan->own;

    return (int64_t)plan->n_blocks * own->normals;
}

static pd_dtype kron_update_dtype(const double *h)
{
    (void)h;
    return PD_F32;
}

const pd_optimizer_ops pd_kron = {
    .name    = "kron",
    .about   = "PSGD Kron (distributed_kron)",
    .hypers  = kron_hypers,
    .check   = kron_check,
    .words_ranges = true,
    .warning = kron_warning,
    .plan    = pd_kron_plan,
    .gradient_most = PD_PRODUCT_MOST,
    .phases  = {
        [PHASE_MOMENTUM]     = { .name = "momentum", .kind = PD_RANGES, .run = follow_gradient,
                                 .fold = { PD_FOLD_SUM, PD_FOLD_SUM } },
        [PHASE_DECIDE]       = { .name = "decide", .kind = PD_WHOLE, .run = decide },
        [PHASE_PREPARE]      = { .name = "prepare factors", .kind = PD_BLOCKS, .run = prepare_factors },
        [PHASE_FACTORS]      = { .name = "update factors", .kind = PD_BLOCKS, .run = update_factors,
                                 .skip = updates_by_tasks },
        [PHASE_PRECONDITION] = { .name = "precondition", .kind = PD_BLOCKS, .run = precondition,
                                 .fold = { PD_FOLD_SUM } },
        [PHASE_UPDATE]       = { .name = "update", .kind = PD_RANGES, .run = update_weights },
    },
    .own_bytes = sizeof(pd_kron_own),
    .capture_phase = PHASE_PRECONDITION, .adopt_phase = PHASE_PRECONDITION,
    .due     = kron_due,
    .task    = kron_task,
    .adopt   = kron_adopt,
    .normals = kron_normals,
    .update_dtype = kron_update_dtype,
};
