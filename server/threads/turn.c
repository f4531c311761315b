/* turn.c - one turn of the step thread: applies requests, does one batch of work, forwards effects (answers and
 * reports). */
#include "turn.h"

void pd_turn_add(pd_turn *turn, pd_mail *mail)
{
    pd_mail *next;

    for (; mail != NULL; mail = next) {
        next = mail->next;
        pd_flows_add(&turn->flows, (pd_request *)(void *)mail);
    }
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
        if (effect->kind == PD_EFF_WAL) {
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

static uint64_t budget_ns(const pd_turn *turn)
{
    if (turn->work_ns > PD_TURN_MOST_NS) return PD_TURN_MOST_NS;
    return turn->work_ns < PD_TURN_SLICE_NS ? PD_TURN_SLICE_NS : turn->work_ns;
}

/* ---- requests that only read ---- */

/* Returns the time from which requests that only read get all time, unless something else is served before. */
static uint64_t quiet_at(const pd_turn *turn)
{
    return turn->other_ns + PD_TURN_QUIET_NS;
}

static bool has_others(const pd_turn *turn)
{
    return pd_store_has_work(turn->store) || pd_flows_wait(&turn->flows, false);
}

static bool may_read(const pd_turn *turn, uint64_t now)
{
    return now >= turn->reads_ns || (now >= quiet_at(turn) && !has_others(turn));
}

/* Notes that a request was served from `before` to `now`. After a read, other reads wait PD_TURN_READ_SHARE times as
 * long as it took, less the time that reads have not used before. */
static void note_served(pd_turn *turn, bool reads, uint64_t before, uint64_t now)
{
    const uint64_t unused = PD_TURN_READ_BURST_NS * (uint64_t)PD_TURN_READ_SHARE;
    uint64_t from = before;

    if (!reads) {
        turn->other_ns = now;
        return;
    }
    if (turn->reads_ns < before) from = turn->reads_ns + unused > before ? turn->reads_ns : before - unused;
    turn->reads_ns = from + (now - before) * PD_TURN_READ_SHARE;
}

/* ---- a turn ---- */

/* Applies the next request, or a part of it. Returns the time after it; `now` if there is none that may be served. */
static uint64_t apply_next(pd_turn *turn, uint64_t now)
{
    pd_request *request = pd_flows_take(&turn->flows, may_read(turn, now));
    bool reads, done;
    uint64_t after;

    if (request == NULL) return now;
    reads = request->party != 0 && pd_request_only_reads(request);
    done = pd_store_apply_some(turn->store, request, PD_TURN_PART_NS, now);
    after = now_ns(turn);
    note_served(turn, reads, now, after);
    pd_flows_charge(&turn->flows, done ? NULL : request, after - now);
    return after;
}

/* Applies requests until the turn's time for them is used up, at least one. Forwards effects (the store's answers and
 * reports) in between, so that the first effects do not wait for the last request. */
static void apply_for_a_while(pd_turn *turn)
{
    uint64_t now = now_ns(turn), until = now + budget_ns(turn), slice = now + PD_TURN_SLICE_NS;

    while (now < until && pd_flows_wait(&turn->flows, may_read(turn, now))) {
        now = apply_next(turn, now);
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
    before = now = now_ns(turn);
    if (pd_store_has_work(turn->store)) {
        (void)pd_store_work(turn->store, before);
        turn->other_ns = now = now_ns(turn);
    }
    turn->work_ns = now - before;
    if (now >= pd_store_next_tick(turn->store)) pd_store_tick(turn->store, now);
    pd_turn_forward(turn);
    /* The store is asked last whether it has work, because the deadlines handled above may have made some. */
    return has_others(turn) || pd_flows_wait(&turn->flows, may_read(turn, now));
}

void pd_turn_finish(pd_turn *turn)
{
    pd_request *request;

    while ((request = pd_flows_take(&turn->flows, true)) != NULL) {
        pd_store_apply(turn->store, request, now_ns(turn));
        pd_flows_charge(&turn->flows, NULL, 0);
    }
    pd_turn_forward(turn);
}

uint64_t pd_turn_next_tick(const pd_turn *turn)
{
    uint64_t at = pd_store_next_tick(turn->store), reads = turn->reads_ns;

    if (!pd_flows_wait(&turn->flows, true)) return at;
    if (quiet_at(turn) < reads) reads = quiet_at(turn);
    return reads < at ? reads : at;
}
