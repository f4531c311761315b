/* budget.c - checks whether further bytes fit into the budgets, counts reserves, and counts the jobs of owners. */
#include "budget.h"

#include "name_hash.h"
#include "store_config.h"

#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#define HASH_NONFATAL_OOM 1
#include <uthash.h>

static const pd_budget *decides(const pd_account *account, uint64_t more)
{
    return account->owner != NULL && !pd_budget_fits(account->owner, more) ? account->owner : account->budget;
}

const pd_budget *pd_account_budget(const pd_account *account, uint64_t more)
{
    const pd_budget *all = account->budget, *tight = decides(account, more);

    while (!pd_budget_fits(tight, more) && all->relieve != NULL && all->relieve(all->relieve_arg, account, tight, more))
        tight = decides(account, more);
    return tight;
}

static uint64_t kept(const pd_quota *quota)
{
    if (!quota->released) return quota->reserve;
    return quota->held < quota->reserve ? quota->held : quota->reserve;
}

/* Computes quota->reserved again, after the rank's reserve or the bytes of its frames have changed, and adds the
 * difference to the sums of `ingest` and of the identity's share. */
static void settle(pd_ingest *ingest, pd_quota *quota)
{
    uint64_t now = kept(quota);

    ingest->n_ranks += (now > 0) - (quota->reserved > 0);
    ingest->reserved += now - quota->reserved;
    if (quota->share != NULL) quota->share->reserved += now - quota->reserved;
    quota->reserved = now;
}

uint64_t pd_ingest_room(const pd_ingest *ingest)
{
    return ingest->reserved < ingest->limit ? ingest->limit - ingest->reserved : 0;
}

uint64_t pd_ingest_share_room(const pd_ingest_share *share)
{
    return share->reserved < share->limit ? share->limit - share->reserved : 0;
}

void pd_quota_join(pd_quota *quota, pd_ingest_share *share)
{
    quota->share = share;
    share->reserved += quota->reserved;
}

void pd_quota_take(pd_ingest *ingest, pd_quota *quota, uint64_t bytes)
{
    quota->reserve = bytes;
    quota->released = false;
    settle(ingest, quota);
}

void pd_quota_release(pd_ingest *ingest, pd_quota *quota)
{
    quota->released = true;
    settle(ingest, quota);
}

void pd_quota_hold(pd_ingest *ingest, pd_quota *quota, uint64_t bytes)
{
    quota->held += bytes;
    quota->stalled = false;
    ingest->held += bytes;
    settle(ingest, quota);
}

void pd_quota_let_go(pd_ingest *ingest, pd_quota *quota, uint64_t bytes)
{
    quota->held -= bytes;
    ingest->held -= bytes;
    if (ingest->held <= ingest->limit / 2) ingest->exhausted = false;
    settle(ingest, quota);
}

bool pd_quota_is_exceeded(const pd_ingest *ingest, const pd_quota *quota)
{
    uint64_t limit = ingest->limit, n_ranks = ingest->n_ranks > 0 ? ingest->n_ranks : 1;
    uint64_t spare = pd_spare_part(limit > ingest->reserved ? limit - ingest->reserved : 0, n_ranks);
    uint64_t share = quota->reserve + spare, calm = share / 2 < spare ? share / 2 : spare;

    if (quota->held > 0 && (quota->stalled || ingest->exhausted)) return true;
    return quota->held > calm || (quota->held > 0 && ingest->held + quota->reserve > limit);
}

struct pd_owner {
    char *identity;
    pd_budget budget;      /* counts the bytes of its jobs */
    pd_ingest_share share; /* its share of the ingest budget */
    uint64_t jobs;         /* number of its jobs that have not ended */
    uint64_t turn;         /* number of the store's batch in which one of its jobs last had its turn */
    uint32_t refs;
    pd_owners *owners;
    UT_hash_handle hh;
};

pd_owner *pd_owner_find(const pd_owners *owners, const char *identity)
{
    size_t n = strlen(identity);
    pd_owner *owner;

    HASH_FIND_BYHASHVALUE(hh, owners->table, identity, n, pd_name_hash(owners->hash_key, identity, n), owner);
    return owner;
}

int pd_owner_may_create(const pd_owners *owners, const pd_roles *roles, const char *identity, const char *job,
                        pd_error *err)
{
    const pd_owner *owner = pd_owner_find(owners, identity);
    uint64_t jobs = owner != NULL ? owner->jobs : 0, most = pd_roles_allowance(roles, identity, NULL).jobs;

    if (jobs < most) return PD_OK;
    return pd_fail(err, PD_RESOURCE_EXHAUSTED,
                   "job %.100s would be one more than the %llu jobs that %.100s may have (jobs= of its quota in "
                   "server.roles): end one of them first",
                   job, (unsigned long long)most, identity);
}

static pd_owner *new_owner(pd_owners *owners, const char *identity)
{
    pd_owner *owner = calloc(1, sizeof *owner);
    size_t n = strlen(identity);

    if (owner == NULL || (owner->identity = strdup(identity)) == NULL) goto fail;
    owner->owners = owners;
    owner->budget.whose = owner->identity;
    owner->budget.key = "bytes= of its quota in server.roles";
    HASH_ADD_KEYPTR_BYHASHVALUE(hh, owners->table, owner->identity, n, pd_name_hash(owners->hash_key, identity, n),
                                owner);
    if (owner->hh.tbl != NULL) return owner;

fail:
    if (owner != NULL) free(owner->identity);
    free(owner);
    return NULL;
}

static void set_limits(pd_owner *owner, const pd_roles *roles)
{
    pd_allowance may = pd_roles_allowance(roles, owner->identity, NULL);

    owner->budget.limit = may.bytes;
    owner->share.limit = may.ingest != PD_UNLIMITED ? may.ingest : owner->owners->ingest_bytes / 2;
}

pd_owner *pd_owner_of(pd_owners *owners, const pd_roles *roles, const char *identity)
{
    pd_owner *owner = pd_owner_find(owners, identity);

    if (owner == NULL && (owner = new_owner(owners, identity)) == NULL) return NULL;
    set_limits(owner, roles);
    owner->refs++;
    return owner;
}

pd_owner *pd_owner_ref(pd_owner *owner)
{
    owner->refs++;
    return owner;
}

void pd_owner_let_go(pd_owner *owner)
{
    if (owner == NULL || --owner->refs > 0) return;
    HASH_DELETE(hh, owner->owners->table, owner);
    free(owner->identity);
    free(owner);
}

const pd_budget *pd_owner_budget(const pd_owner *owner)
{
    return &owner->budget;
}

uint64_t pd_owner_turn(const pd_owner *owner)
{
    return owner->turn;
}

void pd_owner_set_turn(pd_owner *owner, uint64_t turn)
{
    owner->turn = turn;
}

pd_ingest_share *pd_owner_share(pd_owner *owner)
{
    return &owner->share;
}

void pd_owner_add(pd_owner *owner, pd_account *account)
{
    owner->jobs++;
    account->owner = &owner->budget;
    owner->budget.used += account->used;
}

void pd_owner_remove(pd_owner *owner)
{
    if (owner != NULL) owner->jobs--;
}

void pd_owners_limit(pd_owners *owners, const pd_roles *roles)
{
    for (pd_owner *owner = owners->table; owner != NULL; owner = owner->hh.next) set_limits(owner, roles);
}
