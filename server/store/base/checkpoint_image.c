/* checkpoint_image.c - a checkpoint of a job in memory. */
#include "checkpoint_image.h"

#include "wal_record.h"

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

bool pd_kept_steps_has(const pd_kept_steps *kept, uint64_t step)
{
    for (uint32_t i = 0; i < kept->n; i++)
        if (kept->at[i] == step) return true;
    return false;
}

void pd_kept_steps_add(pd_kept_steps *kept, uint64_t step)
{
    if (kept->n < PD_KEPT_MOST && !pd_kept_steps_has(kept, step)) kept->at[kept->n++] = step;
}

void pd_go_back_order_free(pd_go_back_order *order)
{
    if (order == NULL) return;
    while (order->records != NULL) pd_wal_record_free(pd_wal_record_take(&order->records));
    pd_checkpoint_image_free(order->image);
    free(order->job);
    free(order);
}
