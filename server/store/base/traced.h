/* traced.h - events of a job's steps, for a trace file: what the step thread did, and when. The daemon writes them
 * (server/threads/tracer.c) if its operator asks for a trace. The times are those of the store's clock. */
#ifndef PD_TRACED_H
#define PD_TRACED_H

#include <stdint.h>

#include "stats.h"

/* Times of a round of one parameter, in ns. A time is 0 if the round has not come so far: without a gradient there is
 * no step. */
typedef struct pd_traced_round {
    uint64_t first, last;     /* when the first contribution to the round came, and when the last one did */
    uint64_t summing, summed; /* when its last sum (or other aggregate) began, and when it was complete */
    uint64_t begun, stepped;  /* when the optimizer began the step, and when it had ended it: waits for roots count */
    uint64_t published;       /* when the new weights were published, which closes the round */
} pd_traced_round;

typedef enum pd_traced_kind {
    PD_TRACED_WORK,  /* a phase of a batch of work on all the job's parameters */
    PD_TRACED_ROUND, /* a round of a parameter has closed */
    PD_TRACED_ROOT,  /* a preconditioner task has come back from the preconditioner pool */
} pd_traced_kind;

typedef struct pd_traced {
    pd_traced_kind kind;
    const char *job;
    pd_step_phase phase; /* WORK */
    uint64_t begin, end; /* WORK, ROOT */
    const char *param;   /* ROUND, ROOT: name of the parameter; NULL: none */
    uint32_t index;      /* ROUND, ROOT: number of the parameter in its job */
    uint64_t step;       /* ROUND, ROOT: step of the round; step that the parameter had closed */
    int outcome;         /* ROUND: pd_outcome */
    pd_traced_round round;
} pd_traced;

/* A function that takes an event. The event and its texts are borrowed for the call, which must not wait. */
typedef void pd_trace_user(void *arg, const pd_traced *event);

#endif
