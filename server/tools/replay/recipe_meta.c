/* recipe_meta.c - reads the hyperparameters of a run of Meta's Shampoo of 2026, whose configuration consists of objects
 * with the names of upstream's classes, such as {"type": "AdamPreconditionerConfig", "beta2": 0.95}. */
#include "recipe_meta.h"

#include <string.h>

#include "recipe_values.h"

/* Sets a hyperparameter to the name of a class without what follows the word `end`: "Adam" for
 * AdamPreconditionerConfig. */
static int set_class(pd_hypers *hypers, const char *name, const json_t *object, const char *end, pd_error *err)
{
    const char *type = json_string_value(json_object_get(object, "type")), *rest = NULL;
    char word[64];

    if (type != NULL) rest = strstr(type, end);
    if (rest == NULL || (size_t)(rest - type) >= sizeof word)
        return pd_fail(err, PD_INVALID_ARGUMENT, "config: %.64s has no type that ends in %s", name, end);
    snprintf(word, sizeof word, "%.*s", (int)(rest - type), type);
    return pd_hypers_set(hypers, name, word, err);
}

/* Writes numbers, lists and objects of them as text for pd_pairs_read: [1:0.3,2:[0:0.4]] for
 * {"1": 0.3, "2": {"0": 0.4}}. */
static void print_nested(FILE *out, const json_t *value)
{
    const char *key, *before = "[";
    json_t *member;
    size_t i;

    if (json_is_number(value)) fprintf(out, "%.17g", json_number_value(value));
    if (!json_is_object(value) && !json_is_array(value)) return;
    json_object_foreach((json_t *)value, key, member)
    {
        fprintf(out, "%s%s:", before, key);
        print_nested(out, member);
        before = ",";
    }
    json_array_foreach(value, i, member)
    {
        fputs(before, out);
        print_nested(out, member);
        before = ",";
    }
    fputs(*before == '[' ? "[]" : "]", out);
}

/* Sets what becomes of matrices without full rank. */
static int set_stability(pd_hypers *hypers, const json_t *object, pd_error *err)
{
    static const char name[] = "rank_deficient_stability_config";
    json_t *members = json_copy((json_t *)object);
    int rc;

    if (members == NULL) return pd_fail(err, PD_NO_MEMORY, "out of memory");
    if (json_is_false(json_object_get(members, "perturb_before_computation")))
        rc = pd_hypers_set(hypers, name, "PerturbationAfter", err);
    else
        rc = set_class(hypers, name, object, "Config", err);
    json_object_del(members, "type");
    json_object_del(members, "perturb_before_computation");
    if (rc == PD_OK && json_is_null(json_object_get(members, "rank_rtol")))
        rc = pd_hypers_set(hypers, "rank_deficient_stability_config.rank_rtol", "default", err);
    if (rc == PD_OK) rc = pd_recipe_set_members(hypers, name, members, err);
    json_decref(members);
    return rc;
}

/* Sets the method that computes roots and bases. */
static int set_computation(pd_hypers *hypers, const char *key, const json_t *value, pd_error *err)
{
    static const char *const types[][2] = { { "EigenConfig", "eigen" },
                                            { "EighEigendecompositionConfig", "eigen" },
                                            { "QREigendecompositionConfig", "qr" },
                                            { "CoupledNewtonConfig", "newton" },
                                            { "CoupledHigherOrderConfig", "higher_order" } };
    const char *type = json_string_value(value);

    if (strcmp(key, "tolerance") == 0) return pd_recipe_set_value(hypers, "root_inverse_tolerance", value, err);
    if (strcmp(key, "max_iterations") == 0)
        return pd_recipe_set_value(hypers, "root_inverse_max_iterations", value, err);
    if (strcmp(key, "order") == 0) return pd_recipe_set_value(hypers, "root_inverse_order", value, err);
    if (strcmp(key, "rank_deficient_stability_config") == 0) return set_stability(hypers, value, err);
    for (size_t i = 0; strcmp(key, "type") == 0 && type != NULL && i < sizeof types / sizeof *types; i++)
        if (strcmp(type, types[i][0]) == 0) return pd_hypers_set(hypers, "root_inverse_method", types[i][1], err);
    return pd_fail(err, PD_UNIMPLEMENTED, "amortized_computation_config: %.64s is not implemented",
                   strcmp(key, "type") == 0 && type != NULL ? type : key);
}

static int set_each(pd_hypers *hypers, const json_t *object,
                    int (*set)(pd_hypers *hypers, const char *key, const json_t *value, pd_error *err), pd_error *err)
{
    const char *key;
    json_t *value;
    int rc = PD_OK;

    json_object_foreach((json_t *)object, key, value) if (rc == PD_OK && !json_is_null(value)) rc =
        set(hypers, key, value, err);
    return rc;
}

/* Sets what a key of preconditioner_config stands for. How factors are packed changes no number. The exponent of trace
 * scaling has no effect without use_trace_scaling; 0.5 is upstream's default. */
static int set_of_preconditioner(pd_hypers *hypers, const char *key, const json_t *value, pd_error *err)
{
    static const char exponent[] = "preconditioner_config.trace_scaling_exponent";
    bool trace = strcmp(key, "use_trace_scaling") == 0;

    if (strcmp(key, "type") == 0 || strcmp(key, "use_symmetric_packing") == 0 ||
        strcmp(key, "trace_scaling_exponent") == 0)
        return PD_OK;
    if (trace && json_is_true(value)) return pd_hypers_set(hypers, exponent, "0.5", err);
    if (trace) return PD_OK;
    if (strcmp(key, "amortized_computation_config") == 0) return set_each(hypers, value, set_computation, err);
    if (strcmp(key, "inverse_exponent_override") == 0 || strcmp(key, "ignored_basis_change_dims") == 0)
        return pd_recipe_set_printed(hypers, key, value, print_nested, err);
    return pd_recipe_set_value(hypers, key, value, err);
}

static int set_preconditioner(pd_hypers *hypers, const json_t *object, pd_error *err)
{
    const json_t *exponent = json_object_get(object, "trace_scaling_exponent");
    int rc = set_class(hypers, "preconditioner_config", object, "Preconditioner", err);

    if (rc == PD_OK) rc = set_each(hypers, object, set_of_preconditioner, err);
    if (rc == PD_OK && exponent != NULL && json_is_true(json_object_get(object, "use_trace_scaling")))
        rc = pd_recipe_set_value(hypers, "preconditioner_config.trace_scaling_exponent", exponent, err);
    return rc;
}

/* Sets what iterates are averaged with. eval_coeff_lr_power is 2 (pd_recipe_meta_left_out). */
static int set_averages(pd_hypers *hypers, const json_t *object, bool all_steps, pd_error *err)
{
    json_t *members = json_copy((json_t *)object);
    int rc = PD_OK;

    if (members == NULL) return pd_fail(err, PD_NO_MEMORY, "out of memory");
    json_object_del(members, "type");
    json_object_del(members, "eval_coeff_lr_power");
    if (json_object_get(members, "train_interp_coeff") == NULL)
        json_object_set_new(members, "train_interp_coeff", json_real(0.8));
    if (all_steps) rc = pd_hypers_set(hypers, "iterate_averaging_config.eval_interp_coeff", "schedule_free", err);
    if (rc == PD_OK) rc = pd_recipe_set_members(hypers, "iterate_averaging_config", members, err);
    json_decref(members);
    return rc;
}

/* Sets momentum, dampening and use_nesterov from ClassicMomentumConfig, whose momentum is 0.5 by default, or averages
 * of iterates. */
static int set_averaging(pd_hypers *hypers, const json_t *object, pd_error *err)
{
    const char *key, *type = json_string_value(json_object_get(object, "type"));
    json_t *value;
    int rc;

    if (type != NULL && strcmp(type, "GeneralizedPrimalAveragingConfig") == 0)
        return set_averages(hypers, object, false, err);
    if (type != NULL && strcmp(type, "ScheduleFreeConfig") == 0) return set_averages(hypers, object, true, err);
    rc = pd_hypers_set(hypers, "momentum", "0.5", err);

    json_object_foreach((json_t *)object, key, value) if (rc == PD_OK && strcmp(key, "type") != 0) rc =
        pd_recipe_set_value(hypers, key, value, err);
    return rc;
}

static int set_graft(pd_hypers *hypers, const json_t *object, pd_error *err)
{
    json_t *members = json_copy((json_t *)object);
    int rc = set_class(hypers, "grafting_config", object, "Preconditioner", err);

    if (members == NULL) return pd_fail(err, PD_NO_MEMORY, "out of memory");
    json_object_del(members, "type");
    if (rc == PD_OK) rc = pd_recipe_set_members(hypers, "grafting_config", members, err);
    json_decref(members);
    return rc;
}

int pd_recipe_set_meta(pd_hypers *hypers, const char *key, const json_t *value, pd_error *err)
{
    if (strcmp(key, "preconditioner_config") == 0) return set_preconditioner(hypers, value, err);
    if (strcmp(key, "grafting_config") == 0) return set_graft(hypers, value, err);
    if (strcmp(key, "iterate_averaging_config") == 0) return set_averaging(hypers, value, err);
    return pd_recipe_set_value(hypers, key, value, err);
}

const char *pd_recipe_meta_left_out(const json_t *config)
{
    const json_t *power = json_object_get(json_object_get(config, "iterate_averaging_config"), "eval_coeff_lr_power");

    return power != NULL && json_number_value(power) != 2
               ? "averages over all steps have the squares of their rates as weights: no other eval_coeff_lr_power"
               : NULL;
}

bool pd_recipe_meta_has_bases(const json_t *config)
{
    const char *type = json_string_value(json_object_get(json_object_get(config, "preconditioner_config"), "type"));

    return type != NULL && strncmp(type, "Eigendecomposed", strlen("Eigendecomposed")) == 0;
}
