/* logring.h - a ring of log lines that wait, and the thread that writes them to the standard error. Any thread. */
#ifndef PD_LOGRING_H
#define PD_LOGRING_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "paramd/error.h"

#define PD_LOG_RING_BYTES (128 * 1024)
#define PD_LOG_FLUSH_S 2

/* A function that makes the line which reports how many log lines were lost. Returns its length. */
typedef size_t pd_log_report(char *out, size_t size, uint64_t lost);

/* Starts the thread that writes log lines. It uses `report` to report lost lines. PD_RESOURCE_EXHAUSTED: the thread
 * cannot be started. */
int pd_log_ring_start(pd_log_report *report, pd_error *err);
/* Waits until all log lines are written, at most PD_LOG_FLUSH_S seconds, and ends the thread that writes them. */
void pd_log_ring_stop(void);
/* Copies a log line, which ends with a newline, into the ring, from which another thread writes it. A line that does
 * not fit is counted as lost. Never waits for that thread. Returns false if there is no such thread: then the caller
 * has to write the line. */
bool pd_log_ring_put(const char *line, size_t n);
/* Writes a log line to the standard error at once. Blocks if the pipe is full. */
void pd_log_write(const char *line, size_t n);

#endif
