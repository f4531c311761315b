/* jobs_json.h - writes the document /jobs.json: what the daemon and its jobs do now (JOBS_JSON.md). Loop thread. */
#ifndef PD_JOBS_JSON_H
#define PD_JOBS_JSON_H

#include "document.h"
#include "loop.h"

/* How far the writing of the document is. Begins zeroed. */
typedef struct pd_jobs_json_cursor {
    bool begun, ended;
    pd_figures_place place; /* the last job that was written */
} pd_jobs_json_cursor;

/* Appends the next piece: the daemon's figures, those of one job, or the end. Returns false when everything was written
 * before. */
bool pd_jobs_json_next(pd_jobs_json_cursor *cursor, const pd_daemon *daemon, pd_document *out);

#endif
