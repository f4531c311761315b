/* log.h - the log: writes lines for operators to the standard error, as text, logfmt or JSON. Any thread.
 *
 * After pd_log_start, a separate thread writes the lines, so that a full pipe stops no other thread. Lines wait in a
 * ring of bounded size. A line that does not fit into the ring is lost, counted, and reported later. If the standard
 * error is the systemd journal, each line begins with its <priority>, or (after pd_log_to_journal) the entry is sent to
 * the journal's socket as fields; otherwise lines begin with the time. Control characters in names that peers choose
 * become '?'.
 *
 * A place in the code that logs more than PD_LOG_BURST lines for one job in PD_LOG_WINDOW_S seconds (a window) is
 * silenced: its further lines in the window are only counted. Lines about what a peer does (commands, refusals, broken
 * connections) are limited for each peer separately, so that a flood by one peer never hides lines about another. Peers
 * with a proven identity and peers that are known only by their address have separate tables of counters, because one
 * peer can use many addresses. The tables have a fixed size: if more peers cause lines in a window than there are
 * counters, the last ones share a counter. */
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
/* Starts the thread that writes the log. Before this call, each line is written by the thread that logs it.
 * PD_RESOURCE_EXHAUSTED: the thread cannot be started, and lines are written as before. */
int pd_log_start(pd_error *err);
/* Waits until all lines of the log are written, at most two seconds, and ends the thread that writes them. */
void pd_log_stop(void);
/* Logs a line without a job, rank, step or error code. The address of `format` identifies the place in the code, which
 * is silenced if it logs too often. */
void pd_log(int level, const char *format, ...) __attribute__((format(printf, 2, 3)));

void pd_log_put(const pd_log_entry *entry);
/* Logs for each peer how many lines about it were left out in windows that are over. Must be called about once a
 * second. */
void pd_log_tick(void);
/* Changes the level: lines less urgent than `level` are not written from now on. Any thread. */
void pd_log_set_level(int level);

/* The form of a line. */
typedef struct pd_log_style {
    pd_log_format format;
    bool prefix, time; /* whether the line begins with its <priority>, and with the time */
    bool fields;       /* the line consists of fields for the systemd journal; the other members are ignored */
} pd_log_style;
/* Formats an entry as one line, which ends with a newline, into `out` (size >= 64). A line that is too long is cut.
 * Returns the line's length. `ms` is the time since 1970, in milliseconds. */
size_t pd_log_line(char *out, size_t size, pd_log_style style, uint64_t ms, const pd_log_entry *entry);

/* largest number of lines that one place in the code may log in a window for one job, or about one peer */
#define PD_LOG_BURST 200
#define PD_LOG_WINDOW_S 10 /* length of a window, in seconds */
#define PD_LOG_PEERS 128   /* number of counters for proven identities, and also of those for addresses */

/* Counts a line that a place in the code is about to log for a job, and returns whether the line may be logged. `site`
 * is a hash of the place and the job. In the first call of a window, sets *missed to the number of lines of this site
 * that were left out before, so that the caller reports them; otherwise sets it to 0. */
bool pd_log_may_speak(uint64_t site, uint64_t now_s, unsigned *missed);
/* Counts an entry about what a peer does, and returns whether it may be logged. The limit holds for each peer and place
 * in the code, over all jobs. If the entry may not be logged, pd_log_take_left_out will report it. */
bool pd_log_may_report(const pd_log_entry *entry, uint64_t now_s);

/* The number of lines about one peer that were left out. */
typedef struct pd_log_left_out {
    char peer[PD_LOG_PEER];
    unsigned lines;
} pd_log_left_out;

/* Finds a peer about which lines were left out in a window that is over (with `all`: in any window), stores it and
 * their number in *out, and sets its counter to 0. Returns false if there is no such peer. */
bool pd_log_take_left_out(pd_log_left_out *out, uint64_t now_s, bool all);

#endif
