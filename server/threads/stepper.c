/* stepper.c - the step thread: restores jobs, runs turns, hands effects to the threads that handle them, and stops
 * those threads at the end. */
#include "stepper.h"

#include "overlapped.h"
#include "disk_writer.h"
#include "log.h"
#include "mirror_thread.h"
#include "recover.h"
#include "precond_pool.h"
#include "precond_queue.h"
#include "thread.h"
#include "turn.h"

#include <assert.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

/* The step thread, and the threads that work for it. */
struct pd_stepper {
    pd_store *store; /* training state; used by the step thread alone, and after its end by the thread that stops it */
    pd_turn turn;    /* state between two turns of the step thread */
    pd_precond_pool *pool;
    pd_disk_writer *checkpoints; /* NULL: jobs have no checkpoints, or the checkpoint writer has ended */
    pd_disk_writer *wal;         /* NULL: jobs have no checkpoints, or the WAL thread has ended */
    pd_mirror_thread *mirror;    /* NULL: there is no mirror, or the mirror thread has ended */
    pd_warmer *warmer;           /* NULL except while jobs are restored */
    pd_mailbox *requests;        /* requests to the step thread: the mailbox that it reads */
    pd_mailbox *effects;         /* effects of the step thread: the mailbox that the loop thread reads */
    pd_request *last_call;       /* request without content, which wakes the step thread when it must stop */
    pd_numa numa;                /* node of the step thread and its OpenMP team */
    pthread_t thread;
    uint64_t until_ns;           /* monotonic time (ns) until which the end waits for the disk; set before `stop` */
    bool mirror_left;            /* the mirror thread has not ended, since the mirror does not answer */
    bool left;                   /* the checkpoint writer or the WAL thread did not end before until_ns */
    size_t lost;                 /* number of jobs whose last steps were not durable at the end */
    atomic_bool stop;            /* the step thread has to stop; set before the request that wakes it is posted */
    _Atomic uint64_t busy_since; /* monotonic time in ns at which the step thread's present turn began; 0: the thread is
                                  * idle */
};

static void busy(pd_stepper *stepper, uint64_t since)
{
    atomic_store_explicit(&stepper->busy_since, since, memory_order_relaxed);
}

static uint64_t read_clock(void *arg)
{
    (void)arg;
    return pd_clock_ns();
}

static void post_effects(void *arg, pd_mail *first, pd_mail *last)
{
    pd_stepper *stepper = arg;
    pd_mailbox_post(stepper->effects, first, last);
}

/* Hands the preconditioner task of an effect to the preconditioner pool. If there is no memory to queue the task, it
 * counts as failed. The step thread does not wait for memory, because memory may become free only when another job
 * continues. */
static void hand_to_pool(void *arg, pd_effect *effect)
{
    pd_stepper *stepper = arg;
    pd_request *refused;

    if (pd_precond_pool_submit(stepper->pool, effect->u.task.task, effect->job, effect->u.task.param) == PD_OK) {
        pd_effect_free(effect);
        return;
    }
    pd_log(LOG_ERR,
           "out of memory for a preconditioner task: it counts as failed, and the last good root stays in use");
    refused = pd_precond_queue_refuse(effect);
    pd_mailbox_post(stepper->requests, &refused->mail, &refused->mail);
}

static void forget_tasks(void *arg, uint32_t job)
{
    pd_stepper *stepper = arg;
    pd_precond_pool_forget(stepper->pool, job);
}

static void hand_checkpoint(void *arg, pd_effect *effect)
{
    pd_stepper *stepper = arg;
    pd_disk_writer_submit(stepper->checkpoints, stepper->requests, effect);
}

static void hand_record(void *arg, pd_effect *effect)
{
    pd_stepper *stepper = arg;
    pd_disk_writer_submit(stepper->wal, stepper->requests, effect);
}

/* Applies all requests in the mailbox, and requests that other threads post because of them, until the mailbox is
 * empty. */
static void finish(pd_stepper *stepper)
{
    pd_mail *mail;

    while ((mail = pd_mailbox_take(stepper->requests)) != NULL) {
        pd_turn_add(&stepper->turn, mail);
        pd_turn_finish(&stepper->turn);
    }
}

/* Stops a disk writer. If the disk does not answer before until_ns, logs that and leaves the writer's thread
 * running. */
static void stop_disk_writer(pd_stepper *stepper, pd_disk_writer **writer)
{
    pd_error err;

    if (pd_disk_writer_stop(*writer, stepper->until_ns, &err) == PD_OK) {
        *writer = NULL;
        return;
    }
    pd_log(LOG_ERR, "%s", err.text);
    stepper->left = true;
}

static void stop_disk_writers(pd_stepper *stepper)
{
    stop_disk_writer(stepper, &stepper->checkpoints);
    stop_disk_writer(stepper, &stepper->wal);
    if (stepper->left) return; /* a disk writer may still wake the mirror thread */
    stepper->mirror_left = !pd_mirror_thread_stop(stepper->mirror, stepper->until_ns);
    stepper->mirror = NULL;
}

/* Ends all jobs, and collects what other threads still have: the preconditioner tasks, the checkpoints and the WAL
 * records. So the store has all of its buffers, published versions and tasks before it is freed. */
static void wind_up(pd_stepper *stepper)
{
    pd_request *drop = pd_request_new(PD_REQ_DROP, (pd_ticket){ 0, 0 });

    finish(stepper);
    stepper->lost = pd_store_count_losing(stepper->store);
    if (drop != NULL) pd_turn_add(&stepper->turn, &drop->mail);
    pd_turn_finish(&stepper->turn);
    pd_precond_pool_stop(stepper->pool);
    stepper->pool = NULL;
    finish(stepper);
    stop_disk_writers(stepper);
    finish(stepper);
}

/* Restricts the step thread, and the OpenMP team that it starts later, to the chosen NUMA node. The main thread reports
 * it if memory cannot be allocated on the node. */
static void settle(const pd_numa *numa)
{
    int error = pd_numa_bind(numa);

    if (error != 0)
        pd_log(LOG_WARNING, "numa: cannot bind the step threads to node %d: %s", numa->node, strerror(error));
    (void)pd_numa_prefer(numa);
}

static void *run(void *arg)
{
    pd_stepper *stepper = arg;
    bool more = false, closed = false;
    pd_mail *mail;

    settle(&stepper->numa);
    while (!atomic_load(&stepper->stop)) {
        mail = more ? pd_mailbox_take(stepper->requests)
                    : pd_mailbox_wait(stepper->requests, pd_turn_next_tick(&stepper->turn), &closed);
        pd_turn_add(&stepper->turn, mail);
        busy(stepper, pd_clock_ns());
        more = pd_turn_run(&stepper->turn);
        busy(stepper, 0);
    }
    wind_up(stepper);
    return NULL;
}

static int restore(void *arg, const pd_checkpoint_image *kept, pd_error *err)
{
    return pd_store_restore(arg, kept, pd_clock_ns(), err);
}

static int replay(void *arg, const pd_wal_record *record, pd_error *err)
{
    bool unchanged;
    int rc = pd_store_replay(arg, record, pd_clock_ns(), &unchanged, err);

    return rc == PD_OK || unchanged || rc == PD_NO_MEMORY ? rc : (err->code = PD_ABORTED);
}

/* Returns how many bytes per second the disk of the state directory writes; 0: the measurement failed. */
static uint64_t measure_disk(const char *dir)
{
    uint64_t speed;
    pd_error why;

    if (pd_disk_speed(&pd_disk_posix, dir, &speed, &why) != PD_OK)
        pd_log(LOG_WARNING, "cannot measure the disk: %s", why.text);
    return speed;
}

static void warm(void *arg, void *at, size_t bytes)
{
    const pd_stepper *stepper = arg;

    if (stepper->warmer != NULL) pd_warmer_put(stepper->warmer, at, bytes);
}

/* Restores jobs from the state directory. Meanwhile other threads read files ahead and populate memory for weights. */
static int recover(pd_stepper *stepper, const pd_stepper_config *config, pd_error *err)
{
    const pd_recover_user user = { stepper->store, restore, replay, config->stops };
    pd_read_ahead *ahead;
    int rc = pd_read_ahead_start(&ahead, &pd_disk_posix, err);

    if (rc == PD_OK) rc = pd_warmer_start(&stepper->warmer, &config->numa, err);
    if (rc == PD_OK) rc = pd_recover(pd_read_ahead_disk(ahead), config->keep_dir, &user, err);
    pd_warmer_stop(stepper->warmer);
    stepper->warmer = NULL;
    pd_read_ahead_stop(ahead);
    return rc;
}

/* Tells the mirror thread that there is something to copy. No disk writer has anything to write before the step thread
 * runs, so `mirror` is set by then. */
static void wake_mirror(void *arg)
{
    const pd_stepper *stepper = arg;

    pd_mirror_thread_wake(stepper->mirror);
}

static int start_mirror(pd_stepper *stepper, const pd_stepper_config *config, pd_error *err)
{
    const pd_mirror_thread_config mirror = { config->keep_dir, config->mirror, .tenure = config->tenure,
                                             .done = stepper->requests };

    return config->mirror != NULL ? pd_mirror_thread_start(&stepper->mirror, &mirror, err) : PD_OK;
}

/* Makes the store. If there is a state directory, starts the disk writers and restores jobs. */
static int open_store(pd_stepper *stepper, const pd_stepper_config *config, pd_error *err)
{
    pd_disk_writer_config writer = { PD_WRITES_CHECKPOINTS, config->keep_dir, .lock = config->lock,
                                     .done = stepper->requests };
    pd_store_config store = config->store;
    int rc;

    if (config->mirror != NULL) writer.wrote = wake_mirror;
    writer.arg = stepper;
    store.keeps = config->keep_dir != NULL;
    store.mirrors = config->mirror != NULL;
    store.clock_ns = read_clock;
    store.warm = warm;
    store.warm_arg = stepper;
    if (store.keeps && (rc = pd_disk_writer_start(&stepper->checkpoints, &writer, err)) != PD_OK) return rc;
    if (store.keeps) store.disk_speed = measure_disk(config->keep_dir);
    if ((rc = pd_store_new(&stepper->store, &store, err)) != PD_OK || !store.keeps) return rc;
    if ((rc = recover(stepper, config, err)) != PD_OK) return rc;
    if ((rc = start_mirror(stepper, config, err)) != PD_OK) return rc;
    writer.kind = PD_WRITES_WAL;
    return pd_disk_writer_start(&stepper->wal, &writer, err);
}

/* Frees the mailbox of the step thread. A mirror thread that has not ended may still look whether it is closed, so then
 * it stays. */
static void free_requests(pd_mailbox *requests, bool mirror_left)
{
    pd_mail *mail;

    if (requests == NULL) return;
    pd_mailbox_close(requests);
    while ((mail = pd_mailbox_take(requests)) != NULL)
        for (pd_mail *next; mail != NULL; mail = next) {
            next = mail->next;
            pd_request_free((pd_request *)(void *)mail);
        }
    if (!mirror_left) pd_mailbox_free(requests);
}

static void free_unstarted(pd_stepper *stepper)
{
    bool left = !pd_mirror_thread_stop(stepper->mirror, 0);

    (void)pd_disk_writer_stop(stepper->wal, UINT64_MAX, NULL);
    (void)pd_disk_writer_stop(stepper->checkpoints, UINT64_MAX, NULL);
    pd_precond_pool_stop(stepper->pool);
    pd_store_free(stepper->store);
    pd_request_free(stepper->last_call);
    free_requests(stepper->requests, left);
    free(stepper);
}

/* Fills in the stepper and starts its threads, the step thread last. After an error, the caller must call
 * free_unstarted. */
static int start_threads(pd_stepper *stepper, const pd_stepper_config *config, pd_error *err)
{
    int rc;

    stepper->effects = config->effects;
    stepper->numa = config->numa;
    stepper->requests = pd_mailbox_new(NULL, NULL);
    stepper->last_call = pd_request_new(PD_REQ_RELEASED, (pd_ticket){ 0, 0 });
    if (stepper->requests == NULL || stepper->last_call == NULL) return pd_fail(err, PD_NO_MEMORY, "out of memory");
    if ((rc = open_store(stepper, config, err)) != PD_OK) return rc;
    stepper->turn.store = stepper->store;
    stepper->turn.user = (pd_turn_user){ .arg = stepper,
                                         .now_ns = read_clock,
                                         .effects = post_effects,
                                         .task = hand_to_pool,
                                         .forget = forget_tasks,
                                         .keep = hand_checkpoint,
                                         .log = hand_record };
    rc = pd_precond_pool_start(&stepper->pool, config->pool_threads, stepper->requests, err);
    return rc == PD_OK ? pd_thread_start(&stepper->thread, run, stepper, "step thread", err) : rc;
}

int pd_stepper_start(pd_stepper **out, const pd_stepper_config *config, pd_error *err)
{
    pd_stepper *stepper = calloc(1, sizeof *stepper);
    int rc;

    if (stepper == NULL) return pd_fail(err, PD_NO_MEMORY, "out of memory");
    rc = start_threads(stepper, config, err);
    if (rc == PD_OK)
        *out = stepper;
    else
        free_unstarted(stepper);
    return rc;
}

pd_mailbox *pd_stepper_requests(pd_stepper *stepper)
{
    return stepper->requests;
}

uint64_t pd_stepper_busy_ns(const pd_stepper *stepper)
{
    uint64_t since = atomic_load_explicit(&((pd_stepper *)stepper)->busy_since, memory_order_relaxed),
             now = pd_clock_ns();
    return since == 0 || now < since ? 0 : now - since;
}

bool pd_stepper_mirror_is_up(const pd_stepper *stepper)
{
    return stepper->mirror == NULL || pd_mirror_thread_is_up(stepper->mirror);
}

void pd_stepper_tick(const pd_stepper *stepper)
{
    pd_mirror_thread_tick(stepper->mirror);
}

/* Releases the published versions in effects that the loop thread has not read. The effects stay in the loop thread's
 * mailbox. */
static void take_back_published(pd_stepper *stepper)
{
    pd_mail *mail = pd_mailbox_take(stepper->effects), *first = mail, *last = NULL;

    for (; mail != NULL; last = mail, mail = mail->next) {
        pd_effect *effect = (pd_effect *)(void *)mail;
        for (size_t i = 0; effect->kind == PD_EFF_CLOSED && i < effect->u.closed.n; i++) {
            pd_request *released =
                effect->u.closed.at[i].published != NULL ? pd_request_new(PD_REQ_RELEASED, (pd_ticket){ 0, 0 }) : NULL;
            if (released == NULL) continue;
            released->u.released.first = effect->u.closed.at[i].published;
            released->u.released.first->next_released = NULL;
            effect->u.closed.at[i].published = NULL;
            pd_store_apply(stepper->store, released, pd_clock_ns());
        }
    }
    if (first != NULL) pd_mailbox_post(stepper->effects, first, last);
}

bool pd_stepper_stop(pd_stepper *stepper, uint64_t until_ns, size_t *lost)
{
    if (lost != NULL) *lost = 0;
    if (stepper == NULL) return true;
    stepper->until_ns = until_ns;
    atomic_store(&stepper->stop, true);
    /* wakes the step thread; the mailbox stays open, because the preconditioner pool still posts its tasks to it */
    pd_mailbox_post(stepper->requests, &stepper->last_call->mail, &stepper->last_call->mail);
    pthread_join(stepper->thread, NULL);
    if (lost != NULL) *lost = stepper->lost;
    if (stepper->left) return false;
    pd_mailbox_close(stepper->requests);
    take_back_published(stepper);
    pd_turn_finish(&stepper->turn);
    pd_store_free(stepper->store);
    free_requests(stepper->requests, stepper->mirror_left);
    free(stepper);
    return true;
}
