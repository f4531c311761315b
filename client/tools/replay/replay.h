/* replay.h - plays one recorded file again, either a run or the cases of a routine, and compares the results with
 * the record. */
#ifndef PD_REPLAY_H
#define PD_REPLAY_H

#include "replay_result.h"

typedef struct pd_replay_options {
    bool local; /* play with the optimizer library in this process, without a daemon */
    bool state; /* also compare recorded optimizer state; only with `local` */
    const char *server;
    double timeout;
} pd_replay_options;

/* Opens and plays one file, and compares the results with the record. Always fills *out, which the caller frees. */
void pd_replay_file(pd_replay_result *out, const char *path, const pd_replay_options *options);

#endif
