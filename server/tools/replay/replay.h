/* replay.h - plays one recorded file again and compares the results with the recorded ones. The file has either a run
 * of an optimizer, or cases of a routine: inputs and results of one function. */
#ifndef PD_REPLAY_H
#define PD_REPLAY_H

#include "verdict.h"

/* How a file is played. */
typedef struct pd_replay_options {
    bool local;         /* plays with the optimizer library in this process, without a daemon */
    bool state;         /* also compares recorded optimizer state; only together with `local` */
    const char *server; /* address of the daemon without `local`; NULL: the default address */
    double timeout;     /* seconds to find the daemon */
} pd_replay_options;

/* Opens and plays one recorded file, and compares the results with the recorded ones. Always fills *out, which the
 * caller frees. */
void pd_replay_file(pd_replay_result *out, const char *path, const pd_replay_options *options);

#endif
