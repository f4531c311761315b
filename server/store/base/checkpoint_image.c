/* checkpoint_image.c - a checkpoint of a job in memory. */
#include "checkpoint_image.h"

#include <assert.h>
#include <stdlib.h>

void pd_checkpoint_image_free(pd_checkpoint_image *kept)
{
    if (kept == NULL) return;
    for (uint32_t i = 0; i < kept->n_params; i++) {
        assert(kept->params[i].published == NULL);
        free(kept->params[i].name);
        free(kept->params[i].state);
    }
    for (uint32_t i = 0; i < kept->n_worker_states; i++) free(kept->worker_states[i].at);
    free(kept->params);
    free(kept->worker_states);
    free(kept->head);
    free(kept->memory);
    free(kept->job);
    free(kept);
}

uint64_t pd_checkpoint_image_bytes(const pd_checkpoint_image *kept)
{
    uint64_t bytes = sizeof *kept + kept->head_bytes;

    for (uint32_t i = 0; i < kept->n_params; i++) bytes += sizeof kept->params[i] + kept->params[i].state_bytes;
    for (uint32_t i = 0; i < kept->n_worker_states; i++)
        bytes += sizeof kept->worker_states[i] + kept->worker_states[i].bytes;
    return bytes;
}
