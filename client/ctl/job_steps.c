/* job_steps.c - asks at which steps a job is on the daemons of a cluster. */
#include "job_steps.h"

#include <math.h>
#include <string.h>

/* A search for one job in the list of jobs. */
typedef struct search {
    const char *job;
    pd_job_steps *out;
    bool found;
} search;

static void look(void *arg, const Paramd__ListReply *page)
{
    search *s = arg;

    for (size_t i = 0; i < page->n_jobs; i++) {
        const Paramd__JobInfo *job = page->jobs[i];
        if (strcmp(job->name, s->job) != 0) continue;
        *s->out = (pd_job_steps){ job->step_least, job->step_most, job->steps_per_second, job->open_sets };
        s->found = true;
    }
}

int pd_job_steps_ask(pd_job_steps *out, pd_cluster *cluster, const char *job, pd_error *err)
{
    Paramd__ListRequest request = PARAMD__LIST_REQUEST__INIT;
    search s = { .job = job, .out = out };
    int rc;

    request.what = PARAMD__LIST_KIND__LIST_JOBS;
    rc = pd_cluster_list(cluster, &request, look, &s, err);
    if (rc != PD_OK || s.found) return rc;
    return pd_fail(err, PD_NOT_FOUND, "there is no job %.200s", job);
}

uint64_t pd_job_steps_ahead(const pd_job_steps *steps)
{
    static const double margin_s = 0.2, most = 1e6;
    double taken = ceil(margin_s * steps->per_second);

    if (!(taken > 0)) taken = 0;
    return steps->most + 2 + (uint64_t)(taken < most ? taken : most);
}
