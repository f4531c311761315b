/* local_attacks.c - a local worker's attempts to make the daemon hold memory that no quota counts: pages of its own
 * segment that the daemon creates, pages of the daemon's segment that outlive their job, and versions of weights that
 * unread answers hold. */
#include "local_attacks.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/un.h>

#include "transport.h"
#include "figure.h"
#include "message.h"
#include "wire.h"

enum {
    PARAMS = 2,
    CHUNK = ATTACK_WEIGHTS / PARAMS,
    ELEMENTS = CHUNK / 4,
    ROUNDS = 24,                  /* segments, or jobs, of one attack */
    SEGMENT = 3 * ATTACK_WEIGHTS, /* the largest that the daemon maps, less a little */
    SIZE_SEALS = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL
};

/* A worker of a job. */
typedef struct worker {
    int fd;
    int taken; /* the descriptor of the daemon's segment; -1: none came */
    uint64_t id, step;
} worker;

static int connect_to(const char *local)
{
    struct sockaddr_un address = { .sun_family = AF_UNIX };
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);

    snprintf(address.sun_path, sizeof address.sun_path, "%s", local + strlen("unix://"));
    if (fd < 0 || connect(fd, (struct sockaddr *)&address, sizeof address) != 0)
        figure_stop("connect: %s", strerror(errno));
    return fd;
}

/* Reads an answer. A daemon that has no room for more has stood the attack, which ends a moment later. */
static void receive(int fd)
{
    pd_error refusal;

    wire_receive_any(fd, NULL, &refusal);
    if (refusal.code == PD_OK) return;
    if (refusal.code != PD_RESOURCE_EXHAUSTED) figure_stop("%s", refusal.text);
    usleep(300 * 1000);
    _exit(0);
}

static void join(worker *w, const char *local, const char *job, uint32_t rank, uint32_t world)
{
    static char *rules[] = { (char *)"* sgd lr=0.1" };
    Paramd__HelloRequest hello = PARAMD__HELLO_REQUEST__INIT;

    *w = (worker){ .fd = connect_to(local), .taken = -1, .id = 10 };
    hello.protocol = PD_PROTOCOL_VERSION;
    hello.job = (char *)job;
    hello.rank = rank;
    hello.world_size = world;
    hello.nonce = 7 + rank;
    hello.label = (char *)"attack";
    hello.rules = rules;
    hello.n_rules = 1;
    hello.shares = true;
    wire_ask(w->fd, PD_HELLO, 1, &hello.base, 0);
    receive(w->fd);
    wire_declare(w->fd, 2, 0, PARAMS, ELEMENTS, true);
    receive(w->fd);
}

static void fill_pieces(Paramd__Piece *at, Paramd__Piece **list)
{
    for (uint32_t i = 0; i < PARAMS; i++) {
        paramd__piece__init(&at[i]);
        at[i].handle = i;
        at[i].dtype = 1;
        at[i].count = ELEMENTS;
        list[i] = &at[i];
    }
}

static void initialise(worker *w)
{
    Paramd__Piece at[PARAMS], *list[PARAMS];

    fill_pieces(at, list);
    for (int i = 0; i < PARAMS; i++) {
        Paramd__InitRequest request = PARAMD__INIT_REQUEST__INIT;
        request.pieces = &list[i];
        request.n_pieces = 1;
        wire_ask(w->fd, PD_INIT, ++w->id, &request.base, CHUNK);
        receive(w->fd);
    }
}

/* Sends the next step. With a place >= 0 the payloads lie there in the segment, in units; else they are zeros on the
 * socket. Does not read the answers. */
static void push(worker *w, long place)
{
    Paramd__Piece at[PARAMS], *list[PARAMS];

    fill_pieces(at, list);
    w->step++;
    for (int i = 0; i < PARAMS; i++) {
        Paramd__PushRequest request = PARAMD__PUSH_REQUEST__INIT;
        uint8_t *frame;
        size_t bytes;
        request.step = w->step;
        request.pieces = &list[i];
        request.n_pieces = 1;
        if (place < 0) {
            wire_ask(w->fd, PD_PUSH, ++w->id, &request.base, CHUNK);
            continue;
        }
        if (pd_frame_pack(&frame, &bytes, PD_PUSH, PD_FLAG_SHARED, ++w->id, &request.base, NULL, 0, CHUNK) != PD_OK)
            figure_stop("no memory for a frame");
        pd_prefix_share(frame, true, (uint32_t)(place + (long)i * (CHUNK / PD_PAYLOAD_ALIGN)));
        wire_send(w->fd, frame, bytes);
        free(frame);
    }
}

static void receive_answers(const worker *w, int n)
{
    for (int i = 0; i < n; i++) receive(w->fd);
}

static void pull(worker *w)
{
    Paramd__PullRequest request = PARAMD__PULL_REQUEST__INIT;
    Paramd__Want at[PARAMS], *list[PARAMS];

    for (uint32_t i = 0; i < PARAMS; i++) {
        paramd__want__init(&at[i]);
        at[i].handle = i;
        at[i].count = ELEMENTS;
        list[i] = &at[i];
    }
    request.min_step = w->step;
    for (int i = 0; i < PARAMS; i++) {
        request.wants = &list[i];
        request.n_wants = 1;
        wire_ask(w->fd, PD_PULL, ++w->id, &request.base, 0);
    }
}

/* Offers a segment and keeps the daemon's. Returns whether the daemon has taken it. */
static bool share(worker *w, int memfd, uint64_t bytes)
{
    Paramd__ShareRequest request = PARAMD__SHARE_REQUEST__INIT;
    uint8_t *frame, header[4096], prefix_bytes[PD_PREFIX_BYTES];
    int to_send = dup(memfd);
    size_t n;
    pd_prefix prefix;
    pd_error err;

    request.bytes = bytes;
    if (pd_frame_pack(&frame, &n, PD_SHARE, 0, ++w->id, &request.base, NULL, 0, 0) != PD_OK ||
        pd_descriptor_send(w->fd, &(struct iovec){ frame, n }, 1, &to_send) != (ssize_t)n)
        figure_stop("Share could not be sent");
    free(frame);
    for (size_t got = 0; got < sizeof prefix_bytes;) {
        ssize_t more = pd_descriptor_receive(w->fd, &(struct iovec){ prefix_bytes + got, sizeof prefix_bytes - got }, 1,
                                             &w->taken);
        if (more <= 0) figure_stop("the daemon ended the connection at Share");
        got += (size_t)more;
    }
    if (pd_prefix_read(&prefix, prefix_bytes, UINT64_MAX / 2, &err) != PD_OK) figure_stop("%s", err.text);
    if (prefix.header_bytes > sizeof header) figure_stop("a long answer to Share");
    if (prefix.header_bytes > 0 &&
        recv(w->fd, header, prefix.header_bytes, MSG_WAITALL) != (ssize_t)prefix.header_bytes)
        figure_stop("the daemon ended the connection at Share");
    return (prefix.flags & PD_FLAG_ERROR) == 0;
}

static int memfd_of(uint64_t bytes, bool full, int seals)
{
    int fd = memfd_create("attack", MFD_CLOEXEC | MFD_ALLOW_SEALING);

    if (fd < 0 || ftruncate(fd, (off_t)bytes) != 0 || (full && fallocate(fd, 0, 0, (off_t)bytes) != 0) ||
        fcntl(fd, F_ADD_SEALS, seals) != 0)
        figure_stop("a memfd cannot be made: %s", strerror(errno));
    return fd;
}

/* Lets the daemon read all of a segment, in steps. */
static void push_all(worker *w, uint64_t bytes)
{
    for (uint64_t at = 0; at + ATTACK_WEIGHTS <= bytes; at += ATTACK_WEIGHTS) {
        push(w, (long)(at / PD_PAYLOAD_ALIGN));
        receive_answers(w, PARAMS);
    }
}

/* Offers one segment after the other. `full`: with all pages, which are freed after Share. */
static void segments(const char *local, bool full, int seals)
{
    for (int i = 0; i < ROUNDS; i++) {
        int memfd = memfd_of(SEGMENT, full, seals);
        char job[32];
        worker w;
        snprintf(job, sizeof job, "segments-%d", full);
        join(&w, local, job, 0, 1);
        if (i == 0) initialise(&w);
        w.step = (uint64_t)i * (SEGMENT / ATTACK_WEIGHTS);
        if (!share(&w, memfd, SEGMENT)) return;
        if (full) (void)fallocate(memfd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, SEGMENT);
        push_all(&w, SEGMENT);
        close(w.fd);
    }
}

static void sparse(const char *local)
{
    segments(local, false, SIZE_SEALS);
}

static void sparse_sealed(const char *local)
{
    segments(local, false, SIZE_SEALS | F_SEAL_FUTURE_WRITE);
}

static void punched(const char *local)
{
    segments(local, true, SIZE_SEALS);
}

static void punched_sealed(const char *local)
{
    segments(local, true, SIZE_SEALS | F_SEAL_FUTURE_WRITE);
}

static void drop(const char *local, const char *job)
{
    Paramd__HelloRequest hello = PARAMD__HELLO_REQUEST__INIT;
    Paramd__DropRequest request = PARAMD__DROP_REQUEST__INIT;
    int fd = connect_to(local);

    hello.protocol = PD_PROTOCOL_VERSION;
    hello.job = (char *)"";
    hello.label = (char *)"attack";
    wire_ask(fd, PD_HELLO, 1, &hello.base, 0);
    receive(fd);
    request.job = (char *)job;
    wire_ask(fd, PD_DROP, 2, &request.base, 0);
    receive(fd);
    close(fd);
}

/* Trains one job after the other for a step, ends each, and keeps the descriptor and a mapping of its weights.
 * `reads`: pulls them as well, and never releases the answer. */
static void weights(const char *local, bool reads)
{
    int memfd = memfd_of(4096, true, SIZE_SEALS | F_SEAL_FUTURE_WRITE);

    for (int i = 0; i < ROUNDS; i++) {
        char job[32];
        worker w;
        snprintf(job, sizeof job, "weights-%d-%d", reads, i);
        join(&w, local, job, 0, 1);
        initialise(&w);
        if (!share(&w, memfd, 4096) || w.taken < 0) figure_stop("the daemon lends no weights");
        if (mmap(NULL, ATTACK_WEIGHTS, PROT_READ, MAP_SHARED | MAP_POPULATE, w.taken, 0) == MAP_FAILED)
            figure_stop("the weights cannot be mapped");
        push(&w, -1);
        receive_answers(&w, PARAMS);
        if (reads) pull(&w);
        if (reads) receive_answers(&w, PARAMS);
        if (!reads) close(w.fd);
        drop(local, job);
    }
}

static void kept_descriptors(const char *local)
{
    weights(local, false);
}

static void unreleased_answers(const char *local)
{
    weights(local, true);
}

/* Lets a second worker pull each version of the weights and read none of them: an answer holds its version until it is
 * sent. */
static void unread_answers(const char *local)
{
    worker w, reader;

    join(&w, local, "unread", 0, 2);
    initialise(&w);
    join(&reader, local, "unread", 1, 2);
    for (int i = 0; i < 3 * ROUNDS; i++) {
        push(&w, -1);
        push(&reader, -1);
        pull(&reader);
        receive_answers(&w, PARAMS);
    }
}

const local_attack local_attacks[] = { { "sparse", sparse },
                                       { "sparse_sealed", sparse_sealed },
                                       { "punched", punched },
                                       { "punched_sealed", punched_sealed },
                                       { "kept_descriptors", kept_descriptors },
                                       { "unreleased_answers", unreleased_answers },
                                       { "unread_answers", unread_answers },
                                       { NULL, NULL } };
