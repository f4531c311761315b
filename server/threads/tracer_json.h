/* tracer_json.h - writes events of a job's steps as JSON, in the format of Perfetto and chrome://tracing. */
#ifndef PD_TRACER_JSON_H
#define PD_TRACER_JSON_H

#include <stdbool.h>
#include <stdio.h>

#include "stats.h"

/* An event with its texts, as it waits in the ring. */
typedef struct pd_trace_entry {
    pd_traced event; /* event.job and event.param are not used here */
    char param[PD_NAME_MAX + 1];
} pd_trace_entry;

/* The tracks that already have a name in the file. */
typedef struct pd_trace_tracks {
    uint64_t begin_ns; /* time 0 of the trace */
    bool work, *params;
    uint32_t n_params; /* number of entries of `params` */
    uint64_t roots;    /* number of preconditioner tasks so far */
} pd_trace_tracks;

/* Appends the event to the text: one line or more, each of which ends with a comma and a newline. A round of a
 * parameter is a span of that parameter's track, with its parts inside. PD_NO_MEMORY: the tracks need more memory. */
int pd_tracer_json(FILE *out, pd_trace_tracks *tracks, const pd_trace_entry *entry);

#endif
