/* shapes_file.h - reads the names and shapes of a model's parameters from a file. The file is of one of three kinds:
 *
 *     text           a line each, "NAME DIM DIM ..." or "NAME (DIM, DIM, ...)"; a name alone is a scalar;
 *                    "axes=layers,embed,mlp" at the end of a line names its dimensions; # begins a comment; blank
 *                    lines are skipped
 *     JSON           an object, {"NAME": [DIM, DIM, ...], ...}, or with names of dimensions
 *                    {"NAME": {"shape": [DIM, ...], "axes": "layers,embed,mlp"}, ...}
 *     safetensors    the tensors of a checkpoint; tensors that are not floating point are no parameters: left out
 *
 * Names and shapes must be such as a job may declare: names are UTF-8 without control characters and occur once; shapes
 * have at least one element. */
#ifndef PD_SHAPES_FILE_H
#define PD_SHAPES_FILE_H

#include "paramd/tensor.h"

#define PD_SHAPES_MAX (1 << 20)           /* most parameters in a file of shapes */
#define PD_SHAPES_TEXT_BYTES (64ll << 20) /* largest text or JSON file with shapes, in bytes */

/* A parameter of the file. */
typedef struct pd_shape_entry {
    char *name;
    pd_shape shape;
    char *axes; /* names of the parameter's dimensions, such as "layers,embed"; NULL: the file has none */
    int64_t elements;
    int64_t line; /* number of the line in a text file that names the parameter, from 1; 0: another kind of file */
} pd_shape_entry;

/* All parameters of the file. */
typedef struct pd_shapes {
    /* The parameters in the order of the file; in a safetensors file, in the order of the tensors' data. */
    pd_shape_entry *entries;
    size_t n;
    size_t left_out; /* number of tensors in the file that are no parameters, because they are not floating point */
} pd_shapes;

/* Reads the names and shapes of parameters from a file, or from standard input if the path is "-". The caller frees
 * *out; after an error it is empty. The error text begins with the path, and with ":LINE" if a line is wrong.
 *
 * PD_NOT_FOUND: the file does not exist or cannot be read.
 *
 * PD_INVALID_ARGUMENT: the content of the file is wrong.
 *
 * PD_RESOURCE_EXHAUSTED: the file exceeds PD_SHAPES_MAX or PD_SHAPES_TEXT_BYTES, or the limit of a safetensors header.
 *
 * PD_NO_MEMORY: out of memory. */
int pd_shapes_read(pd_shapes *out, const char *path, pd_error *err);
/* Frees a list of shapes, which may be empty. */
void pd_shapes_free(pd_shapes *shapes);

#endif
