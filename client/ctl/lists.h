/* lists.h - says in a few words which step of a job survives a restart of the daemon. */
#ifndef PD_LISTS_H
#define PD_LISTS_H

#include <stdbool.h>

#include "message.h"

#define PD_DURABLE_TEXT 96 /* size of a buffer that has room for such a text */

/* Writes the step of a job's last checkpoint and its age, such as "40 (12.0 s)"; "none" if there is none yet; "-" if
 * the job makes none. Returns whether the last attempt at a checkpoint has failed; then the text says so. */
bool pd_durable_text(char text[PD_DURABLE_TEXT], const Paramd__JobInfo *job);

#endif
