/* sim_plan.h - what one seed means: the jobs, their workers, the server's limits and the faults of a run.
 *
 * A plan is drawn whole before the run begins, so that --shrink can take parts of it away and run the rest again. */
#ifndef SIM_PLAN_H
#define SIM_PLAN_H

#include "paramd/tensor.h"
#include "mutant.h"

#include <stdbool.h>

#define SIM_MS 1000000ull
#define SIM_S 1000000000ull

enum {
    SIM_JOBS = 4,
    SIM_SHARDS = 4,
    SIM_SPARES = 2, /* most daemons of a plan that have no shard at first */
    SIM_SERVERS = SIM_SHARDS + SIM_SPARES,
    SIM_WORLD = 8,
    SIM_FRAGMENTS = 4, /* most fragments of a job */
    SIM_PARAMS = 40,
    SIM_FAULTS = 24,
    SIM_OPTIONS = 28,
    SIM_STEPS = 6,        /* most steps of a job in an ordinary plan */
    SIM_SCRAPE_FLOOD = 3, /* rank of the peer of the HTTP listener that floods it */
    SIM_MOST_STEPS = 16,  /* most steps of a job in a plan with crashes, and of a job with open sets */
    SIM_CHANGES = 2,      /* how often the number of a job's workers may change */
    SIM_ELEMENTS = 4096
};

typedef struct sim_param {
    char name[24];
    pd_shape shape;
    int64_t n; /* elements */
    bool ranged, model_state;
} sim_param;

/* How the sets of ranks of a job's steps are open (server/store/step/fragment.h). */
typedef struct sim_open {
    bool on;                      /* false: every rank counts in every step */
    uint32_t quorum;              /* number of ranks that a step waits for */
    uint64_t staleness, grace_ns; /* staleness UINT64_MAX: any age counts */
    uint64_t patience_ns;         /* grace = auto: longest patience of a push; 0: the grace is a fixed time */
    bool waits;                   /* on_stale = wait */
    enum { SIM_UNDAMPED, SIM_INVERSE, SIM_ROOT } damping;
    uint32_t least;   /* fewest members with which steps are taken */
    bool shrinks;     /* on_lost_worker = shrink: members that leave or are lost for long are removed */
    bool sends_lr;    /* each push brings a learning rate, which depends on its step */
    bool masks;       /* each element of a gradient of rank r is 2^r, so the change of weights shows who counted */
    uint64_t work_ns; /* longest time for which a rank computes before it pushes */
    uint32_t slow;    /* rank that takes ten times as long; `world` of the job: none does */
    uint32_t shares;  /* most shares of the data that a push is made of; 0: workers use no shares */
    bool reforms;     /* the job is launched again while its server and some of its processes live */
    bool meets;       /* each process comes to a barrier once, while it trains */
    bool any_rank;    /* the server chooses the ranks of processes */
    uint32_t group;   /* number of ranks of a group; 1: each rank is a group of its own */
    bool carries;     /* a push carries the data of the one before if that was late */
} sim_open;

typedef struct sim_job {
    char name[16];
    uint32_t number; /* number of the job in the plan */
    uint32_t world, n_params;
    uint32_t fragments; /* number of fragments; parameter p is in fragment p % fragments (sim_fragment_of) */
    sim_param params[SIM_PARAMS];
    char options[SIM_OPTIONS][48];
    uint32_t n_options;
    char rule[240];
    uint64_t steps, start_ns;
    pd_dtype push_dtype; /* PD_INT8, PD_INT4: gradients are quantized; 0: they are not */
    int how;             /* aggregate of the job: an enum pd_aggregation_choice */
    bool plain;          /* the rule is sgd with lr=1, so the expected weights follow by simple arithmetic */
    bool ready;   /* roots are used when they are ready, and operators set values: the weights depend on timing */
    bool runless; /* its processes do not know their run */
    bool rejects, clips, mean_init, barriers, weighted;
    bool replaces;                         /* weights are changed by hand after some steps: sim_replaces */
    uint32_t absent_of_16, infinite_of_64; /* of 16 gradients, so many are left out; of 64, so many have an infinity */
    uint32_t missing;                      /* rank that leaves for good; `world`: no rank does */
    double step_timeout;
    /* in a plan with crashes: number of steps whose pushes each rank keeps (0: it handles PD_REWIND), and the steps
     * between two checkpoints */
    uint32_t window[SIM_WORLD];
    uint64_t checkpoint_every;
    /* The numbers of workers with which the job goes on after crashes, or after it was launched again; 0: it does not
     * change again. All ranks of a job whose resizes contribute the same, so that the number of ranks does not change
     * the weights. */
    uint32_t later[SIM_CHANGES];
    sim_open open;
    /* In a plan with several servers. whole: all parameters take their steps together. mixes: gradients depend on the
     * weights of all parameters. slice: how long a call waits until the program makes it again, in seconds */
    bool whole, mixes, logs; /* logs: the job has a WAL */
    double slice;
} sim_job;

typedef enum sim_fault_kind {
    SIM_BREAK,      /* a worker's connection breaks after `amount` more bytes */
    SIM_HOLE,       /* from now on nothing arrives on a worker's connection, and neither side sees it */
    SIM_CRASH,      /* a worker's process dies; `amount` ns later another one takes its rank */
    SIM_GONE,       /* a worker's process dies, and none comes after it */
    SIM_LEAVE,      /* a worker leaves in the middle and comes back as another process */
    SIM_DROP,       /* an operator drops a job */
    SIM_IMPORT,     /* an operator begins an import and stops in the middle for `amount` ns */
    SIM_SET,        /* an operator sets a hyperparameter, to the value that it has already unless the job is `ready` */
    SIM_FLOOD,      /* an operator sends `amount` control requests at once */
    SIM_DEAF,       /* an operator sends `amount` control requests at once, and reads no answer */
    SIM_HALF_HELLO, /* a peer begins a Hello and does not finish it */
    SIM_NOISE,      /* a peer sends random bytes that are no frames */
    SIM_ID_ZERO,    /* a peer sends a request with id 0 */
    SIM_LEAVER,     /* a worker creates a job, leaves it, then begins a push and does not finish it */
    SIM_PULLER,     /* a worker creates a job and pulls its weights very often, but reads no answer */
    SIM_UNLIKE,     /* a worker creates a job and pushes two chunks of a parameter with different weights of the rank */
    SIM_NO_MEMORY,  /* for `amount` ns, one of 256 allocations of the server fails at random */
    SIM_STALL_STEP, /* the step thread does not run for `amount` ns */
    SIM_STALL_LOOP, /* the loop thread does not run for `amount` ns */
    SIM_RESTART, /* the server is restarted from images of its jobs as soon as they can be taken, within `amount` ns */
    SIM_EXPORT,  /* an operator exports a job, with state if `rank` is even, and is gone after `amount` ns */
    /* a worker without the client library creates a job and shares memory: sharer.c. `amount` is its seed */
    SIM_SHARER,
    /* Only in plans with crashes. SIM_KILL: the server is killed, at once if `amount` is even; otherwise in the middle
     * of a call of the disk, before which there are amount / 2 % 32 others. The disk forgets what was not synced. */
    SIM_KILL,
    SIM_DISK_FULL, /* for `amount` ns every write to the disk fails with ENOSPC */
    SIM_DISK_FAIL, /* for `amount` ns one of 3 to 32 calls of the disk fails with EIO */
    /* only with --roles: an identity that has no role for the plan's jobs asks for all that operators can do to them */
    SIM_TRESPASS,
    /* only with --scrapes: a peer of the HTTP listener opens connections until the world is calm */
    SIM_SCRAPE,
    /* a process of another run wants a rank of a job; it only joins, and says that it begins anew if `amount` is odd */
    SIM_STRANGER,
    SIM_STOP,   /* a worker's process is stopped for `amount` ns, and then goes on: only in jobs with open sets */
    SIM_KICK,   /* an operator removes a worker's process: only in jobs with open sets */
    SIM_REFORM, /* a job is launched again, of whose processes some live on; in another number if the job has one */
    /* Only with --spares: they hit the daemon that owns a shard. SIM_SLEEP: it is stopped for `amount` ns, and then
     * goes on. SIM_CUT_OFF: for `amount` ns it does not reach the engine; if `amount` is odd, no other daemon reaches
     * it. SIM_ENGINE_AWAY: for `amount` ns no daemon reaches the engine. SIM_LATE_WATCH hits the daemon with the number
     * `shard`: for `amount` ns its watch reports nothing, while its other calls of the engine are answered. */
    SIM_SLEEP,
    SIM_CUT_OFF,
    SIM_ENGINE_AWAY,
    SIM_LATE_WATCH,
    /* only with --shards: for `amount` ns one of 3 to 12 calls of the disk fails with EIO, and the server is killed
     * within 12 calls after every other one that fails */
    SIM_DISK_DIES,
    SIM_FAULT_KINDS
} sim_fault_kind;

typedef struct sim_fault {
    sim_fault_kind kind;
    uint64_t at_ns, amount;
    uint32_t job, rank;
    uint32_t shard;   /* the server that it hits, or to which the connection leads; SIM_LATE_WATCH: the daemon */
    uint64_t down_ns; /* SIM_KILL, only with --spares: time until the daemon starts again; 0: a moment */
} sim_fault;

typedef struct sim_plan {
    uint64_t seed;
    enum pd_mutant mutant;
    bool roles;          /* the server has roles: --roles */
    bool scrapes;        /* peers ask the HTTP listener: --scrapes */
    bool movers;         /* the server lends directions of connections to movers: --movers */
    uint64_t least_lent; /* fewest bytes that are lent */
    uint32_t n_jobs, n_faults;
    sim_job jobs[SIM_JOBS];
    sim_fault faults[SIM_FAULTS];
    uint64_t calm_ns; /* time after which no fault begins or lasts */
    uint64_t chunk, payload, ingest, pieces;
    double batch_ns;
    uint64_t window, latency_ns; /* of each connection: most bytes under way, and the longest time until they arrive */
    uint64_t root_ns;            /* longest time that the computation of a root takes */
    uint32_t pool_threads;
    bool drains; /* the server is told to stop while jobs run */
    /* several jobs begin at once and need more memory than the ingest budget, which is the smallest legal one */
    bool crowded;
    bool shares;           /* some workers are on the server's machine, and want to share memory with it */
    bool server_shares;    /* the server allows that */
    uint64_t least_shared; /* payload bytes from which on memory is shared */
    bool crashes;          /* the server has a disk, and is killed at least once */
    uint32_t shards;       /* number of servers, which share each job: --shards; 0: one, without the cluster's plans */
    uint32_t spares;       /* number of daemons without a shard: --spares; 0: there is no engine */
    uint64_t lease_ms;     /* with spares: how long the lease of a daemon's key lasts */
    bool two_owners;       /* with spares: an owner that was replaced stays cut off, and meets a new process: below */
    bool mirrors;          /* with spares: a spare has a shard from its mirror: --mirrors; set before they are added */
    uint64_t share_fails;  /* of so many kernel calls for shared memory one fails; 0: none does */
} sim_plan;

void sim_plan_draw(sim_plan *plan, uint64_t seed);
/* Draws a plan whose server has a disk and is killed at least once: sim_plan_crash.c. */
void sim_plan_draw_crashes(sim_plan *plan, uint64_t seed);
/* Draws a plan whose jobs are on several servers, which have disks: sim_plan_cluster.c. `shards` 0: 1 to SIM_SHARDS. */
void sim_plan_draw_cluster(sim_plan *plan, uint64_t seed, uint32_t shards);
/* Lets the shards of a plan of sim_plan_draw_cluster have an engine and spares, and adds faults after which a spare
 * takes a shard: sim_plan_spares.c. The draws have a random state of their own. In some plans (`two_owners`) an owner
 * that was replaced does not hear of it for a while; once a step is durable with the new one, a process dies, and the
 * one that replaces it names the earlier owner first. In others the watches of two daemons are late at the same time.
 */
void sim_plan_add_spares(sim_plan *plan);
/* Gives the plan's server roles, and adds faults in which an identity without a role asks for everything. */
void sim_plan_add_trespassers(sim_plan *plan);
/* Adds faults in which peers ask the HTTP listener. */
void sim_plan_add_scrapers(sim_plan *plan);
/* Lets the server have movers, for payloads of a drawn size on. The draws have a random state of their own. */
void sim_plan_add_movers(sim_plan *plan);
/* Prints the plan for readers of a trace. */
void sim_plan_print(const sim_plan *plan);
const char *sim_fault_name(sim_fault_kind kind);

/* Parts of a plan, for both kinds. `crowded`: see sim_plan. */
void sim_plan_draw_params(sim_job *job, uint64_t chunk, uint64_t *r);
void sim_plan_draw_rule(sim_job *job, bool crowded, uint64_t *r);
void sim_plan_draw_options(sim_job *job, uint64_t chunk, uint64_t *r);
/* Lets workers of half of the jobs change weights by hand. That is drawn apart: other draws stay as they are. */
void sim_plan_draw_replaces(const sim_plan *plan, sim_job *job);
void sim_plan_draw_limits(sim_plan *plan, uint64_t *r);
void sim_plan_add_option(sim_job *job, const char *text);
/* Takes away the options that begin with `name`. */
void sim_plan_forget_option(sim_job *job, const char *name);
/* Lets jobs of one plan of three have open sets, with workers that are slow or stop: sim_plan_open.c. The draws have a
 * random state of their own, so that all other plans stay as they are. Without crashes, members of some of these jobs
 * come and go. */
void sim_plan_draw_open(sim_plan *plan);
/* Returns how many shares of the data the rank wants when its push for a step counts; 0: it uses none. */
uint32_t sim_wanted(const sim_job *job, uint32_t rank, uint64_t step);
/* Returns for how many ms the rank can do without the answer to its push for a step. */
uint32_t sim_patience_ms(const sim_job *job, uint32_t rank, uint64_t step);
/* Puts the parameters of some jobs into several fragments, which their workers push one after the other. The draws have
 * a random state of their own. */
void sim_plan_draw_fragments(sim_plan *plan);
/* Gives the job options with which equal contributions of all ranks have the same aggregate in each world. */
void sim_plan_equalize(sim_job *job, uint64_t *r);
/* Draws another number of workers than the one before, from 1 to 4. Returns 0 if the draws do not suit the job. */
uint32_t sim_plan_draw_world(const sim_job *job, uint32_t before, uint64_t *r);
/* Lets some jobs be launched again in another number while their server lives. The draws have a random state of their
 * own. */
void sim_plan_draw_reforms(sim_plan *plan);
/* Lets gradients of some jobs be quantized, none of whose processes dies. The draws have a random state of their own.
 */
void sim_plan_draw_quantized(sim_plan *plan);
/* Returns the fragment that a parameter belongs to. */
static inline uint32_t sim_fragment_of(const sim_job *job, uint32_t param)
{
    return job->fragments > 1 ? param % job->fragments : 0;
}
/* Returns whether the job's optimizer averages weights: those to evaluate with differ from the trained ones then. */
bool sim_averages(const sim_job *job);
/* Returns the last step that the job may take. One with open sets may take further steps with contributions that were
 * too late for its last ones. */
uint64_t sim_last_step(const sim_job *job);
/* Draws the amount of a fault that begins `room_ns` before the world is calm. */
uint64_t sim_plan_draw_amount(sim_fault_kind kind, uint64_t room_ns, uint64_t *r);
/* Returns who the worker at a rank is, as its connections prove it; NULL: "anyone". In a third of the plans all workers
 * of a job have one identity, in another third each rank has its own. */
const char *sim_plan_identity(const sim_plan *plan, uint32_t job, uint32_t rank);
/* Returns the largest number of workers that the job has in the plan. */
uint32_t sim_most_world(const sim_job *job);
/* Draws one to three processes of another run in a third of the plans. The draws have a random state of their own, so
 * that the other faults of a seed stay the same. */
void sim_plan_draw_strangers(sim_plan *plan);
/* Notes which ranks leave for good, and switches barriers off where they would wait for ever. */
void sim_plan_mark_missing(sim_plan *plan);

/* Returns the next random number (splitmix64). Every draw of a run comes from one state. */
uint64_t sim_next(uint64_t *state);
/* Returns a random number from 0 to n - 1. */
uint64_t sim_below(uint64_t *state, uint64_t n);
/* Returns true with a probability of 1/n. */
bool sim_once_in(uint64_t *state, uint64_t n);
/* Returns a pseudorandom number that depends on its arguments alone. */
uint64_t sim_mix(uint64_t a, uint64_t b, uint64_t c, uint64_t d);

#endif
