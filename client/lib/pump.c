/* pump.c - carries bytes between the core and a transport. */
#include "pump.h"

#include "answer.h"
#include "mutant.h"
#include "window.h"

/* Limits of one call that sends or receives. Payload is received at most READ_BYTES at a time, which fit into the CPU's
 * cache. A call sends and receives a limited number of bytes, so that neither direction waits long for the other. */
enum { READ_BYTES = 256 * 1024, READS = 2, READ_IOV = 256, SEND_BYTES = 1024 * 1024, SEND_IOV = 1024 };
/* the framer has no limit: pd_core_header checks the length of every answer */
#define MAX_ANSWER (UINT64_MAX / 2)

static size_t total(const struct iovec *iov, int n)
{
    size_t bytes = 0;

    for (int i = 0; i < n; i++) bytes += iov[i].iov_len;
    return bytes;
}

static void watch(pd_pump *pump)
{
    pump->transport->ops->watch(pump->transport, pump->blocked ? PD_ON_READ | PD_ON_WRITE : PD_ON_READ);
}

/* Notes whether the transport is full (takes no more bytes). Only while it is full does the pump watch for the event
 * that it takes bytes again (PD_ON_WRITE). */
static void set_blocked(pd_pump *pump, bool blocked)
{
    if (pump->blocked == blocked) return;
    pump->blocked = blocked;
    watch(pump);
}

/* Tells the core how many bytes came since it was last told. The core must be locked. */
static void report_received(pd_pump *pump, uint64_t now_ns)
{
    if (pump->received > 0) pd_core_received(pump->core, pump->received, now_ns);
    pump->received = 0;
}

static int on_header(void *arg, const pd_prefix *prefix, const uint8_t *header, struct iovec **spans, size_t *n)
{
    pd_pump *pump = arg;
    int rc;

    pump->enter(pump->arg);
    rc = pd_core_header(pump->core, prefix, header, spans, n);
    pump->leave(pump->arg);
    if (rc == PD_OK) pd_core_keep(pump->core);
    if (rc != PD_OK || (prefix->flags & PD_FLAG_SHARED) == 0) return rc;
    pd_core_copy(pump->core);
    /* the server leaves the weights in place until the connection ends: after that the copy may be of other weights */
    return pump->transport->ops->is_open(pump->transport) || PD_MUTANT(end_unseen) ? PD_OK : PD_CANCELLED;
}

static void on_payload(void *arg, const void *at, size_t n)
{
    pd_pump *pump = arg;

    pd_core_digest(pump->core, at, n);
}

static int on_frame(void *arg, const pd_prefix *prefix, const uint8_t *header)
{
    pd_pump *pump = arg;
    int rc;

    pd_core_digest_end(pump->core);
    pump->enter(pump->arg);
    if (prefix->method == PD_SHARE && pump->transport->ops->take != NULL)
        pd_descriptor_replace(&pump->core->sharing.taken, pump->transport->ops->take(pump->transport));
    rc = pd_core_frame(pump->core, prefix, header);
    pump->leave(pump->arg);
    return rc;
}

/* Receives at most READ_BYTES bytes. Returns whether the transport may have more bytes. */
static bool receive_slice(pd_pump *pump, uint64_t now_ns)
{
    struct iovec iov[READ_IOV];
    pd_error error;
    int n = pd_framer_space(pump->framer, iov, READ_IOV, READ_BYTES);
    ssize_t got = pump->transport->ops->receive(pump->transport, iov, n, &error);

    if (got == 0) return false;
    if (got > 0 && pd_framer_fed(pump->framer, (size_t)got) != PD_OK) {
        error = *pd_framer_error(pump->framer);
        got = -1;
    }
    if (got < 0) {
        pd_pump_lose(pump, now_ns, error.text);
        return false;
    }
    pump->received += (size_t)got;
    return (size_t)got == total(iov, n);
}

bool pd_pump_ready(pd_pump *pump, unsigned events, uint64_t now_ns)
{
    bool more = (events & (PD_ON_READ | PD_ON_GONE)) != 0;
    size_t before = pump->received;

    if (pump->transport == NULL) return false; /* the event is late: the connection was lost before */
    if ((events & PD_ON_WRITE) != 0) set_blocked(pump, false);
    for (int i = 0; i < READS && more; i++) more = receive_slice(pump, now_ns);
    if (pump->transport != NULL && pump->received > before) {
        pump->read_ns = now_ns;
        pd_transport_gather(pump->transport, pump->received - before, pd_framer_left(pump->framer));
    }
    return more;
}

/* Tells the core the time and how many bytes were received, and lists bytes to send in `iov`. Returns the number of its
 * entries. */
static int prepare(pd_pump *pump, struct iovec *iov, uint64_t now_ns)
{
    int n = 0, fd = -1;

    pump->enter(pump->arg);
    report_received(pump, now_ns);
    pd_core_tick(pump->core, now_ns);
    if (!pump->blocked) n = pd_core_output(pump->core, iov, SEND_IOV, SEND_BYTES);
    if (n > 0) fd = pd_descriptor_take(&pump->core->sharing.to_send);
    pump->leave(pump->arg);
    if (n > 0) pd_outgoing_fill(&pump->core->out);
    if (fd >= 0) pump->transport->ops->attach(pump->transport, fd);
    return n;
}

bool pd_pump_send(pd_pump *pump, uint64_t now_ns)
{
    struct iovec iov[SEND_IOV];
    pd_error error;
    int n = prepare(pump, iov, now_ns);
    ssize_t sent;

    if (now_ns >= pd_pump_next(pump)) pd_transport_ease(pump->transport);
    if (n == 0) return false;
    sent = pump->transport->ops->send(pump->transport, iov, n, &error);
    if (sent < 0) {
        pd_pump_lose(pump, now_ns, error.text);
        return false;
    }
    set_blocked(pump, (size_t)sent < total(iov, n));
    pump->enter(pump->arg);
    pd_core_sent(pump->core, (size_t)sent, now_ns);
    pump->leave(pump->arg);
    return !pump->blocked;
}

uint64_t pd_pump_next(const pd_pump *pump)
{
    return pump->transport != NULL && pump->transport->gathers > 1 ? pump->read_ns + PD_GATHER_MS * UINT64_C(1000000)
                                                                   : UINT64_MAX;
}

void pd_pump_lose(pd_pump *pump, uint64_t now_ns, const char *reason)
{
    if (pump->transport != NULL) pump->transport->ops->close(pump->transport);
    pump->transport = NULL;
    pump->enter(pump->arg);
    report_received(pump, now_ns);
    pd_core_down(pump->core, now_ns, reason);
    pump->leave(pump->arg);
    /* The framer is freed after pd_core_down, since it has the header of an answer that was being received. */
    pd_framer_free(pump->framer);
    pump->framer = NULL;
}

void pd_pump_open(pd_pump *pump, pd_transport *transport, uint64_t now_ns)
{
    const pd_framer_user user = { .arg = pump, .header = on_header, .payload = on_payload, .frame = on_frame };

    pump->transport = transport;
    pump->blocked = false;
    if ((pump->framer = pd_framer_new(&user, MAX_ANSWER)) == NULL) {
        pd_pump_lose(pump, now_ns, "out of memory");
        return;
    }
    watch(pump);
    pump->enter(pump->arg);
    pd_core_up(pump->core, transport->ops->take != NULL, now_ns);
    pump->leave(pump->arg);
}
