/* usage.c - counts what each identity uses, in a hash table by name. */
#include "usage.h"

#include "name_hash.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

static pd_usage *find(const pd_usages *usages, const char *identity, size_t n)
{
    pd_usage *usage;

    HASH_FIND_BYHASHVALUE(hh, usages->table, identity, n, pd_name_hash(usages->hash_key, identity, n), usage);
    return usage;
}

static pd_usage *new_usage(pd_usages *usages, const pd_roles *roles, const char *identity, size_t n)
{
    pd_usage *usage = calloc(1, sizeof *usage + n + 1);

    if (usage == NULL) return NULL;
    memcpy(usage->identity, identity, n);
    usage->number = ++usages->last_number;
    usage->quota = pd_roles_allowance(roles, identity, NULL);
    HASH_ADD_KEYPTR_BYHASHVALUE(hh, usages->table, usage->identity, n, pd_name_hash(usages->hash_key, identity, n),
                                usage);
    if (usage->hh.tbl != NULL) return usage;
    free(usage);
    return NULL;
}

pd_usage *pd_usage_join(pd_usages *usages, const pd_roles *roles, const char *identity)
{
    size_t n = strlen(identity);
    pd_usage *usage = find(usages, identity, n);

    if (usage == NULL) usage = new_usage(usages, roles, identity, n);
    if (usage != NULL) usage->connections++;
    return usage;
}

void pd_usage_leave(pd_usages *usages, pd_usage *usage)
{
    if (--usage->connections > 0) return;
    assert(usage->requests == 0);
    HASH_DELETE(hh, usages->table, usage);
    free(usage);
}

bool pd_usage_is_over(const pd_usage *usage, size_t more)
{
    return usage->connections > usage->quota.connections && usage->connections - usage->quota.connections > more;
}

void pd_usages_limit(pd_usages *usages, const pd_roles *roles)
{
    for (pd_usage *usage = usages->table; usage != NULL; usage = usage->hh.next)
        usage->quota = pd_roles_allowance(roles, usage->identity, NULL);
}
