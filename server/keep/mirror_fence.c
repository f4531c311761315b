/* mirror_fence.c - keeps an owner that was replaced from changing a mirror. */
#include "mirror.h"

#include "state_dir.h"

#include <errno.h>
#include <inttypes.h>
#include <string.h>

/* Writes the fence. A crash leaves the old one or the new one, where the file system can rename. */
static int write_fence(const pd_disk *disk, const char *mirror, uint64_t tenure, pd_error *err)
{
    char name[PD_KEEP_PATH], fresh[PD_KEEP_PATH];
    int rc;

    pd_keep_join(name, mirror, PD_KEEP_FENCE);
    pd_keep_join(fresh, mirror, PD_KEEP_FENCE ".new");
    if ((rc = pd_keep_number_write(disk, fresh, tenure, err)) != PD_OK) return rc;
    if (disk->rename(disk->arg, fresh, name) != 0) {
        rc = pd_keep_number_write(disk, name, tenure, err);
        (void)disk->remove(disk->arg, fresh);
    }
    return rc == PD_OK ? pd_copy_sync_dir(disk, mirror, err) : rc;
}

int pd_mirror_fence(const pd_disk *disk, const char *mirror, uint64_t tenure, pd_error *err)
{
    char name[PD_KEEP_PATH];
    uint64_t fence;
    int rc = pd_keep_check_root(mirror, err);

    if (rc != PD_OK) return rc;
    pd_keep_join(name, mirror, PD_KEEP_FENCE);
    rc = pd_keep_number_read(disk, name, &fence, err);
    if (rc == PD_DATA_LOSS) rc = PD_OK; /* a crash has left it in part */
    if (rc != PD_OK || fence >= tenure) return rc;
    return write_fence(disk, mirror, tenure, err);
}

/* Looks at the fence. Returns 0 or ESTALE. */
static int look(pd_fenced_disk *d)
{
    char name[PD_KEEP_PATH];
    uint64_t fence, tenure;
    pd_error why;

    if (d->tenure == NULL) return 0;
    tenure = d->tenure(d->arg);
    pd_keep_join(name, d->mirror, PD_KEEP_FENCE);
    if (pd_keep_number_read(d->base.below, name, &fence, &why) == PD_OK) {
        if (fence < tenure) return 0;
        pd_fail(&why, PD_FAILED_PRECONDITION,
                "owners up to tenure %" PRIu64 " are replaced, and this daemon's is %" PRIu64
                " (if etcd was set up anew, remove the file " PD_KEEP_FENCE " there)",
                fence, tenure);
    }
    if (d->why.code == PD_OK) d->why = why;
    return ESTALE;
}

#define FENCED(function, parameters, ...)                                                                              \
    static int fenced_##function parameters                                                                            \
    {                                                                                                                  \
        pd_fenced_disk *d = arg;                                                                                       \
        int number = look(d);                                                                                          \
        return number != 0 ? number : d->base.below->function(d->base.below->arg, __VA_ARGS__);                        \
    }
FENCED(make_dir, (void *arg, const char *path), path)
FENCED(create, (void *arg, const char *path, uint64_t bytes, int *file), path, bytes, file)
FENCED(reopen, (void *arg, const char *path, uint64_t bytes, int *file), path, bytes, file)
FENCED(rename, (void *arg, const char *from, const char *to), from, to)
FENCED(remove, (void *arg, const char *path), path)

void pd_fenced_disk_init(pd_fenced_disk *d, const pd_disk *below, const char *mirror, uint64_t (*tenure)(void *arg),
                         void *arg)
{
    *d = (pd_fenced_disk){ .mirror = mirror, .tenure = tenure, .arg = arg };
    pd_disk_pass_init(&d->base, below);
    d->base.functions.make_dir = fenced_make_dir;
    d->base.functions.create = fenced_create;
    d->base.functions.reopen = fenced_reopen;
    d->base.functions.rename = fenced_rename;
    d->base.functions.remove = fenced_remove;
}
