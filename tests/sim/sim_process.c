/* sim_process.c - runs the client library in a simulated process: plays client/lib/io.c, bell.c, and the clock. */
#include "sim_process.h"

#include "bell.h"
#include "follow.h"
#include "io.h"
#include "server.h"
#include "sock.h"

#include <math.h>
#include <sys/eventfd.h>
#include <time.h>

enum { FIRST_PORT = 7000, FIRST_FD = 1 << 20, WAKE_NS = 50000 };

/* The I/O thread of a handle. */
typedef struct thread {
    struct thread *next;
    sim_process *process;
    pd_io *io; /* NULL: it has ended */
    uint32_t shard;
    uint64_t tenure; /* highest tenure of the shard that its core has known */
    int number;      /* FIRST_FD + number: its event descriptor */
    sim_link *link;
    bool due;          /* a turn of it is an event */
    uint64_t alarm_ns; /* the earliest time for which its core has asked; UINT64_MAX: none */
} thread;

static thread *threads; /* of all processes of this run, also those that have ended; newest first */
static sim_process *running;
static const sim *world; /* the run; it gives the time */

/* ---- processes ---- */

static void resume(sim *s, void *who, uint64_t turn)
{
    sim_process *p = who, *before = running;
    sim_side side;

    (void)s;
    if (p->over || turn != p->turn) return;
    side = sim_enter(SIM_WORKER);
    running = p;
    p->waits = false;
    p->over = !fiber_run(p->fiber);
    running = before;
    sim_enter(side);
}

void sim_process_start(sim_process *p, sim *s, const char *identity, void (*body)(void *arg), void *arg)
{
    sim_side before = sim_enter(SIM_HARNESS);

    *p = (sim_process){ .s = s, .identity = identity };
    world = s;
    p->fiber = fiber_new(body, arg);
    sim_enter(before);
    resume(s, p, 0);
}

/* Lets the process wait until it is woken, or until a time of the simulation. */
static void wait_until(sim_process *p, uint64_t ns)
{
    sim_side before;

    if (p->killed) return;
    p->turn++;
    p->waits = true;
    if (ns < UINT64_MAX) sim_after(p->s, ns > p->s->now_ns ? ns - p->s->now_ns : 1000, resume, p, p->turn);
    before = sim_enter(SIM_HARNESS);
    fiber_give_way(p->fiber);
    sim_enter(before);
}

static void wake(sim_process *p)
{
    if (p->waits) sim_after(p->s, sim_draw(p->s, WAKE_NS), resume, p, p->turn);
}

void sim_process_sleep(uint64_t ns)
{
    uint64_t until = running->s->now_ns + ns;

    while (!running->killed && running->s->now_ns < until) wait_until(running, until);
}

void sim_process_end(sim_process *p)
{
    sim_side before = sim_enter(SIM_HARNESS);

    fiber_free(p->fiber);
    p->fiber = NULL;
    sim_enter(before);
}

uint64_t pd_clock_now_ns(void)
{
    if (running != NULL && running->killed) return world->now_ns + (running->dead_ns += 1000 * SIM_S);
    return world->now_ns;
}

int __wrap_nanosleep(const struct timespec *time, struct timespec *left);
int __wrap_nanosleep(const struct timespec *time, struct timespec *left)
{
    (void)left;
    sim_process_sleep((uint64_t)time->tv_sec * SIM_S + (uint64_t)time->tv_nsec);
    return 0;
}

void pd_bell_init(pd_bell *bell)
{
    pthread_mutex_init(&bell->lock, NULL);
}

void pd_bell_free(pd_bell *bell)
{
    pthread_mutex_destroy(&bell->lock);
}

/* Returns a time of pd_clock_seconds in nanoseconds, rounded up. */
static uint64_t ns_of(double seconds)
{
    return seconds < 1e9 ? (uint64_t)ceil(seconds * 1e9) : UINT64_MAX;
}

void pd_bell_wait(pd_bell *bell, double end)
{
    (void)bell;
    wait_until(running, ns_of(end));
}

/* ---- I/O threads ---- */

void sim_address(uint32_t shard, char text[32])
{
    snprintf(text, 32, "tcp://sim:%u", FIRST_PORT + shard);
}

static thread *thread_of(const pd_io *io)
{
    thread *t = threads;

    while (t->io != io) t = t->next;
    return t;
}

/* Rings for the waiters whose ticket is done, as io.c does when it unlocks the core. */
static void ring(thread *t)
{
    for (pd_waiter *waiter = t->io->waiters; waiter != NULL; waiter = waiter->next) {
        const pd_op *op;
        if (waiter->told || !pd_core_done(t->io->core, waiter->ticket)) continue;
        op = pd_op_find(t->io->core, waiter->ticket);
        waiter->failed = op != NULL && op->error.code != PD_OK;
        waiter->told = true;
        wake(t->process);
    }
}

static void turn(sim *s, void *who, uint64_t what);

static void schedule(thread *t, uint64_t delay_ns)
{
    if (t->due) return;
    t->due = true;
    sim_after(t->process->s, delay_ns, turn, t, 0);
}

static void on_alarm(sim *s, void *who, uint64_t at_ns)
{
    thread *t = who;

    if (t->alarm_ns != at_ns) return;
    t->alarm_ns = UINT64_MAX;
    turn(s, t, 1);
}

/* Wakes the thread at the time that its core asks for. */
static void set_alarm(thread *t)
{
    uint64_t at = pd_core_next(t->io->core), now = t->process->s->now_ns;

    if (at <= now) at = now + 1000;
    if (at >= t->alarm_ns) return;
    t->alarm_ns = at;
    sim_after(t->process->s, at - now, on_alarm, t, at);
}

static void enter_core(void *arg)
{
    (void)arg;
}

static void leave_core(void *arg)
{
    ring(thread_of(arg));
}

static void on_transport(void *arg, unsigned events);

static void connect_thread(thread *t)
{
    sim *s = t->process->s;
    uint32_t server = (uint32_t)atoi(t->io->urls[t->io->core->link.url].port) - FIRST_PORT;
    pd_transport *transport;

    s->identity = t->process->identity;
    transport = sim_server_connect(s->servers[server], false, &t->link);
    s->identity = NULL;
    if (transport == NULL) {
        pd_pump_lose(&t->io->pump, s->now_ns, "nobody listens");
        return;
    }
    transport->ready = on_transport;
    transport->arg = t;
    pd_pump_open(&t->io->pump, transport, s->now_ns);
}

/* Lets the core follow its shard, as io.c does, and checks that it never goes to an earlier owner. */
static void follow(thread *t)
{
    const pd_core *core = t->io->core;
    uint64_t changes = core->following.table != NULL ? pd_shard_table_changes(core->following.table) : 0;

    if (changes != t->io->followed && pd_core_follow(t->io->core, t->process->s->now_ns))
        t->io->urls = core->setup.addresses;
    t->io->followed = changes;
    if (core->following.tenure < t->tenure)
        sim_fail("one owner", "a worker goes to an owner of shard %u with tenure %llu, and knew one with %llu",
                 core->setup.shard, (unsigned long long)core->following.tenure, (unsigned long long)t->tenure);
    t->tenure = core->following.tenure;
}

/* Does what io.c does in a turn of its loop. */
static void carry(thread *t)
{
    sim *s = t->process->s;

    for (int i = 0; i < 3; i++) {
        pd_link link;
        follow(t);
        link = pd_core_link(t->io->core, s->now_ns);
        if (link == PD_LINK_CONNECT)
            connect_thread(t);
        else if (link == PD_LINK_DROP)
            pd_pump_lose(&t->io->pump, s->now_ns, "dropped");
        if (t->io->pump.transport == NULL) t->link = NULL;
        if (t->io->pump.transport != NULL)
            while (pd_pump_send(&t->io->pump, s->now_ns)) continue;
    }
    ring(t);
    set_alarm(t);
}

static void turn(sim *s, void *who, uint64_t what)
{
    thread *t = who;
    sim_side before = sim_enter(SIM_WORKER);

    (void)s;
    if (what == 0) t->due = false;
    if (t->io != NULL && !t->process->killed) carry(t);
    sim_enter(before);
}

static void on_transport(void *arg, unsigned events)
{
    thread *t = arg;
    sim_side before = sim_enter(SIM_WORKER);

    if (t->io != NULL && !t->process->killed) {
        while (pd_pump_ready(&t->io->pump, events, t->process->s->now_ns)) events = PD_ON_READ;
        carry(t);
    }
    sim_enter(before);
}

int pd_io_start(pd_io *io, pd_core *core, const pd_address *urls, size_t n_urls, const pd_secure *secure, pd_error *err)
{
    sim_side before = sim_enter(SIM_HARNESS);
    thread *t = sim_must(calloc(1, sizeof *t));

    (void)secure, (void)err;
    memset(io, 0, sizeof *io);
    io->core = core;
    io->urls = urls;
    (void)n_urls;
    io->done_fd = -1;
    io->pump = (pd_pump){ .core = core, .enter = enter_core, .leave = leave_core, .arg = io };
    *t = (thread){ .next = threads,
                   .process = running,
                   .io = io,
                   .shard = core->setup.shard,
                   .number = threads != NULL ? threads->number + 1 : 0,
                   .alarm_ns = UINT64_MAX };
    threads = t;
    io->wake_fd = io->move_fd = FIRST_FD + t->number;
    schedule(t, sim_draw(running->s, SIM_MS));
    sim_enter(before);
    return PD_OK;
}

void pd_io_stop(pd_io *io)
{
    thread *t = thread_of(io);

    pd_pump_lose(&io->pump, t->process->s->now_ns, "closed");
    t->io = NULL;
    t->link = NULL;
}

/* At times the I/O threads run before a thread of the user has the lock. */
void pd_io_enter(pd_io *io)
{
    (void)io;
    if (running != NULL && sim_chance(running->s, 16)) sim_process_sleep(1 + sim_draw(running->s, WAKE_NS));
}

void pd_io_leave(pd_io *io)
{
    thread *t = thread_of(io);

    ring(t);
    if (pd_core_has_output(io->core) || pd_core_next(io->core) <= t->process->s->now_ns)
        schedule(t, sim_draw(t->process->s, WAKE_NS));
    else
        set_alarm(t);
}

void pd_io_watch(pd_io *io, pd_waiter *waiter)
{
    pd_io_enter(io);
    pd_waiter_add(&io->waiters, waiter);
    pd_io_leave(io);
}

void pd_io_unwatch(pd_io *io, pd_waiter *waiter)
{
    pd_io_enter(io);
    pd_waiter_remove(&io->waiters, waiter);
}

bool pd_io_wait(pd_io *io, pd_ticket_id ticket, double seconds)
{
    double end = pd_clock_seconds() + seconds;
    pd_waiter waiter = { .ticket = ticket };

    pd_waiter_add(&io->waiters, &waiter);
    ring(thread_of(io));
    while (!pd_core_done(io->core, ticket) && pd_clock_seconds() < end) wait_until(running, ns_of(end));
    pd_waiter_remove(&io->waiters, &waiter);
    return pd_core_done(io->core, ticket);
}

void pd_io_lend_fd(pd_io *io, int fd)
{
    (void)io, (void)fd;
    sim_fail("harness", "no program of the simulator waits for a descriptor");
}

int pd_io_done_fd(pd_io *io)
{
    (void)io;
    sim_fail("harness", "no program of the simulator waits for a descriptor");
}

/* Settle_box.c wakes I/O threads by their event descriptors. */
int __wrap_eventfd_write(int fd, eventfd_t value);
int __wrap_eventfd_write(int fd, eventfd_t value)
{
    thread *t = threads;

    (void)value;
    while (t->number != fd - FIRST_FD) t = t->next;
    if (t->io != NULL) schedule(t, sim_draw(t->process->s, WAKE_NS));
    return 0;
}

int pd_secure_open(pd_secure *out, const pd_tls_files *files, const pd_address *urls, size_t n, pd_error *err)
{
    (void)files, (void)urls, (void)n, (void)err;
    memset(out, 0, sizeof *out);
    return PD_OK;
}

pd_tls_files pd_secure_files(const pd_secure *secure)
{
    (void)secure;
    return (pd_tls_files){ 0 };
}

void pd_secure_close(pd_secure *secure)
{
    (void)secure;
}

/* ---- the end ---- */

/* Breaks the connection of a thread whose process is killed, and ends its calls. */
static void end_thread(thread *t)
{
    static const pd_error why = { PD_INTERNAL, "the process is killed" };
    sim_side before = sim_enter(SIM_WORKER);

    pd_core_end(t->io->core, &why);
    pd_pump_lose(&t->io->pump, t->process->s->now_ns, why.text);
    t->link = NULL;
    ring(t);
    sim_enter(before);
}

void sim_process_kill(sim_process *p)
{
    if (p->over) return;
    p->killed = true;
    for (thread *t = threads; t != NULL; t = t->next)
        if (t->process == p && t->io != NULL) end_thread(t);
    resume(p->s, p, p->turn);
    if (!p->over) sim_fail("harness", "a killed process does not end");
}

sim_link *sim_process_link(const sim_process *p, uint32_t shard)
{
    for (const thread *t = threads; t != NULL; t = t->next)
        if (t->process == p && t->io != NULL && t->shard == shard) return t->link;
    return NULL;
}

void sim_process_describe(const sim_process *p)
{
    for (const thread *t = threads; t != NULL; t = t->next) {
        if (t->process != p || t->io == NULL) continue;
        printf("  shard %u: %s%s, its next time is %.3f s, wakes at %.3f s%s; %s; %s\n", t->shard,
               t->link == NULL ? "not connected" : "connected",
               pd_core_has_output(t->io->core) ? ", has more to send" : "", (double)pd_core_next(t->io->core) / 1e9,
               (double)t->alarm_ns / 1e9, t->due ? " or now" : "", t->io->core->link.reason,
               t->io->core->end.error.text);
    }
}

void sim_threads_free(void)
{
    while (threads != NULL) {
        thread *t = threads;
        threads = t->next;
        free(t);
    }
}
