/* peers.c - counts what each identity uses, and keeps the lists of connections that wait for their turn or may be
 * closed. */
#include "peers.h"

#include "name_hash.h"

#include <assert.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <utlist.h>

enum { CHEAP_FRAMES = 16 }; /* the clock is read for one of so many cheap frames */

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

static pd_usage *find(const pd_usages *usages, const char *identity, size_t n)
{
    pd_usage *usage;

    HASH_FIND_BYHASHVALUE(hh, usages->table, identity, n, pd_name_hash(usages->hash_key, identity, n), usage);
    return usage;
}

static pd_usage *new_usage(pd_usages *usages, const pd_roles *roles, const char *identity, size_t n)
{
    pd_usage *usage = calloc(1, sizeof *usage + n + 1);

    if (usage == NULL) return NULL;
    memcpy(usage->identity, identity, n);
    usage->number = ++usages->last_number;
    usage->quota = pd_roles_allowance(roles, identity, NULL);
    HASH_ADD_KEYPTR_BYHASHVALUE(hh, usages->table, usage->identity, n, pd_name_hash(usages->hash_key, identity, n),
                                usage);
    if (usage->hh.tbl != NULL) return usage;
    free(usage);
    return NULL;
}

pd_usage *pd_usage_join(pd_usages *usages, const pd_roles *roles, const char *identity)
{
    size_t n = strlen(identity);
    pd_usage *usage = find(usages, identity, n);

    if (usage == NULL) usage = new_usage(usages, roles, identity, n);
    if (usage != NULL) usage->connections++;
    return usage;
}

void pd_usage_leave(pd_usages *usages, pd_usage *usage)
{
    if (--usage->connections > 0) return;
    assert(usage->requests == 0);
    HASH_DELETE(hh, usages->table, usage);
    free(usage);
}

bool pd_usage_is_over(const pd_usage *usage, size_t more)
{
    return usage->connections > usage->quota.connections && usage->connections - usage->quota.connections > more;
}

void pd_usages_limit(pd_usages *usages, const pd_roles *roles)
{
    for (pd_usage *usage = usages->table; usage != NULL; usage = usage->hh.next)
        usage->quota = pd_roles_allowance(roles, usage->identity, NULL);
}

/* Most connections without Hello that are compared to choose the one to close: the oldest ones. */
enum { LOOKED_AT = 64 };

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
