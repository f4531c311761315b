/* usage.h - counts what each identity uses: its connections and the requests without an answer on them. Loop thread.
 *
 * An identity is counted while it has a connection. */
#ifndef PD_USAGE_H
#define PD_USAGE_H

#include "pace.h"
#include "roles.h"

#define HASH_NONFATAL_OOM 1
#include <uthash.h>

/* How many connections beyond its quota an identity may have, which only read the error. */
#define PD_USAGE_ENDING 8

typedef struct pd_usage {
    uint64_t number;    /* of the identity, while it has a connection; never used again, never 0 */
    size_t connections; /* open connections of the identity, with those that end with an error */
    size_t requests;    /* requests without an answer on all of them */
    pd_allowance quota;
    pd_pace_party pace;
    UT_hash_handle hh;
    char identity[];
} pd_usage;

typedef struct pd_usages {
    uint64_t hash_key[2]; /* secret key of the hash function for names: name_hash.h */
    pd_usage *table;      /* hash table of the records by identity */
    uint64_t last_number; /* pd_usage.number of the newest record */
} pd_usages;

/* Counts one more connection of an identity. Returns its record, or NULL if out of memory. */
pd_usage *pd_usage_join(pd_usages *usages, const pd_roles *roles, const char *identity);
/* Counts one connection less, whose requests are all answered or dropped. */
void pd_usage_leave(pd_usages *usages, pd_usage *usage);
/* Returns whether the identity's newest connection is beyond its quota by `more` or more. */
bool pd_usage_is_over(const pd_usage *usage, size_t more);
/* Sets all quotas to those of new roles. */
void pd_usages_limit(pd_usages *usages, const pd_roles *roles);

#endif
