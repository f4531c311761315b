/* path.c - finds out that the network no longer carries the packets of a connection, and makes a spare connection. */
#include "path.h"

#include <errno.h>
#include <linux/tcp.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#define MS UINT64_C(1000000)
#define LOOK_NS (1000 * MS)      /* pause between two looks at a connection in state PD_PATH_WELL */
#define CLOSE_LOOK_NS (200 * MS) /* pause between two looks in the other states */
/* A spare connection that is not made within PROBE_NS and two round trips is begun anew, at the latest after
 * MOST_PROBE_NS. */
#define PROBE_NS (1000 * MS)
#define MOST_PROBE_NS (8000 * MS)
#define ANSWER_NS (1000 * MS) /* in PD_PATH_ASKING, the server must answer within this time and four round trips */
#define LEAST_PATIENCE_NS (2000 * MS)
#define MOST_PATIENCE_NS (30000 * MS)
/* Replacing a connection doubles pd_path.patience_ns, unless the replacement before it was this long ago. */
#define CALM_NS (60000 * MS)
enum { LEAST_ATTEMPTS = 2 }; /* least pd_path_facts.attempts with which the path counts as cut */
enum { KEEPALIVE_S = 1, KEEPALIVES = 127 };

static bool is_silent(const pd_path *path, const pd_path_facts *facts)
{
    return facts->attempts >= LEAST_ATTEMPTS && facts->silent_ns >= path->patience_ns;
}

static pd_path_advice recover(pd_path *path)
{
    path->state = PD_PATH_WELL;
    return PD_PATH_GO_ON;
}

/* Begins to ask the server for an answer, since its kernel acknowledges again. The answer shows that the other
 * direction works: after a long cut the server's kernel may retransmit the server's own bytes much later. */
static pd_path_advice ask(pd_path *path, uint64_t now_ns)
{
    path->state = PD_PATH_ASKING;
    path->asked_ns = now_ns;
    return PD_PATH_ASK;
}

/* Gives the connection up. If that happens again soon, the network loses many packets rather than all, and the patience
 * grows. */
static pd_path_advice replace(pd_path *path, uint64_t now_ns)
{
    if (path->replaced_ns != 0 && now_ns - path->replaced_ns < CALM_NS) {
        path->patience_ns *= 2;
        if (path->patience_ns > MOST_PATIENCE_NS) path->patience_ns = MOST_PATIENCE_NS;
    } else {
        path->patience_ns = LEAST_PATIENCE_NS;
    }
    path->replaced_ns = now_ns;
    return PD_PATH_REPLACE;
}

static pd_path_advice judge_cut(pd_path *path, const pd_path_facts *facts, uint64_t now_ns)
{
    if (facts->received != path->received) return recover(path);
    if (facts->attempts >= LEAST_ATTEMPTS && !path->made) return PD_PATH_GO_ON;
    /* Bytes that are not acknowledged wait for the next retransmission, which may be far away. */
    if (facts->attempts >= LEAST_ATTEMPTS && facts->unacked) return replace(path, now_ns);
    return ask(path, now_ns);
}

/* Decides in the state PD_PATH_ASKING. While the server's kernel still acknowledges queued bytes, the decision waits:
 * the heartbeat may be sent after these bytes. */
static pd_path_advice judge_asking(pd_path *path, const pd_path_facts *facts, uint64_t now_ns)
{
    bool late = now_ns - path->asked_ns >= ANSWER_NS + 4 * facts->rtt_ns;

    if (facts->received != path->received) return recover(path);
    if (late && is_silent(path, facts)) {
        path->state = PD_PATH_CUT;
        return judge_cut(path, facts, now_ns);
    }
    if (facts->unsent && !is_silent(path, facts)) path->asked_ns = now_ns;
    return late && !facts->unsent && path->made ? replace(path, now_ns) : PD_PATH_GO_ON;
}

pd_path_advice pd_path_judge(pd_path *path, const pd_path_facts *facts, uint64_t now_ns)
{
    switch (path->state) {
    case PD_PATH_CUT: return judge_cut(path, facts, now_ns);
    case PD_PATH_ASKING: return judge_asking(path, facts, now_ns);
    case PD_PATH_WELL: break;
    }
    if (path->replaced_ns != 0 && now_ns - path->replaced_ns >= CALM_NS) path->patience_ns = LEAST_PATIENCE_NS;
    if (!is_silent(path, facts)) return PD_PATH_GO_ON;
    path->state = PD_PATH_CUT;
    path->received = facts->received;
    return PD_PATH_GO_ON;
}

static void close_probe(pd_path *path)
{
    if (path->probe >= 0) close(path->probe);
    path->probe = -1;
    path->made = false;
}

/* Begins a connection to the address of the old one. If that fails at once, another try follows after PROBE_NS. */
static void begin_probe(pd_path *path, uint64_t now_ns)
{
    struct sockaddr_storage peer;
    socklen_t size = sizeof peer;
    int one = 1;

    path->probe_ns = now_ns;
    if (getpeername(path->fd, (struct sockaddr *)&peer, &size) != 0) return;
    path->probe = socket(peer.ss_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (path->probe < 0) return;
    setsockopt(path->probe, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    if (connect(path->probe, (struct sockaddr *)&peer, size) == 0)
        path->made = true;
    else if (errno != EINPROGRESS)
        close_probe(path);
}

/* Notes that the spare connection is made, or has failed. */
static void take_event(pd_path *path, const struct pollfd *polled)
{
    socklen_t size = sizeof(int);
    int error = 0;

    if (polled->fd != path->probe || path->probe < 0 || polled->revents == 0) return;
    if (getsockopt(path->probe, SOL_SOCKET, SO_ERROR, &error, &size) != 0) error = errno;
    if (error == 0 && !path->made && (polled->revents & POLLOUT) != 0)
        path->made = true;
    else
        close_probe(path); /* the spare connection has failed, or the server has closed it */
}

/* Begins a spare connection if none is under way, or the last try took too long: the kernel retransmits SYN packets
 * late, too, so a new spare connection is made sooner. */
static void keep_trying(pd_path *path, const pd_path_facts *facts, uint64_t now_ns)
{
    uint64_t most = PROBE_NS + 2 * facts->rtt_ns;

    if (path->made || now_ns - path->probe_ns < (most < MOST_PROBE_NS ? most : MOST_PROBE_NS)) return;
    close_probe(path);
    begin_probe(path, now_ns);
}

struct pollfd pd_path_poll(const pd_path *path)
{
    return (struct pollfd){ .fd = path->probe, .events = path->made ? POLLIN : POLLOUT };
}

int pd_path_take(pd_path *path)
{
    int fd = path->probe;

    path->probe = -1;
    path->made = false;
    return fd;
}

void pd_path_init(pd_path *path)
{
    *path = (pd_path){ .fd = -1, .probe = -1, .next_ns = UINT64_MAX, .patience_ns = LEAST_PATIENCE_NS };
}

void pd_path_begin(pd_path *path, int fd, uint64_t now_ns)
{
    const int on = 1, seconds = KEEPALIVE_S, most = KEEPALIVES;

    path->state = PD_PATH_WELL;
    if (setsockopt(fd, IPPROTO_TCP, TCP_KEEPIDLE, &seconds, sizeof seconds) != 0) return; /* a Unix socket */
    setsockopt(fd, IPPROTO_TCP, TCP_KEEPINTVL, &seconds, sizeof seconds);
    setsockopt(fd, IPPROTO_TCP, TCP_KEEPCNT, &most, sizeof most);
    setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &on, sizeof on);
    path->fd = fd;
    path->next_ns = now_ns + LOOK_NS;
}

void pd_path_end(pd_path *path)
{
    close_probe(path);
    path->fd = -1;
    path->next_ns = UINT64_MAX;
}

static bool ask_kernel(const pd_path *path, pd_path_facts *facts)
{
    struct tcp_info info = { 0 };
    socklen_t size = sizeof info;
    uint32_t silent_ms;

    if (getsockopt(path->fd, IPPROTO_TCP, TCP_INFO, &info, &size) != 0) return false;
    silent_ms = info.tcpi_last_ack_recv < info.tcpi_last_data_recv ? info.tcpi_last_ack_recv : info.tcpi_last_data_recv;
    *facts = (pd_path_facts){
        .attempts = info.tcpi_retransmits > info.tcpi_probes ? info.tcpi_retransmits : info.tcpi_probes,
        .silent_ns = silent_ms * MS,
        .rtt_ns = info.tcpi_rtt * UINT64_C(1000),
        .unsent = info.tcpi_unacked > 0 || info.tcpi_notsent_bytes > 0,
        .unacked = info.tcpi_unacked > 0,
        .received = info.tcpi_bytes_received,
    };
    return true;
}

pd_path_advice pd_path_look(pd_path *path, const struct pollfd *polled, uint64_t now_ns)
{
    pd_path_facts facts;
    pd_path_advice advice;

    if (polled->revents == 0 && now_ns < path->next_ns) return PD_PATH_GO_ON;
    path->next_ns = now_ns + CLOSE_LOOK_NS;
    take_event(path, polled);
    if (path->fd < 0 || !ask_kernel(path, &facts)) return PD_PATH_GO_ON;
    advice = pd_path_judge(path, &facts, now_ns);
    if (path->state == PD_PATH_WELL)
        close_probe(path);
    else if (advice != PD_PATH_REPLACE)
        keep_trying(path, &facts, now_ns);
    if (path->state == PD_PATH_WELL) path->next_ns = now_ns + LOOK_NS;
    return advice;
}
