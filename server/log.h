/* log.h - lines for operators on the standard error: text, logfmt or JSON. Any thread; one write(2) a line.
 *
 * Under journald each line bears its <priority>; on a terminal it does not. Control characters in what peers call themselves
 * are made harmless. A call site that repeats itself more than PD_LOG_BURST times in PD_LOG_WINDOW_S is silenced and counted. */
#ifndef PD_LOG_H
#define PD_LOG_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <syslog.h>

#define PD_LOG_BURST    200
#define PD_LOG_WINDOW_S 10

typedef enum pd_log_format { PD_LOG_TEXT, PD_LOG_LOGFMT, PD_LOG_JSON } pd_log_format;

/* Before the first thread. Lines less urgent than `level` (LOG_ERR to LOG_DEBUG) are not written. */
void pd_log_open(int level, pd_log_format format);
/* The address of `format` is the call site. */
void pd_log(int level, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* ---- what pd_log is made of ---- */

typedef struct pd_log_style { pd_log_format format; bool prefix, time; } pd_log_style;
/* One line with its newline into out (size >= 64), cut if it is too long. Returns its length. ms: time since the epoch. */
size_t pd_log_line(char *out, size_t size, pd_log_style style, int level, uint64_t ms, const char *message);
/* False: the site is silenced now. *missed: lines that were, since it last spoke. */
bool   pd_log_may_speak(const void *site, uint64_t now_s, unsigned *missed);

#endif
