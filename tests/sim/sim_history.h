/* sim_history.h - what a job has published in a run, from its creation to its end. */
#ifndef SIM_HISTORY_H
#define SIM_HISTORY_H

#include "sim.h"
#include "store.h"

enum { VERSIONS = SIM_MOST_STEPS + 1 };

/* Weights of a step that a job has taken, and after a crash again with another course. Workers may have them. */
typedef struct lost_weights {
    struct lost_weights *next;
    uint64_t version;
    float at[];
} lost_weights;

typedef struct sim_published {
    float *weights[VERSIONS];  /* weights by version; NULL: no step has made this version */
    float *replaced[VERSIONS]; /* weights by which those of a step were replaced; NULL: they were not */
    bool is_replaced;          /* the present weights are those of `replaced` */
    lost_weights *lost;
    pd_outcome outcome[VERSIONS]; /* outcome of the round that closed with this step */
    /* the step may take another course when it is taken next, since the disk had no record of its course */
    bool open[VERSIONS];
    uint64_t step, version;
    uint64_t most; /* last step that was ever closed: larger than `step` once the server has gone back */
    bool begun;    /* the initial weights were published */
    bool again;    /* the server was restarted, and has not reported this parameter since */
} sim_published;

/* The ranks that counted in a step of a job with open sets. */
typedef struct sim_set {
    bool known;
    bool open;           /* the step may count other ranks when it is taken again: after a crash, with another course */
    uint32_t mask, kept; /* bit r: rank r counted; its push was kept for the next step */
    uint64_t age[SIM_WORLD]; /* by rank: the step, minus the one that its push was for */
} sim_set;

/* What has become of the pushes of a rank, by the step that they were for. */
typedef struct sim_pushes {
    bool sent[VERSIONS];        /* some process of the rank has begun to send it */
    uint64_t counted[VERSIONS]; /* the step in which it has counted; 0: in none */
    bool late[VERSIONS];        /* a process was told that it came too late */
} sim_pushes;

/* What was seen of ranks that are whole, in a job with grace = auto. Times are those of the step thread. */
typedef struct sim_patience {
    uint64_t step[SIM_WORLD];                      /* by rank: step of the push that is whole; 0: none is */
    uint64_t conn[SIM_WORLD];                      /* by rank: number of the connection then */
    uint64_t from_ns[SIM_WORLD], to_ns[SIM_WORLD]; /* by rank: it has become whole between these times */
    uint64_t looked_ns;                            /* time of the last look */
    uint64_t fixed_ns;                             /* a time before the last set was fixed */
    uint64_t work_ns;                              /* longest time from fixing a set to the last close, at most */
    bool closes;                                   /* parameters still have to close the last set's step */
} sim_patience;

/* What was seen of the step that a job with open sets collects, when the step thread had last run. */
typedef struct sim_watch {
    uint64_t life;               /* how often the server was killed before */
    uint64_t fixed;              /* the last step whose set was fixed */
    uint32_t whole;              /* bit r: each chunk of rank r had come */
    uint32_t units;              /* bit r: and each of all others of its group */
    uint64_t pushes[SIM_WORLD];  /* by rank: step of the push that these chunks belong to */
    uint64_t late[SIM_WORLD];    /* by rank: the last step for which its push came too late */
    uint64_t process[SIM_WORLD]; /* by rank: number of its process */
    uint64_t conn[SIM_WORLD];    /* by rank: number of its connection */
    uint64_t joined[SIM_WORLD];  /* by rank: a course that the job had at the latest when the connection was made */
    uint64_t course;             /* number of the job's course */
    uint32_t members;            /* the members */
    uint64_t generation;         /* of the launch that the job belongs to */
    uint64_t barrier;            /* number of barriers that the job has passed */
    uint32_t group[SIM_WORLD];   /* by rank: number of its group */
    uint32_t steady;             /* those who were members since the step before was fixed */
    uint64_t epoch;              /* number of changes of the members */
    uint64_t opened_ns;          /* time at which the step that is collected was opened; 0: it is not */
    /* the members when the step was opened, or when the last rank was removed that it had waited for */
    uint32_t opened;
    uint32_t expected; /* the ranks that the step waits for */
    sim_patience patience;
    uint64_t quorum_ns; /* time at which the quorum was seen to be whole; 0: it was not */
} sim_watch;

enum { SIM_SHARES = 1024 }; /* shares of the data that the workers of a job can use */
typedef struct sim_share_set {
    uint64_t bits[SIM_SHARES / 64];
} sim_share_set;

/* The shares that a push is made of. */
typedef struct sim_batch {
    struct sim_batch *next;
    uint64_t nonce, step; /* nonce: that of the process */
    uint32_t rank;
    sim_share_set shares;
} sim_batch;

/* The shares of a job, as follows from its pushes and sets: sim_shares.c. */
typedef struct sim_account {
    sim_batch *batches;               /* newest first */
    uint64_t by[SIM_WORLD][VERSIONS]; /* nonce of the process whose push for a step has counted; 0: none has */
    uint64_t nonce[SIM_WORLD];        /* by rank: nonce of its process when the step thread had last run */
    uint64_t counted[SIM_WORLD];      /* by rank: the last step in which it counted, as was seen then */
    uint64_t fixed, blind;            /* fixed: the last step whose set was seen; blind: the last one that was not */
    uint64_t life;                    /* life of the server in which that was */
    sim_share_set used;
} sim_account;

/* What is known of the sets of a fragment. */
typedef struct sim_sets {
    sim_set sets[VERSIONS];       /* by step; only of a job with open sets, as `pushes` */
    sim_pushes pushes[SIM_WORLD]; /* by rank */
    sim_watch watch;
    uint64_t course; /* number of the job's course (repeats.h) */
} sim_sets;

/* A step that a killed server had closed, and had not told anybody yet. The disk may have it. */
typedef struct sim_secret {
    struct sim_secret *next;
    uint32_t param;
    pd_closed closed; /* its references are to `counted` alone; `published` NULL: no new weights */
    uint64_t version;
    float at[]; /* the new weights */
} sim_secret;

/* The values that pushes of quantized gradients have sent, by rank, step and parameter; NULL: none was pushed. */
typedef struct sim_coded {
    float *at[SIM_WORLD][VERSIONS][SIM_PARAMS];
} sim_coded;

/* Weights to evaluate with that somebody got: elements [first, first + n) of a parameter after a step. */
typedef struct sim_readout {
    struct sim_readout *next;
    uint32_t param;
    uint64_t step;
    int64_t first, n;
    float at[];
} sim_readout;

/* The history of one job, from its creation to its end. A job that is begun anew has another history. */
typedef struct sim_history {
    const sim_job *job;
    uint32_t number;
    uint64_t creator; /* the process that began the job: tells it from other jobs of the same name */
    uint64_t durable; /* largest step that the server has reported as durable */
    bool goes_back;   /* the server was killed, and has this job again: from now on it may be at an older step */
    bool ended;       /* the server has ended the job, so it need not come back after a crash */
    bool loose;       /* some steps could take another course than before: sim_judge_loosen */
    bool end_kept;    /* the end of the job is on the disk, so it must not come back */
    uint64_t changed; /* step at which the job last took over another number of workers; 0: it never did */
    sim_sets fragments[SIM_FRAGMENTS];
    sim_account account;
    uint64_t chunk;         /* elements of a chunk */
    sim_coded *coded;       /* NULL: nothing was quantized */
    sim_secret *secrets;    /* of the last time that the server was killed, oldest first */
    sim_readout *readouts;  /* newest first */
    uint64_t secret_most;   /* the last step that may be repeated without being known; 0: none */
    uint32_t least_members; /* 1: members have come or gone; otherwise 0 */
    sim_published params[SIM_PARAMS];
    struct sim_history *next;
} sim_history;

#endif
