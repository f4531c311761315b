/* world.c - the queue of events, and one simulated run from its first event to its last check. */
#include "sim.h"

#include "sim_cluster.h"
#include "exporter.h"
#include "intruder.h"
#include "relaunch.h"
#include "sim_owner.h"
#include "scraper.h"
#include "sim_judge.h"
#include "server.h"
#include "sharer.h"
#include "worker.h"

#include <stdarg.h>

char *sim_report;
static const sim *running;

static bool earlier(const sim_event *a, const sim_event *b)
{
    return a->at_ns != b->at_ns ? a->at_ns < b->at_ns : a->order < b->order;
}

void sim_after(sim *s, uint64_t delay_ns, sim_action action, void *who, uint64_t what)
{
    sim_side before = sim_enter(SIM_HARNESS);
    sim_event event = { s->now_ns + delay_ns, s->order++, what, action, who };
    size_t at = s->n_events;

    if (s->n_events == s->room) {
        s->room = s->room * 2 + 256;
        s->events = sim_must(realloc(s->events, s->room * sizeof *s->events));
    }
    s->n_events++;
    for (; at > 0 && earlier(&event, &s->events[(at - 1) / 2]); at = (at - 1) / 2)
        s->events[at] = s->events[(at - 1) / 2];
    s->events[at] = event;
    sim_enter(before);
}

static sim_event next_event(sim *s)
{
    sim_event first = s->events[0], last = s->events[--s->n_events];
    size_t at = 0;

    for (size_t child; (child = 2 * at + 1) < s->n_events; at = child) {
        if (child + 1 < s->n_events && earlier(&s->events[child + 1], &s->events[child])) child++;
        if (!earlier(&s->events[child], &last)) break;
        s->events[at] = s->events[child];
    }
    s->events[at] = last;
    return first;
}

void sim_note(sim *s, const char *who, uint64_t number, const char *what, uint64_t a, uint64_t b)
{
    uint64_t text = 0;

    for (const char *c = what; *c != '\0'; c++) text = text * 31 + (uint8_t)*c;
    s->hash = sim_mix(s->hash ^ s->now_ns, text, number << 32 ^ a, b);
    if (s->tracing)
        printf("%10.6f  %s %llu %s %llu %llu\n", (double)s->now_ns / 1e9, who, (unsigned long long)number, what,
               (unsigned long long)a, (unsigned long long)b);
}

void sim_fail(const char *invariant, const char *format, ...)
{
    va_list args;
    size_t used;

    if (running != NULL && running->tracing) {
        sim_workers_describe(running);
        if (running->cluster != NULL) sim_cluster_describe(running);
        for (uint32_t i = 0; i < running->n_servers; i++) sim_server_describe(running->servers[i]);
    }
    fflush(stdout);
    if (sim_report != NULL) {
        used = (size_t)snprintf(sim_report, SIM_REPORT_BYTES, "%s: ", invariant);
        va_start(args, format);
        vsnprintf(sim_report + used, SIM_REPORT_BYTES - used, format, args);
        va_end(args);
    }
    _exit(1);
}

static void come_back(sim *s, const sim_fault *fault)
{
    sim_worker_start(s, &s->plan->jobs[fault->job], fault->rank, fault->amount);
}

static void hurt_connection(sim *s, const sim_fault *fault)
{
    sim_worker *w = sim_worker_at(s, fault->job, fault->rank);
    sim_link *link = w != NULL ? sim_worker_link(w) : NULL;

    if (link == NULL) return;
    if (fault->kind == SIM_BREAK)
        sim_link_break_after(link, fault->amount);
    else
        sim_link_swallow(link);
}

static void hurt_process(sim *s, const sim_fault *fault)
{
    sim_worker *w = sim_worker_at(s, fault->job, fault->rank);

    if (w == NULL) return;
    if (fault->kind == SIM_LEAVE)
        sim_worker_leave(w);
    else
        sim_worker_kill(w);
    if (fault->kind != SIM_GONE) come_back(s, fault);
}

static void stop_process(sim *s, const sim_fault *fault)
{
    sim_worker *w = sim_worker_at(s, fault->job, fault->rank);

    if (w != NULL) sim_worker_stop(w, fault->amount);
}

static void memory_is_back(sim *s, void *who, uint64_t what)
{
    (void)s, (void)who, (void)what;
    sim_fail_allocations(0, 0);
}

static void disk_is_well(sim *s, void *who, uint64_t what)
{
    (void)who;
    sim_server_trouble_disk(s->servers[what], 0, 0, false);
}

/* Returns the server that a fault hits. */
static sim_server *server_of(const sim *s, const sim_fault *fault)
{
    return s->cluster != NULL ? s->cluster->holder[fault->shard] : s->servers[fault->shard];
}

static void hurt_disk(sim *s, const sim_fault *fault)
{
    bool full = fault->kind == SIM_DISK_FULL, dies = fault->kind == SIM_DISK_DIES;
    sim_server *server = server_of(s, fault);

    sim_server_trouble_disk(server, full ? ENOSPC : EIO, full ? 1 : 3 + fault->amount % (dies ? 10 : 30), dies);
    sim_after(s, fault->amount, disk_is_well, s, sim_server_number(server));
}

static void hurt_server(sim *s, const sim_fault *fault)
{
    sim_server *server = server_of(s, fault);

    if (fault->kind == SIM_NO_MEMORY) {
        sim_fail_allocations(256, s->random);
        sim_after(s, fault->amount, memory_is_back, s, 0);
    } else if (fault->kind == SIM_KILL) {
        sim_owner_note_down(server, fault->down_ns);
        sim_server_kill_in(server, fault->amount);
    } else if (fault->kind == SIM_RESTART) {
        sim_server_restart(server, fault->amount);
    } else {
        sim_server_stall(server, fault->kind == SIM_STALL_LOOP, fault->amount);
    }
}

static void begin_fault(sim *s, void *who, uint64_t what)
{
    const sim_fault *fault = who;

    (void)what;
    sim_note(s, "fault", fault->rank, sim_fault_name(fault->kind), fault->job, fault->amount);
    if (s->cluster != NULL && (fault->kind == SIM_BREAK || fault->kind == SIM_HOLE || fault->kind == SIM_CRASH)) {
        sim_cluster_hurt(s, fault);
        return;
    }
    switch (fault->kind) {
    case SIM_BREAK:
    case SIM_HOLE: hurt_connection(s, fault); break;
    case SIM_CRASH:
    case SIM_GONE:
    case SIM_LEAVE: hurt_process(s, fault); break;
    case SIM_STOP: stop_process(s, fault); break;
    case SIM_REFORM: sim_relaunch_again_beside(s, &s->plan->jobs[fault->job]); break;
    case SIM_NO_MEMORY:
    case SIM_STALL_STEP:
    case SIM_STALL_LOOP:
    case SIM_KILL:
    case SIM_RESTART: hurt_server(s, fault); break;
    case SIM_DISK_FULL:
    case SIM_DISK_FAIL:
    case SIM_DISK_DIES: hurt_disk(s, fault); break;
    case SIM_SLEEP:
    case SIM_CUT_OFF:
    case SIM_ENGINE_AWAY: sim_owner_hurt(server_of(s, fault), fault); break;
    case SIM_LATE_WATCH: sim_owner_hurt(s->servers[fault->shard], fault); break;
    case SIM_EXPORT: sim_exporter_start(s, fault); break;
    case SIM_SHARER: sim_sharer_start(s, fault); break;
    case SIM_SCRAPE: sim_scraper_start(s, fault); break;
    default: sim_intruder_start(s, fault); break;
    }
}

static void become_calm(sim *s, void *who, uint64_t what)
{
    (void)who, (void)what;
    s->calm = true;
    sim_links_calm();
    for (uint32_t i = 0; s->plan->crashes && i < s->n_servers; i++) sim_server_end_trouble(s->servers[i]);
    sim_note(s, "world", 0, "is calm", 0, 0);
    if (s->plan->drains) sim_server_interrupt(s->server);
}

static void look(sim *s, void *who, uint64_t what)
{
    (void)who, (void)what;
    if (s->calm) {
        if (s->cluster != NULL) sim_cluster_check(s);
        sim_workers_check(s);
        sim_intruders_check(s);
        sim_sharers_check(s);
    }
    sim_scrapers_check(s);
    if (!s->ended) sim_after(s, 500 * SIM_MS, look, s, 0);
}

static void begin(sim *s)
{
    if (s->cluster != NULL) sim_cluster_begin(s);
    for (uint32_t j = 0; s->cluster == NULL && j < s->plan->n_jobs; j++) {
        const sim_job *job = &s->plan->jobs[j];
        for (uint32_t rank = 0; rank < job->world; rank++)
            sim_worker_start(s, job, rank, job->start_ns + sim_draw(s, s->plan->crowded ? 2 * SIM_MS : 50 * SIM_MS));
    }
    for (uint32_t f = 0; f < s->plan->n_faults; f++)
        sim_after(s, s->plan->faults[f].at_ns, begin_fault, (void *)&s->plan->faults[f], 0);
    sim_after(s, s->plan->calm_ns, become_calm, s, 0);
    sim_after(s, 500 * SIM_MS, look, s, 0);
}

static void run_until(sim *s, bool (*over)(const sim *s), uint64_t deadline_ns, const char *what)
{
    while (!over(s)) {
        sim_event event;
        if (s->n_events == 0 || s->now_ns > deadline_ns)
            sim_fail("liveness", "%s after %.0f s", what, (double)s->now_ns / 1e9);
        event = next_event(s);
        s->now_ns = event.at_ns;
        s->done++;
        event.action(s, event.who, event.what);
        for (uint32_t i = 0; i < s->n_servers; i++) sim_server_check(s->servers[i]);
    }
}

static bool all_worked(const sim *s)
{
    if (s->cluster != NULL) return s->calm && sim_cluster_is_over(s);
    return s->calm && (sim_workers_done(s) || (s->plan->drains && sim_server_stopped(s->server)));
}

static bool is_stopped(const sim *s)
{
    for (uint32_t i = 0; i < s->n_servers; i++)
        if (!sim_server_stopped(s->servers[i])) return false;
    return true;
}

static uint64_t rest_ns; /* time at which the server must have forgotten all ended jobs */
static bool has_rested(const sim *s)
{
    return s->now_ns >= rest_ns || is_stopped(s);
}

static void wake_later(sim *s, void *who, uint64_t what)
{
    (void)s, (void)who, (void)what;
}

static void come_to_rest(sim *s)
{
    sim_intruders_leave(s);
    sim_exporters_leave(s);
    sim_sharers_leave(s);
    sim_scrapers_leave(s);
    sim_owners_rest(s);
    rest_ns = s->now_ns + (s->cluster != NULL ? 40 : 12) * SIM_S + 200 * s->plan->root_ns;
    sim_after(s, rest_ns - s->now_ns, wake_later, s, 0);
    run_until(s, has_rested, UINT64_MAX, "the server does not come to rest");
    for (uint32_t i = 0; i < s->n_servers; i++)
        if (!sim_server_stopped(s->servers[i])) sim_server_check_rest(s->servers[i]);
}

/* Checks that the run has closed all its descriptors and unmapped all segments of shared memory. */
static void check_left(unsigned descriptors)
{
    unsigned now = sim_count_descriptors(), segments = sim_count_segments();

    if (now != descriptors) sim_fail("accounting", "%u descriptors were open before, %u are now", descriptors, now);
    if (segments != 0) sim_fail("accounting", "%u segments of shared memory are mapped at the end", segments);
}

uint64_t sim_run(const sim_plan *plan, bool tracing, sim_digest *digest)
{
    sim s = { .plan = plan, .random = plan->seed ^ 0x51a1ull, .tracing = tracing };
    uint64_t hash;
    unsigned descriptors = sim_count_descriptors();

    running = &s;
    sim_memory_reset();
    sim_fail_sharing(plan->share_fails, plan->seed);
    sim_hide_costs(plan->scrapes);
    sim_enter(SIM_HARNESS);
    for (uint32_t i = 0; i < (plan->shards > 0 ? plan->shards + plan->spares : 1); i++) {
        s.servers[i] = sim_server_new(&s, i);
        s.n_servers++;
    }
    s.server = s.servers[0];
    if (plan->shards > 0) sim_cluster_new(&s);
    sim_relaunch_begin(&s);
    begin(&s);
    run_until(&s, all_worked, plan->calm_ns + 600 * SIM_S, "workers have not finished");
    if (!sim_server_draining(s.server)) {
        come_to_rest(&s);
        for (uint32_t i = 0; i < s.n_servers; i++) sim_server_interrupt(s.servers[i]);
    }
    run_until(&s, is_stopped, UINT64_MAX, "the server does not stop");
    s.ended = true;
    running = NULL;
    sim_workers_free(&s);
    sim_relaunch_free(&s);
    sim_intruders_free(&s);
    sim_exporters_free(&s);
    sim_sharers_free(&s);
    sim_scrapers_free(&s);
    sim_judge_all(&s);
    if (digest != NULL) sim_judge_digest(&s, digest);
    if (s.cluster != NULL) sim_cluster_check_end(&s);
    if (s.cluster != NULL) sim_cluster_free(&s);
    while (s.n_servers > 0) sim_server_free(s.servers[s.n_servers - 1]);
    sim_judge_free(&s);
    sim_links_free(&s);
    free(s.events);
    check_left(descriptors);
    hash = s.hash;
    return hash;
}
