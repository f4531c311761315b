/* handlers.h - the handlers of the loop thread: for each method of the protocol, who may call it, and the functions
 * that handle its requests and answer them. Loop thread.
 *
 * methods.c has the table. The handlers of a subject are in one file: join_request.c (Hello, Declare, Share),
 * data_request.c (Initialise, Push, PushPull, Pull, Release), state_request.c (Export, Import, Checkpoint, and the
 * worker state), settle_request.c (Settle), shards_request.c (Shards), info_request.c (Status, List, Set), methods.c
 * (all others). */
#ifndef PD_HANDLERS_H
#define PD_HANDLERS_H

#include "access.h"

/* Most open requests of a connection that wait for the store (PD_AWAITS_STORE), and most that wait for other
 * connections (PD_AWAITS_OTHERS). */
#define PD_MAX_CONTROL 16
/* Most open requests of a connection: this many, and 2 more for each piece that its parameters are split into. */
#define PD_MAX_PENDING 16384
/* Most pieces in the open requests of a connection: this many, and 2 more for each piece that its parameters are split
 * into. Each takes about 128 bytes, which no budget counts. */
#define PD_MAX_WAITING (64 * 1024)

/* Bits of pd_method_entry.needs: the connection must be a worker's, have declared its parameters, be an operator's. */
enum { PD_NEEDS_WORKER = 1, PD_NEEDS_DECLARED = 2, PD_NEEDS_OPERATOR = 4 };

/* A row of the table of methods: who may call the method, and the functions that handle its requests. There are four
 * kinds of methods:
 *
 *   run              handles the whole request when its frame is complete
 *   fill             checks the message and fills in the request to the store, of kind `asks`, which the caller posts.
 *                    PD_NO_MEMORY: the caller sets the error
 *   fill, land       for a method with a payload: `fill` runs once the header has arrived, before memory for the
 *                    payload is requested; `land` puts the complete payload (NULL: it is empty) into the request
 *   prepare, finish  for tensors: `prepare` runs once the header has arrived, `finish` when the frame is complete.
 *                    They add the open request to those of the connection and post the request to the store
 *                    themselves */
typedef struct pd_method_entry {
    const char *name;
    unsigned needs;
    pd_may may;
    pd_pending_kind kind;
    pd_request_kind asks;
    int (*run)(pd_conn *conn, const pd_prefix *prefix, void *message, pd_error *err);
    int (*fill)(pd_conn *conn, pd_request *request, const pd_prefix *prefix, const void *message, pd_error *err);
    void (*land)(pd_conn *conn, pd_request *request, pd_buffer *buffer);
    int (*prepare)(pd_conn *conn, const pd_prefix *prefix, void *message, pd_error *err);
    void (*finish)(pd_conn *conn);
} pd_method_entry;

/* The table of all methods of the protocol, in the order of paramd.proto. */
extern const pd_method_entry pd_methods[PD_METHODS];
/* Asserts that the table of methods has the names and the order of paramd.proto. */
void pd_methods_check(void);
/* Returns whether the frames of a method may have a payload. */
bool pd_method_takes_payload(const pd_method_entry *m);

/* The callbacks of a connection's framer, whose argument is the connection. */
extern const pd_framer_user pd_incoming_frames;

/* Handles one effect, and frees it. Stores the closed rounds that it reports in the version table, until the platform's
 * clock reaches until_ns. Returns false if some rounds are left: the caller then passes in the same effect again
 * later. */
bool pd_effect_handle(pd_daemon *daemon, pd_effect *effect, uint64_t until_ns);

int pd_run_hello(pd_conn *conn, const pd_prefix *prefix, void *message, pd_error *err);
void pd_reply_hello(pd_conn *conn, pd_pending *pending, const pd_effect *effect);
/* Checks that a Hello is for this daemon, where the daemons of the cluster have a table of shards. Sets *looks if the
 * worker is to ask for the table first: its connection becomes an operator's.
 *
 *   PD_UNAVAILABLE          the worker knows a newer owner of the shard, or follows a shard that is not here
 *   PD_FAILED_PRECONDITION  the worker's list of daemons is not that of the table */
int pd_owner_check(const pd_conn *conn, const Paramd__HelloRequest *hello, bool *looks, pd_error *err);
/* Checks that the worker who asks a shard to go back has looked at the newest owners of all shards that this daemon
 * knows of. An earlier owner lacks the steps that have become durable since it was replaced.
 *
 *   PD_ABORTED           a shard has a newer owner: the worker asks for the table, and looks again
 *   PD_INVALID_ARGUMENT  the request names more shards than a cluster can have */
int pd_owner_check_tenures(const pd_conn *conn, const Paramd__GoBackRequest *asked, pd_error *err);
/* Returns whether this daemon is sure to own its shard: it has no engine, or its lease has not ended. Otherwise another
 * daemon may own the shard, and go back behind steps of this one. So this daemon tells workers of no new durable step:
 * answers to data frames ask here by way of the version table, those to Checkpoint before they are sent. The answer to
 * Declare does not ask: it tells what this daemon has, so that a worker can say to which step it is to go back. Nor
 * does this daemon create jobs (pd_request.u.hello.unsure), as the other one may have them. */
bool pd_owner_is_sure(const pd_daemon *daemon);
/* Fills in what the table of shards says, if the daemon has one. */
void pd_owner_fill(Paramd__HelloReply *reply, const pd_daemon *daemon);
int pd_answer_shards(pd_conn *conn, const pd_prefix *prefix, void *message, pd_error *err);
int pd_run_declare(pd_conn *conn, const pd_prefix *prefix, void *message, pd_error *err);
/* Answers all Declare requests of a connection: the store has accepted its set of parameters. */
void pd_reply_declare(pd_conn *conn, const pd_effect *effect);
/* Maps the segment that a worker lends, and asks the store for the segment of the job's weights. */
int pd_fill_share(pd_conn *conn, pd_request *request, const pd_prefix *prefix, const void *message, pd_error *err);
/* Answers a Share with the segment of the job's weights, if it has one. Takes the file descriptor out of the effect. */
void pd_reply_share(pd_conn *conn, pd_pending *pending, pd_effect *effect);

int pd_prepare_init(pd_conn *conn, const pd_prefix *prefix, void *message, pd_error *err);
void pd_finish_init(pd_conn *conn);
int pd_prepare_push(pd_conn *conn, const pd_prefix *prefix, void *message, pd_error *err);
void pd_finish_push(pd_conn *conn);
int pd_run_pull(pd_conn *conn, const pd_prefix *prefix, void *message, pd_error *err);
/* Handles Release: the worker has read its oldest outstanding answers, whose weights need not be kept for it. */
int pd_run_release(pd_conn *conn, const pd_prefix *prefix, void *message, pd_error *err);

int pd_fill_export(pd_conn *conn, pd_request *request, const pd_prefix *prefix, const void *message, pd_error *err);
void pd_reply_export(pd_conn *conn, pd_pending *pending, pd_effect *effect);
int pd_fill_import(pd_conn *conn, pd_request *request, const pd_prefix *prefix, const void *message, pd_error *err);
void pd_land_import(pd_conn *conn, pd_request *request, pd_buffer *buffer);
int pd_fill_checkpoint(pd_conn *conn, pd_request *request, const pd_prefix *prefix, const void *message, pd_error *err);
int pd_fill_go_back(pd_conn *conn, pd_request *request, const pd_prefix *prefix, const void *message, pd_error *err);
void pd_reply_checkpoint(pd_conn *conn, pd_pending *pending, pd_effect *effect);
/* Sends the answers to Checkpoint that are withheld (pd_pending.withheld), if the daemon may tell durable steps by now.
 * Refuses those for which their worker has waited as long as it wanted. */
void pd_tell_checkpoints(pd_conn *conn, uint64_t now_ms);
int pd_fill_worker_state(pd_conn *conn, pd_request *request, const pd_prefix *prefix, const void *message,
                         pd_error *err);
void pd_land_worker_state(pd_conn *conn, pd_request *request, pd_buffer *buffer);
void pd_reply_worker_state(pd_conn *conn, pd_pending *pending, pd_effect *effect);

int pd_fill_settle(pd_conn *conn, pd_request *request, const pd_prefix *prefix, const void *message, pd_error *err);
void pd_reply_settled(pd_conn *conn, pd_pending *pending, pd_effect *effect);

int pd_fill_status(pd_conn *conn, pd_request *request, const pd_prefix *prefix, const void *message, pd_error *err);
int pd_fill_list(pd_conn *conn, pd_request *request, const pd_prefix *prefix, const void *message, pd_error *err);
/* Answers a Status or a List request. */
void pd_reply_info(pd_conn *conn, pd_pending *pending, pd_effect *effect);
int pd_fill_set(pd_conn *conn, pd_request *request, const pd_prefix *prefix, const void *message, pd_error *err);
void pd_reply_set(pd_conn *conn, pd_pending *pending, pd_effect *effect);

/* Checks the length and the characters of a name that a peer has sent. `what` is the kind of thing that has the name,
 * such as "job", for the error. PD_INVALID_ARGUMENT: the name is not valid. */
int pd_name_check(const char *what, const char *name, pd_error *err);
/* Copies n options of a message into a request for the store. PD_NO_MEMORY: *out and *n_out may already refer to some
 * copies, which the caller frees with the request. */
int pd_options_copy(pd_option **out, size_t *n_out, Paramd__Option *const *from, size_t n);

#endif
