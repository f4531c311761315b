/* lease.h - keeps one key of this daemon registered with the engine: a state machine, without clock and sockets.
 *
 *     NONE ──keep──▶ ASKED ──registered──▶ HELD ──the lease has ended, or the key has gone──▶ ASKED
 *                      └──another has it──▶ TAKEN ◀──another has it──┘
 *
 * A key whose lease has ended is not registered again if another process has had it meanwhile, also if that one's lease
 * has ended, too: the state that belongs to the key is then newer elsewhere. `last` tells.
 *
 * The lease is renewed every quarter of its time. A call without an answer is repeated a moment later; the key counts
 * as held meanwhile, however long that takes: the ranks of a job, not the lease, keep two owners from both closing a
 * step. Once the lease has ended, another daemon may have the key, and may have taken steps back. So until the lease is
 * renewed or the key is registered again, a daemon takes steps but does not tell that they are durable
 * (pd_owner_is_sure in net/handlers.h). Loop thread. */
#ifndef PD_LEASE_H
#define PD_LEASE_H

#include "engine.h"

typedef enum pd_lease_state {
    PD_LEASE_NONE,  /* no key is wanted */
    PD_LEASE_ASKED, /* the key is wanted, and not registered yet, or anew */
    PD_LEASE_HELD,  /* the key is registered, as far as known */
    PD_LEASE_TAKEN, /* another daemon has the key */
} pd_lease_state;

typedef struct pd_lease {
    pd_engine *engine;
    uint64_t ttl_ms;
    pd_lease_state state;
    char key[PD_ENGINE_KEY], last[PD_ENGINE_KEY]; /* last: see PD_ENGINE_REGISTER; "": none */
    /* tells this process's key from all others: contains a number that no other process has */
    char value[PD_ENGINE_VALUE];
    uint64_t lease, tenure;
    uint64_t until_ms; /* when the lease ends, if it is not renewed */
    uint64_t due_ms;   /* when the next call is made */
    uint64_t asked_ms; /* when the open call was made */
    uint64_t now_ms;
    bool down;               /* the last call had no answer */
    char why[PD_ERROR_TEXT]; /* why, in words */
    pd_engine_call call;
} pd_lease;

/* Prepares a lease that keeps no key yet. Borrows the engine. */
void pd_lease_init(pd_lease *lease, pd_engine *engine, uint64_t ttl_ms);
/* Begins to keep a key. `last` as in PD_ENGINE_REGISTER, or NULL. `since`: the tenure of the last owner that the caller
 * knows; if somebody has had the key after that one, the key is TAKEN. 0: not known, and it does not matter. The state
 * must be PD_LEASE_NONE. */
void pd_lease_keep(pd_lease *lease, const char *key, const char *last, const char *value, uint64_t since);
/* Makes the call that is due. Returns when the next one will be; UINT64_MAX: when the open one has ended. */
uint64_t pd_lease_turn(pd_lease *lease, uint64_t now_ms);
/* Tells the lease what a watch has seen of its key: an owner with this tenure and value, or that the key was removed
 * (value NULL) by the change `revision`. */
void pd_lease_seen(pd_lease *lease, uint64_t tenure, uint64_t revision, const char *value);
/* Ceases to keep the key. It is removed by the caller, or when its lease ends. */
void pd_lease_release(pd_lease *lease);
/* Returns the ms until the lease ends; 0: it has ended, or there is none. */
uint64_t pd_lease_left(const pd_lease *lease, uint64_t now_ms);
/* Returns when the lease ends, or has ended, unless it is renewed; 0: there is none. */
uint64_t pd_lease_end(const pd_lease *lease);

#endif
