/* shapes_file.h - which parameters does a model have? Reads names and shapes from a file, whichever of three kinds it
 * is:
 *
 *     text           a line each, "NAME DIM DIM ..."; a name alone is a scalar; "axes=layers,embed,mlp" at the end of a
 *                    line names its dimensions; # begins a comment; blank lines are skipped
 *     JSON           an object, {"NAME": [DIM, DIM, ...], ...}, or with names of dimensions
 *                    {"NAME": {"shape": [DIM, ...], "axes": "layers,embed,mlp"}, ...}
 *     safetensors    the tensors of a checkpoint; those that are not floating point are no parameters and are left out
 *
 * Names and shapes are what a job may declare: UTF-8 without control characters, each name once, at least one
 * element. */
#ifndef PD_SHAPES_FILE_H
#define PD_SHAPES_FILE_H

#include "paramd/tensor.h"

#define PD_SHAPES_MAX        (1 << 20)          /* parameters */
#define PD_SHAPES_TEXT_BYTES (64ll << 20)       /* of a text or JSON file */

typedef struct pd_shape_entry {
    char    *name;
    pd_shape shape;
    char    *axes;                  /* logical names of its dimensions; NULL: not given */
    int64_t  elements;
    int64_t  line;                  /* of a text file; else 0 */
} pd_shape_entry;

typedef struct pd_shapes {
    pd_shape_entry *entries;        /* in the file's order; of safetensors in the order of the data */
    size_t          n;
    size_t          left_out;       /* tensors that are no parameters */
} pd_shapes;

/* Reads a file; free *out. After an error *out is empty, and the text begins with the path, followed by ":LINE" if a
 * line is wrong. PD_NOT_FOUND: no such file, or it cannot be read. PD_INVALID_ARGUMENT: wrong content.
 * PD_RESOURCE_EXHAUSTED: more than the limits above, or a safetensors header beyond its own. PD_NO_MEMORY. */
int  pd_shapes_read(pd_shapes *out, const char *path, pd_error *err);
void pd_shapes_free(pd_shapes *shapes);         /* accepts an empty one */

#endif
