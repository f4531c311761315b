/* turn.c - serves the flows of requests by deficit round robin, and runs the turns of the step thread. */
#include "turn.h"

#include "mutant.h"

#include <assert.h>
#include <stdlib.h>
#include <utlist.h>

/* Returns whether a request only reads: it changes nothing, and no worker waits for it. */
static bool only_reads(const pd_request *request)
{
    if (request->kind == PD_REQ_INFO) return true;
    if (request->kind != PD_REQ_EXPORT) return false;
    return request->u.export.act == PD_EXPORT_PIECE || request->u.export.act == PD_EXPORT_COUNT ||
           (request->u.export.act == PD_EXPORT_BEGIN && !request->u.export.state);
}

static pd_flow key_of(const pd_request *request)
{
    uint64_t conn = request->job == 0 ? request->ticket.conn : 0;

    return (pd_flow){ .party = request->party, .job = request->job, .conn = conn };
}

static pd_flow **bucket_of(pd_flows *flows, const pd_flow *key)
{
    uint64_t hash = key->party * 0x9e3779b97f4a7c15u ^ key->conn * 0xbf58476d1ce4e5b9u ^
                    ((uint64_t)key->job << 1 | key->reads) * 0x94d049bb133111ebu;

    return &flows->buckets[(hash >> 32) % PD_FLOW_BUCKETS];
}

static pd_flow *find(pd_flows *flows, const pd_flow *key)
{
    pd_flow *flow = *bucket_of(flows, key);

    while (flow != NULL &&
           (flow->party != key->party || flow->conn != key->conn || flow->job != key->job || flow->reads != key->reads))
        flow = flow->same_bucket;
    return flow;
}

/* Allocates a flow or a party, and adds it behind the others of its owner. Returns NULL if out of memory. */
static pd_flow *make(pd_flows *flows, const pd_flow *key, pd_flow *owner)
{
    pd_flow *flow = malloc(sizeof *flow), **bucket = bucket_of(flows, key);

    if (flow == NULL) return NULL;
    *flow = *key;
    flow->owner = owner;
    flow->balance_ns = PD_FLOW_QUANTUM_NS;
    flow->same_bucket = *bucket;
    *bucket = flow;
    CDL_APPEND(owner->ring, flow);
    return flow;
}

/* Removes and frees a flow or a party that has no requests. */
static void end(pd_flows *flows, pd_flow *flow)
{
    pd_flow **at = bucket_of(flows, flow);

    while (flow->ring != NULL) end(flows, flow->ring);
    CDL_DELETE(flow->owner->ring, flow);
    if (flow == &flows->spare) {
        flow->owner = NULL;
        return;
    }
    while (*at != flow) at = &(*at)->same_bucket;
    *at = flow->same_bucket;
    free(flow);
}

/* Returns the party of an identity, by its number, for requests that only read or for others. Returns NULL if out of
 * memory. */
static pd_flow *party_of(pd_flows *flows, uint64_t number, bool reads)
{
    const pd_flow key = { .party = number, .reads = reads };
    pd_flow *party = find(flows, &key);

    return party != NULL ? party : make(flows, &key, reads ? &flows->reads : &flows->others);
}

static pd_flow *spare(pd_flows *flows)
{
    if (flows->spare.owner == NULL) {
        flows->spare.owner = &flows->others;
        flows->spare.balance_ns = PD_FLOW_QUANTUM_NS;
        CDL_APPEND(flows->others.ring, &flows->spare);
    }
    return &flows->spare;
}

static pd_flow *flow_of(pd_flows *flows, const pd_request *request)
{
    const pd_flow key = key_of(request);
    pd_flow *flow = find(flows, &key), *party;

    assert(key.job != 0 || key.conn != 0); /* otherwise it is the key of a party */
    if (flow != NULL) return flow;
    if (flows->spare.waiting > 0) return &flows->spare;
    party = party_of(flows, request->party, only_reads(request));
    flow = party != NULL ? make(flows, &key, party) : NULL;
    return flow != NULL ? flow : spare(flows);
}

/* Adds `n` to the number of waiting requests of a flow, of its party, and of the party's owner. */
static void count(pd_flow *flow, int n)
{
    for (; flow != NULL; flow = flow->owner) flow->waiting += (size_t)n;
}

/* Frees a flow that has no requests and a positive balance. Frees its party under the same condition. */
static void tidy(pd_flows *flows, pd_flow *flow)
{
    pd_flow *party = flow->owner;

    if (flow->waiting == 0 && flow->balance_ns > 0) end(flows, flow);
    if (party->owner != NULL && party->waiting == 0 && party->balance_ns > 0) end(flows, party);
}

/* Moves a flow between the two parties of its identity (requests that only read, and others), if its first request
 * belongs to the other one. If out of memory, the flow stays where it is. */
static void move(pd_flows *flows, pd_flow *flow)
{
    pd_flow *party, *old = flow->owner;
    bool reads = flow->first != NULL && only_reads((pd_request *)(void *)flow->first);

    if (flow == &flows->spare || flow->first == NULL || old->reads == reads) return;
    if ((party = party_of(flows, flow->party, reads)) == NULL) return;
    CDL_DELETE(old->ring, flow);
    for (pd_flow *owner = old; owner != NULL; owner = owner->owner) owner->waiting -= flow->waiting;
    flow->owner = party;
    CDL_APPEND(party->ring, flow);
    for (pd_flow *owner = party; owner != NULL; owner = owner->owner) owner->waiting += flow->waiting;
    if (old->waiting == 0 && old->balance_ns > 0) end(flows, old);
}

static void append(pd_mail **first, pd_mail **last, pd_mail *mail)
{
    mail->next = NULL;
    if (*first == NULL)
        *first = mail;
    else
        (*last)->next = mail;
    *last = mail;
}

static pd_mail *shift(pd_mail **first)
{
    pd_mail *mail = *first;

    if (mail == NULL) return NULL;
    *first = mail->next;
    mail->next = NULL;
    return mail;
}

static void prepend(pd_mail **first, pd_mail **last, pd_mail *mail)
{
    mail->next = *first;
    if (*first == NULL) *last = mail;
    *first = mail;
}

void pd_flows_add(pd_flows *flows, pd_request *request)
{
    pd_flow *flow;

    if (request->party == 0) {
        append(&flows->first, &flows->last, &request->mail);
        return;
    }
    flow = flow_of(flows, request);
    if (PD_MUTANT(flow_overtaken))
        prepend(&flow->first, &flow->last, &request->mail);
    else
        append(&flow->first, &flow->last, &request->mail);
    count(flow, 1);
    move(flows, flow);
}

/* Returns the flow of `owner` whose turn it is. At least one flow of `owner` must have requests. Adds
 * PD_FLOW_QUANTUM_NS to the balance of each flow that is skipped. */
static pd_flow *next_of(pd_flows *flows, pd_flow *owner)
{
    pd_flow *flow;

    while ((flow = owner->ring)->waiting == 0 || flow->balance_ns <= 0) {
        flow->balance_ns += PD_FLOW_QUANTUM_NS;
        owner->ring = flow->next;
        if (flow->waiting == 0 && flow->balance_ns > 0) end(flows, flow);
    }
    return flow;
}

static pd_request *take_from(pd_flows *flows, pd_flow *kind)
{
    pd_flow *flow;
    pd_mail *mail;

    if (kind->waiting == 0) {
        /* No request waits, so negative balances are dropped. */
        while (kind->ring != NULL) end(flows, kind->ring);
        return NULL;
    }
    flow = next_of(flows, kind);
    while (flow->ring != NULL) flow = next_of(flows, flow);
    mail = shift(&flow->first);
    count(flow, -1);
    flows->served = flow;
    return (pd_request *)(void *)mail;
}

pd_request *pd_flows_take(pd_flows *flows, bool reads)
{
    pd_request *request = (pd_request *)(void *)shift(&flows->first);

    flows->served = NULL;
    if (request == NULL && reads) request = take_from(flows, &flows->reads);
    return request != NULL ? request : take_from(flows, &flows->others);
}

void pd_flows_charge(pd_flows *flows, pd_request *rest, uint64_t ns)
{
    pd_flow *flow = flows->served;

    if (rest != NULL)
        prepend(flow != NULL ? &flow->first : &flows->first, flow != NULL ? &flow->last : &flows->last, &rest->mail);
    if (flow == NULL) return;
    if (ns < PD_FLOW_LEAST_NS) ns = PD_FLOW_LEAST_NS;
    if (rest != NULL) count(flow, 1);
    for (pd_flow *owner = flow; owner->owner != NULL; owner = owner->owner) owner->balance_ns -= (int64_t)ns;
    move(flows, flow);
    tidy(flows, flow);
    flows->served = NULL;
}

bool pd_flows_wait(const pd_flows *flows, bool reads)
{
    return flows->first != NULL || flows->others.waiting > 0 || (reads && flows->reads.waiting > 0);
}

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
        switch (effect->kind) {
        case PD_EFF_TASK: turn->user.task(turn->user.arg, effect); continue;
        case PD_EFF_GO_BACK:
        case PD_EFF_WRITE_CHECKPOINT: turn->user.keep(turn->user.arg, effect); continue;
        case PD_EFF_WAL: turn->user.log(turn->user.arg, effect); continue;
        default: break;
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

/* Returns the time (ns) from which requests that only read may use all time. It is PD_TURN_QUIET_NS after the step
 * thread last did anything else. */
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

/* Updates reads_ns or other_ns after a request that was served from `before` to `now`. If the request only reads, the
 * next such request has to wait PD_TURN_READ_SHARE times as long as this one took, minus the time that requests which
 * only read have saved. */
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

/* Applies the next request, or a part of it. Returns the time (ns) after that, or `now` if no request may be served. */
static uint64_t apply_next(pd_turn *turn, uint64_t now)
{
    pd_request *request = pd_flows_take(&turn->flows, may_read(turn, now));
    bool reads, done;
    uint64_t after;

    if (request == NULL) return now;
    reads = request->party != 0 && only_reads(request);
    done = pd_store_apply_some(turn->store, request, PD_TURN_PART_NS, now);
    after = now_ns(turn);
    note_served(turn, reads, now, after);
    pd_flows_charge(&turn->flows, done ? NULL : request, after - now);
    return after;
}

/* Applies requests, at least one, until the turn's time for requests is used up. Forwards effects in between, so that
 * the first effects do not wait for the last request. */
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
    /* Asks the store only now whether it has work, because deadlines that were handled above may have added work. */
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
