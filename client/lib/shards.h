/* shards.h - one handle of the user over several servers: the shards of a cluster.
 *
 * Each shard has a handle of its own: a connection, an I/O thread, a core with a resend window. This layer stands
 * between the public functions (client.c) and these handles. It sends each item to the shard that has its parameter, or
 * in portions to several (portion_records.h), by offsets into the caller's buffers. A ticket of the user stands for the
 * tickets of all shards that take part in the call.
 *
 * Locks. pd_shards.lock guards the fields that say so, and makes calls of several threads begin one after the other on
 * all shards. A thread may take one core's lock while it has pd_shards.lock, and a bell's lock last of all, but never
 * two cores' locks. I/O threads do not take pd_shards.lock.
 *
 * The first error of a shard is the call's error. Its text begins with the shard: "shard 2 (tls://b:7070): ...". */
#ifndef PD_SHARDS_H
#define PD_SHARDS_H

#include "bell.h"
#include "call.h"
#include "handle.h"
#include "shard_list.h"

/* A place of a parameter's elements: a whole parameter, or a portion of one. */
typedef struct pd_place {
    uint32_t shard;
    size_t handle;        /* number of its record in the shard's core */
    int64_t first, count; /* elements of the caller's buffer, which has this rank's range of the parameter */
} pd_place;

/* What the layer knows of a parameter. */
typedef struct pd_sharded_param {
    /* The places of the parameter are places[first] to places[first + n - 1]. Portions of which this rank has no
     * elements are left out; if it has none of any portion, the last one has a place. */
    size_t first, n;
    size_t in, out;   /* bytes of an element in the caller's gradient, and in the caller's weights */
    int64_t elements; /* number of elements that this rank has */
    bool ranged, cut;
    uint32_t fragment;
    const char *name; /* in the record of shard 0's core */
    void *buffer;     /* of a cut parameter: memory for its gradient; NULL: the user wants none */
} pd_sharded_param;

/* The calls of the user that wait for all shards, in the parts that follow each other. */
typedef enum pd_shards_call {
    PD_CALL_JOIN,
    PD_CALL_DECLARE,
    PD_CALL_INIT,
    PD_CALL_FETCH,
    PD_CALL_RECOVER,
    PD_CALL_GO_BACK,
    PD_CALL_REPLACE,
    PD_CALL_SYNC,
    PD_CALL_BARRIER,
    PD_CALL_LEAVE,
    PD_SHARDS_CALLS,
} pd_shards_call;

typedef struct pd_shards {
    size_t n;
    pd_client **at; /* the handle of each shard */
    pd_bell bell;
    struct pd_settle_box *box; /* where the shards' tallies meet: settle_box.h */
    /* Guarded by `lock`. For each shard: the step of the last worker state that it has got; 0: none. */
    uint64_t *noted;
    bool *coupled; /* since the parameters were declared: the shard has other parameters than model state */
    bool *over[PD_SHARDS_CALLS]; /* for each shard: it has answered the call, which other shards have not yet */
    bool any_rank;               /* shard 0 chooses the rank */
    bool open_sets;   /* since the parameters were declared: each shard decides alone which ranks count in its steps */
    bool agreed;      /* the last pd_client_declare has found all shards at one step, or brought them to one */
    unsigned missing; /* number of times that a step to which all shards can go was not found, since the search began */
    double missing_since; /* when it was first not found */
    double uneven;        /* time since which the shards have been seen at different steps; 0: they are at one */
    bool confirms;        /* pd_client_sync: all shards have said that the step is durable, and are asked once more */
    /* pd_client_sync: its step; the step that all shards are asked for, since some are ahead of it; 0: its own */
    uint64_t sync_step, sync_target;
    bool seeks; /* that has lasted too long, so pd_shards_find_common brings all shards to one step */
    /* The step of the last rewind, and how many before it were to this step, too; time before which the next one does
     * not begin (0: not known yet). */
    uint64_t rewound;
    unsigned again;
    double turn;
    bool found; /* pd_client_rewind has found where to go on, and has not received the weights yet */

    pthread_mutex_t lock;
    /* Guarded by `lock`. The model; n_params 0: it is not declared. */
    size_t n_params;
    pd_sharded_param *params;
    pd_place *places;
    /* Guarded by `lock`: the tickets of calls under way, the last ticket that was given, the event descriptor of the
     * handle (-1: the user has not asked for it). */
    struct pd_joined *joined;
    pd_ticket_id last;
    int done_fd;
    /* Guarded by `lock`: hashes of the warnings of all shards that the user has got, in a ring. */
    uint64_t told[32];
    size_t n_told;
} pd_shards;

/* Makes the handles of all shards, and starts the one of shard 0. After an error, too, pd_shards_free frees what there
 * is. */
int pd_shards_open(pd_client *client, pd_settings *settings, const pd_shard_list *list, const pd_notices *notices,
                   pd_error *err);
/* Stops all I/O threads. */
void pd_shards_stop(pd_shards *shards);
void pd_shards_free(pd_shards *shards);
/* Waits for the welcome of all shards: first of shard 0, whose answer has the cluster number for the others. Compares
 * the welcomes, and sets client->welcome. */
int pd_shards_join(pd_client *client, double end, pd_error *err);
bool pd_shards_are_joined(const pd_shards *shards);
/* Takes over the welcomes of all shards after a recovery. */
void pd_shards_refresh(pd_client *client);
/* Returns whether a shard has not welcomed this worker yet, and writes which one and why. */
bool pd_shards_await_welcome(const pd_shards *shards, char text[PD_ERROR_TEXT]);
/* Returns whether steps of the shards wait for each other's verdicts. */
bool pd_shards_settle(const pd_shards *shards);
/* Returns whether a shard may have worker states: shard 0, or where steps wait for verdicts, each shard whose steps do.
 * A shard that has model state alone goes neither on nor back with the others. */
bool pd_shards_keeps_states(const pd_shards *shards, size_t number);
/* Returns whether a warning has not come from another shard before. */
bool pd_shards_is_new(pd_shards *shards, const char *remark);

/* The public functions of these names, for a handle with shards. */
int pd_shards_declare(pd_client *client, const pd_client_param *params, size_t n, pd_error *err);
int pd_shards_init(pd_client *client, void *const *weights, double end, pd_error *err);
int pd_shards_push(pd_client *client, unsigned method, pd_item *items, size_t n, const pd_push_options *options,
                   pd_ticket_id *ticket, pd_error *err);
int pd_shards_pull(pd_client *client, pd_item *items, size_t n, uint64_t min_step, pd_weights_form form,
                   pd_ticket_id *ticket, pd_error *err);
int pd_shards_close_step(pd_client *client, uint64_t step, pd_ticket_id *ticket, pd_error *err);
int pd_shards_wait(pd_client *client, pd_ticket_id ticket, double seconds, pd_error *err);
/* Forgets all tickets, once the I/O threads are stopped. */
void pd_shards_forget_tickets(pd_shards *shards);
bool pd_shards_ready(pd_shards *shards, pd_ticket_id ticket);
int pd_shards_fd(pd_shards *shards);
int pd_shards_replace(pd_client *client, const pd_item *items, size_t n, uint64_t number, pd_error *err);
int pd_shards_restart(pd_client *client, void *const *weights, pd_error *err);
int pd_shards_rewind(pd_client *client, void *const *weights, pd_error *err);
int pd_shards_barrier(pd_client *client, pd_error *err);
int pd_shards_leave(pd_client *client, pd_error *err);
int pd_shards_sync(pd_client *client, uint64_t step, pd_error *err);
void *pd_shards_buffer(pd_shards *shards, size_t param);
uint64_t pd_shards_step(pd_shards *shards, size_t param);
/* Ends the handles of all shards, and opens them again at the steps that they are at now. PD_DEADLINE_EXCEEDED: repeat
 * the call to continue. */
int pd_shards_reopen(pd_client *client, double end, pd_error *err);
/* Brings all shards to one step, and takes it over: common_step.c. PD_DATA_LOSS: they have no step in common.
 * PD_DEADLINE_EXCEEDED: repeat the call to continue. */
int pd_shards_find_common(pd_client *client, double end, pd_error *err);
/* Does the same for a process that has just declared the parameters, if the shards are at different steps and stay so
 * for two seconds. */
int pd_shards_agree(pd_client *client, double end, pd_error *err);
/* Checks that the weights which have just come from all shards are of one step. Sets *even to true if they are, or if
 * the shards do not take their steps together. Otherwise sets *even to false: the caller receives the weights again.
 * Most often a shard is about to close the step that others have closed, so the function waits 20 ms. After two seconds
 * it brings all shards to one step. The errors are those of pd_shards_find_common. */
int pd_shards_even_out(pd_client *client, double end, bool *even, pd_error *err);
/* Ends the handles of all shards with PD_REWIND, if that of one shard has ended so: it has gone back further than this
 * worker can send its steps again. Calls on the other shards would wait for steps that this worker is to take anew. */
void pd_shards_go_back_together(const pd_shards *shards);
/* Sleeps. */
void pd_shards_pause(double seconds);
/* Returns PD_DEADLINE_EXCEEDED, with a text that says that the shards have not come to one step. */
int pd_shards_out_of_time(const pd_client *client, pd_error *err);
/* Lets the next pushes tell all shards the newest step to which all can go back, as far as this worker knows. */
void pd_shards_share_durable(const pd_shards *shards);
const char *pd_shards_note(const pd_shards *shards, size_t param);
bool pd_shards_must_init(const pd_shards *shards);
/* Returns that step; where each shard goes back alone, the lowest durable one. */
uint64_t pd_shards_durable(const pd_shards *shards);
pd_client_stats pd_shards_count(const pd_shards *shards);
/* Returns the last step that all parameters of fragment 0 have taken. */
uint64_t pd_shards_taken_step(const pd_shards *shards);

/* Puts the shard at the begin of an error text; into a text that begins with "waited" after the time. Returns the
 * error's code. */
int pd_shards_name(const pd_shards *shards, size_t shard, pd_error *err);
/* Returns the error that has ended the handle of a shard; PD_OK: none has ended. */
int pd_shards_check(const pd_shards *shards, pd_error *err);

/* Writes what a call waits for on a shard, and which tallies are missing, as the end of an error text. */
void pd_shards_state(const pd_shards *shards, size_t shard, char text[PD_ERROR_TEXT]);

/* How a call begins on one shard, whose core is locked: sets *ticket, or leaves it 0 if there is nothing to do. */
typedef int pd_shards_begin(pd_client *shard, size_t number, void *arg, pd_error *err);
/* Carries out a call that waits: begins it on each shard on which it is not under way or over, and waits for all until
 * `end`. `ticket`: offset in pd_client of the call's ticket. PD_DEADLINE_EXCEEDED: repeat the call to continue. */
int pd_shards_carry_out(pd_client *client, pd_shards_call call, size_t ticket, pd_shards_begin *begin, void *arg,
                        double end, pd_error *err);
/* Waits until all operations are done for which the `n` waiters have shards and tickets (0: none), or until `end`. If
 * one fails, calls `failed`, or if that is NULL ends waiting. Returns whether all are done. */
typedef void pd_shards_failed(pd_shards *shards, const pd_waiter *waiters, void *arg);
bool pd_shards_await(pd_shards *shards, pd_waiter *waiters, size_t n, double end, pd_shards_failed *failed, void *arg);

/* Takes over where the parameters lie, from the answers to Declare. PD_FAILED_PRECONDITION: the shards have different
 * maps. PD_NO_MEMORY. */
int pd_shards_learn(pd_shards *shards, pd_error *err);
/* Makes for shard `number` the list of weights that its core takes for the whole model: pointers into `weights`, which
 * has the caller's buffers. The caller frees it. NULL: out of memory. */
void **pd_shards_weights(const pd_shards *shards, size_t number, void *const *weights);

#endif
