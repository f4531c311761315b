/* turn.h - one turn of the step thread: applies requests for a bounded time, does one batch of work, checks deadlines,
 * and forwards effects.
 *
 * This module has no thread, clock or mailbox, so the daemon's step thread and the single-threaded simulator run the
 * same code. Both take mail from a mailbox and repeat:
 *
 *     pd_turn_add(turn, mail);            new requests, oldest first; NULL: none
 *     more = pd_turn_run(turn);           true: call again at once; false: wait for mail or for pd_turn_next_tick
 *
 * **Flows.** Identities take turns, and so do the jobs and connections of one identity, each in proportion to the time
 * that its requests took. A *flow* is a queue of requests, which are served in the order of their arrival. All requests
 * of one identity to one job are a flow. So are its requests on one connection that belong to no job. A *party* is one
 * identity with its flows. Parties are served by deficit round robin, and so are the flows of a party:
 *
 *     pd_flows ─┬─ requests of the daemon itself: before all others
 *               ├─ reads ─── pd_flow (party) ─── pd_flow ─── requests that only read, for operators
 *               └─ others ── pd_flow (party) ─── pd_flow ─── all other requests
 *
 * Each flow and each party has a balance of time. The balance falls by the time that a request took, so the price of a
 * request does not have to be known before. A flow or party that has used its balance up waits until the others have
 * had their turn, and gets PD_FLOW_QUANTUM_NS more. A debt stays while others wait, also when the flow has no more
 * requests: so a peer with one slow request after the other gets no more than a peer with many fast ones.
 *
 * No order is kept between flows. Nothing depends on it: a connection gets its job with the answer to its Hello, and
 * the store refuses requests of a connection that no longer has its rank. */
#ifndef PD_TURN_H
#define PD_TURN_H

#include "request.h"
#include "store.h"

enum { PD_FLOW_BUCKETS = 512 };

/* Time that a flow gets in each turn. A party waits for about as long times the number of other parties. */
#define PD_FLOW_QUANTUM_NS 500000
/* Least time that a request costs, so that flows take turns however coarse the clock is. */
#define PD_FLOW_LEAST_NS 1000

/* A flow, or a party, which contains flows. */
typedef struct pd_flow {
    /* Key of a flow: number of its identity, and its job or its connection; the other one is 0. Key of a party: the
     * number of its identity, and whether it has the flows whose first request only reads. */
    uint64_t party, conn;
    uint32_t job;
    bool reads;
    struct pd_flow *owner; /* of a flow: its party; of a party: pd_flows.reads or pd_flows.others, which have none */
    struct pd_flow *ring;  /* of a party: its flows in a circle, from the one that is looked at next; NULL: none */
    pd_mail *first, *last; /* of a flow: its waiting requests, the oldest first */
    size_t waiting;        /* number of its waiting requests; of a party: of those of all its flows */
    int64_t balance_ns;
    struct pd_flow *prev, *next, *same_bucket;
} pd_flow;

/* Initialize with zeros. */
typedef struct pd_flows {
    pd_mail *first, *last; /* requests of the daemon itself (pd_request.party 0), the oldest first */
    pd_flow others, reads; /* the parties with requests of each kind */
    pd_flow *served;       /* flow of the request that was taken last; NULL: the daemon's */
    /* The flow of requests for whose flow there was no memory; it is a party of its own. While it has requests, no new
     * flow is made, so no request overtakes an earlier one of its own flow. */
    pd_flow spare;
    pd_flow *buckets[PD_FLOW_BUCKETS]; /* hash table of flows and parties by key */
} pd_flows;

/* Takes over a request, and appends it to its flow. */
void pd_flows_add(pd_flows *flows, pd_request *request);
/* Returns the request that is to be served next, which the caller owns from then on. After it was served, fully or in
 * part, pd_flows_charge must be called. `reads`: requests that only read are served before others; false: they are not
 * served. NULL: no such request waits. */
pd_request *pd_flows_take(pd_flows *flows, bool reads);
/* Charges the flow of the request that was taken last for `ns`. `rest`: this request, which is not done and will be the
 * next of its flow; NULL: it is done. */
void pd_flows_charge(pd_flows *flows, pd_request *rest, uint64_t ns);
/* Returns whether a request waits. `reads`: requests that only read count, too. */
bool pd_flows_wait(const pd_flows *flows, bool reads);

/* Time limits of a turn of the step thread. The time for requests is as long as the last batch of work took, but at
 * least PD_TURN_SLICE_NS and at most PD_TURN_MOST_NS. So neither requests nor work wait long for each other. Effects
 * are forwarded every PD_TURN_SLICE_NS. */
#define PD_TURN_SLICE_NS 4000000u
#define PD_TURN_MOST_NS 50000000u
/* Time that a part of a request takes, by the store's estimate, before other requests have their turn. */
#define PD_TURN_PART_NS 2000000u

/* Requests that only read get one part in PD_TURN_READ_SHARE of the time. They may use unused time later, but not more
 * than PD_TURN_READ_BURST_NS at once. If nothing else was served for PD_TURN_QUIET_NS, they get all time. Shorter
 * pauses do not count: a job whose workers compute has many of them. */
#define PD_TURN_READ_SHARE 16
#define PD_TURN_READ_BURST_NS 4000000u
#define PD_TURN_QUIET_NS 100000000u

/* The functions that a turn of the step thread calls. They must not call the turn or the store. */
typedef struct pd_turn_user {
    void *arg;
    /* Returns the time in nanoseconds, by a clock that never goes back. */
    uint64_t (*now_ns)(void *arg);
    /* Posts effects to the loop thread: those from `first` to `last`, linked by mail.next. */
    void (*effects)(void *arg, pd_mail *first, pd_mail *last);
    /* Hands the preconditioner task of an effect to the preconditioner pool, which returns it as a PD_REQ_TASK
     * request. */
    void (*task)(void *arg, pd_effect *effect);
    /* Takes back from the preconditioner pool the waiting preconditioner tasks of a job that has ended. They come as
     * PD_REQ_TASK requests. */
    void (*forget)(void *arg, uint32_t job);
    /* Hands a checkpoint, which comes in an effect, to the checkpoint writer. It comes back as a
     * PD_REQ_CHECKPOINT_WRITTEN request. NULL: there is no checkpoint writer (pd_store_config.keeps is false). */
    void (*keep)(void *arg, pd_effect *effect);
    /* Hands an entry of a log, which comes in an effect, to the WAL thread. It comes back as a PD_REQ_WAL
     * request. NULL: there is no WAL thread (pd_store_config.keeps is false). */
    void (*log)(void *arg, pd_effect *effect);
} pd_turn_user;

typedef struct pd_turn {
    pd_turn_user user;
    pd_store *store;   /* borrowed */
    pd_flows flows;    /* requests that wait to be applied to the store */
    uint64_t work_ns;  /* nanoseconds that the last batch of work took */
    uint64_t reads_ns; /* time from which requests that only read may be served although others are served, too */
    uint64_t other_ns; /* time at which work was done, or a request was served that does not only read */
    uint64_t effects;  /* number of effects forwarded to the loop thread so far */
} pd_turn;

/* Adds a chain of new requests to the store, each to the end of its flow, and takes them over. NULL: there are no new
 * requests. */
void pd_turn_add(pd_turn *turn, pd_mail *mail);
/* Runs one turn of the step thread: applies requests for a limited time, does one batch of work, and handles deadlines
 * that have passed. Forwards effects about every PD_TURN_SLICE_NS. Returns true if work is left, or requests that may
 * be served now. */
bool pd_turn_run(pd_turn *turn);
/* Applies all waiting requests to the store, however long that takes, and forwards the effects. Called when the step
 * thread ends. */
void pd_turn_finish(pd_turn *turn);
/* Forwards the effects of the store: preconditioner tasks to the preconditioner pool, checkpoints to the checkpoint
 * writer, entries of logs to the WAL thread, all other effects to the loop thread as one chain.
 *
 * Effects for the loop thread are numbered 1, 2, 3 ... for the life of the process; the loop thread asserts that order.
 *
 * All effects of the step thread pass through this function. Answers do not wait for the disk: a step is reported when
 * it is closed, and reported as durable later (PD_EFF_DURABLE). */
void pd_turn_forward(pd_turn *turn);
/* Returns the time at which the next turn must run even if no request has come, because a deadline passes then or
 * requests may be served that only read (UINT64_MAX: no time). */
uint64_t pd_turn_next_tick(const pd_turn *turn);

#endif
