/* log.h - lines for operators on the standard error: text, logfmt or JSON. Any thread.
 *
 * From pd_log_start on a thread of its own writes the lines, so that a full pipe stops nobody else: lines wait in a ring of bounded size,
 * and when that is full they are lost, counted and reported later. Under journald each line bears its <priority>; on a terminal it does
 * not. Control characters in names that peers choose are made harmless. A call site that repeats itself more than PD_LOG_BURST times in
 * PD_LOG_WINDOW_S is silenced and counted. */
#ifndef PD_LOG_H
#define PD_LOG_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <syslog.h>

#include "paramd/error.h"

#define PD_LOG_BURST    200
#define PD_LOG_WINDOW_S 10
#define PD_LOG_FLUSH_S  2

typedef enum pd_log_format { PD_LOG_TEXT, PD_LOG_LOGFMT, PD_LOG_JSON } pd_log_format;

/* Before the first thread. Lines less urgent than `level` (LOG_ERR to LOG_DEBUG) are not written. */
void pd_log_open(int level, pd_log_format format);
/* Starts the writer thread. Before that, lines are written by the thread that logs them. PD_RESOURCE_EXHAUSTED. */
int  pd_log_start(pd_error *err);
/* Waits until all lines are written, at most PD_LOG_FLUSH_S seconds, and ends the writer thread. */
void pd_log_stop(void);
/* The address of `format` is the call site. */
void pd_log(int level, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* The same for a finished text. `site` names what may repeat itself, as the address of a format does. */
void pd_log_text(int level, uint64_t site, const char *text);

/* ---- what pd_log is made of ---- */

typedef struct pd_log_style { pd_log_format format; bool prefix, time; } pd_log_style;
/* One line with its newline into out (size >= 64), cut if it is too long. Returns its length. ms: time since the epoch. */
size_t pd_log_line(char *out, size_t size, pd_log_style style, int level, uint64_t ms, const char *message);
/* False: the site is silenced now. *missed: lines that were, since it last spoke. */
bool   pd_log_may_speak(uint64_t site, uint64_t now_s, unsigned *missed);

#endif
