/* lingering.c - describes a job that lingers (all its workers are gone, and it waits for new ones) to a worker. */
#include "lingering.h"

#include <inttypes.h>
#include <string.h>

enum { NS_PER_MS = 1000000 };

uint32_t pd_linger_ms(const pd_job *job, uint64_t now_ns)
{
    uint64_t ms;

    if (job->linger_ns <= now_ns) return 0;
    ms = (job->linger_ns - now_ns + NS_PER_MS - 1) / NS_PER_MS;
    return ms < UINT32_MAX ? (uint32_t)ms : UINT32_MAX;
}

void pd_linger_explain(pd_job *job, uint64_t now_ns, pd_error *err)
{
    const pd_error refusal = *err;
    uint32_t ms = pd_linger_ms(job, now_ns);
    const int name = (int)strlen(job->steps.name);

    if (ms == 0) return;
    /* The command needs the whole name, and the client puts its address in: both have room. */
    pd_fail(err, refusal.code,
            "%.*s. Job %.40s is at step %" PRIu64 " and lingers for another %u s: `paramctl drop %.256s`, or choose "
            "another name",
            name < 160 ? 240 - name : 80, refusal.text, job->steps.name, pd_steps_least(&job->steps), (ms + 999) / 1000,
            job->steps.name);
}
