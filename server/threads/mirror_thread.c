/* mirror_thread.c - the thread that copies the state directory to its mirror, and the watch of the mirror's disk. */
#include "mirror_thread.h"

#include "log.h"
#include "mirror.h"
#include "request.h"
#include "state_dir.h"
#include "thread.h"

#include <assert.h>
#include <errno.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#define MS ((uint64_t)1000000)
/* Least time between two passes, time until a mirror that has failed is tried again, and time after which a call of the
 * mirror's disk counts as unanswered. */
#define PAUSE_NS (250 * MS)
#define RETRY_NS (5000 * MS)
#define HANG_NS (10000 * MS)
/* At the end: time for the last pass, time after which a call counts as unanswered, and time to notice the end. */
#define LAST_NS (10000 * MS)
#define LAST_HANG_NS (2000 * MS)
#define NOTICE_NS (500 * MS)

enum { NICER = 10 }; /* the thread adds this to its nice value */

/* The disk of the mirror: passes calls on, notes when the present one began, and refuses all once the thread has to
 * end. */
typedef struct watch {
    pd_disk_pass base;      /* must be the first member */
    _Atomic uint64_t since; /* monotonic time (ns) at which the present call began; 0: no call is under way */
    atomic_bool cancelled;  /* calls fail with ECANCELED from now on */
} watch;

/* Who frees the thread's memory: the one that comes second to the end. */
typedef enum end_kind { RUNS, HAS_ENDED, IS_LEFT } end_kind;

struct pd_mirror_thread {
    watch disk;
    pd_fenced_disk fenced;    /* passes calls on to `disk` */
    _Atomic uint64_t *tenure; /* NULL: there is no engine */
    const pd_disk *below;
    pd_mirror_writer *writer;
    pd_mirror_user user;
    char state_dir[PD_KEEP_PATH], mirror[PD_KEEP_PATH];
    bool locks;        /* the directory is on the real file system */
    bool open;         /* it was made, checked and locked */
    bool empty;        /* the state directory had no job at the start */
    pd_state_dir lock; /* of the mirror's directory */
    pd_mailbox *queue, *done;
    pd_mailbox *ended;  /* contains no mail; the thread closes it as its last action */
    pd_mail mail;       /* wakes the thread; it is in `queue`, or was taken and `woken` is still set */
    atomic_bool woken;  /* `mail` is in use */
    atomic_bool failed; /* the last pass has failed, or the directory could not be opened */
    atomic_bool told;   /* the log says that the mirror does not answer */
    bool complete;      /* the last pass has copied everything */
    atomic_int end;     /* an end_kind */
    pthread_t thread;
};

/* ---- the disk of the mirror ---- */

static uint64_t waits_ns(const watch *w)
{
    uint64_t since = atomic_load(&((watch *)w)->since), now = pd_clock_ns();

    return since == 0 || now < since ? 0 : now - since;
}

#define WATCH(function, parameters, ...)                                                                               \
    static int watch_##function parameters                                                                             \
    {                                                                                                                  \
        watch *w = arg;                                                                                                \
        const pd_disk *below = w->base.below;                                                                          \
        int number;                                                                                                    \
        if (atomic_load(&w->cancelled)) return ECANCELED;                                                              \
        atomic_store(&w->since, pd_clock_ns());                                                                        \
        number = below->function(below->arg, __VA_ARGS__);                                                             \
        atomic_store(&w->since, 0);                                                                                    \
        return number;                                                                                                 \
    }
WATCH(make_dir, (void *arg, const char *path), path)
WATCH(create, (void *arg, const char *path, uint64_t bytes, int *file), path, bytes, file)
WATCH(write, (void *arg, int file, const void *at, size_t bytes), file, at, bytes)
WATCH(reopen, (void *arg, const char *path, uint64_t bytes, int *file), path, bytes, file)
WATCH(write_at, (void *arg, int file, uint64_t offset, const void *at, size_t bytes), file, offset, at, bytes)
WATCH(sync_file, (void *arg, int file), file)
WATCH(sync_data, (void *arg, int file), file)
WATCH(open, (void *arg, const char *path, int *file), path, file)
WATCH(size, (void *arg, int file, uint64_t *bytes), file, bytes)
WATCH(read, (void *arg, int file, uint64_t offset, void *at, size_t bytes), file, offset, at, bytes)
WATCH(sync_dir, (void *arg, const char *path), path)
WATCH(rename, (void *arg, const char *from, const char *to), from, to)
WATCH(remove, (void *arg, const char *path), path)
WATCH(list, (void *arg, const char *path, void (*each)(void *what, const char *name), void *what), path, each, what)
WATCH(space, (void *arg, const char *path, uint64_t *bytes), path, bytes)

/* Closes a file even if the thread has to end. */
static int watch_close(void *arg, int file)
{
    watch *w = arg;
    int number;

    atomic_store(&w->since, pd_clock_ns());
    number = w->base.below->close(w->base.below->arg, file);
    atomic_store(&w->since, 0);
    return number;
}

static void watch_init(watch *w, const pd_disk *below)
{
    pd_disk_pass_init(&w->base, below);
    w->base.functions = (pd_disk){ .arg = w,
                                   .any_memory = below->any_memory,
                                   .make_dir = watch_make_dir,
                                   .create = watch_create,
                                   .write = watch_write,
                                   .reopen = watch_reopen,
                                   .write_at = watch_write_at,
                                   .sync_file = watch_sync_file,
                                   .sync_data = watch_sync_data,
                                   .open = watch_open,
                                   .size = watch_size,
                                   .read = watch_read,
                                   .close = watch_close,
                                   .sync_dir = watch_sync_dir,
                                   .rename = watch_rename,
                                   .remove = watch_remove,
                                   .list = watch_list,
                                   .space = watch_space };
}

/* ---- what is told ---- */

/* Tells the step thread up to which step the mirror has a job. If there is no memory, the next change is told. */
static void tell_step(void *arg, const char *job, uint64_t creator, uint64_t step)
{
    pd_mirror_thread *m = arg;
    pd_request *request = pd_request_new(PD_REQ_MIRRORED, (pd_ticket){ 0, 0 });

    if (request == NULL || (request->u.mirrored.job_name = strdup(job)) == NULL) {
        pd_request_free(request);
        return;
    }
    request->u.mirrored.creator = creator;
    request->u.mirrored.step = step;
    if (pd_mailbox_post(m->done, &request->mail, &request->mail) != PD_OK) pd_request_free(request);
}

static void tell_remark(void *arg, const pd_error *remark)
{
    const pd_mirror_thread *m = arg;

    if (!atomic_load(&((pd_mirror_thread *)m)->disk.cancelled)) pd_log(LOG_WARNING, "%s", remark->text);
}

/* Notes the result of an attempt, and logs when the mirror goes down or comes up. */
static void note_result(pd_mirror_thread *m, int rc, const pd_error *err)
{
    bool failed = rc != PD_OK, was = atomic_load(&m->failed), hung;

    m->complete = !failed;
    if (atomic_load(&m->disk.cancelled)) return;
    atomic_store(&m->failed, failed);
    if (failed && !was)
        pd_log(LOG_WARNING, "mirror %s: %s: training goes on, and the mirror gets the rest later", m->mirror,
               err->text);
    hung = !failed && atomic_exchange(&m->told, false);
    if ((!failed && was) || hung) pd_log(LOG_NOTICE, "mirror %s: up again, and it has what is durable", m->mirror);
}

/* ---- the thread ---- */

/* Logs how to fetch jobs, if only the mirror has some. */
static int look_for_jobs(pd_mirror_thread *m, pd_error *err)
{
    size_t n;
    int rc = pd_mirror_count(&m->disk.base.functions, m->mirror, &n, err);

    if (rc != PD_OK || n == 0) return rc;
    pd_log(
        LOG_NOTICE,
        "%s: no jobs here, but the mirror %s has %zu: to continue them, stop the daemon and run `paramctl mirror fetch "
        "%s %s`",
        m->state_dir, m->mirror, n, m->mirror, m->state_dir);
    return PD_OK;
}

static uint64_t tenure_of(void *arg)
{
    const pd_mirror_thread *m = arg;
    uint64_t tenure = atomic_load(m->tenure);

    assert(tenure > 0); /* the thread starts when this daemon is the owner; 0 would fence off every later one */
    return tenure;
}

/* Makes, checks and locks the mirror's directory, keeps earlier owners out of it, and looks what is there. */
static int open_mirror(pd_mirror_thread *m, pd_error *err)
{
    int rc = PD_OK;

    if (m->open) return PD_OK;
    if (m->locks && m->lock.lock < 0) {
        atomic_store(&m->disk.since, pd_clock_ns());
        rc = pd_state_dir_open(&m->lock, m->mirror, true, err);
        atomic_store(&m->disk.since, 0);
    }
    if (rc == PD_OK && m->tenure != NULL)
        rc = pd_mirror_fence(&m->disk.base.functions, m->mirror, tenure_of(m) - 1, err);
    if (rc == PD_OK && m->empty) rc = look_for_jobs(m, err);
    m->open = rc == PD_OK;
    return rc;
}

static void attempt(pd_mirror_thread *m)
{
    pd_error err = { 0 };
    int rc = open_mirror(m, &err);

    m->fenced.why = (pd_error){ 0 };
    if (rc == PD_OK) rc = pd_mirror_pass(m->writer, &err);
    if (m->fenced.why.code != PD_OK) rc = pd_fail(&err, m->fenced.why.code, "%s", m->fenced.why.text);
    note_result(m, rc, &err);
}

static void free_thread(pd_mirror_thread *m)
{
    pd_mirror_writer_free(m->writer);
    pd_mailbox_free(m->queue);
    pd_mailbox_free(m->ended);
    pd_state_dir_close(&m->lock);
    free(m);
}

static void *run(void *arg)
{
    pd_mirror_thread *m = arg;
    bool closed = false;
    uint64_t next;

    pd_thread_lower(NICER);
    attempt(m);
    while (!closed) {
        next = pd_clock_ns() + PAUSE_NS;
        (void)pd_mailbox_wait(m->queue, atomic_load(&m->failed) ? pd_clock_ns() + RETRY_NS : UINT64_MAX, &closed);
        if (!closed) (void)pd_mailbox_wait(m->queue, next, &closed);
        atomic_store(&m->woken, false);
        if (!closed || !atomic_load(&m->failed)) attempt(m);
    }
    pd_mailbox_close(m->ended);
    if (atomic_exchange(&m->end, HAS_ENDED) == IS_LEFT) free_thread(m);
    return NULL;
}

/* ---- other threads ---- */

static int open_thread(pd_mirror_thread *m, const pd_mirror_thread_config *config, pd_error *err)
{
    size_t n_jobs;
    int rc = pd_keep_check_root(config->state_dir, err);

    if (rc == PD_OK) rc = pd_keep_check_root(config->mirror, err);
    if (rc != PD_OK) return rc;
    memcpy(m->state_dir, config->state_dir, strlen(config->state_dir) + 1);
    memcpy(m->mirror, config->mirror, strlen(config->mirror) + 1);
    m->below = config->disk != NULL ? config->disk : &pd_disk_posix;
    m->locks = config->disk == NULL;
    m->done = config->done;
    m->user = (pd_mirror_user){ m, tell_step, tell_remark };
    m->queue = pd_mailbox_new(NULL, NULL);
    m->ended = pd_mailbox_new(NULL, NULL);
    if (m->queue == NULL || m->ended == NULL) return pd_fail(err, PD_NO_MEMORY, "out of memory for the mirror");
    watch_init(&m->disk, m->below);
    m->tenure = config->tenure;
    pd_fenced_disk_init(&m->fenced, &m->disk.base.functions, m->mirror, m->tenure != NULL ? tenure_of : NULL, m);
    rc = pd_mirror_writer_new(&m->writer, m->below, m->state_dir, &m->fenced.base.functions, m->mirror, &m->user, err);
    if (rc == PD_OK) rc = pd_mirror_begin(m->writer, &n_jobs, err);
    if (rc != PD_OK) return rc;
    m->empty = n_jobs == 0;
    return pd_thread_start(&m->thread, run, m, "mirror thread", err);
}

int pd_mirror_thread_start(pd_mirror_thread **out, const pd_mirror_thread_config *config, pd_error *err)
{
    pd_mirror_thread *m = calloc(1, sizeof *m);
    int rc;

    if (m == NULL) return pd_fail(err, PD_NO_MEMORY, "out of memory for the mirror");
    m->lock.lock = -1;
    rc = open_thread(m, config, err);
    if (rc == PD_OK)
        *out = m;
    else
        free_thread(m);
    return rc;
}

void pd_mirror_thread_wake(pd_mirror_thread *m)
{
    if (m != NULL && !atomic_exchange(&m->woken, true)) (void)pd_mailbox_post(m->queue, &m->mail, &m->mail);
}

bool pd_mirror_thread_is_up(const pd_mirror_thread *m)
{
    return !atomic_load(&((pd_mirror_thread *)m)->failed) && waits_ns(&m->disk) < HANG_NS;
}

void pd_mirror_thread_tick(pd_mirror_thread *m)
{
    if (m == NULL || waits_ns(&m->disk) < HANG_NS || atomic_exchange(&m->told, true)) return;
    pd_log(LOG_WARNING, "mirror %s: no answer for 10 s: training goes on, and the mirror gets the rest later",
           m->mirror);
}

/* Waits until the thread has ended, or the time until_ns, or until a call of the mirror's disk takes too long. Returns
 * whether it has ended. */
static bool await_end(pd_mirror_thread *m, uint64_t until_ns, uint64_t hang_ns)
{
    bool ended = false;

    for (uint64_t now = pd_clock_ns(); !ended; now = pd_clock_ns()) {
        uint64_t look = now + 50 * MS < until_ns ? now + 50 * MS : until_ns;
        (void)pd_mailbox_wait(m->ended, look, &ended);
        if (now >= until_ns || waits_ns(&m->disk) > hang_ns) break;
    }
    return ended;
}

/* Leaves a thread alone whose mirror does not answer. Returns false if it has ended meanwhile. */
static bool leave(pd_mirror_thread *m)
{
    pthread_t thread = m->thread;

    pd_log(LOG_WARNING, "mirror %s: no answer: it does not have the last steps, which the next start copies",
           m->mirror);
    if (atomic_exchange(&m->end, IS_LEFT) == HAS_ENDED) return false;
    pthread_detach(thread);
    return true;
}

bool pd_mirror_thread_stop(pd_mirror_thread *m, uint64_t until_ns)
{
    uint64_t last = pd_clock_ns() + LAST_NS;

    if (m == NULL) return true;
    pd_mailbox_close(m->queue);
    if (!await_end(m, last < until_ns ? last : until_ns, LAST_HANG_NS)) {
        atomic_store(&m->disk.cancelled, true);
        if (!await_end(m, pd_clock_ns() + NOTICE_NS, UINT64_MAX) && leave(m)) return false;
    }
    pthread_join(m->thread, NULL);
    if (!m->complete)
        pd_log(LOG_WARNING, "mirror %s: it does not have the last steps, which the next start copies", m->mirror);
    free_thread(m);
    return true;
}
