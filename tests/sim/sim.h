/* sim.h - one simulated run: a clock, a queue of events, a network, the server and its workers, in one thread.
 *
 * Events run in the order of their simulated time. Everything that a run does follows from its plan, so the same seed gives the same trace. */
#ifndef SIM_H
#define SIM_H

#include "sim_plan.h"
#include "transport.h"

#include <stddef.h>

typedef struct sim sim;
typedef void (*sim_action)(sim *s, void *who, uint64_t what);

typedef struct sim_event { uint64_t at_ns, order, what; sim_action action; void *who; } sim_event;

struct sim {
    const sim_plan *plan;
    uint64_t    now_ns, random;
    sim_event  *events; size_t n_events, room; uint64_t order, done;
    uint64_t    hash;                   /* of the trace so far */
    bool        tracing, calm, ended;
    struct sim_server   *server;
    struct sim_worker   *workers;       /* all processes so far, newest first */
    struct sim_intruder *intruders;
    struct sim_history  *histories;     /* what each job published: sim_judge.h */
};

/* ---- world.c ---- */
/* Runs a plan to its end and checks the invariants. Does not return where one is violated: sim_fail ends the process. */
uint64_t sim_run(const sim_plan *plan, bool tracing);        /* gives the hash of the trace */
void sim_after(sim *s, uint64_t delay_ns, sim_action action, void *who, uint64_t what);
/* A line of the trace; it enters the hash whether it is printed or not. */
void sim_note(sim *s, const char *who, uint64_t number, const char *what, uint64_t a, uint64_t b);
/* An invariant is violated. Reports it and ends the process. */
_Noreturn void sim_fail(const char *invariant, const char *format, ...) __attribute__((format(printf, 2, 3)));
extern char *sim_report;                /* where sim_fail writes; shared with the process that runs many seeds */
enum { SIM_REPORT_BYTES = 1024 };

static inline uint64_t sim_draw(sim *s, uint64_t n) { return sim_below(&s->random, n); }
static inline bool     sim_chance(sim *s, uint64_t n) { return sim_once_in(&s->random, n); }

/* ---- sim_memory.c: whose code runs, what it holds, and allocations that fail ---- */
typedef enum sim_side { SIM_HARNESS, SIM_SERVER, SIM_WORKER, SIM_SIDES } sim_side;
/* From now on allocations count for `side`. Gives the side before. */
sim_side sim_enter(sim_side side);
int64_t  sim_live_bytes(sim_side side);
void     sim_memory_reset(void);
/* One of n allocations of the server fails, drawn from `random`; 0: none does. */
void     sim_fail_allocations(uint64_t n, uint64_t random);
uint64_t sim_failed_allocations(void);
/* While held no allocation fails. Gives what was before. */
bool     sim_hold_failures(bool held);
void    *sim_must(void *at);            /* the harness's own memory must be there */

/* ---- link.c: connections ---- */
typedef struct sim_link sim_link;
/* Connects: gives the two ends. `ready` of each end is called through sim_after. */
sim_link *sim_link_new(sim *s, pd_transport **server, pd_transport **client);
void sim_link_break_after(sim_link *link, uint64_t bytes);      /* both sides see it broken */
void sim_links_break(void);                                     /* all of them: both sides see it broken */
void sim_links_calm(void);                                      /* cancels what sim_link_break_after has planned */
void sim_link_swallow(sim_link *link);                          /* nothing arrives any more, and nobody is told */
uint64_t sim_link_owed(const pd_transport *end);                /* bytes that have arrived at this end and are not read */
/* Calls `ready` of an end of the server for what it waits for. */
bool sim_end_poll(pd_transport *end);
bool sim_end_open(const pd_transport *end);
void sim_links_free(sim *s);

#endif
