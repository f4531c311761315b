/* remarks.c - warnings about jobs, for the workers that asked for them in their Hello. */
#include "remarks.h"

#include "paramd/error.h"

#include <stdlib.h>
#include <string.h>
#include <syslog.h>

static const char many[] = "there are more warnings about this job in the daemon's log";

/* Returns whether two texts are equal, numbers left aside. */
static bool alike(const char *a, const char *b)
{
    static const char numeric[] = "0123456789.";

    for (;; a++, b++) {
        a += strspn(a, numeric);
        b += strspn(b, numeric);
        if (*a != *b) return false;
        if (*a == '\0') return true;
    }
}

static void forget(pd_remark *remark)
{
    free(remark->job);
    free(remark->text);
    *remark = (pd_remark){ 0 };
}

static bool is_of(const pd_remark *remark, const char *job)
{
    return remark->job != NULL && strcmp(remark->job, job) == 0;
}

/* Returns the text to keep as a new remark of the job: `text`, or that there are more; NULL: nothing new. */
static const char *news(const pd_remarks *remarks, const char *job, const char *text)
{
    int of_job = 0;

    for (size_t i = 0; i < PD_REMARKS; i++) {
        if (!is_of(&remarks->at[i], job)) continue;
        if (alike(remarks->at[i].text, text)) return NULL;
        of_job++;
    }
    if (of_job >= PD_REMARKS_OF_JOB) return NULL;
    return of_job == PD_REMARKS_OF_JOB - 1 ? many : text;
}

static const pd_remark *keep(pd_remarks *remarks, const char *job, const char *text, int64_t rank)
{
    pd_remark *remark = &remarks->at[remarks->n % PD_REMARKS];

    forget(remark);
    remark->job = strdup(job);
    remark->text = strdup(text);
    remark->rank = rank;
    if (remark->job == NULL || remark->text == NULL) {
        forget(remark);
        return NULL;
    }
    remarks->n++;
    return remark;
}

const pd_remark *pd_remarks_add(pd_remarks *remarks, const pd_log_entry *entry)
{
    char job[sizeof entry->text];
    const char *text;

    if (entry->level > LOG_WARNING || entry->job_bytes == 0 || entry->code == PD_DEADLINE_EXCEEDED) return NULL;
    memcpy(job, entry->text + PD_LOG_JOB_AT, entry->job_bytes);
    job[entry->job_bytes] = '\0';
    text = news(remarks, job, entry->text + PD_LOG_JOB_AT + entry->job_bytes + strlen(": "));
    return text != NULL ? keep(remarks, job, text, entry->has_rank && text != many ? (int64_t)entry->rank : -1) : NULL;
}

const pd_remark *pd_remarks_next(const pd_remarks *remarks, const char *job, uint64_t *at)
{
    if (remarks->n > PD_REMARKS && *at < remarks->n - PD_REMARKS) *at = remarks->n - PD_REMARKS;
    while (*at < remarks->n) {
        const pd_remark *remark = &remarks->at[(*at)++ % PD_REMARKS];
        if (is_of(remark, job)) return remark;
    }
    return NULL;
}

void pd_remarks_begin(pd_remarks *remarks, const char *job)
{
    for (size_t i = 0; i < PD_REMARKS; i++)
        if (is_of(&remarks->at[i], job)) forget(&remarks->at[i]);
}

void pd_remarks_free(pd_remarks *remarks)
{
    for (size_t i = 0; i < PD_REMARKS; i++) forget(&remarks->at[i]);
}
