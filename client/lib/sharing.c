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

/* Finds memory for a gradient: in the segment, or in private memory where pushes under way have taken the room. A
 * gradient that is quantized is in private memory, since only its codes are sent. */
static void *new_buffer(pd_core *core, const pd_param_record *record)
{
    bool coded = pd_dtype_is_quantized(record->push);
    uint64_t bytes = in_units((uint64_t)(record->end - record->start) * pd_dtype_size(coded ? PD_F32 : record->push));
    void *at;

    if (bytes == 0) bytes = UNIT;
    if (!coded && (at = pd_staging_take_buffer(&core->out.staging, record->buffer_at, bytes)) != NULL) return at;
    if ((at = aligned_alloc(UNIT, bytes)) != NULL) memset(at, 0, bytes);
    return at;
}

void *pd_core_buffer(pd_core *core, size_t param)
{
    pd_param_record *record;

    if (!core->declared || param >= core->n_params || make_segment(core) != PD_OK) return NULL;
    record = &core->params[param];
    if (record->elsewhere) return NULL;
    if (record->buffer == NULL) record->buffer = new_buffer(core, record);
    return record->buffer;
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

/* Returns the highest step whose rounds the server has closed for all parameters. */
static uint64_t lowest_closed(const pd_core *core)
{
    uint64_t step = UINT64_MAX;

    for (size_t i = 0; i < core->n_params; i++)
        if (!core->params[i].elsewhere && core->params[i].server_step < step) step = core->params[i].server_step;
    return step < UINT64_MAX ? step : 0;
}

void pd_sharing_release(pd_core *core)
{
    Paramd__ReleaseRequest request = PARAMD__RELEASE_REQUEST__INIT;

    if (core->out.staging.given_up > 0) pd_staging_reclaim(&core->out.staging, lowest_closed(core));
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
