#include "rootpool.h"

#include "assignment.h"
#include "blascore.h"
#include "optim.h"

#include <pthread.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#define HASH_NONFATAL_OOM 1
#include <uthash.h>

/* Than the daemon itself: a tenth of a core that the step wants too, all of one that nobody wants. Much nicer, and roots would never be done where other
 * programs are busy. */
enum { NICER = 10 };

/* Which root: numbers, which outlive what they name. No padding: hashed as bytes. */
typedef struct root_key { uint32_t job, param, index; } root_key;

/* A task that waits, and the mail that brings it home. */
typedef struct entry {
    UT_hash_handle  hh;             /* pool->replaceable */
    struct entry   *next;           /* of those taken out together */
    root_key        key;
    pd_load         load;           /* its cost; its place is the order of submission */
    struct pd_task *task;
    pd_request     *back;
} entry;

struct pd_rootpool {
    pthread_mutex_t lock;           /* over the four below; held for pointers, never while somebody computes */
    pthread_cond_t  more;
    entry         **waiting;        /* a binary heap: the largest first, then the oldest */
    size_t          n, room;
    entry          *replaceable;    /* hash table by key of those in it that newer statistics replace */
    bool            stop;
    uint64_t        submitted;      /* step thread's */
    pd_mailbox     *done;
    int             n_threads;
    pthread_t       thread[];
};

/* ---- what waits, with the lock held ---- */

/* An entry finds its place at or above `at`. */
static void rise(pd_rootpool *pool, size_t at, entry *e)
{
    for (; at > 0 && pd_load_leads(e->load, pool->waiting[(at - 1) / 2]->load); at = (at - 1) / 2) pool->waiting[at] = pool->waiting[(at - 1) / 2];
    pool->waiting[at] = e;
}

/* An entry finds its place at or below `at`. */
static void sink(pd_rootpool *pool, size_t at, entry *e)
{
    for (size_t child; (child = 2 * at + 1) < pool->n; at = child) {
        if (child + 1 < pool->n && pd_load_leads(pool->waiting[child + 1]->load, pool->waiting[child]->load)) child++;
        if (!pd_load_leads(pool->waiting[child]->load, e->load)) break;
        pool->waiting[at] = pool->waiting[child];
    }
    pool->waiting[at] = e;
}

static entry *first_of(pd_rootpool *pool)
{
    entry *first = pool->waiting[0], *last = pool->waiting[--pool->n];

    if (pool->n > 0) sink(pool, 0, last);
    if (first->hh.tbl != NULL) HASH_DEL(pool->replaceable, first);
    return first;
}

static int make_room(pd_rootpool *pool)
{
    size_t room = pool->room == 0 ? 64 : 2 * pool->room;
    entry **waiting = pool->n < pool->room ? pool->waiting : realloc(pool->waiting, room * sizeof *waiting);

    if (waiting == NULL) return PD_NO_MEMORY;
    if (pool->n == pool->room) pool->room = room;
    pool->waiting = waiting;
    return PD_OK;
}

static int insert(pd_rootpool *pool, entry *e)
{
    if (make_room(pool) != PD_OK) return PD_NO_MEMORY;
    if (pd_task_replaceable(e->task)) {
        HASH_ADD(hh, pool->replaceable, key, sizeof e->key, e);
        if (e->hh.tbl == NULL) return PD_NO_MEMORY;
    }
    rise(pool, pool->n++, e);
    return PD_OK;
}

/* The newer task takes the place of one of its key that waits, and that one its mail: gives the entry to send home, or NULL. The cost of
 * a root does not change, so the place is right. */
static entry *replace(pd_rootpool *pool, entry *newer)
{
    struct pd_task *task = newer->task;
    pd_request *back = newer->back;
    entry *older;

    HASH_FIND(hh, pool->replaceable, &newer->key, sizeof newer->key, older);
    if (older == NULL) return NULL;
    newer->task = older->task;
    newer->back = older->back;
    older->task = task;
    older->back = back;
    return newer;
}

/* Takes out those of one job; gives them as a list. */
static entry *take_job(pd_rootpool *pool, uint32_t job)
{
    entry *taken = NULL;
    size_t kept = 0;

    for (size_t i = 0; i < pool->n; i++) {
        entry *e = pool->waiting[i];
        if (e->key.job != job) {
            pool->waiting[kept++] = e;
            continue;
        }
        if (e->hh.tbl != NULL) HASH_DEL(pool->replaceable, e);
        e->next = taken;
        taken = e;
    }
    pool->n = kept;
    for (size_t i = kept / 2; i-- > 0;) sink(pool, i, pool->waiting[i]);
    return taken;
}

/* ---- pool threads ---- */

/* Roots may be late; the step may not: on Linux a thread has a priority of its own. One BLAS thread, and no team of this thread's own. */
static void settle_down(void)
{
    id_t self = (id_t)syscall(SYS_gettid);

    setpriority(PRIO_PROCESS, self, getpriority(PRIO_PROCESS, self) + NICER);
    pd_blas_one_thread();
}

/* NULL: the pool stops. */
static entry *take(pd_rootpool *pool)
{
    entry *first;

    pthread_mutex_lock(&pool->lock);
    while (pool->n == 0 && !pool->stop) pthread_cond_wait(&pool->more, &pool->lock);
    first = pool->stop ? NULL : first_of(pool);
    pthread_mutex_unlock(&pool->lock);
    return first;
}

static void bring_home(pd_rootpool *pool, entry *e)
{
    pd_mailbox_post(pool->done, &e->back->mail, &e->back->mail);
    free(e);
}

static double now_ms(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec * 1e3 + (double)now.tv_nsec / 1e6;
}

static void *run(void *arg)
{
    pd_rootpool *pool = arg;
    entry *e;

    settle_down();
    while ((e = take(pool)) != NULL) {
        double begun = now_ms();
        pd_task_run(e->task);
        pd_task_took(e->task, now_ms() - begun);
        bring_home(pool, e);
    }
    return NULL;
}

/* ---- step thread ---- */

static entry *entry_new(pd_rootpool *pool, struct pd_task *task, uint32_t job, uint32_t param)
{
    entry *e = calloc(1, sizeof *e);

    if (e == NULL || (e->back = pd_request_new(PD_REQ_TASK, (pd_ticket){ 0, 0 })) == NULL) {
        free(e);
        return NULL;
    }
    e->key = (root_key){ job, param, (uint32_t)pd_task_index(task) };
    e->load = (pd_load){ pd_task_cost(task), pool->submitted++ };
    e->task = task;
    e->back->job = job;
    e->back->u.task.task = task;
    e->back->u.task.param = param;
    return e;
}

static void entry_free(entry *e)
{
    pd_request_free(e->back);
    free(e);
}

int pd_rootpool_submit(pd_rootpool *pool, struct pd_task *task, uint32_t job, uint32_t param)
{
    entry *e = entry_new(pool, task, job, param), *replaced;
    int rc = PD_OK;

    if (e == NULL) return PD_NO_MEMORY;
    pthread_mutex_lock(&pool->lock);
    if ((replaced = replace(pool, e)) == NULL && (rc = insert(pool, e)) == PD_OK) pthread_cond_signal(&pool->more);
    pthread_mutex_unlock(&pool->lock);
    if (replaced != NULL) bring_home(pool, replaced);
    if (rc != PD_OK) entry_free(e);
    return rc;
}

void pd_rootpool_forget(pd_rootpool *pool, uint32_t job)
{
    entry *taken, *next;

    if (pool == NULL) return;
    pthread_mutex_lock(&pool->lock);
    taken = take_job(pool, job);
    pthread_mutex_unlock(&pool->lock);
    for (; taken != NULL; taken = next) {
        next = taken->next;
        bring_home(pool, taken);
    }
}

int pd_rootpool_start(pd_rootpool **out, int threads, pd_mailbox *done, pd_error *err)
{
    pd_rootpool *pool = calloc(1, sizeof *pool + (size_t)threads * sizeof pool->thread[0]);

    if (pool == NULL) return pd_fail(err, PD_NO_MEMORY, "out of memory");
    pthread_mutex_init(&pool->lock, NULL);
    pthread_cond_init(&pool->more, NULL);
    pool->done = done;
    while (pool->n_threads < threads && pthread_create(&pool->thread[pool->n_threads], NULL, run, pool) == 0) pool->n_threads++;
    if (pool->n_threads == threads) {
        *out = pool;
        return PD_OK;
    }
    pd_rootpool_stop(pool);
    return pd_fail(err, PD_RESOURCE_EXHAUSTED, "the root pool's %d threads cannot be started", threads);
}

void pd_rootpool_stop(pd_rootpool *pool)
{
    if (pool == NULL) return;
    pthread_mutex_lock(&pool->lock);
    pool->stop = true;
    pthread_cond_broadcast(&pool->more);
    pthread_mutex_unlock(&pool->lock);
    for (int i = 0; i < pool->n_threads; i++) pthread_join(pool->thread[i], NULL);
    while (pool->n > 0) bring_home(pool, first_of(pool));
    free(pool->waiting);
    pthread_cond_destroy(&pool->more);
    pthread_mutex_destroy(&pool->lock);
    free(pool);
}
