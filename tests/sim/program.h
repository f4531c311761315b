/* program.h - one process of a training job. worker.c has its connection, its start and its end; program.c has its
 * training. */
#ifndef SIM_PROGRAM_H
#define SIM_PROGRAM_H

#include "call.h"
#include "join.h"
#include "pump.h"
#include "replace.h"
#include "recoveries.h"
#include "sim_quantized.h"
#include "worker.h"

enum { CALLS = 3 };

typedef enum phase {
    WELCOME,
    DECLARE,
    INIT,
    FETCH,
    RECALL,
    STEP,
    STEPPING,
    PULLING,
    REPLACING, /* rank 0 sends weights that were changed by hand */
    BARRIER,
    REWINDING, /* the server has gone back, and the parameters are declared again */
    SYNC,      /* the last step must be durable before the process leaves */
    LEAVING,
    RESTING,
    ENDED
} phase;
extern const char *const sim_phase_names[];

/* One push, with its items. */
typedef struct call {
    pd_ticket_id ticket;
    bool pulls;        /* the push requests the new weights; otherwise a Pull follows */
    uint64_t again_ns; /* time at which the push is tried again; 0: never */
    pd_item items[SIM_PARAMS];
    pd_item_count counts[SIM_PARAMS]; /* by item: what the answer says of a push that has counted */
    size_t n;
    pd_scalar scalar; /* that of the push; no name: it has none */
} call;

struct sim_worker {
    sim *s;
    const sim_job *job;
    /* rank: that of the process. place: the process's place in its launch, which is its rank unless the server chooses
     * ranks: then `rank` is the place until the process is welcomed. */
    uint32_t rank, place;
    uint64_t process; /* number of this process: processes are numbered in the order in which they start */
    pd_core *core;
    pd_pump pump;
    sim_link *link;
    phase phase, after; /* after: the phase that follows RESTING */
    pd_ticket_id ticket;
    call calls[CALLS];
    size_t n_calls;
    float *weights[SIM_PARAMS], *gradients[SIM_PARAMS];
    uint64_t sharing; /* random state of this process: whether it shares memory. The other draws stay as they are */
    bool shares, in_place; /* shares: the process is on the server's machine. in_place: it computes gradients in shared
                            * memory */
    sim_rests rests;       /* if gradients are quantized */
    uint64_t versions[SIM_PARAMS];
    uint64_t began;       /* step that the job had when this process began, or went back last */
    uint64_t changed;     /* step before which the process has changed its weights by hand; 0: none */
    uint64_t step, met;   /* step: the step under way; met: the last step at whose barrier the process has come */
    uint64_t computed;    /* step for which the process has computed its gradients, in a job with open sets */
    uint64_t unsent;      /* last step of which a push that ended with an error was not sent again; 0: there is none */
    uint64_t asleep_ns;   /* time until which the process is stopped; 0: it never was */
    uint64_t close_ns;    /* time at which the process sends close_step again; 0: never */
    pd_ticket_id meeting; /* the barrier at which the process is, while it trains (sim_open.meets); 0: at none */
    uint64_t passed;      /* number of barriers that the job had passed when the process began */
    uint64_t generation;  /* number of its launch; 0: it does not know it */
    uint64_t launch;      /* number of its launch, whether it knows it or not */
    uint64_t newest;      /* creator of the job of this name at that time */
    bool has_met;         /* it has come to its barrier */
    bool gave_up;         /* a push of the last step has ended with an error */
    bool was_late, carries; /* was_late: the last push came too late; carries: the push under way has its data, too */
    bool lost;              /* the last push was of shares that others have got: its data are not carried over */
    bool finite, finished, dropped, told_missing;
    uint64_t welcomed_ns;       /* time at which the server welcomed the process; 0: not yet */
    uint64_t reached, asked_ns; /* reached: latest new step and phase; asked_ns: time of entering it */
    uint64_t alarm_ns;          /* time at which a resting process goes on; 0: it does not rest */
    struct sim_worker *next;
};

void sim_worker_trace(sim_worker *w, const char *what, uint64_t a, uint64_t b);
void sim_worker_end(sim_worker *w);
/* Ends a process whose job has ended, and starts another process that begins the job anew. */
void sim_worker_end_dropped(sim_worker *w);
/* Ends a process with an error that the plan explains; any other error violates an invariant. */
void sim_worker_end_refused(sim_worker *w, int code, const char *text);

/* Return the lowest and the highest step of the parameters. */
uint64_t sim_least_step(const sim_worker *w);
uint64_t sim_most_step(const sim_worker *w);
/* Returns whether the ticket is done. If so, *rc receives its result, *err its error, and *reply (NULL: not wanted) the
 * answer of `*bytes` bytes, which the caller frees. */
bool sim_program_take(sim_worker *w, pd_ticket_id ticket, int *rc, uint8_t **reply, size_t *bytes, pd_error *err);
/* The note that a rank gives to a step. */
typedef struct sim_program_note {
    uint32_t job, rank;
    uint64_t step;
} sim_program_note;
sim_program_note sim_note_of(const sim_worker *w, uint64_t step);
/* Asks for this rank's note, in the phase RECALL; checks it. */
void sim_program_recall(sim_worker *w);
void sim_program_on_recalled(sim_worker *w);
/* Goes back with the server: forgets all that is under way, and declares the parameters again. */
void sim_program_go_back(sim_worker *w);
void sim_program_on_rewound(sim_worker *w);
/* Asks for a checkpoint of the last step. */
void sim_program_sync(sim_worker *w);
void sim_program_on_synced(sim_worker *w);

/* Returns whether another process of the job has finished all its steps. */
bool sim_is_finished(const sim_worker *w);
/* Returns whether the worker ends a step with close_step. It then pushes only the parameters for which it has a
 * gradient. */
bool sim_closes_step(const sim_worker *w, uint64_t step);
void sim_program_fetch(sim_worker *w);
void sim_program_leave(sim_worker *w);
/* Continues the program of the process until it has to wait. */
void sim_program_run(sim_worker *w);
void sim_program_go_on(sim_worker *w, phase next);
/* Waits for a short fixed time in the phase RESTING, then enters the phase `after`. `why` is for the trace. */
void sim_program_rest(sim_worker *w, phase after, const char *why);

#endif
