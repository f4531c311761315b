/* crowd.h - many connected workers that only send heartbeats: one thread, raw sockets. Ends the program where something goes wrong. */
#ifndef PD_CROWD_H
#define PD_CROWD_H

typedef struct crowd crowd;

/* Connects `members` workers of members / 100 jobs, and returns when the daemon has welcomed all of them. Each sends a Heartbeat as
 * often as the daemon asks for, spread over time. `url`: tcp://127.0.0.1:PORT. */
crowd *crowd_gather(const char *url, int members);
/* Closes the connections. */
void   crowd_disperse(crowd *c);

#endif
