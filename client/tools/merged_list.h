/* merged_list.h - merges the lists that the daemons of a cluster send, such as their jobs, into one list. */
#ifndef PD_MERGED_LIST_H
#define PD_MERGED_LIST_H

#include "connection.h"

/* The pages of a list that one shard has sent, copied out of the memory of its connection. */
typedef struct pd_merged_list {
    Paramd__ListReply **pages;
    size_t n, room;
    bool failed; /* memory was missing for a page */
} pd_merged_list;

/* Keeps a copy of a page; `arg` is the pd_merged_list. */
pd_page_user pd_merged_list_keep;
void pd_merged_list_free(pd_merged_list *list);

/* Merges lists of the kind `what` (a ListKind) of n shards, and calls `use` with the merged entries:
 *
 * - Jobs of one name become one entry: bytes and counts add up, steps are the least and the largest of all shards. A
 *   worker gets its worst state, and the least step of all shards. So do rounds. Members are those of the first shard.
 * - Parameters, roots, state and settings lie on one shard each: they are sorted by parameter, with numbers in names in
 *   the order of their values. *shard is the shard of the entry while `use` runs.
 *
 * Changes the pages in place. PD_NO_MEMORY. */
int pd_merged_lists_use(pd_merged_list *lists, size_t n, unsigned what, uint32_t *shard, pd_page_user *use, void *arg,
                        pd_error *err);

#endif
