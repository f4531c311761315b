/* declaration.c - checks what a rank declares about one parameter: by itself, and against the job's parameter of that
 * name. */
#include "declaration.h"

#include "declared_ranges.h"

#include "text.h"

#include <string.h>

/* ---- a declaration by itself ---- */

static int check_name(const char *name, size_t i, pd_error *err)
{
    size_t n = strlen(name);
    pd_error why;

    if (n == 0 || n > PD_NAME_MAX)
        return pd_fail(err, PD_INVALID_ARGUMENT, "parameter %zu: a name has 1 to %d bytes, not %zu", i, PD_NAME_MAX, n);
    if (pd_text_check("its name", name, &why) == PD_OK) return PD_OK;
    return pd_fail(err, PD_INVALID_ARGUMENT, "parameter %zu: %.300s", i, why.text);
}

pd_rule *pd_declaration_rule(const pd_job *job, pd_param_decl *decl, double *cost_ns)
{
    pd_rule *rules = job->steps.rules, *rule;

    if (decl->rule > 0) return &rules[decl->rule - 1];
    rule = decl->model_state ? pd_rules_of_state(rules, job->steps.n_rules)
                             : pd_rules_match(rules, job->steps.n_rules, decl->name, cost_ns);
    if (rule != NULL) decl->rule = (uint16_t)(1 + (rule - rules));
    return rule;
}

/* Checks that the optimizer of the parameter's rule can give updates in the element
 * type that the rank asks for. If the rank asks for no updates there is no error. */
static int check_update(const pd_rule *rule, const pd_param_decl *decl, pd_error *err)
{
    const pd_optimizer_ops *row = rule->hypers.row;
    pd_dtype gives;

    if (decl->update_dtype == 0) return PD_OK;
    gives = row->update_dtype == NULL ? (pd_dtype)0 : row->update_dtype(rule->hypers.value);
    if (decl->update_dtype == gives) return PD_OK;
    if (gives == 0)
        return pd_fail(err, PD_FAILED_PRECONDITION,
                       "parameter %.160s: %s gives no updates here, pull weights (shampoo "
                       "gives them while communicate_params is off)",
                       decl->name, row->name);
    return pd_fail(err, PD_FAILED_PRECONDITION,
                   "parameter %.160s: updates of %s are %s here (communication_dtype), "
                   "this rank asks for %s",
                   decl->name, row->name, pd_dtype_name(gives), pd_dtype_name(decl->update_dtype));
}

static int check_axes(const pd_param_decl *decl, pd_error *err)
{
    pd_error why;

    if (decl->axes == NULL || pd_axes_check(decl->axes, decl->shape.rank, &why) == PD_OK) return PD_OK;
    return pd_fail(err, PD_INVALID_ARGUMENT, "parameter %.160s: axes: %.300s", decl->name, why.text);
}

int pd_declaration_check(const pd_job *job, pd_param_decl *decl, size_t i, int64_t *elements, double *cost_ns,
                         pd_error *err)
{
    char shape[192];

    if (check_name(decl->name, i, err) != PD_OK) return PD_INVALID_ARGUMENT;
    if (pd_shape_elements(&decl->shape, elements) != PD_OK)
        return pd_fail(err, PD_INVALID_ARGUMENT, "parameter %.256s: shape %s has no size that fits 64 bits", decl->name,
                       pd_shape_text(&decl->shape, shape, sizeof shape));
    if (*elements == 0)
        return pd_fail(err, PD_INVALID_ARGUMENT, "parameter %.256s: shape %s has no elements; leave it out", decl->name,
                       pd_shape_text(&decl->shape, shape, sizeof shape));
    if (check_axes(decl, err) != PD_OK || pd_range_check(decl, *elements, err) != PD_OK) return PD_INVALID_ARGUMENT;
    if (pd_dtype_size(decl->pull_dtype) == 0)
        return pd_fail(err, PD_INVALID_ARGUMENT, "parameter %.256s: %d is no element type to pull", decl->name,
                       (int)decl->pull_dtype);
    if (pd_declaration_rule(job, decl, cost_ns) == NULL)
        return pd_fail(err, PD_INVALID_ARGUMENT,
                       "parameter %.256s: none of the job's %zu rules matches it; a last "
                       "rule \"* sgd\" would",
                       decl->name, job->steps.n_rules - 1);
    return check_update(&job->steps.rules[decl->rule - 1], decl, err);
}

/* ---- a declaration against the job's parameter ---- */

static const char *axes_text(const char *axes)
{
    return axes != NULL ? axes : "none";
}
static const char *trained_text(bool model_state)
{
    return model_state ? "as model state" : "as trained";
}

/* Checks that shape, axes and model_state equal those that the first rank declared. */
static int match_facts(const pd_job *job, const pd_param *param, const pd_param_decl *decl, pd_error *err)
{
    char ours[192], theirs[192];

    if (!pd_shape_equal(&param->shape, &decl->shape))
        return pd_fail(err, PD_FAILED_PRECONDITION,
                       "parameter %.160s: job %.60s has it with shape %s, this rank "
                       "declares %s",
                       decl->name, job->steps.name, pd_shape_text(&param->shape, ours, sizeof ours),
                       pd_shape_text(&decl->shape, theirs, sizeof theirs));
    if (strcmp(axes_text(param->axes), axes_text(decl->axes)) != 0)
        return pd_fail(err, PD_FAILED_PRECONDITION,
                       "parameter %.120s: job %.60s has it with axes %.100s, this rank "
                       "declares %.100s",
                       decl->name, job->steps.name, axes_text(param->axes), axes_text(decl->axes));
    if (param->model_state != decl->model_state)
        return pd_fail(err, PD_FAILED_PRECONDITION, "parameter %.160s: job %.60s has it %s, this rank declares it %s",
                       decl->name, job->steps.name, trained_text(param->model_state), trained_text(decl->model_state));
    return PD_OK;
}

int pd_declaration_match(const pd_job *job, const pd_param *param, const pd_param_decl *decl, uint32_t rank,
                         uint64_t *seen, pd_error *err)
{
    if (param == NULL)
        return pd_fail(err, PD_FAILED_PRECONDITION,
                       "parameter %.256s: job %.100s was declared without it; every rank "
                       "declares the same",
                       decl->name, job->steps.name);
    if (match_facts(job, param, decl, err) != PD_OK) return PD_FAILED_PRECONDITION;
    if (pd_dtype_size(decl->pull_dtype) == 0)
        return pd_fail(err, PD_INVALID_ARGUMENT, "parameter %.256s: %d is no element type to pull", decl->name,
                       (int)decl->pull_dtype);
    if ((seen[param->index / 64] >> param->index % 64 & 1) != 0)
        return pd_fail(err, PD_INVALID_ARGUMENT, "parameter %.256s is declared twice", decl->name);
    seen[param->index / 64] |= (uint64_t)1 << param->index % 64;
    if (pd_range_check(decl, param->elements, err) != PD_OK) return PD_INVALID_ARGUMENT;
    if (check_update(param->rule, decl, err) != PD_OK) return PD_FAILED_PRECONDITION;
    return pd_range_match(job, param, decl, rank, err);
}

/* ---- notes of the optimizers ---- */

enum { FEW = 8 }; /* most notes that are logged; the others are counted, since many may be the same */

void pd_declaration_say(pd_job *job, const pd_param *param, uint32_t *n)
{
    const char *note = pd_optim_plan(param->optim)->note;

    if (note[0] == '\0' || (*n)++ >= FEW) return;
    pd_say(job->steps.outbox, PD_SAY_WARNING, (pd_log_facts){ .job = job->steps.name }, "parameter %.80s: %s",
           param->name, note);
}

void pd_declarations_said(pd_job *job, uint32_t n)
{
    if (n > FEW)
        pd_say(job->steps.outbox, PD_SAY_WARNING, (pd_log_facts){ .job = job->steps.name },
               "the optimizers have something to say of %u more parameters (`paramctl params %s --verbose`)", n - FEW,
               job->steps.name);
}
