/* trace.h - reads a trace, the file of a recorded run of an optimizer: a .safetensors file with tensors
 * `param/TTTT/NAME` and `grad/TTTT/NAME`, where TTTT is the step, and metadata. Each replica of the run was a worker.
 *
 * A file may be damaged or malicious. So pd_trace_open and pd_trace_check check everything that a replay uses: names,
 * shapes, types, steps. */
#ifndef PD_TRACE_H
#define PD_TRACE_H

#include <jansson.h>

#include "paramd/tensor.h"

#define PD_TRACE_MAX_STEPS 9999 /* names of tensors have four digits for the step */
#define PD_TRACE_MAX_REPLICAS 64
#define PD_TRACE_MAX_BYTES (4ll << 30) /* largest trace file that is read, in bytes */

/* A parameter of a recorded run. */
typedef struct pd_trace_param {
    char *name;   /* name of the parameter; in a trace of averages "TTTT/NAME", with the step */
    int64_t step; /* in a trace of averages the step to which the parameter belongs; in other traces 0 */
    pd_shape shape;
    int64_t elements;
} pd_trace_param;

/* A trace. Other files read its fields; only trace.c writes them. */
typedef struct pd_trace {
    char *path;    /* path of the file, as it was given to pd_trace_open */
    uint8_t *file; /* all bytes of the file */
    struct pd_safetensors *tensors;
    char system[64], name[128]; /* from the metadata: the system that was recorded, such as "torch_optim", and the name
                                 * of the case */
    json_t *config;             /* NULL until pd_trace_config reads it */
    int64_t steps;
    /* Largest relative errors that a replay may have. They follow from the noise that the metadata record: how far the
     * reference optimizer's float32 run is from its float64 run.
     *
     * tolerance, of weights: 3 * noise_bc32 + 1e-6; without noise_bc32, 10 * noise + 1e-6. state_tolerance, of
     * optimizer state: 10 * noise_state + 1e-6. way_tolerance, of the weights' distance from their initial values: 3 *
     * noise_bc32_displacement + 1e-6. The last two are negative if their noise was not recorded. */
    double tolerance, state_tolerance, way_tolerance;

    /* The fields below are set by pd_trace_check. */
    bool recorded[PD_TRACE_MAX_STEPS + 1]; /* recorded[step]: the file has the weights after this step */
    json_t *errors;
    /* error[step]: message of the error that the reference optimizer raised in this step; "" if the message was not
     * recorded. NULL: the step raised no error. */
    const char *error[PD_TRACE_MAX_STEPS + 1];
    bool averages; /* the trace records averages of gradients instead of weights */
    /* true: a gradient has an element that is NaN or infinite, or so large that a job would skip the step of some
     * optimizer (pd_optimizer_ops.gradient_most). */
    bool extreme;
    int replicas; /* at least 1 */
    pd_trace_param *params;
    size_t n;
    int64_t most_elements; /* number of elements of the largest parameter */
} pd_trace;

/* Opens a trace: reads the file and its metadata. PD_NOT_FOUND: there is no such file. PD_INVALID_ARGUMENT: the file is
 * not a trace; the error says what is wrong. PD_RESOURCE_EXHAUSTED: the file is larger than PD_TRACE_MAX_BYTES.
 * PD_DATA_LOSS: reading fails. PD_NO_MEMORY. */
int pd_trace_open(pd_trace **out, const char *path, pd_error *err);
void pd_trace_close(pd_trace *trace); /* accepts NULL */

/* Return an entry of the trace's metadata. pd_trace_meta returns text; NULL: the entry is missing. pd_trace_json sets
 * *out to JSON, which the caller frees; *out is NULL if the entry is missing. PD_INVALID_ARGUMENT: the entry is not
 * JSON, or of another type. */
const char *pd_trace_meta(const pd_trace *trace, const char *name);
int pd_trace_json(const pd_trace *trace, const char *name, json_type type, json_t **out, pd_error *err);
/* Finds the configuration of the reference optimizer: a JSON object with its hyperparameters. *out is borrowed.
 * PD_INVALID_ARGUMENT: the configuration is missing, or not JSON. */
int pd_trace_config(pd_trace *trace, const json_t **out, pd_error *err);
/* Parses JSON as Python's json module writes it, with null in place of NaN and infinities. The caller frees the result.
 * NULL: the text is not JSON, an object has two equal keys, or out of memory; *why has the reason. */
json_t *pd_python_json(const char *text, json_error_t *why);

/* Finds the parameters of a trace, and checks every tensor that a replay reads.
 *
 * Each gradient must belong to a parameter and to a step of the run, and have the parameter's shape. Weights must be
 * recorded after every step, or after those that the file lists in the metadata `param_steps` or in the tensor
 * `table/param_steps`. In a trace with a `loss`, weights may be missing after any step but the last. After one step
 * they must be there for all parameters or for none.
 *
 * A trace of averages (`average/TTTT/rRR/NAME`) has independent steps with different shapes. Each pair of step and NAME
 * counts as a parameter of its own.
 *
 * PD_INVALID_ARGUMENT: a check failed; the error names the tensor. PD_UNIMPLEMENTED: the file has no parameters and
 * steps. */
int pd_trace_check(pd_trace *trace, pd_error *err);

/* Copy one recorded tensor of a parameter of a checked trace to `at`, which must have room for the parameter's
 * elements. Return false if the trace lacks the tensor. Steps count from 1. */
bool pd_trace_initial(const pd_trace *trace, size_t param, float *at);
bool pd_trace_gradient(const pd_trace *trace, int64_t step, int replica, size_t param, float *at);
bool pd_trace_weights(const pd_trace *trace, int64_t step, size_t param, double *at);
bool pd_trace_average(const pd_trace *trace, int64_t step, int replica, size_t param, double *at);
/* Sets *rate to the learning rate that was recorded for a step. Returns false if none was recorded: then the rate is
 * constant. */
bool pd_trace_rate(const pd_trace *trace, int64_t step, double *rate);

/* Returns the name of the trace's tensor number i, in the order of the file. The name is borrowed. NULL: the file has
 * no tensor number i. pd_trace_tensor_name, pd_trace_has, pd_trace_tensor and pd_trace_values may be called before
 * pd_trace_check. */
const char *pd_trace_tensor_name(const pd_trace *trace, size_t i);
/* Returns true if the trace has a tensor whose name begins with `prefix`. */
bool pd_trace_has(const pd_trace *trace, const char *prefix);
/* Finds the shape of a tensor of the trace. Returns false if the file has no such tensor, or its elements are not
 * numbers. */
bool pd_trace_tensor(const pd_trace *trace, const char *name, pd_shape *shape);
/* Copies all elements of a tensor of the trace to `at`. pd_trace_tensor must have found the tensor. */
void pd_trace_values(const pd_trace *trace, const char *name, double *at);

#endif
