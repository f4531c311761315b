/* logring.h - a ring of log lines, and the thread that writes them to the standard error. Any thread. */
#ifndef PD_LOGRING_H
#define PD_LOGRING_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "paramd/error.h"

#define PD_LOG_RING_BYTES (128 * 1024)
#define PD_LOG_FLUSH_S 2

/* Makes the line that reports how many lines were lost. Returns its length. */
typedef size_t pd_log_report(char *out, size_t size, uint64_t lost);

/* Starts the writer thread, which uses `report` to report lost lines. PD_RESOURCE_EXHAUSTED: the thread cannot be
 * started. */
int pd_log_ring_start(pd_log_report *report, pd_error *err);
/* Waits until all lines are written, at most PD_LOG_FLUSH_S seconds, and ends the writer thread. */
void pd_log_ring_stop(void);
/* Copies a line, which ends with a newline, into the ring. A line that does not fit is counted as lost. Never waits
 * for the writer thread. Returns false if there is no writer thread: then the caller has to write the line. */
bool pd_log_ring_put(const char *line, size_t n);
/* Writes a line to the standard error at once. Blocks if the pipe is full. */
void pd_log_write(const char *line, size_t n);

#endif
