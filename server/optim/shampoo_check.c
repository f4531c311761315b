/* shampoo_check.c - checks the hyperparameters of shampoo. An error that Meta's implementation also raises has the same
 * wording as there, so that users find Meta's documentation when they search for it. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "shampoo_check.h"
#include "shampoo_plan.h"

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

static int check_rates(const double *h, pd_error *err)
{
    if (!(h[LR] >= 0)) return refuse(err, "Invalid learning rate: ", h[LR], ". Must be >= 0.0.");
    if (!(h[BETA1] >= 0 && h[BETA1] < 1))
        return refuse(err, "Invalid beta parameter at index 0: ", h[BETA1], ". Must be in [0.0, 1.0).");
    if (!(h[BETA2] > 0 && h[BETA2] <= 1))
        return refuse(err, "Invalid beta parameter at index 1: ", h[BETA2], ". Must be in (0.0, 1.0].");
    if (h[BETA3] != -1 && !(h[BETA3] >= 0 && h[BETA3] < 1))
        return refuse(err, "Invalid beta3 parameter: ", h[BETA3], ". Must be in [0.0, 1.0).");
    if (!(h[EPSILON] > 0)) return refuse(err, "Invalid epsilon value: ", h[EPSILON], ". Must be > 0.0.");
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
    bool averages = h[GRAFTING] == GRAFT_RMSPROP || h[GRAFTING] == GRAFT_ADAM;

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
                       "root_delay of shampoo must be at most precondition_frequency: it is %.0f, and roots are "
                       "computed every %.0f steps",
                       h[ROOT_DELAY], h[FREQUENCY]);
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

int pd_shampoo_check(const pd_hypers *declared, const pd_hypers *now, pd_error *err)
{
    const double *h = now->value;
    int rc = check_rates(h, err);

    if (rc == PD_OK) rc = check_preconditioning(h, err);
    if (rc == PD_OK) rc = check_grafting(h, err);
    if (rc == PD_OK) rc = check_execution(h, err);
    return rc == PD_OK ? check_state(declared->value, h, err) : rc;
}

const char *pd_shampoo_warning(const pd_hypers *declared)
{
    const double *h = declared->value;
    bool overrides = false;

    for (int i = 0; i < ROOT_ORDERS; i++) overrides |= h[ROOT_OVERRIDE + i] > 0;
    if (overrides && h[EXPONENT_MULTIPLIER] != 1)
        return "inv_root_override and exponent_multiplier both change the exponent of the inverse roots; upstream "
               "advises one of them";
    if (h[NESTEROV] != 0 && h[MOMENTUM] == 0) return "use_nesterov has no effect without momentum";
    return NULL;
}
