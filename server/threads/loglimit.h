/* loglimit.h - limits how often the log repeats itself: for each place in the code, and for each peer whose doings a
 * line reports. Any thread.
 *
 * Lines about what a peer does (commands, refusals, broken connections) are limited for each peer alone, so that a
 * flood by one never hides what another does. Peers whose identity is proven have counters of their own, apart from
 * those that are known by their address alone: addresses are easy to come by. Memory is fixed. If more peers speak
 * within a window than there are counters, those that come last share one. */
#ifndef PD_LOGLIMIT_H
#define PD_LOGLIMIT_H

#include <stdbool.h>
#include <stdint.h>

#include "log_entry.h"

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
