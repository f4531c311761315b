/* replayed.h - a folder of recorded runs, played with the optimizer library and through a daemon: one test a trace. */
#ifndef REPLAYED_H
#define REPLAYED_H

#include <stdbool.h>

/* What main returns for $PARAMD_GOLDEN/SYSTEM: each parameter's weights may differ from the recorded ones by what pd_trace_tolerance says, and recorded
 * state (`with_state`; in the library's play, where there must be some) by what replay_state.h says. 77: there is no such folder. */
int replayed_folder(const char *system, bool with_state);

#endif
