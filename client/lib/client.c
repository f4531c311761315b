/* client.c - the public functions of the client library. They run in the user's thread. */
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "leased.h"
#include "call.h"
#include "join.h"
#include "handle.h"
#include "hash.h"
#include "operator.h"
#include "options.h"
#include "shard_list.h"
#include "shard_table.h"
#include "paramd/client.h"
#include "paramd/diloco.h"
#include "paramd/version.h"
#include "random.h"
#include "replace.h"
#include "shards.h"
#include "sharing.h"

/* Ends a call of the user, whose request was queued with the result `rc`. If `rc` is PD_OK, waits for the ticket and
 * returns the call's result. Otherwise returns `rc`. Unlocks the core. */
static int end_call(pd_client *client, pd_ticket_id *ticket, int rc, pd_error *err)
{
    if (rc == PD_OK) rc = pd_handle_finish_part(client, ticket, pd_handle_end(client), err);
    pd_io_leave(&client->io);
    return rc;
}

/* Returns whether the user has named one server, and the job is for all shards of its cluster. */
static bool must_spread(pd_client *client)
{
    bool must;

    if (!client->running) return client->core->following.spread;
    pd_io_enter(&client->io);
    must = client->core->following.spread;
    pd_io_leave(&client->io);
    return must;
}

/* Turns the handle of one server into a handle of all shards of its cluster. The call can be repeated after errors. */
static int spread(pd_client *client, pd_error *err)
{
    pd_notices notices = client->notices;
    pd_settings settings = { .tls = pd_secure_files(&client->secure),
                             .deadline = client->deadline,
                             .slice = client->slice,
                             .core = pd_core_config_of(client->core) };
    pd_shard_list list;
    int rc;

    pd_handle_stop(client);
    if ((rc = pd_shard_table_list(client->table, &list, err)) != PD_OK) return rc;
    rc = pd_shards_open(client, &settings, &list, &notices, err);
    pd_shard_list_free(&list);
    if (rc == PD_OK) {
        pd_core_free(client->core);
        client->core = NULL;
    } else if (client->shards != NULL) {
        pd_shards_stop(client->shards);
        pd_shards_free(client->shards);
        client->shards = NULL;
    }
    return rc;
}

/* Waits for the welcome until `end`. Tells the user if the job is left over from an earlier run. */
static int join(pd_client *client, double end, pd_error *err)
{
    bool joins = client->shards != NULL ? !pd_shards_are_joined(client->shards) : client->join != 0;
    int rc = PD_OK;
    const pd_client *lead;
    pd_address server;

    if (client->shards == NULL && !must_spread(client)) rc = pd_handle_join(client, end, err);
    if (client->shards == NULL && must_spread(client)) rc = spread(client, err);
    if (rc == PD_OK && client->shards != NULL) rc = pd_shards_join(client, end, err);
    if (rc != PD_OK || !joins) return rc;
    lead = pd_handle_lead(client);
    server = pd_handle_address(lead, NULL);
    pd_notice_left_over(&client->notices, lead->core->setup.job, &client->welcome, &server);
    return PD_OK;
}

int pd_client_join(pd_client *client, pd_error *err)
{
    return join(client, pd_handle_end(client), err);
}

/* Returns whether a server has not welcomed this worker yet, and writes the reason. */
static bool awaits_welcome(pd_client *client, char text[PD_ERROR_TEXT])
{
    char own[PD_ERROR_TEXT];
    bool awaits;

    if (client->shards != NULL) return pd_shards_await_welcome(client->shards, text);
    pd_io_enter(&client->io);
    awaits = client->join != 0;
    if (awaits) snprintf(text, PD_ERROR_TEXT, "%s", pd_handle_reason(client, own));
    pd_io_leave(&client->io);
    return awaits;
}

/* Waits for the welcome until the deadline, as a part of pd_client_open. */
static int wait_for_welcome(pd_client *client, pd_error *err)
{
    char reason[PD_ERROR_TEXT];
    int rc = join(client, pd_clock_seconds() + client->deadline, err);

    if (rc != PD_DEADLINE_EXCEEDED || !awaits_welcome(client, reason)) return rc;
    return pd_fail(err, PD_UNAVAILABLE, "no server within %g s: %.400s", client->deadline, reason);
}

/* Fills a handle of one server. Takes over the addresses of the list. */
static int start_lone(pd_client *client, pd_settings *settings, pd_shard_list *list, const pd_notices *notices,
                      pd_error *err)
{
    pd_address *urls = list->addresses;
    size_t n = list->first[1];
    int rc;

    list->addresses = NULL;
    rc = pd_handle_make(client, settings, urls, n, notices, err);
    return rc == PD_OK ? pd_handle_start(client, err) : rc;
}

static int start(pd_client *client, const pd_client_options *options, pd_error *err)
{
    pd_notices notices = pd_notices_of(options);
    pd_settings settings;
    pd_shard_list list;
    int rc = pd_settings_resolve(&settings, options, err);

    if (rc == PD_OK) rc = pd_shard_list_parse(&list, settings.urls, err);
    if (rc != PD_OK) return rc;
    if (settings.core.job[0] != '\0' && (client->table = pd_shard_table_new(settings.core.nonce)) == NULL)
        rc = pd_fail(err, PD_NO_MEMORY, "out of memory");
    settings.core.table = client->table;
    if (rc != PD_OK) {
        pd_shard_list_free(&list);
        return rc;
    }
    if (list.n == 1)
        rc = start_lone(client, &settings, &list, &notices, err);
    else
        rc = pd_shards_open(client, &settings, &list, &notices, err);
    pd_shard_list_free(&list);
    return rc;
}

static int open_handle(pd_client **out, const pd_client_options *options, pd_error *err)
{
    pd_client *client = calloc(1, sizeof *client);
    int rc;

    if (client == NULL) return pd_fail(err, PD_NO_MEMORY, "out of memory");
    rc = start(client, options, err);
    if (rc == PD_OK && !options->join_later) rc = wait_for_welcome(client, err);
    if (rc != PD_OK) {
        pd_client_close(client);
        return rc;
    }
    *out = client;
    return PD_OK;
}

int pd_client_open_sized(pd_client **out, const pd_client_options *options, size_t size, pd_error *err)
{
    pd_client_options all;
    int rc = pd_sized_read(&all, sizeof all, PD_LEAST_SIZE(pd_client_options, quiet), options, size,
                           "pd_client_options", err);

    return rc == PD_OK ? open_handle(out, &all, err) : rc;
}

void pd_client_close(pd_client *client)
{
    if (client == NULL) return;
    if (client->shards != NULL) pd_shards_stop(client->shards);
    pd_handle_stop(client);
    if (client->shards != NULL) pd_shards_free(client->shards);
    pd_handle_dispose(client);
}

int pd_client_leave(pd_client *client, pd_error *err)
{
    int rc = PD_OK;

    if (client->shards != NULL) return pd_shards_leave(client, err);
    pd_io_enter(&client->io);
    if (client->leave == 0) rc = pd_core_leave(client->core, &client->leave, err);
    return end_call(client, &client->leave, rc, err);
}

const pd_welcome *pd_client_welcome(const pd_client *client)
{
    return &client->welcome;
}

static int declare(pd_client *client, const pd_client_param *params, size_t n, pd_error *err)
{
    int rc = PD_OK;

    if (client->shards != NULL) return pd_shards_declare(client, params, n, err);
    pd_io_enter(&client->io);
    if (client->declare == 0) rc = pd_core_declare(client->core, params, n, &client->declare, err);
    return end_call(client, &client->declare, rc, err);
}

/* Copies the caller's array of `n` pd_client_param structs of `size` bytes each. `size` is smaller than the library's
 * struct if the caller was compiled with an older header. */
static int read_params(pd_client_param *out, const void *params, size_t n, size_t size, pd_error *err)
{
    int rc = PD_OK;

    for (size_t i = 0; rc == PD_OK && i < n; i++)
        rc = pd_sized_read(&out[i], sizeof *out, PD_LEAST_SIZE(pd_client_param, model_state),
                           (const char *)params + i * size, size, "pd_client_param", err);
    return rc;
}

int pd_client_declare_sized(pd_client *client, const pd_client_param *params, size_t n, size_t size, pd_error *err)
{
    pd_client_param *all = calloc(n > 0 ? n : 1, sizeof *all);
    int rc = all != NULL ? read_params(all, params, n, size, err) : pd_fail(err, PD_NO_MEMORY, "out of memory");

    if (rc == PD_OK) rc = declare(client, all, n, err);
    free(all);
    return rc;
}

uint64_t pd_client_step(const pd_client *client, size_t param)
{
    pd_client *inside;
    uint64_t step;

    if (client->shards != NULL) return pd_shards_step(client->shards, param);
    inside = pd_handle_enter(client);
    step = pd_core_step(inside->core, param);
    pd_io_leave(&inside->io);
    return step;
}

void pd_client_members(const pd_client *client, int *members, int *index, uint64_t *epoch)
{
    pd_client *inside = pd_handle_enter(pd_handle_lead(client));
    pd_core_members now = pd_core_members_now(inside->core);

    pd_io_leave(&inside->io);
    if (members != NULL) *members = now.members;
    if (index != NULL) *index = now.index;
    if (epoch != NULL) *epoch = now.epoch;
}

size_t pd_client_shards(const pd_client *client, size_t shard, char *url, size_t room, uint64_t *tenure)
{
    size_t n = client->shards != NULL ? client->shards->n : 1;
    const pd_client *of = client->shards != NULL && shard < n ? client->shards->at[shard] : client;
    char text[PD_ADDRESS_TEXT];
    pd_address address;
    uint64_t known;

    if (shard >= n) return n;
    address = pd_handle_address(of, &known);
    if (url != NULL && room > 0) snprintf(url, room, "%s", pd_address_text(&address, text));
    if (tenure != NULL) *tenure = known;
    return n;
}

bool pd_client_leads(const pd_client *client)
{
    pd_client *inside = pd_handle_enter(pd_handle_lead(client));
    bool leads = pd_core_leads(inside->core);

    pd_io_leave(&inside->io);
    return leads;
}

double pd_client_fastest(const pd_client *client)
{
    pd_client *inside = pd_handle_enter(pd_handle_lead(client));
    double fastest = inside->core->fastest;

    pd_io_leave(&inside->io);
    return fastest;
}

/* Returns the last step that all parameters of fragment 0 have taken. */
static uint64_t taken_step(const pd_client *client)
{
    pd_client *inside;
    uint64_t step;

    if (client->shards != NULL) return pd_shards_taken_step(client->shards);
    inside = pd_handle_enter(client);
    step = pd_leased_taken_step(inside->core);
    pd_io_leave(&inside->io);
    return step;
}

int pd_client_share(pd_client *client, uint64_t *share, pd_error *err)
{
    uint64_t taken = taken_step(client);
    pd_client *lead = pd_handle_lead(client);
    int rc;

    pd_io_enter(&lead->io);
    rc = pd_core_take_share(lead->core, taken, share, err);
    pd_io_leave(&lead->io);
    return rc;
}

uint64_t pd_client_least_unused(const pd_client *client)
{
    uint64_t taken = taken_step(client);
    pd_client *inside = pd_handle_enter(pd_handle_lead(client));
    uint64_t least = pd_core_least_unused(inside->core, taken);

    pd_io_leave(&inside->io);
    return least;
}

const char *pd_client_note(const pd_client *client, size_t param)
{
    pd_client *inside;
    const char *note;

    if (client->shards != NULL) return pd_shards_note(client->shards, param);
    inside = pd_handle_enter(client);
    note = pd_core_note(inside->core, param);
    pd_io_leave(&inside->io);
    return note;
}

bool pd_client_must_init(const pd_client *client)
{
    pd_client *inside;
    bool must;

    if (client->shards != NULL) return pd_shards_must_init(client->shards);
    inside = pd_handle_enter(client);
    must = inside->core->must_init;
    pd_io_leave(&inside->io);
    return must;
}

void *pd_client_buffer(pd_client *client, size_t param)
{
    void *buffer;

    if (client->shards != NULL) return pd_shards_buffer(client->shards, param);
    pd_io_enter(&client->io);
    buffer = pd_core_buffer(client->core, param);
    pd_io_leave(&client->io);
    return buffer;
}

int pd_client_init(pd_client *client, void *const *weights, pd_error *err)
{
    int rc;

    if (client->shards != NULL) return pd_shards_init(client, weights, pd_handle_end(client), err);
    pd_io_enter(&client->io);
    rc = pd_handle_init(client, weights, pd_handle_end(client), err);
    pd_io_leave(&client->io);
    return rc;
}

static int push(pd_client *client, unsigned method, pd_item *items, size_t n, const pd_push_options *options,
                size_t size, pd_ticket_id *ticket, pd_error *err)
{
    pd_push_options all = { 0 };
    pd_pushing pushing;
    int rc = options == NULL ? PD_OK
                             : pd_sized_read(&all, sizeof all, PD_LEAST_SIZE(pd_push_options, sparse), options, size,
                                             "pd_push_options", err);

    if (rc != PD_OK) return rc;
    if (client->shards != NULL) return pd_shards_push(client, method, items, n, &all, ticket, err);
    pd_io_enter(&client->io);
    rc = pd_core_push_begin(&pushing, client->core, method, items, n, &all, err);
    if (rc == PD_OK && pushing.quantizes) {
        pd_io_leave(&client->io);
        pd_core_push_quantize(&pushing);
        pd_io_enter(&client->io);
    }
    if (rc == PD_OK) rc = pd_core_push_end(&pushing, ticket, err);
    pd_io_leave(&client->io);
    return rc;
}

int pd_client_push_sized(pd_client *client, pd_item *items, size_t n, const pd_push_options *options, size_t size,
                         pd_ticket_id *ticket, pd_error *err)
{
    return push(client, PD_PUSH, items, n, options, size, ticket, err);
}

int pd_client_push_pull_sized(pd_client *client, pd_item *items, size_t n, const pd_push_options *options, size_t size,
                              pd_ticket_id *ticket, pd_error *err)
{
    return push(client, PD_PUSH_PULL, items, n, options, size, ticket, err);
}

int pd_client_replace(pd_client *client, const pd_item *items, size_t n, uint64_t replaces, pd_error *err)
{
    int rc = PD_OK;

    if (client->shards != NULL) return pd_shards_replace(client, items, n, replaces, err);
    pd_io_enter(&client->io);
    if (client->replace == 0) rc = pd_core_replace(client->core, items, n, replaces, &client->replace, err);
    return end_call(client, &client->replace, rc, err);
}

int pd_client_close_step(pd_client *client, uint64_t step, pd_ticket_id *ticket, pd_error *err)
{
    int rc;

    if (client->shards != NULL) return pd_shards_close_step(client, step, ticket, err);
    pd_io_enter(&client->io);
    rc = pd_core_close_step(client->core, step, ticket, err);
    pd_io_leave(&client->io);
    return rc;
}

int pd_client_pull(pd_client *client, pd_item *items, size_t n, uint64_t min_step, pd_ticket_id *ticket, pd_error *err)
{
    return pd_client_pull_form(client, items, n, min_step, PD_FORM_TRAIN, ticket, err);
}

int pd_client_pull_form(pd_client *client, pd_item *items, size_t n, uint64_t min_step, pd_weights_form form,
                        pd_ticket_id *ticket, pd_error *err)
{
    int rc;

    if (client->shards != NULL) return pd_shards_pull(client, items, n, min_step, form, ticket, err);
    pd_io_enter(&client->io);
    rc = pd_core_pull(client->core, items, n, min_step, form, ticket, err);
    pd_io_leave(&client->io);
    return rc;
}

int pd_client_wait(pd_client *client, pd_ticket_id ticket, double seconds, pd_error *err)
{
    double most = seconds > 0 ? seconds : client->deadline;
    int rc;

    if (client->shards != NULL) return pd_shards_wait(client, ticket, most, err);
    pd_io_enter(&client->io);
    rc = pd_handle_finish(client, ticket, most, err);
    pd_io_leave(&client->io);
    return rc;
}

bool pd_client_ready(const pd_client *client, pd_ticket_id ticket)
{
    pd_client *inside;
    bool done;

    if (client->shards != NULL) return pd_shards_ready(client->shards, ticket);
    inside = pd_handle_enter(client);
    done = pd_core_done(inside->core, ticket);
    pd_io_leave(&inside->io);
    return done;
}

int pd_client_fd(pd_client *client)
{
    int fd;

    if (client->shards != NULL) return pd_shards_fd(client->shards);
    pd_io_enter(&client->io);
    fd = pd_io_done_fd(&client->io);
    pd_io_leave(&client->io);
    return fd;
}

int pd_client_barrier(pd_client *client, pd_error *err)
{
    int rc = PD_OK;

    if (client->shards != NULL) return pd_shards_barrier(client, err);
    pd_io_enter(&client->io);
    if (client->barrier == 0) rc = pd_core_barrier(client->core, &client->barrier, err);
    return end_call(client, &client->barrier, rc, err);
}

void pd_client_count_sized(const pd_client *client, pd_client_stats *stats, size_t size)
{
    pd_client_stats all;
    pd_client *inside;

    if (client->shards != NULL) {
        all = pd_shards_count(client->shards);
    } else {
        inside = pd_handle_enter(client);
        all = pd_core_stats(inside->core);
        pd_io_leave(&inside->io);
    }
    memset(stats, 0, size);
    memcpy(stats, &all, size < sizeof all ? size : sizeof all);
}

/* An operator's request: its method and message, the payload to send, and the buffer for the payload of the answer. */
typedef struct order {
    unsigned method;
    const ProtobufCMessage *request;
    struct iovec payload, into;
} order;

/* Sends an operator's request and waits for the answer. The core must be locked. */
static int call(pd_client *client, const order *o, uint8_t **at, size_t *bytes, pd_error *err)
{
    pd_ticket_id ticket;
    int rc = pd_core_call(client->core, o->method, o->request, &o->payload, o->into.iov_len, &ticket, err);

    if (rc != PD_OK) return rc;
    pd_io_leave(&client->io);
    pd_io_enter(&client->io);
    if (pd_io_wait(&client->io, ticket, client->deadline)) return pd_core_finish(client->core, ticket, at, bytes, err);
    rc = pd_handle_timed_out(client, client->deadline, err);
    pd_core_give_up(client->core, ticket);
    return rc;
}

static int carry_out(pd_client *client, const order *o, pd_arena *arena, void **reply, pd_error *err)
{
    uint8_t *at = NULL;
    size_t bytes = 0;
    void *unpacked;
    int rc;

    client = pd_handle_lead(client); /* an operator asks each daemon with a handle of its own */
    pd_io_enter(&client->io);
    rc = call(client, o, &at, &bytes, err);
    pd_io_leave(&client->io);
    pd_arena_reset(arena);
    if (rc == PD_OK) rc = pd_reply_unpack(arena, o->method, at, bytes, reply != NULL ? reply : &unpacked, err);
    if (rc == PD_OK && o->into.iov_len > 0) memcpy(o->into.iov_base, at + bytes, o->into.iov_len);
    free(at);
    return rc;
}

int pd_client_call(pd_client *client, unsigned method, const ProtobufCMessage *request, pd_arena *arena, void **reply,
                   pd_error *err)
{
    return carry_out(client, &(order){ .method = method, .request = request }, arena, reply, err);
}

int pd_client_call_with(pd_client *client, unsigned method, const ProtobufCMessage *request, const void *payload,
                        size_t payload_bytes, pd_arena *arena, void **reply, pd_error *err)
{
    const order o = { .method = method, .request = request, .payload = { (void *)payload, payload_bytes } };

    return carry_out(client, &o, arena, reply, err);
}

int pd_client_call_into(pd_client *client, unsigned method, const ProtobufCMessage *request, void *into, size_t bytes,
                        pd_arena *arena, void **reply, pd_error *err)
{
    return carry_out(client, &(order){ .method = method, .request = request, .into = { into, bytes } }, arena, reply,
                     err);
}

uint32_t pd_client_shards_known(pd_client *client)
{
    uint32_t known;

    pd_io_enter(&client->io);
    known = client->core->following.known;
    pd_io_leave(&client->io);
    return known;
}

uint64_t pd_client_durable(const pd_client *client)
{
    pd_client *inside;
    uint64_t step;

    if (client->shards != NULL) return pd_shards_durable(client->shards);
    inside = pd_handle_enter(client);
    step = inside->core->progress.durable;
    pd_io_leave(&inside->io);
    return step;
}

int pd_client_sync(pd_client *client, uint64_t step, pd_error *err)
{
    int rc;

    if (client->shards != NULL) return pd_shards_sync(client, step, err);
    pd_io_enter(&client->io);
    rc = pd_handle_sync(client, step, err);
    return end_call(client, &client->sync, rc, err);
}

/* Asks for the worker state (Recall), unless an earlier call that timed out has, and waits for the answer. *reply
 * becomes the answer's header, *bytes long, with the worker state after it. */
static int await_worker_state(pd_client *client, uint8_t **reply, size_t *bytes, pd_error *err)
{
    int rc = PD_OK;

    *reply = NULL;
    pd_io_enter(&client->io);
    if (client->worker_state == 0) rc = pd_core_get_worker_state(client->core, &client->worker_state, err);
    if (rc == PD_OK) rc = pd_handle_finish_asked(client, &client->worker_state, reply, bytes, err);
    pd_io_leave(&client->io);
    return rc;
}

/* Gets the worker state of a shard, if it is newer than *step. */
static int get_worker_state(pd_client *client, void *out, size_t room, size_t *bytes, uint64_t *step, pd_error *err)
{
    pd_arena *arena = pd_arena_new(PD_ARENA_BUDGET);
    const Paramd__RecallReply *state;
    uint8_t *reply = NULL;
    void *message;
    size_t header;
    int rc = arena != NULL ? PD_OK : pd_fail(err, PD_NO_MEMORY, "out of memory");

    if (rc == PD_OK) rc = await_worker_state(client, &reply, &header, err);
    if (rc == PD_OK) rc = pd_reply_unpack(arena, PD_RECALL, reply, header, &message, err);
    if (rc == PD_OK) {
        state = message;
        if (state->step > *step) {
            *bytes = state->bytes;
            *step = state->step;
            if (room > 0) memcpy(out, reply + header, room < state->bytes ? room : state->bytes);
        }
    }
    free(reply);
    pd_arena_free(arena);
    return rc;
}

int pd_client_worker_state(pd_client *client, void *out, size_t room, size_t *bytes, uint64_t *step, pd_error *err)
{
    pd_client *lead = pd_handle_lead(client);
    size_t n = client->shards != NULL ? client->shards->n : 1;
    pd_error error = { .code = PD_OK };
    int rc = PD_OK;

    *bytes = 0;
    *step = 0;
    for (size_t i = 0; rc == PD_OK && i < n; i++) {
        if (n > 1 && !pd_shards_keeps_states(client->shards, i)) continue;
        rc = get_worker_state(i == 0 ? lead : client->shards->at[i], out, room, bytes, step, &error);
        if (rc != PD_OK && n > 1) pd_shards_name(client->shards, i, &error);
    }
    if (rc != PD_OK && err != NULL) *err = error;
    return rc;
}

int pd_client_recall(pd_client *client, void *out, size_t room, size_t *bytes, uint64_t *step, pd_error *err)
    __attribute__((alias("pd_client_worker_state")));

/* Returns the random stream of this worker, or the stream that all workers share.
 *
 * The server makes its streams from the seed and a step number, or from the seed and the name of a parameter. A
 * worker's stream has UINT64_MAX in place of the step number. No job has so many steps, so no two streams are equal. */
static pd_random stream_of(const pd_client *client, pd_stream stream)
{
    const pd_welcome *welcome = pd_client_welcome(client);
    pd_random workers = pd_random_fold(pd_random_stream(welcome->seed, ""), UINT64_MAX);

    return pd_random_fold(workers, stream == PD_STREAM_SHARED ? 0 : 1 + (uint64_t)welcome->rank);
}

void pd_client_uniform(const pd_client *client, pd_stream stream, uint64_t key, uint64_t first, float *out, size_t n)
{
    pd_random_uniform(stream_of(client, stream), key, first, out, (int64_t)n);
}

void pd_client_normal(const pd_client *client, pd_stream stream, uint64_t key, uint64_t first, float *out, size_t n)
{
    pd_random_normal(stream_of(client, stream), key, first, out, (int64_t)n);
}

enum { LINE = 64, LINES = 64, SMALL = 4096 };

/* Hashes LINE bytes out of each `every` bytes of the n bytes at `at`, beginning with those at offset `first`. Gathers
 * LINES such sections before it hashes them, since the hash is faster on long inputs. */
static uint64_t sampled(const unsigned char *at, size_t n, size_t every, size_t first)
{
    unsigned char lines[LINES * LINE];
    uint64_t hash = 0;
    size_t filled = 0;

    for (size_t i = first; i + LINE <= n; i += every) {
        memcpy(lines + LINE * filled, at + i, LINE);
        if (++filled < LINES) continue;
        hash = XXH3_64bits_withSeed(lines, sizeof lines, hash);
        filled = 0;
    }
    return XXH3_64bits_withSeed(lines, LINE * filled, hash);
}

static uint64_t hash(const void *tensor, size_t n, size_t every, size_t first)
{
    size_t piece = every < n / 4 ? every : n / 4; /* at least four sections of each tensor are hashed */

    if (every < LINE || n <= SMALL) return XXH3_64bits(n > 0 ? tensor : "", n);
    return sampled(tensor, n, piece, first % (piece - LINE + 1));
}

void pd_client_fingerprint(const void *const *tensors, const size_t *bytes, size_t n, size_t every, size_t first,
                           uint64_t *hashes)
{
    for (size_t i = 0; i < n; i++) hashes[i] = hash(tensors[i], bytes[i], every, first);
}

int pd_sized_read(void *out, size_t known, size_t least, const void *from, size_t size, const char *name, pd_error *err)
{
    if (size < least || size > known)
        return pd_fail(err, PD_INVALID_ARGUMENT,
                       "%s has %zu bytes: libparamd " PARAMD_VERSION " expects %zu to %zu. Pass sizeof(%s); a program "
                       "that was built with newer headers needs a newer library",
                       name, size, least, known, name);
    memset(out, 0, known);
    memcpy(out, from, size);
    return PD_OK;
}

const char *pd_version(void)
{
    return PARAMD_VERSION;
}

#define COUNT(...) (sizeof(const size_t[]){ __VA_ARGS__ } / sizeof(size_t))
/* The numbers of one struct for pd_client_abi: its size, the number of its fields, and their offsets. */
#define ENTRY(type, ...) sizeof(type), COUNT(__VA_ARGS__), __VA_ARGS__
#define AT(type, field) offsetof(type, field)

static const size_t abi[] = {
    ENTRY(pd_error, AT(pd_error, code), AT(pd_error, text)),
    ENTRY(pd_shape, AT(pd_shape, rank), AT(pd_shape, dim)),
    ENTRY(pd_client_options, AT(pd_client_options, urls), AT(pd_client_options, job), AT(pd_client_options, rank),
          AT(pd_client_options, world_size), AT(pd_client_options, options), AT(pd_client_options, rules),
          AT(pd_client_options, label), AT(pd_client_options, deadline), AT(pd_client_options, checksum),
          AT(pd_client_options, impatient), AT(pd_client_options, nonce), AT(pd_client_options, notice),
          AT(pd_client_options, notice_arg), AT(pd_client_options, quiet), AT(pd_client_options, no_shared_memory),
          AT(pd_client_options, join_later), AT(pd_client_options, slice), AT(pd_client_options, window),
          AT(pd_client_options, token_file), AT(pd_client_options, ca_file), AT(pd_client_options, cert_file),
          AT(pd_client_options, key_file), AT(pd_client_options, run), AT(pd_client_options, resume),
          AT(pd_client_options, joins), AT(pd_client_options, group), AT(pd_client_options, generation),
          AT(pd_client_options, shares), AT(pd_client_options, feedback), AT(pd_client_options, tcp_congestion)),
    ENTRY(pd_welcome, AT(pd_welcome, seed), AT(pd_welcome, created), AT(pd_welcome, rank), AT(pd_welcome, world_size),
          AT(pd_welcome, chunk_elements), AT(pd_welcome, max_payload), AT(pd_welcome, server),
          AT(pd_welcome, blas_core), AT(pd_welcome, step), AT(pd_welcome, linger), AT(pd_welcome, slots),
          AT(pd_welcome, epoch), AT(pd_welcome, generation)),
    ENTRY(pd_client_param, AT(pd_client_param, name), AT(pd_client_param, shape), AT(pd_client_param, push_dtype),
          AT(pd_client_param, pull_dtype), AT(pd_client_param, update_dtype), AT(pd_client_param, ranged),
          AT(pd_client_param, start), AT(pd_client_param, end), AT(pd_client_param, axes),
          AT(pd_client_param, model_state), AT(pd_client_param, fragment)),
    ENTRY(pd_item, AT(pd_item, param), AT(pd_item, gradient), AT(pd_item, weights), AT(pd_item, outcome),
          AT(pd_item, step), AT(pd_item, version)),
    ENTRY(pd_scalar, AT(pd_scalar, name), AT(pd_scalar, value), AT(pd_scalar, mean), AT(pd_scalar, weight)),
    ENTRY(pd_push_options, AT(pd_push_options, weight), AT(pd_push_options, zero_weight),
          AT(pd_push_options, presummed), AT(pd_push_options, hypers), AT(pd_push_options, scalars),
          AT(pd_push_options, n_scalars), AT(pd_push_options, sparse), AT(pd_push_options, worker_state),
          AT(pd_push_options, worker_state_bytes), AT(pd_push_options, replaces), AT(pd_push_options, patience_ms),
          AT(pd_push_options, wants), AT(pd_push_options, carried), AT(pd_push_options, counts),
          AT(pd_push_options, speed), AT(pd_push_options, again), AT(pd_push_options, lost), AT(pd_push_options, form)),
    ENTRY(pd_client_stats, AT(pd_client_stats, bytes_out), AT(pd_client_stats, bytes_in),
          AT(pd_client_stats, payload_out), AT(pd_client_stats, payload_in), AT(pd_client_stats, connects),
          AT(pd_client_stats, resent), AT(pd_client_stats, shared_out), AT(pd_client_stats, shared_in),
          AT(pd_client_stats, rewinds), AT(pd_client_stats, replayed)),
    ENTRY(pd_item_count, AT(pd_item_count, age), AT(pd_item_count, counted)),
    ENTRY(pd_diloco_options, AT(pd_diloco_options, sync_every), AT(pd_diloco_options, fragment_sync_delay),
          AT(pd_diloco_options, fragment_update_alpha), AT(pd_diloco_options, drop_late), AT(pd_diloco_options, dylu),
          AT(pd_diloco_options, weigh_tokens)),
    ENTRY(pd_diloco_due, AT(pd_diloco_due, send), AT(pd_diloco_due, take)),
    ENTRY(pd_diloco_status, AT(pd_diloco_status, inner_steps), AT(pd_diloco_status, step), AT(pd_diloco_status, pushes),
          AT(pd_diloco_status, counted), AT(pd_diloco_status, late), AT(pd_diloco_status, age),
          AT(pd_diloco_status, sync_every), AT(pd_diloco_status, payload_out), AT(pd_diloco_status, payload_in),
          AT(pd_diloco_status, members), AT(pd_diloco_status, counted_ranks), AT(pd_diloco_status, speed)),
};

size_t pd_client_abi(size_t *out, size_t n)
{
    size_t all = sizeof abi / sizeof *abi;

    for (size_t i = 0; i < n && i < all; i++) out[i] = abi[i];
    return all;
}
