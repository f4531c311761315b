/* replay.h - plays a recorded run again and compares the weights: in this process, or through a daemon. Judges recorded cases of a routine, too. */
#ifndef PD_REPLAY_H
#define PD_REPLAY_H

#include "judge.h"
#include "recipe.h"
#include "replay_net.h"
#include "replay_parts.h"
#include "replay_state.h"
#include "trace.h"

/* Both play a checked trace from its initial weights, step by step, and note in verdicts[parameter] how far the weights are from
 * the recorded ones. Where gradients were not recorded but can be computed (replay_net.h), the losses are judged instead: in verdicts[parameters]. A step in which upstream raised an error must give an error that names the same cause, and only such a step. Where upstream failed in
 * every step, what it was asked for may be refused from the start, too.
 * PD_UNIMPLEMENTED: cannot be played this way (why); PD_FAILED_PRECONDITION: an error came where none was recorded, or the reverse;
 * other codes: what the optimizer or the server said. */

/* With the optimizer library in this process, and with the random numbers that were recorded. *updates: over what was recorded of the
 * steps' own updates. `state`: NULL, or compares recorded state, too. */
int pd_replay_local(const pd_trace *trace, const pd_recipe *recipe, pd_verdict *verdicts, pd_verdict *updates, pd_replay_state *state, pd_error *err);
/* A trace of averages (pd_trace_averages) has as many replicas as the recipe's shards and aggregate want. PD_INVALID_ARGUMENT. */
int pd_replay_check_replicas(const pd_trace *trace, const pd_recipe *recipe, pd_error *err);
/* Such a trace, with the arithmetic library in this process: what each replica gets of those that hold the same weights. */
int pd_replay_average(const pd_trace *trace, const pd_recipe *recipe, pd_verdict *verdicts, pd_error *err);

/* Through the daemon at `url` (NULL: the client's default): a job `replay/<case>/<nonce>` of as many workers as the trace has replicas pushes
 * every gradient, pulls the weights of every step, asks the daemon whether it counted as many contributions as were sent, and drops the
 * job. Each worker's weights are compared. `timeout`: seconds to find the server. PD_DATA_LOSS: the daemon counted otherwise. */
int pd_replay_server(const pd_trace *trace, const pd_recipe *recipe, const char *url, double timeout, pd_verdict *verdicts, pd_error *err);

/* What both judge by: did the step end as recorded? `rc` and `ours`: its code and error. PD_OK, also for an error where one was recorded;
 * `ours` itself where none was; PD_FAILED_PRECONDITION where one was and did not come, or named another cause. */
int  pd_replay_judge_step(const pd_trace *trace, int64_t step, int rc, const pd_error *ours, pd_error *err);
/* Upstream failed in every step, or made NaN of all weights in each, and `rc` says that what was declared is refused. */
bool pd_replay_is_refusal(const pd_trace *trace, int rc);
/* What a refusal stands for: where upstream made NaN of everything, so are the weights, of each parameter, by which it is judged. */
void pd_replay_refused(const pd_trace *trace, float *const *weights);
/* The learning rate recorded for a step; false: none. */
bool pd_replay_rate(const pd_trace *trace, const pd_recipe *recipe, int64_t step, double *rate);

typedef enum pd_replay_outcome { PD_REPLAY_OK, PD_REPLAY_FAILED, PD_REPLAY_SKIPPED } pd_replay_outcome;

typedef struct pd_replay_result {
    pd_replay_outcome outcome;
    char        system[64], name[128];
    int64_t     steps;
    bool        excused;        /* skipped, and no build can play it so: it records a defect of upstream's, or no run, or a daemon would have to draw what it recorded */
    bool        cases;          /* not a run: numbered cases of a routine, which count as parameters here */
    double      tolerance;      /* 1 where each case has a tolerance of its own: errors are given in units of it then */
    pd_verdict  verdict;        /* over all parameters and steps; compared == 0 where it was not played to the end */
    pd_verdict  update;         /* the same for recorded updates, */
    double      update_tolerance;       /* against a tolerance of their own */
    pd_state_verdict state;     /* over all recorded tensors of state; compared == 0 where there are none, or nobody asked */
    pd_error    why;            /* of PD_REPLAY_FAILED (may be PD_OK: the weights differ) and PD_REPLAY_SKIPPED */
    size_t      n;              /* parameters or cases, and what was seen of each: for --verbose */
    char      **params;
    pd_verdict *verdicts;
} pd_replay_result;

typedef struct pd_replay_options {
    bool        local;
    bool        state;          /* also compare recorded state; local alone */
    const char *server;
    double      timeout;
} pd_replay_options;

/* The file holds numbered cases of a routine that replay_routine.c knows, not a run. */
bool pd_replay_is_routine(const pd_trace *trace);
/* Computes every case with the arithmetic library in this process and fills out's n, params, verdicts and why.
 * PD_INVALID_ARGUMENT: a case that cannot be computed: a tensor is missing or of a wrong shape. PD_UNIMPLEMENTED: an option that the routine
 * does not have. PD_NO_MEMORY. */
int pd_replay_routine(pd_replay_result *out, pd_trace *trace);

/* Opens, plays and judges one file. Always fills *out; the caller frees it. */
void pd_replay_file(pd_replay_result *out, const char *path, const pd_replay_options *options);
void pd_replay_result_free(pd_replay_result *result);

#endif
