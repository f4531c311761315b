/* core_remarks.c - warnings of the server about the job, which come in heartbeats. */
#include "core_remarks.h"

#include <stdlib.h>
#include <string.h>

#include "hash.h"

enum { WAITING = sizeof((pd_core_remarks *)0)->waiting / sizeof(char *), TOLD = 32 };

static bool was_told(const pd_core_remarks *remarks, uint64_t hash)
{
    for (size_t i = 0; i < TOLD && i < remarks->n_told; i++)
        if (remarks->told[i] == hash) return true;
    return false;
}

static void keep(pd_core_remarks *remarks, const char *text)
{
    uint64_t hash = XXH3_64bits(text, strlen(text));
    char *copy = remarks->n < WAITING && !was_told(remarks, hash) ? strdup(text) : NULL;

    if (copy == NULL) return;
    remarks->waiting[remarks->n++] = copy;
    remarks->told[remarks->n_told++ % TOLD] = hash;
}

void pd_core_note_remarks(pd_core *core, const pd_prefix *prefix, const uint8_t *header)
{
    const Paramd__Ok *ok;
    void *message;

    if (prefix->header_bytes == 0) return;
    pd_arena_reset(core->arena);
    if (pd_reply_unpack(core->arena, PD_HEARTBEAT, header, prefix->header_bytes, &message, NULL) != PD_OK) return;
    ok = message;
    for (size_t i = 0; i < ok->n_remarks; i++) keep(&core->remarks, ok->remarks[i]);
}

char *pd_core_take_remark(pd_core *core)
{
    pd_core_remarks *remarks = &core->remarks;
    char *oldest = remarks->n > 0 ? remarks->waiting[0] : NULL;

    if (oldest != NULL) memmove(remarks->waiting, remarks->waiting + 1, --remarks->n * sizeof *remarks->waiting);
    return oldest;
}

void pd_core_remarks_free(pd_core_remarks *remarks)
{
    while (remarks->n > 0) free(remarks->waiting[--remarks->n]);
}
