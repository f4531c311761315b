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
 * Each flow and each party has a balance of time, from which the time that a request took is subtracted afterwards. So
 * the cost of a request does not have to be known before. A flow or party whose balance is not above 0 waits until the
 * others have had their turn, and gets PD_FLOW_QUANTUM_NS more. A negative balance stays while other flows wait, also
 * when its flow has no more requests. So a peer that sends slow requests one by one gets no more time than a peer that
 * sends many fast ones.
 *
 * Requests of different flows may overtake each other. That is safe: a connection gets its job with the answer to its
 * Hello, and the store refuses requests of a connection that no longer has its rank. */
#ifndef PD_TURN_H
#define PD_TURN_H

#include "request.h"
#include "store.h"

enum { PD_FLOW_BUCKETS = 512 };

/* Time in ns that a flow gets in each of its turns. A party waits about this time for each other party. */
#define PD_FLOW_QUANTUM_NS 500000
/* Smallest time in ns that is charged for a request, so that flows take turns even if the clock is coarse. */
#define PD_FLOW_LEAST_NS 1000

/* A flow or a party. "Of a flow" and "of a party" say which of them uses a member. */
typedef struct pd_flow {
    /* The key. Of a flow: `party` is the number of its identity, and either `job` or `conn` is the number of its job or
     * connection (the other is 0). Of a party: `party` is the number of the identity, and `reads` tells whether it
     * contains the flows whose first request only reads. */
    uint64_t party, conn;
    uint32_t job;
    bool reads;
    struct pd_flow *owner; /* of a flow: its party; of a party: pd_flows.reads or pd_flows.others, whose owner is
                            * NULL */
    struct pd_flow *ring;  /* of a party: circular list of its flows, beginning with the flow whose turn is next */
    pd_mail *first, *last; /* of a flow: its waiting requests, the oldest first */
    size_t waiting;        /* of a flow: number of its waiting requests; of a party: the sum over its flows */
    int64_t balance_ns;    /* time in ns that it may still take; it is not served unless this is above 0 */
    struct pd_flow *prev, *next, *same_bucket;
} pd_flow;

/* All requests that wait for the step thread. Initialize with zeros. */
typedef struct pd_flows {
    pd_mail *first, *last; /* requests of the daemon itself (pd_request.party 0), the oldest first */
    pd_flow others, reads; /* their rings contain the parties: in `reads`, those with requests that only read */
    pd_flow *served;       /* flow of the request that was taken last; NULL: it was a request of the daemon itself */
    /* A flow for requests whose own flow could not be allocated; it is also a party. While it contains requests, no
     * flow is allocated, so no request overtakes an earlier one of its own flow. */
    pd_flow spare;
    pd_flow *buckets[PD_FLOW_BUCKETS]; /* hash table of flows and parties by key */
} pd_flows;

/* Takes over a request, and appends it to its flow. */
void pd_flows_add(pd_flows *flows, pd_request *request);
/* Removes and returns the request that is served next; NULL: none waits. The caller owns it, and must call
 * pd_flows_charge after it has served the request, fully or in part. `reads`: true: requests that only read come before
 * others; false: they are not returned. */
pd_request *pd_flows_take(pd_flows *flows, bool reads);
/* Charges `ns` to the flow of the request that was taken last. `rest`: this request, if it is not done: it becomes the
 * first of its flow again; NULL: it is done. */
void pd_flows_charge(pd_flows *flows, pd_request *rest, uint64_t ns);
/* Returns whether a request waits. With `reads` false, requests that only read do not count. */
bool pd_flows_wait(const pd_flows *flows, bool reads);

/* Time limits of a turn of the step thread. A turn applies requests for as long as the last batch of work took, but at
 * least PD_TURN_SLICE_NS and at most PD_TURN_MOST_NS. So requests and work do not wait long for each other. Effects are
 * forwarded every PD_TURN_SLICE_NS. */
#define PD_TURN_SLICE_NS 4000000u
#define PD_TURN_MOST_NS 50000000u
/* Time in ns, by the store's estimate, after which a long request ends a part, so that other requests get their
 * turn. */
#define PD_TURN_PART_NS 2000000u

/* Requests that only read get 1/PD_TURN_READ_SHARE of the time. Time that they do not use is saved for later, up to
 * PD_TURN_READ_BURST_NS. If the step thread did nothing else for PD_TURN_QUIET_NS, they get all of its time. Shorter
 * pauses do not count, because a job has many of them while its workers compute. */
#define PD_TURN_READ_SHARE 16
#define PD_TURN_READ_BURST_NS 4000000u
#define PD_TURN_QUIET_NS 100000000u

/* The functions that a turn of the step thread calls. They must not call the turn or the store. */
typedef struct pd_turn_user {
    void *arg;
    /* Returns the time in nanoseconds, by a clock that never decreases. */
    uint64_t (*now_ns)(void *arg);
    /* Posts the effects from `first` to `last`, linked by mail.next, to the loop thread. */
    void (*effects)(void *arg, pd_mail *first, pd_mail *last);
    /* Hands the preconditioner task of an effect to the preconditioner pool, which returns it as a PD_REQ_TASK
     * request. */
    void (*task)(void *arg, pd_effect *effect);
    /* Withdraws from the preconditioner pool the waiting preconditioner tasks of a job that has ended. The pool returns
     * them as PD_REQ_TASK requests. */
    void (*forget)(void *arg, uint32_t job);
    /* Hands the checkpoint of an effect to the checkpoint writer, which returns it as a PD_REQ_CHECKPOINT_WRITTEN
     * request. NULL: there is no checkpoint writer (pd_store_config.keeps is false). */
    void (*keep)(void *arg, pd_effect *effect);
    /* Hands the WAL record of an effect to the WAL thread, which returns it as a PD_REQ_WAL request. NULL: there is no
     * WAL thread (pd_store_config.keeps is false). */
    void (*log)(void *arg, pd_effect *effect);
} pd_turn_user;

/* The state of the step thread between two turns. Initialize with zeros, but for `user` and `store`. */
typedef struct pd_turn {
    pd_turn_user user;
    pd_store *store;   /* borrowed */
    pd_flows flows;    /* requests that wait to be applied to the store */
    uint64_t work_ns;  /* nanoseconds that the last batch of work took */
    uint64_t reads_ns; /* time (ns) from which the next request that only reads may be served, even while other
                        * requests wait */
    uint64_t other_ns; /* time (ns) at which the step thread last did work or served a request that does not only
                        * read */
    uint64_t effects;  /* number of effects forwarded to the loop thread so far */
} pd_turn;

/* Takes over a chain of new requests (NULL: none), and appends each to its flow. */
void pd_turn_add(pd_turn *turn, pd_mail *mail);
/* Runs one turn of the step thread: applies requests for a limited time, does one batch of work, and handles deadlines
 * that have passed. Forwards effects about every PD_TURN_SLICE_NS. Returns true if work is left, or a request waits
 * that may be served now. */
bool pd_turn_run(pd_turn *turn);
/* Applies all waiting requests to the store, however long that takes, and forwards the effects. Called when the step
 * thread ends. */
void pd_turn_finish(pd_turn *turn);
/* Forwards the effects of the store: preconditioner tasks to the preconditioner pool, checkpoints to the checkpoint
 * writer, WAL records to the WAL thread, all other effects to the loop thread as one chain.
 *
 * Effects for the loop thread are numbered 1, 2, 3 ... for the life of the process; the loop thread asserts that order.
 *
 * All effects of the step thread pass through this function. Answers do not wait for the disk: a step is reported when
 * its round closes, and again when it is durable (PD_EFF_DURABLE). */
void pd_turn_forward(pd_turn *turn);
/* Returns the time (ns) at which the next turn must run even if no request arrives: a deadline passes then, or requests
 * that only read may be served from then on. UINT64_MAX: there is no such time. */
uint64_t pd_turn_next_tick(const pd_turn *turn);

#endif
