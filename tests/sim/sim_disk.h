/* sim_disk.h - the disk of the simulated server: the functions of server/keep/disk.h in memory,
 * with calls that fail, and a server that dies in the middle of a call. */
#ifndef SIM_DISK_H
#define SIM_DISK_H

#include "disk.h"
#include "sim.h"

typedef struct sim_disk sim_disk;

/* Makes a disk with one empty directory, `root`. */
sim_disk *sim_disk_new(sim *s, uint32_t number, const char *root);
void sim_disk_free(sim_disk *disk); /* accepts NULL */
const pd_disk *sim_disk_functions(const sim_disk *disk);

/* From now on every n-th call on average that changes the disk fails with this error (errno.h); 0: none fails. `dies`:
 * after half of these failures the server dies in one of the next 12 calls. */
void sim_disk_trouble(sim_disk *disk, int error, uint64_t n, bool dies);
/* Lets the server die in the middle of a later call that changes the disk: `calls` come before it. UINT64_MAX: in none.
 * From then on calls change nothing. */
void sim_disk_die_in(sim_disk *disk, uint64_t calls);
/* Begins or ends the start of a server, in which no call fails by chance: a daemon does not start on such a disk. */
void sim_disk_start(sim_disk *disk, bool starting);
bool sim_disk_is_dead(const sim_disk *disk);
/* Returns how many calls have changed the disk so far. */
uint64_t sim_disk_calls(const sim_disk *disk);
/* The server is dead: loses what was not synced. */
void sim_disk_lose(sim_disk *disk);
/* Gives the state on the disk of one server to another server, whose own state is forgotten. What was not synced is
 * lost. All calls of the server that had it fail from now on. */
void sim_disk_take(sim_disk *disk, sim_disk *from);
/* The functions of a disk that another server has taken: sim_disk_lost.c. */
extern const pd_disk sim_disk_lost;

#endif
