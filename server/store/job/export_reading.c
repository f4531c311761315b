/* export_reading.c - reads pieces of weights, of optimizer state and of pending roots for an export. */
#include "export_reading.h"

#include "export_record.h"
#include "param_set.h"
#include "save.h"
#include "mutant.h"
#include "step_group.h"

#include <stdlib.h>
#include <string.h>

enum { TILE = 1024 };

static int find_param(const pd_job *job, const pd_request *request, const pd_param **out, pd_error *err)
{
    if ((*out = pd_job_param(job, request->u.export.param)) != NULL) return PD_OK;
    return pd_fail(err, PD_NOT_FOUND, "job %.100s has no parameter %.160s", job->steps.name, request->u.export.param);
}

static int refuse_state(const pd_job *job, pd_error *err)
{
    return pd_fail(err, PD_FAILED_PRECONDITION,
                   "job %.100s: this export was begun for weights alone: begin it with state", job->steps.name);
}

static int check_piece(const pd_request *request, int64_t elements, size_t each, pd_error *err)
{
    int64_t first = request->u.export.first, count = request->u.export.count;

    if (first <= elements && count <= elements - first && (uint64_t)count * each <= request->u.export.most)
        return PD_OK;
    return pd_fail(
        err, PD_INVALID_ARGUMENT,
        "%.160s: %lld elements of %zu bytes from %lld on are asked for; the tensor has %lld, and an answer at "
        "most %llu bytes",
        request->u.export.param, (long long)count, each, (long long)first, (long long)elements,
        (unsigned long long)request->u.export.most);
}

/* Allocates memory for the elements that an answer returns. PD_NO_MEMORY. */
static int make_room(const pd_job *job, const pd_request *request, size_t each, pd_exported *out, pd_error *err)
{
    out->bytes = (size_t)request->u.export.count * each;
    if (out->bytes == 0 || (out->at = malloc(out->bytes)) != NULL) return PD_OK;
    return pd_fail(err, PD_NO_MEMORY, "job %.100s: out of memory for %zu bytes of an export: try again",
                   job->steps.name, out->bytes);
}

static int read_weights(const pd_job *job, const pd_param *param, const pd_request *request, pd_exported *out,
                        pd_error *err)
{
    const pd_published *from =
        PD_MUTANT(torn_export) ? param->current : pd_export_cut(job)->parts[param->index].weights;
    const float *weights = from->at[PD_F32];
    int rc = check_piece(request, param->elements, sizeof *weights, err);

    out->elements = (uint64_t)param->elements;
    if (rc == PD_OK) rc = make_room(job, request, sizeof *weights, out, err);
    if (rc == PD_OK && out->bytes > 0) memcpy(out->at, weights + request->u.export.first, out->bytes);
    return rc;
}

/* Reads elements of an optimizer slot as float32, by way of a small float64 buffer. Not
 * for slots that are stored as float64. */
static void read_floats(const pd_param *param, size_t slot, int64_t first, int64_t n, float *out)
{
    double wide[TILE];

    for (int64_t some; n > 0; n -= some, first += some, out += some) {
        some = n < TILE ? n : TILE;
        pd_optim_read_elements(param->optim, slot, first, some, wide);
        for (int64_t i = 0; i < some; i++) out[i] = (float)wide[i];
    }
}

static int read_root(const pd_job *job, const pd_param *param, const pd_request *request, pd_exported *out,
                     pd_error *err)
{
    size_t left = pd_optim_tasks_left(param->optim), k = (size_t)request->u.export.number;
    int rc;

    if (request->u.export.number < 0 || k >= left)
        return pd_fail(err, PD_NOT_FOUND, "%.160s has %zu pending roots, number %d is none of them", param->name, left,
                       request->u.export.number);
    out->wide = true;
    out->elements = (uint64_t)pd_pending_root_length(param->optim, k);
    if ((rc = check_piece(request, (int64_t)out->elements, sizeof(double), err)) != PD_OK) return rc;
    if ((rc = make_room(job, request, sizeof(double), out, err)) != PD_OK || out->bytes == 0) return rc;
    pd_pending_root_read(param->optim, k, request->u.export.first, request->u.export.count, out->at);
    return PD_OK;
}

static int read_state(const pd_job *job, const pd_param *param, const pd_request *request, pd_exported *out,
                      pd_error *err)
{
    const pd_plan *plan = pd_optim_plan(param->optim);
    size_t each;
    int64_t elements = 0;
    pd_part part;
    int rc;

    if (!pd_plan_part(plan, request->u.export.slot, request->u.export.number, request->u.export.block, &part) ||
        part.box != NULL || !pd_shape_equal(&part.shape, &plan->slots[part.slot].shape))
        return pd_fail(err, PD_NOT_FOUND, "%.160s keeps no state %.60s with number %d and block %d (paramctl state)",
                       param->name, request->u.export.slot, request->u.export.number, request->u.export.block);
    out->wide = plan->slots[part.slot].storage == PD_STORE_F64;
    each = out->wide ? sizeof(double) : sizeof(float);
    (void)pd_shape_elements(&part.shape, &elements);
    out->elements = (uint64_t)elements;
    if ((rc = check_piece(request, elements, each, err)) != PD_OK) return rc;
    if ((rc = make_room(job, request, each, out, err)) != PD_OK || out->bytes == 0) return rc;
    if (out->wide)
        pd_optim_read_elements(param->optim, part.slot, request->u.export.first, request->u.export.count, out->at);
    else
        read_floats(param, part.slot, request->u.export.first, request->u.export.count, out->at);
    return PD_OK;
}

int pd_export_read_piece(const pd_job *job, const pd_request *request, pd_exported *out, pd_error *err)
{
    const pd_param *param;
    int rc = find_param(job, request, &param, err);

    if (rc != PD_OK) return rc;
    if (request->u.export.slot[0] == '\0') return read_weights(job, param, request, out, err);
    if (!job->export->state) return refuse_state(job, err);
    if (strcmp(request->u.export.slot, PD_PENDING_ROOT) == 0) return read_root(job, param, request, out, err);
    return read_state(job, param, request, out, err);
}

int pd_export_read_count(const pd_job *job, const pd_request *request, pd_exported *out, pd_error *err)
{
    const pd_param *param;
    int rc = find_param(job, request, &param, err);

    if (rc != PD_OK) return rc;
    if (!job->export->state) return refuse_state(job, err);
    out->roots = pd_optim_tasks_left(param->optim);
    out->count = param->group != NULL ? pd_step_group_count(param) : pd_optim_count(param->optim);
    return PD_OK;
}
