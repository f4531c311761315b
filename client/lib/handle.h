/* handle.h - the struct behind a client handle (pd_client), and the functions with which its calls wait.
 *
 * "The core must be locked" says that a function may only be called between pd_io_enter and pd_io_leave. The core is
 * the client's protocol state machine. */
#ifndef PD_HANDLE_H
#define PD_HANDLE_H

#include <stddef.h>

#include "io.h"
#include "notice.h"
#include "options.h"
#include "paramd/error.h"

/* Memory that the handle frees when it is closed, since answers may still be written there: the begin of a block. */
typedef struct pd_kept {
    struct pd_kept *next;
} pd_kept;

struct pd_client {
    /* The shards of a handle of several servers, each with a handle of its own (shards.h). Of the fields below it uses
     * deadline, slice, notices, welcome and kept. NULL: the handle is of one server. */
    struct pd_shards *shards;
    struct pd_shards *whole; /* of the handle of a shard: the shards that it belongs to; else NULL */
    pd_io io;
    bool running;     /* the I/O thread was started */
    pd_core *core;    /* protocol state machine; used only while it is locked (pd_io_enter) */
    pd_address *urls; /* the server's addresses, as the user gave them; owned */
    /* Of a worker's handle: what is known of the places of the shards; owned. NULL in the handles of its shards. */
    struct pd_shard_table *table;
    pd_secure secure; /* paths of the files for tls:// addresses */
    /* seconds: how long a call may take until it fails, and how long it waits at most before the caller can interrupt
     * it (pd_client_options) */
    double deadline, slice;
    pd_notices notices;
    double alone; /* seconds for which calls have waited without a connection; a new connection sets it to 0 */
    bool told;    /* the user got the notice that calls wait without a connection */
    pd_welcome welcome;
    /* Tickets of calls that timed out; 0: none. When the user repeats such a call, it continues to wait for its old
     * ticket. */
    pd_ticket_id join, declare, init, fetch, barrier, leave, restart, rewind, worker_state, sync, replace, go_back;
    uint64_t sync_step; /* the step that must be durable before the ticket `sync` is done */
    uint64_t sync_life; /* the life of the server's job in which that was asked last */
    /* the user called pd_client_restart (pd_client_rewind), which has not received the job's weights yet */
    bool restarting, rewinding;
    pd_kept *kept; /* list of the blocks that the handle frees at its end */
};

/* Fills a handle of one server, whose `n` addresses it takes over, but starts no thread. After an error, too,
 * pd_handle_dispose frees what it has. */
int pd_handle_make(pd_client *client, pd_settings *settings, pd_address *urls, size_t n, const pd_notices *notices,
                   pd_error *err);
/* Starts the I/O thread of a handle. */
int pd_handle_start(pd_client *client, pd_error *err);
/* Stops the I/O thread, if it was started. */
void pd_handle_stop(pd_client *client);
/* Frees a handle whose I/O thread does not run. */
void pd_handle_dispose(pd_client *client);
/* Returns the handle of the server that speaks for the job: of several servers that of shard 0. */
pd_client *pd_handle_lead(const pd_client *client);
/* Returns the address in use, or that of the next attempt to connect. Sets *tenure, unless it is NULL, to the tenure of
 * the shard's owner; 0: not known. The core must not be locked. */
pd_address pd_handle_address(const pd_client *client, uint64_t *tenure);
/* Waits for the welcome of one server. Returns PD_OK at once if it has come before. */
int pd_handle_join(pd_client *client, double end, pd_error *err);

/* Writes in words what a call waits for, as the end of an error text. The core must be locked. */
void pd_handle_state(const pd_client *client, char text[PD_ERROR_TEXT]);
/* Notes that a call waits, after `seconds` more seconds, for an operation that is not done: tells the user if there was
 * no connection for long. Gives the server's warnings that have come to the user. The core must be locked; it is
 * unlocked meanwhile. */
void pd_handle_look(pd_client *client, double seconds);
/* Fills *err for a call that has waited for `seconds` without being done; the text says why. Returns
 * PD_DEADLINE_EXCEEDED. The core must be locked. */
int pd_handle_timed_out(const pd_client *client, double seconds, pd_error *err);
/* Returns why there is no connection, as words for an error text: the error of the last attempt, or that the server has
 * not answered yet. The result lies in the core or in `text`. The core must be locked. */
const char *pd_handle_reason(const pd_client *client, char text[PD_ERROR_TEXT]);
/* Waits at most `seconds` until the call with this ticket is done, frees the ticket and returns the result of the call.
 * The core must be locked. */
int pd_handle_finish(pd_client *client, pd_ticket_id ticket, double seconds, pd_error *err);
/* Returns when a call that begins now must be over, in seconds of the monotonic clock. A call that waits for several
 * tickets, one after the other, passes this time to pd_handle_finish_part for each of them. */
double pd_handle_end(const pd_client *client);
/* Waits until `end` for the ticket of a call that blocks, such as pd_client_declare. Returns the result of the call,
 * and sets *ticket to 0. PD_DEADLINE_EXCEEDED: *ticket is kept, so that the user can repeat the call and continue to
 * wait. The core must be locked. */
int pd_handle_finish_part(pd_client *client, pd_ticket_id *ticket, double end, pd_error *err);
/* Works as pd_handle_finish_part, for a call whose answer the caller reads: *reply is the answer's header, *bytes long,
 * and then its payload. The caller frees *reply. */
int pd_handle_finish_asked(pd_client *client, pd_ticket_id *ticket, uint8_t **reply, size_t *bytes, pd_error *err);
/* Sends the initial weights that this rank must send, then pulls all weights. Waits until `end`. The core must be
 * locked. */
int pd_handle_init(pd_client *client, void *const *weights, double end, pd_error *err);
/* Asks for a checkpoint of `step` (0: the present one) or a later step, unless an earlier call that timed out has.
 * Gives up one that asked for another step. Sets client->sync. The core must be locked. */
int pd_handle_sync(pd_client *client, uint64_t step, pd_error *err);
/* Locks the core of a handle for a function that only reads it. The cast removes the const, since taking the lock
 * changes the handle. */
pd_client *pd_handle_enter(const pd_client *client);

/* Forgets the tickets of calls that timed out: these calls ended when the server lost the job or its last steps. The
 * core must be locked. */
void pd_handle_forget_calls(pd_client *client);
/* Gives the handle a block that malloc has made: it is freed when the handle is closed. */
void pd_handle_keep(pd_client *client, pd_kept *block);

/* Size of a struct up to and including `field`, which was its last field in version 0.1 of the library. A caller's
 * struct has at least this size. */
#define PD_LEAST_SIZE(type, field) (offsetof(type, field) + sizeof(((type *)0)->field))

/* Copies the caller's struct of `size` bytes to *out, which has `known` bytes. Fields that the caller's struct does not
 * have become 0. `name` names the struct in the error text. PD_INVALID_ARGUMENT: `size` is less than `least` or more
 * than `known`. */
int pd_sized_read(void *out, size_t known, size_t least, const void *from, size_t size, const char *name,
                  pd_error *err);

#endif
