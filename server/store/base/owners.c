/* owners.c - the identities that have created jobs, in a hash table by name. */
#include "owners.h"

#include "name_hash.h"

#include <stdlib.h>
#include <string.h>

#define HASH_NONFATAL_OOM 1
#include <uthash.h>

struct pd_owner {
    char *identity;
    pd_budget budget;      /* bytes of its jobs */
    pd_ingest_share share; /* of the ingest budget */
    uint64_t jobs;         /* number of its jobs that exist */
    uint64_t turn;         /* number of the store's batch of work in which one of them worked last */
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
    pd_account_join(account, &owner->budget);
}

void pd_owner_remove(pd_owner *owner)
{
    if (owner != NULL) owner->jobs--;
}

void pd_owners_limit(pd_owners *owners, const pd_roles *roles)
{
    for (pd_owner *owner = owners->table; owner != NULL; owner = owner->hh.next) set_limits(owner, roles);
}
