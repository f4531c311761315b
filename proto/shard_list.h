/* shard_list.h - the addresses of a cluster as people write them: one list for the client library and paramctl.
 *
 *     tcp://a:7070                            one shard: a daemon that is alone
 *     tls://a:7070 tls://b:7070,tls://b2      two shards; the second one has two addresses, tried in turn
 *     tls://paramd-{0..3}.paramd:7070         four shards: paramd-0 to paramd-3
 *     10.0.0.5:{7070..7073}                   four shards on one machine
 *     node{00..15}                            sixteen shards: node00 to node15
 *
 * Blanks separate shards, which are numbered by their place in the list. Commas, with or without blanks around them,
 * separate the addresses of one shard (address.h). `{first..last}` stands for the numbers from the first to the last
 * one, which have the digits of the first if it begins with 0. An address has at most one such range; the addresses of
 * one shard have ranges of equal length or none.
 *
 * A path of a Unix socket may contain blanks and braces: after it, the next shard begins with "tcp://", "tls://" or
 * "unix://", and braces without two numbers belong to the path. Any thread may call these functions. */
#ifndef PD_SHARD_LIST_H
#define PD_SHARD_LIST_H

#include "address.h"
#include "most_shards.h"

enum { PD_MOST_ADDRESSES = 16 * PD_MAX_SHARDS };

/* A parsed list: the addresses of shard i are addresses[first[i]] to addresses[first[i + 1] - 1]. */
typedef struct pd_shard_list {
    size_t n;
    size_t first[PD_MAX_SHARDS + 1];
    pd_address *addresses;
} pd_shard_list;

/* Parses the list of addresses of a client. pd_shard_list_free frees its memory. PD_INVALID_ARGUMENT: an address or a
 * range is not valid, there are more than PD_MAX_SHARDS shards or PD_MOST_ADDRESSES addresses, or two shards have the
 * same address; the text says which. PD_NO_MEMORY. After an error there is nothing to free. */
int pd_shard_list_parse(pd_shard_list *out, const char *text, pd_error *err);
void pd_shard_list_free(pd_shard_list *list);
/* Returns the number of addresses of a shard. */
static inline size_t pd_shard_list_count(const pd_shard_list *list, size_t shard)
{
    return list->first[shard + 1] - list->first[shard];
}
/* Returns the addresses of one shard as text, separated by commas, in new memory. NULL: out of memory. */
char *pd_shard_list_text(const pd_shard_list *list, size_t shard);

#endif
