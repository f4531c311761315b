/* probe_ok: which share of the probes of /healthz is answered 200, with slow HTTP connections beside them. 261
 * connections a second come from 127.0.0.1 for 30 s. A half of them sends a part of a request, a quarter asks for
 * /healthz and never ends, a quarter asks for /metrics and reads nothing. Each stays until the daemon closes it. Twice
 * a second a probe comes, in turn from 127.0.0.1 and from 127.0.0.2, and waits for its answer for at most one second.
 * */
#include "figure.h"

#include <arpa/inet.h>
#include <poll.h>
#include <sys/socket.h>
#include <time.h>

enum { A_SECOND = 261, SECONDS = 30, PROBES_A_SECOND = 2, LATEST_MS = 1000, OPEN = 800 };

#define FIELDS "Host: localhost\r\n\r\n"
static const char *const slow[] = { "GET /healthz HTTP/1.1\r\n", "GET /healthz HTTP/1.1\r\n" FIELDS,
                                    "GET /metrics HTTP/1.1\r\n", "GET /metrics HTTP/1.1\r\n" FIELDS };

/* The slow connections: a ring, in which a new one takes the place of the oldest. */
typedef struct flood {
    int port, fd[OPEN];
    size_t opened;
} flood;

/* The probes of one source address. */
typedef struct source {
    const char *address;
    unsigned probes, answered;
} source;

/* Returns a port of 127.0.0.1 that was free just now. */
static int free_port(void)
{
    struct sockaddr_in address = { .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
    socklen_t length = sizeof address;
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

    if (bind(fd, (struct sockaddr *)&address, length) != 0 || getsockname(fd, (struct sockaddr *)&address, &length))
        figure_stop("no free port");
    close(fd);
    return ntohs(address.sin_port);
}

/* Connects from an address of this machine, and sends a request. */
static int ask(int port, const char *from, const char *request)
{
    struct sockaddr_in self = { .sin_family = AF_INET }, to = { .sin_family = AF_INET };
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

    inet_pton(AF_INET, from, &self.sin_addr);
    to.sin_port = htons((uint16_t)port);
    to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    if (fd < 0 || bind(fd, (struct sockaddr *)&self, sizeof self) != 0) figure_stop("%s: %s", from, strerror(errno));
    if (connect(fd, (struct sockaddr *)&to, sizeof to) != 0) figure_stop("connect: %s", strerror(errno));
    send(fd, request, strlen(request), MSG_NOSIGNAL);
    return fd;
}

static void open_slow(flood *f)
{
    size_t at = f->opened % OPEN;

    if (f->opened >= OPEN) close(f->fd[at]);
    f->fd[at] = ask(f->port, "127.0.0.1", slow[f->opened % 4]);
    f->opened++;
}

/* Sends a probe, and waits for the answer as `curl --max-time 1` does. */
static void probe(int port, source *from)
{
    static const char expected[] = "HTTP/1.1 200 OK\r\n";
    char answer[1024] = "";
    int fd = ask(port, from->address, slow[1]);
    struct pollfd wait = { .fd = fd, .events = POLLIN };

    from->probes++;
    if (poll(&wait, 1, LATEST_MS) == 1 && recv(fd, answer, sizeof answer - 1, 0) > 0)
        from->answered += strncmp(answer, expected, sizeof expected - 1) == 0;
    close(fd);
}

static void wait_until(double ms)
{
    double left = ms - figure_ms();

    if (left > 0) nanosleep(&(struct timespec){ .tv_nsec = (long)(left * 1e6) }, NULL);
}

static void measure(flood *f, source *sources)
{
    double begun = figure_ms();
    size_t probes = 0;

    while (f->opened < A_SECOND * SECONDS) {
        wait_until(begun + (double)f->opened * 1000 / A_SECOND);
        open_slow(f);
        if (f->opened * PROBES_A_SECOND < (probes + 1) * A_SECOND) continue;
        probe(f->port, &sources[probes % 2]);
        probes++;
    }
}

int main(void)
{
    source sources[] = { { "127.0.0.1", 0, 0 }, { "127.0.0.2", 0, 0 } };
    flood *f = figure_alloc(sizeof *f);
    char url[64];
    pd_child daemon;

    f->port = free_port();
    snprintf(url, sizeof url, "127.0.0.1:%d", f->port);
    setenv("PARAMD_HTTP_LISTEN", url, 1);
    figure_daemon(&daemon);
    measure(f, sources);
    printf("%.3f\t%u of %u from the address of the flood, %u of %u from another; %zu slow connections in %d s\n",
           (double)(sources[0].answered + sources[1].answered) / (sources[0].probes + sources[1].probes),
           sources[0].answered, sources[0].probes, sources[1].answered, sources[1].probes, f->opened, SECONDS);
    pd_child_stop(&daemon);
    free(f);
    return 0;
}
