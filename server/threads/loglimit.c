/* loglimit.c - counts the lines of places in the code and of peers, and silences those that log too often. */
#include "loglimit.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

enum { SITE_BITS = 9, SITES = 1 << SITE_BITS, PLACES = 32 };
static const uint64_t golden = 0x9e3779b97f4a7c15u; /* spreads a hash to its upper bits */

/* ---- places in the code ---- */

/* Counts of the lines that each place in the code has logged for a job, to silence places that log too often; shared by
 * all threads. The index is a hash of the place and the job (pd_log_entry.site), so a few may share one limit. */
static struct site {
    _Atomic uint64_t window;
    atomic_uint spoken, missed;
} sites[SITES];

bool pd_log_may_speak(uint64_t at, uint64_t now_s, unsigned *missed)
{
    struct site *site = &sites[(at * golden) >> (64 - SITE_BITS)];
    uint64_t window = now_s / PD_LOG_WINDOW_S, seen = atomic_load(&site->window);

    *missed = 0;
    if (seen != window && atomic_compare_exchange_strong(&site->window, &seen, window)) {
        atomic_store(&site->spoken, 0);
        *missed = atomic_exchange(&site->missed, 0);
    }
    if (atomic_fetch_add(&site->spoken, 1) < PD_LOG_BURST) return true;
    atomic_fetch_add(&site->missed, 1);
    return false;
}

/* ---- peers ---- */

/* The lines about one peer in one window. */
typedef struct peer {
    uint64_t hash; /* of the peer's whole name */
    uint64_t window;
    /* Places in the code that have logged the lines; 0: none. The last one is shared by all that find no other. */
    uint64_t places[PLACES];
    unsigned spoken[PLACES]; /* number of lines of each place */
    unsigned missed;
    char name[PD_LOG_PEER];
} peer;

/* Counters for peers: the last one of a table is shared by all that find no other. Guarded by the lock. */
typedef peer peers[PD_LOG_PEERS + 1];
static peers proven, addresses;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

static void begin(peer *at, const pd_log_entry *entry, uint64_t window)
{
    *at = (peer){ .hash = entry->peer_hash, .window = window };
    memcpy(at->name, entry->peer, sizeof at->name);
}

/* Returns the counter of an entry's peer for this window. A counter of an earlier window is free for another peer once
 * its missed lines are reported. */
static peer *find(peers table, const pd_log_entry *entry, uint64_t window)
{
    peer *vacant = NULL, *last = &table[PD_LOG_PEERS];

    for (peer *at = table; at < last; at++) {
        if (at->hash == entry->peer_hash && at->window == window) return at;
        if (vacant == NULL && at->window != window && at->missed == 0) vacant = at;
    }
    if (vacant != NULL) {
        begin(vacant, entry, window);
        return vacant;
    }
    if (last->window != window && last->missed == 0) {
        begin(last, entry, window);
        snprintf(last->name, sizeof last->name, "%s", "other peers");
    }
    return last;
}

/* Returns the count of lines of a place in the code about a peer. */
static unsigned *count_of(peer *at, uint64_t place)
{
    int i = 0;

    while (i < PLACES - 1 && at->places[i] != place && at->places[i] != 0) i++;
    at->places[i] = place;
    return &at->spoken[i];
}

bool pd_log_may_report(const pd_log_entry *entry, uint64_t now_s)
{
    unsigned *spoken;
    peer *at;
    bool may;

    pthread_mutex_lock(&lock);
    at = find(entry->proven ? proven : addresses, entry, now_s / PD_LOG_WINDOW_S);
    spoken = count_of(at, entry->place);
    may = *spoken < PD_LOG_BURST;
    if (may)
        ++*spoken;
    else
        at->missed++;
    pthread_mutex_unlock(&lock);
    return may;
}

static bool take(peers table, pd_log_left_out *out, uint64_t window, bool all)
{
    for (peer *at = table; at <= &table[PD_LOG_PEERS]; at++) {
        if (at->missed == 0 || (at->window == window && !all)) continue;
        out->lines = at->missed;
        memcpy(out->peer, at->name, sizeof out->peer);
        at->missed = 0;
        return true;
    }
    return false;
}

bool pd_log_take_left_out(pd_log_left_out *out, uint64_t now_s, bool all)
{
    uint64_t window = now_s / PD_LOG_WINDOW_S;
    bool any;

    pthread_mutex_lock(&lock);
    any = take(proven, out, window, all) || take(addresses, out, window, all);
    pthread_mutex_unlock(&lock);
    return any;
}
