/* keeper.c - the keeper thread: takes checkpoints from its mailbox, and writes one after the other. */
#include "keeper.h"

#include "blascore.h"
#include "checkpoint_files.h"
#include "cpu.h"
#include "state_dir.h"
#include "writebehind.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

/* Added to the daemon's nice value in the keeper thread: hashing and copying give way to steps. */
enum { NICER = 5 };

struct pd_keeper {
    const pd_disk *disk;
    pd_write_behind *behind; /* the real disk; NULL: another one */
    char *root;
    pd_state_dir lock;
    pd_mailbox *queue; /* effects that wait for the keeper thread */
    pd_mailbox *done;
    pd_kept_about about;
    atomic_bool stop; /* checkpoints that wait are not written any more; set before the queue is closed */
    pthread_t thread;
};

static uint64_t clock_ns(clockid_t clock)
{
    struct timespec now;

    clock_gettime(clock, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

pd_kept_about pd_keeper_about(void)
{
    pd_kept_about about = { 0 };

    snprintf(about.paramd, sizeof about.paramd, "%s", PD_VERSION);
    snprintf(about.blas, sizeof about.blas, "%s", pd_blas_core());
    snprintf(about.cpu, sizeof about.cpu, "%s", pd_cpu_names[pd_cpu_in_use]);
    return about;
}

/* ---- keeper thread ---- */

pd_request *pd_keeper_refuse(pd_effect *effect)
{
    pd_kept *kept = effect->u.kept;

    pd_fail(&kept->error, PD_CANCELLED, "the server stops, so the checkpoint of step %llu is not written",
            (unsigned long long)kept->step);
    return pd_effect_become_kept(effect);
}

/* Posts a request to the step thread. Its mailbox is closed only when the keeper thread has ended. */
static void hand_back(pd_keeper *keeper, pd_request *request)
{
    request->mail.next = NULL;
    pd_mailbox_post(keeper->done, &request->mail, &request->mail);
}

/* Writes a checkpoint, or the mark that a job has ended, and hands it back with the result. Older checkpoints are
 * removed after that, because nobody needs to wait for it. */
static void keep(pd_keeper *keeper, pd_effect *effect)
{
    pd_kept *kept = effect->u.kept;
    uint64_t left = kept->keep;
    bool tidy;
    char job_dir[PD_KEEP_PATH];
    pd_kept_about about = keeper->about;
    uint64_t begun = clock_ns(CLOCK_MONOTONIC);

    about.written_ms = clock_ns(CLOCK_REALTIME) / 1000000;
    kept->error = (pd_error){ 0 };
    tidy = pd_checkpoint_put(keeper->disk, keeper->root, kept, &about, &kept->error) == PD_OK && !kept->ended;
    kept->ns = clock_ns(CLOCK_MONOTONIC) - begun;
    if (tidy) pd_checkpoint_job_dir(job_dir, keeper->root, kept);
    hand_back(keeper, pd_effect_become_kept(effect));
    if (tidy) pd_checkpoint_tidy(keeper->disk, job_dir, left);
}

static void *run(void *arg)
{
    pd_keeper *keeper = arg;
    id_t self = (id_t)syscall(SYS_gettid);
    bool closed = false;
    pd_mail *mail, *next;

    setpriority(PRIO_PROCESS, self, getpriority(PRIO_PROCESS, self) + NICER);
    while ((mail = pd_mailbox_wait(keeper->queue, UINT64_MAX, &closed)) != NULL || !closed)
        for (; mail != NULL; mail = next) {
            pd_effect *effect = (pd_effect *)(void *)mail;
            next = mail->next;
            if (atomic_load(&keeper->stop) && !effect->u.kept->ended)
                hand_back(keeper, pd_keeper_refuse(effect));
            else
                keep(keeper, effect);
        }
    return NULL;
}

/* ---- functions for the step thread, and for the thread that starts it ---- */

void pd_keeper_submit(pd_keeper *keeper, pd_effect *effect)
{
    effect->mail.next = NULL;
    if (pd_mailbox_post(keeper->queue, &effect->mail, &effect->mail) != PD_OK)
        hand_back(keeper, pd_keeper_refuse(effect));
}

static void free_keeper(pd_keeper *keeper)
{
    pd_write_behind_stop(keeper->behind);
    pd_state_dir_close(&keeper->lock);
    pd_mailbox_free(keeper->queue);
    free(keeper->root);
    free(keeper);
}

static int open_real_disk(pd_keeper *keeper, pd_error *err)
{
    int rc = pd_state_dir_open(&keeper->lock, keeper->root, true, err);

    if (rc == PD_OK) rc = pd_write_behind_start(&keeper->behind, &pd_disk_posix, err);
    if (rc == PD_OK) keeper->disk = pd_write_behind_disk(keeper->behind);
    return rc;
}

static int open_keeper(pd_keeper *keeper, const pd_keeper_config *config, pd_error *err)
{
    keeper->lock.lock = -1;
    keeper->done = config->done;
    keeper->disk = config->disk;
    keeper->about = pd_keeper_about();
    keeper->root = strdup(config->dir);
    keeper->queue = pd_mailbox_new(NULL, NULL);
    if (keeper->root == NULL || keeper->queue == NULL) return pd_fail(err, PD_NO_MEMORY, "out of memory");
    return config->disk == NULL ? open_real_disk(keeper, err) : PD_OK;
}

int pd_keeper_start(pd_keeper **out, const pd_keeper_config *config, pd_error *err)
{
    pd_keeper *keeper = calloc(1, sizeof *keeper);
    int rc;

    if (keeper == NULL) return pd_fail(err, PD_NO_MEMORY, "out of memory");
    rc = open_keeper(keeper, config, err);
    if (rc == PD_OK && pthread_create(&keeper->thread, NULL, run, keeper) != 0)
        rc = pd_fail(err, PD_RESOURCE_EXHAUSTED, "the keeper thread cannot be started");
    if (rc == PD_OK)
        *out = keeper;
    else
        free_keeper(keeper);
    return rc;
}

void pd_keeper_stop(pd_keeper *keeper)
{
    if (keeper == NULL) return;
    atomic_store(&keeper->stop, true);
    pd_mailbox_close(keeper->queue);
    pthread_join(keeper->thread, NULL);
    free_keeper(keeper);
}
