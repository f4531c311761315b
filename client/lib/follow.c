/* follow.c - keeps a core with the newest owner of its shard. */
#include "follow.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "address.h"
#include "mutant.h"

void pd_follow_begin(pd_core *core)
{
    pd_core_following *f = &core->following;

    f->tenure = pd_shard_table_find(f->table, core->setup.shard, &f->home);
    /* The table has an address of the shard, but nobody has its lease now. The daemon there may have another shard by
     * now, which it tells only to those who bring a tenure. All tenures are higher than this one. */
    if (f->home != NULL && f->tenure == 0) f->tenure = PD_TENURE_UNKNOWN;
    f->own = core->setup.urls;
    if (f->named != NULL) return;
    f->n_named = core->setup.urls;
    f->named = core->setup.addresses;
}

void pd_follow_free(pd_core *core)
{
    free(core->following.home);
    free(core->following.spares);
    free(core->following.addresses);
}

/* Posts a Shards request. Returns its id; 0: out of memory. */
static uint64_t ask(pd_core *core)
{
    Paramd__Empty empty = PARAMD__EMPTY__INIT;

    return pd_core_post(core, PD_SHARDS, &empty.base, PD_QUEUE_CONNECTION, NULL) == PD_OK ? core->calls.last_id : 0;
}

/* Drops a connection to a server that has owned the shard before. */
static void refuse_owner(pd_core *core, uint64_t tenure)
{
    char reason[PD_ERROR_TEXT];

    snprintf(reason, sizeof reason,
             "the server is no longer the owner of shard %u: its tenure is %" PRIu64
             ", and this worker knows one with %" PRIu64,
             core->setup.shard, tenure, core->following.tenure);
    pd_core_drop(core, reason);
}

bool pd_follow_welcome(pd_core *core, const Paramd__HelloReply *reply)
{
    pd_core_following *f = &core->following;

    f->known = reply->shards_known;
    if (f->table == NULL) return true;
    if (reply->tenure < f->tenure && !PD_MUTANT(lower_tenure_taken)) {
        refuse_owner(core, reply->tenure);
        return false;
    }
    /* A job of one server may be older than the other shards of the server's cluster: it is on no shard of theirs. */
    if (core->setup.shards == 1 && f->known > 1 && core->recovery.rejoins) return true;
    if (reply->tenure > f->tenure) {
        free(f->home);
        f->home = NULL;
        f->stray = core->link.url >= f->own;
        f->tenure = reply->tenure;
        pd_shard_table_want(f->table, (int)core->setup.shard, core->link.received_ns, false);
    }
    if (f->known <= 1 || core->setup.shards > 1) return true;
    f->spreads = true;
    if ((f->ask = ask(core)) == 0) pd_core_drop(core, "out of memory");
    return false;
}

/* Ends the handle of one server, because the job is for all shards of the server's cluster. Where one of them has had
 * no owner yet, tries again later. */
static void spread(pd_core *core)
{
    pd_shard_list list;
    pd_error error;

    if (pd_shard_table_list(core->following.table, &list, &error) != PD_OK) {
        pd_core_drop(core, error.text);
        return;
    }
    core->following.spread = list.n > 1;
    pd_shard_list_free(&list);
    if (!core->following.spread) {
        pd_core_drop(core, "the server is one of several shards, but its table has one");
        return;
    }
    pd_fail(&error, PD_FAILED_PRECONDITION, "the server is one of %u shards: call pd_client_join",
            core->following.known);
    pd_core_end(core, &error);
}

int pd_follow_answered(pd_core *core, const pd_prefix *prefix, const uint8_t *header, const pd_error *refusal)
{
    void *message;
    int rc;

    if (prefix->request != core->following.ask) return PD_OK;
    core->following.ask = 0;
    if (refusal != NULL) {
        if (core->following.spreads) pd_core_drop(core, refusal->text);
        return PD_OK;
    }
    if ((rc = pd_reply_take(core, prefix, header, &message)) != PD_OK) return rc == PD_NO_MEMORY ? PD_OK : rc;
    pd_shard_table_learn(core->following.table, message);
    if (core->following.spreads) spread(core);
    return PD_OK;
}

void pd_follow_moved(pd_core *core)
{
    if (core->following.tenure > 0)
        pd_shard_table_want(core->following.table, (int)core->setup.shard, core->link.received_ns, true);
}

void pd_follow_down(pd_core *core, uint64_t now_ns)
{
    pd_core_following *f = &core->following;
    bool asked = f->ask != 0;

    f->ask = 0;
    f->spreads = false;
    /* A server that was only restarted is found by the first attempt: nobody asks then. */
    if (f->tenure > 0 && (asked || !core->link.welcomed)) pd_shard_table_want(f->table, PD_NO_SHARD, now_ns, true);
}

void pd_follow_tick(pd_core *core, uint64_t now_ns)
{
    pd_core_following *f = &core->following;

    if (pd_follow_due(core) > now_ns || !pd_shard_table_take_turn(f->table, core->setup.shard, now_ns)) return;
    if ((f->ask = ask(core)) == 0) pd_shard_table_want(f->table, PD_NO_SHARD, now_ns, true);
}

/* Parses addresses of the table, of which it takes at most PD_MOST_FOLLOWED. Returns their number; 0: there are none,
 * or they cannot be used. The caller frees *out. */
static size_t parse(const char *text, pd_address **out)
{
    size_t n;
    pd_error error;

    *out = NULL;
    if (text == NULL || pd_addresses_parse(out, &n, text, PD_TO_CONNECT, &error) != PD_OK) return 0;
    return n < PD_MOST_FOLLOWED ? n : PD_MOST_FOLLOWED;
}

static bool is_same(const pd_address *a, const pd_address *b)
{
    return a->local == b->local && a->secure == b->secure && strcmp(a->host, b->host) == 0 &&
           strcmp(a->port, b->port) == 0;
}

/* Adds the addresses that the user has named to the n addresses of a list, but for those that it has. Returns the
 * number of all. */
static size_t add_named(const pd_core_following *f, pd_address *all, size_t n)
{
    for (size_t i = 0; i < f->n_named; i++) {
        size_t k = 0;
        while (k < n && !is_same(&all[k], &f->named[i])) k++;
        if (k == n) all[n++] = f->named[i];
    }
    return n;
}

/* Sets the core's addresses: of those it has the first `kept` ones of the owner, then n more of the owner, then those
 * of the spares, then the others that the user has named: when the owner is gone, and all spares that are known are,
 * the shard may be there. Returns false if out of memory. */
static bool set_addresses(pd_core *core, size_t kept, const pd_address *more, size_t n)
{
    pd_core_following *f = &core->following;
    pd_address *spares, *all;
    size_t n_spares = parse(f->spares, &spares);

    all = malloc((kept + n + n_spares + f->n_named) * sizeof *all);
    if (all != NULL) {
        if (kept > 0) memcpy(all, core->setup.addresses, kept * sizeof *all);
        if (n > 0) memcpy(all + kept, more, n * sizeof *all);
        if (n_spares > 0) memcpy(all + kept + n, spares, n_spares * sizeof *all);
        free(f->addresses);
        f->addresses = all;
        f->own = kept + n;
        core->setup.addresses = all;
        core->setup.urls = add_named(f, all, kept + n + n_spares);
        if (core->link.url >= core->setup.urls) core->link.url = 0;
    }
    free(spares);
    return all != NULL;
}

/* Changes to the owner at `url`. Addresses of a server that has not answered yet stay: only the user knows them. */
static bool move(pd_core *core, const char *url, uint64_t now_ns)
{
    bool first = core->following.tenure == 0, found = core->following.stray;
    char reason[PD_ERROR_TEXT];
    pd_address *more;
    size_t n = parse(url, &more);
    bool changed = n > 0 && set_addresses(core, first ? core->following.own : 0, more, n);

    free(more);
    if (!changed || first) return changed;
    core->link.url = 0;
    core->following.stray = false;
    if (found) return true; /* it is connected there already */
    core->link.retry_ns = now_ns;
    snprintf(reason, sizeof reason, "shard %u has moved to %.300s", core->setup.shard, url);
    pd_core_drop(core, reason);
    core->following.moves = core->link.stage == STAGE_DROP;
    return true;
}

/* Takes over an owner of the table. Returns whether the addresses have changed. */
static bool take_owner(pd_core *core, uint64_t tenure, const char *url, uint64_t now_ns)
{
    pd_core_following *f = &core->following;
    bool other = f->home == NULL || strcmp(f->home, url) != 0;
    bool moved = tenure > f->tenure || PD_MUTANT(lower_tenure_taken) ? other : f->stray;

    if (tenure < f->tenure && !PD_MUTANT(lower_tenure_taken)) return false;
    if (tenure > f->tenure) f->stray = false;
    if (moved && !move(core, url, now_ns)) return false;
    f->tenure = tenure;
    return moved;
}

/* Takes over the spares of the table. Returns whether the addresses have changed. */
static bool take_spares(pd_core *core, char *spares)
{
    pd_core_following *f = &core->following;
    char *before = f->spares;

    if (spares != NULL && before != NULL ? strcmp(spares, before) == 0 : spares == before) {
        free(spares);
        return false;
    }
    f->spares = spares;
    if (!set_addresses(core, f->own, NULL, 0)) {
        f->spares = before;
        free(spares);
        return false;
    }
    free(before);
    return true;
}

/* Adds addresses that the user has named for all shards, at first. Returns whether the addresses have changed. */
static bool take_named(pd_core *core)
{
    const pd_core_following *f = &core->following;

    return f->addresses == NULL && f->named != core->setup.addresses && set_addresses(core, f->own, NULL, 0);
}

bool pd_core_follow(pd_core *core, uint64_t now_ns)
{
    pd_core_following *f = &core->following;
    uint64_t tenure;
    bool changed;
    char *url;

    if (f->table == NULL || core->setup.addresses == NULL) return false;
    changed = take_named(core);
    changed = take_spares(core, pd_shard_table_spares(f->table)) || changed;
    tenure = pd_shard_table_find(f->table, core->setup.shard, &url);
    if (tenure > 0 && url != NULL) changed = take_owner(core, tenure, url, now_ns) || changed;
    if (tenure > 0 && url != NULL && tenure == f->tenure) {
        free(f->home);
        f->home = url;
    } else {
        free(url);
    }
    return changed;
}
