/* replayed.h - plays recorded runs: a small one that a test has written, or a folder of them with one test for each
 * trace. */
#ifndef REPLAYED_H
#define REPLAYED_H

#include "replay.h"
#include "tracefile.h"

/* Plays the file with the optimizer library, and compares recorded state, too. The caller frees the result
 * (pd_replay_result_free). */
pd_replay_result replayed(const tracefile *file);
pd_replay_result replayed_with(const tracefile *file, const char *key,
                               const char *value); /* replays the file with another value of a metadata key */
pd_replay_result replayed_by(const tracefile *file, const pd_replay_options *options);
/* Checks that a replay with the optimizer library has this outcome, and a reason that contains `part`. A replay that
 * is ok must have compared something. */
void assert_outcome(const tracefile *file, pd_replay_outcome outcome, const char *part_of_why);
/* Checks the outcome of a replay of the file with another value of a metadata key. */
void assert_outcome_with(const tracefile *file, const char *key, const char *value, pd_replay_outcome outcome,
                         const char *part_of_why);
/* Checks that playing the file is ok, but fails if any one of its allocations fails. There must be more than 10
 * allocations. Leaks are found by the sanitizers. */
void assert_fails_without_memory(const tracefile *file);

/* Whether a replay with the optimizer library also compares recorded state. REPLAYED_STATE: it does, and every run
 * must have recorded state. */
typedef enum replayed_state { REPLAYED_NO_STATE, REPLAYED_STATE, REPLAYED_STATE_IF_ANY } replayed_state;

/* Runs one test for each recorded run of a system. Returns the program's exit status. The weights of each parameter may
 * differ from the recorded ones by pd_trace.tolerance, and recorded state by the tolerances of replay_state.h. Traces
 * that record a defect of upstream's or no run are skipped, and the reason is printed. */
int replayed_folder(const char *system, replayed_state state);
/* Does the same for a system whose runs record state, but no number may differ from the recorded one. */
int replayed_folder_exactly(const char *system);

#endif
