/* core.c - the connection of a client handle: decides when to connect, when to send heartbeats, and when the server
 * counts as silent. */
#include "core.h"

#include "core_end.h"
#include "core_remarks.h"
#include "transport.h"
#include "declared_params.h"
#include "op.h"
#include "mutant.h"
#include "post.h"
#include "refusal.h"
#include "restart.h"
#include "sharing.h"
#include "window.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MS 1000000ull

/* The server counts as silent after this time, until its welcome (answer to Hello) sets another time. */
#define FIRST_TIMEOUT_NS (10000 * MS)
#define FIRST_HEARTBEAT_NS (2500 * MS)
#define BACKOFF_LEAST_NS (50 * MS)
#define BACKOFF_MOST_NS (2000 * MS)
#define BACKOFF_SHARE                                                                                                  \
    8 /* pauses are this part of the time without a welcome: so much later a client finds its server */
/* When the server has refused one frame of a call, the call waits this long for the answers to its other frames. */
#define REST_NS (1000 * MS)

/* ---- life ---- */

static void free_texts(char **texts)
{
    for (size_t i = 0; texts != NULL && texts[i] != NULL; i++) free(texts[i]);
    free(texts);
}

static char **copy_texts(const char *const *texts)
{
    size_t n = 0;
    char **copy;

    while (texts != NULL && texts[n] != NULL) n++;
    if ((copy = calloc(n + 1, sizeof *copy)) == NULL) return NULL;
    for (size_t i = 0; i < n; i++) {
        if ((copy[i] = strdup(texts[i])) == NULL) {
            free_texts(copy);
            return NULL;
        }
    }
    return copy;
}

static int check_options(const char *const *options, pd_error *err)
{
    for (size_t i = 0; options != NULL && options[i] != NULL; i++) {
        const char *equals = strchr(options[i], '=');
        if (equals == NULL || equals == options[i])
            return pd_fail(err, PD_INVALID_ARGUMENT, "option \"%s\": expected name=value", options[i]);
    }
    return PD_OK;
}

int pd_core_new(pd_core **out, const pd_core_config *config, pd_error *err)
{
    static const char *const plain[] = { "* sgd", NULL };
    pd_core *core;
    pd_op *op;
    int rc = check_options(config->options, err);

    if (rc != PD_OK) return rc;
    if ((core = calloc(1, sizeof *core)) == NULL) return pd_fail(err, PD_NO_MEMORY, "out of memory");
    core->job = strdup(config->job);
    core->label = strdup(config->label);
    core->run = strdup(config->run != NULL ? config->run : "");
    core->resume = config->resume;
    core->joins = config->joins;
    core->options = copy_texts(config->options);
    core->rules = copy_texts(config->rules != NULL ? config->rules : plain);
    core->scratch = malloc(sizeof *core->scratch);
    core->arena = pd_arena_new(PD_ARENA_BUDGET);
    core->rank = config->rank;
    core->world_size = config->world_size;
    core->nonce = core->random = config->nonce;
    core->flags = config->checksum ? PD_FLAG_CHECKSUM : 0;
    core->urls = config->urls;
    core->addresses = config->addresses;
    core->impatient = config->impatient;
    core->window.steps = config->window;
    core->give_up_ns = UINT64_MAX;
    core->out.least_shared = config->least_shared;
    core->sharing = (pd_sharing){
        .refused = config->checksum || config->no_shared_memory, .to_send = -1, .taken = -1, .weights = PD_NO_SEGMENT
    };
    op = pd_op_new(core, PD_HELLO);
    if (core->job == NULL || core->label == NULL || core->run == NULL || core->options == NULL || core->rules == NULL ||
        core->scratch == NULL || core->arena == NULL || op == NULL) {
        pd_core_free(core);
        return pd_fail(err, PD_NO_MEMORY, "out of memory");
    }
    core->welcome_ticket = op->id;
    *out = core;
    return PD_OK;
}

void pd_core_free(pd_core *core)
{
    pd_op *op, *next;

    if (core == NULL) return;
    pd_outgoing_clear(&core->out);
    pd_window_free(core);
    HASH_ITER(hh, core->ops, op, next) pd_op_free(core, op);
    pd_core_forget_params(core);
    pd_sharing_free(core);
    pd_core_remarks_free(&core->remarks);
    free_texts(core->options);
    free_texts(core->rules);
    pd_arena_free(core->arena);
    free(core->scratch);
    free(core->updates);
    free(core->job);
    free(core->label);
    free(core->run);
    free(core);
}

/* ---- operations ---- */

bool pd_core_done(const pd_core *core, pd_ticket_id ticket)
{
    const pd_op *op = pd_op_find(core, ticket);
    return op == NULL || op->done;
}

uint64_t pd_core_ended_ops(const pd_core *core)
{
    return core->ended_ops;
}

int pd_core_finish(pd_core *core, pd_ticket_id ticket, uint8_t **reply, size_t *bytes, pd_error *err)
{
    pd_op *op = pd_op_find(core, ticket);
    int rc;

    *reply = NULL;
    *bytes = 0;
    if (op == NULL)
        return pd_fail(err, PD_NOT_FOUND, "ticket %llu: never given out, or waited for already",
                       (unsigned long long)ticket);
    rc = op->error.code;
    if (rc != PD_OK && err != NULL) *err = op->error;
    *reply = op->reply;
    *bytes = op->reply_bytes;
    op->reply = NULL;
    pd_op_free(core, op);
    return rc;
}

/* ---- making connections ---- */

/* Random numbers by splitmix64. They only have to differ between processes, so that these do not reconnect at the
 * same time. */
static uint64_t draw(pd_core *core)
{
    uint64_t z = core->random += 0x9e3779b97f4a7c15u;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
}

/* Returns how long to wait before the next attempt to connect: an eighth of the time since the last welcome, but at
 * least 50 ms and at most 2 s. The second half of this time is random. So a server that is back after a second is found
 * a tenth of a second later, and one that is away for long is not asked often. */
static uint64_t backoff_ns(pd_core *core, uint64_t now_ns)
{
    uint64_t most = (now_ns - core->alone_ns) / BACKOFF_SHARE;

    if (most < BACKOFF_LEAST_NS) most = BACKOFF_LEAST_NS;
    if (most > BACKOFF_MOST_NS) most = BACKOFF_MOST_NS;
    return most / 2 + draw(core) % (most / 2 + 1);
}

pd_link pd_core_link(const pd_core *core, uint64_t now_ns)
{
    if (core->stage == STAGE_DROP) return PD_LINK_DROP;
    if (core->stage != STAGE_DOWN) return PD_LINK_KEEP;
    return core->ended.code == PD_OK && now_ns >= core->retry_ns ? PD_LINK_CONNECT : PD_LINK_REST;
}

size_t pd_core_url(const pd_core *core)
{
    return core->url;
}

static int split_options(char *const *texts, Paramd__Option **out, size_t *n)
{
    size_t count = 0, bytes = 0;
    Paramd__Option *options;
    char *at;

    while (texts[count] != NULL) bytes += strlen(texts[count++]) + 1;
    if ((options = malloc(count * sizeof *options + bytes + 1)) == NULL) return PD_NO_MEMORY;
    at = (char *)(options + count);
    for (size_t i = 0; i < count; i++) {
        size_t size = strlen(texts[i]) + 1;

        paramd__option__init(&options[i]);
        options[i].name = memcpy(at, texts[i], size);
        options[i].value = strchr(at, '=') + 1;
        options[i].value[-1] = '\0';
        at += size;
    }
    *out = options;
    *n = count;
    return PD_OK;
}

/* Returns how many steps this process has seen closed for all parameters of which it has elements. */
static uint64_t steps_seen(const pd_core *core)
{
    uint64_t least = UINT64_MAX;

    for (size_t i = 0; i < core->n_params; i++)
        if (core->params[i].start < core->params[i].end && core->params[i].step < least) least = core->params[i].step;
    return least == UINT64_MAX ? 0 : least;
}

/* Returns a Hello without options, and notes in the core whether it rejoins. The Hello's pointers refer to memory of
 * the core. */
static Paramd__HelloRequest make_hello(pd_core *core)
{
    Paramd__HelloRequest hello = PARAMD__HELLO_REQUEST__INIT;

    hello.protocol = PD_PROTOCOL_VERSION;
    hello.job = core->job;
    hello.rank = core->rank;
    hello.world_size = core->world_size;
    hello.nonce = core->nonce;
    hello.rejoins = core->rejoins = pd_core_begins_anew(core) ? core->rank != 0 : pd_core_has_begun(core);
    hello.creator = core->rejoins && !pd_core_begins_anew(core) ? core->creator : 0;
    hello.run = core->run;
    hello.resume = (uint32_t)core->resume;
    hello.joins = core->joins && !core->restarted;
    hello.label = core->label;
    hello.shares = pd_sharing_wanted(core);
    hello.window = core->window.steps;
    hello.barriers = PD_MUTANT(barriers_forgotten) ? 0 : core->passed;
    hello.steps = steps_seen(core);
    hello.remarks = core->rank == 0;
    hello.rules = core->rules;
    while (hello.rules[hello.n_rules] != NULL) hello.n_rules++;
    return hello;
}

static int post_hello(pd_core *core)
{
    Paramd__HelloRequest hello = make_hello(core);
    Paramd__Option *options, **pointers;
    size_t n;
    int rc = split_options(core->options, &options, &n);

    if (rc != PD_OK) return rc;
    if ((pointers = malloc((n + 1) * sizeof *pointers)) == NULL) {
        free(options);
        return PD_NO_MEMORY;
    }
    for (size_t i = 0; i < n; i++) pointers[i] = &options[i];
    hello.options = pointers;
    hello.n_options = n;
    rc = pd_core_post(core, PD_HELLO, &hello.base, PD_LANE_CONNECTION, NULL);
    free(pointers);
    free(options);
    return rc;
}

void pd_core_up(pd_core *core, bool passes_descriptors, uint64_t now_ns)
{
    int rc;

    core->stage = STAGE_GREETING;
    core->welcomed = false;
    core->mark = 0;
    core->sharing.possible = passes_descriptors;
    core->timeout_ns = FIRST_TIMEOUT_NS;
    core->heartbeat_ns = FIRST_HEARTBEAT_NS;
    core->received_ns = core->sent_ns = now_ns;
    core->stats.connects++;
    rc = post_hello(core);
    if (rc == PD_OK) return;
    if (rc == PD_OUT_OF_RANGE) {
        pd_error error;
        pd_fail(&error, PD_INVALID_ARGUMENT, "options and rules are too long: at most %d bytes together",
                PD_MAX_HEADER_BYTES);
        pd_core_end(core, &error);
    } else {
        pd_core_drop(core, pd_code_text(rc));
    }
}

static void left_at_last(void *arg, pd_outgoing_frame *frame)
{
    pd_op_answered(arg, frame->op);
}

/* Ends the client handle (the user's pd_client) with the error UNAVAILABLE, because it was opened with the option not
 * to connect again. */
static void give_up(pd_core *core)
{
    pd_error error;

    pd_fail(&error, PD_UNAVAILABLE, "%s", core->reason);
    pd_core_end(core, &error);
}

void pd_core_down(pd_core *core, uint64_t now_ns, const char *reason)
{
    if (core->stage != STAGE_DROP) snprintf(core->reason, sizeof core->reason, "%s", reason);
    if (!core->welcomed) core->url = (core->url + 1) % core->urls;
    if (core->welcomed || core->alone_ns == 0) core->alone_ns = now_ns;
    if (core->impatient && (core->welcomed || core->url == 0)) give_up(core);
    core->retry_ns = now_ns + backoff_ns(core, now_ns);
    core->stage = STAGE_DOWN;
    core->welcomed = false;
    core->reply = NULL;
    pd_sharing_end(core);
    pd_window_forget(core);
    core->stats.resent += pd_outgoing_rewind(&core->out, left_at_last, core);
}

bool pd_core_reconnects(const pd_core *core)
{
    return !core->impatient;
}

void pd_core_explain(pd_core *core, const char *reason)
{
    snprintf(core->reason, sizeof core->reason, "%s", reason);
}

/* ---- time ---- */

/* Returns whether the server owes an answer: a request was sent on this connection and is not answered, or requests
 * wait to be sent. */
static bool owed(const pd_core *core)
{
    return pd_outgoing_pending(&core->out) || core->out.lane[PD_LANE_CONNECTION].first != NULL ||
           (core->out.open && core->out.lane[PD_LANE_LASTING].first != core->out.lane[PD_LANE_LASTING].next);
}

/* Returns the time at which the server counts as silent and the connection is dropped. While bytes remain to be
 * sent, each byte that the network takes counts as a sign of life: a server that reads a large model may not answer
 * for long. */
static uint64_t dead_ns(const pd_core *core)
{
    uint64_t quiet_since = core->received_ns;

    if (pd_outgoing_pending(&core->out) && core->sent_ns > quiet_since) quiet_since = core->sent_ns;
    return quiet_since + core->timeout_ns;
}

/* Ends each operation that has waited REST_NS for its other answers after the server refused
 * one of its frames. These answers may never come: to send them, the server may first need the refused gradient, or
 * the gradient of another rank whose call waits in the same way. */
static void end_hopeless(pd_core *core, uint64_t now_ns)
{
    pd_op *op, *next;

    if (now_ns < core->give_up_ns) return;
    core->give_up_ns = UINT64_MAX;
    HASH_ITER(hh, core->ops, op, next)
    {
        if (!op->hopeless || op->done) continue;
        if (op->give_up_ns == 0) op->give_up_ns = now_ns + REST_NS;
        if (now_ns >= op->give_up_ns)
            pd_core_abandon(core, op);
        else if (op->give_up_ns < core->give_up_ns)
            core->give_up_ns = op->give_up_ns;
    }
}

uint64_t pd_core_next(const pd_core *core)
{
    uint64_t beat, dead;

    if (core->stage == STAGE_DROP) return 0;
    if (core->stage == STAGE_DOWN) return core->ended.code == PD_OK ? core->retry_ns : UINT64_MAX;
    beat = core->welcomed && !pd_outgoing_pending(&core->out) ? core->sent_ns + core->heartbeat_ns : UINT64_MAX;
    dead = owed(core) ? dead_ns(core) : UINT64_MAX;
    if (core->give_up_ns < dead) dead = core->give_up_ns;
    return beat < dead ? beat : dead;
}

static int post_heartbeat(pd_core *core)
{
    Paramd__Empty empty = PARAMD__EMPTY__INIT;

    return pd_core_post(core, PD_HEARTBEAT, &empty.base, PD_LANE_CONNECTION, NULL);
}

void pd_core_ask(pd_core *core)
{
    if (core->welcomed && core->stage != STAGE_DROP) post_heartbeat(core); /* without memory it is not asked */
}

void pd_core_tick(pd_core *core, uint64_t now_ns)
{
    if (core->stage == STAGE_DOWN || core->stage == STAGE_DROP) return;
    end_hopeless(core, now_ns);
    pd_sharing_release(core);
    if (owed(core) && now_ns >= dead_ns(core)) {
        pd_core_drop(core, "the server has gone silent");
    } else if (core->welcomed && !pd_outgoing_pending(&core->out) && now_ns >= core->sent_ns + core->heartbeat_ns) {
        if (post_heartbeat(core) != PD_OK)
            core->sent_ns = now_ns; /* no memory for this heartbeat: the next one is tried after a whole interval */
    }
}

/* ---- bytes ---- */

int pd_core_output(pd_core *core, struct iovec *iov, int max, size_t bytes)
{
    if (core->stage == STAGE_DOWN || core->stage == STAGE_DROP) return 0;
    return pd_outgoing_gather(&core->out, iov, max, bytes);
}

bool pd_core_has_output(const pd_core *core)
{
    return core->stage != STAGE_DOWN && core->stage != STAGE_DROP && pd_outgoing_pending(&core->out);
}

void pd_core_sent(pd_core *core, size_t n, uint64_t now_ns)
{
    if (n > 0) core->sent_ns = now_ns;
    core->stats.bytes_out += n;
    pd_outgoing_sent(&core->out, n, left_at_last, core);
}

void pd_core_fill(const pd_core *core)
{
    pd_outgoing_fill(&core->out);
}

int pd_core_take_descriptor(pd_core *core)
{
    return pd_descriptor_take(&core->sharing.to_send);
}

void pd_core_give_descriptor(pd_core *core, int fd)
{
    pd_descriptor_replace(&core->sharing.taken, fd);
}

void pd_core_received(pd_core *core, size_t n, uint64_t now_ns)
{
    core->received_ns = now_ns;
    core->stats.bytes_in += n;
}

/* ---- facts ---- */

const char *pd_core_job(const pd_core *core)
{
    return core->job;
}
const pd_welcome *pd_core_welcome(const pd_core *core)
{
    return &core->welcome;
}
pd_ticket_id pd_core_welcome_ticket(const pd_core *core)
{
    return core->welcome_ticket;
}
uint64_t pd_core_step(const pd_core *core, size_t param)
{
    return param < core->n_params ? core->params[param].step : 0;
}
uint64_t pd_core_durable(const pd_core *core)
{
    return core->durable;
}
const char *pd_core_note(const pd_core *core, size_t param)
{
    return param < core->n_params && core->params[param].note != NULL ? core->params[param].note : "";
}

bool pd_core_must_init(const pd_core *core)
{
    return core->must_init;
}
pd_client_stats pd_core_stats(const pd_core *core)
{
    pd_client_stats stats = core->stats;

    stats.shared_out = core->out.shared_bytes;
    return stats;
}
const pd_error *pd_core_ended(const pd_core *core)
{
    return core->ended.code != PD_OK ? &core->ended : NULL;
}
bool pd_core_lost(const pd_core *core)
{
    return core->lost;
}
bool pd_core_gone_back(const pd_core *core)
{
    return core->gone_back;
}
bool pd_core_refused(const pd_core *core)
{
    return core->refused;
}
bool pd_core_held(const pd_core *core)
{
    return core->refused && core->held_ns != 0;
}
bool pd_core_running(const pd_core *core)
{
    return core->welcomed;
}
const char *pd_core_reason(const pd_core *core)
{
    return core->reason;
}
