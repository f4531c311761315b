/* log_journal.h - sends entries of the log to the systemd journal as fields (JOB=, RANK=, STEP= ...), by which
 * journalctl can filter: `journalctl -u paramd JOB=lin RANK=3`. One datagram is one entry.
 *
 * An entry comes as a line of fields, separated by PD_LOG_JOURNAL_NEXT: "PRIORITY=5", then "MESSAGE=...", then
 * others. */
#ifndef PD_LOG_JOURNAL_H
#define PD_LOG_JOURNAL_H

#include <stdbool.h>
#include <stddef.h>

#define PD_LOG_JOURNAL_SOCKET "/run/systemd/journal/socket"
#define PD_LOG_JOURNAL_NEXT '\x1f' /* stands between two fields; the texts of fields have no control characters */
#define PD_LOG_JOURNAL_LINE 2048   /* most bytes of a line */

/* Connects to the journal's socket. Returns false if nothing listens there. */
bool pd_log_journal_open(const char *path);
void pd_log_journal_close(void);
bool pd_log_journal_is_open(void);
/* Sends an entry, which ends with a newline. With `waits` false, does not wait for the journal. Returns false if the
 * journal has not taken it. Safe in a signal handler. */
bool pd_log_journal_send(const char *line, size_t n, bool waits);
/* Makes of a line of fields the line that the journal reads from the standard error: "<5>message". Stores it in `out`,
 * which has room for PD_LOG_JOURNAL_LINE bytes. Returns its length. Safe in a signal handler. */
size_t pd_log_journal_plain(char out[PD_LOG_JOURNAL_LINE], const char *line, size_t n);

#endif
