/* server_state.h - what sim_loop.c (the loop thread's side) and sim_step.c (the step thread and the root pool) share of the simulated server. */
#ifndef SIM_SERVER_STATE_H
#define SIM_SERVER_STATE_H

#include "fairness.h"
#include "mailbox.h"
#include "rootqueue.h"
#include "server.h"
#include "turn.h"

enum { SIM_ENDS = 512, SIM_POOL = 8 };

struct sim_server {
    sim          *s;
    pd_daemon    *daemon;
    pd_store     *store;
    pd_mailbox   *requests;
    pd_turn       turn;
    pd_rootqueue *roots;
    sim_fairness  fairness;
    uint32_t      busy[2];              /* pool threads that work, by what they take (pd_rootqueue_choice) */
    pd_request   *running[SIM_POOL];    /* what they work on */
    pd_transport *ends[SIM_ENDS]; size_t n_ends;
    bool          loop_due, step_due, mail_due, listens, stopped;
    bool          dying;                /* the store is being dropped: its effects are not judged any more */
    uint32_t      n_background;         /* pieces of background work that are not done */
    bool          slow;                 /* in this turn of the loop time passes quickly */
    uint64_t      loop_not_before, step_not_before, stop_asked_ns;
    uint64_t      loop_spent_ns, step_clock_ns, step_timer;     /* step_timer: number of the last one that was set */
};

/* ---- sim_loop.c ---- */
/* The loop thread has stopped reading from the connection of that number until there is memory. */
bool sim_waits_for_memory(const sim_server *server, uint64_t conn);
uint64_t sim_bytes_in_flight(const sim_server *server);
/* True: no connection is owed anything, and nothing is on its way. *bytes: what the loop thread may hold then beside what jobs have committed. */
bool sim_loop_rests(const sim_server *server, uint64_t *bytes);

/* Makes the loop thread's state, over the mailbox of a store that was made; and ends it. */
void sim_loop_make(sim_server *server);
/* The loop thread has handled all effects that it took. */
bool sim_loop_is_caught_up(const sim_server *server);

/* ---- sim_step.c ---- */
void sim_step_make(sim_server *server);
/* Everything that is left is applied, jobs end, root tasks and snapshots come home. The loop thread has ended. */
void sim_step_end(sim_server *server);
/* Wakes the step thread. */
void sim_step_wake(sim_server *server);
void sim_step_check(const sim_server *server);
void sim_step_check_rest(const sim_server *server);
void sim_step_describe(const sim_server *server);
/* After every event; looks only when both threads have nothing to do and no mail. */
void sim_pressure_check(const sim_server *server);
void sim_check_zero(const char *what, uint64_t n);

#endif
