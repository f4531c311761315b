/* replayed.h - a folder of recorded runs, played with the optimizer library and through a daemon: one test a trace. */
#ifndef REPLAYED_H
#define REPLAYED_H

/* Is recorded state compared in the library's play? REPLAYED_STATE: every run must have some. */
typedef enum replayed_state { REPLAYED_NO_STATE, REPLAYED_STATE, REPLAYED_STATE_IF_ANY } replayed_state;

/* What main returns for $PARAMD_GOLDEN/SYSTEM: each parameter's weights may differ from the recorded ones by what pd_trace_tolerance says, and recorded
 * state by what replay_state.h says. What records a defect of upstream's, or no run, is skipped, and why is printed. 77: there is no such folder. */
int replayed_folder(const char *system, replayed_state state);

#endif
