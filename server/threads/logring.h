/* logring.h - keeps log lines in a ring, from which a thread writes them to the standard error or to the systemd
 * journal. Any thread.
 *
 * Log entries are sent to the journal as fields (JOB=, RANK=, STEP= ...), by which journalctl can filter: `journalctl
 * -u paramd JOB=lin RANK=3`. Each entry is one datagram. In the ring, such an entry is a line of fields, separated by
 * PD_LOG_JOURNAL_NEXT: "PRIORITY=5", then "MESSAGE=...", then other fields. */
#ifndef PD_LOGRING_H
#define PD_LOGRING_H

#include "paramd/error.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define PD_LOG_JOURNAL_SOCKET "/run/systemd/journal/socket"
#define PD_LOG_JOURNAL_NEXT '\x1f' /* separates two fields; the texts of fields have no control characters */
#define PD_LOG_JOURNAL_LINE 2048   /* largest length of a line, in bytes */

/* Connects to the journal's socket at `path`. Returns false if nothing listens there. */
bool pd_log_journal_open(const char *path);
void pd_log_journal_close(void);

#define PD_LOG_RING_BYTES (128 * 1024)
#define PD_LOG_FLUSH_S 2

/* A function that writes the line "lost N lines" into `out`. Returns the line's length. */
typedef size_t pd_log_report(char *out, size_t size, uint64_t lost);

/* Starts the thread that writes log lines. `report` makes the line that reports lost lines. PD_RESOURCE_EXHAUSTED: the
 * thread cannot be started. */
int pd_log_ring_start(pd_log_report *report, pd_error *err);
/* Waits until all log lines are written, at most PD_LOG_FLUSH_S seconds, and ends the thread that writes them. */
void pd_log_ring_stop(void);
/* Copies a log line, which ends with a newline, into the ring, from which the writing thread takes it. A line that does
 * not fit is counted as lost. Never waits for the writing thread. Returns false if that thread does not run: then the
 * caller has to write the line. */
bool pd_log_ring_put(const char *line, size_t n);
/* Writes a log line to the standard error at once. Blocks if the pipe is full. */
void pd_log_write(const char *line, size_t n);

#endif
