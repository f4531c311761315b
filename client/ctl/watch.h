/* watch.h - repeats a paramctl command with --watch and shows each answer in place of the last one. */
#ifndef PD_WATCH_H
#define PD_WATCH_H

#include "command_line.h"

/* Runs the command once, or with --watch again and again until it fails. On a terminal each answer replaces the one
 * before, cut to the terminal's height. Elsewhere an empty line separates the answers. Returns an exit status. */
int pd_watch(pd_line *line);

/* Sleeps for this many seconds. Signals do not end the sleep early. */
void pd_watch_pause(double seconds);

#endif
