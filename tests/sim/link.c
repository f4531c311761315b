/* link.c - a simulated connection. Bytes arrive late and in pieces. The connection may break at any byte, or fall
 * silent. A local link also passes file descriptors, as a Unix socket does. */
#include "server.h"
#include "sim.h"
#include "sim_mover.h"

/* A descriptor that is under way, or has arrived and is not read yet. */
typedef struct passed {
    struct passed *next;
    int fd;
    uint64_t at; /* number of the byte of the stream that it goes with */
} passed;

typedef struct end {
    pd_transport transport; /* must be the first field: a transport is cast to its end */
    struct sim_link *link;
    uint8_t *at;                       /* buffer with the bytes that were sent to this end */
    size_t room, head, arrived, tail;  /* at[head..arrived) can be read, at[arrived..tail) is under way */
    bool ended, end_arrived;           /* ended: the other end has closed; end_arrived: this end knows it */
    bool closed, serves, moving, told; /* moving: an arrival is scheduled; told: a call of `ready` is */
    unsigned watched;
    uint64_t gone;       /* number of bytes of the stream before at[0] */
    passed *passing;     /* descriptors for this end, oldest first */
    int taken, attached; /* descriptors: the last one that this end has read; the one that goes with the next byte that
                          * it sends. -1: none */
    unsigned lent;       /* directions that the server has lent to movers */
    sim_pass *passes[2]; /* the movers' passes: one that receives, one that sends; NULL: none */
    bool passing_bytes;  /* a pass of a mover calls receive or send */
} end;

struct sim_link {
    sim *s;
    sim_server *to;
    end end[2];
    uint64_t left; /* number of bytes that still arrive before the link breaks */
    bool broken, swallows, local;
    bool whole;           /* only one thread at a time may use the server's end, as with TLS */
    const char *identity; /* of the client; NULL: it proves none */
    struct sim_link *next;
};

static sim_link *all; /* all links of this run */

static end *other(const end *e)
{
    return &e->link->end[e == &e->link->end[0] ? 1 : 0];
}

static void close_descriptor(int *fd)
{
    if (*fd >= 0) close(*fd);
    *fd = -1;
}

/* Closes the descriptors for this end that go with byte number `from` of the stream or a later one. */
static void lose_descriptors(end *e, uint64_t from)
{
    for (passed **at = &e->passing; *at != NULL;) {
        passed *one = *at;
        if (one->at < from) {
            at = &one->next;
            continue;
        }
        *at = one->next;
        close(one->fd);
        free(one);
    }
}

/* Hands this end the descriptors that go with the bytes that it has read. It keeps the last one. */
static void take_passed(end *e)
{
    while (e->passing != NULL && e->passing->at < e->gone + e->head) {
        passed *one = e->passing;
        e->passing = one->next;
        close_descriptor(&e->taken);
        e->taken = one->fd;
        free(one);
    }
}

/* Sends the attached descriptor with the byte that is sent next. */
static void pass_attached(end *e, end *to)
{
    passed *one, **last = &to->passing;

    if (e->attached < 0) return;
    one = sim_must(malloc(sizeof *one));
    *one = (passed){ .fd = e->attached, .at = to->gone + to->tail };
    e->attached = -1;
    while (*last != NULL) last = &(*last)->next;
    *last = one;
}

static size_t free_room(const end *to)
{
    return to->link->s->plan->window - (to->tail - to->head);
}

static unsigned happened(const end *e)
{
    unsigned events = 0;

    if (e->arrived > e->head || e->end_arrived || e->link->broken) events |= PD_ON_READ;
    if (e->link->broken || (!other(e)->closed && free_room(other(e)) > 0)) events |= PD_ON_WRITE;
    if (e->link->broken || e->end_arrived) events |= PD_ON_GONE;
    if (e->lent == (PD_ON_READ | PD_ON_WRITE) && e->link->whole) return 0;
    return events & (e->watched | (e->link->broken ? PD_ON_GONE : 0)) & ~e->lent;
}

/* Gives the server the directions back whose passes have ended. Returns whether there were any. */
static bool take_passes(end *e)
{
    bool any = false;

    for (int i = 0; i < 2; i++) {
        const pd_moved *moved = e->passes[i] != NULL ? sim_pass_result(e->passes[i]) : NULL;
        if (moved == NULL) continue;
        e->passes[i] = NULL;
        e->lent &= e->link->whole ? 0 : ~moved->direction;
        e->transport.moved(e->transport.arg, moved);
        any = true;
    }
    return any;
}

bool sim_end_poll(pd_transport *transport)
{
    end *e = (end *)transport;
    bool any = take_passes(e);
    unsigned events = e->closed ? 0 : happened(e);

    if (transport->ready == NULL) return false; /* nobody listens at this end yet */
    if (events != 0) transport->ready(transport->arg, events);
    return any || events != 0;
}

bool sim_end_open(const pd_transport *transport)
{
    return !((const end *)transport)->closed || ((const end *)transport)->lent != 0;
}

bool sim_end_is_lent(const pd_transport *transport)
{
    return ((const end *)transport)->lent != 0;
}

void sim_end_finish_passes(pd_transport *transport)
{
    end *e = (end *)transport;

    for (int i = 0; i < 2; i++)
        if (e->passes[i] != NULL) sim_pass_finish(e->passes[i]);
    take_passes(e);
}

/* Checks that the server does not use a direction that is lent. */
static void check_unlent(const end *e, unsigned direction, const char *call)
{
    if ((e->lent & direction) != 0 && !e->passing_bytes)
        sim_fail("movers", "the server calls %s of a direction that is lent to a mover", call);
}
uint64_t sim_link_owed(const pd_transport *transport)
{
    return ((const end *)transport)->arrived - ((const end *)transport)->head;
}

static void poke(end *e);

/* Calls `ready` of an end. Bytes may have arrived together with the stream's end, or before the link broke: as a poll
 * of a socket would, the end is told once more when it has read them. */
static void call_ready(sim *s, void *who, uint64_t what)
{
    end *e = who;
    bool had_bytes = e->arrived > e->head;

    (void)s, (void)what;
    e->told = false;
    sim_end_poll(&e->transport);
    if (had_bytes && e->arrived == e->head) poke(e);
}

/* Schedules a turn of the server's loop or a call of the worker's `ready`, if an event waits at this end. A worker at a
 * local link is slow at times, so that the server may be ahead of it. */
static void poke(end *e)
{
    if (e->closed || e->told || happened(e) == 0) return;
    if (e->serves) {
        sim_server_wake_loop(e->link->to);
        return;
    }
    e->told = true;
    sim_after(e->link->s, sim_draw(e->link->s, e->link->local && sim_chance(e->link->s, 4) ? 20 * SIM_MS : 50000),
              call_ready, e, 0);
}

static void break_link(sim_link *link)
{
    sim_side before = sim_enter(SIM_HARNESS);

    link->broken = true;
    sim_note(link->s, "link", 0, "breaks", 0, 0);
    for (int i = 0; i < 2; i++) lose_descriptors(&link->end[i], link->end[i].gone + link->end[i].arrived);
    sim_enter(before);
    poke(&link->end[0]);
    poke(&link->end[1]);
}

void sim_links_break(const sim_server *to)
{
    for (sim_link *link = all; link != NULL; link = link->next)
        if (link->to == to) break_link(link);
}

void sim_links_calm(void)
{
    for (sim_link *link = all; link != NULL; link = link->next) link->left = UINT64_MAX;
}

static void arrive(sim *s, void *who, uint64_t what);

static void plan_arrival(end *e)
{
    sim *s = e->link->s;

    if (e->moving || e->link->swallows || e->link->broken || (e->arrived == e->tail && e->ended == e->end_arrived))
        return;
    e->moving = true;
    sim_after(s, 1000 + sim_draw(s, sim_chance(s, 8) ? s->plan->latency_ns : s->plan->latency_ns / 16 + 1), arrive, e,
              0);
}

/* Lets bytes under way arrive: usually all of them, sometimes only some. */
static void arrive(sim *s, void *who, uint64_t what)
{
    end *e = who;
    size_t n = e->tail - e->arrived;

    (void)what;
    e->moving = false;
    if (e->link->swallows || e->link->broken) return;
    if (n > 1 && sim_chance(s, 3)) n = 1 + (size_t)sim_draw(s, n);
    if (n >= e->link->left) {
        e->arrived += e->link->left;
        break_link(e->link);
        return;
    }
    e->link->left -= n;
    e->arrived += n;
    if (e->arrived == e->tail) e->end_arrived = e->ended;
    poke(e);
    plan_arrival(e);
}

static ssize_t link_receive(pd_transport *transport, const struct iovec *iov, int n, pd_error *err)
{
    end *e = (end *)transport;
    size_t before = e->head;

    check_unlent(e, PD_ON_READ, "receive");
    for (int i = 0; i < n && e->head < e->arrived; i++) {
        size_t some = e->arrived - e->head < iov[i].iov_len ? e->arrived - e->head : iov[i].iov_len;
        memcpy(iov[i].iov_base, e->at + e->head, some);
        e->head += some;
    }
    if (e->head > before) {
        sim_side side = sim_enter(SIM_HARNESS);
        take_passed(e);
        sim_enter(side);
        poke(other(e)); /* there is free space again, so the other end can send */
        return (ssize_t)(e->head - before);
    }
    if (e->link->broken) return pd_fail(err, PD_UNAVAILABLE, "connection reset by peer");
    return e->end_arrived ? PD_CANCELLED : 0;
}

static void make_room(end *to, size_t more)
{
    sim_side before = sim_enter(SIM_HARNESS);

    if (to->head > 0) memmove(to->at, to->at + to->head, to->tail - to->head);
    to->gone += to->head;
    to->arrived -= to->head;
    to->tail -= to->head;
    to->head = 0;
    if (to->tail + more > to->room) {
        to->room = 2 * (to->tail + more);
        to->at = sim_must(realloc(to->at, to->room));
    }
    sim_enter(before);
}

static void pass(end *e, end *to)
{
    sim_side before = sim_enter(SIM_HARNESS);

    pass_attached(e, to);
    sim_enter(before);
}

static ssize_t link_send(pd_transport *transport, const struct iovec *iov, int n, pd_error *err)
{
    end *e = (end *)transport, *to = other(e);
    size_t room, sent = 0;

    check_unlent(e, PD_ON_WRITE, "send");
    if (e->link->broken || to->closed) return pd_fail(err, PD_UNAVAILABLE, "connection reset by peer");
    room = free_room(to);
    if (room > 1 && sim_chance(e->link->s, 4)) room = 1 + (size_t)sim_draw(e->link->s, room);
    make_room(to, room);
    if (room > 0) pass(e, to);
    for (int i = 0; i < n && room > 0; i++) {
        size_t some = iov[i].iov_len < room ? iov[i].iov_len : room;
        memcpy(to->at + to->tail, iov[i].iov_base, some);
        to->tail += some;
        room -= some;
        sent += some;
    }
    plan_arrival(to);
    return (ssize_t)sent;
}

static void link_watch(pd_transport *transport, unsigned events)
{
    end *e = (end *)transport;

    e->watched = events;
    poke(e);
}

static void link_shut(pd_transport *transport)
{
    end *to = other((end *)transport);

    check_unlent((end *)transport, PD_ON_WRITE, "shut");
    to->ended = true;
    plan_arrival(to);
}

/* Closes an end. Bytes that it has not read are lost. If there are such bytes, the other end may see a reset instead of
 * an end of the stream. */
static void link_close(pd_transport *transport)
{
    end *e = (end *)transport;

    sim_side before = sim_enter(SIM_HARNESS);

    e->closed = true;
    close_descriptor(&e->taken);
    close_descriptor(&e->attached);
    lose_descriptors(e, 0);
    sim_enter(before);
    if (e->tail > e->head && sim_chance(e->link->s, 2)) {
        break_link(e->link);
        return;
    }
    other(e)->ended = true;
    plan_arrival(other(e));
}

/* Receives or sends for a mover. A socket that was closed meanwhile is shut, so nothing can be sent any more. */
static ssize_t move(pd_transport *transport, bool sends, const struct iovec *iov, int n, pd_error *err)
{
    end *e = (end *)transport;
    ssize_t moved;

    if (e->closed && (sends || sim_chance(e->link->s, 2))) return pd_fail(err, PD_UNAVAILABLE, "shut");
    e->passing_bytes = true;
    moved = sends ? link_send(transport, iov, n, err) : link_receive(transport, iov, n, err);
    e->passing_bytes = false;
    return moved;
}

static ssize_t move_in(pd_transport *transport, const struct iovec *iov, int n, pd_error *err)
{
    return move(transport, false, iov, n, err);
}

static ssize_t move_out(pd_transport *transport, const struct iovec *iov, int n, pd_error *err)
{
    return move(transport, true, iov, n, err);
}

/* Lends a direction to a simulated mover, or not, if few bytes wait. */
static unsigned link_lend(pd_transport *transport, unsigned direction, const struct iovec *iov, int n)
{
    end *e = (end *)transport;
    bool sends = direction == PD_ON_WRITE;

    check_unlent(e, direction, "lend");
    if (sim_chance(e->link->s, 4)) return 0;
    e->passes[sends] = sim_pass_new(e->link->to, e->link->s, transport, direction, sends ? move_out : move_in, iov, n);
    e->lent |= e->link->whole ? PD_ON_READ | PD_ON_WRITE : direction;
    return e->link->whole ? PD_ON_READ | PD_ON_WRITE : direction;
}

static void link_attach(pd_transport *transport, int fd)
{
    end *e = (end *)transport;

    close_descriptor(&e->attached);
    e->attached = fd;
}

static int link_take(pd_transport *transport)
{
    end *e = (end *)transport;
    int fd = e->taken;

    e->taken = -1;
    return fd;
}

static bool link_is_open(pd_transport *transport)
{
    const end *e = (const end *)transport;

    return !e->ended && !e->link->broken;
}

static void link_identity(const pd_transport *transport, pd_identity *identity)
{
    const sim_link *link = ((const end *)transport)->link;

    pd_identity_set(identity, link->identity != NULL ? PD_IDENTITY_TOKEN : PD_IDENTITY_NONE, link->identity);
}

static const pd_transport_ops plain = { .receive = link_receive,
                                        .send = link_send,
                                        .watch = link_watch,
                                        .shut = link_shut,
                                        .close = link_close,
                                        .identity = link_identity,
                                        .lend = link_lend };
static const pd_transport_ops local = { .receive = link_receive,
                                        .send = link_send,
                                        .watch = link_watch,
                                        .shut = link_shut,
                                        .close = link_close,
                                        .attach = link_attach,
                                        .take = link_take,
                                        .is_open = link_is_open,
                                        .identity = link_identity };

sim_link *sim_link_new(sim_server *to, sim *s, bool is_local, pd_transport **server, pd_transport **client)
{
    sim_side before = sim_enter(SIM_HARNESS);
    sim_link *link = sim_must(calloc(1, sizeof *link));

    link->s = s;
    link->to = to;
    link->left = UINT64_MAX;
    link->local = is_local;
    link->identity = s->identity;
    link->whole = s->plan->movers && sim_chance(s, 2);
    for (int i = 0; i < 2; i++) {
        link->end[i].link = link;
        link->end[i].transport.ops = is_local ? &local : &plain;
        link->end[i].taken = link->end[i].attached = -1;
        link->end[i].serves = i == 0;
    }
    *server = &link->end[0].transport;
    *client = &link->end[1].transport;
    link->next = all;
    all = link;
    sim_enter(before);
    return link;
}

void sim_link_break_after(sim_link *link, uint64_t bytes)
{
    link->left = bytes;
    if (bytes == 0) break_link(link);
}

void sim_link_swallow(sim_link *link)
{
    link->swallows = true;
}

void sim_links_free(sim *s)
{
    (void)s;
    sim_passes_free();
    while (all != NULL) {
        sim_link *link = all;
        all = link->next;
        free(link->end[0].at);
        free(link->end[1].at);
        free(link);
    }
}
