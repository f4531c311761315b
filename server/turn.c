/* turn.c - one turn of the step thread: applies requests, does one batch of work, forwards effects (answers and
 * reports). */
#include "turn.h"

void pd_turn_add(pd_turn *turn, pd_mail *mail)
{
    if (mail == NULL) return;
    if (turn->first == NULL)
        turn->first = mail;
    else
        turn->last->next = mail;
    while (mail->next != NULL) mail = mail->next;
    turn->last = mail;
}

static uint64_t now_ns(const pd_turn *turn)
{
    return turn->user.now_ns(turn->user.arg);
}

void pd_turn_forward(pd_turn *turn)
{
    pd_mail *first = NULL, *last = NULL;
    pd_effect *next;

    for (pd_effect *effect = pd_store_effects(turn->store); effect != NULL; effect = next) {
        next = (pd_effect *)(void *)effect->mail.next;
        effect->mail.next = NULL;
        if (effect->kind == PD_EFF_TASK) {
            turn->user.task(turn->user.arg, effect);
            continue;
        }
        if (effect->kind == PD_EFF_KEEP) {
            turn->user.keep(turn->user.arg, effect);
            continue;
        }
        if (effect->kind == PD_EFF_LOGGED) {
            turn->user.log(turn->user.arg, effect);
            continue;
        }
        effect->number = ++turn->effects;
        if (effect->kind == PD_EFF_JOB_GONE) turn->user.forget(turn->user.arg, effect->job);
        if (first == NULL)
            first = &effect->mail;
        else
            last->next = &effect->mail;
        last = &effect->mail;
    }
    if (first != NULL) turn->user.effects(turn->user.arg, first, last);
}

static void apply_first(pd_turn *turn, uint64_t now)
{
    pd_request *request = (pd_request *)(void *)turn->first;

    turn->first = turn->first->next;
    request->mail.next = NULL;
    pd_store_apply(turn->store, request, now);
}

static uint64_t budget_ns(const pd_turn *turn)
{
    if (turn->work_ns > PD_TURN_MOST_NS) return PD_TURN_MOST_NS;
    return turn->work_ns < PD_TURN_SLICE_NS ? PD_TURN_SLICE_NS : turn->work_ns;
}

/* Applies requests until the turn's time for them is used up, at least one. Forwards effects (the store's answers and
 * reports) in between, so that the first effects do not wait for the last request. */
static void apply_for_a_while(pd_turn *turn)
{
    uint64_t now = now_ns(turn), until = now + budget_ns(turn), slice = now + PD_TURN_SLICE_NS;

    while (turn->first != NULL && now < until) {
        apply_first(turn, now);
        now = now_ns(turn);
        if (now < slice) continue;
        pd_turn_forward(turn);
        slice = now + PD_TURN_SLICE_NS;
    }
    pd_turn_forward(turn);
}

bool pd_turn_run(pd_turn *turn)
{
    uint64_t before, now;

    apply_for_a_while(turn);
    before = now_ns(turn);
    (void)pd_store_work(turn->store, before);
    now = now_ns(turn);
    turn->work_ns = now - before;
    if (now >= pd_store_next_tick(turn->store)) pd_store_tick(turn->store, now);
    pd_turn_forward(turn);
    return pd_store_has_work(turn->store) || turn->first != NULL; /* the store is asked last whether it has work,
                                                                   * because the deadlines handled above may have made
                                                                   * some */
}

void pd_turn_finish(pd_turn *turn)
{
    while (turn->first != NULL) apply_first(turn, now_ns(turn));
    pd_turn_forward(turn);
}

uint64_t pd_turn_next_tick(const pd_turn *turn)
{
    return pd_store_next_tick(turn->store);
}
