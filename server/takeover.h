/* takeover.h - how a daemon of a cluster with an engine gets its shard: it asks the engine, waits as a spare if another
 * daemon has the shard, makes sure that the earlier owner is gone, and gets the shard's state. Main thread, which is
 * the loop thread.
 *
 * Who may take a shard: a daemon whose state directory has the copy of the state that the last owner had (its `life`);
 * one that has got a newer copy from the mirror; or, if the shard is its own, one without any earlier state. A copy has
 * a number of its own, so that an owner that comes back with an old state is told from one that has it all. */
#ifndef PD_TAKEOVER_H
#define PD_TAKEOVER_H

#include "cluster_urls.h"
#include "config.h"
#include "daemon.h"
#include "state_dir.h"

#include <stdatomic.h>

typedef struct pd_takeover {
    const pd_config *config;
    pd_daemon *daemon;
    const atomic_bool *stops; /* the daemon has to stop */
    pd_cluster *cluster;      /* NULL: there is no engine */
    /* contents of the files of the connection to the engine; NULL: none */
    char *ca, *cert, *key, *password;
    char process[PD_CLUSTER_NAME];
    pd_cluster_urls urls;
    bool listens; /* the sockets for workers are open */

    char state_dir[PD_KEEP_PATH], mirror[PD_KEEP_PATH]; /* state directory and mirror of the shard; "": none */
    pd_state_dir lock;                                  /* its lock, until the checkpoint writer has it */

    /* for the thread that gets the state: the shard and its last owner; then the result */
    int shard;
    pd_cluster_shard last;
    bool probes; /* makes sure that the last owner does not answer */
    uint64_t life;
    int got;
    pd_error why;
    char told[PD_ERROR_TEXT]; /* the last reason not to take a shard that was logged */
} pd_takeover;

/* Asks the engine of the configuration; does nothing if there is none. Calls `lost` when another daemon owns this one's
 * shard: the process must then end at once. All pointers are borrowed until pd_takeover_end. PD_INVALID_ARGUMENT,
 * PD_UNIMPLEMENTED, PD_NOT_FOUND, PD_PERMISSION_DENIED, PD_NO_MEMORY: errors of pd_etcd_open and pd_pem_read. */
int pd_takeover_begin(pd_takeover *t, const pd_config *config, pd_daemon *daemon, const atomic_bool *stops,
                      void (*lost)(void *arg), void *arg, pd_error *err);
/* Waits until this daemon owns a shard, and listens for workers. Answers HTTP meanwhile. PD_CANCELLED: the daemon has
 * to stop. PD_FAILED_PRECONDITION: the shard is this daemon's own, but its state directory has an older state of it.
 * Other errors are those of pd_daemon_listen and pd_state_dir_open. */
int pd_takeover_wait(pd_takeover *t, pd_error *err);
/* Removes the key of a spare from the engine, for which it waits a second at most, and frees all. Accepts a zeroed
 * struct. */
void pd_takeover_end(pd_takeover *t);
/* Reads the files that the configuration names for the engine, and checks its addresses. */
int pd_takeover_check(const pd_config *config, pd_error *err);

#endif
