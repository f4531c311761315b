/* flood.h - one client that sends 6,000 List and 4,000 Status beside a job of 20,000 parameters, and what another client's Hello takes
 * meanwhile. Whatever goes wrong ends the program with a sentence. */
#ifndef PD_FLOOD_H
#define PD_FLOOD_H

#include <stddef.h>
#include <sys/types.h>

/* A job named "large" of 20,000 parameters, with weights; it stays while the connection fd that is returned is open. */
int    flood_job(const char *url);
/* Sends all requests at once and reads their answers; meanwhile another client says Hello again and again. Gives how long each Hello took in ms, at
 * most `most` of them, and returns how many; `whole_ms`: what the flood took. */
size_t flood_run(const char *url, double *ms, size_t most, double *whole_ms);
/* Resident memory of a process now, in MiB. */
double flood_resident_mib(pid_t pid);

#endif
