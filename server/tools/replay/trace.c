/* trace.c - opens and checks the trace of a recorded run, and reads its tensors and metadata. */
#include "trace.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "convert.h"
#include "optimizer_ops.h"
#include "text.h"
#include "safetensors.h"

static int load(uint8_t **out, size_t *bytes, int fd, const char *path, long long most, pd_error *err)
{
    struct stat st;
    size_t have = 0;

    if (fstat(fd, &st) != 0 || !S_ISREG(st.st_mode))
        return pd_fail(err, PD_INVALID_ARGUMENT, "%.300s: not a file", path);
    if (st.st_size > most)
        return pd_fail(err, PD_RESOURCE_EXHAUSTED, "%.300s: %lld bytes, at most %lld are read", path,
                       (long long)st.st_size, most);
    *bytes = (size_t)st.st_size;
    if ((*out = malloc(*bytes + 1)) == NULL)
        return pd_fail(err, PD_NO_MEMORY, "%.300s: no memory for %zu bytes", path, *bytes);
    while (have < *bytes) {
        ssize_t n = read(fd, *out + have, *bytes - have);
        if (n < 0 && errno == EINTR) continue;
        if (n <= 0)
            return pd_fail(err, PD_DATA_LOSS, "%.300s: cannot be read: %s", path,
                           n < 0 ? strerror(errno) : "the file was truncated");
        have += (size_t)n;
    }
    return PD_OK;
}

/* Reads a whole file of at most `most` bytes into *out. The caller frees *out, also after an error. PD_NOT_FOUND:
 * the file cannot be opened. PD_INVALID_ARGUMENT: it is not a regular file. PD_RESOURCE_EXHAUSTED: it has more than
 * `most` bytes. PD_DATA_LOSS: reading fails. PD_NO_MEMORY: out of memory. */
static int read_file(uint8_t **out, size_t *bytes, const char *path, long long most, pd_error *err)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK), rc;

    *out = NULL;
    if (fd < 0) return pd_fail(err, PD_NOT_FOUND, "%.300s: %s", path, strerror(errno));
    rc = load(out, bytes, fd, path, most, err);
    close(fd);
    return rc;
}

static const char *const beyond[] = { "NaN", "-Infinity", "Infinity" };

/* Returns how many characters the word NaN, Infinity or -Infinity at the start of `text` has; 0: no such word is
 * there. */
static size_t beyond_length(const char *text)
{
    for (size_t i = 0; i < sizeof beyond / sizeof *beyond; i++) {
        size_t n = strlen(beyond[i]);
        if (strncmp(text, beyond[i], n) == 0) return n;
    }
    return 0;
}

/* Copies JSON text, with null in place of each NaN and infinity outside of strings. Each null is at most one byte
 * longer than the number it replaces. */
static void replace(char *to, const char *text)
{
    bool inside = false;
    size_t n;

    while (*text != '\0') {
        if (inside && *text == '\\' && text[1] != '\0') {
            *to++ = *text++;
            *to++ = *text++;
        } else if (!inside && (n = beyond_length(text)) > 0) {
            to = stpcpy(to, "null");
            text += n;
        } else {
            inside ^= *text == '"';
            *to++ = *text++;
        }
    }
    *to = '\0';
}

json_t *pd_python_json(const char *text, json_error_t *why)
{
    char *standard = malloc(2 * strlen(text) + 1);
    json_t *json;

    if (standard == NULL) {
        snprintf(why->text, sizeof why->text, "out of memory");
        return NULL;
    }
    replace(standard, text);
    json = json_loads(standard, JSON_REJECT_DUPLICATES, why);
    free(standard);
    return json;
}

/* Returns whether a replay can read numbers of this element type. */
static bool is_number(pd_st_dtype dtype)
{
    static const bool numbers[PD_ST_DTYPES] = {
        [PD_ST_F32] = true, [PD_ST_F64] = true, [PD_ST_BF16] = true, [PD_ST_F16] = true,
        [PD_ST_I8] = true,  [PD_ST_I16] = true, [PD_ST_I32] = true,  [PD_ST_I64] = true
    };

    return numbers[dtype];
}

/* Returns element i of a recorded tensor. */
static double value_at(const pd_safetensors *tensors, const pd_st_tensor *tensor, int64_t i)
{
    size_t size = pd_st_dtype_size(tensor->dtype);
    union {
        int8_t c;
        int16_t s;
        uint16_t h;
        float f;
        double d;
        int32_t i;
        int64_t l;
    } x;

    memcpy(&x, (const uint8_t *)pd_safetensors_data(tensors, tensor) + (size_t)i * size, size);
    switch (tensor->dtype) {
    case PD_ST_F32: return x.f;
    case PD_ST_F64: return x.d;
    case PD_ST_BF16: return pd_f32_from_bf16(x.h);
    case PD_ST_F16: return pd_f32_from_f16(x.h);
    case PD_ST_I8: return x.c;
    case PD_ST_I16: return x.s;
    case PD_ST_I32: return x.i;
    default: return (double)x.l;
    }
}

/* Returns how many elements a recorded tensor has. */
static int64_t count_of(const pd_st_tensor *tensor)
{
    return (int64_t)(tensor->bytes / pd_st_dtype_size(tensor->dtype));
}

/* Copy all elements of a recorded tensor, converted to the type of `at`. Return false if `tensor` is NULL. */
static bool copy_floats(const pd_safetensors *tensors, const pd_st_tensor *tensor, float *at)
{
    if (tensor == NULL) return false;
    if (tensor->dtype == PD_ST_F32) {
        memcpy(at, pd_safetensors_data(tensors, tensor), tensor->bytes);
    } else {
        for (int64_t i = 0; i < count_of(tensor); i++) at[i] = (float)value_at(tensors, tensor, i);
    }
    return true;
}

/* Copy all elements of a recorded tensor, converted to the type of `at`. Return false if `tensor` is NULL. */
static bool copy_doubles(const pd_safetensors *tensors, const pd_st_tensor *tensor, double *at)
{
    if (tensor == NULL) return false;
    for (int64_t i = 0; i < count_of(tensor); i++) at[i] = value_at(tensors, tensor, i);
    return true;
}

/* Limit of the work of a replay: number of steps times replicas times parameters. */
#define MAX_WORK 50000000ll
#define KEY_TEXT 400 /* longest name of a tensor in a trace, in bytes */

typedef enum kind { WEIGHTS, GRADIENT, AVERAGE, OTHER } kind;

static const char *const prefixes[] = { "param", "grad", "average" };

/* The name of a recorded tensor, split into kind, step, replica and parameter. */
typedef struct key {
    kind kind;
    int64_t step;
    int replica; /* number of the replica; 0 if the names of tensors have no such number */
    const char *param;
} key;

/* Reads a number of exactly `digits` decimal digits at *at, and moves *at past it. Returns -1 if there is no such
 * number. */
static int read_number(const char **at, int digits)
{
    int value = 0;

    for (int i = 0; i < digits; i++, (*at)++) {
        if (**at < '0' || **at > '9') return -1;
        value = 10 * value + (**at - '0');
    }
    return value;
}

/* Splits the name of a tensor, such as "grad/0003/r01/encoder/kernel". `replicas`: the names contain rRR, the number of
 * the replica. */
static key parse_key(const char *text, bool replicas)
{
    key k = { .kind = OTHER };

    for (kind which = WEIGHTS; which < OTHER; which++) {
        const char *at = text;
        size_t length = strlen(prefixes[which]);
        if (strncmp(at, prefixes[which], length) != 0 || at[length] != '/') continue;
        at += length + 1;
        if ((k.step = read_number(&at, 4)) < 0 || *at++ != '/') return k;
        if (replicas && (*at++ != 'r' || (k.replica = read_number(&at, 2)) < 0 || *at++ != '/')) return k;
        k.kind = which;
        k.param = at;
        return k;
    }
    return k;
}

static const pd_st_tensor *find(const pd_trace *trace, kind which, int64_t step, int replica, const char *param)
{
    char name[KEY_TEXT], rank[8] = "";

    if (trace->averages) snprintf(rank, sizeof rank, "r%02d/", replica);
    int n = snprintf(name, sizeof name, "%s/%04d/%s%s", prefixes[which], (int)step, rank, param);
    return n < (int)sizeof name ? pd_safetensors_find(trace->tensors, name) : NULL;
}

static int read_word(const pd_trace *trace, const char *name, char *out, size_t size, pd_error *err)
{
    const char *value = pd_safetensors_meta(trace->tensors, name);

    if (value == NULL) return pd_fail(err, PD_INVALID_ARGUMENT, "not a trace: metadata has no %s", name);
    if (strlen(value) >= size || pd_text_check("it", value, NULL) != PD_OK)
        return pd_fail(err, PD_INVALID_ARGUMENT, "metadata %s: too long or not printable", name);
    strcpy(out, value);
    return PD_OK;
}

/* Reads a number from the metadata, which must be between `least` and `most`. If it is missing, *out is `preset`. */
static int read_real(const pd_trace *trace, const char *name, double preset, double least, double most, double *out,
                     pd_error *err)
{
    const char *text = pd_safetensors_meta(trace->tensors, name);
    char *end;

    *out = preset;
    if (text == NULL) return PD_OK;
    *out = strtod(text, &end);
    if (end == text || *end != '\0' || !(*out >= least && *out <= most))
        return pd_fail(err, PD_INVALID_ARGUMENT, "metadata %s is %.40s, expected a number from %g to %g", name, text,
                       least, most);
    return PD_OK;
}

static int read_tolerance(pd_trace *trace, pd_error *err)
{
    /* true: the recorded noise is the distance between a float32 run and a float64 run that computed with the same
     * scalar factors. Then 3 times the noise suffices as tolerance, otherwise 10 times. */
    bool close = pd_safetensors_meta(trace->tensors, "noise_bc32") != NULL;
    double noise, state_noise, way_noise;
    int rc = read_real(trace, close ? "noise_bc32" : "noise", 0, 0, 1e30, &noise, err);

    if (rc == PD_OK) rc = read_real(trace, "noise_state", -1, 0, 1e30, &state_noise, err);
    if (rc == PD_OK) rc = read_real(trace, "noise_bc32_displacement", -1, 0, 1e30, &way_noise, err);
    if (rc != PD_OK) return rc;
    trace->tolerance = (close ? 3 : 10) * noise + 1e-6;
    trace->state_tolerance = state_noise < 0 ? -1 : 10 * state_noise + 1e-6;
    trace->way_tolerance = way_noise < 0 ? -1 : 3 * way_noise + 1e-6;
    return PD_OK;
}

const char *pd_trace_meta(const pd_trace *trace, const char *name)
{
    return pd_safetensors_meta(trace->tensors, name);
}

int pd_trace_json(const pd_trace *trace, const char *name, json_type type, json_t **out, pd_error *err)
{
    const char *text = pd_safetensors_meta(trace->tensors, name);
    json_error_t why;

    *out = NULL;
    if (text == NULL) return PD_OK;
    *out = pd_python_json(text, &why);
    if (*out == NULL) return pd_fail(err, PD_INVALID_ARGUMENT, "metadata %s is not JSON: %s", name, why.text);
    if (json_typeof(*out) == type) return PD_OK;
    json_decref(*out);
    *out = NULL;
    return pd_fail(err, PD_INVALID_ARGUMENT, "metadata %s: expected a JSON %s", name,
                   type == JSON_OBJECT ? "object" : "list");
}

static int read_errors(pd_trace *trace, pd_error *err)
{
    json_t *entry;
    size_t i;
    int rc = trace->errors == NULL ? pd_trace_json(trace, "errors", JSON_ARRAY, &trace->errors, err) : PD_OK;

    json_array_foreach(trace->errors, i, entry)
    {
        json_int_t step = json_integer_value(json_object_get(entry, "step"));
        const char *message = json_string_value(json_object_get(entry, "message"));
        if (step >= 1 && step <= trace->steps) trace->error[step] = message != NULL ? message : "";
    }
    return rc;
}

static int read_metadata(pd_trace *trace, pd_error *err)
{
    double steps;
    int rc = read_word(trace, "system", trace->system, sizeof trace->system, err);

    if (rc == PD_OK) rc = read_word(trace, "case", trace->name, sizeof trace->name, err);
    if (rc == PD_OK) rc = read_real(trace, "steps", 0, 0, 1e9, &steps, err);
    if (rc == PD_OK) rc = read_tolerance(trace, err);
    if (rc == PD_OK) trace->steps = (int64_t)steps;
    return rc;
}

int pd_trace_open(pd_trace **out, const char *path, pd_error *err)
{
    pd_trace *trace = calloc(1, sizeof *trace);
    size_t bytes = 0;
    int rc;

    if (trace == NULL) return pd_fail(err, PD_NO_MEMORY, "out of memory");
    trace->path = strdup(path);
    rc = trace->path == NULL ? pd_fail(err, PD_NO_MEMORY, "out of memory") : PD_OK;
    if (rc == PD_OK) rc = read_file(&trace->file, &bytes, path, PD_TRACE_MAX_BYTES, err);
    if (rc == PD_OK) rc = pd_safetensors_read(&trace->tensors, trace->file, bytes, err);
    if (rc == PD_OK) rc = read_metadata(trace, err);
    if (rc == PD_OK)
        *out = trace;
    else
        pd_trace_close(trace);
    return rc;
}

void pd_trace_close(pd_trace *trace)
{
    if (trace == NULL) return;
    for (size_t i = 0; i < trace->n; i++) free(trace->params[i].name);
    free(trace->params);
    json_decref(trace->config);
    json_decref(trace->errors);
    pd_safetensors_free(trace->tensors);
    free(trace->file);
    free(trace->path);
    free(trace);
}

int pd_trace_config(pd_trace *trace, const json_t **out, pd_error *err)
{
    int rc = trace->config == NULL ? pd_trace_json(trace, "config", JSON_OBJECT, &trace->config, err) : PD_OK;

    if (rc == PD_OK && trace->config == NULL) rc = pd_fail(err, PD_INVALID_ARGUMENT, "metadata has no config");
    *out = trace->config;
    return rc;
}

/* Returns the tensor that gives a parameter its shape; `k` has the parameter's name. It is the tensor of initial
 * weights, or in a trace of averages the first replica's average of that step. */
static const pd_st_tensor *declaring(const pd_trace *trace, const key *k)
{
    return trace->averages ? find(trace, AVERAGE, k->step, 0, k->param) : find(trace, WEIGHTS, 0, 0, k->param);
}

static bool declares(const pd_trace *trace, const key *k)
{
    return trace->averages ? k->kind == AVERAGE && k->replica == 0 : k->kind == WEIGHTS && k->step == 0;
}

/* Returns a parameter's name as it occurs in the names of tensors. In a trace of averages this is the name without the
 * step at its beginning. */
static const char *name_of(const pd_trace *trace, size_t param)
{
    return trace->params[param].name + (trace->averages ? strlen("0000/") : 0);
}

/* Returns true if a bfloat16 tensor with one element is a scalar, although it is stored as a vector. The shape of
 * the parameter's gradient or optimizer state shows which of the two it is. */
static bool is_scalar(const pd_trace *trace, const pd_st_tensor *tensor, const key *k)
{
    const pd_st_tensor *gradient = find(trace, GRADIENT, 1, 0, k->param), *moment;
    char name[300];

    if (tensor->dtype != PD_ST_BF16 || tensor->shape.rank != 1 || count_of(tensor) != 1) return false;
    snprintf(name, sizeof name, "state/0001/%.250s/v", k->param);
    moment = pd_safetensors_find(trace->tensors, name);
    return (gradient != NULL && gradient->shape.rank == 0) || (moment != NULL && moment->shape.rank == 0);
}

static int add_param(pd_trace *trace, const pd_st_tensor *tensor, const key *k, pd_error *err)
{
    pd_trace_param *param = &trace->params[trace->n];
    char name[300];

    if (*k->param == '\0' || strlen(k->param) > 250 || pd_text_check("it", k->param, NULL) != PD_OK)
        return pd_fail(err, PD_INVALID_ARGUMENT, "a parameter's name must have 1 to 250 printable bytes");
    if (trace->averages)
        snprintf(name, sizeof name, "%04d/%s", (int)k->step, k->param);
    else
        snprintf(name, sizeof name, "%s", k->param);
    if ((param->name = strdup(name)) == NULL) return pd_fail(err, PD_NO_MEMORY, "out of memory");
    param->step = trace->averages ? k->step : 0;
    param->shape = is_scalar(trace, tensor, k) ? (pd_shape){ 0 } : tensor->shape;
    param->elements = count_of(tensor);
    if (param->elements > trace->most_elements) trace->most_elements = param->elements;
    trace->n++;
    return PD_OK;
}

static int find_params(pd_trace *trace, pd_error *err)
{
    size_t n;
    const pd_st_tensor *tensors = pd_safetensors_tensors(trace->tensors, &n);
    int rc = PD_OK;

    for (size_t i = 0; i < n; i++) trace->averages |= parse_key(tensors[i].name, true).kind == AVERAGE;
    if ((trace->params = calloc(n + 1, sizeof *trace->params)) == NULL)
        return pd_fail(err, PD_NO_MEMORY, "out of memory");
    trace->replicas = 1;
    for (size_t i = 0; i < n && rc == PD_OK; i++) {
        key k = parse_key(tensors[i].name, trace->averages);
        if (k.kind == GRADIENT && k.replica >= trace->replicas) trace->replicas = k.replica + 1;
        if (declares(trace, &k)) rc = add_param(trace, &tensors[i], &k, err);
    }
    if (rc == PD_OK && trace->n == 0)
        rc = pd_fail(err, PD_UNIMPLEMENTED, "contains no steps: no tensor param/0000/NAME");
    if (rc == PD_OK && trace->replicas > PD_TRACE_MAX_REPLICAS)
        rc = pd_fail(err, PD_INVALID_ARGUMENT, "%d replicas, at most %d are supported", trace->replicas,
                     PD_TRACE_MAX_REPLICAS);
    if (rc == PD_OK && trace->steps * trace->replicas > MAX_WORK / (int64_t)trace->n)
        rc = pd_fail(err, PD_INVALID_ARGUMENT,
                     "steps x replicas x parameters are too much work for a replay, at most %lld", MAX_WORK);
    return rc;
}

/* Returns true if two tensors have the same shape. A scalar and a vector of one element count as the same. */
static bool shaped_alike(const pd_st_tensor *a, const pd_st_tensor *b)
{
    return pd_shape_equal(&a->shape, &b->shape) ||
           (count_of(a) == 1 && count_of(b) == 1 && a->shape.rank <= 1 && b->shape.rank <= 1);
}

static int check_tensor(pd_trace *trace, const pd_st_tensor *tensor, pd_error *err)
{
    key k = parse_key(tensor->name, trace->averages);
    const pd_st_tensor *origin;

    if (k.kind == OTHER) return PD_OK;
    origin = declaring(trace, &k);
    if (origin == NULL) return pd_fail(err, PD_INVALID_ARGUMENT, "%.256s belongs to no parameter", tensor->name);
    if (k.step > trace->steps)
        return pd_fail(err, PD_INVALID_ARGUMENT, "%.256s: the trace has %d steps", tensor->name, (int)trace->steps);
    if (!is_number(tensor->dtype))
        return pd_fail(err, PD_INVALID_ARGUMENT, "%.256s: elements are %s, expected numbers", tensor->name,
                       pd_st_dtype_name(tensor->dtype));
    if (!shaped_alike(tensor, origin)) {
        char a[192], b[192];
        return pd_fail(err, PD_INVALID_ARGUMENT, "%.256s has shape %s, the parameter %s", tensor->name,
                       pd_shape_text(&tensor->shape, a, sizeof a), pd_shape_text(&origin->shape, b, sizeof b));
    }
    for (int64_t i = 0; k.kind == GRADIENT && !trace->extreme && i < count_of(tensor); i++)
        trace->extreme = !(fabs(value_at(trace->tensors, tensor, i)) <= PD_PRODUCT_MOST);
    return PD_OK;
}

static int note_step(pd_trace *trace, double step, pd_error *err)
{
    if (!(step >= 1 && step <= (double)trace->steps))
        return pd_fail(err, PD_INVALID_ARGUMENT, "param_steps: invalid step number %g", step);
    trace->recorded[(int64_t)step] = true;
    return PD_OK;
}

/* Sets trace->recorded if the file does not list the steps after which weights were recorded. These are all steps,
 * except in a trace with losses, a training run of a real network: there they are the last step, and each step after
 * which the file has the weights of any parameter. */
static void note_all_steps(pd_trace *trace)
{
    bool sparse = pd_safetensors_find(trace->tensors, "loss") != NULL;

    for (int64_t step = 1; step <= trace->steps; step++) {
        trace->recorded[step] = !sparse || step == trace->steps;
        for (size_t i = 0; i < trace->n && !trace->recorded[step]; i++)
            trace->recorded[step] = find(trace, WEIGHTS, step, 0, name_of(trace, i)) != NULL;
    }
}

/* Finds the steps after which weights were recorded. The metadata `param_steps` or the tensor `table/param_steps` may
 * list them; if neither does, note_all_steps finds them. */
static int find_recorded(pd_trace *trace, pd_error *err)
{
    const pd_st_tensor *table = pd_safetensors_find(trace->tensors, "table/param_steps");
    json_t *list, *entry;
    size_t k;
    int rc = pd_trace_json(trace, "param_steps", JSON_ARRAY, &list, err);

    if (table != NULL && !is_number(table->dtype))
        rc = pd_fail(err, PD_INVALID_ARGUMENT, "table/param_steps: expected numbers");
    json_array_foreach(list, k, entry)
    {
        if (rc == PD_OK) rc = note_step(trace, json_number_value(entry), err);
    }
    for (int64_t i = 0; rc == PD_OK && list == NULL && table != NULL && i < count_of(table); i++)
        rc = note_step(trace, value_at(trace->tensors, table, i), err);
    if (rc == PD_OK && list == NULL && table == NULL) note_all_steps(trace);
    json_decref(list);
    return rc;
}

static int missing(kind which, int64_t step, const char *name, pd_error *err)
{
    return pd_fail(err, PD_INVALID_ARGUMENT, "%s/%04d of %.256s is missing", prefixes[which], (int)step, name);
}

static int check_averages(const pd_trace *trace, pd_error *err)
{
    for (size_t i = 0; i < trace->n; i++) {
        for (int replica = 0; replica < trace->replicas; replica++) {
            int64_t step = trace->params[i].step;
            if (find(trace, AVERAGE, step, replica, name_of(trace, i)) == NULL)
                return missing(AVERAGE, step, name_of(trace, i), err);
            if (find(trace, GRADIENT, step, replica, name_of(trace, i)) == NULL)
                return missing(GRADIENT, step, name_of(trace, i), err);
        }
    }
    return PD_OK;
}

static int check_weights(const pd_trace *trace, pd_error *err)
{
    for (int64_t step = 1; step <= trace->steps; step++)
        for (size_t i = 0; trace->recorded[step] && i < trace->n; i++)
            if (find(trace, WEIGHTS, step, 0, name_of(trace, i)) == NULL)
                return missing(WEIGHTS, step, name_of(trace, i), err);
    return PD_OK;
}

static const pd_st_tensor *find_rate(const pd_trace *trace, int64_t step, int64_t *index)
{
    char name[32];
    const pd_st_tensor *rate;

    snprintf(name, sizeof name, "learning_rate/%04d", (int)step);
    rate = pd_safetensors_find(trace->tensors, name);
    *index = rate != NULL ? 0 : step - 1;
    return rate != NULL ? rate : pd_safetensors_find(trace->tensors, "table/learning_rate");
}

static int check_rates(const pd_trace *trace, pd_error *err)
{
    for (int64_t step = 1; step <= trace->steps; step++) {
        int64_t index;
        const pd_st_tensor *rate = find_rate(trace, step, &index);
        if (rate != NULL && (!is_number(rate->dtype) || count_of(rate) <= index))
            return pd_fail(err, PD_INVALID_ARGUMENT, "%.64s: expected a number for step %d", rate->name, (int)step);
    }
    return PD_OK;
}

int pd_trace_check(pd_trace *trace, pd_error *err)
{
    size_t n;
    const pd_st_tensor *tensors = pd_safetensors_tensors(trace->tensors, &n);
    int rc = find_params(trace, err);

    if (rc == PD_OK && (trace->steps < 1 || trace->steps > PD_TRACE_MAX_STEPS))
        rc = pd_fail(err, PD_INVALID_ARGUMENT, "%lld steps, expected 1 to %d", (long long)trace->steps,
                     PD_TRACE_MAX_STEPS);
    if (rc == PD_OK) rc = read_errors(trace, err);
    for (size_t i = 0; rc == PD_OK && i < n; i++) rc = check_tensor(trace, &tensors[i], err);
    if (rc == PD_OK) rc = find_recorded(trace, err);
    if (rc == PD_OK) rc = trace->averages ? check_averages(trace, err) : check_weights(trace, err);
    return rc == PD_OK ? check_rates(trace, err) : rc;
}

bool pd_trace_initial(const pd_trace *trace, size_t param, float *at)
{
    return copy_floats(trace->tensors, find(trace, WEIGHTS, 0, 0, name_of(trace, param)), at);
}

bool pd_trace_gradient(const pd_trace *trace, int64_t step, int replica, size_t param, float *at)
{
    return copy_floats(trace->tensors, find(trace, GRADIENT, step, replica, name_of(trace, param)), at);
}

bool pd_trace_weights(const pd_trace *trace, int64_t step, size_t param, double *at)
{
    return trace->recorded[step] &&
           copy_doubles(trace->tensors, find(trace, WEIGHTS, step, 0, name_of(trace, param)), at);
}

bool pd_trace_average(const pd_trace *trace, int64_t step, int replica, size_t param, double *at)
{
    return copy_doubles(trace->tensors, find(trace, AVERAGE, step, replica, name_of(trace, param)), at);
}

bool pd_trace_rate(const pd_trace *trace, int64_t step, double *rate)
{
    int64_t index;
    const pd_st_tensor *tensor = find_rate(trace, step, &index);

    if (tensor != NULL) *rate = value_at(trace->tensors, tensor, index);
    return tensor != NULL;
}

const char *pd_trace_tensor_name(const pd_trace *trace, size_t i)
{
    size_t n;
    const pd_st_tensor *tensors = pd_safetensors_tensors(trace->tensors, &n);

    return i < n ? tensors[i].name : NULL;
}

bool pd_trace_has(const pd_trace *trace, const char *prefix)
{
    const char *name;

    for (size_t i = 0; (name = pd_trace_tensor_name(trace, i)) != NULL; i++)
        if (strncmp(name, prefix, strlen(prefix)) == 0) return true;
    return false;
}

bool pd_trace_tensor(const pd_trace *trace, const char *name, pd_shape *shape)
{
    const pd_st_tensor *tensor = pd_safetensors_find(trace->tensors, name);

    if (tensor == NULL || !is_number(tensor->dtype)) return false;
    *shape = tensor->shape;
    return true;
}

void pd_trace_values(const pd_trace *trace, const char *name, double *at)
{
    copy_doubles(trace->tensors, pd_safetensors_find(trace->tensors, name), at);
}
