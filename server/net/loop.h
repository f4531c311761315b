/* loop.h - the state of the loop thread: its table of connections, its requests to the store, its counters, and
 * everything else that all connections share. */
#ifndef PD_LOOP_H
#define PD_LOOP_H

#include "payloads.h"
#include "pd_cluster.h"
#include "peers.h"
#include "daemon_config.h"
#include "figures.h"
#include "log_entry.h"
#include "mailbox.h"
#include "optimizers.h"
#include "output.h"
#include "version_table.h"

#include <stdbool.h>
#include <stdint.h>

#define PD_LAG_BUCKETS 192

/* How long the loop thread is busy between two polls (waits for events): a histogram of CPU times. */
typedef struct pd_lag {
    uint64_t count[PD_LAG_BUCKETS]; /* number of busy times in each bucket of the histogram. The first bucket ends at 1
                                     * us; the end of each later bucket is 9 % larger than that of the bucket before (8
                                     * buckets double the time) */
    uint64_t polls;
    uint64_t largest_ns;
    uint64_t sum_ns;  /* sum of all busy times */
    uint64_t last_ns; /* CPU time in ns that the thread had used until the last poll; 0: it has not polled yet */
} pd_lag;

/* Adds the CPU time that the thread has used since the last poll to the histogram. Called just before each poll. */
void pd_lag_poll(pd_lag *lag);
void pd_lag_count(pd_lag *lag, uint64_t busy_ns);
/* Returns a percentile in ms: the busy time that the given fraction of all busy times (0.999: 999 of 1000) did not
 * exceed. 0: none was counted. */
double pd_lag_percentile(const pd_lag *lag, double fraction);

enum {
    PD_REMARKS = 128,       /* most remarks that are kept, of all jobs; the oldest one is dropped first */
    PD_REMARKS_OF_JOB = 16, /* most remarks of one job; the last of them says that the log has more */
};

/* A warning about a job, which is sent to the workers of the job. */
typedef struct pd_remark {
    char *job, *text;
    int64_t rank; /* the rank that the warning is about, to which it is not sent; -1: it is about no rank */
} pd_remark;

/* The newest remarks of all jobs. */
typedef struct pd_remarks {
    pd_remark at[PD_REMARKS]; /* a ring: remark number i is at[i % PD_REMARKS] */
    uint64_t n;               /* number of remarks so far */
} pd_remarks;

/* Adds a log entry to the remarks if it is a warning about a job. Returns the new remark; NULL: the entry is no such
 * warning, the job has a similar remark, the job has PD_REMARKS_OF_JOB already, or out of memory. */
const pd_remark *pd_remarks_add(pd_remarks *remarks, const pd_log_entry *entry);
/* Returns the job's first remark with a number of at least *at, and sets *at to the number after it. NULL: there is
 * none. */
const pd_remark *pd_remarks_next(const pd_remarks *remarks, const char *job, uint64_t *at);
/* Removes the remarks of an earlier job with this name, because a new job begins. */
void pd_remarks_begin(pd_remarks *remarks, const char *job);
void pd_remarks_free(pd_remarks *remarks);

/* Number of counters for the addresses of HTTP peers. A hash of the address selects the counter. Addresses with the
 * same counter share the limits of one address. */
enum { PD_HTTP_ORIGINS = 256 };

typedef struct pd_http_conn pd_http_conn;

/* All HTTP connections of the daemon. Begins zeroed. In each list, the connection that was added first is first. */
typedef struct pd_http {
    pd_http_conn *reading;   /* connections whose request is not complete */
    pd_http_conn *answering; /* connections to which the answer is being sent */
    pd_http_conn *ending;    /* connections whose answer is sent; the peer gets a moment to read it */
    pd_http_conn *closed;    /* connections that are freed at the end of this turn of the loop */
    unsigned n;              /* number of open connections */
    unsigned n_long;         /* number of long answers that are being sent */
    uint8_t heads[PD_HTTP_ORIGINS], longs[PD_HTTP_ORIGINS]; /* heads: number of incomplete requests. longs: number of
                                                             * long answers. The index is a hash of the peer's
                                                             * address */
} pd_http;

/* The shutdown of the daemon, which the first termination signal or an operator's Shutdown request begins. */
typedef struct pd_shutdown {
    bool begun, drained;  /* begun: the store was asked to drain. drained: the store has answered */
    bool drains;          /* an operator has asked the store to drain: no new rounds begin */
    uint64_t deadline_ms; /* time at which the loop stops even if the store has not drained */
} pd_shutdown;

/* A reload of the configuration, which SIGHUP begins. */
typedef struct pd_reloading {
    pd_background work;
    bool busy, again; /* busy: a reload is being done. again: another one was requested meanwhile, and follows */
} pd_reloading;

#define PD_LOOP_CODES 19 /* number of error codes, with PD_OK */

/* Messages between the loop thread and the step thread. */
typedef struct pd_loop_mail {
    pd_mailbox *effects, *requests;
    pd_mail *backlog;       /* effects that were taken from the mailbox and are not handled yet */
    size_t backlog_at;      /* number of closed rounds in the first effect of `backlog` that are on the version table
                             * already */
    uint64_t handled;       /* number of the last effect that was handled */
    pd_mail *first, *last;  /* requests to the store that were queued in this turn of the loop */
    pd_request *notices;    /* disconnect notices (PD_REQ_LOST) of connections that closed before the store answered
                             * their Hello */
    pd_published *released; /* published versions that the loop thread no longer reads; they are returned to the store
                             * at the end of this turn */
    pd_request *drain;      /* request that asks the store to drain before a shutdown */
    pd_request *roles;      /* the first roles for the step thread. `roles` and `drain` are allocated in advance, and
                             * NULL once they are posted */
} pd_loop_mail;

/* The connections of workers and operators. The index of a connection is its number % capacity. */
typedef struct pd_conn_table {
    struct pd_conn **at;
    uint64_t *numbers;                       /* number of the last connection with each index */
    uint64_t *parties;                       /* number of the identity (pd_usage.number) of that connection */
    size_t capacity, n, next_place;          /* capacity: size of the arrays. n: number of connections. next_place:
                                              * index to try next for a new connection */
    uint64_t serial;                         /* number of connections accepted so far */
    struct pd_conn *dirty, *waking, *closed; /* dirty: list of connections that have bytes to send. waking: list of
                                              * connections whose held-back frame is tried again. closed: list of
                                              * connections that are freed at the end of this turn */
    size_t active, was_active;               /* number of connections whose transport reported events in this turn of
                                              * the loop, and in the last turn */
} pd_conn_table;

/* Memory for payloads, and the connections that wait for it. */
typedef struct pd_payload_memory {
    pd_pool *pool;
    pd_admission admission;
    bool stall_over;      /* memory has become free: connections with a held-back frame try again */
    bool short_of_budget; /* a connection waits because all ranks together use up the ingest budget */
    bool unreported;      /* a connection waits, and the step thread was not told because there was no memory for the
                           * message */
} pd_payload_memory;

/* The roles, what each identity uses, whose held-back frame is next, and which connections may be closed for new
 * ones. */
typedef struct pd_peers {
    pd_roles *roles;      /* the roles of all identities; NULL: everybody may do everything */
    uint64_t roles_taken; /* number of times that the roles were replaced; a connection sees by it that its lookup is
                           * out of date */
    pd_usages usages;
    pd_pace pace;
    pd_brief brief;
} pd_peers;

typedef struct pd_loop_counters {
    uint64_t started_ms, worker_ms; /* started_ms: when the daemon started. worker_ms: when a worker was last connected,
                                     * or the start */
    uint64_t bytes_in, bytes_out, frames_in, frames_refused;
    uint64_t moves, moved_in, moved_out; /* moves: jobs that movers have done. moved_in, moved_out: bytes that they have
                                          * received and sent; bytes_in and bytes_out count these, too */
    uint64_t refused_by[PD_LOOP_CODES];  /* number of refused frames for each error code; the index is the code without
                                         * its sign */
    uint64_t calls[PD_METHODS];
    pd_lag lag;
    int statm; /* descriptor of /proc/self/statm (the process's memory), opened at start */
} pd_loop_counters;

struct pd_daemon {
    pd_daemon_config config;
    pd_platform platform;
    pd_loop_mail mail;
    pd_conn_table table;
    pd_payload_memory ingest;
    pd_peers peers;
    pd_version_table *versions;
    pd_arena *arena; /* memory for unpacking the header of the frame that is processed now */
    pd_reply_scratch scratch;
    pd_packed_optimizers *optimizers; /* all optimizers, packed for answers to Optimizers requests */
    pd_shutdown shutdown;
    pd_reloading reload;
    pd_loop_counters counters;
    uint64_t key;  /* secret key of hash tables; odd */
    uint64_t mark; /* number of errors so far that a worker must read before it ends a step: refused pushes and passed
                    * deadlines. An answer to a push carries this number if it is an error. Each push carries the
                    * highest number that its sender has read */
    pd_figures figures;  /* the last copy of the figures of each job */
    pd_traffic *traffic; /* counters of the bytes that each job has received and sent */
    pd_remarks remarks;  /* warnings about jobs, for their workers */
    pd_http http;        /* HTTP connections */
    /* the daemon's place in a cluster with an engine; borrowed. NULL: it has none */
    pd_cluster *cluster;
};

uint64_t pd_loop_now_ms(const pd_daemon *daemon);
/* Returns the time in ns by the clock with which a turn of the loop limits how long it runs. */
uint64_t pd_loop_clock_ns(const pd_daemon *daemon);
void pd_loop_log(const pd_daemon *daemon, int level, pd_log_facts facts, const char *format, ...)
    __attribute__((format(printf, 4, 5)));

/* Writes the host of a peer's address such as "10.0.0.7:4711" to `host`, which has PD_LOG_PEER bytes. */
void pd_loop_host(char *host, const char *peer);

/* Counts a refused frame by its error code. */
void pd_loop_count_refusal(pd_daemon *daemon, int code);

/* Returns the connection with this number, or NULL if it is closed. */
struct pd_conn *pd_loop_find(pd_daemon *daemon, uint64_t number);
/* Adds a connection to the table of connections, and gives it a number that no other connection gets.
 * PD_RESOURCE_EXHAUSTED: the table is full. */
int pd_loop_place(pd_daemon *daemon, struct pd_conn *conn, uint64_t *number);
/* Stores `party`, the number of a connection's identity (pd_usage.number), in the table of connections. The
 * connection's requests to the store carry this number. */
void pd_loop_set_party(pd_daemon *daemon, uint64_t number, uint64_t party);
/* Removes a connection from the table of connections, because it closes. */
void pd_loop_remove(pd_daemon *daemon, uint64_t number);
/* Returns how many bytes each connection may receive in this turn of the loop; it may also send so many. The more
 * connections are active, the smaller the number. */
size_t pd_loop_quota(const pd_daemon *daemon);

/* Takes over a request to the store, and posts it at the end of this turn of the loop. */
void pd_loop_post(pd_daemon *daemon, pd_request *request);
/* Posts the requests to the store that this turn of the loop has queued, and the published versions that the version
 * table has released. */
void pd_loop_flush(pd_daemon *daemon);
/* Posts to the step thread the published versions that nobody reads any more. Without memory for the message, they stay
 * in the list until the next turn. */
void pd_loop_post_released(pd_daemon *daemon);
/* Keeps the disconnect notice of a connection until the store has answered the connection's Hello. */
void pd_loop_keep_notice(pd_daemon *daemon, pd_request *notice);
/* Removes the kept disconnect notice of the connection with this number, and returns it. NULL: none is kept. */
pd_request *pd_loop_take_notice(pd_daemon *daemon, uint64_t number);

#endif
