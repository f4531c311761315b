/* store_image.c - the functions of the store that write a job as bytes, and make jobs of bytes: images, checkpoints,
 * entries of logs. */
#include "store.h"

#include "control_log.h"
#include "image.h"
#include "job_owner.h"
#include "wal_replay.h"
#include "restore.h"
#include "store_end.h"

int pd_store_save_job(pd_store *store, const char *name, uint8_t **image, size_t *n, pd_error *err)
{
    pd_job *job = pd_jobs_find(&store->jobs, name);

    if (job == NULL) return pd_fail(err, PD_NOT_FOUND, "there is no job %.200s", name);
    if (!pd_image_is_possible(job))
        return pd_fail(err, PD_UNAVAILABLE, "job %.200s cannot be saved now: a step or a root task is under way", name);
    return pd_image_write(job, image, n, err);
}

int pd_store_load_job(pd_store *store, const uint8_t *image, size_t n, uint64_t now_ns, pd_error *err)
{
    const pd_job_env env = pd_store_env(store);
    int rc;

    pd_store_forget_deadlines(store);
    rc = pd_image_read(&store->jobs, &env, image, n, now_ns, err);
    if (rc == PD_OK) pd_job_owners_resume(&store->jobs, &store->owners, store->roles);
    return rc;
}

int pd_store_restore(pd_store *store, const pd_checkpoint_image *kept, uint64_t now_ns, pd_error *err)
{
    const pd_job_env env = pd_store_env(store);
    int rc;

    pd_store_forget_deadlines(store);
    rc = pd_restore(&store->jobs, &env, kept, now_ns, err);
    if (rc == PD_OK) pd_job_owners_resume(&store->jobs, &store->owners, store->roles);
    return rc;
}

int pd_store_replay(pd_store *store, const pd_wal_record *record, uint64_t now_ns, bool *kept, pd_error *err)
{
    pd_store_forget_deadlines(store);
    return pd_replay(&store->jobs, record, now_ns, kept, err);
}

int pd_store_control(pd_store *store, const pd_wal_record *record, pd_error *err)
{
    return pd_control_load(&store->jobs, record, err);
}
