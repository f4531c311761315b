/* version_table.h - the version table: what the step thread has published of every parameter, and the requests that
 * wait for it. It answers a push when its round has closed, and a pull when the weights are new enough. A pull that
 * wants the weights to evaluate with then waits until the step thread has computed them.
 *
 * Runs on the loop thread. The version table has one entry per parameter of every job. An entry has the number of
 * closed rounds, the outcome of the last round, the last published weights, and the waiters.
 *
 * A request has one waiter for each of its pieces. The waiters of a request are allocated together with it, so the
 * version table allocates nothing per piece. */
#ifndef PD_VERSION_TABLE_H
#define PD_VERSION_TABLE_H

#include "request.h"

typedef struct pd_version_table pd_version_table;
typedef struct pd_wait pd_wait;

/* One piece of a request while it waits for its parameter, and later the answer for the piece. The caller sets the
 * fields from `param` to `count`. */
typedef struct pd_waiter {
    struct pd_waiter *next, **link; /* neighbours in the list of the pieces that wait for the same parameter; `link` is
                                     * NULL if this piece is in no list */
    pd_wait *wait;
    uint32_t param;          /* the parameter's index in the job */
    pd_dtype dtype;          /* element type in which the worker wants the weights */
    bool pulls;              /* the worker wants the weights of the piece, not only the outcome */
    pd_dtype update;         /* element type in which the worker accepts the step's update instead of weights; 0: it
                              * accepts only weights */
    uint64_t holds;          /* 1 + version of the weights that the worker has; 0: it has none */
    bool idle;               /* the worker has no elements of the parameter, so the piece is answered without waiting
                              * for a round */
    int64_t first, count;    /* index of the piece's first element, and number of its elements */
    int outcome;             /* answer: pd_outcome of the round; 0: the piece did not wait for a round */
    uint64_t step, version;  /* answer: number of rounds that the parameter has closed; version of the weights, which is
                              * the step that produced them */
    pd_published *published; /* answer to a pull: a reference to the published version that is sent */
    bool updates;            /* answer to a pull: the update of the step is sent instead of the weights */
    pd_reason *why; /* answer to a push whose step was refused: a reference to the text with the reason, or NULL */
    pd_scalar_means *scalars; /* answer: a reference to the averages of the scalars that workers sent
                               * for the last round; NULL: they sent none */
} pd_waiter;

/* A push or pull that waits until all its pieces have an answer. */
struct pd_wait {
    uint64_t step;    /* number of rounds that the parameter of every piece must have closed */
    uint64_t pushed;  /* of a push: the step that it is for; `step` may become a later one */
    bool pushes;      /* the request is a push: its answer contains the outcome of the round */
    bool evaluates;   /* its pulls get the weights to evaluate with */
    bool unfiled;     /* the request is a push, and it is not known yet in which step it may count: nothing of it is
                       * answered before pd_version_table_filed */
    pd_filed filed;   /* what has become of the push; PD_FILED_FOR if the job says nothing of it */
    uint32_t age;     /* answer to a push that counted: the step in which it did, minus the one that it was for */
    uint32_t counted; /* answer to a push that counted: number of ranks that counted in the step; 0: all */
    uint32_t rank; /* rank that asks; the outcome of its push is PD_LATE if the round closed without its contribution */
    uint64_t durable;  /* answer: durable step of the job; 0: there is none */
    uint64_t unbroken; /* answer: pd_effect.u.durable.unbroken */
    uint64_t mirrored; /* answer: pd_effect.u.durable.mirrored */
    /* answer: number of members of the job; 1 + place of `rank` among them. 0: not known; it is no member */
    uint32_t members, index;
    bool leads;             /* answer: `rank` is the leader of a job whose sets of ranks are open */
    uint64_t epoch, course; /* answer: number of times that the members have changed; the course of steps */
    bool late;              /* the request is a push that does not count: `all` says so for its fragment alone */
    bool all;       /* the request ends a step of this worker: it also waits until all other parameters of the job have
                     * closed the round */
    size_t n, open; /* n: number of pieces. open: number of pieces without an answer, plus 1 while
                     * the request waits for all other parameters of the job */
    pd_waiter rest; /* the request's place in the job's list of requests with `all` set */
    pd_waiter at[];
};

/* The callbacks of a version table. Each gets `arg`. */
typedef struct pd_version_table_user {
    void *arg;
    /* Called when the last piece of a waiting request has got its answer. */
    void (*resolved)(void *arg, pd_wait *wait);
    /* Called when a waiting request ends with an error. The request is in no list any more and may be freed. */
    void (*failed)(void *arg, pd_wait *wait, const pd_error *err);
    /* Called with a published version that the version table no longer uses. The callback returns it to the store,
     * which reuses its memory. */
    void (*released)(void *arg, pd_published *published);
    /* Asks the store for the weights to evaluate with of a parameter of a job, for this request and all that wait with
     * it. PD_NO_MEMORY: the store is not asked. */
    int (*asks)(void *arg, const pd_wait *wait, uint32_t number, uint32_t param);
    /* Returns whether answers may tell durable steps that no answer has told before. NULL: they always may. */
    bool (*may_tell)(void *arg);
} pd_version_table_user;

/* Makes a version table without entries. Returns NULL if out of memory. In the functions below, `number` is the number
 * of a job. */
pd_version_table *pd_version_table_new(const pd_version_table_user *user);
/* Releases all published versions and frees the version table. No request may be waiting. Accepts NULL. */
void pd_version_table_free(pd_version_table *versions);

/* Makes entries for parameters 0 to n - 1 of a job, unless it has them. PD_NO_MEMORY: the entries that the job had
 * before stay valid. */
int pd_version_table_reserve(pd_version_table *versions, uint32_t number, size_t n);
/* Makes room for n fragments of a job that has entries. PD_NO_MEMORY: nothing has changed. */
int pd_version_table_reserve_fragments(pd_version_table *versions, uint32_t number, uint32_t n);
/* Tells the version table which fragment a parameter belongs to. Call it for all parameters before
 * pd_version_table_settle. */
void pd_version_table_put(pd_version_table *versions, uint32_t number, uint32_t param, uint32_t fragment);
/* Returns the number of a parameter's fragment. */
uint32_t pd_version_table_fragment(const pd_version_table *versions, uint32_t number, uint32_t param);
/* Tells the version table how many parameters the job has: at most as many as it has entries for. Before this call, the
 * version table does not answer requests that wait for all parameters of the job. */
void pd_version_table_settle(pd_version_table *versions, uint32_t number, size_t n);
/* Sets what pd_effect.u.durable tells of a job. Answers contain it from then on; while `may_tell` returns false, they
 * contain what was set before. The job need not have entries yet: a job from a checkpoint has a durable step before its
 * workers connect. Without memory for such a job, its answers contain 0 until the next call. */
void pd_version_table_note_durable(pd_version_table *versions, uint32_t number, uint64_t step, uint64_t unbroken,
                                   uint64_t mirrored);
/* Stores the members of a job and their leader (pd_effect.u.members), which later answers tell. Takes over a reference
 * to `set`; NULL: the members and the leader stay as they are. Without memory for a job that has no entries yet, its
 * answers lack them until the next call. */
void pd_version_table_note_members(pd_version_table *versions, uint32_t number, pd_counted *set, uint32_t leader,
                                   uint64_t epoch, uint64_t course);
/* Returns the leader of a job: rank 0 as long as nobody is known to be a member. PD_MAX_WORLD: no member is there. */
uint32_t pd_version_table_leader(const pd_version_table *versions, uint32_t number);
/* Stores the course of a job, which later answers tell, as pd_version_table_note_members does. */
void pd_version_table_note_course(pd_version_table *versions, uint32_t number, uint64_t course);
/* Returns the durable step of a job, whether answers have told it or not; 0: there is none. */
uint64_t pd_version_table_durable(const pd_version_table *versions, uint32_t number);
/* Returns pd_effect.u.durable.mirrored of a job, whether answers have told it or not. */
uint64_t pd_version_table_mirrored(const pd_version_table *versions, uint32_t number);
/* Returns whether pd_version_table_wait would return true for a request: all its pieces could be answered at once. Does
 * not look at `evaluates`. */
bool pd_version_table_would_answer(const pd_version_table *versions, uint32_t number, const pd_wait *wait);

/* Asks the store again for weights to evaluate with, where there was no memory for that. Call it from time to time. */
void pd_version_table_ask_again(pd_version_table *versions);
/* Puts a request on the version table, where its pieces wait for their parameters, which must have entries. Returns
 * true if all pieces have their answers already; `resolved` is not called then. Borrows the request until it is
 * resolved, failed or forgotten. */
bool pd_version_table_wait(pd_version_table *versions, uint32_t number, pd_wait *wait);
/* Says what has become of a push (pd_effect.u.filed). Answers what can be answered: `resolved` may be called. */
void pd_version_table_filed(pd_version_table *versions, uint32_t number, pd_wait *wait, pd_filed filed, uint64_t step);
/* Removes a request from the version table, answered or not, and releases its references to weights and other results.
 * Called before a request is freed. */
void pd_version_table_forget(pd_version_table *versions, pd_wait *wait);
/* Releases the references of one piece of a request to weights and other results, once the weights of the piece are
 * sent. */
void pd_version_table_unref(pd_version_table *versions, pd_waiter *waiter);

/* Stores a closed round or newly published weights, and answers the requests that waited for them. Takes over the
 * references in `closed`: to the weights and, if a round has closed, to the reason of a refusal, the averaged scalars
 * and the ranks that were counted. */
void pd_version_table_close(pd_version_table *versions, uint32_t number, pd_closed *closed);
/* Fails the requests of a job that wait for round `step` or an earlier one of a fragment's parameters
 * (PD_ALL_FRAGMENTS: of any parameter), because a deadline has passed. The callback `failed` may end other requests,
 * but must not put new ones on the version table. Returns how many waiters it visited; it visits each waiter of the
 * job at most once. */
size_t pd_version_table_time_out(pd_version_table *versions, uint32_t number, uint32_t fragment, uint64_t step,
                                 const pd_error *err);
/* Fails all waiting requests of a job that has ended, with `err`, and removes the job. */
void pd_version_table_drop(pd_version_table *versions, uint32_t number, const pd_error *err);

#endif
