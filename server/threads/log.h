/* log.h - the log: writes lines for operators to the standard error, as text, logfmt or JSON. Any thread.
 *
 * After pd_log_start, a separate thread writes the lines, so that a full pipe stops no other thread. Lines wait in a
 * ring of bounded size. A line that does not fit into the ring is lost, counted, and reported later. If the standard
 * error is the systemd journal, each line begins with its <priority>, or the entry goes to the journal's socket as
 * fields; otherwise lines begin with the time. Control characters in
 * names that peers choose become '?'. A place in the code that logs more than PD_LOG_BURST lines for one job in
 * PD_LOG_WINDOW_S seconds is silenced, and its further lines are counted. So are lines about one peer (loglimit.h). */
#ifndef PD_LOG_H
#define PD_LOG_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <syslog.h>

#include "log_entry.h"
#include "paramd/error.h"

typedef enum pd_log_format { PD_LOG_TEXT, PD_LOG_LOGFMT, PD_LOG_JSON } pd_log_format;

/* Sets the format of the log and its level. Lines less urgent than `level` (LOG_ERR to LOG_DEBUG) are not written.
 * Called before the first thread starts. */
void pd_log_open(int level, pd_log_format format);
/* Sends entries to the socket of the systemd journal as fields from now on, if the standard error is the journal, the
 * format is text, and something listens at `path` (PD_LOG_JOURNAL_SOCKET). Called after pd_log_open, before the first
 * thread starts. */
void pd_log_to_journal(const char *path);
/* Starts the thread that writes the log. Before this call, each line is written by the thread that logs it. Fails with
 * PD_RESOURCE_EXHAUSTED. */
int pd_log_start(pd_error *err);
/* Waits until all lines of the log are written, at most two seconds, and ends the thread that writes them. */
void pd_log_stop(void);
/* Logs a line without a job, rank, step or error code. The address of `format` identifies the place in the code, which
 * is silenced if it logs too often. */
void pd_log(int level, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* Logs an entry. */
void pd_log_put(const pd_log_entry *entry);
/* Logs how many lines about each peer were left out in windows that are over. Called about once a second or more
 * often. */
void pd_log_tick(void);
/* Changes the level of the log: the least urgent lines that are written. */
void pd_log_set_level(int level);

/* ---- the parts of pd_log that tests call ---- */

typedef struct pd_log_style {
    pd_log_format format;
    bool prefix, time;
    bool fields; /* the line has fields for the systemd journal (log_journal.h), whatever `format` is */
} pd_log_style;
/* Writes one line of the log and its newline into out (size >= 64). A line that is too long is cut. Returns the line's
 * length. `ms` is the time since 1970, in milliseconds. */
size_t pd_log_line(char *out, size_t size, pd_log_style style, uint64_t ms, const pd_log_entry *entry);

#endif
