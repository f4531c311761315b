/* log.h - lines for operators on the standard error: text, logfmt or JSON. Any thread.
 *
 * After pd_log_start a thread of its own writes the lines, so that a full pipe stops no other thread. Lines wait in a
 * ring of bounded size. A line that does not fit is lost, counted, and reported later. Under journald each line begins
 * with its <priority>; on a terminal it does not. Control characters in names that peers choose are escaped. A call
 * site that logs more than PD_LOG_BURST lines in PD_LOG_WINDOW_S is silenced, and its lines are counted. */
#ifndef PD_LOG_H
#define PD_LOG_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <syslog.h>

#include "paramd/error.h"

#define PD_LOG_BURST    200
#define PD_LOG_WINDOW_S 10

typedef enum pd_log_format { PD_LOG_TEXT, PD_LOG_LOGFMT, PD_LOG_JSON } pd_log_format;

/* Sets the format. Lines less urgent than `level` (LOG_ERR to LOG_DEBUG) are not written. Called before the first
 * thread starts. */
void pd_log_open(int level, pd_log_format format);
/* Starts the writer thread. Before, each line is written by the thread that logs it. PD_RESOURCE_EXHAUSTED. */
int  pd_log_start(pd_error *err);
/* Waits until all lines are written, at most two seconds, and ends the writer thread. */
void pd_log_stop(void);
/* Logs a line. The address of `format` names the call site. */
void pd_log(int level, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* Logs a finished text. `site` names the call site, as the address of a format does. */
void pd_log_text(int level, uint64_t site, const char *text);

/* ---- the parts of pd_log, for its tests ---- */

typedef struct pd_log_style { pd_log_format format; bool prefix, time; } pd_log_style;
/* Writes one line with its newline into out (size >= 64), cut if it is too long. Returns its length. `ms` is the time
 * since the epoch. */
size_t pd_log_line(char *out, size_t size, pd_log_style style, int level, uint64_t ms, const char *message);
/* Returns whether the site may log now. *missed: lines that were left out since it last could. */
bool   pd_log_may_speak(uint64_t site, uint64_t now_s, unsigned *missed);

#endif
