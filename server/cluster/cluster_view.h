/* cluster_view.h - keeps the table of a cluster up to date: lists its keys, then watches them. A state machine, without
 * clock and sockets. Loop thread.
 *
 *     shard/N      the owner of shard N, under its lease
 *     last/N       the same value without a lease: the last owner, also when it is gone
 *     spare/NAME   a spare, under its lease */
#ifndef PD_CLUSTER_VIEW_H
#define PD_CLUSTER_VIEW_H

#include "cluster_value.h"

/* What a view tells its user. */
typedef struct pd_cluster_view_user {
    /* The key of an owner has changed: tenure and value as pd_lease_seen gets them. */
    void (*owner)(void *arg, uint32_t shard, uint64_t tenure, uint64_t revision, const char *value);
    void (*log)(void *arg, int level, const char *text);
    void *arg;
} pd_cluster_view_user;

typedef struct pd_cluster_view {
    pd_engine *engine;
    pd_cluster_view_user user;
    char prefix[PD_CLUSTER_NAME + 16]; /* "/paramd/NAME/" */
    pd_cluster_table *table;
    uint64_t missing_ms[PD_MAX_SHARDS]; /* of a shard that had no owner when the view began: that time. 0: the view has
                                         * seen how an owner's lease ended */
    uint32_t shards;                    /* number of shards, if no key says so */
    uint64_t revision;                  /* number of the newest change that the table has; 0: nothing was listed yet */
    uint64_t due_ms, now_ms;
    bool lists;  /* the keys must be listed (again) */
    bool down;   /* the last call had no answer */
    bool warned; /* a key that cannot be read was reported */
    char why[PD_ERROR_TEXT];
    pd_engine_call call;
} pd_cluster_view;

/* Prepares a view of the cluster `name`. Borrows engine and table. `shards`: number of shards, unless a key says
 * otherwise. */
void pd_cluster_view_init(pd_cluster_view *view, pd_engine *engine, pd_cluster_table *table, const char *name,
                          uint32_t shards, const pd_cluster_view_user *user);
/* Makes the call that is due. Returns when the next one will be; UINT64_MAX: when the open one has ended. */
uint64_t pd_cluster_view_turn(pd_cluster_view *view, uint64_t now_ms);

#endif
