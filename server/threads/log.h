/* log.h - the log: writes lines for operators to the standard error, as text, logfmt or JSON. Any thread.
 *
 * After pd_log_start, a separate thread writes the lines, so that a full pipe stops no other thread. Lines wait in a
 * ring of bounded size. A line that does not fit into the ring is lost, counted, and reported later. If the standard
 * error is the systemd journal, each line begins with its <priority>, or the entry goes to the journal's socket as
 * fields; otherwise lines begin with the time. Control characters in names that peers choose become '?'.
 *
 * A place in the code that logs more than PD_LOG_BURST lines for one job in PD_LOG_WINDOW_S seconds is silenced, and
 * its further lines are counted. Lines about what a peer does (commands, refusals, broken connections) are limited for
 * each peer alone, so that a flood by one never hides what another does. Peers whose identity is proven have counters
 * of their own, apart from those that are known by their address alone: addresses are easy to come by. Memory is fixed.
 * If more peers speak within a window than there are counters, those that come last share one. */
#ifndef PD_LOG_H
#define PD_LOG_H

#include "log_entry.h"
#include "paramd/error.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <syslog.h>

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

void pd_log_put(const pd_log_entry *entry);
/* Logs how many lines about each peer were left out in windows that are over. Called about once a second or more
 * often. */
void pd_log_tick(void);
/* Changes the level: the least urgent lines that are written. */
void pd_log_set_level(int level);

typedef struct pd_log_style {
    pd_log_format format;
    bool prefix, time;
    bool fields; /* the line has fields for the systemd journal, whatever `format` is */
} pd_log_style;
/* Writes one line of the log and its newline into out (size >= 64). A line that is too long is cut. Returns the line's
 * length. `ms` is the time since 1970, in milliseconds. */
size_t pd_log_line(char *out, size_t size, pd_log_style style, uint64_t ms, const pd_log_entry *entry);

#define PD_LOG_BURST 200   /* most lines of a place in the code, or of a peer, in a window */
#define PD_LOG_WINDOW_S 10 /* length of a window, in seconds */
#define PD_LOG_PEERS 128   /* number of counters for proven identities; there are as many for addresses */

/* Returns whether a place in the code may log now, or is silenced because it has logged too often. Sets *missed to the
 * number of its lines that were left out since the last report. */
bool pd_log_may_speak(uint64_t site, uint64_t now_s, unsigned *missed);
/* The same for an entry that reports what a peer does. The peer has a limit for each place in the code, whatever jobs
 * it names. Lines that were left out are counted until pd_log_take_left_out. */
bool pd_log_may_report(const pd_log_entry *entry, uint64_t now_s);

/* Lines about a peer that were left out. */
typedef struct pd_log_left_out {
    char peer[PD_LOG_PEER];
    unsigned lines;
} pd_log_left_out;

/* Takes the count of a peer of whom lines were left out in a window that is over; with `all`, in any window. Returns
 * false if there is none. */
bool pd_log_take_left_out(pd_log_left_out *out, uint64_t now_s, bool all);

#endif
