/* param_image.c - writes or reads one parameter's state, with one table of fields for both directions. */
#include "param_image.h"

#include "consistent_cut.h"
#include "mutant.h"
#include "round_scalars.h"
#include "save.h"

static const pd_field param_fields[] = { PD_FIELD_IN(pd_param_saved, step, 0, INT64_MAX / 2),
                                         PD_FIELD(pd_param_saved, skipped),
                                         PD_FIELD(pd_param_saved, refused),
                                         PD_FIELD(pd_param_saved, gaps),
                                         PD_FIELD(pd_param_saved, contributions),
                                         PD_FIELD_IN(pd_param_saved, outcome, 0, PD_REFUSED),
                                         PD_FIELD(pd_param_saved, initialiser),
                                         { 0 } };
static const pd_table param_table = { "parameter", sizeof(pd_param_saved), param_fields };

static const pd_field mean_fields[] = {
    PD_FIELD(pd_scalar_mean, name), PD_FIELD(pd_scalar_mean, mean), PD_FIELD(pd_scalar_mean, weight), { 0 }
};
static const pd_table mean_table = { "scalar", sizeof(pd_scalar_mean), mean_fields };

static void visit_scalars(pd_archive *archive, pd_steps *steps, pd_param *param)
{
    size_t n = param->scalars != NULL ? param->scalars->n_last : 0;
    pd_error err;

    pd_archive_count(archive, &n, PD_MAX_SCALARS, 1);
    if (n == 0) {
        if (param->scalars != NULL) param->scalars->n_last = 0;
        return;
    }
    if (param->scalars == NULL && pd_scalars_make(steps, param, &err) != PD_OK) {
        pd_archive_fail(archive, err.code, "%.160s: out of memory for scalars", param->name);
        return;
    }
    pd_archive_records(archive, &mean_table, param->scalars->last, n);
    param->scalars->n_last = (uint32_t)n;
}

/* Makes the published version for the weights of a parameter that is being read. */
static void make_next(pd_archive *archive, const pd_steps *steps, pd_param *param, uint64_t version)
{
    if (pd_archive_status(archive) != PD_OK) return;
    if ((param->next = pd_published_new(param->buffers.pool, param->elements)) == NULL) {
        pd_archive_fail(archive, PD_NO_MEMORY, "%.160s: out of memory for its weights", param->name);
        return;
    }
    param->next->job = steps->number;
    param->next->param = param->index;
    param->next->version = version;
}

static void visit_record(pd_archive *archive, pd_steps *steps, pd_param *param)
{
    pd_archive_agree(archive, "parameter", param->name);
    pd_archive_fields(archive, &param_table, &param->saved);
    if (PD_MUTANT(image_forgets_outcome)) param->saved.outcome = 0;
    visit_scalars(archive, steps, param);
}

void pd_param_image_visit_record(pd_archive *archive, pd_steps *steps, pd_param *param)
{
    pd_archive_enter(archive, "parameter");
    visit_record(archive, steps, param);
    pd_archive_leave(archive);
}

/* Writes or reads everything before the optimizer's state. The optimizer comes last, because results of its
 * preconditioner tasks may be added later. `weights`: the published version that the image belongs to; NULL when
 * reading. */
static void begin(pd_archive *archive, pd_steps *steps, pd_param *param, const pd_published *weights)
{
    uint64_t version = weights != NULL ? weights->version : 0;

    pd_archive_enter(archive, "parameter");
    visit_record(archive, steps, param);
    pd_archive_value(archive, &version);
    if (pd_archive_is_reading(archive)) make_next(archive, steps, param, version);
}

void pd_param_image_visit(pd_archive *archive, pd_steps *steps, pd_param *param)
{
    begin(archive, steps, param, param->current);
    pd_optim_visit(archive, param->optim);
    pd_archive_leave(archive);
}

void pd_param_image_publish(pd_steps *steps, pd_param *param)
{
    pd_params_convert(&param, 1, steps->config->threads);
    param->current = param->next;
    param->next = NULL;
    steps->progress.n_begun++;
}

size_t pd_param_image_write(pd_archive *archive, pd_steps *steps, pd_param *param)
{
    /* The image belongs to the weights that the cut refers to, even if param->current was replaced after the cut. */
    begin(archive, steps, param, steps->cut->parts[param->index].weights);
    return pd_optim_write(archive, param->optim);
}

void pd_param_image_write_end(pd_archive *archive)
{
    pd_archive_leave(archive);
    pd_archive_leave(archive);
}
