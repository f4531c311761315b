/* kept_copy.c - copies a checkpoint with all that it refers to. */
#include "kept_copy.h"

#include <stdlib.h>
#include <string.h>

static void *copy_bytes(const void *at, size_t bytes)
{
    void *copy = malloc(bytes + 1);

    if (copy != NULL && bytes > 0) memcpy(copy, at, bytes);
    return copy;
}

static void copy_params(pd_checkpoint_image *to, const pd_checkpoint_image *from)
{
    size_t n = 0;
    float *weights;

    for (uint32_t i = 0; i < from->n_params; i++) n += (size_t)from->params[i].elements;
    to->memory = weights = malloc((n + 1) * sizeof *weights);
    to->params = calloc(from->n_params + 1, sizeof *to->params);
    for (uint32_t i = 0; i < from->n_params; i++) {
        const pd_checkpoint_param *param = &from->params[i];
        to->params[i] = *param;
        to->params[i].name = strdup(param->name);
        to->params[i].published = NULL;
        to->params[i].state = copy_bytes(param->state, param->state_bytes);
        to->params[i].weights = memcpy(weights, param->weights, (size_t)param->elements * sizeof *weights);
        weights += param->elements;
    }
}

pd_checkpoint_image *kept_copy(const pd_checkpoint_image *from)
{
    pd_checkpoint_image *to = copy_bytes(from, sizeof *from);

    if (to == NULL) return NULL;
    to->number = 0;
    to->job = strdup(from->job);
    to->head = copy_bytes(from->head, from->head_bytes);
    to->worker_states = calloc(from->n_worker_states + 1, sizeof *to->worker_states);
    for (uint32_t i = 0; i < from->n_worker_states; i++) {
        to->worker_states[i] = from->worker_states[i];
        to->worker_states[i].at = copy_bytes(from->worker_states[i].at, from->worker_states[i].bytes);
    }
    copy_params(to, from);
    return to;
}
