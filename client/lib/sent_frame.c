/* sent_frame.c - frames of steps that this process has taken: their memory. */
#include "sent_frame.h"

#include <stdlib.h>
#include <string.h>

static void past_free(pd_sent_frame *past)
{
    free(past->head);
    free(past->payload);
    free(past);
}

pd_sent_frame *pd_sent_frame_new(size_t n, const uint8_t *head, size_t head_bytes)
{
    pd_sent_frame *past = calloc(1, sizeof *past + n * sizeof *past->parts);

    if (past == NULL) return NULL;
    past->n = n;
    past->head_bytes = head_bytes;
    past->head = malloc(head_bytes);
    if (past->head == NULL) {
        past_free(past);
        return NULL;
    }
    memcpy(past->head, head, head_bytes);
    return past;
}

void pd_sent_frame_drop(pd_sent_frame *past)
{
    if (past == NULL) return;
    if (past->again != NULL)
        past->dropped = true;
    else
        past_free(past);
}

void pd_sent_frame_release(pd_sent_frame *past)
{
    past->again = NULL;
    if (past->dropped) past_free(past);
}
