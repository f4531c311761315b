/* shampoo_check.c - checks the hyperparameters of the optimizer shampoo. What Meta's program of 2024 refuses is refused
 * in its words. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "shampoo_step.h"

/* least share of averaged weights in those at which gradients are taken: the readout divides by it */
#define LEAST_COEFF 1e-6

enum { TEXT = 40 };

/* Writes a number as Python prints it, for instance 0.0, 1.0001 or 1e-08. Returns `text`. */
static const char *python(double value, char *text)
{
    double size = fabs(value);
    bool plain = value == 0 || (size >= 1e-4 && size < 1e16);

    for (int digits = plain ? 1 : 0; digits < 18; digits++) {
        snprintf(text, TEXT, plain ? "%.*f" : "%.*e", digits, value);
        if (strtod(text, NULL) == value) break;
    }
    return text;
}

/* Fills an error with a text that contains one number. Returns PD_INVALID_ARGUMENT. */
static int refuse(pd_error *err, const char *before, double value, const char *after)
{
    char text[TEXT];
    return pd_fail(err, PD_INVALID_ARGUMENT, "%s%s%s", before, python(value, text), after);
}

static int refuse_whole(pd_error *err, const char *before, double value, const char *after)
{
    return pd_fail(err, PD_INVALID_ARGUMENT, "%s%.0f%s", before, value, after);
}

/* Checks the ranges of rates and decay factors. An error that Meta's implementation also raises has the same text as
 * there, so that users find Meta's documentation when they search for it. */
static int check_rates(const double *h, pd_error *err)
{
    if (!(h[LR] >= 0)) return refuse(err, "Invalid learning rate: ", h[LR], ". Must be >= 0.0.");
    if (!(h[BETA1] >= 0 && h[BETA1] < 1))
        return refuse(err, "Invalid beta parameter at index 0: ", h[BETA1], ". Must be in [0.0, 1.0).");
    if (!((h[BETA2] > 0 || (h[BETA2] == 0 && h[SEMANTICS] == RELEASE_2026)) && h[BETA2] <= 1))
        return refuse(err, "Invalid beta parameter at index 1: ", h[BETA2],
                      h[SEMANTICS] == RELEASE_2026 ? ". Must be in [0.0, 1.0]." : ". Must be in (0.0, 1.0].");
    if (h[BETA3] != -1 && !(h[BETA3] >= 0 && h[BETA3] < 1))
        return refuse(err, "Invalid beta3 parameter: ", h[BETA3], ". Must be in [0.0, 1.0).");
    if (h[DEFICIENT] == PSEUDO_INVERSE && h[EPSILON] != 0)
        return refuse(err, "Invalid epsilon value: ", h[EPSILON], ". Must be == 0.0 when PseudoInverse is used.");
    if (h[DEFICIENT] != PSEUDO_INVERSE && !(h[EPSILON] > 0))
        return refuse(err, "Invalid epsilon value: ", h[EPSILON], ". Must be > 0.0.");
    if (!(h[MOMENTUM] >= 0 && h[MOMENTUM] < 1))
        return refuse(err, "Invalid momentum parameter: ", h[MOMENTUM], ". Must be [0.0, 1.0).");
    if (!(h[DAMPENING] >= 0 && h[DAMPENING] < 1))
        return refuse(err, "Invalid dampening parameter: ", h[DAMPENING], ". Must be [0.0, 1.0).");
    if (!(h[WEIGHT_DECAY] >= 0))
        return refuse(err, "Invalid weight_decay value: ", h[WEIGHT_DECAY], ". Must be >= 0.0.");
    return PD_OK;
}

static int check_grafting(const double *h, pd_error *err)
{
    int graft = pd_shampoo_graft(h);
    bool averages = graft == GRAFT_RMSPROP || graft == GRAFT_ADAM;

    if (averages && isfinite(h[GRAFTING_BETA2]) && !(h[GRAFTING_BETA2] > 0 && h[GRAFTING_BETA2] <= 1))
        return refuse(err, "Invalid grafting beta2 parameter: ", h[GRAFTING_BETA2], ". Must be in (0.0, 1.0].");
    if (pd_shampoo_graft_has_moment(h) && isfinite(h[GRAFTING_EPSILON]) && !(h[GRAFTING_EPSILON] > 0))
        return refuse(err, "Invalid epsilon value: ", h[GRAFTING_EPSILON], ". Must be > 0.0.");
    return PD_OK;
}

/* Fills the error about a negative entry of the hyperparameter inv_root_override. The text shows one number if all
 * entries are equal, otherwise the list as given. */
static int refuse_override(const double *override, pd_error *err)
{
    char list[256] = "";
    int n = ROOT_ORDERS, used = 0, same = 1;

    while (same < ROOT_ORDERS && override[same] == override[0]) same++;
    if (same == ROOT_ORDERS) return refuse_whole(err, "Invalid exponent override: ", override[0], ". Must be >= 0.");
    while (override[n - 1] == 0) n--;
    for (int i = 0; i < n; i++)
        used += snprintf(list + used, sizeof list - (size_t)used, "%s%.0f", i > 0 ? ", " : "", override[i]);
    return pd_fail(err, PD_INVALID_ARGUMENT, "Invalid exponent override list: [%s]. All values must be >= 0.", list);
}

static int check_preconditioning(const double *h, pd_error *err)
{
    if (h[MAX_DIM] < 1)
        return refuse_whole(err, "Invalid max preconditioner dimension: ", h[MAX_DIM], ". Must be >= 1.");
    if (h[FREQUENCY] < 1) return refuse_whole(err, "Invalid precondition frequency: ", h[FREQUENCY], ". Must be >= 1.");
    if (h[START_STEP] < -1)
        return refuse_whole(err, "Invalid start preconditioning step: ", h[START_STEP], ". Must be >= -1.");
    if (h[START_STEP] >= 0 && h[START_STEP] < h[FREQUENCY])
        return pd_fail(err, PD_INVALID_ARGUMENT,
                       "Invalid start_preconditioning_step value: %.0f. Must be >= precondition_frequency=%.0f.",
                       h[START_STEP], h[FREQUENCY]);
    for (int i = 0; i < ROOT_ORDERS; i++)
        if (h[ROOT_OVERRIDE + i] < 0) return refuse_override(h + ROOT_OVERRIDE, err);
    return PD_OK;
}

static bool has_precision(const double *h)
{
    bool given = h[PRECISION] != 0;

    for (int i = FACTOR_DTYPE; i <= COMPUTATION_DTYPE; i++) given |= h[i] != STORE_FLOAT32;
    return given;
}

static int check_execution(const double *h, pd_error *err)
{
    if (h[PRECONDITIONER_DTYPE] != OLD_NONE && has_precision(h))
        return pd_fail(err, PD_INVALID_ARGUMENT,
                       "Both preconditioner_dtype and precision_config are provided. "
                       "Please use only precision_config as preconditioner_dtype is deprecated.");
    if (h[PYTORCH_COMPILE] != 0)
        return pd_fail(err, PD_INVALID_ARGUMENT,
                       "Backend does NOT support Pytorch 2.0 compile. Switch to use_pytorch_compile=False.");
    if (h[TRAINERS] != -1 && h[TRAINERS] < 1)
        return refuse_whole(err, "Invalid number of trainers per group: ", h[TRAINERS],
                            ". Must be at least 1 or set to -1.");
    if ((h[ROOT_METHOD] == ROOT_NEWTON || h[ROOT_METHOD] == ROOT_HIGHER_ORDER) && h[EXPONENT_MULTIPLIER] != 1)
        return refuse(err,
                      "exponent_multiplier of shampoo must be 1 with this root_inverse_method, which computes only "
                      "plain roots: got ",
                      h[EXPONENT_MULTIPLIER], "; use eigen or tracked");
    if (h[ROOT_DELAY] > h[FREQUENCY])
        return pd_fail(err, PD_INVALID_ARGUMENT,
                       "root_delay of shampoo: expected at most precondition_frequency, %.0f, got %.0f", h[FREQUENCY],
                       h[ROOT_DELAY]);
    return PD_OK;
}

/* Refuses a step in which beta1 or momentum changes between 0 and another value: the optimizer state has a tensor for
 * each of them only if it was not 0 when the parameter was declared. */
static int check_state(const double *declared, const double *h, pd_error *err)
{
    static const struct {
        int index;
        const char *name;
    } all[] = { { BETA1, "betas[0]" }, { MOMENTUM, "momentum" } };

    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++)
        if ((declared[all[i].index] != 0) != (h[all[i].index] != 0))
            return pd_fail(err, PD_INVALID_ARGUMENT,
                           "shampoo: %s cannot change from %g to %g while the job runs: only between values above 0",
                           all[i].name, declared[all[i].index], h[all[i].index]);
    return PD_OK;
}

static int refuse_key(pd_error *err, const char *key, const char *why)
{
    return pd_fail(err, PD_INVALID_ARGUMENT, "%s of shampoo %s", key, why);
}

/* Refuses what the chosen release does not have. */
static int check_release(const double *h, pd_error *err)
{
    static const char newer[] = "is of the release of 2026: set semantics=2026, which is another algorithm",
                      older[] = "is not of the release of 2026: leave it out, or set semantics=2024";

    if (h[SEMANTICS] == RELEASE_2024) {
        if (h[PRECONDITIONER] != PRECONDITION_PLAIN && h[PRECONDITIONER] != PRECONDITION_KL)
            return refuse_key(err, "this preconditioner_config", newer);
        if (h[EXPONENTS] != 0) return refuse_key(err, "inverse_exponent_override", newer);
        if (h[IGNORED_DIMS] != 0) return refuse_key(err, "ignored_basis_change_dims", newer);
        if (h[DROP_WEIGHT] != 0) return refuse_key(err, "drop_weighting_factor_on_gsquare", newer);
        if (h[DECAY_TYPE] != DECAY_DEFAULT) return refuse_key(err, "weight_decay_type", newer);
        if (h[DEFICIENT] != PERTURB_BEFORE) return refuse_key(err, "rank_deficient_stability_config", newer);
        if (h[TARGET_DIMS] != 1) return refuse_key(err, "target_parameter_dimensionality", newer);
        if (h[ROOT_METHOD] == ROOT_QR) return refuse_key(err, "root_inverse_method qr", newer);
        if (pd_shampoo_averages(h)) return refuse_key(err, "iterate_averaging_config", newer);
        return PD_OK;
    }
    for (int i = 0; i < ROOT_ORDERS; i++)
        if (h[ROOT_OVERRIDE + i] != 0)
            return refuse_key(err, "inv_root_override",
                              "is not of the release of 2026: set inverse_exponent_override, whose numbers are 1/r");
    if (h[EXPONENT_MULTIPLIER] != 1) return refuse_key(err, "exponent_multiplier", older);
    return h[PRECONDITIONER_DTYPE] != OLD_NONE ? refuse_key(err, "preconditioner_dtype", older) : PD_OK;
}

/* Checks what the classes of 2026 can be combined with. */
static int check_class(const double *h, pd_error *err)
{
    bool bases = h[PRECONDITIONER] == PRECONDITION_PLAIN_BASES || h[PRECONDITIONER] == PRECONDITION_KL_BASES,
         decomposes = h[ROOT_METHOD] == ROOT_EIGEN || h[ROOT_METHOD] == ROOT_QR;

    if (h[ROOT_METHOD] == ROOT_QR && !bases && !pd_shampoo_is_corrected(h))
        return refuse_key(err, "root_inverse_method qr",
                          "needs a preconditioner_config with eigenvectors: Eigendecomposed... or "
                          "EigenvalueCorrectedShampoo");
    if ((bases || pd_shampoo_is_corrected(h)) && !decomposes)
        return refuse_key(err, "root_inverse_method", "must be eigen or qr with this preconditioner_config");
    if (h[DEFICIENT] == PSEUDO_INVERSE && (!decomposes || pd_shampoo_is_corrected(h)))
        return refuse_key(err, "rank_deficient_stability_config",
                          "PseudoInverse needs roots by root_inverse_method=eigen or qr");
    if (h[IGNORED_DIMS] != 0 && !pd_shampoo_is_corrected(h))
        return refuse_key(err, "ignored_basis_change_dims",
                          "needs preconditioner_config=EigenvalueCorrectedShampoo; elsewhere an exponent of 0 leaves a "
                          "dimension out");
    if (h[PRECONDITIONER] >= PRECONDITION_SGD && h[GRAFTING] != GRAFT_NONE)
        return refuse_key(err, "grafting_config",
                          "must be none with this preconditioner_config, which takes grafting_config.beta2 and "
                          "grafting_config.epsilon itself");
    return PD_OK;
}

/* Checks what averages of iterates can be combined with. */
static int check_averages(const double *h, pd_error *err)
{
    if (!pd_shampoo_averages(h)) return PD_OK;
    if (h[TRAIN_COEFF] < LEAST_COEFF)
        return refuse(err, "iterate_averaging_config.train_interp_coeff of shampoo: expected 1e-6 to 1, or none, got ",
                      h[TRAIN_COEFF], "");
    if (h[EVAL_COEFF] < 0 && h[EVAL_COEFF] != -1)
        return refuse(err,
                      "iterate_averaging_config.eval_interp_coeff of shampoo: expected 0 to 1, or schedule_free, got ",
                      h[EVAL_COEFF], "");
    if (h[MOMENTUM] != 0) return refuse_key(err, "momentum", "must be 0 with averages of iterates, which replace it");
    if (h[HYPERBALL] != 0) return refuse_key(err, "hyperball", "cannot be combined with averages of iterates");
    if (h[COMMUNICATE_PARAMS] != 0 || h[COMMUNICATION_DTYPE] == SEND_FLOAT16 || h[COMMUNICATION_DTYPE] == SEND_BFLOAT16)
        return refuse_key(err, "communication_dtype", "must be FP32 with averages of iterates");
    return PD_OK;
}

/* Checks that decay has a peak rate. A schedule may begin with a rate near 0, of which nothing can be a share. */
static int check_peak(const pd_hypers *declared, pd_error *err)
{
    const double *h = declared->value;
    bool changes = declared->scheduled >> LR & 1;

    if ((h[DECAY_TYPE] != DECAY_CORRECTED && h[DECAY_TYPE] != DECAY_INDEPENDENT) || h[PEAK_LR] > 0) return PD_OK;
    if (!changes && h[LR] > 0) return PD_OK;
    return refuse_key(err, "peak_lr",
                      changes ? "must be given where lr has a schedule and decay depends on its peak"
                              : "must be given where lr is 0 and decay depends on its peak");
}

/* Checks the texts among the hyperparameters. */
static int check_texts(const pd_hypers *declared, pd_error *err)
{
    const char *exponents = pd_hypers_given_text(declared, EXPONENTS);
    double exponent[ROOT_ORDERS][PD_MAX_RANK];
    unsigned ignored[ROOT_ORDERS];
    int rc = pd_shampoo_read_exponents(exponents, exponent, err);

    for (int order = 0; rc == PD_OK && pd_shampoo_is_corrected(declared->value) && order < ROOT_ORDERS; order++)
        for (int d = 1; d < order; d++)
            if (exponent[order][d] != exponent[order][0] && !isnan(exponent[order][d]))
                return refuse_key(err, "inverse_exponent_override",
                                  "takes one exponent for each number of dimensions with EigenvalueCorrectedShampoo");
    return rc == PD_OK ? pd_shampoo_read_ignored(pd_hypers_given_text(declared, IGNORED_DIMS), ignored, err) : rc;
}

int pd_shampoo_check(const pd_hypers *declared, const pd_hypers *now, pd_error *err)
{
    const double *h = now->value;
    int rc = check_rates(h, err);

    if (rc == PD_OK) rc = check_preconditioning(h, err);
    if (rc == PD_OK) rc = check_grafting(h, err);
    if (rc == PD_OK) rc = check_execution(h, err);
    if (rc == PD_OK) rc = check_release(h, err);
    if (rc == PD_OK) rc = check_class(h, err);
    if (rc == PD_OK) rc = check_averages(h, err);
    /* what is checked of the declared values alone need not be checked again in every step */
    if (rc == PD_OK && now == declared) rc = check_peak(declared, err);
    if (rc == PD_OK && now == declared) rc = check_texts(declared, err);
    return rc == PD_OK ? check_state(declared->value, h, err) : rc;
}

/* Returns whether matrices are multiplied by inverse square roots. */
static bool takes_square_roots(const pd_hypers *declared)
{
    double exponent[ROOT_ORDERS][PD_MAX_RANK];

    if (declared->value[SEMANTICS] == RELEASE_2024) return declared->value[ROOT_OVERRIDE + 2] == 2;
    return pd_shampoo_read_exponents(pd_hypers_given_text(declared, EXPONENTS), exponent, NULL) == PD_OK &&
           exponent[2][0] == 0.5 && exponent[2][1] == 0.5;
}

const char *pd_shampoo_warning(const pd_hypers *declared)
{
    const double *h = declared->value;
    bool overrides = false;

    for (int i = 0; i < ROOT_ORDERS; i++) overrides |= h[ROOT_OVERRIDE + i] > 0;
    if (overrides && h[EXPONENT_MULTIPLIER] != 1)
        return "inv_root_override and exponent_multiplier both change the exponent of the inverse roots; upstream "
               "advises one of them";
    if (pd_shampoo_is_kl(h) && h[NORMALIZE] == 0 && h[TRACE_EXPONENT] == 0 && takes_square_roots(declared))
        return "KL-Shampoo with the exponent 1/2 for matrices: one factor of a block that is not square grows without "
               "end, "
               "and the other shrinks until epsilon stops it; set preconditioner_config.normalize=yes";
    if (h[NESTEROV] != 0 && h[MOMENTUM] == 0) return "use_nesterov has no effect without momentum";
    return NULL;
}
