/* sim.h - one simulated run: a clock, a queue of events, a network, the server and its workers, in one thread.
 *
 * Events run in the order of their simulated time. Everything that a run does follows from its plan, so the same seed
 * gives the same trace. */
#ifndef SIM_H
#define SIM_H

#include <errno.h>
#include <math.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "sim_plan.h"
#include "transport.h"

typedef struct sim sim;
struct sim_digest; /* sim_judge.h */
typedef void (*sim_action)(sim *s, void *who, uint64_t what);

typedef struct sim_event {
    uint64_t at_ns, order, what;
    sim_action action;
    void *who;
} sim_event;

struct sim {
    const sim_plan *plan;
    uint64_t now_ns, random;
    sim_event *events;
    size_t n_events, room;
    uint64_t order, done;
    uint64_t hash; /* hash of the trace so far */
    bool tracing, calm, ended;
    struct sim_server *server; /* the first one */
    struct sim_server *servers[SIM_SERVERS];
    uint32_t n_servers;
    const char *identity;       /* of the peers that connect now; NULL: they are "anyone" */
    struct sim_worker *workers; /* all processes so far, newest first */
    struct sim_intruder *intruders;
    struct sim_exporter *exporters;
    struct sim_sharer *sharers;
    struct sim_scraper *scrapers;
    struct sim_launch *launches;   /* the workers with which each job was launched last: relaunch.c */
    struct sim_history *histories; /* histories of the jobs, which sim_judge.c keeps */
    struct sim_cluster *cluster;   /* of a plan with several servers: sim_cluster.h */
};

/* Runs a plan to its end and checks the invariants. If one is violated it does not return: sim_fail ends the
 * process. */
/* Returns the hash of the trace. `digest`, which may be NULL, receives the weights of the run: sim_judge.h. */
uint64_t sim_run(const sim_plan *plan, bool tracing, struct sim_digest *digest);
void sim_after(sim *s, uint64_t delay_ns, sim_action action, void *who, uint64_t what);
/* Adds a line to the trace. The line enters the hash whether it is printed or not. */
void sim_note(sim *s, const char *who, uint64_t number, const char *what, uint64_t a, uint64_t b);
/* Reports a violated invariant, and ends the process. */
_Noreturn void sim_fail(const char *invariant, const char *format, ...) __attribute__((format(printf, 2, 3)));
extern char *sim_report; /* memory for the report of sim_fail; shared with the process that runs many seeds */
enum { SIM_REPORT_BYTES = 1024 };

static inline uint64_t sim_draw(sim *s, uint64_t n)
{
    return sim_below(&s->random, n);
}
static inline bool sim_chance(sim *s, uint64_t n)
{
    return sim_once_in(&s->random, n);
}

typedef enum sim_side { SIM_HARNESS, SIM_SERVER, SIM_WORKER, SIM_SIDES } sim_side;
/* Counts allocations for `side` from now on. Returns the side for which they were counted before. */
sim_side sim_enter(sim_side side);
int64_t sim_live_bytes(sim_side side);
void sim_memory_reset(void);
/* Lets one of n allocations of the server fail, drawn with the seed `random`. n = 0: none fails. */
void sim_fail_allocations(uint64_t n, uint64_t random);
uint64_t sim_failed_allocations(void);
/* Switches failing allocations off (`held` true) or on again. Returns the previous setting. */
bool sim_hold_failures(bool held);
void *sim_must(void *at); /* fails the run if `at` is NULL, because the harness itself has no memory; returns `at` */

/* Sim_kernel.c: shared memory that the kernel refuses, and what is left at the end. */

/* Lets one of n kernel calls that make, map or pass shared memory fail, on both sides. n = 0: none fails. */
void sim_fail_sharing(uint64_t n, uint64_t random);
unsigned sim_count_descriptors(void); /* returns how many descriptors this process has open */
/* Hides from the server how much memory and processor time this process uses: these numbers differ in each run, and
 * /metrics has them. */
void sim_hide_costs(bool hides);
unsigned sim_count_segments(void); /* returns how many mappings of segments this process has */

typedef struct sim_link sim_link;
/* Makes a link to a server. *server and *client receive its two ends. Events at an end call its `ready`, in an event of
 * the simulation. `is_local`: it passes descriptors, as a Unix socket does. */
sim_link *sim_link_new(struct sim_server *to, sim *s, bool is_local, pd_transport **server, pd_transport **client);
/* breaks the link after `bytes` more bytes; both ends see it */
void sim_link_break_after(sim_link *link, uint64_t bytes);
void sim_links_break(const struct sim_server *to); /* breaks all links to a server; both ends of each see it */
/* cancels the breaks that sim_link_break_after has planned */
void sim_links_calm(void);
void sim_link_swallow(sim_link *link); /* lets nothing arrive from now on; neither end sees it */
/* returns the number of bytes that have arrived at this end and are not read yet */
uint64_t sim_link_owed(const pd_transport *end);
/* Calls `ready` of an end if an event has happened that the end watches for. Returns whether there was one. */
bool sim_end_poll(pd_transport *end);
/* Returns whether the server still uses the end: it has not closed it, or a mover has a direction of it. */
bool sim_end_open(const pd_transport *end);
bool sim_end_is_lent(const pd_transport *end);
/* Gives all directions that are lent back to the server at once. */
void sim_end_finish_passes(pd_transport *end);
void sim_links_free(sim *s);

#endif
