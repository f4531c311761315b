/* wire.c - connects a client's socket to a daemon, and sends and receives raw frames. */
#include "wire.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include "figure.h"

int wire_connect(const char *url)
{
    struct sockaddr_in address = { .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
    int port, fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

    if (sscanf(url, "tcp://127.0.0.1:%d", &port) != 1) figure_stop("%s is no loopback address", url);
    address.sin_port = htons((uint16_t)port);
    if (fd < 0 || connect(fd, (struct sockaddr *)&address, sizeof address) != 0)
        figure_stop("connect: %s", strerror(errno));
    return fd;
}

void wire_send(int fd, const void *at, size_t bytes)
{
    const uint8_t *from = at;

    while (bytes > 0) {
        ssize_t n = send(fd, from, bytes, MSG_NOSIGNAL);
        if (n < 0 && errno != EINTR) figure_stop("send: %s", strerror(errno));
        if (n > 0) {
            from += n;
            bytes -= (size_t)n;
        }
    }
}

void wire_ask(int fd, unsigned method, uint64_t id, const ProtobufCMessage *message, size_t payload_bytes)
{
    uint8_t *frame, *payload = figure_alloc(payload_bytes);
    size_t bytes;

    if (pd_frame_pack(&frame, &bytes, method, 0, id, message, NULL, 0, payload_bytes) != PD_OK)
        figure_stop("no memory for a frame");
    wire_send(fd, frame, bytes);
    wire_send(fd, payload, payload_bytes);
    free(frame);
    free(payload);
}

static void receive_all(int fd, uint8_t *at, size_t bytes)
{
    if (bytes > 0 && recv(fd, at, bytes, MSG_WAITALL) != (ssize_t)bytes) figure_stop("the daemon ended a connection");
}

static void read_error(const uint8_t *header, size_t bytes, pd_error *err)
{
    pd_arena *arena = pd_arena_new(PD_ARENA_BUDGET);

    *err = (pd_error){ .code = PD_NO_MEMORY };
    if (arena != NULL) pd_message_error(arena, header, bytes, err, NULL);
    pd_arena_free(arena);
}

pd_prefix wire_receive_any(int fd, uint8_t *header, pd_error *refusal)
{
    uint8_t bytes[PD_PREFIX_BYTES], own[PD_MAX_HEADER_BYTES], *to = header != NULL ? header : own;
    pd_prefix prefix;
    pd_error err;

    receive_all(fd, bytes, sizeof bytes);
    if (pd_prefix_read(&prefix, bytes, UINT64_MAX / 2, &err) != PD_OK) figure_stop("%s", err.text);
    receive_all(fd, to, prefix.header_bytes);
    refusal->code = PD_OK;
    if ((prefix.flags & PD_FLAG_ERROR) != 0) read_error(to, prefix.header_bytes, refusal);
    for (uint64_t left = (prefix.flags & PD_FLAG_SHARED) != 0 ? 0 : prefix.payload_bytes; left > 0;) {
        uint8_t waste[4096];
        size_t n = left < sizeof waste ? (size_t)left : sizeof waste;
        receive_all(fd, waste, n);
        left -= n;
    }
    return prefix;
}

pd_prefix wire_receive(int fd, uint8_t *header)
{
    pd_error refusal;
    pd_prefix prefix = wire_receive_any(fd, header, &refusal);

    if (refusal.code != PD_OK) figure_stop("%s", refusal.text);
    return prefix;
}

void wire_hello(int fd, const char *job, uint32_t rank, uint32_t world, uint64_t nonce)
{
    static char *rules[] = { (char *)"* sgd lr=0.1" };
    Paramd__HelloRequest hello = PARAMD__HELLO_REQUEST__INIT;

    hello.protocol = PD_PROTOCOL_VERSION;
    hello.job = (char *)job;
    hello.rank = rank;
    hello.world_size = world;
    hello.nonce = nonce;
    hello.label = (char *)"figure";
    hello.rules = rules;
    hello.n_rules = 1;
    wire_ask(fd, PD_HELLO, 1, &hello.base, 0);
}

void wire_declare(int fd, uint64_t id, uint32_t first, uint32_t n, uint64_t elements, bool last)
{
    static char names[WIRE_DECLARES][32];
    static Paramd__Parameter at[WIRE_DECLARES], *list[WIRE_DECLARES];
    Paramd__DeclareRequest request = PARAMD__DECLARE_REQUEST__INIT;

    for (uint32_t i = 0; i < n; i++) {
        snprintf(names[i], sizeof names[i], "p%u", first + i);
        paramd__parameter__init(&at[i]);
        at[i].name = names[i];
        at[i].shape = &elements;
        at[i].n_shape = 1;
        list[i] = &at[i];
    }
    request.parameters = list;
    request.n_parameters = n;
    request.last = last;
    wire_ask(fd, PD_DECLARE, id, &request.base, 0);
}
