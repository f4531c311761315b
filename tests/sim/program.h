/* program.h - one process of a training job, shared by worker.c (its connection, its life) and program.c (what it does). */
#ifndef SIM_PROGRAM_H
#define SIM_PROGRAM_H

#include "call.h"
#include "declared_params.h"
#include "pump.h"
#include "restart.h"
#include "worker.h"

enum { CALLS = 3 };

typedef enum phase { WELCOME, DECLARE, INIT, FETCH, STEP, STEPPING, PULLING, BARRIER, LEAVING, RESTING, ENDED } phase;
extern const char *const sim_phase_names[];

/* One push, with its items. */
typedef struct call {
    pd_ticket_id ticket;
    bool         pulls;                 /* asks for the new weights in the same call; else a Pull follows */
    uint64_t     again_ns;              /* when the push is tried again; 0: never */
    pd_item      items[SIM_PARAMS];
    size_t       n;
} call;

struct sim_worker {
    sim           *s;
    const sim_job *job;
    uint32_t       rank;
    uint64_t       process;             /* number of all that were started */
    pd_core       *core;
    pd_pump        pump;
    sim_link      *link;
    phase          phase, after;        /* after: the phase that follows RESTING */
    pd_ticket_id   ticket;
    call           calls[CALLS]; size_t n_calls;
    float         *weights[SIM_PARAMS], *gradients[SIM_PARAMS];
    uint64_t       versions[SIM_PARAMS];
    uint64_t       step, barriers;      /* the step under way; barriers passed */
    uint64_t       close_ns;            /* when it closes the step once more; 0: never */
    bool           finite, finished, dropped, told_missing;
    uint64_t       welcomed_ns;         /* when the server's first welcome came; 0: not yet */
    uint64_t       reached, asked_ns;   /* how far its program has come, and since when it has been there */
    uint64_t       alarm_ns;            /* when the clock wakes it next; 0: never */
    struct sim_worker *next;
};

/* ---- worker.c ---- */
void sim_worker_trace(sim_worker *w, const char *what, uint64_t a, uint64_t b);
void sim_worker_end(sim_worker *w);
/* Ends a process whose job has ended; another process begins the job anew. */
void sim_worker_end_dropped(sim_worker *w);
/* Ends a process with an error that the plan explains; any other error violates an invariant. */
void sim_worker_end_refused(sim_worker *w, int code, const char *text);

/* ---- program.c ---- */
/* Goes on with the program as far as it can go now. */
void sim_program_run(sim_worker *w);
void sim_program_go_on(sim_worker *w, phase next);
/* Waits a little in RESTING, then enters the phase `after` again. `why` is for the trace. */
void sim_program_rest(sim_worker *w, phase after, const char *why);

#endif
