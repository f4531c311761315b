/* idle_workers.h - many connected workers that only send heartbeats, with one thread and raw sockets. Any error ends
 * the program. */
#ifndef PD_IDLE_WORKERS_H
#define PD_IDLE_WORKERS_H

typedef struct idle_workers idle_workers;

/* Connects `members` workers, 100 to a job, and returns when the daemon has welcomed all of them. Each worker sends
 * a Heartbeat as often as the daemon asks for. The heartbeats are spread evenly over time. `url`:
 * tcp://127.0.0.1:PORT. */
idle_workers *idle_workers_connect(const char *url, int members);
/* Closes the workers' connections and frees the structure. */
void idle_workers_close(idle_workers *c);

#endif
