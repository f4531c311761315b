/* export_record.h - the record of an export that is under way, for the files that implement exports. */
#ifndef PD_EXPORT_RECORD_H
#define PD_EXPORT_RECORD_H

#include "cut.h"
#include "job.h"

typedef struct pd_export {
    uint64_t conn;
    uint64_t party; /* number of the identity that exports */
    bool state;     /* optimizer state may be read, too; false: only weights */
    bool counted;   /* older weights that the export keeps are counted: workers may train meanwhile */
    uint64_t bytes; /* bytes that are counted against max_total_bytes for this export */
    /* the cut, once all parameters have reached it and only weights are read: then the job goes on without it, and can
     * have another one. NULL: the job has the cut (job->steps.cut) */
    pd_cut *cut;
    /* the begin request, as long as it is not answered because some parameters have not reached the export's step;
     * then NULL */
    pd_request *begin;
    uint64_t until_ns;   /* time by which all parameters must reach the export's step */
    uint64_t touched_ns; /* time of the export's last request */
    uint64_t end_ns;     /* time at which the export ends, whatever is asked for */
    uint64_t read;       /* bytes of tensors that answers have sent so far */
    char by[128];        /* label of the operator's connection */
} pd_export;

/* Returns the cut of the export under way. */
static inline pd_cut *pd_export_cut(const pd_job *job)
{
    return job->export->cut != NULL ? job->export->cut : job->steps.cut;
}

#endif
