/* loop.h - the state of the loop thread: its table of connections, its requests to the store, its counters, and
 * what else all connections share. */
#ifndef PD_LOOP_H
#define PD_LOOP_H

#include "payloads.h"
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

typedef struct pd_lag {
    uint64_t count[PD_LAG_BUCKETS]; /* number of polls with a busy time in each bucket of the histogram. The first
                                     * bucket ends at 1 us; each other one ends 9 % later than the one before (8 buckets
                                     * double the time) */
    uint64_t polls;
    uint64_t largest_ns;
    uint64_t sum_ns;  /* sum of all busy times */
    uint64_t last_ns; /* CPU time that the thread had used at the last poll; 0: it has not waited for events yet */
} pd_lag;

/* Enters the CPU time that the thread has used since the last poll into the histogram. Called just before the loop
 * polls. */
void pd_lag_poll(pd_lag *lag);
void pd_lag_count(pd_lag *lag, uint64_t busy_ns);
/* Returns a busy time in milliseconds that the given fraction of the polls (0.999: 999 of 1000) did not exceed; 0 if
 * there were no polls. */
double pd_lag_percentile(const pd_lag *lag, double fraction);

enum {
    PD_REMARKS = 128,       /* most remarks that are kept, of all jobs; the oldest goes first */
    PD_REMARKS_OF_JOB = 16, /* most remarks of one job, of which the last says that there are more */
};

/* A warning about a job. */
typedef struct pd_remark {
    char *job, *text;
    int64_t rank; /* the rank that it is about, which does not get it; -1: none */
} pd_remark;

typedef struct pd_remarks {
    pd_remark at[PD_REMARKS]; /* a ring: remark number i is at[i % PD_REMARKS] */
    uint64_t n;               /* number of remarks so far */
} pd_remarks;

/* Keeps a log entry as a remark if it is a warning about a job. Returns the remark; NULL: the entry is no such warning,
 * the job had it before or has PD_REMARKS_OF_JOB already, or out of memory. */
const pd_remark *pd_remarks_add(pd_remarks *remarks, const pd_log_entry *entry);
/* Returns the next remark of a job, from number *at on, and moves *at after it. NULL: there is none. */
const pd_remark *pd_remarks_next(const pd_remarks *remarks, const char *job, uint64_t *at);
/* Forgets the remarks of an earlier job of this name: a new one begins. */
void pd_remarks_begin(pd_remarks *remarks, const char *job);
void pd_remarks_free(pd_remarks *remarks);

/* Number of counters by the peer's address. Addresses that share a counter share what one address may have. */
enum { PD_HTTP_ORIGINS = 256 };

typedef struct pd_http_conn pd_http_conn;

/* All HTTP connections of the daemon. Begins zeroed. Lists are in the order in which connections came to them. */
typedef struct pd_http {
    pd_http_conn *reading;   /* the request is not complete */
    pd_http_conn *answering; /* the answer is being sent */
    pd_http_conn *ending;    /* the answer is sent, and the peer gets a moment to read it */
    pd_http_conn *closed;    /* connections that are freed at the end of this turn of the loop */
    unsigned n;              /* number of open connections */
    unsigned n_long;         /* number of long answers that are being sent */
    uint8_t heads[PD_HTTP_ORIGINS], longs[PD_HTTP_ORIGINS]; /* numbers of incomplete requests, and of long answers, by
                                                             * the hash of the peer's address */
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
    pd_mail *backlog;      /* effects that were taken from the mailbox and are not handled yet */
    size_t backlog_at;     /* of the first of them: number of its closed rounds that are on the version table already */
    uint64_t handled;      /* number of the last effect that was handled */
    pd_mail *first, *last; /* requests to the store that were queued in this turn of the loop */
    pd_request *notices;   /* messages that tell the store of the end of connections which closed before the store
                               * answered their Hello */
    pd_published *released; /* published versions that no one reads here any more; they go back to the store at the end
                               * of this turn */
    pd_request *drain;      /* asks the store to drain before a shutdown */
    pd_request *roles;      /* has the step thread's copy of the roles that the daemon begins with. This one and
                               * `drain` are allocated in advance; NULL once they are posted */
} pd_loop_mail;

/* The connections of workers and operators. The index of a connection is its number % capacity. */
typedef struct pd_conn_table {
    struct pd_conn **at;
    uint64_t *numbers;                       /* number of the last connection that had each index */
    uint64_t *parties;                       /* pd_usage.number of the identity of this connection */
    size_t capacity, n, next_place;          /* size of the arrays; connections; index to try next */
    uint64_t serial;                         /* number of connections accepted so far */
    struct pd_conn *dirty, *waking, *closed; /* lists of connections: that have bytes to send; whose held-back frame is
                                              * tried again; that are freed at the end of this turn */
    size_t active, was_active;               /* number of connections whose transport reported events in this turn of
                                              * the loop, and in the last turn */
} pd_conn_table;

/* Memory for payloads, and the connections that wait for it. */
typedef struct pd_ingest {
    pd_pool *pool;
    pd_admission admission;
    bool stall_over;      /* memory has become free: connections with a held-back frame try again */
    bool short_of_budget; /* a connection waits because all ranks together use up the ingest budget */
    bool unreported;      /* a connection waits, and the step thread does not know: there was no memory for the message
                           * to it */
} pd_ingest;

/* Who may connect, what each identity uses, and whose turn it is. */
typedef struct pd_peers {
    pd_roles *roles;      /* who may do what; NULL: everybody may do everything */
    uint64_t roles_taken; /* number of times that roles were taken: by it a connection knows that they are new */
    pd_usages usages;
    pd_pace pace;
    pd_brief brief;
} pd_peers;

typedef struct pd_loop_counters {
    uint64_t started_ms, worker_ms; /* times: of the start; at which a worker was connected last, or of the start */
    uint64_t bytes_in, bytes_out, frames_in, frames_refused;
    uint64_t refused_by[PD_LOOP_CODES]; /* number of refused frames for each error code, without its sign */
    uint64_t calls[PD_METHODS];
    pd_lag lag;
    int statm; /* descriptor of /proc/self/statm (the process's memory), opened at start */
} pd_loop_counters;

struct pd_daemon {
    pd_daemon_config config;
    pd_platform platform;
    pd_loop_mail mail;
    pd_conn_table table;
    pd_ingest ingest;
    pd_peers peers;
    pd_version_table *versions;
    pd_arena *arena; /* memory for unpacking the header of the frame that is processed now */
    pd_reply_scratch scratch;
    pd_packed_optimizers *optimizers; /* the answers to Optimizers */
    pd_shutdown shutdown;
    pd_reloading reload;
    pd_loop_counters counters;
    uint64_t key;  /* secret key of hash tables; odd */
    uint64_t mark; /* number of errors so far that later pushes must know about (refused pushes, passed deadlines). An
                    * error that answers a push carries it, and each push carries the last such number that its sender
                    * has read */
    pd_figures figures;  /* last copies of the figures of jobs */
    pd_traffic *traffic; /* counters of the bytes that each job has received and sent */
    pd_remarks remarks;  /* warnings about jobs, for their workers */
    pd_http http;        /* HTTP connections */
};

uint64_t pd_loop_now_ms(const pd_daemon *daemon);
/* Returns the clock by which a turn of the loop limits its time. */
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
/* Notes to which identity a connection belongs: pd_usage.number. Its requests to the store carry this number. */
void pd_loop_set_party(pd_daemon *daemon, uint64_t number, uint64_t party);
/* Removes a connection from the table of connections, because it closes. */
void pd_loop_remove(pd_daemon *daemon, uint64_t number);
/* Returns how many bytes one connection may receive, and how many it may send, in this turn of the loop. The more
 * connections are active, the fewer. */
size_t pd_loop_quota(const pd_daemon *daemon);

/* Takes over a request to the store. It is posted at the end of this turn of the loop. */
void pd_loop_post(pd_daemon *daemon, pd_request *request);
/* Posts the requests to the store that this turn of the loop has queued, and returns the published versions that the
 * version table has released. */
void pd_loop_flush(pd_daemon *daemon);
/* Posts the published versions that nobody reads any more back to the step thread. */
void pd_loop_post_released(pd_daemon *daemon);
/* Keeps the message that tells the store of a connection's end, until the store has answered the connection's Hello. */
void pd_loop_keep_notice(pd_daemon *daemon, pd_request *notice);
/* Returns the kept message that tells the store of the end of the connection with this number, and keeps it no longer.
 * NULL: none is kept. */
pd_request *pd_loop_take_notice(pd_daemon *daemon, uint64_t number);

#endif
