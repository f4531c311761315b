/* sharing.c - makes the worker's segment, offers it to the server, and maps the server's segment. */
#include "sharing.h"

#include <stdlib.h>
#include <string.h>

#include "core.h"
#include "feedback.h"
#include "join.h"
#include "transport.h"

#define UNIT ((uint64_t)PD_PAYLOAD_ALIGN)

static uint64_t in_units(uint64_t bytes)
{
    return (bytes + UNIT - 1) / UNIT * UNIT;
}

/* Makes the segment, with room for the gradient of each parameter, unless it exists. */
static int make_segment(pd_core *core)
{
    uint64_t chunk = core->welcome.chunk_elements, buffers = 0, pieces = 0;

    if (core->out.staging.segment.at != NULL) return PD_OK;
    for (size_t i = 0; i < core->n_params; i++) {
        pd_param_record *record = &core->params[i];
        uint64_t elements = (uint64_t)(record->end - record->start);

        if (record->elsewhere) continue;
        record->buffer_at = buffers;
        buffers += pd_dtype_is_quantized(record->push) ? pd_feedback_bytes(record, chunk)
                                                       : in_units(elements * pd_dtype_size(record->push));
        pieces += elements / chunk + 2;
    }
    return pd_staging_make(&core->out.staging, buffers + pieces * UNIT, NULL);
}

static uint64_t buffer_bytes(const pd_param_record *record)
{
    pd_dtype dtype = pd_dtype_is_quantized(record->push) ? PD_F32 : record->push;
    uint64_t bytes = in_units((uint64_t)(record->end - record->start) * pd_dtype_size(dtype));

    return bytes > 0 ? bytes : UNIT;
}

static void *private_buffer(const pd_param_record *record)
{
    uint64_t bytes = buffer_bytes(record);
    void *at = aligned_alloc(UNIT, bytes);

    if (at != NULL) memset(at, 0, bytes);
    return at;
}

/* Finds memory for a gradient: in the segment, or in private memory where pushes under way have taken the room. A
 * gradient that is quantized is in private memory, since only its codes are sent. */
static void *new_buffer(pd_core *core, const pd_param_record *record)
{
    void *at = NULL;

    if (!pd_dtype_is_quantized(record->push))
        at = pd_staging_take_buffer(&core->out.staging, record->buffer_at, buffer_bytes(record));
    return at != NULL ? at : private_buffer(record);
}

/* Returns the highest step whose rounds the server has closed for all parameters. */
static uint64_t lowest_closed(const pd_core *core)
{
    uint64_t step = UINT64_MAX;

    for (size_t i = 0; i < core->n_params; i++)
        if (!core->params[i].elsewhere && core->params[i].server_step < step) step = core->params[i].server_step;
    return step < UINT64_MAX ? step : 0;
}

/* Returns the highest step of whose pushes of a fragment the server reads nothing any more, in a job with open sets;
 * UINT64_MAX: this process has pushed none of it. The server may keep a push whose step it has taken, for a later one,
 * until the rank pushes for a later step. So only answers to pushes tell: one to a push for a later step, or those to
 * all pushes for this step. */
static uint64_t last_read(const pd_core *core, uint32_t fragment)
{
    uint64_t step = 0;
    bool any = false, all = true;

    for (size_t i = 0; i < core->n_params; i++)
        if (core->params[i].fragment == fragment && core->params[i].answered > step) step = core->params[i].answered;
    for (size_t i = 0; i < core->n_params; i++) {
        const pd_param_record *record = &core->params[i];
        if (record->fragment != fragment || record->pushed == 0) continue;
        any = true;
        all = all && (record->pushed < step || record->answered == step);
    }
    if (!any) return UINT64_MAX;
    return all || step == 0 ? step : step - 1;
}

/* Returns a step of whose pushes, and of those for earlier steps, the server reads nothing any more. */
static uint64_t lowest_read(const pd_core *core)
{
    uint64_t lowest = UINT64_MAX;

    if (!core->open_sets) return lowest_closed(core);
    for (uint32_t f = 0; f < core->n_fragments; f++) {
        uint64_t step = last_read(core, f);
        if (step < lowest) lowest = step;
    }
    return lowest < UINT64_MAX ? lowest : 0;
}

static void reclaim(pd_core *core)
{
    if (core->out.staging.given_up > 0) pd_staging_reclaim(&core->out.staging, lowest_read(core));
}

void *pd_core_buffer(pd_core *core, size_t param)
{
    pd_param_record *record;

    if (!core->declared || param >= core->n_params || make_segment(core) != PD_OK) return NULL;
    record = &core->params[param];
    if (record->elsewhere) return NULL;
    if (record->buffer == NULL) record->buffer = new_buffer(core, record);
    reclaim(core);
    if (record->buffer == NULL || !pd_staging_is_read(&core->out.staging, record->buffer)) return record->buffer;
    if (record->spare == NULL) record->spare = private_buffer(record);
    return record->spare;
}

bool pd_sharing_wanted(const pd_core *core)
{
    return core->sharing.possible && !core->sharing.refused && core->setup.job[0] != '\0';
}

bool pd_sharing_begin(pd_core *core)
{
    Paramd__ShareRequest request = PARAMD__SHARE_REQUEST__INIT;

    if (!pd_sharing_wanted(core) || make_segment(core) != PD_OK) return false;
    request.bytes = core->out.staging.segment.bytes;
    pd_descriptor_replace(&core->sharing.to_send, -1);
    core->sharing.to_send = pd_segment_share(&core->out.staging.segment);
    if (core->sharing.to_send < 0) return false;
    if (pd_core_post(core, PD_SHARE, &request.base, PD_QUEUE_CONNECTION, NULL) == PD_OK) return true;
    pd_descriptor_replace(&core->sharing.to_send, -1);
    return false;
}

/* Maps the server's segment, if the answer announces one. If that is impossible, the handle connects again and does not
 * offer to share. */
static int map_weights(pd_core *core, uint64_t bytes)
{
    pd_error error;
    int fd = pd_descriptor_take(&core->sharing.taken);

    if (bytes == 0) {
        pd_descriptor_replace(&fd, -1);
        return PD_OK;
    }
    if (pd_segment_map(&core->sharing.weights, fd, bytes, &error) == PD_OK) return PD_OK;
    core->sharing.refused = true;
    pd_core_drop(core, error.text);
    return PD_UNAVAILABLE;
}

int pd_sharing_answered(pd_core *core, const pd_prefix *prefix, const uint8_t *header, const pd_error *refusal)
{
    Paramd__ShareReply *reply;
    void *message;
    int rc;

    if (refusal == NULL) {
        if ((rc = pd_reply_take(core, prefix, header, &message)) != PD_OK) return rc;
        reply = message;
        if (map_weights(core, reply->bytes) != PD_OK) return PD_OK;
        core->out.shares = true;
    } else {
        core->sharing.refused = true;
    }
    core->out.open = true;
    return PD_OK;
}

void pd_sharing_release(pd_core *core)
{
    Paramd__ReleaseRequest request = PARAMD__RELEASE_REQUEST__INIT;

    reclaim(core);
    if (core->sharing.read == 0 || core->sharing.releasing) return;
    request.answers = core->sharing.read;
    if (pd_core_post(core, PD_RELEASE, &request.base, PD_QUEUE_CONNECTION, NULL) != PD_OK) return;
    core->sharing.read = 0;
    core->sharing.releasing = true;
}

void pd_sharing_end(pd_core *core)
{
    if (core->sharing.weights.at != NULL) pd_segment_drop(&core->sharing.weights);
    pd_descriptor_replace(&core->sharing.to_send, -1);
    pd_descriptor_replace(&core->sharing.taken, -1);
    core->sharing.read = 0;
    core->sharing.releasing = core->sharing.possible = false;
}

void pd_sharing_free(pd_core *core)
{
    pd_sharing_end(core);
    pd_staging_free(&core->out.staging);
}
