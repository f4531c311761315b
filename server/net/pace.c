/* pace.c - counts the frames of a turn, and keeps the connections whose frames are held back. */
#include "pace.h"

#include <stddef.h>
#include <utlist.h>

enum { CHEAP_FRAMES = 16 }; /* one of so many cheap frames reads the clock */

void pd_pace_begin(pd_pace *pace, uint64_t until_ns)
{
    *pace = (pd_pace){ .first = pace->first, .until_ns = until_ns };
}

bool pd_pace_note(pd_pace *pace, bool cheap)
{
    if (pace->frames++ == 0) return pace->until_ns == 0;
    return !pace->spent && (!cheap || pace->frames % CHEAP_FRAMES == 0);
}

void pd_pace_defer(pd_pace *pace, pd_pace_party *party, pd_pace_place *place)
{
    if (place->party != NULL) return;
    place->party = party;
    if (party->first == NULL) DL_APPEND(pace->first, party);
    DL_APPEND(party->first, place);
}

void pd_pace_leave(pd_pace *pace, pd_pace_place *place)
{
    pd_pace_party *party = place->party;

    if (party == NULL) return;
    place->party = NULL;
    DL_DELETE(party->first, place);
    if (party->first == NULL) DL_DELETE(pace->first, party);
}

pd_pace_place *pd_pace_take(pd_pace *pace)
{
    pd_pace_party *party = pace->first;
    pd_pace_place *place = party->first;

    pd_pace_leave(pace, place);
    if (pace->first == party) {
        DL_DELETE(pace->first, party);
        DL_APPEND(pace->first, party);
    }
    return place;
}
