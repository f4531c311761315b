/* wal_copy.c - copies an entry of a log with all that it refers to. */
#include "wal_copy.h"

#include <stdlib.h>
#include <string.h>

static void copy_parts(pd_wal_record *to, const pd_wal_record *from)
{
    size_t n = 0;
    float *at;

    for (uint32_t i = 0; i < from->n_parts; i++) n += (size_t)from->parts[i].elements;
    to->memory = at = malloc((n + 1) * sizeof *at);
    to->parts = calloc(from->n_parts + 1, sizeof *to->parts);
    for (uint32_t i = 0; i < from->n_parts; i++) {
        size_t bytes = (size_t)from->parts[i].elements * sizeof *at;
        if (from->parts[i].at == NULL) continue;
        to->parts[i] = (pd_wal_part){ memcpy(at, from->parts[i].at, bytes), from->parts[i].elements, NULL };
        at += from->parts[i].elements;
    }
}

pd_wal_record *logged_copy(const pd_wal_record *from)
{
    pd_wal_record *to = malloc(sizeof *to);

    if (to == NULL) return NULL;
    *to = *from;
    to->number = 0;
    to->job = strdup(from->job);
    to->head = malloc(from->head_bytes + 1);
    memcpy(to->head, from->head, from->head_bytes);
    copy_parts(to, from);
    return to;
}
