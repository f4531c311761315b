/* declared_params.c - the parameters of a client handle: checks and keeps their declarations, and sends them. */
#include "declared_params.h"

#include "core_end.h"
#include "op.h"
#include "post.h"

#include <stdlib.h>
#include <string.h>

static int no_memory(pd_error *err)
{
    return pd_fail(err, PD_NO_MEMORY, "out of memory");
}

static void forget(pd_param_record *known)
{
    free(known->name);
    free(known->axes);
    free(known->note);
    free(known->holds);
}

void pd_core_forget_params(pd_core *core)
{
    for (size_t i = 0; i < core->n_params; i++) {
        void *home = core->params[i].home;
        if (!pd_segment_has(&core->out.staging.segment, home, 1)) free(home);
        forget(&core->params[i]);
    }
    pd_staging_free(&core->out.staging);
    free(core->params);
    core->params = NULL;
    core->n_params = 0;
}

static int know_range(pd_param_record *known, const pd_client_param *param, int64_t elements, pd_error *err)
{
    known->ranged = param->ranged;
    known->start = param->ranged ? param->start : 0;
    known->end = param->ranged ? param->end : elements;
    if (!param->ranged && (param->start != 0 || param->end != 0))
        return pd_fail(err, PD_INVALID_ARGUMENT, "parameter %s: start and end count only with `ranged`", param->name);
    if (known->start < 0 || known->start > known->end || known->end > elements)
        return pd_fail(err, PD_INVALID_ARGUMENT,
                       "parameter %s: range of elements %lld to %lld: expected 0 <= start <= "
                       "end <= %lld, the elements it has",
                       param->name, (long long)known->start, (long long)known->end, (long long)elements);
    return PD_OK;
}

static int know_texts(pd_param_record *known, const pd_client_param *param, pd_error *err)
{
    bool has_axes = param->axes != NULL && param->axes[0] != '\0';

    known->name = strdup(param->name);
    if (known->name != NULL && has_axes) known->axes = strdup(param->axes);
    if (known->name != NULL && (known->axes != NULL || !has_axes)) return PD_OK;
    forget(known);
    return no_memory(err);
}

static int know_shape(const pd_client_param *param, int64_t *elements, pd_error *err)
{
    char shape[192];

    if (param->shape.rank < 0 || param->shape.rank > PD_MAX_RANK)
        return pd_fail(err, PD_INVALID_ARGUMENT, "parameter %.160s: expected rank 0 to %d, got %d", param->name,
                       PD_MAX_RANK, param->shape.rank);
    if (pd_shape_elements(&param->shape, elements) == PD_OK) return PD_OK;
    return pd_fail(err, PD_INVALID_ARGUMENT,
                   "parameter %.160s: expected dimensions from 0 and fewer than 2^60 "
                   "elements, got shape %s",
                   param->name, pd_shape_text(&param->shape, shape, sizeof shape));
}

static int know(pd_param_record *known, const pd_client_param *param, pd_error *err)
{
    size_t length = param->name != NULL ? strlen(param->name) : 0;
    int64_t elements;
    pd_error why;

    if (length == 0 || length > 256)
        return pd_fail(err, PD_INVALID_ARGUMENT, "a parameter's name has %zu bytes: expected 1 to 256", length);
    if (know_shape(param, &elements, err) != PD_OK) return PD_INVALID_ARGUMENT;
    if (param->axes != NULL && pd_axes_check(param->axes, param->shape.rank, &why) != PD_OK)
        return pd_fail(err, PD_INVALID_ARGUMENT, "parameter %.160s: axes: %.300s", param->name, why.text);
    if (know_range(known, param, elements, err) != PD_OK) return PD_INVALID_ARGUMENT;
    known->shape = param->shape;
    known->model_state = param->model_state;
    known->push = param->push_dtype != 0 ? param->push_dtype : PD_F32;
    known->pull = param->pull_dtype != 0 ? param->pull_dtype : PD_F32;
    known->update = param->update_dtype;
    if (known->update != 0 && (pd_dtype_size(known->update) == 0 || known->pull != PD_F32))
        return pd_fail(err, PD_INVALID_ARGUMENT,
                       "parameter %s: updates of type %d beside weights of type %d: the "
                       "weights beside updates are float32",
                       param->name, (int)known->update, (int)known->pull);
    if (pd_dtype_size(known->push) == 0 || pd_dtype_size(known->pull) == 0)
        return pd_fail(err, PD_INVALID_ARGUMENT, "parameter %s: unknown element type %d", param->name,
                       pd_dtype_size(known->push) == 0 ? (int)known->push : (int)known->pull);
    return know_texts(known, param, err);
}

uint64_t pd_core_lowest_step(const pd_core *core)
{
    uint64_t step = core->n_params > 0 ? core->params[0].step : 0;

    for (size_t i = 1; i < core->n_params; i++)
        if (core->params[i].step < step) step = core->params[i].step;
    return step;
}

int pd_core_declare(pd_core *core, const pd_client_param *params, size_t n, pd_ticket_id *ticket, pd_error *err)
{
    pd_op *op;
    int rc;

    if (core->params != NULL) return pd_fail(err, PD_FAILED_PRECONDITION, "the parameters are declared already");
    if (core->job[0] == '\0') return pd_fail(err, PD_FAILED_PRECONDITION, "an operator's connection has no parameters");
    if (n == 0) return pd_fail(err, PD_INVALID_ARGUMENT, "no parameters to declare");
    if ((rc = pd_op_begin(core, PD_DECLARE, &op, err)) != PD_OK) return rc;
    if ((core->params = calloc(n, sizeof *core->params)) == NULL) rc = no_memory(err);
    for (; rc == PD_OK && core->n_params < n; core->n_params++)
        if ((rc = know(&core->params[core->n_params], &params[core->n_params], err)) != PD_OK) break;
    if (rc != PD_OK) {
        pd_core_forget_params(core);
        pd_op_free(core, op);
        return rc;
    }
    core->declare_ticket = *ticket = op->id;
    if (core->stage == STAGE_WELCOMED && pd_core_send_declare(core) != PD_OK) pd_core_drop(core, "out of memory");
    return PD_OK;
}

/* The contents of one Declare frame: entries of the parameters, and their dimensions. */
typedef struct pd_page {
    Paramd__Parameter param[MAX_PIECES], *params[MAX_PIECES];
    uint64_t dims[MAX_PIECES][PD_MAX_RANK];
} pd_page;

/* Fills a page (the contents of one Declare frame) with the parameters from index `first` on, as many as fit into
 * the header of a frame. Returns how many were taken. */
static size_t fill_page(const pd_core *core, size_t first, pd_page *page)
{
    size_t bytes = 0, n = 0;

    for (; first + n < core->n_params && n < MAX_PIECES; n++) {
        const pd_param_record *known = &core->params[first + n];
        Paramd__Parameter *param = &page->param[n];

        paramd__parameter__init(param);
        param->name = known->name;
        param->shape = page->dims[n];
        param->n_shape = (size_t)known->shape.rank;
        for (int i = 0; i < known->shape.rank; i++) page->dims[n][i] = (uint64_t)known->shape.dim[i];
        param->pull_dtype = known->pull;
        param->update_dtype = known->update;
        if (known->axes != NULL) param->axes = known->axes;
        param->model_state = known->model_state;
        param->ranged = known->ranged;
        param->range_start = known->ranged ? (uint64_t)known->start : 0;
        param->range_end = known->ranged ? (uint64_t)known->end : 0;
        page->params[n] = param;
        bytes += protobuf_c_message_get_packed_size(&param->base) + 4;
        if (bytes > PD_MAX_HEADER_BYTES - FORM_BOUND) break;
    }
    return n;
}

/* Notes in the Declare frame that was queued last which parameters it declares. When the frame is answered, the
 * note says to which parameters the entries of the answer belong. */
static void note_page(pd_core *core, size_t first, size_t n)
{
    pd_outgoing_frame *frame = pd_outgoing_find(&core->out, core->last_id);

    frame->first = first;
    frame->count = n;
    core->declares_waiting++;
}

int pd_core_send_declare(pd_core *core)
{
    pd_page *page = malloc(sizeof *page);
    int rc = page != NULL ? PD_OK : PD_NO_MEMORY;

    core->stage = STAGE_DECLARING;
    core->declares_waiting = 0;
    for (size_t first = 0, n; rc == PD_OK && first < core->n_params; first += n) {
        Paramd__DeclareRequest request = PARAMD__DECLARE_REQUEST__INIT;

        n = fill_page(core, first, page);
        request.parameters = page->params;
        request.n_parameters = n;
        request.last = first + n == core->n_params;
        rc = pd_core_post(core, PD_DECLARE, &request.base, PD_LANE_CONNECTION, NULL);
        if (rc == PD_OK) note_page(core, first, n);
    }
    free(page);
    return rc;
}
