/* replayed.h - recorded runs played again: a small one that a test has written, and a folder of them, one test a trace. */
#ifndef REPLAYED_H
#define REPLAYED_H

#include "replay.h"
#include "tracefile.h"

/* ---- one file, which is written, played and removed ---- */

/* With the optimizer library, recorded state compared, too. The caller frees (pd_replay_result_free). */
pd_replay_result replayed(const tracefile *file);
pd_replay_result replayed_with(const tracefile *file, const char *key, const char *value);       /* with that metadata instead */
pd_replay_result replayed_by(const tracefile *file, const pd_replay_options *options);
/* Played with the library it ends so, and the reason has this part; what is ok has compared something. */
void assert_outcome(const tracefile *file, pd_replay_outcome outcome, const char *part_of_why);
/* The same with that metadata instead. */
void assert_outcome_with(const tracefile *file, const char *key, const char *value, pd_replay_outcome outcome, const char *part_of_why);
/* It is ok, but fails wherever one of its allocations does (more than 10); that nothing leaks is for the sanitizers to say. */
void assert_fails_without_memory(const tracefile *file);

/* ---- a folder, played with the library and through a daemon ---- */

/* Is recorded state compared in the library's play? REPLAYED_STATE: every run must have some. */
typedef enum replayed_state { REPLAYED_NO_STATE, REPLAYED_STATE, REPLAYED_STATE_IF_ANY } replayed_state;

/* What main returns for the recorded runs of a system: each parameter's weights may differ from the recorded ones by what
 * pd_trace_tolerance says, and recorded state by what replay_state.h says. What records a defect
 * of upstream's, or no run, is skipped, and why is printed. */
int replayed_folder(const char *system, replayed_state state);

#endif
