/* durable_text.c - says in a few words which step of a job survives a restart of the daemon. */
#include "durable_text.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "format.h"

bool pd_durable_text(char text[PD_DURABLE_TEXT], const Paramd__JobInfo *job)
{
    bool failing = job->checkpoint_error[0] != '\0';
    char age[PD_CELL];

    if (job->durability[0] == '\0' || strcmp(job->durability, "none") == 0)
        snprintf(text, PD_DURABLE_TEXT, "-");
    else if (job->durable_step == 0)
        snprintf(text, PD_DURABLE_TEXT, "none%s", failing ? " (failing)" : "");
    else
        snprintf(text, PD_DURABLE_TEXT, "%" PRIu64 " (%s%s)", job->durable_step,
                 pd_duration_text(age, job->checkpoint_age_ms), failing ? ", failing" : "");
    return failing;
}
