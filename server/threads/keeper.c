/* keeper.c - the checkpoint writer: takes checkpoints from its mailbox, and writes one after the other. */
#include "keeper.h"

#include "blascore.h"
#include "checkpoint_files.h"
#include "cpu.h"
#include "diskthread.h"
#include "state_dir.h"

#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

/* Added to the daemon's nice value in the checkpoint writer: hashing and copying give way to steps. */
enum { NICER = 5 };

struct pd_keeper {
    pd_disk_thread thread;
    char *root;
    pd_state_dir lock;
    pd_checkpoint_about about;
    atomic_bool stop; /* checkpoints that wait are not written any more; set before the thread ends */
    _Atomic(const pd_checkpoint_image *) at; /* the checkpoint that is being written; NULL: none */
};

static uint64_t clock_ns(clockid_t clock)
{
    struct timespec now;

    clock_gettime(clock, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

pd_checkpoint_about pd_checkpoint_about_here(void)
{
    pd_checkpoint_about about = { 0 };

    snprintf(about.paramd, sizeof about.paramd, "%s", PD_VERSION);
    snprintf(about.blas, sizeof about.blas, "%s", pd_blas_core());
    snprintf(about.cpu, sizeof about.cpu, "%s", pd_cpu_names[pd_cpu_in_use]);
    return about;
}

/* ---- checkpoint writer ---- */

pd_request *pd_keeper_refuse(pd_effect *effect)
{
    pd_checkpoint_image *kept = effect->u.checkpoint_image;

    pd_fail(&kept->error, PD_CANCELLED, "the server stops, so the checkpoint of step %llu is not written",
            (unsigned long long)kept->step);
    return pd_effect_become_checkpointed(effect);
}

/* Writes a checkpoint, or the mark that a job has ended, and hands it back with the result. Older checkpoints are
 * removed after that, because nobody needs to wait for it. */
static void keep(pd_keeper *keeper, pd_effect *effect)
{
    pd_checkpoint_image *kept = effect->u.checkpoint_image;
    uint64_t left = kept->keep;
    bool tidy;
    char job_dir[PD_KEEP_PATH];
    pd_checkpoint_about about = keeper->about;
    uint64_t begun = clock_ns(CLOCK_MONOTONIC);

    about.written_ms = clock_ns(CLOCK_REALTIME) / 1000000;
    kept->error = (pd_error){ 0 };
    atomic_store(&keeper->at, kept);
    tidy = pd_checkpoint_put(keeper->thread.disk, keeper->root, kept, &about, &kept->error) == PD_OK && !kept->ended;
    kept->ns = clock_ns(CLOCK_MONOTONIC) - begun;
    if (tidy) pd_checkpoint_job_dir(job_dir, keeper->root, kept);
    atomic_store(&keeper->at, NULL);
    pd_disk_thread_hand_back(&keeper->thread, pd_effect_become_checkpointed(effect));
    if (tidy) pd_checkpoint_tidy(keeper->thread.disk, job_dir, left);
}

static void keep_chain(void *arg, pd_mail *mail)
{
    pd_keeper *keeper = arg;

    for (pd_mail *next; mail != NULL; mail = next) {
        pd_effect *effect = (pd_effect *)(void *)mail;
        next = mail->next;
        if (atomic_load(&keeper->stop) && !effect->u.checkpoint_image->ended)
            pd_disk_thread_hand_back(&keeper->thread, pd_keeper_refuse(effect));
        else
            keep(keeper, effect);
    }
}

/* ---- functions for the step thread, and for the thread that starts it ---- */

void pd_keeper_submit(pd_keeper *keeper, pd_effect *effect)
{
    pd_disk_thread_submit(&keeper->thread, effect);
}

static void free_keeper(pd_keeper *keeper)
{
    pd_disk_thread_close(&keeper->thread);
    pd_state_dir_close(&keeper->lock);
    free(keeper->root);
    free(keeper);
}

static int open_keeper(pd_keeper *keeper, const pd_keeper_config *config, pd_error *err)
{
    pd_disk_work work = {
        .name = "checkpoint writer", .nicer = NICER, .chain = keep_chain, .refuse = pd_keeper_refuse, .arg = keeper
    };
    int rc = PD_OK;

    keeper->lock.lock = -1;
    keeper->about = pd_checkpoint_about_here();
    if ((keeper->root = strdup(config->dir)) == NULL) return pd_fail(err, PD_NO_MEMORY, "out of memory");
    if (config->disk == NULL) rc = pd_state_dir_open(&keeper->lock, keeper->root, true, err);
    if (rc == PD_OK) rc = pd_disk_thread_open(&keeper->thread, config->disk, config->done, err);
    return rc == PD_OK ? pd_disk_thread_start(&keeper->thread, &work, err) : rc;
}

int pd_keeper_start(pd_keeper **out, const pd_keeper_config *config, pd_error *err)
{
    pd_keeper *keeper = calloc(1, sizeof *keeper);
    int rc;

    if (keeper == NULL) return pd_fail(err, PD_NO_MEMORY, "out of memory");
    rc = open_keeper(keeper, config, err);
    if (rc == PD_OK)
        *out = keeper;
    else
        free_keeper(keeper);
    return rc;
}

/* Says what keeps the checkpoint writer from ending in time. */
static int say_late(pd_keeper *keeper, pd_error *err)
{
    const pd_checkpoint_image *kept = atomic_load(&keeper->at);

    if (kept == NULL)
        return pd_fail(err, PD_DEADLINE_EXCEEDED, "%.300s: the disk does not answer: old checkpoints are not removed",
                       keeper->root);
    return pd_fail(err, PD_DEADLINE_EXCEEDED, "%.300s: the disk does not answer: %s of job %.100s is not written",
                   keeper->root, kept->ended ? "the end" : "the last checkpoint", kept->job);
}

int pd_keeper_stop(pd_keeper *keeper, uint64_t until_ns, pd_error *err)
{
    if (keeper == NULL) return PD_OK;
    atomic_store(&keeper->stop, true);
    if (!pd_disk_thread_end(&keeper->thread, until_ns)) return say_late(keeper, err);
    free_keeper(keeper);
    return PD_OK;
}
