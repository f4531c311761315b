/* shard_servers.c - small servers that are the shards of a cluster for one worker. */
#include "shard_servers.h"

#include <arpa/inet.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "pieces.h"

enum { CLUSTER = 4711, LIFE = 12, FIRST_TENURE = 10 };

/* A request, and the memory for its message. */
typedef struct shard_request {
    pd_prefix prefix;
    uint8_t *payload;
    void *message;
    pd_arena *arena;
} shard_request;

static bool read_all(const shard_server *s, int fd, void *at, size_t n)
{
    for (size_t got = 0; got < n;) {
        struct pollfd wait = { .fd = fd, .events = POLLIN };
        ssize_t part;
        if (atomic_load(&s->all->stop) || atomic_load(&s->down)) return false;
        if (poll(&wait, 1, 20) <= 0) continue;
        if ((part = recv(fd, (uint8_t *)at + got, n - got, 0)) <= 0) return false;
        got += (size_t)part;
    }
    return true;
}

static void send_all(int fd, const void *at, size_t n)
{
    for (size_t sent = 0; sent < n;) {
        ssize_t part = send(fd, (const uint8_t *)at + sent, n - sent, MSG_NOSIGNAL);
        if (part <= 0) return;
        sent += (size_t)part;
    }
}

static void answer(int fd, const shard_request *to, const ProtobufCMessage *message, const void *payload, size_t n)
{
    const struct iovec span = { (void *)payload, n };
    uint8_t *frame;
    size_t bytes;

    if (pd_frame_pack(&frame, &bytes, to->prefix.method, PD_FLAG_REPLY, to->prefix.request, message, &span, n > 0, n) !=
        PD_OK)
        abort();
    send_all(fd, frame, bytes);
    if (n > 0) send_all(fd, payload, n);
    free(frame);
}

static void refuse(int fd, const shard_request *to, int code, const char *text)
{
    uint8_t *frame;
    size_t bytes;

    if (pd_frame_pack_error(&frame, &bytes, to->prefix.method, 0, to->prefix.request, code, text, 0) != PD_OK) abort();
    send_all(fd, frame, bytes);
    free(frame);
}

static void greet(shard_server *s, int fd, const shard_request *request)
{
    const Paramd__HelloRequest *asked = request->message;
    Paramd__HelloReply hello = PARAMD__HELLO_REPLY__INIT;

    if (asked->tenure > 0 &&
        (asked->tenure > (uint64_t)atomic_load(&s->tenure) || (asked->shards > 1 && asked->shard != s->number))) {
        refuse(fd, request, PD_UNAVAILABLE, "another one has this shard");
        return;
    }
    s->shards = asked->shards;
    s->cluster = asked->cluster;
    hello.protocol = PD_PROTOCOL_VERSION;
    hello.chunk_elements = SHARD_CHUNK;
    hello.max_payload = 1 << 20;
    hello.max_pieces = 64;
    hello.heartbeat_ms = 100;
    hello.timeout_ms = 60000;
    hello.server = (char *)"paramd test";
    hello.blas_core = (char *)s->kernels;
    hello.seed = s->seed;
    hello.cluster = CLUSTER;
    hello.creator = LIFE + s->number;
    hello.tenure = (uint64_t)atomic_load(&s->tenure);
    hello.shards_known = hello.tenure > 0 ? (uint32_t)s->all->n : 0;
    if (hello.shards_known > 1 && asked->follows && asked->shards <= 1) hello.creator = hello.cluster = 0;
    hello.life = s->life;
    answer(fd, request, &hello.base, NULL, 0);
}

/* Returns the handle of a parameter's first portion. */
static size_t first_handle(const shard_servers *all, size_t param)
{
    size_t handle = all->n_params;

    for (size_t i = 0; i < param; i++) handle += all->places[i].n_portions;
    return handle;
}

/* Returns a handle of the parameter that the server has, or the parameter's own. */
static size_t own_handle(const shard_server *s, size_t param)
{
    const shard_place *place = &s->all->places[param];

    for (size_t k = 0; k < place->n_portions; k++)
        if (place->portions[k].shard == s->number) return first_handle(s->all, param) + k;
    return param;
}

static void declare(shard_server *s, int fd, const shard_request *request)
{
    Paramd__DeclareReply reply = PARAMD__DECLARE_REPLY__INIT;
    Paramd__Declared one[SHARD_PARAMS], *list[SHARD_PARAMS];
    Paramd__Portion portion[SHARD_PARAMS][SHARD_PORTIONS], *portions[SHARD_PARAMS][SHARD_PORTIONS];
    const shard_servers *all = s->all;

    for (size_t i = 0; i < all->n_params; i++) {
        paramd__declared__init(list[i] = &one[i]);
        one[i].shard = all->places[i].shard;
        one[i].initialised = atomic_load(&s->initialised);
        one[i].step = s->step[own_handle(s, i)];
        one[i].n_portions = all->places[i].n_portions;
        one[i].portions = portions[i];
        for (size_t k = 0; k < one[i].n_portions; k++) {
            paramd__portion__init(portions[i][k] = &portion[i][k]);
            portion[i][k].first = all->places[i].portions[k].first;
            portion[i][k].count = all->places[i].portions[k].count;
            portion[i][k].shard = all->places[i].portions[k].shard;
        }
    }
    one[s->number % all->n_params].note = (char *)(s->number == 1 ? "note of shard 1" : "");
    reply.parameters = list;
    reply.n_parameters = all->n_params;
    reply.map = s->map;
    reply.settles = s->settles;
    reply.must_init = reply.sends_whole = !atomic_load(&s->initialised);
    answer(fd, request, &reply.base, NULL, 0);
}

/* Sends the outcomes of pieces, and the weights of those that are pulled. */
static void reply_data(shard_server *s, int fd, const shard_request *request, Paramd__Piece *const *pieces, size_t n)
{
    static _Thread_local uint8_t payload[1 << 20];
    bool pulls = request->prefix.method != PD_PUSH;
    Paramd__DataReply reply = PARAMD__DATA_REPLY__INIT;
    Paramd__Outcome outcome[SHARD_HANDLES * 8], *list[SHARD_HANDLES * 8];
    size_t bytes = 0;

    for (size_t i = 0; i < n; i++) {
        const Paramd__Piece *piece = pieces[i];
        paramd__outcome__init(list[i] = &outcome[i]);
        outcome[i].outcome = request->prefix.method == PD_PULL ? 0 : piece->absent ? 3 : 1;
        outcome[i].step = outcome[i].version = s->step[piece->handle];
        if (!pulls || piece->absent || piece->count == 0) continue;
        bytes = (size_t)pd_piece_end(bytes, 0);
        memcpy(payload + bytes, &s->weights[piece->handle][piece->first], piece->count * sizeof(float));
        bytes += piece->count * sizeof(float);
    }
    reply.outcomes = list;
    reply.n_outcomes = n;
    reply.durable_step = s->durable > 0 ? s->durable : s->number + 3;
    answer(fd, request, &reply.base, payload, bytes);
}

static void push(shard_server *s, int fd, const shard_request *request)
{
    const Paramd__PushRequest *asked = request->message;

    atomic_fetch_add(&s->scalars, (int)asked->n_scalars);
    s->replaces = asked->replaces;
    for (size_t i = 0; i < asked->n_pieces; i++) {
        const Paramd__Piece *piece = asked->pieces[i];
        for (uint64_t k = 0; k < piece->count; k++) {
            float g;
            memcpy(&g, request->payload + piece->offset + k * sizeof g, sizeof g);
            s->weights[piece->handle][piece->first + k] -= g;
        }
        s->step[piece->handle] = asked->step;
    }
    for (size_t i = 0; asked->last && i < SHARD_HANDLES; i++) s->step[i] = asked->step;
    reply_data(s, fd, request, asked->pieces, asked->n_pieces);
}

static void pull(shard_server *s, int fd, const shard_request *request)
{
    const Paramd__PullRequest *asked = request->message;
    Paramd__Piece piece[SHARD_HANDLES * 8], *list[SHARD_HANDLES * 8];

    for (size_t i = 0; i < asked->n_wants; i++) {
        paramd__piece__init(list[i] = &piece[i]);
        piece[i].handle = asked->wants[i]->handle;
        piece[i].first = asked->wants[i]->first;
        piece[i].count = asked->wants[i]->count;
    }
    reply_data(s, fd, request, list, asked->n_wants);
}

static void take_weights(shard_server *s, int fd, const shard_request *request)
{
    const Paramd__InitRequest *asked = request->message;
    Paramd__Ok ok = PARAMD__OK__INIT;

    for (size_t i = 0; i < asked->n_pieces; i++)
        memcpy(&s->weights[asked->pieces[i]->handle][asked->pieces[i]->first],
               request->payload + asked->pieces[i]->offset, asked->pieces[i]->count * sizeof(float));
    atomic_store(&s->initialised, true);
    answer(fd, request, &ok.base, NULL, 0);
}

/* Fills in one entry of the table, as this server knows it. */
static void tell_shard(const shard_server *s, size_t i, Paramd__ShardInfo *out, char url[32])
{
    bool behind = atomic_load(&s->behind);
    int owner = behind ? (int)i : atomic_load(&s->all->owner[i]);

    paramd__shard_info__init(out);
    snprintf(url, 32, "127.0.0.1:%d", s->all->at[owner].port);
    out->shard = (uint32_t)i;
    out->url = url;
    out->tenure = behind ? FIRST_TENURE + i : (uint64_t)atomic_load(&s->all->tenure[i]);
}

static void tell_shards(const shard_server *s, int fd, const shard_request *request)
{
    Paramd__ShardsReply reply = PARAMD__SHARDS_REPLY__INIT;
    Paramd__ShardInfo one[SHARDS_MOST], *list[SHARDS_MOST];
    Paramd__SpareInfo spare[SHARDS_MOST], *spares[SHARDS_MOST];
    char urls[SHARDS_MOST][32], spare_urls[SHARDS_MOST][32];

    for (size_t i = 0; i < s->all->n; i++) tell_shard(s, i, list[i] = &one[i], urls[i]);
    for (size_t i = 0; i < s->all->spares; i++) {
        paramd__spare_info__init(spares[i] = &spare[i]);
        snprintf(spare_urls[i], sizeof spare_urls[i], "127.0.0.1:%d", s->all->at[s->all->n + i].port);
        spare[i].url = spare_urls[i];
    }
    reply.n_shards = s->all->n;
    reply.shards = list;
    reply.n_spares = s->all->spares;
    reply.spares = spares;
    answer(fd, request, &reply.base, NULL, 0);
}

/* Tells the worker that the table has changed, if that is news. */
static void tell_moved(shard_server *s, int fd)
{
    const shard_request nobody = { .prefix = { .method = PD_HEARTBEAT } };
    Paramd__Ok ok = PARAMD__OK__INIT;
    int version = atomic_load(&s->all->version);

    if (version == atomic_load(&s->told) || atomic_load(&s->behind)) return;
    atomic_store(&s->told, version);
    ok.moved = (uint64_t)version;
    answer(fd, &nobody, &ok.base, NULL, 0);
}

static void carry_out(shard_server *s, int fd, const shard_request *request)
{
    Paramd__Ok ok = PARAMD__OK__INIT;
    Paramd__RecallReply recall = PARAMD__RECALL_REPLY__INIT;
    Paramd__CheckpointReply checkpoint = PARAMD__CHECKPOINT_REPLY__INIT;

    switch (request->prefix.method) {
    case PD_HELLO: greet(s, fd, request); break;
    case PD_DECLARE: declare(s, fd, request); break;
    case PD_SHARDS: tell_shards(s, fd, request); break;
    case PD_INIT: take_weights(s, fd, request); break;
    case PD_PUSH:
    case PD_PUSH_PULL: push(s, fd, request); break;
    case PD_PULL: pull(s, fd, request); break;
    case PD_NOTE:
        s->note_step = ((const Paramd__NoteRequest *)request->message)->step;
        answer(fd, request, &ok.base, NULL, 0);
        break;
    case PD_RECALL:
        recall.step = s->note_step;
        answer(fd, request, &recall.base, NULL, 0);
        break;
    case PD_CHECKPOINT:
        checkpoint.step = ((const Paramd__CheckpointRequest *)request->message)->step;
        if (checkpoint.step < s->ahead) checkpoint.step = s->ahead;
        checkpoint.unbroken = checkpoint.step;
        if (atomic_load(&s->most) > 0 && checkpoint.step > atomic_load(&s->most)) break;
        answer(fd, request, &checkpoint.base, NULL, 0);
        break;
    default: answer(fd, request, &ok.base, NULL, 0); break;
    }
}

static void serve_one(shard_server *s, int fd, const shard_request *request)
{
    unsigned method = request->prefix.method;

    usleep((useconds_t)atomic_load(&s->late_ms) * 1000);
    atomic_fetch_add(&s->came[method], 1);
    tell_moved(s, fd);
    if (atomic_load(&s->ignores) == method) return;
    if (atomic_load(&s->refuses) == method && atomic_fetch_sub(&s->refusals, 1) > 0)
        refuse(fd, request, atomic_load(&s->code), "refused by the test");
    else
        carry_out(s, fd, request);
}

static bool read_request(const shard_server *s, int fd, shard_request *request)
{
    uint8_t prefix[PD_PREFIX_BYTES], *header;
    pd_error err;
    bool read;

    if (!read_all(s, fd, prefix, sizeof prefix)) return false;
    if (pd_prefix_read(&request->prefix, prefix, 1 << 24, &err) != PD_OK) abort();
    header = malloc(request->prefix.header_bytes + 1);
    request->payload = malloc(request->prefix.payload_bytes + 1);
    read = read_all(s, fd, header, request->prefix.header_bytes) &&
           read_all(s, fd, request->payload, request->prefix.payload_bytes);
    pd_arena_reset(request->arena);
    if (read && pd_request_unpack(request->arena, request->prefix.method, header, request->prefix.header_bytes,
                                  &request->message, &err) != PD_OK)
        abort();
    free(header);
    return read;
}

static void serve(shard_server *s, int fd)
{
    shard_request request = { .arena = pd_arena_new(PD_ARENA_BUDGET) };
    bool goes_on = true;

    atomic_store(&s->serves, true);
    while (goes_on) {
        request.payload = NULL;
        goes_on = read_request(s, fd, &request);
        if (goes_on) serve_one(s, fd, &request);
        free(request.payload);
    }
    pd_arena_free(request.arena);
    close(fd);
    atomic_store(&s->serves, false);
}

static void *run(void *arg)
{
    shard_server *s = arg;

    while (!atomic_load(&s->all->stop)) {
        struct pollfd wait = { .fd = s->listener, .events = POLLIN };
        int fd = poll(&wait, 1, 20) > 0 ? accept(s->listener, NULL, NULL) : -1;
        if (fd >= 0 && atomic_load(&s->down))
            close(fd);
        else if (fd >= 0)
            serve(s, fd);
    }
    return NULL;
}

static void listen_on(shard_server *s)
{
    struct sockaddr_in address = { .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
    socklen_t size = sizeof address;

    s->listener = socket(AF_INET, SOCK_STREAM, 0);
    if (s->listener < 0 || bind(s->listener, (struct sockaddr *)&address, size) != 0 || listen(s->listener, 8) != 0 ||
        getsockname(s->listener, (struct sockaddr *)&address, &size) != 0)
        abort();
    s->port = ntohs(address.sin_port);
}

static shard_servers *start(size_t n, size_t spares, const shard_place *places, size_t n_params)
{
    shard_servers *all = calloc(1, sizeof *all);
    char *at = all->urls;

    all->n = n;
    all->n_params = n_params;
    all->spares = spares;
    memcpy(all->places, places, n_params * sizeof *places);
    for (size_t i = 0; i < n + spares; i++) {
        shard_server *s = &all->at[i];
        s->all = all;
        s->number = (uint32_t)i;
        s->seed = 5;
        s->life = LIFE;
        s->map = 99;
        s->kernels = "core";
        atomic_store(&s->refuses, PD_METHODS);
        atomic_store(&s->ignores, PD_METHODS);
        listen_on(s);
        if (i < n) at += sprintf(at, "%s127.0.0.1:%d", i > 0 ? " " : "", s->port);
    }
    return all;
}

static void run_all(shard_servers *all)
{
    for (size_t i = 0; i < all->n + all->spares; i++) pthread_create(&all->at[i].thread, NULL, run, &all->at[i]);
}

shard_servers *shard_servers_start(size_t n, const shard_place *places, size_t n_params)
{
    shard_servers *all = start(n, 0, places, n_params);

    run_all(all);
    return all;
}

shard_servers *shard_servers_start_followed(size_t n, size_t spares, const shard_place *places, size_t n_params)
{
    shard_servers *all = start(n, spares, places, n_params);

    for (size_t i = 0; i < n; i++) {
        atomic_store(&all->owner[i], (int)i);
        atomic_store(&all->tenure[i], FIRST_TENURE + (int)i);
        atomic_store(&all->at[i].tenure, FIRST_TENURE + (int)i);
    }
    for (size_t i = n; i < n + spares; i++) atomic_store(&all->at[i].down, true);
    run_all(all);
    return all;
}

void shard_servers_move(shard_servers *all, uint32_t shard, size_t to, bool notice)
{
    static atomic_int tenures = 100;
    const shard_server *from = &all->at[atomic_load(&all->owner[shard])];
    shard_server *s = &all->at[to];

    s->number = shard;
    memcpy(s->weights, from->weights, sizeof s->weights);
    memcpy(s->step, from->step, sizeof s->step);
    atomic_store(&s->initialised, atomic_load(&from->initialised));
    s->note_step = from->note_step;
    atomic_store(&s->tenure, atomic_fetch_add(&tenures, 1));
    atomic_store(&s->down, false);
    atomic_store(&all->owner[shard], (int)to);
    atomic_store(&all->tenure[shard], atomic_load(&s->tenure));
    if (notice) atomic_fetch_add(&all->version, 1);
}

void shard_servers_end(shard_servers *all)
{
    atomic_store(&all->stop, true);
    for (size_t i = 0; i < all->n + all->spares; i++) {
        pthread_join(all->at[i].thread, NULL);
        close(all->at[i].listener);
    }
    free(all);
}
