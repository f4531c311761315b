/* flood.h - one client that sends 6,000 List and 4,000 Status beside a job of 20,000 parameters, and the time that
 * another client's Hello takes meanwhile. Any error ends the program with a message. */
#ifndef PD_FLOOD_H
#define PD_FLOOD_H

#include <stddef.h>
#include <sys/types.h>

/* Creates a job named "large" with 20,000 parameters. Returns the socket of its worker: the job stays while the
 * socket is open. */
int flood_job(const char *url);
/* Sends all requests at once and reads their answers. Meanwhile another client sends one Hello after the other.
 * Writes the time of Hello i to ms[i], at most `most` of them, and the time of the flood to *whole_ms. Returns the
 * number of Hellos. */
size_t flood_run(const char *url, double *ms, size_t most, double *whole_ms);
/* Returns the resident memory of a process, in MiB. */
double flood_resident_mib(pid_t pid);

#endif
