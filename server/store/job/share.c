/* share.c - gives workers the job's weights in shared memory. */
#include "share.h"

#include "effects.h"

void pd_job_share(pd_job *job, pd_request *request)
{
    const pd_segment *segment = pd_shared_weights_segment(job->steps.memory.shared);
    pd_effect *effect = pd_answer(request, PD_EFF_SHARE);

    effect->u.share.fd = segment != NULL ? pd_segment_share(segment) : -1;
    if (effect->u.share.fd >= 0) {
        effect->u.share.at = segment->at;
        effect->u.share.bytes = segment->bytes;
    }
    pd_effects_add(job->steps.outbox, effect);
    pd_request_free(request);
}
