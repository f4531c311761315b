/* past.c - frames of steps that this process has taken: their memory. */
#include "past.h"

#include <stdlib.h>
#include <string.h>

static void past_free(pd_past *past)
{
    free(past->head);
    free(past->payload);
    free(past);
}

pd_past *pd_past_new(size_t n, const uint8_t *head, size_t head_bytes)
{
    pd_past *past = calloc(1, sizeof *past + n * sizeof *past->parts);

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

void pd_past_drop(pd_past *past)
{
    if (past == NULL) return;
    if (past->again != NULL)
        past->dropped = true;
    else
        past_free(past);
}

void pd_past_release(pd_past *past)
{
    past->again = NULL;
    if (past->dropped) past_free(past);
}
