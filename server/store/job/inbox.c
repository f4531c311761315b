/* inbox.c - queues frames (network messages with tensors) whose elements must be scanned or copied before the frames
 * are filed. They are handled in the order of arrival. */
#include "inbox.h"

#include "initial_weights.h"
#include "push.h"
#include "replacement.h"

#define NS_PER_BYTE 0.25 /* estimated nanoseconds of one core to scan or copy one byte of a frame */
/* estimated nanoseconds to file a frame, one of its pieces, and a parameter that the rank leaves out of a step */
#define FRAME_NS 1000.0
#define PIECE_NS 300.0
#define LEFT_OUT_NS 60.0

void pd_job_init(pd_job *job, pd_request *request, uint64_t now_ns)
{
    if (pd_job_averages_init(job) && request->u.data.replaces == 0)
        pd_init_file(job, request, now_ns);
    else
        pd_request_queue_add(&job->inbox, request);
}

static double cost_of(const pd_job *job, const pd_request *request)
{
    const pd_buffer *buffer = request->u.data.buffer;
    double cost_ns = FRAME_NS + PIECE_NS * (double)request->u.data.n;

    if (buffer != NULL) cost_ns += NS_PER_BYTE * (double)buffer->size;
    if (request->u.data.close_step && request->u.data.step > job->ranks[request->rank].ended)
        cost_ns += LEFT_OUT_NS * job->steps.n_params;
    return cost_ns;
}

void pd_job_take_inbox(pd_job *job, uint64_t now_ns)
{
    double cost_ns = 0;

    while (job->inbox.first != NULL && cost_ns < job->steps.config->batch_ns) {
        pd_request *request = pd_request_queue_take(&job->inbox);
        cost_ns += cost_of(job, request);
        if (request->kind == PD_REQ_PUSH) {
            pd_push_take_scanned(job, request, now_ns);
        } else if (request->u.data.replaces != 0) {
            pd_replace_take(job, request);
        } else {
            job->init_ns = now_ns;
            pd_init_take(job, request);
        }
    }
}
