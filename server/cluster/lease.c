/* lease.c - registers a key, renews its lease, and registers it again when the lease has ended. */
#include "lease.h"

#include "mutant.h"

#include <stdio.h>
#include <string.h>

enum { RETRY_MS = 1000 };

/* Returns the ms after which a call of the engine that had no answer is repeated. */
static uint64_t retry_ms(const pd_lease *lease)
{
    return lease->ttl_ms / 4 < RETRY_MS ? lease->ttl_ms / 4 : RETRY_MS;
}

static void on_registered(pd_lease *lease, const pd_engine_answer *answer)
{
    lease->state = PD_LEASE_HELD;
    lease->lease = answer->lease;
    lease->tenure = answer->tenure;
    lease->until_ms = lease->asked_ms + answer->ttl_ms;
    lease->due_ms = lease->asked_ms + answer->ttl_ms / 4;
}

/* Handles the answer that the key exists, or was another process's since this one had it. If the value is this
 * process's own, an earlier call has created the key and its answer was lost: the lease is taken over, and renewed at
 * once; if it has ended already, the key is registered once more. */
static void on_held(pd_lease *lease, const pd_engine_entry *entry)
{
    if (strcmp(entry->value, lease->value) != 0) {
        lease->state = PD_LEASE_TAKEN;
        return;
    }
    if (strcmp(entry->key, lease->key) != 0) {
        lease->tenure = entry->revision;
        lease->due_ms = lease->now_ms;
        return;
    }
    lease->state = PD_LEASE_HELD;
    lease->lease = entry->lease;
    lease->tenure = entry->tenure;
    lease->until_ms = lease->due_ms = lease->now_ms;
}

static void on_renewed(pd_lease *lease, const pd_engine_answer *answer)
{
    lease->until_ms = lease->asked_ms + answer->ttl_ms;
    lease->due_ms = lease->asked_ms + answer->ttl_ms / 4;
}

/* Registers the key again, with the same value. */
static void register_again(pd_lease *lease)
{
    lease->state = PD_LEASE_ASKED;
    lease->until_ms = 0;
    lease->due_ms = lease->now_ms;
}

static void on_answer(pd_engine_call *call, const pd_engine_answer *answer)
{
    pd_lease *lease = call->arg;

    lease->down = answer->result == PD_ENGINE_FAILED;
    if (lease->down) {
        snprintf(lease->why, sizeof lease->why, "%s", answer->why);
        lease->due_ms = lease->now_ms + retry_ms(lease);
    } else if (answer->result == PD_ENGINE_GONE) {
        register_again(lease);
    } else if (answer->result == PD_ENGINE_HELD) {
        on_held(lease, &answer->entries[0]);
    } else if (call->verb == PD_ENGINE_REGISTER) {
        on_registered(lease, answer);
    } else {
        on_renewed(lease, answer);
    }
}

void pd_lease_init(pd_lease *lease, pd_engine *engine, uint64_t ttl_ms)
{
    *lease = (pd_lease){ .engine = engine, .ttl_ms = ttl_ms };
    lease->call.answered = on_answer;
    lease->call.arg = lease;
}

void pd_lease_keep(pd_lease *lease, const char *key, const char *last, const char *value, uint64_t since)
{
    snprintf(lease->key, sizeof lease->key, "%s", key);
    snprintf(lease->last, sizeof lease->last, "%s", last != NULL ? last : "");
    snprintf(lease->value, sizeof lease->value, "%s", value);
    lease->state = PD_LEASE_ASKED;
    lease->due_ms = lease->until_ms = 0;
    lease->tenure = since;
}

/* Makes the next call: registers the key, or renews its lease. */
static void call(pd_lease *lease)
{
    pd_engine_call *c = &lease->call;

    c->verb = lease->state == PD_LEASE_ASKED ? PD_ENGINE_REGISTER : PD_ENGINE_RENEW;
    c->key = lease->key;
    c->last = lease->last[0] != '\0' ? lease->last : NULL;
    c->value = lease->value;
    c->lease = lease->lease;
    c->tenure = PD_MUTANT(registers_after_another) ? 0 : lease->tenure;
    c->ttl_ms = lease->ttl_ms;
    lease->asked_ms = lease->now_ms;
    lease->engine->ask(lease->engine, c);
}

uint64_t pd_lease_turn(pd_lease *lease, uint64_t now_ms)
{
    lease->now_ms = now_ms;
    if (lease->state != PD_LEASE_ASKED && lease->state != PD_LEASE_HELD) return UINT64_MAX;
    if (lease->call.open) return UINT64_MAX;
    if (now_ms < lease->due_ms) return lease->due_ms;
    call(lease);
    return UINT64_MAX;
}

void pd_lease_seen(pd_lease *lease, uint64_t tenure, uint64_t revision, const char *value)
{
    if (lease->state != PD_LEASE_HELD || revision <= lease->tenure) return;
    if (value != NULL && strcmp(value, lease->value) == 0) return;
    if (lease->call.open) lease->engine->drop(lease->engine, &lease->call);
    if (value != NULL && tenure > lease->tenure)
        lease->state = PD_LEASE_TAKEN;
    else
        register_again(lease);
}

void pd_lease_release(pd_lease *lease)
{
    if (lease->call.open) lease->engine->drop(lease->engine, &lease->call);
    lease->state = PD_LEASE_NONE;
    lease->down = false;
}

uint64_t pd_lease_left(const pd_lease *lease, uint64_t now_ms)
{
    return pd_lease_end(lease) > now_ms ? lease->until_ms - now_ms : 0;
}

uint64_t pd_lease_end(const pd_lease *lease)
{
    return lease->state == PD_LEASE_HELD ? lease->until_ms : 0;
}
