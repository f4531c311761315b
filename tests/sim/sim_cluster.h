/* sim_cluster.h - a run whose jobs are on several servers, the shards of a cluster: what must come out of it, and the
 * processes that train. Plans of --shards. */
#ifndef SIM_CLUSTER_H
#define SIM_CLUSTER_H

#include "sim_process.h"
#include "server.h"

typedef struct sim_trainee sim_trainee;

/* What is known of a job. */
typedef struct sim_cluster_job {
    /* From an undisturbed twin on one server: the weights after each step, and the outcome of each parameter's round.
     */
    float *weights[SIM_MOST_STEPS + 1][SIM_PARAMS];
    float *readouts[SIM_MOST_STEPS + 1][SIM_PARAMS]; /* the weights to evaluate with; NULL: the job does not average */
    int outcome[SIM_MOST_STEPS + 1][SIM_PARAMS];
    uint64_t acked;                /* newest step that was reported as durable on all shards */
    uint64_t durable[SIM_SHARDS];  /* newest step that each shard has reported as durable since it was loaded */
    uint64_t back[SIM_SHARDS];     /* how often the shard had gone back when it reported that */
    uint64_t mirrored[SIM_SHARDS]; /* step up to which the mirror of each shard has the job; 0: it has nothing */
    uint64_t common;               /* newest step to which, as workers have told, all shards can go back; 0: none */
    bool begun[SIM_SHARDS];        /* the shard has had a checkpoint of the job */
    bool uneven;                   /* the first one of a shard was not of step 0 */
    bool lags[SIM_SHARDS];         /* the shard's mirror has not counted, and has not reached `common` since */
    uint64_t met[SIM_WORLD];       /* last step at whose barrier each rank has come */
    uint32_t number[SIM_SHARDS];   /* by which each shard knows the job; 0: it is not known */
    uint64_t life[SIM_SHARDS];     /* of the job on each shard, when it was last seen */
    bool ended[SIM_SHARDS];        /* the shard has ended the job */
    bool finished;                 /* a process has taken all steps, and they are durable */
    bool loose;     /* the job was started anew from weights alone, so that its optimizer has lost its state */
    bool abandoned; /* it cannot continue, and its processes end */
    bool lasting;   /* no process dies, and all ranks can send all their steps again */
    bool calm;      /* it is lasting, and no shard has lost it: nobody goes back */
} sim_cluster_job;

typedef struct sim_cluster {
    sim_cluster_job jobs[SIM_JOBS];
    sim_trainee *trainees;          /* all processes so far, newest first */
    uint32_t coming;                /* number of processes that are about to start */
    uint64_t went_back[SIM_SHARDS]; /* how often each shard was taken back to a checkpoint */
    /* With spares: the server that has the state of each shard. Otherwise the one of the same number. */
    struct sim_server *holder[SIM_SHARDS];
} sim_cluster;

/* Makes the servers and the twins. */
void sim_cluster_new(sim *s);
void sim_cluster_begin(sim *s);
void sim_cluster_free(sim *s);
/* Takes part in a fault of these kinds: SIM_BREAK, SIM_HOLE, SIM_CRASH. */
void sim_cluster_hurt(sim *s, const sim_fault *fault);
/* Returns whether all processes have ended. */
bool sim_cluster_is_over(const sim *s);
/* Checks that no process waits for too long. */
void sim_cluster_check(sim *s);
/* Checks at the end that each job has taken all its steps, and no shard has gone back without need. */
void sim_cluster_check_end(const sim *s);
void sim_cluster_describe(const sim *s);
/* Checks an effect of a server's store: what it publishes is what the twin has. */
void sim_cluster_effect(const sim_server *server, const pd_effect *effect);
/* Returns whether another server has the state of the server's shard. */
bool sim_cluster_is_replaced(const sim_server *server);
/* Returns whether all parameters on all shards are at this step or a later one. */
bool sim_cluster_is_past(const sim *s, const sim_job *job, uint64_t step);
/* Checks that all shards that have a job have that of one cluster. */
void sim_cluster_check_number(const sim *s, const sim_job *job);
/* Notes that a server carries out an order to go back; that it has. */
void sim_cluster_goes_back(const sim_server *server);
void sim_cluster_went_back(const sim_server *server, const pd_go_back_order *order);
/* Notes that a mirror has a job of the server's shard up to a step. */
void sim_cluster_mirrored(const sim_server *server, const char *job, uint64_t step);
/* Returns whether there is a step of the job to which all shards can go back, also from their mirrors: one that workers
 * have told, or that of the initial weights. */
bool sim_cluster_has_common(const sim *s, const sim_cluster_job *of);
/* Notes that a server has got its shard from the mirror, which may lack steps. */
void sim_cluster_fetched(const sim_server *server);
/* Returns the newest step up to `step` that is not lost if all machines are. */
uint64_t sim_cluster_acked(const sim *s, const sim_job *job, uint64_t step);
/* Checks the jobs of a server that has loaded what the disk of its shard has, after the shard's last server was killed
 * or lost it. */
void sim_cluster_restored(const sim_server *server);

/* Writes the gradient of a rank in a step, computed from the weights of all parameters. */
void sim_cluster_gradient(const sim_job *job, uint32_t rank, uint64_t step, uint32_t p, float *const *weights,
                          float *out);
/* Lets all processes of a job end, since it cannot continue. */
void sim_cluster_abandon(sim *s, const sim_job *job, const char *why);

/* ---- trainee.c: a process that trains ---- */

void sim_trainee_start(sim *s, const sim_job *job, uint32_t rank, uint64_t delay_ns);
/* Returns the living process of a rank; NULL: there is none. */
sim_trainee *sim_trainee_at(const sim *s, uint32_t job, uint32_t rank);
sim_process *sim_trainee_process(sim_trainee *t);
void sim_trainee_kill(sim_trainee *t);
void sim_trainees_check(sim *s);
bool sim_trainees_are_over(const sim *s);
void sim_trainees_describe(const sim *s);
void sim_trainees_free(sim *s);

#endif
