/* wal_record.c - frees records of a WAL. */
#include "wal_record.h"

#include <assert.h>
#include <stdlib.h>

void pd_wal_record_free(pd_wal_record *record)
{
    if (record == NULL) return;
    for (uint32_t i = 0; i < record->n_parts; i++) assert(record->parts[i].pool == NULL);
    free(record->parts);
    free(record->head);
    free(record->memory);
    free(record->job);
    free(record);
}

pd_wal_record *pd_wal_record_take(pd_wal_record **list)
{
    pd_wal_record *first = *list;

    if (first != NULL) *list = first->next;
    return first;
}
