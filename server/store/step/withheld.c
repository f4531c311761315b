/* withheld.c - withholds reports of closed steps until the disk has what decided the steps. */
#include "withheld.h"

#include "mutant.h"

#include "param.h"

/* Returns the lower of two steps, of which 0 means none. */
static uint64_t lower(uint64_t a, uint64_t b)
{
    return a == 0 || (b != 0 && b < a) ? b : a;
}

/* Returns the place up to which reports need not wait. */
static uint64_t safe_place(const pd_withheld *withheld)
{
    uint64_t unsafe = lower(lower(withheld->made, withheld->handed), lower(withheld->lost, withheld->anew));

    if (!withheld->on) return UINT64_MAX;
    if (withheld->logged) return withheld->durable;
    if (unsafe == 0) return UINT64_MAX;
    return unsafe - 1 > withheld->durable ? unsafe - 1 : withheld->durable;
}

/* Returns whether the effect, before which none is withheld, has to wait. Weights that were published without a step
 * need not. The record of a step also has the leases. */
static bool must_wait(const pd_withheld *withheld, const pd_effect *effect)
{
    const pd_closed *closed = effect->kind == PD_EFF_CLOSED ? &effect->u.closed.at[0] : NULL;

    if (effect->kind == PD_EFF_DECLARED && withheld->open > 0 && effect->u.declared.place == withheld->open)
        return true;
    if (!withheld->on || PD_MUTANT(record_after_answer)) return false;
    if (effect->kind == PD_EFF_DECLARED)
        return effect->u.declared.place > safe_place(withheld) || effect->u.declared.changes > withheld->leases.durable;
    if (closed == NULL || closed->outcome == 0) return false;
    return effect->u.closed.place > safe_place(withheld) ||
           (!withheld->logged && effect->u.closed.changes > withheld->leases.durable);
}

/* Puts the passing course into an effect that leaves. */
static void name_passing(pd_withheld *withheld, pd_effect *effect)
{
    uint64_t place = effect->kind == PD_EFF_CLOSED ? effect->u.closed.place : 0;

    if (withheld->passing == 0) return;
    if (effect->kind == PD_EFF_CLOSED) effect->u.closed.course = withheld->passing;
    if (effect->kind == PD_EFF_MEMBERS) effect->u.members.course = withheld->passing;
    if (!withheld->on && place > withheld->unsaved) withheld->unsaved = place;
}

static void let_go(pd_withheld *withheld, pd_effects *outbox, pd_effect *effect)
{
    name_passing(withheld, effect);
    pd_effects_add(outbox, effect);
}

static pd_effect *take_first(pd_withheld *withheld)
{
    pd_effect *effect = withheld->effects.first;

    if ((withheld->effects.first = (pd_effect *)(void *)effect->mail.next) == NULL) withheld->effects.last = NULL;
    return effect;
}

void pd_withheld_release(pd_withheld *withheld, pd_effects *outbox)
{
    while (withheld->effects.first != NULL && !must_wait(withheld, withheld->effects.first))
        let_go(withheld, outbox, take_first(withheld));
}

void pd_withheld_send(pd_withheld *withheld, pd_effects *outbox, pd_effect *effect)
{
    if (effect->kind == PD_EFF_CLOSED) effect->u.closed.changes = withheld->leases.made;
    if (effect->kind == PD_EFF_DECLARED) effect->u.declared.changes = withheld->leases.made;
    pd_effects_add(&withheld->effects, effect);
    pd_withheld_release(withheld, outbox);
}

void pd_withheld_drop(pd_withheld *withheld)
{
    while (withheld->effects.first != NULL) {
        pd_effect *effect = take_first(withheld);
        for (size_t i = 0; effect->kind == PD_EFF_CLOSED && i < effect->u.closed.n; i++)
            pd_published_unref(effect->u.closed.at[i].published);
        pd_effect_free(effect);
    }
}

pd_effect *pd_withheld_declared(const pd_withheld *withheld, uint64_t conn)
{
    for (pd_effect *effect = withheld->effects.first; effect != NULL; effect = (pd_effect *)(void *)effect->mail.next)
        if (effect->kind == PD_EFF_DECLARED && effect->ticket.conn == conn) return effect;
    return NULL;
}

uint64_t pd_withheld_first(const pd_withheld *withheld)
{
    for (const pd_effect *effect = withheld->effects.first; effect != NULL;
         effect = (const pd_effect *)(const void *)effect->mail.next)
        if (effect->kind == PD_EFF_CLOSED && effect->u.closed.first > 0) return effect->u.closed.first;
    return 0;
}

bool pd_withheld_stops(const pd_withheld *withheld, uint64_t place)
{
    uint64_t first = pd_withheld_first(withheld);

    return first > 0 && place + 1 >= first + PD_WAL_MOST;
}

/* Notes that the sets from `place` on are in no record. */
static void lose(pd_withheld *withheld, uint64_t place)
{
    if (!withheld->on || place == 0 || withheld->last <= withheld->durable) return;
    withheld->lost = lower(withheld->lost, place > withheld->durable ? place : withheld->durable + 1);
    withheld->lost_last = withheld->last;
}

void pd_withheld_fixed(pd_withheld *withheld, uint64_t place, bool made)
{
    withheld->last = place;
    if (made)
        withheld->made = lower(withheld->made, place);
    else
        lose(withheld, place);
}

void pd_withheld_handed(pd_withheld *withheld)
{
    withheld->handed = lower(withheld->handed, withheld->made);
    withheld->made = 0;
    withheld->leases.handed = withheld->leases.made;
}

void pd_withheld_returned(pd_withheld *withheld, bool good)
{
    if (!good) lose(withheld, withheld->handed);
    if (good && withheld->leases.handed > withheld->leases.durable) withheld->leases.durable = withheld->leases.handed;
    withheld->handed = withheld->leases.handed = 0;
}

void pd_withheld_dropped(pd_withheld *withheld)
{
    lose(withheld, withheld->made);
    withheld->made = 0;
}

void pd_withheld_leased(pd_withheld *withheld)
{
    withheld->leases.made++;
}

void pd_withheld_copied(pd_withheld *withheld)
{
    withheld->leases.copied = withheld->leases.made;
}

void pd_withheld_copy_lost(pd_withheld *withheld)
{
    withheld->leases.copied = withheld->leases.durable;
}

bool pd_withheld_lacks_leases(const pd_withheld *withheld)
{
    uint64_t last = withheld->leases.made;

    return withheld->on && withheld->effects.first != NULL && last > withheld->leases.durable &&
           last > withheld->leases.handed && last > withheld->leases.copied;
}

bool pd_withheld_waits_for_record(const pd_withheld *withheld)
{
    return withheld->effects.first != NULL &&
           (withheld->handed > 0 || withheld->leases.handed > withheld->leases.durable);
}

/* Ends the passing course if the disk has all steps that workers have seen. Returns whether it has ended. */
static bool end_passing(pd_withheld *withheld, uint64_t place)
{
    if (withheld->passing == 0 || withheld->failed || place < withheld->unsaved) return false;
    withheld->passing = withheld->unsaved = 0;
    return true;
}

bool pd_withheld_durable(pd_withheld *withheld, uint64_t place, bool whole)
{
    if (place > withheld->durable) withheld->durable = place;
    if (!whole) return withheld->logged && end_passing(withheld, place);
    withheld->failed = false;
    if (withheld->leases.copied > withheld->leases.durable) withheld->leases.durable = withheld->leases.copied;
    if (withheld->lost_last <= place)
        withheld->lost = 0;
    else if (withheld->lost > 0 && withheld->lost <= place)
        withheld->lost = place + 1;
    return end_passing(withheld, place);
}

void pd_withheld_course(pd_withheld *withheld, uint64_t place)
{
    withheld->anew = place;
}

void pd_withheld_begin(pd_withheld *withheld)
{
    withheld->on = !withheld->failed;
}

void pd_withheld_give_up(pd_withheld *withheld, pd_effects *outbox, uint64_t passing)
{
    withheld->on = false;
    withheld->failed = true;
    withheld->passing = passing;
    withheld->lost = withheld->anew = 0;
    pd_withheld_release(withheld, outbox);
}
