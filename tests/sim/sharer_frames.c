/* sharer_frames.c - the requests of a worker without the client library that shares memory: those of any worker, and
 * those that the server must refuse. */
#define _GNU_SOURCE /* memfd_create, F_ADD_SEALS */
#include "sharer_state.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#ifndef MFD_HUGETLB
#define MFD_HUGETLB 0x0004U
#endif

uint64_t sim_sharer_draw(sim_sharer *h, uint64_t n)
{
    return sim_below(&h->random, n);
}

uint64_t sim_sharer_chunk_bytes(const sim_sharer *h)
{
    return h->s->plan->chunk * sizeof(float);
}

void sim_sharer_say_more(sim_sharer *h)
{
    struct iovec span = { h->out + h->sent, h->n_out - h->sent };
    pd_error err;
    ssize_t n = 1;

    while (h->sent < h->n_out && n > 0) {
        n = h->transport->ops->send(h->transport, &span, 1, &err);
        if (n > 0) h->sent += (size_t)n;
        span = (struct iovec){ h->out + h->sent, h->n_out - h->sent };
    }
    h->transport->ops->watch(h->transport, PD_ON_READ | (h->sent < h->n_out ? PD_ON_WRITE : 0));
}

static void add_bytes(sim_sharer *h, const void *at, size_t n)
{
    if (h->sent > 0) memmove(h->out, h->out + h->sent, h->n_out - h->sent);
    h->n_out -= h->sent;
    h->sent = 0;
    h->out = sim_must(realloc(h->out, h->n_out + n));
    memcpy(h->out + h->n_out, at, n);
    h->n_out += n;
}

/* Adds a request with a payload of `bytes` bytes: at `payload`, or if that is NULL at this place in shared memory. */
void sim_sharer_add(sim_sharer *h, unsigned method, const ProtobufCMessage *message, const void *payload,
                    uint64_t bytes, uint32_t place)
{
    bool shared = payload == NULL && bytes > 0;
    uint8_t *at;
    size_t n;

    if (pd_frame_pack(&at, &n, method, 0, ++h->last_id, message, NULL, 0, bytes) != PD_OK)
        sim_fail("harness", "a frame cannot be packed");
    if (shared) pd_prefix_share(at, true, place);
    add_bytes(h, at, n);
    if (!shared && bytes > 0) add_bytes(h, payload, bytes);
    free(at);
}

void sim_sharer_say(sim_sharer *h, int expected)
{
    h->expected = expected;
    h->asked_ns = h->s->now_ns;
    if (h->to_send >= 0 && h->local)
        h->transport->ops->attach(h->transport, h->to_send);
    else if (h->to_send >= 0)
        close(h->to_send);
    h->to_send = -1;
    sim_sharer_say_more(h);
}

void sim_sharer_hello(sim_sharer *h)
{
    static char name[24], linger[] = "job_linger", second[] = "1", rule[] = "* sgd lr=1", label[] = "sharer";
    Paramd__HelloRequest hello = PARAMD__HELLO_REQUEST__INIT;
    Paramd__Option option = PARAMD__OPTION__INIT, *options[] = { &option };
    char *rules[] = { rule };

    snprintf(name, sizeof name, "share%llu", (unsigned long long)(h->random % 1000003));
    option.name = linger;
    option.value = second;
    hello.options = options;
    hello.n_options = 1;
    hello.rules = rules;
    hello.n_rules = 1;
    hello.protocol = 1;
    hello.job = name;
    hello.label = label;
    hello.world_size = 1;
    hello.nonce = h->random | 1;
    hello.shares = true;
    sim_sharer_add(h, PD_HELLO, &hello.base, NULL, 0, 0);
    sim_sharer_say(h, PD_OK);
}

void sim_sharer_declare(sim_sharer *h)
{
    static char param[] = "w";
    uint64_t dim = h->chunks * h->s->plan->chunk;
    Paramd__Parameter parameter = PARAMD__PARAMETER__INIT, *list[] = { &parameter };
    Paramd__DeclareRequest declare = PARAMD__DECLARE_REQUEST__INIT;

    parameter.name = param;
    parameter.shape = &dim;
    parameter.n_shape = 1;
    declare.parameters = list;
    declare.n_parameters = 1;
    declare.last = true;
    sim_sharer_add(h, PD_DECLARE, &declare.base, NULL, 0, 0);
    sim_sharer_say(h, PD_OK);
}

void sim_sharer_init(sim_sharer *h)
{
    static const float zeros[LARGEST_CHUNK];
    Paramd__Piece piece = PARAMD__PIECE__INIT, *pieces[] = { &piece };
    Paramd__InitRequest init = PARAMD__INIT_REQUEST__INIT;

    piece.dtype = PD_F32;
    piece.count = h->s->plan->chunk;
    piece.first = h->left * piece.count;
    init.pieces = pieces;
    init.n_pieces = 1;
    sim_sharer_add(h, PD_INIT, &init.base, zeros, sim_sharer_chunk_bytes(h), 0);
    sim_sharer_say(h, PD_OK);
}

/* Adds a push of one chunk, which also pulls its new weights. */
void sim_sharer_add_push(sim_sharer *h, uint64_t chunk, const void *payload, uint32_t place)
{
    Paramd__Piece piece = PARAMD__PIECE__INIT, *pieces[] = { &piece };
    Paramd__PushRequest push = PARAMD__PUSH_REQUEST__INIT;

    piece.dtype = PD_F32;
    piece.count = h->s->plan->chunk;
    piece.first = chunk * piece.count;
    push.pieces = pieces;
    push.n_pieces = 1;
    push.step = h->step > 0 ? h->step : 1;
    push.weight = 1;
    sim_sharer_add(h, PD_PUSH_PULL, &push.base, payload, sim_sharer_chunk_bytes(h), place);
}

void sim_sharer_share(sim_sharer *h, int fd, uint64_t bytes, int expected)
{
    Paramd__ShareRequest share = PARAMD__SHARE_REQUEST__INIT;

    share.bytes = bytes;
    sim_sharer_add(h, PD_SHARE, &share.base, NULL, 0, 0);
    h->to_send = fd;
    sim_sharer_say(h, h->local && h->s->plan->server_shares ? expected : PD_FAILED_PRECONDITION);
}

void sim_sharer_release(sim_sharer *h, uint64_t answers, int expected)
{
    Paramd__ReleaseRequest release = PARAMD__RELEASE_REQUEST__INIT;

    release.answers = answers;
    sim_sharer_add(h, PD_RELEASE, &release.base, NULL, 0, 0);
    sim_sharer_say(h, expected);
}

int sim_sharer_memfd(unsigned flags, uint64_t bytes, int seals)
{
    int fd = memfd_create("sharer", MFD_CLOEXEC | MFD_ALLOW_SEALING | flags);

    if (fd >= 0 && (ftruncate(fd, (off_t)bytes) != 0 || (seals != 0 && fcntl(fd, F_ADD_SEALS, seals) != 0)))
        sim_fail("harness", "a memfd cannot be made");
    return fd;
}

/* Returns a memfd with all pages and these seals. */
static int full_memfd(uint64_t bytes, int seals)
{
    int fd = sim_sharer_memfd(0, bytes, seals);

    if (fallocate(fd, 0, 0, (off_t)bytes) != 0) sim_fail("harness", "a memfd cannot be filled");
    return fd;
}

static int pipe_end(void)
{
    int ends[2];

    if (pipe(ends) != 0) sim_fail("harness", "a pipe cannot be made");
    close(ends[1]);
    return ends[0];
}

/* Sends a Share that the server must refuse, or a request that needs one. */
void sim_sharer_be_bad_first(sim_sharer *h)
{
    uint64_t bytes = h->own_bytes;

    switch (sim_sharer_draw(h, 11)) {
    case 0: sim_sharer_share(h, -1, bytes, PD_INVALID_ARGUMENT); break;
    case 1: sim_sharer_share(h, pipe_end(), bytes, PD_INVALID_ARGUMENT); break;
    case 2: sim_sharer_share(h, full_memfd(bytes, 0), bytes, PD_INVALID_ARGUMENT); break;
    case 3: sim_sharer_share(h, full_memfd(bytes, SEALS & ~F_SEAL_SHRINK), bytes, PD_INVALID_ARGUMENT); break;
    case 4: sim_sharer_share(h, sim_sharer_memfd(0, bytes - 1, SEALS), bytes, PD_INVALID_ARGUMENT); break;
    case 5:
        sim_sharer_share(h, sim_sharer_memfd(MFD_HUGETLB, 2 << 20, SEALS), bytes, PD_INVALID_ARGUMENT);
        break; /* none: without one */
    case 6: sim_sharer_share(h, sim_sharer_memfd(0, 64 << 20, SEALS), 64 << 20, PD_RESOURCE_EXHAUSTED); break;
    case 7: sim_sharer_share(h, sim_sharer_memfd(0, bytes, SEALS), bytes, PD_INVALID_ARGUMENT); break; /* no pages */
    case 8: sim_sharer_share(h, full_memfd(bytes, SEALS & ~F_SEAL_FUTURE_WRITE), bytes, PD_INVALID_ARGUMENT); break;
    case 9:
        sim_sharer_add_push(h, 0, NULL, 0);
        sim_sharer_say(h, PD_FAILED_PRECONDITION);
        break;
    default: sim_sharer_release(h, 1, PD_OUT_OF_RANGE); break;
    }
}

/* Sends a request that the server must refuse after Share. */
void sim_sharer_be_bad_then(sim_sharer *h)
{
    uint64_t end = h->own_bytes / PD_PAYLOAD_ALIGN,
             need = (sim_sharer_chunk_bytes(h) + PD_PAYLOAD_ALIGN - 1) / PD_PAYLOAD_ALIGN;

    switch (sim_sharer_draw(h, 6)) {
    case 0: sim_sharer_share(h, sim_sharer_memfd(0, h->own_bytes, SEALS), h->own_bytes, PD_FAILED_PRECONDITION); return;
    case 1: sim_sharer_share(h, -1, 1, PD_FAILED_PRECONDITION); return;
    case 2: sim_sharer_add_push(h, 0, NULL, (uint32_t)end); break;
    case 3: sim_sharer_add_push(h, 0, NULL, (uint32_t)(end - need + 1)); break;
    case 4: sim_sharer_add_push(h, 0, NULL, UINT32_MAX); break;
    default: sim_sharer_release(h, h->n_lent + 1 + sim_sharer_draw(h, 2) * (UINT64_MAX / 2), PD_OUT_OF_RANGE); return;
    }
    sim_sharer_say(h, PD_OUT_OF_RANGE);
}
