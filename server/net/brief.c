/* brief.c - lists of connections that may be closed for a newcomer. */
#include "brief.h"

#include <stddef.h>
#include <utlist.h>

enum { LOOKED_AT = 64 }; /* so many of the oldest connections without a Hello are compared */

void pd_brief_enter(pd_brief *brief, pd_brief_place *place, uint64_t origin)
{
    place->is = PD_GREETS;
    place->origin = (uint16_t)(origin % PD_BRIEF_ORIGINS);
    brief->count[place->origin]++;
    DL_APPEND(brief->greeting, place);
}

void pd_brief_leave(pd_brief *brief, pd_brief_place *place)
{
    if (place->is == PD_GREETS) {
        brief->count[place->origin]--;
        DL_DELETE(brief->greeting, place);
    } else if (place->is == PD_ENDS) {
        DL_DELETE(brief->ending, place);
    }
    place->is = PD_LASTS;
}

void pd_brief_end(pd_brief *brief, pd_brief_place *place)
{
    pd_brief_leave(brief, place);
    place->is = PD_ENDS;
    DL_APPEND(brief->ending, place);
}

pd_brief_place *pd_brief_first(const pd_brief *brief)
{
    pd_brief_place *victim = NULL;
    int looked = 0;

    if (brief->ending != NULL) return brief->ending;
    for (pd_brief_place *at = brief->greeting; at != NULL && looked < LOOKED_AT; at = at->next, looked++)
        if (victim == NULL || brief->count[at->origin] > brief->count[victim->origin]) victim = at;
    return victim;
}
