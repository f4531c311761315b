/* server_state.h - the state of the simulated server that sim_loop.c (the loop thread's side) and sim_step.c (the
 * step thread and the preconditioner pool) share. */
#ifndef SIM_SERVER_STATE_H
#define SIM_SERVER_STATE_H

#include "checkpoint_files.h"
#include "fairness.h"
#include "mailbox.h"
#include "precond_queue.h"
#include "server.h"
#include "turn.h"

#define SIM_STATE_DIR "/state" /* directory of checkpoints on the simulated disk */
enum { SIM_ENDS = 512, SIM_POOL = 8, SIM_ERRANDS = 256, SIM_KEPT = 16, SIM_LOGGED = 64 };

struct sim_server {
    sim *s;
    uint32_t number;         /* of the server; 0: it may be the only one */
    int shard;               /* number of the shard whose jobs it has; -1: it has none (yet) */
    struct sim_owner *owner; /* its place in the cluster; NULL: there are no spares (sim_owner.h) */
    uint64_t asleep_ns;      /* time until which all its threads sleep */
    pd_daemon *daemon;
    pd_store *store;
    pd_mailbox *requests;
    pd_turn turn;
    pd_precond_queue *roots;
    sim_fairness fairness;
    uint32_t busy[2];              /* number of busy pool threads, by pd_precond_queue_choice */
    pd_request *running[SIM_POOL]; /* tasks that pool threads are running */
    pd_transport *ends[SIM_ENDS];
    size_t n_ends;
    bool loop_due, step_due, mail_due, listens, stopped;
    bool dying;            /* the store is being ended for a restart: its effects are not checked any more */
    uint32_t n_background; /* number of background tasks that are not finished, and the tasks */
    pd_background *errands[SIM_ERRANDS];
    bool slow; /* in this turn of the loop, each reading of the clock shows a later time */
    uint64_t loop_not_before, step_not_before, stop_asked_ns;
    uint64_t loop_spent_ns, step_clock_ns, step_timer; /* step_timer: number of the step thread's last timer */
    uint64_t life;         /* how often the server was killed: events of an earlier process do nothing */
    uint64_t starts;       /* number of processes of the server so far */
    struct sim_disk *disk; /* survives the server; NULL: no plan with crashes */
    pd_checkpoint_image *checkpoints[SIM_KEPT]; /* those that wait for the checkpoint writer, the oldest first */
    size_t n_checkpoints;
    char tidy_dir[128];                 /* directory of the job whose older checkpoints are removed next; "": none */
    pd_retention tidy_retention;        /* which stay */
    pd_go_back_order *order;            /* the order to go back that waits for the checkpoint writer; NULL: none */
    pd_wal_record *records[SIM_LOGGED]; /* those that wait for the WAL thread, the oldest first */
    size_t n_records;
    bool checkpoints_due, records_due; /* the writer has an event */
    struct pd_wal_writer *wal;         /* of this process; NULL: it has written no record yet */
};

/* Returns whether the loop thread has stopped reading from a connection until memory is free. */
bool sim_waits_for_memory(const sim_server *server, uint64_t conn);
uint64_t sim_bytes_in_flight(const sim_server *server);
/* Returns whether the loop thread is idle: no connection waits for an answer, and nothing is on its way. *bytes
 * receives the most memory that the loop thread may use when idle, besides the memory that is committed to jobs. */
bool sim_loop_rests(const sim_server *server, uint64_t *bytes);

/* Does at once what is left of the loop thread's background work, once all connections are closed. */
void sim_loop_finish_background(sim_server *server);
/* Ends the movers: all directions that they have are given back. */
void sim_loop_end_movers(sim_server *server);
/* Creates the loop thread's state. The store's mailbox must exist. */
void sim_loop_make(sim_server *server);
/* Returns whether the loop thread has handled all effects that it took. */
bool sim_loop_is_caught_up(const sim_server *server);

void sim_step_make(sim_server *server);
/* Ends the step thread, after the loop thread. Applies all requests, ends the jobs, takes preconditioner tasks and
 * published versions back, and frees the store. */
void sim_step_end(sim_server *server);
/* Posts a request to the step thread. */
void sim_step_post(sim_server *server, pd_request *request);
/* Wakes the step thread. */
void sim_step_wake(sim_server *server);
void sim_step_check(const sim_server *server);
void sim_step_check_rest(const sim_server *server);
void sim_step_describe(const sim_server *server);
/* Checks that no rank waits for memory needlessly. Called after every event. Checks only when the loop thread and
 * the step thread are idle and have no mail. */
void sim_pressure_check(const sim_server *server);
void sim_check_zero(const char *what, uint64_t n);

#endif
