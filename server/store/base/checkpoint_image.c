/* checkpoint_image.c - a checkpoint of a job in memory. */
#include "checkpoint_image.h"

#include <assert.h>
#include <stdlib.h>

void pd_checkpoint_image_free(pd_checkpoint_image *image)
{
    if (image == NULL) return;
    for (uint32_t i = 0; i < image->n_params; i++) {
        assert(image->params[i].published == NULL);
        free(image->params[i].name);
        free(image->params[i].state);
    }
    for (uint32_t i = 0; i < image->n_worker_states; i++) free(image->worker_states[i].at);
    free(image->params);
    free(image->worker_states);
    free(image->head);
    free(image->memory);
    free(image->job);
    free(image);
}

uint64_t pd_checkpoint_image_bytes(const pd_checkpoint_image *image)
{
    uint64_t bytes = sizeof *image + image->head_bytes;

    for (uint32_t i = 0; i < image->n_params; i++) bytes += sizeof image->params[i] + image->params[i].state_bytes;
    for (uint32_t i = 0; i < image->n_worker_states; i++)
        bytes += sizeof image->worker_states[i] + image->worker_states[i].bytes;
    return bytes;
}
