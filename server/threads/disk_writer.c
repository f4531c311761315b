/* disk_writer.c - the checkpoint writer and the WAL thread: take checkpoints or WAL records from a mailbox, and write
 * them to the state directory. */
#include "disk_writer.h"

#include "checkpoint_files.h"
#include "cpu.h"
#include "linalg.h"
#include "overlapped.h"
#include "state_dir.h"
#include "thread.h"
#include "wal_files.h"

#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

/* The checkpoint writer adds this to its nice value, so that its hashing and copying do not slow steps down. */
enum { NICER = 5 };
/* Largest number of WAL records that are written with one sync, and then returned together. */
enum { GROUP = 64 };

/* The checkpoint writer or the WAL thread: a thread with its mailbox. */
struct pd_disk_writer {
    pd_disk_writer_kind kind;
    char *root;
    const pd_disk *disk;
    pd_write_behind *behind; /* writes to the real file system on a separate thread; NULL: the configuration gives
                              * another disk */
    pd_mailbox *queue;       /* mailbox of this thread, with effects to write */
    pd_mailbox *done;
    void (*wrote)(void *arg); /* pd_disk_writer_config.wrote, and its argument */
    void *arg;
    /* contains no mail; the thread closes it as its last action, for which pd_disk_writer_stop waits */
    pd_mailbox *ended;
    pthread_t thread;

    /* the following members are used by the checkpoint writer alone */
    pd_state_dir lock;
    pd_checkpoint_about about;
    atomic_bool stop; /* waiting checkpoints are refused from now on; set by pd_disk_writer_stop */
    _Atomic(const pd_checkpoint_image *) at; /* the checkpoint that is being written; NULL: no checkpoint is being
                                              * written now */

    pd_wal_writer *wal; /* used by the WAL thread alone */
};

pd_checkpoint_about pd_checkpoint_about_here(void)
{
    pd_checkpoint_about about = { 0 };

    snprintf(about.paramd, sizeof about.paramd, "%s", PD_VERSION);
    pd_product_kernels(about.blas, sizeof about.blas);
    snprintf(about.cpu, sizeof about.cpu, "%s", pd_cpu_names[pd_cpu_in_use]);
    return about;
}

static void hand_back(pd_mailbox *done, pd_request *request)
{
    request->mail.next = NULL;
    pd_mailbox_post(done, &request->mail, &request->mail);
}

/* Returns an effect to the step thread unwritten, with PD_CANCELLED. */
static void refuse(pd_mailbox *done, pd_effect *effect)
{
    if (effect->kind == PD_EFF_WAL) {
        pd_wal_record *record = effect->u.wal;
        pd_fail(&record->error, PD_CANCELLED, "server stopping: record of step %llu not written",
                (unsigned long long)record->step);
        hand_back(done, pd_effect_become_wal(effect));
    } else if (effect->kind == PD_EFF_GO_BACK) {
        pd_go_back_order *order = effect->u.go_back_order;
        pd_fail(&order->error, PD_CANCELLED, "server stopping: did not go back to step %llu",
                (unsigned long long)order->step);
        hand_back(done, pd_effect_become_went_back(effect));
    } else {
        pd_checkpoint_image *image = effect->u.checkpoint_image;
        pd_fail(&image->error, PD_CANCELLED, "server stopping: checkpoint of step %llu not written",
                (unsigned long long)image->step);
        hand_back(done, pd_effect_become_checkpointed(effect));
    }
}

static void tell(const pd_disk_writer *writer)
{
    if (writer->wrote != NULL) writer->wrote(writer->arg);
}

/* ---- checkpoints ---- */

/* Writes a checkpoint, or the mark that a job has ended, and returns it with the result. Removes older checkpoints only
 * after that, so the step thread does not wait for the removal. */
static void write_checkpoint(pd_disk_writer *writer, pd_effect *effect)
{
    pd_checkpoint_image *image = effect->u.checkpoint_image;
    const pd_retention retention = pd_checkpoint_retention(image);
    uint64_t begun = pd_clock_ns();
    pd_checkpoint_about about = writer->about;
    char job_dir[PD_KEEP_PATH];
    struct timespec now;
    bool tidy;

    clock_gettime(CLOCK_REALTIME, &now);
    about.written_ms = (uint64_t)now.tv_sec * 1000 + (uint64_t)now.tv_nsec / 1000000;
    image->error = (pd_error){ 0 };
    atomic_store(&writer->at, image);
    tidy = pd_checkpoint_put(writer->disk, writer->root, image, &about, &image->error) == PD_OK && !image->ended;
    image->ns = pd_clock_ns() - begun;
    if (tidy) pd_checkpoint_job_dir(job_dir, writer->root, image);
    atomic_store(&writer->at, NULL);
    hand_back(writer->done, pd_effect_become_checkpointed(effect));
    if (tidy) pd_checkpoint_tidy(writer->disk, job_dir, &retention);
    tell(writer);
}

/* Carries out an order to go back, and returns it with the result. */
static void go_back(pd_disk_writer *writer, pd_effect *effect)
{
    pd_checkpoint_go_back(writer->disk, writer->root, &writer->about, effect->u.go_back_order);
    hand_back(writer->done, pd_effect_become_went_back(effect));
    tell(writer);
}

/* Returns whether the effect is a checkpoint or an order that is not begun once the writer has to stop. */
static bool may_be_left(const pd_effect *effect)
{
    return effect->kind == PD_EFF_GO_BACK || !effect->u.checkpoint_image->ended;
}

static void write_checkpoints(pd_disk_writer *writer, pd_mail *mail)
{
    for (pd_mail *next; mail != NULL; mail = next) {
        pd_effect *effect = (pd_effect *)(void *)mail;
        next = mail->next;
        if (atomic_load(&writer->stop) && may_be_left(effect))
            refuse(writer->done, effect);
        else if (effect->kind == PD_EFF_GO_BACK)
            go_back(writer, effect);
        else
            write_checkpoint(writer, effect);
    }
}

/* ---- records of the WAL ---- */

/* Writes a group of WAL records with one sync, and returns them with the result. */
static void write_group(pd_disk_writer *writer, pd_effect *const *effects, size_t n)
{
    pd_wal_record *records[GROUP];
    uint64_t begun = pd_clock_ns(), ns;

    for (size_t i = 0; i < n; i++) records[i] = effects[i]->u.wal;
    pd_wal_write(writer->wal, records, n);
    ns = pd_clock_ns() - begun;
    for (size_t i = 0; i < n; i++) {
        records[i]->ns = ns;
        hand_back(writer->done, pd_effect_become_wal(effects[i]));
    }
    tell(writer);
}

static void write_records(pd_disk_writer *writer, pd_mail *mail)
{
    pd_effect *effects[GROUP];
    size_t n;

    while (mail != NULL) {
        for (n = 0; mail != NULL && n < GROUP; mail = mail->next) effects[n++] = (pd_effect *)(void *)mail;
        write_group(writer, effects, n);
    }
}

/* ---- the thread ---- */

static void *run(void *arg)
{
    pd_disk_writer *writer = arg;
    bool closed = false;
    pd_mail *mail;

    if (writer->kind == PD_WRITES_CHECKPOINTS) pd_thread_lower(NICER);
    while ((mail = pd_mailbox_wait(writer->queue, UINT64_MAX, &closed)) != NULL || !closed) {
        if (mail == NULL) continue;
        if (writer->kind == PD_WRITES_CHECKPOINTS)
            write_checkpoints(writer, mail);
        else
            write_records(writer, mail);
    }
    pd_mailbox_close(writer->ended);
    return NULL;
}

/* ---- functions for the step thread, and for the thread that starts the step thread ---- */

void pd_disk_writer_submit(pd_disk_writer *writer, pd_mailbox *done, pd_effect *effect)
{
    effect->mail.next = NULL;
    if (writer == NULL || pd_mailbox_post(writer->queue, &effect->mail, &effect->mail) != PD_OK) refuse(done, effect);
}

static void free_writer(pd_disk_writer *writer)
{
    pd_wal_writer_free(writer->wal);
    pd_write_behind_stop(writer->behind);
    pd_mailbox_free(writer->queue);
    pd_mailbox_free(writer->ended);
    pd_state_dir_close(&writer->lock);
    free(writer->root);
    free(writer);
}

/* Locks the state directory, or takes over the lock that the caller has. */
static int lock_dir(pd_disk_writer *writer, pd_state_dir *locked, pd_error *err)
{
    if (locked == NULL || locked->lock < 0) return pd_state_dir_open(&writer->lock, writer->root, true, err);
    writer->lock = *locked;
    locked->lock = -1;
    return PD_OK;
}

static int open_disk(pd_disk_writer *writer, const pd_disk_writer_config *config, pd_error *err)
{
    int rc;

    writer->disk = config->disk;
    if (config->disk != NULL) return PD_OK;
    if (writer->kind == PD_WRITES_CHECKPOINTS && (rc = lock_dir(writer, config->lock, err)) != PD_OK) return rc;
    if ((rc = pd_write_behind_start(&writer->behind, &pd_disk_posix, err)) != PD_OK) return rc;
    writer->disk = pd_write_behind_disk(writer->behind);
    return PD_OK;
}

static int open_writer(pd_disk_writer *writer, const pd_disk_writer_config *config, pd_error *err)
{
    bool wal = config->kind == PD_WRITES_WAL;
    int rc;

    writer->kind = config->kind;
    writer->done = config->done;
    writer->wrote = config->wrote;
    writer->arg = config->arg;
    writer->lock.lock = -1;
    writer->about = pd_checkpoint_about_here();
    writer->root = strdup(config->dir);
    writer->queue = pd_mailbox_new(NULL, NULL);
    writer->ended = pd_mailbox_new(NULL, NULL);
    if (writer->root == NULL || writer->queue == NULL || writer->ended == NULL)
        return pd_fail(err, PD_NO_MEMORY, "out of memory");
    rc = wal ? pd_keep_check_root(config->dir, err) : PD_OK;
    if (rc == PD_OK) rc = open_disk(writer, config, err);
    if (rc == PD_OK && wal) rc = pd_wal_writer_new(&writer->wal, writer->disk, config->dir, PD_WAL_SEGMENT_BYTES, err);
    if (rc != PD_OK) return rc;
    return pd_thread_start(&writer->thread, run, writer, wal ? "WAL thread" : "checkpoint writer", err);
}

int pd_disk_writer_start(pd_disk_writer **out, const pd_disk_writer_config *config, pd_error *err)
{
    pd_disk_writer *writer = calloc(1, sizeof *writer);
    int rc;

    if (writer == NULL) return pd_fail(err, PD_NO_MEMORY, "out of memory");
    rc = open_writer(writer, config, err);
    if (rc == PD_OK)
        *out = writer;
    else
        free_writer(writer);
    return rc;
}

/* Fills *err with PD_DEADLINE_EXCEEDED and what the thread was writing when the time was over. */
static int say_late(pd_disk_writer *writer, pd_error *err)
{
    const pd_checkpoint_image *image = atomic_load(&writer->at);

    if (writer->kind == PD_WRITES_WAL)
        return pd_fail(err, PD_DEADLINE_EXCEEDED, "%.300s: disk not responding: last records of the WAL not written",
                       writer->root);
    if (image == NULL)
        return pd_fail(err, PD_DEADLINE_EXCEEDED, "%.300s: disk not responding: old checkpoints not removed",
                       writer->root);
    return pd_fail(err, PD_DEADLINE_EXCEEDED, "%.300s: disk not responding: %s of job %.100s not written", writer->root,
                   image->ended ? "end" : "last checkpoint", image->job);
}

int pd_disk_writer_stop(pd_disk_writer *writer, uint64_t until_ns, pd_error *err)
{
    bool ended;

    if (writer == NULL) return PD_OK;
    atomic_store(&writer->stop, true);
    pd_mailbox_close(writer->queue);
    (void)pd_mailbox_wait(writer->ended, until_ns, &ended);
    if (!ended) return say_late(writer, err);
    pthread_join(writer->thread, NULL);
    free_writer(writer);
    return PD_OK;
}
