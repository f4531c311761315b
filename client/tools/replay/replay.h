/* replay.h - plays one recorded file again, a run or cases of a routine, and compares the results with the record. */
#ifndef PD_REPLAY_H
#define PD_REPLAY_H

#include "replay_result.h"

typedef struct pd_replay_options {
    bool        local;          /* with the optimizer library in this process */
    bool        state;          /* also compare recorded state; local alone */
    const char *server;
    double      timeout;
} pd_replay_options;

/* Opens, plays and judges one file. Always fills *out; the caller frees it. */
void pd_replay_file(pd_replay_result *out, const char *path, const pd_replay_options *options);

#endif
