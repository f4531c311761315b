/* intruder.c - peers without the client library. Each sends a prepared list of bytes. Some of them read the answers. */
#include "intruder.h"

#include "message.h"
#include "server.h"
#include "worker.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { SEND_MOST = 512 * 1024, PULLS = 400 };

typedef struct sim_intruder {
    sim *s;
    const sim_fault *fault;
    pd_transport *transport; /* NULL: the peer has disconnected */
    uint8_t *out;
    size_t n_out, room, sent; /* bytes to send */
    size_t stop_at;           /* number of bytes after which the peer falls silent; SIZE_MAX: it sends all */
    bool reads, waits;        /* waits: the peer stays until it is answered or disconnected */
    bool stays;               /* the peer sends heartbeats until all intruders leave */
    uint64_t last_id, begun_ns, received;
    struct sim_intruder *next;
} sim_intruder;

static void add_bytes(sim_intruder *i, const void *at, size_t n)
{
    if (i->n_out + n > i->room) {
        i->room = 2 * (i->n_out + n);
        i->out = sim_must(realloc(i->out, i->room));
    }
    memcpy(i->out + i->n_out, at, n);
    i->n_out += n;
}

static void add_frame(sim_intruder *i, unsigned method, uint64_t id, const ProtobufCMessage *message, size_t payload)
{
    static const uint8_t zeros[4096];
    struct iovec span = { (void *)zeros, payload };
    uint8_t *at;
    size_t bytes;

    if (pd_frame_pack(&at, &bytes, method, 0, id, message, &span, payload > 0, payload) != PD_OK)
        sim_fail("harness", "a frame cannot be packed");
    add_bytes(i, at, bytes);
    free(at);
    if (payload > 0) add_bytes(i, zeros, payload);
}

static void add_hello(sim_intruder *i, const char *job)
{
    Paramd__HelloRequest hello = PARAMD__HELLO_REQUEST__INIT;
    Paramd__Option linger = PARAMD__OPTION__INIT, *options[] = { &linger };

    linger.name = "job_linger";
    linger.value = "1";
    hello.options = options;
    hello.n_options = job[0] != '\0';
    hello.protocol = 1;
    hello.job = (char *)job;
    hello.world_size = 1;
    hello.nonce = sim_mix(i->s->plan->seed, i->begun_ns, 1, 2);
    add_frame(i, PD_HELLO, ++i->last_id, &hello.base, 0);
}

static void add_plain(sim_intruder *i, unsigned method, uint64_t id)
{
    Paramd__Empty empty = PARAMD__EMPTY__INIT;

    add_frame(i, method, id, &empty.base, 0);
}

/* Adds the frames with which a worker creates a job of its own. The job has one parameter of `chunks` chunks, with
 * initial weights. */
static void add_job(sim_intruder *i, const char *kind, uint64_t chunks)
{
    static char name[24], param[] = "w";
    uint64_t chunk = i->s->plan->chunk, dim = chunks * chunk;
    Paramd__Parameter parameter = PARAMD__PARAMETER__INIT, *list[] = { &parameter };
    Paramd__DeclareRequest declare = PARAMD__DECLARE_REQUEST__INIT;
    Paramd__Piece piece = PARAMD__PIECE__INIT, *pieces[] = { &piece };
    Paramd__InitRequest init = PARAMD__INIT_REQUEST__INIT;

    snprintf(name, sizeof name, "%s%llu", kind, (unsigned long long)(i->begun_ns % 1000003));
    add_hello(i, name);
    parameter.name = param;
    parameter.shape = &dim;
    parameter.n_shape = 1;
    declare.parameters = list;
    declare.n_parameters = 1;
    declare.last = true;
    add_frame(i, PD_DECLARE, ++i->last_id, &declare.base, 0);
    piece.dtype = PD_F32;
    piece.count = chunk;
    init.pieces = pieces;
    init.n_pieces = 1;
    for (piece.first = 0; piece.first < dim; piece.first += chunk)
        add_frame(i, PD_INIT, ++i->last_id, &init.base, chunk * sizeof(float));
}

static void add_push(sim_intruder *i, uint64_t first, double weight)
{
    Paramd__Piece piece = PARAMD__PIECE__INIT, *pieces[] = { &piece };
    Paramd__PushRequest push = PARAMD__PUSH_REQUEST__INIT;

    piece.dtype = PD_F32;
    piece.first = first;
    piece.count = i->s->plan->chunk;
    push.pieces = pieces;
    push.n_pieces = 1;
    push.step = 1;
    push.weight = weight;
    add_frame(i, PD_PUSH, ++i->last_id, &push.base, piece.count * sizeof(float));
}

static void add_pulls(sim_intruder *i)
{
    Paramd__Want want = PARAMD__WANT__INIT, *wants[] = { &want };
    Paramd__PullRequest pull = PARAMD__PULL_REQUEST__INIT;

    want.count = i->s->plan->chunk;
    pull.wants = wants;
    pull.n_wants = 1;
    for (int k = 0; k < PULLS; k++) add_frame(i, PD_PULL, ++i->last_id, &pull.base, 0);
}

static void add_questions(sim_intruder *i, uint64_t n)
{
    Paramd__ListRequest list = PARAMD__LIST_REQUEST__INIT;

    add_hello(i, "");
    list.job = (char *)i->s->plan->jobs[i->fault->job].name;
    for (uint64_t k = 0; k < n; k++) {
        list.what = 1 + (uint32_t)sim_draw(i->s, 6);
        if (sim_chance(i->s, 2))
            add_plain(i, PD_STATUS, ++i->last_id);
        else
            add_frame(i, PD_LIST, ++i->last_id, &list.base, 0);
    }
}

/* Adds the frames of an import that is never ended. It begins, and sends a piece of a slot that may not exist. */
static void add_import(sim_intruder *i)
{
    Paramd__ImportRequest import = PARAMD__IMPORT_REQUEST__INIT;
    const sim_job *job = &i->s->plan->jobs[i->fault->job];
    uint64_t dim = job->params[0].n < 8 ? (uint64_t)job->params[0].n : 8;

    add_hello(i, "");
    import.act = 1;
    import.job = (char *)job->name;
    add_frame(i, PD_IMPORT, ++i->last_id, &import.base, 0);
    import.act = 2;
    import.param = (char *)job->params[0].name;
    import.slot = sim_chance(i->s, 2) ? "momentum_buffer" : "no_such_slot";
    import.number = import.block = -1;
    import.shape = &dim;
    import.n_shape = 1;
    import.count = dim;
    add_frame(i, PD_IMPORT, ++i->last_id, &import.base, dim * sizeof(float));
}

static void add_set(sim_intruder *i)
{
    Paramd__Option option = PARAMD__OPTION__INIT, *options[] = { &option };
    Paramd__SetRequest set = PARAMD__SET_REQUEST__INIT;

    add_hello(i, "");
    option.name = "weight_decay";
    option.value = i->s->plan->jobs[i->fault->job].ready ? "0.25" : "0";
    set.job = (char *)i->s->plan->jobs[i->fault->job].name;
    set.pattern = "*";
    set.options = options;
    set.n_options = 1;
    add_frame(i, PD_SET, ++i->last_id, &set.base, 0);
}

static void add_drop(sim_intruder *i)
{
    Paramd__DropRequest drop = PARAMD__DROP_REQUEST__INIT;

    add_hello(i, "");
    drop.job = (char *)i->s->plan->jobs[i->fault->job].name;
    add_frame(i, PD_DROP, ++i->last_id, &drop.base, 0);
    sim_worker_note_drop(i->s, i->fault->job);
}

static void add_kick(sim_intruder *i)
{
    Paramd__KickRequest kick = PARAMD__KICK_REQUEST__INIT;

    add_hello(i, "");
    kick.job = (char *)i->s->plan->jobs[i->fault->job].name;
    kick.rank = i->fault->rank;
    add_frame(i, PD_KICK, ++i->last_id, &kick.base, 0);
}

/* Adds everything that operators can ask for about one job. */
static void add_all_about(sim_intruder *i, char *job)
{
    Paramd__ListRequest list = PARAMD__LIST_REQUEST__INIT;
    Paramd__DropRequest drop = PARAMD__DROP_REQUEST__INIT;
    Paramd__Option option = PARAMD__OPTION__INIT, *options[] = { &option };
    Paramd__SetRequest set = PARAMD__SET_REQUEST__INIT;
    Paramd__ImportRequest import = PARAMD__IMPORT_REQUEST__INIT;
    Paramd__ExportRequest export = PARAMD__EXPORT_REQUEST__INIT;
    Paramd__CheckpointRequest checkpoint = PARAMD__CHECKPOINT_REQUEST__INIT;
    Paramd__KickRequest kick = PARAMD__KICK_REQUEST__INIT;

    list.job = drop.job = set.job = import.job = export.job = checkpoint.job = kick.job = job;
    list.what = 3;
    set.pattern = "*";
    option.name = "lr";
    option.value = "1000000";
    set.options = options;
    set.n_options = 1;
    import.act = export.act = 1;
    export.state = true;
    add_frame(i, PD_LIST, ++i->last_id, &list.base, 0);
    add_frame(i, PD_SET, ++i->last_id, &set.base, 0);
    add_frame(i, PD_IMPORT, ++i->last_id, &import.base, 0);
    add_frame(i, PD_EXPORT, ++i->last_id, &export.base, 0);
    add_frame(i, PD_CHECKPOINT, ++i->last_id, &checkpoint.base, 0);
    add_frame(i, PD_KICK, ++i->last_id, &kick.base, 0);
    add_frame(i, PD_DROP, ++i->last_id, &drop.base, 0);
}

/* Adds what an identity without a role for the plan's jobs must not get. Were one of these requests run, the workers
 * would find another learning rate, no job, or a server that stops. */
static void add_trespass(sim_intruder *i)
{
    Paramd__DrainRequest drain = PARAMD__DRAIN_REQUEST__INIT;

    add_hello(i, "");
    for (uint32_t j = 0; j < i->s->plan->n_jobs; j++) add_all_about(i, (char *)i->s->plan->jobs[j].name);
    add_frame(i, PD_DRAIN, ++i->last_id, &drain.base, 0);
    add_plain(i, PD_SHUTDOWN, ++i->last_id);
}

/* Adds the Hello of a process of another run that wants a rank of a job of the plan, as which it describes itself. It
 * only joins, so it must never be let in: the worker that has the rank would be superseded. */
static void add_stranger(sim_intruder *i)
{
    const sim_job *job = &i->s->plan->jobs[i->fault->job];
    Paramd__HelloRequest hello = PARAMD__HELLO_REQUEST__INIT;
    Paramd__Option option[SIM_OPTIONS], *options[SIM_OPTIONS];
    char text[SIM_OPTIONS][48], *rules[] = { (char *)job->rule };

    for (uint32_t o = 0; o < job->n_options; o++) {
        paramd__option__init(&option[o]);
        snprintf(text[o], sizeof text[o], "%s", job->options[o]);
        option[o].name = text[o];
        option[o].value = strchr(text[o], '=') + 1;
        option[o].value[-1] = '\0';
        options[o] = &option[o];
    }
    hello.protocol = 1;
    hello.job = (char *)job->name;
    hello.rank = i->fault->rank;
    hello.world_size = job->world;
    hello.nonce = sim_mix(i->s->plan->seed, i->begun_ns, 3, 2);
    hello.run = "stranger";
    hello.resume = i->fault->amount == 0 ? 0 : 2;
    hello.joins = true;
    hello.options = options;
    hello.n_options = job->n_options;
    hello.rules = rules;
    hello.n_rules = 1;
    add_frame(i, PD_HELLO, ++i->last_id, &hello.base, 0);
}

static void add_noise(sim_intruder *i)
{
    uint8_t bytes[300];

    if (sim_chance(i->s, 2)) add_hello(i, "");
    for (size_t k = 0; k < sizeof bytes; k++) bytes[k] = (uint8_t)sim_draw(i->s, 256);
    if (sim_chance(i->s, 2)) memcpy(bytes, "PDF1\1", 5);
    add_bytes(i, bytes, sizeof bytes);
}

/* Adds two pushes for two chunks of one parameter, with different weights of the rank. The server refuses the second
 * push, so the job never takes a step: sim_judge_effect checks that. */
static void add_unlike(sim_intruder *i)
{
    add_job(i, "unlike", 2);
    add_push(i, 0, 1);
    add_push(i, i->s->plan->chunk, 2);
}

static void add_id_zero(sim_intruder *i)
{
    static const unsigned methods[] = { PD_BARRIER, PD_LEAVE };

    add_job(i, "own", 1);
    add_plain(i, methods[sim_draw(i->s, 2)], 0);
    i->waits = true;
}

static void say_more(sim_intruder *i)
{
    size_t end = i->stop_at < i->n_out ? i->stop_at : i->n_out;
    struct iovec span = { i->out + i->sent, end - i->sent };
    pd_error err;
    ssize_t n = 1;

    while (i->sent < end && n > 0) {
        n = i->transport->ops->send(i->transport, &span, 1, &err);
        if (n > 0) i->sent += (size_t)n;
        span = (struct iovec){ i->out + i->sent, end - i->sent };
    }
}

static void leave(sim_intruder *i)
{
    if (i->transport != NULL) i->transport->ops->close(i->transport);
    i->transport = NULL;
}

static void on_ready(void *arg, unsigned events)
{
    sim_intruder *i = arg;
    uint8_t bin[4096];
    struct iovec span = { bin, sizeof bin };
    ssize_t n = i->reads ? 1 : 0;
    pd_error err;

    if (i->transport == NULL) return;
    while (n > 0 && (n = i->transport->ops->receive(i->transport, &span, 1, &err)) > 0) i->received += (uint64_t)n;
    if ((events & PD_ON_WRITE) != 0) say_more(i);
    if (n < 0) {
        leave(i);
        return;
    }
    i->transport->ops->watch(i->transport, (i->reads ? PD_ON_READ : 0) |
                                               (i->sent < i->n_out && i->stop_at > i->sent ? PD_ON_WRITE : 0));
}

/* Sends a heartbeat every second until the peer disconnects. */
static void beat(sim *s, void *who, uint64_t what)
{
    sim_intruder *i = who;

    (void)what;
    if (i->transport == NULL) return;
    if (i->sent == i->n_out) add_plain(i, PD_HEARTBEAT, ++i->last_id);
    say_more(i);
    sim_after(s, SIM_S, beat, i, 0);
}

/* Ends the silence of a peer: sends the bytes that follow stop_at. */
static void go_on(sim *s, void *who, uint64_t what)
{
    sim_intruder *i = who;

    (void)s, (void)what;
    i->stop_at = SIZE_MAX;
    if (i->transport != NULL) say_more(i);
}

static void end_fault(sim *s, void *who, uint64_t what)
{
    (void)s, (void)what;
    leave(who);
}

static void prepare(sim_intruder *i)
{
    i->stop_at = SIZE_MAX;
    i->reads = true;
    switch (i->fault->kind) {
    case SIM_DROP: add_drop(i); break;
    case SIM_KICK: add_kick(i); break;
    case SIM_IMPORT:
        add_import(i);
        i->stays = sim_chance(i->s, 2);
        break;
    case SIM_SET: add_set(i); break;
    case SIM_FLOOD: add_questions(i, i->fault->amount); break;
    case SIM_DEAF:
        add_questions(i, i->fault->amount);
        i->reads = false;
        break;
    case SIM_HALF_HELLO:
        add_hello(i, "");
        i->stop_at = 1 + sim_draw(i->s, i->n_out - 1);
        break;
    case SIM_NOISE: add_noise(i); break;
    case SIM_ID_ZERO: add_id_zero(i); break;
    case SIM_UNLIKE: add_unlike(i); break;
    case SIM_TRESPASS: add_trespass(i); break;
    case SIM_STRANGER: add_stranger(i); break;
    case SIM_LEAVER:
        add_job(i, "own", 1);
        add_plain(i, PD_LEAVE, ++i->last_id);
        add_push(i, 0, 1);
        i->stop_at = i->n_out - 1 - sim_draw(i->s, 60);
        break;
    case SIM_PULLER:
        add_job(i, "own", 1);
        add_pulls(i);
        i->reads = false;
        break;
    default: sim_fail("harness", "%s is no intruder", sim_fault_name(i->fault->kind));
    }
}

void sim_intruder_start(sim *s, const sim_fault *fault)
{
    sim_intruder *i = sim_must(calloc(1, sizeof *i));
    uint64_t stays = fault->kind == SIM_DROP || s->calm ? 20 * SIM_S : s->plan->calm_ns - s->now_ns;
    sim_link *link;

    i->s = s;
    i->fault = fault;
    i->begun_ns = s->now_ns;
    i->next = s->intruders;
    s->intruders = i;
    prepare(i);
    s->identity = fault->kind == SIM_TRESPASS ? "trespasser" : NULL;
    i->transport = sim_server_connect(s->server, false, &link);
    s->identity = NULL;
    if (i->transport == NULL) return;
    i->transport->ready = on_ready;
    i->transport->arg = i;
    i->transport->ops->watch(i->transport, PD_ON_WRITE | (i->reads ? PD_ON_READ : 0));
    if (fault->kind == SIM_LEAVER) sim_after(s, sim_draw(s, 30 * SIM_MS), go_on, i, 0);
    if (i->waits || i->stays)
        beat(s, i, 0);
    else
        sim_after(s, fault->kind == SIM_IMPORT ? fault->amount : stays, end_fault, i, 0);
}

static void begin_drop(sim *s, void *who, uint64_t what)
{
    (void)what;
    sim_intruder_start(s, who);
}

void sim_drop_job(sim *s, uint32_t job)
{
    static sim_fault drops[SIM_JOBS];

    drops[job] = (sim_fault){ .kind = SIM_DROP, .job = job };
    sim_after(s, SIM_MS, begin_drop, &drops[job], 0);
}

void sim_intruders_check(sim *s)
{
    for (sim_intruder *i = s->intruders; i != NULL; i = i->next) {
        uint64_t since = i->begun_ns > s->plan->calm_ns ? i->begun_ns : s->plan->calm_ns;
        if (!i->waits || i->transport == NULL || sim_server_draining(s->server)) continue;
        if (s->now_ns > since + 10 * SIM_S) sim_fail("liveness", "a request with id 0 is neither answered nor refused");
    }
}

void sim_intruders_leave(sim *s)
{
    for (sim_intruder *i = s->intruders; i != NULL; i = i->next) leave(i);
}

void sim_intruders_free(sim *s)
{
    while (s->intruders != NULL) {
        sim_intruder *i = s->intruders;
        s->intruders = i->next;
        leave(i);
        free(i->out);
        free(i);
    }
}
