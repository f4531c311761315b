/* trace.h - reads a recorded run of an optimizer: a .safetensors file with `param/TTTT/NAME`, `grad/TTTT/NAME` and
 * metadata.
 *
 * Files are hostile input: everything that a replay will ask for (names, shapes, types, steps) is checked when the
 * trace is opened. */
#ifndef PD_TRACE_H
#define PD_TRACE_H

#include <jansson.h>

#include "paramd/tensor.h"

#define PD_TRACE_MAX_STEPS    9999          /* steps have four digits */
#define PD_TRACE_MAX_REPLICAS 64
#define PD_TRACE_MAX_BYTES    (4ll << 30)   /* of a file */

typedef struct pd_trace pd_trace;

typedef struct pd_trace_param {
    char    *name;              /* for an average: "TTTT/NAME" */
    int64_t  step;              /* for an average: its step; else 0 */
    pd_shape shape;
    int64_t  elements;
} pd_trace_param;

/* Reads file and metadata. PD_NOT_FOUND: no such file. PD_INVALID_ARGUMENT: not a trace; the text says what is wrong.
 * PD_RESOURCE_EXHAUSTED: larger than PD_TRACE_MAX_BYTES. PD_NO_MEMORY. */
int  pd_trace_open(pd_trace **out, const char *path, pd_error *err);
void pd_trace_close(pd_trace *trace);               /* accepts NULL */

/* The path that was opened. */
const char   *pd_trace_path(const pd_trace *trace);
/* Metadata. */
const char   *pd_trace_system(const pd_trace *trace);
const char   *pd_trace_case(const pd_trace *trace);
int64_t       pd_trace_steps(const pd_trace *trace);
/* Largest relative error of a replay: 3 * noise_bc32 + 1e-6, or, if that was not recorded, 10 * noise + 1e-6. */
double        pd_trace_tolerance(const pd_trace *trace);
/* The same for recorded state: 10 * noise_state + 1e-6. Negative: noise_state was not recorded. */
double        pd_trace_state_tolerance(const pd_trace *trace);
/* The same for the way from the initial weights: 3 * noise_bc32_displacement + 1e-6. Negative: that was not
 * recorded. */
double        pd_trace_way_tolerance(const pd_trace *trace);
/* Return an entry as text (NULL: none), or as JSON, which the caller frees (*out NULL: none). PD_INVALID_ARGUMENT: not
 * JSON, or of another type. */
const char   *pd_trace_meta(const pd_trace *trace, const char *name);
int           pd_trace_json(const pd_trace *trace, const char *name, json_type type, json_t **out, pd_error *err);
/* Returns upstream's hyperparameters, a JSON object; borrowed. PD_INVALID_ARGUMENT: missing, or not JSON. */
int           pd_trace_config(pd_trace *trace, const json_t **out, pd_error *err);

/* Finds the parameters and checks every tensor that a replay reads: no gradient without a parameter, no step beyond the
 * last, shapes alike, weights at every step or at those of `param_steps` (where a model's `loss` was recorded too: at
 * the last step and at others, of all parameters alike). In a trace of averages (`average/TTTT/rRR/NAME`) steps are
 * independent of each other and differ in shape: each (step, NAME) counts as a parameter of its own. The functions
 * below want it to have succeeded. PD_INVALID_ARGUMENT: not so (names the tensor). PD_UNIMPLEMENTED: a file of another
 * shape, without parameters and steps. */
int  pd_trace_check(pd_trace *trace, pd_error *err);
bool pd_trace_averages(const pd_trace *trace);              /* records averages of replicas, not weights */
int  pd_trace_replicas(const pd_trace *trace);              /* at least 1 */
const pd_trace_param *pd_trace_params(const pd_trace *trace, size_t *n);
int64_t pd_trace_elements(const pd_trace *trace);           /* of the largest parameter */
/* Returns true if a recorded gradient has an entry that is not finite. */
bool pd_trace_nonfinite(const pd_trace *trace);
/* Returns the message of the error that upstream raised in this step, "" if it was not recorded. NULL: no error. */
const char *pd_trace_error(const pd_trace *trace, int64_t step);
/* Returns true if upstream raised an error in some step. */
bool pd_trace_has_errors(const pd_trace *trace);

/* Copy one tensor to `at` (the parameter's elements). False: the trace has none. Steps count from 1. */
bool pd_trace_initial(const pd_trace *trace, size_t param, float *at);
bool pd_trace_gradient(const pd_trace *trace, int64_t step, int replica, size_t param, float *at);
bool pd_trace_weights(const pd_trace *trace, int64_t step, size_t param, double *at);
bool pd_trace_average(const pd_trace *trace, int64_t step, int replica, size_t param, double *at);
/* Finds the recorded learning rate of a step. False: the rate is constant. */
bool pd_trace_rate(const pd_trace *trace, int64_t step, double *rate);

/* ---- any tensor by its name: recorded state, and files of numbered cases, which pd_trace_check refuses ---- */

/* Returns names in the order of the file, i = 0, 1 ... NULL: there are no more. Borrowed. */
const char *pd_trace_tensor_name(const pd_trace *trace, size_t i);
/* Returns true if a name begins with `prefix`. */
bool pd_trace_has(const pd_trace *trace, const char *prefix);
/* Finds the shape of a tensor. False: there is none, or its elements are no numbers. */
bool pd_trace_tensor(const pd_trace *trace, const char *name, pd_shape *shape);
/* Copies a tensor that pd_trace_tensor has found to `at` (the elements of its shape). */
void pd_trace_values(const pd_trace *trace, const char *name, double *at);

#endif
