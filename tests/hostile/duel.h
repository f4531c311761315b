/* duel.h - a small job that takes steps while another identity attacks the daemon.
 *
 * The daemon has roles: workers of the small job come over TCP, where everybody is "anyone", and the attacker over the
 * Unix socket, where it is "user:UID", with a quota. */
#ifndef DUEL_H
#define DUEL_H

#include "attacks.h"

enum { DUEL_ALL_PARAMS = 65536 };

/* The daemon. */
typedef struct duel_daemon {
    const char *url;  /* tcp://127.0.0.1:PORT */
    const char *path; /* its Unix socket */
    int port, http_port;
    bool read_only; /* the attacker may only read, and jobs that it attacks belong to others */
} duel_daemon;

/* Writes the roles, with which the daemon has to start, to a file in `folder`, and sets environment variables so that a
 * daemon which is started next reads it, has a state directory there and listens for HTTP. Jobs have checkpoints only
 * if they say so. */
void duel_environment(const char *folder, bool read_only);
void duel_forget(const char *folder); /* removes the file of roles */

typedef struct duel_job duel_job;

/* Joins as the one worker of a job with a matrix "w", with the optimizer of a rule. Ends the program after an error. */
duel_job *duel_join(const char *url, const char *job, int64_t rows, int64_t columns, const char *rule);
void duel_leave(duel_job *job); /* accepts NULL */

/* The times of steps. A step is due every DUEL_PACE_MS, and each one begins when the one before has ended. So that a
 * long step counts as all those that were due meanwhile, its time also counts less one pace, less two, and so on (the
 * usual correction for coordinated omission). */
#define DUEL_PACE_MS 5.0
typedef struct duel_times {
    size_t steps; /* taken */
    double p50, p99, longest;
    bool stuck; /* the last step was not done within DUEL_STUCK_S, and was given up */
} duel_times;
#define DUEL_STUCK_S 40

/* Takes steps for some seconds. `paced` false: one after the other, and times count as they are. */
void duel_steps(duel_job *job, double seconds, bool paced, duel_times *out);

typedef struct duel_attack duel_attack;

/* Prepares an attack on a thread of its own, for a minute at most. It does not begin before duel_go. `running`: a job
 * that takes steps meanwhile, whose weights the attacker may read; NULL: there is none. */
duel_attack *duel_begin(const attack *by, const duel_daemon *daemon, uint32_t params, const char *running);
/* Returns whether the attack was prepared. If not, it does nothing. */
bool duel_is_prepared(duel_attack *d);
/* Lets the attack go on, and stops it for a while. */
void duel_go(duel_attack *d);
void duel_rest(duel_attack *d);
/* Ends the attack, and returns what it has counted in *out. */
void duel_end(duel_attack *d, foe_count *out);

#endif
