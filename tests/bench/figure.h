/* figure.h - functions that the programs measuring figures share. Each program prints one line for run.sh: the value,
 * and a note on its spread. */
#ifndef PD_FIGURE_H
#define PD_FIGURE_H

#include <errno.h>
#include <math.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/types.h>
#include <unistd.h>

#include "bench.h"
#include "connection.h"

/* Returns the time of the monotonic clock in milliseconds. */
double figure_ms(void);
/* Returns zeroed memory. Ends the program if out of memory. */
void *figure_alloc(size_t bytes);
/* Ends the program with "NAME: text" on stderr and status 1. */
_Noreturn void figure_stop(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* Executes the program again with environment variables that give it one BLAS thread, and BLAS kernels chosen by the
 * processor's features. The daemon does the same, since OpenBLAS does not know every processor by name. Returns if
 * the variables are already set. Figures that compute in this process call it first in main. */
void figure_kernels(char **argv);

/* Sorts n values. Returns the quantile `part` of them (0.5: the median). */
double figure_quantile(double *at, size_t n, double part);

/* Makes a new folder, whose name replaces the XXXXXX in `path`. Daemons that this program starts from now on keep
 * their checkpoints there. */
void figure_folder(char *path);
/* Removes a folder with all that is in it. */
void figure_remove(const char *path);

#define FIGURE_PIECE (4 << 20)
/* Fills memory with numbers that no disk can compress. */
void figure_fill(void *at, size_t bytes);
/* Returns how many ms the disk takes for a new file in a folder, of at least so many bytes, until it is synced. It is
 * written in pieces of FIGURE_PIECE bytes, with `direct` past the page cache, and removed after that. */
double figure_file_ms(const char *folder, const void *piece, uint64_t bytes, bool direct);

/* Starts a daemon with its default configuration. */
void figure_daemon(pd_child *child);
/* Starts a daemon that listens at this address, with its default configuration otherwise, and does not wait for it; it
 * ends with this program. Kills one, and waits until it has ended. */
pid_t figure_spawn(const char *url);
void figure_kill(pid_t daemon);
/* Returns the CPU time that a process has used, in ms; the kernel counts it in units of 10 ms. */
double figure_cpu_ms(pid_t pid);
/* Asks the daemon for its status. The reply stays valid until the caller closes `op`. */
const Paramd__StatusReply *figure_status(const char *url, pd_operator *op);

/* Returns the number of elements of each parameter of a typical model of 256 MiB: an embedding of 64 MiB, matrices
 * of 16, 4 and 1 MiB, and hundreds of vectors. The array is static. */
const int64_t *figure_model(size_t *n);

#endif
