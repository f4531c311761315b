/* proxy.c - a proxy between worker and daemon that breaks connections. */
#define _GNU_SOURCE /* for accept4, memmem */
#include "proxy.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <poll.h>
#include <pthread.h>
#include <sys/socket.h>

#include "daemon_process.h"
#include "test.h"

enum { MAX_PAIRS = 16, SLICE = 16 * 1024, RECORD = 4 << 20 };

typedef struct pair {
    int fd[2];        /* sockets to the client (0) and to the server (1); -1: none */
    size_t passed[2]; /* number of bytes received from each side */
} pair;

struct proxy {
    pthread_t thread;
    pthread_mutex_t lock; /* guards the fields that other threads use: settings, `made`, `swallowed` */
    size_t cut_after[2];
    bool swallow, cut, stop, stall;
    bool stands; /* the thread forwards nothing, since `stall` is set */
    double delay;
    bool slows;           /* one direction becomes slow, or is slow */
    int slow_from;        /* the side whose bytes are forwarded slowly */
    size_t fast, trickle; /* fast: bytes from this side until then. trickle: bytes every 10 ms from then on */
    size_t slow;          /* bytes that were forwarded slowly */
    size_t forwarded[2];  /* bytes from each side, on all connections */
    int made;
    uint8_t *record[2]; /* bytes from the client (0) and from the server (1); NULL: they are not recorded */
    size_t recorded[2];
    size_t swallowed; /* number of bytes thrown away since the last call of proxy_swallow */
    int listener, port, server_port;
    pair pairs[MAX_PAIRS];
};

static struct sockaddr_in loopback(int port)
{
    return (struct sockaddr_in){ .sin_family = AF_INET,
                                 .sin_port = htons((uint16_t)port),
                                 .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
}

static void hang_up(pair *at)
{
    for (int i = 0; i < 2; i++) {
        if (at->fd[i] >= 0) close(at->fd[i]);
        at->fd[i] = -1;
        at->passed[i] = 0;
    }
}

static void accept_one(proxy *p)
{
    struct sockaddr_in server = loopback(p->server_port);
    int client = accept4(p->listener, NULL, NULL, SOCK_CLOEXEC);
    pair *free_one = NULL;

    for (int i = 0; i < MAX_PAIRS; i++)
        if (p->pairs[i].fd[0] < 0) free_one = &p->pairs[i];
    if (client < 0 || free_one == NULL) return;
    free_one->fd[0] = client;
    free_one->fd[1] = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (connect(free_one->fd[1], (struct sockaddr *)&server, sizeof server) != 0) hang_up(free_one);
    pthread_mutex_lock(&p->lock);
    p->made++;
    pthread_mutex_unlock(&p->lock);
}

static bool pass_all(int fd, const uint8_t *at, size_t n)
{
    while (n > 0) {
        ssize_t sent = send(fd, at, n, MSG_NOSIGNAL);
        if (sent <= 0) return false;
        at += sent;
        n -= (size_t)sent;
    }
    return true;
}

/* Records bytes from one side, as far as there is room. The proxy's lock is held. */
static void record(proxy *p, int from, const uint8_t *bytes, size_t n)
{
    size_t left = RECORD - p->recorded[from], part = n < left ? n : left;

    if (p->record[from] == NULL) return;
    memcpy(p->record[from] + p->recorded[from], bytes, part);
    p->recorded[from] += part;
}

/* Returns how many bytes of one side may be forwarded now. *slowly: they are slow ones. */
static size_t allowance(proxy *p, int from, bool *slowly)
{
    size_t most = SLICE;

    pthread_mutex_lock(&p->lock);
    *slowly = p->slows && p->slow_from == from && p->fast == 0;
    if (*slowly)
        most = p->trickle;
    else if (p->slows && p->slow_from == from && p->fast < SLICE)
        most = p->fast;
    pthread_mutex_unlock(&p->lock);
    return most;
}

/* Counts forwarded bytes. The proxy's lock is held. */
static void count(proxy *p, int from, size_t n, bool slowly)
{
    p->forwarded[from] += n;
    if (slowly)
        p->slow += n;
    else if (p->slows && p->slow_from == from)
        p->fast -= n < p->fast ? n : p->fast;
}

/* Forwards bytes from one side to the other, as far as the settings allow. */
static void forward(proxy *p, pair *at, int from)
{
    uint8_t bytes[SLICE];
    bool slowly;
    ssize_t n = recv(at->fd[from], bytes, allowance(p, from, &slowly), 0);
    size_t cut_after, pass = n > 0 ? (size_t)n : 0;
    bool swallow, cut;
    double delay;

    pthread_mutex_lock(&p->lock);
    cut_after = p->cut_after[from];
    swallow = p->swallow && from == 1;
    if (swallow) p->swallowed += pass;
    delay = p->delay;
    record(p, from, bytes, pass);
    count(p, from, pass, slowly);
    pthread_mutex_unlock(&p->lock);
    if (slowly) delay += 0.01;
    cut = cut_after > 0 && at->passed[from] + pass >= cut_after;
    if (cut) pass = cut_after > at->passed[from] ? cut_after - at->passed[from] : 0;
    if (delay > 0) sleep_for(delay);
    at->passed[from] += pass;
    if (n <= 0 || (!swallow && !pass_all(at->fd[1 - from], bytes, pass)) || cut) hang_up(at);
}

/* Cuts connections if it was asked for. *stalled: nothing is to be forwarded. Returns false if the proxy ends. */
static bool obey(proxy *p, bool *stalled)
{
    bool cut, stop;

    pthread_mutex_lock(&p->lock);
    cut = p->cut;
    stop = p->stop;
    *stalled = p->stands = p->stall;
    p->cut = false;
    pthread_mutex_unlock(&p->lock);
    for (int i = 0; (cut || stop) && i < MAX_PAIRS; i++) hang_up(&p->pairs[i]);
    return !stop;
}

static void *run(void *arg)
{
    proxy *p = arg;
    bool stalled;

    while (obey(p, &stalled)) {
        struct pollfd wait[1 + 2 * MAX_PAIRS] = { { .fd = p->listener, .events = POLLIN } };
        bool slowly;
        short wanted[2];

        if (stalled) {
            sleep_for(0.005);
            continue;
        }
        for (int from = 0; from < 2; from++) wanted[from] = allowance(p, from, &slowly) > 0 ? POLLIN : 0;
        for (int i = 0; i < 2 * MAX_PAIRS; i++)
            wait[1 + i] = (struct pollfd){ .fd = p->pairs[i / 2].fd[i % 2], .events = wanted[i % 2] };
        if (poll(wait, 1 + 2 * MAX_PAIRS, 20) <= 0) continue;
        if (wait[0].revents != 0) accept_one(p);
        for (int i = 0; i < 2 * MAX_PAIRS; i++)
            if (wait[1 + i].revents != 0 && p->pairs[i / 2].fd[i % 2] == wait[1 + i].fd)
                forward(p, &p->pairs[i / 2], i % 2);
    }
    return NULL;
}

proxy *proxy_start(int server_port)
{
    proxy *p = calloc(1, sizeof *p);
    struct sockaddr_in address = loopback(0);
    socklen_t size = sizeof address;

    assert_non_null(p);
    p->server_port = server_port;
    for (int i = 0; i < MAX_PAIRS; i++) p->pairs[i].fd[0] = p->pairs[i].fd[1] = -1;
    p->listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_int_equal(bind(p->listener, (struct sockaddr *)&address, sizeof address), 0);
    assert_int_equal(listen(p->listener, 16), 0);
    assert_int_equal(getsockname(p->listener, (struct sockaddr *)&address, &size), 0);
    p->port = ntohs(address.sin_port);
    pthread_mutex_init(&p->lock, NULL);
    assert_int_equal(pthread_create(&p->thread, NULL, run, p), 0);
    return p;
}

void proxy_stop(proxy *p)
{
    pthread_mutex_lock(&p->lock);
    p->stop = true;
    pthread_mutex_unlock(&p->lock);
    pthread_join(p->thread, NULL);
    pthread_mutex_destroy(&p->lock);
    close(p->listener);
    free(p->record[0]);
    free(p->record[1]);
    free(p);
}

int proxy_port(const proxy *p)
{
    return p->port;
}

void proxy_cut_after(proxy *p, size_t to_server, size_t to_client)
{
    pthread_mutex_lock(&p->lock);
    p->cut_after[0] = to_server;
    p->cut_after[1] = to_client;
    pthread_mutex_unlock(&p->lock);
}

void proxy_swallow(proxy *p, bool answers)
{
    pthread_mutex_lock(&p->lock);
    p->swallow = answers;
    if (answers) p->swallowed = 0;
    pthread_mutex_unlock(&p->lock);
}

void proxy_delay(proxy *p, double seconds)
{
    pthread_mutex_lock(&p->lock);
    p->delay = seconds;
    pthread_mutex_unlock(&p->lock);
}

void proxy_cut_now(proxy *p)
{
    pthread_mutex_lock(&p->lock);
    p->cut = true;
    pthread_mutex_unlock(&p->lock);
}

void proxy_slow_after(proxy *p, bool to_client, size_t fast, size_t bytes)
{
    pthread_mutex_lock(&p->lock);
    p->slows = true;
    p->slow_from = to_client;
    p->fast = fast;
    p->trickle = bytes;
    p->slow = 0;
    pthread_mutex_unlock(&p->lock);
}

void proxy_hurry(proxy *p)
{
    pthread_mutex_lock(&p->lock);
    p->slows = false;
    pthread_mutex_unlock(&p->lock);
}

size_t proxy_forwarded(proxy *p, bool to_client)
{
    size_t n;

    pthread_mutex_lock(&p->lock);
    n = p->forwarded[to_client];
    pthread_mutex_unlock(&p->lock);
    return n;
}

/* A number of bytes that the proxy counts, and what is awaited of it. */
typedef struct awaited {
    proxy *p;
    const size_t *count;
    size_t bytes;
} awaited;

static bool has_counted(void *arg)
{
    const awaited *a = arg;
    bool so;

    pthread_mutex_lock(&a->p->lock);
    so = *a->count >= a->bytes;
    pthread_mutex_unlock(&a->p->lock);
    return so;
}

bool proxy_await_slow(proxy *p, size_t bytes, double seconds)
{
    return await(has_counted, &(awaited){ p, &p->slow, bytes }, seconds);
}

bool proxy_await_swallowed(proxy *p, size_t bytes, double seconds)
{
    return await(has_counted, &(awaited){ p, &p->swallowed, bytes }, seconds);
}

void proxy_record(proxy *p)
{
    pthread_mutex_lock(&p->lock);
    for (int i = 0; i < 2; i++) {
        p->record[i] = malloc(RECORD);
        assert_non_null(p->record[i]);
    }
    pthread_mutex_unlock(&p->lock);
}

bool proxy_recorded(proxy *p, const void *bytes, size_t n)
{
    bool found = false;

    pthread_mutex_lock(&p->lock);
    for (int i = 0; i < 2; i++) found |= memmem(p->record[i], p->recorded[i], bytes, n) != NULL;
    pthread_mutex_unlock(&p->lock);
    return found;
}

int proxy_connections(proxy *p)
{
    int made;

    pthread_mutex_lock(&p->lock);
    made = p->made;
    pthread_mutex_unlock(&p->lock);
    return made;
}

static bool stands(void *arg)
{
    proxy *p = arg;
    bool so;

    pthread_mutex_lock(&p->lock);
    so = p->stands;
    pthread_mutex_unlock(&p->lock);
    return so;
}

void proxy_stall(proxy *p, bool stalls)
{
    pthread_mutex_lock(&p->lock);
    p->stall = stalls;
    pthread_mutex_unlock(&p->lock);
    if (stalls) assert_true(await(stands, p, patient(10)));
}
