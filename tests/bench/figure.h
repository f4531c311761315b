/* figure.h - what the programs that measure figures share. Each prints one line, the value and a note on its spread, for run.sh. */
#ifndef PD_FIGURE_H
#define PD_FIGURE_H

#include <stdio.h>

#include "child.h"
#include "connection.h"

/* Milliseconds of the monotonic clock. */
double figure_ms(void);
/* Zeroed memory; ends the program where there is none. */
void  *figure_alloc(size_t bytes);
/* Ends the program: "NAME: text" on stderr, status 1. */
_Noreturn void figure_stop(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* For figures of arithmetic in this process, first thing in main: starts the program anew with one BLAS thread and kernels chosen by what the
 * processor can do, as the daemon does for itself (OpenBLAS does not know every processor by name). Returns where that has been done. */
void figure_kernels(char **argv);

/* Sorts; gives the value below which `part` (0.5: the median) of the n values lie. */
double figure_quantile(double *at, size_t n, double part);

/* A daemon with its default configuration. */
void figure_daemon(pd_child *child);
/* Its Status; the caller closes `op` when it has read the reply. */
const Paramd__StatusReply *figure_status(const char *url, pd_operator *op);

/* Elements of the parameters of a model of 256 MiB, as models are: an embedding of 64 MiB, matrices of 16, 4 and 1 MiB, and hundreds of
 * vectors. Static. */
const int64_t *figure_model(size_t *n);

#endif
