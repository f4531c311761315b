/* foe.c - connects a hostile client, and keeps many of its requests under way. */
#include "foe.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>

enum { ID_AT = 24, LOOK_MS = 20, MOST_FOES = 64 };

static _Noreturn void stop(const char *why)
{
    fprintf(stderr, "hostile client: %s\n", why);
    _Exit(1);
}

foe_frame foe_pack(unsigned method, const ProtobufCMessage *message, size_t payload_bytes)
{
    foe_frame frame = { .method = method };
    uint8_t *head;

    if (pd_frame_pack(&head, &frame.bytes, method, 0, 1, message, NULL, 0, payload_bytes) != PD_OK)
        stop("a frame cannot be packed");
    if ((frame.at = calloc(1, frame.bytes + payload_bytes)) == NULL) stop("no memory for a frame");
    memcpy(frame.at, head, frame.bytes);
    frame.bytes += payload_bytes;
    free(head);
    return frame;
}

void foe_frame_free(foe_frame *frame)
{
    free(frame->at);
    *frame = (foe_frame){ 0 };
}

void foe_frames_free(foe_frame *frames, size_t n)
{
    for (size_t i = 0; i < n; i++) foe_frame_free(&frames[i]);
    free(frames);
}

static int connect_unix(int fd, const char *path)
{
    struct sockaddr_un address = { .sun_family = AF_UNIX };

    snprintf(address.sun_path, sizeof address.sun_path, "%s", path);
    return connect(fd, (struct sockaddr *)&address, sizeof address);
}

static int connect_port(int fd, int port)
{
    struct sockaddr_in address = { .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };

    address.sin_port = htons((uint16_t)port);
    return connect(fd, (struct sockaddr *)&address, sizeof address);
}

void foe_connect(foe *f, foe_side *side)
{
    bool local = side->path != NULL;

    *f = (foe){ .side = side, .descriptor = -1 };
    f->fd = socket(local ? AF_UNIX : AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (f->fd < 0 || (local ? connect_unix(f->fd, side->path) : connect_port(f->fd, side->port)) != 0 ||
        fcntl(f->fd, F_SETFL, O_NONBLOCK) != 0) {
        side->count.lost++;
        foe_close(f);
    }
}

void foe_close(foe *f)
{
    if (f->fd >= 0) close(f->fd);
    f->fd = -1;
    f->open = 0;
    f->out = NULL;
}

static void lose(foe *f)
{
    f->side->count.lost++;
    foe_close(f);
}

static void begin(foe *f, const foe_frame *frame)
{
    uint64_t id = ++f->ids;

    memcpy(f->prefix, frame->at, sizeof f->prefix);
    for (int i = 0; i < 8; i++) f->prefix[ID_AT + i] = (uint8_t)(id >> 8 * i);
    f->out = frame;
    f->written = 0;
    f->open++;
    f->side->count.sent[frame->method]++;
}

/* Sends bytes, and the descriptor that is to go with them. */
static ssize_t send_with(foe *f, const uint8_t *from, size_t bytes)
{
    struct iovec iov = { .iov_base = (void *)(uintptr_t)from, .iov_len = bytes };
    union {
        struct cmsghdr head;
        char room[CMSG_SPACE(sizeof(int))];
    } control = { 0 };
    struct msghdr message = { .msg_iov = &iov, .msg_iovlen = 1 };
    ssize_t n;

    if (f->descriptor < 0) return send(f->fd, from, bytes, MSG_NOSIGNAL);
    message.msg_control = &control;
    message.msg_controllen = sizeof control.room;
    control.head =
        (struct cmsghdr){ .cmsg_len = CMSG_LEN(sizeof(int)), .cmsg_level = SOL_SOCKET, .cmsg_type = SCM_RIGHTS };
    memcpy(CMSG_DATA(&control.head), &f->descriptor, sizeof(int));
    n = sendmsg(f->fd, &message, MSG_NOSIGNAL);
    if (n > 0) f->descriptor = -1;
    return n;
}

/* Writes as much of the present request as the socket takes. */
static void write_some(foe *f)
{
    while (f->out != NULL) {
        bool head = f->written < sizeof f->prefix;
        const uint8_t *from = head ? f->prefix + f->written : f->out->at + f->written;
        ssize_t n = send_with(f, from, (head ? sizeof f->prefix : f->out->bytes) - f->written);
        if (n < 0 && errno == EAGAIN) return;
        if (n < 0 && errno != EINTR) {
            lose(f);
            return;
        }
        if (n > 0) f->written += (size_t)n;
        if (f->written == f->out->bytes) f->out = NULL;
    }
}

/* Keeps the code and the text of an answer whose header has been read, as far as it fits. */
static void take_error(foe *f, size_t header_bytes)
{
    Paramd__Error *error = paramd__error__unpack(NULL, header_bytes, f->in + PD_PREFIX_BYTES);

    f->side->count.refused++;
    f->code = PD_UNKNOWN;
    if (error == NULL) return;
    f->code = -error->code;
    snprintf(f->side->count.error, sizeof f->side->count.error, "%s", error->text);
    paramd__error__free_unpacked(error, NULL);
}

static void end_answer(foe *f, const pd_prefix *prefix, size_t header_read)
{
    bool refused = (prefix->flags & PD_FLAG_ERROR) != 0;

    f->waste = prefix->header_bytes + prefix->payload_bytes - header_read;
    f->read = 0;
    if (prefix->request == 0) return;
    f->side->count.answered++;
    f->open--;
    if (refused)
        take_error(f, header_read);
    else
        f->code = PD_OK;
}

/* Uses n bytes that have come. */
static void take(foe *f, const uint8_t *at, size_t n)
{
    while (n > 0 && f->fd >= 0) {
        pd_prefix prefix = { 0 };
        size_t part = n < f->waste ? n : (size_t)f->waste, wanted = PD_PREFIX_BYTES;
        pd_error err;
        at += part, n -= part, f->waste -= part;
        if (n == 0) break;
        if (f->read >= wanted) {
            (void)pd_prefix_read(&prefix, f->in, UINT64_MAX / 2, &err);
            wanted += prefix.header_bytes < sizeof f->in - wanted ? prefix.header_bytes : sizeof f->in - wanted;
        }
        part = n < wanted - f->read ? n : wanted - f->read;
        memcpy(f->in + f->read, at, part);
        f->read += part, at += part, n -= part;
        if (f->read < wanted) continue;
        if (wanted == PD_PREFIX_BYTES && pd_prefix_read(&prefix, f->in, UINT64_MAX / 2, &err) != PD_OK) {
            lose(f);
            return;
        }
        if ((prefix.flags & PD_FLAG_ERROR) == 0 || prefix.header_bytes == 0 || wanted > PD_PREFIX_BYTES)
            end_answer(f, &prefix, wanted - PD_PREFIX_BYTES);
    }
}

/* Reads what has come. */
static void read_some(foe *f)
{
    static _Thread_local uint8_t room[1 << 16];

    for (int i = 0; i < 8 && f->fd >= 0; i++) {
        ssize_t n = recv(f->fd, room, sizeof room, 0);
        if (n < 0 && (errno == EAGAIN || errno == EINTR)) return;
        if (n <= 0) {
            lose(f);
            return;
        }
        take(f, room, (size_t)n);
    }
}

/* Waits until a socket of some connections is ready, for a moment at most, and writes and reads. */
static void run_once(foe *foes, size_t n)
{
    struct pollfd polled[MOST_FOES];

    for (size_t i = 0; i < n; i++)
        polled[i] = (struct pollfd){ .fd = foes[i].fd, .events = POLLIN | (foes[i].out != NULL ? POLLOUT : 0) };
    if (poll(polled, n, LOOK_MS) <= 0) return;
    for (size_t i = 0; i < n; i++) {
        if (foes[i].fd >= 0 && (polled[i].revents & (POLLIN | POLLHUP | POLLERR)) != 0) read_some(&foes[i]);
        if (foes[i].fd >= 0 && (polled[i].revents & POLLOUT) != 0) write_some(&foes[i]);
    }
}

/* Returns whether the connection may begin another request. */
static bool has_room(const foe *f, size_t most)
{
    return f->fd >= 0 && f->out == NULL && f->open < most;
}

int foe_send_all(foe *f, const foe_frame *frames, size_t n_frames, size_t most)
{
    size_t next = 0;

    while (f->fd >= 0 && !foe_over(f->side) && (next < n_frames || f->open > 0)) {
        while (next < n_frames && has_room(f, most)) {
            begin(f, &frames[next++]);
            write_some(f);
        }
        if (next < n_frames || f->open > 0) run_once(f, 1);
    }
    return f->fd < 0 || foe_over(f->side) ? PD_UNAVAILABLE : f->code;
}

int foe_call(foe *f, const foe_frame *frame)
{
    return foe_send_all(f, frame, 1, SIZE_MAX);
}

int foe_ask(foe *f, unsigned method, const ProtobufCMessage *message, size_t payload_bytes)
{
    foe_frame frame = foe_pack(method, message, payload_bytes);
    int code = foe_call(f, &frame);

    f->out = NULL; /* it may not be out when the attack is over */
    foe_frame_free(&frame);
    return code;
}

void foe_flood(foe *foes, size_t n, const foe_frame *frames, size_t n_frames, size_t most)
{
    size_t next = 0, left = n;

    if (n > MOST_FOES) stop("too many connections");
    while (left > 0 && !foe_over(foes->side)) {
        left = 0;
        for (size_t i = 0; i < n; i++) {
            while (has_room(&foes[i], most)) {
                begin(&foes[i], &frames[next++ % n_frames]);
                write_some(&foes[i]);
            }
            left += foes[i].fd >= 0;
        }
        run_once(foes, n);
    }
}
