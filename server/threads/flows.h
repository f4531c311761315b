/* flows.h - the requests that wait for the step thread, and which of them is served next: identities take turns, and so
 * do the jobs and connections of one identity, each in proportion to the time that its requests took.
 *
 * Step thread. A *flow* is a queue of requests, which are served in the order of their arrival. All requests of one
 * identity to one job are a flow. So are its requests on one connection that belong to no job. A *party* is one
 * identity with its flows. Parties are served by deficit round robin, and so are the flows of a party:
 *
 *     pd_flows ─┬─ requests of the daemon itself: before all others
 *               ├─ reads ─── pd_flow (party) ─── pd_flow ─── requests that only read, for operators
 *               └─ others ── pd_flow (party) ─── pd_flow ─── all other requests
 *
 * Each flow and each party has a balance of time. The balance falls by the time that a request took, so the price of a
 * request does not have to be known before. Whoever has used its balance up waits until the others have had their turn,
 * and gets PD_FLOW_QUANTUM_NS more. A debt stays while others wait, also when the flow has no more requests: so a peer
 * with one slow request after the other gets no more than a peer with many fast ones.
 *
 * No order is kept between flows. Nothing depends on it: a connection gets its job with the answer to its Hello, and
 * the store refuses requests of a connection that no longer has its rank. */
#ifndef PD_FLOWS_H
#define PD_FLOWS_H

#include "request.h"

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
    /* The flow of all that have none when out of memory; it is a party of its own. While it has requests, no new flow
     * is made, so no request overtakes an earlier one of its own flow. */
    pd_flow spare;
    pd_flow *buckets[PD_FLOW_BUCKETS]; /* hash table of flows and parties by key */
} pd_flows;

/* Adds a request behind the waiting ones of its flow, and takes it over. */
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
/* Returns whether a request only reads: it changes nothing, and no worker waits for it. */
bool pd_request_only_reads(const pd_request *request);

#endif
